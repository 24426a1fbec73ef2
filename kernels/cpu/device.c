/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/cpu/backend_cpu.h"
#include "kernels/cpu/cpu.h"
#include "kernels/host.h"

#define HUGE_PAGE ((size_t)2 << 20)

static void processor_name(char *text, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256], *colon;

    snprintf(text, size, "CPU");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, "model name", 10) == 0 && (colon = strchr(line, ':'))) {
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(text, size, "%s", colon + 2);
            break;
        }
    if (file)
        fclose(file);
}

static int choose_threads(int threads)
{
#ifdef _OPENMP
    return threads > 0 ? threads : omp_get_max_threads();
#else
    (void)threads;
    return 1;
#endif
}

static void device_close(struct device *device)
{
    if (!device)
        return;
    if (device->reference_stream)
        device->reference->stream_free(device->reference_stream);
    if (device->reference_device)
        device->reference->device_close(device->reference_device);
    for (int i = 0; i < device->n_layouts; i++) {
        onednn_format_free(device->layouts[i]->format);
        free(device->layouts[i]);
    }
    free(device->layouts);
    onednn_close(device->onednn);
    free(device);
}

static int open_reference(struct device *device, struct err *err)
{
    device->reference = backend_find("reference");
    if (!device->reference)
        return err_set(err, "this build has no reference kernels");
    device->reference_device = device->reference->device_open(1, NULL, err);
    if (!device->reference_device)
        return -1;
    device->reference_stream = device->reference->stream_new(device->reference_device, err);
    return device->reference_stream ? 0 : -1;
}

static struct device *device_open(int threads, const char *address, struct err *err)
{
    struct device *device = mem_new(1, sizeof(*device));
    char processor[96], library[32];

    (void)address;
    device->threads = choose_threads(threads);
    device->simd = simd_best(err);
    device->onednn = device->simd ? onednn_open(err) : NULL;
    if (!device->onednn || open_reference(device, err)) {
        device_close(device);
        return NULL;
    }
#ifdef _OPENMP
    omp_set_num_threads(device->threads); /* of oneDNN's loops */
#endif
    processor_name(processor, sizeof(processor));
    onednn_version_text(library, sizeof(library));
    snprintf(device->name, sizeof(device->name), "%s, %d thread%s, %s, %s", processor,
             device->threads, device->threads == 1 ? "" : "s", library, device->simd->name);
    return device;
}

static const char *device_name(const struct device *device)
{
    return device->name;
}

/* Rounded up; 0 where that is too much. */
static size_t whole_pages(size_t bytes, size_t page)
{
    size_t size;

    return size_add(bytes, page - 1, &size) == 0 ? size & ~(page - 1) : 0;
}

/* Pages that nobody has used before, which the kernel makes large ones: what malloc() hands out a
 * second time stays in small ones. NULL where there are none.
 */
static void *map_pages(size_t size)
{
    char *memory, *start;

    memory = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                  0);
    if (memory == MAP_FAILED)
        return NULL;
    start = memory + (-(uintptr_t)memory & (HUGE_PAGE - 1));
    if (start > memory)
        munmap(memory, (size_t)(start - memory));
    if (memory + HUGE_PAGE > start)
        munmap(start + size, (size_t)(memory + HUGE_PAGE - start));
#ifdef MADV_HUGEPAGE
    (void)madvise(start, size, MADV_HUGEPAGE);      /* only a hint */
#endif
    return start;
}

static void *device_alloc(struct device *device, size_t bytes, struct err *err)
{
    bool large = bytes >= HUGE_PAGE;
    size_t size = whole_pages(bytes ? bytes : 1, large ? HUGE_PAGE : CPU_ALIGNMENT);
    void *memory = NULL;

    if (size && size < SIZE_MAX - HUGE_PAGE)
        memory = large ? map_pages(size) : aligned_alloc(CPU_ALIGNMENT, size);
    if (!memory) {
        err_set(err, "%s: no memory for %zu bytes", device->name, bytes);
        return NULL;
    }
    device->in_use += bytes;
    if (device->in_use > device->peak)
        device->peak = device->in_use;
    return memory;
}

static void device_release(struct device *device, void *memory, size_t bytes)
{
    if (!memory)
        return;
    device->in_use -= bytes;
    if (bytes >= HUGE_PAGE)
        munmap(memory, whole_pages(bytes, HUGE_PAGE));
    else
        free(memory);
}

static size_t device_peak(const struct device *device)
{
    return device->peak;
}

/* Everything runs at once: streams and events are empty -------------------------------- */

struct event {
    char unused;
};

static struct stream *stream_new(struct device *device, struct err *err)
{
    struct stream *stream = mem_new(1, sizeof(*stream));

    (void)err;
    stream->device = device;
    return stream;
}

static void stream_free(struct stream *stream)
{
    free(stream);
}

static int stream_wait(struct stream *stream, struct event *event, struct err *err)
{
    (void)stream;
    (void)event;
    (void)err;
    return 0;
}

static int stream_sync(struct stream *stream, struct err *err)
{
    (void)stream;
    (void)err;
    return 0;
}

static struct event *event_new(struct device *device, struct err *err)
{
    (void)device;
    (void)err;
    return mem_new(1, sizeof(struct event));
}

static void event_free(struct event *event)
{
    free(event);
}

static int event_record(struct event *event, struct stream *stream, struct err *err)
{
    (void)event;
    (void)stream;
    (void)err;
    return 0;
}

static int event_done(struct event *event, bool *done, struct err *err)
{
    (void)event;
    (void)err;
    *done = true;
    return 0;
}

/* Copies ------------------------------------------------------------------------------ */

struct copy {
    char *to;
    const char *from;
    size_t to_stride, from_stride, width;
};

static void copy_rows(void *context, int64_t begin, int64_t end, int thread)
{
    const struct copy *c = context;

    (void)thread;
    for (size_t i = (size_t)begin; i < (size_t)end; i++)
        memcpy(c->to + i * c->to_stride, c->from + i * c->from_stride, c->width);
}

static void copy_flat(void *context, int64_t begin, int64_t end, int thread)
{
    const struct copy *c = context;

    (void)thread;
    memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
}

static int device_copy(struct stream *stream, void *to, size_t to_stride, const void *from,
                       size_t from_stride, size_t width, size_t rows, struct err *err)
{
    struct copy c = { to, from, to_stride, from_stride, width };

    (void)err;
    if (width == 0 || rows == 0)
        return 0;
    if (rows == 1 || (to_stride == width && from_stride == width))
        cpu_parallel(stream->device, (int64_t)(width * rows), CPU_GRAIN * 16, copy_flat, &c);
    else
        cpu_parallel(stream->device, (int64_t)rows, cpu_rows_grain((int64_t)width / 4),
                     copy_rows, &c);
    return 0;
}

static void zero_range(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    memset((char *)context + begin, 0, (size_t)(end - begin));
}

static int device_fill_zero(struct stream *stream, void *to, size_t bytes, struct err *err)
{
    (void)err;
    cpu_parallel(stream->device, (int64_t)bytes, CPU_GRAIN * 16, zero_range, to);
    return 0;
}

const struct backend backend_cpu = {
    .name = "cpu",
    .device_open = device_open,
    .device_close = device_close,
    .device_name = device_name,
    .supports = cpu_supports,
    .lower = cpu_lower,
    .kernel_new = cpu_kernel_make,
    .kernel_free = cpu_kernel_free,
    .kernel_workspace = cpu_kernel_workspace,
    .kernel_accumulates = cpu_kernel_accumulates,
    .kernel_run = cpu_kernel_run,
    .alloc = device_alloc,
    .release = device_release,
    .alloc_aside = host_alloc_aside,
    .release_aside = host_release_aside,
    .peak = device_peak,
    .memory = host_gpu_memory,
    .evict = host_evict,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .stream_wait = stream_wait,
    .stream_sync = stream_sync,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_done = event_done,
    .copy = device_copy,
    .fill_zero = device_fill_zero,
    .add = cpu_add,
    .ranges_new = host_ranges_new,
    .ranges_free = host_ranges_free,
    .optimize = cpu_optimize,
    .moments = cpu_moments,
    .sum_squares = cpu_sum_squares,
};
