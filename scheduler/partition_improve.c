/* SPDX-License-Identifier: MIT */
/* Local moves from the fastest candidate. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

#define MAX_MOVES 32
#define MAX_STAGES_MOVED 4

/* Stages from the slowest to the fastest, by the work of a micro-batch. */
static void sort_stages(const struct search *s, const struct candidate *c, int *order)
{
    struct plan *plan = place(s->cost, s->cluster, s->request, c);

    for (int k = 0; k < plan->n_stages; k++) {
        const struct plan_stage *stage = &plan->stages[k];
        double seconds = stage->forward + stage->dgrad + stage->wgrad;
        int i = k;

        for (; i > 0; i--) {
            const struct plan_stage *other = &plan->stages[order[i - 1]];

            if (other->forward + other->dgrad + other->wgrad >= seconds)
                break;
            order[i] = order[i - 1];
        }
        order[i] = k;
    }
    plan_free(plan);
}

enum move { MOVE_FIRST, MOVE_LAST, MOVE_GROW_FIRST, MOVE_GROW_LAST, N_MOVES };

/* One change around a stage; false where there is none such. */
static bool change(struct candidate *c, int stage, enum move move)
{
    int *cuts = c->cuts;

    switch (move) {
    case MOVE_FIRST:
        return stage > 0 && ++cuts[stage] < cuts[stage + 1];
    case MOVE_GROW_FIRST:
        return stage > 0 && --cuts[stage] > cuts[stage - 1];
    case MOVE_LAST:
        return stage + 1 < c->n_stages && --cuts[stage + 1] > cuts[stage];
    default:
        return stage + 1 < c->n_stages && ++cuts[stage + 1] < cuts[stage + 2];
    }
}

/* Give the stage a replica of another one, or of the devices that are left (other < 0). */
static bool change_replicas(const struct search *s, struct candidate *c, int stage, int other)
{
    int left = search_devices(s, candidate_pipelines(c));

    for (int k = 0; k < c->n_stages; k++)
        left -= c->replicas[k];
    if (s->request->n_replicas || other == stage ||
        (other < 0 ? left < 1 : c->replicas[other] < 2))
        return false;
    c->replicas[stage]++;
    if (other >= 0)
        c->replicas[other]--;
    return shares_allowed(s->request, c->micro_batch, c->replicas[stage]) &&
           (other < 0 || shares_allowed(s->request, c->micro_batch, c->replicas[other]));
}

/* Is it better than the best, whose seconds are exact? 1, 0, or -1 on an error. What the stages
 * compute alone may say that it is not.
 */
static int beats(struct search *s, struct candidate *c, const struct candidate *best,
                 struct err *err)
{
    if (candidate_least(s, c) >= best->seconds)
        return 0;
    for (int exact = 0; exact < 2; exact++) {
        if (search_evaluate(s, c, exact, err))
            return -1;
        if (!candidate_better(c, best) || c->exact)
            return candidate_better(c, best);
    }
    return candidate_better(c, best);
}

/* Put the candidate before the best where it beats that, else free it; 1, 0, or -1. */
static int try_instead(struct search *s, struct candidate *c, struct err *err)
{
    int rc = beats(s, c, s->found[0], err);

    if (rc <= 0) {
        candidate_free(c);
        return rc;
    }
    s->found = mem_resize(s->found, (size_t)s->n_found + 1, sizeof(*s->found));
    memmove(s->found + 1, s->found, (size_t)s->n_found++ * sizeof(*s->found));
    s->found[0] = c;
    return rc;
}

/* Another schedule that makes the best faster; 1 where there is one. */
static int improve_schedule(struct search *s, struct err *err)
{
    int rc = 0;

    for (int k = 0; k < SCHEDULE_KINDS && s->found[0]->n_stages > 1 && rc == 0; k++) {
        struct candidate *c = candidate_copy(s->found[0]);

        if (k != (int)s->found[0]->schedule && set_schedule(s, c, (enum schedule_kind)k))
            rc = try_instead(s, c, err);
        else
            candidate_free(c);
    }
    return rc;
}

/* The first change around a stage that makes the best faster; 1 where there is one. */
static int improve_stage(struct search *s, int stage, struct err *err)
{
    int n_moves = N_MOVES + 1 + s->found[0]->n_stages;

    for (int m = 0; m < n_moves; m++) {
        struct candidate *c = candidate_copy(s->found[0]);
        bool valid = m < N_MOVES ? change(c, stage, (enum move)m)
                                 : change_replicas(s, c, stage, m - N_MOVES - 1);
        int rc = 0;

        if (valid)
            rc = try_instead(s, c, err);
        else
            candidate_free(c);
        if (rc)
            return rc;
    }
    return 0;
}

int search_improve(struct search *s, struct err *err)
{
    int *order = mem_new((size_t)s->found[0]->n_stages, sizeof(*order)), rc = 1;

    for (int round = 0; round < MAX_MOVES && rc > 0; round++) {
        int n = s->found[0]->n_stages < MAX_STAGES_MOVED ? s->found[0]->n_stages
                                                         : MAX_STAGES_MOVED;

        rc = improve_schedule(s, err);
        sort_stages(s, s->found[0], order);
        for (int i = 0; i < n && rc == 0; i++)
            rc = improve_stage(s, order[i], err);
    }
    free(order);
    return rc < 0 ? -1 : 0;
}
