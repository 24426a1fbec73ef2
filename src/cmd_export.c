/* SPDX-License-Identifier: MIT */
/* tasuki export: a checkpoint becomes an ONNX file or a safetensors file. */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "commands.h"
#include "graph/model.h"
#include "scheduler/plan.h"
#include "train/checkpoint.h"
#include "train/safetensors.h"

/* What is exported. */
struct source {
    struct checkpoint *checkpoint;
    bool averages;          /* of parameters; statistics have none */
};

/* -1: it is not in the checkpoint. */
static int find(const struct source *source, const char *name)
{
    int index = source->averages ? checkpoint_find(source->checkpoint, name, CHECKPOINT_EMA)
                                 : -1;

    return index >= 0 ? index : checkpoint_find(source->checkpoint, name, CHECKPOINT_VALUE);
}

/* Bytes of an initializer for model_export(). */
static int get_tensor(void *user, const char *name, enum dtype dtype, size_t elements,
                      void *data, struct err *err)
{
    const struct source *source = user;
    const struct checkpoint *checkpoint = source->checkpoint;
    int index = find(source, name);
    enum checkpoint_kind kind;
    enum dtype saved;
    struct shape shape;

    if (index < 0)
        return 1;
    checkpoint_name(checkpoint, index, &kind, &shape, &saved);
    if ((size_t)shape_elements(&shape) != elements)
        return err_set(err, "%s: \"%s\" has %lld elements, the model %zu",
                       checkpoint_path(checkpoint), name, (long long)shape_elements(&shape),
                       elements);
    if (!dtype_is_float(dtype))
        return err_set(err, "%s: \"%s\" is %s in the model", checkpoint_path(checkpoint), name,
                       dtype_name(dtype));
    checkpoint_read(checkpoint, index, dtype, data);
    return 0;
}

/* The model that the checkpoint is of, at 'path' or where it was. */
static struct model *open_model(const struct checkpoint *checkpoint, const char *path,
                                struct err *err)
{
    const struct checkpoint_state *state = checkpoint_state(checkpoint);
    struct model *model = model_open(path ? path : state->model_path, err);

    if (!model || !*state->model_hash || !*model_hash(model) ||
        strcmp(state->model_hash, model_hash(model)) == 0)
        return model;
    err_set(err, "%s: not the graph that %s was trained from", model_path(model),
            checkpoint_path(checkpoint));
    model_close(model);
    return NULL;
}

/* A statistic that the file has merged with another has no place of its own in it. */
static int check_places(const struct checkpoint *checkpoint, const struct model *model,
                        struct err *err)
{
    for (int i = 0; i < checkpoint_count(checkpoint); i++) {
        enum checkpoint_kind kind;
        enum dtype dtype;
        struct shape shape;
        const char *name = checkpoint_name(checkpoint, i, &kind, &shape, &dtype);

        if (kind == CHECKPOINT_VALUE && !model_has(model, name))
            return err_set(err, "%s: \"%s\" has no place in it, since its exporter merged what "
                           "was equal: write --format safetensors", model_path(model), name);
    }
    return 0;
}

static int export_onnx(struct source *source, const char *path, const char *output,
                       struct err *err)
{
    struct model *model = open_model(source->checkpoint, path, err);
    int bad = model && !check_places(source->checkpoint, model, err)
                  ? model_export(model, output, get_tensor, source, err) : -1;

    model_close(model);
    return bad;
}

/* Tensors to be written, with memory of their own. */
struct tensor_list {
    int n;
    struct safetensors_tensor *items;
};

static void *add_tensor(struct tensor_list *list, const char *name, enum dtype dtype,
                        const struct shape *shape, struct err *err)
{
    void *data = mem_try((size_t)shape_elements(shape), dtype_size(dtype), err);

    if (data)
        *(struct safetensors_tensor *)mem_push((void **)&list->items, &list->n,
                                               sizeof(*list->items)) =
            (struct safetensors_tensor){ .name = name, .dtype = dtype, .shape = *shape,
                                         .data = data };
    return data;
}

static int add_saved(struct tensor_list *list, const struct source *source, struct err *err)
{
    const struct checkpoint *checkpoint = source->checkpoint;

    for (int i = 0; i < checkpoint_count(checkpoint); i++) {
        enum checkpoint_kind kind;
        enum dtype dtype;
        struct shape shape;
        const char *name = checkpoint_name(checkpoint, i, &kind, &shape, &dtype);
        void *data;

        if (kind != CHECKPOINT_VALUE)
            continue;
        data = add_tensor(list, name, dtype, &shape, err);
        if (!data)
            return -1;
        checkpoint_read(checkpoint, find(source, name), dtype, data);
    }
    return 0;
}

/* What --freeze left as it was is in the model alone. */
static int add_frozen(struct tensor_list *list, const struct checkpoint *checkpoint,
                      const struct plan *plan, const struct model *model, struct err *err)
{
    int n, bad = 0;
    struct model_tensor_data *frozen =
        model_frozen(model, plan->n_freeze, (const char *const *)plan->freeze, &n);

    for (int i = 0; i < n && !bad; i++) {
        const struct model_tensor_data *t = &frozen[i];
        void *data;

        if (checkpoint_find(checkpoint, t->name, CHECKPOINT_VALUE) >= 0)
            continue;
        if (!t->data && shape_elements(&t->shape)) {
            bad = err_set(err, "%s: \"%s\" was frozen, and has no values in this file",
                          model_path(model), t->name);
            continue;
        }
        data = add_tensor(list, t->name, t->dtype, &t->shape, err);
        bad = data ? 0 : -1;
        if (data)
            memcpy(data, t->data, (size_t)shape_elements(&t->shape) * dtype_size(t->dtype));
    }
    free(frozen);
    return bad;
}

static struct plan *plan_of(const struct checkpoint *checkpoint)
{
    const struct checkpoint_state *state = checkpoint_state(checkpoint);
    struct err ignored = { 0 };

    return state->plan ? plan_from_json("plan", state->plan, &ignored) : NULL;
}

/* Parameters and statistics, without the optimizer's state. */
static int export_safetensors(const struct source *source, const char *path,
                              const char *output, struct err *err)
{
    const struct checkpoint *checkpoint = source->checkpoint;
    struct plan *plan = plan_of(checkpoint);
    struct model *model = NULL;
    struct tensor_list list = { 0 };
    int bad = add_saved(&list, source, err);

    if (!bad && plan && plan->n_freeze) {
        model = open_model(checkpoint, path, err);
        bad = model ? add_frozen(&list, checkpoint, plan, model, err) : -1;
    }
    if (!bad)
        bad = safetensors_replace(output, list.n, list.items, err);
    for (int i = 0; i < list.n; i++)
        free((void *)(uintptr_t)list.items[i].data);
    free(list.items);
    model_close(model);
    plan_free(plan);
    return bad;
}

static bool has_averages(const struct checkpoint *checkpoint)
{
    return checkpoint_state(checkpoint)->recipe.ema > 0;
}

static int run_export(const struct options *o, struct err *err)
{
    const char *output = option_string(o, "output", NULL);
    struct source source = { .averages = option_flag(o, "ema", false) };
    struct checkpoint *checkpoint;
    int format, bad;

    if (options_operands(o) != 1)
        return err_set_code(err, EXIT_USAGE, "export: expected a checkpoint directory");
    if (!output || strcmp(output, "-") == 0)
        return err_set_code(err, EXIT_USAGE, "export: -o FILE is missing");
    if (option_word(o, "format", &format, err) < 0)
        return -1;
    if (!option_given(o, "format"))
        format = file_ends_in(output, ".safetensors") ? 1 : 0;
    checkpoint = checkpoint_open(options_operand(o, 0), err);
    if (!checkpoint)
        return -1;
    if (checkpoint_is_aside(checkpoint_path(checkpoint)))
        log_warning("%s: a run was killed while it replaced this checkpoint: taking the older "
                    "one", checkpoint_path(checkpoint));
    source.checkpoint = checkpoint;
    if (source.averages && !has_averages(checkpoint))
        bad = err_set(err, "%s: no averages: it was made without --ema",
                      checkpoint_path(checkpoint));
    else if (format == 1)
        bad = export_safetensors(&source, option_string(o, "model", NULL), output, err);
    else
        bad = export_onnx(&source, option_string(o, "model", NULL), output, err);
    if (!bad)
        log_info("%s: step %lld of %s", output,
                 (long long)checkpoint_state(checkpoint)->step, checkpoint_path(checkpoint));
    checkpoint_close(checkpoint);
    return bad;
}

int cmd_export(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_EXPORT, argc, argv, 1, err);
    int bad = options ? run_export(options, err) : -1;

    options_free(options);
    return bad < 0 ? (int)err->code : EXIT_OK;
}
