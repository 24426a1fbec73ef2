/* SPDX-License-Identifier: MIT */
#include "graph/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "graph/recompute.h"

static bool of_stage(const struct program *p, int node)
{
    return p->graph->nodes[node].part == PART_PREPARE || p->stage_of[node] == p->stage;
}

static void mark(bool *live, const struct program *p, int v)
{
    int producer = v < 0 ? -1 : p->graph->values[v].producer;

    if (producer >= 0 && of_stage(p, producer))
        live[producer] = true;
}

/* What the stage must make: loss, statistics, gradients, and what others wait for. */
static void mark_results(const struct program *p, bool *live)
{
    const struct autodiff *ad = p->autodiff;

    mark(live, p, p->graph->loss);
    mark(live, p, p->graph->correct);
    for (int i = 0; i < ad->n_stats; i++)
        mark(live, p, ad->stats[i].contribution);
    for (int i = 0; i < ad->n_params; i++)
        if (ad->params[i].stage == p->stage)
            mark(live, p, ad->params[i].gradient);
    for (int i = 0; i < ad->n_boundaries; i++) {
        if (ad->boundaries[i].from == p->stage)
            mark(live, p, ad->boundaries[i].value);
        if (ad->boundaries[i].to == p->stage)
            mark(live, p, ad->boundaries[i].gradient);
    }
}

static void append(struct program_list *list, int node)
{
    *(int *)mem_push((void **)&list->nodes, &list->n, sizeof(int)) = node;
}

static void make_lists(struct program *p)
{
    const struct graph *graph = p->graph;
    bool *live = mem_new((size_t)graph->n_nodes, sizeof(*live));

    mark_results(p, live);
    for (int n = graph->n_nodes - 1; n >= 0; n--)
        for (int i = 0; live[n] && i < graph->nodes[n].n_inputs; i++)
            mark(live, p, graph->nodes[n].inputs[i]);
    for (int n = 0; n < graph->n_nodes; n++)
        if (live[n])
            append(&p->list[graph->nodes[n].part], n);
    free(live);
}

/* Each W node stands right behind the last B or W node that it reads from. */
static void merge_backward(struct program *p)
{
    const struct graph *graph = p->graph;
    const struct program_list *b = &p->list[PART_DGRAD], *w = &p->list[PART_WGRAD];
    int *key = mem_new((size_t)graph->n_nodes, sizeof(*key));   /* 1 + position of the B */
    int *start = mem_new((size_t)b->n + 2, sizeof(*start));
    int *order = mem_new((size_t)w->n, sizeof(*order));

    for (int i = 0; i < b->n; i++)
        key[b->nodes[i]] = i + 1;
    for (int i = 0; i < w->n; i++) {
        const struct node *node = &graph->nodes[w->nodes[i]];

        for (int k = 0; k < node->n_inputs; k++) {
            int producer = node->inputs[k] < 0 ? -1 : graph->values[node->inputs[k]].producer;

            if (producer >= 0 && key[producer] > key[w->nodes[i]])
                key[w->nodes[i]] = key[producer];
        }
        start[key[w->nodes[i]] + 1]++;
    }
    for (int i = 0; i <= b->n; i++)
        start[i + 1] += start[i];
    for (int i = 0; i < w->n; i++)
        order[start[key[w->nodes[i]]]++] = w->nodes[i];
    free(p->backward.nodes);
    memset(&p->backward, 0, sizeof(p->backward));
    for (int i = 0, k = 0; i <= b->n; i++) {
        if (i > 0)
            append(&p->backward, b->nodes[i - 1]);
        while (k < w->n && key[order[k]] == i)
            append(&p->backward, order[k++]);
    }
    free(order);
    free(start);
    free(key);
}

static int view_root(const struct program *p, int v)
{
    const struct graph *graph = p->graph;
    int producer = graph->values[v].producer;

    /* Nodes that 'lower' added are no views and not in stage_of. */
    while (producer >= 0 && graph->nodes[producer].op->flags & OP_VIEW &&
           of_stage(p, producer)) {
        v = graph->nodes[producer].inputs[0];
        producer = graph->values[v].producer;
    }
    return v;
}

/* Where each root is read and made: bits 1 << part; bit 'EXTERNAL' where it crosses the
 * stage's border or is read by the executor.
 */
#define EXTERNAL (1u << PART_COUNT)

static void find_uses(const struct program *p, unsigned *made, unsigned *used)
{
    const struct autodiff *ad = p->autodiff;
    const struct graph *graph = p->graph;
    const int read[] = { graph->loss, graph->correct };

    for (int part = 0; part < PART_COUNT; part++)
        for (int i = 0; i < p->list[part].n; i++) {
            const struct node *node = &graph->nodes[p->list[part].nodes[i]];

            for (int k = 0; k < node->n_inputs; k++)
                if (node->inputs[k] >= 0)
                    used[p->values[node->inputs[k]].root] |= 1u << part;
            for (int k = 0; k < node->n_outputs; k++)
                if (node->outputs[k] >= 0)
                    made[p->values[node->outputs[k]].root] |= 1u << part;
        }
    for (int i = 0; i < 2; i++)
        if (read[i] >= 0 && made[p->values[read[i]].root])
            used[p->values[read[i]].root] |= EXTERNAL;
    for (int i = 0; i < ad->n_boundaries; i++) {
        const struct boundary *b = &ad->boundaries[i];

        if (b->from == p->stage || b->to == p->stage)
            used[p->values[b->value].root] |= EXTERNAL;
        if (b->gradient >= 0 && b->to == p->stage)
            used[p->values[b->gradient].root] |= EXTERNAL;
        if (b->gradient >= 0 && b->from == p->stage)
            used[p->values[b->received].root] |= EXTERNAL;
    }
}

static enum value_place place_of(const struct value *value, unsigned made, unsigned used)
{
    if (!made && !used)
        return PLACE_NONE;
    if (value->kind == VALUE_PARAM || value->kind == VALUE_STAT)
        return PLACE_PARAM;
    if (value->kind == VALUE_CONST || made & 1u << PART_PREPARE)
        return PLACE_PREPARED;
    if (value->kind == VALUE_INPUT || used & EXTERNAL)
        return PLACE_SLOT;
    if (made & 1u << PART_FORWARD && used & (1u << PART_DGRAD | 1u << PART_WGRAD))
        return PLACE_SLOT;
    if (made & 1u << PART_DGRAD && used & 1u << PART_WGRAD)
        return PLACE_SLOT;
    return PLACE_SCRATCH;
}

static void place_values(struct program *p)
{
    const struct graph *graph = p->graph;
    const struct autodiff *ad = p->autodiff;
    unsigned *made = mem_new((size_t)p->n_values, sizeof(*made));
    unsigned *used = mem_new((size_t)p->n_values, sizeof(*used));

    for (int v = 0; v < p->n_values; v++)
        p->values[v].root = view_root(p, v);
    find_uses(p, made, used);
    for (int v = 0; v < p->n_values; v++) {
        int root = p->values[v].root;

        p->values[v].place = place_of(&graph->values[root], made[root], used[root]);
    }
    if (graph->weight_sum >= 0)
        p->values[graph->weight_sum].place = PLACE_NONE;
    for (int i = 0; i < ad->n_params; i++)
        if (ad->params[i].stage == p->stage)
            p->values[ad->params[i].gradient].place = PLACE_GRADIENT;
    for (int i = 0; i < ad->n_stats; i++)
        if (ad->stats[i].stage == p->stage)
            p->values[ad->stats[i].contribution].place = PLACE_GRADIENT;
    free(made);
    free(used);
}

static void grow_values(struct program *p)
{
    const struct graph *graph = p->graph;
    int old = p->n_values;

    p->values = mem_resize(p->values, (size_t)graph->n_values, sizeof(*p->values));
    for (int v = old; v < graph->n_values; v++)
        p->values[v] = (struct program_value){
            .root = v, .layout = { .bytes = value_bytes(&graph->values[v]) }
        };
    p->n_values = graph->n_values;
}

static void find_inputs(struct program *p)
{
    const struct graph *graph = p->graph;

    for (int v = 0; v < p->n_values; v++)
        if (graph->values[v].kind == VALUE_INPUT && v != graph->weight_sum &&
            p->values[v].place == PLACE_SLOT)
            *(int *)mem_push((void **)&p->inputs, &p->n_inputs, sizeof(int)) = v;
}

struct program *program_new(struct graph *graph, const struct autodiff *autodiff,
                            const int *stage_of, int stage, int n_stages, struct err *err)
{
    struct program *p;

    if (stage < 0 || stage >= n_stages) {
        err_set(err, "stage %d of %d", stage, n_stages);
        return NULL;
    }
    p = mem_new(1, sizeof(*p));
    p->graph = graph;
    p->autodiff = autodiff;
    p->stage_of = stage_of;
    p->stage = stage;
    p->n_stages = n_stages;
    grow_values(p);
    make_lists(p);
    merge_backward(p);
    place_values(p);
    find_inputs(p);
    return p;
}

struct program *program_of_nodes(struct graph *graph, const struct autodiff *autodiff, int stage)
{
    struct program *p = mem_new(1, sizeof(*p));

    p->graph = graph;
    p->autodiff = autodiff;
    p->stage = stage;
    grow_values(p);
    for (int n = 0; n < graph->n_nodes; n++)
        append(&p->list[graph->nodes[n].part], n);
    merge_backward(p);
    for (int v = 0; v < p->n_values; v++)
        p->values[v].place = PLACE_SLOT;
    find_inputs(p);
    return p;
}

void program_free(struct program *program)
{
    if (!program)
        return;
    for (int part = 0; part < PART_COUNT; part++)
        free(program->list[part].nodes);
    free(program->backward.nodes);
    free(program->again.nodes);
    free(program->values);
    free(program->inputs);
    free(program);
}

static void want_inputs(const struct program *p, const struct program_list *list, bool *wanted)
{
    for (int i = 0; i < list->n; i++) {
        const struct node *node = &p->graph->nodes[list->nodes[i]];

        for (int k = 0; k < node->n_inputs; k++)
            if (node->inputs[k] >= 0)
                wanted[p->values[node->inputs[k]].root] = true;
    }
}

static void size_values(const struct program *p, const int *values, int n, size_t *bytes)
{
    for (int k = 0; k < n; k++) {
        const struct program_value *v = values[k] < 0 ? NULL : &p->values[values[k]];

        if (v && (v->place == PLACE_SLOT || v->place == PLACE_SCRATCH))
            bytes[v->root] = p->values[v->root].layout.bytes;
    }
}

/* Of the values of one micro-batch that F touches. */
static size_t *sizes_of_forward(const struct program *p)
{
    const struct program_list *forward = &p->list[PART_FORWARD];
    size_t *bytes = mem_new((size_t)p->n_values, sizeof(*bytes));

    for (int i = 0; i < forward->n; i++) {
        const struct node *node = &p->graph->nodes[forward->nodes[i]];

        size_values(p, node->inputs, node->n_inputs, bytes);
        size_values(p, node->outputs, node->n_outputs, bytes);
    }
    return bytes;
}

static void run_again(struct program *p, int node, const bool *kept)
{
    const struct node *n = &p->graph->nodes[node];

    append(&p->again, node);
    for (int k = 0; k < n->n_outputs; k++)
        if (n->outputs[k] >= 0 && !kept[p->values[n->outputs[k]].root])
            p->values[p->values[n->outputs[k]].root].again = true;
}

void program_recompute(struct program *program, bool selective)
{
    struct program *p = program;
    const struct program_list *forward = &p->list[PART_FORWARD];
    bool *wanted = mem_new((size_t)p->n_values, sizeof(*wanted));
    bool *kept = mem_new((size_t)p->n_values, sizeof(*kept));
    bool *runs = mem_new((size_t)forward->n, sizeof(*runs));
    size_t *bytes = sizes_of_forward(p);
    int *root = mem_new((size_t)p->n_values, sizeof(*root));

    for (int v = 0; v < p->n_values; v++)
        root[v] = p->values[v].root;
    want_inputs(p, &p->list[PART_DGRAD], wanted);
    want_inputs(p, &p->list[PART_WGRAD], wanted);
    if (selective)
        recompute_keep(p->graph, forward, root, bytes, wanted, kept);
    recompute_runs(p->graph, forward, root, kept, wanted, runs);
    for (int i = 0; i < forward->n; i++)
        if (runs[i])
            run_again(p, forward->nodes[i], kept);
    free(root);
    free(bytes);
    free(runs);
    free(kept);
    free(wanted);
}

void program_own_graph(struct program *program)
{
    if (program->shared)
        program->graph = graph_copy(program->graph);
    program->shared = false;
}

static int position(const struct program_list *list, int node)
{
    for (int i = 0; i < list->n; i++)
        if (list->nodes[i] == node)
            return i;
    return -1;
}

void program_insert(struct program *program, enum part part, int where, bool after, int node)
{
    struct program_list *list = &program->list[part];
    int at = where < 0 ? (after ? list->n : 0) : position(list, where) + after;

    append(list, node);
    memmove(list->nodes + at + 1, list->nodes + at,
            (size_t)(list->n - 1 - at) * sizeof(*list->nodes));
    list->nodes[at] = node;
    program->graph->nodes[node].part = part;
    if (part == PART_DGRAD || part == PART_WGRAD)
        merge_backward(program);
    grow_values(program);
    place_values(program);
}

void program_remove(struct program *program, enum part part, const bool *gone)
{
    struct program_list *list = &program->list[part];
    int n = 0;

    for (int i = 0; i < list->n; i++)
        if (!gone[list->nodes[i]])
            list->nodes[n++] = list->nodes[i];
    list->n = n;
}

void program_relink(struct program *program)
{
    graph_relink(program->graph);
    merge_backward(program);
    place_values(program);
}
