/* SPDX-License-Identifier: MIT */
/* The memory of what was found, from its stages as they are compiled. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/memory.h"
#include "scheduler/partition_private.h"

static void note_factors(const struct stage_bytes *estimate, const struct memory_use *use,
                         struct factors *factors)
{
    double fixed = (double)(use->parameters + use->gradients + use->optimizer + use->prepared);

    if (estimate->fixed > 0)
        factors->fixed = fmax(factors->fixed, fixed / estimate->fixed);
    if (estimate->moving > 0)
        factors->moving = fmax(factors->moving,
                               ((double)use->total - fixed) / estimate->moving);
}

/* The exact memory of every stage, from the compiled programs. 1 where it is too much: then the
 * stages that it is too much for tell how far the estimate was off.
 */
static int check_memory(struct search *s, const struct candidate *c, struct plan *plan,
                        struct factors *factors, struct err *err)
{
    double *used = mem_new((size_t)plan_lists(plan), sizeof(*used));
    int over = 0;

    for (int k = 0; k < plan->n_stages && s->request->memory_of; k++) {
        struct plan_stage *stage = &plan->stages[k];
        struct memory_use use = { 0 };

        if (s->request->memory_of(s->request->user, plan, k, &use, err)) {
            free(used);
            return -1;
        }
        stage->memory = (double)use.total;
        used[plan_list(plan, k)] += stage->memory;
        if (used[plan_list(plan, k)] > candidate_room(s, c, k)) {
            struct stage_bytes estimate = search_stage(s, c, k);

            note_factors(&estimate, &use, factors);
            s->tight = true;
            over = 1;
        }
    }
    free(used);
    return over;
}

int search_fits_exactly(struct search *s, const struct candidate *c, struct plan *plan,
                        struct err *err)
{
    struct factors ignored = { 0, 0 };
    int over = check_memory(s, c, plan, &ignored, err);

    return over < 0 ? -1 : !over;
}

/* Was one of the same form before it too large for the estimates, and is it by as much, too? That
 * saves compiling it; where there is little to compile it is compiled.
 */
static bool seems_too_large(struct search *s, int at, const struct factors *factors)
{
    struct candidate *c = s->found[at];
    bool alike = false;

    for (int i = 0; i < at && !alike; i++)
        alike = s->found[i]->n_stages == c->n_stages && s->found[i]->schedule == c->schedule &&
                s->found[i]->micro_batches == c->micro_batches;
    for (int k = 0; k < c->n_stages && alike && !s->few; k++) {
        struct stage_bytes bytes = search_stage(s, c, k);

        if (bytes.fixed * fmax(s->factor_fixed, factors->fixed) +
                bytes.moving * fmax(s->factor_moving, factors->moving) > candidate_room(s, c, k))
            return true;
    }
    return false;
}

/* The candidate as a plan, where its exact memory fits; else NULL. */
static struct plan *plan_that_fits(struct search *s, int at, struct factors *factors,
                                   struct err *err)
{
    struct plan *plan = place(s->cost, s->cluster, s->request, s->found[at]);

    if (check_memory(s, s->found[at], plan, factors, err)) {
        plan_free(plan);
        return NULL;
    }
    if (!s->found[at]->exact && search_evaluate(s, s->found[at], true, err)) {
        plan_free(plan);
        return NULL;
    }
    s->taken = s->found[at];
    plan->iteration_seconds = s->taken->seconds;
    return plan;
}

struct plan *search_first_that_fits(struct search *s, struct factors *factors, struct err *err)
{
    struct plan *plan = NULL;

    for (int i = 0; i < s->n_found && isfinite(s->found[i]->seconds) && !plan && !err->code;) {
        bool exact = s->found[i]->exact;

        if (!seems_too_large(s, i, factors))
            plan = plan_that_fits(s, i, factors, err);
        /* Simulated in full it may be slower than what comes next. */
        if (plan && !exact && i + 1 < s->n_found &&
            candidate_better(s->found[i + 1], s->found[i])) {
            plan_free(plan);
            plan = NULL;
            search_sort_from(s, i);
        } else {
            i++;
        }
    }
    return plan;
}
