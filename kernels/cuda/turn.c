/* SPDX-License-Identifier: MIT */
/* Transposes around attentions that are not made: where a value [samples, heads, rows, columns] comes from
 * one that is stored [samples, rows, heads, columns], or goes to one, cuDNN reads or writes that, and the
 * Transpose becomes a view. Only of 16 bits, and only where there is a gradient, which keeps no scores.
 */
#include <string.h>

#include "base/err.h"
#include "graph/op.h"
#include "graph/ops/slice.h"
#include "kernels/cuda/cuda.h"

const char cuda_turned_layout = 't';

/* An attention and its gradient, and what both have of each operand. */
struct pair {
    struct program *program;
    int forward, gradient;
    int64_t turned;
    int transposes[CUDA_SDPA_DV + 1];   /* of those that are turned */
    int values[CUDA_SDPA_DV + 1];
};

static const struct node *node_of(const struct pair *p, int node)
{
    return &p->program->graph->nodes[node];
}

static bool is_narrow(const struct pair *p, int v)
{
    return v >= 0 && p->program->values[v].layout.opaque == &cuda_narrow_layout;
}

static bool swaps_heads(const struct pair *p, int node)
{
    static const int heads_first[4] = { 0, 2, 1, 3 };
    const struct node *n = node_of(p, node);
    struct err ignored = { 0 };
    int perm[GRAPH_MAX_RANK];

    return strcmp(n->op->name, "Transpose") == 0 &&
           p->program->graph->values[n->inputs[0]].shape.rank == 4 &&
           transpose_perm(p->program->graph, node, perm, &ignored) == 0 &&
           memcmp(perm, heads_first, sizeof(heads_first)) == 0 && is_narrow(p, n->inputs[0]) &&
           is_narrow(p, n->outputs[0]);
}

static void turn(struct pair *p, enum cuda_sdpa_operand operand, int value, int transpose)
{
    if (cuda_crosses(p->program, value))
        return;
    p->turned |= (int64_t)1 << operand;
    p->values[operand] = value;
    p->transposes[operand] = transpose;
}

/* What only these two read, and a Transpose makes. */
static void look_before(struct pair *p, enum cuda_sdpa_operand operand, int v)
{
    const struct value *value = &p->program->graph->values[v];

    if (value->producer < 0 || !swaps_heads(p, value->producer))
        return;
    for (int i = 0; i < value->n_consumers; i++)
        if (value->consumers[i] != p->forward && value->consumers[i] != p->gradient)
            return;
    turn(p, operand, v, value->producer);
}

/* What else only one Transpose reads. */
static void look_behind(struct pair *p, enum cuda_sdpa_operand operand, int v)
{
    const struct value *value = &p->program->graph->values[v];
    int transpose = -1;

    for (int i = 0; i < value->n_consumers; i++) {
        if (value->consumers[i] == p->gradient)
            continue;
        if (transpose >= 0 || !swaps_heads(p, value->consumers[i]))
            return;
        transpose = value->consumers[i];
    }
    if (transpose >= 0 && is_narrow(p, v))
        turn(p, operand, v, transpose);
}

static bool is_pair(const struct pair *p)
{
    const struct node *g = node_of(p, p->gradient), *f;

    if (strcmp(g->op->name, "AttentionGrad") != 0 || g->n_inputs <= CUDA_GRAD_Y || p->forward < 0)
        return false;
    f = node_of(p, p->forward);
    for (int i = 0; i < 3; i++)
        if (f->inputs[i] != g->inputs[i + 1])
            return false;
    return f->outputs[0] == g->inputs[CUDA_GRAD_Y];
}

static void look_around(struct pair *p)
{
    const struct node *g = node_of(p, p->gradient);

    for (int i = 0; i < 3; i++) {
        look_before(p, (enum cuda_sdpa_operand)(CUDA_SDPA_Q + i), g->inputs[i + 1]);
        look_behind(p, (enum cuda_sdpa_operand)(CUDA_SDPA_DQ + i), g->outputs[i]);
    }
    look_before(p, CUDA_SDPA_DY, g->inputs[0]);
    look_behind(p, CUDA_SDPA_Y, g->inputs[CUDA_GRAD_Y]);
}

static void make_views(const struct pair *p)
{
    for (int i = 0; i <= CUDA_SDPA_DV; i++)
        if (p->turned >> i & 1) {
            struct value_layout *layout = &p->program->values[p->values[i]].layout;

            layout->opaque = &cuda_turned_layout;
            layout->order = cuda_turned_layout;
            p->program->graph->nodes[p->transposes[i]].op = op_find("View");
        }
}

void cuda_turn_attentions(struct device *device, struct program *program)
{
    struct graph *graph = program->graph;

    graph_relink(graph);
    for (int n = 0; n < graph->n_nodes; n++) {
        struct pair p = { .program = program, .forward = graph->nodes[n].source, .gradient = n };

        if (!is_pair(&p))
            continue;
        look_around(&p);
        if (p.turned && cuda_attention_turns(device, graph, n, p.turned))
            make_views(&p);
    }
}
