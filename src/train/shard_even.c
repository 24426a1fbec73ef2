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

/* Of each piece, with its name behind it, as long as the number says with its 0. */
struct told {
    enum checkpoint_kind kind;
    enum dtype dtype;
    struct shape shape;
    int64_t start, count;
    size_t name;
};

struct head {
    size_t pieces, bytes;       /* so many of them; of all that is told of them */
};

struct even {
    struct comm *comm;
    struct comm_request *request;
    int rank, n_moves;
    struct shard_move *moves;
};

static int tag(const struct even *e)
{
    return comm_max_tag(e->comm);
}

static int send(const struct even *e, const void *data, size_t bytes, int to, struct err *err)
{
    return comm_send(e->comm, data, bytes, to, tag(e), e->request, err) ||
           comm_wait(e->request, err) ? -1 : 0;
}

static int receive(const struct even *e, void *data, size_t bytes, int from, struct err *err)
{
    return comm_receive(e->comm, data, bytes, from, tag(e), e->request, err) ||
           comm_wait(e->request, err) ? -1 : 0;
}

/* The last elements of what this rank has, no more than so many bytes, go into 'given'. */
static void give(struct shard *const *shards, int n, size_t bytes, struct shard *given)
{
    for (int c = n; c-- > 0;) {
        struct shard *shard = shards[c];

        while (shard->n > 0) {
            struct piece *p = &shard->pieces[shard->n - 1], *q;
            size_t size = dtype_size(p->dtype);
            int64_t most = (int64_t)(bytes / size), count = p->count < most ? p->count : most;

            if (count == 0)
                return;
            q = mem_push((void **)&given->pieces, &given->n, sizeof(*q));
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

static char *tell(const struct shard *given, struct head *head)
{
    char *text, *at;

    *head = (struct head){ .pieces = (size_t)given->n };
    for (int i = 0; i < given->n; i++)
        head->bytes += sizeof(struct told) + strlen(given->pieces[i].name) + 1;
    at = text = mem_new(head->bytes, 1);
    for (int i = 0; i < given->n; i++) {
        const struct piece *p = &given->pieces[i];
        struct told told = { p->kind, p->dtype, p->shape, p->start, p->count,
                             strlen(p->name) + 1 };

        memcpy(at, &told, sizeof(told));
        memcpy(at + sizeof(told), p->name, told.name);
        at += sizeof(told) + told.name;
    }
    return text;
}

static int give_to(const struct even *e, const struct shard_move *move,
                   struct shard *const *shards, int n, struct err *err)
{
    struct shard *given = mem_new(1, sizeof(*given));
    struct head head;
    int bad;

    give(shards, n, move->bytes, given);
    given->told = tell(given, &head);
    bad = send(e, &head, sizeof(head), move->to, err) ||
          send(e, given->told, head.bytes, move->to, err);
    for (int i = 0; i < given->n && !bad; i++)
        bad = send(e, given->pieces[i].data, piece_bytes(&given->pieces[i]), move->to, err);
    if (!bad)           /* else it may be on its way yet */
        shard_free(given);
    return bad;
}

/* What was told of the pieces, the data of which fill the block. Names stay where they are. */
static int understand(struct shard *taken, size_t told_bytes, size_t bytes, struct err *err)
{
    const char *text = taken->told;
    char *data = taken->block;

    for (int i = 0; i < taken->n; i++) {
        struct piece *p = &taken->pieces[i];
        struct told t = { .name = 0 };

        if (told_bytes > sizeof(t))
            memcpy(&t, text, sizeof(t));
        *p = (struct piece){ .name = text + sizeof(t), .kind = t.kind, .dtype = t.dtype,
                             .shape = t.shape, .start = t.start, .count = t.count, .data = data };
        if (t.name == 0 || t.name > told_bytes - sizeof(t) || p->name[t.name - 1] ||
            t.count < 0 || (size_t)t.count > bytes / dtype_size(t.dtype))
            return err_set(err, "what comes from another rank for a checkpoint is garbled");
        data += piece_bytes(p);
        bytes -= piece_bytes(p);
        text += sizeof(t) + t.name;
        told_bytes -= sizeof(t) + t.name;
    }
    return 0;
}

static int take_from(const struct even *e, const struct shard_move *move, struct shard *taken,
                     struct err *err)
{
    struct head head;

    if (receive(e, &head, sizeof(head), move->from, err))
        return -1;
    taken->n = (int)head.pieces;
    taken->pieces = mem_new(head.pieces, sizeof(*taken->pieces));
    taken->told = mem_new(head.bytes, 1);
    if (receive(e, taken->told, head.bytes, move->from, err) ||
        understand(taken, head.bytes, move->bytes, err))
        return -1;
    for (int i = 0; i < taken->n; i++)
        if (receive(e, taken->pieces[i].data, piece_bytes(&taken->pieces[i]), move->from, err))
            return -1;
    return 0;
}

/* All together ------------------------------------------------------------------------- */

/* The same moves on all ranks. */
static int find_moves(struct even *e, struct shard *const *shards, int n, struct err *err)
{
    int size = comm_size(e->comm), bad;
    const void **parts = mem_new((size_t)size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)size, sizeof(*sizes));
    size_t *bytes = mem_new((size_t)size, sizeof(*bytes)), mine = 0;
    void *block = NULL;

    for (int c = 0; c < n; c++)
        mine += shard_size(shards[c]);
    bad = comm_exchange(e->comm, &mine, sizeof(mine), &block, parts, sizes, err);
    for (int r = 0; r < size && !bad; r++)
        memcpy(&bytes[r], parts[r], sizeof(*bytes));
    if (!bad)
        e->n_moves = shard_moves(bytes, size, &e->moves);
    free(block);
    free(bytes);
    free(sizes);
    free(parts);
    return bad;
}

/* A shard for each move that comes here, behind the others. */
static int make_room(const struct even *e, struct shard ***shards, int *n, struct err *err)
{
    for (int i = 0; i < e->n_moves; i++) {
        struct shard *taken;

        if (e->moves[i].to != e->rank)
            continue;
        taken = mem_new(1, sizeof(*taken));
        *(struct shard **)mem_push((void **)shards, n, sizeof(taken)) = taken;
        taken->block = mem_try(e->moves[i].bytes, 1, err);
        if (!taken->block)
            return -1;
    }
    return 0;
}

/* All take the moves in one order, so that none waits for one that waits. */
static int move_all(const struct even *e, struct shard *const *shards, int own, struct err *err)
{
    int next = own, bad = 0;

    for (int i = 0; i < e->n_moves && !bad; i++) {
        const struct shard_move *move = &e->moves[i];

        if (move->from == e->rank)
            bad = give_to(e, move, shards, own, err);
        else if (move->to == e->rank)
            bad = take_from(e, move, shards[next++], err);
    }
    return bad;
}

int shard_even(struct shard ***shards, int *n, struct comm *comm, struct err *err)
{
    struct even e = { .comm = comm, .rank = comm_rank(comm) };
    int own = *n, bad = find_moves(&e, *shards, own, err);

    if (!bad && e.n_moves > 0) {
        bad = comm_agree(comm, err, make_room(&e, shards, n, err) < 0);
        if (!bad) {
            e.request = comm_request_new(comm);
            bad = move_all(&e, *shards, own, err);
            bad = bad ? bad : comm_agree(comm, err, 0);
        }
        if (!bad)
            comm_request_free(e.request);
    }
    free(e.moves);
    return bad;
}
