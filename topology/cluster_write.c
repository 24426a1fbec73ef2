/* SPDX-License-Identifier: MIT */
#include "topology/cluster.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "topology/cluster_private.h"

static void set_number(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        json_object_set_new(object, key, json_real(value));
}

static void set_source(json_t *object, const struct cluster *cluster, int source)
{
    if (source > 0)
        json_object_set_new(object, "source", json_string(cluster->sources[source - 1]));
}

json_t *cluster_eager_json(const struct cluster_eager *eager)
{
    json_t *object = json_object();

    set_number(object, "bytes", eager->bytes);
    set_number(object, "latency", eager->latency);
    set_number(object, "copy_bandwidth", eager->copy_bandwidth);
    return object;
}

static json_t *figures_json(const struct cluster *cluster, const struct cluster_place *place,
                            bool root)
{
    json_t *object = json_object();

    if (!root)
        json_object_set_new(object, "kind", json_string(cluster_kind_names[place->kind]));
    if (!root && place->kind != CLUSTER_DEVICE)
        json_object_set_new(object, "name", json_string(place->name));
    if (!root) {
        set_number(object, "bandwidth", place->up_bandwidth);
        set_number(object, "flow_bandwidth", place->flow_bandwidth);
        json_object_set_new(object, "origin", json_string(cluster_origin_names[place->origin]));
    }
    if (place->kind != CLUSTER_DEVICE) {
        set_number(object, "latency", place->latency);
        json_object_set_new(object, "latency_origin",
                            json_string(cluster_origin_names[place->latency_origin]));
    }
    if (place->kind != CLUSTER_DEVICE && place->eager.bytes > 0)
        json_object_set_new(object, "eager", cluster_eager_json(&place->eager));
    if (place->cores)
        json_object_set_new(object, "cores", json_integer(place->cores));
    set_source(object, cluster, place->source);
    if (place->kind != CLUSTER_DEVICE)
        json_object_set_new(object, "children", json_array());
    return object;
}

/* 'strip' characters of the id are the node's name. */
static void add_device_json(json_t *object, const struct cluster *cluster,
                            const struct cluster_device *device, size_t strip)
{
    json_object_set_new(object, "id", json_string(device->id + strip));
    json_object_set_new(object, "device", json_string(device->kind));
    set_number(object, "memory", device->memory);
    if (device->flops > 0)
        set_number(object, "flops", device->flops);
    for (int f = FACTORS_TF32; f < FACTORS; f++)
        if (device->product_flops[f] > 0)
            set_number(object, cluster_factors_keys[f], device->product_flops[f]);
    if (device->memory_bandwidth > 0)
        set_number(object, "memory_bandwidth", device->memory_bandwidth);
    for (int f = 0; f < FACTORS; f++)
        if (device->efficiency[f])
            json_object_set_new(object, cluster_efficiency_keys[f],
                                efficiency_json(cluster_efficiency(cluster, device,
                                                                   (enum cluster_factors)f)));
    if (device->cores)
        json_object_set_new(object, "cores", json_integer(device->cores));
    if (device->rank >= 0)
        json_object_set_new(object, "rank", json_integer(device->rank));
}

static bool is_named_after(const struct cluster_device *device, const char *node)
{
    size_t n = strlen(node);

    return strncmp(device->id, node, n) == 0 && device->id[n] == '/';
}

/* May node 'b' be written as another name of node 'a'? */
static bool same_but_name(const struct cluster *cluster, int a, int b)
{
    const char *name_a = cluster->places[a].name, *name_b = cluster->places[b].name;
    int n = cluster_end(cluster, a) - a;

    if (cluster->places[a].kind != CLUSTER_NODE || !cluster_alike(cluster, a, b))
        return false;
    for (int i = 1; i < n; i++) {
        const struct cluster_device *x, *y;

        if (cluster->places[a + i].kind != CLUSTER_DEVICE) {
            if (strcmp(cluster->places[a + i].name, cluster->places[b + i].name) != 0)
                return false;
            continue;
        }
        x = cluster_device_at(cluster, a + i);
        y = cluster_device_at(cluster, b + i);
        if (x->rank >= 0 || y->rank >= 0 || !is_named_after(x, name_a) ||
            !is_named_after(y, name_b) ||
            strcmp(x->id + strlen(name_a), y->id + strlen(name_b)) != 0)
            return false;
    }
    return true;
}

static json_t *place_json(const struct cluster *cluster, int place, size_t strip);

static void add_children(json_t *array, const struct cluster *cluster, int parent, size_t strip)
{
    int place = parent + 1, end = cluster_end(cluster, parent);

    while (place < end) {
        int next = cluster_end(cluster, place), first = place;
        json_t *names = NULL, *object;

        while (next < end && same_but_name(cluster, first, next)) {
            if (!names)
                names = json_pack("[s]", cluster->places[first].name);
            json_array_append_new(names, json_string(cluster->places[next].name));
            next = cluster_end(cluster, next);
        }
        object = place_json(cluster, first,
                            names ? strlen(cluster->places[first].name) : strip);
        if (names) {
            json_object_del(object, "name");
            json_object_set_new(object, "names", names);
        }
        json_array_append_new(array, object);
        place = next;
    }
}

static json_t *place_json(const struct cluster *cluster, int place, size_t strip)
{
    json_t *object = figures_json(cluster, &cluster->places[place], place == 0);

    if (cluster->places[place].kind == CLUSTER_DEVICE)
        add_device_json(object, cluster, cluster_device_at(cluster, place), strip);
    else
        add_children(json_object_get(object, "children"), cluster, place, strip);
    return object;
}

json_t *cluster_to_json(const struct cluster *cluster)
{
    json_t *top = json_pack("{s:s, s:i, s:s, s:o}", "schema", "tasuki-topo", "version", 1,
                            "name", cluster->name, "root", place_json(cluster, 0, 0));
    json_t *storage, *factors, *messages, *start_up;

    set_source(top, cluster, cluster->source);
    if (storage_is_known(&cluster->storage)) {
        storage = storage_to_json(&cluster->storage);
        set_source(storage, cluster, cluster->storage.source);
        json_object_set_new(top, "storage", storage);
    }
    if (cluster->start_up > 0 || cluster->start_up_node > 0) {
        start_up = json_pack("{s:f, s:f}", "seconds", cluster->start_up, "per_node",
                             cluster->start_up_node);
        set_source(start_up, cluster, cluster->start_up_source);
        json_object_set_new(top, "start_up", start_up);
    }
    if (cluster->sum_latency_factor != 1 || cluster->sum_bandwidth_factor != 1 ||
        cluster->sum_overlap < 1 || cluster->sum_algorithm != ALLREDUCE_RING) {
        factors = json_pack("{s:s, s:f, s:f, s:f}", "algorithm",
                            cluster_algorithm_names[cluster->sum_algorithm], "latency_factor",
                            cluster->sum_latency_factor, "bandwidth_factor",
                            cluster->sum_bandwidth_factor, "overlap", cluster->sum_overlap);
        set_source(factors, cluster, cluster->sum_source);
        json_object_set_new(top, "allreduce", factors);
    }
    if (cluster->send_overlap < 1 || cluster->receive_overlap < 1) {
        messages = json_pack("{s:f, s:f}", "send_overlap", cluster->send_overlap,
                             "receive_overlap", cluster->receive_overlap);
        set_source(messages, cluster, cluster->message_source);
        json_object_set_new(top, "messages", messages);
    }
    return top;
}

int cluster_save(const struct cluster *cluster, const char *path, struct err *err)
{
    json_t *json = cluster_to_json(cluster);
    int status;

    if (!json)
        return err_set(err, "%s: out of memory", path);
    status = json_save(json, path, err);
    json_decref(json);
    return status;
}
