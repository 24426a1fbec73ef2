/* SPDX-License-Identifier: MIT */
/* Who lives, for all one knows, but cannot be reached. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "comm/watch_private.h"

#define NAMED 2             /* nodes; the others are counted */
#define TICK 0.01           /* the kernel counts in these, or less */
#define SLEPT 5.0           /* seconds between two looks: then it was this one that was away */

/* Words -------------------------------------------------------------------------------- */

struct line {
    char *text;
    size_t size, at;
};

__attribute__((format(printf, 2, 3)))
static void add(struct line *line, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line->text + line->at, line->size - line->at, format, args);
    va_end(args);
    if (n > 0)
        line->at = line->at + (size_t)n < line->size ? line->at + (size_t)n : line->size - 1;
}

/* The first of its node that is cut off? */
static bool is_first(const struct comm *comm, const enum loss *lost, int rank)
{
    if (lost[rank] != LOSS_CUT)
        return false;
    for (int r = 0; r < rank; r++)
        if (lost[r] == LOSS_CUT && strcmp(comm->hosts[r], comm->hosts[rank]) == 0)
            return false;
    return true;
}

/* "node n3 (ranks 4-5)", where all of its ranks are cut off; else "ranks 4-5 (n3)". */
static void add_node(struct line *line, const struct comm *comm, const enum loss *lost, int first)
{
    struct where_group cut = { .ranks = mem_new((size_t)comm->size, sizeof(int)) };
    const char *host = comm->hosts[first], *s;
    char ranks[64];
    bool whole = true;

    for (int r = 0; r < comm->size; r++) {
        if (strcmp(comm->hosts[r], host) != 0)
            continue;
        if (lost[r] == LOSS_CUT)
            cut.ranks[cut.n++] = r;
        else
            whole = false;
    }
    where_ranks_text(&cut, ranks, sizeof(ranks));
    s = cut.n > 1 ? "s" : "";
    if (whole)
        add(line, "node %.48s (rank%s %.24s)", host, s, ranks);
    else
        add(line, "rank%s %.24s (%.48s)", s, ranks, host);
    free(cut.ranks);
}

void watch_cut_text(const struct comm *comm, const enum loss *lost, int witness, double seconds,
                    char *text, size_t size)
{
    struct line line = { .text = text, .size = size };
    int nodes = 0, named = 0;

    for (int r = 0; r < comm->size; r++)
        nodes += is_first(comm, lost, r);
    for (int r = 0; r < comm->size && named < NAMED; r++) {
        if (!is_first(comm, lost, r))
            continue;
        if (named++)
            add(&line, "%s", nodes > NAMED ? ", " : " and ");
        add_node(&line, comm, lost, r);
    }
    if (nodes > NAMED)
        add(&line, " and %d more node%s", nodes - NAMED, nodes - NAMED > 1 ? "s" : "");
    add(&line, " cannot be reached from %.48s: no answer for %.0f seconds", comm->hosts[witness],
        seconds);
}

/* Silence ------------------------------------------------------------------------------ */

void watch_note_cut(struct watch *w, int rank, int witness)
{
    struct note note = { .kind = NOTE_CUT, .rank = rank };
    double time = clock_now();

    if (w->lost[rank])
        return;
    w->lost[rank] = LOSS_CUT;
    w->witness = witness;
    if (watch_is_hub(w) && w->decide_at == 0)
        w->decide_at = time + GATHERING;
    if (!watch_is_hub(w) && w->suspect_at == 0)
        w->suspect_at = time + CUT_OFF;
    for (int i = 0; witness == w->comm->rank && i < w->n_links; i++) {
        const struct link *link = &w->links[i];

        if (link->state == LINK_LIVE && link->up && !w->lost[link->rank])
            link_send(link, &note);
    }
}

/* Returns the longest silence of the others. */
static double note_silent(struct watch *w, double seconds)
{
    double longest = 0;

    for (int i = 0; i < w->n_links; i++) {
        const struct link *link = &w->links[i];
        double silence;

        if (link->state != LINK_LIVE || w->lost[link->rank])
            continue;
        silence = link_silence(link);
        if (silence > seconds)
            watch_note_cut(w, link->rank, w->comm->rank);
        else
            longest = dmax(longest, silence);
    }
    return longest;
}

void watch_look_for_cuts(struct watch *w)
{
    double time = clock_now(), bound = atomic_load(&w->bound);
    bool slept = time - w->looked_at > SLEPT;

    double rest;

    w->looked_at = time;
    w->cut_at = 0;
    if (slept || bound <= 0 || w->decided)
        return;
    rest = bound - note_silent(w, bound);
    if (rest < BEAT)
        w->cut_at = time + rest + TICK;
}

void watch_gather_cuts(struct watch *w)
{
    double bound = atomic_load(&w->bound);

    for (int r = 0; bound > 0 && r < w->comm->size; r++)
        if (w->lost[r] == LOSS_CUT) {
            (void)note_silent(w, bound / 2);
            return;
        }
}
