/* SPDX-License-Identifier: MIT */
/* For kernels over rows: who does what of them, and sums of a block in double. */
#ifndef TASUKI_KERNELS_CUDA_ROWS_CUH
#define TASUKI_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/device.cuh"

#define CUDA_MOST_BLOCKS 65536

/* For a loop over n pieces that blocks take as a team, or single threads. */
#define CUDA_EACH_OF(i, n, team)                                                              \
    for (int64_t i = (team) ? (int64_t)blockIdx.x                                             \
                            : (int64_t)blockIdx.x * blockDim.x + threadIdx.x;                 \
         i < (n); i += (team) ? (int64_t)gridDim.x : (int64_t)gridDim.x * blockDim.x)

/* For a loop within one of them: all of [from, end), or the part of this thread of the team. */
#define CUDA_EACH_IN(i, from, end, team)                                                      \
    for (int64_t i = (from) + ((team) ? (int64_t)threadIdx.x : 0); i < (end);                 \
         i += (team) ? (int64_t)blockDim.x : 1)

/* Threads that suit pieces of 'length', a power of two. */
static inline unsigned team_threads(int64_t length, int team)
{
    unsigned threads = CUDA_WARP;

    if (!team)
        return CUDA_BLOCK;
    while (threads < CUDA_BLOCK && threads < length)
        threads *= 2;
    return threads;
}

static inline unsigned team_blocks(int64_t n, int team)
{
    if (!team)
        return cuda_grid(n, CUDA_BLOCK);
    return n < 1 ? 1 : n < CUDA_MOST_BLOCKS ? (unsigned)n : CUDA_MOST_BLOCKS;
}

CUDA_DEVICE float team_sum(float x, int team, float *shared)
{
    return team ? block_sum(x, shared) : x;
}

CUDA_DEVICE float team_max(float x, int team, float *shared)
{
    return team ? block_max(x, shared) : x;
}

/* N sums of what 'team' threads beside each other have, for all of them: a power of two of warps. All
 * threads of the block call it; 'shared' is N * CUDA_BLOCK / CUDA_WARP floats.
 */
template <int N> CUDA_DEVICE void warps_sums(float *x, int team, float *shared)
{
    int warps = team / CUDA_WARP, warp = (int)threadIdx.x / CUDA_WARP;
    int lane = (int)threadIdx.x % CUDA_WARP;

    for (int k = 0; k < N; k++)
        x[k] = warp_sum(x[k]);
    if (warps == 1)
        return;
    for (int k = 0; k < N; k++)
        if (lane == 0)
            shared[N * warp + k] = x[k];
    __syncthreads();
    for (int k = 0; k < N; k++)
        x[k] = warp_sum(lane < warps ? shared[N * ((warp & -warps) + lane) + k] : 0);
    __syncthreads();
}

/* As block_sum(); 'shared' is CUDA_BLOCK doubles. */
CUDA_DEVICE double block_sum_double(double x, double *shared)
{
    shared[threadIdx.x] = x;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    x = shared[0];
    __syncthreads();
    return x;
}

/* Is this the thread that writes what its team found? */
CUDA_DEVICE int team_writes(int team)
{
    return !team || threadIdx.x == 0;
}

/* Where row 'row' starts. */
CUDA_DEVICE int64_t row_start(const struct cuda_rows &rows, int64_t row)
{
    return rows.after == 1 ? row * rows.length
                           : row / rows.after * rows.length * rows.after + row % rows.after;
}

/* out[i] = sum of terms[i][0 … n-1], out[0] over 'weight_sum' where that is set. What is NULL is left
 * out.
 */
struct cuda_total {
    int64_t n;
    const double *terms[2], *weight_sum;
    float *out[2];
};

cudaError_t launch_total(cudaStream_t stream, const struct cuda_total *l);

/* out[0] = scale times the sums over the rows of dy[rows, columns], whose rows are 'pitch' elements apart;
 * out[1] where x is there of dy times normalised x. Either may be NULL; mean NULL: 0.
 */
struct cuda_columns {
    int64_t rows, columns, pitch;
    struct cuda_cut cut;
    enum cuda_narrow narrow;
    const void *dy, *x;
    const float *mean, *inverse;
    float *parts;               /* [2, chunks, columns] */
    float *out[2];
    double scale;
    int add;
};

cudaError_t launch_columns(cudaStream_t stream, const struct cuda_columns *l);

/* images.cu: what channels.cu does, of images that have 'columns'. */
cudaError_t launch_image_sums(cudaStream_t stream, const struct cuda_channels *l);
cudaError_t launch_image_norm(cudaStream_t stream, const struct cuda_batchnorm *l);
cudaError_t launch_image_grad(cudaStream_t stream, const struct cuda_batchnorm_grad *l);

/* Blocks of a sum over n elements: each makes one of at most CUDA_PARTS parts. */
static inline unsigned part_blocks(int64_t n)
{
    unsigned blocks = cuda_grid(n, CUDA_BLOCK * 8);

    return blocks < CUDA_PARTS ? blocks : CUDA_PARTS;
}

#endif
