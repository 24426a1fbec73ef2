/* SPDX-License-Identifier: MIT */
#include "topology/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/distance.h"
#include "topology/node.h"
#include "topology/pairs_private.h"
#include "topology/record.h"

/* Two GPUs of a node meet in their island, or in the node. Those of an island that NVLinks join
 * by way of others say nothing of NVLinks.
 */
static int class_of_word(struct pairs_chooser *c, int place, const char *word)
{
    struct pairs *pairs = c->pairs;
    struct pair_class class = { .depth = cluster_depth(c->cluster, place), .place = place,
                                .kind = c->cluster->places[place].kind };

    snprintf(class.word, sizeof(class.word), "%s", word);
    if (class.kind == CLUSTER_DEVICE ||
        (class.kind == CLUSTER_ISLAND && strncmp(word, "NV", 2) != 0))
        class.depth = -1;
    for (int i = 0; i < pairs->n_classes; i++)
        if (pairs->classes[i].depth == class.depth && pairs->classes[i].kind == class.kind &&
            strcmp(pairs->classes[i].word, word) == 0)
            return i;
    *(struct pair_class *)mem_push((void **)&pairs->classes, &pairs->n_classes,
                                   sizeof(class)) = class;
    return pairs->n_classes - 1;
}

/* Is one enough, and there? Of a node one is, of all nodes some are. */
static bool has_enough(const struct pairs_chooser *c, int class, int node)
{
    const struct pairs *pairs = c->pairs;
    int n = 0;

    for (int i = 0; i < pairs->n_pairs && !c->full; i++) {
        bool same = pairs->pairs[i].class == class;

        if (same && c->cluster->devices[pairs->pairs[i].a].node == node)
            return true;
        n += same;
    }
    return n >= MOST_SAMPLES;
}

/* "n1/gpu3" is the fourth of its node. */
static int gpu_of(const struct cluster_device *device)
{
    const char *slash = strrchr(device->id, '/');

    return atoi(slash + strlen("/gpu"));
}

static void choose_gpu_pair(struct pairs_chooser *c, const struct topo_node *node, int a, int b)
{
    const struct cluster *cluster = c->cluster;
    const struct cluster_device *x = &cluster->devices[a], *y = &cluster->devices[b];
    int island = cluster->places[x->place].parent, place = x->node, class;
    char word[16];

    if (a == b)
        place = x->place;
    else if (cluster->places[y->place].parent == island)
        place = island;
    topo_distance_word(topo_distance_gpus(node, gpu_of(x), gpu_of(y)), word);
    class = class_of_word(c, place, word);
    if (!has_enough(c, class, x->node))
        pairs_add(c->pairs, class, a, b);
}

static int choose_in_node(struct pairs_chooser *c, const struct topo_record *record, int place,
                          struct err *err)
{
    const struct cluster *cluster = c->cluster;
    int host = topo_record_find(record, cluster->places[place].name);
    int last = cluster_device_from(cluster, cluster_end(cluster, place));
    struct topo_node *node = topo_record_node(record, host, err);

    if (!node)
        return -1;
    for (int a = cluster_device_from(cluster, place); a < last; a++)
        for (int b = a; b < last; b++)
            if (pairs_takes_part(c, a) && pairs_takes_part(c, b) && (a != b || c->shared[a]))
                choose_gpu_pair(c, node, a, b);
    topo_node_free(node);
    return 0;
}

struct pairs *pairs_choose_gpus(const struct cluster *cluster, const struct topo_record *record,
                                const bool *shared, bool full, struct err *err)
{
    struct pairs_chooser c = { cluster, full, mem_new(1, sizeof(struct pairs)), shared };

    c.pairs->gpus = true;
    for (int p = 0; p < cluster->n_places; p++)
        if (cluster->places[p].kind == CLUSTER_NODE && pairs_has_part(&c, p) &&
            choose_in_node(&c, record, p, err)) {
            pairs_free(c.pairs);
            return NULL;
        }
    pairs_finish(&c);
    return c.pairs;
}

static void *copy_of(const void *array, int n, size_t size)
{
    void *copy = mem_new((size_t)n, size);

    if (n > 0)
        memcpy(copy, array, (size_t)n * size);
    return copy;
}

struct pairs *pairs_by_place(const struct pairs *pairs)
{
    struct pairs *merged = copy_of(pairs, 1, sizeof(*pairs));
    int *to = mem_new((size_t)pairs->n_classes, sizeof(*to));

    merged->classes = copy_of(pairs->classes, pairs->n_classes, sizeof(*pairs->classes));
    merged->pairs = copy_of(pairs->pairs, pairs->n_pairs, sizeof(*pairs->pairs));
    merged->loads = copy_of(pairs->loads, pairs->n_loads, sizeof(*pairs->loads));
    merged->flows = copy_of(pairs->flows, pairs->n_flows, sizeof(*pairs->flows));
    for (int i = 0; i < pairs->n_classes; i++)
        while (pairs->classes[to[i]].depth != pairs->classes[i].depth ||
               pairs->classes[to[i]].kind != pairs->classes[i].kind)
            to[i]++;
    for (int i = 0; i < pairs->n_pairs; i++)
        merged->pairs[i].class = to[pairs->pairs[i].class];
    for (int i = 0; i < pairs->n_loads; i++)
        merged->loads[i].class = to[pairs->loads[i].class];
    free(to);
    return merged;
}
