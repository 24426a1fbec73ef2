/* SPDX-License-Identifier: MIT */
/* LSTM, GRU and RNN, step by step: the products with the input are made for all steps at once,
 * the rest are nodes for each.
 */
#include "graph/canon.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/dims.h"

enum { MAX_STEPS = 4096, MAX_GATES = 4 };

struct recurrent {
    struct build *build;
    const struct onnx_node *node;
    struct err *err;
    const char *op;
    int gates;                  /* 4, 3 or 1 */
    int64_t steps, hidden;
    int directions;
    bool reverse;               /* of the direction at work */
    int direction;
    double clip;
    /* Values of the direction at work; -1: absent. */
    int x;                      /* [steps, batch, input] */
    int recurrence;             /* [gates * hidden, hidden] */
    int gated, fresh;           /* of a GRU: those of the two gates, and of the new state */
    int fresh_bias;
    int bias[2];                /* [gates * hidden]: with the input, with the state */
    int peephole[3];            /* [hidden]: input, output, forget */
    int h, c;                   /* [batch, hidden] */
    int lengths;                /* [batch, 1] */
    int *pre;                   /* of each step: [batch, gates * hidden] */
    int *out;                   /* of each step: [1, 1, batch, hidden] */
};

static int pair(struct recurrent *r, const char *op, int a, int b)
{
    return a < 0 || b < 0 ? -1 : canon_step(r->build, r->node, op, 2, (int[]){ a, b }, r->err);
}

static bool given(const struct recurrent *r, int index)
{
    return index < (int)r->node->proto->n_input && r->node->inputs[index] >= 0;
}

static int scalar(struct recurrent *r, double value)
{
    return canon_scalar(r->build, r->build->options->real, value, r->err);
}

/* x under a shape; an axis of -1 is what is left. */
static int reshape(struct recurrent *r, int x, int rank, const int64_t *dims)
{
    struct shape shapes[BUILD_TWINS];
    int t;

    for (t = 0; t < BUILD_TWINS && x >= 0; t++)
        if (dims_reshape(canon_shape_of(r->build, x, t), rank, dims, true, &shapes[t], r->err))
            return -1;
    return x < 0 ? -1 : canon_shaped(r->build, r->node, x, shapes, r->err);
}

static int product(struct recurrent *r, int a, int b)
{
    int id = a < 0 || b < 0 ? -1 : canon_new(r->build, r->node, "MatMul", 2, (int[]){ a, b },
                                             r->err);

    if (id < 0)
        return -1;
    build_set_int(r->build, id, "transB", 1);
    return canon_settle(r->build, id, r->err);
}

/* Elements from … end-1 of an axis. */
static int cut(struct recurrent *r, int x, int64_t axis, int64_t from, int64_t end)
{
    if (x < 0 || (from == 0 && canon_shape_of(r->build, x, 0)->dim[axis] == end))
        return x;
    return canon_cut(r->build, r->node, x, axis, from, end, 1, r->err);
}

/* Equal parts along an axis. */
static int divide(struct recurrent *r, int x, int axis, int parts, int *out)
{
    int64_t *sizes = mem_new((size_t)parts, sizeof(*sizes));
    int id = x < 0 ? -1 : canon_new(r->build, r->node, "Split", 1, &x, r->err), t, i;

    for (t = 0; t < BUILD_TWINS && id >= 0; t++) {
        for (i = 1; i < parts; i++)
            graph_add_output(r->build->graph[t], id);
        for (i = 0; i < parts; i++)
            sizes[i] = canon_shape_of(r->build, x, t)->dim[axis] / parts;
        graph_set_ints(r->build->graph[t], id, "split", parts, sizes);
    }
    free(sizes);
    if (id < 0)
        return -1;
    build_set_int(r->build, id, "axis", axis);
    if (canon_settle(r->build, id, r->err) < 0)
        return -1;
    for (i = 0; i < parts; i++)
        out[i] = r->build->graph[0]->nodes[id].outputs[i];
    return 0;
}

static int join(struct recurrent *r, int n, const int *parts, int axis)
{
    return canon_joined(r->build, r->node, n, parts, axis, r->err);
}

/* Activations ------------------------------------------------------------------------- */

/* Function 'index' of the direction at work. */
static int activate(struct recurrent *r, int index, int x)
{
    static const struct {
        const char *name;
        double alpha, beta;
    } known[] = {
        { "Relu", 0, 0 }, { "Tanh", 0, 0 }, { "Sigmoid", 0, 0 }, { "Softsign", 0, 0 },
        { "Softplus", 0, 0 }, { "LeakyRelu", 0.01, 0 }, { "Elu", 1, 0 },
        { "HardSigmoid", (double)0.2f, 0.5 },
    };
    const OnnxFile__Attribute *names = onnx_attr(r->node->proto, "activations");
    const OnnxFile__Attribute *alpha = onnx_attr(r->node->proto, "activation_alpha");
    const OnnxFile__Attribute *beta = onnx_attr(r->node->proto, "activation_beta");
    size_t per = r->gates == 4 ? 3 : r->gates == 3 ? 2 : 1;
    size_t at = (size_t)r->direction * per + (size_t)index, i;
    const char *def = index == 0 && per > 1 ? "Sigmoid" : "Tanh";
    int id;

    if (x < 0)
        return -1;
    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (names && at < names->n_strings
                ? names->strings[at].len == strlen(known[i].name) &&
                  memcmp(names->strings[at].data, known[i].name, names->strings[at].len) == 0
                : strcmp(known[i].name, def) == 0)
            break;
    if (i == sizeof(known) / sizeof(known[0]))
        return err_set(r->err, "activation function %d is not supported", (int)at);
    id = canon_new(r->build, r->node, known[i].name, 1, &x, r->err);
    if (id < 0)
        return -1;
    if (known[i].alpha > 0)
        build_set_float(r->build, id, "alpha", alpha && at < alpha->n_floats
                        ? (double)alpha->floats[at] : known[i].alpha);
    if (known[i].beta > 0)
        build_set_float(r->build, id, "beta", beta && at < beta->n_floats
                        ? (double)beta->floats[at] : known[i].beta);
    return canon_settle(r->build, id, r->err);
}

static int clipped(struct recurrent *r, int x)
{
    int id;

    if (r->clip <= 0 || x < 0)
        return x;
    id = canon_new(r->build, r->node, "Clip", 1, &x, r->err);
    if (id < 0)
        return -1;
    build_set_float(r->build, id, "min", -r->clip);
    build_set_float(r->build, id, "max", r->clip);
    return canon_settle(r->build, id, r->err);
}

static int gate(struct recurrent *r, int index, int x)
{
    return activate(r, index, clipped(r, x));
}

/* Steps ------------------------------------------------------------------------------- */

/* x + weight * state, where both are there. */
static int peep(struct recurrent *r, int x, int weight, int state)
{
    return weight < 0 || state < 0 ? x : pair(r, "Add", x, pair(r, "Mul", weight, state));
}

static int step_lstm(struct recurrent *r, int pre, int *h, int *c)
{
    bool coupled = onnx_int(r->node->proto, "input_forget", 0) != 0;
    int part[MAX_GATES], i, f = -1, o, fresh;

    if (*h >= 0)
        pre = pair(r, "Add", pre, product(r, *h, r->recurrence));
    if (divide(r, pre, 1, 4, part))
        return -1;
    i = gate(r, 0, peep(r, part[0], r->peephole[0], *c));
    fresh = pair(r, "Mul", i, gate(r, 1, part[3]));
    if (*c >= 0) {
        f = coupled ? pair(r, "Sub", scalar(r, 1), i)
                    : gate(r, 0, peep(r, part[2], r->peephole[2], *c));
        fresh = pair(r, "Add", pair(r, "Mul", f, *c), fresh);
    }
    *c = fresh;
    o = gate(r, 0, peep(r, part[1], r->peephole[1], *c));
    *h = pair(r, "Mul", o, activate(r, 2, *c));
    return *h < 0 ? -1 : 0;
}

static int step_gru(struct recurrent *r, int pre, int *h)
{
    bool before = onnx_int(r->node->proto, "linear_before_reset", 0) != 0;
    int part[3], state[3] = { -1, -1, -1 }, all, z, reset, fresh;

    if (divide(r, pre, 1, 3, part))
        return -1;
    if (*h >= 0) {
        all = product(r, *h, before ? r->recurrence : r->gated);
        if (all < 0 || divide(r, all, 1, before ? 3 : 2, state))
            return -1;
        part[0] = pair(r, "Add", part[0], state[0]);
        part[1] = pair(r, "Add", part[1], state[1]);
    }
    z = gate(r, 0, part[0]);
    reset = gate(r, 0, part[1]);
    if (*h >= 0 && !before)
        state[2] = product(r, pair(r, "Mul", reset, *h), r->fresh);
    if (r->fresh_bias >= 0)
        state[2] = state[2] < 0 ? r->fresh_bias : pair(r, "Add", state[2], r->fresh_bias);
    if (before && state[2] >= 0)
        state[2] = pair(r, "Mul", reset, state[2]);
    fresh = gate(r, 1, state[2] < 0 ? part[2] : pair(r, "Add", part[2], state[2]));
    fresh = pair(r, "Mul", pair(r, "Sub", scalar(r, 1), z), fresh);
    *h = *h < 0 ? fresh : pair(r, "Add", fresh, pair(r, "Mul", z, *h));
    return *h < 0 ? -1 : 0;
}

static int step_rnn(struct recurrent *r, int pre, int *h)
{
    if (*h >= 0)
        pre = pair(r, "Add", pre, product(r, *h, r->recurrence));
    *h = gate(r, 0, pre);
    return *h < 0 ? -1 : 0;
}

/* A sequence that has ended keeps its state and gives zeros. */
static int hold(struct recurrent *r, int64_t t, int fresh, int old, int *kept, int *shown)
{
    enum dtype dtype = r->build->graph[0]->values[r->lengths].dtype;
    int goes_on = pair(r, "Less", canon_scalar(r->build, dtype, (double)t, r->err), r->lengths);
    int zero = scalar(r, 0);

    if (goes_on < 0 || zero < 0)
        return -1;
    *kept = canon_step(r->build, r->node, "Where", 3,
                       (int[]){ goes_on, fresh, old < 0 ? zero : old }, r->err);
    if (*kept >= 0 && shown)
        *shown = old < 0 ? *kept : canon_step(r->build, r->node, "Where", 3,
                                              (int[]){ goes_on, fresh, zero }, r->err);
    return *kept < 0 || (shown && *shown < 0) ? -1 : 0;
}

static int run_steps(struct recurrent *r)
{
    const int64_t row[] = { 1, 1, -1, r->hidden };

    for (int64_t i = 0; i < r->steps; i++) {
        int64_t t = r->reverse ? r->steps - 1 - i : i;
        int h = r->h, c = r->c, shown;

        if (r->gates == 4 ? step_lstm(r, r->pre[t], &h, &c)
            : r->gates == 3 ? step_gru(r, r->pre[t], &h) : step_rnn(r, r->pre[t], &h))
            return -1;
        shown = h;
        if (r->lengths >= 0 &&
            (hold(r, t, h, r->h, &h, &shown) || (c >= 0 && hold(r, t, c, r->c, &c, NULL))))
            return -1;
        r->h = h;
        r->c = c;
        r->out[t] = reshape(r, shown, 4, row);
        if (r->out[t] < 0)
            return -1;
    }
    return 0;
}

/* Inputs ------------------------------------------------------------------------------ */

/* What input 'index' has for the direction at work, without its axis of directions. */
static int own(struct recurrent *r, int index, int axis)
{
    struct shape shape;
    int64_t dims[GRAPH_MAX_RANK];
    int x, i;

    if (!given(r, index))
        return -1;
    x = cut(r, canon_input(r->build, r->node, index, r->err), axis, r->direction,
            r->direction + 1);
    if (x < 0)
        return -1;
    /* Of the axes that are left the one of samples is what the others leave. */
    shape = *canon_shape_of(r->build, x, 0);
    for (i = 0; i + 1 < shape.rank; i++)
        dims[i] = shape.dim[i + (i >= axis)];
    if (index >= 5 && index <= 6)
        dims[0] = -1;
    x = reshape(r, x, shape.rank - 1, dims);
    /* Every step reads it. */
    if (x >= 0)
        build_set_int(r->build, r->build->graph[0]->values[x].producer, "shared", 1);
    return x;
}

/* The input's part of all steps, with the biases that need not wait for the state. */
static int prepare(struct recurrent *r)
{
    int64_t n = r->gates * r->hidden;
    bool before = r->gates == 3 && onnx_int(r->node->proto, "linear_before_reset", 0) != 0;
    int weights = own(r, 1, 0), bias, all, i;
    const int64_t row[] = { -1, n };

    r->recurrence = own(r, 2, 0);
    if (weights < 0 || r->recurrence < 0)
        return -1;
    r->gated = r->fresh = r->fresh_bias = -1;
    if (r->gates == 3 && !before) {
        r->gated = cut(r, r->recurrence, 0, 0, 2 * r->hidden);
        r->fresh = cut(r, r->recurrence, 0, 2 * r->hidden, n);
        if (r->gated < 0 || r->fresh < 0)
            return -1;
    }
    all = product(r, r->x, weights);
    r->bias[0] = r->bias[1] = -1;
    if (given(r, 3)) {
        bias = own(r, 3, 0);
        r->bias[0] = cut(r, bias, 0, 0, n);
        r->bias[1] = cut(r, bias, 0, n, 2 * n);
        all = pair(r, "Add", all, r->bias[0]);
        if (before && r->bias[1] >= 0) {
            /* That of the new state is added before the reset. */
            int parts[2] = { cut(r, r->bias[1], 0, 0, 2 * r->hidden), -1 };
            struct tensor zeros[BUILD_TWINS];

            for (i = 0; i < BUILD_TWINS; i++)
                if (fold_new(&r->build->fold[i], r->build->options->real,
                             &(struct shape){ 1, { r->hidden } }, &zeros[i], r->err))
                    return -1;
            parts[1] = build_add_const(r->build, NULL, zeros, r->err);
            r->fresh_bias = cut(r, r->bias[1], 0, 2 * r->hidden, n);
            all = parts[0] < 0 || parts[1] < 0 ? -1 : pair(r, "Add", all, join(r, 2, parts, 0));
        } else {
            all = pair(r, "Add", all, r->bias[1]);
        }
    }
    if (all < 0 || divide(r, all, 0, (int)r->steps, r->pre))
        return -1;
    for (i = 0; i < r->steps; i++) {
        r->pre[i] = reshape(r, r->pre[i], 2, row);
        if (r->pre[i] < 0)
            return -1;
    }
    return 0;
}

static int read_state(struct recurrent *r, bool last_first)
{
    int peepholes = given(r, 7) ? own(r, 7, 0) : -1, i;

    r->h = given(r, 5) ? own(r, 5, last_first) : -1;
    r->c = r->gates == 4 && given(r, 6) ? own(r, 6, last_first) : -1;
    for (i = 0; i < 3; i++)
        r->peephole[i] = peepholes < 0 ? -1 : cut(r, peepholes, 0, i * r->hidden,
                                                  (i + 1) * r->hidden);
    for (i = 0; i < 3; i++)
        if (given(r, 7) && r->peephole[i] < 0)
            return -1;
    return (given(r, 5) && r->h < 0) || (r->gates == 4 && given(r, 6) && r->c < 0) ? -1 : 0;
}

static int start(struct recurrent *r, bool samples_first)
{
    const OnnxFile__Node *proto = r->node->proto;
    const struct shape *shape;

    r->op = proto->op_type;
    r->gates = r->op[0] == 'L' ? 4 : r->op[0] == 'G' ? 3 : 1;
    r->clip = onnx_float(proto, "clip", 0);
    r->directions = onnx_string_is(proto, "direction", "bidirectional", false) ? 2 : 1;
    r->reverse = onnx_string_is(proto, "direction", "reverse", false);
    r->x = canon_input(r->build, r->node, 0, r->err);
    if (r->x < 0 || canon_shape_of(r->build, r->x, 0)->rank != 3)
        return r->x < 0 ? -1 : err_set(r->err, "its input has not 3 dimensions");
    if (samples_first)
        r->x = canon_permuted(r->build, r->node, r->x, (const int64_t[]){ 1, 0, 2 }, r->err);
    if (r->x < 0 || !given(r, 1) || !given(r, 2))
        return r->x < 0 ? -1 : err_set(r->err, "its weights are missing");
    shape = canon_shape_of(r->build, canon_input(r->build, r->node, 2, r->err), 0);
    r->hidden = shape->rank == 3 ? shape->dim[2] : 0;
    r->steps = canon_shape_of(r->build, r->x, 0)->dim[0];
    if (r->hidden < 1 || shape->dim[1] != r->gates * r->hidden ||
        shape->dim[0] != r->directions)
        return err_set(r->err, "its weights do not fit");
    if (r->steps < 1 || r->steps > MAX_STEPS ||
        canon_shape_of(r->build, r->x, 1)->dim[0] != r->steps)
        return err_set(r->err, "sequences of %d steps are not supported", (int)r->steps);
    r->lengths = -1;
    if (given(r, 4))
        r->lengths = reshape(r, canon_input(r->build, r->node, 4, r->err), 2,
                             (const int64_t[]){ -1, 1 });
    return given(r, 4) && r->lengths < 0 ? -1 : 0;
}

/* Outputs ----------------------------------------------------------------------------- */

static int give_state(struct recurrent *r, int output, int parts[2], bool samples_first)
{
    const int64_t rows[] = { samples_first ? -1 : 1, samples_first ? 1 : -1, r->hidden };
    int i, x;

    if (!canon_read(r->build, r->node, output))
        return 0;
    for (i = 0; i < r->directions; i++) {
        parts[i] = reshape(r, parts[i], 3, rows);
        if (parts[i] < 0)
            return -1;
    }
    x = r->directions == 1 ? parts[0] : join(r, 2, parts, samples_first);
    return x < 0 ? -1 : canon_result(r->build, r->node, output, x);
}

static int run_directions(struct recurrent *r, bool samples_first)
{
    int y[2] = { -1, -1 }, h[2], c[2], x, d;

    for (d = 0; d < r->directions; d++) {
        r->direction = d;
        r->reverse |= d == 1;
        if (prepare(r) || read_state(r, samples_first) || run_steps(r))
            return -1;
        y[d] = r->steps == 1 ? r->out[0] : join(r, (int)r->steps, r->out, 0);
        h[d] = r->h;
        c[d] = r->c;
        if (y[d] < 0)
            return -1;
    }
    if (canon_read(r->build, r->node, 0)) {
        x = r->directions == 1 ? y[0] : join(r, 2, y, 1);
        if (samples_first && x >= 0)
            x = canon_permuted(r->build, r->node, x, (const int64_t[]){ 2, 0, 1, 3 }, r->err);
        if (x < 0)
            return -1;
        canon_result(r->build, r->node, 0, x);
    }
    if (give_state(r, 1, h, samples_first))
        return -1;
    return r->gates == 4 ? give_state(r, 2, c, samples_first) : 0;
}

int canon_recurrent(struct build *build, const struct onnx_node *node, struct err *err)
{
    struct recurrent r = { .build = build, .node = node, .err = err };
    bool samples_first = onnx_int(node->proto, "layout", 0) != 0;
    int result = start(&r, samples_first);

    if (result)
        return -1;
    r.pre = mem_new((size_t)r.steps, sizeof(*r.pre));
    r.out = mem_new((size_t)r.steps, sizeof(*r.out));
    result = run_directions(&r, samples_first);
    free(r.pre);
    free(r.out);
    return result;
}
