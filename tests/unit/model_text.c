/* SPDX-License-Identifier: MIT */
#include "model_text.h"

#include "graph/op.h"
#include "onnx_text.h"
#include "unit.h"

char net_directory[520], net_path[600];
struct model *model;

int setup(void **state)
{
    (void)state;
    strcpy(net_directory, unit_directory());
    snprintf(net_path, sizeof(net_path), "%s/net.onnx", net_directory);
    return 0;
}

int teardown(void **state)
{
    (void)state;
    return unit_remove(net_directory);
}

void open_model(const char *text)
{
    struct err err = { 0 };

    onnx_write_text(net_path, text);
    model = model_open(net_path, &err);
    if (!model)
        fail_msg("%s", err.text);
}

struct graph *build_with(struct model_options options)
{
    struct err err = { 0 };
    struct graph *graph = model_build(model, &options, &err);

    if (!graph)
        fail_msg("%s", err.text);
    if (graph_check(graph, &err))
        fail_msg("%s", err.text);
    return graph;
}

struct graph *build(const char *text, int64_t batch)
{
    open_model(text);
    return build_with((struct model_options){ .batch = batch, .real = DTYPE_F32 });
}

void done(struct graph *graph)
{
    graph_free(graph);
    model_close(model);
    model = NULL;
}

void refused_with(struct model_options options, const char *part)
{
    struct err err = { 0 };

    assert_null(model_build(model, &options, &err));
    assert_contains(err.text, net_path);
    assert_contains(err.text, part);
    assert_null(strchr(err.text, '\n'));
}

void refused(const char *text, const char *part)
{
    open_model(text);
    refused_with((struct model_options){ .batch = 4, .real = DTYPE_F32 }, part);
    model_close(model);
}

const struct value *value(const struct graph *graph, const char *name)
{
    int v = graph_find_value(graph, name);

    if (v < 0)
        fail_msg("there is no \"%s\"", name);
    return &graph->values[v];
}

void shape_is(const struct graph *graph, const char *name, const char *expected)
{
    char text[160];

    assert_string_equal(shape_text(&value(graph, name)->shape, text, sizeof(text)), expected);
}

bool noted(const char *part)
{
    int i;

    for (i = 0; i < model_notes(model); i++)
        if (strstr(model_note(model, i), part))
            return true;
    return false;
}

int count(const struct graph *graph, const char *op)
{
    int n, found = 0;

    for (n = 0; n < graph->n_nodes; n++)
        found += strcmp(graph->nodes[n].op->name, op) == 0;
    return found;
}
