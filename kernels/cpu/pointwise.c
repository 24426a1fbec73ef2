/* SPDX-License-Identifier: MIT */
/* Element by element: functions, their gradients, broadcasting arithmetic, dropout. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "kernels/cpu/cpu.h"
#include "graph/op.h"
#include "kernels/philox.h"

struct flat_kernel {
    struct kernel base;
    int64_t n;
    int n_inputs;
    int which; /* enum simd_unary, simd_slope or simd_curve */
    float a, b;
};

struct flat_run {
    const struct flat_kernel *k;
    const struct simd *simd;
    const struct kernel_args *args;
};

static void over_elements(struct kernel *kernel, const struct kernel_args *args,
                          cpu_range *range)
{
    const struct flat_kernel *k = (const struct flat_kernel *)kernel;
    struct flat_run run = {k, kernel->device->simd, args};

    cpu_parallel(kernel->device, k->n, CPU_GRAIN, range, &run);
}

/* Flat kernels work on any layout, as long as it is the same on all sides. */
static bool same_everywhere(const struct cpu_build *build)
{
    const struct value *y = cpu_output(build, 0), *x;
    bool last = cpu_channels_last(cpu_output_layout(build, 0));

    if (!y || cpu_node(build)->n_outputs != 1)
        return false;
    for (int i = 0; i < cpu_node(build)->n_inputs; i++)
        if (!(x = cpu_input(build, i)) || !shape_equal(&x->shape, &y->shape) ||
            x->dtype != y->dtype || cpu_channels_last(cpu_input_layout(build, i)) != last)
            return false;
    return true;
}

static void flat_new(const struct cpu_build *build, int which, struct kernel **kernel,
                     int (*run)(struct kernel *, const struct kernel_args *, struct err *))
{
    struct flat_kernel *k;

    if (!same_everywhere(build) || cpu_output(build, 0)->dtype != DTYPE_F32)
        return;
    k = cpu_kernel_new(build, sizeof(*k), run);
    k->n = shape_elements(&cpu_output(build, 0)->shape);
    k->n_inputs = cpu_node(build)->n_inputs;
    k->which = which;
    *kernel = &k->base;
}

/* -1 where the table lacks the name. */
static int find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static void unary_range(void *context, int64_t begin, int64_t end, int thread)
{
    const struct flat_run *r = context;

    (void)thread;
    r->simd->unary((enum simd_unary)r->k->which, (size_t)(end - begin),
                   (const float *)r->args->inputs[0] + begin,
                   (float *)r->args->outputs[0] + begin);
}

static int unary_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    (void)err;
    over_elements(kernel, args, unary_range);
    return 0;
}

static bool exact_gelu(const struct cpu_build *build)
{
    return strcmp(node_string(cpu_node(build), "approximate", "none"), "none") == 0;
}

int cpu_make_unary(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    static const char *const names[] = {"Neg",     "Relu", "Sqrt", "Exp",     "Tanh",
                                        "Sigmoid", "Gelu", "Copy", "Reorder", "Reciprocal"};
    static const enum simd_unary functions[] = {SIMD_NEG,  SIMD_RELU, SIMD_SQRT, SIMD_EXP,
                                                SIMD_TANH, SIMD_SIGMOID, SIMD_GELU, SIMD_COPY,
                                                SIMD_COPY, SIMD_RECIPROCAL};
    int i = find_name(names, 10, cpu_node(build)->op->name);

    (void)err;
    if (i >= 0 && (functions[i] != SIMD_GELU || exact_gelu(build)))
        flat_new(build, (int)functions[i], kernel, unary_run);
    return 0;
}

static void slope_range(void *context, int64_t begin, int64_t end, int thread)
{
    const struct flat_run *r = context;

    (void)thread;
    r->simd->slope((enum simd_slope)r->k->which, (size_t)(end - begin),
                   (const float *)r->args->inputs[0] + begin,
                   (const float *)r->args->inputs[1] + begin,
                   (float *)r->args->outputs[0] + begin);
}

static int slope_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    (void)err;
    over_elements(kernel, args, slope_range);
    return 0;
}

int cpu_make_slope(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    static const char *const names[] = {"ReluGrad", "GeluGrad", "TanhGrad", "SigmoidGrad"};
    static const enum simd_slope slopes[] = {SIMD_RELU_SLOPE, SIMD_GELU_SLOPE, SIMD_TANH_SLOPE,
                                             SIMD_SIGMOID_SLOPE};
    int i = find_name(names, 4, cpu_node(build)->op->name);

    (void)err;
    if (i >= 0 && (slopes[i] != SIMD_GELU_SLOPE || exact_gelu(build)))
        flat_new(build, (int)slopes[i], kernel, slope_run);
    return 0;
}

/* Functions with parameters ------------------------------------------------------------- */

static void curve_range(void *context, int64_t begin, int64_t end, int thread)
{
    const struct flat_run *r = context;

    (void)thread;
    r->simd->curve((enum simd_curve)r->k->which, r->k->a, r->k->b, (size_t)(end - begin),
                   (const float *)r->args->inputs[0] + begin,
                   (float *)r->args->outputs[0] + begin);
}

static int curve_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    (void)err;
    over_elements(kernel, args, curve_range);
    return 0;
}

static void curve_slope_range(void *context, int64_t begin, int64_t end, int thread)
{
    const struct flat_run *r = context;

    (void)thread;
    r->simd->curve_slope((enum simd_curve)r->k->which, r->k->a, r->k->b, (size_t)(end - begin),
                         (const float *)r->args->inputs[0] + begin,
                         (const float *)r->args->inputs[1] + begin,
                         (float *)r->args->outputs[0] + begin);
}

static int curve_slope_run(struct kernel *kernel, const struct kernel_args *args,
                           struct err *err)
{
    (void)err;
    over_elements(kernel, args, curve_slope_range);
    return 0;
}

/* "NAME" and "NAMEGrad" */
int cpu_make_curve(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    static const char *const names[] = {
        "Abs",     "Clip",     "LeakyRelu",     "HardSigmoid",     "HardSwish",     "Swish",
        "AbsGrad", "ClipGrad", "LeakyReluGrad", "HardSigmoidGrad", "HardSwishGrad", "SwishGrad",
    };
    static const enum simd_curve curves[] = {SIMD_ABS,          SIMD_CLIP,
                                             SIMD_LEAKY_RELU,   SIMD_HARD_SIGMOID,
                                             SIMD_HARD_SWISH,   SIMD_SWISH};
    const struct node *node = cpu_node(build);
    int i = find_name(names, 12, node->op->name);
    struct flat_kernel *k;

    (void)err;
    if (i < 0)
        return 0;
    flat_new(build, (int)curves[i % 6], kernel, i < 6 ? curve_run : curve_slope_run);
    k = (struct flat_kernel *)*kernel;
    if (k && curves[i % 6] == SIMD_CLIP) {
        k->a = (float)node_float(node, "min", (double)-INFINITY);
        k->b = (float)node_float(node, "max", (double)INFINITY);
    } else if (k) {
        k->a = (float)node_float(node, "alpha", 1);
        k->b = (float)node_float(node, "beta", 0);
    }
    return 0;
}

static void sum_range(void *context, int64_t begin, int64_t end, int thread)
{
    enum { PIECE = 4096 };
    const struct flat_run *r = context;
    float *y = r->args->outputs[0];

    (void)thread;
    for (int64_t at = begin; at < end; at += PIECE) {
        size_t n = (size_t)(end - at < PIECE ? end - at : PIECE);

        if (r->args->inputs[0] != y)
            memcpy(y + at, (const float *)r->args->inputs[0] + at, n * sizeof(*y));
        for (int i = 1; i < r->k->n_inputs; i++)
            r->simd->binary(SIMD_ADD, n, y + at, 1, (const float *)r->args->inputs[i] + at, 1,
                            y + at);
    }
}

static int sum_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    (void)err;
    over_elements(kernel, args, sum_range);
    return 0;
}

int cpu_make_sum_of(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    (void)err;
    flat_new(build, 0, kernel, sum_run);
    return 0;
}

/* Arithmetic with broadcasting: the result is rows of 'n' elements; within a row each operand
 * runs along or stands still, between rows it follows its strides.
 */
struct binary_kernel {
    struct kernel base;
    enum simd_binary op;
    int64_t rows, n;
    int rank; /* of the rows' index */
    int64_t dim[GRAPH_MAX_RANK], stride[2][GRAPH_MAX_RANK];
    int run[2]; /* stride within a row */
};

struct binary_run {
    const struct binary_kernel *k;
    const struct simd *simd;
    const float *a, *b;
    float *y;
};

static void binary_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct binary_run *r = context;
    const struct binary_kernel *k = r->k;

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, a = 0, b = 0;

        for (int i = k->rank - 1; i >= 0; i--) {
            a += rest % k->dim[i] * k->stride[0][i];
            b += rest % k->dim[i] * k->stride[1][i];
            rest /= k->dim[i];
        }
        r->simd->binary(k->op, (size_t)k->n, r->a + a, k->run[0], r->b + b, k->run[1],
                        r->y + row * k->n);
    }
}

static void binary_flat(void *context, int64_t begin, int64_t end, int thread)
{
    const struct binary_run *r = context;
    const struct binary_kernel *k = r->k;

    (void)thread;
    r->simd->binary(k->op, (size_t)(end - begin), r->a + begin * k->run[0], k->run[0],
                    r->b + begin * k->run[1], k->run[1], r->y + begin);
}

static int binary_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct binary_kernel *k = (const struct binary_kernel *)kernel;
    struct binary_run run = {k, kernel->device->simd, args->inputs[0], args->inputs[1],
                             args->outputs[0]};

    (void)err;
    if (k->rows == 1)
        cpu_parallel(kernel->device, k->n, CPU_GRAIN, binary_flat, &run);
    else
        cpu_parallel(kernel->device, k->rows, cpu_rows_grain(k->n), binary_rows, &run);
    return 0;
}

/* Strides of an operand along the axes of the result; 0 where it is broadcast. */
static void operand_strides(const struct shape *x, const struct shape *y, int64_t *strides)
{
    int64_t step = 1;

    for (int i = y->rank - 1; i >= 0; i--) {
        int own = i - (y->rank - x->rank);

        strides[i] = own < 0 || x->dim[own] == 1 ? 0 : step;
        step *= own < 0 ? 1 : x->dim[own];
    }
}

/* Merge neighbouring axes along which both operands go on alike, and split off the row. */
static void merge_axes(struct binary_kernel *k, const struct shape *y,
                       int64_t s[2][GRAPH_MAX_RANK])
{
    int last = -1;

    for (int i = 0; i < y->rank; i++) {
        if (y->dim[i] == 1)
            continue;
        if (last >= 0 && k->stride[0][last] == s[0][i] * y->dim[i] &&
            k->stride[1][last] == s[1][i] * y->dim[i])
            k->dim[last] *= y->dim[i];
        else
            k->dim[++last] = y->dim[i];
        k->stride[0][last] = s[0][i];
        k->stride[1][last] = s[1][i];
    }
    k->rank = last < 0 ? 0 : last;
    k->n = last < 0 ? 1 : k->dim[last];
    k->run[0] = last < 0 ? 1 : (int)k->stride[0][last];
    k->run[1] = last < 0 ? 1 : (int)k->stride[1][last];
    k->rows = 1;
    for (int i = 0; i < k->rank; i++)
        k->rows *= k->dim[i];
}

int cpu_make_binary(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    static const char *const names[] = {"Add", "Sub", "Mul", "Div"};
    const struct value *a = cpu_input(build, 0), *b = cpu_input(build, 1);
    const struct value *y = cpu_output(build, 0);
    int op = find_name(names, 4, cpu_node(build)->op->name);
    int64_t strides[2][GRAPH_MAX_RANK];
    struct binary_kernel *k;

    (void)err;
    if (op < 0 || a->dtype != DTYPE_F32 || b->dtype != DTYPE_F32 || y->dtype != DTYPE_F32 ||
        shape_elements(&y->shape) == 0 || (!cpu_all_plain(build) && !same_everywhere(build)))
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), binary_run);
    *kernel = &k->base;
    k->op = (enum simd_binary)op;
    operand_strides(&a->shape, &y->shape, strides[0]);
    operand_strides(&b->shape, &y->shape, strides[1]);
    merge_axes(k, &y->shape, strides);
    return 0;
}

/* Dropout ----------------------------------------------------------------------------- */

struct dropout_kernel {
    struct kernel base;
    uint64_t key;
    double ratio;
    int64_t outer, batch, inner; /* [outer, batch, inner]; batch 1 where there is none */
    bool samples;
};

struct dropout_run {
    const struct dropout_kernel *k;
    const struct step_state *state;
    const float *x;
    float *y;
};

enum { DROPOUT_PIECE = 1024 };

/* Piece of DROPOUT_PIECE elements of one [outer, sample]. */
static void dropout_piece(const struct dropout_run *r, int64_t row, int64_t piece)
{
    const struct dropout_kernel *k = r->k;
    int64_t o = row / k->batch, s = row % k->batch, from = piece * DROPOUT_PIECE;
    int64_t n = k->inner - from < DROPOUT_PIECE ? k->inner - from : DROPOUT_PIECE;
    struct simd_dropout d = {
        .key = philox_key(r->state->seed, k->key),
        .step = (uint32_t)r->state->step,
        .sample = (uint32_t)(k->samples ? r->state->first_sample + s : 0),
        .first = (uint64_t)(o * k->inner + from),
        .threshold = (uint32_t)philox_threshold(k->ratio),
        .scale = (float)(1 / (1 - k->ratio)),
    };

    k->base.device->simd->dropout((size_t)n, &d, r->x + row * k->inner + from,
                                  r->y + row * k->inner + from);
}

static void dropout_range(void *context, int64_t begin, int64_t end, int thread)
{
    const struct dropout_run *r = context;
    int64_t pieces = (r->k->inner + DROPOUT_PIECE - 1) / DROPOUT_PIECE;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        dropout_piece(r, i / pieces, i % pieces);
}

static int dropout_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct dropout_kernel *k = (const struct dropout_kernel *)kernel;
    struct dropout_run run = {k, args->state, args->inputs[0], args->outputs[0]};
    int64_t pieces = (k->inner + DROPOUT_PIECE - 1) / DROPOUT_PIECE;

    (void)err;
    if (!args->state->training) {
        if (run.x != run.y)
            memcpy(run.y, run.x, (size_t)(k->outer * k->batch * k->inner) * sizeof(float));
        return 0;
    }
    cpu_parallel(kernel->device, k->outer * k->batch * pieces, cpu_rows_grain(k->inner),
                 dropout_range, &run);
    return 0;
}

int cpu_make_dropout(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    const struct value *y = cpu_output(build, 0);
    struct dropout_kernel *k;

    (void)err;
    if (!cpu_all_plain(build) || !y || cpu_output(build, 1))
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), dropout_run);
    *kernel = &k->base;
    k->key = cpu_node(build)->key;
    k->ratio = node_float(cpu_node(build), "ratio", 0.5);
    k->samples = y->batch.outer > 0;
    k->outer = k->samples ? y->batch.outer : 1;
    k->batch = k->samples ? build->graph->batch : 1;
    k->inner = k->samples ? y->batch.inner : shape_elements(&y->shape);
    return 0;
}
