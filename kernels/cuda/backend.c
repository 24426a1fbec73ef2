/* SPDX-License-Identifier: MIT */
/* The "cuda" backend: struct backend over the table of tasuki-cuda.so. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "kernels/cuda/border.h"
#include "kernels/cuda/chain.h"
#include "kernels/cuda/kept.h"
#include "kernels/cuda/collectives.h"
#include "kernels/cuda/cuda.h"

#define SCORES ((int64_t)256 << 20)

static const struct cuda_runtime *load_runtime(struct err *err)
{
    void *module = module_open("cuda", err);
    const struct cuda_runtime *cuda =
        module ? module_symbol(module, CUDA_RUNTIME_SYMBOL, err) : NULL;

    if (cuda && (cuda->version != CUDA_RUNTIME_VERSION || cuda->err_size != sizeof(struct err) ||
                 cuda->launch_size != CUDA_LAUNCH_SIZES)) {
        err_set(err, "tasuki-cuda.so belongs to another version of tasuki: install both anew");
        return NULL;
    }
    return cuda;
}

static void say_tensor_cores(const struct device *device)
{
    int products = 0, on_them = 0;

    if (device->gpu)
        device->cuda->tensor_cores(device->gpu, &products, &on_them);
    if (products > 0)
        log_debug("cuda: %d of %d products on tensor cores", on_them, products);
}

static void say_activations(const struct device *device)
{
    const char *text = device->gpu ? device->cuda->activations(device->gpu) : "";

    if (*text)
        log_debug("cuda: behind products, off by at most: %s", text);
}

static void device_close(struct device *device)
{
    if (!device)
        return;
    if (device->n_recordings)
        log_debug("cuda: %d graphs, launched %d times", device->n_recordings, device->n_replays);
    if (device->n_sums && device->cuda != &cuda_absent)
        log_debug("cuda: %d gradient%s of biases by products", device->n_sums,
                  device->n_sums == 1 ? "" : "s");
    say_tensor_cores(device);
    say_activations(device);
    cuda_chains_close(device);
    if (device->gpu)
        device->cuda->close(device->gpu);
    if (device->reference_stream)
        device->reference->stream_free(device->reference_stream);
    if (device->reference_device)
        device->reference->device_close(device->reference_device);
    fallbacks_clear(&device->fallbacks);
    free(device);
}

static int read_scores(struct device *d, struct err *err)
{
    const char *given = getenv("TASUKI_CUDA_SCORES");
    char *end;

    d->scores = SCORES;
    if (!given || !*given)
        return 0;
    d->scores = strtoll(given, &end, 10);
    return d->scores > 0 && !*end ? 0
                                  : err_set_code(err, EXIT_USAGE, "TASUKI_CUDA_SCORES=%.64s: expected "
                                                 "a number of bytes", given);
}

/* "norm", "pool", or both with a comma between them: which are faster is not known yet. */
static int read_library(struct device *d, struct err *err)
{
    const char *given = getenv("TASUKI_CUDA_CUDNN"), *word = given ? given : "";

    while (*word) {
        size_t n = strcspn(word, ",");

        if (n == 4 && strncmp(word, "norm", n) == 0)
            d->library_norms = true;
        else if (n == 4 && strncmp(word, "pool", n) == 0)
            d->library_pools = true;
        else
            return err_set_code(err, EXIT_USAGE, "TASUKI_CUDA_CUDNN=%.64s: expected norm, pool or both, as "
                                "norm,pool", given);
        /* Behind a comma there is one more. */
        word += n + (word[n] == ',' && word[n + 1]);
    }
    return 0;
}

/* For who looks for an error, or compares. */
static bool refuses_chains(void)
{
    const char *said = getenv("TASUKI_CUDA_CHAINS");

    return said && strcmp(said, "0") == 0;
}

/* The name is the key of measured costs: what is computed in which precision, and by whom. */
static void name_device(struct device *d, const char *precision)
{
    const char *by = !d->narrow                             ? ""
                     : d->library_norms && d->library_pools ? ", norm and pool by cuDNN"
                     : d->library_norms                     ? ", norm by cuDNN"
                     : d->library_pools                     ? ", pool by cuDNN"
                                                            : "";

    snprintf(d->name, sizeof(d->name), "%s%s%s", d->cuda->name(d->gpu), precision, by);
}

/* 'address' is that of a GPU, or the kind of one that is 'absent'. */
static int open_all(struct device *d, const char *address, bool absent, struct err *err)
{
    const struct cuda_store store = cuda_kept_store(d);

    if (read_scores(d, err) < 0 || read_library(d, err) < 0)
        return -1;
    d->no_chains = refuses_chains();
    d->cuda = absent ? &cuda_absent : load_runtime(err);
    d->gpu = d->cuda ? d->cuda->open(address, err) : NULL;
    if (!d->gpu)
        return -1;
    if (!absent)
        d->cuda->keep_in(d->gpu, &store);
    name_device(d, "");
    d->reference = &reference_backend;
    d->reference_device = d->reference->device_open(1, NULL, err);
    if (!d->reference_device)
        return -1;
    d->reference_stream = d->reference->stream_new(d->reference_device, err);
    return d->reference_stream ? 0 : -1;
}

static struct device *open_one(const char *address, bool absent, struct err *err)
{
    struct device *d = mem_new(1, sizeof(*d));

    if (open_all(d, address, absent, err) == 0)
        return d;
    device_close(d);
    return NULL;
}

static struct device *device_open(int threads, const char *address, struct err *err)
{
    (void)threads;
    return open_one(address, false, err);
}

static struct device *device_imagine(const char *kind, struct err *err)
{
    return open_one(kind, true, err);
}

static struct device *make_tf32(struct device *d)
{
    if (d) {
        d->tf32 = true;
        name_device(d, ", TF32");
    }
    return d;
}

static struct device *device_open_tf32(int threads, const char *address, struct err *err)
{
    (void)threads;
    return make_tf32(open_one(address, false, err));
}

static struct device *device_imagine_tf32(const char *kind, struct err *err)
{
    return make_tf32(open_one(kind, true, err));
}

#define AMPERE 80               /* sm_80: the first with bfloat16 and TF32 */

static bool is_before_ampere(const struct device *d)
{
    const char *architecture = strstr(d->name, "sm_");

    return architecture && strtol(architecture + 3, NULL, 10) < AMPERE;
}

static struct device *make_bf16(struct device *d, struct err *err)
{
    if (!d)
        return NULL;
    if (is_before_ampere(d)) {
        err_set(err, "%s: no bfloat16 before sm_%d: --precision fp16, or float32", d->name, AMPERE);
        device_close(d);
        return NULL;
    }
    d->tf32 = true;
    d->narrow = CUDA_BFLOAT16;
    name_device(d, ", BF16");
    return d;
}

static struct device *device_open_bf16(int threads, const char *address, struct err *err)
{
    (void)threads;
    return make_bf16(open_one(address, false, err), err);
}

static struct device *device_imagine_bf16(const char *kind, struct err *err)
{
    return make_bf16(open_one(kind, true, err), err);
}

static struct device *make_fp16(struct device *d)
{
    if (!d)
        return NULL;
    d->tf32 = !is_before_ampere(d);
    d->narrow = CUDA_FLOAT16;
    name_device(d, ", FP16");
    return d;
}

static struct device *device_open_fp16(int threads, const char *address, struct err *err)
{
    (void)threads;
    return make_fp16(open_one(address, false, err));
}

static struct device *device_imagine_fp16(const char *kind, struct err *err)
{
    return make_fp16(open_one(kind, true, err));
}

static const char *device_name(const struct device *device)
{
    return device->name;
}

static void *alloc(struct device *device, size_t bytes, struct err *err)
{
    void *memory = device->cuda->alloc(device->gpu, bytes, false, err);

    if (!memory)
        return NULL;
    device->in_use += bytes;
    if (device->in_use > device->peak)
        device->peak = device->in_use;
    return memory;
}

static void release(struct device *device, void *memory, size_t bytes)
{
    if (!memory)
        return;
    device->in_use -= bytes;
    device->cuda->release(device->gpu, memory, false);
}

static void *alloc_aside(struct device *device, size_t bytes, bool host, struct err *err)
{
    return device->cuda->alloc(device->gpu, bytes, host, err);
}

static void release_aside(struct device *device, void *memory, bool host)
{
    device->cuda->release(device->gpu, memory, host);
}

static size_t peak(const struct device *device)
{
    return device->peak;
}

static size_t memory(const struct device *device)
{
    return device->cuda->memory(device->gpu);
}

static size_t cache(const struct device *device)
{
    return device->cuda->cache(device->gpu);
}

/* Its caches are small beside what a step touches. */
static bool evict(struct device *device, const void *memory, size_t bytes)
{
    (void)device, (void)memory, (void)bytes;
    return false;
}

static struct stream *stream_new(struct device *device, struct err *err)
{
    struct stream *s = mem_new(1, sizeof(*s));

    s->device = device;
    s->cuda = device->cuda->stream_new(device->gpu, err);
    if (s->cuda)
        return s;
    free(s);
    return NULL;
}

static void stream_free(struct stream *stream)
{
    if (!stream)
        return;
    stream->device->cuda->stream_free(stream->cuda);
    free(stream);
}

struct event {
    struct device *device;
    struct cuda_event *cuda;
};

static int stream_wait(struct stream *stream, struct event *event, struct err *err)
{
    return stream->device->cuda->stream_wait(stream->cuda, event->cuda, err);
}

static int stream_sync(struct stream *stream, struct err *err)
{
    return stream->device->cuda->stream_sync(stream->cuda, err);
}

static struct event *make_event(struct device *device, bool timed, struct err *err)
{
    struct event *e = mem_new(1, sizeof(*e));

    e->device = device;
    e->cuda = device->cuda->event_new(device->gpu, timed, err);
    if (e->cuda)
        return e;
    free(e);
    return NULL;
}

static struct event *event_new(struct device *device, struct err *err)
{
    return make_event(device, false, err);
}

static struct event *event_new_timed(struct device *device, struct err *err)
{
    return make_event(device, true, err);
}

static int event_elapsed(struct event *from, struct event *to, double *seconds, struct err *err)
{
    return from->device->cuda->event_elapsed(from->cuda, to->cuda, seconds, err);
}

static void event_free(struct event *event)
{
    if (!event)
        return;
    event->device->cuda->event_free(event->cuda);
    free(event);
}

static int event_record(struct event *event, struct stream *stream, struct err *err)
{
    return event->device->cuda->event_record(event->cuda, stream->cuda, err);
}

static int event_done(struct event *event, bool *done, struct err *err)
{
    return event->device->cuda->event_done(event->cuda, done, err);
}

struct recording {
    struct device *device;
    struct cuda_recording *cuda;
};

static int record_begin(struct stream *stream, struct err *err)
{
    return stream->device->cuda->record_begin(stream->cuda, err);
}

static int record_end(struct stream *stream, struct recording **recording, struct err *err)
{
    struct recording *r = mem_new(1, sizeof(*r));

    r->device = stream->device;
    if (stream->device->cuda->record_end(stream->cuda, &r->cuda, err) < 0) {
        free(r);
        return -1;
    }
    stream->device->n_recordings++;
    *recording = r;
    return 0;
}

static int replay(struct stream *stream, struct recording *recording, struct err *err)
{
    stream->device->n_replays++;
    return stream->device->cuda->replay(stream->cuda, recording->cuda, err);
}

static void recording_free(struct recording *recording)
{
    if (!recording)
        return;
    recording->device->cuda->recording_free(recording->cuda);
    free(recording);
}

static void range_push(struct device *device, const char *name)
{
    device->cuda->range_push(name);
}

static void range_pop(struct device *device)
{
    device->cuda->range_pop();
}

static void host_touches(struct device *device, const void *memory, size_t bytes, bool writes)
{
    device->cuda->host_touches(memory, bytes, writes);
}

static void forget(struct stream *stream, void *memory, size_t bytes)
{
    stream->device->cuda->forget(stream->cuda, memory, bytes);
}

static void renew(struct stream *stream, void *memory, size_t bytes)
{
    stream->device->cuda->renew(stream->cuda, memory, bytes);
}

static int copy(struct stream *stream, void *to, size_t to_stride, const void *from,
                size_t from_stride, size_t width, size_t rows, struct err *err)
{
    return stream->device->cuda->copy(stream->cuda, to, to_stride, from, from_stride, width, rows,
                                      err);
}

static int fill_zero(struct stream *stream, void *to, size_t bytes, struct err *err)
{
    return stream->device->cuda->fill_zero(stream->cuda, to, bytes, err);
}

static const struct fallbacks *fallbacks(const struct device *device)
{
    return &device->fallbacks;
}

static void tensor_cores(const struct device *device, int *products, int *on_them)
{
    device->cuda->tensor_cores(device->gpu, products, on_them);
}

static const void *collectives(struct device *device, struct err *err)
{
    void *module = module_open("cuda", err);
    const struct cuda_collectives *nccl =
        module ? module_symbol(module, CUDA_COLLECTIVES_SYMBOL, err) : NULL;

    (void)device;
    if (nccl && (nccl->version != CUDA_COLLECTIVES_VERSION ||
                 nccl->err_size != sizeof(struct err)))
        err_set(err, "tasuki-cuda.so belongs to another version of tasuki: install both anew");
    else if (nccl && !nccl->there)
        err_set(err, "tasuki-cuda.so was built without NCCL");
    else
        return nccl;
    return NULL;
}

const struct backend backend_cuda = {
    .name = "cuda",
    .device_open = device_open,
    .device_imagine = device_imagine,
    .device_close = device_close,
    .device_name = device_name,
    .supports = cuda_supports,
    .kernel_new = cuda_kernel_new,
    .kernel_free = cuda_kernel_free,
    .kernel_workspace = cuda_kernel_workspace,
    .kernel_accumulates = cuda_kernel_accumulates,
    .kernel_run = cuda_kernel_run,
    .alloc = alloc,
    .release = release,
    .alloc_aside = alloc_aside,
    .release_aside = release_aside,
    .separate = true,
    .peak = peak,
    .memory = memory,
    .cache = cache,
    .evict = evict,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .stream_wait = stream_wait,
    .stream_sync = stream_sync,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_done = event_done,
    .event_new_timed = event_new_timed,
    .event_elapsed = event_elapsed,
    .kernel_records = cuda_kernel_records,
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
    .add = cuda_add,
    .ranges_new = cuda_ranges_new,
    .ranges_free = cuda_ranges_free,
    .optimize = cuda_optimize,
    .moments = cuda_moments,
    .sum_squares = cuda_sum_squares,
    .lower = cuda_lower,
    .tensor_cores = tensor_cores,
    .fallbacks = fallbacks,
    .collectives = collectives,
};

static struct backend tf32, bf16, fp16;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_others(void)
{
    tf32 = bf16 = fp16 = backend_cuda;
    tf32.name = "cuda-tf32";
    tf32.device_open = device_open_tf32;
    tf32.device_imagine = device_imagine_tf32;
    bf16.name = "cuda-bf16";
    bf16.device_open = device_open_bf16;
    bf16.device_imagine = device_imagine_bf16;
    bf16.crossing = cuda_crossing_bf16;
    fp16.name = "cuda-fp16";
    fp16.device_open = device_open_fp16;
    fp16.device_imagine = device_imagine_fp16;
    fp16.crossing = cuda_crossing_fp16;
}

const struct backend *cuda_tf32(void)
{
    pthread_once(&once, make_others);
    return &tf32;
}

const struct backend *cuda_bf16(void)
{
    pthread_once(&once, make_others);
    return &bf16;
}

const struct backend *cuda_fp16(void)
{
    pthread_once(&once, make_others);
    return &fp16;
}
