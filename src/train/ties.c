/* SPDX-License-Identifier: MIT */
#include "train/ties.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/buckets.h"

/* One parameter of which this rank has copies. */
struct tie {
    int n;
    char **gradients;           /* of the copies, in stage order */
    size_t bytes;
    char *mirror;               /* of the first, in memory of the host; NULL: it is there */
    struct comm_group *group;   /* NULL: nobody else has one */
    struct comm_request *request;
};

struct ties {
    struct comm *comm;
    const struct compiled *compiled;    /* of the first chunk */
    struct device *device;
    struct stream *stream;              /* of the first chunk, */
    int n_streams;                      /* and of all that write gradients */
    struct stream **streams;
    bool deterministic;
    int n;
    struct tie *items;
};

/* What a chunk has of a group, which is one parameter. */
static void add_copy(struct tie *tie, const struct buckets *layout, int group,
                     const struct store *store)
{
    for (int i = 0; i < layout->n_ranges; i++) {
        const struct bucket_range *r = &layout->ranges[i];

        if (r->group != group)
            continue;
        *(char **)mem_push((void **)&tie->gradients, &tie->n, sizeof(char *)) =
            store->gradients + r->offset;
        tie->bytes = r->bytes;
    }
}

/* The first chunk that reads the parameter has scratch for all. */
static void lend(struct tie *tie, const struct buckets *layouts, int n, int group,
                 struct executor *const *executors, const struct plan *plan)
{
    for (int c = 0; c < n; c++) {
        const struct store *store = executor_store(executors[c]);
        struct bucket_scratch s = buckets_scratch(&layouts[c], store->compiled, plan, group);

        if (s.n > 0)
            comm_request_lend(tie->request, store->sums + s.at, s.bytes);
    }
}

static int open_group(struct ties *ties, struct tie *tie, int n, const int *ranks,
                      struct err *err)
{
    const struct backend *backend = ties->compiled->backend;

    tie->group = comm_group_new(ties->comm, n, ranks, err);
    if (!tie->group)
        return -1;
    if (backend->separate)
        tie->mirror = backend->alloc_aside(ties->device, tie->bytes, true, err);
    return backend->separate && !tie->mirror ? -1 : 0;
}

/* All ranks come to the groups in one order. */
static int add_tie(struct ties *ties, const struct buckets *layouts, int n, int group,
                   struct executor *const *executors, const struct plan *plan,
                   const struct placement *placement, struct err *err)
{
    struct tie tie = { 0 };
    int *ranks, n_ranks, bad = 0;

    for (int c = 0; c < n; c++)
        add_copy(&tie, &layouts[c], group, executor_store(executors[c]));
    if (tie.n == 0)
        return 0;
    tie.request = comm_request_new(ties->comm);
    lend(&tie, layouts, n, group, executors, plan);
    *(struct tie *)mem_push((void **)&ties->items, &ties->n, sizeof(tie)) = tie;
    ranks = mem_new((size_t)placement->n_ranks, sizeof(*ranks));
    n_ranks = buckets_ranks(&layouts[0], group, placement, ranks);
    if (n_ranks > 1)
        bad = open_group(ties, &ties->items[ties->n - 1], n_ranks, ranks, err);
    free(ranks);
    return bad;
}

struct ties *ties_new(struct comm *comm, const struct plan *plan,
                      const struct placement *placement, int n, struct executor *const *executors,
                      bool deterministic, struct err *err)
{
    const struct store *store = executor_store(executors[0]);
    struct ties *ties = mem_new(1, sizeof(*ties));
    struct buckets *layouts;
    int bad = 0;

    *ties = (struct ties){ .comm = comm, .compiled = store->compiled, .stream = store->stream,
                           .device = store->device, .n_streams = n,
                           .streams = mem_new((size_t)n, sizeof(*ties->streams)),
                           .deterministic = deterministic };
    for (int c = 0; c < n; c++)
        ties->streams[c] = executor_store(executors[c])->stream;
    if (schedule_most_chunks(store->compiled->schedule) == 1)
        return ties;
    layouts = mem_new((size_t)n, sizeof(*layouts));
    for (int c = 0; c < n; c++)
        buckets_make(&layouts[c], executor_store(executors[c])->compiled, placement->n_stages, 0);
    for (int g = 1; g < layouts[0].n_groups && !bad; g++)
        bad = add_tie(ties, layouts, n, g, executors, plan, placement, err);
    for (int c = 0; c < n; c++)
        buckets_clear(&layouts[c]);
    free(layouts);
    if (!bad)
        return ties;
    ties_free(ties);
    return NULL;
}

void ties_free(struct ties *ties)
{
    if (!ties)
        return;
    for (int i = 0; i < ties->n; i++) {
        comm_request_free(ties->items[i].request);
        if (ties->items[i].group)
            comm_group_free(ties->items[i].group);
        if (ties->items[i].mirror)
            ties->compiled->backend->release_aside(ties->device, ties->items[i].mirror, true);
        free(ties->items[i].gradients);
    }
    free(ties->streams);
    free(ties->items);
    free(ties);
}

static int post(const struct ties *ties, const struct tie *tie, struct err *err)
{
    const struct backend *backend = ties->compiled->backend;
    enum dtype dtype = ties->compiled->graph->real;
    size_t n = tie->bytes / dtype_size(dtype);

    for (int i = 1; i < tie->n; i++)
        if (backend->add(ties->stream, dtype, n, tie->gradients[i], tie->gradients[0], err) < 0)
            return -1;
    if (tie->mirror && backend->copy(ties->stream, tie->mirror, tie->bytes, tie->gradients[0],
                                     tie->bytes, tie->bytes, 1, err) < 0)
        return -1;
    if (backend->stream_sync(ties->stream, err) < 0)
        return -1;
    return tie->group ? comm_allreduce(tie->group, tie->mirror ? tie->mirror : tie->gradients[0],
                                       n, dtype, ties->deterministic, tie->request, err)
                      : 0;
}

/* All are asked about, as in reduce_wait(). */
static int wait_all(const struct ties *ties, struct err *err)
{
    bool done, one;

    do {
        done = true;
        for (int i = 0; i < ties->n; i++) {
            if (!ties->items[i].group)
                continue;
            if (comm_test(ties->items[i].request, &one, err) < 0)
                return -1;
            done = done && one;
        }
        if (!done)
            comm_idle(ties->comm);
    } while (!done);
    return 0;
}

int ties_sum(struct ties *ties, struct err *err)
{
    const struct backend *backend = ties->compiled->backend;

    if (ties->n == 0)
        return 0;
    for (int c = 0; c < ties->n_streams; c++)
        if (backend->stream_sync(ties->streams[c], err) < 0)
            return -1;
    for (int i = 0; i < ties->n; i++)
        if (post(ties, &ties->items[i], err) < 0)
            return -1;
    if (wait_all(ties, err) < 0)
        return -1;
    for (int i = 0; i < ties->n; i++) {
        const struct tie *tie = &ties->items[i];

        if (tie->mirror && backend->copy(ties->stream, tie->gradients[0], tie->bytes, tie->mirror,
                                         tie->bytes, tie->bytes, 1, err) < 0)
            return -1;
        for (int k = 1; k < tie->n; k++)
            if (backend->copy(ties->stream, tie->gradients[k], tie->bytes, tie->gradients[0],
                              tie->bytes, tie->bytes, 1, err) < 0)
                return -1;
    }
    return backend->stream_sync(ties->stream, err);
}
