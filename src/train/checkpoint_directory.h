/* SPDX-License-Identifier: MIT */
/* How a checkpoint comes to stand in its directory: complete, or not at all. */
#ifndef TASUKI_TRAIN_CHECKPOINT_DIRECTORY_H
#define TASUKI_TRAIN_CHECKPOINT_DIRECTORY_H

#include <jansson.h>
#include <stdint.h>

struct err;

/* An empty directory 'temporary' in 'directory', which is made where it is missing. */
int checkpoint_start(const char *directory, const char *temporary, struct err *err);
/* 'temporary' becomes the step 'name', and the newest; on failure all is as it was. Then older
 * ones are removed, but the newest 'keep', this one among them; see checkpoint.h.
 */
int checkpoint_finish(const char *directory, const char *temporary, const char *name,
                      int keep, struct err *err);
/* XXH3 of what state.json says, but for its own key "xxh3"; see file_hash(). */
void checkpoint_state_hash(const json_t *state, char hex[17]);
/* Steps in the directory, up to 'last'; 0 where it is none. */
int checkpoint_count_steps(const char *directory, int64_t last);

#endif
