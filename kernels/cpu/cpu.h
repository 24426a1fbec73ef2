/* SPDX-License-Identifier: MIT */
/* Private to the "cpu" backend: devices, kernels, layouts, loops over threads. */
#ifndef TASUKI_KERNELS_CPU_CPU_H
#define TASUKI_KERNELS_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/simd.h"

#define CPU_ALIGNMENT 64

struct device {
    int threads;
    char name[192];
    const struct simd *simd;
    struct onednn *onednn;
    size_t in_use, peak;
    const struct backend *reference;    /* for what has no fast kernel here */
    struct device *reference_device;
    struct stream *reference_stream;
    int n_layouts;
    struct cpu_layout **layouts;        /* made by lower(), freed with the device */
};

/* value_layout.opaque of a value that is not plain. */
struct cpu_layout {
    enum { CPU_CHANNELS_LAST, CPU_WEIGHTS } kind;
    struct onednn_format *format;       /* CPU_WEIGHTS */
    struct onednn_conv_shape shape;
};

struct kernel {
    struct device *device;
    size_t workspace;
    bool accumulates;
    int (*run)(struct kernel *kernel, const struct kernel_args *args, struct err *err);
    void (*free)(struct kernel *kernel);    /* NULL: free() alone */
};

/* What a maker of kernels gets. */
struct cpu_build {
    struct device *device;
    const struct graph *graph;
    int node;
    const struct value_layout *layouts;
};

/* Sets '*kernel', or leaves it NULL where the reference kernel has to serve: a case that is
 * rare, not of float32, or in a layout it does not know.
 */
typedef int cpu_maker(const struct cpu_build *build, struct kernel **kernel, struct err *err);

cpu_maker cpu_make_matmul, cpu_make_linear, cpu_make_linear_dgrad, cpu_make_linear_wgrad;
cpu_maker cpu_make_conv, cpu_make_reorder;
cpu_maker cpu_make_batchnorm, cpu_make_batchnorm_grad;
cpu_maker cpu_make_layernorm, cpu_make_layernorm_dgrad, cpu_make_layernorm_wgrad;
cpu_maker cpu_make_attention, cpu_make_attention_grad;
cpu_maker cpu_make_rmsnorm, cpu_make_rmsnorm_dgrad, cpu_make_rmsnorm_wgrad;
cpu_maker cpu_make_softmax, cpu_make_softmax_grad;
cpu_maker cpu_make_pool, cpu_make_pool_grad, cpu_make_global_pool, cpu_make_global_pool_grad;
cpu_maker cpu_make_unary, cpu_make_binary, cpu_make_slope, cpu_make_curve, cpu_make_sum_of,
    cpu_make_dropout;
cpu_maker cpu_make_reduce_to, cpu_make_bias_grad;
cpu_maker cpu_make_transpose, cpu_make_pieces, cpu_make_gather, cpu_make_gather_grad;
cpu_maker cpu_make_cross_entropy, cpu_make_cross_entropy_grad, cpu_make_pair_loss,
    cpu_make_pair_grad;
cpu_maker cpu_make_reference;

/* How a kernel of an operator meets values whose channels are last. */
enum cpu_layout_rule {
    CPU_PLAIN,      /* plain only */
    CPU_SPATIAL,    /* either, for 4-D inputs and outputs of channels and space */
    CPU_FLAT        /* any, as long as inputs and outputs of the same shape agree */
};

struct cpu_op {
    const char *name;
    enum cpu_layout_rule layout;
    cpu_maker *make;
};
/* NULL where the backend has no kernel of its own for the operator. */
const struct cpu_op *cpu_op_find(const char *name);

/* Entries of the backend's table that live elsewhere than in device.c. */
bool cpu_supports(const struct device *device, const struct graph *graph, int node);
struct kernel *cpu_kernel_make(struct device *device, const struct graph *graph, int node,
                               const struct value_layout *layouts, struct err *err);
void cpu_kernel_free(struct kernel *kernel);
size_t cpu_kernel_workspace(const struct kernel *kernel);
bool cpu_kernel_accumulates(const struct kernel *kernel);
int cpu_kernel_run(struct kernel *kernel, struct stream *stream, const struct kernel_args *args,
                   struct err *err);
int cpu_lower(struct device *device, struct program *program, struct err *err);

/* Helpers for makers ------------------------------------------------------------------ */

const struct node *cpu_node(const struct cpu_build *build);
/* NULL where the input or output is absent. */
const struct value *cpu_input(const struct cpu_build *build, int index);
const struct value *cpu_output(const struct cpu_build *build, int index);
const struct cpu_layout *cpu_input_layout(const struct cpu_build *build, int index);
const struct cpu_layout *cpu_output_layout(const struct cpu_build *build, int index);
/* Are all floating inputs and outputs float32? */
bool cpu_is_f32(const struct cpu_build *build);
bool cpu_all_plain(const struct cpu_build *build);
/* A zeroed kernel of 'size' bytes that starts with struct kernel. */
void *cpu_kernel_new(const struct cpu_build *build, size_t size,
                     int (*run)(struct kernel *, const struct kernel_args *, struct err *));
bool cpu_channels_last(const struct cpu_layout *layout);
/* Do channels first and last differ? Not with one channel or one pixel: such values have no
 * layout, and serve either way.
 */
bool cpu_spatial(const struct shape *shape);
bool cpu_lies(const struct value *value, const struct cpu_layout *layout, bool last);

/* Loops over threads ------------------------------------------------------------------ */

typedef void cpu_range(void *context, int64_t begin, int64_t end, int thread);

/* Call 'range' on a fixed partition of 0 … n-1, one interval for each thread of the device;
 * by the calling thread alone where there are fewer than 2 * 'grain' pieces. The interval of
 * thread t is the same in every run; empty ones are not called.
 */
void cpu_parallel(const struct device *device, int64_t n, int64_t grain, cpu_range *range,
                  void *context);

/* Elements that are worth a thread of their own. */
enum { CPU_GRAIN = 8192 };

static inline int64_t cpu_rows_grain(int64_t row)
{
    return row >= CPU_GRAIN ? 1 : CPU_GRAIN / (row > 0 ? row : 1);
}

/* Flat updates: optimize.c. */
int cpu_optimize(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                 const struct range_arrays *arrays, double g_scale,
                 const struct range_norms *norms, struct err *err);
int cpu_moments(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                const struct range_arrays *arrays, double g_scale, double *sums, struct err *err);
int cpu_sum_squares(struct stream *stream, struct ranges *ranges, enum dtype dtype, const void *x,
                    double *sums, struct err *err);
int cpu_add(struct stream *stream, enum dtype dtype, size_t n, const void *x, void *y,
            struct err *err);

struct stream {
    struct device *device;
};

#endif
