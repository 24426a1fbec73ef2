/* SPDX-License-Identifier: MIT */
#include "comm/where.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define TRIES 1000      /* a writer that is stopped in the middle stays there */

/* The record --------------------------------------------------------------------------- */

static void open_record(struct where *where)
{
    atomic_fetch_add_explicit(&where->turn, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void close_record(struct where *where)
{
    atomic_fetch_add_explicit(&where->turn, 1, memory_order_release);
}

static void set_operation(struct where *where, enum where_operation operation, int peer)
{
    atomic_store_explicit(&where->operation, (int)operation, memory_order_relaxed);
    atomic_store_explicit(&where->peer, peer, memory_order_relaxed);
    atomic_store_explicit(&where->since, clock_now(), memory_order_relaxed);
}

void where_at(struct where *where, const char *what, int stage, int64_t step, int micro)
{
    open_record(where);
    atomic_store_explicit(&where->what, what, memory_order_relaxed);
    atomic_store_explicit(&where->step, step, memory_order_relaxed);
    atomic_store_explicit(&where->stage, stage, memory_order_relaxed);
    atomic_store_explicit(&where->micro, micro, memory_order_relaxed);
    set_operation(where, WHERE_COMPUTES, -1);
    close_record(where);
}

void where_does(struct where *where, enum where_operation operation, int peer)
{
    open_record(where);
    set_operation(where, operation, peer);
    close_record(where);
}

static void copy_record(struct where *where, struct whereabouts *now)
{
    const char *what = atomic_load_explicit(&where->what, memory_order_relaxed);

    *now = (struct whereabouts){
        .step = atomic_load_explicit(&where->step, memory_order_relaxed),
        .stage = atomic_load_explicit(&where->stage, memory_order_relaxed),
        .micro = atomic_load_explicit(&where->micro, memory_order_relaxed),
        .operation = atomic_load_explicit(&where->operation, memory_order_relaxed),
        .peer = atomic_load_explicit(&where->peer, memory_order_relaxed),
        .seconds = clock_now() - atomic_load_explicit(&where->since, memory_order_relaxed),
    };
    snprintf(now->what, sizeof(now->what), "%s", what ? what : "");
}

void where_read(struct where *where, struct whereabouts *now)
{
    unsigned before, after;
    int tries = 0;

    do {
        before = atomic_load_explicit(&where->turn, memory_order_acquire);
        copy_record(where, now);
        atomic_thread_fence(memory_order_acquire);
        after = atomic_load_explicit(&where->turn, memory_order_relaxed);
    } while ((before != after || before % 2) && ++tries < TRIES);
}

/* Words -------------------------------------------------------------------------------- */

const char *where_operation_name(int operation)
{
    static const char *const names[] = { "compute", "send", "receive", "all-reduce",
                                         "reduce-scatter", "all-gather", "meeting" };

    return operation >= 0 && operation <= WHERE_MEETS ? names[operation] : "unknown";
}

__attribute__((format(printf, 4, 5)))
static void add(char *text, size_t size, size_t *at, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text + *at, size - *at, format, args);
    va_end(args);
    if (n > 0)
        *at = *at + (size_t)n < size ? *at + (size_t)n : size - 1;
}

void where_text(const struct whereabouts *at, char *text, size_t size)
{
    static const char *const does[] = { "computes", "sends", "receives", "is in an all-reduce",
                                        "is in a reduce-scatter", "is in an all-gather",
                                        "waits for all ranks" };
    bool known = at->operation >= 0 && at->operation <= WHERE_MEETS;
    size_t n = 0;

    text[0] = '\0';
    if (at->step > 0)
        add(text, size, &n, "step %lld, ", (long long)at->step);
    if (at->stage >= 0)
        add(text, size, &n, "stage %d, ", (int)at->stage);
    add(text, size, &n, "%.16s", at->what[0] ? at->what : "start");
    if (at->micro >= 0)
        add(text, size, &n, " of micro-batch %d", (int)at->micro);
    add(text, size, &n, ": %s", known ? does[at->operation] : "unknown");
    if (at->peer >= 0)
        add(text, size, &n, " %s rank %d", at->operation == WHERE_SENDS ? "to" : "from",
            (int)at->peer);
}

/* Groups ------------------------------------------------------------------------------- */

static int compare(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_places(const struct sighting *a, const struct sighting *b)
{
    int order = compare(b->silent != 0, a->silent != 0);

    order = order ? order : compare(a->at.operation, b->at.operation);
    order = order ? order : compare(a->at.stage, b->at.stage);
    order = order ? order : compare(a->at.step, b->at.step);
    order = order ? order : strncmp(a->at.what, b->at.what, sizeof(a->at.what));
    order = order ? order : compare(a->at.micro, b->at.micro);
    return order ? order : compare(a->at.peer, b->at.peer);
}

/* Within an array of all of them the address is the rank. */
static int by_place(const void *a, const void *b)
{
    const struct sighting *const *x = a, *const *y = b;
    int order = compare_places(*x, *y);

    return order ? order : *x < *y ? -1 : *x > *y;
}

/* Of whom nothing was ever heard may not have been able to connect. */
static int suspicion(const struct sighting *s)
{
    if (s->silent != 0)
        return s->silent > 0 ? 3 : 1;
    return s->at.operation == WHERE_COMPUTES ? 2 : 0;
}

static int by_interest(const void *a, const void *b)
{
    const struct where_group *x = a, *y = b;
    int order = compare(suspicion(y->one), suspicion(x->one));

    order = order ? order : compare(x->n, y->n);
    return order ? order : compare(x->ranks[0], y->ranks[0]);
}

static void join(struct where_group *group, const struct sighting *s, int rank)
{
    *(int *)mem_push((void **)&group->ranks, &group->n, sizeof(int)) = rank;
    if (!group->one || s->at.seconds > group->one->at.seconds)
        group->one = s;
}

struct where_group *where_groups(const struct sighting *ranks, int size, int *n)
{
    const struct sighting **sorted = mem_new((size_t)size + 1, sizeof(*sorted));
    struct where_group *groups = NULL;
    int there = 0;

    *n = 0;
    for (int r = 0; r < size; r++)
        if (!ranks[r].gone)
            sorted[there++] = &ranks[r];
    if (there)
        qsort(sorted, (size_t)there, sizeof(*sorted), by_place);
    for (int i = 0; i < there; i++) {
        if (i == 0 || compare_places(sorted[i - 1], sorted[i]) != 0)
            *(struct where_group *)mem_push((void **)&groups, n, sizeof(*groups)) =
                (struct where_group){ .n = 0 };
        join(&groups[*n - 1], sorted[i], (int)(sorted[i] - ranks));
    }
    if (*n)
        qsort(groups, (size_t)*n, sizeof(*groups), by_interest);
    free(sorted);
    return groups;
}

void where_groups_free(struct where_group *groups, int n)
{
    for (int i = 0; i < n; i++)
        free(groups[i].ranks);
    free(groups);
}

void where_ranks_text(const struct where_group *group, char *text, size_t size)
{
    size_t at = 0;

    text[0] = '\0';
    for (int i = 0, end; i < group->n; i = end) {
        for (end = i + 1; end < group->n && group->ranks[end] == group->ranks[end - 1] + 1;)
            end++;
        add(text, size, &at, "%s%d", i ? ", " : "", group->ranks[i]);
        if (end > i + 1)
            add(text, size, &at, "%s%d", end > i + 2 ? "-" : ", ", group->ranks[end - 1]);
    }
}

int where_stuck(const struct sighting *ranks, int size)
{
    int n, found = -1;
    struct where_group *groups = where_groups(ranks, size, &n);

    if (n > 0 && suspicion(groups[0].one) > 0)
        found = (int)(groups[0].one - ranks);
    where_groups_free(groups, n);
    return found;
}

static int longest(const struct sighting *ranks, int size, int peer, int least_operation)
{
    int found = -1;

    for (int r = 0; r < size; r++)
        if (!ranks[r].gone && ranks[r].silent == 0 && ranks[r].at.peer == peer &&
            ranks[r].at.operation >= least_operation &&
            (found < 0 || ranks[r].at.seconds > ranks[found].at.seconds))
            found = r;
    return found;
}

int where_waiting(const struct sighting *ranks, int size, int rank)
{
    int found = longest(ranks, size, rank, WHERE_SENDS);

    return found >= 0 ? found : longest(ranks, size, -1, WHERE_SUMS);
}
