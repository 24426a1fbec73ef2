/* SPDX-License-Identifier: MIT */
/* Small problems: every cut, replica count, micro-batch size and schedule. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

struct walk {
    struct search *search;
    struct candidate c;     /* being built; arrays of the largest size */
    long count, most;
    bool add;               /* to what was found, else count only */
};

static void reach(struct walk *w)
{
    struct search *s = w->search;

    w->count++;
    if (!w->add)
        return;
    set_schedule(s, &w->c, w->c.schedule);
    w->c.closed = partition_closed(s, &w->c);
    if (isfinite(w->c.closed))
        *(struct candidate **)mem_push((void **)&s->found, &s->n_found, sizeof(*s->found)) =
            candidate_copy(&w->c);
}

static void walk_stages(struct walk *w, int first, int left)
{
    const struct plan_request *r = w->search->request;
    const struct table *table = w->search->table;
    int s = w->c.n_stages;

    if (first == table->n) {
        if (!r->stages || r->stages == s)
            reach(w);
        return;
    }
    if (r->stages && s == r->stages)
        return;
    w->c.n_stages = s + 1;
    for (int end = first + 1; end <= table->n && w->count <= w->most; end++)
        for (int k = 1; k <= left && k <= w->c.micro_batch; k++) {
            if ((r->n_replicas && r->replicas[s] != k) ||
                !shares_allowed(r, w->c.micro_batch, k))
                continue;
            w->c.cuts[s] = table->cuts[first];
            w->c.cuts[s + 1] = table->cuts[end];
            w->c.replicas[s] = k;
            walk_stages(w, end, left - k);
        }
    w->c.n_stages = s;
}

static void walk_all(struct walk *w)
{
    const struct search *s = w->search;

    w->count = 0;
    for (int i = 0; i < s->n_splits; i++)
        for (int k = 0; k < SCHEDULE_KINDS; k++) {
            if (!schedule_allowed(w->search->request, (enum schedule_kind)k))
                continue;
            w->c.n_stages = 0;
            w->c.pipelines = s->splits[i].pipelines;
            w->c.micro_batch = s->splits[i].micro_batch;
            w->c.micro_batches = s->splits[i].micro_batches;
            w->c.schedule = (enum schedule_kind)k;
            walk_stages(w, 0, search_devices(s, w->c.pipelines));
        }
}

bool partition_small(struct search *search, long most)
{
    size_t stages = (size_t)search->table->n + 1;
    struct walk w = { .search = search, .most = most };
    bool small;

    /* Micro-batches cost simulation time, too. */
    if (search->request->global_batch > most)
        return false;
    w.c.cuts = mem_new(stages, sizeof(int));
    w.c.replicas = mem_new(stages, sizeof(int));
    walk_all(&w);
    small = w.count <= most;
    if (small) {
        w.add = true;
        walk_all(&w);
    }
    free(w.c.cuts);
    free(w.c.replicas);
    return small;
}
