/* SPDX-License-Identifier: MIT */
/* A library by the name of cuBLASLt with nothing in it: fake_cublaslt.c stands in for what it does. The
 * real one takes longer to load than most of what is trained over the stand-in takes.
 */
#include "tests/fake_cuda.h"

const char fake_cublaslt_name = 0;
