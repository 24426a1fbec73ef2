/* SPDX-License-Identifier: MIT */
/* The gradients of a step as a file, to compare with other frameworks. */
#ifndef TASUKI_TRAIN_GRADIENTS_H
#define TASUKI_TRAIN_GRADIENTS_H

#include "comm/comm.h"
#include "train/placement.h"
#include "train/store.h"

struct err;

/* What the last step left, summed over all replicas, by parameter, times 'factor', as safetensors.
 * Collective over all ranks; 'stores' of the rank's stages. Rank 0 writes.
 */
int gradients_write(const char *path, int n_stores, struct store *const *stores,
                    const struct placement *placement, double factor, struct comm *comm,
                    struct err *err);

#endif
