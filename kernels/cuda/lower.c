/* SPDX-License-Identifier: MIT */
/* What a stage program becomes on a GPU: of all types pointwise operators become chains (chain.c).
 *
 * "cuda-bf16" and "cuda-fp16": which values of a stage program are narrow: bfloat16, or float16.
 *
 * Parameters, their gradients, statistics, losses and what a loss is scaled by stay float32. What a product
 * reads and makes is narrow, and what works on it element by element, by rows, or only moves it, follows; sums
 * over samples are float32 again. Where one form meets another a Reorder is put; those of parameters run once
 * per step. What crosses the stage's border is in the form that border.h says.
 *
 * Kernels of convolutions for tensor cores want channels to be the last axis: those that have as many as
 * such kernels take at a time, in and out, have them so, as what follows them has. Gradients are in the
 * form of what they are of.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "kernels/cuda/border.h"
#include "kernels/cuda/chain.h"

const char cuda_narrow_layout = 'n', cuda_last_layout = 'l', cuda_places_layout = 'p';
const char cuda_index_layout = 'i';

#define NOWHERE CUDA_FORMS

struct lowering {
    struct device *device;
    struct program *program;
    struct graph *graph;
    int n_known;                /* values there were before */
    struct cuda_forms forms;    /* of these */
    unsigned char *crossing;    /* their form where they cross the stage's border narrow; else NOWHERE */
    int *origin;                /* of a copy that was made here: what there was before */
    int (*copies)[CUDA_FORMS];  /* of what there was before; -1: not made yet */
};

static enum dtype narrow_type(const struct lowering *l)
{
    return cuda_narrow_dtype(l->device->narrow);
}

static void fix(struct lowering *l, int v)
{
    if (v >= 0 && v < l->n_known)
        l->forms.fixed[v] = l->forms.fixed[l->program->values[v].root] = true;
}

static void set_form(struct lowering *l, int v, enum cuda_form form)
{
    const struct value *value = &l->graph->values[v];
    bool last = form == CUDA_LAST;

    if (v < l->n_known)
        l->forms.form[v] = (unsigned char)form;
    if (form != CUDA_SINGLE)
        l->program->values[v].layout = (struct value_layout){
            last ? &cuda_last_layout : &cuda_narrow_layout,
            CUDA_NARROW_BYTES * (size_t)shape_elements(&value->shape), last ? cuda_last_layout : 0,
            v < l->n_known && cuda_border_form(value, form) == form
        };
}

static void find_fixed(struct lowering *l)
{
    const struct program *p = l->program;

    for (int v = 0; v < l->n_known; v++) {
        enum value_place place = p->values[v].place;

        if (l->graph->values[v].kind != VALUE_NODE ||
            (place != PLACE_SLOT && place != PLACE_SCRATCH))
            fix(l, v);
    }
    fix(l, l->graph->loss);
    fix(l, l->graph->correct);
}

/* It is made here, or received as it is. */
static void cross(struct lowering *l, int v, const unsigned char *forms, bool received)
{
    if (v < 0)
        return;
    if (forms[v] == CUDA_SINGLE) {
        fix(l, v);
        return;
    }
    l->crossing[v] = forms[v];
    if (received)
        set_form(l, v, (enum cuda_form)forms[v]);
}

static void find_crossing(struct lowering *l)
{
    const struct autodiff *ad = l->program->autodiff;
    unsigned char *forms = cuda_border_forms(l->graph, ad, l->device->narrow);

    l->crossing = mem_new((size_t)l->n_known, sizeof(*l->crossing));
    memset(l->crossing, NOWHERE, (size_t)l->n_known);
    for (int i = 0; i < ad->n_boundaries; i++) {
        const struct boundary *b = &ad->boundaries[i];

        if (b->from == l->program->stage) {
            cross(l, b->value, forms, false);
            cross(l, b->received, forms, true);
        } else if (b->to == l->program->stage) {
            cross(l, b->value, forms, true);
            cross(l, b->gradient, forms, false);
        }
    }
    free(forms);
}

static int new_copy(struct lowering *l, int origin, enum cuda_form form)
{
    struct value v = l->graph->values[origin];
    char *name = mem_printf("%s/%s%s", v.name, dtype_name(form == CUDA_SINGLE ? DTYPE_F32 : narrow_type(l)),
                            form == CUDA_LAST ? "/last" : "");
    int id = graph_add_value(l->graph, name, VALUE_NODE, v.dtype, &v.shape, v.batch);

    free(name);
    l->origin = mem_resize(l->origin, (size_t)id + 1, sizeof(*l->origin));
    l->origin[id] = origin;
    l->copies[origin][form] = id;
    l->forms.copies[origin] |= (unsigned char)(1 << form);
    return id;
}

/* program_insert() makes room for the new value; only then it can have a layout. */
static void insert_reorder(struct lowering *l, int from, int to, enum part part, int where,
                           bool after)
{
    int node = graph_add_node(l->graph, NULL, op_find("Reorder"), 1, &from, 1, &to);

    l->graph->nodes[node].block = where < 0 ? -1 : l->graph->nodes[where].block;
    program_insert(l->program, part, where, after, node);
}

/* 'v' in that form, for a node that is about to read it. */
static int in_form(struct lowering *l, int v, enum cuda_form form, enum part part, int node)
{
    int origin = l->origin[v], narrow = l->copies[origin][CUDA_ROWS], from = narrow >= 0 ? narrow : origin;
    enum value_place place = l->program->values[from].place;
    bool once = place == PLACE_PARAM || place == PLACE_PREPARED;
    int id;

    if (l->forms.form[origin] == form)
        return origin;
    if (l->copies[origin][form] >= 0)
        return l->copies[origin][form];
    id = new_copy(l, origin, form);
    insert_reorder(l, from, id, once ? PART_PREPARE : part, once ? -1 : node, once);
    set_form(l, id, form);
    return id;
}

/* Products are summed in float32, and those that nothing is added to can be left so: what is a
 * gradient of weights loses nothing.
 */
static bool can_stay_single(const struct node *n)
{
    return (strcmp(n->op->name, "MatMul") == 0 || strcmp(n->op->name, "Gemm") == 0) &&
           (n->n_inputs < 3 || n->inputs[2] < 0);
}

/* The node makes a copy in its own form, from which comes what is seen from outside. */
static void make_beside(struct lowering *l, int node, int i, enum cuda_form made, enum cuda_form seen,
                        enum part part)
{
    int v = l->graph->nodes[node].outputs[i], id = new_copy(l, v, made);

    l->graph->nodes[node].outputs[i] = id;
    l->graph->values[id].producer = node;
    insert_reorder(l, id, v, part, node, true);
    set_form(l, id, made);
    set_form(l, v, seen);
}

static void lower_output(struct lowering *l, int node, int i, enum cuda_form form, enum part part)
{
    int v = l->graph->nodes[node].outputs[i];
    enum cuda_form seen = form;

    if (v >= 0 && l->crossing[v] != NOWHERE)
        seen = (enum cuda_form)l->crossing[v];
    else if (v >= 0 && l->forms.fixed[v])
        seen = CUDA_SINGLE;
    if (v < 0 || (seen != form && seen == CUDA_SINGLE && can_stay_single(&l->graph->nodes[node])))
        return;
    if (seen == form)
        set_form(l, v, form);
    else
        make_beside(l, node, i, form, seen, part);
}

void cuda_give_output(struct graph *graph, int node)
{
    struct node *n = &graph->nodes[node];
    int *inputs = arena_alloc(graph->arena, CUDA_GRAD_Y + 1, sizeof(*inputs));

    for (int i = 0; i < CUDA_GRAD_Y; i++)
        inputs[i] = i < n->n_inputs ? n->inputs[i] : -1;
    inputs[CUDA_GRAD_Y] = graph->nodes[n->source].outputs[0];
    n->inputs = inputs;
    n->n_inputs = CUDA_GRAD_Y + 1;
}

/* Then y is kept for the gradient, but no scores. */
static void lower_attention(struct lowering *l, int node)
{
    const struct node *n = &l->graph->nodes[node];

    if (strcmp(n->op->name, "AttentionGrad") == 0 && n->n_inputs <= CUDA_GRAD_Y && n->source >= 0 &&
        cuda_attention_fused(l->device, l->graph, node))
        cuda_give_output(l->graph, node);
}

static void set_places(struct program *program, int v, const char *layout, size_t size)
{
    size_t n = (size_t)shape_elements(&program->graph->values[v].shape);

    program->values[v].layout = (struct value_layout){ layout, n * size, (uint64_t)*layout, false };
}

/* Where a MaxPool's maxima were, or -1. */
static int places_of(const struct node *n)
{
    return strcmp(n->op->name, "MaxPool") == 0 && n->n_outputs > 1 ? n->outputs[1] : -1;
}

/* Its gradient, in whatever form, sees it by the layout. */
static void lower_places(struct lowering *l, int node)
{
    int v = places_of(&l->graph->nodes[node]);

    if (v >= 0 && !l->forms.fixed[v])
        set_places(l->program, v, &cuda_places_layout, sizeof(int32_t));
}

/* Are all that read them gradients of images whose channels are last? */
static bool for_library(const struct program *program, int v)
{
    const struct value *value = &program->graph->values[v];
    bool all = value->n_consumers > 0 && program->values[v].layout.opaque == &cuda_places_layout;

    for (int i = 0; i < value->n_consumers && all; i++) {
        const struct node *n = &program->graph->nodes[value->consumers[i]];

        all = strcmp(n->op->name, "MaxPoolGrad") == 0 &&
              cuda_is_last(&program->values[n->inputs[0]].layout) &&
              cuda_is_last(&program->values[n->outputs[0]].layout);
    }
    return all;
}

/* Those that cuDNN finds: it has a form of its own, which its gradient alone can read. */
static void give_pools(struct device *device, struct program *program)
{
    const struct program_list *list = &program->list[PART_FORWARD];

    for (int i = 0; i < list->n; i++) {
        int v = places_of(&program->graph->nodes[list->nodes[i]]);

        if (v >= 0 && for_library(program, v) && cuda_pool_fits(device, program->graph, list->nodes[i]))
            set_places(program, v, &cuda_index_layout, sizeof(int8_t));
    }
}

static void lower_node(struct lowering *l, int node, enum part part)
{
    struct cuda_way way = cuda_forms_way(&l->forms, node);
    int n_inputs, n_outputs = l->graph->nodes[node].n_outputs;

    if (way.narrow)
        lower_attention(l, node);
    if (way.last)
        lower_places(l, node);
    n_inputs = l->graph->nodes[node].n_inputs;
    for (int i = 0; i < n_inputs; i++) {
        int v = l->graph->nodes[node].inputs[i];
        bool wanted = way.narrow && cuda_narrows_input(l->graph, node, i);

        /* The graph may move while a copy is made. */
        if (v >= 0) {
            v = in_form(l, v, wanted ? cuda_form_for(l->graph, v, way) : CUDA_SINGLE, part, node);
            l->graph->nodes[node].inputs[i] = v;
        }
    }
    for (int i = 0; i < n_outputs; i++) {
        bool narrow = way.narrow && cuda_narrows_output(l->graph, node, i);

        lower_output(l, node, i,
                     narrow ? cuda_form_for(l->graph, l->graph->nodes[node].outputs[i], way)
                            : CUDA_SINGLE, part);
    }
}

static void lower_part(struct lowering *l, enum part part)
{
    int n = l->program->list[part].n;
    int *nodes = mem_new((size_t)n + 1, sizeof(*nodes));

    /* The list grows while nodes are put into it. */
    if (n > 0)
        memcpy(nodes, l->program->list[part].nodes, (size_t)n * sizeof(*nodes));
    for (int i = 0; i < n; i++)
        lower_node(l, nodes[i], part);
    free(nodes);
}

static void start(struct lowering *l)
{
    size_t n = (size_t)l->n_known;

    l->graph = l->program->graph;
    l->origin = mem_new(n, sizeof(*l->origin));
    l->copies = mem_new(n, sizeof(*l->copies));
    cuda_forms_start(&l->forms, l->graph, l->device, l->device->narrow, l->program->autodiff->seed);
    for (int v = 0; v < l->n_known; v++) {
        l->origin[v] = v;
        for (int form = 0; form < CUDA_FORMS; form++)
            l->copies[v][form] = -1;
    }
    find_fixed(l);
    find_crossing(l);
}

static void make_narrow(struct device *device, struct program *program)
{
    struct lowering l = { .device = device, .program = program, .n_known = program->n_values };

    start(&l);
    lower_part(&l, PART_FORWARD);
    lower_part(&l, PART_DGRAD);
    lower_part(&l, PART_WGRAD);
    cuda_turn_attentions(device, program);
    cuda_forms_clear(&l.forms);
    free(l.crossing);
    free(l.copies);
    free(l.origin);
}

int cuda_lower(struct device *device, struct program *program, struct err *err)
{
    (void)err;
    program_own_graph(program);
    if (device->narrow)
        make_narrow(device, program);
    program_relink(program);
    if (device->narrow && device->library_pools)
        give_pools(device, program);
    if (device->narrow && !device->no_chains) {
        cuda_join_relus(program);
        program_relink(program);
    }
    cuda_join_biases(device, program);
    program_relink(program);
    cuda_form_chains(device, program);
    program_relink(program);
    return 0;
}
