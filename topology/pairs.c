/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/pairs_private.h"

#define MOST_NODES 32           /* of a child */
#define MOST_DEVICES 16         /* of a node */
#define MOST_LOADS 4            /* of a class */
#define MOST_FLOWS 64           /* of a load */
#define ROUNDS 1024
#define WORDS (ROUNDS / 64)

/* The devices with which a child of a place takes part. */
struct ends {
    int n;
    int devices[MOST_NODES];
};

bool pairs_takes_part(const struct pairs_chooser *c, int device)
{
    return !c->pairs->gpus || c->cluster->devices[device].rank >= 0;
}

/* One of every so many, so that at most 'most' of n are taken. */
static bool is_taken(int i, int n, int most)
{
    return n <= most || (long)i * most / n != (long)(i - 1) * most / n || i == 0;
}

bool pairs_has_part(const struct pairs_chooser *c, int place)
{
    int last = cluster_device_from(c->cluster, cluster_end(c->cluster, place));

    for (int d = cluster_device_from(c->cluster, place); d < last; d++)
        if (pairs_takes_part(c, d))
            return true;
    return false;
}

static void find_ends(const struct pairs_chooser *c, int child, struct ends *ends)
{
    const struct cluster *cluster = c->cluster;
    int first = cluster_device_from(cluster, child);
    int last = cluster_device_from(cluster, cluster_end(cluster, child)), n = 0;
    bool nodes = cluster->places[child].kind <= CLUSTER_NODE;

    ends->n = 0;
    for (int pass = 0; pass < 2; pass++) {
        int i = 0, node = -1;

        for (int d = first; d < last; d++) {
            if (!pairs_takes_part(c, d) || (nodes && cluster->devices[d].node == node))
                continue;
            node = cluster->devices[d].node;
            if (pass == 1 && ends->n < MOST_NODES && is_taken(i, n, MOST_NODES))
                ends->devices[ends->n++] = d;
            i++;
        }
        n = i;
    }
}

/* The children of a place with which it is measured. */
static int find_children(const struct pairs_chooser *c, int place, int **children)
{
    const struct cluster *cluster = c->cluster;
    int end = cluster_end(cluster, place), all = 0, n = 0, i = 0;

    for (int p = place + 1; p < end; p = cluster_end(cluster, p))
        all++;
    for (int p = place + 1; p < end; p = cluster_end(cluster, p), i++)
        if (pairs_has_part(c, p) &&
            (cluster->places[p].kind != CLUSTER_DEVICE || is_taken(i, all, MOST_DEVICES)))
            *(int *)mem_push((void **)children, &n, sizeof(int)) = p;
    return n;
}

static int class_of(struct pairs *pairs, const struct cluster *cluster, int place)
{
    int depth = cluster_depth(cluster, place);
    enum cluster_kind kind = cluster->places[place].kind;

    for (int i = 0; i < pairs->n_classes; i++)
        if (pairs->classes[i].depth == depth && pairs->classes[i].kind == kind)
            return i;
    *(struct pair_class *)mem_push((void **)&pairs->classes, &pairs->n_classes,
                                   sizeof(struct pair_class)) =
        (struct pair_class){ .depth = depth, .kind = kind, .place = place };
    return pairs->n_classes - 1;
}

void pairs_add(struct pairs *pairs, int class, int a, int b)
{
    *(struct pair *)mem_push((void **)&pairs->pairs, &pairs->n_pairs, sizeof(struct pair)) =
        (struct pair){ class, a, b, 0 };
}

static void pair_children(struct pairs_chooser *c, int class, int x, int y)
{
    struct ends from, to;

    find_ends(c, x, &from);
    find_ends(c, y, &to);
    if (from.n == 0 || to.n == 0)
        return;
    for (int i = 0; i < (c->full ? from.n > to.n ? from.n : to.n : 1); i++)
        pairs_add(c->pairs, class, from.devices[i % from.n], to.devices[i % to.n]);
}

/* Half of the list apart, each is the other's. */
static void pair_at(struct pairs_chooser *c, int class, const int *children, int n, int step)
{
    int last = !c->full ? 1 : 2 * step == n ? step : n;

    for (int i = 0; i < last; i++)
        pair_children(c, class, children[i], children[(i + step) % n]);
}

static void choose_in(struct pairs_chooser *c, int place)
{
    int *children = NULL, n = find_children(c, place, &children);

    if (n > 1) {
        int class = class_of(c->pairs, c->cluster, place);

        pair_at(c, class, children, n, 1);
        if (c->full && n / 2 > 1)
            pair_at(c, class, children, n, n / 2);
    }
    free(children);
}

static void add_load(struct pairs_chooser *c, int class, int x, int y)
{
    const struct cluster *cluster = c->cluster;
    struct pairs *pairs = c->pairs;
    int a = cluster_device_from(cluster, x), b = cluster_device_from(cluster, y);
    int n_a = cluster_device_from(cluster, cluster_end(cluster, x)) - a;
    int n_b = cluster_device_from(cluster, cluster_end(cluster, y)) - b, n = n_a < n_b ? n_a : n_b;
    struct pair_load load = { class, pairs->n_flows, 0 };

    for (int i = 0; i < n; i++)
        if (is_taken(i, n, MOST_FLOWS) && pairs_takes_part(c, a + i) &&
            pairs_takes_part(c, b + i)) {
            *(struct pair *)mem_push((void **)&pairs->flows, &pairs->n_flows,
                                     sizeof(struct pair)) =
                (struct pair){ class, a + i, b + i, 0 };
            load.n++;
        }
    if (load.n > 1)
        *(struct pair_load *)mem_push((void **)&pairs->loads, &pairs->n_loads,
                                      sizeof(load)) = load;
    else
        pairs->n_flows = load.first;
}

/* Wires of devices carry one transfer at a time; others are shared. */
static void choose_loads(struct pairs_chooser *c, int place)
{
    int *children = NULL, n = find_children(c, place, &children), class, found = 0;

    if (n > 1 && c->cluster->places[children[0]].kind != CLUSTER_DEVICE) {
        class = class_of(c->pairs, c->cluster, place);
        for (int i = 0; i < c->pairs->n_loads; i++)
            found += c->pairs->loads[i].class == class;
        for (int i = 0; i + 1 < n && found < MOST_LOADS; i += 2, found++)
            add_load(c, class, children[i], children[i + 1]);
    }
    free(children);
}

static int by_depth(const void *a, const void *b)
{
    const struct pair_class *x = a, *y = b;

    return x->depth != y->depth ? y->depth - x->depth
           : x->kind != y->kind ? (int)x->kind - (int)y->kind
           : strcmp(x->word, y->word) ? strcmp(x->word, y->word) : x->place - y->place;
}

static int by_class(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    return x->class != y->class ? x->class - y->class
           : x->round != y->round ? x->round - y->round : x->a - y->a;
}

/* So that the classes are there before the pairs. */
static void find_classes(struct pairs_chooser *c)
{
    for (int p = 0; p < c->cluster->n_places; p++) {
        int *children = NULL;

        if (c->cluster->places[p].kind < (c->pairs->gpus ? CLUSTER_NODE : CLUSTER_DEVICE) &&
            find_children(c, p, &children) > 1)
            class_of(c->pairs, c->cluster, p);
        free(children);
    }
}

/* The deepest first, and the pairs that there are by them. */
static void sort_classes(struct pairs *pairs)
{
    int n = pairs->n_classes, *to = mem_new((size_t)n, sizeof(*to));
    struct pair_class *sorted = mem_new((size_t)n, sizeof(*sorted));

    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            int order = by_depth(&pairs->classes[j], &pairs->classes[i]);

            to[i] += order < 0 || (order == 0 && j < i);
        }
        sorted[to[i]] = pairs->classes[i];
    }
    for (int i = 0; i < pairs->n_pairs; i++)
        pairs->pairs[i].class = to[pairs->pairs[i].class];
    if (pairs->n_pairs > 1)
        qsort(pairs->pairs, (size_t)pairs->n_pairs, sizeof(struct pair), by_class);
    free(pairs->classes);
    free(to);
    pairs->classes = sorted;
}

/* Classes are measured one after the other. */
static void schedule(struct pairs_chooser *c)
{
    struct pairs *pairs = c->pairs;
    int first = 0, kept = 0;

    while (first < pairs->n_pairs) {
        struct pair *list = &pairs->pairs[first];
        int n = 1, rounds;

        while (first + n < pairs->n_pairs && list[n].class == list[0].class)
            n++;
        first += n;
        rounds = pairs_schedule(c->cluster, n, list);
        for (int i = 0; i < n; i++)
            if (list[i].round >= 0) {
                pairs->pairs[kept] = list[i];
                pairs->pairs[kept++].round += pairs->n_rounds;
            }
        pairs->n_rounds += rounds;
    }
    pairs->n_pairs = kept;
    if (kept > 1)
        qsort(pairs->pairs, (size_t)kept, sizeof(struct pair), by_class);
}

/* Of GPUs only what lies between nodes: those of one node are another affair. */
static void choose_at(struct pairs_chooser *c, int class, int place)
{
    if (!c->pairs->gpus || c->cluster->places[place].kind < CLUSTER_NODE)
        choose_in(c, place);
    if (c->full && class_of(c->pairs, c->cluster, place) == class)
        choose_loads(c, place);
}

static void choose_places(struct pairs_chooser *c)
{
    const struct cluster *cluster = c->cluster;
    int *samples = mem_new((size_t)c->pairs->n_classes, sizeof(*samples));

    for (int class = 0, n = c->pairs->n_classes; class < n; class++)
        for (int p = 0; p < cluster->n_places; p++) {
            const struct pair_class *k = &c->pairs->classes[class];

            if (cluster->places[p].kind != k->kind || cluster_depth(cluster, p) != k->depth ||
                (!c->full && samples[class] == MOST_SAMPLES))
                continue;
            samples[class]++;
            choose_at(c, class, p);
        }
    free(samples);
}

void pairs_finish(struct pairs_chooser *c)
{
    find_classes(c);
    sort_classes(c->pairs);
    choose_places(c);
    schedule(c);
}

struct pairs *pairs_choose(const struct cluster *cluster, bool full)
{
    struct pairs_chooser c = { .cluster = cluster, .full = full,
                               .pairs = mem_new(1, sizeof(struct pairs)) };

    pairs_finish(&c);
    return c.pairs;
}

void pairs_free(struct pairs *pairs)
{
    if (!pairs)
        return;
    free(pairs->classes);
    free(pairs->pairs);
    free(pairs->loads);
    free(pairs->flows);
    free(pairs);
}

static bool has_child(const struct cluster *cluster, int place, enum cluster_kind kind)
{
    int end = cluster_end(cluster, place);

    for (int c = place + 1; c < end; c = cluster_end(cluster, c))
        if (cluster->places[c].kind == kind && strcmp(cluster->places[c].name, "machine") != 0)
            return true;
    return false;
}

char *pairs_class_name(const struct cluster *cluster, const struct pair_class *class)
{
    const struct cluster_place *place = &cluster->places[class->place];

    if (class->word[0])
        return mem_printf("%s%s", class->word, class->depth < 0 && class->kind == CLUSTER_ISLAND
                                                   ? ", same island" : "");
    switch (class->kind) {
    case CLUSTER_NODE: return mem_strdup("same node");
    case CLUSTER_ISLAND: return mem_strdup("same island");
    case CLUSTER_SWITCH:
        if (strcmp(place->name, "machine") == 0)
            return mem_strdup("same machine");
        return has_child(cluster, class->place, CLUSTER_SWITCH)
                   ? mem_printf("same switch, level %d", class->depth)
                   : mem_strdup("same switch");
    default:
        return mem_strdup(has_child(cluster, 0, CLUSTER_SWITCH) ? "across switches"
                          : has_child(cluster, 0, CLUSTER_DEVICE) ? "across the network"
                                                                  : "across nodes");
    }
}

/* What a pair needs to itself: the wires on its way, and the cores of both ends. */
static int resources_of(const struct cluster *cluster, const struct pair *pair, int list[18])
{
    int up, n = cluster_route(cluster, pair->a, pair->b, list, &up);
    int cores[2] = { cluster_core_place(cluster, pair->a),
                     cluster_core_place(cluster, pair->b) };

    for (int i = 0; i < 2; i++)
        if (cluster->places[cores[i]].cores > 0)
            list[n++] = cores[i];
    return n;
}

static int first_free(const uint64_t used[WORDS])
{
    for (int w = 0; w < WORDS; w++)
        if (~used[w])
            return 64 * w + __builtin_ctzll(~used[w]);
    return -1;
}

int pairs_schedule(const struct cluster *cluster, int n, struct pair *pairs)
{
    uint64_t (*used)[WORDS] = mem_new((size_t)cluster->n_places, sizeof(*used));
    int rounds = 0;

    for (int i = 0; i < n; i++) {
        int list[18], n_list = resources_of(cluster, &pairs[i], list), round;
        uint64_t any[WORDS] = { 0 };

        for (int j = 0; j < n_list; j++)
            for (int w = 0; w < WORDS; w++)
                any[w] |= used[list[j]][w];
        round = pairs[i].round = first_free(any);
        for (int j = 0; j < n_list && round >= 0; j++)
            used[list[j]][round / 64] |= (uint64_t)1 << (round % 64);
        rounds = round >= rounds ? round + 1 : rounds;
    }
    free(used);
    return rounds;
}
