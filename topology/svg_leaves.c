/* SPDX-License-Identifier: MIT */
#include "topology/svg_leaves.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"
#include "topology/distance.h"
#include "topology/node.h"

static void add_leaf(struct leaves *leaves, const struct topo_node *node, int gpu, int nic,
                     int rail)
{
    const char *address = gpu >= 0 ? node->gpus[gpu].address : node->nics[nic].address;
    int numa = gpu >= 0 ? node->gpus[gpu].numa : node->nics[nic].numa;

    *(struct leaf *)mem_push((void **)&leaves->leaf, &leaves->n, sizeof(struct leaf)) =
        (struct leaf){ .gpu = gpu, .nic = nic, .rail = rail, .numa = numa,
                       .pci = topo_node_find_pci(node, address) };
}

static int compare(const void *a, const void *b)
{
    const struct leaf *x = a, *y = b;
    unsigned numa_x = (unsigned)x->numa, numa_y = (unsigned)y->numa;
    unsigned pci_x = (unsigned)x->pci, pci_y = (unsigned)y->pci;

    /* -1 comes last; places of the PCI tree are in preorder. */
    if (numa_x != numa_y)
        return numa_x < numa_y ? -1 : 1;
    if (pci_x != pci_y)
        return pci_x < pci_y ? -1 : 1;
    return x->gpu != y->gpu ? (x->gpu > y->gpu) - (x->gpu < y->gpu)
                            : (x->nic > y->nic) - (x->nic < y->nic);
}

static bool is_below(const struct topo_node *node, int pci, int bridge)
{
    while (pci >= 0 && pci != bridge)
        pci = node->pcis[pci].parent;
    return pci >= 0;
}

/* The columns below a bridge; how many. */
static int span_of(const struct leaves *leaves, const struct topo_node *node, int bridge,
                   struct leaf_switch *span)
{
    int n = 0;

    *span = (struct leaf_switch){ .first = INT_MAX, .last = -1 };
    for (int i = 0; i < leaves->n; i++)
        if (is_below(node, leaves->leaf[i].pci, bridge)) {
            span->first = i < span->first ? i : span->first;
            span->last = i;
            n++;
        }
    return n;
}

/* A bridge with one bridge below that has all its leaves is but a wire. */
static bool branches(const struct leaves *leaves, const struct topo_node *node, int bridge)
{
    struct leaf_switch span;
    int n = span_of(leaves, node, bridge, &span);

    if (node->pcis[bridge].kind != TOPO_PCI_BRIDGE || n < 2 || span.last - span.first + 1 != n)
        return false;
    for (int i = bridge + 1; i < node->n_pcis; i++)
        if (node->pcis[i].parent == bridge && span_of(leaves, node, i, &span) == n)
            return false;
    return true;
}

static void add_switches(struct leaves *leaves, const struct topo_node *node)
{
    bool *is_switch = mem_new((size_t)node->n_pcis, sizeof(bool));

    for (int i = 0; i < node->n_pcis; i++)
        is_switch[i] = branches(leaves, node, i);
    for (int i = 0; i < node->n_pcis; i++) {
        struct leaf_switch span;

        if (!is_switch[i])
            continue;
        span_of(leaves, node, i, &span);
        for (int up = node->pcis[i].parent; up >= 0; up = node->pcis[up].parent)
            span.depth += is_switch[up];
        *(struct leaf_switch *)mem_push((void **)&leaves->switches, &leaves->n_switches,
                                        sizeof(span)) = span;
    }
    for (int i = 0; i < leaves->n; i++) {
        struct leaf *leaf = &leaves->leaf[i];

        for (int up = leaf->pci; up >= 0; up = node->pcis[up].parent)
            leaf->depth += is_switch[up];
        leaves->depth = leaf->depth > leaves->depth ? leaf->depth : leaves->depth;
    }
    free(is_switch);
}

struct leaves *leaves_of(const struct topo_node *node)
{
    struct leaves *leaves = mem_new(1, sizeof(*leaves));
    int *rails, n = topo_rails(node, &rails);

    for (int i = 0; i < node->n_gpus; i++)
        add_leaf(leaves, node, i, -1, -1);
    for (int i = 0; i < n; i++)
        add_leaf(leaves, node, -1, rails[i], i);
    free(rails);
    if (leaves->n > 1)
        qsort(leaves->leaf, (size_t)leaves->n, sizeof(struct leaf), compare);
    add_switches(leaves, node);
    return leaves;
}

void leaves_free(struct leaves *leaves)
{
    free(leaves->leaf);
    free(leaves->switches);
    free(leaves);
}
