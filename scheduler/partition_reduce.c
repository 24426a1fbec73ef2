/* SPDX-License-Identifier: MIT */
/* What an all-reduce takes in the closed form: asked of the cluster once for each group. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

static struct reduce_table *table_of(struct search *search, int pipelines, size_t n)
{
    struct reduce_table *t = &search->reduce[pipelines];

    if (t->latency)
        return t;
    t->latency = mem_new(n * n, sizeof(double));
    t->rate = mem_new(n * n, sizeof(double));
    for (size_t i = 0; i < n * n; i++)
        t->latency[i] = NAN;
    return t;
}

double search_allreduce(struct search *search, int pipelines, int device, int r, double bytes)
{
    int all = pipelines * r, n = search_devices(search, pipelines);
    size_t at = (size_t)device * (size_t)n + (size_t)(r - 1);
    struct reduce_table *t;
    const double probe = 1e9;

    if (all < 2 || bytes <= 0)
        return 0;
    t = table_of(search, pipelines, (size_t)n);
    if (isnan(t->latency[at])) {
        int *devices = mem_new((size_t)all, sizeof(int));

        for (int i = 0; i < all; i++)
            devices[i] = i / r * n + device + i % r;
        t->latency[at] = cluster_allreduce_time(search->cluster, all, devices, 0);
        t->rate[at] = (cluster_allreduce_time(search->cluster, all, devices, probe) -
                       t->latency[at]) / probe;
        free(devices);
    }
    return t->latency[at] + bytes * t->rate[at];
}
