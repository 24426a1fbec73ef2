/* SPDX-License-Identifier: MIT */
/* What messages and all-reduces take in the closed form. The cluster is asked once for each
 * group that reduces, and the caller may keep what it says of links.
 */
#include <math.h>
#include <stdlib.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

/* By replicas first: the more there are, the fewer devices they begin at. Most are never asked
 * for.
 */
static int *reduce_at(struct search *search, int pipelines, int device, int r)
{
    size_t n = (size_t)search_devices(search, pipelines);
    int ***rows = &search->reduce[pipelines];

    if (!*rows)
        *rows = mem_new(n, sizeof(**rows));
    if (!(*rows)[r - 1])
        (*rows)[r - 1] = mem_new(n - (size_t)r + 1, sizeof(***rows));
    return (*rows)[r - 1] + device;
}

void search_forget_reduces(struct search *search)
{
    for (int p = 1; p <= search->cluster->n_devices; p++) {
        for (int r = 0; search->reduce[p] && r < search_devices(search, p); r++)
            free(search->reduce[p][r]);
        free(search->reduce[p]);
    }
    free(search->reduce);
    free(search->reduces);
}

/* Sharded or not: a search is for both. */
static void ask_cluster(struct search *search, int n, const int *devices,
                        struct reduce_time *time)
{
    struct allreduce_group group = { n, devices, 1, 0 };

    for (int k = 0; k < ALLREDUCE_KINDS; k++) {
        enum allreduce kind = (enum allreduce)k;
        struct allreduce_way way;

        if (!allreduce_allowed(search->cluster, kind, false) &&
            !allreduce_allowed(search->cluster, kind, true))
            continue;
        allreduce_find(search->cluster, kind, &group, &way);
        time->lines[k] = allreduce_line(search->cluster, &way);
        allreduce_clear(&way);
    }
}

static const struct reduce_time *reduce_time(struct search *search, int pipelines, int device,
                                             int r)
{
    int all = pipelines * r, n = search_devices(search, pipelines);
    int *at = reduce_at(search, pipelines, device, r);

    if (*at == 0) {
        int *devices = mem_new((size_t)all, sizeof(int));

        for (int i = 0; i < all; i++)
            devices[i] = i / r * n + device + i % r;
        ask_cluster(search, all, devices,
                    mem_push((void **)&search->reduces, &search->n_reduces,
                             sizeof(*search->reduces)));
        *at = search->n_reduces;
        free(devices);
    }
    return &search->reduces[*at - 1];
}

const struct reduce_time *search_reduce_time(struct search *search, int pipelines, int device,
                                             int r)
{
    return pipelines * r < 2 ? NULL : reduce_time(search, pipelines, device, r);
}

double search_reduce_seconds(const struct search *search, const struct reduce_time *time,
                             double bytes)
{
    double seconds = INFINITY;

    if (!time || bytes <= 0)
        return 0;
    for (int k = 0; k < ALLREDUCE_KINDS; k++)
        if (allreduce_allowed(search->cluster, (enum allreduce)k, search->zero))
            seconds = dmin(seconds, time->lines[k].latency + bytes * time->lines[k].rate);
    return seconds;
}

double search_allreduce(struct search *search, int pipelines, int device, int r, double bytes)
{
    return bytes <= 0 ? 0 : search_reduce_seconds(search, search_reduce_time(search, pipelines,
                                                                              device, r), bytes);
}

void search_fill_below(struct search *search)
{
    const struct cluster *cluster = search->cluster;

    search->below = mem_new((size_t)cluster->n_places, sizeof(*search->below));
    for (int d = 0; d < cluster->n_devices; d++)
        for (int p = cluster->devices[d].place; p >= 0; p = cluster->places[p].parent) {
            struct span *span = &search->below[p];

            span->first = span->end ? span->first : d;
            span->end = d + 1;
        }
}

/* How many of the devices from 'first' on, 'n' of them, are below a place. */
static int devices_below(const struct search *search, int place, int first, int n)
{
    const struct span *span = &search->below[place];
    int from = first > span->first ? first : span->first;
    int end = first + n < span->end ? first + n : span->end;

    return end > from ? end - from : 0;
}

struct message_link search_link(const struct search *search, int from, int r, int to)
{
    const struct cluster *cluster = search->cluster;
    struct message_link result = { .link = cluster_link(cluster, from, to) };
    int wires[16], up = 0, n = cluster_route(cluster, from, to, wires, &up);

    for (int i = 0; i < n; i++) {
        const struct cluster_place *place = &cluster->places[wires[i]];

        result.each = dmax(result.each, 1 / place->up_bandwidth);
        result.flow = dmax(result.flow, 1 / place->flow_bandwidth);
    }
    for (int i = 1; i < up; i++)
        result.own = dmax(result.own, devices_below(search, wires[i], from, r) /
                                          cluster->places[wires[i]].up_bandwidth);
    return result;
}

double search_message(const struct message_link *link, double bytes, double own_bytes)
{
    /* No transfer is longer than what one sends, or than what one receives. */
    double together = dmax(bytes * link->each, own_bytes * link->own);
    double one = dmin(bytes, own_bytes);

    return bytes > 0 ? cluster_link_start(&link->link, one) + dmax(together, one * link->flow)
                     : 0;
}

/* What leads to some devices from the place above. */
struct wire {
    int place, devices;
    double bandwidth;
};

static int by_bandwidth(const void *a, const void *b)
{
    const struct wire *x = a, *y = b;

    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return x->bandwidth > y->bandwidth ? -1 : x->bandwidth < y->bandwidth;
}

/* [places], and as many for the devices of each place itself, which no wire is between. */
static struct wire *wires_of(const struct cluster *c)
{
    struct wire *wires = mem_new(2 * (size_t)c->n_places, sizeof(*wires));

    for (int d = 0; d < c->n_devices; d++)
        wires[c->devices[d].place].devices++;
    for (int p = 0; p < c->n_places; p++)
        wires[c->n_places + p] = (struct wire){ p, wires[p].devices, INFINITY };
    for (int p = c->n_places - 1; p > 0; p--) {
        const struct cluster_place *place = &c->places[p];

        wires[place->parent].devices += wires[p].devices;
        wires[p].place = place->parent;
        wires[p].bandwidth = dmin(place->up_bandwidth, place->flow_bandwidth);
    }
    wires[0].place = -1;
    return wires;
}

/* Those that one place holds use the wires of as many of its children as it takes, the best first. */
double *search_widest(const struct search *search)
{
    const struct cluster *c = search->cluster;
    struct wire *wires = wires_of(c);
    double *widest = mem_new((size_t)c->n_devices + 1, sizeof(*widest));
    int devices = 0;

    for (int d = 1; d < c->n_devices; d++)
        if (c->devices[d].place == c->devices[d - 1].place)
            widest[wires[c->devices[d].place].devices] = INFINITY;
    qsort(wires, 2 * (size_t)c->n_places, sizeof(*wires), by_bandwidth);
    for (int i = 1; i < 2 * c->n_places; i++) {
        bool more = wires[i].place == wires[i - 1].place;

        devices = more ? devices + wires[i].devices : wires[i].devices;
        if (more)
            widest[devices] = dmax(widest[devices], wires[i].bandwidth);
    }
    for (int n = c->n_devices - 1; n >= 0; n--)
        widest[n] = dmax(widest[n], widest[n + 1]);
    free(wires);
    return widest;
}
