/* SPDX-License-Identifier: MIT */
/* Pools over one or two spatial axes.
 *
 * A plane of channels first is one column of pixels, a sample of channels last is rows of
 * channels: both are pixels 'step' elements apart, 'width' channels wide. Work is cut into
 * (sample, block of channels).
 */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "graph/op.h"
#include "graph/ops/window.h"
#include "kernels/cpu/cpu.h"

enum { BLOCK = 64 }; /* channels of a piece of work, channels last */

struct pool_kernel {
    struct kernel base;
    bool max, saved;
    int64_t images, channels;
    int64_t in[2], out[2], size[2], stride[2], dilation[2], before[2], after[2];
    bool count_padding;
    bool last;
    int64_t blocks; /* of channels */
};

struct pool_run {
    const struct pool_kernel *k;
    const float *x, *dy;
    float *y, *dx;
    int32_t *saved;
};

/* One piece: where its channels start, how many, and how far apart pixels are. */
struct piece {
    int64_t in, out; /* first element in arrays of the input's and the output's shape */
    size_t width;
    int64_t step;
};

static struct piece piece_of(const struct pool_kernel *k, int64_t index)
{
    int64_t image = index / k->blocks, block = index % k->blocks;
    int64_t in = k->in[0] * k->in[1], out = k->out[0] * k->out[1];
    int64_t first = block * BLOCK, width = k->channels - first;

    if (!k->last)
        return (struct piece){index * in, index * out, 1, 1};
    return (struct piece){image * in * k->channels + first, image * out * k->channels + first,
                          (size_t)(width < BLOCK ? width : BLOCK), k->channels};
}

/* Positions [from, to) of the window along an axis that lie inside the input. */
static void clip(const struct pool_kernel *k, int d, int64_t o, int64_t *start, int64_t *from,
                 int64_t *to)
{
    int64_t at = o * k->stride[d] - k->before[d], room = k->in[d] - 1 - at;

    *start = at;
    *from = at >= 0 ? 0 : (-at + k->dilation[d] - 1) / k->dilation[d];
    *to = room < 0 ? 0 : room / k->dilation[d] + 1;
    if (*to > k->size[d])
        *to = k->size[d];
}

struct box {
    int64_t start[2], from[2], to[2];
};

static struct box box_of(const struct pool_kernel *k, int64_t oh, int64_t ow)
{
    struct box b;

    clip(k, 0, oh, &b.start[0], &b.from[0], &b.to[0]);
    clip(k, 1, ow, &b.start[1], &b.from[1], &b.to[1]);
    return b;
}

static float divisor(const struct pool_kernel *k, const struct box *b)
{
    double n = 1;

    for (int d = 0; d < 2; d++) {
        int64_t room = k->in[d] + k->after[d] - b->start[d];
        int64_t positions = (room - 1) / k->dilation[d] + 1;

        if (!k->count_padding)
            positions = b->to[d] - b->from[d];
        n *= (double)(positions < k->size[d] ? positions : k->size[d]);
    }
    return (float)n;
}

static void max_window(const struct pool_run *r, const struct piece *p, const struct box *b,
                       float *y, int32_t *saved)
{
    const struct pool_kernel *k = r->k;

    for (size_t i = 0; i < p->width; i++) {
        y[i] = -INFINITY;
        saved[i] = -1;
    }
    for (int64_t i = b->from[0]; i < b->to[0]; i++)
        for (int64_t j = b->from[1]; j < b->to[1]; j++) {
            int64_t at = (b->start[0] + i * k->dilation[0]) * k->in[1] + b->start[1] +
                         j * k->dilation[1];
            const float *x = r->x + p->in + at * p->step;

            if (p->width > 1)
                k->base.device->simd->max_into(p->width, x, (int32_t)at, y, saved);
            else if (!(*x <= *y))
                *y = *x, *saved = (int32_t)at;
        }
}

static void mean_window(const struct pool_run *r, const struct piece *p, const struct box *b,
                        float *y)
{
    const struct pool_kernel *k = r->k;

    memset(y, 0, p->width * sizeof(*y));
    for (int64_t i = b->from[0]; i < b->to[0]; i++)
        for (int64_t j = b->from[1]; j < b->to[1]; j++) {
            int64_t at = (b->start[0] + i * k->dilation[0]) * k->in[1] + b->start[1] +
                         j * k->dilation[1];

            k->base.device->simd->axpy(p->width, 1, r->x + p->in + at * p->step, y);
        }
    k->base.device->simd->scale(p->width, 1 / divisor(k, b), y, y);
}

static void pool_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const struct pool_run *r = context;
    const struct pool_kernel *k = r->k;
    int32_t unsaved[BLOCK];

    (void)thread;
    for (int64_t index = begin; index < end; index++) {
        struct piece p = piece_of(k, index);

        for (int64_t o = 0; o < k->out[0] * k->out[1]; o++) {
            struct box b = box_of(k, o / k->out[1], o % k->out[1]);
            int64_t at = p.out + o * p.step;

            if (k->max)
                max_window(r, &p, &b, r->y + at, r->saved ? r->saved + at : unsaved);
            else
                mean_window(r, &p, &b, r->y + at);
        }
    }
}

static int pool_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct pool_kernel *k = (const struct pool_kernel *)kernel;
    struct pool_run run = {.k = k,
                           .x = args->inputs[0],
                           .y = args->outputs[0],
                           .saved = k->saved ? args->outputs[1] : NULL};

    (void)err;
    cpu_parallel(kernel->device, k->images * k->blocks, 1, pool_pieces, &run);
    return 0;
}

/* Gradients: dx of a piece belongs to one thread, which adds window after window. */

static void max_window_grad(const struct pool_run *r, const struct piece *p,
                            const struct box *b, int64_t out)
{
    const struct pool_kernel *k = r->k;

    for (int64_t i = b->from[0]; i < b->to[0]; i++)
        for (int64_t j = b->from[1]; j < b->to[1]; j++) {
            int64_t at = (b->start[0] + i * k->dilation[0]) * k->in[1] + b->start[1] +
                         j * k->dilation[1];

            k->base.device->simd->max_grad(p->width, r->dy + out, r->saved + out, (int32_t)at,
                                           r->dx + p->in + at * p->step);
        }
}

static void mean_window_grad(const struct pool_run *r, const struct piece *p,
                             const struct box *b, int64_t out)
{
    const struct pool_kernel *k = r->k;
    float factor = 1 / divisor(k, b);

    for (int64_t i = b->from[0]; i < b->to[0]; i++)
        for (int64_t j = b->from[1]; j < b->to[1]; j++) {
            int64_t at = (b->start[0] + i * k->dilation[0]) * k->in[1] + b->start[1] +
                         j * k->dilation[1];

            k->base.device->simd->axpy(p->width, factor, r->dy + out,
                                       r->dx + p->in + at * p->step);
        }
}

static void pool_grad_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const struct pool_run *r = context;
    const struct pool_kernel *k = r->k;

    (void)thread;
    for (int64_t index = begin; index < end; index++) {
        struct piece p = piece_of(k, index);

        for (int64_t i = 0; i < k->in[0] * k->in[1]; i++)
            memset(r->dx + p.in + i * p.step, 0, p.width * sizeof(float));
        for (int64_t o = 0; o < k->out[0] * k->out[1]; o++) {
            struct box b = box_of(k, o / k->out[1], o % k->out[1]);
            int64_t at = p.out + o * p.step;

            if (!k->max)
                mean_window_grad(r, &p, &b, at);
            else if (p.width > 1)
                max_window_grad(r, &p, &b, at);
            else if (r->saved[at] >= 0)
                r->dx[p.in + r->saved[at]] += r->dy[at];
        }
    }
}

static int pool_grad_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct pool_kernel *k = (const struct pool_kernel *)kernel;
    struct pool_run run = {.k = k, .dy = args->inputs[0], .dx = args->outputs[0]};

    (void)err;
    if (k->max)
        run.saved = (int32_t *)(uintptr_t)args->inputs[1];
    cpu_parallel(kernel->device, k->images * k->blocks, 1, pool_grad_pieces, &run);
    return 0;
}

static void fill_axis(struct pool_kernel *k, const struct window *w, int to, int from)
{
    k->in[to] = from < 0 ? 1 : w->in[from];
    k->out[to] = from < 0 ? 1 : w->out[from];
    k->size[to] = from < 0 ? 1 : w->kernel[from];
    k->stride[to] = from < 0 ? 1 : w->stride[from];
    k->dilation[to] = from < 0 ? 1 : w->dilation[from];
    k->before[to] = from < 0 ? 0 : w->before[from];
    k->after[to] = from < 0 ? 0 : w->after[from];
}

static int make_pool(const struct cpu_build *build, const struct value *x, bool last,
                     int (*run)(struct kernel *, const struct kernel_args *, struct err *),
                     struct kernel **kernel, struct err *err)
{
    struct pool_kernel *k;
    struct window w;

    if (window_of(build->graph, build->node, &x->shape, NULL, &w, err))
        return -1;
    if (w.rank > 2)
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), run);
    *kernel = &k->base;
    k->max = strncmp(cpu_node(build)->op->name, "Max", 3) == 0;
    k->saved = k->max && cpu_output(build, 1);
    k->images = w.images;
    k->channels = w.in_channels;
    k->count_padding = w.count_padding;
    fill_axis(k, &w, 0, w.rank == 2 ? 0 : -1);
    fill_axis(k, &w, 1, w.rank - 1);
    k->last = last;
    k->blocks = last ? (k->channels + BLOCK - 1) / BLOCK : k->channels;
    return 0;
}

/* Channels last as soon as one side is; all of x, y and what is saved must lie alike. */
int cpu_make_pool(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    const struct value *x = cpu_input(build, 0), *y = cpu_output(build, 0);
    const struct cpu_layout *x_layout = cpu_input_layout(build, 0);
    const struct cpu_layout *y_layout = cpu_output_layout(build, 0);
    bool last = cpu_channels_last(x_layout) || cpu_channels_last(y_layout);

    if (!cpu_lies(x, x_layout, last) || !cpu_lies(y, y_layout, last) ||
        !cpu_lies(cpu_output(build, 1), cpu_output_layout(build, 1), last))
        return 0;
    return make_pool(build, x, last, pool_run, kernel, err);
}

int cpu_make_pool_grad(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    const struct value *dy = cpu_input(build, 0), *dx = cpu_output(build, 0);
    const struct cpu_layout *dy_layout = cpu_input_layout(build, 0);
    const struct cpu_layout *dx_layout = cpu_output_layout(build, 0);
    bool last = cpu_channels_last(dy_layout) || cpu_channels_last(dx_layout);

    if (!cpu_lies(dy, dy_layout, last) || !cpu_lies(dx, dx_layout, last) ||
        !cpu_lies(cpu_input(build, 1), cpu_input_layout(build, 1), last))
        return 0;
    return make_pool(build, dx, last, pool_grad_run, kernel, err);
}

/* GlobalAveragePool ------------------------------------------------------------------- */

struct global_kernel {
    struct kernel base;
    bool last;
    int64_t images, channels, space;
};

struct global_run {
    const struct global_kernel *k;
    const float *x;
    float *y;
};

static void global_images(void *context, int64_t begin, int64_t end, int thread)
{
    const struct global_run *r = context;
    const struct global_kernel *k = r->k;
    const struct simd *simd = k->base.device->simd;
    int64_t sample = k->channels * k->space;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *y = r->y + i * k->channels;

        if (!k->last) {
            for (int64_t c = 0; c < k->channels; c++)
                y[c] = (float)(simd->sum((size_t)k->space, r->x + i * sample + c * k->space) /
                               (double)k->space);
            continue;
        }
        memset(y, 0, (size_t)k->channels * sizeof(*y));
        for (int64_t p = 0; p < k->space; p++)
            simd->axpy((size_t)k->channels, 1, r->x + i * sample + p * k->channels, y);
        simd->scale((size_t)k->channels, 1 / (float)k->space, y, y);
    }
}

static void global_grad_images(void *context, int64_t begin, int64_t end, int thread)
{
    const struct global_run *r = context;
    const struct global_kernel *k = r->k;
    const struct simd *simd = k->base.device->simd;
    float factor = 1 / (float)k->space;
    int64_t sample = k->channels * k->space;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const float *dy = r->x + i * k->channels;
        float *dx = r->y + i * sample;

        for (int64_t p = 0; k->last && p < k->space; p++)
            simd->scale((size_t)k->channels, factor, dy, dx + p * k->channels);
        for (int64_t c = 0; !k->last && c < k->channels; c++)
            for (int64_t p = 0; p < k->space; p++)
                dx[c * k->space + p] = dy[c] * factor;
    }
}

static int run_global(struct kernel *kernel, const struct kernel_args *args, cpu_range *range)
{
    const struct global_kernel *k = (const struct global_kernel *)kernel;
    struct global_run run = {k, args->inputs[0], args->outputs[0]};

    cpu_parallel(kernel->device, k->images, cpu_rows_grain(k->channels * k->space), range,
                 &run);
    return 0;
}

static int global_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    (void)err;
    return run_global(kernel, args, global_images);
}

static int global_grad_run(struct kernel *kernel, const struct kernel_args *args,
                           struct err *err)
{
    (void)err;
    return run_global(kernel, args, global_grad_images);
}

static void make_global(const struct cpu_build *build, const struct value *x,
                        const struct cpu_layout *layout,
                        int (*run)(struct kernel *, const struct kernel_args *, struct err *),
                        struct kernel **kernel)
{
    struct global_kernel *k = cpu_kernel_new(build, sizeof(*k), run);

    *kernel = &k->base;
    k->images = x->shape.dim[0];
    k->channels = x->shape.dim[1];
    k->space = 1;
    for (int i = 2; i < x->shape.rank; i++)
        k->space *= x->shape.dim[i];
    k->last = cpu_channels_last(layout);
}

int cpu_make_global_pool(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    (void)err;
    if (cpu_output_layout(build, 0) == NULL)
        make_global(build, cpu_input(build, 0), cpu_input_layout(build, 0), global_run, kernel);
    return 0;
}

int cpu_make_global_pool_grad(const struct cpu_build *build, struct kernel **kernel,
                              struct err *err)
{
    (void)err;
    if (cpu_input_layout(build, 0) == NULL)
        make_global(build, cpu_output(build, 0), cpu_output_layout(build, 0), global_grad_run,
                    kernel);
    return 0;
}
