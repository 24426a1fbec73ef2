/* SPDX-License-Identifier: MIT */
/* The reference backend: plain C, one thread, float32 and float64. It is the oracle of every
 * other backend, so clear comes before fast, and float32 sums are made in double.
 *
 * kernel_new() digests a node into 'struct kernel': the entry's 'setup' reads attributes once,
 * 'run' only computes. What depends on the type stands in *.inc.h, compiled by f32.c and
 * f64.c with 'real' defined.
 */
#ifndef TASUKI_KERNELS_REFERENCE_H
#define TASUKI_KERNELS_REFERENCE_H

#include "graph/ops/attention.h"
#include "graph/ops/element.h"
#include "graph/ops/matmul.h"
#include "graph/ops/slice.h"
#include "graph/ops/window.h"
#include "kernels/backend.h"

struct kernel;

struct ref_tensor {
    enum dtype dtype;
    struct shape shape;
    struct batch batch;
    int64_t elements;       /* -1: absent */
};

/* A walk over all elements of one tensor, in order, with the offsets of the elements of up to
 * 'n' tensors that go with each.
 */
#define WALK_MAX 4

struct walk {
    int rank, n;            /* rank >= 1 */
    int64_t rows, dim[GRAPH_MAX_RANK];
    int64_t start[WALK_MAX], stride[WALK_MAX][GRAPH_MAX_RANK];
};

struct cursor {
    int64_t row, index[GRAPH_MAX_RANK], at[WALK_MAX];
};

typedef int ref_run_function(const struct kernel *kernel, const struct kernel_args *args,
                             struct err *err);
typedef double ref_unary_function(double x);
/* Of up to three operands; those that an op lacks are 0. */
typedef double ref_binary_function(double a, double b, double c);

enum ref_reduction { REF_PUT, REF_ADD, REF_MULTIPLY, REF_LARGER, REF_SMALLER };
enum ref_activation { REF_NONE, REF_RELU, REF_GELU, REF_GELU_TANH, REF_SILU };

struct ref_entry {
    const char *op;
    int (*setup)(struct kernel *kernel, const struct graph *graph, int node, struct err *err);
    ref_run_function *run;
    ref_unary_function *unary;
    ref_binary_function *binary;
};

#define REF_ENTRY(OP, SETUP, RUN) { OP, SETUP, RUN, NULL, NULL }

/* A position of a convolution's kernel, and the outputs [first, end) at which it meets the input:
 * there it starts at 'start'.
 */
struct ref_tap {
    int64_t at;                     /* in a plane of weights */
    int64_t first[WINDOW_MAX], end[WINDOW_MAX], start[WINDOW_MAX];
};

/* Output channels that a convolution keeps the sums of: all of a group, or some after others. */
static inline int64_t ref_channels_at_once(int64_t channels)
{
    return channels < 16 ? channels : 16;
}

struct kernel {
    const struct ref_entry *entry;
    char *name;                     /* of the node, for messages */
    int n_inputs, n_outputs;
    struct ref_tensor *in, *out;
    size_t workspace;
    uint64_t key;
    int64_t batch, group;           /* samples; of one BatchNorm group */

    /* What 'setup' found. */
    struct walk walk;
    struct window window;           /* always three spatial axes */
    int n_taps;                     /* of a convolution, without those that meet padding alone */
    struct ref_tap *taps;
    struct matmul matmul;
    struct attention attention;
    int64_t before, length, after;  /* [before, length, after] around an axis */
    double alpha, beta, epsilon, momentum, ratio, scale;
    ref_unary_function *unary;
    ref_binary_function *binary;
    enum ref_activation activation;
    enum ref_reduction reduction;
    struct tuple tuple;
    int64_t count;                  /* of a TopK */
    int64_t whole;                  /* that a Pad puts among integers */
    bool reverse, exclusive;        /* of a CumSum */
    bool masked;                    /* of a Softmax */
    bool last;                      /* of equal elements */
    bool swap;                      /* the two factors; smallest in place of largest */
    bool ignores;
    int64_t ignore_index;
    double smoothing;               /* of labels */
};

/* By type of input 0: floating or whole; and for any (move.c, integer.c, element.c). */
extern const struct ref_entry ref_entries_f32[], ref_entries_f64[], ref_entries_whole[],
    ref_entries_any[], ref_entries_tests[], ref_entries_element[];
extern const struct backend reference_backend;

/* walk.c */

/* Over a tensor of shape 'over'; every entry then needs walk_operand(). */
void walk_start(struct walk *walk, const struct shape *over);
/* Entry 'i' is a tensor that broadcasts to the shape walked over. */
void walk_broadcast(struct walk *walk, int i, const struct shape *shape);
/* Entry 'i' has 'stride' elements per step along each axis and begins at 'start'. */
void walk_strides(struct walk *walk, int i, int64_t start, const int64_t *stride);
void shape_strides(const struct shape *shape, int64_t *stride);
/* for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c)): one row of dim[rank-1]
 * elements each time; element j of entry i is at c.at[i] + j * w->stride[i][w->rank - 1].
 */
void cursor_start(const struct walk *walk, struct cursor *cursor);
void cursor_next(const struct walk *walk, struct cursor *cursor);
static inline bool cursor_valid(const struct walk *walk, const struct cursor *cursor)
{
    return cursor->row < walk->rows;
}
static inline int64_t row_length(const struct walk *walk)
{
    return walk->dim[walk->rank - 1];
}
static inline int64_t row_stride(const struct walk *walk, int i)
{
    return walk->stride[i][walk->rank - 1];
}

/* setup.c: one for each form of attributes */
int setup_plain(struct kernel *, const struct graph *, int node, struct err *);
int setup_broadcast(struct kernel *, const struct graph *, int node, struct err *);
/* [before, length, after] around the axis that the attribute "axis" names. */
int setup_around(struct kernel *, const struct graph *, int node, const struct shape *,
                 int64_t def, struct err *);
int setup_curve(struct kernel *, const struct graph *, int node, struct err *);
int setup_clip(struct kernel *, const struct graph *, int node, struct err *);
int setup_mod(struct kernel *, const struct graph *, int node, struct err *);
int setup_is_inf(struct kernel *, const struct graph *, int node, struct err *);
int setup_gelu(struct kernel *, const struct graph *, int node, struct err *);
int setup_dropout(struct kernel *, const struct graph *, int node, struct err *);
int setup_matmul(struct kernel *, const struct graph *, int node, struct err *);
int setup_linear(struct kernel *, const struct graph *, int node, struct err *);
int setup_linear_dgrad(struct kernel *, const struct graph *, int node, struct err *);
int setup_linear_wgrad(struct kernel *, const struct graph *, int node, struct err *);
int setup_attention(struct kernel *, const struct graph *, int node, struct err *);
int setup_attention_grad(struct kernel *, const struct graph *, int node, struct err *);
int setup_axis(struct kernel *, const struct graph *, int node, struct err *);
int setup_conv(struct kernel *, const struct graph *, int node, struct err *);
int setup_conv_dgrad(struct kernel *, const struct graph *, int node, struct err *);
int setup_conv_wgrad(struct kernel *, const struct graph *, int node, struct err *);
int setup_pool(struct kernel *, const struct graph *, int node, struct err *);
int setup_pool_grad(struct kernel *, const struct graph *, int node, struct err *);
int setup_global(struct kernel *, const struct graph *, int node, struct err *);
int setup_global_grad(struct kernel *, const struct graph *, int node, struct err *);
int setup_batchnorm(struct kernel *, const struct graph *, int node, struct err *);
int setup_layernorm(struct kernel *, const struct graph *, int node, struct err *);
int setup_layernorm_grad(struct kernel *, const struct graph *, int node, struct err *);
int setup_groupnorm(struct kernel *, const struct graph *, int node, struct err *);
int setup_groupnorm_grad(struct kernel *, const struct graph *, int node, struct err *);
int setup_reduce(struct kernel *, const struct graph *, int node, struct err *);
int setup_reduce_to(struct kernel *, const struct graph *, int node, struct err *);
int setup_reduce_grad(struct kernel *, const struct graph *, int node, struct err *);
int setup_transpose(struct kernel *, const struct graph *, int node, struct err *);
int setup_slice(struct kernel *, const struct graph *, int node, struct err *);
int setup_slice_grad(struct kernel *, const struct graph *, int node, struct err *);
int setup_gather(struct kernel *, const struct graph *, int node, struct err *);
int setup_gather_grad(struct kernel *, const struct graph *, int node, struct err *);
int setup_cross_entropy(struct kernel *, const struct graph *, int node, struct err *);
int setup_cross_entropy_grad(struct kernel *, const struct graph *, int node, struct err *);

/* Element 'i' of a list of int32 or int64. */
static inline int64_t ref_int(const struct ref_tensor *tensor, const void *data, int64_t i)
{
    return tensor->dtype == DTYPE_I64 ? ((const int64_t *)data)[i]
                                      : ((const int32_t *)data)[i];
}

/* Element 'i' of a tensor of any type, as dtype.h has it. */
static inline double ref_number(const struct ref_tensor *tensor, const void *data, int64_t i)
{
    return dtype_real(tensor->dtype, data, i);
}
static inline int64_t ref_whole(const struct ref_tensor *tensor, const void *data, int64_t i)
{
    return dtype_whole(tensor->dtype, data, i);
}
static inline void ref_store(const struct ref_tensor *tensor, void *data, int64_t i, double x)
{
    dtype_put_real(tensor->dtype, data, i, x);
}
static inline void ref_store_whole(const struct ref_tensor *tensor, void *data, int64_t i,
                                   int64_t x)
{
    dtype_put_whole(tensor->dtype, data, i, x);
}

/* move.c: entry 'i' of input 1, the indices of a Gather along an axis of k->length. */
int ref_index(const struct kernel *kernel, const struct kernel_args *args, int64_t i,
              int64_t *index, struct err *err);

/* kernel.c */
struct kernel *ref_kernel_new(struct device *device, const struct graph *graph, int node,
                              const struct value_layout *layouts, struct err *err);
void ref_kernel_free(struct kernel *kernel);
bool ref_supports(const struct device *device, const struct graph *graph, int node);
size_t ref_kernel_workspace(const struct kernel *kernel);
bool ref_kernel_accumulates(const struct kernel *kernel);
int ref_kernel_run(struct kernel *kernel, struct stream *stream,
                   const struct kernel_args *args, struct err *err);

/* update.c */
int ref_add(struct stream *stream, enum dtype dtype, size_t n, const void *x, void *y,
            struct err *err);
int ref_optimize(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                 const struct range_arrays *arrays, double g_scale,
                 const struct range_norms *norms, struct err *err);
int ref_moments(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                const struct range_arrays *arrays, double g_scale, double *sums, struct err *err);
int ref_sum_squares(struct stream *stream, struct ranges *ranges, enum dtype dtype, const void *x,
                    double *sums, struct err *err);

#endif
