/* SPDX-License-Identifier: MIT */
#include "scheduler/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "scheduler/schedule.h"

int64_t plan_share_start(int64_t b, int r, int i)
{
    return i * b / r;
}

/* NULL: it is absolute, or the plan is here. */
static char *beside(const char *path, const char *plan_path)
{
    const char *slash = strrchr(plan_path, '/');

    return path[0] == '/' || !slash
               ? NULL : mem_printf("%.*s%s", (int)(slash + 1 - plan_path), plan_path, path);
}

char *plan_find_model(const struct plan *plan, const char *plan_path)
{
    char *other = access(plan->model_path, R_OK) ? beside(plan->model_path, plan_path) : NULL;

    return other ? other : mem_strdup(plan->model_path);
}

/* "FILE", or "FILE:N", of which so many nodes are taken. */
static bool is_file(const char *cluster)
{
    const char *number = strrchr(cluster, ':') ? strrchr(cluster, ':') + 1 : "";
    char *path = mem_strdup(cluster);
    struct stat status;
    bool there = stat(path, &status) == 0 && S_ISREG(status.st_mode);

    if (!there && number[0] && number[strspn(number, "0123456789")] == '\0') {
        *strrchr(path, ':') = '\0';
        there = stat(path, &status) == 0 && S_ISREG(status.st_mode);
    }
    free(path);
    return there;
}

char *plan_find_cluster(const struct plan *plan, const char *plan_path)
{
    char *other = is_file(plan->cluster) ? NULL : beside(plan->cluster, plan_path);

    if (other && is_file(other))
        return other;
    free(other);
    return mem_strdup(plan->cluster);
}

bool plan_suits(const struct plan *plan, const char *model_hash)
{
    return !plan->model_hash || !plan->model_hash[0] || !model_hash[0] ||
           strcmp(plan->model_hash, model_hash) == 0;
}

const char *plan_recompute_name(enum plan_recompute recompute)
{
    static const char *const names[] = { "none", "selective", "full" };

    return names[recompute];
}

enum plan_recompute plan_recompute_find(const char *name)
{
    enum plan_recompute r = PLAN_RECOMPUTE_NONE;

    while (r < PLAN_RECOMPUTE_COUNT && strcmp(plan_recompute_name(r), name) != 0)
        r++;
    return r;
}

static void free_stage(struct plan_stage *stage, int pipelines)
{
    for (int i = 0; i < stage->n_blocks; i++) {
        free(stage->blocks[i].name);
        free(stage->blocks[i].first_node);
        free(stage->blocks[i].last_node);
    }
    for (int i = 0; stage->devices && i < pipelines * stage->replicas; i++)
        free(stage->devices[i]);
    free(stage->blocks);
    free(stage->devices);
    free(stage->samples);
}

static void free_freeze(struct plan *plan)
{
    for (int i = 0; i < plan->n_freeze; i++)
        free(plan->freeze[i]);
    free(plan->freeze);
}

void plan_set_freeze(struct plan *plan, int n, const char *const *patterns)
{
    free_freeze(plan);
    plan->n_freeze = n;
    plan->freeze = mem_new((size_t)n, sizeof(*plan->freeze));
    for (int i = 0; i < n; i++)
        plan->freeze[i] = mem_strdup(patterns[i]);
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    for (int s = 0; s < plan->n_stages; s++)
        free_stage(&plan->stages[s], plan->pipelines);
    for (int i = 0; i < plan->n_shared; i++) {
        free(plan->shared[i].name);
        free(plan->shared[i].stages);
    }
    free_freeze(plan);
    free(plan->stages);
    free(plan->stage_of);
    free(plan->shared);
    free(plan->schedule);
    schedule_free(plan->list);
    free(plan->model_path);
    free(plan->model_hash);
    free(plan->cluster);
    free(plan->precision);
    free(plan->optimizer);
    free(plan->command);
    free(plan);
}

static json_t *text(const char *t)
{
    return t ? json_string(t) : json_string("");
}

static json_t *blocks_to_json(const struct plan_stage *stage)
{
    json_t *list = json_array();

    for (int i = 0; i < stage->n_blocks; i++) {
        const struct plan_block *b = &stage->blocks[i];

        if (b->first_node && b->last_node)
            json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", b->name, "first",
                                                  b->first_node, "last", b->last_node));
        else
            json_array_append_new(list, json_string(b->name));
    }
    return list;
}

static json_t *devices_to_json(const struct plan_stage *stage, int pipelines)
{
    json_t *list = json_array();

    for (int p = 0; p < pipelines; p++) {
        json_t *ids = json_array();

        for (int i = 0; i < stage->replicas; i++)
            json_array_append_new(ids, json_string(stage->devices[p * stage->replicas + i]));
        json_array_append_new(list, ids);
    }
    return list;
}

static json_t *stage_to_json(const struct plan_stage *stage, int pipelines)
{
    json_t *samples = json_array(), *o = json_object();

    for (int i = 0; i < stage->replicas; i++)
        json_array_append_new(samples, json_integer(stage->samples[i]));
    json_object_set_new(o, "blocks", blocks_to_json(stage));
    json_object_set_new(o, "replicas", json_integer(stage->replicas));
    json_object_set_new(o, "devices", devices_to_json(stage, pipelines));
    json_object_set_new(o, "samples", samples);
    json_object_set_new(o, "recompute", json_string(plan_recompute_name(stage->recompute)));
    json_object_set_new(o, "tensor", json_integer(1));
    json_object_set_new(o, "forward", json_real(stage->forward));
    json_object_set_new(o, "dgrad", json_real(stage->dgrad));
    json_object_set_new(o, "wgrad", json_real(stage->wgrad));
    json_object_set_new(o, "allreduce", json_real(stage->allreduce));
    json_object_set_new(o, "busy", json_real(stage->busy));
    json_object_set_new(o, "reducing", json_real(stage->reducing));
    json_object_set_new(o, "idle", json_real(stage->idle));
    json_object_set_new(o, "memory", json_real(stage->memory));
    if (isfinite(stage->memory_limit))
        json_object_set_new(o, "memory_limit", json_real(stage->memory_limit));
    json_object_set_new(o, "parameters", json_real(stage->parameters));
    json_object_set_new(o, "sent", json_real(stage->sent));
    return o;
}

static json_t *shared_to_json(const struct plan_shared *shared)
{
    json_t *stages = json_array();

    for (int i = 0; i < shared->n_stages; i++)
        json_array_append_new(stages, json_integer(shared->stages[i]));
    return json_pack("{s:s, s:i, s:o}", "name", shared->name, "owner", shared->owner, "stages",
                     stages);
}

/* The lines of its text. */
static json_t *list_to_json(const struct schedule *list)
{
    json_t *lines = json_array();
    char *text = NULL, *save = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out) {
        schedule_print(list, out);
        fclose(out);
    }
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        json_array_append_new(lines, json_string(line));
    free(text);
    return lines;
}

static json_t *freeze_to_json(const struct plan *plan)
{
    json_t *list = json_array();

    for (int i = 0; i < plan->n_freeze; i++)
        json_array_append_new(list, json_string(plan->freeze[i]));
    return list;
}

json_t *plan_to_json(const struct plan *plan)
{
    json_t *o = json_object(), *stages = json_array(), *shared = json_array();

    for (int s = 0; s < plan->n_stages; s++)
        json_array_append_new(stages, stage_to_json(&plan->stages[s], plan->pipelines));
    for (int i = 0; i < plan->n_shared; i++)
        json_array_append_new(shared, shared_to_json(&plan->shared[i]));
    json_object_set_new(o, "schema", json_string("tasuki-plan"));
    json_object_set_new(o, "version", json_integer(1));
    json_object_set_new(o, "global_batch", json_integer(plan->global_batch));
    json_object_set_new(o, "micro_batches", json_integer(plan->micro_batches));
    json_object_set_new(o, "micro_batch", json_integer(plan->micro_batch));
    json_object_set_new(o, "schedule", text(plan->schedule));
    json_object_set_new(o, "schedule_options",
                        json_pack("{s:i, s:f}", "chunks", plan->chunks, "memory",
                                  plan->schedule_memory));
    if (plan->list)
        json_object_set_new(o, "instructions", list_to_json(plan->list));
    json_object_set_new(o, "pipelines", json_integer(plan->pipelines));
    json_object_set_new(o, "zero", json_boolean(plan->zero));
    if (plan->offload)
        json_object_set_new(o, "offload", text("optimizer"));
    json_object_set_new(o, "batchnorm_samples", json_integer(plan->batchnorm_samples));
    if (plan->n_freeze)
        json_object_set_new(o, "freeze", freeze_to_json(plan));
    json_object_set_new(o, "iteration_seconds", json_real(plan->iteration_seconds));
    json_object_set_new(o, "lower_bound_seconds", json_real(plan->lower_bound_seconds));
    json_object_set_new(o, "flops", json_real(plan->flops));
    json_object_set_new(o, "peak_flops", json_real(plan->peak_flops));
    if (plan->model_path)
        json_object_set_new(o, "model",
                            json_pack("{s:s, s:o}", "path", plan->model_path, "xxh3",
                                      text(plan->model_hash)));
    json_object_set_new(o, "cluster", text(plan->cluster));
    json_object_set_new(o, "precision", text(plan->precision));
    json_object_set_new(o, "optimizer", text(plan->optimizer));
    json_object_set_new(o, "command", text(plan->command));
    json_object_set_new(o, "shared", shared);
    json_object_set_new(o, "stages", stages);
    return o;
}

int plan_save(const struct plan *plan, const char *path, struct err *err)
{
    json_t *json = plan_to_json(plan);
    int rc = json_save(json, path, err);

    json_decref(json);
    return rc;
}
