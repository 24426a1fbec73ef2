/* SPDX-License-Identifier: MIT */
#include "graph/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/build.h"
#include "graph/fuse.h"
#include "graph/model_private.h"
#include "graph/op.h"
#include "graph/tidy.h"

static void clear_notes(struct model *model)
{
    int i;

    for (i = 0; i < model->n_notes; i++)
        free(model->notes[i]);
    free(model->notes);
    model->notes = NULL;
    model->n_notes = 0;
}

static void clear_unsupported(struct model *model)
{
    int i;

    for (i = 0; i < model->n_unsupported; i++)
        free(model->unsupported[i].why);
    free(model->unsupported);
    model->unsupported = NULL;
    model->n_unsupported = 0;
}

static void add_note(void *user, const char *text)
{
    struct model *model = user;

    *(char **)mem_push((void **)&model->notes, &model->n_notes, sizeof(char *)) =
        mem_strdup(text);
}

/* Takes 'onnx', which may be NULL. */
static struct model *model_of(struct onnx *onnx)
{
    struct model *model;

    if (!onnx)
        return NULL;
    model = mem_new(1, sizeof(*model));
    model->onnx = onnx;
    return model;
}

struct model *model_open(const char *path, struct err *err)
{
    return model_of(onnx_open(path, err));
}

void *model_pack(const struct model *model, size_t *size)
{
    return onnx_pack(model->onnx, size);
}

struct model *model_unpack(const char *path, const void *packed, size_t size, struct err *err)
{
    return model_of(onnx_unpack(path, packed, size, err));
}

int model_initializers(const struct model *model)
{
    return model->onnx->n_initializers;
}

const void *model_large(const struct model *model, int index, size_t *bytes)
{
    *bytes = model->onnx->initializers[index].size;
    return model->onnx->large[index] ? model->onnx->initializers[index].data : NULL;
}

int model_find_large(const struct model *model, const void *data)
{
    const struct onnx *onnx = model->onnx;

    for (int i = 0; i < onnx->n_initializers; i++)
        if (onnx->large[i] && onnx->initializers[i].data == data)
            return i;
    return -1;
}

void model_drop(const struct model *model, const void *data, size_t bytes)
{
    onnx_drop(model->onnx, data, bytes);
}

void model_close(struct model *model)
{
    if (!model)
        return;
    clear_notes(model);
    clear_unsupported(model);
    onnx_close(model->onnx);
    free(model);
}

bool model_input(const struct model *model, int index, struct model_tensor *input)
{
    const struct onnx_input *in;

    if (index >= model->onnx->n_inputs)
        return false;
    in = &model->onnx->inputs[index];
    *input = (struct model_tensor){ .name = in->name, .dtype = in->dtype,
                                    .shape.rank = in->has_shape ? in->shape.rank - 1 : -1 };
    for (int i = 0; i < input->shape.rank; i++)
        input->shape.dim[i] = in->shape.dim[i + 1];
    return true;
}

const char *model_path(const struct model *model)
{
    return model->onnx->path;
}

const char *model_hash(const struct model *model)
{
    return model->onnx->hash;
}

int64_t model_opset(const struct model *model)
{
    return model->onnx->opset;
}

int model_notes(const struct model *model)
{
    return model->n_notes;
}

const char *model_note(const struct model *model, int index)
{
    return model->notes[index];
}

int model_unsupported(const struct model *model, const struct model_unsupported **list)
{
    *list = model->unsupported;
    return model->n_unsupported;
}

static int problem_text(const struct model_unsupported *u, char *text, size_t size)
{
    return snprintf(text, size, "node \"%.200s\" (%.200s%s%.100s): %s (opset %" PRId64 ", %.400s)",
                    u->node, u->domain, *u->domain ? "." : "", u->op, u->why, u->opset,
                    u->scope);
}

/* What was refused, all of it at once. */
static int report(struct model *model, const struct build *build, struct err *err)
{
    char text[1700];
    size_t used = 0;
    int i, named = 0;

    for (i = 0; i < build->n_problems; i++) {
        const struct onnx_node *node = build->problems[i].node;
        struct model_unsupported *u = mem_push((void **)&model->unsupported,
                                               &model->n_unsupported, sizeof(*u));
        int n;

        *u = (struct model_unsupported){ node->name, node->proto->op_type,
                                         onnx_domain(node->proto->domain), node->scope,
                                         node->opset, mem_strdup(build->problems[i].why) };
        if (named < i || sizeof(text) - used <= strlen("; "))
            continue;
        n = snprintf(text + used, sizeof(text) - used, "%s", i ? "; " : "");
        n += problem_text(u, text + used + n, sizeof(text) - used - (size_t)n);
        if (i == 0 || (size_t)n < sizeof(text) - used) {
            used += (size_t)n < sizeof(text) - used ? (size_t)n : sizeof(text) - used - 1;
            named++;
        } else {
            text[used] = '\0';
        }
    }
    if (build->n_problems == 1)
        return err_set_code(err, (enum exit_code)build->problems[0].code, "%s", text);
    if (named < i)
        return err_set(err, "%d nodes are not supported: %s; and %d more", i, text, i - named);
    return err_set(err, "%d nodes are not supported: %s", i, text);
}

static int append_loss(struct model *model, const struct build *build, struct err *err)
{
    const struct onnx *onnx = model->onnx;
    const char **outputs = mem_new((size_t)onnx->main.n_outputs, sizeof(*outputs));
    struct graph *graph = build->graph[0];
    struct loss_choice choice = { build->options, onnx->main.n_outputs, outputs,
                                  build->n_losses, build->losses };
    bool assumed = false;
    int i, result;

    for (i = 0; i < onnx->main.n_outputs; i++)
        outputs[i] = onnx->values[onnx->main.outputs[i]].name;
    result = loss_append(graph, &choice, &assumed, err);
    free(outputs);
    if (!result)
        build_note((struct build *)(uintptr_t)build, "loss: %s%s", graph->loss_rule.text,
                   assumed ? " (assumed: give --loss)" : "");
    return result;
}

/* Do all elements of a vector start with the same value, as those of biases and norms do? */
static bool is_uniform(const struct value *value)
{
    size_t n = (size_t)shape_elements(&value->shape), size = dtype_size(value->file_dtype), i;
    const unsigned char *data = value->data;

    if (value->shape.rank != 1 || n < 2 || !data)
        return false;
    for (i = 1; i < n; i++)
        if (memcmp(data, data + i * size, size) != 0)
            return false;
    return true;
}

static void note_ties(struct build *build)
{
    const struct graph *graph = build->graph[0];
    int v, ties = 0, uniform = 0;
    const char *first = NULL, *first_uniform = NULL;

    for (v = 0; v < graph->n_values; v++) {
        const struct value *value = &graph->values[v];

        if (value->kind != VALUE_PARAM || value->n_consumers < 2)
            continue;
        if (ties++ == 0)
            first = value->name;
        if (is_uniform(value) && uniform++ == 0)
            first_uniform = value->name;
    }
    if (ties)
        build_note(build, "%d parameter%s read by several operators (tied), \"%.200s\" first",
                   ties, ties > 1 ? "s are" : " is", first);
    if (uniform)
        build_note(build, "warning: %d of them start%s with one value everywhere, \"%.200s\" "
                   "first: torch's dynamo exporter merges tensors that are equal (export with "
                   "dynamo=False)", uniform, uniform > 1 ? "" : "s", first_uniform);
}

/* What is frozen, by whom. */
static int note_frozen(struct build *build, struct err *err)
{
    const struct graph *graph = build->graph[0];
    const struct onnx *onnx = build->onnx;
    const char *first[FREEZE_ASKED + 1] = { NULL };
    int n[FREEZE_ASKED + 1] = { 0 }, v, trained = 0;

    for (v = 0; v < graph->n_values; v++) {
        const struct value *value = &graph->values[v];
        enum freeze freeze;
        int of;

        trained += value->kind == VALUE_PARAM;
        of = value->frozen ? onnx_find(onnx, value->name) : -1;
        if (of < 0)
            continue;
        freeze = build->freeze[onnx->values[of].index];
        if (n[freeze]++ == 0)
            first[freeze] = value->name;
    }
    if (n[FREEZE_EXPORTER])
        build_note(build, "%d initializer%s no parameter%s of the module, says the exporter, "
                   "and not trained, \"%.200s\" first", n[FREEZE_EXPORTER],
                   n[FREEZE_EXPORTER] > 1 ? "s are" : " is", n[FREEZE_EXPORTER] > 1 ? "s" : "",
                   first[FREEZE_EXPORTER]);
    if (n[FREEZE_SUBGRAPH])
        build_note(build, "%d initializer%s in a branch or a loop, and not trained, "
                   "\"%.200s\" first", n[FREEZE_SUBGRAPH],
                   n[FREEZE_SUBGRAPH] > 1 ? "s stand" : " stands", first[FREEZE_SUBGRAPH]);
    if (n[FREEZE_ASKED])
        build_note(build, "%d initializer%s frozen by --freeze, \"%.200s\" first",
                   n[FREEZE_ASKED], n[FREEZE_ASKED] > 1 ? "s are" : " is", first[FREEZE_ASKED]);
    if (n[FREEZE_ASKED] && !trained && graph->loss >= 0)
        return err_set_code(err, EXIT_USAGE, "--freeze leaves nothing to train");
    return 0;
}

/* A lookup that the exporter made once and for all: its results are trained, not the table. */
static void note_computed(struct build *build)
{
    const struct graph *graph = build->graph[0];
    const struct onnx *onnx = build->onnx;
    const char *first = NULL, *of = NULL;
    int v, n = 0;

    for (v = 0; v < graph->n_values; v++) {
        const struct value *value = &graph->values[v];
        int found = value->kind == VALUE_PARAM && !value->frozen ? onnx_find(onnx, value->name)
                                                                 : -1;

        if (found < 0 || !onnx->computed[onnx->values[found].index])
            continue;
        if (n++ == 0) {
            first = value->name;
            of = onnx->computed[onnx->values[found].index];
        }
    }
    if (n)
        build_note(build, "warning: %d initializer%s computed by the exporter from parameters, and "
                   "trained in place of them: \"%.200s\" from \"%.200s\"%s (export with "
                   "optimize=False)", n, n > 1 ? "s were" : " was", first, of,
                   n > 1 ? ", ..." : "");
}

static void note_inference(struct build *build)
{
    if (build->n_norms)
        build_note(build, "%d batch normalization%s exported for inference, trained with the "
                   "statistics of the batch, \"%.200s\" first", build->n_norms,
                   build->n_norms > 1 ? "s" : "", build->first_norm);
    if (build->n_unmerged)
        build_note(build, "%d running statistic%s merged with another by the exporter, and kept "
                   "apart", build->n_unmerged, build->n_unmerged > 1 ? "s were" : " was");
    if (build->n_dropouts)
        build_note(build, "%d dropout%s exported for inference, applied in training, "
                   "\"%.200s\" first", build->n_dropouts, build->n_dropouts > 1 ? "s" : "",
                   build->first_dropout);
}

/* Exporters fold batch normalisation into the convolution before it: a bias, and no norm. */
static void note_folded_norms(struct build *build)
{
    const struct graph *graph = build->graph[0];
    int n, biased = 0, norms = 0;

    for (n = 0; n < graph->n_nodes; n++) {
        const char *op = graph->nodes[n].op->name;

        biased += strcmp(op, "Conv") == 0 && graph->nodes[n].n_inputs > 2;
        norms += strstr(op, "Normalization") != NULL;
    }
    if (biased && !norms)
        build_note(build, "warning: %d convolution%s with a bias and no normalization: if the "
                   "network had any, the exporter folded it away (export with dynamo=False, "
                   "training=torch.onnx.TrainingMode.TRAINING)", biased, biased > 1 ? "s" : "");
}

/* From the graph that does what the file says to the one that is trained. */
static int finish(struct model *model, struct build *build, struct err *err)
{
    struct graph *graph = build->graph[0];

    if (!build->options->no_loss && append_loss(model, build, err))
        return -1;
    tidy_remove_dead(graph);
    if (build->options->fuse && fuse_graph(graph, err))
        return -1;
    tidy_parameters(graph);
    if (note_frozen(build, err))
        return -1;
    note_computed(build);
    note_inference(build);
    note_ties(build);
    note_folded_norms(build);
    if (tidy_prepare(graph, err))
        return -1;
    return graph_check(graph, err);
}

struct graph *model_build(struct model *model, const struct model_options *options,
                          struct err *err)
{
    struct build build = { .onnx = model->onnx, .options = options, .note = add_note,
                           .user = model };
    struct err own = { 0 };
    struct graph *graph = NULL;

    clear_notes(model);
    clear_unsupported(model);
    if (build_run(&build, &own) || finish(model, &build, &own)) {
        if (build.n_problems)
            report(model, &build, &own);
        err_set_code(err, own.code, "%s: %s", model->onnx->path, own.text);
    } else {
        graph = build.graph[0];
        build.graph[0] = NULL;
    }
    build_free(&build);
    return graph;
}

bool model_has(const struct model *model, const char *name)
{
    int v = onnx_find(model->onnx, name);

    return v >= 0 && model->onnx->values[v].kind == ONNX_INITIALIZER;
}

/* Patterns that match nothing were refused before. */
static enum freeze *resolve(const struct model *model, int n, const char *const *patterns)
{
    struct err ignored = { 0 };
    enum freeze *freeze = freeze_resolve(model->onnx, n, patterns, &ignored);

    return freeze ? freeze : freeze_resolve(model->onnx, 0, NULL, &ignored);
}

bool model_freezes_alike(const struct model *model, int n, const char *const *a, int m,
                         const char *const *b)
{
    enum freeze *first = resolve(model, n, a), *second = resolve(model, m, b);
    bool alike = true;
    int i;

    for (i = 0; i < model->onnx->n_initializers; i++)
        alike &= !dtype_is_float(model->onnx->initializers[i].dtype) ||
                 (first[i] == FREEZE_NOT) == (second[i] == FREEZE_NOT);
    free(first);
    free(second);
    return alike;
}

struct model_tensor_data *model_frozen(const struct model *model, int n_freeze,
                                       const char *const *freeze, int *n)
{
    enum freeze *found = resolve(model, n_freeze, freeze);
    struct model_tensor_data *list = NULL;
    int i;

    *n = 0;
    for (i = 0; i < model->onnx->n_initializers; i++) {
        const struct onnx_tensor *t = &model->onnx->initializers[i];

        if (found[i] == FREEZE_NOT || !dtype_is_float(t->dtype))
            continue;
        *(struct model_tensor_data *)mem_push((void **)&list, n, sizeof(*list)) =
            (struct model_tensor_data){ t->name, t->dtype, t->shape, t->data };
    }
    free(found);
    return list;
}
