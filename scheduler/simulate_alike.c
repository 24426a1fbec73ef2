/* SPDX-License-Identifier: MIT */
/* Pipelines on parts of the cluster that are alike, and that share no wire and no core, do the
 * same at the same time: one of them tells what all do. So do groups of as many pipelines, each on
 * a part of its own.
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

/* The first 'shift' devices, and as many further on for each copy: nothing below the top holds some
 * of both.
 */
static bool same_parts(const struct cluster *c, int copies, int shift)
{
    int top = top_of(c), places = c->devices[shift].place - c->devices[0].place;

    if (cluster_core_place(c, 0) <= top && c->places[cluster_core_place(c, 0)].cores)
        return false;
    if (branch_of(c, top, shift - 1) == branch_of(c, top, shift))
        return false;
    for (int k = 1; k < copies; k++)
        for (int d = 0; d < shift; d++)
            if (!same_way(c, top, d, k * shift + d, k * places))
                return false;
    return true;
}

/* Are the stage's devices in each copy those of the first, 'shift' further on? */
static bool same_devices(const struct plan_stage *stage, int replicas, const struct cluster *c,
                         int copies, int shift)
{
    for (int i = 0; i < replicas; i++) {
        int own = cluster_find_device(c, stage->devices[i]);

        if (own < 0 || own >= shift)
            return false;
        for (int k = 1; k < copies; k++)
            if (strcmp(stage->devices[k * replicas + i], c->devices[k * shift + own].id) != 0)
                return false;
    }
    return true;
}

static bool are_alike(const struct plan *plan, const struct cluster *c, int copies)
{
    int together = plan->pipelines / copies, shift = c->n_devices / copies;

    if (!same_parts(c, copies, shift))
        return false;
    for (int s = 0; s < plan->n_stages; s++)
        if (!same_devices(&plan->stages[s], together * plan->stages[s].replicas, c, copies, shift))
            return false;
    return true;
}

/* As many as there can be. */
int simulate_copies(const struct plan *plan, const struct cluster *cluster)
{
    for (int copies = plan->pipelines; copies > 1; copies--)
        if (plan->pipelines % copies == 0 && cluster->n_devices % copies == 0 &&
            are_alike(plan, cluster, copies))
            return copies;
    return 1;
}
