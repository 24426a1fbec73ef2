/* SPDX-License-Identifier: MIT */
/* Losses: cross-entropy along the last axis, squared error and inner product. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "kernels/cpu/cpu.h"

/* Cross-entropy ----------------------------------------------------------------------- */

struct entropy_kernel {
    struct kernel base;
    char *name;
    int64_t rows, classes;
    bool wide, ignores;         /* labels are int64; is there an ignore_index? */
    int64_t ignore_index;
    bool weighted, correct, saved;
    double smoothing;           /* of labels, without class weights */
};

struct entropy_run {
    const struct entropy_kernel *k;
    const float *logits, *saved, *weights;
    const void *labels;
    double factor;
    double smoothing;
    float *out;                 /* log-sums, or the gradient */
    double *terms, *hits;       /* of each row */
};

static int64_t label_at(const struct entropy_kernel *k, const void *labels, int64_t row)
{
    return k->wide ? ((const int64_t *)labels)[row] : ((const int32_t *)labels)[row];
}

static bool ignored(const struct entropy_kernel *k, int64_t label)
{
    return k->ignores && label == k->ignore_index;
}

static int check_labels(const struct entropy_kernel *k, const void *labels, struct err *err)
{
    for (int64_t row = 0; row < k->rows; row++) {
        int64_t label = label_at(k, labels, row);

        if (!ignored(k, label) && (label < 0 || label >= k->classes))
            return err_set(err, "node \"%s\": label %lld of row %lld: expected 0 to %lld",
                           k->name, (long long)label, (long long)row,
                           (long long)k->classes - 1);
    }
    return 0;
}

static bool is_largest(const float *x, int64_t n, int64_t label)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] > x[label] || (x[i] == x[label] && i < label))
            return false;
    return true;
}

static double entropy_term(const struct entropy_run *r, const float *x, double log_sum,
                           int64_t label)
{
    const struct entropy_kernel *k = r->k;
    double term = log_sum - (double)x[label];

    if (r->smoothing == 0)
        return (r->weights ? (double)r->weights[label] : 1) * term;
    return (1 - r->smoothing) * term +
           r->smoothing * (log_sum - k->base.device->simd->sum((size_t)k->classes, x) /
                                     (double)k->classes);
}

static void entropy_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct entropy_run *r = context;
    const struct entropy_kernel *k = r->k;

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        const float *x = r->logits + row * k->classes;
        float log_sum = k->base.device->simd->log_sum_exp((size_t)k->classes, x, NULL);
        int64_t label = label_at(k, r->labels, row);

        if (r->out)
            r->out[row] = log_sum;
        r->terms[row] = r->hits[row] = 0;
        if (ignored(k, label))
            continue;
        r->terms[row] = entropy_term(r, x, (double)log_sum, label);
        r->hits[row] = is_largest(x, k->classes, label);
    }
}

static int entropy_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct entropy_kernel *k = (const struct entropy_kernel *)kernel;
    struct entropy_run run = { .k = k,
                               .logits = args->inputs[0],
                               .labels = args->inputs[1],
                               .weights = k->weighted ? args->inputs[3] : NULL,
                               .out = k->saved ? args->outputs[2] : NULL,
                               .smoothing = args->state->training ? k->smoothing : 0,
                               .terms = args->workspace };
    double loss = 0, hits = 0;

    run.hits = run.terms + k->rows;
    if (check_labels(k, run.labels, err))
        return -1;
    cpu_parallel(kernel->device, k->rows, cpu_rows_grain(k->classes), entropy_rows, &run);
    for (int64_t row = 0; row < k->rows; row++) {
        loss += run.terms[row];
        hits += run.hits[row];
    }
    *(float *)args->outputs[0] = (float)(loss / args->state->weight_sum);
    if (k->correct && args->outputs[1])
        *(float *)args->outputs[1] = (float)hits;
    return 0;
}

static void entropy_grad_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct entropy_run *r = context;
    const struct entropy_kernel *k = r->k;
    const struct simd *simd = k->base.device->simd;
    size_t n = (size_t)k->classes;

    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        float *dx = r->out + row * k->classes, f, minus = -r->saved[row];
        float share = (float)(-k->smoothing / (double)k->classes);
        int64_t label = label_at(k, r->labels, row);

        if (ignored(k, label)) {
            memset(dx, 0, n * sizeof(*dx));
            continue;
        }
        f = (float)(r->factor * (r->weights ? (double)r->weights[label] : 1));
        simd->binary(SIMD_ADD, n, r->logits + row * k->classes, 1, &minus, 0, dx);
        simd->unary(SIMD_EXP, n, dx, dx);
        if (k->smoothing > 0)
            simd->binary(SIMD_ADD, n, dx, 1, &share, 0, dx);
        dx[label] -= (float)(1 - k->smoothing);
        simd->scale(n, f, dx, dx);
    }
}

static int entropy_grad_run(struct kernel *kernel, const struct kernel_args *args,
                            struct err *err)
{
    const struct entropy_kernel *k = (const struct entropy_kernel *)kernel;
    struct entropy_run run = { .k = k,
                               .logits = args->inputs[1],
                               .labels = args->inputs[2],
                               .saved = args->inputs[3],
                               .weights = k->weighted ? args->inputs[4] : NULL,
                               .factor = (double)*(const float *)args->inputs[0] /
                                         args->state->weight_sum,
                               .out = args->outputs[0] };

    if (check_labels(k, run.labels, err))
        return -1;
    cpu_parallel(kernel->device, k->rows, cpu_rows_grain(k->classes), entropy_grad_rows, &run);
    return 0;
}

static void entropy_free(struct kernel *kernel)
{
    struct entropy_kernel *k = (struct entropy_kernel *)kernel;

    free(k->name);
    free(k);
}

static struct entropy_kernel *
entropy_new(const struct cpu_build *build, const struct value *logits,
            const struct value *labels, const struct value *weights,
            int (*run)(struct kernel *, const struct kernel_args *, struct err *))
{
    int64_t axis = node_int(cpu_node(build), "axis", 1);
    double smoothing = node_float(cpu_node(build), "label_smoothing", 0);
    int rank = logits->shape.rank;
    struct entropy_kernel *k;

    if ((weights && smoothing > 0) || !cpu_all_plain(build) || rank < 1 ||
        (axis != rank - 1 && axis != -1) ||
        (labels->dtype != DTYPE_I64 && labels->dtype != DTYPE_I32))
        return NULL;
    k = cpu_kernel_new(build, sizeof(*k), run);
    k->base.free = entropy_free;
    k->name = mem_strdup(cpu_node(build)->name);
    k->classes = logits->shape.dim[rank - 1];
    k->rows = k->classes > 0 ? shape_elements(&logits->shape) / k->classes : 0;
    k->wide = labels->dtype == DTYPE_I64;
    k->weighted = weights != NULL;
    k->ignores = node_attr(cpu_node(build), "ignore_index") != NULL;
    k->ignore_index = node_int(cpu_node(build), "ignore_index", 0);
    k->smoothing = smoothing;
    return k;
}

int cpu_make_cross_entropy(const struct cpu_build *build, struct kernel **kernel,
                           struct err *err)
{
    struct entropy_kernel *k = entropy_new(build, cpu_input(build, 0), cpu_input(build, 1),
                                           cpu_input(build, 3), entropy_run);

    (void)err;
    if (!k)
        return 0;
    k->correct = cpu_output(build, 1) != NULL;
    k->saved = cpu_output(build, 2) != NULL;
    k->base.workspace = (size_t)(2 * k->rows) * sizeof(double);
    *kernel = &k->base;
    return 0;
}

int cpu_make_cross_entropy_grad(const struct cpu_build *build, struct kernel **kernel,
                                struct err *err)
{
    struct entropy_kernel *k = entropy_new(build, cpu_input(build, 1), cpu_input(build, 2),
                                           cpu_input(build, 4), entropy_grad_run);

    (void)err;
    if (!k)
        return 0;
    *kernel = &k->base;
    return 0;
}

/* Squared error and inner product ----------------------------------------------------- */

enum { PAIR_PIECE = 1 << 13 };

struct pair_kernel {
    struct kernel base;
    int64_t n;
    bool squares;
};

struct pair_run {
    const struct pair_kernel *k;
    const float *x, *target;
    float factor, *dx;
    double *terms;      /* of each piece */
};

static void pair_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const struct pair_run *r = context;
    const struct pair_kernel *k = r->k;
    const struct simd *simd = k->base.device->simd;
    float difference[PAIR_PIECE];

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const float *x = r->x + i * PAIR_PIECE, *target = r->target + i * PAIR_PIECE;
        int64_t rest = k->n - i * PAIR_PIECE;
        size_t n = (size_t)(rest < PAIR_PIECE ? rest : PAIR_PIECE);

        if (k->squares) {
            simd->binary(SIMD_SUB, n, x, 1, target, 1, difference);
            r->terms[i] = simd->sum_squares(n, difference);
        } else {
            r->terms[i] = simd->dot(n, x, target);
        }
    }
}

static int64_t pieces_of(const struct pair_kernel *k)
{
    return (k->n + PAIR_PIECE - 1) / PAIR_PIECE;
}

static int pair_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct pair_kernel *k = (const struct pair_kernel *)kernel;
    struct pair_run run = { .k = k,
                            .x = args->inputs[0],
                            .target = args->inputs[1],
                            .terms = args->workspace };
    double sum = 0;

    (void)err;
    cpu_parallel(kernel->device, pieces_of(k), 1, pair_pieces, &run);
    for (int64_t i = 0; i < pieces_of(k); i++)
        sum += run.terms[i];
    *(float *)args->outputs[0] = (float)(sum / args->state->weight_sum);
    return 0;
}

static void pair_grad_range(void *context, int64_t begin, int64_t end, int thread)
{
    const struct pair_run *r = context;
    const struct simd *simd = r->k->base.device->simd;
    size_t n = (size_t)(end - begin);

    (void)thread;
    if (r->k->squares) {
        simd->binary(SIMD_SUB, n, r->x + begin, 1, r->target + begin, 1, r->dx + begin);
        simd->scale(n, r->factor, r->dx + begin, r->dx + begin);
    } else {
        simd->scale(n, r->factor, r->target + begin, r->dx + begin);
    }
}

static int pair_grad_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct pair_kernel *k = (const struct pair_kernel *)kernel;
    double factor = (double)*(const float *)args->inputs[0] / args->state->weight_sum;
    struct pair_run run = { .k = k,
                            .x = args->inputs[1],
                            .target = args->inputs[k->squares ? 2 : 1],
                            .factor = (float)(k->squares ? 2 * factor : factor),
                            .dx = args->outputs[0] };

    (void)err;
    cpu_parallel(kernel->device, k->n, CPU_GRAIN, pair_grad_range, &run);
    return 0;
}

static struct pair_kernel *
pair_new(const struct cpu_build *build, const struct shape *shape,
         int (*run)(struct kernel *, const struct kernel_args *, struct err *))
{
    struct pair_kernel *k;

    if (!cpu_all_plain(build))
        return NULL;
    k = cpu_kernel_new(build, sizeof(*k), run);
    k->n = shape_elements(shape);
    k->squares = strncmp(cpu_node(build)->op->name, "Mse", 3) == 0;
    return k;
}

int cpu_make_pair_loss(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    struct pair_kernel *k = pair_new(build, &cpu_input(build, 0)->shape, pair_run);

    (void)err;
    if (!k)
        return 0;
    k->base.workspace = (size_t)pieces_of(k) * sizeof(double);
    *kernel = &k->base;
    return 0;
}

int cpu_make_pair_grad(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    struct pair_kernel *k = pair_new(build, &cpu_output(build, 0)->shape, pair_grad_run);

    (void)err;
    if (k)
        *kernel = &k->base;
    return 0;
}
