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

int fake_hold(void)
{
    return pthread_mutex_lock(&lock);
}

void fake_let_go(const int *held)
{
    (void)held;
    pthread_mutex_unlock(&lock);
}
