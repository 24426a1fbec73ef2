/* SPDX-License-Identifier: MIT */
#include "train/timings.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "graph/op.h"
#include "train/stopwatch.h"
#include "train/optimizer.h"

struct timings {
    const struct backend *backend;
    struct device *device;
    char *path;         /* NULL: nothing is kept */
    json_t *seconds;    /* key → number */
    bool changed;
};

/* FNV-1a, 64 bits (Fowler, Noll, Vo). */
static void hash_text(const char *text, char hex[17])
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    snprintf(hex, 17, "%016llx", (unsigned long long)hash);
}

static void read_cache(struct timings *t, const char *device_name)
{
    struct err ignored = { 0 };
    struct json_reader r;
    const char *device;
    const json_t *seconds;
    json_t *top = json_load(t->path, &ignored), *value;
    const char *key;

    if (top && json_reader_top(&r, t->path, top, "tasuki-timings", 1, &ignored) == 0 &&
        json_get_string(&r, "device", true, NULL, &device, &ignored) == 0 &&
        json_get_object(&r, "seconds", true, &seconds, &ignored) == 0 &&
        strcmp(device, device_name) == 0)
        json_object_foreach((json_t *)seconds, key, value)
            if (json_is_number(value) && json_number_value(value) >= 0)
                json_object_set(t->seconds, key, value);
    json_decref(top);
}

struct timings *timings_open(const struct backend *backend, struct device *device,
                             const char *directory)
{
    struct timings *t = mem_new(1, sizeof(*t));
    char *name, hex[17];

    t->backend = backend;
    t->device = device;
    t->seconds = json_object();
    if (!directory)
        return t;
    name = mem_printf("%s %s", backend->name, backend->device_name(device));
    hash_text(name, hex);
    t->path = mem_printf("%s/%s-%s.json", directory, backend->name, hex);
    read_cache(t, name);
    free(name);
    return t;
}

static void write_cache(const struct timings *t)
{
    struct err ignored = { 0 };
    char *slash = strrchr(t->path, '/'), *parent;
    json_t *top;
    char *name = mem_printf("%s %s", t->backend->name, t->backend->device_name(t->device));

    *slash = '\0';
    parent = strrchr(t->path, '/');
    if (parent && parent != t->path) {
        *parent = '\0';
        mkdir(t->path, 0777);
        *parent = '/';
    }
    mkdir(t->path, 0777);
    *slash = '/';
    top = json_pack("{s:s, s:i, s:s, s:O}", "schema", "tasuki-timings", "version", 1, "device",
                    name, "seconds", t->seconds);
    json_save(top, t->path, &ignored);
    json_decref(top);
    free(name);
}

void timings_close(struct timings *timings)
{
    if (!timings)
        return;
    if (timings->path && timings->changed)
        write_cache(timings);
    json_decref(timings->seconds);
    free(timings->path);
    free(timings);
}

char *timings_directory(const char *cache_dir, const char *xdg_cache_home, const char *home)
{
    if (cache_dir && *cache_dir)
        return mem_strdup(cache_dir);
    if (xdg_cache_home && *xdg_cache_home)
        return mem_printf("%s/tasuki", xdg_cache_home);
    if (home && *home)
        return mem_printf("%s/.cache/tasuki", home);
    return NULL;
}

/* Keys ---------------------------------------------------------------------------------- */

struct text {
    char *data;
    size_t size;
    FILE *file;
};

static void put_attr(FILE *out, const struct attr *a)
{
    fprintf(out, " %s=", a->name);
    switch (a->type) {
    case ATTR_INT: fprintf(out, "%lld", (long long)a->i); break;
    case ATTR_FLOAT: fprintf(out, "%.9g", a->f); break;
    case ATTR_STRING: fprintf(out, "%s", a->s); break;
    case ATTR_INTS:
        for (int i = 0; i < a->n; i++)
            fprintf(out, "%lld,", (long long)a->ints[i]);
        break;
    case ATTR_FLOATS:
        for (int i = 0; i < a->n; i++)
            fprintf(out, "%.9g,", a->floats[i]);
        break;
    default: fprintf(out, "tensor"); break;
    }
}

static void put_value(FILE *out, const struct graph *graph, int value,
                      const struct value_layout *layouts)
{
    char shape[128];
    const struct value *v;

    if (value < 0) {
        fprintf(out, " -");
        return;
    }
    v = &graph->values[value];
    fprintf(out, " %s %s", dtype_name(v->dtype), shape_text(&v->shape, shape, sizeof(shape)));
    if (layouts && layouts[value].opaque)
        fprintf(out, " in %zu", layouts[value].bytes);
}

static void node_key(const struct graph *graph, int node, const struct value_layout *layouts,
                     char hex[17])
{
    const struct node *n = &graph->nodes[node];
    struct text t = { 0 };

    t.file = open_memstream(&t.data, &t.size);
    fprintf(t.file, "%s", n->op->name);
    for (int i = 0; i < n->n_attrs; i++)
        put_attr(t.file, &n->attrs[i]);
    fprintf(t.file, " from");
    for (int i = 0; i < n->n_inputs; i++)
        put_value(t.file, graph, n->inputs[i], layouts);
    fprintf(t.file, " to");
    for (int i = 0; i < n->n_outputs; i++)
        put_value(t.file, graph, n->outputs[i], layouts);
    fclose(t.file);
    hash_text(t.data, hex);
    free(t.data);
}

void timings_key(const struct graph *graph, int node, char key[17])
{
    node_key(graph, node, NULL, key);
}

/* Asking -------------------------------------------------------------------------------- */

static bool known(const struct timings *t, const char *key, double *seconds)
{
    const json_t *value = json_object_get(t->seconds, key);

    if (value)
        *seconds = json_number_value(value);
    return value != NULL;
}

static void keep(struct timings *t, const char *key, double seconds)
{
    json_object_set_new(t->seconds, key, json_real(seconds));
    t->changed = true;
}

double timings_node(struct timings *timings, const struct graph *graph, int node,
                    const struct value_layout *layouts, bool *fresh, struct err *err)
{
    struct measured result;
    char key[17];
    double seconds;
    bool had;

    node_key(graph, node, layouts, key);
    had = known(timings, key, &seconds);
    if (fresh)
        *fresh = !had;
    if (had)
        return seconds;
    if (stopwatch_node(timings->backend, timings->device, graph, node, layouts, &result,
                       err) < 0)
        return -1;
    keep(timings, key, result.seconds);
    return result.seconds;
}

double timings_update(struct timings *timings, const struct optimizer_args *args,
                      struct err *err)
{
    struct measured result;
    char key[64];
    double seconds;

    snprintf(key, sizeof(key), "update %s %s", optimizer_name(args->kind),
             dtype_name(args->dtype));
    if (known(timings, key, &seconds))
        return seconds;
    if (stopwatch_update(timings->backend, timings->device, args, &result, err) < 0)
        return -1;
    seconds = result.seconds / (double)(1 << 20);
    keep(timings, key, seconds);
    return seconds;
}
