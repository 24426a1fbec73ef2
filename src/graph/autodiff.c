/* SPDX-License-Identifier: MIT */
#include "graph/autodiff.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"

struct contribution {
    int stage, value;
    int note;               /* in autodiff.contributions; -1: it is none of an activation's */
};

/* What stages contribute to the gradient of a value, and the sums that were asked for. */
struct sums {
    int n, n_final;
    struct contribution *items, *final;
};

struct state {
    int n_nodes, n_values;      /* of the forward graph */
    struct sums *sums;          /* of each forward value */
    bool *wanted;               /* lies on a path from a parameter */
    bool *taken;                /* gradients that others own the bytes of */
    int n_taken;
    int current;                /* stage of the rule that is running */
    int n_stage_of, *stage_of;  /* of every node */
    int n_inner, *inner;        /* gradients of activations: what makes them is B */
    struct err *err;
    bool failed;
};

struct work {
    struct grad grad;
    struct state state;
    struct autodiff result;
};

static struct autodiff *result_of(struct grad *grad)
{
    return &((struct work *)grad)->result;
}

static int stage_of_forward(const struct grad *grad, int node)
{
    return grad->stage ? grad->stage[node] : 0;
}

/* Parameters and what follows from them alone are at hand in every stage: each stage sums its
 * own gradient of them.
 */
static bool in_every_stage(const struct graph *graph, int v)
{
    const struct value *value = &graph->values[v];

    return value->kind != VALUE_NODE ||
           (value->producer >= 0 && graph->nodes[value->producer].part == PART_PREPARE);
}

static void note_stage(struct state *s, int node, int stage)
{
    while (s->n_stage_of <= node)
        *(int *)mem_push((void **)&s->stage_of, &s->n_stage_of, sizeof(int)) = 0;
    s->stage_of[node] = stage;
}

static int add_node(struct grad *grad, const char *op, int stage, int source, int n_inputs,
                    const int *inputs, struct err *err)
{
    struct graph *graph = grad->graph;
    const struct op *found = op_find(op);
    char *name;
    int node;

    if (!found)
        return err_set(err, "there is no operator \"%s\"", op);
    name = mem_printf("%s/grad", graph->nodes[source].name);
    node = graph_add_node(graph, name, found, n_inputs, inputs, 0, NULL);
    free(name);
    graph->nodes[node].source = source;
    graph->nodes[node].part = PART_DGRAD;
    graph->nodes[node].block = graph->nodes[source].block;
    graph->nodes[node].key = graph->nodes[source].key;
    note_stage(grad->state, node, stage);
    return node;
}

static void set_like(struct graph *graph, int v, int like)
{
    struct value *value = &graph->values[v];

    value->dtype = value->file_dtype = graph->values[like].dtype;
    value->shape = graph->values[like].shape;
    value->batch = graph->values[like].batch;
}

/* One output of the shape of value 'like'. */
static int add_like(struct grad *grad, const char *op, int stage, int source, int n_inputs,
                    const int *inputs, int like, struct err *err)
{
    int node = add_node(grad, op, stage, source, n_inputs, inputs, err), v;

    if (node < 0)
        return -1;
    v = graph_add_output(grad->graph, node);
    set_like(grad->graph, v, like);
    return v;
}

/* Sum what stage 'stage' contributes to value v; -1 where it contributes nothing. */
static int sum_in_stage(struct grad *grad, int v, int stage)
{
    struct state *s = grad->state;
    const struct sums *sums = &s->sums[v];
    int *values, n = 0, result;

    for (int i = 0; i < sums->n; i++)
        n += sums->items[i].stage == stage;
    if (n == 0)
        return -1;
    values = mem_new((size_t)n, sizeof(*values));
    n = 0;
    for (int i = 0; i < sums->n; i++)
        if (sums->items[i].stage == stage)
            values[n++] = sums->items[i].value;
    result = n == 1 ? values[0]
                    : add_like(grad, "AddN", stage, grad->node, n, values, v, s->err);
    free(values);
    if (result < 0)
        s->failed = true;
    for (int i = 0; i < sums->n; i++)
        if (sums->items[i].stage == stage && sums->items[i].note >= 0)
            result_of(grad)->contributions[sums->items[i].note].sum = result;
    return result;
}

/* The first stage from 'from' on that contributes to value v; n_stages where none does. */
static int next_stage(const struct grad *grad, int v, int from)
{
    const struct state *s = grad->state;
    const struct sums *sums = &s->sums[v];
    int next = grad->n_stages;

    for (int i = 0; i < sums->n; i++)
        if (sums->items[i].stage >= from && sums->items[i].stage < next)
            next = sums->items[i].stage;
    return next;
}

static struct boundary *boundary_add(struct autodiff *result, int v, int from, int to)
{
    struct boundary *b = mem_push((void **)&result->boundaries, &result->n_boundaries,
                                  sizeof(*b));

    *b = (struct boundary){ v, from, to, -1, -1 };
    return b;
}

/* The gradient of an activation in its producer's stage: its own contributions, then those
 * that come from later stages, in stage order.
 */
static int sum_activation(struct grad *grad, int v)
{
    struct state *s = grad->state;
    int home = stage_of_forward(grad, grad->graph->values[v].producer);
    int own = sum_in_stage(grad, v, home), n = 0, result;
    int *parts = mem_new((size_t)s->sums[v].n + 1, sizeof(*parts));

    if (own >= 0)
        parts[n++] = own;
    for (int t = next_stage(grad, v, home + 1); t < grad->n_stages;
         t = next_stage(grad, v, t + 1)) {
        int partial = sum_in_stage(grad, v, t), received;
        const struct value *value;
        struct boundary *b;

        if (partial < 0)
            continue;
        value = &grad->graph->values[v];
        received = graph_add_value(grad->graph, NULL, VALUE_NODE, value->dtype, &value->shape,
                                   value->batch);
        b = boundary_add(result_of(grad), v, home, t);
        b->gradient = partial;
        b->received = received;
        *(int *)mem_push((void **)&s->inner, &s->n_inner, sizeof(int)) = partial;
        parts[n++] = received;
    }
    result = n == 0 ? -1 : n == 1 ? parts[0]
             : add_like(grad, "AddN", home, grad->node, n, parts, v, s->err);
    if (n > 1 && result < 0)
        s->failed = true;
    if (result >= 0)
        *(int *)mem_push((void **)&s->inner, &s->n_inner, sizeof(int)) = result;
    free(parts);
    return result;
}

/* The summed gradient of a forward value as stage 'stage' sees it. */
static int final_gradient(struct grad *grad, int v, int stage)
{
    struct state *s = grad->state;
    struct sums *sums;
    int sum;

    if (v < 0 || v >= s->n_values)
        return -1;
    sums = &s->sums[v];
    for (int i = 0; i < sums->n_final; i++)
        if (sums->final[i].stage == stage)
            return sums->final[i].value;
    sum = in_every_stage(grad->graph, v) ? sum_in_stage(grad, v, stage)
                                         : sum_activation(grad, v);
    if (sum >= 0)
        *(struct contribution *)mem_push((void **)&sums->final, &sums->n_final,
                                         sizeof(*sums->final)) =
            (struct contribution){ stage, sum, -1 };
    return sum;
}

int grad_of_output(struct grad *grad, int index)
{
    const struct node *node = &grad->graph->nodes[grad->node];
    struct state *s = grad->state;

    if (index >= node->n_outputs)
        return -1;
    return final_gradient(grad, node->outputs[index], s->current);
}

bool grad_wanted(const struct grad *grad, int index)
{
    const struct node *node = &grad->graph->nodes[grad->node];
    const struct state *s = grad->state;

    return index < node->n_inputs && node->inputs[index] >= 0 &&
           s->wanted[node->inputs[index]];
}

int grad_emit(struct grad *grad, const char *op, int n_inputs, const int *inputs,
              int like_input, struct err *err)
{
    const struct state *s = grad->state;
    int like = grad->graph->nodes[grad->node].inputs[like_input];

    int v = add_like(grad, op, s->current, grad->node, n_inputs, inputs, like, err);

    if (v >= 0)
        graph_copy_attrs(grad->graph, grad->graph->values[v].producer, grad->node);
    return v;
}

int grad_node(struct grad *grad, const char *op, int n_inputs, const int *inputs,
              int n_outputs, struct err *err)
{
    const struct state *s = grad->state;
    int node = add_node(grad, op, s->current, grad->node, n_inputs, inputs, err);

    if (node < 0)
        return -1;
    while (grad->graph->nodes[node].n_outputs < n_outputs)
        graph_add_output(grad->graph, node);
    graph_copy_attrs(grad->graph, node, grad->node);
    return op_infer(grad->graph, node, err) ? -1 : node;
}

void grad_add(struct grad *grad, int index, int gradient)
{
    struct state *s = grad->state;
    int v = grad->graph->nodes[grad->node].inputs[index];
    struct sums *sums = &s->sums[v];
    struct autodiff *result = result_of(grad);
    int note = -1;

    if (!s->wanted[v])
        return;
    if (!in_every_stage(grad->graph, v)) {
        *(int *)mem_push((void **)&s->inner, &s->n_inner, sizeof(int)) = gradient;
        note = result->n_contributions;
        *(struct grad_contribution *)mem_push((void **)&result->contributions,
                                              &result->n_contributions,
                                              sizeof(*result->contributions)) =
            (struct grad_contribution){ v, grad->node, gradient, -1 };
    }
    *(struct contribution *)mem_push((void **)&sums->items, &sums->n, sizeof(*sums->items)) =
        (struct contribution){ s->current, gradient, note };
}

static void find_wanted(struct grad *grad)
{
    struct state *s = grad->state;
    const struct graph *graph = grad->graph;

    for (int v = 0; v < s->n_values; v++)
        s->wanted[v] = graph->values[v].kind == VALUE_PARAM;
    for (int n = 0; n < s->n_nodes; n++) {
        const struct node *node = &graph->nodes[n];
        bool any = false;

        for (int i = 0; i < node->n_inputs; i++)
            any |= node->inputs[i] >= 0 && s->wanted[node->inputs[i]];
        for (int i = 0; any && i < node->n_outputs; i++)
            if (node->outputs[i] >= 0 && !(node->op->flags & OP_NO_GRAD))
                s->wanted[node->outputs[i]] =
                    dtype_is_float(graph->values[node->outputs[i]].dtype);
    }
}

static int run_rule(struct grad *grad, int node, int stage, struct err *err)
{
    struct state *s = grad->state;
    bool flows = false, wanted = false;

    grad->node = node;
    s->current = stage;
    for (int i = 0; i < grad->graph->nodes[node].n_inputs; i++)
        wanted |= grad_wanted(grad, i);
    if (!wanted)
        return 0;
    for (int i = 0; i < grad->graph->nodes[node].n_outputs; i++)
        flows |= grad_of_output(grad, i) >= 0;
    if (s->failed)
        return -1;
    if (!flows || grad->graph->nodes[node].op->flags & OP_NO_GRAD)
        return 0;
    if (!grad->graph->nodes[node].op->grad)
        return op_error(grad->graph, node, err, "the operator has no gradient");
    return grad->graph->nodes[node].op->grad(grad, node, err);
}

/* The first stage from 'from' on that contributes to an output; n_stages where none does. */
static int next_stage_behind(const struct grad *grad, int node, int from)
{
    const struct node *n = &grad->graph->nodes[node];
    int next = grad->n_stages;

    for (int i = 0; i < n->n_outputs; i++) {
        int t = n->outputs[i] < 0 ? next : next_stage(grad, n->outputs[i], from);

        next = t < next ? t : next;
    }
    return next;
}

static int run_rules(struct grad *grad, struct err *err)
{
    struct state *s = grad->state;

    for (int n = s->n_nodes - 1; n >= 0; n--) {
        if (grad->graph->nodes[n].part != PART_PREPARE) {
            if (run_rule(grad, n, stage_of_forward(grad, n), err))
                return -1;
            continue;
        }
        for (int t = next_stage_behind(grad, n, 0); t < grad->n_stages;
             t = next_stage_behind(grad, n, t + 1))
            if (run_rule(grad, n, t, err))
                return -1;
    }
    return 0;
}

static int seed_loss(struct grad *grad, struct err *err)
{
    struct state *s = grad->state;
    struct graph *graph = grad->graph;
    static const struct shape scalar = { 0, { 0 } };
    const double one = 1;
    const float one_f = 1;
    int seed, v = graph->loss;

    if (v < 0 || graph->values[v].producer < 0)
        return err_set(err, "the graph has no loss");
    if (!s->wanted[v])
        return err_set(err, "the loss depends on no parameter");
    seed = graph_add_const(graph, "loss/grad", graph->real, &scalar,
                           graph->real == DTYPE_F64 ? (const void *)&one : &one_f);
    result_of(grad)->seed = seed;
    *(struct contribution *)mem_push((void **)&s->sums[v].items, &s->sums[v].n,
                                     sizeof(struct contribution)) =
        (struct contribution){ stage_of_forward(grad, graph->values[v].producer), seed, -1 };
    return 0;
}

/* A parameter's gradient is accumulated in place, so nobody else may own those bytes. */
static bool shares_bytes(const struct grad *grad, int v)
{
    const struct state *s = grad->state;
    const struct graph *graph = grad->graph;
    const struct value *value = &graph->values[v];

    return value->kind != VALUE_NODE || value->producer < 0 || value->n_consumers > 0 ||
           graph->nodes[value->producer].op->flags & OP_VIEW ||
           (v < s->n_taken && s->taken[v]);
}

/* The gradient of parameter v that stage t accumulates. */
static int collect_param(struct grad *grad, int v, int t, struct err *err)
{
    struct state *s = grad->state;
    struct autodiff *result = result_of(grad);
    int g;

    grad->node = grad->graph->values[v].consumers[0];
    g = final_gradient(grad, v, t);
    if (!s->failed && shares_bytes(grad, g))
        g = add_like(grad, "Copy", t, grad->node, 1, &g, v, err);
    if (s->failed || g < 0)
        return -1;
    if (g < s->n_taken)
        s->taken[g] = true;
    *(struct param_grad *)mem_push((void **)&result->params, &result->n_params,
                                   sizeof(struct param_grad)) =
        (struct param_grad){ v, t, g };
    return 0;
}

static int collect_params(struct grad *grad, struct err *err)
{
    struct state *s = grad->state;
    const struct autodiff *result = result_of(grad);

    s->n_taken = grad->graph->n_values;
    s->taken = mem_new((size_t)s->n_taken, sizeof(*s->taken));
    for (int i = 0; i < result->n_boundaries; i++)
        s->taken[result->boundaries[i].gradient] = true;
    for (int v = 0; v < s->n_values; v++) {
        if (grad->graph->values[v].kind != VALUE_PARAM)
            continue;
        for (int t = next_stage(grad, v, 0); t < grad->n_stages; t = next_stage(grad, v, t + 1))
            if (collect_param(grad, v, t, err))
                return -1;
    }
    return 0;
}

static void collect_stats(struct grad *grad)
{
    const struct state *s = grad->state;
    struct autodiff *result = result_of(grad);

    for (int n = 0; n < s->n_nodes; n++) {
        const struct node *node = &grad->graph->nodes[n];

        if (strcmp(node->op->name, "BatchNormalization") != 0)
            continue;
        for (int i = 0; i < 2; i++)
            *(struct stat_update *)mem_push((void **)&result->stats, &result->n_stats,
                                            sizeof(struct stat_update)) =
                (struct stat_update){ node->inputs[3 + i], stage_of_forward(grad, n),
                                      node->outputs[1 + i], node_float(node, "momentum", 0.9) };
    }
}

/* Forward values that cross a boundary, those without a gradient too; with repetitions. */
static void collect_boundaries(struct grad *grad)
{
    const struct state *s = grad->state;
    struct autodiff *result = result_of(grad);
    const struct graph *graph = grad->graph;

    for (int n = 0; n < s->n_nodes; n++) {
        int to = stage_of_forward(grad, n);

        if (graph->nodes[n].part == PART_PREPARE)
            continue;
        for (int i = 0; i < graph->nodes[n].n_inputs; i++) {
            int v = graph->nodes[n].inputs[i], from;

            if (v < 0 || in_every_stage(graph, v))
                continue;
            from = stage_of_forward(grad, graph->values[v].producer);
            if (from != to)
                boundary_add(result, v, from, to);
        }
    }
}

static void mark_parts(struct grad *grad)
{
    struct state *s = grad->state;
    struct graph *graph = grad->graph;
    bool *inner = mem_new((size_t)graph->n_values, sizeof(*inner));

    for (int i = 0; i < s->n_inner; i++)
        inner[s->inner[i]] = true;
    for (int n = graph->n_nodes - 1; n >= s->n_nodes; n--) {
        struct node *node = &graph->nodes[n];
        bool b = false;

        for (int i = 0; i < node->n_outputs; i++)
            b |= node->outputs[i] >= 0 && inner[node->outputs[i]];
        node->part = b ? PART_DGRAD : PART_WGRAD;
        for (int i = 0; b && i < node->n_inputs; i++)
            if (node->inputs[i] >= 0)
                inner[node->inputs[i]] = true;
    }
    free(inner);
}

static int by_readiness(const void *a, const void *b, void *user)
{
    const struct param_grad *x = a, *y = b;
    const struct graph *graph = user;

    if (x->stage != y->stage)
        return x->stage < y->stage ? -1 : 1;
    return graph->values[x->gradient].producer - graph->values[y->gradient].producer;
}

static int by_route(const void *a, const void *b)
{
    const struct boundary *x = a, *y = b;

    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    if (x->value != y->value)
        return x->value - y->value;
    return y->gradient - x->gradient;
}

/* Of sorted boundaries that are alike the first stays: the one with a gradient. */
static void drop_repetitions(struct autodiff *result)
{
    struct boundary *all = result->boundaries;
    int n = 0;

    for (int i = 0; i < result->n_boundaries; i++)
        if (n == 0 || all[n - 1].value != all[i].value || all[n - 1].from != all[i].from ||
            all[n - 1].to != all[i].to)
            all[n++] = all[i];
    result->n_boundaries = n;
}

static void *into_arena(struct graph *graph, void *array, int n, size_t size)
{
    void *copy = arena_alloc(graph->arena, (size_t)n + 1, size);

    if (n)
        memcpy(copy, array, (size_t)n * size);
    free(array);
    return copy;
}

static void hand_over(struct work *w, struct autodiff *out, int **stage_out)
{
    struct graph *graph = w->grad.graph;
    struct autodiff *r = &w->result;

    if (r->n_params)
        qsort_r(r->params, (size_t)r->n_params, sizeof(*r->params), by_readiness, graph);
    if (r->n_boundaries)
        qsort(r->boundaries, (size_t)r->n_boundaries, sizeof(*r->boundaries), by_route);
    drop_repetitions(r);
    *out = *r;
    out->params = into_arena(graph, r->params, r->n_params, sizeof(*r->params));
    out->stats = into_arena(graph, r->stats, r->n_stats, sizeof(*r->stats));
    out->boundaries = into_arena(graph, r->boundaries, r->n_boundaries, sizeof(*r->boundaries));
    out->contributions = into_arena(graph, r->contributions, r->n_contributions,
                                    sizeof(*r->contributions));
    memset(r, 0, sizeof(*r));
    if (stage_out) {
        *stage_out = into_arena(graph, w->state.stage_of, w->state.n_stage_of, sizeof(int));
        w->state.stage_of = NULL;
    }
}

static void begin(struct work *w, struct graph *graph, const int *stage, int n_stages,
                  struct err *err)
{
    struct state *s = &w->state;
    size_t n = (size_t)graph->n_values;

    w->grad = (struct grad){ graph, stage, n_stages, -1, s };
    s->n_nodes = graph->n_nodes;
    s->n_values = graph->n_values;
    s->sums = mem_new(n, sizeof(*s->sums));
    s->wanted = mem_new(n, sizeof(*s->wanted));
    s->err = err;
    for (int i = 0; i < graph->n_nodes; i++)
        note_stage(s, i, stage ? stage[i] : 0);
}

static void end(struct work *w)
{
    struct state *s = &w->state;

    for (int v = 0; v < s->n_values; v++) {
        free(s->sums[v].items);
        free(s->sums[v].final);
    }
    free(s->sums);
    free(s->taken);
    free(s->wanted);
    free(s->stage_of);
    free(s->inner);
    free(w->result.params);
    free(w->result.stats);
    free(w->result.boundaries);
    free(w->result.contributions);
}

static int check_stages(const struct grad *grad, struct err *err)
{
    const struct graph *graph = grad->graph;

    for (int n = 0; n < graph->n_nodes; n++) {
        int stage = stage_of_forward(grad, n);

        if (stage < 0 || stage >= grad->n_stages)
            return op_error(graph, n, err, "stage %d of %d", stage, grad->n_stages);
        for (int i = 0; i < graph->nodes[n].n_inputs; i++) {
            int v = graph->nodes[n].inputs[i];

            if (v >= 0 && !in_every_stage(graph, v) &&
                stage_of_forward(grad, graph->values[v].producer) > stage)
                return op_error(graph, n, err, "reads \"%s\" from a later stage",
                                graph->values[v].name);
        }
    }
    return 0;
}

int autodiff(struct graph *graph, const int *stage, int n_stages, struct autodiff *result,
             int **stage_out, struct err *err)
{
    struct work w = { 0 };
    struct err local = { 0 };
    int status = -1;

    begin(&w, graph, stage, n_stages, &local);
    find_wanted(&w.grad);
    if (check_stages(&w.grad, &local) || seed_loss(&w.grad, &local) ||
        run_rules(&w.grad, &local) || collect_params(&w.grad, &local))
        goto cleanup;
    collect_stats(&w.grad);
    collect_boundaries(&w.grad);
    mark_parts(&w.grad);
    hand_over(&w, result, stage_out);
    status = 0;
cleanup:
    if (status && err)
        *err = local;
    end(&w);
    return status;
}
