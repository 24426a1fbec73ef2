/* SPDX-License-Identifier: MIT */
/* A topological order of a body's nodes, and which of them its outputs depend on. */
#include "graph/onnx.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* Depth first from each node in the order of the file: a file in order stays as it is. */
struct sorter {
    const struct onnx *onnx;
    struct onnx_body *body;
    enum { NEW, OPEN, DONE } *state;
    int *stack, *order;
    size_t *next;       /* of the node: which input to look at */
    int depth, n;
};

/* The node of the body that makes what 'node' reads in place 'index', which counts inputs, then
 * what its subgraphs read; -1: none does.
 */
static int producer(const struct onnx *onnx, const struct onnx_body *body,
                    const struct onnx_node *node, size_t index)
{
    size_t n = node->proto->n_input;
    int v = index < n ? node->inputs[index] : node->captured[index - n];
    const struct onnx_value *value = v < 0 ? NULL : &onnx->values[v];

    return value && value->kind == ONNX_OUTPUT && value->body == body ? value->index : -1;
}

static size_t reads(const struct onnx_node *node)
{
    return node->proto->n_input + (size_t)node->n_captured;
}

/* The node to sort before node 'id' can be; -1: none, -2: that is a cycle. */
static int next_needed(struct sorter *s, int id)
{
    const struct onnx_node *node = &s->body->nodes[id];

    while (s->next[id] < reads(node)) {
        int needed = producer(s->onnx, s->body, node, s->next[id]++);

        if (needed >= 0 && s->state[needed] == OPEN)
            return -2;
        if (needed >= 0 && s->state[needed] == NEW)
            return needed;
    }
    return -1;
}

static int sort_from(struct sorter *s, int root, struct err *err)
{
    if (s->state[root] == DONE)
        return 0;
    s->stack[s->depth++] = root;
    while (s->depth) {
        int id = s->stack[s->depth - 1], needed;

        s->state[id] = OPEN;
        needed = next_needed(s, id);
        if (needed == -2)
            return err_set(err, "node \"%.200s\" lies on a cycle", s->body->nodes[id].name);
        if (needed >= 0) {
            s->stack[s->depth++] = needed;
            continue;
        }
        s->state[id] = DONE;
        s->order[s->n++] = id;
        s->depth--;
    }
    return 0;
}

static void apply_order(struct onnx *onnx, struct onnx_body *body, const int *order)
{
    struct onnx_node *nodes = arena_alloc(onnx->arena, (size_t)body->n_nodes, sizeof(*nodes));
    size_t o;
    int i;

    for (i = 0; i < body->n_nodes; i++) {
        nodes[i] = body->nodes[order[i]];
        for (o = 0; o < nodes[i].proto->n_output; o++)
            if (nodes[i].outputs[o] >= 0)
                onnx->values[nodes[i].outputs[o]].index = i;
    }
    free(body->nodes);
    body->nodes = nodes;
}

static void mark_live(const struct onnx *onnx, struct onnx_body *body)
{
    size_t i;
    int n;

    for (n = 0; n < body->n_outputs; n++) {
        const struct onnx_value *value = &onnx->values[body->outputs[n]];

        if (value->kind == ONNX_OUTPUT && value->body == body)
            body->nodes[value->index].live = true;
    }
    for (n = body->n_nodes - 1; n >= 0; n--)
        for (i = 0; body->nodes[n].live && i < reads(&body->nodes[n]); i++) {
            int needed = producer(onnx, body, &body->nodes[n], i);

            if (needed >= 0)
                body->nodes[needed].live = true;
        }
}

int onnx_sort(struct onnx *onnx, struct onnx_body *body, struct err *err)
{
    size_t n = (size_t)body->n_nodes;
    struct sorter s = {
        .onnx = onnx,
        .body = body,
        .state = mem_new(n, sizeof(*s.state)),
        .stack = mem_new(n, sizeof(*s.stack)),
        .order = mem_new(n, sizeof(*s.order)),
        .next = mem_new(n, sizeof(*s.next)),
    };
    int i, result = 0;

    for (i = 0; i < body->n_nodes && !result; i++)
        result = sort_from(&s, i, err);
    if (!result) {
        apply_order(onnx, body, s.order);
        mark_live(onnx, body);
    }
    free(s.state);
    free(s.stack);
    free(s.order);
    free(s.next);
    return result;
}
