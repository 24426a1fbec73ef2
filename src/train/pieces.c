/* SPDX-License-Identifier: MIT */
#include "train/pieces.h"

#include <sched.h>

static int make(const struct pieces *p, struct load_piece *piece, struct err *err)
{
    piece->memory = p->backend->alloc_aside(p->device, PIECE_BYTES, true, err);
    piece->gone = piece->memory ? p->backend->event_new(p->device, err) : NULL;
    return piece->gone ? 0 : -1;
}

int pieces_init(struct pieces *pieces, const struct backend *backend, struct device *device,
                struct stream *stream, struct err *err)
{
    struct pieces *p = pieces;

    if (p->backend)
        return 0;
    *p = (struct pieces){ .backend = backend, .device = device, .stream = stream };
    if (make(p, &p->both[0], err) == 0 && make(p, &p->both[1], err) == 0)
        return 0;
    pieces_clear(p);
    return -1;
}

void pieces_clear(struct pieces *pieces)
{
    for (int i = 0; pieces->backend && i < 2; i++) {
        if (pieces->both[i].memory)
            pieces->backend->release_aside(pieces->device, pieces->both[i].memory, true);
        if (pieces->both[i].gone)
            pieces->backend->event_free(pieces->both[i].gone);
    }
    *pieces = (struct pieces){ 0 };
}

static int wait_for(const struct pieces *p, struct load_piece *piece, struct err *err)
{
    bool done;

    while (piece->sent) {
        if (p->backend->event_done(piece->gone, &done, err) < 0)
            return -1;
        piece->sent = !done;
        if (!done)
            sched_yield();
    }
    return 0;
}

int pieces_wait(struct pieces *pieces, struct err *err)
{
    return wait_for(pieces, &pieces->both[0], err) < 0 ||
                   wait_for(pieces, &pieces->both[1], err) < 0
               ? -1 : 0;
}

int pieces_take(struct pieces *pieces, void **memory, struct err *err)
{
    struct load_piece *piece = &pieces->both[pieces->next];

    *memory = piece->memory;
    return wait_for(pieces, piece, err);
}

int pieces_send(struct pieces *pieces, void *to, size_t bytes, struct err *err)
{
    struct load_piece *piece = &pieces->both[pieces->next];
    const struct backend *backend = pieces->backend;

    if (backend->host_touches)
        backend->host_touches(pieces->device, piece->memory, bytes, true);
    if (backend->copy(pieces->stream, to, bytes, piece->memory, bytes, bytes, 1, err) < 0 ||
        backend->event_record(piece->gone, pieces->stream, err) < 0)
        return -1;
    piece->sent = true;
    pieces->next = 1 - pieces->next;
    return 0;
}
