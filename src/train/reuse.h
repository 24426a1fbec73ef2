/* SPDX-License-Identifier: MIT */
/* Which operands of a node have left the caches by the time it runs inside a step.
 *
 * An operator that is run again and again by itself finds its weights in the cache; inside a
 * step all other weights have passed since. An operand is "far" where more bytes than the
 * cache holds were touched since its place was last touched, by whatever value was there then.
 * The list is taken to be run over and over.
 */
#ifndef TASUKI_TRAIN_REUSE_H
#define TASUKI_TRAIN_REUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/program.h"

#define REUSE_OPERANDS 64       /* what comes after them is taken to be near */
/* No ring is longer: what so many bytes pass before is in no cache, since other cores, and on many
 * machines other systems, have their share of the last one.
 */
#define REUSE_LONGEST ((size_t)64 << 20)

struct reuse {
    size_t ring;                /* bytes that a step touches, each once; 0: the cache holds them */
    int n_nodes;
    uint64_t *far;              /* [n_nodes] bit k: operand k, inputs before outputs */
    uint64_t *gone;             /* [n_nodes] of these, those that REUSE_LONGEST is too short for */
    size_t *rings;              /* [n_nodes] bytes that are touched between two uses of the others, in
                                 * the mean; 0: there are none */
    int written;                /* of what a step touches so many quarters are written */
    double held;                /* bytes that a step touches, each once, at any size */
    double pace;                /* seconds of a step for each of them; 0: not known. Set by who measures */
    bool *result;               /* [n_nodes] makes what nobody reads: gradients, for one */
};

/* 'order' has 'n' nodes in running order; nodes that are not in it have nothing far.
 * 'layouts' NULL: all plain. 'places[v]': where each value, of views the root, starts in one space
 * of addresses, of which values may share parts; NULL: each is by itself. 'cache' bytes are what a device keeps near.
 */
void reuse_make(struct reuse *reuse, const struct graph *graph, int n, const int *order,
                const struct value_layout *layouts, const size_t *places, size_t cache);
void reuse_clear(struct reuse *reuse);
/* Bytes of the second-level caches of so many cores, the last that no other core uses. */
size_t reuse_cache(int threads);

#endif
