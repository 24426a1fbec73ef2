/* SPDX-License-Identifier: MIT */
/* Ranks that are threads: joining, leaving, and the control plane. */
#include "comm/threads_private.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

#define LAST_WORDS 10       /* seconds in which a rank says why it failed and ends the process */

struct hub *hub_new(int size)
{
    struct hub *hub = mem_new(1, sizeof(*hub));

    hub->size = size;
    hub->parts = mem_new((size_t)size, sizeof(*hub->parts));
    hub->comms = mem_new((size_t)size, sizeof(struct comm *));
    hub->boxes = mem_new((size_t)size, sizeof(*hub->boxes));
    pthread_mutex_init(&hub->lock, NULL);
    for (int r = 0; r < size; r++)
        pthread_mutex_init(&hub->boxes[r].lock, NULL);
    return hub;
}

void hub_free(struct hub *hub)
{
    if (!hub)
        return;
    for (int r = 0; r < hub->size; r++)
        pthread_mutex_destroy(&hub->boxes[r].lock);
    pthread_mutex_destroy(&hub->lock);
    teams_free(hub->teams);
    free(hub->boxes);
    free(hub->comms);
    free(hub->parts);
    free(hub);
}

static void join(struct hub *hub, struct comm *comm)
{
    pthread_mutex_lock(&hub->lock);
    hub->comms[comm->rank] = comm;
    atomic_store(&comm_patience(comm)->broken, hub->failed);
    pthread_mutex_unlock(&hub->lock);
}

static int threads_open(struct comm *comm, const struct launch *launch, struct err *err)
{
    bool lone = launch->kind != LAUNCH_THREADS;
    struct hub *hub = lone ? hub_new(1) : launch->hub;
    char host[256] = "localhost";

    (void)err;
    gethostname(host, sizeof(host) - 1);
    comm->state = hub;
    if (lone)
        hub->lone = true;
    comm->rank = lone ? 0 : launch->rank;
    comm->size = hub->size;
    comm->max_tag = INT_MAX;
    comm->hosts = mem_new((size_t)hub->size, sizeof(*comm->hosts));
    for (int r = 0; r < hub->size; r++)
        comm->hosts[r] = mem_strdup(host);
    memcpy(comm->library, "no MPI", sizeof("no MPI"));
    comm->patience.crowded = launch->yield || hub->size > sysconf(_SC_NPROCESSORS_ONLN);
    join(hub, comm);
    return 0;
}

static void threads_close(struct comm *comm, bool met)
{
    struct hub *hub = hub_of(comm);

    (void)met;
    pthread_mutex_lock(&hub->lock);
    hub->comms[comm->rank] = NULL;
    pthread_mutex_unlock(&hub->lock);
    for (int r = 0; r < comm->size; r++)
        free(comm->hosts[r]);
    free(comm->hosts);
    if (hub->lone)
        hub_free(hub);
}

int hub_meet(struct comm *comm, const char *what, struct err *err)
{
    struct hub *hub = hub_of(comm);
    unsigned meeting;

    hub_gives(&hub->meetings);
    pthread_mutex_lock(&hub->lock);
    meeting = atomic_load(&hub->meetings);
    if (++hub->arrived == hub->size) {
        hub->arrived = 0;
        atomic_store(&hub->meetings, meeting + 1);
    }
    pthread_mutex_unlock(&hub->lock);
    while (atomic_load(&hub->meetings) == meeting) {
        if (patience_over(comm_patience(comm)))
            return patience_fail(comm_patience(comm), what, err);
        patience_pause(comm_patience(comm));
    }
    hub_takes(&hub->meetings);
    patience_renew(comm_patience(comm));
    return 0;
}

static int show(struct comm *comm, struct hub_part part, const char *what, struct err *err)
{
    hub_of(comm)->parts[comm->rank] = part;
    return hub_meet(comm, what, err);
}

static int threads_exchange(struct comm *comm, const void *data, size_t size, void **block,
                            const void **parts, size_t *sizes, struct err *err)
{
    static const char what[] = "exchange with all ranks";
    const struct hub *hub = hub_of(comm);
    size_t all = 0;
    char *bytes;

    if (show(comm, (struct hub_part){ .data = data, .size = size }, what, err))
        return -1;
    for (int r = 0; r < hub->size; r++)
        all += hub->parts[r].size;
    bytes = mem_try(all ? all : 1, 1, err);
    if (!bytes)
        return -1;
    *block = bytes;
    for (int r = 0; r < hub->size; r++) {
        parts[r] = bytes;
        sizes[r] = hub->parts[r].size;
        if (sizes[r])
            memcpy(bytes, hub->parts[r].data, sizes[r]);
        bytes += sizes[r];
    }
    if (hub_meet(comm, what, err)) {
        free(*block);
        *block = NULL;
        return -1;
    }
    return 0;
}

static void *copy_of(const struct hub_part *part, struct err *err)
{
    void *copy = mem_try(part->size ? part->size : 1, 1, err);

    if (copy && part->size)
        memcpy(copy, part->data, part->size);
    return copy;
}

static int threads_broadcast(struct comm *comm, int root, void **data, size_t *size,
                             struct err *err)
{
    static const char what[] = "broadcast to all ranks";
    const struct hub_part *from = &hub_of(comm)->parts[root];
    struct hub_part mine = { 0 };
    void *copy = NULL;
    size_t bytes;

    if (comm->rank == root)
        mine = (struct hub_part){ .data = *data, .size = *size };
    if (show(comm, mine, what, err))
        return -1;
    bytes = from->size;
    if (comm->rank != root && !(copy = copy_of(from, err)))
        return -1;
    if (hub_meet(comm, what, err)) {
        free(copy);
        return -1;
    }
    if (comm->rank != root) {
        *data = copy;
        *size = bytes;
    }
    return 0;
}

static int threads_fence(struct comm *comm, struct err *err)
{
    return hub_meet(comm, "fence of all ranks", err);
}

static int threads_least(struct comm *comm, int value, int *least, struct err *err)
{
    static const char what[] = "agreement of all ranks";
    const struct hub *hub = hub_of(comm);
    int result = value;

    if (show(comm, (struct hub_part){ .value = value }, what, err))
        return -1;
    for (int r = 0; r < hub->size; r++)
        result = hub->parts[r].value < result ? hub->parts[r].value : result;
    if (hub_meet(comm, what, err))
        return -1;
    *least = result;
    return 0;
}

static void pause_for(double seconds)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds)) },
              NULL);
}

/* Rank 0 gets as long to take it down; it may hang. */
static void tell_first(struct comm *comm, struct hub *hub)
{
    for (int i = 0; comm->rank != 0 && i < 100 && !atomic_load(&hub->told); i++)
        pause_for(0.01);
}

/* The first that fails ends the waits of all others, and then the process. */
static void threads_fail(struct comm *comm, const char *why)
{
    struct hub *hub = hub_of(comm);
    bool first;

    pthread_mutex_lock(&hub->lock);
    first = !hub->failed;
    hub->failed = true;
    if (first)
        snprintf(hub->why, sizeof(hub->why), "%s", why);
    for (int r = 0; r < hub->size; r++)
        if (hub->comms[r])
            atomic_store(&comm_patience(hub->comms[r])->broken, 1);
    pthread_mutex_unlock(&hub->lock);
    if (first) {
        tell_first(comm, hub);
        return;
    }
    if (comm->rank == 0 && comm->tell)
        comm->tell(comm->tell_data, hub->why);
    if (comm->rank == 0)
        atomic_store(&hub->told, true);
    signal(SIGTERM, SIG_IGN);   /* of a launcher that ends the others */
    pause_for(LAST_WORDS);
    _exit(EXIT_FAILED);
}

static struct sighting *threads_look(struct comm *comm)
{
    struct hub *hub = hub_of(comm);
    struct sighting *ranks = mem_new((size_t)hub->size, sizeof(*ranks));

    pthread_mutex_lock(&hub->lock);
    for (int r = 0; r < hub->size; r++) {
        ranks[r].gone = !hub->comms[r];
        if (hub->comms[r])
            where_read(&hub->comms[r]->where, &ranks[r].at);
    }
    pthread_mutex_unlock(&hub->lock);
    return ranks;
}

const struct comm_driver comm_threads_driver = {
    .version = COMM_DRIVER_VERSION,
    .comm_size = sizeof(struct comm),
    .request_size = sizeof(struct comm_request),
    .err_size = sizeof(struct err),
    .name = "threads",
    .open = threads_open,
    .close = threads_close,
    .exchange = threads_exchange,
    .broadcast = threads_broadcast,
    .fence = threads_fence,
    .least = threads_least,
    .request_new = threads_request_new,
    .request_free = threads_request_free,
    .send = threads_send,
    .receive = threads_receive,
    .test = threads_test,
    .group_open = threads_group_open,
    .group_close = threads_group_close,
    .collective = threads_collective,
    .fail = threads_fail,
    .look = threads_look,
    .attend = threads_attend,
};
