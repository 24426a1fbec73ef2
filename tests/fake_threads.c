/* SPDX-License-Identifier: MIT */
/* Preloaded beside fake_cuda.so, it tells fake_watch.c what the threads of a process order among each
 * other, by locks, conditions, beginnings and ends, and what they copy: each has a clock of its own then.
 */
#include "config.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fake_private.h"

/* The next one of this name; 'version' where there is an older one, too. */
static void *real(const char *name, const char *version)
{
    void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;

    if (!found)
        found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

#define REAL(variable, name, version)                   \
    static __typeof__(&name) variable;                  \
    if (!variable)                                      \
        *(void **)&variable = real(#name, version)

__attribute__((constructor)) static void begin(void)
{
    fake_watch_threads();
}

int pthread_mutex_lock(pthread_mutex_t *lock)
{
    REAL(locks, pthread_mutex_lock, NULL);
    int bad = locks(lock);

    fake_watch_takes(lock);
    return bad;
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    REAL(unlocks, pthread_mutex_unlock, NULL);

    fake_watch_gives(lock);
    return unlocks(lock);
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    REAL(waits, pthread_cond_wait, "GLIBC_2.3.2");
    int bad;

    fake_watch_gives(lock);
    bad = waits(condition, lock);
    fake_watch_takes(lock);
    return bad;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                           const struct timespec *until)
{
    REAL(waits, pthread_cond_timedwait, "GLIBC_2.3.2");
    int bad;

    fake_watch_gives(lock);
    bad = waits(condition, lock, until);
    fake_watch_takes(lock);
    return bad;
}

/* Its address stands for the thread while that begins, its number when it has ended. */
struct life {
    void *(*work)(void *);
    void *argument;
};

static void *live(void *own)
{
    struct life life = *(struct life *)own;
    void *result;

    fake_watch_takes(own);
    free(own);
    result = life.work(life.argument);
    fake_watch_gives((void *)pthread_self());
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *),
                   void *argument)
{
    REAL(creates, pthread_create, NULL);
    struct life *life = malloc(sizeof(*life));

    *life = (struct life){ work, argument };
    fake_watch_gives(life);
    return creates(thread, attributes, live, life);
}

int pthread_join(pthread_t thread, void **result)
{
    REAL(joins, pthread_join, NULL);
    int bad = joins(thread, result);

    fake_watch_takes((void *)thread);
    return bad;
}

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    fake_watch_copied(to, from, bytes);
    return memmove(to, from, bytes);
}
