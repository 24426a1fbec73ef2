/* SPDX-License-Identifier: MIT */
/* What NCCL does of the sums of reduce.h. */
#include "train/reduce_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/trace.h"

#define KEYS ((int64_t)1 << 32)     /* of teams that sum: behind those of pairs */

/* The group's ranks on this node, and what connects these with others. */
static int add_teams(struct reduce *reduce, struct nccl *nccl, struct sum_teams *teams, int n,
                     int *ranks, int64_t key, struct err *err)
{
    int *leaders = mem_new((size_t)n, sizeof(*leaders)), bad = 0;
    int n_leaders = nccl_leaders(reduce->comm, n, ranks, leaders);
    int here = nccl_reachable(nccl, n, ranks);

    teams->across_nodes = here < n;
    if (here > 1)
        teams->joins = nccl_team_new(nccl, here, ranks, key, false);
    if (here > 1 && here < n)
        teams->spreads = nccl_team_new(nccl, here, ranks, key + 1, false);
    if (here < n && ranks[0] == comm_rank(reduce->comm)) {
        teams->across = comm_group_new(reduce->comm, n_leaders, leaders, err);
        bad = teams->across ? 0 : -1;
    }
    free(leaders);
    return bad;
}

int reduce_use_nccl(struct reduce *reduce, struct nccl *nccl, const struct compiled *compiled,
                    const struct placement *placement, bool shared, struct err *err)
{
    int *ranks = mem_new((size_t)placement->n_ranks, sizeof(*ranks)), bad = 0;
    struct buckets layout;

    buckets_make(&layout, compiled, placement->n_stages, 0);
    reduce->teams = mem_new((size_t)layout.n_groups, sizeof(*reduce->teams));
    for (int g = 0; g < layout.n_groups && !bad; g++) {
        int64_t key = KEYS + 2 * (g == 0 ? compiled->stage : layout.n_stages + g);
        int n = buckets_ranks(&layout, g, placement, ranks);

        if (reduce->groups[g] && (g == 0 || shared))
            bad = add_teams(reduce, nccl, &reduce->teams[g], n, ranks, key, err);
    }
    for (int i = 0; i < reduce->n_buckets; i++)
        if (reduce->buckets[i].group)
            reduce->buckets[i].teams = &reduce->teams[layout.cuts[i].group];
    buckets_clear(&layout);
    free(ranks);
    return bad;
}

bool reduce_needs_mirror(const struct reduce *reduce)
{
    for (int i = 0; i < reduce->n_buckets; i++) {
        const struct bucket *b = &reduce->buckets[i];

        if (b->group && (!b->teams || b->teams->across_nodes))
            return true;
    }
    return false;
}

void reduce_clear_nccl(struct reduce *reduce)
{
    for (int g = 0; reduce->teams && g < reduce->n_groups; g++)
        if (reduce->teams[g].across)
            comm_group_free(reduce->teams[g].across);
    free(reduce->teams);
}

static void note(const struct reduce *reduce, const struct bucket *bucket, struct nccl_team *team,
                 enum instruction_kind kind)
{
    const struct trace_event what = { .kind = kind, .micro = (int)(bucket - reduce->buckets),
                                      .peer = -1, .step = reduce->step };

    nccl_note(team, &what);
}

int reduce_join(struct reduce *reduce, struct bucket *bucket, struct err *err)
{
    bool scatters = reduce->sharded && !bucket->teams->across_nodes;

    bucket->step = BUCKET_JOINS;
    note(reduce, bucket, bucket->teams->joins, INSTRUCTION_REDUCE);
    return nccl_post(bucket->teams->joins, scatters ? NCCL_SCATTER : NCCL_SUM,
                     reduce->gradients + bucket->offset, bucket->bytes, reduce->mirror.lanes->compute,
                     bucket->arrived, err);
}

int reduce_spread(struct reduce *reduce, struct bucket *bucket, struct err *err)
{
    bucket->step = BUCKET_SPREADS;
    note(reduce, bucket, bucket->teams->spreads, INSTRUCTION_REDUCE);
    return nccl_post(bucket->teams->spreads, NCCL_BROADCAST, reduce->gradients + bucket->offset,
                     bucket->bytes, bucket->teams->across ? reduce->mirror.lanes->in : NULL,
                     bucket->arrived, err);
}

int reduce_test_nccl(struct reduce *reduce, struct bucket *bucket, bool *done, struct err *err)
{
    const struct sum_teams *t = bucket->teams;
    bool joins = bucket->step == BUCKET_JOINS;

    *done = false;
    if (reduce_is_behind(reduce, bucket))
        return 0;
    if (nccl_done(joins ? t->joins : t->spreads, bucket->arrived, done, err) < 0)
        return -1;
    if (!*done || !joins || !t->across_nodes)
        return 0;
    *done = false;
    return t->across ? reduce_copy_out(reduce, bucket, err) : reduce_spread(reduce, bucket, err);
}

/* comm_test() sees to the deadline of what it is asked about. */
int reduce_idle(struct reduce *reduce, struct err *err)
{
    if (!reduce->teams) {
        comm_idle(reduce->comm);
        return 0;
    }
    return comm_asked(reduce->comm, false, err) ? err_prefix(err, "sums of gradients") : 0;
}

int reduce_gather_nccl(struct reduce *reduce, char *array, struct err *err)
{
    for (int i = 0; i < reduce->n_buckets; i++) {
        struct bucket *b = &reduce->buckets[i];

        b->posted = b->done = true;     /* also after an evaluation, which starts anew */
        if (b->group)
            note(reduce, b, b->teams->joins, INSTRUCTION_STEP);
        if (b->group && nccl_post(b->teams->joins, NCCL_GATHER, array + b->offset, b->bytes,
                                  reduce->mirror.lanes->compute, b->arrived, err) < 0)
            return -1;
    }
    for (int i = 0; i < reduce->n_buckets; i++)
        if (reduce->buckets[i].group &&
            nccl_wait(reduce->buckets[i].teams->joins, reduce->buckets[i].arrived, err) < 0)
            return -1;
    return 0;
}
