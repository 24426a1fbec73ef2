/* SPDX-License-Identifier: MIT */
#include "scheduler/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

static bool is_compute(enum instruction_kind kind)
{
    return kind == INSTRUCTION_F || kind == INSTRUCTION_B || kind == INSTRUCTION_W ||
           kind == INSTRUCTION_BW;
}

static const char *text_of(const struct instruction *i, char text[64])
{
    bool message = i->kind == INSTRUCTION_SEND || i->kind == INSTRUCTION_RECV;

    if (message)
        snprintf(text, 64, "%s %d %d %s %d%s", instruction_name(i->kind), i->micro, i->chunk,
                 i->kind == INSTRUCTION_SEND ? "->" : "<-", i->peer,
                 i->gradient ? " gradient" : "");
    else
        snprintf(text, 64, "%s %d %d", instruction_name(i->kind), i->micro, i->chunk);
    return text;
}

/* An error about it; always -1. */
static int refuse(const struct schedule *schedule, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(const struct schedule *schedule, struct err *err, const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (schedule->source)
        return err_set(err, "%s: %s", schedule->source, text);
    return err_set(err, "schedule %s: %s", schedule->name, text);
}

static int fail(const struct schedule *schedule, int l, const struct instruction *i,
                struct err *err, const char *why)
{
    const struct instruction_list *list = &schedule->lists[l];
    int stage = list->stages[i->chunk < list->n_chunks ? i->chunk : 0];
    char text[64];

    return refuse(schedule, err, "stage %d: %s: %s", stage, text_of(i, text), why);
}

/* What has been seen of one micro-batch in one chunk, in list order. */
struct progress {
    bool forward, dgrad, wgrad;
};

static int check_compute(const struct instruction *i, struct progress *p, const char **why)
{
    bool b = i->kind == INSTRUCTION_B || i->kind == INSTRUCTION_BW;
    bool w = i->kind == INSTRUCTION_W || i->kind == INSTRUCTION_BW;

    if (i->kind == INSTRUCTION_F) {
        *why = "F twice";
        if (p->forward)
            return -1;
        p->forward = true;
    }
    *why = "before its F, or twice";
    if (b && (!p->forward || p->dgrad))
        return -1;
    p->dgrad |= b;
    *why = "before its B, or twice";
    if (w && (!p->dgrad || p->wgrad))
        return -1;
    p->wgrad |= w;
    return 0;
}

/* What is sent may lie in the scratch: does it directly follow the computation? */
static bool follows(const struct instruction *i, const struct instruction *before)
{
    if (i->kind != INSTRUCTION_SEND)
        return true;
    return before && before->micro == i->micro && before->chunk == i->chunk &&
           before->kind != INSTRUCTION_W && (before->kind == INSTRUCTION_F) == !i->gradient;
}

/* The memory of a stage is laid out for BW, or for B and W. */
static bool mixes(const struct instruction *i, const struct instruction *before)
{
    bool part = i->kind == INSTRUCTION_B || i->kind == INSTRUCTION_W;

    return before && ((part && before->kind == INSTRUCTION_BW) ||
                      (i->kind == INSTRUCTION_BW && before->kind != INSTRUCTION_BW));
}

static int check_complete(const struct schedule *schedule, const struct instruction_list *list,
                          const struct progress *progress, struct err *err)
{
    for (int c = 0; c < list->n_chunks; c++)
        for (int m = 0; m < schedule->micro_batches; m++)
            if (!progress[c * schedule->micro_batches + m].wgrad)
                return refuse(schedule, err, "stage %d: micro-batch %d is not complete",
                              list->stages[c], m);
    if (list->n < 2 || list->items[list->n - 2].kind != INSTRUCTION_REDUCE ||
        list->items[list->n - 1].kind != INSTRUCTION_STEP)
        return refuse(schedule, err, "stage %d: does not end with REDUCE and STEP",
                      list->stages[0]);
    return 0;
}

/* Each micro-batch runs F, B, W in this order; REDUCE and STEP end the list. */
static int check_order(const struct schedule *schedule, int l, struct err *err)
{
    const struct instruction_list *list = &schedule->lists[l];
    size_t n = (size_t)schedule->micro_batches;
    struct progress *progress = mem_new((size_t)list->n_chunks * n, sizeof(*progress));
    const struct instruction *before = NULL;    /* the last computation */
    const struct instruction **backward =       /* the last of each chunk that was no F */
        mem_new((size_t)list->n_chunks, sizeof(*backward));
    const char *why = NULL;
    int rc = 0;

    for (int k = 0; k < list->n && rc == 0; k++) {
        const struct instruction *i = &list->items[k];

        if (i->micro < 0 || i->micro >= schedule->micro_batches)
            rc = fail(schedule, l, i, err, "no such micro-batch");
        else if (i->chunk < 0 || i->chunk >= list->n_chunks)
            rc = fail(schedule, l, i, err, "no such chunk");
        else if (is_compute(i->kind) &&
                 check_compute(i, &progress[(size_t)i->chunk * n + (size_t)i->micro], &why))
            rc = fail(schedule, l, i, err, why);
        else if (mixes(i, backward[i->chunk]))
            rc = fail(schedule, l, i, err, "a stage runs BW, or B and W, but not both");
        else if (!follows(i, before))
            rc = fail(schedule, l, i, err, "does not directly follow what makes it");
        else if ((i->kind == INSTRUCTION_REDUCE && k != list->n - 2) ||
                 (i->kind == INSTRUCTION_STEP && k != list->n - 1))
            rc = fail(schedule, l, i, err, "not at the end");
        if (rc == 0 && is_compute(i->kind))
            before = i;
        if (rc == 0 && is_compute(i->kind) && i->kind != INSTRUCTION_F)
            backward[i->chunk] = i;
    }
    if (rc == 0)
        rc = check_complete(schedule, list, progress, err);
    free(backward);
    free(progress);
    return rc;
}

static int find_edge(const struct schedule_edge *edges, int n_edges, int from, int to)
{
    for (int e = 0; e < n_edges; e++)
        if (edges[e].from == from && edges[e].to == to)
            return e;
    return -1;
}

/* Where an instruction's messages are in an array over (edge, gradient); -1: no edge. */
static long channel_index(const struct schedule *schedule, const struct schedule_edge *edges,
                          int n_edges, int l, const struct instruction *i)
{
    int stage = schedule->lists[l].stages[i->chunk];
    bool forth = (i->kind == INSTRUCTION_SEND) != i->gradient;
    int e = forth ? find_edge(edges, n_edges, stage, i->peer)
                  : find_edge(edges, n_edges, i->peer, stage);

    if (e < 0 || (i->gradient && !edges[e].gradient))
        return -1;
    return (long)e * 2 + i->gradient;
}

/* The same over (edge, gradient, micro). */
static long message_index(const struct schedule *schedule, const struct schedule_edge *edges,
                          int n_edges, int l, const struct instruction *i)
{
    long channel = channel_index(schedule, edges, n_edges, l, i);

    return channel < 0 ? -1 : channel * schedule->micro_batches + i->micro;
}

/* Replay under rendezvous. A message is complete when both sides have posted it. */
struct replay {
    const struct schedule *schedule;
    const struct schedule_edge *edges;
    int n_edges;
    int *next;              /* instruction of each list */
    bool *sent, *received;  /* per message: posted */
    int *waiting;           /* per (edge, gradient): SENDs that no RECV has met, or fewer than 0 */
    bool *freed;            /* per (stage, micro): W is done */
};

static bool done(const struct replay *r, long message)
{
    return r->sent[message] && r->received[message];
}

static bool stage_received(const struct replay *r, int stage, int micro, bool gradient)
{
    for (int e = 0; e < r->n_edges; e++) {
        const struct schedule_edge *edge = &r->edges[e];
        long message = ((long)e * 2 + gradient) * r->schedule->micro_batches + micro;

        if (gradient ? edge->gradient && edge->from == stage : edge->to == stage)
            if (!done(r, message))
                return false;
    }
    return true;
}

/* The slot that 'micro' takes was left by its last owner. */
static bool slot_free(const struct replay *r, int stage, int micro)
{
    int before = micro - r->schedule->stages[stage].slots;

    return before < 0 || r->freed[stage * r->schedule->micro_batches + before];
}

static void post(const struct replay *r, int l, const struct instruction *i)
{
    long channel = channel_index(r->schedule, r->edges, r->n_edges, l, i);
    bool send = i->kind == INSTRUCTION_SEND;

    (send ? r->sent : r->received)[channel * r->schedule->micro_batches + i->micro] = true;
    r->waiting[channel] += send ? 1 : -1;
}

static bool may_send(const struct replay *r, int l, int stage, const struct instruction *i)
{
    return r->waiting[channel_index(r->schedule, r->edges, r->n_edges, l, i)] <
           schedule_sends(r->schedule, stage, i->peer);
}

/* May the instruction run now? Posts it if so. */
static bool run(struct replay *r, int l, const struct instruction *i)
{
    int stage = r->schedule->lists[l].stages[i->chunk];

    switch (i->kind) {
    case INSTRUCTION_F:
        return slot_free(r, stage, i->micro) && stage_received(r, stage, i->micro, false);
    case INSTRUCTION_B:
        return stage_received(r, stage, i->micro, true);
    case INSTRUCTION_BW:
        if (!stage_received(r, stage, i->micro, true))
            return false;
        r->freed[stage * r->schedule->micro_batches + i->micro] = true;
        return true;
    case INSTRUCTION_W:
        r->freed[stage * r->schedule->micro_batches + i->micro] = true;
        return true;
    case INSTRUCTION_RECV:
        if (!i->gradient && !slot_free(r, stage, i->micro))
            return false;
        post(r, l, i);
        return true;
    case INSTRUCTION_SEND:
        if (!may_send(r, l, stage, i))
            return false;
        post(r, l, i);
        return true;
    default:
        return true;
    }
}

static int replay_all(struct replay *r, struct err *err)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (int l = 0; l < r->schedule->n_lists; l++) {
            const struct instruction_list *list = &r->schedule->lists[l];

            while (r->next[l] < list->n && run(r, l, &list->items[r->next[l]])) {
                r->next[l]++;
                moved = true;
            }
        }
    }
    for (int l = 0; l < r->schedule->n_lists; l++)
        if (r->next[l] < r->schedule->lists[l].n)
            return fail(r->schedule, l, &r->schedule->lists[l].items[r->next[l]], err,
                        "waits for ever");
    return 0;
}

/* Every message is sent after it was made and received before it is used, once. */
static int check_messages(const struct schedule *schedule, const struct schedule_edge *edges,
                          int n_edges, int l, int *count, struct err *err)
{
    const struct instruction_list *list = &schedule->lists[l];
    size_t n = (size_t)schedule->micro_batches * (size_t)list->n_chunks;
    bool *forward = mem_new(n, sizeof(*forward));
    bool *backward = mem_new(n, sizeof(*backward));
    int rc = 0;

    for (int k = 0; k < list->n && rc == 0; k++) {
        const struct instruction *i = &list->items[k];
        int at = i->chunk * schedule->micro_batches + i->micro;
        bool send = i->kind == INSTRUCTION_SEND;

        if (i->kind == INSTRUCTION_F)
            forward[at] = true;
        if (i->kind == INSTRUCTION_B || i->kind == INSTRUCTION_BW)
            backward[at] = true;
        if (!send && i->kind != INSTRUCTION_RECV)
            continue;
        long message = message_index(schedule, edges, n_edges, l, i);
        bool made = i->gradient ? backward[at] : forward[at];

        if (message < 0)
            rc = fail(schedule, l, i, err, "no such edge");
        else if (made != send)
            rc = fail(schedule, l, i, err, send ? "before it is made" : "after its use");
        else if (count[2 * message + send]++)
            rc = fail(schedule, l, i, err, "twice");
    }
    free(forward);
    free(backward);
    return rc;
}

/* The next message in this direction between two stages, from 'at' on; the list's end if none. */
static int find_message(const struct schedule *schedule, enum instruction_kind kind, int stage,
                        int peer, bool gradient, int at)
{
    const struct schedule_stage *here = &schedule->stages[stage];
    const struct instruction_list *list = &schedule->lists[here->list];

    for (; at < list->n; at++) {
        const struct instruction *i = &list->items[at];

        if (i->kind == kind && i->chunk == here->chunk && i->peer == peer &&
            i->gradient == gradient)
            break;
    }
    return at;
}

/* Both ends of a connection name the micro-batches in one order. */
static int check_sequence(const struct schedule *schedule, const struct schedule_edge *edge,
                          bool gradient, struct err *err)
{
    int from = gradient ? edge->to : edge->from, to = gradient ? edge->from : edge->to;
    const struct instruction_list *out = &schedule->lists[schedule->stages[from].list];
    const struct instruction_list *in = &schedule->lists[schedule->stages[to].list];
    int i = -1, j = -1;

    for (;;) {
        i = find_message(schedule, INSTRUCTION_SEND, from, to, gradient, i + 1);
        if (i == out->n)
            return 0;
        j = find_message(schedule, INSTRUCTION_RECV, to, from, gradient, j + 1);
        if (j == in->n || in->items[j].micro != out->items[i].micro)
            return fail(schedule, schedule->stages[from].list, &out->items[i], err,
                        "is received in another order");
    }
}

static bool reads(const struct instruction *i, int chunk, bool gradient)
{
    return i->chunk == chunk &&
           (gradient ? i->kind == INSTRUCTION_B || i->kind == INSTRUCTION_BW
                     : i->kind == INSTRUCTION_F);
}

/* What a stage receives it uses in the same order. */
static int check_use(const struct schedule *schedule, const struct schedule_edge *edge,
                     bool gradient, struct err *err)
{
    int from = gradient ? edge->to : edge->from, to = gradient ? edge->from : edge->to;
    const struct schedule_stage *here = &schedule->stages[to];
    const struct instruction_list *list = &schedule->lists[here->list];
    int i = -1, j = 0;

    for (;;) {
        i = find_message(schedule, INSTRUCTION_RECV, to, from, gradient, i + 1);
        if (i == list->n)
            return 0;
        while (!reads(&list->items[j], here->chunk, gradient))
            j++;
        if (list->items[j++].micro != list->items[i].micro)
            return fail(schedule, here->list, &list->items[i], err, "is used in another order");
    }
}

static int check_counts(const struct schedule *schedule, const struct schedule_edge *edges,
                        int n_edges, const int *count, struct err *err)
{
    for (int e = 0; e < n_edges; e++) {
        for (int g = 0; g <= (int)edges[e].gradient; g++) {
            for (int m = 0; m < schedule->micro_batches; m++) {
                long at = 2 * (((long)e * 2 + g) * schedule->micro_batches + m);

                if (count[at] != 1 || count[at + 1] != 1)
                    return refuse(schedule, err, "micro-batch %d's %s between stages %d and "
                                  "%d is missing", m, g ? "gradient" : "value", edges[e].from,
                                  edges[e].to);
            }
            if (check_sequence(schedule, &edges[e], g, err) ||
                check_use(schedule, &edges[e], g, err))
                return -1;
        }
    }
    return 0;
}

/* Of lists that are complete, so that what there is room for here is in them. */
static int check_exchange(const struct schedule *schedule, const struct schedule_edge *edges,
                          int n_edges, struct err *err)
{
    size_t micro = (size_t)schedule->micro_batches, stages = (size_t)schedule->n_stages;
    size_t messages = (size_t)n_edges * 2 * micro;
    int *count = mem_new(2 * messages, sizeof(*count));
    struct replay r = {
        .schedule = schedule, .edges = edges, .n_edges = n_edges,
        .next = mem_new(stages, sizeof(int)),
        .sent = mem_new(messages, sizeof(bool)),
        .received = mem_new(messages, sizeof(bool)),
        .waiting = mem_new(2 * (size_t)n_edges, sizeof(int)),
        .freed = mem_new(stages * micro, sizeof(bool)),
    };
    int rc = 0;

    for (int l = 0; l < schedule->n_lists && rc == 0; l++)
        rc = check_messages(schedule, edges, n_edges, l, count, err);
    for (int s = 0; s < schedule->n_stages && rc == 0; s++)
        if (schedule_in_flight(schedule, s) > schedule->stages[s].slots)
            rc = refuse(schedule, err, "stage %d: %d micro-batches in flight, %d slots", s,
                        schedule_in_flight(schedule, s), schedule->stages[s].slots);
    if (rc == 0)
        rc = check_counts(schedule, edges, n_edges, count, err);
    if (rc == 0)
        rc = replay_all(&r, err);
    free(r.next);
    free(r.sent);
    free(r.received);
    free(r.waiting);
    free(r.freed);
    free(count);
    return rc;
}

static int check_flushed(const struct schedule *schedule, const struct schedule_edge *edges,
                         int n_edges, struct err *err)
{
    for (int l = 0; l < schedule->n_lists; l++)
        if (check_order(schedule, l, err))
            return -1;
    return check_exchange(schedule, edges, n_edges, err);
}

/* Of the batch that follows only forwards are run ahead: its gradients would be added to those
 * that have not been used yet.
 */
static int check_ahead(const struct schedule *schedule, int l, struct err *err)
{
    const struct instruction_list *list = &schedule->lists[l];
    bool follows = false;       /* has the batch that follows begun? */

    for (int k = 0; k < list->n; k++) {
        const struct instruction *i = &list->items[k];

        if (i->micro < 0 || i->micro >= 2 * schedule->micro_batches)
            return fail(schedule, l, i, err, "no such micro-batch");
        if (i->kind == INSTRUCTION_F && i->micro < schedule->micro_batches && follows)
            return fail(schedule, l, i, err, "behind a forward of the batch that follows");
        follows |= i->kind == INSTRUCTION_F && i->micro >= schedule->micro_batches;
        if (i->micro >= schedule->micro_batches &&
            (i->gradient || (is_compute(i->kind) && i->kind != INSTRUCTION_F)))
            return fail(schedule, l, i, err, "the batch that follows runs forward only");
        if (i->kind == INSTRUCTION_REDUCE ? k != list->n - 2
                                          : i->kind == INSTRUCTION_STEP && k != list->n - 1)
            return fail(schedule, l, i, err, "REDUCE and STEP end each list");
    }
    if (list->n_chunks > 1)
        return refuse(schedule, err, "stage %d: two versions of the weights of several chunks",
                      list->stages[0]);
    return 0;
}

static int forwards_ahead(const struct schedule *schedule, int stage)
{
    const struct instruction_list *list = &schedule->lists[schedule->stages[stage].list];
    int n = 0;

    for (int k = 0; k < list->n; k++)
        n += list->items[k].kind == INSTRUCTION_F &&
             list->items[k].micro >= schedule->micro_batches;
    return n;
}

/* Where STEP waits for all stages, none may need before it what another does behind it: a message,
 * or that it is received.
 */
static int check_edges_ahead(const struct schedule *schedule, const struct schedule_edge *edges,
                             int n_edges, struct err *err)
{
    for (int i = 0; i < n_edges; i++) {
        int from = forwards_ahead(schedule, edges[i].from);
        int to = forwards_ahead(schedule, edges[i].to);
        int most = schedule_sends(schedule, edges[i].from, edges[i].to);

        if (from - to > most)
            return refuse(schedule, err, "stage %d runs %d forwards of the batch that follows, and "
                          "stage %d, which receives from it, %d: more than %d wait to be received",
                          edges[i].from, from, edges[i].to, to, most);
        if (to > from)
            return refuse(schedule, err, "stage %d runs %d forwards of the batch that follows, and "
                          "stage %d, which feeds it, %d", edges[i].to, to, edges[i].from, from);
    }
    return 0;
}

/* Batches that flow into each other are one long batch. */
int schedule_check(const struct schedule *schedule, const struct schedule_edge *edges,
                   int n_edges, struct err *err)
{
    struct schedule *all;
    int rc = 0;

    if (schedule->versions == 1)
        return check_flushed(schedule, edges, n_edges, err);
    for (int l = 0; l < schedule->n_lists && rc == 0; l++)
        rc = check_ahead(schedule, l, err);
    if (rc || check_edges_ahead(schedule, edges, n_edges, err))
        return -1;
    all = schedule_unroll(schedule, SCHEDULE_STEADY, false);
    rc = check_flushed(all, edges, n_edges, err);
    schedule_free(all);
    return rc;
}
