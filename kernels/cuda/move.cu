// SPDX-License-Identifier: MIT
// Elements of any type, moved.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/module.h"
#include "kernels/cuda/walk.cuh"

#define TILE 32
#define TILES(n) (((n) + TILE - 1) / TILE)

// One kernel for each size of elements, as many bytes as the type has.
#define FOR_EACH_SIZE(X) X(1, uint8_t) X(2, uint16_t) X(4, uint32_t) X(8, uint64_t) X(16, uint4)

template <typename ELEMENT> CUDA_DEVICE void move_elements(const struct cuda_move &l)
{
    const ELEMENT *in = (const ELEMENT *)l.in;
    ELEMENT *out = (ELEMENT *)l.out;

    CUDA_EACH(e, l.walk.elements) {
        int64_t at[2];

        walk_places<2>(l.walk, e, at);
        out[at[1]] = in[at[0]];
    }
}

#define MOVE(size, type)                                                                  \
    CUDA_KERNEL(kernel_move_##size, cuda_move)                                            \
    {                                                                                     \
        move_elements<type>(l);                                                           \
    }
FOR_EACH_SIZE(MOVE)

#define STEPS 4                 // elements of a thread, all read before one is written

// A move whose places have 32 bits. x / dim is (x * factor / 2^32 + x) >> shift, for all x below 2^31.
struct cuda_short_move {
    uint32_t elements;
    int rank;
    uint32_t dim[CUDA_RANK], factor[CUDA_RANK], shift[CUDA_RANK];
    int32_t start[2], stride[2][CUDA_RANK];
    const void *in;
    void *out;
};

// Where the elements 'e' are that a thread has, in both operands.
CUDA_DEVICE void short_places(const struct cuda_short_move &l, uint32_t *e, uint32_t (*at)[STEPS])
{
    CUDA_UNROLL_ALL
    for (int s = 0; s < STEPS; s++)
        at[0][s] = (uint32_t)l.start[0], at[1][s] = (uint32_t)l.start[1];
    for (int k = l.rank - 1; k > 0; k--) {
        uint32_t dim = l.dim[k], factor = l.factor[k], shift = l.shift[k];
        uint32_t from = (uint32_t)l.stride[0][k], to = (uint32_t)l.stride[1][k];

        CUDA_UNROLL_ALL
        for (int s = 0; s < STEPS; s++) {
            uint32_t next = ((uint32_t)((uint64_t)e[s] * factor >> 32) + e[s]) >> shift;
            uint32_t index = e[s] - next * dim;

            at[0][s] += index * from;
            at[1][s] += index * to;
            e[s] = next;
        }
    }
    CUDA_UNROLL_ALL
    for (int s = 0; s < STEPS; s++) {
        at[0][s] += e[s] * (uint32_t)l.stride[0][0];
        at[1][s] += e[s] * (uint32_t)l.stride[1][0];
    }
}

template <typename ELEMENT> CUDA_DEVICE void move_steps(const struct cuda_short_move &l)
{
    uint32_t first = blockIdx.x * (CUDA_BLOCK * STEPS) + threadIdx.x, e[STEPS], at[2][STEPS];
    ELEMENT own[STEPS] = {};

    CUDA_UNROLL_ALL
    for (int s = 0; s < STEPS; s++)
        e[s] = first + s * CUDA_BLOCK;
    short_places(l, e, at);
    CUDA_UNROLL_ALL
    for (int s = 0; s < STEPS; s++)
        if (first + s * CUDA_BLOCK < l.elements)
            own[s] = ((const ELEMENT *)l.in)[(int32_t)at[0][s]];
    CUDA_UNROLL_ALL
    for (int s = 0; s < STEPS; s++)
        if (first + s * CUDA_BLOCK < l.elements)
            ((ELEMENT *)l.out)[(int32_t)at[1][s]] = own[s];
}

#define SHORT_MOVE(size, type)                                                            \
    CUDA_KERNEL(kernel_short_move_##size, cuda_short_move)                                \
    {                                                                                     \
        move_steps<type>(l);                                                              \
    }
FOR_EACH_SIZE(SHORT_MOVE)

CUDA_KERNEL(kernel_move_add, cuda_move)
{
    CUDA_EACH(e, l.walk.elements) {
        int64_t at[2];

        walk_places<2>(l.walk, e, at);
        ((float *)l.out)[at[1]] += ((const float *)l.in)[at[0]];
    }
}

// Where the plane of axes 'across' and the last one begins that is the one 'i' of the others.
CUDA_DEVICE void plane_places(const struct cuda_move &l, int64_t i, int64_t *at)
{
    at[0] = l.walk.start[0];
    at[1] = l.walk.start[1];
    for (int k = l.walk.rank - 2; k >= 0; k--) {
        int64_t index = k == l.across ? 0 : i % l.walk.dim[k];

        i = k == l.across ? i : i / l.walk.dim[k];
        at[0] += index * l.walk.stride[0][k];
        at[1] += index * l.walk.stride[1][k];
    }
}

// TILE x TILE elements from (row, column) of a plane on: read and written along their lines.
template <typename ELEMENT>
CUDA_DEVICE void move_tile(const struct cuda_move &l, const int64_t *at, int64_t row,
                           int64_t column, ELEMENT (*tile)[TILE + 1])
{
    int last = l.walk.rank - 1, x = (int)threadIdx.x % TILE, y = (int)threadIdx.x / TILE;
    const ELEMENT *in = (const ELEMENT *)l.in + at[0];
    ELEMENT *out = (ELEMENT *)l.out + at[1];

    for (int k = y; k < TILE; k += CUDA_BLOCK / TILE)
        if (row + k < l.walk.dim[last] && column + x < l.walk.dim[l.across])
            tile[k][x] = in[(row + k) * l.walk.stride[0][last] + column + x];
    __syncthreads();
    for (int k = y; k < TILE; k += CUDA_BLOCK / TILE)
        if (row + x < l.walk.dim[last] && column + k < l.walk.dim[l.across])
            out[(column + k) * l.walk.stride[1][l.across] + row + x] = tile[x][k];
    __syncthreads();
}

template <typename ELEMENT>
CUDA_DEVICE void move_across(const struct cuda_move &l, ELEMENT (*tile)[TILE + 1])
{
    int64_t down = TILES(l.walk.dim[l.walk.rank - 1]), wide = TILES(l.walk.dim[l.across]);
    int64_t tiles = l.walk.elements /
                    (l.walk.dim[l.walk.rank - 1] * l.walk.dim[l.across]) * down * wide;

    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int64_t at[2];

        plane_places(l, t / (down * wide), at);
        move_tile(l, at, t / wide % down * TILE, t % wide * TILE, tile);
    }
}

CUDA_KERNEL(kernel_move_across, cuda_move)
{
    __shared__ uint32_t tile[TILE][TILE + 1];
    __shared__ uint16_t small[TILE][TILE + 1];

    if (l.size == 2)
        move_across(l, small);
    else
        move_across(l, tile);
}

static int64_t count_tiles(const struct cuda_move *l)
{
    int64_t rows = l->walk.dim[l->walk.rank - 1], columns = l->walk.dim[l->across];

    return l->walk.elements / (rows * columns) * TILES(rows) * TILES(columns);
}

// Which of the kernels for 1, 2, 4, 8, 16 bytes.
static int size_index(int size)
{
    int i = 0;

    for (; size > 1; size /= 2)
        i++;
    return i;
}

// The shift is the logarithm of what is no less: T. Granlund, P. Montgomery, Division by invariant
// integers using multiplication, PLDI 1994, figure 4.1.
static void set_divisor(struct cuda_short_move *l, int k, uint32_t dim)
{
    uint32_t shift = 0;

    while (((uint64_t)1 << shift) < dim)
        shift++;
    l->dim[k] = dim;
    l->shift[k] = shift;
    l->factor[k] = (uint32_t)(((((uint64_t)1 << shift) - dim) << 32) / dim + 1);
}

// Has the move places of 32 bits?
static bool shorten(struct cuda_short_move *to, const struct cuda_move *from)
{
    const struct cuda_walk *w = &from->walk;

    if (w->elements == 0 || w->elements > INT32_MAX - CUDA_BLOCK * STEPS)
        return false;
    *to = { (uint32_t)w->elements, w->rank, {}, {}, {}, {}, {}, from->in, from->out };
    for (int k = 0; k < w->rank; k++)
        set_divisor(to, k, (uint32_t)w->dim[k]);
    for (int i = 0; i < 2; i++) {
        int64_t reach = w->start[i];

        for (int k = 0; k < w->rank; k++)
            reach += (w->dim[k] - 1) * (w->stride[i][k] < 0 ? -w->stride[i][k] : w->stride[i][k]);
        if (reach > INT32_MAX)
            return false;
        to->start[i] = (int32_t)w->start[i];
        for (int k = 0; k < w->rank; k++)
            to->stride[i][k] = w->dim[k] == 1 ? 0 : (int32_t)w->stride[i][k];
    }
    return true;
}

#define MOVE_KERNEL(size, type) (const void *)kernel_move_##size,
#define SHORT_MOVE_KERNEL(size, type) (const void *)kernel_short_move_##size,

cudaError_t cuda_launch_move(cudaStream_t stream, const struct cuda_move *launch)
{
    static const void *const kernels[] = { FOR_EACH_SIZE(MOVE_KERNEL) };
    static const void *const shorter[] = { FOR_EACH_SIZE(SHORT_MOVE_KERNEL) };
    unsigned grid = cuda_grid(launch->walk.elements, CUDA_BLOCK);
    struct cuda_short_move l;

    if (launch->add)
        return CUDA_LAUNCH(kernel_move_add, grid, CUDA_BLOCK, launch, stream);
    if (launch->across >= 0)
        return CUDA_LAUNCH(kernel_move_across, cuda_grid(count_tiles(launch), 1), CUDA_BLOCK,
                           launch, stream);
    if (shorten(&l, launch))
        return CUDA_LAUNCH(shorter[size_index(launch->size)],
                           (l.elements + CUDA_BLOCK * STEPS - 1) / (CUDA_BLOCK * STEPS), CUDA_BLOCK,
                           &l, stream);
    return CUDA_LAUNCH(kernels[size_index(launch->size)], grid, CUDA_BLOCK, launch, stream);
}

template <typename ELEMENT> CUDA_DEVICE void fill_elements(const struct cuda_fill &l)
{
    CUDA_EACH(i, l.n)
        ((ELEMENT *)l.out)[i] = (ELEMENT)l.bits;
}

CUDA_KERNEL(kernel_fill, cuda_fill)
{
    switch (l.size) {
    case 1: fill_elements<uint8_t>(l); break;
    case 2: fill_elements<uint16_t>(l); break;
    case 4: fill_elements<uint32_t>(l); break;
    default: fill_elements<uint64_t>(l);
    }
}

cudaError_t cuda_launch_fill(cudaStream_t stream, const struct cuda_fill *launch)
{
    return CUDA_LAUNCH(kernel_fill, cuda_grid(launch->n, CUDA_BLOCK), CUDA_BLOCK, launch,
                       stream);
}

template <typename ELEMENT> CUDA_DEVICE void choose_elements(const struct cuda_choose &l)
{
    const uint8_t *condition = (const uint8_t *)l.in[0];

    CUDA_EACH(e, l.walk.elements) {
        int64_t at[3];

        walk_places<3>(l.walk, e, at);
        ((ELEMENT *)l.out)[e] = condition[at[0]] ? ((const ELEMENT *)l.in[1])[at[1]]
                                                 : ((const ELEMENT *)l.in[2])[at[2]];
    }
}

CUDA_KERNEL(kernel_choose, cuda_choose)
{
    switch (l.size) {
    case 1: choose_elements<uint8_t>(l); break;
    case 2: choose_elements<uint16_t>(l); break;
    case 4: choose_elements<uint32_t>(l); break;
    default: choose_elements<uint64_t>(l);
    }
}

cudaError_t cuda_launch_choose(cudaStream_t stream, const struct cuda_choose *launch)
{
    return CUDA_LAUNCH(kernel_choose, cuda_grid(launch->walk.elements, CUDA_BLOCK), CUDA_BLOCK,
                       launch, stream);
}
