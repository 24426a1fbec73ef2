/* SPDX-License-Identifier: MIT */
/* Dynamic programming over (stages, cut, devices), from the first stage on. */
#include <math.h>
#include <stdlib.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/policy_private.h"

/* The last of the stages that end at a cut and use so many devices. */
struct step {
    short first;            /* its first cut; -1: there is no such pipeline */
    short replicas;
};

struct balance {
    struct search *search;
    struct split split;
    int devices, most;
    double bandwidth;
    int n_stages;
    double *worst;          /* [(n + 1) * (devices + 1)]: the slowest stage, by cut and devices */
    struct step **steps;    /* [n_stages]: the same places */
};

static size_t places(const struct balance *b)
{
    return ((size_t)b->search->table->n + 1) * ((size_t)b->devices + 1);
}

static size_t at(const struct balance *b, int cut, int devices)
{
    return (size_t)cut * ((size_t)b->devices + 1) + (size_t)devices;
}

struct balance *balance_new(struct search *search, const struct split *split, int devices,
                            int most, double bandwidth)
{
    struct balance *b = mem_new(1, sizeof(*b));

    b->search = search;
    b->split = *split;
    b->devices = devices;
    b->most = most < split->micro_batch ? most : (int)split->micro_batch;
    b->bandwidth = bandwidth;
    b->worst = mem_new(places(b), sizeof(*b->worst));
    for (size_t i = 1; i < places(b); i++)
        b->worst[i] = INFINITY;
    return b;
}

void balance_free(struct balance *b)
{
    for (int s = 0; s < b->n_stages; s++)
        free(b->steps[s]);
    free(b->steps);
    free(b->worst);
    free(b);
}

static bool fits(const struct balance *b, const struct interval_cost *cost, int device, int r,
                 enum plan_recompute again)
{
    int64_t m = b->split.micro_batches;

    return search_memory(b->search, cost, m, (int)m, b->split.pipelines * r,
                         kind_backward(SCHEDULE_GPIPE, cost->gradient), again) <=
           search_room(b->search, b->split.pipelines, device, r);
}

/* Seconds of what the stage runs again, where it recomputes; INFINITY where it does not fit. */
static double again_seconds(const struct balance *b, const struct interval_cost *cost, int device,
                            int r)
{
    const struct plan_request *request = b->search->request;
    enum plan_recompute again = recompute_asked(request);

    for (; again <= recompute_most(request, SCHEDULE_GPIPE); again++)
        if (fits(b, cost, device, r, again))
            return interval_again(cost, again);
    return INFINITY;
}

/* The best last stage [i, end) of r replicas on the devices up to 'devices', behind 'worst'. */
static void try_stage(const struct balance *b, const double *worst, int end, int devices, int r,
                      double *best, struct step *step)
{
    const struct share_table *share =
        table_share(b->search->table, candidate_share(b->split.micro_batch, r));

    for (int i = end - 1; i >= 0; i--) {
        double before = worst[at(b, i, devices - r)], seconds;
        struct interval_cost cost;

        if (before >= *best)
            continue;
        table_interval(b->search->table, share, i, end, &cost);
        seconds = cost.forward + cost.dgrad + cost.wgrad;
        if (seconds >= *best)
            return;
        seconds += (cost.received + cost.gradient) / b->bandwidth;
        if (dmax(before, seconds) >= *best)
            continue;
        seconds = dmax(before, seconds + again_seconds(b, &cost, devices - r, r));
        if (seconds < *best) {
            *best = seconds;
            *step = (struct step){ (short)i, (short)r };
        }
    }
}

static bool allowed(const struct balance *b, int stage, int r)
{
    const struct plan_request *q = b->search->request;

    return shares_allowed(q, b->split.micro_batch, r) &&
           (!q->n_replicas || (stage < q->n_replicas && q->replicas[stage] == r));
}

void balance_extend(struct balance *b)
{
    double *worst = mem_new(places(b), sizeof(*worst));
    struct step *steps = mem_new(places(b), sizeof(*steps));
    int s = b->n_stages;

    for (size_t i = 0; i < places(b); i++) {
        worst[i] = INFINITY;
        steps[i].first = -1;
    }
    for (int end = s + 1; end <= b->search->table->n; end++)
        for (int d = s + 1; d <= b->devices; d++)
            for (int r = 1; r <= b->most && r <= d; r *= 2)
                if (allowed(b, s, r))
                    try_stage(b, b->worst, end, d, r, &worst[at(b, end, d)],
                              &steps[at(b, end, d)]);
    free(b->worst);
    b->worst = worst;
    *(struct step **)mem_push((void **)&b->steps, &b->n_stages, sizeof(steps)) = steps;
}

struct candidate *balance_candidate(const struct balance *b)
{
    const struct table *table = b->search->table;
    int cut = table->n, devices = b->devices;
    struct candidate *c;

    if (isinf(b->worst[at(b, cut, devices)]))
        return NULL;
    c = mem_new(1, sizeof(*c));
    c->pipelines = b->split.pipelines;
    c->micro_batch = b->split.micro_batch;
    c->micro_batches = b->split.micro_batches;
    c->schedule = SCHEDULE_GPIPE;
    c->zero = b->search->zero;
    c->n_stages = b->n_stages;
    c->cuts = mem_new((size_t)c->n_stages + 1, sizeof(int));
    c->replicas = mem_new((size_t)c->n_stages, sizeof(int));
    c->cuts[c->n_stages] = table->cuts[cut];
    for (int s = c->n_stages - 1; s >= 0; s--) {
        struct step step = b->steps[s][at(b, cut, devices)];

        c->cuts[s] = table->cuts[step.first];
        c->replicas[s] = step.replicas;
        cut = step.first;
        devices -= step.replicas;
    }
    return c;
}
