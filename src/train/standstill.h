/* SPDX-License-Identifier: MIT */
/* Where all ranks were when nothing moved, in words and for the log. */
#ifndef TASUKI_TRAIN_STANDSTILL_H
#define TASUKI_TRAIN_STANDSTILL_H

#include <jansson.h>

#include "base/log.h"

struct sighting;

/* A line for each group of ranks that do the same; 'ranks' [size], NULL: none. */
void standstill_say(const struct sighting *ranks, int size, enum log_level level);
/* The groups as an array, see tasuki-log(5); NULL likewise. */
json_t *standstill_to_json(const struct sighting *ranks, int size);

#endif
