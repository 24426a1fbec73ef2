/* SPDX-License-Identifier: MIT */
/* A GPU that is not here, for planning: the part of the table of runtime.h by which kernels are made.
 *
 * What libraries would choose nobody can ask: they are taken to have everything that the core asks them
 * for, and to want as much scratch as they are given at most (of an attention, what its method needs), so
 * that a stage which is planned for such a GPU fits a real one. Whether tensor cores are used is not known.
 * Nothing is handed to a stream: those members are NULL.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "kernels/cuda/cuda.h"

#define MATMUL_SCRATCH ((size_t)32 << 20)       /* the limit of module_cublas.c */
#define CONV_SCRATCH ((size_t)256 << 20)        /* of module_conv.c */
#define ATTENTION_SCRATCH ((size_t)1 << 30)     /* of module_sdpa.c */
#define ATTENTION_TILE 128
#define SPARE ((size_t)1024)                    /* for what libraries want aligned */

struct cuda_device {
    char name[128];
};

/* Of these there is nothing to know but that they are there. */
struct cuda_product {
    char nothing;
};

struct cuda_convolution {
    char nothing;
};

struct cuda_sdpa_kernel {
    size_t scratch;
};

struct cuda_image_kernel {
    char nothing;
};

struct cuda_chain_kernel {
    char nothing;
};

static struct cuda_product any_product;
static struct cuda_convolution any_convolution;
static struct cuda_image_kernel any_image;
static struct cuda_chain_kernel any_chain;

static struct cuda_device *imagine(const char *kind, struct err *err)
{
    struct cuda_device *device = mem_new(1, sizeof(*device));

    (void)err;
    snprintf(device->name, sizeof(device->name), "%s, not here", kind && *kind ? kind : "any GPU");
    return device;
}

static void forget(struct cuda_device *device)
{
    free(device);
}

static const char *name(const struct cuda_device *device)
{
    return device->name;
}

/* Of the host; it is only touched where something runs. */
static void *alloc(struct cuda_device *device, size_t bytes, bool pinned, struct err *err)
{
    (void)device, (void)pinned, (void)err;
    return mem_new(bytes, 1);
}

static void release(struct cuda_device *device, void *memory, bool pinned)
{
    (void)device, (void)pinned;
    free(memory);
}

static size_t nothing(const struct cuda_device *device)
{
    (void)device;
    return 0;
}

static int matmul_new(struct cuda_device *device, const struct cuda_matmul *matmul,
                      struct cuda_product **product, struct err *err)
{
    (void)device, (void)matmul, (void)err;
    *product = &any_product;
    return 0;
}

static void matmul_free(struct cuda_product *product)
{
    (void)product;
}

static size_t matmul_workspace(const struct cuda_product *product)
{
    (void)product;
    return MATMUL_SCRATCH;
}

static int conv_new(struct cuda_device *device, const struct cuda_conv *conv,
                    struct cuda_convolution **convolution, struct err *err)
{
    (void)device, (void)conv, (void)err;
    *convolution = &any_convolution;
    return 0;
}

static void conv_free(struct cuda_convolution *convolution)
{
    (void)convolution;
}

static size_t conv_workspace(const struct cuda_convolution *convolution)
{
    (void)convolution;
    return CONV_SCRATCH;
}

static size_t whole_tiles(int64_t n)
{
    return (size_t)((n + ATTENTION_TILE - 1) / ATTENTION_TILE * ATTENTION_TILE);
}

/* Of cuDNN's that gives the same bits each time: the gradient of all scores in 16 bits, a sum of each of
 * their rows, and gradients for each head of keys and values that several share (test_cudnn). What wants
 * more than it is given is done otherwise.
 */
static int sdpa_new(struct cuda_device *device, const struct cuda_sdpa *sdpa,
                    struct cuda_sdpa_kernel **kernel, struct err *err)
{
    size_t heads = (size_t)(sdpa->batch * sdpa->heads), scratch = 0;

    (void)device, (void)err;
    *kernel = NULL;
    if (sdpa->gradient) {
        scratch = heads * whole_tiles(sdpa->m) * whole_tiles(sdpa->n) * CUDA_NARROW_BYTES;
        if (sdpa->group > 1)
            scratch += heads * (size_t)(sdpa->n * (sdpa->d + sdpa->e)) * CUDA_NARROW_BYTES;
        if (scratch > ATTENTION_SCRATCH)
            return 0;
        scratch += heads * (size_t)sdpa->m * sizeof(float);
    }
    *kernel = mem_new(1, sizeof(**kernel));
    (*kernel)->scratch = scratch + SPARE;
    return 0;
}

static void sdpa_free(struct cuda_sdpa_kernel *kernel)
{
    free(kernel);
}

static size_t sdpa_workspace(const struct cuda_sdpa_kernel *kernel)
{
    return kernel->scratch;
}

/* A MaxPool that a real one lacks after all keeps positions of four bytes in place of one. */
static int image_new(struct cuda_device *device, const struct cuda_image *image,
                     struct cuda_image_kernel **kernel, struct err *err)
{
    (void)device, (void)image, (void)err;
    *kernel = &any_image;
    return 0;
}

static void image_free(struct cuda_image_kernel *kernel)
{
    (void)kernel;
}

static size_t image_workspace(const struct cuda_image_kernel *kernel)
{
    (void)kernel;
    return CUDA_IMAGE_SCRATCH + SPARE;
}

static void *chain_compile(struct cuda_device *device, const char *text, size_t *bytes, struct err *err)
{
    (void)device, (void)text, (void)err;
    *bytes = 1;
    return mem_new(1, 1);
}

static struct cuda_chain_kernel *chain_new(struct cuda_device *device, const void *code, size_t bytes,
                                           struct err *err)
{
    (void)device, (void)code, (void)bytes, (void)err;
    return &any_chain;
}

static void chain_free(struct cuda_chain_kernel *kernel)
{
    (void)kernel;
}

static void tensor_cores(const struct cuda_device *device, int *products, int *on_them)
{
    (void)device;
    *products = *on_them = 0;
}

static const char *activations(const struct cuda_device *device)
{
    (void)device;
    return "";
}

const struct cuda_runtime cuda_absent = {
    .version = CUDA_RUNTIME_VERSION,
    .err_size = sizeof(struct err),
    .launch_size = CUDA_LAUNCH_SIZES,
    .open = imagine,
    .close = forget,
    .name = name,
    .memory = nothing,
    .cache = nothing,
    .alloc = alloc,
    .release = release,
    .matmul_new = matmul_new,
    .matmul_free = matmul_free,
    .matmul_workspace = matmul_workspace,
    .conv_new = conv_new,
    .conv_free = conv_free,
    .conv_workspace = conv_workspace,
    .sdpa_new = sdpa_new,
    .sdpa_free = sdpa_free,
    .sdpa_workspace = sdpa_workspace,
    .image_new = image_new,
    .image_free = image_free,
    .image_workspace = image_workspace,
    .chain_compile = chain_compile,
    .chain_new = chain_new,
    .chain_free = chain_free,
    .tensor_cores = tensor_cores,
    .activations = activations,
};
