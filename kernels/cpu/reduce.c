/* SPDX-License-Identifier: MIT */
/* Sums over axes: the gradients of biases and of what was broadcast. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernels/cpu/cpu.h"

/* [rows, n, after] -> [n]; with after == 1 columns are summed, else runs of 'after'. */
struct sum_kernel {
    struct kernel base;
    int64_t rows, n, after;
};

struct sum_run {
    const struct sum_kernel *k;
    const float *x;
    double *partial;    /* [thread][n] */
};

static void sum_columns(void *context, int64_t begin, int64_t end, int thread)
{
    const struct sum_run *r = context;
    int64_t n = r->k->n;

    r->k->base.device->simd->column_sum((size_t)(end - begin), (size_t)n, (size_t)n,
                                        r->x + begin * n, r->partial + thread * n);
}

static void sum_runs(void *context, int64_t begin, int64_t end, int thread)
{
    const struct sum_run *r = context;
    const struct sum_kernel *k = r->k;

    for (int64_t i = begin; i < end; i++)
        r->partial[thread * k->n + i % k->n] +=
            k->base.device->simd->sum((size_t)k->after, r->x + i * k->after);
}

static int sum_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct sum_kernel *k = (const struct sum_kernel *)kernel;
    struct sum_run run = { k, args->inputs[0], args->workspace };
    float *y = args->outputs[0];

    (void)err;
    memset(run.partial, 0, kernel->workspace);
    if (k->after == 1)
        cpu_parallel(kernel->device, k->rows, cpu_rows_grain(k->n), sum_columns, &run);
    else
        cpu_parallel(kernel->device, k->rows * k->n, cpu_rows_grain(k->after), sum_runs, &run);
    for (int64_t i = 0; i < k->n; i++) {
        double sum = args->accumulate == ACCUMULATE_YES ? (double)y[i] : 0;

        for (int t = 0; t < kernel->device->threads; t++)
            sum += run.partial[t * k->n + i];
        y[i] = (float)sum;
    }
    return 0;
}

static void sum_new(const struct cpu_build *build, int64_t rows, int64_t n, int64_t after,
                    struct kernel **kernel)
{
    struct sum_kernel *k = cpu_kernel_new(build, sizeof(*k), sum_run);

    *kernel = &k->base;
    k->base.accumulates = true;
    k->base.workspace = (size_t)(build->device->threads * n) * sizeof(double);
    k->rows = rows;
    k->n = n;
    k->after = after;
}

int cpu_make_bias_grad(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    const struct shape *x = &cpu_input(build, 0)->shape;
    int64_t axis = node_int(cpu_node(build), "axis", -1), rows = 1, after = 1;

    (void)err;
    axis += axis < 0 ? x->rank : 0;
    if (axis < 0 || axis >= x->rank)
        return 0;
    for (int i = 0; i < x->rank; i++)
        if (i != axis)
            *(i < axis ? &rows : &after) *= x->dim[i];
    if (cpu_channels_last(cpu_input_layout(build, 0))) {
        if (axis != 1)
            return 0;
        rows *= after;
        after = 1;
    }
    sum_new(build, rows, x->dim[axis], after, kernel);
    return 0;
}

/* Only leading axes summed over, or all but those of one run in the middle. */
int cpu_make_reduce_to(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    const struct shape *x = &cpu_input(build, 0)->shape, *y = &cpu_output(build, 0)->shape;
    int64_t part[3] = { 1, 1, 1 };
    int at = 0;

    (void)err;
    if (!cpu_all_plain(build) || shape_elements(x) == 0)
        return 0;
    for (int i = 0; i < x->rank; i++) {
        int own = i - (x->rank - y->rank);
        bool kept = own >= 0 && y->dim[own] == x->dim[i];

        if (x->dim[i] == 1)
            continue;
        if (kept ? at == 2 : at == 1)
            at++;
        if (kept && at == 0)
            at = 1;
        if (at > 2 || (at == 2 && kept))
            return 0;
        part[at] *= x->dim[i];
    }
    sum_new(build, part[0], part[1], part[2], kernel);
    return 0;
}
