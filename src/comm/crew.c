/* SPDX-License-Identifier: MIT */
#include "comm/crew.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "comm/hybrid.h"
#include "comm/threads.h"

#define STACK ((size_t)16 << 20)    /* bytes of each thread: twice what a process usually has */

struct crew {
    int (*work)(const struct launch *launch, void *context, struct err *err);
    void *context;
    pthread_mutex_t gate;       /* closed until all threads are there, or one is not */
    bool cancelled;
};

struct hand {
    struct crew *crew;
    struct launch launch;
    pthread_t thread;
    struct err err;
    int code;
};

static void *be_rank(void *argument)
{
    struct hand *hand = argument;
    struct crew *crew = hand->crew;
    bool cancelled;

    pthread_mutex_lock(&crew->gate);
    cancelled = crew->cancelled;
    pthread_mutex_unlock(&crew->gate);
    if (cancelled)
        return NULL;
    log_set_rank(hand->launch.rank);
    hand->code = crew->work(&hand->launch, crew->context, &hand->err);
    return NULL;
}

static int start(struct hand *hand, int rank, const struct launch *launch, struct err *err)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    int bad;

    hand->launch = *launch;
    hand->launch.rank = rank;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    bad = pthread_create(&hand->thread, &attributes, be_rank, hand);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return bad ? err_set(err, "rank %d: its thread cannot be started: %s", rank, strerror(bad))
               : 0;
}

/* The first rank among the others, whose results come after its own. */
static int run(struct crew *crew, struct hand *hands, int n, const struct launch *launch,
               struct err *err)
{
    int code = EXIT_FAILED, started = 0;

    pthread_mutex_lock(&crew->gate);
    while (started < n - 1 && !crew->cancelled) {
        hands[started].crew = crew;
        crew->cancelled = start(&hands[started], started + 1, launch, err) < 0;
        started += !crew->cancelled;
    }
    pthread_mutex_unlock(&crew->gate);
    if (!crew->cancelled)
        code = crew->work(launch, crew->context, err);
    for (int i = 0; i < started; i++) {
        pthread_join(hands[i].thread, NULL);
        code = code ? code : hands[i].code;
    }
    return code;
}

int crew_run(int n, const struct launch *launch,
             int (*work)(const struct launch *launch, void *context, struct err *err),
             void *context, struct err *err)
{
    struct crew crew = { .work = work, .context = context };
    struct launch own = *launch;
    struct hand *hands;
    int code;

    if (n == 1 && !launch->processes)
        return work(launch, context, err);
    own.kind = LAUNCH_THREADS;
    own.rank = 0;
    if (launch->processes && !(own.hybrid = hybrid_new(launch->processes, n, err)))
        return (int)err->code;
    own.hub = hub_new(n);
    hands = mem_new((size_t)n, sizeof(*hands));
    pthread_mutex_init(&crew.gate, NULL);
    code = run(&crew, hands, n, &own, err);
    pthread_mutex_destroy(&crew.gate);
    free(hands);
    hub_free(own.hub);
    hybrid_free(own.hybrid);
    if (!crew.cancelled)
        comm_close(launch->processes);
    return code;
}
