/* SPDX-License-Identifier: MIT */
/* BatchNorms, pools and their gradients in graphs of the stand-in for cuDNN, as its documents define them.
 * Which of equal maxima the library takes they do not say: here it is the first.
 */
#include "config.h"

#include <math.h>
#include <string.h>

#include "tests/fake_cudnn_graph.h"

/* Operands of a norm and its gradient, and of a pool. */
enum { X, Y, SCALE, BIAS, EPSILON, MEAN, INVERSE };
enum { DX = Y, DSCALE = BIAS, DBIAS = EPSILON, DY = 7 };
enum { WIDE, POOLED, INDEX };

bool fake_is_image(cudnnBackendDescriptorType_t type)
{
    return type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR;
}

/* Reading ---------------------------------------------------------------------------------- */

static void read_window(const struct descriptor *d, struct operation *o)
{
    const size_t bytes = sizeof(o->window);

    o->mode = (int)fake_number(d, CUDNN_ATTR_RESAMPLE_MODE);
    REQUIRE(fake_number(d, CUDNN_ATTR_RESAMPLE_COMP_TYPE) == CUDNN_DATA_FLOAT, "not float32");
    REQUIRE(fake_number(d, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS) == 2, "axes");
    REQUIRE(fake_number(d, CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION) == CUDNN_PROPAGATE_NAN, "NaNs");
    REQUIRE(fake_number(d, CUDNN_ATTR_RESAMPLE_PADDING_MODE) ==
                (o->mode == CUDNN_RESAMPLE_MAXPOOL ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD), "padding");
    memcpy(o->window, fake_list(d, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, 2), bytes);
    memcpy(o->step, fake_list(d, CUDNN_ATTR_RESAMPLE_STRIDES, 2), bytes);
    memcpy(o->before, fake_list(d, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, 2), bytes);
    memcpy(o->after, fake_list(d, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, 2), bytes);
}

static void check_pool(const struct graph *g, const struct operation *o)
{
    const struct tensor *x = &g->tensors[o->of[WIDE]], *y = &g->tensors[o->of[POOLED]];

    REQUIRE(x->dim[0] == y->dim[0] && x->dim[1] == y->dim[1] && x->type == y->type,
            "the shapes do not fit");
    for (int i = 0; i < 2; i++) {
        int64_t room = x->dim[2 + i] + o->before[i] + o->after[i] - o->window[i];

        REQUIRE(o->before[i] >= 0 && o->after[i] >= 0 && o->step[i] > 0 && room >= 0 &&
                    room / o->step[i] + 1 == y->dim[2 + i], "axis %d has not so many outputs", i);
    }
    if (o->mode != CUDNN_RESAMPLE_MAXPOOL)
        return;
    REQUIRE(o->of[INDEX] >= 0, "no index");
    REQUIRE(g->tensors[o->of[INDEX]].type == CUDNN_DATA_INT8 &&
                memcmp(g->tensors[o->of[INDEX]].dim, y->dim, sizeof(y->dim)) == 0,
            "the index does not fit");
}

static void check_norm(const struct graph *g, const struct operation *o)
{
    const struct tensor *x = &g->tensors[o->of[X]];

    for (int i = 0; i < MOST_OPERANDS; i++) {
        const struct tensor *t = o->of[i] < 0 ? x : &g->tensors[o->of[i]];
        bool is_image = i == X || i == Y || i == DY;

        REQUIRE(t->by_value || t->dim[1] == x->dim[1], "operand %d has other channels", i);
        REQUIRE(t == x || is_image || t->type == CUDNN_DATA_FLOAT, "operand %d is not float32", i);
        REQUIRE(!is_image || memcmp(t->dim, x->dim, sizeof(x->dim)) == 0, "operand %d is no such image", i);
    }
}

static void made(struct graph *g, int tensor)
{
    if (tensor >= 0)
        g->tensors[tensor].made = true;
}

static void read_norm(struct graph *g, const struct descriptor *d, struct operation *o)
{
    REQUIRE(fake_number(d, CUDNN_ATTR_OPERATION_NORM_FWD_MODE) == CUDNN_BATCH_NORM &&
                fake_number(d, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE) == CUDNN_NORM_FWD_TRAINING, "mode");
    o->of[X] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC);
    o->of[Y] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC);
    o->of[SCALE] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC);
    o->of[BIAS] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC);
    o->of[EPSILON] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC);
    o->of[MEAN] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC);
    o->of[INVERSE] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC);
    REQUIRE(g->tensors[o->of[EPSILON]].by_value, "epsilon is no number");
    made(g, o->of[Y]);
    made(g, o->of[MEAN]);
    made(g, o->of[INVERSE]);
    check_norm(g, o);
}

static void read_norm_grad(struct graph *g, const struct descriptor *d, struct operation *o)
{
    REQUIRE(fake_number(d, CUDNN_ATTR_OPERATION_NORM_BWD_MODE) == CUDNN_BATCH_NORM, "mode");
    o->of[X] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC);
    o->of[DY] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC);
    o->of[DX] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC);
    o->of[SCALE] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC);
    o->of[MEAN] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC);
    o->of[INVERSE] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC);
    o->of[DSCALE] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC);
    o->of[DBIAS] = fake_tensor(g, d, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC);
    made(g, o->of[DX]);
    made(g, o->of[DSCALE]);
    made(g, o->of[DBIAS]);
    check_norm(g, o);
}

static void read_pool(struct graph *g, const struct descriptor *d, struct operation *o, bool forward)
{
    read_window(fake_other(d, forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC
                                      : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC,
                           CUDNN_BACKEND_RESAMPLE_DESCRIPTOR), o);
    o->of[WIDE] = fake_tensor(g, d, forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC
                                            : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC);
    o->of[POOLED] = fake_tensor(g, d, forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC
                                              : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC);
    o->of[INDEX] = fake_tensor(g, d, forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC
                                             : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC);
    made(g, o->of[forward ? POOLED : WIDE]);
    if (forward)
        made(g, o->of[INDEX]);
    check_pool(g, o);
}

void fake_image_read(struct graph *g, const struct descriptor *d, struct operation *o)
{
    for (int i = 0; i < MOST_OPERANDS; i++)
        o->of[i] = -1;
    if (d->type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)
        read_norm(g, d, o);
    else if (d->type == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR)
        read_norm_grad(g, d, o);
    else
        read_pool(g, d, o, d->type == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
}

/* Norms ------------------------------------------------------------------------------------ */

static double *element(const struct graph *g, const struct operation *o, int which, const int64_t *index)
{
    const struct tensor *t = &g->tensors[o->of[which]];

    return &t->here[fake_element_at(t, index)];
}

static void store(struct graph *g, const struct operation *o, int which, const int64_t *index, double x)
{
    struct tensor *t = &g->tensors[o->of[which]];

    fake_put(t, fake_element_at(t, index), x);
}

/* The index of an element of a channel by its number there. */
static void locate(const struct tensor *x, int64_t channel, int64_t i, int64_t index[4])
{
    index[3] = i % x->dim[3];
    index[2] = i / x->dim[3] % x->dim[2];
    index[1] = channel;
    index[0] = i / x->dim[3] / x->dim[2];
}

static void run_norm(struct graph *g, const struct operation *o, int64_t c, int64_t n)
{
    const struct tensor *x = &g->tensors[o->of[X]];
    double mean = 0, squares = 0, inverse;
    int64_t at[4];

    for (int64_t i = 0; i < n; i++) {
        locate(x, c, i, at);
        mean += *element(g, o, X, at) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        locate(x, c, i, at);
        squares += (*element(g, o, X, at) - mean) * (*element(g, o, X, at) - mean);
    }
    inverse = 1 / sqrt(squares / (double)n + *element(g, o, EPSILON, at));
    store(g, o, MEAN, at, mean);
    store(g, o, INVERSE, at, inverse);
    for (int64_t i = 0; i < n; i++) {
        locate(x, c, i, at);
        store(g, o, Y, at, (*element(g, o, X, at) - mean) * inverse * *element(g, o, SCALE, at) +
                               *element(g, o, BIAS, at));
    }
}

static void run_norm_grad(struct graph *g, const struct operation *o, int64_t c, int64_t n)
{
    const struct tensor *x = &g->tensors[o->of[X]];
    double sum = 0, product = 0;
    int64_t at[4];

    for (int64_t i = 0; i < n; i++) {
        locate(x, c, i, at);
        sum += *element(g, o, DY, at);
        product += *element(g, o, DY, at) * (*element(g, o, X, at) - *element(g, o, MEAN, at)) *
                   *element(g, o, INVERSE, at);
    }
    store(g, o, DSCALE, at, product);
    store(g, o, DBIAS, at, sum);
    for (int64_t i = 0; i < n; i++) {
        double normal;

        locate(x, c, i, at);
        normal = (*element(g, o, X, at) - *element(g, o, MEAN, at)) * *element(g, o, INVERSE, at);
        store(g, o, DX, at, *element(g, o, SCALE, at) * *element(g, o, INVERSE, at) *
                                (*element(g, o, DY, at) - sum / (double)n - normal * product / (double)n));
    }
}

/* Pools ------------------------------------------------------------------------------------ */

/* Where an output's window is at its position 'tap'; false: in the padding. */
static bool inside(const struct graph *g, const struct operation *o, const int64_t *out, int64_t tap,
                   int64_t in[4])
{
    const struct tensor *x = &g->tensors[o->of[WIDE]];

    in[0] = out[0];
    in[1] = out[1];
    in[2] = out[2] * o->step[0] - o->before[0] + tap / o->window[1];
    in[3] = out[3] * o->step[1] - o->before[1] + tap % o->window[1];
    return in[2] >= 0 && in[2] < x->dim[2] && in[3] >= 0 && in[3] < x->dim[3];
}

static int64_t divisor(const struct graph *g, const struct operation *o, const int64_t *out)
{
    int64_t taps = o->window[0] * o->window[1], n = 0, in[4];

    if (o->mode == CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING)
        return taps;
    for (int64_t tap = 0; tap < taps; tap++)
        n += inside(g, o, out, tap, in);
    return n;
}

static void find_largest(struct graph *g, const struct operation *o, const int64_t *out)
{
    double largest = -INFINITY;
    int64_t found = -1, in[4];

    for (int64_t tap = 0; tap < o->window[0] * o->window[1]; tap++) {
        double x;

        if (!inside(g, o, out, tap, in))
            continue;
        x = *element(g, o, WIDE, in);
        if (found < 0 || x > largest || (isnan(x) && !isnan(largest))) {
            largest = x;
            found = tap;
        }
    }
    store(g, o, POOLED, out, largest);
    store(g, o, INDEX, out, (double)found);
}

static void find_mean(struct graph *g, const struct operation *o, const int64_t *out)
{
    double sum = 0;
    int64_t in[4];

    for (int64_t tap = 0; tap < o->window[0] * o->window[1]; tap++)
        if (inside(g, o, out, tap, in))
            sum += *element(g, o, WIDE, in);
    store(g, o, POOLED, out, sum / (double)divisor(g, o, out));
}

/* What an output's gradient gives to the sums. */
static void spread(const struct graph *g, const struct operation *o, const int64_t *out, double *sums)
{
    const struct tensor *dx = &g->tensors[o->of[WIDE]];
    double dy = *element(g, o, POOLED, out);
    bool largest = o->mode == CUDNN_RESAMPLE_MAXPOOL;
    int64_t in[4];

    for (int64_t tap = 0; tap < o->window[0] * o->window[1]; tap++) {
        if (!inside(g, o, out, tap, in))
            continue;
        if (!largest)
            sums[fake_element_at(dx, in)] += dy / (double)divisor(g, o, out);
        else if ((int64_t)*element(g, o, INDEX, out) == tap)
            sums[fake_element_at(dx, in)] += dy;
    }
}

static void run_pool(struct graph *g, const struct operation *o, bool forward)
{
    const struct tensor *y = &g->tensors[o->of[POOLED]];
    struct tensor *x = &g->tensors[o->of[WIDE]];
    int64_t elements = x->dim[0] * x->dim[1] * x->dim[2] * x->dim[3], i[4];
    double *sums = calloc((size_t)elements, sizeof(*sums));

    for (i[0] = 0; i[0] < y->dim[0]; i[0]++)
        for (i[1] = 0; i[1] < y->dim[1]; i[1]++)
            for (i[2] = 0; i[2] < y->dim[2]; i[2]++)
                for (i[3] = 0; i[3] < y->dim[3]; i[3]++)
                    if (!forward)
                        spread(g, o, i, sums);
                    else if (o->mode == CUDNN_RESAMPLE_MAXPOOL)
                        find_largest(g, o, i);
                    else
                        find_mean(g, o, i);
    for (int64_t at = 0; at < elements && !forward; at++)
        fake_put(x, at, sums[at]);
    free(sums);
}

void fake_image_run(struct graph *g, const struct operation *o)
{
    const struct tensor *x = &g->tensors[o->of[X]];
    bool forward = o->type == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR;

    if (forward || o->type == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR) {
        run_pool(g, o, forward);
        return;
    }
    for (int64_t c = 0; c < x->dim[1]; c++)
        if (o->type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)
            run_norm(g, o, c, x->dim[0] * x->dim[2] * x->dim[3]);
        else
            run_norm_grad(g, o, c, x->dim[0] * x->dim[2] * x->dim[3]);
}
