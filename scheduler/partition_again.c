/* SPDX-License-Identifier: MIT */
/* A second search where the closed form was too hopeful: it knows each stage's all-reduce, and the
 * messages of the first pipeline, but not that several stages and pipelines share a node's wire. How
 * far it is off depends on the number of pipelines most: what is best by it of some hides what is
 * best in a simulation of others.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

/* Candidates that are simulated, for each number of pipelines, and of parts of the cluster. */
#define MOST_AGAIN 24
/* How far below the simulation it has to be: less is usual, where sums or messages are part of it. */
#define MISLED 1.5
/* What it has slower is left out beyond that much. */
#define WIDE 1.2
/* Of as many nodes all parts are looked at, of more those with half as many, and so on. */
#define MANY_NODES 8

/* Is what was left out faster, by the closed form, than what was found is by simulation? On one
 * crossbar nothing is shared, and whoever recomputes the formula finds no better plan.
 */
static bool was_misled(const struct search *s)
{
    return s->n_found && !s->flat && !s->feasible &&
           !s->request->policy && request_chunks(s->request) == 1 &&
           isfinite(s->found[0]->seconds) && s->found[0]->seconds > s->best * MISLED;
}

static void take(struct search *s, struct candidate **some, int n)
{
    s->found = mem_resize(s->found, (size_t)(s->n_found + n), sizeof(*s->found));
    memcpy(s->found + s->n_found, some, (size_t)n * sizeof(*some));
    s->n_found += n;
}

/* The devices as they are numbered in the part are the first of the whole. */
static void place_on_part(const struct search *part, struct candidate *c)
{
    int each = candidate_devices(c), all = candidate_pipelines(c) * each;

    if (c->devices)
        return;
    c->devices = mem_new((size_t)all, sizeof(*c->devices));
    for (int i = 0; i < all; i++)
        c->devices[i] = candidate_pipelines(c) == 1
                            ? i : i / each * search_devices(part, c->pipelines) + i % each;
}

/* Simulate what was found beside 'before', whose fastest comes first. */
static int rank_beside(struct search *s, struct candidate **before, int n, struct err *err)
{
    int failed;

    for (int i = 0; i < s->n_found; i++)
        set_schedule(s, s->found[i], s->found[i]->schedule);
    search_drop_doubles(s);
    search_sort_closed(s);
    while (s->n_found > MOST_AGAIN)
        candidate_free(s->found[--s->n_found]);
    failed = search_rank(s, err);
    take(s, before, n);
    free(before);
    return failed || search_settle(s, err) ? -1 : 0;
}

static int search_pipelines(struct search *s, int pipelines, struct err *err)
{
    struct candidate **before = s->found;
    int n = s->n_found;

    s->best = before[0]->seconds / s->slack;
    s->found = NULL;
    s->n_found = 0;
    search_cuts(s, pipelines);
    return rank_beside(s, before, n, err);
}

static int search_part(struct search *s, int devices, struct err *err)
{
    struct cluster *cluster = cluster_first(s->cluster, devices);
    struct search *part = search_new(s->cost, cluster, s->request);
    struct candidate **before = s->found;
    int n = s->n_found;

    part->zero = s->zero;
    part->factor_fixed = s->factor_fixed;
    part->factor_moving = s->factor_moving;
    part->slack = s->slack;
    part->best = before[0]->seconds / part->slack;
    search_cuts(part, 0);
    for (int i = 0; i < part->n_found; i++)
        place_on_part(part, part->found[i]);
    s->found = part->found;
    s->n_found = part->n_found;
    part->found = NULL;
    part->n_found = 0;
    search_free(part);
    cluster_free(cluster);
    return rank_beside(s, before, n, err);
}

/* Parts from one node up. */
static int search_parts(struct search *s, struct err *err)
{
    int nodes = cluster_nodes(s->cluster), seen = 0;

    for (int d = 1; d < s->cluster->n_devices; d++) {
        if (s->cluster->devices[d].node == s->cluster->devices[d - 1].node)
            continue;
        seen++;
        if ((nodes <= MANY_NODES || (seen & (seen - 1)) == 0) && search_part(s, d, err))
            return -1;
    }
    return 0;
}

/* What improves on the best afterwards has as much left as it had. */
int search_again(struct search *s, struct err *err)
{
    double best = s->best, effort = s->effort, slack = s->slack;
    int failed = 0, last = 0;

    if (!was_misled(s))
        return 0;
    s->looked = 0;
    s->slack = dmax(slack, WIDE);
    for (int i = 0; i < s->n_splits && !failed; i++)
        if (s->splits[i].pipelines != last)
            failed = search_pipelines(s, last = s->splits[i].pipelines, err);
    failed = failed || search_parts(s, err);
    s->best = best;
    s->slack = slack;
    s->effort = effort;
    return failed ? -1 : 0;
}
