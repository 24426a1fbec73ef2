// SPDX-License-Identifier: MIT
// Rows picked and put by index. What several rows go to is found by sorting, so that its order
// is that of the rows and nothing waits for anything else: no atomics.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/module.h"
#include "kernels/cuda/walk.cuh"

#define NOWHERE 0xffffffffu     // no target, and what fills the keys up
#define HALF_SORTED (CUDA_SCATTER_BLOCK / 2)

// Element i of the index, below 'length'; -1: it is out of range.
CUDA_DEVICE int64_t index_at(const struct cuda_target &t, int64_t i, int64_t length)
{
    int64_t at = t.wide ? ((const int64_t *)t.index)[i] : ((const int32_t *)t.index)[i];

    at = at < 0 ? at + length : at;
    return at < 0 || at >= length ? -1 : at;
}

CUDA_DEVICE int64_t target_along(const struct cuda_target &t, int64_t row)
{
    int64_t i, outer = divide(row, t.n, t.rows < (int64_t)1 << 31, &i);
    int64_t at = index_at(t, i, t.length);

    return at < 0 ? -1 : outer * t.length + at;
}

CUDA_DEVICE int64_t target_element(const struct cuda_target &t, int64_t row)
{
    int64_t at[1], index = index_at(t, row, t.length);

    walk_places<1>(t.walk, row, at);
    return index < 0 ? -1 : at[0] + index * t.after;
}

CUDA_DEVICE int64_t target_tuple(const struct cuda_target &t, int64_t row)
{
    int64_t sum = 0;

    for (int k = 0; k < t.n; k++) {
        int64_t at = index_at(t, row * t.n + k, t.dim[k]);

        if (at < 0)
            return -1;
        sum = sum * t.dim[k] + at;
    }
    return row / t.group * t.length + sum;
}

CUDA_DEVICE int64_t target_of(const struct cuda_target &t, int64_t row)
{
    return t.kind == CUDA_ALONG      ? target_along(t, row)
           : t.kind == CUDA_ELEMENTS ? target_element(t, row)
                                     : target_tuple(t, row);
}

// Gather --------------------------------------------------------------------------------

CUDA_DEVICE void set_missing(uint8_t *x) { *x = 0xff; }
CUDA_DEVICE void set_missing(uint16_t *x) { *x = 0xffff; }
CUDA_DEVICE void set_missing(uint32_t *x) { *x = 0xffffffff; }
CUDA_DEVICE void set_missing(uint64_t *x) { *x = ~(uint64_t)0; }
CUDA_DEVICE void set_missing(uint4 *x) { x->x = x->y = x->z = x->w = 0xffffffff; }

template <typename ELEMENT> CUDA_DEVICE void gather_elements(const struct cuda_gather &l)
{
    int64_t n = l.target.rows * l.target.inner;

    CUDA_EACH(e, n) {
        int64_t i, row = divide(e, l.target.inner, n < (int64_t)1 << 31, &i);
        int64_t target = target_of(l.target, row);
        ELEMENT x;

        if (target < 0)
            set_missing(&x);
        else
            x = ((const ELEMENT *)l.in)[target * l.target.inner + i];
        ((ELEMENT *)l.out)[e] = x;
    }
}

CUDA_KERNEL(kernel_gather, cuda_gather)
{
    switch (l.size) {
    case 1: gather_elements<uint8_t>(l); break;
    case 2: gather_elements<uint16_t>(l); break;
    case 4: gather_elements<uint32_t>(l); break;
    case 8: gather_elements<uint64_t>(l); break;
    default: gather_elements<uint4>(l);
    }
}

cudaError_t cuda_launch_gather(cudaStream_t stream, const struct cuda_gather *launch)
{
    return CUDA_LAUNCH(kernel_gather,
                       cuda_grid(launch->target.rows * launch->target.inner, CUDA_BLOCK),
                       CUDA_BLOCK, launch, stream);
}

// Keys: a target and its row -----------------------------------------------------------

CUDA_DEVICE uint32_t key_target(uint64_t key)
{
    return (uint32_t)(key >> 32);
}

CUDA_DEVICE uint32_t key_row(uint64_t key)
{
    return (uint32_t)key;
}

CUDA_KERNEL(kernel_keys, cuda_scatter)
{
    CUDA_EACH(i, l.n_keys) {
        int64_t target = i < l.target.rows ? target_of(l.target, i) : -1;

        l.keys[i] = (uint64_t)(target < 0 ? NOWHERE : (uint32_t)target) << 32 | (uint32_t)i;
    }
}

// A step of bitonic sort (Batcher 1968): runs of 'first', then twice as many, … 'last' keys,
// each sorted from two; 'distance': of the keys that are compared.
struct sort_step {
    uint64_t *keys;
    int64_t n, first, last, distance;
};

// The first key of pair i; the other one is 'distance' behind.
CUDA_DEVICE int64_t pair_low(int64_t i, int64_t distance)
{
    return i / distance * 2 * distance + i % distance;
}

CUDA_DEVICE void sort_exchange(uint64_t *low, uint64_t *high, bool upwards)
{
    if ((*low > *high) == upwards) {
        uint64_t swap = *low;

        *low = *high;
        *high = swap;
    }
}

CUDA_KERNEL(kernel_sort_across, sort_step)
{
    CUDA_EACH(i, l.n / 2) {
        int64_t low = pair_low(i, l.distance);

        sort_exchange(&l.keys[low], &l.keys[low + l.distance], (low & l.last) == 0);
    }
}

// Blocks of HALF_SORTED threads, each for twice as many keys: all distances that stay within.
CUDA_KERNEL(kernel_sort_within, sort_step)
{
    __shared__ uint64_t own[2 * HALF_SORTED];
    int64_t base = (int64_t)blockIdx.x * 2 * HALF_SORTED;
    int t = (int)threadIdx.x;

    own[t] = l.keys[base + t];
    own[t + HALF_SORTED] = l.keys[base + t + HALF_SORTED];
    __syncthreads();
    for (int64_t run = l.first; run <= l.last; run *= 2)
        for (int64_t d = run / 2 < HALF_SORTED ? run / 2 : HALF_SORTED; d > 0; d /= 2) {
            int64_t low = pair_low(t, d);

            sort_exchange(&own[low], &own[low + d], ((base + low) & run) == 0);
            __syncthreads();
        }
    l.keys[base + t] = own[t];
    l.keys[base + t + HALF_SORTED] = own[t + HALF_SORTED];
}

static cudaError_t sort_within(cudaStream_t stream, struct sort_step *s, int64_t first,
                               int64_t last)
{
    s->first = first;
    s->last = last;
    return CUDA_LAUNCH(kernel_sort_within, (unsigned)(s->n / (2 * HALF_SORTED)), HALF_SORTED, s,
                       stream);
}

static cudaError_t sort_across(cudaStream_t stream, struct sort_step *s, int64_t run,
                               int64_t distance)
{
    s->last = run;
    s->distance = distance;
    return CUDA_LAUNCH(kernel_sort_across, cuda_grid(s->n / 2, CUDA_BLOCK), CUDA_BLOCK, s,
                       stream);
}

static cudaError_t sort_keys(cudaStream_t stream, const struct cuda_scatter *launch)
{
    struct sort_step s = { launch->keys, launch->n_keys, 0, 0, 0 };
    cudaError_t code = sort_within(stream, &s, 2, 2 * HALF_SORTED);

    for (int64_t run = 4 * HALF_SORTED; run <= s.n && code == cudaSuccess; run *= 2) {
        for (int64_t d = run / 2; d > HALF_SORTED && code == cudaSuccess; d /= 2)
            code = sort_across(stream, &s, run, d);
        if (code == cudaSuccess)
            code = sort_within(stream, &s, run, run);
    }
    return code;
}

// Sums -----------------------------------------------------------------------------------

CUDA_DEVICE int64_t chunks_of(const struct cuda_scatter &l)
{
    return (l.target.rows + CUDA_SCATTER_CHUNK - 1) / CUDA_SCATTER_CHUNK;
}

// Did the target of the chunk's first key begin before it?
CUDA_DEVICE bool goes_on(const struct cuda_scatter &l, int64_t chunk)
{
    int64_t first = chunk * CUDA_SCATTER_CHUNK;

    return first > 0 && key_target(l.keys[first - 1]) == key_target(l.keys[first]);
}

// Column i of a chunk. What belongs to an earlier chunk's last target is left in 'part'.
CUDA_DEVICE void sum_chunk(const struct cuda_scatter &l, int64_t chunk, int64_t i)
{
    int64_t first = chunk * CUDA_SCATTER_CHUNK, p = first, inner = l.target.inner;
    int64_t end = first + CUDA_SCATTER_CHUNK < l.target.rows ? first + CUDA_SCATTER_CHUNK
                                                             : l.target.rows;
    bool apart = goes_on(l, chunk);

    while (p < end && key_target(l.keys[p]) != NOWHERE) {
        uint32_t target = key_target(l.keys[p]);
        float *out = apart ? &l.part[chunk * inner + i] : &((float *)l.out)[target * inner + i];
        float sum = apart || !l.add ? 0 : *out;

        for (; p < end && key_target(l.keys[p]) == target; p++)
            sum += ((const float *)l.in)[key_row(l.keys[p]) * inner + i];
        *out = sum;
        apart = false;
    }
}

CUDA_KERNEL(kernel_scatter_sum, cuda_scatter)
{
    int64_t n = chunks_of(l) * l.target.inner;

    CUDA_EACH(e, n) {
        int64_t i, chunk = divide(e, l.target.inner, n < (int64_t)1 << 31, &i);

        sum_chunk(l, chunk, i);
    }
}

// The chunk in which a target begins that goes on behind it adds what was left there.
CUDA_DEVICE void join_chunk(const struct cuda_scatter &l, int64_t chunk, int64_t i)
{
    int64_t next = chunk + 1, first = chunk * CUDA_SCATTER_CHUNK, inner = l.target.inner;
    uint32_t target = key_target(l.keys[first + CUDA_SCATTER_CHUNK - 1]);
    float *out = &((float *)l.out)[target * inner + i], sum;

    if (target == NOWHERE || !goes_on(l, next) ||
        (goes_on(l, chunk) && key_target(l.keys[first]) == target))
        return;
    sum = *out;
    for (; next < chunks_of(l) && key_target(l.keys[next * CUDA_SCATTER_CHUNK]) == target;
         next++)
        sum += l.part[next * inner + i];
    *out = sum;
}

CUDA_KERNEL(kernel_scatter_join, cuda_scatter)
{
    int64_t n = (chunks_of(l) - 1) * l.target.inner;

    CUDA_EACH(e, n) {
        int64_t i, chunk = divide(e, l.target.inner, n < (int64_t)1 << 31, &i);

        join_chunk(l, chunk, i);
    }
}

// Other ways -----------------------------------------------------------------------------

template <typename ELEMENT> CUDA_DEVICE void put_last(const struct cuda_scatter &l)
{
    int64_t inner = l.target.inner;

    CUDA_EACH(e, l.target.rows * inner) {
        int64_t p = e / inner, i = e % inner;
        uint32_t target = key_target(l.keys[p]);
        bool last = p + 1 == l.target.rows || key_target(l.keys[p + 1]) != target;

        if (target == NOWHERE)
            continue;
        if (l.action == CUDA_SCATTER_CLEAR)
            ((ELEMENT *)l.out)[target * inner + i] = 0;
        else if (last)
            ((ELEMENT *)l.out)[target * inner + i] =
                ((const ELEMENT *)l.in)[key_row(l.keys[p]) * inner + i];
    }
}

CUDA_KERNEL(kernel_scatter_put, cuda_scatter)
{
    switch (l.size) {
    case 1: put_last<uint8_t>(l); break;
    case 2: put_last<uint16_t>(l); break;
    case 4: put_last<uint32_t>(l); break;
    default: put_last<uint64_t>(l);
    }
}

CUDA_DEVICE float scatter_combined(enum cuda_scatter_action action, float a, float b)
{
    switch (action) {
    case CUDA_SCATTER_MULTIPLY: return a * b;
    case CUDA_SCATTER_LARGER: return a > b ? a : b;
    case CUDA_SCATTER_SMALLER: return a < b ? a : b;
    default: return a + b;
    }
}

CUDA_KERNEL(kernel_scatter_combine, cuda_scatter)
{
    int64_t inner = l.target.inner;

    CUDA_EACH(e, l.target.rows * inner) {
        int64_t p = e / inner, i = e % inner;
        uint32_t target = key_target(l.keys[p]);
        float *out = &((float *)l.out)[target * inner + i], y;

        if (target == NOWHERE || (p > 0 && key_target(l.keys[p - 1]) == target))
            continue;
        y = *out;
        for (; p < l.target.rows && key_target(l.keys[p]) == target; p++)
            y = scatter_combined(l.action, y,
                                 ((const float *)l.in)[key_row(l.keys[p]) * inner + i]);
        *out = y;
    }
}

static cudaError_t launch_sums(cudaStream_t stream, const struct cuda_scatter *l)
{
    int64_t chunks = (l->target.rows + CUDA_SCATTER_CHUNK - 1) / CUDA_SCATTER_CHUNK;
    unsigned grid = cuda_grid(chunks * l->target.inner, CUDA_BLOCK);
    cudaError_t code = CUDA_LAUNCH(kernel_scatter_sum, grid, CUDA_BLOCK, l, stream);

    return code != cudaSuccess || chunks == 1
               ? code : CUDA_LAUNCH(kernel_scatter_join, grid, CUDA_BLOCK, l, stream);
}

cudaError_t cuda_launch_scatter(cudaStream_t stream, const struct cuda_scatter *launch)
{
    unsigned grid = cuda_grid(launch->target.rows * launch->target.inner, CUDA_BLOCK);
    cudaError_t code = CUDA_LAUNCH(kernel_keys, cuda_grid(launch->n_keys, CUDA_BLOCK),
                                   CUDA_BLOCK, launch, stream);

    if (code == cudaSuccess && launch->action != CUDA_SCATTER_CLEAR)
        code = sort_keys(stream, launch);
    if (code != cudaSuccess)
        return code;
    if (launch->action == CUDA_SCATTER_SUM)
        return launch_sums(stream, launch);
    if (launch->action == CUDA_SCATTER_PUT || launch->action == CUDA_SCATTER_CLEAR)
        return CUDA_LAUNCH(kernel_scatter_put, grid, CUDA_BLOCK, launch, stream);
    return CUDA_LAUNCH(kernel_scatter_combine, grid, CUDA_BLOCK, launch, stream);
}
