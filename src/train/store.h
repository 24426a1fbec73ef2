/* SPDX-License-Identifier: MIT */
/* The arenas of a rank: allocated once, addressed by (value, slot). */
#ifndef TASUKI_TRAIN_STORE_H
#define TASUKI_TRAIN_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "train/compile.h"
#include "train/initial.h"
#include "train/slices.h"

struct store {
    const struct compiled *compiled;
    struct device *device;
    struct stream *stream;
    int n_slots, n_states;
    bool averaged;
    char *params, *gradients, *states[2], *prepared, *slots, *scratch, *workspace;
    char *averages;             /* of parameters, as the states lie; NULL: none are kept */
    struct slices slices;       /* what these are states and averages of */
    char *buffers;              /* messages and spare gradients */
    char *weight_sum;           /* the scalar that losses divide by */
    size_t buffer_bytes;
};

/* Allocate everything, zeroed. The device counts it: see backend->peak(). 'placement' as in
 * slices_make().
 */
int store_init(struct store *store, const struct compiled *compiled,
               const struct placement *placement, struct device *device,
               struct stream *stream, int optimizer_states, bool averaged,
               size_t buffer_bytes, struct err *err);
void store_clear(struct store *store);

/* Parameters, statistics and constants as the model file has them; 'initial', with 'seed', gives
 * those that it lacks (NULL: that is an error).
 */
int store_load(struct store *store, const struct initial *initial, uint64_t seed,
               struct err *err);

/* NULL where the value has no place on this rank. */
void *store_address(const struct store *store, int value, int slot);

#endif
