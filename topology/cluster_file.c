/* SPDX-License-Identifier: MIT */
#include "topology/cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "topology/cluster_private.h"
#include "topology/cluster_spec.h"
#include "topology/machine.h"

#define MOST 1e300      /* any figure in the file: keeps sums and products finite */

const char *const cluster_kind_names[] = { "root", "switch", "node", "island", "device" };
const char *const cluster_algorithm_names[] = { "ring", "tree", "hierarchical", "best" };
const char *const cluster_factors_names[FACTORS] = { "float32", "tf32", "bf16", "fp16" };
const char *const cluster_factors_keys[FACTORS] = { "flops", "flops_tf32", "flops_bf16", "flops_fp16" };
const char *const cluster_efficiency_keys[FACTORS] = {
    "efficiency", "efficiency_tf32", "efficiency_bf16", "efficiency_fp16"
};
const char *const cluster_origin_names[] = { "measured", "reported", "table" };

/* What is being built of a file. A "#" in a name is its number: of nodes in the cluster, of
 * switches at their level, of islands and devices in their node.
 */
struct build {
    struct cluster *cluster;
    int n_marks;                /* one for each place */
    struct mark {
        const char *pattern;    /* its name or id, as the file has it */
        int depth;
    } *marks;
    const json_t *growing;      /* the place whose children are repeated for 'more' nodes */
    int64_t described, more;
    int switches[CLUSTER_MOST_LEVELS + 2], nodes, islands, devices;     /* the next numbers */
};

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

/* One text, or an object with one for each of some keys of the place. */
static int read_source(struct json_reader *r, struct cluster *cluster, int *source,
                       struct err *err)
{
    const json_t *value = json_object_get(r->object, "source"), *each;
    const char *text = NULL, *key;
    char *all = NULL;
    size_t size;
    FILE *out;

    *source = 0;
    if (!json_is_object(value)) {
        if (json_get_string(r, "source", false, "", &text, err))
            return -1;
        *source = text[0] ? cluster_add_source(cluster, text) : 0;
        return 0;
    }
    if (json_get_object(r, "source", true, &value, err))
        return -1;
    out = open_memstream(&all, &size);
    json_object_foreach((json_t *)value, key, each) {
        if (!json_object_get(r->object, key) || !json_is_string(each))
            break;
        fprintf(out, "%s%s: %s", ftell(out) > 0 ? "; " : "", key, json_string_value(each));
        text = key;
    }
    fclose(out);
    if (!key && text)
        *source = cluster_add_source(cluster, all);
    free(all);
    return key ? json_error(r, "source", err, "\"%s\" is no text for a key beside it", key) : 0;
}

/* "eager": {"bytes": 65536, "latency": 1e-6, "copy_bandwidth": 5e9} */
int cluster_eager_read(struct json_reader *r, struct cluster_eager *eager, struct err *err)
{
    static const double unlimited = INFINITY;
    struct json_reader sub;
    const json_t *object;

    *eager = (struct cluster_eager){ .copy_bandwidth = INFINITY };
    if (json_get_object(r, "eager", false, &object, err))
        return -1;
    if (!object)
        return 0;
    if (json_reader_sub(&sub, r, "eager", -1, object, err) ||
        json_get_number(&sub, "bytes", 0, MOST, NULL, &eager->bytes, err) ||
        json_get_number(&sub, "latency", 0, MOST, NULL, &eager->latency, err) ||
        json_get_number(&sub, "copy_bandwidth", 0, MOST, &unlimited, &eager->copy_bandwidth,
                        err))
        return -1;
    if (eager->copy_bandwidth <= 0)
        return json_error(&sub, "copy_bandwidth", err, "must be positive");
    return json_reader_end(&sub, err);
}

/* Keys that a place of any kind has. */
static int read_figures(struct json_reader *r, struct build *b, struct cluster_place *place,
                        struct err *err)
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
        word_index(r, "latency_origin", cluster_origin_names, 3, "table", &latency_origin,
                   err) ||
        read_source(r, b->cluster, &place->source, err))
        return -1;
    if (place->up_bandwidth <= 0)
        return json_error(r, "bandwidth", err, "must be positive");
    if (place->flow_bandwidth <= 0)
        return json_error(r, "flow_bandwidth", err, "must be positive");
    if (cluster_eager_read(r, &place->eager, err))
        return -1;
    place->cores = (int)cores;
    place->origin = (enum origin)origin;
    place->latency_origin = (enum origin)latency_origin;
    return 0;
}

static int read_speeds(struct json_reader *r, struct cluster *cluster, struct cluster_device *device,
                       struct err *err)
{
    static const double none = 0;
    struct efficiency efficiency;

    for (int f = 0; f < FACTORS; f++) {
        double *flops = f == FACTORS_FLOAT32 ? &device->flops : &device->product_flops[f];

        if (json_get_number(r, cluster_factors_keys[f], 0, MOST, &none, flops, err) ||
            efficiency_read(r, cluster_efficiency_keys[f], &efficiency, err))
            return -1;
        if (!efficiency_is_none(&efficiency))
            device->efficiency[f] = cluster_add_efficiency(cluster, &efficiency);
    }
    return 0;
}

static int read_device(struct json_reader *r, struct cluster *cluster,
                       struct cluster_device *device, struct err *err)
{
    static const double unlimited = INFINITY, none = 0;
    static const int64_t no_rank = -1;
    const char *kind;
    int64_t rank;

    if (json_get_string(r, "device", false, "", &kind, err) ||
        json_get_number(r, "memory", 0, MOST, &unlimited, &device->memory, err) ||
        json_get_number(r, "memory_bandwidth", 0, MOST, &none, &device->memory_bandwidth,
                        err) ||
        read_speeds(r, cluster, device, err) ||
        json_get_int(r, "rank", -1, INT32_MAX, &no_rank, &rank, err))
        return -1;
    if (device->memory <= 0)
        return json_error(r, "memory", err, "must be positive");
    device->kind = (char *)kind;    /* the JSON's, till add_device() copies it */
    device->rank = (int)rank;
    return 0;
}

static char *numbered(const char *pattern, int number)
{
    const char *mark = strchr(pattern, '#');

    return mark ? mem_printf("%.*s%d%s", (int)(mark - pattern), pattern, number, mark + 1)
                : mem_strdup(pattern);
}

/* "/gpu0" is "NODE/gpu0". */
static int add_device(struct cluster *cluster, const char *id, int parent,
                      const struct cluster_place *figures, const struct cluster_device *like)
{
    int node = parent, index;
    struct cluster_device *device;
    char *whole = NULL;

    while (node > 0 && cluster->places[node].kind != CLUSTER_NODE)
        node = cluster->places[node].parent;
    if (id[0] == '/' && node > 0)
        whole = mem_printf("%s%s", cluster->places[node].name, id);
    index = cluster_add_device(cluster, whole ? whole : id, like->kind, parent,
                               figures->up_bandwidth);
    device = &cluster->devices[index];
    device->memory = like->memory;
    device->flops = like->flops;
    memcpy(device->product_flops, like->product_flops, sizeof(device->product_flops));
    device->memory_bandwidth = like->memory_bandwidth;
    memcpy(device->efficiency, like->efficiency, sizeof(device->efficiency));
    device->cores = figures->cores;
    device->rank = like->rank;
    free(whole);
    return device->place;
}

static void mark(struct build *b, const char *pattern, int depth)
{
    *(struct mark *)mem_push((void **)&b->marks, &b->n_marks, sizeof(*b->marks)) =
        (struct mark){ pattern, depth };
}

static int next_number(struct build *b, enum cluster_kind kind, int depth)
{
    switch (kind) {
    case CLUSTER_SWITCH: return b->switches[depth]++;
    case CLUSTER_NODE:
        b->islands = b->devices = 0;
        return b->nodes++;
    case CLUSTER_ISLAND: return b->islands++;
    default: return b->devices++;
    }
}

/* Returns the place. 'device' is of devices only. */
static int add_place(struct build *b, const char *pattern, int parent,
                     const struct cluster_place *figures, const struct cluster_device *device)
{
    struct cluster *cluster = b->cluster;
    int depth = b->marks[parent].depth + 1;
    char *name = numbered(pattern, next_number(b, figures->kind, depth));
    struct cluster_place *place;
    int index;

    index = device ? add_device(cluster, name, parent, figures, device)
                   : cluster_add_place(cluster, figures->kind, name, parent,
                                       figures->up_bandwidth);
    free(name);
    place = &cluster->places[index];
    name = place->name;
    *place = *figures;
    place->name = name;
    place->parent = parent;
    place->cores = device ? 0 : figures->cores;
    mark(b, pattern, depth);
    return index;
}

static bool is_full(const struct build *b, int64_t more)
{
    return b->cluster->n_places + more > 2 * CLUSTER_MOST_DEVICES ||
           b->cluster->n_devices >= CLUSTER_MOST_DEVICES;
}

/* The subtree [first, end) again, under another name. */
static int copy_place(struct build *b, int first, int end, const char *name,
                      struct json_reader *r, struct err *err)
{
    int base = b->cluster->n_places;

    if (is_full(b, end - first))
        return json_error(r, "count", err, "too many places");
    for (int i = first; i < end; i++) {
        struct cluster_place figures = b->cluster->places[i];
        struct cluster_device device = { 0 };
        int parent = i == first ? figures.parent : figures.parent - first + base;
        bool leaf = figures.kind == CLUSTER_DEVICE;

        if (leaf) {
            device = *cluster_device_at(b->cluster, i);
            figures.cores = device.cores;
        }
        add_place(b, i == first ? name : b->marks[i].pattern, parent, &figures,
                  leaf ? &device : NULL);
    }
    return 0;
}

static int read_children(struct json_reader *r, struct build *b, int place, int depth,
                         int64_t share, struct err *err);

/* One of the places that an object stands for; 'share' of its nodes, -1: all. */
static int read_one(const struct json_reader *r, struct build *b, const char *name, int parent,
                    int depth, const struct cluster_place *figures, int64_t share,
                    struct err *err)
{
    struct json_reader copy = *r;
    struct cluster_device device = { 0 };
    int place;

    if (is_full(b, 1))
        return json_error(&copy, "children", err, "too many places");
    if (figures->kind == CLUSTER_DEVICE) {
        if (read_device(&copy, b->cluster, &device, err))
            return -1;
        add_place(b, name, parent, figures, &device);
        return json_reader_end(&copy, err);
    }
    place = add_place(b, name, parent, figures, NULL);
    return read_children(&copy, b, place, depth,
                         figures->kind == CLUSTER_NODE ? -1 : share, err);
}

/* So many places that are alike: read once, then copied. */
static int read_counted(struct json_reader *r, struct build *b, int parent, int depth,
                        const struct cluster_place *figures, int64_t share, struct err *err)
{
    static const int64_t one = 1;
    int64_t count, rest = 0;
    const char *name;
    int first = b->cluster->n_places, end;

    if (json_get_string(r, figures->kind == CLUSTER_DEVICE ? "id" : "name", true, NULL, &name,
                        err) ||
        json_get_int(r, "count", 1, CLUSTER_MOST_DEVICES, &one, &count, err))
        return -1;
    if (share >= 0) {
        int64_t each = take_nodes_each(r->object);

        count = share / each;
        rest = share % each;
    }
    if (count > 0 && read_one(r, b, name, parent, depth, figures, -1, err))
        return -1;
    end = b->cluster->n_places;
    for (int64_t i = 1; i < count; i++)
        if (copy_place(b, first, end, name, r, err))
            return -1;
    return rest > 0 ? read_one(r, b, name, parent, depth, figures, rest, err) : 0;
}

/* Nodes that are alike but have names of their own. */
static int read_names(struct json_reader *r, struct build *b, int parent, int depth,
                      const struct cluster_place *figures, const json_t *names, int64_t share,
                      struct err *err)
{
    size_t n = json_array_size(names);
    int first = b->cluster->n_places, end = first;

    if (figures->kind != CLUSTER_NODE || n == 0)
        return json_error(r, "names", err, "expected names, and a node");
    for (size_t i = 0; i < n && (share < 0 || (int64_t)i < share); i++) {
        const char *name = json_string_value(json_array_get(names, i));

        if (!name)
            return json_error(r, "names", err, "expected strings");
        if (i == 0 ? read_one(r, b, name, parent, depth, figures, -1, err)
                   : copy_place(b, first, end, name, r, err))
            return -1;
        if (i == 0)
            end = b->cluster->n_places;
    }
    return 0;
}

static int read_place(struct json_reader *r, struct build *b, int parent, int depth,
                      int64_t share, struct err *err)
{
    struct cluster_place figures = { 0 };
    const json_t *names;
    int kind = 0;

    if (depth > CLUSTER_MOST_LEVELS)
        return json_error(r, "children", err, "more than %d levels", CLUSTER_MOST_LEVELS);
    if (word_index(r, "kind", cluster_kind_names, 5, NULL, &kind, err) ||
        read_figures(r, b, &figures, err))
        return -1;
    if (kind == CLUSTER_ROOT)
        return json_error(r, "kind", err, "there is only one root");
    figures.kind = (enum cluster_kind)kind;
    if (json_get_array(r, "names", false, &names, err))
        return -1;
    return names ? read_names(r, b, parent, depth, &figures, names, share, err)
                 : read_counted(r, b, parent, depth, &figures, share, err);
}

/* The children that have a share of the nodes. */
static int read_shares(const struct json_reader *r, struct build *b, const json_t *children,
                       int place, int depth, int64_t share, struct err *err)
{
    int64_t *shares = NULL;
    int status = 0;

    if (share >= 0) {
        shares = mem_new(json_array_size(children), sizeof(*shares));
        take_shares(children, share, shares);
    }
    for (size_t i = 0; i < json_array_size(children) && !status; i++) {
        struct json_reader child;

        if (shares && shares[i] == 0)
            continue;
        status = json_reader_sub(&child, r, "children", (int)i, json_array_get(children, i),
                                 err) ||
                 read_place(&child, b, place, depth + 1, shares ? shares[i] : -1, err);
    }
    free(shares);
    return status ? -1 : 0;
}

/* The last key of a place. */
static int read_children(struct json_reader *r, struct build *b, int place, int depth,
                         int64_t share, struct err *err)
{
    const json_t *children;

    if (json_get_array(r, "children", true, &children, err) || json_reader_end(r, err))
        return -1;
    if (read_shares(r, b, children, place, depth, share, err))
        return -1;
    for (; r->object == b->growing && b->more > 0; b->more -= b->described)
        if (read_shares(r, b, children, place, depth, b->more < b->described ? b->more : -1,
                        err))
            return -1;
    return 0;
}

static int64_t count_nodes(const json_t *root)
{
    const json_t *child;
    int64_t n = 0;
    size_t i;

    json_array_foreach(json_object_get(root, "children"), i, child)
        n += take_nodes(child);
    return n;
}

/* 'most': the nodes that there are at most, 0: nobody knows, -1: no more than described. */
static int check_nodes(const char *file, int64_t nodes, int64_t described, int64_t most,
                       struct err *err)
{
    if (nodes == 0 || (nodes <= described && (most <= 0 || nodes <= most)))
        return 0;
    if (described == 0)
        return err_set_code(err, EXIT_USAGE, "%s: describes no nodes, so %lld of them cannot "
                            "be taken", file, (long long)nodes);
    if (most < 0 || (most > 0 && nodes > most))
        return err_set_code(err, EXIT_USAGE, "%s: the machine has %lld node%s, not %lld", file,
                            (long long)(most < 0 ? described : most),
                            (most < 0 ? described : most) == 1 ? "" : "s", (long long)nodes);
    return 0;
}

/* 'nodes' of the machine, 0: all that are described. Where there are more than those, the
 * description is repeated.
 */
static int read_root(struct json_reader *r, struct build *b, int64_t nodes, int64_t most,
                     struct err *err)
{
    struct cluster_place figures = { 0 }, *root = &b->cluster->places[0];
    int64_t described = count_nodes(r->object);

    /* Switches of one size, as they are saved, may have room for more than there are. */
    if (nodes == 0 && most > 0 && most < described)
        nodes = most;
    if (read_figures(r, b, &figures, err) ||
        check_nodes(r->file, nodes, described, most, err))
        return -1;
    root->latency = figures.latency;
    root->eager = figures.eager;
    root->latency_origin = figures.latency_origin;
    root->cores = figures.cores;
    root->source = figures.source;
    if (nodes > described) {
        b->growing = take_growing(r->object);
        b->described = described;
        b->more = nodes - described;
        nodes = 0;
    }
    return read_children(r, b, 0, 0, nodes > 0 ? nodes : -1, err);
}

/* "allreduce": {"algorithm": "tree", "latency_factor": 1.8, "bandwidth_factor": 2.5,
 * "overlap": 0.3}
 */
static int read_factors(struct json_reader *top, struct cluster *cluster, struct err *err)
{
    static const double one = 1;
    struct json_reader factors;
    const json_t *object;
    int algorithm = ALLREDUCE_RING;

    if (json_get_object(top, "allreduce", false, &object, err))
        return -1;
    if (!object)
        return 0;
    if (json_reader_sub(&factors, top, "allreduce", -1, object, err) ||
        word_index(&factors, "algorithm", cluster_algorithm_names, ALLREDUCE_BEST + 1, "ring",
                   &algorithm, err) ||
        json_get_number(&factors, "latency_factor", 1e-6, 1e9, &one,
                        &cluster->sum_latency_factor, err) ||
        json_get_number(&factors, "bandwidth_factor", 1e-6, 1e9, &one,
                        &cluster->sum_bandwidth_factor, err) ||
        json_get_number(&factors, "overlap", 0, 1, &one, &cluster->sum_overlap, err) ||
        read_source(&factors, cluster, &cluster->sum_source, err))
        return -1;
    cluster->sum_algorithm = (enum allreduce)algorithm;
    return json_reader_end(&factors, err);
}

/* "messages": {"send_overlap": 1, "receive_overlap": 0.7} */
static int read_messages(struct json_reader *top, struct cluster *cluster, struct err *err)
{
    static const double one = 1;
    struct json_reader r;
    const json_t *object;

    if (json_get_object(top, "messages", false, &object, err))
        return -1;
    if (!object)
        return 0;
    if (json_reader_sub(&r, top, "messages", -1, object, err) ||
        json_get_number(&r, "send_overlap", 0, 1, &one, &cluster->send_overlap, err) ||
        json_get_number(&r, "receive_overlap", 0, 1, &one, &cluster->receive_overlap, err) ||
        read_source(&r, cluster, &cluster->message_source, err))
        return -1;
    return json_reader_end(&r, err);
}

static int read_storage(struct json_reader *top, struct cluster *cluster, struct err *err)
{
    struct json_reader r;
    const json_t *object;

    if (json_get_object(top, "storage", false, &object, err))
        return -1;
    if (!object)
        return 0;
    if (json_reader_sub(&r, top, "storage", -1, object, err) ||
        read_source(&r, cluster, &cluster->storage.source, err))
        return -1;
    return storage_read(&cluster->storage, &r, err);
}

static int read_start_up(struct json_reader *top, struct cluster *cluster, struct err *err)
{
    const double zero = 0;
    struct json_reader r;
    const json_t *object;

    if (json_get_object(top, "start_up", false, &object, err))
        return -1;
    if (!object)
        return 0;
    if (json_reader_sub(&r, top, "start_up", -1, object, err) ||
        json_get_number(&r, "seconds", 0, 1e9, NULL, &cluster->start_up, err) ||
        json_get_number(&r, "per_node", 0, 1e9, &zero, &cluster->start_up_node, err) ||
        read_source(&r, cluster, &cluster->start_up_source, err))
        return -1;
    return json_reader_end(&r, err);
}

static int read_top(struct json_reader *top, struct build *b, int64_t nodes, struct err *err)
{
    static const int64_t no_more = -1;
    const json_t *object;
    struct json_reader root;
    int64_t most;

    if (read_source(top, b->cluster, &b->cluster->source, err) ||
        read_factors(top, b->cluster, err) || read_messages(top, b->cluster, err) ||
        read_storage(top, b->cluster, err) ||
        read_start_up(top, b->cluster, err) ||
        json_get_int(top, "extend_to", 0, CLUSTER_MOST_DEVICES, &no_more, &most, err) ||
        json_get_object(top, "root", true, &object, err) || json_reader_end(top, err) ||
        json_reader_sub(&root, top, "root", -1, object, err))
        return -1;
    return read_root(&root, b, nodes, most, err);
}

struct cluster *cluster_from_json(const char *path, const json_t *json, int64_t nodes,
                                  struct err *err)
{
    struct build b = { 0 };
    struct json_reader top;
    const json_t *ignored;
    const char *name;

    /* These are record.c's, task.c's, links.h's and gpu_links.c's; who wants the cluster alone
     * does not need them.
     */
    if (json_reader_top(&top, path, json, "tasuki-topo", 1, err) ||
        json_get_array(&top, "nodes", false, &ignored, err) ||
        json_get_array(&top, "tasks", false, &ignored, err) ||
        json_get_object(&top, "slurm", false, &ignored, err) ||
        json_get_object(&top, "measured", false, &ignored, err) ||
        json_get_object(&top, "gpus", false, &ignored, err) ||
        json_get_string(&top, "name", false, path, &name, err))
        return NULL;
    b.cluster = cluster_new(name);
    mark(&b, "", 0);
    if (read_top(&top, &b, nodes, err) == 0) {
        free(b.marks);
        if (cluster_check(b.cluster, err) == 0)
            return b.cluster;
        err_prefix(err, "%s", path);
        b.marks = NULL;
    }
    free(b.marks);
    cluster_free(b.cluster);
    return NULL;
}

struct cluster *cluster_open(const char *spec, struct err *err)
{
    return cluster_is_spec(spec) ? cluster_from_spec(spec, err)
                                 : machine_open(spec, NULL, err);
}
