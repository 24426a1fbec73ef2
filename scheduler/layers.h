/* SPDX-License-Identifier: MIT */
/* Layers that a network repeats, as the costs of its blocks show them. */
#ifndef TASUKI_SCHEDULER_LAYERS_H
#define TASUKI_SCHEDULER_LAYERS_H

#include <stdbool.h>

#include "scheduler/cost.h"

/* The blocks between two others that are one layer again and again. */
struct layers {
    int first;              /* block of the first layer */
    int blocks, n;          /* of a layer; how many there are */
};

/* The longest repetition, by parameters and activations; n is 0 where nothing is repeated. The last
 * block may have a normalization, too, that is behind all layers.
 */
struct layers layers_find(const struct cost *cost);
/* Blocks behind the last layer. */
int layers_behind(const struct cost *cost, const struct layers *layers);
/* Is the network nothing else but these? No more than a layer's blocks are before them, and no
 * more are behind.
 */
bool layers_are_all(const struct cost *cost, const struct layers *layers);

#endif
