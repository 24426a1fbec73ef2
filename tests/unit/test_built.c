/* SPDX-License-Identifier: MIT */
/* A stage needs the same memory whether its graph was kept from another stage or built for it. */
#include "unit.h"

#include "base/mem.h"
#include "scheduler/blocks.h"
#include "train/compile.h"

#define MICRO_BATCH 4

struct scene {
    struct model *model;
    struct model_options options;
    struct blocks *blocks;
    struct device *device;
    const struct backend *backend;
};

static void open_scene(struct scene *s, const char *network)
{
    const char *source = getenv("srcdir");
    struct err err = { 0 };
    struct graph *graph;
    char path[600];

    *s = (struct scene){ .options = { .real = DTYPE_F32, .fuse = true } };
    snprintf(path, sizeof(path), "%s/tests/data/model/%s/model.onnx", source ? source : "..",
             network);
    s->backend = backend_find("cpu");
    if (!s->backend)
        s->backend = backend_find("reference");
    s->device = s->backend->device_open(1, NULL, &err);
    s->model = s->device ? model_open(path, &err) : NULL;
    s->options.batch = MICRO_BATCH;
    s->options.batchnorm_samples = 1;
    graph = s->model ? model_build(s->model, &s->options, &err) : NULL;
    s->blocks = graph ? blocks_new(graph, &err) : NULL;
    graph_free(graph);
    if (!s->blocks)
        fail_msg("%s", err.text);
}

static void close_scene(struct scene *s)
{
    blocks_free(s->blocks);
    model_close(s->model);
    s->backend->device_close(s->device);
}

static json_t *stage_json(const struct scene *s, int first, int end, json_t *devices)
{
    json_t *names = json_array();

    for (int b = first; b < end; b++)
        json_array_append_new(names, json_string(s->blocks->items[b].name));
    return json_pack("{s:o, s:i, s:[o]}", "blocks", names, "replicas",
                     (int)json_array_size(devices), "devices", devices);
}

/* Two stages; the second has two replicas, so that graphs of two sizes are wanted. */
static struct plan *plan_cut(const struct scene *s, int cut)
{
    struct err err = { 0 };
    json_t *json = json_pack("{s:s, s:i, s:i, s:i, s:i, s:s, s:i, s:b, s:[o, o]}", "schema",
                             "tasuki-plan", "version", 1, "global_batch", 2 * MICRO_BATCH,
                             "micro_batches", 2, "micro_batch", MICRO_BATCH, "schedule", "1f1b",
                             "batchnorm_samples", 1, "zero", 1, "stages",
                             stage_json(s, 0, cut, json_pack("[s]", "0")),
                             stage_json(s, cut, s->blocks->n, json_pack("[s, s]", "1", "2")));
    struct plan *plan = plan_from_json("plan", json, &err);

    json_decref(json);
    if (!plan)
        fail_msg("%s", err.text);
    return plan;
}

static struct memory_use memory_of(const struct scene *s, struct built *built,
                                   const struct plan *plan, int stage)
{
    const struct compile_options options = {
        .model = s->model, .model_options = s->options, .built = built, .plan = plan,
        .backend = s->backend, .device = s->device, .optimizer_states = 2,
    };
    struct err err = { 0 };
    struct compiled *compiled = compile_stage(&options, stage, 0, &err);
    struct memory_use use;

    if (!compiled)
        fail_msg("%s", err.text);
    use = compiled->memory;
    compiled_free(compiled);
    return use;
}

static void stages_need_what_they_need_alone(void **state)
{
    static const char *const networks[] = { "cnn", "skips", "tied", "transformer-dropout" };

    (void)state;
    for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
        struct scene s;
        struct built *built;

        open_scene(&s, networks[i]);
        built = built_new(s.model, &s.options);
        for (int cut = 1; cut < s.blocks->n; cut++) {
            struct plan *plan = plan_cut(&s, cut);

            /* In both orders: the second finds what the first left. */
            for (int k = 0; k < 4; k++) {
                int stage = k < 2 ? k : 3 - k;
                struct memory_use alone = memory_of(&s, NULL, plan, stage);
                struct memory_use kept = memory_of(&s, built, plan, stage);

                assert_true(alone.total > 0);
                assert_memory_equal(&alone, &kept, sizeof(alone));
            }
            plan_free(plan);
        }
        built_free(built);
        close_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_need_what_they_need_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
