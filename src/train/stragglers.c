/* SPDX-License-Identifier: MIT */
#include "train/stragglers.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/order.h"
#include "train/run_state.h"

/* The lower one of two in the middle: of two ranks the slower is beyond it. */
static double median(double *values, int n)
{
    if (n == 0)
        return 0;
    qsort(values, (size_t)n, sizeof(*values), order_doubles);
    return values[(n - 1) / 2];
}

static double per_sample(const struct pace *p)
{
    return p->samples > 0 ? p->compute / p->samples : 0;
}

/* Of the ranks of a stage; 'values' has room for all. */
static double stage_median(const struct pace *paces, int n, int stage, double *values,
                           int *members)
{
    *members = 0;
    for (int i = 0; i < n; i++)
        if (paces[i].stage == stage)
            values[(*members)++] = per_sample(&paces[i]);
    return median(values, *members);
}

static double forecast_median(const struct pace *paces, int n, double *values)
{
    int there = 0;

    for (int i = 0; i < n; i++)
        if (paces[i].stage >= 0 && paces[i].forecast > 0)
            values[there++] = paces[i].compute / paces[i].forecast;
    return median(values, there);
}

void paces_compare(struct pace *paces, int n)
{
    double *values = mem_new((size_t)n, sizeof(*values));
    double usual = forecast_median(paces, n, values), middle = 0;
    int members = 0, stage = -1;

    for (int i = 0; i < n; i++) {
        struct pace *p = &paces[i];

        p->factor = 1;
        if (p->stage < 0)
            continue;
        if (p->stage != stage)
            middle = stage_median(paces, n, p->stage, values, &members);
        stage = p->stage;
        p->alone = members < 2;
        if (!p->alone && middle > 0)
            p->factor = per_sample(p) / middle;
        else if (p->alone && p->forecast > 0 && usual > 0)
            p->factor = p->compute / p->forecast / usual;
    }
    free(values);
}

/* Seconds of an iteration in which a rank with this first stage computes. */
static double forecast(const struct plan *plan, int stage, double samples)
{
    double seconds = 0;

    for (int k = 0; k < plan->n_stages; k++) {
        const struct plan_stage *s = &plan->stages[k];
        double most = 0;

        if (plan_list(plan, k) != plan_list(plan, stage))
            continue;
        for (int r = 0; r < s->replicas; r++)
            most = (double)s->samples[r] > most ? (double)s->samples[r] : most;
        if (most > 0)
            seconds += (s->forward + s->dgrad + s->wgrad) * samples / most;
    }
    return seconds * (double)plan->micro_batches;
}

static struct pace *paces_of(const struct reports *reports, const struct plan *plan)
{
    struct pace *paces = mem_new((size_t)reports->size, sizeof(*paces));

    for (int r = 0; r < reports->size; r++) {
        struct pace *p = &paces[r];

        p->stage = (int)reports_figure(reports, r, REPORT_STAGE);
        p->samples = reports_figure(reports, r, REPORT_SAMPLES);
        p->compute = reports_figure(reports, r, REPORT_COMPUTE);
        if (p->stage >= 0)
            p->forecast = (double)reports->steps * forecast(plan, p->stage, p->samples);
    }
    paces_compare(paces, reports->size);
    return paces;
}

static json_t *to_json(const struct pace *p, int rank, const char *node)
{
    return json_pack("{s:i, s:s, s:i, s:f, s:s, s:f}", "rank", rank, "node", node, "stage",
                     p->stage, "factor", p->factor, "beyond", p->alone ? "forecast" : "stage",
                     "compute", p->compute);
}

void stragglers_find(const struct reports *reports, const struct plan *plan,
                     const struct comm *comm, bool *slow, json_t **line)
{
    struct pace *paces = paces_of(reports, plan);
    json_t *ranks = json_array();

    *line = NULL;
    for (int r = 0; r < reports->size; r++) {
        const struct pace *p = &paces[r];
        bool before = slow[r];

        slow[r] = p->factor >= RUN_STRAGGLER;
        if (!slow[r])
            continue;
        json_array_append_new(ranks, to_json(p, r, comm_host(comm, r)));
        if (!before)
            log_info("rank %d (%s) is slow: since the last report it computes %.2f times as "
                        "long as %s", r, comm_host(comm, r), p->factor,
                        p->alone ? "foreseen, by the pace of all ranks" : "the median of its stage");
    }
    if (json_array_size(ranks) > 0)
        *line = json_pack("{s:s, s:I, s:I, s:f, s:o}", "event", "stragglers", "step",
                          (json_int_t)reports->step, "steps", (json_int_t)reports->steps,
                          "seconds", reports->seconds, "ranks", json_incref(ranks));
    json_decref(ranks);
    free(paces);
}
