/* SPDX-License-Identifier: MIT */
/* Convolutions by cuDNN: Conv, ConvTranspose, ConvDgrad, ConvWgrad. */
#include "base/err.h"
#include "kernels/cuda/cuda.h"

/* What is padded behind an axis only says how many outputs there are. cuDNN has more ways where
 * it is as much as before, which the last stride may leave room for. -1: no padding gives as many.
 */
static int64_t padding_after(const struct window *w, int axis)
{
    int64_t least = (w->out[axis] - 1) * w->stride[axis] +
                    (w->kernel[axis] - 1) * w->dilation[axis] + 1 - w->in[axis] -
                    w->before[axis];
    int64_t most = least + w->stride[axis] - 1;

    if (w->before[axis] >= least && w->before[axis] <= most)
        return w->before[axis];
    if (most < 0)
        return -1;
    return least > 0 ? least : 0;
}

static int describe(const struct window *w, enum cuda_conv_kind kind, struct cuda_conv *c)
{
    int skip;

    *c = (struct cuda_conv){ .kind = kind, .rank = w->rank < 2 ? 2 : w->rank,
                             .images = w->images, .in_channels = w->in_channels,
                             .out_channels = w->out_channels, .groups = w->groups };
    skip = WINDOW_MAX - c->rank;
    for (int i = 0; i < c->rank; i++) {
        c->in[i] = w->in[skip + i];
        c->out[i] = w->out[skip + i];
        c->kernel[i] = w->kernel[skip + i];
        c->stride[i] = w->stride[skip + i];
        c->dilation[i] = w->dilation[skip + i];
        c->before[i] = w->before[skip + i];
        c->after[i] = padding_after(w, skip + i);
        if (c->after[i] < 0 || c->before[i] < 0)
            return -1;
    }
    return 0;
}

static struct cuda_conv_args operands(const struct cuda_kernel *k,
                                      const struct kernel_args *args)
{
    const void *const *in = args->inputs;
    const void *out = args->outputs[0];

    switch ((enum cuda_conv_kind)cuda_op_of(k)->argument) {
    case CUDA_CONV_DGRAD:
        return (struct cuda_conv_args){ out, in[1], in[0], args->workspace };
    case CUDA_CONV_WGRAD:
        return (struct cuda_conv_args){ in[0], out, in[1], args->workspace };
    default:
        return (struct cuda_conv_args){ in[0], in[1], out, args->workspace };
    }
}

static int run(const struct cuda_kernel *k, struct stream *stream,
               const struct kernel_args *args, struct err *err)
{
    struct cuda_conv_args r = operands(k, args);

    return k->device->cuda->conv(stream->cuda, k->convolution, &r, err);
}

static int run_with_bias(const struct cuda_kernel *k, struct stream *stream,
                         const struct kernel_args *args, struct err *err)
{
    struct cuda_pointwise l = k->launch.pointwise;

    l.in[0] = l.out = args->outputs[0];
    l.in[1] = args->inputs[2];
    return run(k, stream, args, err) ? -1 : k->device->cuda->pointwise(stream->cuda, &l, err);
}

/* y[n, c, space] += bias[c], or y[n, space, c] */
static struct cuda_pointwise add_bias(const struct cuda_kernel *k)
{
    const struct kernel *d = k->digest;
    int64_t images = d->window.images, channels = d->window.out_channels;
    int64_t space = d->out[0].elements / (images * channels);
    struct cuda_pointwise l = { .function = CUDA_ADD, .narrow = k->narrow, .narrow_out = k->narrow };

    if (k->last)
        l.walk = (struct cuda_walk){ .rank = 2, .n = 2, .elements = d->out[0].elements,
                                     .dim = { images * space, channels },
                                     .stride = { { channels, 1 }, { 0, 1 } } };
    else
        l.walk = (struct cuda_walk){ .rank = 3, .n = 2, .elements = d->out[0].elements,
                                     .dim = { images, channels, space },
                                     .stride = { { channels * space, space, 1 }, { 0, 1, 0 } } };
    return l;
}

static bool anything_empty(const struct kernel *d)
{
    return d->in[0].elements == 0 || d->in[1].elements == 0 || d->out[0].elements == 0;
}

/* Gradients of weights ------------------------------------------------------------------- */

#define ALIGNMENT ((size_t)256) /* a power of two */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

/* cuDNN 9.19 has an engine whose gradient of weights is wrong where an axis is padded more at its end
 * than at its start: x is padded before.
 */
static bool is_uneven(const struct cuda_conv *c)
{
    for (int i = 0; i < c->rank; i++)
        if (c->before[i] != c->after[i])
            return true;
    return false;
}

static size_t element_bytes(const struct cuda_conv *c)
{
    return c->narrow ? CUDA_NARROW_BYTES : sizeof(float);
}

static size_t padded_bytes(const struct cuda_conv *c)
{
    size_t bytes = (size_t)(c->images * c->in_channels) * element_bytes(c);

    for (int i = 0; i < c->rank; i++)
        bytes *= (size_t)(c->in[i] + c->before[i] + c->after[i]);
    return aligned(bytes);
}

/* From x into the middle of what is padded: planes, or images whose channels are last. */
static struct cuda_move into_middle(const struct cuda_conv *c)
{
    struct cuda_move l = { .walk = { .rank = c->rank + (c->last ? 2 : 1), .n = 2 }, .across = -1,
                           .size = (int)element_bytes(c) };
    int64_t from = 1, to = 1;

    if (c->last) {
        from = to = l.walk.dim[c->rank + 1] = c->in_channels;
        l.walk.stride[0][c->rank + 1] = l.walk.stride[1][c->rank + 1] = 1;
    }
    for (int i = c->rank; i > 0; i--) {
        l.walk.dim[i] = c->in[i - 1];
        l.walk.stride[0][i] = from;
        l.walk.stride[1][i] = to;
        l.walk.start[1] += c->before[i - 1] * to;
        from *= c->in[i - 1];
        to *= c->in[i - 1] + c->before[i - 1] + c->after[i - 1];
    }
    l.walk.dim[0] = c->last ? c->images : c->images * c->in_channels;
    l.walk.stride[0][0] = from;
    l.walk.stride[1][0] = to;
    l.walk.elements = from * l.walk.dim[0];
    return l;
}

static int pad(const struct cuda_kernel *k, struct stream *stream, const void *x, void *padded,
               struct err *err)
{
    struct cuda_move l = k->launch.move;

    l.in = x;
    l.out = padded;
    return k->device->cuda->fill_zero(stream->cuda, padded, k->padded, err)
               ? -1 : k->device->cuda->move(stream->cuda, &l, err);
}

static int widen(const struct cuda_kernel *k, struct stream *stream, const void *narrow, void *wide,
                 struct err *err)
{
    int64_t n = k->digest->out[0].elements;
    struct cuda_pointwise l = {
        .function = CUDA_COPY, .narrow = k->narrow, .in = { narrow }, .out = wide,
        .walk = { .rank = 1, .n = 1, .elements = n, .dim = { n }, .stride = { { 1 } }, .flat = 1 },
    };

    return k->device->cuda->pointwise(stream->cuda, &l, err);
}

static int64_t window_volume(const struct window *w)
{
    return w->kernel[0] * w->kernel[1] * w->kernel[2];
}

/* From [out, window, in] to [out, in, window]. */
static int turn(const struct cuda_kernel *k, struct stream *stream, const void *dw, void *out,
                struct err *err)
{
    const struct window *w = &k->digest->window;
    struct cuda_move l = { .size = sizeof(float), .in = dw, .out = out };

    cuda_turn(&l, w->out_channels, w->in_channels / w->groups, window_volume(w), true);
    return k->device->cuda->move(stream->cuda, &l, err);
}

static bool in_workspace(const struct cuda_kernel *k)
{
    return k->padded || k->dw_narrow || k->dw_wide;
}

/* With x as padded, and dw on its way to what it is to be, in front of what cuDNN wants. */
static int run_wgrad(const struct cuda_kernel *k, struct stream *stream,
                     const struct kernel_args *args, struct err *err)
{
    uintptr_t place = ((uintptr_t)args->workspace + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1);
    struct cuda_conv_args r = operands(k, args);
    void *narrow = (void *)(place + k->padded), *wide = args->outputs[0];

    if (k->padded) {
        if (pad(k, stream, r.x, (void *)place, err))
            return -1;
        r.x = (void *)place;
    }
    if (k->dw_wide)
        wide = (void *)(place + k->padded + k->dw_narrow);
    r.w = k->dw_narrow ? narrow : wide;
    r.workspace = (void *)(place + k->padded + k->dw_narrow + k->dw_wide);
    if (k->device->cuda->conv(stream->cuda, k->convolution, &r, err) ||
        (k->dw_narrow && widen(k, stream, narrow, wide, err)))
        return -1;
    return k->dw_wide ? turn(k, stream, wide, args->outputs[0], err) : 0;
}

/* The same of what will be padded already. */
static void pad_before(struct cuda_kernel *k, struct cuda_conv *c)
{
    k->padded = padded_bytes(c);
    k->launch.move = into_middle(c);
    for (int i = 0; i < c->rank; i++) {
        c->in[i] += c->before[i] + c->after[i];
        c->before[i] = c->after[i] = 0;
    }
}

/* Few engines make float32 of 16 bits: else a gradient of weights is widened in the end. */
static int find_engine(struct cuda_kernel *k, struct cuda_conv *c)
{
    const struct cuda_runtime *cuda = k->device->cuda;

    c->wide_w = c->narrow && c->kind == CUDA_CONV_WGRAD;
    k->failed = cuda->conv_new(k->device->gpu, c, &k->convolution, k->err) < 0;
    if (!k->failed && !k->convolution && c->wide_w) {
        c->wide_w = 0;
        k->dw_narrow = aligned((size_t)k->digest->out[0].elements * CUDA_NARROW_BYTES);
        k->failed = cuda->conv_new(k->device->gpu, c, &k->convolution, k->err) < 0;
    }
    return k->convolution ? 0 : -1;
}

static int make(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    enum cuda_conv_kind kind = (enum cuda_conv_kind)cuda_op_of(k)->argument;
    bool bias = kind == CUDA_CONV_FORWARD && d->n_inputs > 2 && d->in[2].elements >= 0;
    struct cuda_conv c;

    (void)graph, (void)node;
    if (!cuda_is_f32(k) || anything_empty(d) || describe(&d->window, kind, &c))
        return -1;
    c.tf32 = k->device->tf32;
    c.narrow = k->narrow;
    c.last = k->last;
    if (kind == CUDA_CONV_WGRAD && is_uneven(&c))
        pad_before(k, &c);
    if (kind == CUDA_CONV_WGRAD && k->last && window_volume(&d->window) > 1)
        k->dw_wide = aligned((size_t)d->out[0].elements * sizeof(float));
    if (find_engine(k, &c))
        return -1;
    k->workspace = k->device->cuda->conv_workspace(k->convolution);
    if (in_workspace(k))
        k->workspace += k->padded + k->dw_narrow + k->dw_wide + ALIGNMENT;
    if (bias)
        k->launch.pointwise = add_bias(k);
    k->run = in_workspace(k) ? run_wgrad : bias ? run_with_bias : run;
    return 0;
}

bool cuda_conv_fits(struct device *device, const struct graph *graph, int node, bool last)
{
    struct err err = { 0 };
    struct cuda_kernel k = { .device = device, .narrow = device->narrow, .last = last, .err = &err };
    bool fits;

    k.digest = device->reference->kernel_new(device->reference_device, graph, node, NULL, &err);
    if (!k.digest)
        return false;
    fits = make(&k, graph, node) == 0;
    if (fits)
        device->cuda->conv_free(k.convolution);
    device->reference->kernel_free(k.digest);
    return fits;
}

const struct cuda_op cuda_ops_conv[] = {
    { "Conv", make, CUDA_CONV_FORWARD },
    { "ConvDgrad", make, CUDA_CONV_DGRAD },
    { "ConvTranspose", make, CUDA_CONV_DGRAD },
    { "ConvWgrad", make, CUDA_CONV_WGRAD },
    { NULL, NULL, 0 },
};
