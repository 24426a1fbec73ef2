/* SPDX-License-Identifier: MIT */
/* Other rules than the search, to compare plans with: tasuki plan --policy.
 *
 * equal: stages of equally many layers and equally many replicas.
 * gpipe: as many stages as devices, without replicas, as even in time as the blocks allow.
 * megatron: as equal, for Transformers alone, with as many layers in each stage.
 * rannc: Tanaka et al., "Automatic Graph Partitioning for Very Large-scale Deep Learning" (2021):
 * pipelines over as few nodes as possible, the least number of stages that fits, replicas and
 * micro-batches in powers of two, stages as even as they get by time and messages, every link
 * as good as the best one, and no all-reduce.
 *
 * What a rule leaves open, of the number of stages and the micro-batches, is what the simulation
 * finds fastest.
 */
#ifndef TASUKI_SCHEDULER_POLICY_H
#define TASUKI_SCHEDULER_POLICY_H

#include "scheduler/cost.h"

struct err;
struct plan_request;
struct search;

#define POLICY_NAMES "rannc, gpipe, megatron or equal"

/* Fails where the pins contradict the policy, or the network is none for it. */
int policy_check(const struct cost *cost, const struct plan_request *request, struct err *err);
/* Adds data parallelism, and the best of equal stages, to what is found: by the closed form they
 * look worse than they are where most of the all-reduce overlaps with the backward.
 */
void policy_seed(struct search *search);
/* Replaces the search: its table has the places at which the policy cuts, 'found' what fits. */
void policy_search(struct search *search);
/* Why nothing was found. Always -1. */
int policy_explain_failure(struct search *search, struct err *err);

#endif
