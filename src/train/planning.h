/* SPDX-License-Identifier: MIT */
/* From a model and a cluster to a plan: costs measured or read, then the planner. */
#ifndef TASUKI_TRAIN_PLANNING_H
#define TASUKI_TRAIN_PLANNING_H

struct err;
struct plan;
struct session;

/* For rank 0 of a session whose inputs are open and whose cluster is known. */
struct plan *planning_make(struct session *session, struct err *err);

#endif
