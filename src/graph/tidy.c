/* SPDX-License-Identifier: MIT */
#include "graph/tidy.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/names.h"
#include "graph/op.h"

#define MAX_OUTPUTS 16      /* of a prepared node */

/* Keeping ------------------------------------------------------------------------------ */

static void mark_values(const struct graph *graph, int n, const int *order, bool *used)
{
    int i, k;

    for (i = 0; i < n; i++) {
        const struct node *node = &graph->nodes[order[i]];

        for (k = 0; k < node->n_inputs; k++)
            if (node->inputs[k] >= 0)
                used[node->inputs[k]] = true;
        for (k = 0; k < node->n_outputs; k++)
            if (node->outputs[k] >= 0)
                used[node->outputs[k]] = true;
    }
    for (i = 0; i < graph->n_outputs && graph->loss < 0; i++)
        used[graph->outputs[i]] = true;
    if (graph->weight_sum >= 0)
        used[graph->weight_sum] = true;
}

static int renamed(const int *map, int id)
{
    return id < 0 ? -1 : map[id];
}

static void rename_list(const int *map, int *n, int *ids)
{
    int i, kept = 0;

    for (i = 0; i < *n; i++)
        if (map[ids[i]] >= 0)
            ids[kept++] = map[ids[i]];
    *n = kept;
}

static void keep_values(struct graph *graph, const bool *used, int *map)
{
    int v, kept = 0;

    for (v = 0; v < graph->n_values; v++) {
        map[v] = -1;
        if (!used[v]) {
            free(graph->values[v].consumers);
            continue;
        }
        map[v] = kept;
        graph->values[kept++] = graph->values[v];
    }
    graph->n_values = kept;
    names_renumber(graph->value_names, map);
}

static void keep_nodes(struct graph *graph, int n, const int *order, const int *map)
{
    struct node *nodes = mem_new((size_t)n, sizeof(*nodes));
    int *places = mem_new((size_t)graph->n_nodes, sizeof(*places)), i, k;

    for (i = 0; i < graph->n_nodes; i++)
        places[i] = -1;
    for (i = 0; i < n; i++) {
        nodes[i] = graph->nodes[order[i]];
        places[order[i]] = i;
        for (k = 0; k < nodes[i].n_inputs; k++)
            nodes[i].inputs[k] = renamed(map, nodes[i].inputs[k]);
        for (k = 0; k < nodes[i].n_outputs; k++)
            nodes[i].outputs[k] = renamed(map, nodes[i].outputs[k]);
    }
    names_renumber(graph->node_names, places);
    /* Appending relies on the room that the old array has. */
    if (n)
        memcpy(graph->nodes, nodes, (size_t)n * sizeof(*nodes));
    graph->n_nodes = n;
    free(places);
    free(nodes);
}

/* All of it, as it is? */
static bool keeps_all(const struct graph *graph, int n, const int *order, const bool *used)
{
    int i;

    for (i = 0; i < n; i++)
        if (order[i] != i)
            return false;
    return n == graph->n_nodes && !memchr(used, false, (size_t)graph->n_values);
}

/* Ids change. */
static void drop_others(struct graph *graph, int n, const int *order, const bool *used)
{
    int *map = mem_new((size_t)graph->n_values, sizeof(*map));

    keep_values(graph, used, map);
    keep_nodes(graph, n, order, map);
    rename_list(map, &graph->n_inputs, graph->inputs);
    rename_list(map, &graph->n_outputs, graph->outputs);
    graph->loss = renamed(map, graph->loss);
    graph->correct = renamed(map, graph->correct);
    graph->weight_sum = renamed(map, graph->weight_sum);
    graph->loss_rule.labels = renamed(map, graph->loss_rule.labels);
    graph->loss_rule.class_weights = renamed(map, graph->loss_rule.class_weights);
    free(map);
}

void tidy_keep(struct graph *graph, int n, const int *order)
{
    bool *used = mem_new((size_t)graph->n_values, sizeof(*used));

    mark_values(graph, n, order, used);
    if (!keeps_all(graph, n, order, used))
        drop_others(graph, n, order, used);
    free(used);
    graph_relink(graph);
}

/* Removing ------------------------------------------------------------------------------ */

void tidy_remove_dead(struct graph *graph)
{
    bool *needed = mem_new((size_t)graph->n_values, sizeof(*needed));
    int *order = mem_new((size_t)graph->n_nodes, sizeof(*order));
    bool *live = mem_new((size_t)graph->n_nodes, sizeof(*live));
    int n, i, kept = 0;

    if (graph->loss >= 0)
        needed[graph->loss] = true;
    if (graph->correct >= 0)
        needed[graph->correct] = true;
    for (i = 0; i < graph->n_outputs && graph->loss < 0; i++)
        needed[graph->outputs[i]] = true;
    for (n = graph->n_nodes - 1; n >= 0; n--) {
        const struct node *node = &graph->nodes[n];

        for (i = 0; i < node->n_outputs; i++)
            live[n] |= node->outputs[i] >= 0 && needed[node->outputs[i]];
        for (i = 0; i < node->n_inputs && live[n]; i++)
            if (node->inputs[i] >= 0)
                needed[node->inputs[i]] = true;
    }
    for (n = 0; n < graph->n_nodes; n++)
        if (live[n])
            order[kept++] = n;
    tidy_keep(graph, kept, order);
    free(needed);
    free(order);
    free(live);
}

/* Parameters ---------------------------------------------------------------------------- */

/* Inputs of a node that a gradient flows to; of a loss only what is predicted. */
static int differentiable_inputs(const struct node *node)
{
    static const char *const losses[] = { "CrossEntropySum", "MseSum", "DotSum", "SumLoss" };
    size_t i;

    if (node->op->flags & OP_NO_GRAD)
        return 0;
    for (i = 0; i < sizeof(losses) / sizeof(losses[0]); i++)
        if (names_same(node->op->name, losses[i]))
            return 1;
    return node->n_inputs;
}

void tidy_parameters(struct graph *graph)
{
    bool *reached = mem_new((size_t)graph->n_values, sizeof(*reached));
    int n, i, v;

    if (graph->loss >= 0)
        reached[graph->loss] = true;
    for (n = graph->n_nodes - 1; n >= 0 && graph->loss >= 0; n--) {
        const struct node *node = &graph->nodes[n];
        bool flows = false;

        for (i = 0; i < node->n_outputs; i++)
            flows |= node->outputs[i] >= 0 && reached[node->outputs[i]];
        for (i = 0; i < differentiable_inputs(node) && flows; i++)
            if (node->inputs[i] >= 0 && dtype_is_float(graph->values[node->inputs[i]].dtype))
                reached[node->inputs[i]] = true;
    }
    for (v = 0; v < graph->n_values; v++) {
        struct value *value = &graph->values[v];

        if (value->kind != VALUE_PARAM)
            value->frozen = false;
        else if (value->frozen || (graph->loss >= 0 && !reached[v]))
            value->kind = VALUE_CONST;
    }
    free(reached);
}

/* Prepared nodes ------------------------------------------------------------------------- */

static bool is_prepared(const struct graph *graph, int n)
{
    const struct node *node = &graph->nodes[n];
    int i;

    if (node->n_outputs > MAX_OUTPUTS || strcmp(node->op->name, "Dropout") == 0 ||
        node_int(node, "shared", 0))
        return false;
    for (i = 0; i < node->n_inputs; i++) {
        const struct value *value = node->inputs[i] < 0 ? NULL
                                                        : &graph->values[node->inputs[i]];

        if (value && (value->batch.outer || value->kind == VALUE_INPUT ||
                      value->kind == VALUE_STAT ||
                      (value->producer >= 0 &&
                       graph->nodes[value->producer].part != PART_PREPARE)))
            return false;
    }
    for (i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0 && graph->values[node->outputs[i]].batch.outer)
            return false;
    return true;
}

/* Repeat node 'n' for reader 'reader', which then reads the copy. */
static int copy_for(struct graph *graph, int n, int reader)
{
    int outputs[MAX_OUTPUTS], copy, i, k;

    for (i = 0; i < graph->nodes[n].n_outputs; i++) {
        const struct value old = graph->values[graph->nodes[n].outputs[i]];

        outputs[i] = graph_add_value(graph, old.name, VALUE_NODE, old.dtype, &old.shape,
                                     old.batch);
    }
    copy = graph_add_node(graph, graph->nodes[n].name, graph->nodes[n].op,
                          graph->nodes[n].n_inputs, graph->nodes[n].inputs,
                          graph->nodes[n].n_outputs, outputs);
    graph_copy_attrs(graph, copy, n);
    graph->nodes[copy].part = PART_PREPARE;
    for (i = 0; i < graph->nodes[n].n_outputs; i++)
        for (k = 0; k < graph->nodes[reader].n_inputs; k++)
            if (graph->nodes[reader].inputs[k] == graph->nodes[n].outputs[i])
                graph->nodes[reader].inputs[k] = outputs[i];
    return copy;
}

struct copies {
    int n_order, room;
    int *order;     /* nodes, from last to first */
};

static void push(struct copies *copies, int node)
{
    *(int *)mem_push((void **)&copies->order, &copies->n_order, sizeof(int)) = node;
}

static int producer_of(const struct graph *graph, int node, int input)
{
    int v = graph->nodes[node].inputs[input];

    return v < 0 ? -1 : graph->values[v].producer;
}

/* Was this input's producer handled with a later input of the same node? */
static bool is_repeated(const struct graph *graph, int node, int input)
{
    int i;

    for (i = input + 1; i < graph->nodes[node].n_inputs; i++)
        if (producer_of(graph, node, i) == producer_of(graph, node, input))
            return true;
    return false;
}

/* From the last node to the first: put each prepared node, or its copies, right before its
 * readers. 'stack' handles the inputs of copies, which are prepared nodes again.
 */
static int place_inputs(struct graph *graph, struct copies *copies, int reader, bool *taken,
                        int limit, struct err *err)
{
    int *stack = NULL, depth = 0, i;

    *(int *)mem_push((void **)&stack, &depth, sizeof(int)) = reader;
    while (depth) {
        int node = stack[--depth];

        push(copies, node);
        for (i = graph->nodes[node].n_inputs - 1; i >= 0; i--) {
            int producer = producer_of(graph, node, i);

            if (producer < 0 || is_repeated(graph, node, i) ||
                graph->nodes[producer].part != PART_PREPARE)
                continue;
            /* A copy has the inputs of what it is a copy of: those may be copies, too. */
            if (producer >= limit || taken[producer])
                producer = copy_for(graph, producer, node);
            else
                taken[producer] = true;
            *(int *)mem_push((void **)&stack, &depth, sizeof(int)) = producer;
            if (graph->n_nodes > 4 * limit + 64) {
                free(stack);
                return err_set(err, "parameters are computed from each other in too many ways");
            }
        }
    }
    free(stack);
    return 0;
}

int tidy_prepare(struct graph *graph, struct err *err)
{
    int limit = graph->n_nodes, n, i, result = 0;
    bool *taken = mem_new((size_t)limit, sizeof(*taken));
    struct copies copies = { 0 };

    for (n = 0; n < limit; n++)
        if (is_prepared(graph, n))
            graph->nodes[n].part = PART_PREPARE;
    for (n = limit - 1; n >= 0 && !result; n--)
        if (graph->nodes[n].part != PART_PREPARE)
            result = place_inputs(graph, &copies, n, taken, limit, err);
    for (i = 0; i < copies.n_order / 2; i++) {
        int swap = copies.order[i];

        copies.order[i] = copies.order[copies.n_order - 1 - i];
        copies.order[copies.n_order - 1 - i] = swap;
    }
    if (!result)
        tidy_keep(graph, copies.n_order, copies.order);
    free(copies.order);
    free(taken);
    return result;
}
