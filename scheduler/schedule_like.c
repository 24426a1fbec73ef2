/* SPDX-License-Identifier: MIT */
/* What a list was made of: the stages that exchange messages, and the schedule that makes it. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/schedule.h"

static int by_ends(const void *a, const void *b)
{
    const struct schedule_edge *x = a, *y = b;

    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

/* Of edges that are sorted, those of the same stages as one. */
static int join_alike(struct schedule_edge *edges, int n)
{
    int kept = 0;

    for (int i = 0; i < n; i++) {
        if (kept && by_ends(&edges[kept - 1], &edges[i]) == 0)
            edges[kept - 1].gradient |= edges[i].gradient;
        else
            edges[kept++] = edges[i];
    }
    return kept;
}

struct schedule_edge *schedule_edges(const struct schedule *schedule, int *n)
{
    struct schedule_edge *edges = NULL;

    *n = 0;
    for (int s = 0; s < schedule->n_stages; s++) {
        const struct schedule_stage *own = &schedule->stages[s];
        const struct instruction_list *list = &schedule->lists[own->list];

        for (int k = 0; k < list->n; k++) {
            const struct instruction *i = &list->items[k];
            int from = i->gradient ? i->peer : s, to = i->gradient ? s : i->peer;

            if (i->kind == INSTRUCTION_SEND && i->chunk == own->chunk && from < to)
                *(struct schedule_edge *)mem_push((void **)&edges, n, sizeof(*edges)) =
                    (struct schedule_edge){ from, to, i->gradient };
        }
    }
    if (*n)
        qsort(edges, (size_t)*n, sizeof(*edges), by_ends);
    *n = join_alike(edges, *n);
    return edges;
}

static bool makes(enum schedule_kind kind, const struct schedule_options *options,
                  const struct schedule *list, const struct schedule_edge *edges, int n_edges)
{
    struct schedule *made = schedule_new(schedule_name(kind), options, list->n_stages,
                                         list->micro_batches, edges, n_edges, NULL);
    bool same = made && schedule_same(made, list);

    schedule_free(made);
    return same;
}

int schedule_like(const struct schedule *list, struct schedule_options *options)
{
    int n_stages = list->n_stages, more = list->stages[0].slots - n_stages, n;
    int named = schedule_find(list->name), like = -1;
    struct schedule_edge *edges = schedule_edges(list, &n);

    *options = (struct schedule_options){ .chunks = n_stages / list->n_lists };
    for (int k = named < 0 ? 0 : -1; k < SCHEDULE_KINDS && like < 0; k++) {
        enum schedule_kind kind = (enum schedule_kind)(k < 0 ? named : k);

        options->memory = kind == SCHEDULE_ZB ? 1 + (more > 0 ? (double)more / n_stages : 0) : 0;
        if (makes(kind, options, list, edges, n))
            like = (int)kind;
    }
    free(edges);
    return like;
}
