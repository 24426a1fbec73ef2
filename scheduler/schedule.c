/* SPDX-License-Identifier: MIT */
#include "scheduler/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/schedule_private.h"

static const char *const kind_names[SCHEDULE_KINDS] = {
    [SCHEDULE_1F1B] = "1f1b", [SCHEDULE_GPIPE] = "gpipe", [SCHEDULE_ZB_H1] = "zb-h1",
    [SCHEDULE_ZB] = "zb", [SCHEDULE_INTERLEAVED] = "interleaved", [SCHEDULE_ZB_V] = "zb-v",
    [SCHEDULE_2BW] = "2bw",
};

const char *schedule_name(enum schedule_kind kind)
{
    return kind_names[kind];
}

int schedule_find(const char *name)
{
    for (int k = 0; k < SCHEDULE_KINDS; k++)
        if (strcmp(kind_names[k], name) == 0)
            return k;
    return -1;
}

int schedule_versions(enum schedule_kind kind)
{
    return kind == SCHEDULE_2BW ? SCHEDULE_VERSIONS : 1;
}

static void add(struct builder *b, enum instruction_kind kind, int micro, int peer,
                bool gradient)
{
    struct instruction *i = mem_push((void **)&b->list->items, &b->list->n, sizeof(*i));

    i->kind = kind;
    i->micro = micro;
    i->chunk = b->chunk;
    i->peer = peer;
    i->gradient = gradient;
}

void builder_recvs(struct builder *b, int micro, bool gradient)
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

void builder_forward(struct builder *b, int micro)
{
    add(b, INSTRUCTION_F, micro, 0, false);
    add_sends(b, micro, false);
}

void builder_dgrad(struct builder *b, int micro)
{
    if (!b->sends_gradient)
        return;
    add(b, INSTRUCTION_B, micro, 0, false);
    add_sends(b, micro, true);
}

/* Where nobody waits for its gradient a stage runs both at once. */
void builder_wgrad(struct builder *b, int micro)
{
    add(b, b->sends_gradient ? INSTRUCTION_W : INSTRUCTION_BW, micro, 0, false);
}

static void build_gpipe(struct builder *b, int n_micro)
{
    builder_recvs(b, 0, false);
    for (int m = 0; m < n_micro; m++) {
        if (m + 1 < n_micro)
            builder_recvs(b, m + 1, false);
        builder_forward(b, m);
    }
    builder_recvs(b, n_micro - 1, true);
    for (int m = n_micro - 1; m >= 0; m--) {
        if (m > 0)
            builder_recvs(b, m - 1, true);
        builder_dgrad(b, m);
        builder_wgrad(b, m);
    }
}

/* Slots beyond those of 1f1b's first stage, where there are micro-batches to use them. */
static int more_slots(enum schedule_kind kind, double memory, int n_stages,
                      int64_t micro_batches)
{
    double times = memory > 0 ? memory : SCHEDULE_MEMORY;
    double more = dmin(n_stages - 1, floor((times - 1) * n_stages + 1e-9));

    if (kind != SCHEDULE_ZB)
        return 0;
    return (int)dmax(0, dmin(more, (double)(micro_batches - n_stages)));
}

/* Forwards that stage 's' is ahead of 1f1b: no further than its gradients take to come back. */
static int further(enum schedule_kind kind, double memory, int n_stages, int64_t micro_batches,
                   int s)
{
    int more = more_slots(kind, memory, n_stages, micro_batches), useful = n_stages - 1 - s;

    return more < useful ? more : useful;
}

int schedule_slots(enum schedule_kind kind, double memory, int n_stages, int64_t micro_batches,
                   int s)
{
    int64_t slots = kind == SCHEDULE_GPIPE ? micro_batches
                    : kind == SCHEDULE_1F1B || kind == SCHEDULE_2BW
                          ? n_stages - s
                          : n_stages + more_slots(kind, memory, n_stages, micro_batches);

    return (int)(slots < micro_batches ? slots : micro_batches);
}

int schedule_delay(enum schedule_kind kind, double memory, int n_stages, int64_t micro_batches,
                   int s)
{
    int64_t delay = s + more_slots(kind, memory, n_stages, micro_batches) -
                    further(kind, memory, n_stages, micro_batches, s);

    if (kind == SCHEDULE_GPIPE || kind == SCHEDULE_1F1B || kind == SCHEDULE_2BW)
        return 0;
    return (int)(delay < micro_batches ? delay : micro_batches - 1);
}

/* Warm-up of 'ahead' forwards, then F and B in turn, and W 'delay' micro-batches behind its B.
 * What the next computation receives is posted before this one, unless that one needs the slot
 * that this one frees.
 */
static void build_alternating(struct builder *b, int ahead, int delay, int n_micro)
{
    int forward = 0;    /* not yet run */
    int posted = 0;     /* forwards whose RECVs are posted */
    int asked = 0;      /* the same for gradients */
    int complete = 0;

    for (int done = 0; done < n_micro; done++) {
        while (forward < n_micro && forward <= done + ahead) {
            for (; posted < n_micro && posted < complete + b->slots &&
                   posted <= forward + 1; posted++)
                builder_recvs(b, posted, false);
            if (forward == done + ahead)
                builder_recvs(b, asked++, true);
            builder_forward(b, forward++);
        }
        while (asked < n_micro && asked <= done + (forward == n_micro))
            builder_recvs(b, asked++, true);
        builder_dgrad(b, done);
        if (done >= delay)
            builder_wgrad(b, complete++);
    }
    while (complete < n_micro)
        builder_wgrad(b, complete++);
}

/* As between the warm-up and the end of 1f1b, from one batch into the next. */
static void build_unflushed(struct builder *b, int ahead, int n_micro)
{
    for (int m = 0; m < n_micro; m++) {
        builder_recvs(b, m + ahead, false);
        builder_recvs(b, m, true);
        builder_forward(b, m + ahead);
        builder_dgrad(b, m);
        builder_wgrad(b, m);
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

/* The list of a stage that has one of its own. */
static void build_stage(const struct schedule *schedule, enum schedule_kind kind, double memory,
                        struct builder *b)
{
    int n_stages = schedule->n_stages, n_micro = schedule->micro_batches, s = b->stage;
    int ahead = n_stages - 1 - s + further(kind, memory, n_stages, n_micro, s);
    int delay = 0;

    b->slots = schedule_slots(kind, memory, n_stages, n_micro, s);
    if (b->sends_gradient)
        delay = schedule_delay(kind, memory, n_stages, n_micro, s);
    if (kind == SCHEDULE_GPIPE)
        build_gpipe(b, n_micro);
    else if (kind == SCHEDULE_2BW)
        build_unflushed(b, b->slots - 1, n_micro);
    else
        build_alternating(b, ahead < n_micro ? ahead : n_micro, delay, n_micro);
}

static void builder_init(struct builder *b, struct instruction_list *list, int chunk,
                         const struct schedule_edge *edges, int n_edges)
{
    *b = (struct builder){ .list = list, .stage = list->stages[chunk], .chunk = chunk };
    for (int i = 0; i < n_edges; i++)
        if (edges[i].from == b->stage || edges[i].to == b->stage)
            *(struct schedule_edge *)mem_push((void **)&b->edges, &b->n_edges,
                                              sizeof(*b->edges)) = edges[i];
    b->sends_gradient = sends_gradient(b->edges, b->n_edges, b->stage);
}

static void build_list(struct schedule *schedule, enum schedule_kind kind, double memory, int l,
                       const struct schedule_edge *edges, int n_edges)
{
    struct instruction_list *list = &schedule->lists[l];
    struct builder *chunks = mem_new((size_t)list->n_chunks, sizeof(*chunks));

    for (int c = 0; c < list->n_chunks; c++)
        builder_init(&chunks[c], list, c, edges, n_edges);
    if (list->n_chunks > 1)
        schedule_build_chunks(schedule, kind, l, chunks);
    else
        build_stage(schedule, kind, memory, chunks);
    for (int c = 0; c < list->n_chunks; c++)
        schedule->stages[list->stages[c]].slots = chunks[c].slots;
    add(chunks, INSTRUCTION_REDUCE, 0, 0, false);
    add(chunks, INSTRUCTION_STEP, 0, 0, false);
    for (int c = 0; c < list->n_chunks; c++)
        free(chunks[c].edges);
    free(chunks);
}

static int check_shape(enum schedule_kind kind, int chunks, int n_stages, int micro_batches,
                       struct err *err)
{
    const char *name = schedule_name(kind);

    if (n_stages < 1 || micro_batches < 1)
        return err_set(err, "schedule \"%s\": %d stages and %d micro-batches", name, n_stages,
                       micro_batches);
    if (kind == SCHEDULE_INTERLEAVED && (chunks < 2 || chunks > SCHEDULE_MAX_CHUNKS)) {
        err_set(err, "schedule \"%s\": %d chunks for each device: expected 2 to %d", name, chunks,
                SCHEDULE_MAX_CHUNKS);
        return err_hint(err, "tasuki plan --schedule %s makes a plan with as many", name);
    }
    if (n_stages % chunks)
        return err_set(err, "schedule \"%s\": %d stages are not %d for each device", name,
                       n_stages, chunks);
    return schedule_suits(kind, n_stages / chunks, micro_batches, err);
}

void schedule_assign(struct schedule *schedule, int s, int l)
{
    struct instruction_list *list = &schedule->lists[l];

    schedule->stages[s].list = l;
    schedule->stages[s].chunk = list->n_chunks;
    *(int *)mem_push((void **)&list->stages, &list->n_chunks, sizeof(int)) = s;
}

struct schedule *schedule_new(const char *name, const struct schedule_options *options,
                              int n_stages, int micro_batches,
                              const struct schedule_edge *edges, int n_edges,
                              struct err *err)
{
    int kind = schedule_find(name);
    int chunks = schedule_chunks((enum schedule_kind)kind, options ? options->chunks : 0);
    struct schedule *schedule;

    if (kind < 0) {
        err_set(err, "schedule \"%s\": expected " SCHEDULE_NAMES, name);
        return NULL;
    }
    if (check_shape((enum schedule_kind)kind, chunks, n_stages, micro_batches, err) ||
        check_edges(edges, n_edges, n_stages, err))
        return NULL;
    schedule = mem_new(1, sizeof(*schedule));
    schedule->name = mem_strdup(name);
    schedule->n_stages = n_stages;
    schedule->micro_batches = micro_batches;
    schedule->versions = schedule_versions((enum schedule_kind)kind);
    schedule->n_lists = n_stages / chunks;
    schedule->stages = mem_new((size_t)n_stages, sizeof(*schedule->stages));
    schedule->lists = mem_new((size_t)schedule->n_lists, sizeof(*schedule->lists));
    for (int s = 0; s < n_stages; s++)
        schedule_assign(schedule, s,
                        schedule_list((enum schedule_kind)kind, schedule->n_lists, s));
    for (int l = 0; l < schedule->n_lists; l++)
        build_list(schedule, (enum schedule_kind)kind, options ? options->memory : 0, l, edges,
                   n_edges);
    return schedule;
}

void schedule_free(struct schedule *schedule)
{
    if (!schedule)
        return;
    for (int l = 0; l < schedule->n_lists; l++) {
        free(schedule->lists[l].items);
        free(schedule->lists[l].stages);
    }
    free(schedule->lists);
    free(schedule->stages);
    free(schedule->name);
    free(schedule->source);
    free(schedule);
}

static void *copy_array(const void *array, size_t n, size_t size)
{
    void *copy = mem_new(n, size);

    if (n)
        memcpy(copy, array, n * size);
    return copy;
}

struct schedule *schedule_copy(const struct schedule *schedule)
{
    struct schedule *copy = mem_new(1, sizeof(*copy));

    *copy = *schedule;
    copy->name = mem_strdup(schedule->name);
    copy->source = schedule->source ? mem_strdup(schedule->source) : NULL;
    copy->stages = copy_array(schedule->stages, (size_t)copy->n_stages, sizeof(*copy->stages));
    copy->lists = copy_array(schedule->lists, (size_t)copy->n_lists, sizeof(*copy->lists));
    for (int l = 0; l < copy->n_lists; l++) {
        struct instruction_list *list = &copy->lists[l];

        list->items = copy_array(list->items, (size_t)list->n, sizeof(*list->items));
        list->stages = copy_array(list->stages, (size_t)list->n_chunks, sizeof(int));
    }
    return copy;
}

static bool same_instruction(const struct instruction *a, const struct instruction *b)
{
    return a->kind == b->kind && a->micro == b->micro && a->chunk == b->chunk &&
           a->peer == b->peer && a->gradient == b->gradient;
}

bool schedule_same(const struct schedule *a, const struct schedule *b)
{
    if (a->n_stages != b->n_stages || a->micro_batches != b->micro_batches ||
        a->versions != b->versions)
        return false;
    for (int s = 0; s < a->n_stages; s++)
        if (a->stages[s].list != b->stages[s].list || a->stages[s].slots != b->stages[s].slots)
            return false;
    for (int l = 0; l < a->n_lists; l++) {
        const struct instruction_list *x = &a->lists[l], *y = &b->lists[l];

        if (x->n != y->n)
            return false;
        for (int i = 0; i < x->n; i++)
            if (!same_instruction(&x->items[i], &y->items[i]))
                return false;
    }
    return true;
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

/* Of a list that runs empty at its end. */
static int in_flight(const struct schedule *schedule, int s)
{
    const struct instruction_list *list = &schedule->lists[schedule->stages[s].list];
    bool *live = mem_new((size_t)schedule->micro_batches, sizeof(*live));
    int n = 0, most = 0;

    for (int k = 0; k < list->n; k++) {
        const struct instruction *i = &list->items[k];

        if (i->chunk != schedule->stages[s].chunk)
            continue;
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

/* The most of a stage, in one batch after the other where these are not flushed. */
static int over_batches(const struct schedule *schedule, int s,
                        int (*most_of)(const struct schedule *schedule, int s))
{
    struct schedule *all;
    int most;

    if (schedule->versions < 2)
        return most_of(schedule, s);
    all = schedule_unroll(schedule, SCHEDULE_STEADY, false);
    most = most_of(all, s);
    schedule_free(all);
    return most;
}

int schedule_in_flight(const struct schedule *schedule, int s)
{
    return over_batches(schedule, s, in_flight);
}

/* Messages are used in the order in which they are asked for. */
static int ahead_of(const struct schedule *schedule, int s, int peer, bool gradient)
{
    const struct instruction_list *list = &schedule->lists[schedule->stages[s].list];
    int asked = 0, most = 0;

    for (int k = 0; k < list->n; k++) {
        const struct instruction *i = &list->items[k];
        bool uses = gradient ? i->kind == INSTRUCTION_B || i->kind == INSTRUCTION_BW
                             : i->kind == INSTRUCTION_F;

        if (i->chunk != schedule->stages[s].chunk)
            continue;
        if (i->kind == INSTRUCTION_RECV && i->peer == peer && i->gradient == gradient)
            most = ++asked > most ? asked : most;
        else if (uses)
            asked--;
    }
    return most;
}

static int ahead_of_any(const struct schedule *schedule, int s)
{
    int most = 0;

    for (int peer = 0; peer < schedule->n_stages; peer++) {
        int ahead = ahead_of(schedule, s, peer, peer > s);

        most = ahead > most ? ahead : most;
    }
    return most;
}

int schedule_ahead(const struct schedule *schedule, int s)
{
    return over_batches(schedule, s, ahead_of_any);
}

int schedule_sends(const struct schedule *schedule, int from, int to)
{
    int most = SCHEDULE_SENDS * abs(to - from);
    int slots = schedule->stages[from < to ? from : to].slots;

    return slots < most ? slots : most;
}

enum backward_form schedule_backward(const struct schedule *schedule, int s)
{
    const struct instruction_list *list = &schedule->lists[schedule->stages[s].list];
    const struct instruction *before = NULL;    /* the last computation */

    for (int k = 0; k < list->n; k++) {
        const struct instruction *i = &list->items[k];

        if (i->chunk != schedule->stages[s].chunk)
            continue;
        if (i->kind == INSTRUCTION_BW)
            return BACKWARD_MERGED;
        if (i->kind == INSTRUCTION_W &&
            (!before || before->kind != INSTRUCTION_B || before->micro != i->micro))
            return BACKWARD_DELAYED;
        if (i->kind != INSTRUCTION_SEND && i->kind != INSTRUCTION_RECV)
            before = i;
    }
    return BACKWARD_SPLIT;
}
