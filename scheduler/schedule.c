/* SPDX-License-Identifier: MIT */
#include "scheduler/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* One stage's list in the making. */
struct builder {
    struct instruction_list *list;
    int stage;
    const struct schedule_edge *edges;
    int n_edges;
    bool sends_gradient;
};

static void add(struct builder *b, enum instruction_kind kind, int micro, int peer,
                bool gradient)
{
    struct instruction *i = mem_push((void **)&b->list->items, &b->list->n, sizeof(*i));

    i->kind = kind;
    i->micro = micro;
    i->peer = peer;
    i->gradient = gradient;
}

static void add_recvs(struct builder *b, int micro, bool gradient)
{
    for (int i = 0; i < b->n_edges; i++) {
        const struct schedule_edge *e = &b->edges[i];

        if (gradient ? e->gradient && e->from == b->stage : e->to == b->stage)
            add(b, INSTRUCTION_RECV, micro, gradient ? e->to : e->from, gradient);
    }
}

static void add_sends(struct builder *b, int micro, bool gradient)
{
    for (int i = 0; i < b->n_edges; i++) {
        const struct schedule_edge *e = &b->edges[i];

        if (gradient ? e->gradient && e->to == b->stage : e->from == b->stage)
            add(b, INSTRUCTION_SEND, micro, gradient ? e->from : e->to, gradient);
    }
}

static void add_forward(struct builder *b, int micro)
{
    add(b, INSTRUCTION_F, micro, 0, false);
    add_sends(b, micro, false);
}

static void add_backward(struct builder *b, int micro)
{
    if (!b->sends_gradient) {
        add(b, INSTRUCTION_BW, micro, 0, false);
        return;
    }
    add(b, INSTRUCTION_B, micro, 0, false);
    add_sends(b, micro, true);
    add(b, INSTRUCTION_W, micro, 0, false);
}

static void build_gpipe(struct builder *b, int n_micro)
{
    add_recvs(b, 0, false);
    for (int m = 0; m < n_micro; m++) {
        if (m + 1 < n_micro)
            add_recvs(b, m + 1, false);
        add_forward(b, m);
    }
    add_recvs(b, n_micro - 1, true);
    for (int m = n_micro - 1; m >= 0; m--) {
        if (m > 0)
            add_recvs(b, m - 1, true);
        add_backward(b, m);
    }
}

/* Warm-up of 'ahead' forwards, then F and B in turn. What the next computation receives is
 * posted before this one, unless that one needs the slot that this one frees.
 */
static void build_1f1b(struct builder *b, int n_stages, int n_micro)
{
    int ahead = n_stages - 1 - b->stage < n_micro ? n_stages - 1 - b->stage : n_micro;
    int next = 0;   /* forward not yet run */
    int posted = 0; /* forwards whose RECVs are posted */
    int asked = 0;  /* the same for gradients */

    for (int done = 0; done < n_micro; done++) {
        while (next < n_micro && next <= done + ahead) {
            for (; posted < n_micro && posted < done + b->list->slots && posted <= next + 1;
                 posted++)
                add_recvs(b, posted, false);
            if (next == done + ahead)
                add_recvs(b, asked++, true);
            add_forward(b, next++);
        }
        while (asked < n_micro && asked <= done + (next == n_micro))
            add_recvs(b, asked++, true);
        add_backward(b, done);
    }
}

static bool sends_gradient(const struct schedule_edge *edges, int n_edges, int stage)
{
    for (int i = 0; i < n_edges; i++)
        if (edges[i].gradient && edges[i].to == stage)
            return true;
    return false;
}

static int check_edges(const struct schedule_edge *edges, int n_edges, int n_stages,
                       struct err *err)
{
    for (int i = 0; i < n_edges; i++) {
        const struct schedule_edge *e = &edges[i];

        if (e->from < 0 || e->from >= e->to || e->to >= n_stages)
            return err_set(err, "schedule: an edge from stage %d to stage %d of %d", e->from,
                           e->to, n_stages);
        if (i && (edges[i - 1].from > e->from ||
                  (edges[i - 1].from == e->from && edges[i - 1].to >= e->to)))
            return err_set(err, "schedule: edges are not sorted, or one is there twice");
    }
    return 0;
}

struct schedule *schedule_new(const char *name, int n_stages, int micro_batches,
                              const struct schedule_edge *edges, int n_edges,
                              struct err *err)
{
    bool gpipe = strcmp(name, "gpipe") == 0;
    struct schedule *schedule;

    if (!gpipe && strcmp(name, "1f1b") != 0) {
        err_set(err, "schedule \"%s\": expected gpipe or 1f1b", name);
        return NULL;
    }
    if (n_stages < 1 || micro_batches < 1) {
        err_set(err, "schedule \"%s\": %d stages and %d micro-batches", name, n_stages,
                micro_batches);
        return NULL;
    }
    if (check_edges(edges, n_edges, n_stages, err))
        return NULL;
    schedule = mem_new(1, sizeof(*schedule));
    schedule->name = mem_strdup(name);
    schedule->n_stages = n_stages;
    schedule->micro_batches = micro_batches;
    schedule->stages = mem_new((size_t)n_stages, sizeof(*schedule->stages));
    for (int s = 0; s < n_stages; s++) {
        struct builder b = { &schedule->stages[s], s, edges, n_edges,
                             sends_gradient(edges, n_edges, s) };
        int depth = n_stages - s;

        b.list->slots = gpipe || depth > micro_batches ? micro_batches : depth;
        if (gpipe)
            build_gpipe(&b, micro_batches);
        else
            build_1f1b(&b, n_stages, micro_batches);
        add(&b, INSTRUCTION_REDUCE, 0, 0, false);
        add(&b, INSTRUCTION_STEP, 0, 0, false);
    }
    return schedule;
}

void schedule_free(struct schedule *schedule)
{
    if (!schedule)
        return;
    for (int s = 0; s < schedule->n_stages; s++)
        free(schedule->stages[s].items);
    free(schedule->stages);
    free(schedule->name);
    free(schedule);
}

/* Frees the slot of its micro-batch: no later instruction of that micro-batch. */
static bool ends_micro(const struct instruction *i)
{
    return i->kind == INSTRUCTION_W || i->kind == INSTRUCTION_BW;
}

static bool starts_micro(const struct instruction *i)
{
    return i->kind == INSTRUCTION_F || (i->kind == INSTRUCTION_RECV && !i->gradient);
}

int schedule_in_flight(const struct schedule *schedule, int s)
{
    const struct instruction_list *list = &schedule->stages[s];
    bool *live = mem_new((size_t)schedule->micro_batches, sizeof(*live));
    int n = 0, most = 0;

    for (int k = 0; k < list->n; k++) {
        const struct instruction *i = &list->items[k];

        if (starts_micro(i) && !live[i->micro]) {
            live[i->micro] = true;
            most = ++n > most ? n : most;
        } else if (ends_micro(i) && live[i->micro]) {
            live[i->micro] = false;
            n--;
        }
    }
    free(live);
    return most;
}

bool schedule_merged(const struct schedule *schedule, int s)
{
    const struct instruction_list *list = &schedule->stages[s];

    for (int k = 0; k < list->n; k++)
        if (list->items[k].kind == INSTRUCTION_BW)
            return true;
    return false;
}
