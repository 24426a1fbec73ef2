/* SPDX-License-Identifier: MIT */
/* What parameters start from where the model has no weights: the usual rules of fan-in, or a
 * safetensors file.
 *
 * The rules are PyTorch's defaults, and follow from what first reads the parameter, whatever the
 * plan and the fusions: tasuki-train(1) lists them. Element i of a parameter is a function of
 * (seed, the parameter's name, i) alone, by Philox.
 */
#ifndef TASUKI_TRAIN_INITIAL_H
#define TASUKI_TRAIN_INITIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/model.h"

struct err;
struct initial;

#define INITIAL_FAN_IN "fan-in"

/* 'how': INITIAL_FAN_IN, or the path of a file that has all of these tensors, by name and shape.
 * NULL: what is said by nobody starts as 0, for a run whose checkpoint has the parameters. Fails
 * where values are absent that are no parameters and no file gives.
 */
struct initial *initial_new(struct model *model, const struct model_options *options,
                            const char *how, struct err *err);
/* Where the model has all of them. */
struct initial *initial_of_model(const struct model *model);
/* Large weights of the model come by another way (weights.h): initial_comes() for such a value. */
void initial_leave_large(struct initial *initial);
bool initial_comes(const struct initial *initial, const struct value *value);
void initial_free(struct initial *initial);

/* Values of the model without data, by the first of their names; NULL where there are none. */
const char *initial_absent(const struct graph *graph, int *n);

/* 'n' elements from 'first' on, a multiple of four, in the value's type: as the model has them,
 * else as above. Without 'initial' there is only the former. What was read of a file does not stay
 * in memory.
 */
int initial_read(const struct initial *initial, uint64_t seed, const struct value *value,
                 size_t first, size_t n, void *data, struct err *err);

#endif
