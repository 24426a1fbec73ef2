/* SPDX-License-Identifier: MIT */
#include "kernels/host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

struct ranges *host_ranges_new(struct stream *stream, const struct range *items, int n,
                               struct err *err)
{
    struct ranges *r = mem_new(1, sizeof(*r));

    (void)stream, (void)err;
    r->n = n;
    r->items = mem_new((size_t)n, sizeof(*items));
    if (n > 0)
        memcpy(r->items, items, (size_t)n * sizeof(*items));
    return r;
}

void host_ranges_free(struct ranges *ranges)
{
    if (!ranges)
        return;
    free(ranges->items);
    free(ranges);
}

static void *at(void *array, size_t element, size_t size)
{
    return array ? (char *)array + element * size : NULL;
}

struct range_arrays host_range_arrays(const struct range_arrays *arrays, const struct range *range,
                                      enum dtype dtype)
{
    size_t size = dtype_size(dtype);

    return (struct range_arrays){
        .p = at(arrays->p, range->p, size),
        .g = arrays->g ? (const char *)arrays->g + range->g * size : NULL,
        .m = at(arrays->m, range->state, size), .v = at(arrays->v, range->state, size),
    };
}

static double ratio(double above, double below)
{
    return above > 0 && below > 0 ? above / below : 1;
}

struct optimizer_args host_range_args(const struct optimizer_args *args, const struct ranges *ranges,
                                      int i, const struct range_norms *norms, double *g_scale)
{
    struct optimizer_args own = *args;
    double r;

    own.weight_decay *= ranges->items[i].decay;
    if (args->kind == OPTIMIZER_LAMB) {
        own.trust = norms ? ratio(sqrt(norms->weights[i]), sqrt(norms->squares[i])) : 1;
    } else if (args->kind == OPTIMIZER_LARS && norms->squares[i] > 0) {
        r = ratio(args->trust * sqrt(norms->weights[i]),
                  fabs(*g_scale) * sqrt(norms->squares[i]) +
                      own.weight_decay * sqrt(norms->weights[i]));
        own.weight_decay *= r;
        *g_scale *= r;
    }
    return own;
}
