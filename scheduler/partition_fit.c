/* SPDX-License-Identifier: MIT */
/* The memory of what was found, from its stages as they are compiled. */
#include <math.h>
#include <stdlib.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/memory.h"
#include "scheduler/partition_private.h"

/* Times that a candidate is compiled, whose devices have several stages. */
#define MOST_COMPILED 4
#define ROUNDING 1e-9           /* of sums of bytes */

static void note_factors(const struct stage_bytes *estimate, const struct stage_bytes *exact,
                         struct factors *factors)
{
    if (estimate->fixed > 0)
        factors->fixed = dmax(factors->fixed, exact->fixed / estimate->fixed);
    if (estimate->moving > 0)
        factors->moving = dmax(factors->moving, exact->moving / estimate->moving);
}

/* Of each device of a pipeline, by its first stage, as estimated. */
static struct stage_bytes *estimate_lists(struct search *s, const struct candidate *c)
{
    struct stage_bytes *lists = mem_new((size_t)c->n_stages, sizeof(*lists));

    for (int k = 0; k < c->n_stages; k++) {
        struct stage_bytes own = search_stage(s, c, k), *list = &lists[candidate_list(c, k)];

        list->fixed += own.fixed;
        list->moving += own.moving;
    }
    return lists;
}

/* As compiled, or where there is no model as the cost file has them; -1: an error. */
static int compile_lists(struct search *s, const struct candidate *c, struct plan *plan,
                         struct stage_bytes *lists, struct err *err)
{
    for (int k = 0; k < plan->n_stages; k++) {
        struct stage_bytes *list = &lists[candidate_list(c, k)];
        struct memory_use use = { 0 };
        double fixed;

        if (!s->request->memory_of) {
            fixed = search_stage(s, c, k).fixed;
            list->fixed += fixed;
            list->moving += plan->stages[k].memory - fixed;
            continue;
        }
        if (s->request->memory_of(s->request->user, plan, k, &use, err))
            return -1;
        fixed = (double)(use.parameters + use.gradients + use.optimizer + use.prepared);
        list->fixed += fixed;
        list->moving += (double)use.total - fixed;
        plan->stages[k].memory = (double)use.total;
    }
    return 0;
}

/* The memory of every stage, with all that crosses its borders and from the compiled programs where
 * there is a model. 1 where it is too much: then the devices that it is too much for tell how far
 * the estimate was off, and by how much, in 'more' if that is not NULL.
 */
static int check_memory(struct search *s, const struct candidate *c, struct plan *plan,
                        struct factors *factors, double *more, struct err *err)
{
    struct stage_bytes *estimate, *exact;
    int over = 0;

    exact = mem_new((size_t)c->n_stages, sizeof(*exact));
    if (compile_lists(s, c, plan, exact, err)) {
        free(exact);
        return -1;
    }
    estimate = estimate_lists(s, c);
    for (int l = 0; l < candidate_lists(c); l++) {
        double used = exact[l].fixed + exact[l].moving;

        if (used <= candidate_room(s, c, candidate_list_first(c, l)) * (1 + ROUNDING))
            continue;
        note_factors(&estimate[l], &exact[l], factors);
        if (more)
            more[l] = used - estimate[l].fixed * s->factor_fixed -
                      estimate[l].moving * s->factor_moving;
        over = 1;
    }
    s->tight |= over;
    free(estimate);
    free(exact);
    return over;
}

int search_fits_exactly(struct search *s, const struct candidate *c, struct plan *plan,
                        struct err *err)
{
    struct factors ignored = { 0, 0 };
    int over = check_memory(s, c, plan, &ignored, NULL, err);

    return over < 0 ? -1 : !over;
}

/* Was one of the same form before it too large for the estimates, and is it by as much, too? That
 * saves compiling it; where there is little to compile it is compiled.
 */
static bool seems_too_large(struct search *s, int at, const struct factors *factors)
{
    struct candidate *c = s->found[at];
    struct stage_bytes *lists;
    bool alike = false, large = false;

    for (int i = 0; i < at && !alike; i++)
        alike = s->found[i]->n_stages == c->n_stages && s->found[i]->schedule == c->schedule &&
                s->found[i]->micro_batches == c->micro_batches;
    if (!alike || s->few)
        return false;
    lists = estimate_lists(s, c);
    for (int l = 0; l < candidate_lists(c) && !large; l++)
        large = lists[l].fixed * dmax(s->factor_fixed, factors->fixed) +
                    lists[l].moving * dmax(s->factor_moving, factors->moving) >
                candidate_room(s, c, candidate_list_first(c, l));
    free(lists);
    return large;
}

/* As many stages of its devices run their forward again as they must, compiled. */
static struct plan *place_until_it_fits(struct search *s, struct candidate *c,
                                        struct factors *factors, struct err *err)
{
    if (c->chunks > 1 && !c->more)
        c->more = mem_new((size_t)c->n_stages, sizeof(*c->more));
    for (int i = 0; i < MOST_COMPILED; i++) {
        struct plan *plan = place(s->cost, s->cluster, s->request, c);
        int over = check_memory(s, c, plan, factors, c->more, err);

        if (!over)
            return plan;
        plan_free(plan);
        if (over < 0 || c->chunks <= 1 || !search_fits(s, c))
            return NULL;
        c->exact = false;
    }
    return NULL;
}

/* The candidate as a plan, where its exact memory fits; else NULL. */
static struct plan *plan_that_fits(struct search *s, int at, struct factors *factors,
                                   struct err *err)
{
    struct plan *plan = place_until_it_fits(s, s->found[at], factors, err);

    if (!plan)
        return NULL;
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
        double seconds = s->found[i]->seconds;

        if (!seems_too_large(s, i, factors))
            plan = plan_that_fits(s, i, factors, err);
        /* Simulated in full it may be slower than what comes next; or with more that is run again,
         * which what is of the same kind needs as well.
         */
        if (request_chunks(s->request) == 1 && s->found[i]->seconds > seconds)
            exact = false;
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
