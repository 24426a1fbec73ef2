/* SPDX-License-Identifier: MIT */
#include "topology/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "topology/cluster_private.h"
#include "topology/cluster_spec.h"

#define MAX_DEVICES (1 << 20)
#define MAX_DEPTH 8
#define MOST 1e300      /* any figure in the file: keeps sums and products finite */

const char *const cluster_kind_names[] = { "root", "switch", "node", "island", "device" };
const char *const cluster_origin_names[] = { "measured", "reported", "table" };

static int word_index(struct json_reader *r, const char *key, const char *const *words, int n,
                      const char *def, int *index, struct err *err)
{
    const char *word;

    if (json_get_string(r, key, def == NULL, def, &word, err))
        return -1;
    for (int i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0) {
            *index = i;
            return 0;
        }
    return json_error(r, key, err, "\"%s\" is not known", word);
}

/* Keys that a place of any kind has. 'rate' and 'rank' may be absent. */
static int read_figures(struct json_reader *r, struct cluster_place *place, struct err *err)
{
    static const double unlimited = INFINITY, none = 0;
    static const int64_t no_cores = 0;
    int64_t cores;
    int origin = 0, latency_origin = 0;

    if (json_get_number(r, "bandwidth", 0, MOST, &unlimited, &place->up_bandwidth, err) ||
        json_get_number(r, "flow_bandwidth", 0, MOST, &unlimited, &place->flow_bandwidth,
                        err) ||
        json_get_number(r, "latency", 0, MOST, &none, &place->latency, err) ||
        json_get_int(r, "cores", 0, 1 << 20, &no_cores, &cores, err) ||
        word_index(r, "origin", cluster_origin_names, 3, "table", &origin, err) ||
        word_index(r, "latency_origin", cluster_origin_names, 3, "table", &latency_origin, err))
        return -1;
    if (place->up_bandwidth <= 0)
        return json_error(r, "bandwidth", err, "must be positive");
    if (place->flow_bandwidth <= 0)
        return json_error(r, "flow_bandwidth", err, "must be positive");
    place->cores = (int)cores;
    place->origin = (enum origin)origin;
    place->latency_origin = (enum origin)latency_origin;
    return 0;
}

/* "/gpu0" is "NODE/gpu0". */
static int add_device(struct cluster *cluster, const char *id, const char *kind, int parent,
                      double bandwidth)
{
    int node = parent, index;
    char *whole;

    while (node > 0 && cluster->places[node].kind != CLUSTER_NODE)
        node = cluster->places[node].parent;
    if (id[0] != '/' || node == 0)
        return cluster_add_device(cluster, id, kind, parent, bandwidth);
    whole = mem_printf("%s%s", cluster->places[node].name, id);
    index = cluster_add_device(cluster, whole, kind, parent, bandwidth);
    free(whole);
    return index;
}

static int read_device(struct json_reader *r, struct cluster *cluster, int parent,
                       const struct cluster_place *figures, struct err *err)
{
    static const double unlimited = INFINITY, none = 0;
    static const int64_t no_rank = -1;
    const char *id, *kind;
    double memory, flops, memory_bandwidth;
    int64_t rank;
    int index;
    struct cluster_device *device;

    if (json_get_string(r, "id", true, NULL, &id, err) ||
        json_get_string(r, "device", false, "", &kind, err) ||
        json_get_number(r, "memory", 0, MOST, &unlimited, &memory, err) ||
        json_get_number(r, "flops", 0, MOST, &none, &flops, err) ||
        json_get_number(r, "memory_bandwidth", 0, MOST, &none, &memory_bandwidth, err) ||
        json_get_int(r, "rank", -1, INT32_MAX, &no_rank, &rank, err))
        return -1;
    if (memory <= 0)
        return json_error(r, "memory", err, "must be positive");
    if (cluster->n_devices >= MAX_DEVICES)
        return json_error(r, "id", err, "more than %d devices", MAX_DEVICES);
    index = add_device(cluster, id, kind, parent, figures->up_bandwidth);
    device = &cluster->devices[index];
    device->memory = memory;
    device->flops = flops;
    device->memory_bandwidth = memory_bandwidth;
    device->cores = figures->cores;
    device->rank = (int)rank;
    cluster->places[device->place].flow_bandwidth = figures->flow_bandwidth;
    cluster->places[device->place].origin = figures->origin;
    return json_reader_end(r, err);
}

static int read_children(struct json_reader *r, struct cluster *cluster, int place, int depth,
                         struct err *err);

static int read_named(struct json_reader *r, struct cluster *cluster, int parent, int depth,
                      const struct cluster_place *figures, const char *name, struct err *err)
{
    int place;

    if (cluster->n_places >= 2 * MAX_DEVICES)
        return json_error(r, "name", err, "too many places");
    place = cluster_add_place(cluster, figures->kind, name, parent, figures->up_bandwidth);
    cluster->places[place].flow_bandwidth = figures->flow_bandwidth;
    cluster->places[place].latency = figures->latency;
    cluster->places[place].latency_origin = figures->latency_origin;
    cluster->places[place].cores = figures->cores;
    cluster->places[place].origin = figures->origin;
    return read_children(r, cluster, place, depth, err);
}

/* Nodes that are alike: one description, many names. */
static int read_alike(struct json_reader *r, struct cluster *cluster, int parent, int depth,
                      const struct cluster_place *figures, const json_t *names, struct err *err)
{
    if (figures->kind != CLUSTER_NODE || json_array_size(names) == 0)
        return json_error(r, "names", err, "expected names, and a node");
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));

        if (!name)
            return json_error(r, "names", err, "expected strings");
        if (read_named(r, cluster, parent, depth, figures, name, err))
            return -1;
    }
    return 0;
}

static int read_place(struct json_reader *r, struct cluster *cluster, int parent, int depth,
                      struct err *err)
{
    struct cluster_place figures = { 0 };
    const json_t *names;
    const char *name;
    int kind = 0;

    if (depth > MAX_DEPTH)
        return json_error(r, "children", err, "more than %d levels", MAX_DEPTH);
    if (word_index(r, "kind", cluster_kind_names, 5, NULL, &kind, err) ||
        read_figures(r, &figures, err))
        return -1;
    if (kind == CLUSTER_ROOT)
        return json_error(r, "kind", err, "there is only one root");
    if (kind == CLUSTER_DEVICE)
        return read_device(r, cluster, parent, &figures, err);
    figures.kind = (enum cluster_kind)kind;
    if (json_get_array(r, "names", false, &names, err))
        return -1;
    if (names)
        return read_alike(r, cluster, parent, depth, &figures, names, err);
    if (json_get_string(r, "name", true, NULL, &name, err))
        return -1;
    return read_named(r, cluster, parent, depth, &figures, name, err);
}

/* The last keys of a place: its children. */
static int read_children(struct json_reader *r, struct cluster *cluster, int place, int depth,
                         struct err *err)
{
    const json_t *children;

    if (json_get_array(r, "children", true, &children, err) || json_reader_end(r, err))
        return -1;
    for (size_t i = 0; i < json_array_size(children); i++) {
        struct json_reader child;

        if (json_reader_sub(&child, r, "children", (int)i, json_array_get(children, i), err) ||
            read_place(&child, cluster, place, depth + 1, err))
            return -1;
    }
    return 0;
}

static int read_root(struct json_reader *r, struct cluster *cluster, struct err *err)
{
    struct cluster_place figures = { 0 };

    if (read_figures(r, &figures, err))
        return -1;
    cluster->places[0].latency = figures.latency;
    cluster->places[0].latency_origin = figures.latency_origin;
    cluster->places[0].cores = figures.cores;
    return read_children(r, cluster, 0, 0, err);
}

/* "allreduce": {"latency_factor": 1.8, "bandwidth_factor": 2.5, "overlap": 0.3} */
static int read_factors(struct json_reader *top, struct cluster *cluster, struct err *err)
{
    static const double one = 1;
    struct json_reader factors;
    const json_t *object;

    if (json_get_object(top, "allreduce", false, &object, err))
        return -1;
    if (!object)
        return 0;
    if (json_reader_sub(&factors, top, "allreduce", -1, object, err) ||
        json_get_number(&factors, "latency_factor", 1e-6, 1e9, &one,
                        &cluster->sum_latency_factor, err) ||
        json_get_number(&factors, "bandwidth_factor", 1e-6, 1e9, &one,
                        &cluster->sum_bandwidth_factor, err) ||
        json_get_number(&factors, "overlap", 0, 1, &one, &cluster->sum_overlap, err))
        return -1;
    return json_reader_end(&factors, err);
}

struct cluster *cluster_from_json(const char *path, const json_t *json, struct err *err)
{
    struct cluster *cluster = NULL;
    struct json_reader top, root;
    const json_t *object, *nodes, *tasks;
    const char *name;

    /* These are record.c's and task.c's; who wants the cluster alone does not need them. */
    if (json_reader_top(&top, path, json, "tasuki-topo", 1, err) ||
        json_get_array(&top, "nodes", false, &nodes, err) ||
        json_get_array(&top, "tasks", false, &tasks, err) ||
        json_get_string(&top, "name", false, path, &name, err) ||
        json_get_object(&top, "root", true, &object, err) ||
        json_reader_sub(&root, &top, "root", -1, object, err))
        return NULL;
    cluster = cluster_new(name);
    if (read_factors(&top, cluster, err) == 0 && json_reader_end(&top, err) == 0 &&
        read_root(&root, cluster, err) == 0) {
        if (cluster_check(cluster, err) == 0)
            return cluster;
        err_prefix(err, "%s", path);
    }
    cluster_free(cluster);
    return NULL;
}

struct cluster *cluster_open(const char *spec, struct err *err)
{
    struct cluster *cluster;
    json_t *json;

    if (cluster_is_spec(spec))
        return cluster_from_spec(spec, err);
    json = json_load(spec, err);
    if (!json)
        return NULL;
    cluster = cluster_from_json(spec, json, err);
    json_decref(json);
    return cluster;
}
