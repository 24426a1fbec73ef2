/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "scheduler/plan.h"
#include "scheduler/schedule.h"

#define MAX_STAGES 4096
#define MAX_DEVICES 1048576
#define MAX_MICRO 65536
#define MAX_SAMPLES ((int64_t)1 << 40)
#define MAX_NUMBER 1e18

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The first text that stands there twice, or NULL; sorts 'texts'. */
static const char *find_twin(const char **texts, size_t n)
{
    qsort(texts, n, sizeof(*texts), by_text);
    for (size_t i = 1; i < n; i++)
        if (strcmp(texts[i - 1], texts[i]) == 0)
            return texts[i];
    return NULL;
}

static int read_block_object(struct json_reader *r, struct plan_block *block, struct err *err)
{
    const char *name, *first, *last;

    if (json_get_string(r, "name", true, NULL, &name, err) ||
        json_get_string(r, "first", true, NULL, &first, err) ||
        json_get_string(r, "last", true, NULL, &last, err) || json_reader_end(r, err))
        return -1;
    block->name = mem_strdup(name);
    block->first_node = mem_strdup(first);
    block->last_node = mem_strdup(last);
    return 0;
}

static int read_blocks(struct json_reader *r, struct plan_stage *stage, struct err *err)
{
    struct json_reader sub;
    const json_t *list;

    if (json_get_array(r, "blocks", true, &list, err))
        return -1;
    if (json_array_size(list) < 1 || json_array_size(list) > MAX_DEVICES)
        return json_error(r, "blocks", err, "a stage needs at least one block");
    stage->blocks = mem_new(json_array_size(list), sizeof(*stage->blocks));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);

        stage->n_blocks = (int)i + 1;
        if (json_is_string(item))
            stage->blocks[i].name = mem_strdup(json_string_value(item));
        else if (json_reader_sub(&sub, r, "blocks", (int)i, item, err) ||
                 read_block_object(&sub, &stage->blocks[i], err))
            return -1;
    }
    return 0;
}

static int read_pipeline(const struct json_reader *r, const json_t *ids,
                         struct plan_stage *stage, int p, struct err *err)
{
    if (!json_is_array(ids) || json_array_size(ids) != (size_t)stage->replicas)
        return json_error(r, "devices", err, "expected a list of %d ids for each pipeline",
                          stage->replicas);
    for (int i = 0; i < stage->replicas; i++) {
        const json_t *id = json_array_get(ids, (size_t)i);

        if (!json_is_string(id) || !json_string_value(id)[0])
            return json_error(r, "devices", err, "expected ids, which are strings");
        stage->devices[p * stage->replicas + i] = mem_strdup(json_string_value(id));
    }
    return 0;
}

static int read_devices(const struct plan *plan, struct json_reader *r,
                        struct plan_stage *stage, struct err *err)
{
    const json_t *list;

    if (json_get_array(r, "devices", true, &list, err))
        return -1;
    if (json_array_size(list) != (size_t)plan->pipelines)
        return json_error(r, "devices", err, "expected %d lists, one for each pipeline",
                          plan->pipelines);
    if ((int64_t)plan->pipelines * stage->replicas > MAX_DEVICES)
        return json_error(r, "devices", err, "more than %d devices", MAX_DEVICES);
    stage->devices = mem_new((size_t)plan->pipelines * (size_t)stage->replicas,
                             sizeof(*stage->devices));
    for (int p = 0; p < plan->pipelines; p++)
        if (read_pipeline(r, json_array_get(list, (size_t)p), stage, p, err))
            return -1;
    return 0;
}

/* The shares follow from the micro-batch; a file that says otherwise is wrong. */
static int read_samples(const struct plan *plan, struct json_reader *r,
                        struct plan_stage *stage, struct err *err)
{
    int64_t b = plan->micro_batch, group = plan->batchnorm_samples;
    const json_t *list;

    if (json_get_array(r, "samples", false, &list, err))
        return -1;
    if (list && json_array_size(list) != (size_t)stage->replicas)
        return json_error(r, "samples", err, "expected %d shares", stage->replicas);
    stage->samples = mem_new((size_t)stage->replicas, sizeof(*stage->samples));
    for (int i = 0; i < stage->replicas; i++) {
        const json_t *given = json_array_get(list, (size_t)i);
        int64_t share = plan_share_start(b, stage->replicas, i + 1) -
                        plan_share_start(b, stage->replicas, i);

        if (given && (!json_is_integer(given) || json_integer_value(given) != share))
            return json_error(r, "samples", err, "replica %d of %d owns %lld of %lld samples",
                              i, stage->replicas, (long long)share, (long long)b);
        if (group && share % group)
            return json_error(r, "samples", err, "replica %d's share of %lld is not a multiple"
                              " of \"batchnorm_samples\", %lld", i, (long long)share,
                              (long long)group);
        stage->samples[i] = share;
    }
    return 0;
}

static int read_figures(struct json_reader *r, struct plan_stage *stage, struct err *err)
{
    const double zero = 0, any = INFINITY;
    const int64_t one = 1;
    const char *recompute;
    int64_t tensor;

    if (json_get_number(r, "forward", 0, MAX_NUMBER, &zero, &stage->forward, err) ||
        json_get_number(r, "dgrad", 0, MAX_NUMBER, &zero, &stage->dgrad, err) ||
        json_get_number(r, "wgrad", 0, MAX_NUMBER, &zero, &stage->wgrad, err) ||
        json_get_number(r, "allreduce", 0, MAX_NUMBER, &zero, &stage->allreduce, err) ||
        json_get_number(r, "busy", 0, MAX_NUMBER, &zero, &stage->busy, err) ||
        json_get_number(r, "reducing", 0, MAX_NUMBER, &zero, &stage->reducing, err) ||
        json_get_number(r, "idle", 0, MAX_NUMBER, &zero, &stage->idle, err) ||
        json_get_number(r, "memory", 0, MAX_NUMBER, &zero, &stage->memory, err) ||
        json_get_number(r, "memory_limit", 0, MAX_NUMBER, &any, &stage->memory_limit, err) ||
        json_get_number(r, "parameters", 0, MAX_NUMBER, &zero, &stage->parameters, err) ||
        json_get_number(r, "sent", 0, MAX_NUMBER, &zero, &stage->sent, err) ||
        json_get_string(r, "recompute", false, "none", &recompute, err) ||
        json_get_int(r, "tensor", 1, 1, &one, &tensor, err))
        return -1;
    stage->recompute = plan_recompute_find(recompute);
    if (stage->recompute == PLAN_RECOMPUTE_COUNT)
        return json_error(r, "recompute", err, "expected none, selective or full");
    return 0;
}

static int read_stage(const struct plan *plan, struct json_reader *r, struct plan_stage *stage,
                      struct err *err)
{
    int64_t replicas, most = plan->micro_batch < MAX_DEVICES ? plan->micro_batch : MAX_DEVICES;

    if (json_get_int(r, "replicas", 1, most, NULL, &replicas, err))
        return -1;
    stage->replicas = (int)replicas;
    if (read_blocks(r, stage, err) || read_devices(plan, r, stage, err) ||
        read_samples(plan, r, stage, err) || read_figures(r, stage, err))
        return -1;
    return json_reader_end(r, err);
}

/* Stage 's' has the devices of stage 'like'. */
static bool same_devices(const struct plan *plan, int s, int like)
{
    const struct plan_stage *a = &plan->stages[s], *b = &plan->stages[like];

    if (a->replicas != b->replicas)
        return false;
    for (int i = 0; i < plan->pipelines * a->replicas; i++)
        if (strcmp(a->devices[i], b->devices[i]) != 0)
            return false;
    return true;
}

/* The devices of the lists, each list's once. */
static int check_devices(const struct plan *plan, int *first, struct err *err)
{
    const char **ids = NULL, *twin;
    size_t n = 0;

    for (int s = 0; s < plan->n_stages; s++) {
        int like = first[plan_list(plan, s)], all = plan->pipelines * plan->stages[s].replicas;

        if (!same_devices(plan, s, like)) {
            free(ids);
            err_set(err, "\"%s\" runs stages %d and %d on the same devices, in the same order",
                    plan->schedule, like, s);
            return err_hint(err, "tasuki plan --schedule %s makes such a plan", plan->schedule);
        }
        if (s != like)
            continue;
        ids = mem_resize(ids, n + (size_t)all, sizeof(*ids));
        for (int i = 0; i < all; i++)
            ids[n++] = plan->stages[s].devices[i];
    }
    twin = find_twin(ids, n);
    free(ids);
    return twin ? err_set(err, "device \"%s\" stands there twice", twin) : 0;
}

int plan_check_lists(const struct plan *plan, struct err *err)
{
    enum schedule_kind kind = (enum schedule_kind)schedule_find(plan->schedule);
    int n_lists = plan_lists(plan), *first, bad;

    if (plan->list && plan->list->n_stages != plan->n_stages)
        return err_set(err, "instructions for %d stages, and there are %d",
                       plan->list->n_stages, plan->n_stages);
    if (!plan->list && plan->n_stages % plan->chunks)
        return err_set(err, "%d stages are not %d for each device, as \"%s\" has them",
                       plan->n_stages, plan->chunks, plan->schedule);
    if (!plan->list && schedule_suits(kind, n_lists, plan->micro_batches, err))
        return -1;
    first = mem_new((size_t)n_lists, sizeof(*first));
    for (int s = plan->n_stages - 1; s >= 0; s--)
        first[plan_list(plan, s)] = s;
    bad = check_devices(plan, first, err);
    free(first);
    return bad;
}

/* Blocks are in one stage each, devices in one list. */
static int check_unique(const struct plan *plan, const struct json_reader *r, struct err *err)
{
    size_t n_blocks = 0, b = 0;
    const char **names, *twin;
    struct err why = { 0 };

    for (int s = 0; s < plan->n_stages; s++)
        n_blocks += (size_t)plan->stages[s].n_blocks;
    names = mem_new(n_blocks, sizeof(*names));
    for (int s = 0; s < plan->n_stages; s++)
        for (int i = 0; i < plan->stages[s].n_blocks; i++)
            names[b++] = plan->stages[s].blocks[i].name;
    twin = find_twin(names, n_blocks);
    free(names);
    if (twin)
        return json_error(r, "stages", err, "block \"%s\" stands there twice", twin);
    return plan_check_lists(plan, &why) ? json_error(r, "stages", err, "%s", why.text) : 0;
}

static int read_stages(struct plan *plan, struct json_reader *r, struct err *err)
{
    struct json_reader sub;
    const json_t *list;
    size_t n;

    if (json_get_array(r, "stages", true, &list, err))
        return -1;
    n = json_array_size(list);
    if (n < 1 || n > MAX_STAGES)
        return json_error(r, "stages", err, "expected 1 to %d stages", MAX_STAGES);
    plan->stages = mem_new(n, sizeof(*plan->stages));
    for (size_t s = 0; s < n; s++) {
        plan->n_stages = (int)s + 1;
        if (json_reader_sub(&sub, r, "stages", (int)s, json_array_get(list, s), err) ||
            read_stage(plan, &sub, &plan->stages[s], err))
            return -1;
    }
    return check_unique(plan, r, err);
}

static int read_one_shared(const struct plan *plan, struct json_reader *r,
                           struct plan_shared *shared, struct err *err)
{
    const json_t *list;
    const char *name;
    int64_t owner;

    if (json_get_string(r, "name", true, NULL, &name, err) ||
        json_get_int(r, "owner", 0, plan->n_stages - 1, NULL, &owner, err) ||
        json_get_array(r, "stages", true, &list, err))
        return -1;
    shared->name = mem_strdup(name);
    shared->owner = (int)owner;
    shared->n_stages = (int)json_array_size(list);
    if (shared->n_stages < 1 || shared->n_stages > plan->n_stages)
        return json_error(r, "stages", err, "expected 1 to %d stages", plan->n_stages);
    shared->stages = mem_new((size_t)shared->n_stages, sizeof(*shared->stages));
    for (int i = 0; i < shared->n_stages; i++) {
        const json_t *item = json_array_get(list, (size_t)i);
        json_int_t s = json_is_integer(item) ? json_integer_value(item) : -1;

        if (s < 0 || s >= plan->n_stages || (i && s <= shared->stages[i - 1]))
            return json_error(r, "stages", err, "expected stages in ascending order");
        shared->stages[i] = (int)s;
    }
    if (shared->owner != shared->stages[0])
        return json_error(r, "owner", err, "expected the lowest of its stages, %d",
                          shared->stages[0]);
    return json_reader_end(r, err);
}

static int read_shared(struct plan *plan, struct json_reader *r, struct err *err)
{
    struct json_reader sub;
    const json_t *list;

    if (json_get_array(r, "shared", false, &list, err))
        return -1;
    if (json_array_size(list) > MAX_DEVICES)
        return json_error(r, "shared", err, "more than %d", MAX_DEVICES);
    plan->shared = mem_new(json_array_size(list), sizeof(*plan->shared));
    for (size_t i = 0; i < json_array_size(list); i++) {
        plan->n_shared = (int)i + 1;
        if (json_reader_sub(&sub, r, "shared", (int)i, json_array_get(list, i), err) ||
            read_one_shared(plan, &sub, &plan->shared[i], err))
            return -1;
    }
    return 0;
}

/* Lines as in a file. Against the stages they are checked when their messages are known. */
static int read_instructions(struct plan *plan, struct json_reader *r, struct err *err)
{
    const json_t *lines;
    char *text = NULL, *path;
    size_t size = 0;
    FILE *file;
    int bad = 0;

    if (json_get_array(r, "instructions", false, &lines, err))
        return -1;
    if (!lines)
        return 0;
    file = open_memstream(&text, &size);
    for (size_t i = 0; file && i < json_array_size(lines) && !bad; i++) {
        const char *line = json_string_value(json_array_get(lines, i));

        bad = !line || strchr(line, '\n');
        fprintf(file, "%s\n", bad ? "" : line);
    }
    if (!file || fclose(file) || bad) {
        free(text);
        return json_error(r, "instructions", err, "expected lines, which are strings");
    }
    path = mem_printf("%s: instructions", r->file);
    file = fmemopen(text, size, "r");
    plan->list = file ? schedule_read(path, file, err)
                      : (json_error(r, "instructions", err, "there are none"), NULL);
    if (file)
        fclose(file);
    free(path);
    free(text);
    return plan->list ? 0 : -1;
}

static int read_schedule(struct plan *plan, struct json_reader *r, struct err *err)
{
    const double zero = 0;
    struct json_reader sub;
    enum schedule_kind kind;
    const char *name;
    const json_t *options;
    int64_t least, chunks = 1, most = 1;

    if (json_get_string(r, "schedule", true, NULL, &name, err) ||
        json_get_object(r, "schedule_options", false, &options, err))
        return -1;
    plan->schedule = mem_strdup(name);
    if (read_instructions(plan, r, err))
        return -1;
    if (schedule_find(name) < 0 && !plan->list)
        return json_error(r, "schedule", err, "expected " SCHEDULE_NAMES ", got \"%s\"", name);
    if (!plan->list) {
        kind = (enum schedule_kind)schedule_find(name);
        chunks = schedule_chunks(kind, 2);
        most = schedule_chunks(kind, SCHEDULE_MAX_CHUNKS);
    }
    least = chunks;
    if (options &&
        (json_reader_sub(&sub, r, "schedule_options", -1, options, err) ||
         json_get_int(&sub, "chunks", least, most, &least, &chunks, err) ||
         json_get_number(&sub, "memory", 0, SCHEDULE_MEMORY, &zero, &plan->schedule_memory,
                         err) ||
         json_reader_end(&sub, err)))
        return -1;
    if (plan->schedule_memory > 0 && plan->schedule_memory < 1)
        return json_error(&sub, "memory", err, "expected 0, or 1 to %g", SCHEDULE_MEMORY);
    plan->chunks = (int)chunks;
    return 0;
}

static int read_model(struct plan *plan, struct json_reader *r, struct err *err)
{
    struct json_reader sub;
    const char *path, *hash;
    const json_t *model;

    if (json_is_null(json_object_get(r->object, "model")))
        return json_error(r, "model", err, "expected an object; leave it out where there is "
                          "no model");
    if (json_get_object(r, "model", false, &model, err))
        return -1;
    if (!model)
        return 0;
    if (json_reader_sub(&sub, r, "model", -1, model, err) ||
        json_get_string(&sub, "path", true, NULL, &path, err) ||
        json_get_string(&sub, "xxh3", false, "", &hash, err) || json_reader_end(&sub, err))
        return -1;
    plan->model_path = mem_strdup(path);
    plan->model_hash = mem_strdup(hash);
    return 0;
}

static int read_text(struct json_reader *r, const char *key, const char *def, char **result,
                     struct err *err)
{
    const char *value;

    if (json_get_string(r, key, false, def, &value, err))
        return -1;
    *result = mem_strdup(value);
    return 0;
}

static int read_offload(struct plan *plan, struct json_reader *r, struct err *err)
{
    const char *what;

    if (json_get_string(r, "offload", false, "none", &what, err))
        return -1;
    plan->offload = strcmp(what, "optimizer") == 0;
    return plan->offload || strcmp(what, "none") == 0
               ? 0 : json_error(r, "offload", err, "expected \"none\" or \"optimizer\"");
}

static int read_batch(struct plan *plan, struct json_reader *r, struct err *err)
{
    const int64_t one = 1, none = 0;
    int64_t pipelines, samples;

    if (json_get_int(r, "global_batch", 1, MAX_SAMPLES, NULL, &plan->global_batch, err) ||
        json_get_int(r, "micro_batches", 1, MAX_MICRO, NULL, &plan->micro_batches, err) ||
        json_get_int(r, "micro_batch", 1, MAX_SAMPLES, NULL, &plan->micro_batch, err) ||
        json_get_int(r, "pipelines", 1, MAX_DEVICES, &one, &pipelines, err) ||
        json_get_int(r, "batchnorm_samples", 0, MAX_SAMPLES, &none, &plan->batchnorm_samples,
                     err))
        return -1;
    plan->pipelines = (int)pipelines;
    if (__builtin_mul_overflow(plan->micro_batches, plan->micro_batch, &samples) ||
        __builtin_mul_overflow(samples, pipelines, &samples) || samples != plan->global_batch)
        return json_error(r, "global_batch", err, "expected pipelines x micro_batches x "
                          "micro_batch");
    return 0;
}

static int read_freeze(struct plan *plan, struct json_reader *r, struct err *err)
{
    const json_t *list;

    if (json_get_array(r, "freeze", false, &list, err))
        return -1;
    if (!list)
        return 0;
    plan->freeze = mem_new(json_array_size(list), sizeof(*plan->freeze));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);

        if (!json_is_string(item))
            return json_error(r, "freeze", err, "expected names or patterns, which are strings");
        plan->freeze[plan->n_freeze++] = mem_strdup(json_string_value(item));
    }
    return 0;
}

static int read_top(struct plan *plan, struct json_reader *r, struct err *err)
{
    const double zero = 0;
    const bool no = false;

    if (read_batch(plan, r, err) || read_schedule(plan, r, err) ||
        read_freeze(plan, r, err) ||
        json_get_bool(r, "zero", &no, &plan->zero, err) || read_offload(plan, r, err) ||
        json_get_number(r, "iteration_seconds", 0, MAX_NUMBER, &zero, &plan->iteration_seconds,
                        err) ||
        json_get_number(r, "lower_bound_seconds", 0, MAX_NUMBER, &zero,
                        &plan->lower_bound_seconds, err) ||
        json_get_number(r, "flops", 0, MAX_NUMBER * MAX_NUMBER, &zero, &plan->flops, err) ||
        json_get_number(r, "peak_flops", 0, MAX_NUMBER * MAX_NUMBER, &zero, &plan->peak_flops,
                        err) ||
        read_model(plan, r, err) || read_text(r, "cluster", "", &plan->cluster, err) ||
        read_text(r, "precision", "float32", &plan->precision, err) ||
        read_text(r, "optimizer", "", &plan->optimizer, err) ||
        read_text(r, "command", "", &plan->command, err) || read_stages(plan, r, err) ||
        read_shared(plan, r, err))
        return -1;
    return json_reader_end(r, err);
}

struct plan *plan_from_json(const char *path, const json_t *json, struct err *err)
{
    struct plan *plan = mem_new(1, sizeof(*plan));
    struct json_reader r;

    if (json_reader_top(&r, path, json, "tasuki-plan", 1, err) == 0 &&
        read_top(plan, &r, err) == 0)
        return plan;
    plan_free(plan);
    return NULL;
}

bool plan_is_file(const char *path)
{
    size_t length = strlen(path);

    return length > 5 && strcmp(path + length - 5, ".json") == 0;
}

struct plan *plan_load(const char *path, struct err *err)
{
    json_t *json = json_load(path, err);
    struct plan *plan;

    if (!json)
        return NULL;
    plan = plan_from_json(path, json, err);
    json_decref(json);
    return plan;
}
