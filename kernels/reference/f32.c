/* SPDX-License-Identifier: MIT */
typedef float real;
#define REAL(name) name##_f32
#include "kernels/reference/real.inc.h"
