/* SPDX-License-Identifier: MIT */
/* Between the .cu files and the C files of tasuki-cuda.so: one launcher for each family. */
#ifndef TASUKI_KERNELS_CUDA_MODULE_H
#define TASUKI_KERNELS_CUDA_MODULE_H

#ifndef CUDA_EMULATED
#include <cuda_runtime_api.h>
#endif

#include <stddef.h>

#include "kernels/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_LAUNCHER(family) \
    cudaError_t cuda_launch_##family(cudaStream_t stream, const struct cuda_##family *launch);
CUDA_FAMILIES(CUDA_LAUNCHER)
#undef CUDA_LAUNCHER

/* What CUDA says of the current device's code of a kernel, which is compiled for all that this is. */
cudaError_t cuda_code(void);
/* "sm_75 sm_80 sm_90": what nvcc was told to compile for. */
void cuda_architectures(char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
