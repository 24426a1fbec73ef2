/* SPDX-License-Identifier: MIT */
/* What messages and all-reduces take in the closed form. The cluster is asked once for each
 * group that reduces, and the caller may keep what it says of links.
 */
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

/* How many of the devices from 'first' on, 'n' of them, are below a place. */
static int devices_below(const struct cluster *cluster, int place, int first, int n)
{
    int below = 0;

    for (int d = first; d < first + n; d++) {
        int p = cluster->devices[d].place;

        while (p > place)
            p = cluster->places[p].parent;
        below += p == place;
    }
    return below;
}

struct message_link search_link(const struct search *search, int from, int r, int to)
{
    const struct cluster *cluster = search->cluster;
    struct message_link result = { .link = cluster_link(cluster, from, to) };
    int wires[16], up = 0, n = cluster_route(cluster, from, to, wires, &up);

    for (int i = 0; i < n; i++) {
        const struct cluster_place *place = &cluster->places[wires[i]];

        result.each = fmax(result.each, 1 / place->up_bandwidth);
        result.flow = fmax(result.flow, 1 / place->flow_bandwidth);
    }
    for (int i = 1; i < up; i++)
        result.own = fmax(result.own, devices_below(cluster, wires[i], from, r) /
                                          cluster->places[wires[i]].up_bandwidth);
    return result;
}

double search_message(const struct message_link *link, double bytes, double own_bytes)
{
    /* No transfer is longer than what one sends, or than what one receives. */
    double together = fmax(bytes * link->each, own_bytes * link->own);
    double one = fmin(bytes, own_bytes);

    return bytes > 0 ? cluster_link_start(&link->link, one) + fmax(together, one * link->flow)
                     : 0;
}
