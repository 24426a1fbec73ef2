/* SPDX-License-Identifier: MIT */
/* Ranks that are threads: that nothing moves is said by one more. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/stillness.h"
#include "comm/threads_private.h"

#define LOOK_EVERY 2.0      /* seconds */

struct lookout {
    struct comm *comm;
    struct comm_words words;
    struct stillness still;
    pthread_t thread;
    pthread_mutex_t lock;   /* of what follows */
    pthread_cond_t told;
    bool leave;
};

/* Until then, or this is to end: is it? */
static bool wait_until(struct lookout *l, double end)
{
    struct timespec limit = { .tv_sec = (time_t)end,
                              .tv_nsec = (long)(1e9 * (end - (double)(time_t)end)) };
    bool leave;

    pthread_mutex_lock(&l->lock);
    while (!l->leave && pthread_cond_timedwait(&l->told, &l->lock, &limit) != ETIMEDOUT)
        ;
    leave = l->leave;
    pthread_mutex_unlock(&l->lock);
    return leave;
}

static bool some_wait(struct hub *hub)
{
    bool wait = false;

    pthread_mutex_lock(&hub->lock);
    for (int r = 0; r < hub->size; r++)
        wait = wait || (hub->comms[r] && atomic_load(&comm_patience(hub->comms[r])->remarkable));
    pthread_mutex_unlock(&hub->lock);
    return wait;
}

static void look(struct lookout *l)
{
    struct sighting *ranks = NULL;
    enum stillness_news news;
    double stood;

    news = stillness_look(&l->still, some_wait(hub_of(l->comm)), l->comm->patience.remark, &stood);
    if (news == STILLNESS_NO_NEWS)
        return;
    if (news == STILLNESS_LASTS)
        ranks = l->comm->driver->look(l->comm);
    l->words.standstill(l->words.data, stood, ranks);
    l->still.remarked = news == STILLNESS_LASTS;
    free(ranks);
}

static void *look_out(void *data)
{
    struct lookout *l = data;

    while (!wait_until(l, clock_now() + LOOK_EVERY))
        look(l);
    return NULL;
}

static void free_lookout(struct lookout *l)
{
    pthread_cond_destroy(&l->told);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Where it cannot be started, nothing is said before the deadline. */
static struct lookout *begin(struct comm *comm, const struct comm_words *words)
{
    struct lookout *l = mem_new(1, sizeof(*l));
    pthread_condattr_t monotonic;
    sigset_t all, before;
    int bad;

    l->comm = comm;
    l->words = *words;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->told, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bad = pthread_create(&l->thread, NULL, look_out, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!bad)
        return l;
    free_lookout(l);
    return NULL;
}

static void end(struct lookout *l)
{
    pthread_mutex_lock(&l->lock);
    l->leave = true;
    pthread_cond_signal(&l->told);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    free_lookout(l);
}

void threads_attend(struct comm *comm, const struct comm_words *words)
{
    struct hub *hub = hub_of(comm);

    if (comm->rank != 0 || comm->size == 1)
        return;
    if (hub->lookout)
        end(hub->lookout);
    hub->lookout = words && words->standstill ? begin(comm, words) : NULL;
}
