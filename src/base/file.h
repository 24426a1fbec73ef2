/* SPDX-License-Identifier: MIT */
/* Files: mapped for reading, written whole or not at all. */
#ifndef TASUKI_BASE_FILE_H
#define TASUKI_BASE_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

/* Which file it is, and of what age its content. */
struct file_stamp {
    uint64_t device, inode, size;
    int64_t seconds, nanoseconds;   /* of the last change */
};
/* Of an open file. */
int file_stamp(int fd, struct file_stamp *stamp);
bool file_stamp_same(const struct file_stamp *a, const struct file_stamp *b);

struct file_map {
    const unsigned char *data;  /* NULL where the file is empty */
    size_t size;
    struct file_stamp stamp;    /* when it was mapped */
    bool blank;                 /* no file is behind it: see file_map_blank() */
};

/* Map a regular file read-only. Errors name 'path'. */
int file_map_open(const char *path, struct file_map *map, struct err *err);
/* In place of a file that is elsewhere: so many bytes of 0, for others to fill in. Only those that
 * are written take memory.
 */
int file_map_blank(size_t size, struct file_map *map, struct err *err);
/* Are these bytes all of this file? */
bool file_map_has(const struct file_map *map, const void *data, size_t bytes);
/* From now on the same addresses show the bytes of another file, open as 'fd' and as long. Others
 * may read there meanwhile: they see the one or the other. -1: it is as it was.
 */
int file_map_replace(const struct file_map *map, int fd);
/* Bytes at 'data', where they are of this file, need not stay in this process' memory: read again
 * they come back.
 */
void file_map_drop(const struct file_map *map, const void *data, size_t bytes);
void file_map_close(struct file_map *map);

/* Write 'size' bytes under a temporary name in the same directory, fsync, rename over
 * 'path'. On failure nothing is left behind and an older 'path' is untouched. "-" is stdout. Fails
 * where file_check_link() does.
 */
int file_write(const char *path, const void *data, size_t size, struct err *err);

/* The same for a regular file; a link gives way to it, and what that points to stays. */
int file_replace(const char *path, const void *data, size_t size, struct err *err);
/* For this user alone, whatever the umask. */
int file_replace_private(const char *path, const void *data, size_t size, struct err *err);
/* A new file for this user alone, whatever the umask, below $TMPDIR or /tmp, with this text. Its
 * name, malloc'ed, has such an ending, or ""; NULL: there is none.
 */
char *file_temporary(const char *ending, const char *text, struct err *err);

/* All 'size' bytes to an open file; 'path' is for the error. */
int file_write_all(int fd, const char *path, const void *data, size_t size, struct err *err);

/* XXH3-64 as 16 hex digits into 'hex'; "" where Tasuki was built without xxhash. */
void file_hash(const void *data, size_t size, char hex[17]);
/* The same of bytes that come piece by piece; file_sum_end() frees it. */
struct file_sum;
struct file_sum *file_sum_new(void);
void file_sum_add(struct file_sum *sum, const void *data, size_t size);
void file_sum_end(struct file_sum *sum, char hex[17]);

/* Is there such a program in PATH? */
bool file_in_path(const char *program);

/* mkdir -p; what fails, or file_check_link() refuses, shows when something is written there. */
void file_mkdirs(const char *path);
/* mkdir -p for the last component only; an existing directory is fine. Fails where
 * file_check_link() does.
 */
int file_mkdir(const char *path, struct err *err);
/* Fails where 'path', or anything that leads there, is a link in a folder that others than its owner
 * may write to, by its group or as all, and neither this user, nor root, nor that owner made it.
 * What is not there is none.
 */
int file_check_link(const char *path, struct err *err);
/* The directory itself: a link to one is none. NULL sets errno. */
DIR *file_opendir(const char *path);
/* Has the name such an ending, ".json", and something before it? */
bool file_ends_in(const char *name, const char *ending);
/* A directory of plain files, if it is there. Of a link the link alone. */
void file_remove_directory(const char *path);

#endif
