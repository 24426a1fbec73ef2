/* SPDX-License-Identifier: MIT */
/* What backends whose device is the host itself have in common: entries of struct backend. */
#ifndef TASUKI_KERNELS_HOST_H
#define TASUKI_KERNELS_HOST_H

#include "kernels/backend.h"

void *host_alloc_aside(struct device *device, size_t bytes, bool host, struct err *err);
void host_release_aside(struct device *device, void *memory, bool host);
size_t host_gpu_memory(const struct device *device);        /* none */
bool host_evict(struct device *device, const void *memory, size_t bytes);

#endif
