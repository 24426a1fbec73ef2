/* SPDX-License-Identifier: MIT */
#include "topology/allreduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "topology/cluster.h"

static struct allreduce_phase *add_phase(struct allreduce_way *way, int hops, double share)
{
    struct allreduce_phase *p = &way->phases[way->n_phases++];

    *p = (struct allreduce_phase){ .share = share };
    p->hops = mem_new((size_t)hops, sizeof(*p->hops));
    return p;
}

/* Returns the latency. */
static double add_hop(const struct cluster *cluster, struct allreduce_phase *p, int from,
                      int to)
{
    p->hops[p->n++] = (struct allreduce_hop){ from, to };
    return cluster_link(cluster, from, to).latency;
}

/* The longest latency between neighbours; the last one sends to the first, or to the first of
 * the next copy.
 */
static double add_ring(const struct cluster *cluster, struct allreduce_phase *p, int n,
                       const int *devices, const struct allreduce_group *group)
{
    int first = group->copies > 1 ? devices[0] + group->shift : devices[0];
    double longest = 0;

    for (int i = 0; i < n; i++)
        longest = fmax(longest, add_hop(cluster, p, devices[i],
                                        i + 1 < n ? devices[i + 1] : first));
    return longest * cluster->sum_latency_factor;
}

static void find_ring(const struct cluster *cluster, const struct allreduce_group *group,
                      int n, const int *devices, struct allreduce_way *way)
{
    double all = (double)n * group->copies;
    struct allreduce_phase *p = add_phase(way, n, 2 * (all - 1) / all);

    p->latency = 2 * (all - 1) * add_ring(cluster, p, n, devices, group);
}

static int member(const struct allreduce_group *group, int i)
{
    return group->devices[i % group->n] + i / group->n * group->shift;
}

static void find_tree(const struct cluster *cluster, const struct allreduce_group *group,
                      struct allreduce_way *way)
{
    struct allreduce_phase *p = add_phase(way, group->n, 2);
    int all = group->n * group->copies;

    add_ring(cluster, p, group->n, group->devices, group);
    for (int step = 1; step < all; step *= 2) {
        double longest = 0;

        for (int i = 0; i + step < all; i += 2 * step)
            longest = fmax(longest, cluster_link(cluster, member(group, i),
                                                 member(group, i + step)).latency);
        p->latency += 2 * longest * cluster->sum_latency_factor;
    }
}

static bool same_node(const struct cluster *cluster, int a, int b)
{
    return cluster->devices[a].node == cluster->devices[b].node;
}

/* Down to the first device of each node, or up from it. */
static void add_chains(const struct cluster *cluster, const struct allreduce_group *group,
                       int longest, bool up, struct allreduce_way *way)
{
    struct allreduce_phase *p = add_phase(way, group->n, 1);
    double latency = 0;

    for (int i = 1; i < group->n; i++) {
        int low = group->devices[i - 1], high = group->devices[i];

        if (same_node(cluster, low, high))
            latency = fmax(latency, up ? add_hop(cluster, p, low, high)
                                       : add_hop(cluster, p, high, low));
    }
    p->latency = (longest - 1) * latency * cluster->sum_latency_factor;
}

/* The first devices of the nodes; returns how many, and how many devices the fullest has. */
static int find_leaders(const struct cluster *cluster, const struct allreduce_group *group,
                        int *leaders, int *longest)
{
    int nodes = 0, first = 0;

    *longest = 0;
    for (int i = 0; i < group->n; i++) {
        if (i == 0 || !same_node(cluster, group->devices[i - 1], group->devices[i])) {
            leaders[nodes++] = group->devices[i];
            first = i;
        }
        *longest = i - first + 1 > *longest ? i - first + 1 : *longest;
    }
    /* Copies in one node are no nodes of their own. */
    if (group->copies > 1 && same_node(cluster, group->devices[0], member(group, group->n)))
        return 1;
    return nodes * group->copies;
}

static void find_hierarchical(const struct cluster *cluster,
                              const struct allreduce_group *group,
                              struct allreduce_way *way)
{
    int *leaders = mem_new((size_t)group->n, sizeof(*leaders)), longest;
    int nodes = find_leaders(cluster, group, leaders, &longest);

    if (nodes == 1 || longest == 1) {
        find_ring(cluster, group, group->n, group->devices, way);
    } else {
        add_chains(cluster, group, longest, false, way);
        find_ring(cluster, group, nodes / group->copies, leaders, way);
        add_chains(cluster, group, longest, true, way);
    }
    free(leaders);
}

void allreduce_find(const struct cluster *cluster, enum allreduce kind,
                    const struct allreduce_group *group, struct allreduce_way *way)
{
    *way = (struct allreduce_way){ 0 };
    if (kind == ALLREDUCE_TREE)
        find_tree(cluster, group, way);
    else if (kind == ALLREDUCE_HIERARCHICAL)
        find_hierarchical(cluster, group, way);
    else
        find_ring(cluster, group, group->n, group->devices, way);
}

void allreduce_clear(struct allreduce_way *way)
{
    for (int i = 0; i < way->n_phases; i++)
        free(way->phases[i].hops);
    way->n_phases = 0;
}

struct allreduce_line allreduce_line(const struct cluster *cluster,
                                     const struct allreduce_way *way)
{
    struct allreduce_line line = { 0 };

    for (int i = 0; i < way->n_phases; i++) {
        const struct allreduce_phase *p = &way->phases[i];
        double slowest = INFINITY;

        for (int h = 0; h < p->n; h++)
            slowest = fmin(slowest, cluster_link(cluster, p->hops[h].from, p->hops[h].to)
                                        .bandwidth);
        line.latency += p->latency;
        line.rate += p->share * cluster->sum_bandwidth_factor / slowest;
    }
    return line;
}

bool allreduce_allowed(const struct cluster *cluster, enum allreduce kind, bool sharded)
{
    if (sharded)
        return kind == ALLREDUCE_RING;
    return cluster->sum_algorithm == kind || cluster->sum_algorithm == ALLREDUCE_BEST;
}

double allreduce_time(const struct cluster *cluster, int n, const int *devices, bool sharded,
                      double bytes)
{
    double seconds = INFINITY;
    int few[256], *sorted = few;

    if (n < 2)
        return 0;
    if (n > (int)(sizeof(few) / sizeof(few[0])))
        sorted = mem_new((size_t)n, sizeof(*sorted));
    memcpy(sorted, devices, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), order_ints);
    for (int k = 0; k < ALLREDUCE_KINDS; k++) {
        struct allreduce_group group = { n, sorted, 1, 0 };
        struct allreduce_way way;
        struct allreduce_line line;

        if (!allreduce_allowed(cluster, (enum allreduce)k, sharded))
            continue;
        allreduce_find(cluster, (enum allreduce)k, &group, &way);
        line = allreduce_line(cluster, &way);
        seconds = fmin(seconds, line.latency + bytes * line.rate);
        allreduce_clear(&way);
    }
    if (sorted != few)
        free(sorted);
    return seconds;
}

double cluster_allreduce_time(const struct cluster *cluster, int n, const int *devices,
                              double bytes)
{
    return allreduce_time(cluster, n, devices, false, bytes);
}
