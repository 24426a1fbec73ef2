/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "kernels/reference/reference.h"

void shape_strides(const struct shape *shape, int64_t *stride)
{
    int64_t step = 1;
    int i;

    for (i = shape->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape->dim[i];
    }
}

void walk_start(struct walk *walk, const struct shape *over)
{
    int i;

    memset(walk, 0, sizeof(*walk));
    walk->rank = over->rank ? over->rank : 1;
    walk->dim[0] = 1;
    for (i = 0; i < over->rank; i++)
        walk->dim[i] = over->dim[i];
    walk->rows = row_length(walk) ? 1 : 0;
    for (i = 0; i < walk->rank - 1; i++)
        walk->rows *= walk->dim[i];
}

void walk_strides(struct walk *walk, int i, int64_t start, const int64_t *stride)
{
    int k;

    walk->start[i] = start;
    for (k = 0; k < walk->rank; k++)
        walk->stride[i][k] = stride[k];
    if (i >= walk->n)
        walk->n = i + 1;
}

void walk_broadcast(struct walk *walk, int i, const struct shape *shape)
{
    int64_t own[GRAPH_MAX_RANK], stride[GRAPH_MAX_RANK] = { 0 };
    int k;

    shape_strides(shape, own);
    for (k = 0; k < shape->rank; k++)
        stride[walk->rank - shape->rank + k] = shape->dim[k] == 1 ? 0 : own[k];
    walk_strides(walk, i, 0, stride);
}

void cursor_start(const struct walk *walk, struct cursor *cursor)
{
    int i;

    memset(cursor, 0, sizeof(*cursor));
    for (i = 0; i < walk->n; i++)
        cursor->at[i] = walk->start[i];
}

void cursor_next(const struct walk *walk, struct cursor *cursor)
{
    int k, i;

    cursor->row++;
    for (k = walk->rank - 2; k >= 0; k--) {
        bool wraps = ++cursor->index[k] == walk->dim[k];

        for (i = 0; i < walk->n; i++)
            cursor->at[i] += walk->stride[i][k] * (wraps ? 1 - walk->dim[k] : 1);
        if (!wraps)
            return;
        cursor->index[k] = 0;
    }
}
