// SPDX-License-Identifier: MIT
// Sums along axes and over everything, losses of pairs, and gradients of the former.
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

// out[2] of terms[2, n]: one block
CUDA_KERNEL(kernel_total, cuda_total)
{
    __shared__ double shared[CUDA_BLOCK];

    for (int k = 0; k < 2; k++) {
        double sum = 0;

        if (!l.terms[k])
            continue;
        CUDA_EACH(i, l.n)
            sum += l.terms[k][i];
        sum = block_sum_double(sum, shared);
        if (threadIdx.x == 0 && l.out[k])
            *l.out[k] = (float)(k == 0 && l.weight_sum ? sum / *l.weight_sum : sum);
    }
}

cudaError_t launch_total(cudaStream_t stream, const struct cuda_total *l)
{
    return CUDA_LAUNCH(kernel_total, 1, CUDA_BLOCK, l, stream);
}

CUDA_DEVICE int64_t axes_at(const struct cuda_axes &axes, int64_t e)
{
    int64_t at = 0;

    if (axes.rank == 1)
        return e * axes.stride[0];
    if (axes.elements <= UINT32_MAX) {      // division takes half the time
        uint32_t left = (uint32_t)e;

        for (int k = axes.rank - 1; k >= 0; k--) {
            at += left % (uint32_t)axes.dim[k] * axes.stride[k];
            left /= (uint32_t)axes.dim[k];
        }
        return at;
    }
    for (int k = axes.rank - 1; k >= 0; k--) {
        at += e % axes.dim[k] * axes.stride[k];
        e /= axes.dim[k];
    }
    return at;
}

CUDA_DEVICE double reduce_start(enum cuda_reduction kind)
{
    return kind == CUDA_LARGEST ? -INFINITY : kind == CUDA_SMALLEST ? INFINITY : 0;
}

// NaN is the largest and the smallest.
CUDA_DEVICE double reduce_two(enum cuda_reduction kind, double a, double b)
{
    if (kind == CUDA_LARGEST)
        return isnan(b) || b > a ? b : a;
    if (kind == CUDA_SMALLEST)
        return isnan(b) || b < a ? b : a;
    return a + b;
}

CUDA_DEVICE double reduce_block(enum cuda_reduction kind, double x, double *shared)
{
    shared[threadIdx.x] = x;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            shared[threadIdx.x] = reduce_two(kind, shared[threadIdx.x],
                                             shared[threadIdx.x + half]);
        __syncthreads();
    }
    x = shared[0];
    __syncthreads();
    return x;
}

CUDA_DEVICE double reduce_term(const struct cuda_reduce &l, double x, int64_t output)
{
    return l.kind == CUDA_NORM ? x * x : l.kind == CUDA_COUNT ? x == (double)l.y[output] : x;
}

CUDA_DEVICE void reduce_put(const struct cuda_reduce &l, int64_t output, double x)
{
    float y = (float)(l.kind == CUDA_NORM ? sqrt(x) : l.kind == CUDA_SUM ? x * l.scale : x);

    l.out[output] = l.add ? l.out[output] + y : y;
}

// What lies 'stride' apart.
template <typename REAL>
CUDA_DEVICE double sum_apart(const REAL *x, int64_t first, int64_t end, int64_t stride)
{
    double sum = 0;

    CUDA_UNROLL
    for (int64_t e = first; e < end; e++)
        sum += (double)real_of(x[e * stride]);
    return sum;
}

template <typename REAL>
CUDA_DEVICE double reduce_any(const struct cuda_reduce &l, const REAL *x, int64_t output,
                              int64_t first, int64_t end)
{
    double sum = reduce_start(l.kind);

    if (l.kind == CUDA_SUM && !l.team && l.inner.rank == 1)
        return sum_apart(x, first, end, l.inner.stride[0]);
    CUDA_EACH_IN(e, first, end, l.team)
        sum = reduce_two(l.kind, sum,
                         reduce_term(l, (double)real_of(x[axes_at(l.inner, e)]), output));
    return sum;
}

template <typename REAL>
CUDA_DEVICE void reduce_chunks(const struct cuda_reduce &l, double *shared)
{
    CUDA_EACH_OF(i, l.kept.elements * l.chunks, l.team) {
        int64_t output = i % l.kept.elements, first = i / l.kept.elements * l.chunk;
        int64_t end = first + l.chunk < l.inner.elements ? first + l.chunk : l.inner.elements;
        const REAL *x = (const REAL *)l.x + axes_at(l.kept, output);
        double sum = reduce_any(l, x, output, first, end);

        if (l.team)
            sum = reduce_block(l.kind, sum, shared);
        if (!team_writes(l.team))
            continue;
        if (l.chunks > 1)
            l.parts[i] = sum;
        else
            reduce_put(l, output, sum);
    }
}

// out[outputs], or parts[chunks, outputs] where there are several chunks
CUDA_KERNEL(kernel_reduce, cuda_reduce)
{
    __shared__ double shared[CUDA_BLOCK];

    CUDA_BY_TYPE(l.narrow, reduce_chunks, l, shared);
}

// out[outputs] of parts[chunks, outputs]
CUDA_KERNEL(kernel_reduce_parts, cuda_reduce)
{
    CUDA_EACH(output, l.kept.elements) {
        double sum = reduce_start(l.kind);

        CUDA_UNROLL
        for (int64_t k = 0; k < l.chunks; k++)
            sum = reduce_two(l.kind, sum, l.parts[k * l.kept.elements + output]);
        reduce_put(l, output, sum);
    }
}

extern "C" cudaError_t cuda_launch_reduce(cudaStream_t stream, const struct cuda_reduce *l)
{
    struct cuda_columns columns = { l->inner.elements, l->kept.elements, l->inner.stride[0], l->cut,
                                    l->narrow, l->x, NULL, NULL, NULL, (float *)l->parts,
                                    { l->out, NULL }, l->scale, l->add };
    cudaError_t code;

    if (l->cut.chunks && cuda_has_words(l->x))
        return launch_columns(stream, &columns);
    code = CUDA_LAUNCH(kernel_reduce, team_blocks(l->kept.elements * l->chunks, l->team),
                       team_threads(l->chunk, l->team), l, stream);
    return code != cudaSuccess || l->chunks == 1
               ? code
               : CUDA_LAUNCH(kernel_reduce_parts, cuda_grid(l->kept.elements, CUDA_BLOCK),
                             CUDA_BLOCK, l, stream);
}

// dx of the walk's shape
CUDA_KERNEL(kernel_unreduce, cuda_unreduce)
{
    CUDA_EACH(e, l.walk.elements) {
        int64_t o = walk_at(l.walk, 0, e);

        if (l.count)
            l.dx[e] = l.x[e] == l.y[o] ? l.dy[o] / l.count[o] : 0;
        else
            l.dx[e] = l.y[o] == 0 ? 0 : l.dy[o] * l.x[e] / l.y[o];
    }
}

extern "C" cudaError_t cuda_launch_unreduce(cudaStream_t stream, const struct cuda_unreduce *l)
{
    return CUDA_LAUNCH(kernel_unreduce, cuda_grid(l->walk.elements, CUDA_BLOCK), CUDA_BLOCK, l,
                       stream);
}

// parts[blocks]
CUDA_KERNEL(kernel_pair, cuda_pair)
{
    __shared__ double shared[CUDA_BLOCK];
    double sum = 0;

    CUDA_EACH(i, l.n) {
        double a = (double)l.a[i], b = l.b ? (double)l.b[i] : 0;

        sum += l.kind == CUDA_PAIR_MSE   ? (a - b) * (a - b)
               : l.kind == CUDA_PAIR_DOT ? a * b
                                         : a;
    }
    sum = block_sum_double(sum, shared);
    if (threadIdx.x == 0)
        l.parts[blockIdx.x] = sum;
}

// out[n]
CUDA_KERNEL(kernel_pair_grad, cuda_pair)
{
    float factor = (float)((double)*l.dloss / *l.weight_sum);

    CUDA_EACH(i, l.n)
        l.out[i] = l.kind == CUDA_PAIR_MSE   ? factor * (2 * (l.a[i] - l.b[i]))
                   : l.kind == CUDA_PAIR_DOT ? factor * l.a[i]
                                             : factor;
}

extern "C" cudaError_t cuda_launch_pair(cudaStream_t stream, const struct cuda_pair *l)
{
    unsigned blocks = part_blocks(l->n);
    struct cuda_total total = { blocks, { l->parts, NULL }, l->weight_sum, { l->out, NULL } };
    cudaError_t code;

    if (l->dloss)
        return CUDA_LAUNCH(kernel_pair_grad, cuda_grid(l->n, CUDA_BLOCK), CUDA_BLOCK, l,
                           stream);
    code = CUDA_LAUNCH(kernel_pair, blocks, CUDA_BLOCK, l, stream);
    return code == cudaSuccess ? launch_total(stream, &total) : code;
}
