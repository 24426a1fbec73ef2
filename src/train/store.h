/* SPDX-License-Identifier: MIT */
/* The arenas of a rank: allocated once, addressed by (value, slot).
 *
 * Where a schedule is not flushed there are two versions of parameters, of what is prepared of
 * them and of the divisor of the loss: the latest, and the one before it. Forwards of two batches
 * are then under way at once, each with one of the versions, and add to running statistics in
 * 'contributions' of that; where the batch is reduced, these go to their place among the gradients.
 */
#ifndef TASUKI_TRAIN_STORE_H
#define TASUKI_TRAIN_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "train/compile.h"
#include "train/initial.h"
#include "train/pieces.h"
#include "train/slices.h"

struct store {
    const struct compiled *compiled;
    struct device *device;
    struct stream *stream;
    int n_slots, n_states;
    int n_versions, latest;
    bool averaged, offload;
    char *weights[SCHEDULE_VERSIONS], *prepared[SCHEDULE_VERSIONS];
    char *params;               /* weights[latest] */
    char *gradients, *states[2], *slots, *scratch, *workspace;
    char *contributions[SCHEDULE_VERSIONS];     /* NULL: there is one version, or none are made */
    char *averages;             /* of parameters, as the states lie; NULL: none are kept */
    struct slices slices;       /* what these are states and averages of */
    char *buffers;              /* messages and, from 'sums' on, scratch of sums */
    char *sums;
    char *direct;               /* messages that NCCL moves, in memory of the GPU */
    char *weight_sum;           /* the scalar that losses divide by, of each version */
    size_t buffer_bytes, direct_bytes;
    char *arena;                /* all of these that are in memory of the device */
    size_t arena_bytes;
    struct pieces pieces;       /* of what is loaded, until it has settled */
};

/* Allocate everything, zeroed, in one go but for what is in memory of the host. The device counts
 * it: see backend->peak(). 'placement' as in slices_make(). 'offload': the states lie in memory of the host that kernels reach.
 */
int store_init(struct store *store, const struct compiled *compiled,
               const struct placement *placement, struct device *device,
               struct stream *stream, int optimizer_states, bool offload, bool averaged,
               size_t buffer_bytes, size_t direct_bytes, struct err *err);
void store_clear(struct store *store);

/* Parameters, statistics and constants as the model file has them; 'initial', with 'seed', gives
 * those that it lacks (NULL: that is an error), and may leave some for later.
 */
int store_load(struct store *store, const struct initial *initial, uint64_t seed,
               struct err *err);
/* Does the store keep what the value starts from? */
bool store_keeps(const struct store *store, int value);
/* 'n' elements of 'type' to its memory at 'to', in the type of 'value', in order with the stream. */
int store_put(struct store *store, int value, char *to, enum dtype type, const void *data,
              size_t n, struct err *err);
/* Wait for what store_put() was given. */
int store_arrive(struct store *store, struct err *err);
/* All that is not in a checkpoint has come, or all: the 'weights', too. */
int store_settle(struct store *store, bool weights, struct err *err);

/* NULL where the value has no place on this rank; of the latest version of the weights. */
void *store_address(const struct store *store, int value, int slot);
void *store_address_at(const struct store *store, int value, int slot, int version);
/* A step begins, which has none yet. */
void store_forget_gradients(struct store *store);
/* What the forwards with a version of the weights contributed is put among the gradients. */
int store_take_contributions(struct store *store, int version, struct err *err);
/* An update begins: the latest version is copied over the one before it, to be updated there. */
int store_turn(struct store *store, struct err *err);

#endif
