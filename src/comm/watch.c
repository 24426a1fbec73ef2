/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "comm/watch_private.h"

#define UPWARD (HUBS * LINK_ADDRESSES)      /* connections to those who watch, the first of links */
#define OTHER_FILES 240     /* that MPI and the run have open beside these */
#define MEETING 60.0        /* seconds in which all must have connected */
#define ATTEMPT 5.0         /* by who watches, at one of its addresses */
#define START 5.0           /* who dies before it is watched dies unseen: wait for that */

/* Connections -------------------------------------------------------------------------- */

static const struct link_place *place_of(const struct watch *w, const struct link *link)
{
    return &w->place[link->rank == w->hub[0] ? 0 : 1];
}

static const struct link_place *own_place(const struct watch *w)
{
    return &w->place[w->comm->rank == w->hub[0] ? 0 : 1];
}

/* Who watches, towards a rank: by this address or a later one, the last for as long as it takes. */
static void meet(struct watch *w, struct link *link)
{
    const struct link_place *mine = own_place(w);
    const struct link_end *ways = w->ways + (size_t)link->rank * LINK_ADDRESSES;

    while (link->address < mine->n &&
           !link_meet(link, &mine->end[link->address], &ways[link->address]))
        link->address++;
    link->limit = w->end_of_meeting;
    for (int i = link->address + 1; i < mine->n; i++)
        if (ways[i].port != 0)
            link->limit = dmin(clock_now() + ATTEMPT, w->end_of_meeting);
}

/* This address was no use. A rank waits at all of them at once. */
static void give_up(struct watch *w, struct link *link)
{
    if (link->state == LINK_GREETED)    /* to be no death, where the hello is read yet */
        link_send(link, &(struct note){ .kind = NOTE_BYE, .rank = w->comm->rank });
    link_close(link);
    link->address++;
    if (!link->up && clock_now() < w->end_of_meeting)
        meet(w, link);
}

static void greet(struct watch *w, struct link *link)
{
    struct note hello = { .kind = NOTE_HELLO, .rank = w->comm->rank };

    if (!link_connected(link)) {
        give_up(w, link);
        return;
    }
    if (!link->up) {
        link->state = LINK_NEW;
        link->limit = w->end_of_meeting;
        return;
    }
    memcpy(hello.token, place_of(w, link)->token, sizeof(hello.token));
    link_send(link, &hello);
    link->state = LINK_GREETED;
}

static void welcome(struct watch *w, struct link *link, const struct note *note)
{
    const struct link_place *mine = own_place(w);
    struct note answer = { .kind = NOTE_WELCOME };

    if (note->kind != NOTE_HELLO || note->rank != link->rank ||
        memcmp(note->token, mine->token, sizeof(mine->token)) != 0) {
        give_up(w, link);
        return;
    }
    link->state = LINK_LIVE;
    memcpy(answer.token, mine->token, sizeof(answer.token));
    link_send(link, &answer);
    w->welcomed++;
}

/* The other end leaves. */
static void take_leave(struct watch *w, struct link *link, const struct note *note)
{
    if (w->heard)
        w->heard[link->rank].gone = true;
    if (note->kind == NOTE_FAILED && w->comm->rank == w->hub[0]) {
        w->failure = (struct watch_verdict){ .cause = WATCH_FAILED, .rank = link->rank,
                                             .speaker = -1 };
        memcpy(w->failure.text, note->text, sizeof(note->text) - 1);
        w->decide_at = clock_now();
    }
    link_close(link);
}

static void hear_where(struct heard *heard, const struct note *note)
{
    heard->time = clock_now();
    heard->at = note->at;
    heard->waits = note->waits != 0;
    heard->missed = 0;
}

static void take_news(struct watch *w, const struct link *link, const struct note *note)
{
    struct watch_verdict verdict = { .cause = (enum watch_cause)note->cause, .rank = note->rank,
                                     .lost = note->lost, .speaker = note->speaker };

    memcpy(verdict.text, note->text, sizeof(verdict.text) - 1);
    if (note->kind == NOTE_VERDICT && link->up)
        watch_decide(w, &verdict);
    else if (note->kind == NOTE_ASK && link->up)
        watch_say_where(w);
    else if (note->kind == NOTE_MEMORY && link->up)
        watch_say_memory(w, link);
    else if (note->kind == NOTE_MEMORY)
        watch_note_memory(w, verdict.text);
    else if (note->kind == NOTE_STUCK)
        watch_hear_stuck(w);
    else if (note->kind == NOTE_CUT && !link->up && note->rank >= 0 &&
             note->rank < w->comm->size && note->rank != w->comm->rank)
        watch_note_cut(w, note->rank, link->rank);
    else if (note->kind == NOTE_HERE && w->heard && !link->up)
        hear_where(&w->heard[link->rank], note);
}

/* Its other addresses are not needed. By a verdict it wakes, that is: nothing else comes from those that
 * watch to who does not run.
 */
static void be_watched(struct watch *w, struct link *link)
{
    for (int i = 0; i < UPWARD; i++)
        if (w->links[i].rank == link->rank && &w->links[i] != link)
            link_close(&w->links[i]);
    link->state = LINK_LIVE;
    link_wakes(link);
}

static void take_note(struct watch *w, struct link *link, const struct note *note)
{
    if (link->state == LINK_NEW) {
        welcome(w, link, note);
    } else if (link->state == LINK_GREETED) {
        if (note->kind == NOTE_WELCOME &&
            memcmp(note->token, place_of(w, link)->token, sizeof(note->token)) == 0)
            be_watched(w, link);
        else
            give_up(w, link);
    } else if (note->kind == NOTE_BYE || note->kind == NOTE_FAILED) {
        take_leave(w, link, note);
    } else {
        take_news(w, link, note);
    }
}

static void serve(struct watch *w, struct link *link)
{
    struct note note;
    int status;

    if (link->state == LINK_CONNECTING) {
        greet(w, link);
        return;
    }
    while (link->state != LINK_FREE && link->state != LINK_CONNECTING &&
           (status = link_read(link, &note)) != 0) {
        if (status > 0) {
            take_note(w, link, &note);
            continue;
        }
        if (link->state == LINK_GREETED || link->state == LINK_NEW) {
            give_up(w, link);
            return;
        }
        if (link->state == LINK_LIVE && status == -1)
            watch_note_death(w, link);
        else if (link->state == LINK_LIVE && atomic_load(&w->bound) > 0)
            watch_note_cut(w, link->rank, w->comm->rank);
        link_close(link);
    }
}

static void let_go(struct watch *w)
{
    for (int i = 0; i < w->n_holders; i++)
        close(w->holders[i]);
    w->n_holders = 0;
}

/* The thread --------------------------------------------------------------------------- */

static void soonest(double *next, double time)
{
    if (time > 0 && (*next == 0 || time < *next))
        *next = time;
}

/* Milliseconds until something is due; -1: nothing is. */
static int next_due(const struct watch *w)
{
    double next = 0, rest;

    soonest(&next, w->decide_at);
    soonest(&next, w->suspect_at);
    soonest(&next, w->beat_at);
    soonest(&next, w->look_at);
    soonest(&next, w->cut_at);
    soonest(&next, w->leave_by);
    if (w->n_holders > 0)
        soonest(&next, w->end_of_meeting);
    for (int i = 0; i < w->n_links; i++)
        if (w->links[i].state != LINK_FREE && w->links[i].state != LINK_LIVE)
            soonest(&next, w->links[i].limit);
    rest = next - clock_now();
    return next == 0 ? -1 : rest <= 0 ? 0 : (int)(1e3 * rest) + 1;
}

/* By one that watches, or by none that could. */
static bool is_watched_by(const struct watch *w, int hub)
{
    bool waits = false;

    for (int i = 0; i < UPWARD; i++) {
        const struct link *link = &w->links[i];

        if (!link->up || link->rank != w->hub[hub])
            continue;
        if (link->state == LINK_LIVE)
            return true;
        waits = waits || link->state != LINK_FREE;
    }
    return !waits;
}

/* Is nothing under way any more that would have this rank watched? */
static void check_settled(struct watch *w)
{
    for (int h = 0; h < HUBS; h++)
        if (!is_watched_by(w, h))
            return;
    if (w->settled)
        return;
    pthread_mutex_lock(&w->lock);
    w->settled = true;
    pthread_cond_broadcast(&w->told);
    pthread_mutex_unlock(&w->lock);
}

static void do_what_is_due(struct watch *w)
{
    double time = clock_now();

    check_settled(w);

    for (int i = 0; i < w->n_links; i++) {
        struct link *link = &w->links[i];

        if (link->state != LINK_FREE && link->state != LINK_LIVE && time >= link->limit)
            give_up(w, link);
    }
    if (time >= w->end_of_meeting || w->welcomed >= w->comm->size - 1 || w->decided)
        let_go(w);
    if (w->decide_at > 0 && time >= w->decide_at)
        watch_judge(w);
    if (w->suspect_at > 0 && time >= w->suspect_at)
        watch_suspect(w);
    if (atomic_exchange(&w->stuck, false))
        watch_note_stuck(w);
    if (w->look_at > 0 && time >= w->look_at)
        watch_judge_standstill(w);
    if (time >= w->beat_at || (w->cut_at > 0 && time >= w->cut_at))
        watch_look_for_cuts(w);
    if (time >= w->beat_at) {
        watch_look_for_silence(w);
        watch_look_for_standstill(w);
        watch_say_where(w);
    }
    if (w->leave_by > 0 && time >= w->leave_by)
        watch_end(w);
}

static void wait_for_something(struct watch *w)
{
    w->polls[0] = (struct pollfd){ .fd = w->wake, .events = POLLIN };
    for (int i = 0; i < w->n_links; i++) {
        const struct link *link = &w->links[i];

        w->polls[1 + i] = (struct pollfd){
            .fd = link->state == LINK_FREE ? -1 : link->fd,
            .events = link->state == LINK_CONNECTING ? POLLOUT : POLLIN,
        };
    }
    if (poll(w->polls, (nfds_t)w->n_links + 1, next_due(w)) <= 0)
        return;
    if (w->polls[0].revents)
        (void)!read(w->wake, &(uint64_t){ 0 }, sizeof(uint64_t));
    for (int i = 0; i < w->n_links; i++)
        if (w->links[i].state != LINK_FREE && w->polls[1 + i].revents)
            serve(w, &w->links[i]);
}

/* Rank 0 that failed is itself the one who would tell. */
static void say_farewell(struct watch *w, bool failed)
{
    struct note note = { .kind = failed ? NOTE_FAILED : NOTE_BYE, .rank = w->comm->rank };
    struct note verdict = { .kind = NOTE_VERDICT, .rank = w->comm->rank, .speaker = -1,
                            .cause = WATCH_FAILED };

    if (failed)
        snprintf(note.text, sizeof(note.text), "%s", w->why);
    for (int i = 0; i < w->n_links; i++) {
        const struct link *link = &w->links[i];

        if (link->state != LINK_LIVE && link->state != LINK_GREETED)
            continue;
        if (failed && !link->up && w->comm->rank == w->hub[0])
            link_send(link, &verdict);
        link_send(link, &note);
    }
}

static void *run(void *data)
{
    struct watch *w = data;

    w->end_of_meeting = clock_now() + MEETING;
    for (int i = 0; i < UPWARD; i++)
        w->links[i].limit = w->end_of_meeting;
    for (int i = UPWARD; i < w->n_links; i++)
        meet(w, &w->links[i]);
    do_what_is_due(w);
    while (!atomic_load(&w->leave)) {
        wait_for_something(w);
        do_what_is_due(w);
    }
    say_farewell(w, atomic_load(&w->leave) == LEAVE_FAILED);
    return NULL;
}

/* Starting and leaving ----------------------------------------------------------------- */

/* Rank 0, and one that does not end with it. */
static void choose_hubs(struct watch *w)
{
    w->hub[0] = 0;
    w->hub[1] = comm_far_rank(w->comm);
}

/* How many connections of 'wanted' there may be: poll() refuses more than the process may open.
 * Where there is no room for all, some ranks are not watched.
 */
static int make_room(int wanted)
{
    struct rlimit limit;
    rlim_t need = (rlim_t)wanted + UPWARD + OTHER_FILES;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= need)
        return wanted;
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    if (setrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur < UPWARD + OTHER_FILES)
        return 0;
    return (int)(limit.rlim_cur - UPWARD - OTHER_FILES);
}

static void make_links(struct watch *w)
{
    w->lost = mem_new((size_t)w->comm->size, sizeof(*w->lost));
    if (watch_is_hub(w))
        w->heard = mem_new((size_t)w->comm->size, sizeof(*w->heard));
    while (w->n_links < UPWARD)
        *(struct link *)mem_push((void **)&w->links, &w->n_links, sizeof(*w->links)) =
            (struct link){ .rank = -1 };
}

static bool on_one_node(const struct comm *comm)
{
    for (int r = 1; r < comm->size; r++)
        if (strcmp(comm->hosts[r], comm->hosts[0]) != 0)
            return false;
    return true;
}

/* Everybody learns where the ranks that watch can be met; n 0: nowhere. */
static int share_places(struct watch *w, struct err *err)
{
    struct comm *comm = w->comm;

    for (int h = 0; h < HUBS; h++) {
        struct link_place place = { .n = 0 };
        void *data = &place;
        size_t size = sizeof(place);

        if (comm->rank == w->hub[h])
            w->n_holders = link_hold(&place, on_one_node(comm), w->holders);
        if (comm->driver->broadcast(comm, w->hub[h], &data, &size, err))
            return -1;
        if (size == sizeof(place))
            memcpy(&w->place[h], data, size);
        w->place[h].n = w->place[h].n < LINK_ADDRESSES ? w->place[h].n : LINK_ADDRESSES;
        if (comm->rank != w->hub[h])
            free(data);
    }
    return 0;
}

/* An address of another node that this one has, too, leads nowhere. */
static bool leads_to(const struct watch *w, int hub, const struct link_end *to,
                     const struct link_end *from)
{
    return memcmp(&to->address, &from->address, sizeof(to->address)) != 0 ||
           strcmp(w->comm->hosts[w->hub[hub]], w->comm->hosts[w->comm->rank]) == 0;
}

/* Set out towards all addresses of those that watch: n0 + n1 beginnings, port 0 where there is no way. */
static void approach(struct watch *w, struct link_end *ways)
{
    int n = 0;

    for (int h = 0; h < HUBS; h++) {
        for (int i = 0; i < w->place[h].n; i++) {
            const struct link_end *to = &w->place[h].end[i];
            struct link *link = &w->links[h * LINK_ADDRESSES + i];
            struct link_end *from = &ways[n++];

            if (w->hub[h] == w->comm->rank)
                continue;
            *link = (struct link){ .rank = w->hub[h], .up = true, .address = i };
            if (link_approach(link, to, from) && !leads_to(w, h, to, from)) {
                link_close(link);
                *from = (struct link_end){ .port = 0 };
            }
        }
    }
}

/* Of whom a way leads here, as far as there is room. */
static void expect(struct watch *w, const void **parts, const size_t *sizes)
{
    int first = w->comm->rank == w->hub[0] ? 0 : w->place[0].n, n = own_place(w)->n;
    int room = make_room(w->comm->size);

    w->ways = mem_new((size_t)w->comm->size * LINK_ADDRESSES, sizeof(*w->ways));
    for (int r = 0; r < w->comm->size; r++) {
        const struct link_end *theirs = parts[r];
        bool leads = false;

        if (r == w->comm->rank ||
            sizes[r] != (size_t)(w->place[0].n + w->place[1].n) * sizeof(*theirs))
            continue;
        for (int i = 0; i < n; i++) {
            struct link_end *way = &w->ways[(size_t)r * LINK_ADDRESSES + (size_t)i];

            memcpy(way, &theirs[first + i], sizeof(*way));
            leads = leads || way->port != 0;
        }
        w->full = w->full || (leads && room == 0);
        if (!leads || room == 0)
            continue;
        *(struct link *)mem_push((void **)&w->links, &w->n_links, sizeof(*w->links)) =
            (struct link){ .rank = r };
        room--;
    }
}

/* Who watches learns where the others set out. */
static int share_ways(struct watch *w, struct err *err)
{
    struct comm *comm = w->comm;
    const void **parts = mem_new((size_t)comm->size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)comm->size, sizeof(*sizes));
    struct link_end ways[UPWARD] = { { .port = 0 } };
    int n = w->place[0].n + w->place[1].n, bad = 0;
    void *block = NULL;

    approach(w, ways);
    if (n > 0)
        bad = comm->driver->share(comm, ways, (size_t)n * sizeof(*ways), &block, parts, sizes, err);
    if (n > 0 && !bad && watch_is_hub(w))
        expect(w, parts, sizes);
    w->polls = mem_new((size_t)w->n_links + 1, sizeof(*w->polls));
    free(block);
    free(parts);
    free(sizes);
    return bad;
}

static void free_watch(struct watch *w)
{
    for (int i = 0; i < w->n_links; i++)
        link_close(&w->links[i]);
    let_go(w);
    free(w->ways);
    if (w->wake >= 0)
        close(w->wake);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->told);
    free(w->links);
    free(w->polls);
    free(w->lost);
    free(w->heard);
    free(w);
}

/* Signals are the main thread's. */
static int start_thread(struct watch *w)
{
    sigset_t all, before;
    int status;

    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake < 0)
        return -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    status = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status ? -1 : 0;
}

static void init_lock(struct watch *w)
{
    pthread_condattr_t monotonic;

    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->told, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* The thread sets a flag once, and what it is about before. */
static bool wait_until(struct watch *w, const bool *flag, double seconds)
{
    double end = clock_now() + seconds;
    struct timespec limit = { .tv_sec = (time_t)end,
                              .tv_nsec = (long)(1e9 * (end - (double)(time_t)end)) };
    bool set;

    pthread_mutex_lock(&w->lock);
    while (!*flag && pthread_cond_timedwait(&w->told, &w->lock, &limit) != ETIMEDOUT)
        ;
    set = *flag;
    pthread_mutex_unlock(&w->lock);
    return set;
}

int watch_start(struct comm *comm, struct watch **watch, struct err *err)
{
    struct watch *w;

    *watch = NULL;
    if (comm->size < 2)
        return 0;
    w = mem_new(1, sizeof(*w));
    w->comm = comm;
    w->wake = -1;
    atomic_init(&w->bound, LOST_AFTER);
    w->memory = oom_look("");
    init_lock(w);
    choose_hubs(w);
    make_links(w);
    if (share_places(w, err) || share_ways(w, err)) {
        free_watch(w);
        return -1;
    }
    if (start_thread(w)) {
        free_watch(w);
        return 0;
    }
    *watch = w;
    return 0;
}

bool watch_has_room(const struct watch *watch)
{
    return !watch || !watch->full;
}

void watch_settle(struct watch *watch)
{
    if (watch)
        (void)wait_until(watch, &watch->settled, START);
}

bool watch_verdict(struct watch *watch, double seconds, struct watch_verdict *verdict)
{
    if (!watch || !wait_until(watch, &watch->decided, seconds))
        return false;
    *verdict = watch->verdict;
    return true;
}

void watch_set_bound(struct watch *watch, double seconds)
{
    if (watch)
        atomic_store(&watch->bound, seconds);
}

static void wake(struct watch *watch)
{
    (void)!write(watch->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void watch_stuck(struct watch *watch)
{
    if (!watch)
        return;
    atomic_store(&watch->stuck, true);
    wake(watch);
}

void watch_set_words(struct watch *watch, const struct comm_words *words)
{
    if (!watch)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->words = words ? *words : (struct comm_words){ NULL };
    pthread_mutex_unlock(&watch->lock);
    if (!words)
        watch_end_remarks(watch);
}

void watch_hurry(struct watch *watch)
{
    struct itimerval end = { .it_interval = { 0 } };
    double rest;

    if (!watch || !wait_until(watch, &watch->decided, 0))
        return;
    rest = dmax(watch->leave_by - clock_now(), 0.1);
    end.it_value.tv_sec = (time_t)rest;
    end.it_value.tv_usec = (suseconds_t)(1e6 * (rest - (double)end.it_value.tv_sec));
    signal(SIGALRM, SIG_DFL);
    (void)setitimer(ITIMER_REAL, &end, NULL);
}

void watch_leave(struct watch *watch, const char *failed)
{
    if (!watch)
        return;
    watch->why = failed;
    atomic_store(&watch->leave, failed ? LEAVE_FAILED : LEAVE_BYE);
    wake(watch);
    pthread_join(watch->thread, NULL);
    watch_end_remarks(watch);
    free_watch(watch);
}
