/* SPDX-License-Identifier: MIT */
/* Along an axis: softmax and cross-entropy. */
#include "kernels/cuda/cuda.h"

/* Long rows of what lies together want a team; others are read together by neighbours. */
static struct cuda_rows rows_of(const struct kernel *d)
{
    bool team = d->after == 1 ? d->length > 16 : d->after < 32 && d->length > 64;

    return (struct cuda_rows){ .n = d->before * d->after, .length = d->length,
                               .after = d->after, .team = team };
}

enum { FORWARD, GRADIENT, LOGARITHM = 2 };

static int run_softmax(const struct cuda_kernel *k, struct stream *stream,
                       const struct kernel_args *args, struct err *err)
{
    struct cuda_softmax l = k->launch.softmax;
    bool gradient = k->digest->n_inputs > 1;

    l.x = args->inputs[gradient];
    l.dy = gradient ? args->inputs[0] : NULL;
    l.out = args->outputs[0];
    return k->digest->out[0].elements ? k->device->cuda->softmax(stream->cuda, &l, err) : 0;
}

static int make_softmax(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    if (!cuda_is_f32(k))
        return -1;
    k->launch.softmax = (struct cuda_softmax){
        .rows = rows_of(k->digest),
        .logarithm = cuda_op_of(k)->argument == LOGARITHM,
        .masked = k->digest->masked,
        .narrow = k->narrow,
    };
    k->run = run_softmax;
    return 0;
}

static int run_entropy(const struct cuda_kernel *k, struct stream *stream,
                       const struct kernel_args *args, struct err *err)
{
    struct cuda_entropy l = k->launch.entropy;
    const struct kernel *d = k->digest;

    l.x = args->inputs[0];
    l.labels = args->inputs[1];
    l.weights = d->n_inputs > 3 ? args->inputs[3] : NULL;
    l.training = &args->state->training;
    l.weight_sum = &args->state->weight_sum;
    l.loss = args->outputs[0];
    l.correct = d->n_outputs > 1 ? args->outputs[1] : NULL;
    l.log_sums = d->n_outputs > 2 ? args->outputs[2] : NULL;
    l.parts = args->workspace;
    return k->device->cuda->entropy(stream->cuda, &l, err);
}

static int run_entropy_grad(const struct cuda_kernel *k, struct stream *stream,
                            const struct kernel_args *args, struct err *err)
{
    struct cuda_entropy l = k->launch.entropy;

    l.dloss = args->inputs[0];
    l.x = args->inputs[1];
    l.labels = args->inputs[2];
    l.log_sums = (float *)(uintptr_t)args->inputs[3];
    l.weights = k->digest->n_inputs > 4 ? args->inputs[4] : NULL;
    l.training = &args->state->training;
    l.weight_sum = &args->state->weight_sum;
    l.dx = args->outputs[0];
    return l.rows.n && l.rows.length ? k->device->cuda->entropy(stream->cuda, &l, err) : 0;
}

static int make_entropy(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    bool gradient = cuda_op_of(k)->argument == GRADIENT;
    enum dtype labels = d->in[gradient ? 2 : 1].dtype;

    (void)graph, (void)node;
    if (!cuda_is_f32(k) || (labels != DTYPE_I64 && labels != DTYPE_I32))
        return -1;
    k->launch.entropy = (struct cuda_entropy){
        .rows = rows_of(d),
        .narrow = k->narrow,
        .wide = labels == DTYPE_I64,
        .ignores = d->ignores,
        .ignore_index = d->ignore_index,
        .smoothing = d->smoothing,
    };
    if (!gradient)
        k->workspace = 2 * (size_t)k->launch.entropy.rows.n * sizeof(double);
    k->run = gradient ? run_entropy_grad : run_entropy;
    return 0;
}

const struct cuda_op cuda_ops_softmax[] = {
    { "Softmax", make_softmax, FORWARD },
    { "LogSoftmax", make_softmax, LOGARITHM },
    { "SoftmaxGrad", make_softmax, GRADIENT },
    { "LogSoftmaxGrad", make_softmax, LOGARITHM },
    { "CrossEntropySum", make_entropy, FORWARD },
    { "CrossEntropyGrad", make_entropy, GRADIENT },
    { NULL, NULL, 0 },
};
