/* SPDX-License-Identifier: MIT */
/* Pipelines on parts of the cluster that are alike, and that share no wire and no core, do the
 * same at the same time: one of them tells what all do.
 */
#include <string.h>

#include "scheduler/simulate_private.h"

/* The lowest place that holds all devices. */
static int top_of(const struct cluster *c)
{
    int top = c->devices[0].place, last = c->devices[c->n_devices - 1].place;

    while (last < top || last >= cluster_end(c, top))
        top = c->places[top].parent;
    return top;
}

/* The place below that on the way to a device. */
static int branch_of(const struct cluster *c, int top, int device)
{
    int place = c->devices[device].place;

    while (c->places[place].parent != top)
        place = c->places[place].parent;
    return place;
}

/* Is the way up from one device that of the other, 'shift' places further on? */
static bool same_way(const struct cluster *c, int top, int a, int b, int shift)
{
    int x = c->devices[a].place, y = c->devices[b].place;

    for (; x != top; x = c->places[x].parent, y = c->places[y].parent)
        if (y != x + shift || !cluster_same_way(&c->places[x], &c->places[y]))
            return false;
    return y == top && c->devices[a].cores == c->devices[b].cores &&
           strcmp(c->devices[a].kind, c->devices[b].kind) == 0;
}

/* The first 'shift' devices, and as many further on for each pipeline: nothing below the top holds
 * some of both.
 */
static bool same_parts(const struct cluster *c, int pipelines, int shift)
{
    int top = top_of(c), places = c->devices[shift].place - c->devices[0].place;

    if (cluster_core_place(c, 0) <= top && c->places[cluster_core_place(c, 0)].cores)
        return false;
    if (branch_of(c, top, shift - 1) == branch_of(c, top, shift))
        return false;
    for (int p = 1; p < pipelines; p++)
        for (int d = 0; d < shift; d++)
            if (!same_way(c, top, d, p * shift + d, p * places))
                return false;
    return true;
}

int simulate_shift(const struct plan *plan, const struct cluster *c)
{
    int shift = c->n_devices / plan->pipelines;

    if (plan->pipelines < 2 || c->n_devices % plan->pipelines ||
        !same_parts(c, plan->pipelines, shift))
        return 0;
    for (int s = 0; s < plan->n_stages; s++) {
        const struct plan_stage *stage = &plan->stages[s];

        for (int i = 0; i < stage->replicas; i++) {
            int own = cluster_find_device(c, stage->devices[i]);

            if (own < 0 || own >= shift)
                return 0;
            for (int p = 1; p < plan->pipelines; p++)
                if (strcmp(stage->devices[p * stage->replicas + i],
                           c->devices[p * shift + own].id) != 0)
                    return 0;
        }
    }
    return shift;
}

int simulate_copies(const struct plan *plan, const struct cluster *cluster)
{
    return simulate_shift(plan, cluster) ? plan->pipelines : 1;
}
