/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: memory, streams, events and launches for training. */
#include "kernels/cuda/module_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAVE_NVTX 1
#endif

#include "base/mem.h"
#include "kernels/cuda/module.h"
#include "kernels/cuda/runtime.h"

#define SPARED ((size_t)1 << 30)    /* bytes at least */

struct cuda_event {
    struct cuda_device *device;
    cudaEvent_t event;
};

static int find_device(struct cuda_device *d, const char *address, struct err *err)
{
    int n;

    CUDA_CHECK(d, cudaGetDeviceCount(&n), err);
    if (address) {
        snprintf(d->address, sizeof(d->address), "%s", address);
        CUDA_CHECK(d, cudaDeviceGetByPCIBusId(&d->number, address), err);
        return 0;
    }
    CUDA_CHECK(d, cudaDeviceGetPCIBusId(d->address, (int)sizeof(d->address), 0), err);
    return 0;
}

static int name_device(struct cuda_device *d, struct err *err)
{
    struct cudaDeviceProp p;
    int version;

    CUDA_CHECK(d, cudaGetDeviceProperties(&p, d->number), err);
    CUDA_CHECK(d, cudaRuntimeGetVersion(&version), err);
    d->cache = (size_t)p.l2CacheSize;
    snprintf(d->name, sizeof(d->name), "%.128s, sm_%d%d, CUDA %d.%d", p.name, p.major, p.minor,
             version / 1000, version % 1000 / 10);
    return 0;
}

/* Else the first launch would fail, with less to say. */
static int check_code(const struct cuda_device *d, struct err *err)
{
    cudaError_t code = cuda_code();
    char architectures[128];

    if (code != cudaErrorNoKernelImageForDevice && code != cudaErrorInvalidDeviceFunction &&
        code != cudaErrorUnsupportedPtxVersion) {
        CUDA_CHECK(d, code, err);
        return 0;
    }
    (void)cudaGetLastError();
    cuda_architectures(architectures, sizeof(architectures));
    return err_set(err, "GPU %s: %s: this tasuki-cuda.so has code for %s (%s): configure "
                   "--with-nvcc-gencode says for which it is built", d->address, d->name, architectures,
                   cudaGetErrorString(code));
}

static int use_device(struct cuda_device *d, const char *address, struct err *err)
{
    size_t all;

    if (find_device(d, address, err) || name_device(d, err))
        return -1;
    CUDA_CHECK(d, cudaSetDevice(d->number), err);
    if (check_code(d, err))
        return -1;
    CUDA_CHECK(d, cudaMemGetInfo(&d->memory, &all), err);
    CUDA_CHECK(d, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), err);
    return 0;
}

/* What it was used for has ended: that a call fails now helps nobody. */
static void close_device(struct cuda_device *device)
{
#ifdef HAVE_CUBLASLT
    cuda_activations_clear(device);
    cuda_cublas_close(device);
#endif
#ifdef HAVE_CUDNN
    cuda_cudnn_close(device);
#endif
    if (device->stream)
        (void)cudaStreamDestroy(device->stream);
    free(device);
}

static struct cuda_device *open_device(const char *address, struct err *err)
{
    struct cuda_device *d = mem_new(1, sizeof(*d));

    if (use_device(d, address, err) == 0)
        return d;
    close_device(d);
    return NULL;
}

static void keep_in(struct cuda_device *device, const struct cuda_store *store)
{
    device->store = *store;
}

static const char *device_name(const struct cuda_device *device)
{
    return device->name;
}

/* Libraries load their code when it is first run, and each allocation is rounded up. */
static size_t device_memory(const struct cuda_device *device)
{
    size_t spared = device->memory / 32 > SPARED ? device->memory / 32 : SPARED;

    return device->memory > 2 * spared ? device->memory - spared : device->memory / 2;
}

/* Of two parts, each of which keeps for its half of the GPU what that reads, too. */
static size_t device_cache(const struct cuda_device *device)
{
    return device->cache / 2;
}

/* tests/fake_watch.c has these; no real runtime does. */
__attribute__((weak)) void tasuki_watch_host(const void *memory, size_t bytes, bool writes);
__attribute__((weak)) void tasuki_watch_forget(cudaStream_t stream, void *memory, size_t bytes);
__attribute__((weak)) void tasuki_watch_renew(cudaStream_t stream, void *memory, size_t bytes);

static void host_touches(const void *memory, size_t bytes, bool writes)
{
    if (tasuki_watch_host)
        tasuki_watch_host(memory, bytes, writes);
}

static void forget(struct cuda_stream *stream, void *memory, size_t bytes)
{
    if (tasuki_watch_forget && bytes)
        tasuki_watch_forget(stream->stream, memory, bytes);
}

static void renew(struct cuda_stream *stream, void *memory, size_t bytes)
{
    if (tasuki_watch_renew && bytes)
        tasuki_watch_renew(stream->stream, memory, bytes);
}

static int allocate(struct cuda_device *d, size_t bytes, bool pinned, void **memory,
                    struct err *err)
{
    if (pinned) {
        CUDA_CHECK(d, cudaMallocHost(memory, bytes), err);
        memset(*memory, 0, bytes);
        host_touches(*memory, bytes, true);
        return 0;
    }
    CUDA_CHECK(d, cudaMalloc(memory, bytes), err);
    CUDA_CHECK(d, cudaMemsetAsync(*memory, 0, bytes, d->stream), err);
    CUDA_CHECK(d, cudaStreamSynchronize(d->stream), err);
    return 0;
}

static void *alloc(struct cuda_device *device, size_t bytes, bool pinned, struct err *err)
{
    void *memory = NULL;

    return allocate(device, bytes ? bytes : 1, pinned, &memory, err) == 0 ? memory : NULL;
}

static void release(struct cuda_device *device, void *memory, bool pinned)
{
    (void)device;
    if (memory)
        (void)(pinned ? cudaFreeHost(memory) : cudaFree(memory));
}

static int make_stream(struct cuda_stream *s, struct err *err)
{
    CUDA_CHECK(s->device, cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), err);
    return 0;
}

static struct cuda_stream *stream_new(struct cuda_device *device, struct err *err)
{
    struct cuda_stream *s = mem_new(1, sizeof(*s));

    s->device = device;
    if (make_stream(s, err) == 0)
        return s;
    free(s);
    return NULL;
}

static void stream_free(struct cuda_stream *stream)
{
    if (!stream)
        return;
    (void)cudaStreamDestroy(stream->stream);
    free(stream);
}

static int stream_wait(struct cuda_stream *stream, struct cuda_event *event, struct err *err)
{
    CUDA_CHECK(stream->device, cudaStreamWaitEvent(stream->stream, event->event, 0), err);
    return 0;
}

static int stream_sync(struct cuda_stream *stream, struct err *err)
{
    CUDA_CHECK(stream->device, cudaStreamSynchronize(stream->stream), err);
    return 0;
}

static int make_event(struct cuda_event *e, bool timed, struct err *err)
{
    CUDA_CHECK(e->device,
               cudaEventCreateWithFlags(&e->event, timed ? cudaEventDefault
                                                         : cudaEventDisableTiming), err);
    return 0;
}

static struct cuda_event *event_new(struct cuda_device *device, bool timed, struct err *err)
{
    struct cuda_event *e = mem_new(1, sizeof(*e));

    e->device = device;
    if (make_event(e, timed, err) == 0)
        return e;
    free(e);
    return NULL;
}

static void event_free(struct cuda_event *event)
{
    if (!event)
        return;
    (void)cudaEventDestroy(event->event);
    free(event);
}

static int event_record(struct cuda_event *event, struct cuda_stream *stream, struct err *err)
{
    CUDA_CHECK(event->device, cudaEventRecord(event->event, stream->stream), err);
    return 0;
}

static int event_done(struct cuda_event *event, bool *done, struct err *err)
{
    cudaError_t code = cudaEventQuery(event->event);

    *done = code == cudaSuccess;
    if (code == cudaSuccess || code == cudaErrorNotReady)
        return 0;
    return cuda_error(event->device->address, code, "cudaEventQuery", err);
}

static int event_elapsed(struct cuda_event *from, struct cuda_event *to, double *seconds,
                         struct err *err)
{
    float milliseconds;

    CUDA_CHECK(from->device, cudaEventElapsedTime(&milliseconds, from->event, to->event), err);
    *seconds = 1e-3 * (double)milliseconds;
    return 0;
}

struct cuda_recording {
    struct cuda_device *device;
    cudaGraphExec_t graph;
};

/* Of this thread alone: others may allocate meanwhile. */
static int record_begin(struct cuda_stream *stream, struct err *err)
{
    CUDA_CHECK(stream->device,
               cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeThreadLocal), err);
    return 0;
}

static int make_recording(struct cuda_device *d, cudaGraph_t graph, cudaGraphExec_t *made,
                          struct err *err)
{
    CUDA_CHECK(d, cudaGraphInstantiateWithFlags(made, graph, 0), err);
    return 0;
}

static int record_end(struct cuda_stream *stream, struct cuda_recording **recording,
                      struct err *err)
{
    struct cuda_device *d = stream->device;
    cudaGraph_t graph;
    cudaGraphExec_t made;
    int bad;

    CUDA_CHECK(d, cudaStreamEndCapture(stream->stream, &graph), err);
    bad = make_recording(d, graph, &made, err);
    (void)cudaGraphDestroy(graph);
    if (bad)
        return -1;
    *recording = mem_new(1, sizeof(**recording));
    **recording = (struct cuda_recording){ .device = d, .graph = made };
    return 0;
}

static int replay(struct cuda_stream *stream, struct cuda_recording *recording, struct err *err)
{
    CUDA_CHECK(stream->device, cudaGraphLaunch(recording->graph, stream->stream), err);
    return 0;
}

static void recording_free(struct cuda_recording *recording)
{
    (void)cudaGraphExecDestroy(recording->graph);
    free(recording);
}

static void range_push(const char *name)
{
#ifdef HAVE_NVTX
    nvtxRangePushA(name);
#else
    (void)name;
#endif
}

static void range_pop(void)
{
#ifdef HAVE_NVTX
    nvtxRangePop();
#endif
}

static int copy(struct cuda_stream *stream, void *to, size_t to_stride, const void *from,
                size_t from_stride, size_t width, size_t rows, struct err *err)
{
    if (width == 0 || rows == 0)
        return 0;
    if (rows == 1 || (to_stride == width && from_stride == width))
        CUDA_CHECK(stream->device, cudaMemcpyAsync(to, from, width * rows, cudaMemcpyDefault,
                                                   stream->stream), err);
    else
        CUDA_CHECK(stream->device, cudaMemcpy2DAsync(to, to_stride, from, from_stride, width,
                                                     rows, cudaMemcpyDefault, stream->stream),
                   err);
    return 0;
}

static int fill_zero(struct cuda_stream *stream, void *to, size_t bytes, struct err *err)
{
    if (bytes)
        CUDA_CHECK(stream->device, cudaMemsetAsync(to, 0, bytes, stream->stream), err);
    return 0;
}

/* A kernel that this GPU has no code for fails here, too. */
#define LAUNCH(family)                                                                      \
    static int launch_##family(struct cuda_stream *stream, const struct cuda_##family *launch, \
                               struct err *err)                                             \
    {                                                                                       \
        cudaError_t code = cuda_launch_##family(stream->stream, launch);                    \
                                                                                            \
        return code == cudaSuccess                                                          \
                   ? 0                                                                      \
                   : cuda_error(stream->device->address, code, "kernel " #family, err);     \
    }
CUDA_FAMILIES(LAUNCH)

static void tensor_cores(const struct cuda_device *device, int *products, int *on_them)
{
    *products = device->products;
    *on_them = device->on_tensor_cores;
}

static const char *activations(const struct cuda_device *device)
{
    return device->activations;
}

#ifndef HAVE_CUBLASLT
static int no_matmul(struct cuda_device *device, const struct cuda_matmul *matmul,
                     struct cuda_product **product, struct err *err)
{
    (void)device, (void)matmul, (void)err;
    *product = NULL;
    return 0;
}
#endif

#ifndef HAVE_CUDNN
static int no_conv(struct cuda_device *device, const struct cuda_conv *conv,
                   struct cuda_convolution **convolution, struct err *err)
{
    (void)device, (void)conv, (void)err;
    *convolution = NULL;
    return 0;
}

static int no_sdpa(struct cuda_device *device, const struct cuda_sdpa *sdpa,
                   struct cuda_sdpa_kernel **kernel, struct err *err)
{
    (void)device, (void)sdpa, (void)err;
    *kernel = NULL;
    return 0;
}

static int no_image(struct cuda_device *device, const struct cuda_image *image,
                    struct cuda_image_kernel **kernel, struct err *err)
{
    (void)device, (void)image, (void)err;
    *kernel = NULL;
    return 0;
}
#endif

#define ENTRY(family) .family = launch_##family,

__attribute__((visibility("default"))) extern const struct cuda_runtime tasuki_cuda_runtime;

const struct cuda_runtime tasuki_cuda_runtime = {
    .version = CUDA_RUNTIME_VERSION,
    .err_size = sizeof(struct err),
    .launch_size = CUDA_LAUNCH_SIZES,
    .open = open_device,
    .close = close_device,
    .name = device_name,
    .keep_in = keep_in,
    .memory = device_memory,
    .cache = device_cache,
    .alloc = alloc,
    .release = release,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .stream_wait = stream_wait,
    .stream_sync = stream_sync,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_done = event_done,
    .event_elapsed = event_elapsed,
    .record_begin = record_begin,
    .record_end = record_end,
    .replay = replay,
    .recording_free = recording_free,
    .range_push = range_push,
    .range_pop = range_pop,
    .host_touches = host_touches,
    .forget = forget,
    .renew = renew,
    .copy = copy,
    .fill_zero = fill_zero,
    CUDA_FAMILIES(ENTRY)
#ifdef HAVE_CUBLASLT
    .matmul_new = cuda_matmul_new,
    .matmul_free = cuda_matmul_free,
    .matmul_workspace = cuda_matmul_workspace,
    .matmul = cuda_matmul_run,
#else
    .matmul_new = no_matmul,
#endif
#ifdef HAVE_CUDNN
    .conv_new = cuda_conv_new,
    .conv_free = cuda_conv_free,
    .conv_workspace = cuda_conv_workspace,
    .conv = cuda_conv_run,
    .sdpa_new = cuda_sdpa_new,
    .sdpa_free = cuda_sdpa_free,
    .sdpa_workspace = cuda_sdpa_workspace,
    .sdpa = cuda_sdpa_run,
    .image_new = cuda_image_new,
    .image_free = cuda_image_free,
    .image_workspace = cuda_image_workspace,
    .image = cuda_image_run,
#else
    .conv_new = no_conv,
    .sdpa_new = no_sdpa,
    .image_new = no_image,
#endif
    .chain_compile = cuda_chain_compile,
    .chain_new = cuda_chain_new,
    .chain_free = cuda_chain_free,
    .chain = cuda_chain_run,
    .tensor_cores = tensor_cores,
    .activations = activations,
};
