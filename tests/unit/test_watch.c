/* SPDX-License-Identifier: MIT */
/* watch.c against ranks that this test plays. */
#include "watching.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/oom.h"
#include "comm/driver.h"
#include "comm/watch.h"
#include "comm/watch_private.h"

#define MOST 2000

static struct link_place places[2];     /* of ranks 0 and 1 */
static struct link_end ways[2 * LINK_ADDRESSES];    /* of the rank that is tested, to those */
static struct link played[MOST];        /* ranks that this test plays, where they are to set out */
static bool plays[MOST];
static char *hosts[MOST];

/* What the rank that is tested has to say is kept, what others say comes from 'places'. */
static int broadcast(struct comm *comm, int root, void **data, size_t *size, struct err *err)
{
    (void)err;
    assert_int_equal(*size, sizeof(places[0]));
    if (comm->rank == root) {
        memcpy(&places[root], *data, *size);
        return 0;
    }
    *data = mem_new(1, *size);
    memcpy(*data, &places[root], *size);
    return 0;
}

/* Ranks that are played set out for that which is tested. */
static int share(struct comm *comm, const void *data, size_t size, void **block,
                 const void **parts, size_t *sizes, struct err *err)
{
    size_t n = size / sizeof(struct link_end);
    struct link_end *all = mem_new((size_t)comm->size * n, sizeof(*all));
    int first = comm->rank == 0 ? 0 : places[0].n;

    (void)err;
    assert_int_equal(n, places[0].n + places[1].n);
    memcpy(ways, data, size);
    for (int r = 0; r < comm->size; r++) {
        struct link_end *theirs = all + (size_t)r * n;

        if (plays[r] && comm->rank < 2)
            assert_true(link_approach(&played[r], &places[comm->rank].end[0], &theirs[first]));
        parts[r] = theirs;
        sizes[r] = size;
    }
    *block = all;
    return 0;
}

static const struct comm_driver driver = { .broadcast = broadcast, .share = share };

/* Before start(). */
static void play(int rank)
{
    plays[rank] = true;
}

static struct watch *start(struct comm *comm, int rank, int size)
{
    struct err err = { 0 };
    struct watch *watch;

    for (int r = 0; r < size; r++)
        hosts[r] = (char *)(uintptr_t)"host";
    *comm = (struct comm){ .driver = &driver, .rank = rank, .size = size, .hosts = hosts };
    assert_int_equal(watch_start(comm, &watch, &err), 0);
    assert_non_null(watch);
    return watch;
}

/* The other end of a connection. */
static struct link join(struct link *link)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    link->fd = ends[0];
    return (struct link){ .state = LINK_LIVE, .fd = ends[1] };
}

static struct link enter(int rank, const struct link_place *place)
{
    struct note hello = { .kind = NOTE_HELLO, .rank = rank }, answer;
    struct link link = played[rank];

    plays[rank] = false;
    wait_for(&link, POLLOUT);
    assert_true(link_connected(&link));
    memcpy(hello.token, place->token, sizeof(hello.token));
    link_send(&link, &hello);
    assert_int_equal(next_note(&link, &answer), 1);
    assert_int_equal(answer.kind, NOTE_WELCOME);
    return link;
}

/* Whoever set out for places[0], met by it. */
static struct link meet(void)
{
    struct link link = { .state = LINK_FREE };

    assert_true(link_meet(&link, &places[0].end[0], &ways[0]));
    wait_for(&link, POLLOUT);
    assert_true(link_connected(&link));
    return link;
}

static void a_connection_that_ends_without_a_farewell_is_a_death(void **state)
{
    struct watch_verdict verdict;
    struct comm comm;
    struct watch *watch;
    struct link leaves, dies;

    memset(places, 0, sizeof(places));
    play(2);
    play(3);
    watch = start(&comm, 0, 4);
    leaves = enter(2, &places[0]);
    dies = enter(3, &places[0]);
    link_send(&leaves, &(struct note){ .kind = NOTE_BYE, .rank = 2 });
    link_close(&leaves);
    link_close(&dies);
    assert_true(watch_verdict(watch, PATIENCE / 1000, &verdict));
    assert_int_equal(verdict.rank, 3);
    assert_int_equal(verdict.lost, 1);
    assert_int_equal(verdict.speaker, 0);
    watch_leave(watch, NULL);
    (void)state;
}

/* poll() refuses more connections than the process may have. */
static void of_more_ranks_than_there_may_be_connections_some_are_watched(void **state)
{
    struct watch_verdict verdict;
    struct rlimit before, few;
    struct comm comm;
    struct watch *watch;
    struct link dies;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){ .rlim_cur = 64, .rlim_max = before.rlim_max };
    if (before.rlim_max > MOST)
        few.rlim_max = MOST / 2;
    if (setrlimit(RLIMIT_NOFILE, &few))
        skip();
    memset(places, 0, sizeof(places));
    play(MOST - 1);
    watch = start(&comm, 0, MOST);
    dies = enter(MOST - 1, &places[0]);
    link_close(&dies);
    assert_true(watch_verdict(watch, PATIENCE / 1000, &verdict));
    assert_int_equal(verdict.rank, MOST - 1);
    assert_true(watch_has_room(watch));
    watch_leave(watch, NULL);
    /* Of two one is. */
    few.rlim_cur = few.rlim_max = HUBS * LINK_ADDRESSES + 240 + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    memset(places, 0, sizeof(places));
    play(5);
    play(6);
    watch = start(&comm, 0, 7);
    assert_false(watch_has_room(watch));
    watch_leave(watch, NULL);
    link_close(&played[5]);
    link_close(&played[6]);
    (void)state;
}

static struct whereabouts receiving(int from)
{
    return (struct whereabouts){ .what = "F", .step = 3, .stage = 1, .micro = 2, .seconds = 7,
                                 .operation = WHERE_RECEIVES, .peer = from };
}

/* Rank 2 answers, rank 3 does not: what it said before is what is known. */
static void when_nothing_moves_all_are_asked_and_the_silent_one_is_named(void **state)
{
    struct watch_verdict verdict;
    struct comm comm;
    struct watch *watch;
    volatile const double *heard;
    struct link waits, hangs;
    struct note note;

    memset(places, 0, sizeof(places));
    play(2);
    play(3);
    watch = start(&comm, 0, 4);
    where_does(&comm.where, WHERE_SUMS, -1);
    waits = enter(2, &places[0]);
    hangs = enter(3, &places[0]);
    link_send(&hangs, &(struct note){ .kind = NOTE_HERE, .rank = 3, .at = receiving(1) });
    /* Of two connections that have something either may be read first. */
    heard = &watch->heard[3].time;
    for (int ms = 0; *heard <= 0 && ms < PATIENCE; ms++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    link_send(&waits, &(struct note){ .kind = NOTE_STUCK, .rank = 2 });
    /* The answer is there when it is asked for. */
    link_send(&waits, &(struct note){ .kind = NOTE_HERE, .rank = 2, .at = receiving(3) });
    assert_int_equal(next_note(&waits, &note), 1);
    assert_int_equal(note.kind, NOTE_ASK);
    assert_true(watch_verdict(watch, PATIENCE / 1000, &verdict));
    assert_int_equal(verdict.cause, WATCH_STUCK);
    assert_int_equal(verdict.speaker, 0);
    assert_int_equal(verdict.rank, 3);
    assert_true(verdict.ranks[0].silent == 0);
    assert_true(verdict.ranks[1].silent < 0);
    assert_true(verdict.ranks[2].silent == 0);
    assert_int_equal(verdict.ranks[2].at.peer, 3);
    assert_true(verdict.ranks[3].silent > 0);
    assert_int_equal(verdict.ranks[3].at.micro, 2);
    assert_int_equal(next_note(&waits, &note), 1);
    assert_int_equal(note.kind, NOTE_VERDICT);
    assert_int_equal(note.cause, WATCH_STUCK);
    free((void *)(uintptr_t)verdict.ranks);
    link_close(&waits);
    link_close(&hangs);
    watch_leave(watch, NULL);
    (void)state;
}

/* The process of rank 3 does not run, nor, for a while, that of rank 2. All lies at hand: nothing
 * takes its time.
 */
static void of_whom_nothing_is_heard_for_long_is_stopped(void **state)
{
    struct heard heard[4] = { [2] = { .time = 1 }, [3] = { .time = 1 } };
    struct comm comm = { .rank = 0, .size = 4, .hosts = hosts };
    struct link links[2] = { { .state = LINK_LIVE, .rank = 2 }, { .state = LINK_LIVE, .rank = 3 } };
    struct watch w = { .comm = &comm, .hub = { 0, 1 }, .n_links = 2, .links = links, .bound = 10,
                       .heard = heard };
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    links[0].fd = links[1].fd = ends[1];
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.told, NULL);
    where_does(&comm.where, WHERE_SUMS, -1);
    for (int i = 0; i < 9; i++)             /* 18 seconds */
        watch_look_for_silence(&w);
    assert_true(w.look_at <= 0);
    heard[2] = (struct heard){ .time = 20 };
    watch_look_for_silence(&w);
    assert_true(w.look_at > 0);
    heard[3] = (struct heard){ .time = w.asked_at + 1 };    /* it answers, at last */
    watch_judge_standstill(&w);
    assert_false(w.decided);
    heard[3].time = 1;
    for (int i = 0; i < 10; i++)
        watch_look_for_silence(&w);
    where_does(&comm.where, WHERE_COMPUTES, -1);            /* and would not hear of it */
    watch_judge_standstill(&w);
    assert_false(w.decided);
    assert_true(w.deferred && w.look_at > 0);               /* the next time it will decide */
    where_does(&comm.where, WHERE_SUMS, -1);
    heard[2].missed = 0;
    watch_judge_standstill(&w);
    assert_true(w.decided);
    assert_int_equal(w.verdict.cause, WATCH_SILENT);
    assert_int_equal(w.verdict.rank, 3);
    free((void *)(uintptr_t)w.verdict.ranks);
    close(ends[0]);
    close(ends[1]);
    (void)state;
}

/* Ranks 2 and 3 are on a node where none of those that watch is. All lies at hand: nothing takes its
 * time.
 */
static void of_a_rank_that_died_its_node_is_asked_about_its_memory(void **state)
{
    static const char *nodes[] = { "n1", "n1", "n2", "n2" };
    struct comm comm = { .size = 4, .hosts = (char **)(uintptr_t)nodes };
    enum loss lost[4] = { LOSS_NONE };
    struct heard heard[4] = { { .time = 0 } };
    struct link links[3] = { { .state = LINK_LIVE, .rank = 1 }, { .state = LINK_LIVE, .rank = 2 },
                             { .state = LINK_LIVE, .rank = 3 } }, near, lives;
    struct watch w = { .comm = &comm, .hub = { 0, 1 }, .n_links = 3, .links = links, .lost = lost,
                       .heard = heard, .memory = oom_look("") };
    struct note note;

    near = join(&links[0]);
    lives = join(&links[1]);
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.told, NULL);
    watch_note_death(&w, &links[2]);
    assert_int_equal(next_note(&lives, &note), 1);
    assert_int_equal(note.kind, NOTE_MEMORY);
    assert_true(w.decide_at > clock_now() + 2 * GATHERING);
    watch_note_memory(&w, "the kernel of n2 …");
    assert_true(w.decide_at < clock_now() + 2 * GATHERING);
    watch_note_memory(&w, "");              /* another one has seen nothing */
    links[2].state = LINK_FREE;
    watch_judge(&w);
    assert_int_equal(w.verdict.rank, 3);
    assert_int_equal(w.verdict.cause, WATCH_DIED);
    assert_string_equal(w.verdict.text, "the kernel of n2 …");
    assert_int_equal(next_note(&near, &note), 1);
    assert_int_equal(note.kind, NOTE_VERDICT);
    assert_string_equal(note.text, "the kernel of n2 …");
    for (int i = 0; i < 2; i++)
        link_close(&links[i]);
    link_close(&near);
    link_close(&lives);
    (void)state;
}

static void who_died_as_well_is_not_waited_for(void **state)
{
    static const char *nodes[] = { "n1", "n2", "n2", "n2" };
    struct comm comm = { .size = 4, .hosts = (char **)(uintptr_t)nodes };
    enum loss lost[4] = { LOSS_NONE };
    struct heard heard[4] = { { .time = 0 } };
    struct link links[3] = { { .state = LINK_LIVE, .rank = 1 }, { .state = LINK_LIVE, .rank = 2 },
                             { .state = LINK_LIVE, .rank = 3 } }, ends[2];
    struct watch w = { .comm = &comm, .hub = { 0, 0 }, .n_links = 3, .links = links, .lost = lost,
                       .heard = heard };

    ends[0] = join(&links[0]);
    ends[1] = join(&links[1]);
    watch_note_death(&w, &links[2]);
    watch_note_death(&w, &links[0]);
    assert_true(w.decide_at > clock_now() + 2 * GATHERING);
    watch_note_death(&w, &links[1]);
    assert_true(w.decide_at < clock_now() + 2 * GATHERING);
    for (int i = 0; i < 2; i++) {
        link_close(&links[i]);
        link_close(&ends[i]);
    }
    (void)state;
}

static void of_a_rank_on_its_own_node_nobody_is_asked(void **state)
{
    static const char *nodes[] = { "n1", "n2", "n1", "n1" };
    struct comm comm = { .size = 4, .hosts = (char **)(uintptr_t)nodes };
    enum loss lost[4] = { LOSS_NONE };
    struct heard heard[4] = { { .time = 0 } };
    struct link links[2] = { { .state = LINK_LIVE, .rank = 2, .fd = -1 },
                             { .state = LINK_LIVE, .rank = 3, .fd = -1 } };
    struct watch w = { .comm = &comm, .hub = { 0, 1 }, .n_links = 2, .links = links, .lost = lost,
                       .heard = heard, .memory = oom_look("") };

    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.told, NULL);
    watch_note_death(&w, &links[1]);
    assert_true(w.decide_at < clock_now() + 2 * GATHERING);
    watch_judge(&w);
    assert_int_equal(w.verdict.rank, 3);
    assert_string_equal(w.verdict.text, "");
    (void)state;
}

/* Rank 2 is asked by rank 0. */
static void who_is_asked_about_its_memory_answers_in_any_case(void **state)
{
    struct comm comm;
    struct watch *watch;
    struct link link;
    struct note note, welcome = { .kind = NOTE_WELCOME };
    int holder;

    memset(places, 0, sizeof(places));
    holder = hold_here(&places[0]);
    watch = start(&comm, 2, 3);
    link = meet();
    assert_int_equal(next_note(&link, &note), 1);
    memcpy(welcome.token, places[0].token, sizeof(places[0].token));
    link_send(&link, &welcome);
    link_send(&link, &(struct note){ .kind = NOTE_MEMORY });
    do
        assert_int_equal(next_note(&link, &note), 1);
    while (note.kind == NOTE_HERE);
    assert_int_equal(note.kind, NOTE_MEMORY);
    assert_int_equal(note.rank, 2);
    assert_string_equal(note.text, "");
    watch_leave(watch, NULL);
    link_close(&link);
    close(holder);
    (void)state;
}

static void of_a_rank_that_failed_rank_0_learns_why(void **state)
{
    struct note note = { .kind = NOTE_FAILED, .rank = 2, .text = "the disk is full" };
    struct watch_verdict verdict;
    struct comm comm;
    struct watch *watch;
    struct link fails;

    memset(places, 0, sizeof(places));
    play(2);
    watch = start(&comm, 0, 4);
    fails = enter(2, &places[0]);
    link_send(&fails, &note);
    link_close(&fails);
    assert_true(watch_verdict(watch, PATIENCE / 1000, &verdict));
    assert_int_equal(verdict.cause, WATCH_FAILED);
    assert_int_equal(verdict.rank, 2);
    assert_string_equal(verdict.text, "the disk is full");
    watch_leave(watch, NULL);
    (void)state;
}

static atomic_bool settled;

static void *settle(void *watch)
{
    watch_settle(watch);
    atomic_store(&settled, true);
    return NULL;
}

/* Until then its death would be seen by nobody. */
static void who_starts_goes_on_when_it_is_watched(void **state)
{
    struct note note, welcome = { .kind = NOTE_WELCOME };
    struct comm comm;
    struct watch *watch;
    struct link link;
    pthread_t thread;
    int holder;

    memset(places, 0, sizeof(places));
    atomic_store(&settled, false);
    holder = hold_here(&places[0]);
    watch = start(&comm, 2, 3);
    assert_int_equal(pthread_create(&thread, NULL, settle, watch), 0);
    link = meet();
    assert_int_equal(next_note(&link, &note), 1);
    assert_false(atomic_load(&settled));
    memcpy(welcome.token, places[0].token, sizeof(places[0].token));
    link_send(&link, &welcome);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&settled) && watch->settled);
    watch_leave(watch, NULL);
    link_close(&link);
    close(holder);
    (void)state;
}

/* To the one that watches it was there from its hello on. */
static void who_leaves_before_it_was_welcomed_says_so(void **state)
{
    struct comm comm;
    struct watch *watch;
    struct link link;
    struct note note;
    int holder;

    memset(places, 0, sizeof(places));
    holder = hold_here(&places[0]);
    watch = start(&comm, 5, 6);
    link = meet();
    assert_int_equal(next_note(&link, &note), 1);
    assert_int_equal(note.kind, NOTE_HELLO);
    assert_int_equal(note.rank, 5);
    watch_leave(watch, NULL);
    assert_int_equal(next_note(&link, &note), 1);
    assert_int_equal(note.kind, NOTE_BYE);
    link_close(&link);
    close(holder);
    (void)state;
}

/* Rank 1 watches, too, and lives as far as rank 0 knows. */
static void whom_another_rank_cannot_reach_is_lost_to_all(void **state)
{
    struct watch_verdict verdict;
    struct comm comm;
    struct watch *watch;
    struct link tells, cut;
    struct note note;

    memset(places, 0, sizeof(places));
    play(1);
    play(3);
    watch = start(&comm, 0, 4);
    tells = enter(3, &places[0]);
    cut = enter(1, &places[0]);
    link_send(&tells, &(struct note){ .kind = NOTE_CUT, .rank = 1 });
    assert_true(watch_verdict(watch, PATIENCE / 1000, &verdict));
    assert_int_equal(verdict.cause, WATCH_CUT);
    assert_int_equal(verdict.rank, 1);
    assert_int_equal(verdict.speaker, 0);
    assert_int_equal(next_note(&tells, &note), 1);
    assert_int_equal(note.kind, NOTE_VERDICT);
    assert_string_equal(note.text, "rank 1 (host) cannot be reached from host: no answer for 20 "
                                   "seconds");
    assert_int_equal(next_note(&cut, &note), 1);
    assert_int_equal(note.kind, NOTE_VERDICT);
    link_close(&tells);
    link_close(&cut);
    watch_leave(watch, NULL);
    (void)state;
}

static const char *cut_text(const enum loss *lost)
{
    static const char *nodes[] = { "n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4", "n5", "n5" };
    static char text[sizeof(((struct watch_verdict *)0)->text)];
    struct comm comm = { .size = 10, .hosts = (char **)(uintptr_t)nodes };

    watch_cut_text(&comm, lost, 1, 20, text, sizeof(text));
    return text;
}

static void nodes_that_are_cut_off_are_named_with_their_ranks(void **state)
{
    enum loss lost[10] = { [3] = LOSS_DIED, [5] = LOSS_CUT };

    assert_string_equal(cut_text(lost), "rank 5 (n3) cannot be reached from n1: no answer for 20 "
                                        "seconds");
    lost[4] = LOSS_CUT;
    assert_string_equal(cut_text(lost), "node n3 (ranks 4, 5) cannot be reached from n1: no "
                                        "answer for 20 seconds");
    lost[2] = LOSS_CUT;
    assert_string_equal(cut_text(lost), "rank 2 (n2) and node n3 (ranks 4, 5) cannot be reached "
                                        "from n1: no answer for 20 seconds");
    lost[6] = lost[8] = LOSS_CUT;
    assert_string_equal(cut_text(lost), "rank 2 (n2), node n3 (ranks 4, 5) and 2 more nodes "
                                        "cannot be reached from n1: no answer for 20 seconds");
    (void)state;
}

/* A rank that is starved, or a network that loses what it sends. */
static void whose_hello_is_late_is_watched_all_the_same(void **state)
{
    struct watch_verdict verdict;
    struct comm comm;
    struct watch *watch;
    struct link late;

    memset(places, 0, sizeof(places));
    play(2);
    watch = start(&comm, 0, 3);
    nanosleep(&(struct timespec){ .tv_sec = 6 }, NULL);
    late = enter(2, &places[0]);
    link_close(&late);
    assert_true(watch_verdict(watch, PATIENCE / 1000, &verdict));
    assert_int_equal(verdict.rank, 2);
    watch_leave(watch, NULL);
    (void)state;
}

/* Neither before those that are expected have come, nor after. */
static void who_is_not_expected_is_not_let_in(void **state)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    const struct sockaddr *there = (const struct sockaddr *)&at;
    struct comm comm;
    struct watch *watch;
    struct link one, two;

    memset(places, 0, sizeof(places));
    play(1);
    play(2);
    watch = start(&comm, 0, 3);
    memcpy(&at.sin_addr, places[0].end[0].address.bytes, sizeof(at.sin_addr));
    at.sin_port = htons(places[0].end[0].port);
    assert_int_equal(error_of_socket_at(there, sizeof(at), connect), ECONNREFUSED);
    one = enter(1, &places[0]);
    assert_int_equal(error_of_socket_at(there, sizeof(at), connect), ECONNREFUSED);
    two = enter(2, &places[0]);
    assert_int_equal(error_of_socket_at(there, sizeof(at), connect), ECONNREFUSED);
    link_close(&one);
    link_close(&two);
    watch_leave(watch, NULL);
    (void)state;
}

/* Seconds: of silence, until all have agreed upon it, until who computes on is ended, and for that. */
static void all_have_left_ten_seconds_after_the_silence_was_too_long(void **state)
{
    static const double bounds[] = { 10, 20, 60, 500 };

    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        double bound = bounds[i], stopped = bound < 20 ? 20 : bound;

        assert_true(watch_leaving(WATCH_CUT, bound) >= 4);
        assert_true(GATHERING + CUT_OFF + watch_leaving(WATCH_CUT, bound) + 1 < 9.5);
        assert_true(watch_leaving(WATCH_SILENT, bound) >= 4);
        assert_true(stopped + 3 + watch_leaving(WATCH_SILENT, bound) + 1 < stopped + 9.5);
        assert_true(watch_leaving(WATCH_STUCK, bound) >= 4);
        assert_true(3 + watch_leaving(WATCH_STUCK, bound) + 1 < 9.5);
        assert_true(5 + watch_leaving(WATCH_DIED, bound) + 1 < bound + 9.5);
        assert_true(watch_leaving(WATCH_DIED, bound) <= 20);
    }
    assert_true(watch_leaving(WATCH_DIED, 0) >= 20);
    (void)state;
}

static void write_words(void *data, const char *text)
{
    (void)!write(*(int *)data, text, strlen(text));
}

static void hang(void *data, const char *text)
{
    (void)data;
    (void)text;
    for (;;)
        pause();
}

/* How a process ends whose main thread computes on; what it said. */
static int end_alone(void (*last)(void *data, const char *text), int speaker, char *said,
                     size_t size)
{
    struct comm comm = { .rank = 0, .size = 4, .hosts = hosts };
    struct watch w = { .comm = &comm };
    int ends[2], status;
    ssize_t n;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        pthread_mutex_init(&w.lock, NULL);
        w.words = (struct comm_words){ .last = last, .data = &ends[1] };
        w.verdict = (struct watch_verdict){ .cause = WATCH_DIED, .rank = 3, .lost = 1,
                                            .speaker = speaker };
        watch_end(&w);
    }
    close(ends[1]);
    n = read(ends[0], said, size - 1);
    said[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void whose_main_thread_does_not_come_to_speak_says_it_all_the_same(void **state)
{
    char said[256];
    int status;

    hosts[3] = (char *)(uintptr_t)"host";
    status = end_alone(write_words, 0, said, sizeof(said));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_string_equal(said, "rank 3 (host) is lost: its process has ended");
    status = end_alone(write_words, 1, said, sizeof(said));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_string_equal(said, "");
    status = end_alone(hang, 0, said, sizeof(said));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
    (void)state;
}

/* Else the question would wake it, and hide who was stopped. */
static void of_whom_nothing_was_heard_lately_nothing_is_asked(void **state)
{
    struct heard heard[4] = { [2] = { .time = clock_now() }, [3] = { .time = clock_now() - 6 } };
    struct comm comm = { .rank = 0, .size = 4, .hosts = hosts };
    struct link links[2] = { { .state = LINK_LIVE, .rank = 2 }, { .state = LINK_LIVE, .rank = 3 } };
    struct watch w = { .comm = &comm, .hub = { 0, 1 }, .n_links = 2, .links = links,
                       .heard = heard };
    struct link lives = join(&links[0]), stopped = join(&links[1]);
    struct note note;

    watch_ask_all(&w);
    assert_int_equal(next_note(&lives, &note), 1);
    assert_int_equal(note.kind, NOTE_ASK);
    assert_int_equal(link_read(&stopped, &note), 0);
    for (int i = 0; i < 2; i++)
        link_close(&links[i]);
    link_close(&lives);
    link_close(&stopped);
    (void)state;
}

struct told {
    int still, again, silent;
    double seconds;
};

static void note_standstill(void *data, double seconds, const struct sighting *ranks)
{
    struct told *told = data;

    told->still += ranks != NULL;
    told->again += !ranks;
    told->seconds = seconds;
    told->silent = ranks && ranks[1].silent > 0;
}

static void that_nothing_moves_is_said_once_and_when_it_moves_again(void **state)
{
    struct heard heard[2] = { [1] = { .time = clock_now() - 4 } };
    struct comm comm = { .rank = 0, .size = 2, .hosts = hosts, .patience = { .remark = 7 } };
    struct told told = { 0 };
    struct watch w = { .comm = &comm, .hub = { 0, 1 }, .heard = heard,
                       .words = { .standstill = note_standstill, .data = &told } };

    pthread_mutex_init(&w.lock, NULL);
    for (int i = 0; i < 2; i++)
        watch_look_for_standstill(&w);
    assert_null(w.remark);
    atomic_store(&comm.patience.remarkable, 1);
    for (int i = 0; i < 3; i++) {
        watch_look_for_standstill(&w);
        watch_end_remarks(&w);
    }
    assert_int_equal(told.still, 1);
    assert_true(told.seconds >= 7 && told.seconds < 8);
    assert_true(told.silent);
    atomic_store(&comm.patience.remarkable, 0);
    for (int i = 0; i < 3; i++) {
        watch_look_for_standstill(&w);
        watch_end_remarks(&w);
    }
    assert_int_equal(told.again, 1);
    w.still.longest = 60;                       /* such waits have passed before */
    atomic_store(&comm.patience.remarkable, 1);
    watch_look_for_standstill(&w);
    watch_end_remarks(&w);
    assert_int_equal(told.still, 1);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_that_ends_without_a_farewell_is_a_death),
        cmocka_unit_test(when_nothing_moves_all_are_asked_and_the_silent_one_is_named),
        cmocka_unit_test(of_whom_nothing_is_heard_for_long_is_stopped),
        cmocka_unit_test(of_a_rank_that_failed_rank_0_learns_why),
        cmocka_unit_test(of_a_rank_that_died_its_node_is_asked_about_its_memory),
        cmocka_unit_test(who_died_as_well_is_not_waited_for),
        cmocka_unit_test(of_a_rank_on_its_own_node_nobody_is_asked),
        cmocka_unit_test(who_is_asked_about_its_memory_answers_in_any_case),
        cmocka_unit_test(whom_another_rank_cannot_reach_is_lost_to_all),
        cmocka_unit_test(nodes_that_are_cut_off_are_named_with_their_ranks),
        cmocka_unit_test(whose_hello_is_late_is_watched_all_the_same),
        cmocka_unit_test(who_is_not_expected_is_not_let_in),
        cmocka_unit_test(all_have_left_ten_seconds_after_the_silence_was_too_long),
        cmocka_unit_test(whose_main_thread_does_not_come_to_speak_says_it_all_the_same),
        cmocka_unit_test(of_whom_nothing_was_heard_lately_nothing_is_asked),
        cmocka_unit_test(that_nothing_moves_is_said_once_and_when_it_moves_again),
        cmocka_unit_test(who_starts_goes_on_when_it_is_watched),
        cmocka_unit_test(who_leaves_before_it_was_welcomed_says_so),
        cmocka_unit_test(of_more_ranks_than_there_may_be_connections_some_are_watched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
