/* SPDX-License-Identifier: MIT */
#include "train/placement.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define NAMED 4             /* ranks, in an error */

/* What was bound is said beside what the plan has: the ranks on the node of the device, with theirs. */
static int driven_by_none(const struct cluster *cluster, const char *id, int size, struct err *err)
{
    const char *slash = strrchr(id, '/');
    int node = slash ? (int)(slash - id) : 0, n = 0;

    err_set(err, "plan: device \"%s\" is driven by no rank of this run (%d rank%s)", id, size,
            size == 1 ? "" : "s");
    for (int d = 0; cluster && node && d < cluster->n_devices; d++) {
        const struct cluster_device *other = &cluster->devices[d];

        if (other->rank < 0 || other->rank >= size || strncmp(other->id, id, (size_t)node + 1) != 0)
            continue;
        if (n < NAMED)
            err_hint(err, "rank %d drives %s", other->rank, other->id);
        n++;
    }
    if (n > NAMED)
        err_hint(err, "and %d more there", n - NAMED);
    if (n == 0 && node)
        err_hint(err, "there is none on %.*s", node, id);
    return -1;
}

static int device_rank(const struct cluster *cluster, const char *id, int size,
                       struct err *err)
{
    int rank;

    if (cluster) {
        int device = cluster_find_device(cluster, id);

        rank = device < 0 ? -1 : cluster->devices[device].rank;
    } else {
        char *end;
        long number = strtol(id, &end, 10);

        rank = *id && !*end && number >= 0 && number < size ? (int)number : -1;
    }
    return rank < 0 || rank >= size ? driven_by_none(cluster, id, size, err) : rank;
}

/* 'used[rank]' is 1 + the list that a rank runs. */
static int fill_stage(struct placement *p, const struct plan *plan, int s,
                      const struct cluster *cluster, int rank, int size, int *used,
                      struct err *err)
{
    const struct plan_stage *stage = &plan->stages[s];
    int n = plan->pipelines * stage->replicas, list = plan_list(plan, s);

    for (int i = 0; i < n; i++) {
        int r = device_rank(cluster, stage->devices[i], size, err);

        if (r < 0)
            return -1;
        p->rank[p->first[s] + i] = r;
        if (used[r] == list + 1)
            continue;
        if (used[r])
            return err_set(err, "plan: device \"%s\" is used twice", stage->devices[i]);
        used[r] = list + 1;
        p->n_ranks++;
        if (r == rank) {
            p->list = list;
            p->stage = s;
            p->pipeline = i / stage->replicas;
            p->replica = i % stage->replicas;
        }
    }
    return 0;
}

int placement_make(struct placement *placement, const struct plan *plan,
                   const struct cluster *cluster, int rank, int size, struct err *err)
{
    struct placement p = { .n_stages = plan->n_stages, .pipelines = plan->pipelines,
                           .stage = -1 };
    int *used = mem_new((size_t)size, sizeof(*used));
    int bad = 0;

    p.first = mem_new((size_t)plan->n_stages + 1, sizeof(int));
    for (int s = 0; s < plan->n_stages; s++)
        p.first[s + 1] = p.first[s] + plan->pipelines * plan->stages[s].replicas;
    p.rank = mem_new((size_t)p.first[plan->n_stages], sizeof(int));
    for (int s = 0; s < plan->n_stages && !bad; s++)
        bad = fill_stage(&p, plan, s, cluster, rank, size, used, err);
    free(used);
    if (bad) {
        placement_clear(&p);
        return -1;
    }
    *placement = p;
    return 0;
}

void placement_clear(struct placement *placement)
{
    free(placement->first);
    free(placement->rank);
    placement->first = placement->rank = NULL;
}

int placement_rank(const struct placement *placement, int stage, int pipeline, int replica)
{
    int n = placement->first[stage + 1] - placement->first[stage];

    return placement->rank[placement->first[stage] + pipeline * (n / placement->pipelines) +
                           replica];
}

const int *placement_stage(const struct placement *placement, int stage, int *n)
{
    *n = placement->first[stage + 1] - placement->first[stage];
    return placement->rank + placement->first[stage];
}

int placement_ranks(const struct placement *placement, int *ranks)
{
    int all = placement->first[placement->n_stages], n = 0;

    for (int i = 0; i < all; i++) {
        int k = 0;

        while (k < n && ranks[k] != placement->rank[i])
            k++;
        ranks[k] = placement->rank[i];
        n += k == n;
    }
    return n;
}
