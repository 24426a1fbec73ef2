/* SPDX-License-Identifier: MIT */
/* Sums along axes, losses of pairs, and their gradients. */
#include "kernels/cuda/cuda.h"

#define PIECES 2048             /* that keep a large GPU busy */
#define MOST_CHUNKS 512         /* that one thread adds up at the end */

/* Of cuda_plan_columns(). */
#define MOST_COLUMN_WORDS 32
#define FEWEST_COLUMN_WORDS 8
#define BLOCK_THREADS 256
#define COLUMN_BLOCKS 384       /* as many as a large GPU runs at once, three a multiprocessor */
#define COLUMN_ROWS 4           /* that a thread reads at once */
#define MOST_COLUMN_ROWS 64     /* that it adds up in float32 */

/* One more axis; one that continues the last is merged with it. */
static void add_axis(struct cuda_axes *axes, int64_t dim, int64_t stride)
{
    int last = axes->rank - 1;

    axes->elements *= dim;
    if (dim == 1)
        return;
    if (last >= 0 && axes->stride[last] == dim * stride) {
        axes->dim[last] *= dim;
        axes->stride[last] = stride;
        return;
    }
    axes->dim[axes->rank] = dim;
    axes->stride[axes->rank++] = stride;
}

size_t cuda_plan_columns(struct cuda_cut *cut, int64_t rows, int64_t columns, int64_t pitch,
                         enum cuda_narrow narrow)
{
    int64_t width = narrow ? 8 : 4, words = columns / width, lanes, strips, chunk;

    *cut = (struct cuda_cut){ .words = MOST_COLUMN_WORDS };
    while (cut->words > FEWEST_COLUMN_WORDS && cut->words / 2 >= words)
        cut->words /= 2;
    lanes = BLOCK_THREADS / cut->words;
    if (columns % width || pitch % width || words == 0 || rows < lanes)
        return 0;
    strips = (words + cut->words - 1) / cut->words;
    chunk = (rows * strips + COLUMN_BLOCKS - 1) / COLUMN_BLOCKS;
    lanes *= COLUMN_ROWS;
    chunk = (chunk + lanes - 1) / lanes * lanes;
    if (chunk > lanes / COLUMN_ROWS * MOST_COLUMN_ROWS)
        chunk = lanes / COLUMN_ROWS * MOST_COLUMN_ROWS;
    cut->chunk = chunk;
    cut->chunks = (rows + chunk - 1) / chunk;
    return cut->chunks > 1 ? 2 * (size_t)(cut->chunks * columns) * sizeof(float) : 0;
}

/* Enough pieces, none of them small; the workspace holds what each finds. */
static size_t plan_reduce(struct cuda_reduce *l)
{
    int64_t outputs = l->kept.elements, n = l->inner.elements, most;
    size_t parts = 0, cut = 0;

    /* Neighbours read together what lies together: threads of a team along the inner axes. */
    l->team = n > 16 && (outputs < PIECES || l->inner.rank == 0 ||
                         l->inner.stride[l->inner.rank - 1] == 1);
    if (l->team && outputs >= 64 && l->kept.rank && l->kept.stride[l->kept.rank - 1] == 1)
        l->team = 0;
    if (l->kind == CUDA_SUM && l->kept.rank == 1 && l->kept.stride[0] == 1 && l->inner.rank == 1)
        cut = cuda_plan_columns(&l->cut, n, outputs, l->inner.stride[0], l->narrow);
    l->chunks = (l->team ? PIECES : PIECES * 32) / (outputs ? outputs : 1);
    most = n / (l->team ? 1024 : 64);
    if (l->chunks > most)
        l->chunks = most;
    if (l->chunks > MOST_CHUNKS)
        l->chunks = MOST_CHUNKS;
    if (l->chunks < 1)
        l->chunks = 1;
    l->chunk = (n + l->chunks - 1) / l->chunks;
    if (l->chunk)
        l->chunks = (n + l->chunk - 1) / l->chunk;
    if (l->chunks > 1)
        parts = (size_t)(outputs * l->chunks) * sizeof(double);
    return parts > cut ? parts : cut;
}

/* Of the walk over x, whose entry 0 has stride 0 along what is summed over. */
static void axes_from(struct cuda_reduce *l, const struct walk *walk)
{
    int64_t stride[GRAPH_MAX_RANK], step = 1;

    for (int i = walk->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= walk->dim[i];
    }
    l->kept = l->inner = (struct cuda_axes){ .elements = 1 };
    for (int i = 0; i < walk->rank; i++)
        add_axis(walk->stride[0][i] ? &l->kept : &l->inner, walk->dim[i], stride[i]);
}

size_t cuda_plan_sum(struct cuda_reduce *reduce, const struct walk *walk)
{
    reduce->kind = CUDA_SUM;
    reduce->scale = 1;
    axes_from(reduce, walk);
    return plan_reduce(reduce);
}

static int run_reduce(const struct cuda_kernel *k, struct stream *stream,
                      const struct kernel_args *args, struct err *err)
{
    struct cuda_reduce l = k->launch.reduce;

    l.x = args->inputs[0];
    l.out = args->outputs[0];
    l.parts = args->workspace;
    l.add = args->accumulate == ACCUMULATE_YES;
    return k->digest->out[0].elements ? k->device->cuda->reduce(stream->cuda, &l, err) : 0;
}

/* After the axes are known. */
static int finish_reduce(struct cuda_kernel *k)
{
    k->launch.reduce.narrow = k->narrow;
    k->workspace = plan_reduce(&k->launch.reduce);
    k->run = run_reduce;
    k->accumulates = true;
    return cuda_is_f32(k) && k->digest->in[0].dtype == DTYPE_F32 ? 0 : -1;
}

static int make_reduce(struct cuda_kernel *k, const struct graph *graph, int node)
{
    struct cuda_reduce *l = &k->launch.reduce;

    (void)graph, (void)node;
    l->kind = (enum cuda_reduction)cuda_op_of(k)->argument;
    l->scale = k->digest->scale;
    axes_from(l, &k->digest->walk);
    return finish_reduce(k);
}

/* Over all axes but one. */
static int make_bias_grad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    struct cuda_reduce *l = &k->launch.reduce;

    (void)graph, (void)node;
    l->kind = CUDA_SUM;
    l->scale = 1;
    l->kept = l->inner = (struct cuda_axes){ .elements = 1 };
    add_axis(&l->inner, k->last ? d->before * d->after : d->before, d->length * (k->last ? 1 : d->after));
    add_axis(&l->kept, d->length, k->last ? 1 : d->after);
    add_axis(&l->inner, k->last ? 1 : d->after, 1);
    return finish_reduce(k);
}

/* At least 1. */
static int64_t channels_of(const struct ref_tensor *image)
{
    return image->shape.dim[1] ? image->shape.dim[1] : 1;
}

static int make_global_pool(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    struct cuda_reduce *l = &k->launch.reduce;
    int64_t channels = channels_of(&d->in[0]);

    (void)graph, (void)node;
    l->kind = CUDA_SUM;
    l->scale = 1 / (double)d->length;
    l->kept = l->inner = (struct cuda_axes){ .elements = 1 };
    add_axis(&l->kept, d->before / channels, d->length * channels);
    add_axis(&l->kept, channels, k->last ? 1 : d->length);
    add_axis(&l->inner, d->length, k->last ? channels : 1);
    return finish_reduce(k);
}

static int run_spread(const struct cuda_kernel *k, struct stream *stream,
                      const struct kernel_args *args, struct err *err)
{
    struct cuda_spread l = k->launch.spread;

    l.dy = args->inputs[0];
    l.dx = args->outputs[0];
    return k->digest->out[0].elements ? k->device->cuda->spread(stream->cuda, &l, err) : 0;
}

static int make_global_pool_grad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    struct cuda_spread *l = &k->launch.spread;

    (void)graph, (void)node;
    l->channels = k->last ? channels_of(&d->out[0]) : 1;
    l->n = d->before / l->channels;
    l->length = d->length;
    l->scale = 1 / (double)d->length;
    l->narrow = k->narrow;
    k->run = run_spread;
    return cuda_is_f32(k) ? 0 : -1;
}

/* Gradients ------------------------------------------------------------------------------- */

/* The counts of a choice come first in the workspace, as many as results. */
static size_t counts_bytes(const struct kernel *d)
{
    return ((size_t)d->in[2].elements * sizeof(float) + 63) / 64 * 64;
}

static int run_unreduce(const struct cuda_kernel *k, struct stream *stream,
                        const struct kernel_args *args, struct err *err)
{
    struct cuda_unreduce l = { .dy = args->inputs[0], .x = args->inputs[1],
                               .y = args->inputs[2], .dx = args->outputs[0] };

    if (k->digest->out[0].elements == 0)
        return 0;
    cuda_walk_from(&l.walk, &k->digest->walk);
    if (cuda_op_of(k)->argument == CUDA_COUNT) {
        struct cuda_reduce count = k->launch.reduce;

        count.x = l.x;
        count.y = l.y;
        count.out = args->workspace;
        count.parts = (double *)((char *)args->workspace + counts_bytes(k->digest));
        l.count = count.out;
        if (k->device->cuda->reduce(stream->cuda, &count, err) < 0)
            return -1;
    }
    return k->device->cuda->unreduce(stream->cuda, &l, err);
}

static int make_unreduce(struct cuda_kernel *k, const struct graph *graph, int node)
{
    struct cuda_reduce *l = &k->launch.reduce;

    (void)graph, (void)node;
    if (cuda_op_of(k)->argument == CUDA_COUNT) {
        l->kind = CUDA_COUNT;
        axes_from(l, &k->digest->walk);
        k->workspace = counts_bytes(k->digest) + plan_reduce(l);
    }
    k->run = run_unreduce;
    return cuda_is_f32(k) ? 0 : -1;
}

/* Pairs ----------------------------------------------------------------------------------- */

static int run_pair(const struct cuda_kernel *k, struct stream *stream,
                    const struct kernel_args *args, struct err *err)
{
    const struct kernel *d = k->digest;
    struct cuda_pair l = k->launch.pair;

    l.a = args->inputs[0];
    l.b = d->n_inputs > 2 ? args->inputs[1] : NULL;
    l.weight_sum = &args->state->weight_sum;
    l.out = args->outputs[0];
    l.parts = args->workspace;
    return k->device->cuda->pair(stream->cuda, &l, err);
}

static int run_pair_grad(const struct cuda_kernel *k, struct stream *stream,
                         const struct kernel_args *args, struct err *err)
{
    const struct kernel *d = k->digest;
    struct cuda_pair l = k->launch.pair;

    l.dloss = args->inputs[0];
    l.a = d->n_inputs > 1 ? args->inputs[1] : NULL;
    l.b = d->n_inputs > 2 ? args->inputs[2] : NULL;
    l.weight_sum = &args->state->weight_sum;
    l.out = args->outputs[0];
    return l.n ? k->device->cuda->pair(stream->cuda, &l, err) : 0;
}

static int make_pair(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    k->launch.pair = (struct cuda_pair){ .kind = (enum cuda_pair_kind)cuda_op_of(k)->argument,
                                         .n = k->digest->in[0].elements };
    k->workspace = CUDA_PARTS * sizeof(double);
    k->run = run_pair;
    return cuda_is_f32(k) ? 0 : -1;
}

static int make_pair_grad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    k->launch.pair = (struct cuda_pair){ .kind = (enum cuda_pair_kind)cuda_op_of(k)->argument,
                                         .n = k->digest->out[0].elements };
    k->run = run_pair_grad;
    return cuda_is_f32(k) ? 0 : -1;
}

const struct cuda_op cuda_ops_reduce[] = {
    { "ReduceSum", make_reduce, CUDA_SUM },
    { "ReduceMean", make_reduce, CUDA_SUM },
    { "ReduceSumTo", make_reduce, CUDA_SUM },
    { "ReduceL2", make_reduce, CUDA_NORM },
    { "ReduceMax", make_reduce, CUDA_LARGEST },
    { "ReduceMin", make_reduce, CUDA_SMALLEST },
    { "BiasGrad", make_bias_grad, 0 },
    { "GlobalAveragePool", make_global_pool, 0 },
    { "GlobalAveragePoolGrad", make_global_pool_grad, 0 },
    { "ReduceChoiceGrad", make_unreduce, CUDA_COUNT },
    { "ReduceL2Grad", make_unreduce, CUDA_NORM },
    { "MseSum", make_pair, CUDA_PAIR_MSE },
    { "DotSum", make_pair, CUDA_PAIR_DOT },
    { "SumLoss", make_pair, CUDA_PAIR_SUM },
    { "MseGrad", make_pair_grad, CUDA_PAIR_MSE },
    { "DotGrad", make_pair_grad, CUDA_PAIR_DOT },
    { "SumLossGrad", make_pair_grad, CUDA_PAIR_SUM },
    { NULL, NULL, 0 },
};
