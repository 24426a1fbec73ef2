/* SPDX-License-Identifier: MIT */
typedef double real;
#define REAL(name) name##_f64
#include "kernels/reference/real.inc.h"
