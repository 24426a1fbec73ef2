/* SPDX-License-Identifier: MIT */
/* Which samples of which values go where.
 *
 * Neighbouring stages may have different replica counts. A value [outer, b, inner] is cut by
 * sample: each pair of replicas exchanges the interval that both own. A value that does not
 * depend on the sample goes whole to each reader, from the first replica that shares samples
 * with it; its gradients come back to that replica and are added in the readers' order.
 * One message per pair of ranks, micro-batch and direction carries all values of the edge.
 */
#ifndef TASUKI_TRAIN_ROUTE_H
#define TASUKI_TRAIN_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "train/compile.h"

struct route_piece {
    int value;              /* of this rank's graph */
    size_t at;              /* in the message, a multiple of 8 */
    size_t offset, stride;  /* in the value, bytes */
    size_t width, rows;
    bool whole;             /* of a value that does not depend on the sample */
    bool add;               /* receive: add to what came before */
};

struct route {
    int peer;               /* the other stage */
    int replica;            /* of the peer, same pipeline */
    bool gradient, send;
    size_t bytes;           /* of one message, a multiple of 64 */
    int depth;              /* messages in flight: buffers it needs */
    int n;
    struct route_piece *pieces;
};

struct routes {
    int n;
    struct route *items;    /* by (send, gradient, peer, replica) */
    int n_zero;
    int *zero;              /* received gradients that no replica sends: stay zero */
    size_t bytes;           /* of all buffers */
};

void routes_make(struct routes *routes, const struct plan *plan, int stage, int replica,
                 const struct compiled *compiled);
void routes_clear(struct routes *routes);

#endif
