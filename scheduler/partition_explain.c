/* SPDX-License-Identifier: MIT */
/* Why this plan and no other, in words. */
#include <math.h>
#include <stdio.h>

#include "scheduler/partition_private.h"

static const struct candidate *best_of(const struct search *s, int stages, int not_stages)
{
    for (int i = 0; i < s->n_found; i++)
        if (isfinite(s->found[i]->seconds) && (!stages || s->found[i]->n_stages == stages) &&
            s->found[i]->n_stages != not_stages)
            return s->found[i];
    return NULL;
}

static void explain_single(const struct search *s, const struct plan *plan, FILE *out)
{
    const struct candidate *one = best_of(s, 1, 0);

    if (plan->n_stages == 1) {
        const struct candidate *other = best_of(s, 0, 1);

        if (other)
            fprintf(out, "The fastest pipeline looked at has %d stages and takes %.4g ms.\n",
                    other->n_stages, 1e3 * other->seconds);
    } else if (one) {
        fprintf(out, "One stage with %d replicas would take %.4g ms.\n", one->replicas[0],
                1e3 * one->seconds);
    } else if (!s->request->stages) {
        fprintf(out, "One stage alone does not fit into the memory, or is far slower.\n");
    }
}

static void explain_slowest(const struct plan *plan, FILE *out)
{
    double most = 0, bound = 0;
    int slowest = 0;

    for (int k = 0; k < plan->n_stages; k++) {
        const struct plan_stage *stage = &plan->stages[k];
        double seconds = stage->forward + stage->dgrad + stage->wgrad;

        if (seconds > most) {
            most = seconds;
            slowest = k;
        }
        bound = fmax(bound, stage->allreduce);
    }
    fprintf(out, "Stage %d is the slowest: %.4g ms for each of %lld micro-batch%s, %.3g %% of "
            "the iteration.\n", slowest, 1e3 * most, (long long)plan->micro_batches,
            plan->micro_batches == 1 ? "" : "es",
            plan->iteration_seconds > 0
                ? 1e2 * most * (double)plan->micro_batches / plan->iteration_seconds : 0);
    if (bound > 0)
        fprintf(out, "The longest all-reduce takes %.4g ms alone.\n", 1e3 * bound);
}

char *explain(const struct search *s, const struct plan *plan)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    explain_slowest(plan, out);
    if (s->request->policy)
        fprintf(out, "The plan follows --policy %s, not the search.\n", s->request->policy);
    else
        explain_single(s, plan, out);
    if (s->complete)
        fprintf(out, "All %ld plans were simulated: none is faster.\n", s->count);
    if (s->factor_fixed > 1 || s->factor_moving > 1)
        fprintf(out, "Exact memory is up to %.3g times the estimate of parameters and %.3g "
                "times that of the rest.\n", s->factor_fixed, s->factor_moving);
    if (s->slow > 1)
        fprintf(out, "With all devices busy a node has %.3g threads for each core.\n", s->slow);
    fprintf(out, "Below the bound the devices do not suffice for stages that each wait for the "
            "first sample,\ncompute all of theirs, and reduce.\n");
    fclose(out);
    return text;
}
