/* SPDX-License-Identifier: MIT */
/* What a stage takes at least, for bounds of networks of any size: seconds and bytes of the blocks
 * on the longest way through the network. Blocks off it are left out.
 */
#ifndef TASUKI_SCHEDULER_PARTITION_WAY_H
#define TASUKI_SCHEDULER_PARTITION_WAY_H

#include <math.h>

#include "base/extreme.h"
#include "scheduler/partition_private.h"


struct way {
    struct search *search;
    int n, *blocks;         /* in order; from block to block go gradients */
    int *within;            /* [n]: a stage from here on keeps what arrives if it ends behind this */
    double room;            /* bytes of the largest device */
};

/* Stages of so many replicas; sums up to each block on the way, [n + 1]. */
struct way_sums {
    int replicas;
    double *forward, *wgrad, *trip[RECOMPUTES];     /* there and back, of the smallest share */
    double *dgrad[RECOMPUTES];                      /* and what is run again */
    double *fixed, *made[RECOMPUTES - 1];   /* bytes: parameters; kept of a micro-batch, the
                                             * selective no more than the others */
    double *in, *out;           /* bytes, no sums: of the message over each cut and its gradient, which
                                 * the stage behind it has; of the message, in front of it */
    double sends;               /* so many of each are under way */
    double *arrives, *read;     /* bytes, no sums: at each cut, the least that is kept behind it by a
                                 * stage that runs all again: by a long one, by any */
};

void way_init(struct way *way, struct search *search);
void way_clear(struct way *way);

/* Do all blocks lie on it? */
bool way_is_chain(const struct way *way);

/* Of a micro-batch of 'b' samples, 'm' of them, for 'replicas' to 'most' of a stage; 'copies': of which
 * each has a part of the state under ZeRO-1, at most.
 */
void way_sums_init(struct way_sums *sums, const struct way *way, int64_t b, int64_t m, int replicas,
                   int most, int copies);
void way_sums_clear(struct way_sums *sums);

/* Bytes of the stage from i to before j, at least, that holds so many micro-batches. */
static inline double way_bytes(const struct way *way, const struct way_sums *s,
                               enum plan_recompute c, int slots, int i, int j)
{
    double made = s->made[0][j] - s->made[0][i], kept = made;

    /* Of one micro-batch all is there when its backward begins, or but for what is made again
     * piece by piece.
     */
    if (c == PLAN_RECOMPUTE_FULL)
        kept = dmax(s->read[i], j > way->within[i] ? s->arrives[i] : 0);
    else if (c == PLAN_RECOMPUTE_SELECTIVE)
        kept = made = s->made[1][j] - s->made[1][i];
    return s->fixed[j] - s->fixed[i] + made + (slots - 1) * kept + s->sends * (s->in[i] + s->out[j]) +
           dmin(s->sends, slots) * s->out[j];
}

#endif
