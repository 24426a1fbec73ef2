/* SPDX-License-Identifier: MIT */
/* Between policy.c (the rules) and policy_balance.c (stages as even as they get). */
#ifndef TASUKI_SCHEDULER_POLICY_PRIVATE_H
#define TASUKI_SCHEDULER_POLICY_PRIVATE_H

#include "scheduler/partition_private.h"

/* Cuts and replicas for one split of the batch whose slowest stage is the fastest, under gpipe,
 * for one stage more at each balance_extend(). All devices are used.
 */
struct balance;

/* 'most' replicas of a stage, in powers of two. 'bandwidth' of messages, INFINITY: they take no
 * time.
 */
struct balance *balance_new(struct search *search, const struct split *split, int devices,
                            int most, double bandwidth);
void balance_free(struct balance *balance);
void balance_extend(struct balance *balance);
/* With as many stages as there were extensions; NULL where none fits. */
struct candidate *balance_candidate(const struct balance *balance);

#endif
