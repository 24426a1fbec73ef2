/* SPDX-License-Identifier: MIT */
/* Ranks that are threads of one process call one after the other. */
#include "config.h"

#include <pthread.h>

#include "tests/fake_private.h"

static pthread_mutex_t lock;

__attribute__((constructor)) static void make_lock(void)
{
    pthread_mutexattr_t recursive;

    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

static __thread int held;

bool fake_is_held(void)
{
    return held > 0;
}

bool fake_is_lock(const void *other)
{
    return other == &lock;
}

int fake_hold(void)
{
    held++;
    return pthread_mutex_lock(&lock);
}

void fake_let_go(const int *mine)
{
    (void)mine;
    pthread_mutex_unlock(&lock);
    held--;
}
