/* SPDX-License-Identifier: MIT */
#include "train/replay.h"

#include <stdlib.h>

#include "base/mem.h"

static bool may_record(const struct tape *tape, int item, bool record)
{
    return record && tape->backend->record_begin &&
           tape->backend->kernel_records(tape->items[item].kernel);
}

static size_t ways(const struct replay *replay)
{
    return 2 * (size_t)replay->tape->n_slots;
}

void replay_init(struct replay *replay, const struct tape *tape, const bool *ends, bool record)
{
    struct replay_piece *piece = NULL;

    *replay = (struct replay){ .tape = tape };
    replay->pieces = mem_new((size_t)tape->n, sizeof(*replay->pieces));
    for (int i = 0; i < tape->n; i++) {
        bool records = may_record(tape, i, record);

        if (!piece || !records || !piece->recordings || ends[i - 1]) {
            piece = &replay->pieces[replay->n++];
            piece->first = i;
            if (records)
                piece->recordings = mem_new(ways(replay), sizeof(struct recording *));
        }
        piece->n++;
    }
}

void replay_clear(struct replay *replay)
{
    for (int p = 0; p < replay->n; p++) {
        struct replay_piece *piece = &replay->pieces[p];

        for (size_t i = 0; piece->recordings && i < ways(replay); i++)
            replay->tape->backend->recording_free(piece->recordings[i]);
        free(piece->recordings);
    }
    free(replay->pieces);
    *replay = (struct replay){ 0 };
}

static int run_items(const struct replay *replay, const struct replay_piece *piece, int slot,
                     bool accumulate, struct err *err)
{
    for (int i = piece->first; i < piece->first + piece->n; i++)
        if (tape_run(replay->tape, i, slot, accumulate, err) < 0)
            return -1;
    return 0;
}

static int record(const struct replay *replay, const struct replay_piece *piece, int slot,
                  bool accumulate, struct recording **recording, struct err *err)
{
    const struct tape *tape = replay->tape;

    if (tape->backend->record_begin(tape->stream, err) < 0 ||
        run_items(replay, piece, slot, accumulate, err) < 0)
        return -1;
    return tape->backend->record_end(tape->stream, recording, err);
}

int replay_run(struct replay *replay, int piece, int slot, bool accumulate, struct err *err)
{
    const struct tape *tape = replay->tape;
    const struct replay_piece *p = &replay->pieces[piece];
    struct recording **recording;

    if (!p->recordings || !replay->warm[accumulate]) {
        replay->warm[accumulate] |= piece == replay->n - 1;
        return run_items(replay, p, slot, accumulate, err);
    }
    recording = &p->recordings[(accumulate ? tape->n_slots : 0) + slot];
    if (!*recording && record(replay, p, slot, accumulate, recording, err) < 0)
        return -1;
    return tape->backend->replay(tape->stream, *recording, err);
}
