/* SPDX-License-Identifier: MIT */
/* Graphs of cuDNN's operations as the stand-in computes them. */
#ifndef TASUKI_TESTS_FAKE_CUDNN_GRAPH_H
#define TASUKI_TESTS_FAKE_CUDNN_GRAPH_H

#include "tests/fake_cudnn.h"

#define MOST_OPERATIONS 24
#define MOST_TENSORS 64
#define MOST_OPERANDS 8

struct tensor {
    int64_t id, dim[4], stride[4];
    cudnnDataType_t type;
    bool is_virtual, by_value, made;    /* is it the result of an operation? */
    void *at;                           /* memory; of a number: on the host */
    float value;
    double *here;                       /* by stride, while the graph is run */
};

struct operation {
    cudnnBackendDescriptorType_t type;
    int mode, axis;
    int x, b, t, y;                     /* tensors; -1: none. A product's: x b = y */
    int of[MOST_OPERANDS];              /* those of a norm or pool: fake_cudnn_image.c */
    int64_t window[2], step[2], before[2], after[2];
};

struct graph {
    int n, n_tensors;
    struct operation operations[MOST_OPERATIONS];
    struct tensor tensors[MOST_TENSORS];
    void *workspace;
};

/* The tensor that this attribute is, -1: none. */
int fake_tensor(struct graph *g, const struct descriptor *d, cudnnBackendAttributeName_t name);
/* Where an element is; an axis of one is repeated. */
int64_t fake_element_at(const struct tensor *t, const int64_t *index);
/* It is the tensor's from now on, rounded as that is. */
void fake_put(struct tensor *t, int64_t at, double x);

/* fake_cudnn_image.c: is it an operation of these; read it; compute it. */
bool fake_is_image(cudnnBackendDescriptorType_t type);
void fake_image_read(struct graph *g, const struct descriptor *d, struct operation *o);
void fake_image_run(struct graph *g, const struct operation *o);

#endif
