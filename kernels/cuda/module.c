/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: the GPU, its memory, and copies to and from the host. */
#include "kernels/cuda/module_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

int cuda_error(const char *address, cudaError_t code, const char *call, struct err *err)
{
    return err_set(err, "%s%s%s%.*s: %s", *address ? "GPU " : "", address, *address ? ": " : "",
                   (int)strcspn(call, "("), call, cudaGetErrorString(code));
}

static cudaError_t describe_gpu(int gpu, struct cuda_address *address)
{
    int major, minor;
    cudaError_t code = cudaDeviceGetPCIBusId(address->text, (int)sizeof(address->text), gpu);

    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu);
    if (code == cudaSuccess)
        address->architecture = 10 * major + minor;
    return code;
}

static int list_gpus(int *n, struct cuda_address **addresses, struct err *err)
{
    static const struct cuda_gpu none = { .address = "" };
    struct cuda_address *list;
    int count;

    CUDA_CHECK(&none, cudaGetDeviceCount(&count), err);
    list = mem_new((size_t)count, sizeof(*list));
    for (int i = 0; i < count; i++) {
        cudaError_t code = describe_gpu(i, &list[i]);

        if (code == cudaSuccess)
            continue;
        free(list);
        return cuda_error("", code, "asking what a GPU is", err);
    }
    *n = count;
    *addresses = list;
    return 0;
}

static int use(struct cuda_gpu *gpu, struct err *err)
{
    struct cuda_state *state = cuda_state(gpu);
    int device;

    CUDA_CHECK(gpu, cudaDeviceGetByPCIBusId(&device, gpu->address), err);
    CUDA_CHECK(gpu, cudaSetDevice(device), err);
    CUDA_CHECK(gpu, cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking), err);
    for (int i = 0; i < CUDA_SLOTS; i++)
        CUDA_CHECK(gpu, cudaEventCreateWithFlags(&state->events[i], cudaEventDisableTiming),
                   err);
    CUDA_CHECK(gpu, cudaMalloc((void **)&gpu->device, gpu->bytes), err);
    CUDA_CHECK(gpu, cudaMallocHost((void **)&gpu->host, gpu->bytes), err);
    memset(gpu->host, 1, gpu->bytes);
    CUDA_CHECK(gpu, cudaMemcpyAsync(gpu->device, gpu->host, gpu->bytes, cudaMemcpyHostToDevice,
                                    state->stream), err);
    CUDA_CHECK(gpu, cudaStreamSynchronize(state->stream), err);
    return 0;
}

/* What it is used for has ended: that a call fails now helps nobody. */
static void close_gpu(struct cuda_gpu *gpu)
{
    struct cuda_state *state = cuda_state(gpu);

#ifdef HAVE_NCCL
    cuda_disconnect(gpu);
#endif
    for (int i = 0; i < CUDA_SLOTS; i++)
        if (state->events[i])
            (void)cudaEventDestroy(state->events[i]);
    if (state->stream)
        (void)cudaStreamDestroy(state->stream);
    (void)cudaFree(gpu->device);
    (void)cudaFreeHost(gpu->host);
    free(state);
    free(gpu);
}

static struct cuda_gpu *open_gpu(const char *address, size_t bytes, struct err *err)
{
    struct cuda_gpu *gpu = mem_new(1, sizeof(*gpu));

    snprintf(gpu->address, sizeof(gpu->address), "%s", address);
    gpu->bytes = bytes;
    gpu->state = mem_new(1, sizeof(struct cuda_state));
    if (use(gpu, err) == 0)
        return gpu;
    close_gpu(gpu);
    return NULL;
}

int cuda_mark(struct cuda_gpu *gpu, int slot, struct err *err)
{
    struct cuda_state *state = cuda_state(gpu);

    CUDA_CHECK(gpu, cudaEventRecord(state->events[slot], state->stream), err);
    return 0;
}

static int copy(struct cuda_gpu *gpu, int slot, void *to, const void *from, size_t bytes,
                struct err *err)
{
    CUDA_CHECK(gpu, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault,
                                    cuda_state(gpu)->stream), err);
    return cuda_mark(gpu, slot, err);
}

static int is_done(struct cuda_gpu *gpu, int slot, bool *done, struct err *err)
{
    cudaError_t code = cudaEventQuery(cuda_state(gpu)->events[slot]);

    *done = code == cudaSuccess;
    if (code == cudaSuccess || code == cudaErrorNotReady)
        return 0;
    return cuda_error(gpu->address, code, "cudaEventQuery", err);
}

__attribute__((visibility("default"))) extern const struct cuda_driver tasuki_cuda_driver;

const struct cuda_driver tasuki_cuda_driver = {
    .version = CUDA_DRIVER_VERSION,
    .err_size = sizeof(struct err),
    .gpu_size = sizeof(struct cuda_gpu),
    .list = list_gpus,
    .open = open_gpu,
    .close = close_gpu,
    .copy = copy,
    .done = is_done,
#ifdef HAVE_NCCL
    .nccl = cuda_nccl,
    .id = cuda_id,
    .connect = cuda_connect,
    .ready = cuda_ready,
    .post = cuda_post,
    .launched = cuda_launched,
    .leave = cuda_leave,
#endif
};
