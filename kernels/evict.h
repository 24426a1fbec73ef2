/* SPDX-License-Identifier: MIT */
#ifndef TASUKI_KERNELS_EVICT_H
#define TASUKI_KERNELS_EVICT_H

#include <stdbool.h>
#include <stddef.h>

/* Write these bytes of host memory back and drop them from all caches of this machine: x86-64 and
 * AArch64. False where this processor has no such instruction for programs.
 */
bool evict_bytes(const void *memory, size_t bytes);

#endif
