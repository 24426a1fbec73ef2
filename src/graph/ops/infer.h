/* SPDX-License-Identifier: MIT */
/* What the shape rules share: reading inputs, setting outputs, following the batch. */
#ifndef TASUKI_GRAPH_INFER_H
#define TASUKI_GRAPH_INFER_H

#include "graph/op.h"

/* Input 'index' of a node; NULL where absent. Not to be kept over an append. */
const struct value *node_input(const struct graph *graph, int node, int index);
const struct value *node_output(const struct graph *graph, int node, int index);

/* Set output 'index' (nothing where absent). Negative dimensions and products beyond 2^48
 * elements are errors.
 */
int set_output(struct graph *graph, int node, int index, enum dtype dtype,
               const struct shape *shape, struct batch batch, struct err *err);
/* The same type, shape and batch as an input. */
int set_output_like(struct graph *graph, int node, int index, int input, struct err *err);
/* A whole rule: output 0 like input 0. */
int infer_like(struct graph *graph, int node, struct err *err);

/* Where the batch stands among axes: axis 'axis' is [outer, b, inner]; axis -1: nowhere. */
struct batch_place {
    int axis;
    int64_t outer, inner;
};

static const struct batch_place no_batch = { -1, 0, 0 };
static const struct batch batch_none = { 0, 0, 0 };

/* Find the batch of a value; an error where it lies across axes. */
int batch_find(const struct graph *graph, int node, const struct value *value,
               struct batch_place *place, struct err *err);
/* The batch of a tensor of this shape whose batch stands at 'place'. */
struct batch batch_at(const struct shape *shape, struct batch_place place);
/* Refuse an op that mixes samples along 'axis'. Nothing is refused at b == 1 (graph.h). */
int refuse_batch_axis(const struct graph *graph, int node, struct batch_place place, int axis,
                      const char *verb, struct err *err);

/* Input 0 as images or the like: [samples, channels, ...], where 'place' is the batch. An error
 * where it is not floating, has no channels, or has its samples elsewhere.
 */
int infer_images(const struct graph *graph, int node, struct batch_place *place,
                 struct err *err);

/* Numpy's broadcast of inputs first … first+n-1 and where the batch stands in the result. */
int infer_broadcast(const struct graph *graph, int node, int first, int n, struct shape *shape,
                    struct batch *batch, struct err *err);

/* The type of the inputs from 'first' on; an error where they differ. */
int infer_same_types(const struct graph *graph, int node, int first, enum dtype *dtype,
                     struct err *err);
/* Output 0: the broadcast of all inputs, of this type. */
int set_broadcast(struct graph *graph, int node, enum dtype dtype, struct err *err);

/* 0 <= axis < rank from -rank <= axis < rank. */
int normal_axis(const struct graph *graph, int node, int64_t axis, int rank, int *result,
                struct err *err);
/* The integers of an attribute; '*n' is -1 where it is absent. */
int attr_ints(const struct graph *graph, int node, const char *name, int max, int64_t *values,
              int *n, struct err *err);

/* Errors where the input is not of a floating (integer) type. */
int need_float(const struct graph *graph, int node, int input, struct err *err);
int need_integer(const struct graph *graph, int node, int input, struct err *err);
int need_shape(const struct graph *graph, int node, int input, const struct shape *shape,
               struct err *err);

#endif
