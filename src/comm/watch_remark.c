/* SPDX-License-Identifier: MIT */
/* That nothing moves is said long before anybody gives up for it. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/watch_private.h"

/* Said by a thread of its own: whoever writes may wait for a file system, and this rank's word that it
 * runs must not wait for that.
 */
struct remark {
    pthread_t thread;
    atomic_bool said;
    struct comm_words words;
    double seconds;
    struct sighting *ranks;         /* NULL: it moves again */
};

static void *say(void *data)
{
    struct remark *remark = data;

    remark->words.standstill(remark->words.data, remark->seconds, remark->ranks);
    atomic_store(&remark->said, true);
    return NULL;
}

static void end(struct remark *remark)
{
    if (!remark)
        return;
    pthread_join(remark->thread, NULL);
    free(remark->ranks);
    free(remark);
}

static struct remark *begin(const struct watch *w, double seconds, bool again)
{
    struct remark *remark = mem_new(1, sizeof(*remark));
    double time = clock_now();

    atomic_init(&remark->said, false);
    remark->words = w->words;
    remark->seconds = seconds;
    remark->ranks = again ? NULL : watch_sightings(w, time, time - HEARD);
    if (pthread_create(&remark->thread, NULL, say, remark) == 0)
        return remark;
    free(remark->ranks);
    free(remark);
    return NULL;
}

/* Not while the last one is still being said. */
static bool begin_to_say(struct watch *w, double seconds, bool again)
{
    bool begun = false;

    pthread_mutex_lock(&w->lock);
    if (w->words.standstill && (!w->remark || atomic_load(&w->remark->said))) {
        end(w->remark);
        w->remark = begin(w, seconds, again);
        begun = w->remark != NULL;
    }
    pthread_mutex_unlock(&w->lock);
    return begun;
}

void watch_end_remarks(struct watch *w)
{
    struct remark *remark;

    pthread_mutex_lock(&w->lock);
    remark = w->remark;
    w->remark = NULL;
    pthread_mutex_unlock(&w->lock);
    end(remark);
}

static bool some_wait(struct watch *w)
{
    bool wait = atomic_load(&w->comm->patience.remarkable) != 0;

    for (int i = 0; i < w->n_links; i++) {
        const struct link *link = &w->links[i];

        if (link->state == LINK_LIVE && !link->up && !w->heard[link->rank].gone)
            wait = wait || w->heard[link->rank].waits;
    }
    return wait;
}

void watch_look_for_standstill(struct watch *w)
{
    double stood;

    if (w->comm->rank != 0 || w->decided)
        return;
    switch (stillness_look(&w->still, some_wait(w), w->comm->patience.remark, &stood)) {
    case STILLNESS_NO_NEWS:
        break;
    case STILLNESS_LASTS:
        w->still.remarked = begin_to_say(w, stood, false);
        break;
    case STILLNESS_OVER:
        (void)begin_to_say(w, stood, true);
    }
}
