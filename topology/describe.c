/* SPDX-License-Identifier: MIT */
#include "topology/describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/order.h"
#include "topology/cluster.h"
#include "topology/model.h"
#include "topology/names.h"
#include "topology/node_read.h"
#include "topology/record.h"

#define NODE_NAME "node0"       /* till it becomes a pattern */
#define MOST_LEVELS 8

/* What the places of one level have in common. */
struct level {
    int n;                      /* places */
    int children;               /* that have nodes, of the place that has most */
    double *up, *flow, *latency;
    const struct cluster_place *first;
};

/* From the top: the root, switches, and nodes last. */
struct levels {
    int n;
    struct level list[MOST_LEVELS + 2];
};

static int level_of(const struct cluster *cluster, int place)
{
    int level = 0;

    for (; place > 0; place = cluster->places[place].parent)
        level++;
    return level;
}

static void add_place(struct level *level, const struct cluster_place *place)
{
    size_t n = (size_t)level->n + 1;

    level->up = mem_resize(level->up, n, sizeof(double));
    level->flow = mem_resize(level->flow, n, sizeof(double));
    level->latency = mem_resize(level->latency, n, sizeof(double));
    level->up[level->n] = place->up_bandwidth;
    level->flow[level->n] = place->flow_bandwidth;
    level->latency[level->n] = place->latency;
    level->first = level->n ? level->first : place;
    level->n++;
}

static int children_of(const struct cluster *cluster, int parent)
{
    int n = 0;

    for (int i = parent + 1; i < cluster_end(cluster, parent); i++)
        n += cluster->places[i].parent == parent &&
             cluster->places[i].kind != CLUSTER_DEVICE;
    return n;
}

/* -1: there are no nodes, or some are deeper than others. */
static int find_levels(const struct cluster *cluster, struct levels *levels, struct err *err)
{
    int depth = -1;

    for (int i = 0; i < cluster->n_places; i++) {
        if (cluster->places[i].kind != CLUSTER_NODE)
            continue;
        if (depth >= 0 && depth != level_of(cluster, i))
            return err_set(err, "node %s is below more switches than others, or below fewer: "
                           "leave it out", cluster->places[i].name);
        depth = level_of(cluster, i);
    }
    if (depth < 0)
        return err_set(err, "%s: there are no nodes to describe", cluster->name);
    levels->n = depth + 1;
    for (int i = 0; i < cluster->n_places; i++) {
        const struct cluster_place *place = &cluster->places[i];
        struct level *level = &levels->list[level_of(cluster, i)];
        int children = 0;

        if (place->kind != CLUSTER_NODE && (place->kind == CLUSTER_ISLAND ||
                                            place->kind == CLUSTER_DEVICE))
            continue;
        add_place(level, place);
        if (place->kind != CLUSTER_NODE)
            children = children_of(cluster, i);
        level->children = children > level->children ? children : level->children;
    }
    return 0;
}

static void free_levels(struct levels *levels)
{
    for (int i = 0; i < levels->n; i++) {
        free(levels->list[i].up);
        free(levels->list[i].flow);
        free(levels->list[i].latency);
    }
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), order_doubles);
    return values[n / 2];
}

/* All but what makes a place this one. */
static void copy_figures(struct cluster_place *place, const struct cluster_place *like)
{
    struct cluster_place copy = *like;

    copy.kind = place->kind;
    copy.name = place->name;
    copy.parent = place->parent;
    copy.source = 0;
    *place = copy;
}

/* The figures of a level's uplinks, and of what is between its children. */
static void set_figures(struct cluster_place *place, struct level *level)
{
    copy_figures(place, level->first);
    place->up_bandwidth = median(level->up, level->n);
    place->flow_bandwidth = median(level->flow, level->n);
    place->latency = median(level->latency, level->n);
}

static int first_node(const struct cluster *cluster)
{
    int place = 0;

    while (cluster->places[place].kind != CLUSTER_NODE)
        place++;
    return place;
}

/* What is inside node 'node' of 'from', below 'parent' of 'to', without ranks. */
static void copy_inside(struct cluster *to, int parent, const struct cluster *from, int node)
{
    int base = to->n_places - (node + 1);

    for (int i = node + 1; i < cluster_end(from, node); i++) {
        const struct cluster_place *p = &from->places[i];
        int above = p->parent == node ? parent : p->parent + base, place;

        if (p->kind == CLUSTER_DEVICE) {
            const struct cluster_device *d = cluster_device_at(from, i);
            char *id = mem_printf(NODE_NAME "/%s", p->name);
            int index = cluster_add_device(to, id, d->kind, above, p->up_bandwidth);
            struct cluster_device *copy = &to->devices[index];

            free(id);
            copy->memory = d->memory;
            copy->flops = d->flops;
            memcpy(copy->product_flops, d->product_flops, sizeof(copy->product_flops));
            copy->memory_bandwidth = d->memory_bandwidth;
            copy->cores = d->cores;
            place = copy->place;
        } else {
            place = cluster_add_place(to, p->kind, p->name, above, p->up_bandwidth);
        }
        copy_figures(&to->places[place], p);
    }
}

/* Where nodes have GPUs and the ranks had none, the devices are as the hardware reports. */
static struct cluster *hardware_of(const struct cluster *cluster,
                                   const struct topo_record *record, struct err *err)
{
    struct topo_node *node;
    struct topo_record *one;
    struct cluster *model;

    if (topo_record_hosts(record) == 0 || strcmp(cluster->devices[0].kind, "cpu") != 0)
        return NULL;
    node = topo_record_node(record, 0, err);
    if (!node || node->n_gpus == 0) {
        topo_node_free(node);
        return NULL;
    }
    one = topo_record_new();
    topo_node_set_text(&node->switches, "");
    model = topo_record_add_node(one, node, err) == 0 ? model_of_record(one, "", err) : NULL;
    topo_record_free(one);
    topo_node_free(node);
    return model;
}

/* What switches of a level are called: as the first one, with # for the number at its end; where
 * that is nothing, or a level above is called so, by the level.
 */
static void name_level(const struct levels *levels, int level, const struct cluster *named,
                       char *name, size_t size)
{
    const char *first = levels->list[level].first->name;
    int length = (int)strlen(first);

    if (length > 64)
        length = 64;
    while (length > 0 && first[length - 1] >= '0' && first[length - 1] <= '9')
        length--;
    snprintf(name, size, "%.*s#", length, first);
    for (int i = 0; i < level; i++)
        if (length == 0 || strcmp(named->places[i].name, name) == 0)
            snprintf(name, size, "%.*s-%d-#", length ? length : 6, length ? first : "switch",
                     level);
}

/* One place of each level. */
static struct cluster *typical(const char *name, const struct cluster *cluster,
                               const struct cluster *inside, struct levels *levels)
{
    struct cluster *result = cluster_new(name);
    const struct cluster_place *node = &inside->places[first_node(inside)];
    char switches[128];
    int place = 0;

    for (int i = 0; i < levels->n; i++) {
        bool last = i + 1 == levels->n;

        if (i > 0) {
            name_level(levels, i, result, switches, sizeof(switches));
            place = cluster_add_place(result, last ? CLUSTER_NODE : CLUSTER_SWITCH,
                                      last ? NODE_NAME : switches, place, 1);
        }
        set_figures(&result->places[place], &levels->list[i]);
    }
    copy_inside(result, place, inside, first_node(inside));
    /* Inside a node, and of sums, ranks on CPUs tell nothing about its GPUs. */
    if (inside != cluster) {
        struct cluster_place *ours = &result->places[place];

        ours->latency = node->latency;
        ours->latency_origin = node->latency_origin;
        ours->eager = node->eager;
        ours->cores = node->cores;
        return result;
    }
    result->sum_algorithm = cluster->sum_algorithm;
    result->sum_latency_factor = cluster->sum_latency_factor;
    result->sum_bandwidth_factor = cluster->sum_bandwidth_factor;
    result->sum_overlap = cluster->sum_overlap;
    result->send_overlap = cluster->send_overlap;
    result->receive_overlap = cluster->receive_overlap;
    if (cluster->message_source > 0)
        result->message_source =
            cluster_add_source(result, cluster->sources[cluster->message_source - 1]);
    if (cluster->sum_source > 0)
        result->sum_source =
            cluster_add_source(result, cluster->sources[cluster->sum_source - 1]);
    return result;
}

/* "node0/gpu1" becomes "/gpu1". */
static void shorten_ids(json_t *place)
{
    const char *id = json_string_value(json_object_get(place, "id"));
    json_t *child;
    size_t i;

    if (id)
        json_object_set_new(place, "id", json_string(id + strlen(NODE_NAME)));
    json_array_foreach(json_object_get(place, "children"), i, child)
        shorten_ids(child);
}

static void set_counts(json_t *top, const struct levels *levels)
{
    json_t *place = json_object_get(top, "root");

    for (int i = 1; i < levels->n; i++) {
        place = json_array_get(json_object_get(place, "children"), 0);
        json_object_set_new(place, "count", json_integer(levels->list[i - 1].children));
    }
    json_object_set_new(place, "name", json_string("node#"));
    shorten_ids(place);
}

static int nodes_of(const struct levels *levels)
{
    int n = 1;

    for (int i = 0; i + 1 < levels->n; i++)
        n *= levels->list[i].children;
    return n;
}

static void forget(char **texts, int *n)
{
    for (int i = 0; i < *n; i++)
        free(texts[i]);
    *n = 0;
}

/* What is a host's own, or of the moment. */
static void make_common(struct topo_node *node)
{
    topo_node_set_text(&node->machine, "");
    topo_node_set_text(&node->switches, "");
    topo_node_set_text(&node->container, "");
    topo_node_set_text(&node->pmix_client, "");
    topo_node_set_text(&node->pmix_server, "");
    node->usable = mem_resize(node->usable, (size_t)node->pus, sizeof(*node->usable));
    for (node->n_usable = 0; node->n_usable < node->pus; node->n_usable++)
        node->usable[node->n_usable] = node->n_usable;
    node->n_visible = -1;
    forget(node->partitions, &node->n_partitions);
    forget(node->notes, &node->n_notes);
    for (int i = 0; i < node->n_gpus; i++) {
        struct topo_gpu *gpu = &node->gpus[i];

        topo_node_set_text(&gpu->uuid, "");
        gpu->ecc_corrected = gpu->ecc_uncorrected = gpu->remapped_rows = gpu->throttle = -1;
        gpu->clock = -1;
    }
    for (int i = 0; i < node->n_nics; i++) {
        topo_node_set_text(&node->nics[i].guid, "");
        node->nics[i].lid = -1;
    }
}

static int add_hardware(json_t *top, const struct topo_record *record, int hosts,
                        struct err *err)
{
    struct topo_node *node = topo_record_node(record, 0, err);
    struct topo_record *common = topo_record_new();
    int status = node ? 0 : -1;

    if (node)
        make_common(node);
    for (int i = 0; i < hosts && !status; i++) {
        char *host = mem_printf("node%d", i);

        topo_node_set_text(&node->host, host);
        status = topo_record_add_node(common, node, err);
        free(host);
    }
    if (!status)
        json_object_set_new(top, "nodes", topo_record_to_json(common));
    topo_record_free(common);
    topo_node_free(node);
    return status;
}

/* "n1, n2 (2 nodes)" of each kind. */
static int refuse_kinds(const struct topo_record *record, struct err *err)
{
    char *text = mem_strdup("");

    for (int kind = 0; kind < topo_record_kinds(record); kind++) {
        const char **names = mem_new((size_t)topo_record_hosts(record), sizeof(*names));
        char *hosts, *more;
        int n = 0;

        for (int i = 0; i < topo_record_hosts(record); i++)
            if (topo_record_kind(record, i) == kind)
                names[n++] = topo_record_host(record, i);
        hosts = names_compact(n, names);
        more = mem_printf("%s%s%s", text, kind ? "; " : "", hosts);
        free(names);
        free(hosts);
        free(text);
        text = more;
    }
    err_set(err, "the nodes are of %d kinds: %s. A description is of one: leave the others out "
            "(srun --exclude=...); \"tasuki topo --check\" says what differs",
            topo_record_kinds(record), text);
    free(text);
    return -1;
}

/* As far as the model goes: places and devices, whatever their links were measured to be. */
static int check_alike(const struct cluster *cluster, struct err *err)
{
    int first = first_node(cluster), n = cluster_end(cluster, first) - first;

    for (int i = first + 1; i < cluster->n_places; i++) {
        bool alike = cluster_end(cluster, i) - i == n;

        if (cluster->places[i].kind != CLUSTER_NODE)
            continue;
        for (int k = 1; k < n && alike; k++) {
            alike = cluster->places[first + k].kind == cluster->places[i + k].kind;
            if (alike && cluster->places[i + k].kind == CLUSTER_DEVICE)
                alike = strcmp(cluster_device_at(cluster, first + k)->kind,
                               cluster_device_at(cluster, i + k)->kind) == 0;
        }
        if (!alike)
            return err_set(err, "nodes %s and %s have other devices, or other numbers of "
                           "ranks: a description is of one kind of node",
                           cluster->places[first].name, cluster->places[i].name);
    }
    return 0;
}

static char *origin_text(int nodes)
{
    time_t now = time(NULL);
    struct tm day;
    char date[16];

    gmtime_r(&now, &day);
    strftime(date, sizeof(date), "%Y-%m-%d", &day);
    return mem_printf("tasuki topo --save-machine on %d node%s, %s", nodes,
                      nodes == 1 ? "" : "s", date);
}

static json_t *describe(const char *name, const struct cluster *cluster,
                        const struct cluster *inside, const struct topo_record *record,
                        struct levels *levels, struct err *err)
{
    struct cluster *machine = typical(name, cluster, inside, levels);
    char *origin = origin_text(levels->list[levels->n - 1].n);
    json_t *top = NULL, *storage;

    machine->source = cluster_add_source(machine, origin);
    if (cluster_check(machine, err) == 0)
        top = cluster_to_json(machine);
    if (top) {
        set_counts(top, levels);
        json_object_set_new(top, "extend_to", json_integer(0));
        if (storage_is_known(&cluster->storage)) {
            storage = storage_to_json(&cluster->storage);
            if (cluster->storage.source > 0)
                json_object_set_new(storage, "source",
                                    json_string(cluster->sources[cluster->storage.source - 1]));
            json_object_set_new(top, "storage", storage);
        }
        if (topo_record_hosts(record) > 0 && add_hardware(top, record, nodes_of(levels), err)) {
            json_decref(top);
            top = NULL;
        }
    }
    free(origin);
    cluster_free(machine);
    return top;
}

json_t *describe_machine(const char *name, const struct cluster *cluster,
                         const struct topo_record *record, struct err *err)
{
    struct levels levels = { 0 };
    struct cluster *hardware = NULL;
    struct err wrong = { 0 };
    json_t *top = NULL;

    if (topo_record_kinds(record) > 1) {
        refuse_kinds(record, err);
        return NULL;
    }
    if (find_levels(cluster, &levels, err) == 0 && check_alike(cluster, err) == 0) {
        hardware = hardware_of(cluster, record, &wrong);
        if (wrong.code && err)
            *err = wrong;
        else
            top = describe(name, cluster, hardware ? hardware : cluster, record, &levels, err);
    }
    cluster_free(hardware);
    free_levels(&levels);
    return top;
}

void describe_keep(json_t *description, const json_t *older)
{
    static const char *const keys[] = { "storage", "start_up", "extend_to" };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        json_t *value = json_object_get(older, keys[i]);

        /* No number of nodes is 0: not known. */
        if (value && !json_integer_value(json_object_get(description, keys[i])) &&
            !json_is_object(json_object_get(description, keys[i])))
            json_object_set(description, keys[i], value);
    }
}
