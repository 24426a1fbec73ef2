/* SPDX-License-Identifier: MIT */
#include "topology/distance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "topology/node.h"

static int depth_of(const struct topo_node *node, int pci)
{
    int depth = 0;

    for (; pci >= 0; pci = node->pcis[pci].parent)
        depth++;
    return depth;
}

/* How many bridges on each side below the bridge where both meet; -1: they do not meet. */
static int meet(const struct topo_node *node, int a, int b, int *bridges)
{
    int up_a = -1, up_b = -1, deep_a = depth_of(node, a), deep_b = depth_of(node, b);

    while (a != b && a >= 0 && b >= 0) {
        int was_a = deep_a, was_b = deep_b;

        if (was_a >= was_b) {
            a = node->pcis[a].parent;
            deep_a--;
            up_a++;
        }
        if (was_b >= was_a) {
            b = node->pcis[b].parent;
            deep_b--;
            up_b++;
        }
    }
    *bridges = up_a > up_b ? up_a : up_b;
    return a == b ? a : -1;
}

static enum topo_near near_of(const struct topo_node *node, const char *a, const char *b,
                              int numa_a, int numa_b)
{
    int pci_a = topo_node_find_pci(node, a), pci_b = topo_node_find_pci(node, b);
    int bridges, top;

    if (pci_a < 0 || pci_b < 0)
        return TOPO_FAR;
    top = meet(node, pci_a, pci_b, &bridges);
    if (top >= 0 && node->pcis[top].kind != TOPO_PCI_HOST)
        return bridges <= 1 ? TOPO_PIX : TOPO_PXB;
    if (top >= 0)
        return TOPO_PHB;
    if (node->numa_nodes > 1 && (numa_a < 0 || numa_b < 0))
        return TOPO_FAR;
    return numa_a == numa_b ? TOPO_NODE : TOPO_SYS;
}

struct topo_distance topo_distance_pci(const struct topo_node *node, int a, int b)
{
    const struct topo_gpu *x = &node->gpus[a], *y = &node->gpus[b];

    return (struct topo_distance){
        .near = a == b ? TOPO_SELF : near_of(node, x->address, y->address, x->numa, y->numa)
    };
}

/* Active links to 'address', or to switches where that is NULL. */
static int count_links(const struct topo_gpu *gpu, const char *address, double *bandwidth)
{
    int n = 0;

    *bandwidth = 0;
    for (int i = 0; i < gpu->n_links; i++) {
        const struct topo_nvlink *l = &gpu->links[i];
        bool there = address ? l->remote != TOPO_REMOTE_SWITCH && l->address[0] &&
                                   strcmp(l->address, address) == 0
                             : l->remote == TOPO_REMOTE_SWITCH;

        if (l->up != 1 || !there)
            continue;
        n++;
        *bandwidth += l->bandwidth;
    }
    return n;
}

/* A link has two ends; one of them may not have been asked. */
static struct topo_distance direct(const struct topo_gpu *x, const struct topo_gpu *y)
{
    struct topo_distance d = { .near = TOPO_NVLINK }, back = { .near = TOPO_NVLINK };

    d.links = count_links(x, y->address, &d.bandwidth);
    back.links = count_links(y, x->address, &back.bandwidth);
    if (x->n_links < 0)
        return back;
    return y->n_links < 0 || d.links <= back.links ? d : back;
}

static struct topo_distance through_switches(const struct topo_gpu *x, const struct topo_gpu *y)
{
    struct topo_distance d = { .near = TOPO_NVLINK }, other = { .near = TOPO_NVLINK };

    d.links = count_links(x, NULL, &d.bandwidth);
    other.links = count_links(y, NULL, &other.bandwidth);
    return d.links < other.links ? d : other;
}

struct topo_distance topo_distance_gpus(const struct topo_node *node, int a, int b)
{
    const struct topo_gpu *x = &node->gpus[a], *y = &node->gpus[b];
    struct topo_distance d;

    if (a == b)
        return (struct topo_distance){ .near = TOPO_SELF };
    d = direct(x, y);
    if (d.links == 0)
        d = through_switches(x, y);
    if (d.links > 0)
        return d;
    d = topo_distance_pci(node, a, b);
    d.blind = x->n_links < 0 && y->n_links < 0;
    return d;
}

struct topo_distance topo_distance_nic(const struct topo_node *node, int gpu, int nic)
{
    const struct topo_gpu *x = &node->gpus[gpu];
    const struct topo_nic *y = &node->nics[nic];

    return (struct topo_distance){
        .near = near_of(node, x->address, y->address, x->numa, y->numa)
    };
}

const char *topo_distance_word(struct topo_distance distance, char text[16])
{
    static const char *const words[] = { "X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS", "?" };

    if (distance.near == TOPO_NVLINK)
        snprintf(text, 16, "NV%d", distance.links);
    else
        snprintf(text, 16, "%s%s", words[distance.near], distance.blind ? "*" : "");
    return text;
}

const char *topo_distance_legend(void)
{
    return "  X     the same GPU\n"
           "  NV#   # NVLinks, direct or through NVSwitches\n"
           "  PIX   at most one PCIe bridge (one switch)\n"
           "  PXB   several PCIe bridges, but no host bridge\n"
           "  PHB   through a PCIe host bridge\n"
           "  NODE  between PCIe host bridges of one NUMA node\n"
           "  SYS   between NUMA nodes\n"
           "  ?     not known\n"
           "  *     the way over PCI; NVLinks were not collected\n";
}

struct ranked {
    const struct topo_nic *nic;
    int index;
};

static int compare(const void *a, const void *b)
{
    const struct topo_nic *x = ((const struct ranked *)a)->nic;
    const struct topo_nic *y = ((const struct ranked *)b)->nic;
    int order = strcmp(x->address, y->address);

    return order ? order : x->port != y->port ? x->port - y->port : strcmp(x->name, y->name);
}

static bool is_rail(const struct topo_nic *nic, bool hcas)
{
    return hcas ? nic->hca : nic->address[0] != '\0';
}

int topo_rails(const struct topo_node *node, int **nics)
{
    struct ranked *found = mem_new((size_t)node->n_nics, sizeof(*found));
    bool hcas = false;
    int n = 0;

    for (int i = 0; i < node->n_nics; i++)
        hcas |= node->nics[i].hca;
    for (int i = 0; i < node->n_nics; i++)
        if (is_rail(&node->nics[i], hcas))
            found[n++] = (struct ranked){ &node->nics[i], i };
    qsort(found, (size_t)n, sizeof(*found), compare);
    *nics = mem_new((size_t)n, sizeof(int));
    for (int i = 0; i < n; i++)
        (*nics)[i] = found[i].index;
    free(found);
    return n;
}

bool topo_nic_is_down(const struct topo_nic *nic)
{
    return nic->state[0] && strcasecmp(nic->state, "ACTIVE") && strcasecmp(nic->state, "up");
}

/* The nearest rails of a GPU as a list; how near they are is returned. */
static enum topo_near nearest(const struct topo_node *node, int gpu, int n, const int *rails,
                              int *list, int *n_list)
{
    enum topo_near best = TOPO_FAR;

    *n_list = 0;
    for (int i = 0; i < n; i++) {
        enum topo_near near = topo_distance_nic(node, gpu, rails[i]).near;

        if (topo_nic_is_down(&node->nics[rails[i]]) || near > best)
            continue;
        if (near < best)
            *n_list = 0;
        best = near;
        list[(*n_list)++] = i;
    }
    return best;
}

int topo_nearest_rail(const struct topo_node *node, int gpu)
{
    int *rails, n = topo_rails(node, &rails), turn = 0, n_own, n_other, rail;
    int *own = mem_new((size_t)n, sizeof(int)), *other = mem_new((size_t)n, sizeof(int));

    nearest(node, gpu, n, rails, own, &n_own);
    for (int i = 0; i < gpu; i++) {
        nearest(node, i, n, rails, other, &n_other);
        turn += n_other == n_own && memcmp(own, other, (size_t)n_own * sizeof(int)) == 0;
    }
    rail = n_own > 0 ? own[turn % n_own] : -1;
    free(own);
    free(other);
    free(rails);
    return rail;
}
