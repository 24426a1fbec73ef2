/* SPDX-License-Identifier: MIT */
/* What works on rows: LayerNormalization, RMSNormalization, Softmax, and their gradients. */
#include <stdlib.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "graph/op.h"
#include "kernels/cpu/cpu.h"

struct row_kernel {
    struct kernel base;
    int64_t rows, n;
    float epsilon;
    cpu_range *range;           /* of a norm */
    bool centred;               /* it takes the mean off */
    bool masked;                /* of a Softmax */
    bool bias, mean, inv_std;   /* are they there? */
    int sum;                    /* 1: x is the sum of inputs 0 and 1, and output 1 */
};

struct row_run {
    const struct row_kernel *k;
    const struct simd *simd;
    const float *x, *dy, *scale, *bias;
    const float *a, *b;         /* what x is the sum of; NULL: x is there */
    float *sum, *y, *mean, *inv_std;
    const float *saved_mean, *saved_inv_std;
    float *partial;             /* [thread][2][n] */
};

static void over_rows(const struct row_kernel *k, cpu_range *range, struct row_run *run)
{
    run->k = k;
    run->simd = k->base.device->simd;
    cpu_parallel(k->base.device, k->rows, cpu_rows_grain(k->n), range, run);
}

static struct row_kernel *row_kernel_new(const struct cpu_build *build, const struct value *x,
                                         int64_t axis,
                                         int (*run)(struct kernel *, const struct kernel_args *,
                                                    struct err *))
{
    struct row_kernel *k = cpu_kernel_new(build, sizeof(*k), run);

    k->n = 1;
    for (int i = (int)(axis < 0 ? axis + x->shape.rank : axis); i < x->shape.rank; i++)
        k->n *= x->shape.dim[i];
    k->rows = k->n > 0 ? shape_elements(&x->shape) / k->n : 0;
    return k;
}

/* LayerNormalization and RMSNormalization --------------------------------------------- */

/* The first is centred: it also saves, and its gradients read, the mean of each row. */
static int make_norm(const struct cpu_build *build, const struct value *x, bool centred,
                     cpu_range *range,
                     int (*run)(struct kernel *, const struct kernel_args *, struct err *),
                     struct kernel **kernel)
{
    struct row_kernel *k;

    if (!cpu_all_plain(build))
        return 0;
    k = row_kernel_new(build, x, node_int(cpu_node(build), "axis", -1), run);
    k->range = range;
    k->centred = centred;
    k->epsilon = (float)node_float(cpu_node(build), "epsilon", 1e-5);
    *kernel = &k->base;
    return 0;
}

static const float *row_of(const struct row_run *r, int64_t i)
{
    size_t n = (size_t)r->k->n, at = (size_t)i * n;

    if (r->a)
        r->simd->binary(SIMD_ADD, n, r->a + at, 1, r->b + at, 1, r->sum + at);
    return r->x + at;
}

static void layernorm_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct row_run *r = context;
    int64_t n = r->k->n;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        r->simd->layernorm((size_t)n, row_of(r, i), r->scale, r->bias, r->k->epsilon,
                           r->y + i * n, r->mean ? r->mean + i : NULL,
                           r->inv_std ? r->inv_std + i : NULL);
}

static void rmsnorm_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct row_run *r = context;
    size_t n = (size_t)r->k->n;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const float *x = row_of(r, i);
        float *y = r->y + (size_t)i * n;
        double mean = r->simd->sum_squares(n, x) / (double)n;
        float inverse = (float)(1 / sqrt(mean + (double)r->k->epsilon));

        r->simd->binary(SIMD_MUL, n, x, 1, r->scale, 1, y);
        r->simd->scale(n, inverse, y, y);
        if (r->inv_std)
            r->inv_std[i] = inverse;
    }
}

static int norm_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct row_kernel *k = (const struct row_kernel *)kernel;
    const void *const *in = args->inputs + k->sum;
    void *const *out = args->outputs + k->sum;
    struct row_run run = { .x = args->inputs[0],
                           .scale = in[1],
                           .bias = k->bias ? in[2] : NULL,
                           .y = args->outputs[0],
                           .mean = k->mean ? out[1] : NULL,
                           .inv_std = k->inv_std ? out[k->centred ? 2 : 1] : NULL };

    (void)err;
    if (k->sum) {
        run.a = args->inputs[0];
        run.b = args->inputs[1];
        run.x = run.sum = args->outputs[1];
    }
    over_rows(k, k->range, &run);
    return 0;
}

static int make_norm_forward(const struct cpu_build *build, bool centred, cpu_range *range,
                             struct kernel **kernel)
{
    struct row_kernel *k;

    make_norm(build, cpu_input(build, 0), centred, range, norm_run, kernel);
    k = (struct row_kernel *)*kernel;
    if (!k)
        return 0;
    k->sum = strncmp(cpu_node(build)->op->name, "Add", 3) == 0;
    k->bias = centred && cpu_input(build, 2 + k->sum);
    k->mean = centred && cpu_output(build, 1 + k->sum);
    k->inv_std = cpu_output(build, k->sum + (centred ? 2 : 1)) != NULL;
    return 0;
}

int cpu_make_layernorm(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    (void)err;
    return make_norm_forward(build, true, layernorm_rows, kernel);
}

int cpu_make_rmsnorm(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    (void)err;
    return make_norm_forward(build, false, rmsnorm_rows, kernel);
}

static void layernorm_dgrad_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct row_run *r = context;
    int64_t n = r->k->n;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        r->simd->layernorm_dgrad((size_t)n, r->x + i * n, r->dy + i * n, r->scale,
                                 r->saved_mean[i], r->saved_inv_std[i], r->y + i * n);
}

static void rmsnorm_dgrad_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct row_run *r = context;
    size_t n = (size_t)r->k->n;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const float *x = r->x + (size_t)i * n;
        float *dx = r->y + (size_t)i * n, inverse = r->saved_inv_std[i];
        double product;

        r->simd->binary(SIMD_MUL, n, r->dy + (size_t)i * n, 1, r->scale, 1, dx);
        product = r->simd->dot(n, dx, x) * (double)inverse * (double)inverse / (double)n;
        r->simd->axpy(n, (float)-product, x, dx);
        r->simd->scale(n, inverse, dx, dx);
    }
}

static int norm_dgrad_run(struct kernel *kernel, const struct kernel_args *args,
                          struct err *err)
{
    const struct row_kernel *k = (const struct row_kernel *)kernel;
    struct row_run run = { .dy = args->inputs[0],
                           .x = args->inputs[1],
                           .scale = args->inputs[2],
                           .saved_mean = k->centred ? args->inputs[3] : NULL,
                           .saved_inv_std = args->inputs[k->centred ? 4 : 3],
                           .y = args->outputs[0] };

    (void)err;
    over_rows(k, k->range, &run);
    return 0;
}

int cpu_make_layernorm_dgrad(const struct cpu_build *build, struct kernel **kernel,
                             struct err *err)
{
    (void)err;
    return make_norm(build, cpu_input(build, 1), true, layernorm_dgrad_rows, norm_dgrad_run,
                     kernel);
}

int cpu_make_rmsnorm_dgrad(const struct cpu_build *build, struct kernel **kernel,
                           struct err *err)
{
    (void)err;
    return make_norm(build, cpu_input(build, 1), false, rmsnorm_dgrad_rows, norm_dgrad_run,
                     kernel);
}

/* Without a mean, x is taken as it is. */
static void norm_wgrad_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct row_run *r = context;
    int64_t n = r->k->n;
    float *dscale = r->partial + thread * 2 * n, *dbias = dscale + n;

    for (int64_t i = begin; i < end; i++)
        r->simd->layernorm_wgrad((size_t)n, r->x + i * n, r->dy + i * n,
                                 r->saved_mean ? r->saved_mean[i] : 0, r->saved_inv_std[i],
                                 dscale, r->k->bias ? dbias : NULL);
}

static int norm_wgrad_run(struct kernel *kernel, const struct kernel_args *args,
                          struct err *err)
{
    const struct row_kernel *k = (const struct row_kernel *)kernel;
    const struct simd *simd = kernel->device->simd;
    struct row_run run = { .dy = args->inputs[0],
                           .x = args->inputs[1],
                           .saved_mean = k->centred ? args->inputs[2] : NULL,
                           .saved_inv_std = args->inputs[k->centred ? 3 : 2],
                           .partial = args->workspace };
    size_t n = (size_t)k->n;

    (void)err;
    memset(run.partial, 0, kernel->workspace);
    over_rows(k, k->range, &run);
    for (int which = 0; which < (k->bias ? 2 : 1); which++) {
        float *y = args->outputs[which];

        if (args->accumulate != ACCUMULATE_YES)
            memset(y, 0, n * sizeof(float));
        for (int t = 0; t < kernel->device->threads; t++)
            simd->axpy(n, 1, run.partial + ((size_t)t * 2 + (size_t)which) * n, y);
    }
    return 0;
}

static int make_norm_wgrad(const struct cpu_build *build, bool centred, struct kernel **kernel)
{
    struct row_kernel *k;

    make_norm(build, cpu_input(build, 1), centred, norm_wgrad_rows, norm_wgrad_run, kernel);
    k = (struct row_kernel *)*kernel;
    if (!k)
        return 0;
    k->bias = cpu_output(build, 1) != NULL;
    k->base.accumulates = !centred;
    k->base.workspace = (size_t)(build->device->threads * 2 * k->n) * sizeof(float);
    return 0;
}

int cpu_make_layernorm_wgrad(const struct cpu_build *build, struct kernel **kernel,
                             struct err *err)
{
    (void)err;
    return make_norm_wgrad(build, true, kernel);
}

int cpu_make_rmsnorm_wgrad(const struct cpu_build *build, struct kernel **kernel,
                           struct err *err)
{
    (void)err;
    return make_norm_wgrad(build, false, kernel);
}

/* Softmax ----------------------------------------------------------------------------- */

static void softmax_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct row_run *r = context;
    int64_t n = r->k->n;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const float *x = r->x + i * n;

        if (r->k->masked && r->simd->max((size_t)n, x) < -FLT_MAX)
            memset(r->y + i * n, 0, (size_t)n * sizeof(*r->y));
        else
            r->simd->softmax((size_t)n, x, r->y + i * n);
    }
}

static int softmax_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    struct row_run run = { .x = args->inputs[0], .y = args->outputs[0] };

    (void)err;
    over_rows((const struct row_kernel *)kernel, softmax_rows, &run);
    return 0;
}

static void softmax_grad_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct row_run *r = context;
    int64_t n = r->k->n;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        r->simd->softmax_grad((size_t)n, r->x + i * n, r->dy + i * n, r->y + i * n);
}

static int softmax_grad_run(struct kernel *kernel, const struct kernel_args *args,
                            struct err *err)
{
    struct row_run run = { .dy = args->inputs[0], .x = args->inputs[1], .y = args->outputs[0] };

    (void)err;
    over_rows((const struct row_kernel *)kernel, softmax_grad_rows, &run);
    return 0;
}

/* Only along the last axis. */
static bool along_last(const struct cpu_build *build)
{
    int rank = cpu_input(build, 0)->shape.rank;
    int64_t axis = node_int(cpu_node(build), "axis", -1);

    return cpu_all_plain(build) && rank > 0 && (axis == -1 || axis == rank - 1);
}

int cpu_make_softmax(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    struct row_kernel *k;

    (void)err;
    if (!along_last(build))
        return 0;
    k = row_kernel_new(build, cpu_input(build, 0), -1, softmax_run);
    k->masked = node_int(cpu_node(build), "masked", 0) != 0;
    *kernel = &k->base;
    return 0;
}

int cpu_make_softmax_grad(const struct cpu_build *build, struct kernel **kernel,
                          struct err *err)
{
    (void)err;
    if (along_last(build))
        *kernel = &row_kernel_new(build, cpu_input(build, 0), -1, softmax_grad_run)->base;
    return 0;
}
