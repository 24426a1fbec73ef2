/* SPDX-License-Identifier: MIT */
/* The energy that a node's processors and a GPU take, as their own counters have it.
 *
 * Processors: RAPL's packages and memory, in class/powercap of sysfs, which many systems let root
 * alone read; it is the whole node's, whoever uses it. GPUs: NVML, from Volta on.
 */
#ifndef TASUKI_TOPOLOGY_ENERGY_H
#define TASUKI_TOPOLOGY_ENERGY_H

#include <stdbool.h>

struct energy;

/* Count from now on: the processors, if 'node', and the GPU of this PCI address, unless "". */
struct energy *energy_start(bool node, const char *gpu);
/* RAPL's counters begin anew, after 20 minutes at full power: look at them more often. */
void energy_look(struct energy *energy);
/* Joules until now; NAN where they cannot be known. */
void energy_read(struct energy *energy, double *cpus, double *gpu);
void energy_free(struct energy *energy);

#endif
