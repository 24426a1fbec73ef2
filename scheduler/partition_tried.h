/* SPDX-License-Identifier: MIT */
/* Private to the planner: what a trial has run, among what a search finds. */
#ifndef TASUKI_SCHEDULER_PARTITION_TRIED_H
#define TASUKI_SCHEDULER_PARTITION_TRIED_H

#include "scheduler/partition_private.h"

/* Twice its place among what was tried; one more than that of the last with as many pipelines,
 * stages and devices, where none had its order; twice their number where none had these.
 */
int search_tried(const struct search *search, const struct candidate *c);
/* The plans that were tried, cut as they were, as far as they fit now. */
void search_add_tried(struct search *search);
/* Puts first what real steps were fastest with, unless what was not tried is faster by more than
 * forecasts were off. -1 on an error.
 */
int search_tried_first(struct search *search, struct err *err);

#endif
