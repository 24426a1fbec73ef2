/* SPDX-License-Identifier: MIT */
/* Which operands of which operators may be narrow, and which nodes of a graph run so: for lower.c. */
#ifndef TASUKI_KERNELS_CUDA_NARROW_H
#define TASUKI_KERNELS_CUDA_NARROW_H

#include "kernels/cuda/cuda.h"

/* float32, and of 16 bits in rows as float32 is, or with the channels last. */
enum cuda_form { CUDA_SINGLE, CUDA_ROWS, CUDA_LAST, CUDA_FORMS };

/* Of values that there are when it starts; to be kept up by whoever goes through the nodes. */
struct cuda_forms {
    const struct graph *graph;
    struct device *device;      /* NULL: one that has what most have */
    enum cuda_narrow narrow;
    int seed;                   /* of struct autodiff */
    bool last;                  /* may channels be the last axis? */
    bool *fixed;                /* stays float32: seen from outside */
    unsigned char *form;        /* of each value */
    unsigned char *copies;      /* bit i: it is there in form i, too */
    bool *ran_last;             /* of nodes */
};

void cuda_forms_start(struct cuda_forms *forms, const struct graph *graph, struct device *device,
                      enum cuda_narrow narrow, int seed);
void cuda_forms_clear(struct cuda_forms *forms);

struct cuda_way {
    bool narrow, last;
};

/* How the node runs, by the forms of what it reads; in the order of the nodes. */
struct cuda_way cuda_forms_way(struct cuda_forms *forms, int node);
/* Of an operand that may be narrow, of a node that runs narrow. */
enum cuda_form cuda_form_for(const struct graph *graph, int v, struct cuda_way way);

#endif
