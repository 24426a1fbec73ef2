/* SPDX-License-Identifier: MIT */
/* The safetensors format: named tensors in one file.
 *
 * 8 bytes little-endian header size, a JSON object {"NAME": {"dtype", "shape",
 * "data_offsets": [begin, end]}, "__metadata__": {string: string}}, then the bytes. Read
 * strictly: sizes must agree, tensors may neither overlap nor leave holes.
 */
#ifndef TASUKI_TRAIN_SAFETENSORS_H
#define TASUKI_TRAIN_SAFETENSORS_H

#include <stddef.h>

#include "graph/graph.h"

struct err;
struct file_map;
struct safetensors;

struct safetensors_tensor {
    const char *name;
    const char *type;       /* as in the file: "F32", "BF16", … */
    enum dtype dtype;       /* DTYPE_NONE for types that Tasuki does not compute with */
    struct shape shape;
    const void *data;       /* in the mapping; may be unaligned */
    size_t bytes;
};

/* Map and check a file. Errors name file and tensor. */
struct safetensors *safetensors_open(const char *path, struct err *err);
/* In a process that has not the file: from its first bytes, safetensors_head(), and its size. The
 * tensors are 0.
 */
struct safetensors *safetensors_open_head(const char *path, const void *head, size_t bytes,
                                          size_t size, struct err *err);
const void *safetensors_head(const struct safetensors *file, size_t *bytes);
void safetensors_close(struct safetensors *file);
const char *safetensors_path(const struct safetensors *file);
const struct file_map *safetensors_map(const struct safetensors *file);
int safetensors_count(const struct safetensors *file);
/* In the order of their bytes in the file. */
const struct safetensors_tensor *safetensors_at(const struct safetensors *file, int index);
const struct safetensors_tensor *safetensors_find(const struct safetensors *file,
                                                  const char *name);
/* XXH3 of the whole file as 16 hex digits, see file_hash(). */
void safetensors_hash(const struct safetensors *file, char hex[17]);

/* Write tensors ('type' and 'bytes' are ignored: made from dtype and shape) to a new file,
 * fsync'ed. On failure no file is left behind.
 */
int safetensors_write(const char *path, int n, const struct safetensors_tensor *tensors,
                      struct err *err);
/* The same over a file that may be there, which stays as it was until the new one is complete.
 * What is there and no regular file is refused.
 */
int safetensors_replace(const char *path, int n, const struct safetensors_tensor *tensors,
                        struct err *err);

#endif
