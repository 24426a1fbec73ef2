/* SPDX-License-Identifier: MIT */
#include "fused.h"

#include <math.h>

#include "base/mem.h"
#include "graph/autodiff.h"
#include "graph/model.h"
#include "graph/op.h"
#include "onnx_text.h"
#include "run_graph.h"
#include "unit.h"

#define BATCH 3

static char path[600];

int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "%s/net.onnx", unit_directory());
    return 0;
}

int teardown(void **state)
{
    (void)state;
    unlink(path);
    *strrchr(path, '/') = '\0';
    return rmdir(path);
}

static struct graph *build(struct model *model, enum dtype real, bool fuse, const char *loss)
{
    struct model_options options = { .batch = BATCH, .real = real, .fuse = fuse,
                                     .loss = loss };
    struct err err = { 0 };
    struct graph *graph = model_build(model, &options, &err);

    if (!graph)
        fail_msg("%s", err.text);
    return graph;
}

static void fill(struct run_graph *run, int v)
{
    const struct value *value = &run->graph->values[v];
    int64_t n = shape_elements(&value->shape), i;
    double *data = mem_new((size_t)n + 1, sizeof(*data));
    float f;

    for (i = 0; i < n; i++) {
        double drawn = onnx_text_value(value->name, (size_t)i) + 0.5;

        if (value->kind == VALUE_INPUT) {
            data[i] = dtype_is_float(value->dtype) ? 4 * drawn - 2 : floor(3 * drawn);
        } else {
            assert_int_equal(value->file_dtype, DTYPE_F32);
            memcpy(&f, (const char *)value->data + 4 * i, sizeof(f));
            data[i] = (double)f;
        }
    }
    run_graph_set(run, v, data);
    free(data);
}

static void collect(struct outcome *out, struct run_graph *run, const struct graph *graph,
                    const struct autodiff *gradients)
{
    int i;

    run_graph_get(run, graph->loss, &out->loss);
    out->n_params = gradients->n_params;
    out->names = mem_new((size_t)out->n_params, sizeof(*out->names));
    out->sizes = mem_new((size_t)out->n_params, sizeof(*out->sizes));
    out->gradients = mem_new((size_t)out->n_params, sizeof(*out->gradients));
    for (i = 0; i < out->n_params; i++) {
        const struct param_grad *p = &gradients->params[i];

        out->names[i] = mem_strdup(graph->values[p->param].name);
        out->sizes[i] = shape_elements(&graph->values[p->param].shape);
        out->gradients[i] = mem_new((size_t)out->sizes[i], sizeof(double));
        run_graph_get(run, p->gradient, out->gradients[i]);
    }
}

static void run_network(struct model *model, enum dtype real, bool fuse, const char *loss,
                        struct outcome *out)
{
    struct graph *graph = build(model, real, fuse, loss);
    struct autodiff gradients;
    struct err err = { 0 };
    struct run_graph *run;
    int v, n;

    memset(out, 0, sizeof(*out));
    for (n = 0; n < graph->n_nodes; n++) {
        size_t used = strlen(out->ops);

        snprintf(out->ops + used, sizeof(out->ops) - used, " %s", graph->nodes[n].op->name);
    }
    out->n_nodes = graph->n_nodes;
    assert_int_equal(graph_check(graph, &err), 0);
    if (autodiff(graph, NULL, 1, &gradients, NULL, &err))
        fail_msg("%s", err.text);
    run = run_graph_new(backend_find("reference"), graph, &err);
    if (!run)
        fail_msg("%s", err.text);
    for (v = 0; v < graph->n_values; v++)
        if (graph->values[v].kind == VALUE_PARAM ||
            (graph->values[v].kind == VALUE_INPUT && v != graph->weight_sum))
            fill(run, v);
    if (run_graph_nodes(run, 0, graph->n_nodes, &err))
        fail_msg("%s", err.text);
    collect(out, run, graph, &gradients);
    run_graph_free(run);
    graph_free(graph);
}

static void outcome_clear(struct outcome *out)
{
    int i;

    for (i = 0; i < out->n_params; i++) {
        free(out->names[i]);
        free(out->gradients[i]);
    }
    free(out->names);
    free(out->sizes);
    free(out->gradients);
}

static double largest(const struct outcome *out, int p)
{
    double most = 0;
    int64_t i;

    for (i = 0; i < out->sizes[p]; i++)
        most = fmax(most, fabs(out->gradients[p][i]));
    return most;
}

static int find_param(const struct outcome *out, const char *name)
{
    int p;

    for (p = 0; p < out->n_params; p++)
        if (strcmp(out->names[p], name) == 0)
            return p;
    fail_msg("%s has no gradient", name);
    return -1;
}

/* Each of some hundred nodes, gradients among them, rounds what it makes to float. */
#define SINGLE (300 * 0x1p-24)

/* Both ways in one type; the fused one is returned. */
static struct outcome compare(struct model *model, enum dtype real, const char *loss,
                              double tolerance)
{
    struct outcome plain, fused;
    int p, q;
    int64_t i;

    run_network(model, real, false, loss, &plain);
    run_network(model, real, true, loss, &fused);
    if (!(fabs(plain.loss - fused.loss) <= tolerance * fabs(plain.loss)))
        fail_msg("loss: %g and %g (%s)", plain.loss, fused.loss, dtype_name(real));
    assert_int_equal(plain.n_params, fused.n_params);
    for (p = 0; p < plain.n_params; p++) {
        q = find_param(&fused, plain.names[p]);
        for (i = 0; i < plain.sizes[p]; i++)
            if (!(fabs(plain.gradients[p][i] - fused.gradients[q][i]) <=
                  tolerance * (largest(&plain, p) + 1e-3)))
                fail_msg("%s[%d]: %g and %g (%s)", plain.names[p], (int)i,
                         plain.gradients[p][i], fused.gradients[q][i], dtype_name(real));
    }
    outcome_clear(&plain);
    outcome_clear(&fused);
    return fused;
}

struct outcome agree(const char *text, const char *loss, double tolerance)
{
    struct outcome fused;
    struct err err = { 0 };
    struct model *model;

    onnx_write_text(path, text);
    model = model_open(path, &err);
    if (!model)
        fail_msg("%s", err.text);
    compare(model, DTYPE_F32, loss, SINGLE);
    fused = compare(model, DTYPE_F64, loss, tolerance);
    model_close(model);
    return fused;
}
