/* SPDX-License-Identifier: MIT */
/* A backend: what the executor needs from a device, as a table of functions.
 *
 * The executor never touches a device buffer by itself: all work is handed to a stream, in
 * order; streams are ordered among each other by events. The CPU backends run everything at
 * once when it is handed over, so their streams and events are empty; a CUDA module fills the
 * same table with asynchronous ones.
 *
 * Whatever changes from step to step is in 'struct step_state', which lives in a buffer that
 * the kernel reads when it runs (never a kernel argument, so that captured graphs stay valid).
 */
#ifndef TASUKI_KERNELS_BACKEND_H
#define TASUKI_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/graph.h"
#include "graph/program.h"
#include "kernels/step.h"

struct err;
struct fallbacks;
struct device;      /* backend's own */
struct stream;
struct event;
struct kernel;
struct recording;
struct ranges;

enum accumulate {
    ACCUMULATE_NO,          /* output is overwritten */
    ACCUMULATE_YES          /* output += result */
};

/* One run of a kernel. 'inputs'/'outputs' follow the node's lists, NULL where absent. */
struct kernel_args {
    const void *const *inputs;
    void *const *outputs;
    void *workspace;                /* kernel_workspace() bytes, 64-byte aligned */
    const struct step_state *state; /* in memory of the backend, too */
    /* For kernels that accumulate, and only where an output is a gradient of the program:
     * then all outputs are added to.
     */
    enum accumulate accumulate;
};

enum optimizer_kind {
    OPTIMIZER_SGD, OPTIMIZER_MOMENTUM, OPTIMIZER_NESTEROV, OPTIMIZER_ADAM, OPTIMIZER_ADAMW,
    OPTIMIZER_LARS, OPTIMIZER_LAMB
};

struct optimizer_args {
    enum optimizer_kind kind;
    enum dtype dtype;
    double lr, momentum, beta1, beta2, epsilon, weight_decay;
    double trust;           /* LARS's coefficient */
    int64_t step;           /* 1 for the first update: Adam's bias correction */
};

/* Part of flat arrays that is stepped: where it starts in each, and its length, in elements. */
struct range {
    size_t n;
    size_t p, g, state;     /* 'state': of m and of v */
    double decay;           /* what the weight decay is multiplied by */
};

struct range_arrays {
    void *p;
    const void *g;
    void *m, *v;            /* NULL: the optimizer has no such state */
};

/* What LARS and LAMB scale the step of each range by: squares, summed up over the tensor that it is
 * part of, of its gradients (LARS) or of what moments() sums (LAMB), and of its parameters; 0 where it
 * does not decay. In the backend's memory.
 */
struct range_norms {
    const double *squares, *weights;
};

struct backend {
    const char *name;       /* "reference", "cpu", "cuda", "cuda-tf32", "cuda-bf16", "cuda-fp16" */

    /* 'threads' <= 0: the backend chooses. Of GPUs the one at this PCI address; NULL: the first. */
    struct device *(*device_open)(int threads, const char *address, struct err *err);
    /* One that is not here, of this kind: kernels can be made for it, so that a stage's memory is known,
     * and none can run; nor has it memory. What libraries will want for scratch is guessed. NULL: no
     * device of this backend is elsewhere.
     */
    struct device *(*device_imagine)(const char *kind, struct err *err);
    void (*device_close)(struct device *device);
    /* "Intel Xeon …, 2 threads, oneDNN 2.6.3": the key of the profile cache, too. */
    const char *(*device_name)(const struct device *device);

    /* Is there a kernel for this node? Otherwise the executor says so, all nodes at once. */
    bool (*supports)(const struct device *device, const struct graph *graph, int node);

    /* Choose layouts for a stage program before memory is placed: may set layouts of values
     * that are internal to it and, after program_own_graph(), append reorder nodes. NULL:
     * everything stays plain.
     */
    int (*lower)(struct device *device, struct program *program, struct err *err);

    /* Bytes of each value of a graph with its gradients where it crosses a border of stages, as 'lower' has
     * it on any device; malloc'ed. NULL: all cross plain.
     */
    size_t *(*crossing)(const struct graph *graph, const struct autodiff *autodiff);

    /* Compile one node once. The kernel keeps what it needs; it may not keep the graph.
     * 'layouts[v]' for every value of the graph; NULL: all plain.
     */
    struct kernel *(*kernel_new)(struct device *device, const struct graph *graph, int node,
                                 const struct value_layout *layouts, struct err *err);
    void (*kernel_free)(struct kernel *kernel);
    size_t (*kernel_workspace)(const struct kernel *kernel);
    /* Can this kernel add to its output, or must the executor do that (see add)? */
    bool (*kernel_accumulates)(const struct kernel *kernel);
    int (*kernel_run)(struct kernel *kernel, struct stream *stream,
                      const struct kernel_args *args, struct err *err);

    /* Memory of the device, 64-byte aligned, and zeros where it is 'separate'; counted, see 'peak'. */
    void *(*alloc)(struct device *device, size_t bytes, struct err *err);
    void (*release)(struct device *device, void *memory, size_t bytes);
    /* Little things beside what is counted, zeroed: memory of the device, or of the 'host', which
     * kernels may read and write, too, and copies are fastest with.
     */
    void *(*alloc_aside)(struct device *device, size_t bytes, bool host, struct err *err);
    void (*release_aside)(struct device *device, void *memory, bool host);
    bool separate;      /* the host may not touch what alloc() gives */
    size_t (*peak)(const struct device *device);    /* most bytes ever out at once */
    size_t (*memory)(const struct device *device);  /* bytes that a GPU has for us; 0: not known */
    size_t (*cache)(const struct device *device);   /* bytes that stay near from kernel to kernel;
                                                     * NULL: what the host's caches hold */
    /* Drop these bytes from all caches; false where that cannot be done. For measuring. */
    bool (*evict)(struct device *device, const void *memory, size_t bytes);

    struct stream *(*stream_new)(struct device *device, struct err *err);
    void (*stream_free)(struct stream *stream);
    int (*stream_wait)(struct stream *stream, struct event *event, struct err *err);
    int (*stream_sync)(struct stream *stream, struct err *err);
    struct event *(*event_new)(struct device *device, struct err *err);
    void (*event_free)(struct event *event);
    int (*event_record)(struct event *event, struct stream *stream, struct err *err);
    int (*event_done)(struct event *event, bool *done, struct err *err);
    /* An event that knows when it was reached, and the seconds from one to another, both of which have
     * been. NULL where all is done when it is handed over.
     */
    struct event *(*event_new_timed)(struct device *device, struct err *err);
    int (*event_elapsed)(struct event *from, struct event *to, double *seconds, struct err *err);

    /* What the stream is handed between begin and end is kept, not run, to be run by replay() with
     * the same pointers as often as one likes: kernels of which kernel_records() is true, copies
     * within the device, fill_zero() and add(). All NULL where a backend has nothing to gain.
     * After an error in between nothing of the stream is used again.
     */
    bool (*kernel_records)(const struct kernel *kernel);
    int (*record_begin)(struct stream *stream, struct err *err);
    int (*record_end)(struct stream *stream, struct recording **recording, struct err *err);
    int (*replay)(struct stream *stream, struct recording *recording, struct err *err);
    void (*recording_free)(struct recording *recording);
    /* Name what is handed over until pop(), for profilers; may be NULL. */
    void (*range_push)(struct device *device, const char *name);
    void (*range_pop)(struct device *device);

    /* For stand-ins that check who touches what; NULL where there are none. The host reads or writes
     * memory of the host now; what memory holds when the stream comes to it is of no use, or, of what
     * is to 'renew', of use to whatever writes it anew alone, or some of it.
     */
    void (*host_touches)(struct device *device, const void *memory, size_t bytes, bool writes);
    void (*forget)(struct stream *stream, void *memory, size_t bytes);
    void (*renew)(struct stream *stream, void *memory, size_t bytes);

    /* Copies between host and device, and within the device. 'rows' pieces of 'width' bytes
     * with the given strides in bytes (cudaMemcpy2D): cuts an interval of samples out of
     * [outer, b, inner].
     */
    int (*copy)(struct stream *stream, void *to, size_t to_stride, const void *from,
                size_t from_stride, size_t width, size_t rows, struct err *err);
    int (*fill_zero)(struct stream *stream, void *to, size_t bytes, struct err *err);
    /* y[i] += x[i] over 'n' elements of a floating type. */
    int (*add)(struct stream *stream, enum dtype dtype, size_t n, const void *x, void *y,
               struct err *err);
    /* 'n' ranges, to be summed or stepped at once by what is handed to one stream. */
    struct ranges *(*ranges_new)(struct stream *stream, const struct range *items, int n,
                                 struct err *err);
    void (*ranges_free)(struct ranges *ranges);
    /* The sum of squares of each range of x, where its 'g' says, into sums[n] in the backend's memory: in
     * double, in an order that its length alone decides.
     */
    int (*sum_squares)(struct stream *stream, struct ranges *ranges, enum dtype dtype, const void *x,
                       double *sums, struct err *err);
    /* One fused update of all ranges. PyTorch's formulas; g is multiplied by 'g_scale' first (gradient
     * clipping). Only LARS and LAMB have norms:
     *   LARS (You, Gitman, Ginsburg 2017): momentum of r (g + wd p), r = trust |p| / (|g| + wd |p|)
     *   LAMB (You et al. 2019): p -= lr |p| / |u| u, see moments()
     * The ratio is 1 where one of its norms is 0.
     */
    int (*optimize)(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                    const struct range_arrays *arrays, double g_scale,
                    const struct range_norms *norms, struct err *err);
    /* LAMB's other half, before optimize(): Adam's m and v advance, and the sum of squares of
     * u = m' / (sqrt(v') + epsilon) + weight_decay * p, bias corrected, comes into 'sums' for each range.
     */
    int (*moments)(struct stream *stream, const struct optimizer_args *args, struct ranges *ranges,
                   const struct range_arrays *arrays, double g_scale, double *sums,
                   struct err *err);
    /* Products, convolutions and attentions that libraries were asked for here, and how many of them they
     * compute on tensor cores. NULL: there are none of either.
     */
    void (*tensor_cores)(const struct device *device, int *products, int *on_them);
    /* What its kernels that are there do another way than it has for it. NULL: nothing ever. */
    const struct fallbacks *(*fallbacks)(const struct device *device);
    /* NCCL's table (kernels/cuda/collectives.h). NULL: there is none, and 'err' says why, or the
     * backend's memory is the host's and this itself is NULL.
     */
    const void *(*collectives)(struct device *device, struct err *err);
};

/* Has this operand of a node, inputs before outputs, 16 bits with "cuda-bf16" and "cuda-fp16"? */
bool backend_narrows(const struct graph *graph, int node, int operand);
/* By its name; NULL where this build lacks it. */
const struct backend *backend_find(const char *name);

#endif
