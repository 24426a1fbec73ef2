/* SPDX-License-Identifier: MIT */
/* Bytes of a checkpoint, from the ranks that have more of them than others. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/shard_private.h"

/* Who sends what to whom --------------------------------------------------------------- */

static size_t above(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

static size_t mean_of(const size_t *bytes, int n)
{
    size_t mean = 0, rest = 0;      /* without overflow */

    for (int r = 0; r < n; r++) {
        mean += bytes[r] / (size_t)n;
        rest += bytes[r] % (size_t)n;
    }
    return mean + rest / (size_t)n;
}

int shard_moves(const size_t *bytes, int n, struct shard_move **moves)
{
    size_t mean = mean_of(bytes, n), *has = mem_new((size_t)n, sizeof(*has));
    int n_moves = 0, from = 0, to = 0;

    *moves = NULL;
    memcpy(has, bytes, (size_t)n * sizeof(*has));
    while (from < n && to < n) {
        size_t more = above(has[from], mean), less = above(mean, has[to]);

        if (more < SHARD_MOVED) {
            from++;
        } else if (less == 0) {
            to++;
        } else {
            less = less < SHARD_MOVED ? SHARD_MOVED : less;
            more = more < less ? more : less;
            has[from] -= more;
            has[to] += more;
            *(struct shard_move *)mem_push((void **)moves, &n_moves, sizeof(**moves)) =
                (struct shard_move){ from, to, more };
        }
    }
    free(has);
    return n_moves;
}

/* What one rank tells the other -------------------------------------------------------- */

/* Of each piece, before its name with its 0. */
struct told {
    enum checkpoint_kind kind;
    enum dtype dtype;
    struct shape shape;
    int64_t start, count;
    size_t name;                /* bytes */
};

/* A move that begins or ends here. */
struct parcel {
    struct shard_move move;
    struct head {
        size_t pieces, told;    /* so many of them; bytes of what is told of them */
    } head;
    struct piece *pieces;
    char *told;
};

/* The last elements of what a rank has, no more than so many bytes, become a parcel. */
static void give(struct shard *const *shards, int n, struct parcel *parcel)
{
    size_t bytes = parcel->move.bytes;
    int given = 0;

    for (int c = n; c-- > 0;) {
        struct shard *shard = shards[c];

        while (shard->n > 0) {
            struct piece *p = &shard->pieces[shard->n - 1], *q;
            size_t size = dtype_size(p->dtype);
            int64_t most = (int64_t)(bytes / size), count = p->count < most ? p->count : most;

            if (count == 0)
                return;
            q = mem_push((void **)&parcel->pieces, &given, sizeof(*q));
            parcel->head.pieces++;
            *q = *p;
            q->start += p->count - count;
            q->data += piece_bytes(p) - (size_t)count * size;
            q->count = count;
            bytes -= piece_bytes(q);
            if (count == p->count) {
                shard->n--;
            } else {
                q->memory = NULL;
                p->count -= count;
            }
        }
    }
}

static void tell(struct parcel *parcel)
{
    char *at;

    for (size_t i = 0; i < parcel->head.pieces; i++)
        parcel->head.told += sizeof(struct told) + strlen(parcel->pieces[i].name) + 1;
    at = parcel->told = mem_new(parcel->head.told, 1);
    for (size_t i = 0; i < parcel->head.pieces; i++) {
        const struct piece *p = &parcel->pieces[i];
        struct told told = { p->kind, p->dtype, p->shape, p->start, p->count,
                             strlen(p->name) + 1 };

        memcpy(at, &told, sizeof(told));
        memcpy(at + sizeof(told), p->name, told.name);
        at += sizeof(told) + told.name;
    }
}

/* Names stay where they were told; 'data' is room for what the move said. */
static int understand(struct parcel *parcel, char *data, struct err *err)
{
    size_t left = parcel->head.told, bytes = parcel->move.bytes;
    const char *text = parcel->told;

    for (size_t i = 0; i < parcel->head.pieces; i++) {
        struct piece *p = &parcel->pieces[i];
        struct told t = { .name = 0 };

        if (left > sizeof(t))
            memcpy(&t, text, sizeof(t));
        *p = (struct piece){ .name = text + sizeof(t), .kind = t.kind, .dtype = t.dtype,
                             .shape = t.shape, .start = t.start, .count = t.count, .data = data };
        if (t.name == 0 || t.name > left - sizeof(t) || p->name[t.name - 1] || t.count < 0 ||
            (size_t)t.count > bytes / dtype_size(t.dtype))
            return err_set(err, "what rank %d has for this checkpoint comes garbled",
                           parcel->move.from);
        data += piece_bytes(p);
        bytes -= piece_bytes(p);
        text += sizeof(t) + t.name;
        left -= sizeof(t) + t.name;
    }
    return 0;
}

/* Messages ----------------------------------------------------------------------------- */

struct even {
    struct comm *comm;
    int rank, all;              /* moves of all ranks … */
    int n;
    struct parcel *parcels;     /* … and those of this one, which gives or takes */
    struct shard *taken;        /* NULL: nothing comes */
    int n_requests;
    struct comm_request **requests;
};

/* Part of a move, in the order in which the other rank posts it. */
static int post(struct even *e, const struct shard_move *move, void *data, size_t bytes,
                struct err *err)
{
    struct comm_request *request = comm_request_new(e->comm);
    int tag = comm_max_tag(e->comm);

    *(struct comm_request **)mem_push((void **)&e->requests, &e->n_requests, sizeof(request)) =
        request;
    return move->from == e->rank ? comm_send(e->comm, data, bytes, move->to, tag, request, err)
                                 : comm_receive(e->comm, data, bytes, move->from, tag, request,
                                                err);
}

static int wait_for_all(struct even *e, struct err *err)
{
    for (int i = 0; i < e->n_requests; i++)
        if (comm_wait(e->requests[i], err))
            return -1;
    while (e->n_requests > 0)
        comm_request_free(e->requests[--e->n_requests]);
    return 0;
}

static int pass_heads(struct even *e, struct err *err)
{
    for (int i = 0; i < e->n; i++)
        if (post(e, &e->parcels[i].move, &e->parcels[i].head, sizeof(struct head), err))
            return -1;
    return wait_for_all(e, err);
}

/* Of all that comes the names are in one place, and the pieces. */
static void make_pieces(struct even *e)
{
    size_t pieces = 0, told = 0;

    for (int i = 0; i < e->n; i++) {
        pieces += e->parcels[i].head.pieces;
        told += e->parcels[i].head.told;
    }
    e->taken->n = (int)pieces;
    e->taken->pieces = mem_new(pieces, sizeof(*e->taken->pieces));
    e->taken->told = mem_new(told, 1);
    pieces = told = 0;
    for (int i = 0; i < e->n; i++) {
        e->parcels[i].pieces = e->taken->pieces + pieces;
        e->parcels[i].told = e->taken->told + told;
        pieces += e->parcels[i].head.pieces;
        told += e->parcels[i].head.told;
    }
}

static int pass_told(struct even *e, struct err *err)
{
    char *data;

    if (e->taken)
        make_pieces(e);
    for (int i = 0; i < e->n; i++)
        if (post(e, &e->parcels[i].move, e->parcels[i].told, e->parcels[i].head.told, err))
            return -1;
    if (wait_for_all(e, err))
        return -1;
    data = e->taken ? e->taken->block : NULL;
    for (int i = 0; i < e->n && data; data += e->parcels[i++].move.bytes)
        if (understand(&e->parcels[i], data, err))
            return -1;
    return 0;
}

static int pass_data(struct even *e, struct err *err)
{
    for (int i = 0; i < e->n; i++) {
        const struct parcel *p = &e->parcels[i];

        for (size_t k = 0; k < p->head.pieces; k++)
            if (post(e, &p->move, p->pieces[k].data, piece_bytes(&p->pieces[k]), err))
                return -1;
    }
    return wait_for_all(e, err);
}

/* All together ------------------------------------------------------------------------- */

static void keep_own(struct even *e, const struct shard_move *moves)
{
    for (int i = 0; i < e->all; i++)
        if (moves[i].from == e->rank || moves[i].to == e->rank)
            *(struct parcel *)mem_push((void **)&e->parcels, &e->n, sizeof(*e->parcels)) =
                (struct parcel){ .move = moves[i] };
}

static int find_moves(struct even *e, struct shard *const *shards, int n, struct err *err)
{
    int size = comm_size(e->comm), bad;
    size_t *bytes = mem_new((size_t)size, sizeof(*bytes)), mine = 0;
    struct shard_move *moves = NULL;

    for (int c = 0; c < n; c++)
        mine += shard_size(shards[c]);
    bad = comm_collect(e->comm, &mine, sizeof(mine), bytes, err);
    if (!bad)
        e->all = shard_moves(bytes, size, &moves);
    keep_own(e, moves);
    free(moves);
    free(bytes);
    return bad;
}

/* A rank gives or takes: who has more than the mean is not sent anything. */
static int prepare(struct even *e, struct shard *const *shards, int n, struct err *err)
{
    size_t bytes = 0;

    for (int i = 0; i < e->n; i++) {
        if (e->parcels[i].move.from == e->rank) {
            give(shards, n, &e->parcels[i]);
            tell(&e->parcels[i]);
        } else {
            bytes += e->parcels[i].move.bytes;
        }
    }
    if (bytes == 0)
        return 0;
    e->taken = mem_new(1, sizeof(*e->taken));
    e->taken->block = mem_try(bytes, 1, err);
    return e->taken->block ? 0 : -1;
}

/* What was given goes, and what is left of a piece that was cut keeps no more than it needs. */
static void free_given(struct even *e, struct shard *const *shards, int n)
{
    for (int i = 0; i < e->n; i++) {
        for (size_t k = 0; k < e->parcels[i].head.pieces; k++)
            free(e->parcels[i].pieces[k].memory);
        free(e->parcels[i].pieces);
        free(e->parcels[i].told);
    }
    for (int c = 0; c < n; c++) {
        struct piece *p;

        if (shards[c]->n == 0)
            continue;
        p = &shards[c]->pieces[shards[c]->n - 1];
        p->data = p->memory = mem_resize(p->memory, piece_bytes(p), 1);
    }
}

int shard_even(struct shard ***shards, int *n, struct comm *comm, struct err *err)
{
    struct even *e = mem_new(1, sizeof(*e));
    int bad;

    e->comm = comm;
    e->rank = comm_rank(comm);
    bad = find_moves(e, *shards, *n, err);
    if (!bad && e->all > 0)
        bad = comm_agree(comm, err, prepare(e, *shards, *n, err) < 0) ||
              pass_heads(e, err) || pass_told(e, err) || pass_data(e, err) ||
              comm_agree(comm, err, 0);
    if (bad && !comm_agreed(comm))      /* messages may be under way yet */
        return -1;
    if (e->n > 0 && !e->taken)
        free_given(e, *shards, *n);
    if (bad)
        shard_free(e->taken);
    else if (e->taken)
        *(struct shard **)mem_push((void **)shards, n, sizeof(struct shard *)) = e->taken;
    free(e->parcels);
    free(e->requests);
    free(e);
    return bad ? -1 : 0;
}
