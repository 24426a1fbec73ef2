/* SPDX-License-Identifier: MIT */
/* A list of kernels with their pointers bound, for each version of the weights and each slot:
 * running it touches nothing else.
 */
#ifndef TASUKI_TRAIN_TAPE_H
#define TASUKI_TRAIN_TAPE_H

#include <stdbool.h>

#include "train/store.h"

/* An accumulated output of a kernel that cannot add: it goes to spare memory and is added. */
struct tape_sum {
    int output;
    size_t n;
    char *spare;
};

struct tape_item {
    int node, n_outputs;
    bool gradient;              /* does it make a gradient that is accumulated? */
    struct kernel *kernel;
    struct kernel_args *args;   /* [versions * slots] */
    int n_sums;
    struct tape_sum *sums;
};

struct tape {
    const struct backend *backend;
    const struct compiled *compiled;
    struct stream *stream;
    enum dtype real;
    int n, n_slots;             /* slots of all versions */
    struct tape_item *items;
    int max_outputs;
    void **outputs;             /* scratch for the pointers of one run */
};

/* 'states[version * slots + slot]' is what kernels of that slot read. Gradients of
 * what is run 'again' go to spare memory: behind what the kernel asks for, in the workspace.
 */
void tape_init(struct tape *tape, const struct program_list *list, const struct store *store,
               const struct step_state *states, bool again);
void tape_clear(struct tape *tape);

/* Run item i for a slot of a version, version * slots + slot; 'accumulate': gradients are added to
 * what is there.
 */
int tape_run(const struct tape *tape, int i, int slot, bool accumulate, struct err *err);

#endif
