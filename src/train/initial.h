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
struct safetensors;

#define INITIAL_FAN_IN "fan-in"

/* 'file', which is taken, has all of these tensors, by name and shape. NULL: 'by_rule', or what is
 * said by nobody starts as 0, for a run whose checkpoint has the parameters. Fails where values are
 * absent that are no parameters and no file gives.
 */
struct initial *initial_new(struct model *model, const struct model_options *options,
                            struct safetensors *file, bool by_rule, struct err *err);
/* Where the model has all of them. */
struct initial *initial_of_model(const struct model *model);
/* From now on large weights of the model, and those of the file, come from the rank that reads
 * these (weights.h). On all ranks they are ranges of the same numbers.
 */
void initial_share(struct initial *initial);
int initial_ranges(const struct initial *initial);
/* On the rank that reads, its bytes; NULL where it is none. */
const void *initial_range(const struct initial *initial, int range, size_t *bytes);
/* The range that has the value, in '*type'; -1 for values that initial_read() gives. */
int initial_find(const struct initial *initial, const struct value *value, enum dtype *type);
/* Such bytes need not stay in memory. */
void initial_drop(const struct initial *initial, const void *data, size_t bytes);
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
