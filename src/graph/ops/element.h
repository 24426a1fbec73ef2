/* SPDX-License-Identifier: MIT */
#ifndef TASUKI_GRAPH_ELEMENT_H
#define TASUKI_GRAPH_ELEMENT_H

#include "graph/graph.h"

struct err;

/* How GatherND and ScatterND read their indices: 'groups' times 'rows' tuples of 'n' numbers;
 * each names 'inner' elements that follow each other among the 'size' of its group.
 */
struct tuple {
    int lead;                       /* common leading axes: batch_dims */
    int n;
    int64_t groups, rows, inner, size;
    int64_t dim[GRAPH_MAX_RANK];    /* what each of the n numbers is below */
};

int tuple_of(const struct graph *graph, int node, const struct shape *data,
             const struct shape *index, struct tuple *tuple, struct err *err);

#endif
