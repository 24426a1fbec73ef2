// SPDX-License-Identifier: MIT
// The kernels of kernels/cuda as the host's compiler makes them of the same files.
#define CUDA_EMULATED
#include <cuda_runtime_api.h>

#include "kernels/cuda/attention.cu"
#include "kernels/cuda/channels.cu"
#include "kernels/cuda/columns.cu"
#include "kernels/cuda/dropout.cu"
#include "kernels/cuda/images.cu"
#include "kernels/cuda/index.cu"
#include "kernels/cuda/move.cu"
#include "kernels/cuda/norm.cu"
#include "kernels/cuda/optimize.cu"
#include "kernels/cuda/pointwise.cu"
#include "kernels/cuda/pool.cu"
#include "kernels/cuda/reduce.cu"
#include "kernels/cuda/softmax.cu"
#include "kernels/cuda/typed.cu"
