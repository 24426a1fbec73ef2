/* SPDX-License-Identifier: MIT */
/* The order of ranks over nodes that a plan asks for: that of its devices, so that neighbours
 * in the pipeline have neighbouring ranks.
 *
 * Devices find their ranks by name in any order; the launcher makes this one, and says so to
 * the ranks by TASUKI_ORDER=plan, which then hold what PMIx tells of each against it.
 */
#ifndef TASUKI_TRAIN_ORDER_H
#define TASUKI_TRAIN_ORDER_H

struct comm;
struct err;
struct plan;

/* The node of each device, in the order in which the plan first names them: "n1" of "n1/gpu3".
 * 0 where devices do not say their nodes; order_free() the list.
 */
int order_of_plan(const struct plan *plan, char ***nodes);
void order_free(int n, char **nodes);
/* Is each rank where the launcher was to start it? Nothing where no launcher says so. */
int order_check(const struct plan *plan, const struct comm *comm, struct err *err);

#endif
