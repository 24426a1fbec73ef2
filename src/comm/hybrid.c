/* SPDX-License-Identifier: MIT */
/* Processes of several ranks: joining, leaving, and the control plane. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "comm/hybrid_private.h"
#include "comm/launch.h"

#define LEAST_GROUPS 8      /* that a run may have open at once */

/* Joining and leaving ------------------------------------------------------------------ */

/* Everybody learns how many ranks each process is. */
static int count_ranks(struct hybrid *h, int n, struct err *err)
{
    int processes = h->far->size;
    const void **parts = mem_new((size_t)processes, sizeof(*parts));
    size_t *sizes = mem_new((size_t)processes, sizeof(*sizes));
    void *block = NULL;
    int bad = h->far->driver->share(h->far, &n, sizeof(n), &block, parts, sizes, err);

    h->first = mem_new((size_t)processes + 1, sizeof(*h->first));
    for (int p = 0; p < processes && !bad; p++) {
        int ranks;

        memcpy(&ranks, parts[p], sizeof(ranks));
        h->first[p + 1] = h->first[p] + ranks;
        h->most = ranks > h->most ? ranks : h->most;
    }
    free(block);
    free(parts);
    free(sizes);
    return bad;
}

static void number_ranks(struct hybrid *h)
{
    h->process = mem_new((size_t)h->first[h->far->size], sizeof(*h->process));
    for (int p = 0; p < h->far->size; p++)
        for (int r = h->first[p]; r < h->first[p + 1]; r++)
            h->process[r] = p;
}

/* One half of what MPI's tags hold beside two threads is for messages, the other for groups, after
 * a tag by which members meet.
 */
static int share_tags(struct hybrid *h, struct err *err)
{
    int64_t all = ((int64_t)h->far->max_tag + 1) / ((int64_t)h->most * h->most), half = all / 2;

    h->max_tag = (int)half - 1;
    h->groups = (int)((all - half - 1) / HYBRID_GROUP_TAGS);
    if (h->groups >= LEAST_GROUPS)
        return 0;
    if (h->far->rank > 0)
        return launch_follow(err);
    return err_set_code(err, EXIT_USAGE, "%s has tags up to %d, which are too few for %d ranks in a "
                        "process (--ranks-in-process): start more tasks", h->far->library,
                        h->far->max_tag, h->most);
}

struct hybrid *hybrid_new(struct comm *processes, int n, struct err *err)
{
    struct hybrid *h = mem_new(1, sizeof(*h));

    h->far = processes;
    pthread_mutex_init(&h->lock, NULL);
    if (count_ranks(h, n, err) || share_tags(h, err)) {
        hybrid_free(h);
        return NULL;
    }
    number_ranks(h);
    return h;
}

void hybrid_free(struct hybrid *hybrid)
{
    if (!hybrid)
        return;
    pthread_mutex_destroy(&hybrid->lock);
    free(hybrid->first);
    free(hybrid->process);
    free(hybrid);
}

static int ranks_here(const struct comm *comm)
{
    int n = 0;

    for (int r = 0; r < comm->size; r++)
        n += strcmp(comm->hosts[r], comm->hosts[comm->rank]) == 0;
    return n;
}

/* Waits in either part are this rank's; far's are the first thread's. */
static int join(struct comm *comm, const struct launch *launch, struct err *err)
{
    struct hybrid_rank *rank = hybrid_rank(comm);
    struct comm *near = mem_new(1, sizeof(*near));

    near->driver = &comm_threads_driver;
    near->whole = comm;
    rank->near = near;
    if (near->driver->open(near, launch, err))
        return -1;
    if (hybrid_leads(comm))
        rank->hybrid->far->whole = comm;
    return 0;
}

static int hybrid_open(struct comm *comm, const struct launch *launch, struct err *err)
{
    struct hybrid *h = launch->hybrid;
    struct hybrid_rank *rank = mem_new(1, sizeof(*rank));

    rank->hybrid = h;
    comm->state = rank;
    comm->rank = h->first[h->far->rank] + launch->rank;
    comm->size = h->first[h->far->size];
    comm->max_tag = h->max_tag;
    comm->processes = h->process;
    comm->hosts = mem_new((size_t)comm->size, sizeof(*comm->hosts));
    for (int r = 0; r < comm->size; r++)
        comm->hosts[r] = mem_strdup(h->far->hosts[h->process[r]]);
    memcpy(comm->library, h->far->library, sizeof(comm->library));
    comm->patience.crowded = launch->yield || ranks_here(comm) > sysconf(_SC_NPROCESSORS_ONLN);
    return join(comm, launch, err);
}

/* Who has not met has said why: the processes are not to wait for it either. */
static void hybrid_close(struct comm *comm, bool met)
{
    struct hybrid_rank *rank = hybrid_rank(comm);
    struct comm *near = rank->near, *far = rank->hybrid->far;

    if (hybrid_leads(comm)) {
        far->whole = NULL;
        atomic_store(&far->patience.broken, !met);
    }
    near->driver->close(near, met);
    free(near);
    for (int r = 0; r < comm->size; r++)
        free(comm->hosts[r]);
    free(comm->hosts);
    free(rank);
}

/* The control plane -------------------------------------------------------------------- */

/* What several ranks give: their sizes, then the bytes of one behind those of the other. */
struct bundle {
    uint64_t *sizes;            /* to be freed, with all of it */
    unsigned char *bytes;
    size_t size;
};

static int bundle_new(struct bundle *bundle, int n, size_t bytes, struct err *err)
{
    size_t head = (size_t)n * sizeof(uint64_t);

    bundle->size = head + bytes;
    bundle->sizes = mem_try(bundle->size, 1, err);
    bundle->bytes = (unsigned char *)bundle->sizes + head;
    return bundle->sizes ? 0 : -1;
}

/* Those of this process, which lie in one block. */
static int bundle_own(struct bundle *bundle, const struct comm *near, const void *block,
                      const size_t *sizes, struct err *err)
{
    size_t all = 0;

    for (int t = 0; t < near->size; t++)
        all += sizes[t];
    if (bundle_new(bundle, near->size, all, err))
        return -1;
    for (int t = 0; t < near->size; t++)
        bundle->sizes[t] = sizes[t];
    if (all)
        memcpy(bundle->bytes, block, all);
    return 0;
}

/* Has it the sizes of so many ranks, and the bytes that they say? */
static bool is_bundle(const void *part, size_t size, int ranks)
{
    size_t head = (size_t)ranks * sizeof(uint64_t), left = size - head;
    uint64_t bytes;

    if (size < head)
        return false;
    for (int t = 0; t < ranks; t++) {
        memcpy(&bytes, (const unsigned char *)part + (size_t)t * sizeof(bytes), sizeof(bytes));
        if (bytes > left)
            return false;
        left -= bytes;
    }
    return left == 0;
}

/* All processes have the same, and the first one says what is wrong with it. */
static int check_bundles(const struct hybrid *h, const void *const *parts, const size_t *sizes,
                         struct err *err)
{
    int p = 0, ranks;

    while (p < h->far->size && is_bundle(parts[p], sizes[p], h->first[p + 1] - h->first[p]))
        p++;
    if (p == h->far->size)
        return 0;
    if (h->far->rank > 0)
        return launch_follow(err);
    ranks = h->first[p + 1] - h->first[p];
    return err_set(err, "task %d (%s) gives %zu bytes, not what its %d ranks do: is it another tasuki?",
                   p, comm_host(h->far, p), sizes[p], ranks);
}

/* Those of all processes become one of all ranks. */
static int bundle_join(struct bundle *bundle, const struct hybrid *h, const void *const *parts,
                       const size_t *sizes, struct err *err)
{
    int n = h->first[h->far->size];
    size_t all = 0;
    unsigned char *at;

    for (int p = 0; p < h->far->size; p++)
        all += sizes[p];
    if (bundle_new(bundle, n, all - (size_t)n * sizeof(uint64_t), err))
        return -1;
    at = bundle->bytes;
    for (int p = 0; p < h->far->size; p++) {
        size_t head = (size_t)(h->first[p + 1] - h->first[p]) * sizeof(uint64_t);

        memcpy(bundle->sizes + h->first[p], parts[p], head);
        memcpy(at, (const unsigned char *)parts[p] + head, sizes[p] - head);
        at += sizes[p] - head;
    }
    return 0;
}

typedef int exchange_call(struct comm *comm, const void *data, size_t size, void **block,
                          const void **parts, size_t *sizes, struct err *err);

/* The first thread of each process gives what all of its threads do, and gets what all ranks do. */
static int exchange_far(const struct hybrid *h, exchange_call *call, const struct bundle *mine,
                        struct bundle *all, struct err *err)
{
    const void **parts = mem_new((size_t)h->far->size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)h->far->size, sizeof(*sizes));
    void *block = NULL;
    int bad = call(h->far, mine->sizes, mine->size, &block, parts, sizes, err) ||
              check_bundles(h, parts, sizes, err) ||
              bundle_join(all, h, parts, sizes, err);

    free(block);
    free(parts);
    free(sizes);
    return bad ? -1 : 0;
}

/* 'all' is that of all ranks, of which the first thread has read it. */
static int gather(struct comm *comm, exchange_call *call, const void *data, size_t size,
                  struct bundle *all, struct err *err)
{
    struct comm *near = hybrid_rank(comm)->near;
    const void **parts = mem_new((size_t)near->size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)near->size, sizeof(*sizes));
    struct bundle mine = { NULL };
    void *block = NULL, *whole;
    int bad = near->driver->exchange(near, data, size, &block, parts, sizes, err);

    if (!bad && hybrid_leads(comm))
        bad = bundle_own(&mine, near, block, sizes, err) ||
              exchange_far(hybrid_rank(comm)->hybrid, call, &mine, all, err);
    whole = all->sizes;
    bad = bad || near->driver->broadcast(near, 0, &whole, &all->size, err);
    all->sizes = whole;
    free(mine.sizes);
    free(block);
    free(parts);
    free(sizes);
    return bad ? -1 : 0;
}

static int exchange_by(struct comm *comm, exchange_call *call, const void *data, size_t size,
                       void **block, const void **parts, size_t *sizes, struct err *err)
{
    struct bundle all = { NULL };
    const unsigned char *at;

    if (gather(comm, call, data, size, &all, err)) {
        free(all.sizes);
        return -1;
    }
    at = (unsigned char *)(all.sizes + comm->size);
    for (int r = 0; r < comm->size; r++) {
        parts[r] = at;
        sizes[r] = (size_t)all.sizes[r];
        at += sizes[r];
    }
    *block = all.sizes;
    return 0;
}

static int hybrid_exchange(struct comm *comm, const void *data, size_t size, void **block,
                           const void **parts, size_t *sizes, struct err *err)
{
    return exchange_by(comm, hybrid_rank(comm)->hybrid->far->driver->exchange, data, size, block,
                       parts, sizes, err);
}

static int hybrid_share(struct comm *comm, const void *data, size_t size, void **block,
                        const void **parts, size_t *sizes, struct err *err)
{
    return exchange_by(comm, hybrid_rank(comm)->hybrid->far->driver->share, data, size, block,
                       parts, sizes, err);
}

static int hybrid_introduce(struct comm *comm, const void *data, size_t size, void **block,
                            const void **parts, size_t *sizes, struct err *err)
{
    const struct comm *far = hybrid_rank(comm)->hybrid->far;

    if (exchange_by(comm, far->driver->introduce, data, size, block, parts, sizes, err))
        return -1;
    if (hybrid_leads(comm))
        memcpy(comm->way, far->way, sizeof(comm->way));
    return 0;
}

/* The threads of a process meet before its first one calls MPI, and after: it does so alone. */
static int hybrid_broadcast(struct comm *comm, int root, void **data, size_t *size,
                            struct err *err)
{
    struct comm *near = hybrid_rank(comm)->near, *far = hybrid_rank(comm)->hybrid->far;
    int from = comm->processes[root];
    bool here = from == far->rank;
    int thread = root - hybrid_rank(comm)->hybrid->first[from];

    if (here ? near->driver->broadcast(near, thread, data, size, err)
             : near->driver->fence(near, err))
        return -1;
    if (hybrid_leads(comm) && far->driver->broadcast(far, from, data, size, err))
        return -1;
    return here ? near->driver->fence(near, err)
                : near->driver->broadcast(near, 0, data, size, err);
}

/* The first thread has the smallest of all, which is no more than that of its process. */
static int hybrid_least(struct comm *comm, int value, int *least, struct err *err)
{
    struct comm *near = hybrid_rank(comm)->near, *far = hybrid_rank(comm)->hybrid->far;
    int here;

    if (near->driver->least(near, value, &here, err) ||
        (hybrid_leads(comm) && far->driver->least(far, here, &here, err)))
        return -1;
    return near->driver->least(near, here, least, err);
}

static int hybrid_fence(struct comm *comm, struct err *err)
{
    int least;

    return hybrid_least(comm, 0, &least, err);
}

/* The threads of this process know at once; the others hear of it by the watch. */
static void hybrid_fail(struct comm *comm, const char *why)
{
    struct comm *near = hybrid_rank(comm)->near;

    near->tell = comm->rank == 0 ? comm->tell : NULL;
    near->tell_data = comm->tell_data;
    near->driver->fail(near, why);
}

const struct comm_driver comm_hybrid_driver = {
    .version = COMM_DRIVER_VERSION,
    .comm_size = sizeof(struct comm),
    .request_size = sizeof(struct comm_request),
    .err_size = sizeof(struct err),
    .name = "hybrid",
    .open = hybrid_open,
    .close = hybrid_close,
    .exchange = hybrid_exchange,
    .share = hybrid_share,
    .introduce = hybrid_introduce,
    .broadcast = hybrid_broadcast,
    .fence = hybrid_fence,
    .least = hybrid_least,
    .request_new = hybrid_request_new,
    .request_free = hybrid_request_free,
    .send = hybrid_send,
    .receive = hybrid_receive,
    .test = hybrid_test,
    .group_open = hybrid_group_open,
    .group_close = hybrid_group_close,
    .collective = hybrid_collective,
    .fail = hybrid_fail,
};
