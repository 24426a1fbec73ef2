/* SPDX-License-Identifier: MIT */
/* What a chain is launched with: several pointwise operators as one kernel, which is compiled while the
 * program runs (chain.c). Part of its text, where NVRTC has no headers of a system.
 */
#ifndef TASUKI_KERNELS_CUDA_LAUNCH_CHAIN_H
#define TASUKI_KERNELS_CUDA_LAUNCH_CHAIN_H

#ifdef __CUDACC_RTC__
typedef unsigned short uint16_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uintptr_t;
#else
#include <stdint.h>
#endif

#define CUDA_WORD 16            /* bytes that a thread reads or writes at once */
#define CUDA_CHAIN_INPUTS 8
#define CUDA_CHAIN_KERNEL "tasuki_chain"

struct cuda_chain {
    int64_t elements;           /* of the output; where an input is not as long its places are in the text */
    const void *in[CUDA_CHAIN_INPUTS];
    void *out;
    int add;                    /* to what is there */
};

#endif
