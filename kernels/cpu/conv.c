/* SPDX-License-Identifier: MIT */
/* Convolutions by oneDNN, and what moves values between layouts. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernels/cpu/conv.h"
#include "kernels/cpu/cpu.h"
#include "graph/op.h"
#include "graph/ops/window.h"

/* Which of the node's inputs and outputs are x, w and y. */
struct roles {
    enum onednn_conv_kind kind;
    const struct value *x, *w, *y;
    const struct cpu_layout *x_layout, *w_layout, *y_layout;
};

static struct roles find_roles(const struct cpu_build *b)
{
    const char *op = cpu_node(b)->op->name;

    if (strcmp(op, "ConvDgrad") == 0 || strcmp(op, "ConvTranspose") == 0)
        return (struct roles){CONV_DGRAD,
                              cpu_output(b, 0),
                              cpu_input(b, 1),
                              cpu_input(b, 0),
                              cpu_output_layout(b, 0),
                              cpu_input_layout(b, 1),
                              cpu_input_layout(b, 0)};
    if (strcmp(op, "ConvWgrad") == 0)
        return (struct roles){CONV_WGRAD,
                              cpu_input(b, 0),
                              cpu_output(b, 0),
                              cpu_input(b, 1),
                              cpu_input_layout(b, 0),
                              cpu_output_layout(b, 0),
                              cpu_input_layout(b, 1)};
    return (struct roles){CONV_FORWARD,           cpu_input(b, 0),
                          cpu_input(b, 1),        cpu_output(b, 0),
                          cpu_input_layout(b, 0), cpu_input_layout(b, 1),
                          cpu_output_layout(b, 0)};
}

int cpu_conv_shape(const struct graph *graph, int node, struct onednn_conv_shape *shape,
                   enum onednn_conv_kind *kind, struct err *err)
{
    struct cpu_build build = {.graph = graph, .node = node};
    struct roles r = find_roles(&build);
    struct window w;

    if (window_of(graph, node, &r.x->shape, &r.w->shape, &w, err))
        return -1;
    *kind = r.kind;
    memset(shape, 0, sizeof(*shape));
    shape->spatial = w.rank;
    shape->n = w.images;
    shape->c = w.in_channels;
    shape->o = w.out_channels;
    shape->groups = w.groups;
    for (int i = 0; i < w.rank; i++) {
        shape->in[i] = w.in[i];
        shape->out[i] = w.out[i];
        shape->kernel[i] = w.kernel[i];
        shape->stride[i] = w.stride[i];
        shape->dilation[i] = w.dilation[i];
        shape->pad_low[i] = w.before[i];
        shape->pad_high[i] = w.after[i];
    }
    return 0;
}

void cpu_conv_last(const struct shape *x, const struct shape *y, bool *x_last, bool *y_last)
{
    if (!cpu_spatial(x))
        *x_last = *y_last;
    else if (!cpu_spatial(y))
        *y_last = *x_last;
}

struct conv_kernel {
    struct kernel base;
    enum onednn_conv_kind kind;
    struct onednn_conv *conv;
    struct onednn_format *format; /* of weights reordered within each run */
    struct onednn_reorder *reorder, *reorder_add;
    size_t weights_bytes; /* of 'format', at the start of the workspace */
    bool bias;
};

static int run_conv(const struct conv_kernel *k, const struct kernel_args *args, const void *x,
                    const void *w, const void *y, void *scratch, struct err *err)
{
    return onednn_conv_run(k->conv, (void *)(uintptr_t)x, (void *)(uintptr_t)w,
                           k->bias ? args->inputs[2] : NULL, (void *)(uintptr_t)y, scratch,
                           err);
}

static int conv_run(struct kernel *kernel, const struct kernel_args *args, struct err *err)
{
    const struct conv_kernel *k = (const struct conv_kernel *)kernel;
    const void *const *in = args->inputs;
    void *const *out = args->outputs;
    void *scratch = (char *)args->workspace + k->weights_bytes;
    struct onednn_reorder *back =
        args->accumulate == ACCUMULATE_YES ? k->reorder_add : k->reorder;
    const void *w;

    if (k->kind == CONV_WGRAD) {
        void *dw = k->format ? args->workspace : out[0];

        if (run_conv(k, args, in[0], dw, in[1], scratch, err))
            return -1;
        return k->format ? onednn_reorder_run(back, dw, out[0], scratch, err) : 0;
    }
    w = in[1];
    if (k->format) {
        if (onednn_reorder_run(k->reorder, w, args->workspace, scratch, err))
            return -1;
        w = args->workspace;
    }
    return k->kind == CONV_DGRAD ? run_conv(k, args, out[0], w, in[0], scratch, err)
                                 : run_conv(k, args, in[0], w, out[0], scratch, err);
}

static void conv_free(struct kernel *kernel)
{
    struct conv_kernel *k = (struct conv_kernel *)kernel;

    onednn_conv_free(k->conv);
    onednn_format_free(k->format);
    onednn_reorder_free(k->reorder);
    onednn_reorder_free(k->reorder_add);
    free(k);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t rounded(size_t bytes)
{
    return (bytes + CPU_ALIGNMENT - 1) & ~(size_t)(CPU_ALIGNMENT - 1);
}

/* Plain weights that the primitive wants otherwise are reordered within each run. */
static int conv_reorders(struct conv_kernel *k, const struct onednn_conv_shape *shape,
                         size_t *scratch, struct err *err)
{
    struct onednn *onednn = k->base.device->onednn;
    bool wgrad = k->kind == CONV_WGRAD;

    k->reorder = onednn_reorder_new(onednn, shape, wgrad ? k->format : NULL,
                                    wgrad ? NULL : k->format, false, err);
    if (!k->reorder)
        return -1;
    k->weights_bytes = rounded(onednn_format_bytes(k->format));
    *scratch = larger(*scratch, onednn_reorder_scratch(k->reorder));
    if (!wgrad)
        return 0;
    k->reorder_add = onednn_reorder_new(onednn, shape, k->format, NULL, true, NULL);
    if (k->reorder_add)
        *scratch = larger(*scratch, onednn_reorder_scratch(k->reorder_add));
    return 0;
}

static int conv_build(struct conv_kernel *k, const struct roles *r,
                      const struct onednn_conv_shape *shape, struct err *err)
{
    struct onednn *onednn = k->base.device->onednn;
    struct onednn_conv_layout layout = {cpu_channels_last(r->x_layout),
                                        cpu_channels_last(r->y_layout),
                                        r->w_layout ? r->w_layout->format : NULL, k->bias};
    size_t scratch;

    cpu_conv_last(&r->x->shape, &r->y->shape, &layout.x_last, &layout.y_last);
    if (!r->w_layout) {
        k->format = onednn_conv_format(onednn, shape, r->kind, layout.x_last, layout.y_last);
        layout.weights = k->format;
    }
    k->conv = onednn_conv_new(onednn, shape, r->kind, &layout, err);
    if (!k->conv)
        return -1;
    scratch = onednn_conv_scratch(k->conv);
    if (k->format && conv_reorders(k, shape, &scratch, err))
        return -1;
    k->base.workspace = k->weights_bytes + scratch;
    k->base.accumulates = k->reorder_add != NULL;
    return 0;
}

int cpu_make_conv(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    struct roles r = find_roles(build);
    struct onednn_conv_shape shape;
    enum onednn_conv_kind kind;
    struct conv_kernel *k;

    if (cpu_conv_shape(build->graph, build->node, &shape, &kind, err))
        return -1;
    if (shape.n == 0 || shape.c == 0 || shape.o == 0)
        return 0;
    k = cpu_kernel_new(build, sizeof(*k), conv_run);
    k->base.free = conv_free;
    k->kind = kind;
    k->bias = kind == CONV_FORWARD && cpu_input(build, 2);
    if (conv_build(k, &r, &shape, err)) {
        conv_free(&k->base);
        return op_error(build->graph, build->node, err, "%s", err ? err->text : "");
    }
    *kernel = &k->base;
    return 0;
}

/* Reorder ----------------------------------------------------------------------------- */

struct reorder_kernel {
    struct kernel base;
    struct onednn_reorder *reorder, *reorder_add; /* of weights */
    /* of activations: 'images' matrices of 'rows' x 'columns' are transposed */
    int64_t images, rows, columns;
};

struct reorder_run {
    const struct reorder_kernel *kernel;
    const float *x;
    float *y;
    int64_t blocks; /* pieces of rows per image */
};

enum { REORDER_ROWS = 64 };

/* A piece is up to 64 columns of x, that is 64 rows of y. */
static void reorder_pieces(void *context, int64_t begin, int64_t end, int thread)
{
    const struct reorder_run *run = context;
    const struct reorder_kernel *k = run->kernel;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t image = i / run->blocks, c = i % run->blocks * REORDER_ROWS;
        int64_t width = k->columns - c < REORDER_ROWS ? k->columns - c : REORDER_ROWS;
        int64_t at = image * k->rows * k->columns;

        k->base.device->simd->transpose((size_t)k->rows, (size_t)width, run->x + at + c,
                                        (size_t)k->columns, run->y + at + c * k->rows,
                                        (size_t)k->rows);
    }
}

static int reorder_activation_run(struct kernel *kernel, const struct kernel_args *args,
                                  struct err *err)
{
    const struct reorder_kernel *k = (const struct reorder_kernel *)kernel;
    struct reorder_run run = {k, args->inputs[0], args->outputs[0],
                              (k->columns + REORDER_ROWS - 1) / REORDER_ROWS};

    (void)err;
    cpu_parallel(kernel->device, k->images * run.blocks, 2, reorder_pieces, &run);
    return 0;
}

static int reorder_weights_run(struct kernel *kernel, const struct kernel_args *args,
                               struct err *err)
{
    const struct reorder_kernel *k = (const struct reorder_kernel *)kernel;

    return onednn_reorder_run(args->accumulate == ACCUMULATE_YES ? k->reorder_add : k->reorder,
                              args->inputs[0], args->outputs[0], args->workspace, err);
}

static void reorder_free(struct kernel *kernel)
{
    struct reorder_kernel *k = (struct reorder_kernel *)kernel;

    onednn_reorder_free(k->reorder);
    onednn_reorder_free(k->reorder_add);
    free(k);
}

static int make_weights_reorder(const struct cpu_build *build, struct kernel **kernel,
                                struct err *err)
{
    const struct cpu_layout *from = cpu_input_layout(build, 0);
    const struct cpu_layout *to = cpu_output_layout(build, 0);
    const struct onednn_conv_shape *shape = from ? &from->shape : &to->shape;
    struct reorder_kernel *k = cpu_kernel_new(build, sizeof(*k), reorder_weights_run);

    k->base.free = reorder_free;
    k->reorder = onednn_reorder_new(build->device->onednn, shape, from ? from->format : NULL,
                                    to ? to->format : NULL, false, err);
    if (!k->reorder) {
        reorder_free(&k->base);
        return -1;
    }
    *kernel = &k->base;
    k->base.workspace = onednn_reorder_scratch(k->reorder);
    if (to)
        return 0;
    /* Not every version adds while it reorders; then the executor does it. */
    k->reorder_add =
        onednn_reorder_new(build->device->onednn, shape, from->format, NULL, true, NULL);
    if (k->reorder_add) {
        k->base.accumulates = true;
        k->base.workspace = larger(k->base.workspace, onednn_reorder_scratch(k->reorder_add));
    }
    return 0;
}

int cpu_make_reorder(const struct cpu_build *build, struct kernel **kernel, struct err *err)
{
    const struct cpu_layout *from = cpu_input_layout(build, 0);
    const struct cpu_layout *to = cpu_output_layout(build, 0);
    const struct shape *shape = &cpu_input(build, 0)->shape;
    struct reorder_kernel *k;
    int64_t space = 1;

    if ((from && from->kind == CPU_WEIGHTS) || (to && to->kind == CPU_WEIGHTS))
        return make_weights_reorder(build, kernel, err);
    if (cpu_channels_last(from) == cpu_channels_last(to))
        return cpu_make_unary(build, kernel, err);
    k = cpu_kernel_new(build, sizeof(*k), reorder_activation_run);
    *kernel = &k->base;
    for (int i = 2; i < shape->rank; i++)
        space *= shape->dim[i];
    k->images = shape->dim[0];
    k->rows = from ? space : shape->dim[1];
    k->columns = from ? shape->dim[1] : space;
    return 0;
}
