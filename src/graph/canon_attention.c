/* SPDX-License-Identifier: MIT */
/* Attention and RotaryEmbedding (opset 23 to 25): products, masks and shapes they are made of. */
#include "graph/canon.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "graph/dims.h"

/* Shapes ------------------------------------------------------------------------------ */

/* Axis 'axis' of x as 'a' times what is left. */
static int split_axis(struct build *build, const struct onnx_node *node, int x, int axis,
                      int64_t a, struct err *err)
{
    struct shape shapes[BUILD_TWINS];
    int t, i;

    for (t = 0; t < BUILD_TWINS; t++) {
        const struct shape *from = canon_shape_of(build, x, t);

        if (a < 1 || from->dim[axis] % a || from->rank == GRAPH_MAX_RANK)
            return err_set(err, "axis %d of an input does not make %d heads", axis, (int)a);
        shapes[t].rank = from->rank + 1;
        for (i = 0; i < from->rank; i++)
            shapes[t].dim[i + (i > axis)] = from->dim[i];
        shapes[t].dim[axis] = a;
        shapes[t].dim[axis + 1] = from->dim[axis] / a;
    }
    return canon_shaped(build, node, x, shapes, err);
}

/* Axes 'axis' and the next one as one. */
static int merge_axes(struct build *build, const struct onnx_node *node, int x, int axis,
                      struct err *err)
{
    struct shape shapes[BUILD_TWINS];
    int t, i;

    for (t = 0; t < BUILD_TWINS; t++) {
        const struct shape *from = canon_shape_of(build, x, t);

        shapes[t].rank = from->rank - 1;
        for (i = 0; i < shapes[t].rank; i++)
            shapes[t].dim[i] = from->dim[i + (i > axis)];
        shapes[t].dim[axis] = from->dim[axis] * from->dim[axis + 1];
    }
    return canon_shaped(build, node, x, shapes, err);
}

static int add_axis(struct build *build, const struct onnx_node *node, int x, int axis,
                    struct err *err)
{
    struct shape shapes[BUILD_TWINS];
    int64_t place = axis;
    int t;

    for (t = 0; t < BUILD_TWINS; t++)
        if (dims_unsqueeze(canon_shape_of(build, x, t), 1, &place, &shapes[t], err))
            return -1;
    return canon_shaped(build, node, x, shapes, err);
}

static int swap_middle(struct build *build, const struct onnx_node *node, int x,
                       struct err *err)
{
    return canon_permuted(build, node, x, (const int64_t[]){ 0, 2, 1, 3 }, err);
}

static bool given(const struct onnx_node *node, int index)
{
    return index < (int)node->proto->n_input && node->inputs[index] >= 0;
}

/* Attention --------------------------------------------------------------------------- */

struct attention {
    int q, k, v;                /* [batch, heads, length, size] */
    int64_t q_heads, kv_heads;
    bool flat;                  /* they came as [batch, length, heads * size] */
    int64_t before;             /* length of the past */
    int64_t left, right;        /* keys seen to both sides of a query's place; -1: all */
    int lengths;                /* of the keys of each sample, [batch, 1, 1, 1]; -1: all */
    double scale, softcap;
    int64_t mode;               /* of qk_matmul_output */
};

static int heads(struct build *build, const struct onnx_node *node, int index, int64_t n,
                 struct err *err)
{
    int x = canon_input(build, node, index, err);

    if (x < 0 || canon_shape_of(build, x, 0)->rank == 4)
        return x;
    if (canon_shape_of(build, x, 0)->rank != 3)
        return err_set(err, "input %d has neither 3 nor 4 dimensions", index);
    x = split_axis(build, node, x, 2, n, err);
    return x < 0 ? -1 : swap_middle(build, node, x, err);
}

/* Keys or values, those of the past before them. */
static int with_past(struct build *build, const struct onnx_node *node, int x, int index,
                     struct err *err)
{
    int past;

    if (!given(node, index))
        return x;
    past = canon_input(build, node, index, err);
    return past < 0 ? -1 : canon_joined(build, node, 2, (int[]){ past, x }, 2, err);
}

/* Which keys a query may see. */
static int read_window(struct build *build, const struct onnx_node *node, struct attention *a,
                       struct err *err)
{
    const OnnxFile__Node *proto = node->proto;
    int axis;

    a->left = onnx_int(proto, "left_window_size", -1);
    a->right = onnx_int(proto, "is_causal", 0) ? 0 : onnx_int(proto, "right_window_size", -1);
    a->lengths = -1;
    if (!given(node, 6))
        return 0;
    if (given(node, 4) || given(node, 5))
        return err_set(err, "it has both a past and lengths of the keys");
    a->lengths = canon_input(build, node, 6, err);
    for (axis = 1; axis < 4 && a->lengths >= 0; axis++)
        a->lengths = add_axis(build, node, a->lengths, axis, err);
    return a->lengths < 0 ? -1 : 0;
}

static int read_attention(struct build *build, const struct onnx_node *node,
                          struct attention *a, struct err *err)
{
    const OnnxFile__Node *proto = node->proto;
    int64_t length;

    if (read_window(build, node, a, err))
        return -1;
    a->q = heads(build, node, 0, onnx_int(proto, "q_num_heads", 0), err);
    a->k = a->q < 0 ? -1 : heads(build, node, 1, onnx_int(proto, "kv_num_heads", 0), err);
    a->v = a->k < 0 ? -1 : heads(build, node, 2, onnx_int(proto, "kv_num_heads", 0), err);
    if (a->v < 0)
        return -1;
    a->flat = canon_shape_of(build, canon_input(build, node, 0, err), 0)->rank == 3;
    a->q_heads = canon_shape_of(build, a->q, 0)->dim[1];
    a->kv_heads = canon_shape_of(build, a->k, 0)->dim[1];
    if (a->kv_heads < 1 || a->q_heads % a->kv_heads)
        return err_set(err, "%d heads of queries for %d of keys", (int)a->q_heads,
                       (int)a->kv_heads);
    length = canon_shape_of(build, a->k, 0)->dim[2];
    a->k = with_past(build, node, a->k, 4, err);
    a->v = a->k < 0 ? -1 : with_past(build, node, a->v, 5, err);
    if (a->v < 0)
        return -1;
    if (canon_read(build, node, 1))
        canon_result(build, node, 1, a->k);
    if (canon_read(build, node, 2))
        canon_result(build, node, 2, a->v);
    a->before = canon_shape_of(build, a->k, 0)->dim[2] - length;
    a->scale = onnx_float(proto, "scale",
                          1 / sqrt((double)canon_shape_of(build, a->q, 0)->dim[3]));
    a->softcap = onnx_float(proto, "softcap", 0);
    a->mode = onnx_int(proto, "qk_matmul_output_mode", 0);
    return 0;
}

/* Heads that share keys are one more axis, along which the keys are broadcast. */
static int product(struct build *build, const struct onnx_node *node, const struct attention *a,
                   int left, int right, bool keys, struct err *err)
{
    bool shared = a->q_heads != a->kv_heads;
    int id;

    if (shared) {
        left = split_axis(build, node, left, 1, a->kv_heads, err);
        right = left < 0 ? -1 : add_axis(build, node, right, 2, err);
        if (right < 0)
            return -1;
    }
    id = canon_new(build, node, "MatMul", 2, (int[]){ left, right }, err);
    if (id < 0)
        return -1;
    if (keys) {
        build_set_int(build, id, "transB", 1);
        build_set_float(build, id, "alpha", a->scale);
    }
    id = canon_settle(build, id, err);
    return id >= 0 && shared ? merge_axes(build, node, id, 1, err) : id;
}

static int cap(struct build *build, const struct onnx_node *node, const struct attention *a,
               int x, struct err *err)
{
    int limit;

    if (a->softcap <= 0)
        return x;
    limit = canon_scalar(build, build->options->real, a->softcap, err);
    x = limit < 0 ? -1 : canon_step(build, node, "Div", 2, (int[]){ x, limit }, err);
    x = x < 0 ? -1 : canon_step(build, node, "Tanh", 1, &x, err);
    return x < 0 ? -1 : canon_step(build, node, "Mul", 2, (int[]){ x, limit }, err);
}

static int keep_where(struct build *build, const struct onnx_node *node, int mask, int x,
                      struct err *err)
{
    int never = canon_scalar(build, build->options->real, (double)-INFINITY, err);

    return never < 0 ? -1 : canon_step(build, node, "Where", 3, (int[]){ mask, x, never }, err);
}

/* A query sees the keys near its own place, counted behind the past. */
static int mask_window(struct build *build, const struct onnx_node *node,
                       const struct attention *a, int x, struct err *err)
{
    struct tensor mask[BUILD_TWINS];
    int64_t e;
    int t, id;

    for (t = 0; t < BUILD_TWINS; t++) {
        const struct shape *shape = canon_shape_of(build, x, t);

        if (fold_new(&build->fold[t], DTYPE_BOOL,
                     &(struct shape){ 2, { shape->dim[2], shape->dim[3] } }, &mask[t], err))
            return -1;
        for (e = 0; e < mask[t].n; e++) {
            int64_t away = e % shape->dim[3] - e / shape->dim[3] - a->before;

            mask[t].i[e] = (a->left < 0 || away >= -a->left) &&
                           (a->right < 0 || away <= a->right);
        }
    }
    id = build_add_const(build, NULL, mask, err);
    return id < 0 ? -1 : keep_where(build, node, id, x, err);
}

/* A query sees key k where "k + shift op length" of its sample's keys. Where places count, the
 * last query is at the last of these keys: k is that place further, for each query before it.
 */
static int mask_lengths(struct build *build, const struct onnx_node *node,
                        const struct attention *a, int x, const char *op, bool places,
                        int64_t shift, struct err *err)
{
    struct tensor keys[BUILD_TWINS];
    int64_t e;
    int t, id;

    for (t = 0; t < BUILD_TWINS; t++) {
        const struct shape *shape = canon_shape_of(build, x, t);
        int64_t queries = shape->dim[2], n = shape->dim[3];

        if (fold_new(&build->fold[t], DTYPE_I64, &(struct shape){ 2, { places ? queries : 1, n } },
                     &keys[t], err))
            return -1;
        for (e = 0; e < keys[t].n; e++)
            keys[t].i[e] = e % n + shift + (places ? queries - e / n : 0);
    }
    id = build_add_const(build, NULL, keys, err);
    id = id < 0 ? -1 : canon_step(build, node, op, 2, (int[]){ id, a->lengths }, err);
    return id < 0 ? -1 : keep_where(build, node, id, x, err);
}

static int mask_keys(struct build *build, const struct onnx_node *node,
                     const struct attention *a, int x, struct err *err)
{
    if (a->lengths < 0)
        return a->left < 0 && a->right < 0 ? x : mask_window(build, node, a, x, err);
    x = mask_lengths(build, node, a, x, "Less", false, 0, err);
    if (x >= 0 && a->right >= 0)
        x = mask_lengths(build, node, a, x, "LessOrEqual", true, -a->right, err);
    if (x >= 0 && a->left >= 0)
        x = mask_lengths(build, node, a, x, "GreaterOrEqual", true, a->left, err);
    return x;
}

/* A mask that ends early hides the rest. */
static int widen_mask(struct build *build, const struct onnx_node *node, int mask,
                      int64_t length, struct err *err)
{
    const struct shape *shape = canon_shape_of(build, mask, 0);
    int64_t pads[2 * GRAPH_MAX_RANK] = { 0 };
    int rank = shape->rank, id;

    if (rank < 1 || shape->dim[rank - 1] >= length || shape->dim[rank - 1] == 1)
        return mask;
    pads[2 * rank - 1] = length - shape->dim[rank - 1];
    id = canon_new(build, node, "Pad", 1, &mask, err);
    if (id < 0)
        return -1;
    build_set_ints(build, id, "pads", 2 * rank, pads);
    build_set_float(build, id, "value",
                    build->graph[0]->values[mask].dtype == DTYPE_BOOL ? 0 : (double)-INFINITY);
    return canon_settle(build, id, err);
}

static int apply_mask(struct build *build, const struct onnx_node *node, int x, struct err *err)
{
    int mask = canon_constant(build, node, 3, err);

    if (mask >= 0)
        mask = widen_mask(build, node, mask, canon_shape_of(build, x, 0)->dim[3], err);
    if (mask < 0)
        return -1;
    return build->graph[0]->values[mask].dtype == DTYPE_BOOL
               ? keep_where(build, node, mask, x, err)
               : canon_step(build, node, "Add", 2, (int[]){ x, mask }, err);
}

/* A row that sees no key is all zeros. */
static int probabilities(struct build *build, const struct onnx_node *node, int x, bool masked,
                         struct err *err)
{
    int id = canon_new(build, node, "Softmax", 1, &x, err);

    if (id < 0)
        return -1;
    build_set_int(build, id, "axis", 3);
    if (masked)
        build_set_int(build, id, "masked", 1);
    return canon_settle(build, id, err);
}

/* Does one node say all that the file's does? */
static bool fits_whole(const struct build *build, const struct onnx_node *node,
                       const struct attention *a)
{
    const struct shape *q = canon_shape_of(build, a->q, 0);
    const struct shape *k = canon_shape_of(build, a->k, 0);

    return build->options->fuse && a->softcap <= 0 && !canon_read(build, node, 3) &&
           q->dim[0] == k->dim[0] && a->lengths < 0 && a->left < 0 && a->right <= 0;
}

static int whole(struct build *build, const struct onnx_node *node, const struct attention *a,
                 struct err *err)
{
    bool masked = given(node, 3);
    int ids[4] = { a->q, a->k, a->v, -1 }, id, t;

    if (masked)
        ids[3] = canon_constant(build, node, 3, err);
    if (masked && ids[3] >= 0)
        ids[3] = widen_mask(build, node, ids[3], canon_shape_of(build, a->k, 0)->dim[2], err);
    if (masked && ids[3] < 0)
        return -1;
    id = canon_new(build, node, "Attention", masked ? 4 : 3, ids, err);
    if (id < 0)
        return -1;
    build_set_float(build, id, "scale", a->scale);
    if (masked)
        build_set_int(build, id, "masked", 1);
    if (a->right == 0) {
        build_set_int(build, id, "causal", 1);
        build_set_int(build, id, "past", a->before);
    }
    for (t = 0; t < BUILD_TWINS; t++)
        build->graph[t]->nodes[id].fusion = "attention";
    return canon_settle(build, id, err);
}

/* The same in parts; the value that queries are answered with. */
static int parts(struct build *build, const struct onnx_node *node, const struct attention *a,
                 struct err *err)
{
    bool masked = given(node, 3) || a->lengths >= 0 || a->left >= 0;
    int stage[4], x, y;

    stage[0] = product(build, node, a, a->q, a->k, true, err);
    stage[1] = stage[0] < 0 ? -1 : cap(build, node, a, stage[0], err);
    x = stage[1];
    if (x >= 0 && given(node, 3))
        x = apply_mask(build, node, x, err);
    if (x >= 0)
        x = mask_keys(build, node, a, x, err);
    stage[2] = x;
    stage[3] = x < 0 ? -1 : probabilities(build, node, x, masked, err);
    y = stage[3] < 0 ? -1 : product(build, node, a, stage[3], a->v, false, err);
    if (y < 0)
        return -1;
    if (canon_read(build, node, 3) && (a->mode < 0 || a->mode > 3))
        return err_set(err, "qk_matmul_output_mode is not known");
    if (canon_read(build, node, 3))
        canon_result(build, node, 3, stage[a->mode]);
    return y;
}

int canon_attention(struct build *build, const struct onnx_node *node, struct err *err)
{
    struct attention a;
    int y;

    if (read_attention(build, node, &a, err))
        return -1;
    y = fits_whole(build, node, &a) ? whole(build, node, &a, err)
                                    : parts(build, node, &a, err);
    if (y >= 0 && a.flat) {
        y = swap_middle(build, node, y, err);
        y = y < 0 ? -1 : merge_axes(build, node, y, 2, err);
    }
    return y < 0 ? -1 : canon_result(build, node, 0, y);
}

/* RotaryEmbedding --------------------------------------------------------------------- */

/* A table of angles by position, for each sample, beside the axis of the heads. */
static int angles(struct build *build, const struct onnx_node *node, int index, int axis,
                  struct err *err)
{
    int table = canon_constant(build, node, index, err), positions, id;

    if (table < 0)
        return -1;
    if (given(node, 3)) {
        positions = canon_input(build, node, 3, err);
        id = positions < 0 ? -1 : canon_new(build, node, "Gather", 2,
                                            (int[]){ table, positions }, err);
        if (id < 0)
            return -1;
        build_set_int(build, id, "axis", 0);
        table = canon_settle(build, id, err);
    }
    return table < 0 ? -1 : add_axis(build, node, table, axis, err);
}

/* a u + sign b v */
static int rotate(struct build *build, const struct onnx_node *node, const char *sign, int a,
                  int u, int b, int v, struct err *err)
{
    int left = canon_step(build, node, "Mul", 2, (int[]){ a, u }, err);
    int right = left < 0 ? -1 : canon_step(build, node, "Mul", 2, (int[]){ b, v }, err);

    return right < 0 ? -1 : canon_step(build, node, sign, 2, (int[]){ left, right }, err);
}

/* Two halves after each other, or their elements in turn. */
static int join(struct build *build, const struct onnx_node *node, int parts[2], bool in_turn,
                struct err *err)
{
    int last = canon_shape_of(build, parts[0], 0)->rank - 1, i, x;

    for (i = 0; i < 2 && in_turn; i++) {
        parts[i] = add_axis(build, node, parts[i], last + 1, err);
        if (parts[i] < 0)
            return -1;
    }
    x = canon_joined(build, node, 2, parts, in_turn ? last + 1 : last, err);
    return x >= 0 && in_turn ? merge_axes(build, node, x, last, err) : x;
}

/* x is [batch, heads, length, size], or with the middle axes exchanged. */
static int turn(struct build *build, const struct onnx_node *node, int x, int cosine, int sine,
                int64_t dim, struct err *err)
{
    bool in_turn = onnx_int(node->proto, "interleaved", 0) != 0;
    int64_t size = canon_shape_of(build, x, 0)->dim[3];
    int a = canon_cut(build, node, x, 3, 0, in_turn ? dim : dim / 2, in_turn ? 2 : 1, err), b;
    int parts[2], rest;

    b = a < 0 ? -1 : canon_cut(build, node, x, 3, in_turn ? 1 : dim / 2, dim, in_turn ? 2 : 1,
                               err);
    parts[0] = b < 0 ? -1 : rotate(build, node, "Sub", cosine, a, sine, b, err);
    parts[1] = parts[0] < 0 ? -1 : rotate(build, node, "Add", sine, a, cosine, b, err);
    a = parts[1] < 0 ? -1 : join(build, node, parts, in_turn, err);
    if (a < 0 || dim == size)
        return a;
    rest = canon_cut(build, node, x, 3, dim, size, 1, err);
    return rest < 0 ? -1 : canon_joined(build, node, 2, (int[]){ a, rest }, 3, err);
}

int canon_rotary(struct build *build, const struct onnx_node *node, struct err *err)
{
    int x = canon_input(build, node, 0, err), cosine, sine;
    int64_t dim = onnx_int(node->proto, "rotary_embedding_dim", 0);
    bool flat;

    if (x < 0)
        return -1;
    flat = canon_shape_of(build, x, 0)->rank == 3;
    if (flat)
        x = split_axis(build, node, x, 2, onnx_int(node->proto, "num_heads", 0), err);
    if (x < 0)
        return -1;
    if (canon_shape_of(build, x, 0)->rank != 4)
        return err_set(err, "its input has neither 3 nor 4 dimensions");
    dim = dim ? dim : canon_shape_of(build, x, 0)->dim[3];
    if (dim < 2 || dim % 2 || dim > canon_shape_of(build, x, 0)->dim[3])
        return err_set(err, "%d elements cannot be rotated", (int)dim);
    cosine = angles(build, node, 1, flat ? 2 : 1, err);
    sine = cosine < 0 ? -1 : angles(build, node, 2, flat ? 2 : 1, err);
    x = sine < 0 ? -1 : turn(build, node, x, cosine, sine, dim, err);
    if (x >= 0 && flat)
        x = merge_axes(build, node, x, 2, err);
    return x < 0 ? -1 : canon_result(build, node, 0, x);
}
