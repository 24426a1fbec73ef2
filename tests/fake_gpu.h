/* SPDX-License-Identifier: MIT */
/* CUDA's words for a C++ compiler: kernels of kernels/cuda run on the host, thread by thread, with
 * barriers (fake_gpu.cc). For the tests alone.
 */
#ifndef TASUKI_TESTS_FAKE_GPU_H
#define TASUKI_TESTS_FAKE_GPU_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <vector_types.h>

#include "tests/fake_real.h"

#undef __shared__
#define __shared__ static       /* blocks run one after the other */

struct fake_place {
    dim3 thread, block, threads, blocks;
};

extern "C" struct fake_place fake_place;        /* of the thread that runs */
extern "C" void fake_barrier(void);

#define threadIdx (fake_place.thread)
#define blockIdx (fake_place.block)
#define blockDim (fake_place.threads)
#define gridDim (fake_place.blocks)
#define __syncthreads() fake_barrier()

/* All threads of the block call it, as they come to a barrier. */
static inline float __shfl_xor_sync(unsigned mask, float x, int far)
{
    static float all[1024];

    if (mask != 0xffffffff || blockDim.x % 32)
        abort();
    all[threadIdx.x] = x;
    __syncthreads();
    x = all[threadIdx.x ^ (unsigned)far];
    __syncthreads();
    return x;
}

static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}

#endif
