/* SPDX-License-Identifier: MIT */
/* Between pairs.c, which chooses pairs by places, and pairs_gpus.c, by what joins GPUs. */
#ifndef TASUKI_TOPOLOGY_PAIRS_PRIVATE_H
#define TASUKI_TOPOLOGY_PAIRS_PRIVATE_H

#include "topology/pairs.h"

#define MOST_SAMPLES 4          /* places of a class where one pair is enough */

struct pairs_chooser {
    const struct cluster *cluster;
    bool full;
    struct pairs *pairs;
    const bool *shared;         /* of GPUs: which have a second rank */
};

/* Not all GPUs of a node need have a rank. */
bool pairs_takes_part(const struct pairs_chooser *c, int device);
/* Does any device below it? */
bool pairs_has_part(const struct pairs_chooser *c, int place);
void pairs_add(struct pairs *pairs, int class, int a, int b);
/* What there is to choose between places, then rounds. */
void pairs_finish(struct pairs_chooser *c);

#endif
