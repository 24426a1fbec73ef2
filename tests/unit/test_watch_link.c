/* SPDX-License-Identifier: MIT */
/* watch_link.c: both ends of its connections. */
#include "watching.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* Two ends that have met. */
static void connect_both(struct link *one, struct link *other)
{
    struct link_place place;
    struct link_end from;
    int holder = hold_here(&place);

    *one = *other = (struct link){ .state = LINK_FREE };
    assert_true(link_approach(one, &place.end[0], &from));
    assert_true(link_meet(other, &place.end[0], &from));
    wait_for(one, POLLOUT);
    wait_for(other, POLLOUT);
    assert_true(link_connected(one));
    assert_true(link_connected(other));
    close(holder);
}

/* Nothing is said, but the kernel asks and the other one's answers. */
static void who_is_silent_but_lives_is_reached(void **state)
{
    struct link one, other;

    connect_both(&one, &other);
    nanosleep(&(struct timespec){ .tv_sec = 6 }, NULL);
    assert_true(link_silence(&one) < 5);
    assert_true(link_silence(&other) < 5);
    link_close(&one);
    link_close(&other);
    (void)state;
}

/* Though a reset answers it; who watches believes in one. */
static void who_sets_out_waits_for_who_watches(void **state)
{
    struct link_place place;
    struct link_end from, nobody;
    int holder = hold_here(&place);
    struct link first = { .state = LINK_FREE }, second = first, vain = first;
    struct note note;

    assert_true(link_approach(&first, &place.end[0], &from));
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    nobody = from;
    nobody.port = from.port == UINT16_MAX ? from.port - 1 : from.port + 1;
    assert_true(link_meet(&vain, &place.end[0], &nobody));
    wait_for(&vain, POLLOUT);
    assert_false(link_connected(&vain));
    assert_true(link_meet(&second, &place.end[0], &from));
    wait_for(&first, POLLOUT);
    wait_for(&second, POLLOUT);
    assert_true(link_connected(&first));
    assert_true(link_connected(&second));
    link_send(&first, &(struct note){ .kind = NOTE_ASK });
    assert_int_equal(next_note(&second, &note), 1);
    assert_int_equal(note.kind, NOTE_ASK);
    link_close(&first);
    link_close(&second);
    link_close(&vain);
    close(holder);
    (void)state;
}

/* As another user, who says that ports may be shared. */
static int error_of_taking(const struct sockaddr *at, socklen_t size)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        _exit(setuid(65534) ? 255 : error_of_socket_at(at, size, bind));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* As bound: not whatever the machine has. */
static void ports_are_held_at_the_addresses_that_are_told_and_nobody_listens(void **state)
{
    struct link_place place;
    int holders[LINK_ADDRESSES], n = link_hold(&place, false, holders);

    assert_true(n > 0);
    assert_int_equal(place.n, n);
    for (int i = 0; i < n; i++) {
        const struct link_end *end = &place.end[i];
        struct sockaddr_storage at = { 0 };
        const struct sockaddr_in *four = (const void *)&at;
        const struct sockaddr_in6 *six = (const void *)&at;
        bool is_six = end->address.family == AF_INET6;
        socklen_t size = sizeof(at);

        assert_int_equal(getsockname(holders[i], (struct sockaddr *)&at, &size), 0);
        assert_int_equal(at.ss_family, end->address.family);
        assert_int_equal(ntohs(is_six ? six->sin6_port : four->sin_port), end->port);
        assert_memory_equal(is_six ? (const void *)&six->sin6_addr : (const void *)&four->sin_addr,
                            end->address.bytes, is_six ? 16 : 4);
        assert_false(is_six ? IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr)
                            : four->sin_addr.s_addr == htonl(INADDR_ANY));
        assert_int_equal(error_of_socket_at((const struct sockaddr *)&at, size, connect),
                         ECONNREFUSED);
        if (geteuid() == 0)
            assert_int_equal(error_of_taking((const struct sockaddr *)&at, size), EADDRINUSE);
        close(holders[i]);
    }
    (void)state;
}

static void who_is_stopped_runs_again_when_something_comes(void **state)
{
    struct link link, other;
    struct note note;
    pid_t child;
    int status;

    connect_both(&link, &other);
    child = fork();
    if (child == 0) {
        link_wakes(&link);
        raise(SIGSTOP);
        _exit(next_note(&link, &note) == 1 && note.kind == NOTE_VERDICT ? 0 : 3);
    }
    link_close(&link);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    link_send(&other, &(struct note){ .kind = NOTE_VERDICT });
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    link_close(&other);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_silent_but_lives_is_reached),
        cmocka_unit_test(who_sets_out_waits_for_who_watches),
        cmocka_unit_test(ports_are_held_at_the_addresses_that_are_told_and_nobody_listens),
        cmocka_unit_test(who_is_stopped_runs_again_when_something_comes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
