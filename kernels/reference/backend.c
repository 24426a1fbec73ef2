/* SPDX-License-Identifier: MIT */
/* The table. Work is done when it is handed over: streams and events hold nothing. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "kernels/host.h"
#include "kernels/reference/reference.h"

#define ALIGNMENT 64

struct device {
    size_t out, peak;
};

struct stream {
    int unused;
};

struct event {
    int unused;
};

static struct device *open_device(int threads, const char *address, struct err *err)
{
    (void)threads, (void)address, (void)err;
    return mem_new(1, sizeof(struct device));
}

static void close_device(struct device *device)
{
    free(device);
}

static const char *name_device(const struct device *device)
{
    (void)device;
    return "reference, 1 thread";
}

static void *alloc(struct device *device, size_t bytes, struct err *err)
{
    size_t size;
    void *memory;

    if (size_add(bytes, ALIGNMENT - 1, &size)) {
        err_set(err, "out of memory: %zu bytes", bytes);
        return NULL;
    }
    size &= ~(size_t)(ALIGNMENT - 1);
    memory = aligned_alloc(ALIGNMENT, size ? size : ALIGNMENT);
    if (!memory) {
        err_set(err, "out of memory: %zu bytes", bytes);
        return NULL;
    }
    memset(memory, 0, size);
    device->out += bytes;
    if (device->out > device->peak)
        device->peak = device->out;
    return memory;
}

static void release(struct device *device, void *memory, size_t bytes)
{
    if (!memory)
        return;
    device->out -= bytes;
    free(memory);
}

static size_t peak(const struct device *device)
{
    return device->peak;
}

static struct stream *new_stream(struct device *device, struct err *err)
{
    (void)device, (void)err;
    return mem_new(1, sizeof(struct stream));
}

static void free_stream(struct stream *stream)
{
    free(stream);
}

static int wait_event(struct stream *stream, struct event *event, struct err *err)
{
    (void)stream, (void)event, (void)err;
    return 0;
}

static int sync_stream(struct stream *stream, struct err *err)
{
    (void)stream, (void)err;
    return 0;
}

static struct event *new_event(struct device *device, struct err *err)
{
    (void)device, (void)err;
    return mem_new(1, sizeof(struct event));
}

static void free_event(struct event *event)
{
    free(event);
}

static int record_event(struct event *event, struct stream *stream, struct err *err)
{
    (void)event, (void)stream, (void)err;
    return 0;
}

static int event_is_done(struct event *event, bool *done, struct err *err)
{
    (void)event, (void)err;
    *done = true;
    return 0;
}

static int copy(struct stream *stream, void *to, size_t to_stride, const void *from,
                size_t from_stride, size_t width, size_t rows, struct err *err)
{
    unsigned char *t = to;
    const unsigned char *f = from;

    (void)stream, (void)err;
    for (; rows > 0 && width > 0; rows--, t += to_stride, f += from_stride)
        memcpy(t, f, width);
    return 0;
}

static int fill_zero(struct stream *stream, void *to, size_t bytes, struct err *err)
{
    (void)stream, (void)err;
    if (bytes)
        memset(to, 0, bytes);
    return 0;
}

const struct backend reference_backend = {
    .name = "reference",
    .device_open = open_device,
    .device_close = close_device,
    .device_name = name_device,
    .supports = ref_supports,
    .kernel_new = ref_kernel_new,
    .kernel_free = ref_kernel_free,
    .kernel_workspace = ref_kernel_workspace,
    .kernel_accumulates = ref_kernel_accumulates,
    .kernel_run = ref_kernel_run,
    .alloc = alloc,
    .release = release,
    .alloc_aside = host_alloc_aside,
    .release_aside = host_release_aside,
    .peak = peak,
    .memory = host_gpu_memory,
    .evict = host_evict,
    .stream_new = new_stream,
    .stream_free = free_stream,
    .stream_wait = wait_event,
    .stream_sync = sync_stream,
    .event_new = new_event,
    .event_free = free_event,
    .event_record = record_event,
    .event_done = event_is_done,
    .copy = copy,
    .fill_zero = fill_zero,
    .add = ref_add,
    .ranges_new = host_ranges_new,
    .ranges_free = host_ranges_free,
    .optimize = ref_optimize,
    .moments = ref_moments,
    .sum_squares = ref_sum_squares,
};
