/* SPDX-License-Identifier: MIT */
/* A driver of a machine without a GPU, "libcuda.so.1", for test_cudnn: cuDNN asks for one where it compiles.
 * Code is taken, kernels are found in it, and nothing can be run.
 */
#include <cuda.h>

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static int thing;               /* what all that is made points to */

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                           void **jit_values, unsigned n_jit, CUlibraryOption *options, void **values,
                           unsigned n)
{
    (void)code, (void)jit_options, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    *library = (CUlibrary)(void *)&thing;
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    (void)library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    (void)library, (void)name;
    *kernel = (CUkernel)(void *)&thing;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    (void)kernel;
    *function = (CUfunction)(void *)&thing;
    return CUDA_SUCCESS;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    (void)attribute, (void)value, (void)kernel, (void)device;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n)
{
    *n = 0;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    (void)attribute, (void)kernel, (void)device;
    *value = 0;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text)
{
    (void)error;
    *text = "error of the stand-in";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    return cuGetErrorName(error, text);
}

/* Looked up, but without a GPU not called. */
#define ABSENT(name)                                                    \
    __asm__(".globl " #name "\n.set " #name ", fake_driver_absent")

__attribute__((used)) CUresult fake_driver_absent(void);

CUresult fake_driver_absent(void)
{
    return CUDA_ERROR_NO_DEVICE;
}

ABSENT(cuCtxGetCurrent);
ABSENT(cuCtxGetLimit);
ABSENT(cuCtxPopCurrent);
ABSENT(cuCtxPushCurrent);
ABSENT(cuLaunchCooperativeKernel);
ABSENT(cuLaunchKernel);
ABSENT(cuLaunchKernelEx);
ABSENT(cuLibraryLoadFromFile);
ABSENT(cuLinkAddData);
ABSENT(cuLinkComplete);
ABSENT(cuLinkCreate);
ABSENT(cuLinkDestroy);
ABSENT(cuOccupancyMaxActiveBlocksPerMultiprocessor);
ABSENT(cuOccupancyMaxPotentialClusterSize);
ABSENT(cuStreamGetCtx);
