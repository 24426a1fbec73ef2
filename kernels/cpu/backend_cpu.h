/* SPDX-License-Identifier: MIT */
/* The "cpu" backend's table, for backend_find(). */
#ifndef TASUKI_KERNELS_CPU_BACKEND_CPU_H
#define TASUKI_KERNELS_CPU_BACKEND_CPU_H

#include "kernels/backend.h"

extern const struct backend backend_cpu;

#endif
