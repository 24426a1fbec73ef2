/* SPDX-License-Identifier: MIT */
/* Private to the "cuda" backend: devices, kernels, and how a node becomes a launch.
 *
 * A node is digested by the reference backend (kernels/reference/setup.c), so that attributes are
 * read in one place. What has a kernel on the GPU is a line of the table in kernel.c; what has none
 * is run by the reference on the host, in order with the stream, counted and named.
 */
#ifndef TASUKI_KERNELS_CUDA_CUDA_H
#define TASUKI_KERNELS_CUDA_CUDA_H

#include "kernels/cuda/runtime.h"
#include "kernels/fallbacks.h"
#include "kernels/reference/reference.h"

struct device {
    const struct cuda_runtime *cuda;
    struct cuda_device *gpu;
    char name[256];
    size_t in_use, peak;
    int64_t scores;             /* bytes of an attention's scores at a time */
    bool library_norms, library_pools;  /* of images: by cuDNN, where it has them */
    bool tf32;                  /* factors of products may be rounded to 10 bits */
    enum cuda_narrow narrow;    /* what values may be: see narrow.h */
    const struct backend *reference;
    struct device *reference_device;
    struct stream *reference_stream;
    struct cuda_chains *chains; /* chain_kernel.c; NULL: none yet */
    bool no_chains;             /* none can be made, or none is wanted */
    int n_recordings, n_replays;
    int n_sums;                 /* gradients of biases that products were given to make: bias.c */
    struct fallbacks fallbacks;
};

struct stream {
    struct device *device;
    struct cuda_stream *cuda;
};

#define CUDA_PRODUCTS 5         /* of an attention's gradient */

struct cuda_kernel;

typedef int cuda_run_function(const struct cuda_kernel *kernel, struct stream *stream,
                              const struct kernel_args *args, struct err *err);

/* What a run needs that is known before: filled in by the op's 'make'. */
union cuda_launch_any {
#define CUDA_MEMBER(family) struct cuda_##family family;
    CUDA_FAMILIES(CUDA_MEMBER)
#undef CUDA_MEMBER
    struct cuda_chain chain;
};

struct cuda_kernel {
    struct device *device;
    struct kernel *digest;      /* the reference's */
    cuda_run_function *run;
    union cuda_launch_any launch;
    bool accumulates;
    bool *narrow_operand;       /* inputs, then outputs */
    bool *turned_operand;       /* likewise: an attention's alone */
    bool last;                  /* narrow images have their channels last; of a Reorder: what it makes,
                                 * where that is narrow */
    bool places_last;           /* the same, of positions of maxima */
    bool places_by_library;     /* or they are cuDNN's, in their windows */
    enum cuda_narrow narrow;    /* what may be the device's narrow type is: cuda_narrows_input() */
    size_t workspace;
    size_t padded;              /* of that: a convolution's padded x, at its start */
    size_t dw_narrow, dw_wide;  /* then dw in 16 bits, and in float32 with the channels last */
    void **host;                /* of a fallback: its inputs and outputs, pinned */
    bool falls_back, unfused;   /* counted as such */
    struct cuda_product *products[CUDA_PRODUCTS];
    struct cuda_convolution *convolution;
    struct cuda_sdpa_kernel *sdpa;
    struct cuda_image_kernel *image;
    int64_t samples_at_once;    /* of that: a gradient takes turns */
    bool shifted;               /* its mask lies so at the start of the workspace: launch_attention.h */
    struct cuda_chain_kernel *chain;    /* the device's */
    bool failed;                /* set by 'make' if it said so in 'err', before it returned -1 */
    struct err *err;            /* while it is made */
};

struct cuda_op {
    const char *name;
    /* Set 'run', 'launch', 'accumulates' and 'workspace' from the digest; -1: not this case, the
     * reference has to serve.
     */
    int (*make)(struct cuda_kernel *kernel, const struct graph *graph, int node);
    int argument;               /* for 'make': a cuda_function, for one */
};

/* op_*.c: each ends with an entry without a name. */
extern const struct cuda_op cuda_ops_along[], cuda_ops_attention[], cuda_ops_chain[], cuda_ops_conv[], cuda_ops_index[],
    cuda_ops_matmul[], cuda_ops_move[], cuda_ops_norm[], cuda_ops_pointwise[], cuda_ops_pool[],
    cuda_ops_reduce[], cuda_ops_softmax[];
/* The entry of the kernel's operator. */
const struct cuda_op *cuda_op_of(const struct cuda_kernel *kernel);

/* The 'run' of what chains are made of: op_pointwise.c, op_move.c. */
cuda_run_function cuda_run_pointwise, cuda_run_sum, cuda_run_reorder;

/* Helpers for 'make'. */

/* Are all floating inputs and outputs float32? */
bool cuda_is_f32(const struct cuda_kernel *kernel);
size_t cuda_output_bytes(const struct cuda_kernel *kernel);     /* of output 0 */
/* CUDA_WIDE where this operand is not narrow. */
enum cuda_narrow cuda_narrow_of(const struct cuda_kernel *kernel, int operand);
/* Of an element of a value of this type. */
size_t cuda_element_bytes(const struct cuda_kernel *kernel, enum dtype dtype);
/* How cuda_reduce and cuda_weight_grad cut [rows, columns], whose rows are 'pitch' elements apart, into
 * pieces that are summed up; 0 chunks where that is not for them. The bytes of the parts.
 */
size_t cuda_plan_columns(struct cuda_cut *cut, int64_t rows, int64_t columns, int64_t pitch,
                         enum cuda_narrow narrow);
/* Sums of what a walk over x has in one place of its operand 0; the bytes of the parts. */
size_t cuda_plan_sum(struct cuda_reduce *reduce, const struct walk *walk);
/* The walk over output 0, with operands as the digest has them. */
void cuda_walk_from(struct cuda_walk *to, const struct walk *from);
/* Between [n, channels, space] and [n, space, channels], or back. */
void cuda_turn(struct cuda_move *move, int64_t n, int64_t channels, int64_t space, bool back);
/* Make one of axes that are one for all operands: the same elements in the same order. */
void cuda_walk_merge(struct cuda_walk *walk);

/* lower.c */
extern const char cuda_narrow_layout;   /* the 'opaque' of what has 16 bits */
extern const char cuda_turned_layout;   /* and of that has its heads behind its rows: see turn.c */
extern const char cuda_last_layout;     /* and of an image of them whose channels are the last axis */
extern const char cuda_places_layout;   /* and of where its maxima were (int32), in the same order, */
extern const char cuda_index_layout;    /* or where in their windows (int8) */
#define CUDA_NARROW_BYTES ((size_t)2)
#define CUDA_NARROW_WIDTH 8     /* of them in a word */
static inline bool cuda_is_narrow(const struct value_layout *layout)
{
    return layout->opaque == &cuda_narrow_layout || layout->opaque == &cuda_turned_layout ||
           layout->opaque == &cuda_last_layout;
}
static inline bool cuda_is_last(const struct value_layout *layout)
{
    return layout->opaque == &cuda_last_layout;
}
/* A narrow gradient of an attention may want what that made: as input CUDA_GRAD_Y. */
#define CUDA_GRAD_Y 6
void cuda_give_output(struct graph *graph, int node);
int cuda_lower(struct device *device, struct program *program, struct err *err);
/* Does it leave the program's stage, or come in? */
bool cuda_crosses(const struct program *program, int v);

/* narrow.c */
/* The type of dtype.h. */
enum dtype cuda_narrow_dtype(enum cuda_narrow narrow);
/* May this operand be narrow? All of a node that may be are, or none is. */
bool cuda_narrows_input(const struct graph *graph, int node, int i);
bool cuda_narrows_output(const struct graph *graph, int node, int i);
/* May all its narrow operands of four axes have their channels last? */
bool cuda_takes_last(const struct graph *graph, int node);

/* op_attention.c: is there a kernel that keeps no scores for this AttentionGrad? Where its mask has to be
 * shifted for that, it and its Attention are told so.
 */
bool cuda_attention_fused(struct device *device, struct graph *graph, int node);
/* And for that and its Attention where these operands are turned (launch_dense.h)? */
bool cuda_attention_turns(struct device *device, const struct graph *graph, int node, int64_t turned);

/* rectify.c: of BatchNorms and Relus, after narrow values have their layouts. A BatchNormGrad with a Relu
 * has the attribute "relu", and the bias as input CUDA_NORM_BIAS.
 */
#define CUDA_NORM_BIAS 5
void cuda_join_relus(struct program *program);

/* op_pool.c: has cuDNN this MaxPool, and its gradient? */
bool cuda_pool_fits(struct device *device, const struct graph *graph, int node);

/* bias.c: of Linears' gradients. */
void cuda_join_biases(struct device *device, struct program *program);

/* turn.c */
void cuda_turn_attentions(struct device *device, struct program *program);
/* op_conv.c: has cuDNN this convolution, or gradient of one, of the device's narrow type? */
bool cuda_conv_fits(struct device *device, const struct graph *graph, int node, bool last);

/* kernel.c */
bool cuda_supports(const struct device *device, const struct graph *graph, int node);
struct kernel *cuda_kernel_new(struct device *device, const struct graph *graph, int node,
                               const struct value_layout *layouts, struct err *err);
void cuda_kernel_free(struct kernel *kernel);
size_t cuda_kernel_workspace(const struct kernel *kernel);
bool cuda_kernel_accumulates(const struct kernel *kernel);
bool cuda_kernel_records(const struct kernel *kernel);
int cuda_kernel_run(struct kernel *kernel, struct stream *stream,
                    const struct kernel_args *args, struct err *err);

/* absent.c: the table of a GPU that is not here. */
extern const struct cuda_runtime cuda_absent;

/* update.c */
int cuda_add(struct stream *stream, enum dtype dtype, size_t n, const void *x, void *y,
             struct err *err);
struct ranges *cuda_ranges_new(struct stream *stream, const struct range *items, int n,
                               struct err *err);
void cuda_ranges_free(struct ranges *ranges);
int cuda_optimize(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                  const struct range_arrays *arrays, double g_scale,
                  const struct range_norms *norms, struct err *err);
int cuda_moments(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                 const struct range_arrays *arrays, double g_scale, double *sums, struct err *err);
int cuda_sum_squares(struct stream *stream, struct ranges *ranges, enum dtype dtype, const void *x,
                     double *sums, struct err *err);

extern const struct backend backend_cuda;
/* "cuda-tf32": the same, but factors of products are rounded to 10 bits, as tensor cores want. */
const struct backend *cuda_tf32(void);
/* "cuda-bf16", "cuda-fp16": as that, and values are bfloat16, or float16, where narrow.c says so. */
const struct backend *cuda_bf16(void);
const struct backend *cuda_fp16(void);

#endif
