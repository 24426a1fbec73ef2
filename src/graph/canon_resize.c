/* SPDX-License-Identifier: MIT */
/* Resize and Upsample: along each axis the result is a linear function of the input, so a
 * Gather with constant indices (nearest) or a product with a constant matrix.
 */
#include "graph/canon.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "graph/dims.h"

enum transform { HALF_PIXEL, HALF_PIXEL_SYMMETRIC, PYTORCH_HALF_PIXEL, ALIGN_CORNERS,
                 ASYMMETRIC, TF_HALF_PIXEL, TF_CROP };
enum method { NEAREST, LINEAR, CUBIC };
enum rounding { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL };

struct resize {
    int rank;
    enum transform transform;
    enum method method;
    enum rounding rounding;
    double cubic, outside;          /* cubic_coeff_a, extrapolation_value */
    bool exclude, antialias;
    struct axis {
        bool active;
        int64_t in, out;
        double scale, width;        /* width: of the output before it was rounded down */
        double start, end;          /* roi */
    } axis[GRAPH_MAX_RANK];
};

static int choice(const struct onnx_node *node, const char *attr, const char *const *names,
                  int def)
{
    int i;

    for (i = 0; names[i]; i++)
        if (onnx_string_is(node->proto, attr, names[i], i == def))
            return i;
    return -1;
}

static int read_modes(const struct onnx_node *node, struct resize *r, struct err *err)
{
    static const char *const methods[] = { "nearest", "linear", "cubic", NULL };
    static const char *const transforms[] = { "half_pixel", "half_pixel_symmetric",
                                              "pytorch_half_pixel", "align_corners",
                                              "asymmetric", "tf_half_pixel_for_nn",
                                              "tf_crop_and_resize", NULL };
    static const char *const roundings[] = { "round_prefer_floor", "round_prefer_ceil", "floor",
                                             "ceil", NULL };
    bool old = node->opset < 11;
    int method = choice(node, "mode", methods, NEAREST);
    int transform = choice(node, "coordinate_transformation_mode", transforms,
                           old ? ASYMMETRIC : HALF_PIXEL);
    int rounding = choice(node, "nearest_mode", roundings, old ? FLOOR : PREFER_FLOOR);

    if (method < 0 || transform < 0 || rounding < 0)
        return err_set(err, "its mode is not known");
    r->method = (enum method)method;
    r->transform = (enum transform)transform;
    r->rounding = (enum rounding)rounding;
    r->cubic = onnx_float(node->proto, "cubic_coeff_a", -0.75);
    r->outside = onnx_float(node->proto, "extrapolation_value", 0);
    r->exclude = onnx_int(node->proto, "exclude_outside", 0) != 0;
    r->antialias = onnx_int(node->proto, "antialias", 0) != 0;
    return 0;
}

/* A list of numbers from input 'index' of the node; NULL where there is none. */
static const struct tensor *numbers(struct build *build, const struct onnx_node *node,
                                    int index)
{
    const struct tensor *list;

    if (index >= (int)node->proto->n_input || node->inputs[index] < 0)
        return NULL;
    list = build_literal(build, node->inputs[index], 0);
    return list && list->n > 0 ? list : NULL;
}

/* All axes alike, as large as fits into the sizes, or as small as they fit into it. */
static void keep_aspect(const struct onnx_node *node, const struct tensor *sizes, int n,
                        const int *axes, struct resize *r)
{
    bool larger = onnx_string_is(node->proto, "keep_aspect_ratio_policy", "not_smaller", false);
    double scale = 0;
    int i;

    if (!larger &&
        !onnx_string_is(node->proto, "keep_aspect_ratio_policy", "not_larger", false))
        return;
    for (i = 0; i < n; i++) {
        double own = fold_number(sizes, i) / (double)r->axis[axes[i]].in;

        scale = i == 0 || (larger ? own > scale : own < scale) ? own : scale;
    }
    for (i = 0; i < n; i++) {
        r->axis[axes[i]].scale = scale;
        r->axis[axes[i]].out = (int64_t)floor(scale * (double)r->axis[axes[i]].in + 0.5);
        r->axis[axes[i]].width = (double)r->axis[axes[i]].out;
    }
}

static int set_axes(struct build *build, const struct onnx_node *node, int n, const int *axes,
                    struct resize *r, struct err *err)
{
    bool old = node->opset < 11;
    const struct tensor *roi = old ? NULL : numbers(build, node, 1);
    const struct tensor *scales = numbers(build, node, old ? 1 : 2);
    const struct tensor *sizes = old ? NULL : numbers(build, node, 3);
    int i;

    if ((scales ? scales->n : sizes ? sizes->n : -1) != n)
        return err_set(err, "its scales or sizes are no constants, one for each axis");
    if (r->transform == TF_CROP && (!roi || roi->n != 2 * n))
        return err_set(err, "its region is no constant");
    for (i = 0; i < n; i++) {
        struct axis *a = &r->axis[axes[i]];

        a->scale = scales ? fold_number(scales, i) : fold_number(sizes, i) / (double)a->in;
        if (!(a->scale > 0) || !(a->scale * (double)a->in < (double)FOLD_MAX_ELEMENTS))
            return err_set(err, "a scale is out of range");
        a->width = scales ? (double)a->in * a->scale : fold_number(sizes, i);
        a->out = (int64_t)floor(a->width);
        a->start = roi && r->transform == TF_CROP ? fold_number(roi, i) : 0;
        a->end = roi && r->transform == TF_CROP ? fold_number(roi, n + i) : 1;
    }
    if (sizes)
        keep_aspect(node, sizes, n, axes, r);
    for (i = 0; i < n; i++) {
        struct axis *a = &r->axis[axes[i]];

        a->active = a->out != a->in || a->scale != 1 || a->start != 0 || a->end != 1;
    }
    return 0;
}

static int read_resize(struct build *build, const struct onnx_node *node, int x,
                       struct resize *r, struct err *err)
{
    const struct shape *shape = canon_shape_of(build, x, 0);
    const struct shape *twin = canon_shape_of(build, x, 1);
    const int64_t *given = NULL;
    int n = onnx_ints(node->proto, "axes", &given), axes[GRAPH_MAX_RANK], i;

    memset(r, 0, sizeof(*r));
    r->rank = shape->rank;
    for (i = 0; i < r->rank; i++)
        r->axis[i] = (struct axis){ .in = shape->dim[i], .out = shape->dim[i], .scale = 1 };
    if (n > r->rank)
        return err_set(err, "more axes than its input has");
    for (i = 0; i < (n < 0 ? r->rank : n); i++)
        if (dims_axis(n < 0 ? i : given[i], r->rank, &axes[i], err))
            return -1;
    if (read_modes(node, r, err) ||
        set_axes(build, node, n < 0 ? r->rank : n, axes, r, err))
        return -1;
    for (i = 0; i < r->rank; i++)
        if (r->axis[i].active && shape->dim[i] != twin->dim[i])
            return err_set(err, "it resizes axis %d, which holds the samples of the batch", i);
    return 0;
}

/* Coordinates ------------------------------------------------------------------------- */

/* Where in the input element 'o' of the output lies. */
static double origin(const struct resize *r, const struct axis *a, int64_t o)
{
    double at = (double)o, last = (double)(a->in - 1), middle;

    switch (r->transform) {
    case HALF_PIXEL:
        return (at + 0.5) / a->scale - 0.5;
    case HALF_PIXEL_SYMMETRIC:
        middle = (double)a->in / 2;
        return middle * (1 - (double)a->out / (a->scale * (double)a->in)) +
               (at + 0.5) / a->scale - 0.5;
    case PYTORCH_HALF_PIXEL:
        return a->out > 1 ? (at + 0.5) / a->scale - 0.5 : 0;
    case ALIGN_CORNERS:
        return a->width > 1 ? at * last / (a->width - 1) : 0;
    case ASYMMETRIC:
        return at / a->scale;
    case TF_HALF_PIXEL:
        return (at + 0.5) / a->scale;
    default:
        return a->out > 1 ? a->start * last + at * (a->end - a->start) * last /
                                                  (double)(a->out - 1)
                          : 0.5 * (a->start + a->end) * last;
    }
}

static int64_t inside(double at, int64_t n)
{
    return at < 0 ? 0 : at > (double)(n - 1) ? n - 1 : (int64_t)at;
}

static double nearest(enum rounding rounding, double at)
{
    switch (rounding) {
    case PREFER_FLOOR:
        return ceil(at - 0.5);
    case PREFER_CEIL:
        return floor(at + 0.5);
    case FLOOR:
        return floor(at);
    default:
        return ceil(at);
    }
}

/* What an element at distance 'x' weighs (Keys 1981 for the cubic). */
static double kernel(const struct resize *r, double x)
{
    double a = r->cubic;

    x = fabs(x);
    if (r->method == LINEAR)
        return x < 1 ? 1 - x : 0;
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* One row: what each input weighs in output 'o'. Beyond the ends the last element goes on. */
static void fill_row(const struct resize *r, const struct axis *a, int64_t o, double *row,
                     int64_t stride)
{
    double squeeze = r->antialias && a->scale < 1 ? a->scale : 1, at = origin(r, a, o), sum = 0;
    double reach = (r->method == LINEAR ? 1 : 2) / squeeze;
    int64_t first = (int64_t)floor(at - reach), end = (int64_t)ceil(at + reach) + 1, j;

    for (j = first; j < end; j++)
        if (!r->exclude || (j >= 0 && j < a->in))
            sum += kernel(r, ((double)j - at) * squeeze);
    for (j = first; j < end; j++)
        if (!r->exclude || (j >= 0 && j < a->in))
            row[inside((double)j, a->in) * stride] +=
                kernel(r, ((double)j - at) * squeeze) / sum;
}

/* Graph ------------------------------------------------------------------------------- */

static int pick_nearest(struct build *build, const struct onnx_node *node, int x, int axis,
                        const struct resize *r, struct err *err)
{
    const struct axis *a = &r->axis[axis];
    struct tensor index[BUILD_TWINS];
    int64_t o;
    int t;

    for (t = 0; t < BUILD_TWINS; t++) {
        if (fold_new(&build->fold[t], DTYPE_I64, &(struct shape){ 1, { a->out } }, &index[t],
                     err))
            return -1;
        for (o = 0; o < a->out; o++)
            index[t].i[o] = inside(nearest(r->rounding, origin(r, a, o)), a->in);
    }
    return canon_take(build, node, x, axis, index, err);
}

/* [in, out], or [out, in] for a product from the left. */
static int add_matrix(struct build *build, const struct resize *r, const struct axis *a,
                      bool left, struct err *err)
{
    struct shape shape = { 2, { left ? a->out : a->in, left ? a->in : a->out } };
    struct tensor matrix[BUILD_TWINS];
    int64_t o, i;
    int t;

    for (t = 0; t < BUILD_TWINS; t++) {
        if (fold_new(&build->fold[t], build->options->real, &shape, &matrix[t], err))
            return -1;
        for (o = 0; o < a->out; o++)
            fill_row(r, a, o, matrix[t].f + (left ? o * a->in : o), left ? 1 : a->out);
        for (i = 0; i < matrix[t].n; i++)
            matrix[t].f[i] = fold_round(build->options->real, matrix[t].f[i]);
    }
    return build_add_const(build, NULL, matrix, err);
}

static int swap_with_last(struct build *build, const struct onnx_node *node, int x, int axis,
                          int rank, struct err *err)
{
    int64_t perm[GRAPH_MAX_RANK];

    for (int i = 0; i < rank; i++)
        perm[i] = i == axis ? rank - 1 : i == rank - 1 ? axis : i;
    return canon_permuted(build, node, x, perm, err);
}

static int interpolate(struct build *build, const struct onnx_node *node, int x, int axis,
                       const struct resize *r, struct err *err)
{
    bool left = axis == r->rank - 2;
    int matrix = add_matrix(build, r, &r->axis[axis], left, err);

    if (matrix < 0)
        return -1;
    if (left)
        return canon_step(build, node, "MatMul", 2, (int[]){ matrix, x }, err);
    x = swap_with_last(build, node, x, axis, r->rank, err);
    x = x < 0 ? -1 : canon_step(build, node, "MatMul", 2, (int[]){ x, matrix }, err);
    return x < 0 ? -1 : swap_with_last(build, node, x, axis, r->rank, err);
}

/* Elements whose origin lies outside the input are a constant. */
static int extrapolate(struct build *build, const struct onnx_node *node, int x, int axis,
                       const struct resize *r, struct err *err)
{
    const struct axis *a = &r->axis[axis];
    struct shape shape = { r->rank, { 0 } };
    struct tensor mask[BUILD_TWINS];
    int64_t o, out = 0;
    int t, ids[3];

    for (t = 0; t < r->rank; t++)
        shape.dim[t] = t == axis ? a->out : 1;
    for (t = 0; t < BUILD_TWINS; t++) {
        if (fold_new(&build->fold[t], DTYPE_BOOL, &shape, &mask[t], err))
            return -1;
        for (o = 0; o < a->out; o++) {
            double at = origin(r, a, o);

            mask[t].i[o] = at < 0 || at > (double)(a->in - 1);
            out += mask[t].i[o];
        }
    }
    if (!out)
        return x;
    ids[0] = build_add_const(build, NULL, mask, err);
    ids[1] = ids[0] < 0 ? -1 : canon_scalar(build, build->graph[0]->values[x].dtype, r->outside,
                                            err);
    ids[2] = x;
    return ids[1] < 0 ? -1 : canon_step(build, node, "Where", 3, ids, err);
}

int canon_resize(struct build *build, const struct onnx_node *node, struct err *err)
{
    int x = canon_input(build, node, 0, err), first = x, axis;
    struct resize r;

    if (x < 0 || read_resize(build, node, x, &r, err))
        return -1;
    for (axis = 0; axis < r.rank && x >= 0; axis++) {
        if (!r.axis[axis].active)
            continue;
        x = r.method == NEAREST ? pick_nearest(build, node, x, axis, &r, err)
                                : interpolate(build, node, x, axis, &r, err);
        if (r.transform == TF_CROP && x >= 0)
            x = extrapolate(build, node, x, axis, &r, err);
    }
    if (x == first)
        build_alias(build, node, 0);
    return x < 0 ? -1 : x == first ? 0 : canon_result(build, node, 0, x);
}
