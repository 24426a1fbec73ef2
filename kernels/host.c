/* SPDX-License-Identifier: MIT */
#include "kernels/host.h"

#include <stdlib.h>

#include "base/mem.h"
#include "kernels/evict.h"

void *host_alloc_aside(struct device *device, size_t bytes, bool host, struct err *err)
{
    (void)device, (void)host;
    return mem_try(bytes, 1, err);
}

void host_release_aside(struct device *device, void *memory, bool host)
{
    (void)device, (void)host;
    free(memory);
}

size_t host_gpu_memory(const struct device *device)
{
    (void)device;
    return 0;
}

bool host_evict(struct device *device, const void *memory, size_t bytes)
{
    (void)device;
    return evict_bytes(memory, bytes);
}
