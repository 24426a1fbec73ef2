/* SPDX-License-Identifier: MIT */
/* What watch.c and watch_judge.c share. */
#ifndef TASUKI_COMM_WATCH_PRIVATE_H
#define TASUKI_COMM_WATCH_PRIVATE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/oom.h"
#include "comm/driver.h"
#include "comm/stillness.h"
#include "comm/watch.h"
#include "comm/watch_link.h"

#define HUBS 2              /* ranks that watch: rank 0, and one for when that dies */
#define GATHERING 0.1       /* seconds: ranks of one node do not die in one instant */
#define ASKED 4.0           /* for an answer about memory: the kernel may take 2 s to free some */
#define CUT_OFF 3.0         /* who is cut off lets the others decide first */
#define BEAT 2.0            /* so often each rank says where it is */
#define HEARD 3.0           /* whose last word is older may not run: it is not asked, and not woken */
#define LOST_AFTER 20.0     /* of silence, unless something else is said */

enum { LEAVE_NOT, LEAVE_BYE, LEAVE_FAILED };

enum loss { LOSS_NONE, LOSS_DIED, LOSS_CUT };

/* What a rank that watches has heard of another. */
struct heard {
    double time;                    /* clock; 0: nothing */
    struct whereabouts at;
    bool gone;
    bool waits;                     /* longer than is usual */
    bool asked;                     /* about its node's memory */
    int missed;                     /* looks in a row at which there was no news */
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
    int n_holders;                  /* of this rank's place; 0: closed */
    int holders[LINK_ADDRESSES];
    struct link_end *ways;          /* [size][LINK_ADDRESSES]: where others set out for this place */
    double end_of_meeting;
    bool full;                      /* there was no room for some */
    int n_links, welcomed;
    struct link *links;
    struct pollfd *polls;           /* wake, links */
    enum loss *lost;                /* [size] */
    _Atomic(double) bound;          /* seconds of silence; 0: any */
    double looked_at, cut_at;       /* clock: for silence, and when there will be too much; 0: not */
    int witness;                    /* rank: who cannot reach those that are cut off */
    bool yielded;                   /* has let those decide first */
    struct heard *heard;            /* [size], of ranks that watch */
    struct watch_verdict failure;   /* of a rank that has said why, once its cause is that */
    struct oom memory;              /* of this node, when this began */
    char memory_text[240];          /* what the node of a rank that died says; "": nothing */
    double decide_at, suspect_at;   /* clock; 0: not */
    bool vain;                      /* some rank waits in vain */
    bool deferred;                  /* has let the other one that watches judge first */
    double beat_at, asked_at, look_at;
    double leave_by;                /* clock; once 'decided' */

    struct stillness still;

    pthread_mutex_t lock;           /* of what follows */
    pthread_cond_t told;
    bool settled;                   /* this rank is watched, or cannot be */
    bool decided;
    struct watch_verdict verdict;
    struct comm_words words;
    struct remark *remark;          /* NULL: none; else the last one, which may still be said */
};

static inline bool watch_is_hub(const struct watch *w)
{
    return w->comm->rank == w->hub[0] || w->comm->rank == w->hub[1];
}

/* watch_judge.c: all by the thread that watches. */
void watch_decide(struct watch *w, const struct watch_verdict *verdict);
/* Seconds from a verdict to the end of whoever has not left by then. */
double watch_leaving(enum watch_cause cause, double bound);
/* What was gathered is enough. */
void watch_judge(struct watch *w);
/* Both ranks that watch are silent. */
void watch_suspect(struct watch *w);
void watch_note_death(struct watch *w, const struct link *link);
/* Asked whether this node was short of memory, or answered by another one. */
void watch_say_memory(const struct watch *w, const struct link *link);
void watch_note_memory(struct watch *w, const char *text);
void watch_say_where(struct watch *w);
/* The main thread has not left in time: say why, where that is this rank's to do, and end. */
void watch_end(struct watch *w) __attribute__((noreturn));
/* Of all others there is to be news. */
void watch_ask_all(struct watch *w);
/* A rank waits in vain: this one, or another one. */
void watch_note_stuck(struct watch *w);
void watch_hear_stuck(struct watch *w);
/* Every so often: ask where there was no news of a rank for too long. */
void watch_look_for_silence(struct watch *w);
/* The news is there. */
void watch_judge_standstill(struct watch *w);

/* Where all ranks are, [size], at this clock, those silent of which nothing was heard since that one; to
 * be freed.
 */
struct sighting *watch_sightings(const struct watch *w, double time, double since);

/* watch_remark.c */
/* Every so often, on rank 0: nothing has moved for long, or it moves again? */
void watch_look_for_standstill(struct watch *w);
/* Waits until all is said. */
void watch_end_remarks(struct watch *w);

/* watch_cut.c */
/* Mark those that have been silent for too long. */
void watch_look_for_cuts(struct watch *w);
/* Where one is, those that are on the way there, too: they were cut off with it. */
void watch_gather_cuts(struct watch *w);
/* Rank 'witness' cannot reach 'rank': if it is this one, those who watch hear of it. */
void watch_note_cut(struct watch *w, int rank, int witness);
/* "node n3 (ranks 4-5) cannot be reached from n1: no answer for 20 seconds", of LOSS_CUT. */
void watch_cut_text(const struct comm *comm, const enum loss *lost, int witness, double seconds,
                    char *text, size_t size);

#endif
