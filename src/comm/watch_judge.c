/* SPDX-License-Identifier: MIT */
/* Who died, who is stuck, and who says so. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "comm/watch_private.h"

#define SILENCE 5.0         /* a rank that watches died: who tells, if not the other one? */
#define ANSWERS 1.0         /* so soon each says where it is when it is asked */
#define SECOND 2.0          /* so much later the second rank that watches looks for who is silent */
#define SILENT 20.0         /* seconds without a word, and no less: then it does not run */
#define REACHED 6.0         /* seconds since its kernel answered; else its node may be cut off */

/* All are gone WITHIN seconds after those of silence, or the deadline, whatever they do (HACKING.md). */
#define WITHIN 10.0
#define LAST_WORDS 1        /* of the thread, where the main one does not come to speak */
#define SLACK 1.0           /* for a machine that is busy, and launch_linger() */
#define LEAVING 20.0        /* after a verdict, and less where that came late */

/* The end ------------------------------------------------------------------------------ */

/* Seconds between what has happened and the verdict, at most. */
static double verdict_takes(enum watch_cause cause, double bound)
{
    if (cause == WATCH_CUT)
        return bound + GATHERING + CUT_OFF;
    if (cause == WATCH_STUCK)               /* from the deadline on */
        return bound + ANSWERS + SECOND;
    return cause == WATCH_SILENT ? dmax(bound, SILENT) + ANSWERS + SECOND : SILENCE;
}

double watch_leaving(enum watch_cause cause, double bound)
{
    double silence = bound > 0 ? bound : LOST_AFTER;
    double all = (cause == WATCH_SILENT ? dmax(silence, SILENT) : silence) + WITHIN;

    return dmin(LEAVING, all - verdict_takes(cause, silence) - LAST_WORDS - SLACK);
}

/* Is the rank that is to speak a thread of this process, too? */
static bool speaks_here(const struct watch *w)
{
    int speaker = w->verdict.speaker;

    return speaker >= 0 && comm_process(w->comm, speaker) == comm_process(w->comm, w->comm->rank);
}

void watch_end(struct watch *w)
{
    struct comm_words words;

    /* What it writes to may hang. */
    signal(SIGALRM, SIG_DFL);
    alarm(LAST_WORDS);
    pthread_mutex_lock(&w->lock);
    words = w->words;
    pthread_mutex_unlock(&w->lock);
    if (w->verdict.speaker == w->comm->rank && words.last)
        comm_last_words(w->comm, &w->verdict, words.last, words.data);
    else if (speaks_here(w))
        sleep(LAST_WORDS);
    _exit(EXIT_FAILED);
}

/* Deaths ------------------------------------------------------------------------------- */

void watch_decide(struct watch *w, const struct watch_verdict *verdict)
{
    struct note note = { .kind = NOTE_VERDICT, .rank = verdict->rank, .lost = verdict->lost,
                         .speaker = verdict->speaker, .cause = (int32_t)verdict->cause };

    memcpy(note.text, verdict->text, sizeof(note.text));
    w->decide_at = w->suspect_at = w->look_at = 0;
    if (w->decided)
        return;
    w->leave_by = clock_now() + watch_leaving(verdict->cause, atomic_load(&w->bound));
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

        if (link->state == LINK_LIVE && !w->lost[link->rank] && link->rank < lowest)
            lowest = link->rank;
    }
    return lowest;
}

static void look_at_memory(const struct watch *w, char *text, size_t size)
{
    const struct oom now = oom_look("");

    oom_text(&w->memory, &now, w->comm->hosts[w->comm->rank], "the run started", text, size);
}

void watch_say_memory(const struct watch *w, const struct link *link)
{
    struct note answer = { .kind = NOTE_MEMORY, .rank = w->comm->rank };

    look_at_memory(w, answer.text, sizeof(answer.text));
    link_send(link, &answer);
}

/* There is nobody to wait for: only for other ranks that died in the same instant. */
static void judge_soon(struct watch *w)
{
    if (w->decide_at > 0)
        w->decide_at = dmin(w->decide_at, clock_now() + GATHERING);
}

/* Any rank speaks for its node. */
void watch_note_memory(struct watch *w, const char *text)
{
    if (*text)
        snprintf(w->memory_text, sizeof(w->memory_text), "%s", text);
    judge_soon(w);
}

/* Is there anybody to be asked, on another node, where a rank died? */
static bool ask_about_memory(struct watch *w, int rank)
{
    bool asked = false;

    if (comm_same_host(w->comm, w->comm->rank, rank))
        return false;
    for (int i = 0; i < w->n_links; i++) {
        const struct link *link = &w->links[i];

        if (link->state != LINK_LIVE || link->up || link->rank == rank ||
            !comm_same_host(w->comm, link->rank, rank))
            continue;
        link_send(link, &(struct note){ .kind = NOTE_MEMORY, .rank = w->comm->rank });
        w->heard[link->rank].asked = asked = true;
    }
    return asked;
}

/* The rank that died was to answer: is there another one that will? */
static void note_unanswered(struct watch *w, int rank)
{
    if (!w->heard[rank].asked)
        return;
    w->heard[rank].asked = false;
    for (int r = 0; r < w->comm->size; r++)
        if (w->heard[r].asked)
            return;
    judge_soon(w);
}

/* Those that are lost as the lowest of them is. */
static struct watch_verdict count_lost(const struct watch *w)
{
    struct watch_verdict verdict = { .rank = -1, .speaker = lowest_living(w) };

    for (int r = 0; r < w->comm->size; r++) {
        if (!w->lost[r])
            continue;
        verdict.rank = verdict.rank < 0 ? r : verdict.rank;
        verdict.lost += w->lost[r] == w->lost[verdict.rank];
    }
    if (verdict.rank < 0)
        return verdict;
    if (w->lost[verdict.rank] == LOSS_DIED) {
        memcpy(verdict.text, w->memory_text, sizeof(verdict.text));
        if (!verdict.text[0] && comm_same_host(w->comm, verdict.rank, w->comm->rank))
            look_at_memory(w, verdict.text, sizeof(verdict.text));
        return verdict;
    }
    verdict.cause = WATCH_CUT;
    watch_cut_text(w->comm, w->lost, w->witness, atomic_load(&w->bound), verdict.text,
                   sizeof(verdict.text));
    return verdict;
}

/* Most are out of reach: then it is this node that is cut off, and those are to speak first. */
static bool is_to_wait(struct watch *w, const struct watch_verdict *verdict)
{
    if (w->yielded || verdict->cause != WATCH_CUT || 2 * verdict->lost <= w->comm->size)
        return false;
    w->yielded = true;
    w->decide_at = clock_now() + CUT_OFF;
    return true;
}

/* What was gathered is enough. The second rank that watches speaks for the first where that is
 * lost.
 */
void watch_judge(struct watch *w)
{
    struct watch_verdict verdict;

    watch_gather_cuts(w);
    verdict = count_lost(w);
    w->decide_at = 0;
    if (w->comm->rank != w->hub[0] && !w->lost[w->hub[0]])
        return;
    if (w->failure.cause == WATCH_FAILED)
        verdict = w->failure;
    if ((verdict.cause == WATCH_FAILED || verdict.lost > 0) && !is_to_wait(w, &verdict))
        watch_decide(w, &verdict);
}

static bool ends_with(const struct watch *w, int rank, int hub)
{
    return hub < w->comm->size && comm_process(w->comm, rank) == comm_process(w->comm, hub);
}

/* Is it to speak, as far as this one knows? Of a node that is cut off one does. */
static bool may_speak(const struct watch *w, int rank, enum watch_cause cause)
{
    if (cause == WATCH_CUT)
        return !w->lost[rank] && comm_same_host(w->comm, rank, w->comm->rank);
    return !ends_with(w, rank, w->hub[0]) && !ends_with(w, rank, w->hub[1]);
}

/* Both that watch are silent: this rank knows of nobody else, so the first that was neither is
 * to speak.
 */
void watch_suspect(struct watch *w)
{
    struct watch_verdict verdict;

    watch_gather_cuts(w);
    verdict = count_lost(w);
    w->suspect_at = 0;
    for (verdict.speaker = 0; verdict.speaker < w->comm->rank; verdict.speaker++)
        if (may_speak(w, verdict.speaker, verdict.cause))
            break;
    watch_decide(w, &verdict);
}

void watch_note_death(struct watch *w, const struct link *link)
{
    double time = clock_now();

    if (!w->lost[link->rank])
        w->lost[link->rank] = LOSS_DIED;
    if (w->heard)
        w->heard[link->rank].gone = true;
    if (watch_is_hub(w) && !link->up)
        note_unanswered(w, link->rank);
    if (watch_is_hub(w) && !link->up && w->decide_at == 0)
        w->decide_at = time + (ask_about_memory(w, link->rank) ? ASKED : GATHERING);
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

void watch_say_where(struct watch *w)
{
    struct note here = { .kind = NOTE_HERE, .rank = w->comm->rank };

    where_read(&w->comm->where, &here.at);
    here.waits = atomic_load(&w->comm->patience.remarkable);
    send_all(w, &here, true);
    w->beat_at = clock_now() + BEAT;
}

/* The second rank that watches gives the first time to tell. */
void watch_ask_all(struct watch *w)
{
    double time = clock_now();

    if (!watch_is_hub(w) || w->decided || w->look_at > 0)
        return;
    for (int i = 0; i < w->n_links; i++) {
        const struct link *link = &w->links[i];

        if (link->state == LINK_LIVE && !link->up &&
            (w->heard[link->rank].time <= 0 || w->heard[link->rank].time > time - HEARD))
            link_offer(link, &(struct note){ .kind = NOTE_ASK });
    }
    w->asked_at = time;
    w->look_at = time + ANSWERS;
    if (w->comm->rank != w->hub[0])
        w->look_at += w->vain ? SILENCE : SECOND;
}

void watch_note_stuck(struct watch *w)
{
    send_all(w, &(struct note){ .kind = NOTE_STUCK, .rank = w->comm->rank }, true);
    watch_hear_stuck(w);
}

void watch_hear_stuck(struct watch *w)
{
    w->vain = true;
    watch_ask_all(w);
}

/* Has there been none of this rank for too long? Looks are counted, not seconds: while this process
 * itself is stopped, as all of a job may be, nobody looks.
 */
static bool is_silent(const struct watch *w, int rank)
{
    double bound = atomic_load(&w->bound);

    return bound > 0 && w->heard[rank].missed * BEAT >= dmax(bound, SILENT);
}

void watch_look_for_silence(struct watch *w)
{
    bool silent = false;

    if (!watch_is_hub(w))
        return;
    for (int i = 0; i < w->n_links; i++) {
        struct heard *heard = w->links[i].state == LINK_LIVE && !w->links[i].up
                                  ? &w->heard[w->links[i].rank] : NULL;

        if (!heard || heard->time <= 0 || heard->gone ||
            link_silence(&w->links[i]) > REACHED)
            continue;
        heard->missed++;
        silent = silent || is_silent(w, w->links[i].rank);
    }
    if (silent)
        watch_ask_all(w);
}

static void take_sighting(const struct watch *w, int rank, double time, double since,
                          struct sighting *s)
{
    const struct heard *heard = &w->heard[rank];

    if (rank == w->comm->rank) {
        where_read(&w->comm->where, &s->at);
        return;
    }
    s->at = heard->at;
    s->at.what[sizeof(s->at.what) - 1] = '\0';
    s->at.seconds += time - heard->time;
    s->silent = heard->time == 0 ? -1 : heard->time < since ? time - heard->time : 0;
    s->gone = heard->gone;
}

struct sighting *watch_sightings(const struct watch *w, double time, double since)
{
    struct sighting *ranks = mem_new((size_t)w->comm->size, sizeof(*ranks));

    for (int r = 0; r < w->comm->size; r++)
        take_sighting(w, r, time, since, &ranks[r]);
    return ranks;
}

/* Who is itself computing would not speak: the other one is to, else each for itself. Where that is no
 * use, its thread will speak (watch_end()).
 */
static bool is_to_defer(struct watch *w)
{
    bool defers = w->comm->rank == w->hub[0] && !w->deferred;

    w->deferred = defers;
    if (defers)
        w->look_at = clock_now() + SECOND;
    return defers;
}

void watch_judge_standstill(struct watch *w)
{
    struct watch_verdict verdict = { .cause = WATCH_STUCK, .speaker = w->comm->rank };
    struct sighting *ranks = watch_sightings(w, clock_now(), w->asked_at);
    int silent = -1;

    w->look_at = 0;
    for (int r = 0; r < w->comm->size && silent < 0; r++)
        if (ranks[r].silent > 0 && is_silent(w, r))
            silent = r;
    if (w->decided || (!w->vain && silent < 0) ||
        (ranks[w->comm->rank].at.operation == WHERE_COMPUTES && (w->vain || is_to_defer(w)))) {
        free(ranks);
        return;
    }
    verdict.rank = w->vain ? where_stuck(ranks, w->comm->size) : silent;
    verdict.cause = w->vain ? WATCH_STUCK : WATCH_SILENT;
    verdict.ranks = ranks;
    watch_decide(w, &verdict);
}
