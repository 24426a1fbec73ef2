/* SPDX-License-Identifier: MIT */
#include "train/timings.h"

#include <jansson.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/order.h"
#include "graph/op.h"
#include "base/cache.h"
#include "train/load.h"
#include "train/optimizer.h"
#include "train/stopwatch.h"

#define ROUNDS 5
#define MOST_SPREAD 1e18    /* that cost files may have */

struct timings {
    const struct backend *backend;
    struct device *device;
    char *name;         /* what was measured, and beside how many */
    char *directory, *path;     /* NULL: nothing is kept */
    bool only_reads;
    const atomic_bool *stop;    /* NULL: nothing stops it */
    json_t *seconds;    /* key → number */
    json_t *site;       /* the same of the site's, where it has a number that we have not */
    json_t *crowded;    /* keys of what was measured while others were at work */
    json_t *samples;    /* key → numbers, one for each round: what is new */
    json_t *taken;      /* keys of what was asked for and known from before */
    double spread;      /* of when the cache was written; 0: not known */
    int threads, round;
    bool changed;
    bool looked, calm;  /* are they still? */
    struct load start;  /* when measuring began */
    struct stopwatch *stopwatch;    /* NULL: nothing was measured yet */
};

/* Into 't->seconds', but for what is among those that stay; of a site's file what was not measured in a
 * crowd, into 't->site'.
 */
static void read_file(struct timings *t, const char *path, const json_t *stays)
{
    struct err ignored = { 0 };
    struct json_reader r;
    const char *device;
    const json_t *seconds, *crowded;
    const double unknown = 0;
    double spread;
    json_t *top = json_load(path, &ignored), *value;
    const char *key;

    if (top && json_reader_top(&r, path, top, "tasuki-timings", 1, &ignored) == 0 &&
        json_get_string(&r, "device", true, NULL, &device, &ignored) == 0 &&
        json_get_object(&r, "seconds", true, &seconds, &ignored) == 0 &&
        json_get_object(&r, "crowded", false, &crowded, &ignored) == 0 &&
        json_get_number(&r, "spread", 0, MOST_SPREAD, &unknown, &spread, &ignored) == 0 &&
        strcmp(device, t->name) == 0) {
        if (t->spread <= 0)
            t->spread = spread;
        json_object_foreach((json_t *)seconds, key, value) {
            bool in_crowd = json_object_get(crowded, key) != NULL;

            if (!json_is_number(value) || json_number_value(value) < 0)
                continue;
            if (!stays && !in_crowd)
                json_object_set(t->site, key, value);
            if (!stays || json_object_get(stays, key))
                continue;
            json_object_set(t->seconds, key, value);
            if (in_crowd)
                json_object_set_new(t->crowded, key, json_true());
            else
                json_object_del(t->crowded, key);
        }
        cache_touch(path);
    }
    json_decref(top);
}

static void read_cache(struct timings *t)
{
    char *site = cache_site_path(t->path);

    read_file(t, t->path, t->seconds);
    if (site)
        read_file(t, site, NULL);
    free(site);
}

static char *cache_name(const struct backend *backend, const struct device *device, int beside)
{
    const char *name = backend->device_name(device), *how = stopwatch_in_haste() ? " in haste" : "";

    return beside ? mem_printf("%s %s beside %d%s", backend->name, name, beside, how)
                  : mem_printf("%s %s%s", backend->name, name, how);
}

struct timings *timings_open(const struct backend *backend, struct device *device, int threads,
                             int beside, const char *directory)
{
    struct timings *t = mem_new(1, sizeof(*t));
    char hex[17];

    t->backend = backend;
    t->device = device;
    t->threads = threads;
    t->seconds = json_object();
    t->site = json_object();
    t->crowded = json_object();
    t->samples = json_object();
    t->taken = json_object();
    t->name = cache_name(backend, device, beside);
    if (!directory)
        return t;
    cache_hash(t->name, hex);
    t->directory = mem_strdup(directory);
    t->path = cache_path(directory, backend->name, hex, ".json");
    read_cache(t);
    return t;
}

void timings_only_read(struct timings *timings, const atomic_bool *stop)
{
    timings->only_reads = true;
    timings->stop = stop;
}

static void write_cache(struct timings *t)
{
    struct err ignored = { 0 };
    int turn = cache_enter(t->directory);
    json_t *top;

    if (turn < 0)
        return;
    read_file(t, t->path, t->samples);
    top = json_pack("{s:s, s:i, s:s, s:f, s:O, s:O}", "schema", "tasuki-timings", "version", 1,
                    "device", t->name, "spread", timings_usual_spread(t), "seconds", t->seconds,
                    "crowded", t->crowded);
    json_save(top, t->path, &ignored);
    json_decref(top);
    cache_leave(t->directory, turn);
}

/* What is new was measured with others at work, or not. */
static void note_crowd(struct timings *t)
{
    struct load now;
    bool crowded;
    const char *key;
    json_t *value;

    load_read(&now);
    crowded = load_crowded(&t->start, &now, t->threads);
    json_object_foreach(t->samples, key, value) {
        if (crowded)
            json_object_set_new(t->crowded, key, json_true());
        else
            json_object_del(t->crowded, key);
    }
    if (crowded)
        log_info("costs were measured while others were at work on the same cores: they will be "
                 "measured again");
}

void timings_close(struct timings *timings)
{
    if (!timings)
        return;
    if (timings->path && timings->changed && !timings->only_reads) {
        note_crowd(timings);
        write_cache(timings);
    }
    stopwatch_free(timings->stopwatch);
    json_decref(timings->seconds);
    json_decref(timings->site);
    json_decref(timings->crowded);
    json_decref(timings->samples);
    json_decref(timings->taken);
    free(timings->directory);
    free(timings->path);
    free(timings->name);
    free(timings);
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
    if (layouts && layouts[value].order)
        fprintf(out, "%c", layouts[value].order);
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
    cache_hash(t.data, hex);
    free(t.data);
}

void timings_key(const struct graph *graph, int node, char key[17])
{
    node_key(graph, node, NULL, key);
}

/* Asking -------------------------------------------------------------------------------- */

/* What was measured in a crowd is measured again once there is none. */
static bool outdated(struct timings *t, const char *key)
{
    if (!json_object_get(t->crowded, key))
        return false;
    if (!t->looked)
        t->calm = !load_crowded_now(t->threads);
    t->looked = true;
    return t->calm;
}

static bool known(struct timings *t, const char *key, double *seconds)
{
    const json_t *value = json_object_get(t->seconds, key);
    const json_t *samples = json_object_get(t->samples, key);

    if (value && (samples ? (int)json_array_size(samples) <= t->round : outdated(t, key)))
        return false;
    if (!value && !(value = json_object_get(t->site, key)))
        return false;
    if (!samples)
        json_object_set_new(t->taken, key, json_true());
    *seconds = json_number_value(value);
    return true;
}

static int sort_samples(const json_t *samples, double sorted[ROUNDS])
{
    int n = (int)json_array_size(samples);

    for (int i = 0; i < n; i++)
        sorted[i] = json_real_value(json_array_get(samples, (size_t)i));
    qsort(sorted, (size_t)n, sizeof(sorted[0]), order_doubles);
    return n;
}

/* Returns the median of what was measured so far, the lower of two: it is what a run has to expect,
 * and a moment in which others are at work does not reach it.
 */
static double keep(struct timings *t, const char *key, double seconds)
{
    json_t *samples = json_object_get(t->samples, key);
    double sorted[ROUNDS];
    int n;

    if (!samples) {
        samples = json_array();
        json_object_set_new(t->samples, key, samples);
    }
    json_array_append_new(samples, json_real(seconds));
    n = sort_samples(samples, sorted);
    json_object_set_new(t->seconds, key, json_real(sorted[(n - 1) / 2]));
    t->changed = true;
    return sorted[(n - 1) / 2];
}

/* Of how many that were measured. */
static int find_spread(const struct timings *timings, double *median, double *worst)
{
    size_t size = json_object_size(timings->samples);
    double *spreads = mem_new(size + 1, sizeof(*spreads));
    int n_spreads = 0;
    const char *key;
    json_t *samples;

    json_object_foreach(timings->samples, key, samples) {
        double sorted[ROUNDS];
        int n = sort_samples(samples, sorted);

        if (sorted[n / 2] > 0)
            spreads[n_spreads++] = (sorted[n * 3 / 4] - sorted[n / 4]) / sorted[n / 2];
    }
    if (n_spreads) {
        qsort(spreads, (size_t)n_spreads, sizeof(*spreads), order_doubles);
        *median = spreads[n_spreads / 2];
        *worst = spreads[n_spreads - 1];
    }
    free(spreads);
    return n_spreads;
}

void timings_say(const struct timings *timings, enum log_level level)
{
    size_t measured = json_object_size(timings->samples), n = json_object_size(timings->taken);
    char *taken = n ? mem_printf(", %zu taken from the cache", n) : mem_strdup("");
    double median, worst;

    if (find_spread(timings, &median, &worst))
        log_say(level, "%zu operators measured%s; half of their rounds within %.3g %%, of the "
                "worst within %.3g %%", measured, taken, 1e2 * median, 1e2 * worst);
    else if (measured || n)
        log_say(level, "%zu operators measured%s", measured, taken);
    free(taken);
}

double timings_usual_spread(const struct timings *timings)
{
    double median, worst;

    return find_spread(timings, &median, &worst) ? median : timings->spread;
}

bool timings_round(struct timings *timings)
{
    if (json_object_size(timings->samples) == 0 || timings->round + 1 >= ROUNDS || stopwatch_in_haste())
        return false;
    timings->round++;
    return true;
}

/* NULL where it is told to stop, too. */
static struct stopwatch *stopwatch_of(struct timings *t, struct err *err)
{
    if (t->stop && atomic_load(t->stop)) {
        err_set(err, "measuring was stopped");
        return NULL;
    }
    if (!t->stopwatch) {
        load_read(&t->start);
        t->stopwatch = stopwatch_new(t->backend, t->device, err);
    }
    return t->stopwatch;
}

double timings_node(struct timings *timings, const struct graph *graph, int node,
                    const struct value_layout *layouts, const struct reuse *reuse,
                    struct err *err)
{
    struct timings *t = timings;
    char key[96];
    double seconds;

    node_key(graph, node, layouts, key);
    if (node < reuse->n_nodes)
        snprintf(key + 16, sizeof(key) - 16, " far %llx gone %llx in %zu/%d%s",
                 (unsigned long long)reuse->far[node], (unsigned long long)reuse->gone[node],
                 reuse->rings[node],
                 reuse->rings[node] ? reuse->written : 0,
                 reuse->result[node] ? " adds" : "");
    if (known(t, key, &seconds))
        return seconds;
    if (!stopwatch_of(t, err) || stopwatch_node(t->stopwatch, graph, node, layouts, reuse,
                                                &seconds, err) < 0)
        return -1;
    return keep(t, key, seconds);
}

double timings_update(struct timings *timings, const struct optimizer_args *args, bool offload,
                      const struct reuse *reuse, struct err *err)
{
    struct timings *t = timings;
    char key[64];
    double seconds;

    snprintf(key, sizeof(key), "update %s %s in %zu%s", optimizer_name(args->kind),
             dtype_name(args->dtype), reuse ? reuse->ring : 0, offload ? " offload" : "");
    if (known(t, key, &seconds))
        return seconds;
    if (!stopwatch_of(t, err) ||
        stopwatch_update(t->stopwatch, args, offload, reuse, &seconds, err) < 0)
        return -1;
    return keep(t, key, seconds / (double)(1 << 20));
}
