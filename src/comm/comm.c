/* SPDX-License-Identifier: MIT */
#include "comm/comm.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/module.h"
#include "comm/driver.h"
#include "comm/launch.h"
#include "comm/watch.h"

#define HEARING 1.0     /* seconds in which one hears of a death that broke a message */
#define ASKING 10.0     /* and in which one hears where all are: watch.c takes 2 */
#define LAST_WORDS 30   /* in which another rank says why and ends this process, or its watch does */

static const struct comm_driver *load_driver(struct err *err)
{
    const struct comm_driver *driver;
    void *module = module_open("mpi", err);

    if (!module)
        return NULL;
    driver = module_symbol(module, COMM_DRIVER_SYMBOL, err);
    if (!driver)
        return NULL;
    if (driver->version != COMM_DRIVER_VERSION || driver->comm_size != sizeof(struct comm) ||
        driver->request_size != sizeof(struct comm_request) ||
        driver->err_size != sizeof(struct err)) {
        err_set(err, "tasuki-mpi.so belongs to another version of tasuki: install both anew");
        return NULL;
    }
    return driver;
}

static const struct comm_driver *choose_driver(const struct launch *launch, struct err *err)
{
    const struct comm_driver *driver;

    if (launch->kind != LAUNCH_MPI)
        return launch->hybrid ? &comm_hybrid_driver : &comm_threads_driver;
    driver = load_driver(err);
    if (!driver)
        err_prefix(err, "cannot join the other ranks");
    return driver;
}

/* The threads of one process die all at once. */
static bool is_watched(const struct launch *launch)
{
    return !launch->blind && (launch->hybrid || (launch->kind == LAUNCH_MPI && !launch->several));
}

/* For the handler of a signal. */
static char overdue[128];

static void end_start(int signal)
{
    (void)signal;
    (void)!write(STDERR_FILENO, overdue, strlen(overdue));
    _exit(EXIT_FAILED);
}

/* MPI and PMIx start without a deadline: where one does not come back, as with a network that is cut
 * meanwhile, the process ends.
 */
static int open_in_time(const struct comm_driver *driver, struct comm *comm,
                        const struct launch *launch, struct err *err)
{
    bool timed = launch->kind == LAUNCH_MPI && launch->deadline > 0;
    char host[64] = "";
    int bad;

    if (timed) {
        (void)gethostname(host, sizeof(host) - 1);
        snprintf(overdue, sizeof(overdue),
                 "tasuki: error: %s: MPI did not start within %.0f seconds (--deadline)\n", host,
                 ceil(launch->deadline));
        signal(SIGALRM, end_start);
        alarm((unsigned int)fmin(ceil(launch->deadline), 1e9));
    }
    bad = driver->open(comm, launch, err);
    if (timed) {
        alarm(0);
        signal(SIGALRM, SIG_DFL);
    }
    return bad;
}

/* A failure is left standing: it is where this rank was. */
static int met(struct comm *comm, int status)
{
    if (!status)
        where_does(&comm->where, WHERE_COMPUTES, -1);
    return status;
}

/* Nobody goes on, and dies of it, before all look: who still waits for it here would not know. What goes
 * wrong meanwhile the next one who waits learns, and says.
 */
static int be_watched(struct comm *comm, double deadline, struct err *err)
{
    struct err ignored = { 0 };
    int all = 0;

    if (watch_start(comm, &comm->watch, err))
        return -1;
    if (deadline > 0)
        comm->patience.deadline = deadline;
    where_does(&comm->where, WHERE_MEETS, -1);
    if (met(comm, comm->driver->least(comm, watch_has_room(comm->watch), &all, &ignored)) == 0 && all)
        watch_settle(comm->watch);
    comm->patience.deadline = COMM_DEADLINE;
    return 0;
}

struct comm *comm_open(const struct launch *launch, struct err *err)
{
    const struct comm_driver *driver = choose_driver(launch, err);
    struct comm *comm;

    if (!driver)
        return NULL;
    comm = mem_new(1, sizeof(*comm));
    comm->driver = driver;
    comm->patience.deadline = COMM_DEADLINE;
    comm->patience.remark = COMM_WARN_AFTER;
    where_at(&comm->where, "start", -1, 0, -1);
    if (open_in_time(driver, comm, launch, err)) {
        free(comm);
        return NULL;
    }
    /* No way back, as in a driver: the process ends instead. */
    return is_watched(launch) && be_watched(comm, launch->deadline, err) ? NULL : comm;
}

void comm_close(struct comm *comm)
{
    struct err ignored = { 0 };
    bool met;

    if (!comm)
        return;
    /* Drivers end without a deadline: meet first, with one. Whoever is missing has failed, and
     * said so.
     */
    met = comm->driver->fence(comm, &ignored) == 0;
    watch_leave(comm->watch, NULL);
    comm->driver->close(comm, met);
    free((void *)comm->standstill);
    free(comm);
}

int comm_rank(const struct comm *comm)
{
    return comm->rank;
}

int comm_size(const struct comm *comm)
{
    return comm->size;
}

const char *comm_name(const struct comm *comm)
{
    return comm->driver == &comm_threads_driver && comm->size == 1 ? "self" : comm->driver->name;
}

const char *comm_library(const struct comm *comm)
{
    return comm->library;
}

const char *comm_host(const struct comm *comm, int rank)
{
    return comm->hosts[rank];
}

bool comm_same_host(const struct comm *comm, int a, int b)
{
    return strcmp(comm_host(comm, a), comm_host(comm, b)) == 0;
}

int comm_process(const struct comm *comm, int rank)
{
    if (comm->processes)
        return comm->processes[rank];
    return comm->driver == &comm_threads_driver ? 0 : rank;
}

int comm_far_rank(const struct comm *comm)
{
    for (int r = 1; r < comm_size(comm); r++)
        if (!comm_same_host(comm, 0, r))
            return r;
    for (int r = 1; r < comm_size(comm); r++)
        if (comm_process(comm, r) != comm_process(comm, 0))
            return r;
    return 1;
}

int comm_max_tag(const struct comm *comm)
{
    return comm->max_tag;
}

void comm_set_deadline(struct comm *comm, double seconds)
{
    comm->patience.deadline = seconds;
}

void comm_set_warn_after(struct comm *comm, double seconds)
{
    comm->patience.remark = seconds;
}

void comm_set_lost_after(struct comm *comm, double seconds)
{
    watch_set_bound(comm->watch, seconds);
}

void comm_at(struct comm *comm, const char *what, int stage, int64_t step, int micro)
{
    where_at(&comm->where, what, stage, step, micro);
}

const struct sighting *comm_standstill(const struct comm *comm)
{
    return comm->standstill;
}

void comm_tell(struct comm *comm, void (*tell)(void *data, const char *text), void *data)
{
    comm->tell = tell;
    comm->tell_data = data;
}

int comm_exchange(struct comm *comm, const void *data, size_t size, void **block,
                  const void **parts, size_t *sizes, struct err *err)
{
    where_does(&comm->where, WHERE_MEETS, -1);
    return met(comm, comm->driver->exchange(comm, data, size, block, parts, sizes, err));
}

int comm_introduce(struct comm *comm, const void *data, size_t size, void **block,
                   const void **parts, size_t *sizes, struct err *err)
{
    if (!comm->driver->introduce) {
        snprintf(comm->way, sizeof(comm->way), "%s", comm_name(comm));
        return comm_exchange(comm, data, size, block, parts, sizes, err);
    }
    where_does(&comm->where, WHERE_MEETS, -1);
    return met(comm, comm->driver->introduce(comm, data, size, block, parts, sizes, err));
}

const char *comm_way(const struct comm *comm)
{
    return comm->way;
}

int comm_collect(struct comm *comm, const void *mine, size_t size, void *all, struct err *err)
{
    const void **parts = mem_new((size_t)comm->size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)comm->size, sizeof(*sizes));
    void *block = NULL;
    int bad = comm_exchange(comm, mine, size, &block, parts, sizes, err);

    for (int r = 0; r < comm->size && !bad; r++)
        if (sizes[r] == size)
            memcpy((char *)all + (size_t)r * size, parts[r], size);
        else
            bad = err_set(err, "rank %d (%s) gives %zu bytes, not %zu: is it another tasuki?", r,
                          comm_host(comm, r), sizes[r], size);
    free(block);
    free(parts);
    free(sizes);
    return bad;
}

int comm_broadcast(struct comm *comm, int root, void **data, size_t *size, struct err *err)
{
    where_does(&comm->where, WHERE_MEETS, -1);
    return met(comm, comm->driver->broadcast(comm, root, data, size, err));
}

int comm_fence(struct comm *comm, struct err *err)
{
    where_does(&comm->where, WHERE_MEETS, -1);
    return met(comm, comm->driver->fence(comm, err));
}

/* Everybody gets the error of rank 'first'. */
static int spread(struct comm *comm, int first, struct err *err)
{
    struct err theirs = { 0 }, trouble = { 0 };
    void *data = &theirs;
    size_t size = sizeof(theirs);

    if (comm->rank == first && err)
        theirs = *err;
    if (comm->driver->broadcast(comm, first, &data, &size, &trouble)) {
        if (err)
            *err = trouble;
        return -1;
    }
    if (comm->rank != first) {
        if (size == sizeof(theirs))
            memcpy(&theirs, data, size);
        free(data);
    }
    comm->agreed = true;
    theirs.text[sizeof(theirs.text) - 1] = '\0';
    if (err)
        *err = theirs;
    if (comm->size > 1)
        err_prefix(err, "rank %d (%s)", first, comm->hosts[first]);
    return -1;
}

int comm_agree(struct comm *comm, struct err *err, int failed)
{
    struct err trouble = { 0 };
    int first;

    where_does(&comm->where, WHERE_MEETS, -1);
    if (comm->driver->least(comm, failed ? comm->rank : comm->size, &first, &trouble)) {
        if (err && !failed)
            *err = trouble;
        return -1;
    }
    where_does(&comm->where, WHERE_COMPUTES, -1);
    return first < comm->size ? spread(comm, first, err) : 0;
}

bool comm_agreed(const struct comm *comm)
{
    return comm->agreed;
}

struct comm_request *comm_request_new(struct comm *comm)
{
    struct comm_request *request = comm->driver->request_new(comm);

    request->comm = comm;
    return request;
}

void comm_request_free(struct comm_request *request)
{
    if (request)
        request->comm->driver->request_free(request);
}

static int check_post(const struct comm *comm, const struct comm_request *request, int peer,
                      int tag, struct err *err)
{
    if (request->active)
        return err_set(err, "a request is posted while it is still active");
    if (peer < 0 || peer >= comm->size)
        return err_set(err, "there is no rank %d among %d", peer, comm->size);
    if (tag < 0 || tag > comm->max_tag)
        return err_set(err, "tag %d is not in 0 to %d", tag, comm->max_tag);
    return 0;
}

void comm_describe(struct comm_request *request, enum comm_operation operation, int peer, int tag,
                   size_t bytes)
{
    request->operation = operation;
    request->peer = peer;
    request->tag = tag;
    request->bytes = bytes;
    request->group = NULL;
}

int comm_send(struct comm *comm, const void *data, size_t bytes, int to, int tag,
              struct comm_request *request, struct err *err)
{
    if (check_post(comm, request, to, tag, err))
        return -1;
    comm_describe(request, COMM_SEND, to, tag, bytes);
    if (comm->driver->send(request, data, err))
        return err_prefix(err, "send to rank %d (%s)", to, comm->hosts[to]);
    request->active = true;
    return 0;
}

int comm_receive(struct comm *comm, void *data, size_t bytes, int from, int tag,
                 struct comm_request *request, struct err *err)
{
    if (check_post(comm, request, from, tag, err))
        return -1;
    comm_describe(request, COMM_RECEIVE, from, tag, bytes);
    if (comm->driver->receive(request, data, err))
        return err_prefix(err, "receive from rank %d (%s)", from, comm->hosts[from]);
    request->active = true;
    return 0;
}

static const char *collective_name(enum comm_operation operation)
{
    switch (operation) {
    case COMM_REDUCE_SCATTER: return "reduce-scatter";
    case COMM_ALL_GATHER: return "all-gather";
    default: return "all-reduce";
    }
}

/* "receive of 4096 bytes (tag 3) from rank 2 (n1)" */
static void name_request(const struct comm_request *request, char *text, size_t size)
{
    const struct comm *comm = request->comm;
    const struct comm_group *group = request->group;

    if (request->operation >= COMM_ALLREDUCE)
        snprintf(text, size, "%s of %zu bytes over %d ranks (%d on %s to %d on %s)",
                 collective_name(request->operation), request->bytes, group->n,
                 group->ranks[0], comm->hosts[group->ranks[0]], group->ranks[group->n - 1],
                 comm->hosts[group->ranks[group->n - 1]]);
    else
        snprintf(text, size, "%s of %zu bytes (tag %d) %s rank %d (%s)",
                 request->operation == COMM_SEND ? "send" : "receive", request->bytes,
                 request->tag, request->operation == COMM_SEND ? "to" : "from", request->peer,
                 comm->hosts[request->peer]);
}

int comm_test(struct comm_request *request, bool *done, struct err *err)
{
    struct comm *comm = request->comm;
    char text[512], reason[64];

    *done = true;
    if (!request->active)
        return 0;
    if (comm->driver->test(request, done, err)) {
        name_request(request, text, sizeof(text));
        return err_prefix(err, "%s", text);
    }
    if (*done) {
        request->active = false;
        patience_renew(&comm->patience);
        return 0;
    }
    if (!patience_over(&comm->patience))
        return 0;
    name_request(request, text, sizeof(text));
    patience_reason(&comm->patience, reason, sizeof(reason));
    return err_set(err, "%s: %s", text, reason);
}

static enum where_operation operation_of(const struct comm_request *request)
{
    switch (request->operation) {
    case COMM_SEND: return WHERE_SENDS;
    case COMM_RECEIVE: return WHERE_RECEIVES;
    case COMM_REDUCE_SCATTER: return WHERE_SCATTERS;
    case COMM_ALL_GATHER: return WHERE_GATHERS;
    default: return WHERE_SUMS;
    }
}

int comm_wait(struct comm_request *request, struct err *err)
{
    bool done, waits = false;

    for (;;) {
        if (comm_test(request, &done, err))
            return -1;
        if (done)
            break;
        if (!waits)
            where_does(&request->comm->where, operation_of(request),
                       request->operation < COMM_ALLREDUCE ? request->peer : -1);
        waits = true;
        comm_idle(request->comm);
    }
    if (waits)
        where_does(&request->comm->where, WHERE_COMPUTES, -1);
    return 0;
}

void comm_idle(struct comm *comm)
{
    patience_pause(&comm->patience);
}

int comm_asked(struct comm *comm, bool done, struct err *err)
{
    char reason[64];

    if (done) {
        patience_renew(&comm->patience);
        return 0;
    }
    if (patience_over(&comm->patience)) {
        patience_reason(&comm->patience, reason, sizeof(reason));
        return err_set(err, "%s", reason);
    }
    comm_idle(comm);
    return 0;
}

static int find_me(const struct comm *comm, int n, const int *ranks, struct err *err)
{
    int me = -1;

    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->size)
            return err_set(err, "group: there is no rank %d among %d", ranks[i], comm->size);
        if (ranks[i] == comm->rank)
            me = i;
    }
    return me < 0 ? err_set(err, "group: rank %d is not a member", comm->rank) : me;
}

struct comm_group *comm_group_new(struct comm *comm, int n, const int *ranks, struct err *err)
{
    int me = find_me(comm, n, ranks, err);
    struct comm_group *group;

    if (me < 0)
        return NULL;
    group = mem_new(1, sizeof(*group));
    *group = (struct comm_group){ .comm = comm, .n = n, .me = me };
    group->ranks = mem_new((size_t)n, sizeof(*ranks));
    memcpy(group->ranks, ranks, (size_t)n * sizeof(*ranks));
    if (n > 1 && comm->driver->group_open(group, err)) {
        err_prefix(err, "group of %d ranks", n);
        free(group->ranks);
        free(group);
        return NULL;
    }
    return group;
}

void comm_group_free(struct comm_group *group)
{
    if (!group)
        return;
    if (group->n > 1)
        group->comm->driver->group_close(group);
    free(group->ranks);
    free(group);
}

static int collective(struct comm_group *group, enum comm_operation operation, void *data,
                      size_t n, enum dtype dtype, bool deterministic,
                      struct comm_request *request, struct err *err)
{
    struct comm *comm = group->comm;

    if (request->active)
        return err_set(err, "a request is posted while it is still active");
    if (group->n == 1 || n == 0)
        return 0;
    comm_describe(request, operation, -1, -1, 0);
    request->group = group;
    if (comm->driver->collective(request, group, data, n, dtype, deterministic, err))
        return err_prefix(err, "%s over %d ranks", collective_name(operation), group->n);
    request->active = true;
    return 0;
}

void comm_request_lend(struct comm_request *request, void *scratch, size_t bytes)
{
    request->scratch = scratch;
    request->scratch_bytes = bytes;
}

int comm_allreduce(struct comm_group *group, void *data, size_t n, enum dtype dtype,
                   bool deterministic, struct comm_request *request, struct err *err)
{
    return collective(group, COMM_ALLREDUCE, data, n, dtype, deterministic, request, err);
}

int comm_reduce_scatter(struct comm_group *group, void *data, size_t n, enum dtype dtype,
                        struct comm_request *request, struct err *err)
{
    return collective(group, COMM_REDUCE_SCATTER, data, n, dtype, true, request, err);
}

int comm_all_gather(struct comm_group *group, void *data, size_t n, enum dtype dtype,
                    struct comm_request *request, struct err *err)
{
    return collective(group, COMM_ALL_GATHER, data, n, dtype, false, request, err);
}

/* Nothing moves: the rank for which the others wait, and where it is. */
static void blame_stuck(struct comm *comm, const struct watch_verdict *verdict, struct err *err)
{
    const struct sighting *s;
    char at[160];
    int waiting;

    comm->standstill = verdict->ranks;
    if (verdict->cause == WATCH_SILENT)
        err_set(err, "a process does not run");
    else
        err_set(err, "nothing moved for %.0f seconds", comm->patience.deadline);
    if (verdict->rank < 0 || verdict->rank >= comm->size || !verdict->ranks) {
        err_hint(err, "all ranks wait for each other");
        return;
    }
    s = &verdict->ranks[verdict->rank];
    waiting = where_waiting(verdict->ranks, comm->size, verdict->rank);
    where_text(&s->at, at, sizeof(at));
    if (s->silent < 0)
        err_hint(err, "rank %d (%s) does not answer", verdict->rank, comm->hosts[verdict->rank]);
    else if (s->silent > 0)
        err_hint(err, "rank %d (%s) does not answer; last heard of %.0f seconds ago, in %s",
                 verdict->rank, comm->hosts[verdict->rank], s->silent, at);
    else
        err_hint(err, "rank %d (%s) is in %s, for %.0f seconds", verdict->rank,
                 comm->hosts[verdict->rank], at, s->at.seconds);
    if (waiting >= 0) {
        where_text(&verdict->ranks[waiting].at, at, sizeof(at));
        err_hint(err, "rank %d (%s) waits in %s", waiting, comm->hosts[waiting], at);
    }
}

/* All ranks of a process are lost with it, whether each of them was missed yet or not. */
static void blame_death(struct comm *comm, const struct watch_verdict *verdict, struct err *err)
{
    int first = verdict->rank, last = first, more;
    char others[64] = "";

    while (first > 0 && comm_process(comm, first - 1) == comm_process(comm, last))
        first--;
    while (last + 1 < comm->size && comm_process(comm, last + 1) == comm_process(comm, first))
        last++;
    more = verdict->lost - (last - first + 1);
    if (more > 0)
        snprintf(others, sizeof(others), ", and %d more", more);
    if (first == last)
        err_set(err, "rank %d (%s) is lost: its process has ended%s", first, comm->hosts[first],
                others);
    else
        err_set(err, "ranks %d-%d (%s) are lost: their process has ended%s", first, last,
                comm->hosts[first], others);
    if (verdict->text[0]) {
        err_hint(err, "%s", verdict->text);
        comm->starved = 1 + verdict->rank;
    }
}

/* A rank that failed by itself says why: then there is nothing to say here. */
static void blame(struct comm *comm, const struct watch_verdict *verdict, struct err *err)
{
    bool known = verdict->rank >= 0 && verdict->rank < comm->size;
    char text[512];

    comm->agreed = true;
    comm->speaker = verdict->cause == WATCH_FAILED ? verdict->rank : verdict->speaker;
    if (verdict->cause == WATCH_STUCK || verdict->cause == WATCH_SILENT) {
        blame_stuck(comm, verdict, err);
    } else if (verdict->cause == WATCH_DIED && known) {
        blame_death(comm, verdict, err);
    } else if (verdict->cause == WATCH_CUT) {
        err_set(err, "%s", verdict->text);
    } else {
        err_set(err, "%s", "");
        snprintf(text, sizeof(text), "%s", verdict->text);
        if (comm->tell && comm->rank == 0 && known && text[0])
            comm->tell(comm->tell_data, text);
    }
}

/* Nobody watches, but all ranks are at hand. */
static void look_around(struct comm *comm, struct err *err)
{
    struct watch_verdict verdict = { .cause = WATCH_STUCK, .ranks = comm->driver->look(comm) };

    verdict.rank = where_stuck(verdict.ranks, comm->size);
    blame_stuck(comm, &verdict, err);
}

static bool is_mate(const struct comm *comm, int rank)
{
    return rank >= 0 && rank < comm->size && rank != comm->rank &&
           comm_process(comm, rank) == comm_process(comm, comm->rank);
}

/* Why others end is known at once, or asked for; of what has broken a message one hears soon. */
static bool hear_verdict(struct comm *comm, bool stuck, struct watch_verdict *verdict)
{
    bool told = atomic_load(&comm->patience.broken);

    if (stuck)
        watch_stuck(comm->watch);
    return watch_verdict(comm->watch, stuck ? ASKING : told ? 0 : HEARING, verdict);
}

/* Another rank says why, and this process ends: if that is here by itself, and so it does where rank
 * 0 is here, which has to take it down.
 */
static void end_after(struct comm *comm, const struct err *err) __attribute__((noreturn));
static void end_after(struct comm *comm, const struct err *err)
{
    launch_linger();
    if (is_mate(comm, comm->speaker) || is_mate(comm, 0))
        sleep(LAST_WORDS);
    _exit(err->code ? (int)err->code : EXIT_FAILED);
}

void comm_follow(struct comm *comm, struct err *err)
{
    struct watch_verdict verdict;
    bool stuck = patience_expired(&comm->patience), watched = comm->watch != NULL;

    if (!comm->agreed && hear_verdict(comm, stuck, &verdict))
        blame(comm, &verdict, err);
    else if (!comm->agreed && stuck && comm->driver->look)
        look_around(comm, err);
    else if (!comm->agreed && comm->size > 1)
        err_prefix(err, "rank %d (%s)", comm->rank, comm->hosts[comm->rank]);
    if (!comm->agreed && comm->driver->fail)
        comm->driver->fail(comm, err->text);
    if (comm->agreed && !is_mate(comm, comm->speaker))
        watch_hurry(comm->watch);
    watch_leave(comm->watch, comm->agreed ? NULL : err->text);
    comm->watch = NULL;
    /* The others hear of it by rank 0's thread, which ends with this process. */
    if (!comm->agreed && watched && is_mate(comm, 0))
        launch_linger();
    if (comm->agreed && comm->rank != comm->speaker)
        end_after(comm, err);
}

void comm_set_words(struct comm *comm, const struct comm_words *words)
{
    watch_set_words(comm->watch, words);
    if (comm->driver->attend)
        comm->driver->attend(comm, words);
}

void comm_last_words(struct comm *comm, const struct watch_verdict *verdict,
                     void (*last)(void *data, const char *text), void *data)
{
    struct err err = { 0 };

    blame(comm, verdict, &err);
    if (err.text[0])
        last(data, err.text);
}

int comm_starved(const struct comm *comm)
{
    return comm->starved - 1;
}

void comm_abort(struct comm *comm, int code)
{
    (void)comm;
    _exit(code);
}
