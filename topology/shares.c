/* SPDX-License-Identifier: MIT */
#include "topology/shares.h"

#include <stdlib.h>

#include "base/mem.h"
#include "topology/node.h"
#include "topology/shape.h"

#define ANYWHERE (-1)
#define NOBODY (-1)
#define MOST_PUS 65535

struct core {
    int id, numa, rank;
};

struct deal {
    const struct shares_request *request;
    int n, size;                /* cores; those of a share */
    struct core *cores;
    int *core_of;               /* of each usable PU */
};

/* Cores ------------------------------------------------------------------------------- */

static int find_core(struct deal *d, int id)
{
    for (int i = 0; i < d->n; i++)
        if (d->cores[i].id == id)
            return i;
    d->cores[d->n] = (struct core){ .id = id, .numa = ANYWHERE, .rank = NOBODY };
    return d->n++;
}

static void find_cores(struct deal *d)
{
    const struct shares_request *r = d->request;
    int n = r->node->n_usable;

    d->cores = mem_new((size_t)n + 1, sizeof(*d->cores));
    d->core_of = mem_new((size_t)n + 1, sizeof(*d->core_of));
    for (int i = 0; i < n; i++)
        d->core_of[i] = find_core(d, r->cores ? r->cores[i] : i);
}

static void clear(struct deal *d)
{
    free(d->cores);
    free(d->core_of);
}

static void place_cores(struct deal *d, const struct topo_numa *numa)
{
    const struct topo_node *node = d->request->node;
    int n = 0, *pus = NULL;

    if (set_parse(numa->cpus, MOST_PUS, &n, &pus))
        return;
    for (int i = 0, j = 0; i < node->n_usable && j < n;) {
        if (node->usable[i] == pus[j] && d->cores[d->core_of[i]].numa == ANYWHERE)
            d->cores[d->core_of[i]].numa = numa->id;
        if (node->usable[i] < pus[j])
            i++;
        else
            j++;
    }
    free(pus);
}

static int count_free(const struct deal *d, int numa)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        n += d->cores[i].rank == NOBODY && d->cores[i].numa == numa;
    return n;
}

static int count_of(const struct deal *d, int rank)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        n += d->cores[i].rank == rank;
    return n;
}

static void take(struct deal *d, int rank, int numa, int wanted)
{
    for (int i = 0; i < d->n && wanted > 0; i++)
        if (d->cores[i].rank == NOBODY && (numa == ANYWHERE || d->cores[i].numa == numa)) {
            d->cores[i].rank = rank;
            wanted--;
        }
}

/* GPUs -------------------------------------------------------------------------------- */

/* All count where no driver was asked. */
static int gpu_of(const struct topo_node *node, int index)
{
    bool any = false;

    if (node->n_visible >= 0)
        return index < node->n_visible ? node->visible[index] : -1;
    for (int i = 0; i < node->n_gpus; i++)
        any |= node->gpus[i].seen;
    for (int i = 0; i < node->n_gpus; i++)
        if ((node->gpus[i].seen || !any) && index-- == 0)
            return i;
    return -1;
}

/* Where there are fewer GPUs than ranks each rank may be shown others: what they have in common
 * is then not known.
 */
static int numa_of(const struct deal *d, int rank)
{
    const struct shares_request *r = d->request;

    if (r->gpus)
        return r->gpus[rank] < 0 ? ANYWHERE : r->node->gpus[r->gpus[rank]].numa;
    if (!r->on_gpus || gpu_of(r->node, r->ranks - 1) < 0)
        return ANYWHERE;
    return r->node->gpus[gpu_of(r->node, rank)].numa;
}

static void take_near(struct deal *d, int numa)
{
    int there = count_free(d, numa), ranks = 0, each;

    for (int r = 0; r < d->request->ranks; r++)
        ranks += numa_of(d, r) == numa;
    if (ranks == 0)
        return;
    each = there / ranks < d->size ? there / ranks : d->size;
    for (int r = 0; r < d->request->ranks; r++)
        if (numa_of(d, r) == numa)
            take(d, r, numa, each);
}

static void take_rest(struct deal *d, int rank)
{
    const struct topo_node *node = d->request->node;
    int lacking = d->size - count_of(d, rank), numa = ANYWHERE;

    for (int i = 0; i < node->n_numas && numa == ANYWHERE; i++)
        if (count_free(d, node->numas[i].id) >= lacking)
            numa = node->numas[i].id;
    take(d, rank, numa, lacking);
}

/* ------------------------------------------------------------------------------------- */

static struct share *write_shares(const struct deal *d)
{
    const struct shares_request *r = d->request;
    struct share *shares = mem_new((size_t)r->ranks, sizeof(*shares));

    for (int i = 0; i < r->node->n_usable; i++) {
        int rank = d->cores[d->core_of[i]].rank;

        if (rank != NOBODY)
            *(int *)mem_push((void **)&shares[rank].pus, &shares[rank].n, sizeof(int)) =
                r->node->usable[i];
    }
    return shares;
}

struct share *shares_of(const struct shares_request *request)
{
    struct deal d = { .request = request };
    struct share *shares = NULL;

    find_cores(&d);
    d.size = request->ranks > 0 ? d.n / request->ranks : 0;
    if (request->most > 0 && request->most < d.size)
        d.size = request->most;
    for (int i = 0; i < request->node->n_numas; i++)
        place_cores(&d, &request->node->numas[i]);
    if (d.size > 0) {
        for (int i = 0; i < request->node->n_numas; i++)
            take_near(&d, request->node->numas[i].id);
        for (int r = 0; r < request->ranks; r++)
            take_rest(&d, r);
        shares = write_shares(&d);
    }
    clear(&d);
    return shares;
}

void shares_free(int ranks, struct share *shares)
{
    for (int r = 0; shares && r < ranks; r++)
        free(shares[r].pus);
    free(shares);
}

int shares_cores(const struct shares_request *request)
{
    struct deal d = { .request = request };
    int n;

    find_cores(&d);
    n = d.n;
    clear(&d);
    return n;
}
