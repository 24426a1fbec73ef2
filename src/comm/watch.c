/* SPDX-License-Identifier: MIT */
#include "comm/watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "comm/driver.h"
#include "comm/watch_link.h"

#define HUBS 2              /* ranks that watch: rank 0, and one for when that dies */
#define STRANGERS 16        /* connections that have not said hello yet */
#define OTHER_FILES 240     /* that MPI and the run have open beside these */
#define MEETING 60.0        /* seconds in which all must have connected */
#define ATTEMPT 5.0         /* for one address */
#define START 1.0           /* who dies before it is watched dies unseen: wait for that */
#define GATHERING 0.1       /* ranks of one node do not die in one instant */
#define SILENCE 1.0         /* a rank that watches died: who tells, if not the other one? */
#define BEAT 2.0            /* so often each rank says where it is */
#define ANSWERS 1.0         /* and so soon when it is asked */
#define LEAVING 20.0        /* after a verdict; who computes on does not see it */

enum { LEAVE_NOT, LEAVE_BYE, LEAVE_FAILED };

/* What a rank that watches has heard of another. */
struct heard {
    double time;                    /* clock; 0: nothing */
    struct whereabouts at;
    bool gone;
};

struct watch {
    struct comm *comm;
    pthread_t thread;
    int wake;                       /* eventfd: look at 'leave' */
    atomic_int leave;
    const char *why;                /* of LEAVE_FAILED */
    atomic_bool stuck;              /* the main thread waits in vain */

    int hub[HUBS];                  /* ranks; twice the same where there is one */
    struct link_place place[HUBS];
    int listener;                   /* -1: closed */
    double end_of_meeting;
    int n_links, welcomed;
    struct link *links;
    struct pollfd *polls;           /* wake, listener, links */
    bool *dead;                     /* [size] */
    struct heard *heard;            /* [size], of ranks that watch */
    struct watch_verdict failure;   /* of a rank that has said why, once its cause is that */
    double decide_at, suspect_at;   /* clock; 0: not */
    double beat_at, asked_at, look_at, leave_by;

    pthread_mutex_t lock;           /* of what follows */
    pthread_cond_t told;
    bool settled;                   /* this rank is watched, or cannot be */
    bool decided;
    struct watch_verdict verdict;
};

static bool is_hub(const struct watch *w)
{
    return w->comm->rank == w->hub[0] || w->comm->rank == w->hub[1];
}

/* Verdicts ----------------------------------------------------------------------------- */

static void decide(struct watch *w, const struct watch_verdict *verdict)
{
    struct note note = { .kind = NOTE_VERDICT, .rank = verdict->rank, .lost = verdict->lost,
                         .speaker = verdict->speaker, .cause = (int32_t)verdict->cause };

    w->decide_at = w->suspect_at = w->look_at = 0;
    if (w->decided)
        return;
    w->leave_by = clock_now() + LEAVING;
    for (int i = 0; i < w->n_links; i++)
        if (w->links[i].state == LINK_LIVE && !w->links[i].up)
            link_send(&w->links[i], &note);
    pthread_mutex_lock(&w->lock);
    w->verdict = *verdict;
    w->decided = true;
    pthread_cond_broadcast(&w->told);
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->comm->patience.broken, 1);
}

/* The lowest rank that is known to live. */
static int lowest_living(const struct watch *w)
{
    int lowest = w->comm->rank;

    for (int i = 0; i < w->n_links; i++) {
        const struct link *link = &w->links[i];

        if (link->state == LINK_LIVE && !w->dead[link->rank] && link->rank < lowest)
            lowest = link->rank;
    }
    return lowest;
}

static struct watch_verdict count_dead(const struct watch *w)
{
    struct watch_verdict verdict = { .rank = -1, .speaker = lowest_living(w) };

    for (int r = 0; r < w->comm->size; r++) {
        if (!w->dead[r])
            continue;
        verdict.rank = verdict.rank < 0 ? r : verdict.rank;
        verdict.lost++;
    }
    return verdict;
}

/* What was gathered is enough. The second rank that watches speaks for the first where that is
 * dead.
 */
static void judge(struct watch *w)
{
    struct watch_verdict verdict = count_dead(w);

    w->decide_at = 0;
    if (w->comm->rank != w->hub[0] && !w->dead[w->hub[0]])
        return;
    if (w->failure.cause == WATCH_FAILED)
        verdict = w->failure;
    if (verdict.cause == WATCH_FAILED || verdict.lost > 0)
        decide(w, &verdict);
}

/* Both that watch are silent: this rank knows of nobody else, so the first that was neither is
 * to speak.
 */
static void suspect(struct watch *w)
{
    struct watch_verdict verdict = count_dead(w);

    w->suspect_at = 0;
    for (verdict.speaker = 0; verdict.speaker < w->comm->rank; verdict.speaker++)
        if (verdict.speaker != w->hub[0] && verdict.speaker != w->hub[1])
            break;
    decide(w, &verdict);
}

static void note_death(struct watch *w, const struct link *link)
{
    double time = clock_now();

    w->dead[link->rank] = true;
    if (w->heard)
        w->heard[link->rank].gone = true;
    if (is_hub(w) && !link->up && w->decide_at == 0)
        w->decide_at = time + GATHERING;
    if (link->up && w->suspect_at == 0)
        w->suspect_at = time + SILENCE;
}

/* Where all are ------------------------------------------------------------------------ */

static void send_all(struct watch *w, const struct note *note, bool up)
{
    for (int i = 0; i < w->n_links; i++)
        if (w->links[i].state == LINK_LIVE && w->links[i].up == up)
            link_offer(&w->links[i], note);
}

static void say_where(struct watch *w)
{
    struct note here = { .kind = NOTE_HERE, .rank = w->comm->rank };

    where_read(&w->comm->where, &here.at);
    send_all(w, &here, true);
    w->beat_at = clock_now() + BEAT;
}

/* Some rank waits in vain: of all others there is to be news. The second rank that watches gives
 * the first time to tell.
 */
static void ask_all(struct watch *w)
{
    if (!is_hub(w) || w->decided || w->look_at > 0)
        return;
    send_all(w, &(struct note){ .kind = NOTE_ASK }, false);
    w->asked_at = clock_now();
    w->look_at = w->asked_at + ANSWERS + (w->comm->rank == w->hub[0] ? 0 : SILENCE);
}

static void note_stuck(struct watch *w)
{
    send_all(w, &(struct note){ .kind = NOTE_STUCK, .rank = w->comm->rank }, true);
    ask_all(w);
}

static void take_sighting(const struct watch *w, int rank, double time, struct sighting *s)
{
    const struct heard *heard = &w->heard[rank];

    if (rank == w->comm->rank) {
        where_read(&w->comm->where, &s->at);
        return;
    }
    s->at = heard->at;
    s->at.what[sizeof(s->at.what) - 1] = '\0';
    s->at.seconds += time - heard->time;
    s->silent = heard->time == 0 ? -1 : heard->time < w->asked_at ? time - heard->time : 0;
    s->gone = heard->gone;
}

/* Who is itself computing would not speak: the other one is to, else each for itself. */
static void judge_standstill(struct watch *w)
{
    struct watch_verdict verdict = { .cause = WATCH_STUCK, .speaker = w->comm->rank };
    struct sighting *ranks = mem_new((size_t)w->comm->size, sizeof(*ranks));
    double time = clock_now();

    w->look_at = 0;
    for (int r = 0; r < w->comm->size; r++)
        take_sighting(w, r, time, &ranks[r]);
    if (w->decided || ranks[w->comm->rank].at.operation == WHERE_COMPUTES) {
        free(ranks);
        return;
    }
    verdict.rank = where_stuck(ranks, w->comm->size);
    verdict.ranks = ranks;
    decide(w, &verdict);
}

/* Connections -------------------------------------------------------------------------- */

static const struct link_place *place_of(const struct watch *w, const struct link *link)
{
    return &w->place[link->rank == w->hub[0] ? 0 : 1];
}

/* The next address, where this one was no use. */
static void try_next(struct watch *w, struct link *link)
{
    link_close(link);
    link->address++;
    link->limit = clock_now() + ATTEMPT;
    (void)link_connect(link, place_of(w, link));
}

static void greet(struct watch *w, struct link *link)
{
    struct note hello = { .kind = NOTE_HELLO, .rank = w->comm->rank };

    if (!link_connected(link)) {
        try_next(w, link);
        return;
    }
    memcpy(hello.token, place_of(w, link)->token, sizeof(hello.token));
    link_send(link, &hello);
    link->state = LINK_GREETED;
}

static void welcome(struct watch *w, struct link *link, const struct note *note)
{
    const struct link_place *mine = &w->place[w->comm->rank == w->hub[0] ? 0 : 1];
    struct note answer = { .kind = NOTE_WELCOME };

    if (note->kind != NOTE_HELLO || note->rank < 0 || note->rank >= w->comm->size ||
        memcmp(note->token, mine->token, sizeof(mine->token)) != 0) {
        link_close(link);
        return;
    }
    link->rank = note->rank;
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

static void take_news(struct watch *w, const struct link *link, const struct note *note)
{
    struct watch_verdict verdict = { .cause = (enum watch_cause)note->cause, .rank = note->rank,
                                     .lost = note->lost, .speaker = note->speaker };

    if (note->kind == NOTE_VERDICT && link->up)
        decide(w, &verdict);
    else if (note->kind == NOTE_ASK && link->up)
        say_where(w);
    else if (note->kind == NOTE_STUCK)
        ask_all(w);
    else if (note->kind == NOTE_HERE && w->heard && !link->up)
        w->heard[link->rank] = (struct heard){ .time = clock_now(), .at = note->at };
}

static void take_note(struct watch *w, struct link *link, const struct note *note)
{
    if (link->state == LINK_NEW) {
        welcome(w, link, note);
    } else if (link->state == LINK_GREETED) {
        if (note->kind == NOTE_WELCOME &&
            memcmp(note->token, place_of(w, link)->token, sizeof(note->token)) == 0)
            link->state = LINK_LIVE;
        else
            try_next(w, link);
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
    while (link->state != LINK_FREE && (status = link_read(link, &note)) != 0) {
        if (status > 0) {
            take_note(w, link, &note);
            continue;
        }
        if (link->state == LINK_GREETED) {
            try_next(w, link);
            return;
        }
        if (link->state == LINK_LIVE && status == -1)
            note_death(w, link);
        link_close(link);
    }
}

static struct link *free_link(struct watch *w)
{
    for (int i = 0; i < w->n_links; i++)
        if (w->links[i].state == LINK_FREE && !w->links[i].up)
            return &w->links[i];
    return NULL;
}

static void accept_all(struct watch *w)
{
    struct link *link, stranger;

    while ((link = free_link(w)) && link_accept(link, w->listener, clock_now() + ATTEMPT))
        ;
    if (!link && link_accept(&stranger, w->listener, 0))
        link_close(&stranger);
}

static void close_listener(struct watch *w)
{
    if (w->listener >= 0)
        close(w->listener);
    w->listener = -1;
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
    soonest(&next, w->leave_by);
    if (w->listener >= 0)
        soonest(&next, w->end_of_meeting);
    for (int i = 0; i < w->n_links; i++)
        if (w->links[i].state != LINK_FREE && w->links[i].state != LINK_LIVE)
            soonest(&next, w->links[i].limit);
    rest = next - clock_now();
    return next == 0 ? -1 : rest <= 0 ? 0 : (int)(1e3 * rest) + 1;
}

/* Is nothing under way any more that would have this rank watched? */
static void check_settled(struct watch *w)
{
    bool settled = true;

    for (int i = 0; i < w->n_links; i++)
        settled = settled && (!w->links[i].up || w->links[i].state == LINK_LIVE ||
                              w->links[i].state == LINK_FREE);
    if (!settled || w->settled)
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

        if (link->state == LINK_FREE || link->state == LINK_LIVE || time < link->limit)
            continue;
        if (link->up)
            try_next(w, link);
        else
            link_close(link);
    }
    if (w->listener >= 0 && (time >= w->end_of_meeting || w->welcomed >= w->comm->size - 1))
        close_listener(w);
    if (w->decide_at > 0 && time >= w->decide_at)
        judge(w);
    if (w->suspect_at > 0 && time >= w->suspect_at)
        suspect(w);
    if (atomic_exchange(&w->stuck, false))
        note_stuck(w);
    if (w->look_at > 0 && time >= w->look_at)
        judge_standstill(w);
    if (time >= w->beat_at)
        say_where(w);
    if (w->leave_by > 0 && time >= w->leave_by)
        _exit(EXIT_FAILED);
}

static void wait_for_something(struct watch *w)
{
    w->polls[0] = (struct pollfd){ .fd = w->wake, .events = POLLIN };
    w->polls[1] = (struct pollfd){ .fd = w->listener, .events = POLLIN };
    for (int i = 0; i < w->n_links; i++) {
        const struct link *link = &w->links[i];

        w->polls[2 + i] = (struct pollfd){
            .fd = link->state == LINK_FREE ? -1 : link->fd,
            .events = link->state == LINK_CONNECTING ? POLLOUT : POLLIN,
        };
    }
    if (poll(w->polls, (nfds_t)w->n_links + 2, next_due(w)) <= 0)
        return;
    if (w->polls[0].revents)
        (void)!read(w->wake, &(uint64_t){ 0 }, sizeof(uint64_t));
    for (int i = 0; i < w->n_links; i++)
        if (w->links[i].state != LINK_FREE && w->polls[2 + i].revents)
            serve(w, &w->links[i]);
    if (w->listener >= 0 && w->polls[1].revents)
        accept_all(w);
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

    for (int i = 0; i < w->n_links; i++) {
        if (w->links[i].up) {
            w->links[i].limit = clock_now() + ATTEMPT;
            (void)link_connect(&w->links[i], place_of(w, &w->links[i]));
        }
    }
    do_what_is_due(w);
    while (!atomic_load(&w->leave)) {
        wait_for_something(w);
        do_what_is_due(w);
    }
    say_farewell(w, atomic_load(&w->leave) == LEAVE_FAILED);
    return NULL;
}

/* Starting and leaving ----------------------------------------------------------------- */

/* Rank 0, and the first rank of another node, or rank 1. */
static void choose_hubs(struct watch *w)
{
    const struct comm *comm = w->comm;

    w->hub[0] = 0;
    w->hub[1] = 1;
    for (int r = comm->size - 1; r > 0; r--)
        if (strcmp(comm->hosts[r], comm->hosts[0]) != 0)
            w->hub[1] = r;
}

/* How many connections of 'wanted' there may be: poll() refuses more than the process may open.
 * Where there is no room for all, some ranks are not watched.
 */
static int make_room(int wanted)
{
    struct rlimit limit;
    rlim_t need = (rlim_t)wanted + OTHER_FILES;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= need)
        return wanted;
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    if (setrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur < STRANGERS + OTHER_FILES)
        return STRANGERS;
    return (int)(limit.rlim_cur - OTHER_FILES);
}

static void make_links(struct watch *w)
{
    int n = 0;

    w->n_links = HUBS + (is_hub(w) ? make_room(w->comm->size + STRANGERS) : 0);
    w->links = mem_new((size_t)w->n_links, sizeof(*w->links));
    w->polls = mem_new((size_t)w->n_links + 2, sizeof(*w->polls));
    w->dead = mem_new((size_t)w->comm->size, sizeof(*w->dead));
    if (is_hub(w))
        w->heard = mem_new((size_t)w->comm->size, sizeof(*w->heard));
    for (int h = 0; h < HUBS; h++)
        if (w->hub[h] != w->comm->rank)
            w->links[n++] = (struct link){ .rank = w->hub[h], .up = true };
}

static bool on_one_node(const struct comm *comm)
{
    for (int r = 1; r < comm->size; r++)
        if (strcmp(comm->hosts[r], comm->hosts[0]) != 0)
            return false;
    return true;
}

/* Everybody learns where the ranks that watch listen; n 0: nowhere. */
static int share_places(struct watch *w, struct err *err)
{
    struct comm *comm = w->comm;

    for (int h = 0; h < HUBS; h++) {
        struct link_place place = { .n = 0 };
        void *data = &place;
        size_t size = sizeof(place);

        if (comm->rank == w->hub[h])
            w->listener = link_listen(&place, on_one_node(comm));
        if (comm->driver->broadcast(comm, w->hub[h], &data, &size, err))
            return -1;
        if (size == sizeof(place))
            memcpy(&w->place[h], data, size);
        if (comm->rank != w->hub[h])
            free(data);
    }
    return 0;
}

static void free_watch(struct watch *w)
{
    for (int i = 0; i < w->n_links; i++)
        link_close(&w->links[i]);
    close_listener(w);
    if (w->wake >= 0)
        close(w->wake);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->told);
    free(w->links);
    free(w->polls);
    free(w->dead);
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
    w->listener = w->wake = -1;
    w->end_of_meeting = clock_now() + MEETING;
    init_lock(w);
    choose_hubs(w);
    make_links(w);
    if (share_places(w, err)) {
        free_watch(w);
        return -1;
    }
    if (start_thread(w)) {
        free_watch(w);
        return 0;
    }
    (void)wait_until(w, &w->settled, START);
    *watch = w;
    return 0;
}

bool watch_verdict(struct watch *watch, double seconds, struct watch_verdict *verdict)
{
    if (!watch || !wait_until(watch, &watch->decided, seconds))
        return false;
    *verdict = watch->verdict;
    return true;
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

void watch_leave(struct watch *watch, const char *failed)
{
    if (!watch)
        return;
    watch->why = failed;
    atomic_store(&watch->leave, failed ? LEAVE_FAILED : LEAVE_BYE);
    wake(watch);
    pthread_join(watch->thread, NULL);
    free_watch(watch);
}
