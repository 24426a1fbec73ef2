/* SPDX-License-Identifier: MIT */
/* A stand-in for the CUDA runtime and NCCL (LD_PRELOAD=…/fake_cuda.so), as far as
 * tasuki-cuda.so calls them; kernels run on the host (fake_gpu.cc). Its GPUs are those of
 * fake_machine.c. A stream is done in order, by whoever asks an event, and at random moments in between
 * where $TASUKI_FAKE_SEED is a number. With $TASUKI_FAKE_STRICT a GPU's memory cannot be touched but
 * by what is in streams: who does so from outside dies. Ranks of a communicator share a
 * file beside the other: what one sends the other takes out when the wire had its time. At its end a
 * process writes into $TASUKI_FAKE_COUNT how often it waited for a stream, handed one a kernel, not in a
 * graph, and was given memory of a GPU.
 */
#include "config.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/fake_private.h"

#define MOST_KERNELS 512

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *cudaGetErrorString(cudaError_t error)
{
    static char text[32];

    if (error == cudaErrorMemoryAllocation)
        return "out of memory";
    if (error == cudaErrorNoDevice)
        return "no CUDA-capable device is detected";
    if (error == cudaErrorStreamCaptureUnsupported)
        return "operation not permitted when stream is capturing";
    if (error == cudaErrorStreamCaptureInvalidated)
        return "operation failed due to a previous error during capture";
    if (error == cudaErrorNoKernelImageForDevice)
        return "no kernel image is available for execution on the device";
    snprintf(text, sizeof(text), "error %d", (int)error);
    return text;
}

static __thread bool drives;            /* has this thread set a device? */

cudaError_t cudaSetDevice(int device)
{
    fake_device = fake_visible(device);
    drives = true;
    MAY_FAIL(cudaError_t);
    return fake_device >= 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

static struct CUstream_st *streams;
static struct kernel kernels[MOST_KERNELS];
static int n_kernels;
static long n_syncs, n_launches;

void fake_gpu_run(void (*run)(void *), void *parameter, unsigned blocks, unsigned threads);

void fake_append(struct CUstream_st *stream, struct step *step)
{
    struct step **end = fake_captured(stream);

    if (!end) {
        fake_watch_append(stream, step);
        end = &stream->first;
    }
    while (*end)
        end = &(*end)->next;
    *end = step;
}

struct CUstream_st *fake_other_stream(struct CUstream_st *stream)
{
    return stream->next ? stream->next : streams;
}

const char *fake_kernel_name(const struct kernel *kernel)
{
    return kernel->name;
}

struct step *fake_add_step(struct CUstream_st *stream, enum kind kind)
{
    struct step *step = calloc(1, sizeof(*step));

    step->kind = kind;
    fake_append(stream, step);
    return step;
}

static void copy_row(char *to, const char *from, size_t bytes)
{
    fake_watch_touch(from, bytes, false);
    fake_watch_touch(to, bytes, true);
    memmove(to, from, bytes);
}

static bool do_step(struct step *s)
{
    double since = s->start;

    if (s->start == 0) {
        s->start = since = now();
        if (s->kind == SEND) {
            fake_watch_touch(s->from, s->bytes, false);
            memcpy(s->channel->data, s->from, s->bytes);
            s->channel->bytes = s->bytes;
            s->channel->since = s->start;
            atomic_store(&s->channel->full, 1);
        }
    }
    if (s->kind == SEND)
        return atomic_load(&s->channel->full) == 0;
    if (s->kind == RECEIVE) {
        if (!atomic_load(&s->channel->full))
            return false;
        since = s->channel->since > since ? s->channel->since : since;
    }
    if (s->kind == EVENT) {
        s->event->reached++;
        s->event->time = now();
        return true;
    }
    if (s->kind == WAIT)
        return s->event->reached >= s->until;
    if (now() < since + s->seconds)
        return false;
    if (s->kind == FORGET) {
        fake_watch_forget(s->to, s->bytes);
        return true;
    }
    if (s->kind == RENEW) {
        fake_watch_renew(s->to, s->bytes);
        return true;
    }
    if (s->kind == SET) {
        fake_watch_touch(s->to, s->bytes, true);
        memset(s->to, s->value, s->bytes);
        return true;
    }
    if (s->kind == KERNEL) {
        fake_gpu_run(s->kernel->run, s->own, s->blocks, s->threads);
        return true;
    }
    if (s->kind == CALL) {
        s->call(s->own);
        return true;
    }
    if (s->kind == ASK)
        return s->ask(s->own);
    if (s->kind == COPY) {
        for (size_t r = 0; r < s->rows; r++)
            copy_row((char *)s->to + r * s->to_stride,
                     (const char *)s->from + r * s->from_stride, s->bytes);
        return true;
    }
    if (s->kind == RECEIVE && s->channel->bytes != s->bytes)
        abort();
    fake_watch_touch(s->to, s->bytes, true);
    memcpy(s->to, s->channel->data, s->bytes);
    atomic_store(&s->channel->full, 0);
    return true;
}

static bool step_done(struct step *s)
{
    bool done, wants = s->kind != EVENT && s->kind != WAIT;

    if (!wants)
        return do_step(s);
    fake_open_arena(true);
    fake_watch_begin(s);
    done = do_step(s);
    fake_watch_end();
    fake_open_arena(false);
    return done;
}

static bool run_one(struct CUstream_st *stream)
{
    struct step *first = stream->first;

    if (!first || !step_done(first))
        return false;
    stream->first = first->next;
    free(first->own);
    free(first);
    return true;
}

/* What a stream waits for may be in another one. */
static void run(struct CUstream_st *stream)
{
    while (run_one(stream))
        ;
    for (struct CUstream_st *s = streams; s && stream->first && stream->first->kind == WAIT;
         s = s->next)
        while (s != stream && run_one(s))
            ;
}

static void finish(struct CUstream_st *stream)
{
    while (stream->first)
        run(stream);
}

void fake_finish_all(void)
{
    for (struct CUstream_st *s = streams; s; s = s->next)
        finish(s);
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (s->gpu == fake_device)
            fake_watch_host(&s->clock);
}

void fake_stir(void)
{
    static unsigned short state[3];
    static int seeded = -1;
    const char *seed = getenv("TASUKI_FAKE_SEED");

    if (seeded < 0 && (seeded = seed != NULL))
        state[0] = (unsigned short)atoi(seed);
    for (struct CUstream_st *s = streams; seeded && s; s = s->next)
        while (nrand48(state) % 3 == 0 && run_one(s))
            ;
}

static void go_on(void)
{
    ALONE;

    for (struct CUstream_st *s = streams; s; s = s->next)
        run_one(s);
}

/* Others may wait for a message while the host waits for something else, or has nothing to do. */
int nanosleep(const struct timespec *span, struct timespec *left)
{
    static int (*sleeps)(const struct timespec *, struct timespec *);

    if (!sleeps)
        *(void **)&sleeps = dlsym(RTLD_NEXT, "nanosleep");
    if (drives)
        go_on();
    return sleeps(span, left);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    MAY_FAIL(cudaError_t);
    *stream = calloc(1, sizeof(**stream));
    (*stream)->next = streams;
    (*stream)->gpu = fake_device;
    streams = *stream;
    fake_watch_stream(*stream);
    return flags == cudaStreamNonBlocking ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    MAY_FAIL(cudaError_t);
    if (!stream || fake_refuses_in_capture())
        return cudaErrorStreamCaptureUnsupported;
    n_syncs++;
    if (fake_mutates("skip-sync"))
        return cudaSuccess;
    finish(stream);
    fake_watch_host(&stream->clock);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    struct CUstream_st **at = &streams;
    ALONE;

    if (fake_mutates("keep-stream"))
        return cudaSuccess;
    if (stream->first && fake_watches())
        fake_report("destroys a stream with work under way", NULL);
    if (stream->first && !fake.n_faults)
        abort();                        /* nobody waited for what is under way */
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    struct step *step;

    MAY_FAIL(cudaError_t);
    if (flags)
        return cudaErrorInvalidValue;
    if (!stream || fake_captures(stream))
        return cudaErrorStreamCaptureIsolation;
    if (fake_mutates("skip-wait"))
        return cudaSuccess;
    stream = fake_mutates("swap-wait") ? fake_other_stream(stream) : stream;
    fake_watch_wait(stream, event);
    step = fake_add_step(stream, WAIT);
    step->event = event;
    step->until = event->recorded;
    fake_stir();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    MAY_FAIL(cudaError_t);
    *event = calloc(1, sizeof(**event));
    (*event)->timed = flags == cudaEventDefault;
    return (*event)->timed || flags == cudaEventDisableTiming ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ALONE;

    if (!fake.failed)
        fake_watch_event_end(event);
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    MAY_FAIL(cudaError_t);
    if (!stream || fake_captures(stream))
        return cudaErrorStreamCaptureIsolation;
    if (fake_mutates("skip-record"))
        return cudaSuccess;
    stream = fake_mutates("swap-record") ? fake_other_stream(stream) : stream;
    event->stream = stream;
    event->recorded++;
    fake_add_step(stream, EVENT)->event = event;
    fake_watch_record(event, stream);
    fake_stir();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    MAY_FAIL(cudaError_t);
    if (fake_refuses_in_capture())
        return cudaErrorStreamCaptureUnsupported;
    if (fake_mutates("hasty-query"))
        return cudaSuccess;
    event->awaited = true;
    /* In strict mode a step at a time: what is asked after one after the other is done so. */
    if (event->stream && !fake_is_strict())
        run(event->stream);
    else if (event->stream && !run_one(event->stream))
        run(event->stream);
    /* A GPU goes on with what nobody asks about: others may wait for it. */
    for (struct CUstream_st *s = streams; event->recorded > event->reached && s; s = s->next) {
        if (fake_is_strict())
            run_one(s);
        else
            run(s);
    }
    if (event->recorded > event->reached)
        return cudaErrorNotReady;
    fake_watch_host(&event->clock);
    return cudaSuccess;
}

/* Both must be done by then: it does not wait. */
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    MAY_FAIL(cudaError_t);
    if (!from->timed || !to->timed || !from->recorded || !to->recorded)
        return cudaErrorInvalidResourceHandle;
    if (from->recorded > from->reached || to->recorded > to->reached)
        return cudaErrorNotReady;
    from->awaited = to->awaited = true;
    *milliseconds = (float)(1e3 * (to->time - from->time));
    return cudaSuccess;
}

static bool is_ours(const void *data, size_t size)
{
    return fake_lies(data, size, false) || fake_lies(data, size, true);
}

static char *snapshot(const char *from, size_t stride, size_t width, size_t rows)
{
    char *own = malloc(width * rows);

    for (size_t r = 0; r < rows; r++)
        memcpy(own + r * width, from + r * stride, width);
    return own;
}

/* Memory that the program has from elsewhere is read at once, and written before the call returns. */
static cudaError_t add_copy(void *to, size_t to_stride, const void *from, size_t from_stride,
                            size_t width, size_t rows, cudaStream_t stream)
{
    size_t to_bytes = (rows - 1) * to_stride + width, from_bytes = (rows - 1) * from_stride + width;
    bool from_ours = is_ours(from, from_bytes), to_ours = is_ours(to, to_bytes);
    struct step *step;

    if (!from_ours && !to_ours)
        return cudaErrorInvalidValue;
    if (!stream || ((!from_ours || !to_ours) && fake_refuses_in_capture()))
        return cudaErrorStreamCaptureUnsupported;
    if (fake_mutates("skip-copy"))
        return cudaSuccess;
    width = fake_mutates("short-copy") ? width / 2 : width;
    stream = fake_mutates("swap-copy") ? fake_other_stream(stream) : stream;
    step = fake_add_step(stream, COPY);
    step->to = to;
    step->from = from;
    step->bytes = width;
    step->rows = rows;
    step->to_stride = to_stride;
    step->from_stride = from_stride;
    step->seconds = fake_lies(to, 1, false) && fake_lies(from, 1, false)
                        ? 0 : fake_seconds("host", "host", width * rows);
    if (!from_ours) {
        step->from = step->own = snapshot(from, from_stride, width, rows);
        step->own_bytes = width * rows;
        step->from_stride = width;
    }
    if (!to_ours) {
        finish(stream);
        fake_watch_host(&stream->clock);
    }
    fake_stir();
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    MAY_FAIL(cudaError_t);
    if (kind == cudaMemcpyHostToDevice ? !fake_lies(to, bytes, false)
        : kind == cudaMemcpyDeviceToHost ? !fake_lies(from, bytes, false)
                                         : kind != cudaMemcpyDefault)
        return cudaErrorInvalidValue;
    return add_copy(to, bytes, from, bytes, bytes, 1, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride,
                              size_t width, size_t rows, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    MAY_FAIL(cudaError_t);
    if (kind != cudaMemcpyDefault || width > to_stride || width > from_stride)
        return cudaErrorInvalidPitchValue;
    return add_copy(to, to_stride, from, from_stride, width, rows, stream);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    struct step *step;

    MAY_FAIL(cudaError_t);
    if (!fake_lies(to, bytes, false))
        return cudaErrorInvalidValue;
    if (!stream && fake_refuses_in_capture())
        return cudaErrorStreamCaptureImplicit;
    if (!stream)
        return cudaErrorInvalidResourceHandle;
    if (fake_mutates("skip-set"))
        return cudaSuccess;
    step = fake_add_step(stream, SET);
    step->to = to;
    step->value = value;
    step->bytes = bytes;
    fake_stir();
    return cudaSuccess;
}

/* Kernels ------------------------------------------------------------------------------- */

cudaError_t cudaMemGetInfo(size_t *free, size_t *all)
{
    MAY_FAIL(cudaError_t);
    *free = *all = (size_t)1 << 30;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    MAY_FAIL(cudaError_t);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* What nvcc's code calls when the module is loaded. */
void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *stub, char *name, const char *device_name,
                            int limit, uint3 *a, uint3 *b, dim3 *c, dim3 *d, int *size);

void **__cudaRegisterFatBinary(void *image)
{
    static void *handle;

    (void)image;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *stub, char *name, const char *device_name,
                            int limit, uint3 *a, uint3 *b, dim3 *c, dim3 *d, int *size)
{
    struct kernel *k = &kernels[n_kernels];
    char bytes[256];
    const size_t *found;

    (void)handle, (void)device_name, (void)limit, (void)a, (void)b, (void)c, (void)d, (void)size;
    snprintf(bytes, sizeof(bytes), "%s_bytes", name);
    found = dlsym(RTLD_DEFAULT, bytes);
    if (n_kernels == MOST_KERNELS || !found) {
        fprintf(stderr, "fake GPU: kernel %s is not known\n", name);
        abort();
    }
    k->stub = stub;
    *(void **)&k->run = dlsym(RTLD_DEFAULT, name);
    k->bytes = *found;
    snprintf(k->name, sizeof(k->name), "%s", name);
    n_kernels++;
}

static bool is_mapped(uintptr_t address)
{
    unsigned char there;

    return mincore((void *)(address & ~(uintptr_t)4095), 1, &there) == 0;
}

/* Whatever in a parameter is an address of this process must be of memory that a GPU can read. */
static void check_pointers(const struct kernel *k, const char *parameter)
{
    for (size_t at = 0; at + sizeof(uintptr_t) <= k->bytes; at += sizeof(uintptr_t)) {
        uintptr_t word;

        memcpy(&word, parameter + at, sizeof(word));
        /* A small number of 32 bits, with anything in the hole behind it, is none. */
        if ((word & UINT32_MAX) < 4096 || word >> 32 == 0 || word >> 47 != 0 || is_ours((const void *)word, 0) ||
            !is_mapped(word))
            continue;
        fprintf(stderr, "fake GPU: a kernel is given memory of the host, in byte %zu of its "
                        "parameter\n", at);
        abort();
    }
}

/* What a capture does not allow, where that is the error to be made. */
static void spoil(struct CUstream_st *stream)
{
    void *memory = NULL;
    char word[4] = "";

    if (fake_mutates("sync-in-capture"))
        (void)cudaStreamSynchronize(stream);
    if (fake_mutates("alloc-in-capture"))
        (void)cudaMalloc(&memory, 4);
    if (fake_mutates("pageable-in-capture"))
        (void)cudaMemcpyAsync(word, fake.blocks[0].data, 4, cudaMemcpyDefault, stream);
    if (fake_mutates("legacy-in-capture"))
        (void)cudaMemsetAsync(fake.blocks[0].data, 0, 4, NULL);
}

static const struct kernel *find_kernel(const void *stub)
{
    for (const struct kernel *k = kernels; k < kernels + n_kernels; k++)
        if (k->stub == stub)
            return k;
    return NULL;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *stub)
{
    int gpu = fake_device < 0 ? 0 : fake_device;

    MAY_FAIL(cudaError_t);
    memset(attributes, 0, sizeof(*attributes));
    if (!find_kernel(stub))
        return cudaErrorInvalidDeviceFunction;
    return fake.code && fake.code != fake.compute[gpu] / 10 ? cudaErrorNoKernelImageForDevice
                                                            : cudaSuccess;
}

/* Nothing that failed is remembered. */
cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t fake_launch(const struct kernel *k, dim3 blocks, dim3 threads, const void *argument,
                        size_t shared, cudaStream_t stream)
{
    struct step *step;

    if (blocks.x == 0 || threads.x == 0 || threads.x > 1024 || blocks.y * blocks.z != 1 ||
        threads.y * threads.z != 1 || shared)
        return cudaErrorInvalidConfiguration;
    check_pointers(k, argument);
    if (!stream && fake_refuses_in_capture())
        return cudaErrorStreamCaptureImplicit;
    if (!stream)
        return cudaErrorInvalidResourceHandle;
    if (fake_captures(stream))
        spoil(stream);
    else
        n_launches++;
    if (fake_mutates("skip-kernel"))
        return cudaSuccess;
    stream = fake_mutates("swap-kernel") ? fake_other_stream(stream) : stream;
    step = fake_add_step(stream, KERNEL);
    step->kernel = k;
    step->own = malloc(k->bytes);
    step->own_bytes = k->bytes;
    memcpy(step->own, argument, k->bytes);
    step->blocks = blocks.x;
    step->threads = threads.x;
    fake_stir();
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *stub, dim3 blocks, dim3 threads, void **arguments,
                             size_t shared, cudaStream_t stream)
{
    const struct kernel *k = find_kernel(stub);

    MAY_FAIL(cudaError_t);
    return k ? fake_launch(k, blocks, threads, arguments[0], shared, stream)
             : cudaErrorInvalidDeviceFunction;
}

void fake_enqueue(cudaStream_t stream, void (*call)(void *), const void *argument,
                  size_t bytes)
{
    ALONE;
    struct step *step;

    if (fake_mutates("skip-call"))
        return;
    step = fake_add_step(stream, CALL);
    step->call = call;
    step->own = malloc(bytes);
    step->own_bytes = bytes;
    memcpy(step->own, argument, bytes);
    fake_stir();
}

static void write_counts(const char *path)
{
    FILE *file = path ? fopen(path, "we") : NULL;

    if (!file)
        return;
    fprintf(file, "syncs %ld launches %ld mallocs %ld\n", n_syncs, n_launches, fake_mallocs);
    fclose(file);
}

/* What stops in the middle keeps what it has. */
__attribute__((destructor)) static void look_back(void)
{
    int n = 0;

    for (const struct CUstream_st *s = streams; s; s = s->next)
        n++;
    write_counts(getenv("TASUKI_FAKE_COUNT"));
    if (fake_watches() && !fake.failed)
        fake_watch_left(n, fake_graphs_left());
}
