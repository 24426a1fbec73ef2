/* SPDX-License-Identifier: MIT */
/* Where all ranks were when nothing moved, in words and for the log. */
#ifndef TASUKI_TRAIN_STANDSTILL_H
#define TASUKI_TRAIN_STANDSTILL_H

#include <jansson.h>

struct comm;

/* A line for each group of ranks that do the same; nothing where comm_standstill() is NULL. */
void standstill_say(const struct comm *comm);
/* The groups as an array, see tasuki-log(5); NULL likewise. */
json_t *standstill_to_json(const struct comm *comm);

#endif
