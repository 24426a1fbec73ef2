// SPDX-License-Identifier: MIT
// Sums over the rows of a matrix: gradients of biases and of the weights of norms.
//
// Strips of columns are cut into chunks of rows. Of each a block makes the sums, in float32: every
// thread has a word of columns and every so many rows, several of which it reads at once. What the
// chunks have come to is added up in double.
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

// Where the columns of a thread begin in shared memory: no two of a quarter of a warp share a bank.
#define COLUMN_STEP(REAL) (CUDA_WIDTH(REAL) + (CUDA_WIDTH(REAL) > 4 ? 4 : 0))

CUDA_DEVICE void put_column(const struct cuda_columns &l, float *out, double sum)
{
    float y = (float)(sum * l.scale);

    *out = l.add ? *out + y : y;
}

// The first of 'left' rows from 'row' on, 'lanes' apart, of a thread's word of columns.
template <typename REAL, bool NORMED>
CUDA_DEVICE void add_rows(const struct cuda_columns &l, int64_t row, int left, int lanes, int64_t word,
                          float (*sum)[CUDA_WIDTH(REAL)])
{
    const int batch = NORMED ? 4 : 8, width = CUDA_WIDTH(REAL);
    int64_t pitch = l.pitch / width, at = row * pitch + word;
    uint4 dy[batch], x[batch];
    float mean[batch], inverse[batch], d[width], own[width];

    CUDA_UNROLL_ALL
    for (int k = 0; k < batch; k++, at += lanes * pitch) {
        bool is_there = k * lanes < left;

        dy[k] = word_at(l.dy, at, is_there);
        if (!NORMED)
            continue;
        x[k] = word_at(l.x, at, is_there);
        mean[k] = l.mean && is_there ? l.mean[row + k * lanes] : 0;
        inverse[k] = is_there ? l.inverse[row + k * lanes] : 0;
    }
    CUDA_UNROLL_ALL
    for (int k = 0; k < batch; k++) {
        spread_word<REAL>(dy[k], d);
        for (int j = 0; j < width; j++)
            sum[0][j] += d[j];
        if (!NORMED)
            continue;
        spread_word<REAL>(x[k], own);
        for (int j = 0; j < width; j++)
            sum[1][j] += d[j] * ((own[j] - mean[k]) * inverse[k]);
    }
}

// What all lanes of the block have of the sums of a piece, added up and put where it belongs.
template <typename REAL, int SUMS>
CUDA_DEVICE void put_piece(const struct cuda_columns &l, int64_t chunk, int64_t first,
                           const float (*shared)[CUDA_BLOCK * COLUMN_STEP(REAL)])
{
    const int width = CUDA_WIDTH(REAL), step = COLUMN_STEP(REAL);
    int column = (int)threadIdx.x, words = l.cut.words;

    if (column >= words * width || first + column >= l.columns)
        return;
    for (int which = 0; which < SUMS; which++) {
        const float *own = shared[which] + column / width * step + column % width;
        float sum = 0;

        if (!l.out[which])
            continue;
        CUDA_UNROLL
        for (int lane = 0; lane < CUDA_BLOCK / words; lane++)
            sum += own[lane * words * step];
        if (l.cut.chunks == 1)
            put_column(l, l.out[which] + first + column, (double)sum);
        else
            l.parts[(which * l.cut.chunks + chunk) * l.columns + first + column] = sum;
    }
}

template <typename REAL, bool NORMED> CUDA_DEVICE void sum_columns(const struct cuda_columns &l)
{
    const int batch = NORMED ? 4 : 8, width = CUDA_WIDTH(REAL), sums = NORMED ? 2 : 1;
    alignas(CUDA_WORD) __shared__ float shared[sums][CUDA_BLOCK * COLUMN_STEP(REAL)];
    int words = l.cut.words, lanes = CUDA_BLOCK / words;
    int64_t strips = (l.columns / width + words - 1) / words;

    CUDA_EACH_OF(i, strips * l.cut.chunks, 1) {
        int64_t chunk = i / strips, strip = i - chunk * strips;
        int64_t word = strip * words + (int)threadIdx.x % words;
        int64_t first = chunk * l.cut.chunk + (int)threadIdx.x / words;
        int64_t end = (chunk + 1) * l.cut.chunk < l.rows ? (chunk + 1) * l.cut.chunk : l.rows;
        float sum[sums][width] = { { 0 } };

        for (int64_t row = first; row < end && word * width < l.columns; row += batch * lanes)
            add_rows<REAL, NORMED>(l, row, (int)(end - row), lanes, word, sum);
        for (int which = 0; which < sums; which++)
            for (int j = 0; j < width; j++)
                shared[which][(int)threadIdx.x * COLUMN_STEP(REAL) + j] = sum[which][j];
        __syncthreads();
        put_piece<REAL, sums>(l, chunk, strip * words * width, shared);
        __syncthreads();
    }
}

template <typename REAL> CUDA_DEVICE void plain_columns(const struct cuda_columns &l)
{
    sum_columns<REAL, false>(l);
}

template <typename REAL> CUDA_DEVICE void normed_columns(const struct cuda_columns &l)
{
    sum_columns<REAL, true>(l);
}

// parts[2, chunks, columns], or out[2][columns] of one chunk
CUDA_KERNELS_BY_TYPE(kernel_columns, cuda_columns, 3, plain_columns)
CUDA_KERNELS_BY_TYPE(kernel_normed_columns, cuda_columns, 3, normed_columns)

#define PART_LANES (CUDA_BLOCK / CUDA_WARP)

// out[2][columns] of parts[2, chunks, columns]: a warp's threads have neighbouring columns.
CUDA_KERNEL(kernel_column_parts, cuda_columns)
{
    __shared__ double shared[PART_LANES][CUDA_WARP];
    int lane = (int)threadIdx.x / CUDA_WARP, beside = (int)threadIdx.x % CUDA_WARP;
    int64_t strips = (l.columns + CUDA_WARP - 1) / CUDA_WARP;

    CUDA_EACH_OF(i, 2 * strips, 1) {
        int which = i >= strips;
        int64_t column = (i - which * strips) * CUDA_WARP + beside;
        const float *parts = l.parts + which * l.cut.chunks * l.columns + column;
        float *out = which ? l.out[1] : l.out[0];
        double sum = 0;

        if (!out)
            continue;
        if (column < l.columns)
            CUDA_UNROLL
            for (int64_t chunk = lane; chunk < l.cut.chunks; chunk += PART_LANES)
                sum += (double)parts[chunk * l.columns];
        shared[lane][beside] = sum;
        __syncthreads();
        for (int k = 1; k < PART_LANES && lane == 0; k++)
            sum += shared[k][beside];
        if (lane == 0 && column < l.columns)
            put_column(l, out + column, sum);
        __syncthreads();
    }
}

cudaError_t launch_columns(cudaStream_t stream, const struct cuda_columns *l)
{
    int64_t width = cuda_width(l->narrow);
    int64_t strips = (l->columns / width + l->cut.words - 1) / l->cut.words;
    cudaError_t code = CUDA_LAUNCH(l->x ? CUDA_KERNEL_OF_TYPE(kernel_normed_columns, l->narrow)
                                        : CUDA_KERNEL_OF_TYPE(kernel_columns, l->narrow),
                                   team_blocks(strips * l->cut.chunks, 1), CUDA_BLOCK, l, stream);

    return code != cudaSuccess || l->cut.chunks == 1
               ? code
               : CUDA_LAUNCH(kernel_column_parts,
                             team_blocks(2 * ((l->columns + CUDA_WARP - 1) / CUDA_WARP), 1),
                             CUDA_BLOCK, l, stream);
}
