/* SPDX-License-Identifier: MIT */
/* What backends whose device is the host itself have in common: entries of struct backend. */
#ifndef TASUKI_KERNELS_HOST_H
#define TASUKI_KERNELS_HOST_H

#include "kernels/backend.h"

void *host_alloc_aside(struct device *device, size_t bytes, bool host, struct err *err);
void host_release_aside(struct device *device, void *memory, bool host);
size_t host_gpu_memory(const struct device *device);        /* none */
bool host_evict(struct device *device, const void *memory, size_t bytes);

struct ranges {
    int n;
    struct range *items;
};

struct ranges *host_ranges_new(struct stream *stream, const struct range *items, int n,
                               struct err *err);
void host_ranges_free(struct ranges *ranges);
/* The arrays where the range starts. */
struct range_arrays host_range_arrays(const struct range_arrays *arrays, const struct range *range,
                                      enum dtype dtype);
/* What range 'i' is stepped with; of LAMB 'trust' is the ratio. '*g_scale' is scaled as LARS has it. */
struct optimizer_args host_range_args(const struct optimizer_args *args, const struct ranges *ranges,
                                      int i, const struct range_norms *norms, double *g_scale);

#endif
