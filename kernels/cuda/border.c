/* SPDX-License-Identifier: MIT */
#include "kernels/cuda/border.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

bool cuda_crosses(const struct program *program, int v)
{
    const struct autodiff *ad = program->autodiff;
    bool crosses = false;

    for (int i = 0; i < ad->n_boundaries && !crosses; i++) {
        const struct boundary *b = &ad->boundaries[i];

        crosses = (b->from == program->stage && (b->value == v || b->received == v)) ||
                  (b->to == program->stage && (b->value == v || b->gradient == v));
    }
    return crosses;
}

/* Forms --------------------------------------------------------------------------------- */

struct walker {
    const struct graph *graph;
    struct cuda_forms forms;
    int *same;                  /* of what is received: what is sent; else the value itself */
};

static void start(struct walker *w, const struct autodiff *ad, enum cuda_narrow narrow)
{
    const struct graph *graph = w->graph;

    cuda_forms_start(&w->forms, graph, NULL, narrow, ad->seed);
    w->same = mem_new((size_t)graph->n_values + 1, sizeof(*w->same));
    for (int v = 0; v < graph->n_values; v++) {
        w->same[v] = v;
        w->forms.fixed[v] = graph->values[v].kind != VALUE_NODE || v == graph->loss ||
                            v == graph->correct;
    }
    for (int i = 0; i < ad->n_boundaries; i++)
        if (ad->boundaries[i].gradient >= 0)
            w->same[ad->boundaries[i].received] = ad->boundaries[i].gradient;
}

/* What was sent may itself have been received. */
static int sent(const struct walker *w, int v)
{
    while (w->same[v] != v)
        v = w->same[v];
    return v;
}

static void read_inputs(struct walker *w, int node, struct cuda_way way)
{
    const struct node *n = &w->graph->nodes[node];

    for (int i = 0; i < n->n_inputs; i++)
        if (cuda_narrows_input(w->graph, node, i))
            w->forms.copies[n->inputs[i]] |=
                (unsigned char)(1 << cuda_form_for(w->graph, n->inputs[i], way));
}

static void walk_node(struct walker *w, int node)
{
    const struct node *n = &w->graph->nodes[node];
    struct cuda_way way;

    for (int i = 0; i < n->n_inputs; i++)
        if (n->inputs[i] >= 0)
            w->forms.form[n->inputs[i]] = w->forms.form[sent(w, n->inputs[i])];
    way = cuda_forms_way(&w->forms, node);
    if (!way.narrow)
        return;
    read_inputs(w, node, way);
    for (int i = 0; i < n->n_outputs; i++)
        if (cuda_narrows_output(w->graph, node, i) && !w->forms.fixed[n->outputs[i]])
            w->forms.form[n->outputs[i]] =
                (unsigned char)cuda_form_for(w->graph, n->outputs[i], way);
}

static void walk_part(struct walker *w, enum part part)
{
    for (int n = 0; n < w->graph->n_nodes; n++)
        if (w->graph->nodes[n].part == part)
            walk_node(w, n);
}

/* What does not follow the samples is summed up where it arrives, in float32. */
enum cuda_form cuda_border_form(const struct value *value, enum cuda_form form)
{
    if (value->batch.outer == 0)
        return CUDA_SINGLE;
    /* Routes cut by samples: images have to be one. */
    return form == CUDA_LAST && value->batch.place != 1 ? CUDA_ROWS : form;
}

/* The gradient has the samples of what it is 'of'. */
static unsigned char form_of(const struct walker *w, int v, int of)
{
    return (unsigned char)cuda_border_form(&w->graph->values[of],
                                           (enum cuda_form)w->forms.form[sent(w, v)]);
}

unsigned char *cuda_border_forms(const struct graph *graph, const struct autodiff *autodiff,
                                 enum cuda_narrow narrow)
{
    struct walker w = { .graph = graph };
    unsigned char *forms = mem_new((size_t)graph->n_values + 1, sizeof(*forms));

    start(&w, autodiff, narrow);
    walk_part(&w, PART_FORWARD);
    walk_part(&w, PART_DGRAD);
    for (int i = 0; i < autodiff->n_boundaries; i++) {
        const struct boundary *b = &autodiff->boundaries[i];

        forms[b->value] = form_of(&w, b->value, b->value);
        if (b->gradient >= 0)
            forms[b->gradient] = forms[b->received] = form_of(&w, b->gradient, b->value);
    }
    free(w.same);
    cuda_forms_clear(&w.forms);
    return forms;
}

static size_t *crossing(const struct graph *graph, const struct autodiff *autodiff,
                        enum cuda_narrow narrow)
{
    unsigned char *forms = cuda_border_forms(graph, autodiff, narrow);
    size_t *bytes = mem_new((size_t)graph->n_values + 1, sizeof(*bytes));

    for (int v = 0; v < graph->n_values; v++)
        bytes[v] = forms[v] == CUDA_SINGLE
                       ? value_bytes(&graph->values[v])
                       : CUDA_NARROW_BYTES * (size_t)shape_elements(&graph->values[v].shape);
    free(forms);
    return bytes;
}

size_t *cuda_crossing_bf16(const struct graph *graph, const struct autodiff *autodiff)
{
    return crossing(graph, autodiff, CUDA_BFLOAT16);
}

size_t *cuda_crossing_fp16(const struct graph *graph, const struct autodiff *autodiff)
{
    return crossing(graph, autodiff, CUDA_FLOAT16);
}
