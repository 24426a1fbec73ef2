/* SPDX-License-Identifier: MIT */
/* Norms over rows, BatchNorm, and the gradients of their weights. */
#include "base/err.h"
#include "graph/graph.h"
#include "kernels/cuda/cuda.h"

#define MOST_PIECE INT32_MAX    /* elements that one loop of a kernel counts in 32 bits */
#define PIECES 2048             /* that keep a large GPU busy */
#define SMALL_PIECE 64          /* elements: fewer are not worth a piece */
#define MOST_CHUNKS 512         /* that one thread adds up at the end */

enum { LAYER, GROUP, RMS, ADDED = 4 };

static bool is_group(const struct cuda_kernel *k)
{
    return (cuda_op_of(k)->argument & 3) == GROUP;
}

static bool is_rms(const struct cuda_kernel *k)
{
    return (cuda_op_of(k)->argument & 3) == RMS;
}

/* Rows of a norm: k->before x k->length, or the groups of every sample. */
static struct cuda_rows norm_rows(const struct cuda_kernel *k)
{
    const struct kernel *d = k->digest;
    struct cuda_rows rows = { .n = d->before, .length = d->length, .after = 1 };

    if (is_group(k)) {
        rows.n = d->batch * d->before;
        rows.length = d->length * d->after;
    }
    rows.team = rows.length > 16;
    return rows;
}

/* Forward and dx -------------------------------------------------------------------------- */

#define MOST_KEEPERS 256        /* threads that keep a row in registers */

/* As few warps as can. */
static int keepers(const struct cuda_kernel *k, const struct cuda_rows *rows)
{
    int64_t words = rows->length * (k->narrow ? 2 : 4) / CUDA_WORD;
    int threads = 32;

    if (is_group(k) || !rows->team || rows->length % (k->narrow ? 8 : 4) ||
        words > MOST_KEEPERS * CUDA_KEPT)
        return 0;
    while (threads * CUDA_KEPT < words)
        threads *= 2;
    return threads;
}

static int run_norm(const struct cuda_kernel *k, struct stream *stream,
                    const struct kernel_args *args, struct err *err)
{
    struct cuda_norm l = k->launch.norm;
    bool added = cuda_op_of(k)->argument & ADDED;
    const void *const *inputs = args->inputs + added;
    void *const *saved = args->outputs + 1 + added;
    int n_saved = k->digest->n_outputs - 1 - added;

    l.x = args->inputs[0];
    l.other = added ? args->inputs[1] : NULL;
    l.scale = inputs[1];
    l.bias = k->digest->n_inputs - added > 2 ? inputs[2] : NULL;
    l.y = args->outputs[0];
    l.sum = added ? args->outputs[1] : NULL;
    if (l.centred)
        l.mean = n_saved > 0 ? *saved++ : NULL;
    l.inverse = n_saved > l.centred ? *saved : NULL;
    if (!cuda_has_words(l.x) || !cuda_has_words(l.other) || !cuda_has_words(l.scale) ||
        !cuda_has_words(l.bias) || !cuda_has_words(l.sum) || !cuda_has_words(l.y))
        l.kept = 0;
    return k->digest->out[0].elements ? k->device->cuda->norm(stream->cuda, &l, err) : 0;
}

static int make_norm(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    struct cuda_norm *l = &k->launch.norm;

    (void)graph, (void)node;
    *l = (struct cuda_norm){ .rows = norm_rows(k), .groups = is_group(k) ? d->before : 1,
                             .channels = d->length, .after = is_group(k) ? d->after : 1,
                             .centred = !is_rms(k), .epsilon = d->epsilon, .narrow = k->narrow };
    l->kept = keepers(k, &l->rows);
    k->run = run_norm;
    return cuda_is_f32(k) && l->rows.length <= MOST_PIECE ? 0 : -1;
}

static int run_norm_grad(const struct cuda_kernel *k, struct stream *stream,
                         const struct kernel_args *args, struct err *err)
{
    struct cuda_norm_grad l = k->launch.norm_grad;

    l.dy = args->inputs[0];
    l.x = args->inputs[1];
    l.scale = args->inputs[2];
    l.mean = is_rms(k) ? NULL : args->inputs[3];
    l.inverse = args->inputs[is_rms(k) ? 3 : 4];
    l.dx = args->outputs[0];
    if (!cuda_has_words(l.dy) || !cuda_has_words(l.x) || !cuda_has_words(l.scale) ||
        !cuda_has_words(l.dx))
        l.kept = 0;
    return k->digest->out[0].elements ? k->device->cuda->norm_grad(stream->cuda, &l, err) : 0;
}

static int make_norm_grad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    struct cuda_norm_grad *l = &k->launch.norm_grad;

    (void)graph, (void)node;
    *l = (struct cuda_norm_grad){ .rows = norm_rows(k), .groups = is_group(k) ? d->before : 1,
                                  .channels = d->length,
                                  .after = is_group(k) ? d->after : 1, .narrow = k->narrow };
    l->kept = keepers(k, &l->rows);
    k->run = run_norm_grad;
    return cuda_is_f32(k) && l->rows.length <= MOST_PIECE ? 0 : -1;
}

/* Weights --------------------------------------------------------------------------------- */

/* Cut the samples so that there are enough pieces; the workspace holds what each finds. */
static int plan_channels(struct cuda_kernel *k, struct cuda_channels *c)
{
    int64_t channels = c->groups * c->length, most;

    c->team = c->after >= 8 || (channels < 64 && c->samples * c->after > 256);
    /* A team is many threads already. */
    c->chunks = (c->team ? PIECES : PIECES * 32) / (channels ? channels : 1);
    most = c->samples * c->after / (SMALL_PIECE * (c->team ? 16 : 1));
    if (c->chunks > most)
        c->chunks = most;
    if (c->chunks > c->samples)
        c->chunks = c->samples;
    if (c->chunks > MOST_CHUNKS)
        c->chunks = MOST_CHUNKS;
    if (c->chunks < 1)
        c->chunks = 1;
    c->chunk = (c->samples + c->chunks - 1) / c->chunks;
    if (c->chunk)
        c->chunks = (c->samples + c->chunk - 1) / c->chunk;
    k->workspace = 2 * (size_t)(channels * c->chunks) * sizeof(double);
    return c->chunk * c->after <= MOST_PIECE ? 0 : -1;
}

/* Channels of a BatchNorm that are the last axis: blocks take columns of words of them. */
static void plan_columns(struct cuda_kernel *k, struct cuda_channels *c)
{
    int64_t across, chunks = PIECES / 2, most = c->samples / SMALL_PIECE;
    int64_t words = c->length / cuda_width(c->narrow);

    c->team = 0;
    c->columns = 32;
    while (c->columns > 1 && c->columns / 2 >= words)
        c->columns /= 2;
    across = (words + c->columns - 1) / c->columns;
    chunks /= across * c->groups;
    if (chunks > most)
        chunks = most;
    if (chunks < 1)
        chunks = 1;
    c->chunk = (c->samples + chunks - 1) / chunks;
    c->chunks = (c->samples + c->chunk - 1) / c->chunk;
    k->workspace = 2 * (size_t)(c->groups * c->chunks * c->length) * sizeof(double);
}

static int run_weight_grad(const struct cuda_kernel *k, struct stream *stream,
                           const struct kernel_args *args, struct err *err)
{
    struct cuda_weight_grad l = k->launch.weight_grad;

    l.channels.dy = args->inputs[0];
    l.channels.x = args->inputs[1];
    l.channels.mean = is_rms(k) ? NULL : args->inputs[2];
    l.channels.inverse = args->inputs[is_rms(k) ? 2 : 3];
    l.channels.parts = args->workspace;
    l.dscale = args->outputs[0];
    l.dbias = k->digest->n_outputs > 1 ? args->outputs[1] : NULL;
    l.add = args->accumulate == ACCUMULATE_YES;
    return l.channels.length ? k->device->cuda->weight_grad(stream->cuda, &l, err) : 0;
}

static int make_weight_grad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    struct cuda_channels *c = &k->launch.weight_grad.channels;
    size_t parts = 0;
    int status;

    (void)graph, (void)node;
    *c = (struct cuda_channels){ .groups = 1, .samples = d->before, .length = d->length,
                                 .after = 1, .stat_sample = 1, .stat_channels = d->length,
                                 .narrow = k->narrow };
    if (is_group(k)) {
        c->samples = d->batch;
        c->length = d->before * d->length;
        c->after = d->after;
        c->stat_sample = d->before;
    } else {
        parts = cuda_plan_columns(&k->launch.weight_grad.cut, c->samples, c->length, c->length,
                                  k->narrow);
    }
    k->run = run_weight_grad;
    k->accumulates = true;
    status = plan_channels(k, c);
    if (k->workspace < parts)
        k->workspace = parts;
    return cuda_is_f32(k) ? status : -1;
}

/* BatchNorm ------------------------------------------------------------------------------- */

static struct cuda_channels batchnorm_channels(const struct cuda_kernel *k)
{
    const struct kernel *d = k->digest;

    return (struct cuda_channels){ .groups = d->batch / d->group,
                                   .samples = k->last ? d->group * d->after : d->group,
                                   .length = d->length, .after = k->last ? 1 : d->after,
                                   .stat_group = d->length, .stat_channels = 1,
                                   .narrow = k->narrow };
}

/* Two floats for each channel of each group come after the parts. */
static float *batchnorm_stats(const struct cuda_channels *c, const struct kernel_args *args)
{
    return (float *)((double *)args->workspace + 2 * c->groups * c->chunks * c->length);
}

static int plan_batchnorm(struct cuda_kernel *k, struct cuda_channels *c)
{
    int status = plan_channels(k, c);

    if (k->last && c->length % cuda_width(c->narrow) == 0 && c->groups * c->samples * c->length > 0) {
        plan_columns(k, c);
        status = 0;
    }
    k->workspace += 2 * (size_t)(c->groups * c->length) * sizeof(float);
    return cuda_is_f32(k) ? status : -1;
}

/* cuDNN makes y, or dx, of one group of images whose channels are last, or kernels of ours do. */
static void find_library(struct cuda_kernel *k, enum cuda_image_kind kind, const struct cuda_channels *c,
                         int relu)
{
    const struct kernel *d = k->digest;
    const struct cuda_image image = {
        .kind = kind, .narrow = (int64_t)k->narrow, .images = d->group, .channels = d->length,
        .in = { d->after, 1 }, .relu = relu, .epsilon = d->epsilon,
    };

    if (!k->device->library_norms || !c->columns || c->groups != 1)
        return;
    k->failed = k->device->cuda->image_new(k->device->gpu, &image, &k->image, k->err) < 0;
    if (k->image)
        k->workspace += k->device->cuda->image_workspace(k->image);
}

/* Behind the two floats for each channel. */
static void *library_workspace(const struct cuda_channels *c, float *stats)
{
    return stats + 2 * c->groups * c->length;
}

/* Kernels of images take words. */
static int check_words(const struct cuda_kernel *k, const struct cuda_channels *c, const void *y,
                       const float *scale, const float *bias, struct err *err)
{
    const void *operands[] = { c->x, c->dy, c->mean, c->inverse, c->parts, y, scale, bias };

    for (size_t i = 0; c->columns && i < sizeof(operands) / sizeof(operands[0]); i++)
        if (!cuda_has_words(operands[i]))
            return err_set(err, "%s: an operand of a BatchNorm is not aligned to %d bytes",
                           k->device->name, CUDA_WORD);
    return 0;
}

static float *output(const struct cuda_kernel *k, const struct kernel_args *args, int i)
{
    return i < k->digest->n_outputs ? args->outputs[i] : NULL;
}

/* It knows nothing of evaluations: the kernels behind it make y anew there. */
static int make_by_library(const struct cuda_kernel *k, struct stream *stream,
                           const struct cuda_batchnorm *l, struct err *err)
{
    const struct cuda_image_args args = {
        .x = l->channels.x, .y = l->y, .scale = l->scale, .bias = l->bias, .mean = l->stats,
        .inverse = l->stats + l->channels.length,
        .workspace = library_workspace(&l->channels, l->stats),
    };

    return k->device->cuda->image(stream->cuda, k->image, &args, err);
}

static int run_batchnorm(const struct cuda_kernel *k, struct stream *stream,
                         const struct kernel_args *args, struct err *err)
{
    struct cuda_batchnorm l = k->launch.batchnorm;

    l.channels.x = args->inputs[0];
    l.channels.training = &args->state->training;
    l.channels.parts = args->workspace;
    l.global_batch = &args->state->global_batch;
    l.first_sample = &args->state->first_sample;
    l.scale = args->inputs[1];
    l.bias = args->inputs[2];
    l.old_mean = args->inputs[3];
    l.old_variance = args->inputs[4];
    l.y = args->outputs[0];
    l.mean_part = output(k, args, 1);
    l.variance_part = output(k, args, 2);
    l.mean = output(k, args, 3);
    l.inverse = output(k, args, 4);
    l.stats = batchnorm_stats(&l.channels, args);
    if (check_words(k, &l.channels, l.y, l.scale, l.bias, err) ||
        (l.made && make_by_library(k, stream, &l, err)))
        return -1;
    return k->digest->out[0].elements ? k->device->cuda->batchnorm(stream->cuda, &l, err) : 0;
}

/* With the Relu behind it: rectify.c. */
static int joined(const struct graph *graph, int node)
{
    return node_int(&graph->nodes[node], "relu", 0) != 0;
}

static int make_batchnorm(struct cuda_kernel *k, const struct graph *graph, int node)
{
    struct cuda_batchnorm *l = &k->launch.batchnorm;

    *l = (struct cuda_batchnorm){ .channels = batchnorm_channels(k), .group = k->digest->group,
                                  .epsilon = k->digest->epsilon,
                                  .momentum = k->digest->momentum,
                                  .relu = joined(graph, node) };
    k->run = run_batchnorm;
    if (plan_batchnorm(k, &l->channels) || (l->relu && !l->channels.columns))
        return -1;
    find_library(k, CUDA_IMAGE_NORM, &l->channels, l->relu);
    l->made = k->image != NULL;
    return k->failed ? -1 : 0;
}

static int grad_by_library(const struct cuda_kernel *k, struct stream *stream,
                           const struct cuda_batchnorm_grad *l, struct err *err)
{
    const struct cuda_image_args args = {
        .x = l->channels.x, .dy = l->channels.dy, .dx = l->dx, .scale = l->scale,
        .mean = (float *)(uintptr_t)l->channels.mean, .inverse = (float *)(uintptr_t)l->channels.inverse,
        .dscale = l->dscale, .dbias = l->dbias,
        .workspace = library_workspace(&l->channels, l->means),
    };

    return k->device->cuda->image(stream->cuda, k->image, &args, err);
}

static int run_batchnorm_grad(const struct cuda_kernel *k, struct stream *stream,
                              const struct kernel_args *args, struct err *err)
{
    struct cuda_batchnorm_grad l = k->launch.batchnorm_grad;

    l.channels.dy = args->inputs[0];
    l.channels.x = args->inputs[1];
    l.channels.mean = args->inputs[3];
    l.channels.inverse = args->inputs[4];
    l.channels.parts = args->workspace;
    l.scale = args->inputs[2];
    l.dx = output(k, args, 0);
    l.dscale = output(k, args, 1);
    l.dbias = output(k, args, 2);
    l.means = batchnorm_stats(&l.channels, args);
    if (l.relu) {
        l.channels.cut_scale = l.scale;
        l.channels.cut_bias = args->inputs[CUDA_NORM_BIAS];
    }
    if (check_words(k, &l.channels, l.dx, l.scale, l.channels.cut_bias, err))
        return -1;
    if (k->image && cuda_has_words(l.dscale) && cuda_has_words(l.dbias))
        return grad_by_library(k, stream, &l, err);
    return l.channels.length ? k->device->cuda->batchnorm_grad(stream->cuda, &l, err) : 0;
}

static bool makes_all(const struct kernel *d)
{
    return d->n_outputs == 3 && d->out[0].elements > 0 && d->out[1].elements > 0 && d->out[2].elements > 0;
}

static int make_batchnorm_grad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    struct cuda_batchnorm_grad *l = &k->launch.batchnorm_grad;

    l->channels = batchnorm_channels(k);
    l->relu = joined(graph, node);
    k->run = run_batchnorm_grad;
    if (plan_batchnorm(k, &l->channels) || (l->relu && !l->channels.columns))
        return -1;
    /* cuDNN would want to be told which dy a Relu let through; ours find it from x, to a rounding as
     * cuDNN's forward has it.
     */
    if (!l->relu && makes_all(k->digest))
        find_library(k, CUDA_IMAGE_NORM_GRAD, &l->channels, 0);
    return k->failed ? -1 : 0;
}

const struct cuda_op cuda_ops_norm[] = {
    { "LayerNormalization", make_norm, LAYER },
    { "GroupNormalization", make_norm, GROUP },
    { "RMSNormalization", make_norm, RMS },
    { "AddLayerNorm", make_norm, LAYER | ADDED },
    { "AddRmsNorm", make_norm, RMS | ADDED },
    { "LayerNormDgrad", make_norm_grad, LAYER },
    { "GroupNormDgrad", make_norm_grad, GROUP },
    { "RmsNormDgrad", make_norm_grad, RMS },
    { "LayerNormWgrad", make_weight_grad, LAYER },
    { "GroupNormWgrad", make_weight_grad, GROUP },
    { "RmsNormWgrad", make_weight_grad, RMS },
    { "BatchNormalization", make_batchnorm, 0 },
    { "BatchNormGrad", make_batchnorm_grad, 0 },
    { NULL, NULL, 0 },
};
