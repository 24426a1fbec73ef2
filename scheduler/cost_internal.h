/* SPDX-License-Identifier: MIT */
/* Between cost.c (checks, arithmetic, writing) and cost_read.c. */
#ifndef TASUKI_SCHEDULER_COST_INTERNAL_H
#define TASUKI_SCHEDULER_COST_INTERNAL_H

#include "base/json.h"
#include "scheduler/cost.h"

/* Sort blocks topologically, stable, and renumber edges, inputs and shared parameters. */
int cost_sort(struct cost *cost, const char *path, struct err *err);

/* Forget the variant of a block where it is no other. */
void cost_drop_selective(const struct cost *cost, struct cost_block *block);

/* Names of the blocks, sorted, to look edges up. */
struct cost_name {
    const char *text;
    int block;
};

/* A file that is being read. */
struct cost_reading {
    struct cost *cost;
    struct json_reader top;
    struct cost_name *names;
    size_t numbers;
};

/* A list of one number per size, or one entry (a scalar too) that stands at the first. */
int cost_read_numbers(struct cost_reading *reading, struct json_reader *r, const char *key,
                      bool required, bool scales, double **result, struct err *err);
int cost_find_block(const struct cost_reading *reading, const struct json_reader *r,
                    const char *key, const char *text, int *block, struct err *err);

/* "values", "steps" and "returns", where they are there. */
int cost_read_steps(struct cost_reading *reading, struct err *err);
void cost_steps_to_json(const struct cost *cost, json_t *top);
json_t *cost_numbers(const struct cost *cost, const double *array);

#endif
