/* SPDX-License-Identifier: MIT */
#include "graph/fuse.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/names.h"
#include "graph/op.h"
#include "graph/tidy.h"

bool fuse_is(const struct graph *graph, int node, const char *op)
{
    return node >= 0 && names_same(graph->nodes[node].op->name, op);
}

int fuse_producer(const struct graph *graph, int node, int index, const char *op)
{
    const struct node *n = &graph->nodes[node];
    int v = index < n->n_inputs ? n->inputs[index] : -1;
    int producer = v < 0 ? -1 : graph->values[v].producer;

    return producer >= 0 && (!op || fuse_is(graph, producer, op)) ? producer : -1;
}

int fuse_reader(const struct graph *graph, int v, const char *op)
{
    const struct value *value = &graph->values[v];

    if (value->n_consumers != 1 || value->output || v == graph->loss || v == graph->correct)
        return -1;
    return fuse_is(graph, value->consumers[0], op) ? value->consumers[0] : -1;
}

bool fuse_scalar(const struct graph *graph, int v, double *x)
{
    const struct value *value = v < 0 ? NULL : &graph->values[v];

    if (!value || value->kind != VALUE_CONST || !value->data || value->batch.outer ||
        shape_elements(&value->shape) != 1 || !dtype_is_float(value->file_dtype))
        return false;
    *x = dtype_real(value->file_dtype, value->data, 0);
    return true;
}

int fuse_rewrite(struct graph *graph, int node, const char *fusion, const char *op,
                 int n_inputs, const int *inputs, struct err *err)
{
    const struct op *found = op_find(op);
    struct node *n = &graph->nodes[node];

    if (!found)
        return err_set(err, "there is no operator \"%s\"", op);
    graph->rewired = true;
    n->op = found;
    n->fusion = fusion;
    n->n_inputs = n_inputs;
    n->inputs = arena_alloc(graph->arena, (size_t)n_inputs, sizeof(*n->inputs));
    memcpy(n->inputs, inputs, (size_t)n_inputs * sizeof(*inputs));
    n->n_outputs = 1;
    n->n_attrs = 0;
    return 0;
}

int fuse_check(struct graph *graph, int node, struct err *err)
{
    int v = graph->nodes[node].outputs[0];
    const struct value before = graph->values[v];

    if (op_infer(graph, node, err))
        return -1;
    if (!shape_equal(&before.shape, &graph->values[v].shape))
        return op_error(graph, node, err, "fusing changed the shape of \"%s\"", before.name);
    /* Known from the twin; inferred here it may be a guess. */
    graph->values[v].batch = before.batch;
    return 0;
}

static int run_pass(struct graph *graph,
                    int (*pattern)(struct graph *graph, int node, struct err *err),
                    struct err *err)
{
    int n;

    for (n = 0; n < graph->n_nodes; n++)
        if (pattern(graph, n, err))
            return -1;
    if (graph->rewired)
        tidy_remove_dead(graph);
    graph->rewired = false;
    return 0;
}

int fuse_graph(struct graph *graph, struct err *err)
{
    static int (*const patterns[])(struct graph *graph, int node, struct err *err) = {
        fuse_linear, fuse_layer_norm, fuse_rms_norm, fuse_gelu, fuse_silu, fuse_activation,
        fuse_log_softmax, fuse_cross_entropy, fuse_matmul, fuse_attention, fuse_split,
        fuse_slices, fuse_residual_norm,
    };
    size_t i;

    graph->rewired = true;
    for (i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
        if (run_pass(graph, patterns[i], err))
            return -1;
    return 0;
}

static struct fuse_found *found_entry(struct fuse_found **found, int *n, const char *fusion)
{
    struct fuse_found *entry;
    int i;

    for (i = 0; i < *n; i++)
        if (strcmp((*found)[i].fusion, fusion) == 0)
            return &(*found)[i];
    entry = mem_push((void **)found, n, sizeof(*entry));
    *entry = (struct fuse_found){ .fusion = fusion };
    return entry;
}

struct fuse_found *fuse_found(const struct graph *graph, int *n)
{
    struct fuse_found *found = NULL, *entry;
    int node;

    *n = 0;
    for (node = 0; node < graph->n_nodes; node++) {
        if (!graph->nodes[node].fusion)
            continue;
        entry = found_entry(&found, n, graph->nodes[node].fusion);
        *(int *)mem_push((void **)&entry->nodes, &entry->n, sizeof(int)) = node;
    }
    return found;
}

void fuse_found_free(int n, struct fuse_found *found)
{
    int i;

    for (i = 0; i < n; i++)
        free(found[i].nodes);
    free(found);
}
