/* SPDX-License-Identifier: MIT */
/* What the host has, on its way to memory of a device in pieces: while one is copied the next is filled. */
#ifndef TASUKI_TRAIN_PIECES_H
#define TASUKI_TRAIN_PIECES_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/backend.h"

#define PIECE_BYTES ((size_t)1 << 20)

struct pieces {
    const struct backend *backend;      /* NULL: there are none yet */
    struct device *device;
    struct stream *stream;
    struct load_piece {
        void *memory;           /* where copies are fastest from */
        struct event *gone;     /* it is copied */
        bool sent;              /* and may still be on its way */
    } both[2];
    int next;
};

/* Where there are none yet. After an error there is nothing to clear. */
int pieces_init(struct pieces *pieces, const struct backend *backend, struct device *device,
                struct stream *stream, struct err *err);
/* Until nothing is on its way. */
int pieces_wait(struct pieces *pieces, struct err *err);
void pieces_clear(struct pieces *pieces);
/* PIECE_BYTES to be filled, once what they had before is copied. */
int pieces_take(struct pieces *pieces, void **memory, struct err *err);
/* So many bytes of what was taken last go there, in order with the stream. */
int pieces_send(struct pieces *pieces, void *to, size_t bytes, struct err *err);

#endif
