/* SPDX-License-Identifier: MIT */
/* Batch normalisation over groups of samples, channels first or last.
 *
 * Sums are taken in pieces, in float over short runs and then in double, relative to the first
 * element of the group's channel, so that a large mean costs no digits. Pieces are fixed by
 * shape and threads and added in order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernels/cpu/cpu.h"

struct norm_kernel {
    struct kernel base;
    bool last;               /* channels last: a sample is 'space' rows of c */
    int64_t groups, samples; /* samples of a group */
    int64_t c, space;
    int64_t pieces;           /* of a group */
    double epsilon, momentum; /* PyTorch's */
};

/* In the workspace. */
struct norm_space {
    double *sums;         /* [group][piece][2][c] */
    float *m, *a, *b, *d; /* [group][c]: of the second pass, see apply_piece() */
};

struct norm_run {
    const struct norm_kernel *k;
    const struct simd *simd;
    struct norm_space w;
    const float *x, *dy, *mean, *inv_std; /* mean: [group][c]; NULL in the forward pass */
    float *y;
};

static size_t padded(size_t bytes)
{
    return (bytes + CPU_ALIGNMENT - 1) & ~(size_t)(CPU_ALIGNMENT - 1);
}

static size_t sums_bytes(const struct norm_kernel *k)
{
    return padded((size_t)(k->groups * k->pieces * 2 * k->c) * sizeof(double));
}

static size_t factor_bytes(const struct norm_kernel *k)
{
    return padded((size_t)(k->groups * k->c) * sizeof(float));
}

static struct norm_space spread(const struct norm_kernel *k, void *workspace)
{
    char *at = workspace;
    struct norm_space w;

    w.sums = (double *)(void *)at;
    at += sums_bytes(k);
    w.m = (float *)(void *)at;
    w.a = (float *)(void *)(at + factor_bytes(k));
    w.b = (float *)(void *)(at + 2 * factor_bytes(k));
    w.d = (float *)(void *)(at + 3 * factor_bytes(k));
    return w;
}

/* Rows (channels last) or samples (first) of piece p of a group. */
static void piece_of(const struct norm_kernel *k, int64_t p, int64_t *begin, int64_t *end)
{
    int64_t n = k->last ? k->samples * k->space : k->samples;

    *begin = n * p / k->pieces;
    *end = n * (p + 1) / k->pieces;
}

static void sum_piece(const struct norm_run *run, int64_t group, int64_t p)
{
    const struct norm_kernel *k = run->k;
    int64_t base = group * k->samples * k->space * k->c, begin, end;
    double *sum = run->w.sums + (group * k->pieces + p) * 2 * k->c, *second = sum + k->c;
    const float *x = run->x + base, *dy = run->dy ? run->dy + base : NULL;
    const float *mean = run->mean ? run->mean + group * k->c : NULL;

    piece_of(k, p, &begin, &end);
    memset(sum, 0, (size_t)(2 * k->c) * sizeof(double));
    if (k->last && dy)
        run->simd->column_products((size_t)(end - begin), (size_t)k->c, x + begin * k->c,
                                   dy + begin * k->c, mean, sum, second);
    else if (k->last)
        run->simd->column_moments((size_t)(end - begin), (size_t)k->c, x + begin * k->c, x, sum,
                                  second);
    if (k->last)
        return;
    for (int64_t s = begin; s < end; s++)
        for (int64_t c = 0; c < k->c; c++) {
            int64_t at = (s * k->c + c) * k->space;

            if (dy)
                run->simd->row_products((size_t)k->space, x + at, dy + at, mean[c], &sum[c],
                                        &second[c]);
            else
                run->simd->row_moments((size_t)k->space, x + at, x[c * k->space], &sum[c],
                                       &second[c]);
        }
}

static void sum_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const struct norm_run *run = context;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        sum_piece(run, i / run->k->pieces, i % run->k->pieces);
}

/* Sums of all pieces of a group, into the first one. */
static void add_pieces(const struct norm_run *run)
{
    const struct norm_kernel *k = run->k;

    for (int64_t g = 0; g < k->groups; g++) {
        double *sum = run->w.sums + g * k->pieces * 2 * k->c;

        for (int64_t p = 1; p < k->pieces; p++)
            for (int64_t i = 0; i < 2 * k->c; i++)
                sum[i] += sum[p * 2 * k->c + i];
    }
}

/* y = (x - m) a + b, or dx = (dy - d) a + (x - m) b. */
static void apply_piece(const struct norm_run *run, int64_t group, int64_t p)
{
    const struct norm_kernel *k = run->k;
    int64_t base = group * k->samples * k->space * k->c, begin, end;
    const float *a = run->w.a + group * k->c, *b = run->w.b + group * k->c;
    const float *d = run->w.d + group * k->c, *m = run->w.m + group * k->c;
    const float *x = run->x + base, *dy = run->dy ? run->dy + base : NULL;
    float *y = run->y + base;
    size_t n = (size_t)k->c, space = (size_t)k->space;

    piece_of(k, p, &begin, &end);
    if (k->last && dy)
        run->simd->column_affine2((size_t)(end - begin), n, dy + begin * k->c, x + begin * k->c,
                                  d, a, m, b, y + begin * k->c);
    else if (k->last)
        run->simd->column_affine((size_t)(end - begin), n, x + begin * k->c, m, a, b,
                                 y + begin * k->c);
    if (k->last)
        return;
    for (int64_t s = begin; s < end; s++)
        for (int64_t c = 0; c < k->c; c++) {
            int64_t at = (s * k->c + c) * k->space;

            if (dy)
                run->simd->row_affine2(space, dy + at, x + at, d[c], a[c], m[c], b[c], y + at);
            else
                run->simd->row_affine(space, x + at, m[c], a[c], b[c], y + at);
        }
}

static void apply_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const struct norm_run *run = context;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        apply_piece(run, i / run->k->pieces, i % run->k->pieces);
}

static void each_piece(const struct norm_run *run, cpu_range *range)
{
    const struct norm_kernel *k = run->k;
    bool small = k->groups * k->samples * k->space * k->c < 2 * CPU_GRAIN;

    cpu_parallel(k->base.device, k->groups * k->pieces, small ? INT32_MAX : 1, range,
                 (void *)(uintptr_t)run);
}

/* What this share's groups give to the running statistics: group k of the step's K counts
 * momentum (1 - momentum)^(K - 1 - k).
 */
static double group_weight(const struct norm_kernel *k, const struct step_state *state,
                           int64_t group)
{
    int64_t all = state->global_batch / k->samples;
    int64_t index = state->first_sample / k->samples + group;

    return k->momentum * pow(1 - k->momentum, (double)(all - 1 - index));
}

struct norm_stats {
    float *mean_part, *var_part, *mean, *inv_std;
};

static void finish_group(const struct norm_run *run, const struct kernel_args *args,
                         const struct norm_stats *out, int64_t g)
{
    const struct norm_kernel *k = run->k;
    const float *scale = args->inputs[1], *bias = args->inputs[2];
    const double *sum = run->w.sums + g * k->pieces * 2 * k->c;
    double n = (double)(k->samples * k->space), weight = group_weight(k, args->state, g);

    for (int64_t c = 0; c < k->c; c++) {
        int64_t at = g * k->c + c;
        double shift = run->x[g * k->samples * k->space * k->c + (k->last ? c : c * k->space)];
        double offset = sum[c] / n, mean = shift + offset;
        double var = sum[k->c + c] / n - offset * offset;
        double r;

        var = var > 0 ? var : 0;
        r = 1 / sqrt(var + k->epsilon);
        run->w.m[at] = (float)mean;
        run->w.a[at] = (float)(r * scale[c]);
        run->w.b[at] = bias[c];
        if (out->mean)
            out->mean[at] = (float)mean;
        if (out->inv_std)
            out->inv_std[at] = (float)r;
        if (out->mean_part)
            out->mean_part[c] += (float)(weight * mean);
        if (out->var_part)
            out->var_part[c] += (float)(weight * var * n / (n > 1 ? n - 1 : 1));
    }
}

static void use_running(const struct norm_run *run, const struct kernel_args *args,
                        const struct norm_stats *out)
{
    const struct norm_kernel *k = run->k;
    const float *scale = args->inputs[1], *bias = args->inputs[2];
    const float *mean = args->inputs[3], *var = args->inputs[4];

    for (int64_t i = 0; i < k->groups * k->c; i++) {
        int64_t c = i % k->c;
        double r = 1 / sqrt(var[c] + k->epsilon);

        run->w.m[i] = mean[c];
        run->w.a[i] = (float)(r * scale[c]);
        run->w.b[i] = bias[c];
        if (out->mean)
            out->mean[i] = mean[c];
        if (out->inv_std)
            out->inv_std[i] = (float)r;
    }
}

static int batchnorm_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct norm_kernel *k = (const struct norm_kernel *)kernel;
    struct norm_run run = {
        k,    kernel->device->simd, spread(k, args->workspace), args->inputs[0], NULL, NULL,
        NULL, args->outputs[0]};
    struct norm_stats out = {args->outputs[1], args->outputs[2], args->outputs[3],
                             args->outputs[4]};

    (void)err;
    if (out.mean_part)
        memset(out.mean_part, 0, (size_t)k->c * sizeof(float));
    if (out.var_part)
        memset(out.var_part, 0, (size_t)k->c * sizeof(float));
    if (args->state->training) {
        each_piece(&run, sum_pieces);
        add_pieces(&run);
        for (int64_t g = 0; g < k->groups; g++)
            finish_group(&run, args, &out, g);
    } else {
        use_running(&run, args, &out);
    }
    each_piece(&run, apply_pieces);
    return 0;
}

/* The derivative through mean and variance is linear in dy and x. */
static void gradient_factors(const struct norm_run *run, const struct kernel_args *args)
{
    const struct norm_kernel *k = run->k;
    const float *scale = args->inputs[2];
    float *dscale = args->outputs[1], *dbias = args->outputs[2];
    double n = (double)(k->samples * k->space);

    if (dscale)
        memset(dscale, 0, (size_t)k->c * sizeof(float));
    if (dbias)
        memset(dbias, 0, (size_t)k->c * sizeof(float));
    for (int64_t g = 0; g < k->groups; g++) {
        const double *sum = run->w.sums + g * k->pieces * 2 * k->c;

        for (int64_t c = 0; c < k->c; c++) {
            int64_t at = g * k->c + c;
            double r = run->inv_std[at], a = scale[c] * r;

            run->w.m[at] = run->mean[at];
            run->w.a[at] = (float)a;
            run->w.b[at] = (float)(-a * r * r * sum[k->c + c] / n);
            run->w.d[at] = (float)(sum[c] / n);
            if (dscale)
                dscale[c] += (float)(sum[k->c + c] * r);
            if (dbias)
                dbias[c] += (float)sum[c];
        }
    }
}

static int batchnorm_grad_run(struct kernel *kernel, const struct kernel_args *args,
                              struct err *err)
{
    const struct norm_kernel *k = (const struct norm_kernel *)kernel;
    struct norm_run run = {k,
                           kernel->device->simd,
                           spread(k, args->workspace),
                           args->inputs[1],
                           args->inputs[0],
                           args->inputs[3],
                           args->inputs[4],
                           args->outputs[0]};

    (void)err;
    each_piece(&run, sum_pieces);
    add_pieces(&run);
    gradient_factors(&run, args);
    if (run.y)
        each_piece(&run, apply_pieces);
    return 0;
}

static struct norm_kernel *
norm_new(const struct cpu_build *build, const struct value *x, const struct cpu_layout *layout,
         int (*run)(struct kernel *, const struct kernel_args *, struct err *))
{
    struct norm_kernel *k = cpu_kernel_new(build, sizeof(*k), run);
    int64_t group = build->graph->batchnorm_samples;
    int64_t rows;

    k->c = x->shape.dim[1];
    k->space = 1;
    for (int i = 2; i < x->shape.rank; i++)
        k->space *= x->shape.dim[i];
    k->last = cpu_channels_last(layout) || k->space == 1;
    k->samples = group ? group : build->graph->batch;
    k->groups = x->shape.dim[0] / k->samples;
    rows = k->last ? k->samples * k->space : k->samples;
    k->pieces = (build->device->threads + k->groups - 1) / k->groups;
    if (k->pieces > rows)
        k->pieces = rows;
    k->base.workspace = sums_bytes(k) + 4 * factor_bytes(k);
    return k;
}

/* A gradient of another layout than the input's is for lower() to avoid. */
static bool usable(const struct cpu_build *build, const struct value *x,
                   const struct cpu_layout *a, const struct cpu_layout *b,
                   const struct cpu_layout *c)
{
    return x->shape.rank >= 2 && shape_elements(&x->shape) > 0 && build->graph->batch > 0 &&
           cpu_channels_last(a) == cpu_channels_last(b) &&
           cpu_channels_last(a) == cpu_channels_last(c);
}

int cpu_make_batchnorm(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    const struct cpu_layout *x = cpu_input_layout(build, 0), *y = cpu_output_layout(build, 0);
    struct norm_kernel *k;

    (void)err;
    if (!usable(build, cpu_input(build, 0), x, y, y) || cpu_node(build)->n_outputs < 5)
        return 0;
    k = norm_new(build, cpu_input(build, 0), x, batchnorm_run);
    k->epsilon = node_float(cpu_node(build), "epsilon", 1e-5);
    k->momentum = 1 - node_float(cpu_node(build), "momentum", 0.9);
    *kernel = &k->base;
    return 0;
}

int cpu_make_batchnorm_grad(const struct cpu_build *build, struct kernel **kernel,
                            struct err *err)
{
    const struct cpu_layout *x = cpu_input_layout(build, 1), *dy = cpu_input_layout(build, 0);
    const struct cpu_layout *dx = cpu_output(build, 0) ? cpu_output_layout(build, 0) : x;

    (void)err;
    if (!usable(build, cpu_input(build, 1), x, dy, dx) || cpu_node(build)->n_outputs < 3)
        return 0;
    *kernel = &norm_new(build, cpu_input(build, 1), x, batchnorm_grad_run)->base;
    return 0;
}
