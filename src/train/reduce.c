/* SPDX-License-Identifier: MIT */
#include "train/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/trace.h"

#define BUCKET_MIN ((size_t)16 << 10)
#define BUCKET_MAX ((size_t)4 << 20)

/* A set of stages whose replicas sum together, one bit for each. */
struct stages {
    bool *in;
    int n;
};

struct ranges {
    int n;
    struct range {
        size_t offset, bytes;
        int value;      /* root */
        int group;      /* index into reduce->groups */
    } *items;
};

static struct comm_group *stages_group(struct comm *comm, const struct placement *placement,
                                       const bool *in, bool *mine, struct err *err)
{
    int *ranks = mem_new((size_t)placement->n_ranks, sizeof(int)), n = 0;
    struct comm_group *group = NULL;

    *mine = in[placement->stage];
    for (int s = 0; s < placement->n_stages; s++) {
        int count;
        const int *of_stage = placement_stage(placement, s, &count);

        for (int i = 0; in[s] && i < count; i++)
            ranks[n++] = of_stage[i];
    }
    if (*mine && n > 1)
        group = comm_group_new(comm, n, ranks, err);
    if (!*mine || n < 2)
        *mine = false;
    free(ranks);
    return group;
}

/* Group 'index' of the list: made where this rank is a member of more than one. */
static int add_group(struct reduce *reduce, struct comm *comm,
                     const struct placement *placement, const bool *in, struct err *err)
{
    bool wanted;
    struct comm_group *group = stages_group(comm, placement, in, &wanted, err);

    if (wanted && !group)
        return -1;
    *(struct comm_group **)mem_push((void **)&reduce->groups, &reduce->n_groups,
                                    sizeof(group)) = group;
    return reduce->n_groups - 1;
}

static int param_stages(const struct autodiff *ad, int param, bool *in, int n_stages)
{
    int n = 0;

    memset(in, 0, (size_t)n_stages * sizeof(*in));
    for (int i = 0; i < ad->n_params; i++) {
        if (ad->params[i].param == param && !in[ad->params[i].stage]) {
            in[ad->params[i].stage] = true;
            n++;
        }
    }
    return n;
}

static void add_range(struct ranges *ranges, const struct compiled *c, int value, int group)
{
    const struct program_value *v = &c->program->values[c->program->values[value].root];
    struct range *r = mem_push((void **)&ranges->items, &ranges->n, sizeof(*r));

    *r = (struct range){ .offset = v->offset, .bytes = v->layout.bytes,
                         .value = c->program->values[value].root, .group = group };
}

/* Groups are made in the order of parameters, which all ranks share. Group 0 is the stage's. */
static int find_ranges(struct reduce *reduce, struct ranges *ranges, struct comm *comm,
                       const struct compiled *c, const struct placement *placement,
                       struct err *err)
{
    const struct autodiff *ad = &c->autodiff;
    bool *in = mem_new((size_t)placement->n_stages, sizeof(*in));
    int group = 0, bad = -1;

    in[c->stage] = true;
    if (add_group(reduce, comm, placement, in, err) < 0)
        goto out;
    for (int param = 0; param < c->graph->n_values; param++) {
        if (c->graph->values[param].kind != VALUE_PARAM ||
            param_stages(ad, param, in, placement->n_stages) == 0)
            continue;
        group = 0;
        if (param_stages(ad, param, in, placement->n_stages) > 1)
            group = add_group(reduce, comm, placement, in, err);
        if (group < 0)
            goto out;
        for (int i = 0; i < ad->n_params; i++)
            if (ad->params[i].param == param && ad->params[i].stage == c->stage)
                add_range(ranges, c, ad->params[i].gradient, group);
    }
    for (int i = 0; i < ad->n_stats; i++)
        if (ad->stats[i].stage == c->stage)
            add_range(ranges, c, ad->stats[i].contribution, 0);
    bad = 0;
out:
    free(in);
    return bad;
}

static int by_offset(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void make_buckets(struct reduce *reduce, const struct ranges *ranges, size_t limit,
                         struct comm *comm, int *bucket_of)
{
    int group = -1;

    for (int i = 0; i < ranges->n; i++) {
        const struct range *r = &ranges->items[i];
        struct bucket *b = reduce->n_buckets ? &reduce->buckets[reduce->n_buckets - 1] : NULL;

        if (!b || r->group != group || r->offset + r->bytes - b->offset > limit) {
            b = mem_push((void **)&reduce->buckets, &reduce->n_buckets, sizeof(*b));
            b->offset = r->offset;
            b->group = reduce->groups[r->group];
            b->request = comm_request_new(comm);
            group = r->group;
        }
        b->bytes = r->offset + r->bytes - b->offset;
        bucket_of[r->value] = reduce->n_buckets - 1;
    }
}

static bool node_writes(const struct compiled *c, const int *bucket_of, int node, int output)
{
    int value = c->graph->nodes[node].outputs[output];

    return !compiled_is_view(c, node) && value >= 0 &&
           bucket_of[c->program->values[value].root] >= 0;
}

/* Which buckets a node writes, and how many writers a bucket has. */
static void find_writers(struct reduce *reduce, const struct compiled *c,
                         const int *bucket_of)
{
    int n = 0;

    reduce->first = mem_new((size_t)c->graph->n_nodes + 1, sizeof(int));
    for (int node = 0; node < c->graph->n_nodes; node++) {
        reduce->first[node] = n;
        for (int k = 0; c->kernels[node] && k < c->graph->nodes[node].n_outputs; k++) {
            int bucket;

            if (!node_writes(c, bucket_of, node, k))
                continue;
            bucket = bucket_of[c->program->values[c->graph->nodes[node].outputs[k]].root];
            *(int *)mem_push((void **)&reduce->list, &n, sizeof(int)) = bucket;
            reduce->buckets[bucket].writers++;
        }
    }
    reduce->first[c->graph->n_nodes] = n;
}

int reduce_init(struct reduce *reduce, struct comm *comm, const struct compiled *compiled,
                const struct placement *placement, size_t bucket_bytes, bool deterministic,
                struct err *err)
{
    size_t limit = compiled->program->gradient_bytes / 4;
    struct ranges ranges = { 0 };
    int *bucket_of, bad;

    *reduce = (struct reduce){ .comm = comm, .dtype = compiled->graph->real,
                               .deterministic = deterministic };
    limit = limit < BUCKET_MIN ? BUCKET_MIN : limit > BUCKET_MAX ? BUCKET_MAX : limit;
    bucket_of = mem_new((size_t)compiled->graph->n_values, sizeof(int));
    for (int v = 0; v < compiled->graph->n_values; v++)
        bucket_of[v] = -1;
    bad = find_ranges(reduce, &ranges, comm, compiled, placement, err);
    if (!bad) {
        qsort(ranges.items, (size_t)ranges.n, sizeof(*ranges.items), by_offset);
        make_buckets(reduce, &ranges, bucket_bytes ? bucket_bytes : limit, comm, bucket_of);
        find_writers(reduce, compiled, bucket_of);
    }
    free(bucket_of);
    free(ranges.items);
    if (bad)
        reduce_clear(reduce);
    return bad;
}

void reduce_clear(struct reduce *reduce)
{
    for (int i = 0; i < reduce->n_buckets; i++)
        comm_request_free(reduce->buckets[i].request);
    for (int i = 0; i < reduce->n_groups; i++)
        if (reduce->groups[i])
            comm_group_free(reduce->groups[i]);
    free(reduce->buckets);
    free(reduce->groups);
    free(reduce->first);
    free(reduce->list);
    *reduce = (struct reduce){ 0 };
}

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t mix_value(const struct compiled *c, int value, int gradient, uint64_t hash)
{
    const char *name = c->graph->values[value].name;
    const struct program_value *v = &c->program->values[c->program->values[gradient].root];

    hash = mix(hash, name, strlen(name));
    hash = mix(hash, &v->offset, sizeof(v->offset));
    return mix(hash, &v->layout.bytes, sizeof(v->layout.bytes));
}

uint64_t reduce_fingerprint(const struct compiled *compiled)
{
    const struct autodiff *ad = &compiled->autodiff;
    uint64_t hash = 0xcbf29ce484222325u;

    for (int i = 0; i < ad->n_params; i++)
        if (ad->params[i].stage == compiled->stage)
            hash = mix_value(compiled, ad->params[i].param, ad->params[i].gradient, hash);
    for (int i = 0; i < ad->n_stats; i++)
        if (ad->stats[i].stage == compiled->stage)
            hash = mix_value(compiled, ad->stats[i].stat, ad->stats[i].contribution, hash);
    return hash;
}

void reduce_start(struct reduce *reduce)
{
    for (int i = 0; i < reduce->n_buckets; i++) {
        reduce->buckets[i].pending = reduce->buckets[i].writers;
        reduce->buckets[i].posted = reduce->buckets[i].done = false;
    }
}

static int post(struct reduce *reduce, struct bucket *bucket, char *gradients,
                struct err *err)
{
    bucket->posted = true;
    bucket->start = trace_clock();
    if (!bucket->group) {
        bucket->done = true;
        bucket->end = bucket->start;
        return 0;
    }
    return comm_allreduce(bucket->group, gradients + bucket->offset,
                          bucket->bytes / dtype_size(reduce->dtype), reduce->dtype,
                          reduce->deterministic, bucket->request, err);
}

/* All members of a group must reduce in the same order, but shares of other sizes may run their
 * kernels in another one: what became final early waits for its turn.
 */
static int post_in_turn(struct reduce *reduce, const struct comm_group *group, char *gradients,
                        struct err *err)
{
    for (int i = 0; i < reduce->n_buckets; i++) {
        struct bucket *bucket = &reduce->buckets[i];

        if (bucket->group != group || bucket->posted)
            continue;
        if (bucket->pending > 0)
            return 0;
        if (post(reduce, bucket, gradients, err) < 0)
            return -1;
    }
    return 0;
}

int reduce_final(struct reduce *reduce, int node, char *gradients, struct err *err)
{
    for (int i = reduce->first[node]; i < reduce->first[node + 1]; i++) {
        struct bucket *bucket = &reduce->buckets[reduce->list[i]];

        if (--bucket->pending == 0 &&
            post_in_turn(reduce, bucket->group, gradients, err) < 0)
            return -1;
    }
    return 0;
}

static int test_all(struct reduce *reduce, bool *done, struct err *err)
{
    *done = true;
    for (int i = 0; i < reduce->n_buckets; i++) {
        struct bucket *bucket = &reduce->buckets[i];

        if (!bucket->posted || bucket->done)
            continue;
        if (comm_test(bucket->request, &bucket->done, err) < 0)
            return -1;
        if (bucket->done)
            bucket->end = trace_clock();
        else
            *done = false;
    }
    return 0;
}

/* All are asked about, not one after the other: sums in rank order move only when asked about,
 * and stages that share two parameters may come to them in opposite orders.
 */
int reduce_wait(struct reduce *reduce, char *gradients, struct err *err)
{
    bool done;

    for (int i = 0; i < reduce->n_buckets; i++)
        if (!reduce->buckets[i].posted &&
            post(reduce, &reduce->buckets[i], gradients, err) < 0)
            return -1;
    for (;;) {
        if (test_all(reduce, &done, err) < 0)
            return -1;
        if (done)
            return 0;
        comm_idle(reduce->comm);
    }
}

int reduce_test(struct reduce *reduce, struct err *err)
{
    bool done;

    return test_all(reduce, &done, err);
}
