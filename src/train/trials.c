/* SPDX-License-Identifier: MIT */
#include "train/trials.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/order.h"
#include "topology/fit.h"
#include "base/cache.h"

#define MAX_FACTOR 1e6      /* nothing that was measured is further off */
#define CONFIDENCE 0.95

/* The most ratios that may lie outside at either end: each of 'n' is as likely to be above the
 * median as below.
 */
static int outside(int n)
{
    double likelihood = ldexp(1, 1 - n), sum = likelihood;      /* of k or fewer, at both ends */
    int k = 0;

    while (sum <= 1 - CONFIDENCE) {
        likelihood *= (double)(n - k) / (k + 1);
        sum += likelihood;
        k++;
    }
    return k;
}

struct trials_ratio trials_compare(int n, const double *seconds, const double *others)
{
    struct trials_ratio result = { 1, 0, INFINITY };
    double ratios[TRIALS_MOST];
    int k = outside(n);

    for (int i = 0; i < n; i++)
        ratios[i] = seconds[i] / others[i];
    if (n > 0)
        result.median = fit_quantile(ratios, n, 0.5);   /* sorts */
    if (k > 0) {
        result.low = ratios[k - 1];
        result.high = ratios[n - k];
    }
    return result;
}

int trials_shown(const struct trials_ratio *ratio)
{
    return (ratio->low > 1) - (ratio->high < 1);
}

int trials_order(const struct trials_ratio *a, const struct trials_ratio *b)
{
    int shown = trials_shown(a), other = trials_shown(b);

    return shown != other || shown == 0 ? shown - other : order_doubles(&a->median, &b->median);
}

static char *describe(const struct trials_key *key)
{
    return mem_printf("%s %s %s %s%s%s, %d devices of %d nodes", key->model, key->backend,
                      key->device, key->precision, key->fuse ? "" : " unfused",
                      key->offload ? " offload" : "", key->devices, key->nodes);
}

static char *path_of(const struct trials_key *key, const char *subject)
{
    char hex[17];

    cache_hash(subject, hex);
    return cache_path(key->directory, "trial", hex, ".json");
}

/* NULL for a file that is broken, or of something else. */
static json_t *read_one(const char *path, const char *subject)
{
    struct err ignored = { 0 };
    struct json_reader r;
    json_t *top = json_load(path, &ignored);
    const char *of;

    if (top && json_reader_top(&r, path, top, "tasuki-trial", 1, &ignored) == 0 &&
        json_get_string(&r, "of", true, NULL, &of, &ignored) == 0 && strcmp(of, subject) == 0) {
        cache_touch(path);
        return top;
    }
    json_decref(top);
    return NULL;
}

/* Own ones count, else the site's. */
static json_t *read_file(const char *path, const char *subject)
{
    json_t *top = read_one(path, subject);
    char *site = top ? NULL : cache_site_path(path);

    if (site)
        top = read_one(site, subject);
    free(site);
    return top;
}

/* Block → factor, as far as they are known. */
static json_t *read_factors(const char *path, const char *subject)
{
    json_t *top = read_file(path, subject), *factors = json_object(), *value;
    const char *name;

    json_object_foreach(json_object_get(top, "blocks"), name, value)
        if (json_is_number(value) && json_number_value(value) >= 1 / MAX_FACTOR &&
            json_number_value(value) <= MAX_FACTOR)
            json_object_set(factors, name, value);
    json_decref(top);
    return factors;
}

static void multiply(double *array, int n, double factor)
{
    for (int i = 0; array && i < n; i++)
        array[i] *= factor;
}

void trials_apply(const struct trials_key *key, struct cost *cost)
{
    char *subject, *path;
    json_t *factors;

    if (!key->directory)
        return;
    subject = describe(key);
    path = path_of(key, subject);
    factors = read_factors(path, subject);
    for (int i = 0; i < cost->n_blocks; i++) {
        struct cost_block *b = &cost->blocks[i];
        const json_t *value = json_object_get(factors, b->name);
        double factor = value ? json_number_value(value) : 1;

        multiply(b->forward, cost->n_sizes, factor);
        multiply(b->dgrad, cost->n_sizes, factor);
        multiply(b->wgrad, cost->n_sizes, factor);
        multiply(b->selective_dgrad, cost->n_sizes, factor);
        b->step *= factor;
    }
    json_decref(factors);
    free(path);
    free(subject);
}

/* The costs that the plan was made with had the old factors in them. */
static void change(json_t *factors, const struct plan_stage *stage, double ratio)
{
    for (int i = 0; i < stage->n_blocks; i++) {
        const char *name = stage->blocks[i].name;
        const json_t *old = json_object_get(factors, name);
        double factor = (old ? json_number_value(old) : 1) * ratio;

        factor = fmin(fmax(factor, 1 / MAX_FACTOR), MAX_FACTOR);
        json_object_set_new(factors, name, json_real(factor));
    }
}

static bool change_list(json_t *factors, const struct plan *plan, int list, double seconds)
{
    double busy = 0, ratio;

    for (int s = 0; s < plan->n_stages; s++)
        busy += plan_list(plan, s) == list ? plan->stages[s].busy : 0;
    ratio = seconds / busy;
    if (!(ratio > 0 && isfinite(ratio)))
        return false;
    for (int s = 0; s < plan->n_stages; s++)
        if (plan_list(plan, s) == list)
            change(factors, &plan->stages[s], ratio);
    return true;
}

static bool is_count(json_int_t n)
{
    return n >= 1 && n <= INT_MAX;
}

/* What a file has is believed as far as it can be. */
static double doubt_of(const json_t *top)
{
    double doubt = json_number_value(json_object_get(top, "doubt"));

    return doubt > 1 ? fmin(doubt, MAX_FACTOR) : 1;
}

/* An array of 'n' counts, or NULL. */
static int *read_counts(const json_t *array, size_t n)
{
    int *counts = json_array_size(array) == n ? mem_new(n, sizeof(*counts)) : NULL;

    for (size_t i = 0; i < n && counts; i++) {
        json_int_t value = json_integer_value(json_array_get(array, i));

        counts[i] = (int)value;
        if (!is_count(value)) {
            free(counts);
            counts = NULL;
        }
    }
    return counts;
}

static bool read_shape(const json_t *value, struct plan_shape *shape)
{
    const char *schedule = json_string_value(json_object_get(value, "schedule"));
    const char *order = json_string_value(json_object_get(value, "order"));
    json_int_t pipelines = json_integer_value(json_object_get(value, "pipelines"));
    json_int_t stages = json_integer_value(json_object_get(value, "stages"));
    json_int_t devices = json_integer_value(json_object_get(value, "devices"));

    if (!is_count(pipelines) || !is_count(stages) || !is_count(devices))
        return false;
    *shape = (struct plan_shape){
        .pipelines = (int)pipelines, .stages = (int)stages, .devices = (int)devices,
        .schedule = schedule ? schedule_find(schedule) : -1,
        .micro_batches = json_integer_value(json_object_get(value, "micro_batches")),
        .blocks = read_counts(json_object_get(value, "blocks"), (size_t)stages),
        .replicas = read_counts(json_object_get(value, "replicas"), (size_t)stages),
    };
    snprintf(shape->order, sizeof(shape->order), "%s", order ? order : "");
    if (shape->blocks && shape->replicas)
        return true;
    free(shape->blocks);
    free(shape->replicas);
    shape->blocks = shape->replicas = NULL;
    return true;
}

int trials_shapes(const struct trials_key *key, int64_t global_batch, struct plan_shape **shapes,
                  double *doubt)
{
    char *subject, *path;
    json_t *top, *value;
    size_t i;
    int n = 0;

    *shapes = NULL;
    *doubt = 1;
    if (!key->directory)
        return 0;
    subject = describe(key);
    path = path_of(key, subject);
    top = read_file(path, subject);
    *doubt = doubt_of(top);
    if (json_integer_value(json_object_get(top, "global_batch")) == global_batch)
        json_array_foreach(json_object_get(top, "shapes"), i, value) {
            struct plan_shape shape;

            if (read_shape(value, &shape))
                *(struct plan_shape *)mem_push((void **)shapes, &n, sizeof(shape)) = shape;
        }
    json_decref(top);
    free(path);
    free(subject);
    return n;
}

/* What it takes to make it again, where no device has several stages. */
static json_t *shape_of(const struct plan *plan)
{
    json_t *shape = json_pack("{s:i, s:i, s:i, s:s, s:I}", "pipelines", plan->pipelines, "stages",
                              plan->n_stages, "devices", plan_devices(plan), "schedule",
                              plan->schedule, "micro_batches", (json_int_t)plan->micro_batches);
    json_t *blocks = json_array(), *replicas = json_array();
    char order[17];

    for (int k = 0; k < plan->n_stages; k++) {
        json_array_append_new(blocks, json_integer(plan->stages[k].n_blocks));
        json_array_append_new(replicas, json_integer(plan->stages[k].replicas));
    }
    if (plan_lists(plan) == plan->n_stages) {
        json_object_set(shape, "blocks", blocks);
        json_object_set(shape, "replicas", replicas);
        plan_order(plan, order);
        json_object_set_new(shape, "order", json_string(order));
    }
    json_decref(blocks);
    json_decref(replicas);
    return shape;
}

static json_t *shapes_of(int n, const struct plan *const *plans)
{
    json_t *shapes = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(shapes, shape_of(plans[i]));
    return shapes;
}

static double most_beyond(int n, const struct plan *const *plans, const double *steps)
{
    double first = steps[0] / plans[0]->iteration_seconds, most = 1;

    for (int i = 1; i < n; i++) {
        double beyond = steps[i] / plans[i]->iteration_seconds / first;

        most = isfinite(beyond) ? fmax(most, fmin(beyond, MAX_FACTOR)) : most;
    }
    return most;
}

bool trials_record(const struct trials_key *key, int n, const struct plan *const *plans,
                   const double *steps, const double *seconds)
{
    struct err ignored = { 0 };
    char *subject, *path;
    bool changed = n > 1;
    json_t *factors, *top;
    int turn = key->directory ? cache_enter(key->directory) : -1;

    if (turn < 0)
        return false;
    subject = describe(key);
    path = path_of(key, subject);
    factors = read_factors(path, subject);
    for (int l = 0; l < plan_lists(plans[0]); l++)
        changed |= change_list(factors, plans[0], l, seconds[l]);
    top = json_pack("{s:s, s:i, s:s, s:o, s:I, s:o, s:f}", "schema", "tasuki-trial", "version", 1,
                    "of", subject, "blocks", factors, "global_batch",
                    (json_int_t)plans[0]->global_batch, "shapes", shapes_of(n, plans), "doubt",
                    most_beyond(n, plans, steps));
    changed = changed && json_save(top, path, &ignored) == 0;
    cache_leave(key->directory, turn);
    json_decref(top);
    free(path);
    free(subject);
    return changed;
}
