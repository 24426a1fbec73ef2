/* SPDX-License-Identifier: MIT */
/* Connections of watch.c in tests. */
#ifndef TASUKI_TESTS_WATCHING_H
#define TASUKI_TESTS_WATCHING_H

#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/watch_link.h"

#define PATIENCE 60000  /* milliseconds, for what takes a few */

static inline void wait_for(const struct link *link, short events)
{
    struct pollfd poll_for = { .fd = link->fd, .events = events };

    assert_int_equal(poll(&poll_for, 1, PATIENCE), 1);
}

static inline int next_note(struct link *link, struct note *note)
{
    int status;

    do {
        wait_for(link, POLLIN);
        status = link_read(link, note);
    } while (status == 0);
    return status;
}

static inline int hold_here(struct link_place *place)
{
    int holders[LINK_ADDRESSES];

    assert_int_equal(link_hold(place, true, holders), 1);
    return holders[0];
}

/* 0, or errno. */
static inline int error_of_socket_at(const struct sockaddr *at, socklen_t size,
                              int (*use)(int, const struct sockaddr *, socklen_t))
{
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, error = 0;

    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes)), 0);
    if (use(fd, at, size))
        error = errno;
    close(fd);
    return error;
}

#endif
