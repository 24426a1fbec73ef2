/* SPDX-License-Identifier: MIT */
/* The index of tar archives, kept from run to run, so that a start need not read through them. It
 * is good for archives of the same paths, sizes and times of change. A file that is damaged, or
 * says what cannot be, is as good as none.
 */
#ifndef TASUKI_TRAIN_TAR_CACHE_H
#define TASUKI_TRAIN_TAR_CACHE_H

#include <stdbool.h>

struct tar_index;

/* Fills samples and bad ones of an index whose archives are mapped; false: nothing is changed. */
bool tar_cache_load(struct tar_index *index, const char *directory);
/* What cannot be written is not kept. */
void tar_cache_save(const struct tar_index *index, const char *directory);

#endif
