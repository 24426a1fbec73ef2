/* SPDX-License-Identifier: MIT */
#include "train/reduce_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/trace.h"

/* In the same order on all ranks; NULL where this rank is no member, or the only one. */
static int make_groups(struct reduce *reduce, const struct buckets *layout, int stage,
                       bool shared, const struct placement *placement, struct err *err)
{
    int *ranks = mem_new((size_t)placement->n_ranks, sizeof(*ranks)), bad = 0;

    reduce->groups = mem_new((size_t)layout->n_groups, sizeof(struct comm_group *));
    for (int g = 0; g < layout->n_groups && !bad; g++) {
        int n = buckets_ranks(layout, g, placement, ranks);

        reduce->n_groups++;
        if (n < 2 || (g > 0 && !shared) || !layout->groups[g * layout->n_stages + stage])
            continue;
        reduce->groups[g] = comm_group_new(reduce->comm, n, ranks, err);
        bad = reduce->groups[g] ? 0 : -1;
    }
    free(ranks);
    return bad;
}

static void make_areas(struct reduce *reduce, const struct buckets *layout,
                       const struct compiled *compiled, const struct plan *plan, char *scratch)
{
    reduce->areas = mem_new((size_t)layout->n_groups, sizeof(*reduce->areas));
    for (int g = 0; g < layout->n_groups; g++) {
        struct bucket_scratch s = buckets_scratch(layout, compiled, plan, g);

        reduce->areas[g] = (struct sum_areas){ .start = scratch + s.at, .bytes = s.bytes,
                                               .n = s.n };
    }
}

static void make_buckets(struct reduce *reduce, const struct buckets *layout, int *bucket_of)
{
    reduce->n_buckets = layout->n_cuts;
    reduce->buckets = mem_new((size_t)layout->n_cuts, sizeof(*reduce->buckets));
    for (int i = 0; i < layout->n_cuts; i++) {
        const struct bucket_cut *c = &layout->cuts[i];

        reduce->buckets[i] = (struct bucket){
            .offset = c->offset, .bytes = c->bytes, .group = reduce->groups[c->group],
            .request = comm_request_new(reduce->comm), .areas = &reduce->areas[c->group],
        };
        for (int r = c->first; r < c->first + c->n; r++)
            bucket_of[layout->ranges[r].value] = i;
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
                const struct plan *plan, const struct placement *placement, char *gradients,
                char *scratch, bool shared, bool deterministic, struct err *err)
{
    struct buckets layout;
    int *bucket_of, bad;

    *reduce = (struct reduce){ .comm = comm, .gradients = gradients,
                               .dtype = compiled->graph->real,
                               .deterministic = deterministic, .sharded = compiled->sharded,
                               .request = comm_request_new(comm) };
    bucket_of = mem_new((size_t)compiled->graph->n_values, sizeof(int));
    for (int v = 0; v < compiled->graph->n_values; v++)
        bucket_of[v] = -1;
    buckets_make(&layout, compiled, placement->n_stages, 0);
    make_areas(reduce, &layout, compiled, plan, scratch);
    bad = make_groups(reduce, &layout, compiled->stage, shared, placement, err);
    if (!bad) {
        make_buckets(reduce, &layout, bucket_of);
        find_writers(reduce, compiled, bucket_of);
    }
    free(bucket_of);
    buckets_clear(&layout);
    if (bad)
        reduce_clear(reduce);
    return bad;
}

int reduce_use_mirror(struct reduce *reduce, const struct backend *backend, struct device *device,
                      struct lanes *lanes, size_t bytes, struct err *err)
{
    reduce->mirror = (struct reduce_mirror){ .backend = backend, .device = device,
                                             .lanes = lanes };
    for (int i = 0; i < reduce->n_buckets; i++) {
        struct bucket *bucket = &reduce->buckets[i];

        if (!bucket->group)
            continue;
        bucket->arrived = backend->event_new(device, err);
        if (!bucket->arrived)
            return -1;
    }
    if (!reduce_needs_mirror(reduce))
        return 0;
    reduce->mirror.memory = backend->alloc_aside(device, bytes, true, err);
    return reduce->mirror.memory ? 0 : -1;
}

static void clear_mirror(struct reduce *reduce)
{
    const struct reduce_mirror *m = &reduce->mirror;

    for (int i = 0; i < reduce->n_buckets; i++)
        if (reduce->buckets[i].arrived)
            m->backend->event_free(reduce->buckets[i].arrived);
    if (m->memory)
        m->backend->release_aside(m->device, m->memory, true);
}

void reduce_clear(struct reduce *reduce)
{
    clear_mirror(reduce);
    for (int i = 0; i < reduce->n_buckets; i++)
        comm_request_free(reduce->buckets[i].request);
    for (int i = 0; i < reduce->n_groups; i++)
        if (reduce->groups[i])
            comm_group_free(reduce->groups[i]);
    if (reduce->request)
        comm_request_free(reduce->request);
    reduce_clear_nccl(reduce);
    free(reduce->buckets);
    free(reduce->groups);
    free(reduce->areas);
    free(reduce->first);
    free(reduce->list);
    *reduce = (struct reduce){ 0 };
}

void reduce_start(struct reduce *reduce)
{
    for (int i = 0; i < reduce->n_buckets; i++) {
        reduce->buckets[i].pending = reduce->buckets[i].writers;
        reduce->buckets[i].posted = reduce->buckets[i].done = false;
    }
}

static int free_area(const struct sum_areas *areas)
{
    for (int i = 0; i < areas->n; i++)
        if (!areas->taken[i])
            return i;
    return -1;
}

int reduce_copy(const struct reduce *reduce, const struct bucket *bucket, char *array, bool back,
                struct stream *stream, struct err *err)
{
    const struct reduce_mirror *m = &reduce->mirror;
    char *host = m->memory + bucket->offset, *device = array + bucket->offset;
    char *to = back ? device : host, *from = back ? host : device;

    if (m->backend->forget)
        m->backend->forget(stream, to, bucket->bytes);
    return m->backend->copy(stream, to, bucket->bytes, from, bucket->bytes, bucket->bytes, 1, err);
}

int reduce_copy_out(struct reduce *reduce, struct bucket *bucket, struct err *err)
{
    const struct reduce_mirror *m = &reduce->mirror;

    bucket->step = BUCKET_COPIES;
    if (lanes_begin_leaving(m->lanes, err) < 0 ||
        reduce_copy(reduce, bucket, reduce->gradients, false, m->lanes->out, err) < 0)
        return -1;
    return m->backend->event_record(bucket->arrived, m->lanes->out, err);
}

static int sum(struct reduce *reduce, struct bucket *bucket, struct err *err)
{
    char *data = (reduce->mirror.memory ? reduce->mirror.memory : reduce->gradients) +
                 bucket->offset;
    size_t n = bucket->bytes / dtype_size(reduce->dtype);

    bucket->step = BUCKET_SUMS;
    if (bucket->teams)
        return comm_allreduce(bucket->teams->across, data, n, reduce->dtype,
                              reduce->deterministic, bucket->request, err);
    if (reduce->sharded)
        return comm_reduce_scatter(bucket->group, data, n, reduce->dtype, bucket->request, err);
    return comm_allreduce(bucket->group, data, n, reduce->dtype, reduce->deterministic,
                          bucket->request, err);
}

/* In the scratch 'area'. */
static int post(struct reduce *reduce, struct bucket *bucket, int area, struct err *err)
{
    struct sum_areas *areas = bucket->areas;

    areas->taken[area] = true;
    bucket->area = area;
    comm_request_lend(bucket->request, areas->start + (size_t)area * areas->bytes, areas->bytes);
    if (bucket->teams && bucket->teams->joins)
        return reduce_join(reduce, bucket, err);
    return reduce->mirror.memory ? reduce_copy_out(reduce, bucket, err) : sum(reduce, bucket, err);
}

/* All members of a group must reduce in the same order, but shares of other sizes may run their
 * kernels in another one: what became final early waits for its turn.
 */
static int post_in_turn(struct reduce *reduce, const struct comm_group *group, struct err *err)
{
    for (int i = 0; i < reduce->n_buckets; i++) {
        struct bucket *bucket = &reduce->buckets[i];
        int area = group ? free_area(bucket->areas) : 0;

        if (bucket->group != group || bucket->posted)
            continue;
        if (bucket->pending > 0 || area < 0)
            return 0;
        bucket->posted = true;
        bucket->start = bucket->end = trace_clock();
        bucket->done = !group;
        if (group && post(reduce, bucket, area, err) < 0)
            return -1;
    }
    return 0;
}

bool reduce_writes(const struct reduce *reduce, int node, bool *seen)
{
    bool writes = false;

    for (int i = reduce->first[node]; i < reduce->first[node + 1]; i++) {
        int bucket = reduce->list[i];

        writes |= reduce->buckets[bucket].group && !seen[bucket];
        seen[bucket] = true;
    }
    return writes;
}

int reduce_final(struct reduce *reduce, int node, struct err *err)
{
    for (int i = reduce->first[node]; i < reduce->first[node + 1]; i++) {
        struct bucket *bucket = &reduce->buckets[reduce->list[i]];

        if (--bucket->pending == 0 && post_in_turn(reduce, bucket->group, err) < 0)
            return -1;
    }
    return 0;
}

static void touch(const struct reduce *reduce, const struct bucket *bucket)
{
    const struct reduce_mirror *m = &reduce->mirror;

    if (m->backend->host_touches)
        m->backend->host_touches(m->device, m->memory + bucket->offset, bucket->bytes, true);
}

/* Nothing reads it before all are back. */
static int bring_back(const struct reduce *reduce, const struct bucket *bucket, struct err *err)
{
    struct lanes *lanes = reduce->mirror.lanes;

    touch(reduce, bucket);
    return reduce_copy(reduce, bucket, reduce->gradients, true, lanes->in, err);
}

/* What has completed leaves its scratch to those that wait for it. */
static int complete(struct reduce *reduce, struct bucket *bucket, struct err *err)
{
    bucket->done = true;
    bucket->end = trace_clock();
    bucket->areas->taken[bucket->area] = false;
    return post_in_turn(reduce, bucket->group, err);
}

/* All members of a group have to begin their sums in one order, that of posting; a later copy may
 * have arrived between two questions.
 */
bool reduce_is_behind(const struct reduce *reduce, const struct bucket *bucket)
{
    for (const struct bucket *b = reduce->buckets; b < bucket; b++)
        if (b->group == bucket->group && b->posted && !b->done && b->step <= bucket->step)
            return true;
    return false;
}

static int test_copy(struct reduce *reduce, struct bucket *bucket, struct err *err)
{
    bool arrived;

    if (reduce_is_behind(reduce, bucket))
        return 0;
    if (reduce->mirror.backend->event_done(bucket->arrived, &arrived, err) < 0)
        return -1;
    if (!arrived)
        return 0;
    touch(reduce, bucket);
    return sum(reduce, bucket, err);
}

static int test_sum(struct reduce *reduce, struct bucket *bucket, struct err *err)
{
    bool done;

    /* What is spread by NCCL has an order, too. */
    if (bucket->teams && bucket->teams->spreads && reduce_is_behind(reduce, bucket))
        return 0;
    if (comm_test(bucket->request, &done, err) < 0)
        return -1;
    if (!done)
        return 0;
    if (reduce->mirror.memory && bring_back(reduce, bucket, err) < 0)
        return -1;
    if (bucket->teams && bucket->teams->spreads)
        return reduce_spread(reduce, bucket, err);
    return complete(reduce, bucket, err);
}

static int test_one(struct reduce *reduce, struct bucket *bucket, struct err *err)
{
    bool done;

    switch (bucket->step) {
    case BUCKET_COPIES: return test_copy(reduce, bucket, err);
    case BUCKET_SUMS: return test_sum(reduce, bucket, err);
    default:
        if (reduce_test_nccl(reduce, bucket, &done, err) < 0)
            return -1;
        return done ? complete(reduce, bucket, err) : 0;
    }
}

static int test_all(struct reduce *reduce, bool *done, struct err *err)
{
    *done = true;
    for (int i = 0; i < reduce->n_buckets; i++) {
        struct bucket *bucket = &reduce->buckets[i];

        if (bucket->posted && !bucket->done && test_one(reduce, bucket, err) < 0)
            return -1;
        *done = *done && bucket->done;
    }
    return 0;
}

/* All are asked about, not one after the other: sums in rank order move only when asked about,
 * and stages that share two parameters may come to them in opposite orders.
 */
static int wait_all(struct reduce *reduce, struct err *err)
{
    bool done;

    for (;;) {
        if (test_all(reduce, &done, err) < 0)
            return -1;
        if (done)
            return 0;
        if (reduce_idle(reduce, err) < 0)
            return -1;
    }
}

int reduce_wait(struct reduce *reduce, struct err *err)
{
    for (int i = 0; i < reduce->n_buckets; i++)
        reduce->buckets[i].pending = 0;
    for (int i = 0; i < reduce->n_buckets; i++)
        if (!reduce->buckets[i].posted &&
            post_in_turn(reduce, reduce->buckets[i].group, err) < 0)
            return -1;
    if (wait_all(reduce, err) < 0)
        return -1;
    return reduce->mirror.memory ? lanes_end_arrival(reduce->mirror.lanes, err) : 0;
}

/* All buckets of 'array' to the host, or back, where they have to be. */
static int copy_all(struct reduce *reduce, char *array, bool back, struct err *err)
{
    const struct reduce_mirror *m = &reduce->mirror;

    if (!m->memory)
        return 0;
    for (int i = 0; i < reduce->n_buckets; i++)
        if (reduce->buckets[i].group &&
            reduce_copy(reduce, &reduce->buckets[i], array, back, m->lanes->compute, err) < 0)
            return -1;
    return m->backend->stream_sync(m->lanes->compute, err);
}

/* Without complete(), whose scratch and turns these do not have. */
static int wait_gathered(struct reduce *reduce, struct err *err)
{
    bool done;

    do {
        done = true;
        for (int i = 0; i < reduce->n_buckets; i++) {
            struct bucket *b = &reduce->buckets[i];

            if (!b->done && comm_test(b->request, &b->done, err) < 0)
                return -1;
            done = done && b->done;
        }
        if (!done)
            comm_idle(reduce->comm);
    } while (!done);
    return 0;
}

int reduce_gather(struct reduce *reduce, char *array, struct err *err)
{
    char *host = reduce->mirror.memory ? reduce->mirror.memory : array;

    if (!reduce->sharded)
        return 0;
    if (reduce->teams && !reduce->mirror.memory)
        return reduce_gather_nccl(reduce, array, err);
    if (copy_all(reduce, array, false, err) < 0)
        return -1;
    for (int i = 0; i < reduce->n_buckets; i++) {
        struct bucket *b = &reduce->buckets[i];

        b->posted = true;       /* also after an evaluation, which starts anew */
        b->done = !b->group;
        if (b->group && comm_all_gather(b->group, host + b->offset,
                                        b->bytes / dtype_size(reduce->dtype), reduce->dtype,
                                        b->request, err) < 0)
            return -1;
    }
    return wait_gathered(reduce, err) < 0 ? -1 : copy_all(reduce, array, true, err);
}

/* Ranks come to their groups in one order (buckets.h): none waits for another in vain. */
int reduce_numbers(struct reduce *reduce, int group, double *numbers, int n, struct err *err)
{
    if (!reduce->groups[group])
        return 0;
    if (comm_allreduce(reduce->groups[group], numbers, (size_t)n, DTYPE_F64, true,
                       reduce->request, err) < 0)
        return -1;
    return comm_wait(reduce->request, err);
}

int reduce_test(struct reduce *reduce, struct err *err)
{
    bool done;

    return test_all(reduce, &done, err);
}
