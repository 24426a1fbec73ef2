/* SPDX-License-Identifier: MIT */
/* Files that spare a later run work: measured costs, what trials have shown, indices of archives,
 * kernels that were compiled, and what cuDNN has chosen. A user's are in $TASUKI_CACHE_DIR, else $XDG_CACHE_HOME/tasuki, else ~/.cache/tasuki; those of a site
 * in $TASUKI_SITE_CACHE, where they are only read: what a user has of the same name comes first.
 * Their names end in a hash of what they are of, the version of Tasuki included.
 */
#ifndef TASUKI_BASE_CACHE_H
#define TASUKI_BASE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The user's, by the environment, malloc'ed; NULL where nothing is to be 'kept', or there is no
 * home.
 */
char *cache_directory(bool kept);
/* As it was asked for last: for what no setting of a command leads to. */
char *cache_of_run(void);
/* FNV-1a of 'text' and this version: 16 hex digits. */
void cache_hash(const char *text, char hex[17]);
void cache_hash_bytes(const void *data, size_t bytes, char hex[17]);
/* DIRECTORY/PREFIX-HASHSUFFIX, malloc'ed. */
char *cache_path(const char *directory, const char *prefix, const char *hash, const char *suffix);
/* Where the site would have it, malloc'ed; NULL: there is no site's cache. */
char *cache_site_path(const char *path);
/* It was of use: of too many files those go first that have not been for the longest time. */
void cache_touch(const char *path);

/* Only one process at a time changes a directory; it is made where there is none. What is in a file
 * is read between these two when it is to be changed. cache_enter() returns -1 where the directory
 * cannot be written, or another process holds it for more than a second: then nothing is written.
 * cache_leave() removes what is too much, and what writers that were killed left.
 */
int cache_enter(const char *directory);
void cache_leave(const char *directory, int turn);
/* Bytes that a directory may have: 1 GiB, or $TASUKI_CACHE_LIMIT. */
int64_t cache_limit(void);

#endif
