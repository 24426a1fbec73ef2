/* SPDX-License-Identifier: MIT */
/* Files that one argument stands for: a path, a directory's files, a pattern as of the shell,
 * and ranges of numbers, "train-{000..127}.tar".
 */
#ifndef TASUKI_TRAIN_SHARDS_H
#define TASUKI_TRAIN_SHARDS_H

struct err;

/* Paths in the order of numbers and names; '*paths' and each are malloc'ed. In a directory
 * those that end in 'suffix'. What is there by the very name is no pattern. Fails where there are
 * none.
 */
int shards_find(const char *spec, const char *suffix, char ***paths, int *n, struct err *err);
/* Files of a directory whose names end so, hidden ones aside, by name; -1 where it is none. */
int shards_in(const char *directory, const char *suffix, char ***paths);
void shards_free(char **paths, int n);

#endif
