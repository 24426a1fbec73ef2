/* SPDX-License-Identifier: MIT */
/* Graphs of cuDNN's backend API: made of descriptors, given an engine, run. For module_conv.c,
 * module_sdpa.c and module_image.c.
 */
#ifndef TASUKI_KERNELS_CUDA_MODULE_CUDNN_H
#define TASUKI_KERNELS_CUDA_MODULE_CUDNN_H

#include "kernels/cuda/module_private.h"

#include <cudnn.h>

#define CUDNN_IMAGINES (CUDNN_VERSION >= 91100)
#define CUDNN_ALIGNMENT 16      /* of operands: the widest load */
#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

/* How one graph is computed. */
struct cudnn_plan {
    struct cuda_device *device;
    bool unknown;                       /* cuDNN does not have it */
    int n_owned;
    cudnnBackendDescriptor_t *owned;    /* all that refer to each other, in order */
    cudnnBackendDescriptor_t execution; /* one of them, in the end; NULL: no engine does */
    int64_t workspace;
    bool on_tensor_cores;
};

struct cudnn_attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    const void *values;
};

struct cudnn_tensor {
    int64_t name;               /* of the operand within the graph */
    cudnnDataType_t type;
    int rank;
    int64_t dim[5], stride[5];
    bool is_virtual;            /* it has no place in memory */
    bool by_value;              /* a number, of the host's memory */
};

/* Is an engine that says this of itself good enough? */
typedef bool cudnn_note_fits(const void *what, cudnnBackendNumericalNote_t note);

struct cudnn_choice {
    cudnn_note_fits *note_fits;
    const void *what;
    int64_t workspace_limit;
    bool compiles;              /* take engines that are compiled now, which can take seconds, and what
                                 * is there for the worst case */
};

int cudnn_open(struct cuda_device *device, struct err *err);
#if CUDNN_IMAGINES
/* In place of it, of a GPU that is not here: what cuDNN would choose for one with these properties, which
 * it writes as JSON itself, can be asked, and nothing be run. For tests.
 */
int cudnn_imagine(struct cuda_device *device, const char *properties, struct err *err);
#endif
cudnnHandle_t cudnn_handle(const struct cuda_device *device);
/* "GPU 0000:1b:00.0: cudnnBackendFinalize: CUDNN_STATUS_…: …" */
int cudnn_error(const struct cuda_device *device, cudnnStatus_t code, const char *call,
                struct err *err);
/* A descriptor with these attributes, finished; 'unknown' is set where cuDNN lacks it. */
int cudnn_build(struct cudnn_plan *p, cudnnBackendDescriptorType_t type,
                const struct cudnn_attribute *list, int n, cudnnBackendDescriptor_t *descriptor,
                struct err *err);
int cudnn_build_tensor(struct cudnn_plan *p, const struct cudnn_tensor *tensor,
                       cudnnBackendDescriptor_t *descriptor, struct err *err);

/* A graph while it is made; the first error ends it, and what is built behind it is NULL. */
struct cudnn_graph {
    struct cudnn_plan *plan;
    bool failed;
    struct err *err;
};

cudnnBackendDescriptor_t cudnn_add(struct cudnn_graph *g, cudnnBackendDescriptorType_t type,
                                   const struct cudnn_attribute *list, int n);
cudnnBackendDescriptor_t cudnn_add_tensor(struct cudnn_graph *g, const struct cudnn_tensor *tensor);

/* The first engine that fits and does not refuse. None: 0, and 'execution' stays NULL. */
int cudnn_choose(struct cudnn_plan *p, const cudnnBackendDescriptor_t *operations, int n,
                 const struct cudnn_choice *choice, struct err *err);
void cudnn_clear(struct cudnn_plan *p);

/* The plan that an earlier run remembered for what these bytes describe, in the device's store. 'kind' is
 * one word. Whatever stands in the way: false, and it is to be chosen.
 */
bool cudnn_recall(struct cudnn_plan *p, const char *kind, const void *what, size_t bytes,
                  int64_t workspace_limit);
void cudnn_remember(const struct cudnn_plan *p, const char *kind, const void *what, size_t bytes);

struct cudnn_family {
    const char *kind;
    size_t bytes;               /* of what describes one */
    int64_t workspace_limit;
    bool of_products;           /* they are counted as such */
    int (*choose)(struct cudnn_plan *p, const void *what, int64_t workspace_limit, struct err *err);
};

/* The plan of what this describes, recalled, or chosen and remembered. It stays until the device is closed,
 * as each layer asks for it, also where cuDNN has none, for whatever reason: there is another way then.
 * module_conv.c, which has to tell errors, has a table of its own.
 */
const struct cudnn_plan *cudnn_plan_of(struct cuda_device *device, const struct cudnn_family *family,
                                       const void *what);

/* A pack cannot be changed: the old one in '*pack' is destroyed. */
int cudnn_make_pack(const struct cudnn_plan *p, const int64_t *ids, const void *const *at, int n,
                    void *workspace, cudnnBackendDescriptor_t *pack, struct err *err);
int cudnn_execute(const struct cudnn_plan *p, cudaStream_t stream, cudnnBackendDescriptor_t pack,
                  struct err *err);

/* Return -1 from the caller, with what cuDNN says of the failed call on this GPU. */
#define CUDNN_CHECK(device, call, err)                                      \
    do {                                                                    \
        cudnnStatus_t cudnn_check_code = (call);                            \
        if (cudnn_check_code != CUDNN_STATUS_SUCCESS)                       \
            return cudnn_error(device, cudnn_check_code, #call, (err));     \
    } while (0)

#endif
