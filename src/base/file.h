/* SPDX-License-Identifier: MIT */
/* Files: mapped for reading, written whole or not at all. */
#ifndef TASUKI_BASE_FILE_H
#define TASUKI_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

struct err;

struct file_map {
    const unsigned char *data;  /* NULL where the file is empty */
    size_t size;
};

/* Map a regular file read-only. Errors name 'path'. */
int file_map_open(const char *path, struct file_map *map, struct err *err);
void file_map_close(struct file_map *map);

/* Write 'size' bytes under a temporary name in the same directory, fsync, rename over
 * 'path'. On failure nothing is left behind and an older 'path' is untouched. "-" is stdout.
 */
int file_write(const char *path, const void *data, size_t size, struct err *err);

/* All 'size' bytes to an open file; 'path' is for the error. */
int file_write_all(int fd, const char *path, const void *data, size_t size, struct err *err);

/* XXH3-64 as 16 hex digits into 'hex'; "" where Tasuki was built without xxhash. */
void file_hash(const void *data, size_t size, char hex[17]);

/* mkdir -p for the last component only; an existing directory is fine. */
int file_mkdir(const char *path, struct err *err);

#endif
