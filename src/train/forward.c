/* SPDX-License-Identifier: MIT */
#include "train/forward.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define PIECE ((size_t)1 << 20)

struct run {
    const struct forward *forward;
    struct comm *comm;
    int n_wants;
    const unsigned char **wants;    /* of each rank a bit for each range */
    int *ranks;                     /* of a range: its reader, then the others that want it */
    int n_ranks, me;                /* me: this rank's place among these, -1 */
    char *buffers[2];
    struct comm_request *receive, *send[2];
    bool failed;
    struct err mine;                /* what went wrong here, without an end to the sending */
};

static bool wants(const struct run *run, int rank, int range)
{
    return run->wants[rank][range / 8] >> (range % 8) & 1;
}

static void find_ranks(struct run *run, int range)
{
    int reader = run->forward->ranges[range].reader;

    run->n_ranks = 0;
    run->ranks[run->n_ranks++] = reader;
    for (int r = 0; r < run->n_wants; r++)
        if (r != reader && wants(run, r, range))
            run->ranks[run->n_ranks++] = r;
    run->me = -1;
    for (int i = 0; i < run->n_ranks; i++)
        if (run->ranks[i] == comm_rank(run->comm))
            run->me = i;
}

/* The reader, 0, has one child, so that it sends everything once; i has 2i and 2i + 1. */
static int parent(int place)
{
    return place / 2;
}

static int child(const struct run *run, int i)
{
    int place = run->me == 0 ? 1 - i : 2 * run->me + i;

    return place > run->me && place < run->n_ranks ? run->ranks[place] : -1;
}

static int tag(const struct run *run)
{
    return comm_max_tag(run->comm);
}

static int post_receive(struct run *run, size_t bytes, int buffer, struct err *err)
{
    return comm_receive(run->comm, run->buffers[buffer], bytes, run->ranks[parent(run->me)],
                        tag(run), run->receive, err);
}

static int post_sends(struct run *run, const void *data, size_t bytes, struct err *err)
{
    for (int i = 0; i < 2; i++)
        if (child(run, i) >= 0 &&
            comm_send(run->comm, data, bytes, child(run, i), tag(run), run->send[i], err))
            return -1;
    return 0;
}

static int wait_sends(struct run *run, struct err *err)
{
    return comm_wait(run->send[0], err) || comm_wait(run->send[1], err) ? -1 : 0;
}

static size_t piece_bytes(const struct forward_range *range, size_t at)
{
    return range->bytes - at < PIECE ? range->bytes - at : PIECE;
}

static void use(struct run *run, int range, size_t at, const void *data, size_t bytes)
{
    const struct forward *f = run->forward;

    if (!run->failed && f->wanted[range])
        run->failed = f->take(f->user, range, at, data, bytes, &run->mine) < 0;
}

static void read_piece(struct run *run, const struct forward_range *range, size_t at,
                       size_t bytes, int buffer)
{
    if (bytes > 0)
        memcpy(run->buffers[buffer], (const char *)range->data + at, bytes);
}

/* The next piece is read while this one is sent; and never from where a file is mapped, since not
 * all networks can send memory that is only to be read.
 */
static int send_range(struct run *run, int range, struct err *err)
{
    const struct forward *f = run->forward;
    const struct forward_range *r = &f->ranges[range];
    size_t bytes = piece_bytes(r, 0), next;
    int buffer = 0;

    read_piece(run, r, 0, bytes, buffer);
    for (size_t at = 0; at < r->bytes; at += bytes, bytes = next, buffer = 1 - buffer) {
        next = piece_bytes(r, at + bytes);
        if (post_sends(run, run->buffers[buffer], bytes, err))
            return -1;
        use(run, range, at, run->buffers[buffer], bytes);
        read_piece(run, r, at + bytes, next, 1 - buffer);
        if (wait_sends(run, err))
            return -1;
    }
    if (f->sent)
        f->sent(f->user, r->data, r->bytes);
    return 0;
}

/* The next piece comes while this one is passed on and used. */
static int receive_range(struct run *run, int range, struct err *err)
{
    const struct forward_range *r = &run->forward->ranges[range];
    size_t bytes = piece_bytes(r, 0), next;
    int buffer = 0;

    if (r->bytes > 0 && post_receive(run, bytes, buffer, err))
        return -1;
    for (size_t at = 0; at < r->bytes; at += bytes, bytes = next, buffer = 1 - buffer) {
        next = piece_bytes(r, at + bytes);
        if (comm_wait(run->receive, err) || post_sends(run, run->buffers[buffer], bytes, err) ||
            (next > 0 && post_receive(run, next, 1 - buffer, err)))
            return -1;
        use(run, range, at, run->buffers[buffer], bytes);
        if (wait_sends(run, err))
            return -1;
    }
    return 0;
}

static int meet(struct run *run, struct err *err)
{
    if (run->failed)
        *err = run->mine;
    return comm_agree(run->comm, err, run->failed);
}

static int pass(struct run *run, struct err *err)
{
    const struct forward *f = run->forward;
    size_t since = 0;
    int bad = 0;

    for (int i = 0; i < f->n && !bad; i++) {
        find_ranks(run, i);
        if (run->me == 0)
            bad = run->n_ranks > 1 || f->wanted[i] ? send_range(run, i, err) : 0;
        else if (run->me > 0)
            bad = receive_range(run, i, err);
        since += f->ranges[i].bytes;
        if (!bad && since >= f->meet) {
            bad = meet(run, err);
            since = 0;
        }
    }
    return bad ? bad : meet(run, err);
}

/* Each rank learns what the others want, then all begin. */
static int pass_all(struct run *run, struct err *err)
{
    const struct forward *f = run->forward;
    size_t bytes = (size_t)f->n / 8 + 1;
    unsigned char *mine = mem_new(bytes, 1);
    size_t *sizes = mem_new((size_t)run->n_wants, sizeof(*sizes));
    void *block = NULL;
    int bad;

    for (int i = 0; i < f->n; i++)
        if (f->wanted[i])
            mine[i / 8] = (unsigned char)(mine[i / 8] | 1u << (i % 8));
    bad = comm_exchange(run->comm, mine, bytes, &block, (const void **)run->wants, sizes, err);
    for (int r = 0; r < run->n_wants && !bad; r++)
        if (sizes[r] != bytes)
            bad = err_set(err, "rank %d knows of other files than this one", r);
    if (!bad)
        bad = pass(run, err);
    free(block);
    free(sizes);
    free(mine);
    return bad;
}

static void run_clear(struct run *run)
{
    for (int i = 0; i < 2; i++) {
        free(run->buffers[i]);
        comm_request_free(run->send[i]);
    }
    comm_request_free(run->receive);
    free(run->ranks);
    free(run->wants);
}

int forward_run(const struct forward *forward, struct comm *comm, int failed, struct err *err)
{
    struct run run = { .forward = forward, .comm = comm, .n_wants = comm_size(comm) };
    int bad;

    if (comm_agree(comm, err, failed))
        return -1;
    run.wants = mem_new((size_t)run.n_wants, sizeof(*run.wants));
    run.ranks = mem_new((size_t)run.n_wants + 1, sizeof(*run.ranks));
    run.receive = comm_request_new(comm);
    for (int i = 0; i < 2; i++) {
        run.buffers[i] = mem_new(PIECE, 1);
        run.send[i] = comm_request_new(comm);
    }
    bad = pass_all(&run, err);
    /* Where they did not agree, messages may be under way yet, into these buffers. */
    if (!bad || comm_agreed(comm))
        run_clear(&run);
    return bad;
}
