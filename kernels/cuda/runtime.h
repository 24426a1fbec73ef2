/* SPDX-License-Identifier: MIT */
/* What tasuki-cuda.so does for training: a GPU's memory, streams, events, and kernels.
 *
 * The module is linked without the core and shares these structs alone, so both sides check
 * CUDA_RUNTIME_VERSION and the sizes. What a node means is digested by the core (kernels/cuda/op_*.c)
 * into the structs of launch.h; the module only launches. Whatever is handed to a stream runs in
 * order and later: nothing here waits but sync() and, for memory of the host that is not pinned,
 * copy(). Errors name the GPU and the call; after one nothing of the device is used again.
 */
#ifndef TASUKI_KERNELS_CUDA_RUNTIME_H
#define TASUKI_KERNELS_CUDA_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cuda/launch.h"

struct err;
struct cuda_device;
struct cuda_stream;
struct cuda_event;
struct cuda_recording;
struct cuda_product;
struct cuda_convolution;
struct cuda_sdpa_kernel;
struct cuda_image_kernel;
struct cuda_chain_kernel;

#define CUDA_RUNTIME_VERSION 10
#define CUDA_RUNTIME_SYMBOL "tasuki_cuda_runtime"

/* Where texts that took long to make are kept for later runs, each by one that says what it follows from;
 * of the same GPU and CUDA.
 */
struct cuda_store {
    char *(*get)(void *context, const char *what);      /* malloc'ed, NULL: there is none */
    void (*put)(void *context, const char *what, const char *text);
    void *context;
};

struct cuda_runtime {
    int version;
    size_t err_size, launch_size;   /* sizeof(struct err), CUDA_LAUNCH_SIZES */

    /* The one at this PCI address; NULL: the first that CUDA shows. It becomes the calling thread's
     * current device.
     */
    struct cuda_device *(*open)(const char *address, struct err *err);
    void (*close)(struct cuda_device *device);
    /* "NVIDIA H200, sm_90, CUDA 13.0": the key of measured costs. */
    const char *(*name)(const struct cuda_device *device);
    /* The one for what libraries choose; without, nothing is kept. */
    void (*keep_in)(struct cuda_device *device, const struct cuda_store *store);
    size_t (*memory)(const struct cuda_device *device);     /* bytes that were free at open() */

    size_t (*cache)(const struct cuda_device *device);      /* bytes that are still near later */

    /* Zeroed memory of the GPU, aligned to 256 bytes, or pinned memory of the host that kernels can
     * read and write, too.
     */
    void *(*alloc)(struct cuda_device *device, size_t bytes, bool pinned, struct err *err);
    void (*release)(struct cuda_device *device, void *memory, bool pinned);

    struct cuda_stream *(*stream_new)(struct cuda_device *device, struct err *err);
    void (*stream_free)(struct cuda_stream *stream);
    int (*stream_wait)(struct cuda_stream *stream, struct cuda_event *event, struct err *err);
    int (*stream_sync)(struct cuda_stream *stream, struct err *err);
    struct cuda_event *(*event_new)(struct cuda_device *device, bool timed, struct err *err);
    void (*event_free)(struct cuda_event *event);
    int (*event_record)(struct cuda_event *event, struct cuda_stream *stream, struct err *err);
    int (*event_done)(struct cuda_event *event, bool *done, struct err *err);
    int (*event_elapsed)(struct cuda_event *from, struct cuda_event *to, double *seconds,
                         struct err *err);      /* of two that are timed, and done */

    /* What the stream is handed between begin and end is not run, but kept as a CUDA graph. No call
     * in between may wait, nor copy from or to memory of the host that is not pinned. Where end()
     * fails, or another call in between does, nothing is kept.
     */
    int (*record_begin)(struct cuda_stream *stream, struct err *err);
    int (*record_end)(struct cuda_stream *stream, struct cuda_recording **recording,
                      struct err *err);
    int (*replay)(struct cuda_stream *stream, struct cuda_recording *recording, struct err *err);
    void (*recording_free)(struct cuda_recording *recording);

    /* Name what is handed over until pop(), for profilers (NVTX). */
    void (*range_push)(const char *name);
    void (*range_pop)(void);

    /* As in backend.h, where the test's stand-in of the runtime asks. */
    void (*host_touches)(const void *memory, size_t bytes, bool writes);
    void (*forget)(struct cuda_stream *stream, void *memory, size_t bytes);
    void (*renew)(struct cuda_stream *stream, void *memory, size_t bytes);

    /* As in backend.h. */
    int (*copy)(struct cuda_stream *stream, void *to, size_t to_stride, const void *from,
                size_t from_stride, size_t width, size_t rows, struct err *err);
    int (*fill_zero)(struct cuda_stream *stream, void *to, size_t bytes, struct err *err);

    /* Kernels: launch.h says what each does. */
#define CUDA_ENTRY(family) \
    int (*family)(struct cuda_stream *stream, const struct cuda_##family *launch, struct err *err);
    CUDA_FAMILIES(CUDA_ENTRY)
#undef CUDA_ENTRY

    /* Products of matrices. The way to compute one is chosen once: all that are equal share it, and
     * it depends on nothing but their description. '*product' is NULL where there is none: the
     * module was built without cuBLASLt, it knows no way, or what it has is not the activation that
     * is asked for. That a small product shows which is run here, before the first of a kind.
     */
    int (*matmul_new)(struct cuda_device *device, const struct cuda_matmul *matmul,
                      struct cuda_product **product, struct err *err);
    void (*matmul_free)(struct cuda_product *product);
    size_t (*matmul_workspace)(const struct cuda_product *product);
    int (*matmul)(struct cuda_stream *stream, const struct cuda_product *product,
                  const struct cuda_matmul_args *args, struct err *err);

    /* Convolutions, in the same way. */
    int (*conv_new)(struct cuda_device *device, const struct cuda_conv *conv,
                    struct cuda_convolution **convolution, struct err *err);
    void (*conv_free)(struct cuda_convolution *convolution);
    size_t (*conv_workspace)(const struct cuda_convolution *convolution);
    int (*conv)(struct cuda_stream *stream, struct cuda_convolution *convolution,
                const struct cuda_conv_args *args, struct err *err);

    /* Attentions that keep no scores, in the same way. */
    int (*sdpa_new)(struct cuda_device *device, const struct cuda_sdpa *sdpa,
                    struct cuda_sdpa_kernel **kernel, struct err *err);
    void (*sdpa_free)(struct cuda_sdpa_kernel *kernel);
    size_t (*sdpa_workspace)(const struct cuda_sdpa_kernel *kernel);
    int (*sdpa)(struct cuda_stream *stream, struct cuda_sdpa_kernel *kernel,
                const struct cuda_sdpa_args *args, struct err *err);

    /* BatchNorms and pools by a library, in the same way. */
    int (*image_new)(struct cuda_device *device, const struct cuda_image *image,
                     struct cuda_image_kernel **kernel, struct err *err);
    void (*image_free)(struct cuda_image_kernel *kernel);
    size_t (*image_workspace)(const struct cuda_image_kernel *kernel);
    int (*image)(struct cuda_stream *stream, struct cuda_image_kernel *kernel,
                 const struct cuda_image_args *args, struct err *err);

    /* Kernels of chain.c: machine code for this GPU, malloc'ed, of a text that has CUDA_CHAIN_KERNEL; a
     * kernel of such code, which need not be kept; and a launch of it.
     */
    void *(*chain_compile)(struct cuda_device *device, const char *text, size_t *bytes, struct err *err);
    struct cuda_chain_kernel *(*chain_new)(struct cuda_device *device, const void *code, size_t bytes,
                                           struct err *err);
    void (*chain_free)(struct cuda_chain_kernel *kernel);
    int (*chain)(struct cuda_stream *stream, const struct cuda_chain_kernel *kernel,
                 const struct cuda_chain *launch, struct err *err);

    /* Of all these products that were ever made for the device, equal ones once: how many there were, and of
     * how many the library says that what it has chosen runs on tensor cores.
     */
    void (*tensor_cores)(const struct cuda_device *device, int *products, int *on_them);
    /* What those small products showed, in words; "": none was run. */
    const char *(*activations)(const struct cuda_device *device);
};

#endif
