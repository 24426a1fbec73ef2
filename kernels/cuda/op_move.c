/* SPDX-License-Identifier: MIT */
/* Elements of any type that are moved and nothing else. */
#include <string.h>

#include "kernels/cuda/cuda.h"

/* The digest's walk says where operand 'placed' is; the other one is dense. */
static void walk_between(struct cuda_walk *to, const struct walk *from, int placed)
{
    int64_t step = 1;

    *to = (struct cuda_walk){ .rank = from->rank, .n = 2 };
    to->start[placed] = from->start[0];
    for (int k = from->rank - 1; k >= 0; k--) {
        to->dim[k] = from->dim[k];
        to->stride[placed][k] = from->stride[0][k];
        to->stride[1 - placed][k] = step;
        step *= from->dim[k];
    }
    to->elements = step;
    cuda_walk_merge(to);
}

/* 'rows' pieces of 'width' elements, with strides. */
static void walk_rows(struct cuda_walk *walk, int64_t rows, int64_t width, int64_t from,
                      int64_t to)
{
    *walk = (struct cuda_walk){ .rank = 2, .n = 2, .elements = rows * width,
                                .dim = { rows, width }, .stride = { { from, 1 }, { to, 1 } } };
    cuda_walk_merge(walk);
}

static bool halves(const struct cuda_walk *w)
{
    for (int i = 0; i < 2; i++) {
        if (w->stride[i][w->rank - 1] != 1 || w->start[i] % 2)
            return false;
        for (int k = 0; k < w->rank - 1; k++)
            if (w->stride[i][k] % 2)
                return false;
    }
    return w->dim[w->rank - 1] % 2 == 0;
}

/* Two neighbours that always go together are one element of twice the size. */
static void widen(struct cuda_move *l)
{
    struct cuda_walk *w = &l->walk;

    while (l->size < 16 && halves(w) && (uintptr_t)l->in % (2 * (size_t)l->size) == 0 &&
           (uintptr_t)l->out % (2 * (size_t)l->size) == 0) {
        l->size *= 2;
        w->elements /= 2;
        w->dim[w->rank - 1] /= 2;
        for (int i = 0; i < 2; i++) {
            w->start[i] /= 2;
            for (int k = 0; k < w->rank - 1; k++)
                w->stride[i][k] /= 2;
        }
    }
}

static int move(const struct cuda_kernel *k, struct stream *stream, struct cuda_move *l,
                const void *in, void *out, bool add, struct err *err)
{
    if (l->walk.elements == 0)
        return 0;
    l->in = in;
    l->out = out;
    l->add = add;
    if (!add)
        widen(l);
    return k->device->cuda->move(stream->cuda, l, err);
}

static void set_size(struct cuda_kernel *k)
{
    k->launch.move.size = (int)cuda_element_bytes(k, k->digest->out[0].dtype);
    k->launch.move.across = -1;
    k->accumulates = k->digest->out[0].dtype == DTYPE_F32 && !k->narrow;
}

/* From anywhere in the input to all of the output ---------------------------------------- */

static int run_move(const struct cuda_kernel *k, struct stream *stream,
                    const struct kernel_args *args, struct err *err)
{
    struct cuda_move l = k->launch.move;

    return move(k, stream, &l, args->inputs[0], args->outputs[0],
                args->accumulate == ACCUMULATE_YES, err);
}

/* Worth a detour through tiles: an axis that the input alone is contiguous along. */
static int find_across(const struct cuda_move *l)
{
    const struct cuda_walk *w = &l->walk;

    if ((l->size != 4 && l->size != 2) || w->rank < 2 || w->dim[w->rank - 1] < 8 ||
        w->stride[1][w->rank - 1] != 1 || w->stride[0][w->rank - 1] < 2)
        return -1;
    for (int k = 0; k < w->rank - 1; k++)
        if (w->stride[0][k] == 1 && w->dim[k] >= 8)
            return k;
    return -1;
}

static int make_move(struct cuda_kernel *k, const struct graph *graph, int node)
{
    struct cuda_move *l = &k->launch.move;

    (void)graph, (void)node;
    set_size(k);
    walk_between(&l->walk, &k->digest->walk, 0);
    l->across = find_across(l);
    k->run = run_move;
    return 0;
}

static int run_copy(const struct cuda_kernel *k, struct stream *stream,
                    const struct kernel_args *args, struct err *err)
{
    size_t bytes = cuda_output_bytes(k);
    struct cuda_move l = k->launch.move;

    if (args->accumulate == ACCUMULATE_YES)
        return move(k, stream, &l, args->inputs[0], args->outputs[0], true, err);
    return args->outputs[0] == args->inputs[0]
               ? 0
               : k->device->cuda->copy(stream->cuda, args->outputs[0], bytes, args->inputs[0],
                                       bytes, bytes, 1, err);
}

static int make_copy(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    set_size(k);
    walk_rows(&k->launch.move.walk, 1, k->digest->out[0].elements, 0, 0);
    k->run = run_copy;
    return 0;
}

void cuda_turn(struct cuda_move *move, int64_t n, int64_t channels, int64_t space, bool back)
{
    int64_t rows = back ? channels : space, columns = back ? space : channels;

    move->walk = (struct cuda_walk){ .rank = 3, .n = 2, .elements = n * rows * columns,
                                     .dim = { n, rows, columns },
                                     .stride = { { rows * columns, 1, rows },
                                                 { rows * columns, columns, 1 } } };
    move->across = 1;
}

/* Between forms of 16 bits. */
static int run_turn(const struct cuda_kernel *k, struct stream *stream,
                    const struct kernel_args *args, struct err *err)
{
    struct cuda_move l = k->launch.move;

    l.in = args->inputs[0];
    l.out = args->outputs[0];
    return l.walk.elements ? k->device->cuda->move(stream->cuda, &l, err) : 0;
}

static struct cuda_pointwise copy_between(const struct cuda_kernel *k)
{
    int64_t n = k->digest->out[0].elements;

    return (struct cuda_pointwise){
        .function = CUDA_COPY, .narrow = cuda_narrow_of(k, 0), .narrow_out = cuda_narrow_of(k, 1),
        .walk = { .rank = 1, .n = 1, .elements = n, .dim = { n }, .stride = { { 1 } }, .flat = 1 },
    };
}

/* Between float32 and channels that are last: what lies between them is made in the workspace. */
static int run_both(const struct cuda_kernel *k, struct stream *stream,
                    const struct kernel_args *args, struct err *err)
{
    const struct cuda_runtime *cuda = k->device->cuda;
    bool to_wide = !k->narrow_operand[1];
    struct cuda_move turn = k->launch.move;
    struct cuda_pointwise copy = copy_between(k);

    turn.in = to_wide ? args->inputs[0] : args->workspace;
    turn.out = to_wide ? args->workspace : args->outputs[0];
    copy.in[0] = to_wide ? args->workspace : args->inputs[0];
    copy.out = to_wide ? args->outputs[0] : args->workspace;
    copy.add = args->accumulate == ACCUMULATE_YES;
    if (turn.walk.elements == 0)
        return 0;
    if (to_wide && cuda->move(stream->cuda, &turn, err))
        return -1;
    if (cuda->pointwise(stream->cuda, &copy, err))
        return -1;
    return to_wide ? 0 : cuda->move(stream->cuda, &turn, err);
}

/* From 16 bits to float32, which may be added to, or back. */
int cuda_run_reorder(const struct cuda_kernel *k, struct stream *stream, const struct kernel_args *args,
                     struct err *err)
{
    struct cuda_pointwise l = k->launch.pointwise;

    l.in[0] = args->inputs[0];
    l.out = args->outputs[0];
    l.add = args->accumulate == ACCUMULATE_YES;
    return l.walk.elements ? k->device->cuda->pointwise(stream->cuda, &l, err) : 0;
}

static int make_turn(struct cuda_kernel *k)
{
    const struct ref_tensor *y = &k->digest->out[0];
    const int64_t *dim = y->shape.dim;
    bool within = k->narrow_operand[0] && k->narrow_operand[1];

    k->launch.move.size = (int)CUDA_NARROW_BYTES;
    cuda_turn(&k->launch.move, dim[0], dim[1], dim[2] * dim[3], within ? !k->last : !k->narrow_operand[1]);
    k->run = within ? run_turn : run_both;
    k->workspace = within ? 0 : (size_t)y->elements * CUDA_NARROW_BYTES;
    return 0;
}

static int make_reorder(struct cuda_kernel *k, const struct graph *graph, int node)
{
    if (!k->narrow)
        return make_copy(k, graph, node);
    k->accumulates = !k->narrow_operand[1];
    if (k->last || (k->narrow_operand[0] && k->narrow_operand[1]))
        return make_turn(k);
    k->launch.pointwise = copy_between(k);
    k->run = cuda_run_reorder;
    return 0;
}

/* From all of the input into a part of the output ------------------------------------------ */

static int run_into(const struct cuda_kernel *k, struct stream *stream,
                    const struct kernel_args *args, struct err *err)
{
    bool add = args->accumulate == ACCUMULATE_YES;
    struct cuda_move l = k->launch.move;

    if (!add &&
        k->device->cuda->fill_zero(stream->cuda, args->outputs[0], cuda_output_bytes(k), err))
        return -1;
    return move(k, stream, &l, args->inputs[0], args->outputs[0], add, err);
}

static int make_into(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    set_size(k);
    walk_between(&k->launch.move.walk, &k->digest->walk, 1);
    k->run = run_into;
    return 0;
}

/* What a Pad puts around, as an element of the output. */
static uint64_t padding(const struct kernel *d)
{
    uint64_t bits = 0;

    if (dtype_is_float(d->out[0].dtype))
        dtype_put_real(d->out[0].dtype, &bits, 0, d->alpha);
    else
        dtype_put_whole(d->out[0].dtype, &bits, 0, d->whole);
    return bits;
}

static int run_pad(const struct cuda_kernel *k, struct stream *stream,
                   const struct kernel_args *args, struct err *err)
{
    struct cuda_fill fill = { .n = k->digest->out[0].elements, .bits = padding(k->digest),
                              .size = k->launch.move.size, .out = args->outputs[0] };
    struct cuda_move l = k->launch.move;

    if (fill.n && k->device->cuda->fill(stream->cuda, &fill, err))
        return -1;
    return move(k, stream, &l, args->inputs[0], args->outputs[0], false, err);
}

static int make_pad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    make_into(k, graph, node);
    k->run = run_pad;
    k->accumulates = false;
    return 0;
}

/* Pieces ----------------------------------------------------------------------------------- */

static int run_concat(const struct cuda_kernel *k, struct stream *stream,
                      const struct kernel_args *args, struct err *err)
{
    const struct kernel *d = k->digest;
    int64_t row = d->before ? d->out[0].elements / d->before : 0, at = 0;

    for (int i = 0; i < d->n_inputs && row; i++) {
        int64_t width = d->in[i].elements / d->before;
        struct cuda_move l = k->launch.move;

        walk_rows(&l.walk, d->before, width, width, row);
        l.walk.start[1] = at;
        at += width;
        if (move(k, stream, &l, args->inputs[i], args->outputs[0],
                 args->accumulate == ACCUMULATE_YES, err))
            return -1;
    }
    return 0;
}

static int run_split(const struct cuda_kernel *k, struct stream *stream,
                     const struct kernel_args *args, struct err *err)
{
    const struct kernel *d = k->digest;
    int64_t row = d->before ? d->in[0].elements / d->before : 0, at = 0;

    for (int i = 0; i < d->n_outputs && row; i++) {
        int64_t width = d->out[i].elements / d->before;
        struct cuda_move l = k->launch.move;

        walk_rows(&l.walk, d->before, width, row, width);
        l.walk.start[0] = at;
        at += width;
        if (args->outputs[i] &&
            move(k, stream, &l, args->inputs[0], args->outputs[i], false, err))
            return -1;
    }
    return 0;
}

static int make_concat(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    set_size(k);
    k->run = run_concat;
    return 0;
}

/* An output that is no longer there has no elements to skip by. */
static int make_split(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    set_size(k);
    k->launch.move.size = (int)cuda_element_bytes(k, k->digest->in[0].dtype);
    k->accumulates = false;
    k->run = run_split;
    for (int i = 0; i < k->digest->n_outputs; i++)
        if (k->digest->out[i].elements < 0)
            return -1;
    return 0;
}

/* Where ------------------------------------------------------------------------------------ */

static int run_where(const struct cuda_kernel *k, struct stream *stream,
                     const struct kernel_args *args, struct err *err)
{
    struct cuda_choose l = k->launch.choose;

    for (int i = 0; i < 3; i++)
        l.in[i] = args->inputs[i];
    l.out = args->outputs[0];
    return l.walk.elements ? k->device->cuda->choose(stream->cuda, &l, err) : 0;
}

static int make_where(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    cuda_walk_from(&k->launch.choose.walk, &k->digest->walk);
    cuda_walk_merge(&k->launch.choose.walk);
    k->launch.choose.size = (int)cuda_element_bytes(k, k->digest->out[0].dtype);
    k->run = run_where;
    return 0;
}

const struct cuda_op cuda_ops_move[] = {
    { "Copy", make_copy, 0 },
    { "Reorder", make_reorder, 0 },
    { "Reshape", make_copy, 0 },
    { "View", make_copy, 0 },
    { "Transpose", make_move, 0 },
    { "Slice", make_move, 0 },
    { "Expand", make_move, 0 },
    { "SliceGrad", make_into, 0 },
    { "Pad", make_pad, 0 },
    { "Concat", make_concat, 0 },
    { "Split", make_split, 0 },
    { "Where", make_where, 0 },
    { NULL, NULL, 0 },
};
