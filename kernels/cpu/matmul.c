/* SPDX-License-Identifier: MIT */
/* Products of matrices by oneDNN's sgemm: MatMul, and Linear with its gradients. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernels/cpu/cpu.h"
#include "graph/ops/matmul.h"

/* MatMul ------------------------------------------------------------------------------ */

struct matmul_kernel {
    struct kernel base;
    struct matmul m;
    int64_t stack;
    int64_t step_a[GRAPH_MAX_RANK], step_b[GRAPH_MAX_RANK];     /* elements; 0: broadcast */
};

struct matmul_run {
    const struct matmul_kernel *kernel;
    const float *a, *b;
    float *y, beta;
    struct err *err;
    int failed[256];
};

static void one_product(struct matmul_run *run, int64_t index, int thread)
{
    const struct matmul_kernel *k = run->kernel;
    const struct matmul *m = &k->m;
    int64_t rest = index, a = 0, b = 0;

    for (int i = m->rank - 1; i >= 0; i--) {
        int64_t at = rest % m->dim[i];

        rest /= m->dim[i];
        a += at * k->step_a[i];
        b += at * k->step_b[i];
    }
    if (onednn_gemm(m->trans_a, m->trans_b, m->m, m->n, m->k, (float)m->alpha, run->a + a,
                    m->trans_a ? m->m : m->k, run->b + b, m->trans_b ? m->k : m->n, run->beta,
                    run->y + index * m->m * m->n, m->n, NULL))
        run->failed[thread % 256] = 1;
}

static void products(void *context, int64_t begin, int64_t end, int thread)
{
    for (int64_t i = begin; i < end; i++)
        one_product(context, i, thread);
}

static int matmul_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct matmul_kernel *k = (const struct matmul_kernel *)kernel;
    struct matmul_run run = { .kernel = k,
                              .a = args->inputs[0],
                              .b = args->inputs[1],
                              .y = args->outputs[0],
                              .beta = args->accumulate == ACCUMULATE_YES ? 1 : 0 };
    int failed = 0;

    /* Many small products: a thread each. Few: the threads share each one. */
    if (k->stack >= kernel->device->threads)
        cpu_parallel(kernel->device, k->stack, 1, products, &run);
    else
        products(&run, 0, k->stack, 0);
    for (int i = 0; i < 256; i++)
        failed |= run.failed[i];
    return failed ? err_set(err, "oneDNN: sgemm failed") : 0;
}

/* [s, m, k] x [k, n] is one product of s*m rows. */
static void merge_stack(struct matmul_kernel *k)
{
    struct matmul *m = &k->m;

    for (int i = 0; i < m->rank; i++)
        if (m->dim_a[i] != m->dim[i] || m->dim_b[i] != 1)
            return;
    if (m->trans_a)
        return;
    m->m *= k->stack;
    m->rank = 0;
    k->stack = 1;
}

int cpu_make_matmul(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    struct matmul_kernel *k;
    int64_t a, b;

    if (!cpu_all_plain(build))
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), matmul_run);
    if (matmul_dims(build->graph, build->node, &k->m)) {
        free(k);
        return err_set(err, "node \"%s\": shapes do not fit", cpu_node(build)->name);
    }
    *kernel = &k->base;
    k->base.accumulates = true;
    a = k->m.m * k->m.k;
    b = k->m.k * k->m.n;
    k->stack = 1;
    for (int i = k->m.rank - 1; i >= 0; i--) {
        k->step_a[i] = k->m.dim_a[i] == 1 ? 0 : a;
        k->step_b[i] = k->m.dim_b[i] == 1 ? 0 : b;
        a *= k->m.dim_a[i];
        b *= k->m.dim_b[i];
        k->stack *= k->m.dim[i];
    }
    merge_stack(k);
    return 0;
}

/* Products that the threads share ---------------------------------------------------------- */

struct product {
    bool trans_a, trans_b;
    int64_t m, n, k;
    const float *a, *b;
    float beta, *c;
    int failed[256];    /* by thread */
};

enum { ROWS = 512, FEW_ROWS = 128, UNIT = 16 };

static int part_of_product(const struct product *p, int64_t row, int64_t rows, int64_t column,
                           int64_t columns)
{
    int64_t lda = p->trans_a ? p->m : p->k, ldb = p->trans_b ? p->k : p->n;

    return onednn_gemm(p->trans_a, p->trans_b, rows, columns, p->k, 1,
                       p->a + row * (p->trans_a ? 1 : lda), lda,
                       p->b + column * (p->trans_b ? ldb : 1), ldb, p->beta,
                       p->c + row * p->n + column, p->n, NULL);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void product_rows(void *context, int64_t begin, int64_t end, int thread)
{
    struct product *p = context;

    end = least(end * UNIT, p->m);
    for (int64_t row = begin * UNIT; row < end; row += ROWS)
        if (part_of_product(p, row, least(ROWS, end - row), 0, p->n))
            p->failed[thread % 256] = 1;
}

static void product_columns(void *context, int64_t begin, int64_t end, int thread)
{
    struct product *p = context;

    end = least(end * UNIT, p->n);
    if (part_of_product(p, 0, p->m, begin * UNIT, end - begin * UNIT))
        p->failed[thread % 256] = 1;
}

/* Units of rows or columns that are worth a thread; 'other' is the length across. */
static int64_t product_grain(const struct product *p, int64_t other)
{
    double work = (double)UNIT * (double)p->k * (double)other;

    return work >= CPU_GRAIN * 16 ? 1 : 1 + (int64_t)(CPU_GRAIN * 16 / (work + 1));
}

/* oneDNN shares a product out by itself, but two kinds it does worse than we: a transposed A
 * with many rows, of which it packs too much at once (7 to 11 % slower, measured with 512 columns
 * of A), and few rows with a transposed B (10 %).
 */
static int run_product(const struct device *device, struct product *p, struct err *err)
{
    int failed = 0;

    if (p->trans_a && p->m >= p->n)
        cpu_parallel(device, (p->m + UNIT - 1) / UNIT, product_grain(p, p->n), product_rows,
                     p);
    else if (p->trans_b && p->m <= FEW_ROWS)
        cpu_parallel(device, (p->n + UNIT - 1) / UNIT, product_grain(p, p->m), product_columns,
                     p);
    else
        failed = part_of_product(p, 0, p->m, 0, p->n);
    for (int i = 0; i < 256; i++)
        failed |= p->failed[i];
    return failed ? err_set(err, "oneDNN: sgemm failed") : 0;
}

/* Linear ------------------------------------------------------------------------------ */

enum activation { NONE, RELU, GELU, SILU };

struct linear_kernel {
    struct kernel base;
    int64_t rows, k, n;
    bool trans_b;
    bool bias, pre;     /* has it input 2, output 1? */
    enum activation activation;
};

struct linear_run {
    const struct linear_kernel *kernel;
    const struct simd *simd;
    const float *bias, *x;
    float *y;
};

static void fill_bias(void *context, int64_t begin, int64_t end, int thread)
{
    struct linear_run *run = context;
    int64_t n = run->kernel->n;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        memcpy(run->y + i * n, run->bias, (size_t)n * sizeof(float));
}

static void activate(void *context, int64_t begin, int64_t end, int thread)
{
    struct linear_run *run = context;
    int64_t n = run->kernel->n;

    (void)thread;
    if (run->kernel->activation == SILU)
        run->simd->curve(SIMD_SWISH, 1, 0, (size_t)((end - begin) * n), run->x + begin * n,
                         run->y + begin * n);
    else
        run->simd->unary(run->kernel->activation == RELU ? SIMD_RELU : SIMD_GELU,
                         (size_t)((end - begin) * n), run->x + begin * n, run->y + begin * n);
}

static int linear_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct linear_kernel *k = (const struct linear_kernel *)kernel;
    struct linear_run run = { .kernel = k,
                              .simd = kernel->device->simd,
                              .bias = k->bias ? args->inputs[2] : NULL,
                              .y = args->outputs[k->pre] };
    struct product product = { false, k->trans_b, k->rows, k->n, k->k, args->inputs[0],
                               args->inputs[1], 0, NULL, { 0 } };

    if (run.bias)
        cpu_parallel(kernel->device, k->rows, cpu_rows_grain(k->n), fill_bias, &run);
    product.beta = run.bias ? 1 : 0;
    product.c = run.y;
    if (run_product(kernel->device, &product, err))
        return -1;
    if (k->activation == NONE)
        return 0;
    run.x = run.y;
    run.y = args->outputs[0];
    cpu_parallel(kernel->device, k->rows, cpu_rows_grain(k->n), activate, &run);
    return 0;
}

int cpu_make_linear(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    const struct value *w = cpu_input(build, 1);
    const char *name = node_string(cpu_node(build), "activation", "none");
    enum activation activation = strcmp(name, "relu") == 0   ? RELU
                                 : strcmp(name, "gelu") == 0 ? GELU
                                 : strcmp(name, "silu") == 0 ? SILU
                                                             : NONE;
    struct linear_kernel *k;

    (void)err;
    if (!cpu_all_plain(build) || (activation == NONE && strcmp(name, "none") != 0))
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), linear_run);
    *kernel = &k->base;
    k->trans_b = node_int(cpu_node(build), "transB", 0) != 0;
    k->k = w->shape.dim[k->trans_b];
    k->n = w->shape.dim[!k->trans_b];
    k->rows = shape_elements(&cpu_output(build, 0)->shape) / (k->n > 0 ? k->n : 1);
    k->bias = cpu_input(build, 2) != NULL;
    k->pre = cpu_output(build, 1) != NULL;
    k->activation = activation;
    return 0;
}

/* dx = dz W^T, where W is [k, n]. */
static int dgrad_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct linear_kernel *k = (const struct linear_kernel *)kernel;

    struct product product = { false, !k->trans_b, k->rows, k->k, k->n, args->inputs[0],
                               args->inputs[1], 0, args->outputs[0], { 0 } };

    product.beta = args->accumulate == ACCUMULATE_YES ? 1 : 0;
    return run_product(kernel->device, &product, err);
}

int cpu_make_linear_dgrad(const struct cpu_build *build, struct kernel **kernel,
                          struct err *err)
{
    const struct value *w = cpu_input(build, 1);
    struct linear_kernel *k;

    (void)err;
    if (!cpu_all_plain(build))
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), dgrad_run);
    *kernel = &k->base;
    k->base.accumulates = true;
    k->trans_b = node_int(cpu_node(build), "transB", 0) != 0;
    k->k = w->shape.dim[k->trans_b];
    k->n = w->shape.dim[!k->trans_b];
    k->rows = shape_elements(&cpu_input(build, 0)->shape) / (k->n > 0 ? k->n : 1);
    return 0;
}

/* dW = x^T dz, [k, n]; transposed: dz^T x. */
static int wgrad_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct linear_kernel *k = (const struct linear_kernel *)kernel;
    const float *x = args->inputs[0], *dz = args->inputs[1];
    struct product product = { true, false, k->k, k->n, k->rows, x, dz, 0, args->outputs[0],
                               { 0 } };

    product.beta = args->accumulate == ACCUMULATE_YES ? 1 : 0;
    if (k->trans_b) {
        product.m = k->n;
        product.n = k->k;
        product.a = dz;
        product.b = x;
    }
    return run_product(kernel->device, &product, err);
}

int cpu_make_linear_wgrad(const struct cpu_build *build, struct kernel **kernel,
                          struct err *err)
{
    const struct shape *x = &cpu_input(build, 0)->shape, *dz = &cpu_input(build, 1)->shape;
    struct linear_kernel *k;

    (void)err;
    if (!cpu_all_plain(build))
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), wgrad_run);
    *kernel = &k->base;
    k->base.accumulates = true;
    k->trans_b = node_int(cpu_node(build), "transB", 0) != 0;
    k->k = x->dim[x->rank - 1];
    k->n = dz->dim[dz->rank - 1];
    k->rows = shape_elements(x) / (k->k > 0 ? k->k : 1);
    return 0;
}
