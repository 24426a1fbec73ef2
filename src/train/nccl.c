/* SPDX-License-Identifier: MIT */
#include "train/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "kernels/cuda/collectives.h"
#include "kernels/cuda/cuda.h"
#include "train/marks.h"

#define WARM_BYTES ((size_t)64)

struct nccl_team {
    struct nccl *nccl;
    struct nccl_team *next;         /* by key, then by ranks: the order of all members */
    int64_t key;
    bool pair;
    int n, me, *ranks;
    size_t *starts;                 /* [n + 1]: of slices */
    struct cuda_team *cuda;         /* NULL: not connected */
    struct stream *stream;
    struct event *before;
    struct marks_row marks;
    struct trace_event what;        /* is posted next, … */
    bool noted;                     /* … if that is known */
};

struct nccl {
    struct comm *comm;
    const struct backend *backend;
    struct device *device;
    const struct cuda_collectives *calls;
    enum nccl_use use;
    struct nccl_team *teams;
    void *warm;
    struct marks marks;
    bool failed;
};

const char *const nccl_use_names[] = { "mpi", "nccl", "nccl+mpi" };

/* Then a launch ends when its kernel does, and a receive is launched before its message is there. */
static int check_launches(struct err *err)
{
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");

    if (!blocking || atoi(blocking) == 0)
        return 0;
    return err_set_code(err, EXIT_USAGE, "CUDA_LAUNCH_BLOCKING=%s: with NCCL ranks would wait for each "
                        "other for ever: unset it, or give --comm mpi", blocking);
}

struct nccl *nccl_new(struct comm *comm, const struct backend *backend, struct device *device,
                      enum nccl_use use, struct err *err)
{
    const void *calls = check_launches(err) ? NULL : backend->collectives(device, err);
    void *warm = calls ? backend->alloc_aside(device, WARM_BYTES, false, err) : NULL;
    struct nccl *nccl;

    if (!warm)
        return NULL;
    nccl = mem_new(1, sizeof(*nccl));
    *nccl = (struct nccl){ .comm = comm, .backend = backend, .device = device, .calls = calls,
                           .use = use, .warm = warm };
    return nccl;
}

void nccl_abort(struct nccl *nccl)
{
    if (!nccl)
        return;
    nccl->failed = true;
    for (struct nccl_team *t = nccl->teams; t; t = t->next) {
        if (t->cuda)
            nccl->calls->close(t->cuda, true);
        t->cuda = NULL;
    }
}

static int fail(struct nccl_team *team)
{
    nccl_abort(team->nccl);
    return -1;
}

static int wait_ready(struct nccl_team *team, struct err *err)
{
    struct nccl *nccl = team->nccl;
    bool ready = false;

    while (!ready)
        if (nccl->calls->ready(team->cuda, &ready, err) || comm_asked(nccl->comm, ready, err))
            return -1;
    return 0;
}

/* All at once: which one is first, members need not agree upon. */
static void leave_all(struct nccl *nccl)
{
    struct err ignored = { 0 };
    bool bad = false;

    for (struct nccl_team *t = nccl->teams; t && !bad; t = t->next)
        bad = t->cuda && nccl->calls->leave(t->cuda, &ignored);
    for (struct nccl_team *t = nccl->teams; t && !bad; t = t->next)
        bad = t->cuda && wait_ready(t, &ignored);
    if (bad)
        nccl_abort(nccl);
}

static void free_team(struct nccl_team *team)
{
    const struct backend *backend = team->nccl->backend;

    if (team->cuda)
        team->nccl->calls->close(team->cuda, false);
    marks_row_clear(&team->nccl->marks, &team->marks);
    if (team->before)
        backend->event_free(team->before);
    if (team->stream)
        backend->stream_free(team->stream);
    free(team->ranks);
    free(team->starts);
    free(team);
}

void nccl_free(struct nccl *nccl)
{
    if (!nccl)
        return;
    if (!nccl->failed)
        leave_all(nccl);
    while (nccl->teams) {
        struct nccl_team *team = nccl->teams;

        nccl->teams = team->next;
        free_team(team);
    }
    marks_clear(&nccl->marks);
    nccl->backend->release_aside(nccl->device, nccl->warm, false);
    free(nccl);
}

bool nccl_reaches(const struct nccl *nccl, int rank)
{
    int me;

    if (!nccl)
        return false;
    me = comm_rank(nccl->comm);
    return rank != me && (nccl->use == NCCL_EVERYWHERE ||
                          comm_same_host(nccl->comm, rank, me));
}

int nccl_reachable(const struct nccl *nccl, int n, int *ranks)
{
    int found = 0;

    for (int i = 0; i < n; i++)
        if (ranks[i] == comm_rank(nccl->comm) || nccl_reaches(nccl, ranks[i]))
            ranks[found++] = ranks[i];
    return found;
}

int nccl_leaders(const struct comm *comm, int n, const int *ranks, int *leaders)
{
    int found = 0;

    for (int i = 0; i < n; i++) {
        bool first = true;

        for (int k = 0; k < found; k++)
            first = first && !comm_same_host(comm, leaders[k], ranks[i]);
        if (first)
            leaders[found++] = ranks[i];
    }
    return found;
}

static bool comes_before(const struct nccl_team *a, const struct nccl_team *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    for (int i = 0; i < a->n && i < b->n; i++)
        if (a->ranks[i] != b->ranks[i])
            return a->ranks[i] < b->ranks[i];
    return a->n < b->n;
}

struct nccl_team *nccl_team_new(struct nccl *nccl, int n, const int *ranks, int64_t key,
                                bool pair)
{
    struct nccl_team *team = mem_new(1, sizeof(*team)), **at = &nccl->teams;

    *team = (struct nccl_team){ .nccl = nccl, .key = key, .pair = pair, .n = n };
    team->ranks = mem_new((size_t)n, sizeof(*team->ranks));
    team->starts = mem_new((size_t)n + 1, sizeof(*team->starts));
    memcpy(team->ranks, ranks, (size_t)n * sizeof(*ranks));
    for (int i = 0; i < n; i++)
        if (ranks[i] == comm_rank(nccl->comm))
            team->me = i;
    while (*at && comes_before(*at, team))
        at = &(*at)->next;
    team->next = *at;
    *at = team;
    return team;
}

/* What the first member of a team tells the others. */
struct invitation {
    int64_t key;
    int n;
    uint32_t ranks;             /* a hash */
    char id[CUDA_ID_SIZE];
};

static struct invitation invitation_of(const struct nccl_team *team)
{
    struct invitation i = { .key = team->key, .n = team->n, .ranks = 2166136261u };

    for (int k = 0; k < team->n; k++)
        i.ranks = (i.ranks ^ (uint32_t)team->ranks[k]) * 16777619u;
    return i;
}

static int invite(const struct nccl *nccl, struct invitation **list, int *n, struct err *err)
{
    for (const struct nccl_team *t = nccl->teams; t; t = t->next) {
        struct invitation i = invitation_of(t);

        if (t->me != 0)
            continue;
        if (nccl->calls->id(i.id, err))
            return -1;
        *(struct invitation *)mem_push((void **)list, n, sizeof(i)) = i;
    }
    return 0;
}

static bool find_id(const struct nccl_team *team, const char *list, size_t size,
                    char id[CUDA_ID_SIZE])
{
    const struct invitation mine = invitation_of(team);
    struct invitation i;

    for (; size >= sizeof(i); size -= sizeof(i), list += sizeof(i)) {
        memcpy(&i, list, sizeof(i));
        if (i.key == mine.key && i.n == mine.n && i.ranks == mine.ranks) {
            memcpy(id, i.id, CUDA_ID_SIZE);
            return true;
        }
    }
    return false;
}

/* What a first post would have to wait for, the others' part in making connections. */
static int warm(struct nccl_team *team, struct err *err)
{
    enum nccl_operation operation =
        !team->pair ? NCCL_SUM : team->me == 0 ? NCCL_SEND : NCCL_RECEIVE;
    struct event *done = nccl_event_new(team, err);
    int bad = !done || nccl_post(team, operation, team->nccl->warm, WARM_BYTES, NULL, done, err) ||
              nccl_wait(team, done, err);

    if (done)
        nccl_event_free(team, done);
    return bad ? -1 : 0;
}

/* A receive is posted long before its message: what computes meanwhile shall lose little, and many of
 * them, as interleaved stages and replicas have, must leave room on a GPU of 56 multiprocessors.
 */
#define MESSAGE_BLOCKS 4

static int open_team(struct nccl_team *team, const char id[CUDA_ID_SIZE], struct err *err)
{
    struct nccl *nccl = team->nccl;

    team->stream = nccl->backend->stream_new(nccl->device, err);
    if (!team->stream)
        return -1;
    team->before = nccl->backend->event_new(nccl->device, err);
    if (!team->before)
        return -1;
    team->cuda = nccl->calls->open(nccl->device->gpu, team->n, team->me,
                                   team->pair ? MESSAGE_BLOCKS : 0, id, err);
    return team->cuda && wait_ready(team, err) == 0 ? warm(team, err) : -1;
}

static int check_sizes(const struct comm *comm, const size_t *sizes, struct err *err)
{
    for (int r = 0; r < comm_size(comm); r++)
        if (sizes[r] % sizeof(struct invitation) != 0)
            return err_set(err, "NCCL: the ids of rank %d (%s) are %zu bytes long, no multiple of %zu: is "
                           "it another tasuki?", r, comm_host(comm, r), sizes[r],
                           sizeof(struct invitation));
    return 0;
}

/* One after the other, in the order of keys: so no two ranks wait for each other. */
static int open_all(struct nccl *nccl, const void *const *parts, const size_t *sizes,
                    struct err *err)
{
    char id[CUDA_ID_SIZE];

    for (struct nccl_team *t = nccl->teams; t; t = t->next) {
        if (!find_id(t, parts[t->ranks[0]], sizes[t->ranks[0]], id))
            return err_set(err, "NCCL: rank %d (%s) gave no id for %d ranks", t->ranks[0],
                           comm_host(nccl->comm, t->ranks[0]), t->n);
        if (open_team(t, id, err))
            return fail(t);
    }
    return 0;
}

/* Whoever has no id for the others says so before they wait for it; what came is the same on all ranks,
 * and one says what is wrong with it.
 */
static int exchange_ids(struct nccl *nccl, void **block, const void **parts, size_t *sizes,
                        struct err *err)
{
    struct comm *comm = nccl->comm;
    struct invitation *mine = NULL;
    int n = 0, bad = comm_agree(comm, err, invite(nccl, &mine, &n, err)) ||
                     comm_introduce(comm, mine ? (const void *)mine : "", (size_t)n * sizeof(*mine),
                                    block, parts, sizes, err) ||
                     comm_agree(comm, err, check_sizes(comm, sizes, err));

    free(mine);
    if (!bad && comm_rank(comm) == 0)
        log_debug("NCCL: ids by %s", comm_way(comm));
    return bad ? -1 : 0;
}

int nccl_connect(struct nccl *nccl, struct err *err)
{
    size_t size = (size_t)comm_size(nccl->comm), *sizes = mem_new(size, sizeof(*sizes));
    const void **parts = mem_new(size, sizeof(*parts));
    void *block = NULL;
    int bad = exchange_ids(nccl, &block, parts, sizes, err) || open_all(nccl, parts, sizes, err);

    free(block);
    free(parts);
    free(sizes);
    return bad ? -1 : 0;
}

static void add_row(struct nccl_team *team, int index)
{
    const char *direction = team->me == 0 ? "to" : "from";
    char name[48];

    if (team->pair)
        snprintf(name, sizeof(name), "NCCL %d, %s rank %d", index, direction,
                 team->ranks[1 - team->me]);
    else
        snprintf(name, sizeof(name), "NCCL %d, sums of %d ranks", index, team->n);
    team->marks.lane = TRACE_STREAM;
    team->marks.chunk = trace_add_stream(team->nccl->marks.trace, name);
}

int nccl_trace(struct nccl *nccl, struct trace *trace, struct err *err)
{
    int n = 0;

    if (marks_init(&nccl->marks, trace, nccl->backend, nccl->device, NULL, err) < 0)
        return -1;
    for (struct nccl_team *t = nccl->teams; nccl->marks.trace && t; t = t->next)
        add_row(t, n++);
    return 0;
}

void nccl_note(struct nccl_team *team, const struct trace_event *what)
{
    team->noted = team->nccl->marks.trace && what->step >= 0;
    team->what = *what;
}

int nccl_read_trace(struct nccl *nccl, struct err *err)
{
    bool pending = false;

    if (!nccl || !nccl->marks.trace)
        return 0;
    for (struct nccl_team *t = nccl->teams; t; t = t->next) {
        if (marks_read(&nccl->marks, &t->marks, err) < 0)
            return -1;
        pending |= t->marks.n > 0;
    }
    return marks_rebase(&nccl->marks, pending, err);
}

struct event *nccl_event_new(struct nccl_team *team, struct err *err)
{
    return team->nccl->backend->event_new(team->nccl->device, err);
}

void nccl_event_free(struct nccl_team *team, struct event *event)
{
    team->nccl->backend->event_free(event);
}

static void cut(struct nccl_team *team, enum nccl_operation operation, size_t n)
{
    for (int i = 0; i <= team->n; i++)
        team->starts[i] = operation != NCCL_BROADCAST ? comm_slice_start(n, team->n, i)
                                                      : i > 0 ? n : 0;
}

static int call(struct nccl_team *team, enum nccl_operation operation, void *data, size_t bytes,
                struct err *err)
{
    const struct cuda_collectives *calls = team->nccl->calls;
    struct cuda_stream *stream = team->stream->cuda;
    size_t n = bytes / sizeof(float);

    cut(team, operation, n);
    switch (operation) {
    case NCCL_SUM: return calls->sum(team->cuda, stream, data, n, err);
    case NCCL_SCATTER: return calls->scatter(team->cuda, stream, data, team->starts, err);
    case NCCL_SEND: return calls->send(team->cuda, stream, data, bytes, 1 - team->me, err);
    case NCCL_RECEIVE: return calls->receive(team->cuda, stream, data, bytes, 1 - team->me, err);
    default: return calls->gather(team->cuda, stream, data, team->starts, err);
    }
}

static int post(struct nccl_team *team, enum nccl_operation operation, void *data, size_t bytes,
                struct stream *after, struct event *done, struct err *err)
{
    const struct backend *backend = team->nccl->backend;
    const struct marks *marks = &team->nccl->marks;
    bool noted = team->noted;

    team->noted = false;
    if (after && (backend->event_record(team->before, after, err) < 0 ||
                  backend->stream_wait(team->stream, team->before, err) < 0))
        return -1;
    if ((noted && marks_begin(marks, &team->marks, team->stream, err) < 0) ||
        call(team, operation, data, bytes, err) || wait_ready(team, err) ||
        (noted && marks_end(marks, &team->marks, &team->what, team->stream, err) < 0))
        return -1;
    return backend->event_record(done, team->stream, err);
}

int nccl_post(struct nccl_team *team, enum nccl_operation operation, void *data, size_t bytes,
              struct stream *after, struct event *done, struct err *err)
{
    return post(team, operation, data, bytes, after, done, err) < 0 ? fail(team) : 0;
}

int nccl_done(struct nccl_team *team, struct event *event, bool *done, struct err *err)
{
    const struct nccl *nccl = team->nccl;
    bool ready;

    if (nccl->backend->event_done(event, done, err) < 0 ||
        (!*done && nccl->calls->ready(team->cuda, &ready, err)))
        return fail(team);
    return 0;
}

int nccl_wait(struct nccl_team *team, struct event *event, struct err *err)
{
    bool done = false;

    while (!done) {
        if (nccl_done(team, event, &done, err) < 0)
            return -1;
        if (comm_asked(team->nccl->comm, done, err)) {
            err_prefix(err, "NCCL");
            return fail(team);
        }
    }
    return 0;
}
