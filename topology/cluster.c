/* SPDX-License-Identifier: MIT */
#include "topology/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"

#define MAX_DEPTH 8     /* cluster_route() has room for this many climbing wires */
#define FIRST_SLOTS 64

struct cluster *cluster_new(const char *name)
{
    struct cluster *cluster = mem_new(1, sizeof(*cluster));

    cluster->name = mem_strdup(name);
    cluster->sum_latency_factor = cluster->sum_bandwidth_factor = cluster->sum_overlap = 1;
    cluster->send_overlap = cluster->receive_overlap = 1;
    cluster_add_place(cluster, CLUSTER_ROOT, "", -1, INFINITY);
    return cluster;
}

void cluster_free(struct cluster *cluster)
{
    if (!cluster)
        return;
    for (int i = 0; i < cluster->n_places; i++)
        free(cluster->places[i].name);
    for (int i = 0; i < cluster->n_devices; i++) {
        free(cluster->devices[i].id);
        free(cluster->devices[i].kind);
    }
    for (int i = 0; i < cluster->n_sources; i++)
        free(cluster->sources[i]);
    storage_clear(&cluster->storage);
    free(cluster->sources);
    free(cluster->efficiencies);
    free(cluster->places);
    free(cluster->devices);
    free(cluster->slots);
    free(cluster->name);
    free(cluster);
}

int cluster_add_place(struct cluster *cluster, enum cluster_kind kind, const char *name,
                      int parent, double up_bandwidth)
{
    struct cluster_place *place =
        mem_push((void **)&cluster->places, &cluster->n_places, sizeof(*place));

    *place = (struct cluster_place){
        .kind = kind, .name = mem_strdup(name), .parent = parent,
        .up_bandwidth = up_bandwidth, .flow_bandwidth = INFINITY, .origin = ORIGIN_TABLE,
        .eager.copy_bandwidth = INFINITY,
        .latency_origin = ORIGIN_TABLE,
    };
    return cluster->n_places - 1;
}

static int node_above(const struct cluster *cluster, int place)
{
    while (place > 0 && cluster->places[place].kind != CLUSTER_NODE)
        place = cluster->places[place].parent;
    return place;
}

/* The slot of an id, or the free one that it would get: of FNV-1a, with open addressing. */
static int slot_of(const struct cluster *cluster, const char *id)
{
    uint32_t hash = 0x811c9dc5u;
    int mask = cluster->n_slots - 1, slot;

    for (const char *c = id; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x01000193u;
    slot = (int)(hash & (uint32_t)mask);
    while (cluster->slots[slot] &&
           strcmp(cluster->devices[cluster->slots[slot] - 1].id, id) != 0)
        slot = (slot + 1) & mask;
    return slot;
}

/* Of two devices with one id the first is found. */
static void enter_id(struct cluster *cluster, int device)
{
    int slot = slot_of(cluster, cluster->devices[device].id);

    if (!cluster->slots[slot])
        cluster->slots[slot] = device + 1;
}

static bool lacks_slots(const struct cluster *cluster)
{
    return cluster->n_slots < 2 * (int64_t)cluster->n_devices;
}

/* A power of two of them, of which no more than half are in use. */
static void make_slots(struct cluster *cluster)
{
    free(cluster->slots);
    cluster->n_slots = FIRST_SLOTS;
    while (lacks_slots(cluster))
        cluster->n_slots *= 2;
    cluster->slots = mem_new((size_t)cluster->n_slots, sizeof(*cluster->slots));
    for (int d = 0; d < cluster->n_devices; d++)
        enter_id(cluster, d);
}

int cluster_add_device(struct cluster *cluster, const char *id, const char *kind, int parent,
                       double up_bandwidth)
{
    const char *slash = strrchr(id, '/');
    int leaf = cluster_add_place(cluster, CLUSTER_DEVICE, slash ? slash + 1 : id, parent,
                                 up_bandwidth);
    struct cluster_device *device =
        mem_push((void **)&cluster->devices, &cluster->n_devices, sizeof(*device));

    *device = (struct cluster_device){
        .id = mem_strdup(id), .kind = mem_strdup(kind), .place = leaf,
        .node = node_above(cluster, parent), .memory = INFINITY, .rank = -1,
    };
    if (lacks_slots(cluster))
        make_slots(cluster);
    else
        enter_id(cluster, cluster->n_devices - 1);
    return cluster->n_devices - 1;
}

int cluster_add_source(struct cluster *cluster, const char *text)
{
    /* Neighbours have theirs in common. */
    for (int i = cluster->n_sources; i > 0 && i > cluster->n_sources - 32; i--)
        if (strcmp(cluster->sources[i - 1], text) == 0)
            return i;
    *(char **)mem_push((void **)&cluster->sources, &cluster->n_sources, sizeof(char *)) =
        mem_strdup(text);
    return cluster->n_sources;
}

int cluster_add_efficiency(struct cluster *cluster, const struct efficiency *efficiency)
{
    for (int i = 0; i < cluster->n_efficiencies; i++)
        if (efficiency_same(&cluster->efficiencies[i], efficiency))
            return i + 1;
    *(struct efficiency *)mem_push((void **)&cluster->efficiencies, &cluster->n_efficiencies,
                                   sizeof(*efficiency)) = *efficiency;
    return cluster->n_efficiencies;
}

const struct efficiency *cluster_efficiency(const struct cluster *cluster,
                                            const struct cluster_device *device,
                                            enum cluster_factors factors)
{
    int number = device->efficiency[factors] ? device->efficiency[factors]
                                             : device->efficiency[FACTORS_FLOAT32];

    return number ? &cluster->efficiencies[number - 1] : NULL;
}

static void *copy_of(const void *items, size_t n, size_t size)
{
    void *copy = mem_new(n, size);

    if (n > 0)
        memcpy(copy, items, n * size);
    return copy;
}

struct cluster *cluster_first(const struct cluster *cluster, int devices)
{
    struct cluster *part = mem_new(1, sizeof(*part));

    *part = *cluster;
    part->n_devices = devices;
    part->n_places = cluster->devices[devices - 1].place + 1;
    part->name = mem_strdup(cluster->name);
    part->storage.name = cluster->storage.name ? mem_strdup(cluster->storage.name) : NULL;
    part->places = copy_of(cluster->places, (size_t)part->n_places, sizeof(*part->places));
    part->devices = copy_of(cluster->devices, (size_t)devices, sizeof(*part->devices));
    part->sources = copy_of(cluster->sources, (size_t)part->n_sources, sizeof(*part->sources));
    part->efficiencies = copy_of(cluster->efficiencies, (size_t)part->n_efficiencies,
                                 sizeof(*part->efficiencies));
    for (int i = 0; i < part->n_places; i++)
        part->places[i].name = mem_strdup(part->places[i].name);
    for (int d = 0; d < devices; d++) {
        part->devices[d].id = mem_strdup(part->devices[d].id);
        part->devices[d].kind = mem_strdup(part->devices[d].kind);
    }
    for (int i = 0; i < part->n_sources; i++)
        part->sources[i] = mem_strdup(part->sources[i]);
    part->slots = NULL;
    make_slots(part);
    return part;
}

int cluster_depth(const struct cluster *cluster, int place)
{
    int depth = 0;

    for (; place > 0; place = cluster->places[place].parent)
        depth++;
    return depth;
}

static bool is_rate(double x)
{
    return x > 0;   /* INFINITY is one, NAN is not */
}

static bool is_finite_or_zero(double x)
{
    return x >= 0 && isfinite(x);
}

static int check_place(const struct cluster *cluster, int i, struct err *err)
{
    const struct cluster_place *p = &cluster->places[i];

    if (i == 0 ? p->parent != -1 || p->kind != CLUSTER_ROOT
               : p->parent < 0 || p->parent >= i || p->kind == CLUSTER_ROOT)
        return err_set(err, "%s: place \"%s\" is not below the root", cluster->name, p->name);
    if (i > 0 && cluster->places[p->parent].kind == CLUSTER_DEVICE)
        return err_set(err, "%s: place \"%s\" is below a device", cluster->name, p->name);
    if (cluster_depth(cluster, i) > MAX_DEPTH)
        return err_set(err, "%s: place \"%s\" is more than %d levels below the root",
                       cluster->name, p->name, MAX_DEPTH);
    if (!is_rate(p->up_bandwidth) || !is_rate(p->flow_bandwidth) ||
        !is_finite_or_zero(p->eager.bytes) || !is_finite_or_zero(p->eager.latency) ||
        !is_rate(p->eager.copy_bandwidth) ||
        !is_finite_or_zero(p->latency) || p->cores < 0)
        return err_set(err, "%s: place \"%s\": bandwidth, latency or cores out of range",
                       cluster->name, p->name);
    return 0;
}

static int check_device(const struct cluster *cluster, int i, struct err *err)
{
    const struct cluster_device *d = &cluster->devices[i];
    bool bad = false;

    if (d->place <= 0 || d->place >= cluster->n_places ||
        cluster->places[d->place].kind != CLUSTER_DEVICE)
        return err_set(err, "%s: device \"%s\" has no place", cluster->name, d->id);
    /* Places are in preorder, so ascending leaves are in tree order. */
    if (i > 0 && d->place <= cluster->devices[i - 1].place)
        return err_set(err, "%s: device \"%s\" is not in tree order", cluster->name, d->id);
    for (int f = 0; f < FACTORS; f++)
        bad |= !is_finite_or_zero(d->product_flops[f]);
    if (bad || !is_rate(d->memory) || !is_finite_or_zero(d->flops) ||
        !is_finite_or_zero(d->memory_bandwidth) || d->cores < 0 || d->rank < -1)
        return err_set(err, "%s: device \"%s\": a figure is out of range", cluster->name,
                       d->id);
    return 0;
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_ids(const struct cluster *cluster, struct err *err)
{
    int n = cluster->n_devices, status = 0;
    const char **ids = mem_new((size_t)n, sizeof(*ids));

    for (int i = 0; i < n; i++)
        ids[i] = cluster->devices[i].id;
    qsort(ids, (size_t)n, sizeof(*ids), compare_ids);
    for (int i = 1; i < n && !status; i++)
        if (strcmp(ids[i - 1], ids[i]) == 0)
            status = err_set(err, "%s: two devices are called \"%s\"", cluster->name, ids[i]);
    free(ids);
    return status;
}

int cluster_check(const struct cluster *cluster, struct err *err)
{
    if (!is_rate(cluster->sum_latency_factor) || !is_rate(cluster->sum_bandwidth_factor) ||
        isinf(cluster->sum_latency_factor) || isinf(cluster->sum_bandwidth_factor) ||
        !(cluster->sum_overlap >= 0 && cluster->sum_overlap <= 1))
        return err_set(err, "%s: the all-reduce factors are out of range", cluster->name);
    if (!(cluster->send_overlap >= 0 && cluster->send_overlap <= 1) ||
        !(cluster->receive_overlap >= 0 && cluster->receive_overlap <= 1))
        return err_set(err, "%s: the messages' overlap is out of range", cluster->name);
    if (cluster->n_devices == 0)
        return err_set(err, "%s: there is no device: name nodes that have some, or say "
                       "flat:N,bandwidth=BYTES", cluster->name);
    for (int i = 0; i < cluster->n_places; i++)
        if (check_place(cluster, i, err))
            return -1;
    for (int i = 0; i < cluster->n_devices; i++)
        if (check_device(cluster, i, err))
            return -1;
    return check_ids(cluster, err);
}

/* Climb from both leaves to where they meet. */
static int meet(const struct cluster *cluster, int a, int b, int up[MAX_DEPTH], int *n_up,
                int down[MAX_DEPTH], int *n_down)
{
    int pa = cluster->devices[a].place, pb = cluster->devices[b].place;

    *n_up = *n_down = 0;
    while (pa != pb) {
        /* Parents come before children: the higher index cannot be the ancestor. */
        if (pa > pb) {
            up[(*n_up)++] = pa;
            pa = cluster->places[pa].parent;
        } else {
            down[(*n_down)++] = pb;
            pb = cluster->places[pb].parent;
        }
    }
    return pa;
}

/* What one transfer gets of a place's uplink where it is alone. */
static double flow_of(const struct cluster *cluster, int place)
{
    return fmin(cluster->places[place].up_bandwidth, cluster->places[place].flow_bandwidth);
}

struct cluster_link cluster_link(const struct cluster *cluster, int a, int b)
{
    int up[MAX_DEPTH], down[MAX_DEPTH], n_up, n_down;
    int top = meet(cluster, a, b, up, &n_up, down, &n_down);
    struct cluster_link link = { .bandwidth = INFINITY, .latency = 0 };

    if (a == b)
        return link;
    for (int i = 0; i < n_up; i++)
        link.bandwidth = fmin(link.bandwidth, flow_of(cluster, up[i]));
    for (int i = 0; i < n_down; i++)
        link.bandwidth = fmin(link.bandwidth, flow_of(cluster, down[i]));
    link.latency = cluster->places[top].latency;
    link.eager = cluster->places[top].eager;
    return link;
}

double cluster_link_start(const struct cluster_link *link, double bytes)
{
    return bytes <= link->eager.bytes ? link->eager.latency + bytes / link->eager.copy_bandwidth
                                      : link->latency;
}

double cluster_link_least(const struct cluster_link *link)
{
    return link->eager.bytes > 0 ? fmin(link->eager.latency, link->latency) : link->latency;
}

int cluster_route(const struct cluster *cluster, int a, int b, int wires[CLUSTER_WIRES],
                  int *up)
{
    int climb[MAX_DEPTH], descend[MAX_DEPTH], n_down;

    meet(cluster, a, b, climb, up, descend, &n_down);
    memcpy(wires, climb, (size_t)*up * sizeof(*wires));
    for (int i = 0; i < n_down; i++)
        wires[*up + i] = descend[n_down - 1 - i];
    return *up + n_down;
}

int cluster_core_place(const struct cluster *cluster, int device)
{
    int highest = 0;

    for (int p = cluster->places[cluster->devices[device].place].parent; p >= 0;
         p = cluster->places[p].parent)
        if (cluster->places[p].cores > 0)
            highest = p;
    return highest;
}

int cluster_find_device(const struct cluster *cluster, const char *id)
{
    return cluster->n_slots ? cluster->slots[slot_of(cluster, id)] - 1 : -1;
}

int cluster_end(const struct cluster *cluster, int place)
{
    int end = place + 1;

    while (end < cluster->n_places && cluster->places[end].parent >= place)
        end++;
    return end;
}

double cluster_host_bandwidth(const struct cluster *cluster, const struct cluster_device *device)
{
    double bandwidth = INFINITY;

    if (cluster->places[device->node].kind != CLUSTER_NODE)
        return bandwidth;
    for (int place = device->place; place != device->node; place = cluster->places[place].parent) {
        const struct cluster_place *p = &cluster->places[place];
        int below = cluster_device_from(cluster, cluster_end(cluster, place)) -
                    cluster_device_from(cluster, place);

        bandwidth = dmin(bandwidth, dmin(p->flow_bandwidth, p->up_bandwidth / below));
    }
    return bandwidth;
}

int cluster_nodes(const struct cluster *cluster)
{
    int nodes = 0;

    for (int d = 0; d < cluster->n_devices; d++)
        nodes += d == 0 || cluster->devices[d].node != cluster->devices[d - 1].node;
    return nodes;
}

const char **cluster_kinds(const struct cluster *cluster, int *n)
{
    const char **kinds = NULL;

    *n = 0;
    for (int d = 0; d < cluster->n_devices; d++) {
        const char *kind = cluster->devices[d].kind;
        bool known = false;

        for (int k = *n - 1; k >= 0 && !known; k--)
            known = strcmp(kinds[k], kind) == 0;
        if (!known)
            *(const char **)mem_push((void **)&kinds, n, sizeof(kind)) = kind;
    }
    return kinds;
}

static const char *kind_text(const char *kind)
{
    return *kind ? kind : "some not named";
}

char *cluster_mixed(const struct cluster *cluster, const char *taken)
{
    int n;
    const char **kinds = cluster_kinds(cluster, &n);
    char *all = n > 1 ? mem_strdup(kind_text(kinds[0])) : NULL, *text = NULL;

    for (int k = 1; k < n; k++) {
        char *longer = mem_printf("%s%s%s", all, k + 1 < n ? ", " : " and ", kind_text(kinds[k]));

        free(all);
        all = longer;
    }
    if (n > 1)
        text = mem_printf("%s has devices of several kinds, %s: all are taken to be as fast as %s",
                          cluster->name, all, *taken ? taken : "the costs say");
    free(all);
    free(kinds);
    return text;
}

double cluster_product_flops(const struct cluster_device *device, enum cluster_factors factors)
{
    return factors == FACTORS_FLOAT32 ? device->flops : device->product_flops[factors];
}

/* What is not known is not slower than what is. */
static bool is_slower(const struct cluster_device *a, const struct cluster_device *b)
{
    bool known = a->flops > 0 || a->memory_bandwidth > 0;

    if (b->flops <= 0 && b->memory_bandwidth <= 0)
        return known;
    if (a->flops > 0 && b->flops > 0 && (a->flops < b->flops || a->flops > b->flops))
        return a->flops < b->flops;
    return a->memory_bandwidth > 0 && a->memory_bandwidth < b->memory_bandwidth;
}

/* NULL: of any kind. */
static const struct cluster_device *find_slowest(const struct cluster *cluster, const char *kind)
{
    const struct cluster_device *slowest = NULL;

    for (int d = 0; d < cluster->n_devices; d++) {
        const struct cluster_device *device = &cluster->devices[d];

        if ((!kind || strcmp(device->kind, kind) == 0) &&
            (!slowest || is_slower(device, slowest)))
            slowest = device;
    }
    return slowest;
}

const struct cluster_device *cluster_slowest(const struct cluster *cluster)
{
    return find_slowest(cluster, NULL);
}

const struct cluster_device *cluster_slowest_of(const struct cluster *cluster, const char *kind)
{
    return find_slowest(cluster, kind);
}

int cluster_device_from(const struct cluster *cluster, int place)
{
    /* Both lists are in tree order. */
    int low = 0, high = cluster->n_devices;

    while (low < high) {
        int middle = (low + high) / 2;

        if (cluster->devices[middle].place < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct cluster_device *cluster_device_at(const struct cluster *cluster, int place)
{
    return &cluster->devices[cluster_device_from(cluster, place)];
}

static bool same_device(const struct cluster_device *a, const struct cluster_device *b)
{
    for (int f = 0; f < FACTORS; f++)
        if (a->product_flops[f] != b->product_flops[f] || a->efficiency[f] != b->efficiency[f])
            return false;
    return strcmp(a->kind, b->kind) == 0 && a->memory == b->memory && a->flops == b->flops &&
           a->memory_bandwidth == b->memory_bandwidth && a->cores == b->cores;
}

bool cluster_same_way(const struct cluster_place *a, const struct cluster_place *b)
{
    return a->up_bandwidth == b->up_bandwidth && a->flow_bandwidth == b->flow_bandwidth &&
           a->latency == b->latency && a->cores == b->cores &&
           a->eager.bytes == b->eager.bytes && a->eager.latency == b->eager.latency &&
           a->eager.copy_bandwidth == b->eager.copy_bandwidth;
}

bool cluster_alike(const struct cluster *cluster, int a, int b)
{
    int n = cluster_end(cluster, a) - a;

    if (cluster_end(cluster, b) - b != n)
        return false;
    for (int i = 0; i < n; i++) {
        const struct cluster_place *p = &cluster->places[a + i], *q = &cluster->places[b + i];

        if (p->kind != q->kind || !cluster_same_way(p, q) || p->origin != q->origin ||
            p->latency_origin != q->latency_origin || p->source != q->source ||
            (i > 0 && p->parent - a != q->parent - b))
            return false;
        if (p->kind == CLUSTER_DEVICE && !same_device(cluster_device_at(cluster, a + i),
                                                      cluster_device_at(cluster, b + i)))
            return false;
    }
    return true;
}
