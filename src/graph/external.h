/* SPDX-License-Identifier: MIT */
/* External data: files beside the model that hold tensors, each mapped once. */
#ifndef TASUKI_GRAPH_EXTERNAL_H
#define TASUKI_GRAPH_EXTERNAL_H

#include <stddef.h>
#include <stdint.h>

struct err;
struct external;
struct file_map;

/* For the model at 'path'. */
struct external *external_new(const char *path);
void external_free(struct external *external);
/* file_map_drop() of the one that has it. */
void external_drop(const struct external *external, const void *data, size_t bytes);

/* 'size' bytes from 'offset' of the file 'location' relative to the model's directory; *data
 * stays valid until external_free(). Refused: absolute locations, "..", what is no regular
 * file or, symbolic links followed, not in that directory, and ranges past the file's end.
 */
int external_data(struct external *external, const char *location, uint64_t offset,
                  uint64_t size, const unsigned char **data, struct err *err);
/* The files so far; '*location' is what they are called. NULL past the last. */
const struct file_map *external_file(const struct external *external, int index,
                                     const char **location);
/* This mapping, which is then the struct's, in place of a file. external_settle(): what is asked
 * for from now on does not lie in such, but on disk.
 */
void external_add(struct external *external, const char *location, const struct file_map *map);
void external_settle(struct external *external);
/* Size of such a file. */
int external_size(struct external *external, const char *location, uint64_t *size,
                  struct err *err);

#endif
