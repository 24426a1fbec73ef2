/* SPDX-License-Identifier: MIT */
#include "train/run_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"

void run_state_init(struct run_state *state)
{
    *state = (struct run_state){
        .loss = NAN, .best = NAN, .accuracy = NAN, .lr = NAN, .norm = NAN, .predicted = NAN,
        .test_loss = NAN, .test_accuracy = NAN, .test_best = NAN, .stride = 1,
        .points = mem_new(RUN_POINTS, sizeof(struct run_point)),
    };
}

void run_state_clear(struct run_state *state)
{
    for (int i = 0; i < state->n_hosts; i++)
        free(state->hosts[i]);
    free(state->hosts);
    free(state->replicas);
    free(state->points);
    free(state->ranks);
    free(state->peaks);
    *state = (struct run_state){ .phase = RUN_WAITING };
}

const char *run_phase_name(enum run_phase phase)
{
    static const char *const names[] = { "waiting", "starting", "training",
                                         "done",    "stopped",  "failed" };

    return names[phase];
}

bool run_state_over(const struct run_state *state)
{
    return state->phase >= RUN_DONE;
}

static double median(const double *values, int64_t n)
{
    double sorted[RUN_RECENT];

    if (n > RUN_RECENT)
        n = RUN_RECENT;
    if (n == 0)
        return NAN;
    memcpy(sorted, values, (size_t)n * sizeof(double));
    qsort(sorted, (size_t)n, sizeof(double), order_doubles);
    return sorted[n / 2];
}

double run_state_seconds(const struct run_state *state)
{
    return median(state->seconds, state->n_recent);
}

double run_state_rate(const struct run_state *state)
{
    return median(state->rates, state->n_recent);
}

double run_state_left(const struct run_state *state)
{
    if (run_state_over(state) || state->steps <= 0 || state->n_recent == 0)
        return NAN;
    if (state->step >= state->steps)
        return 0;
    return (double)(state->steps - state->step) *
           (run_state_seconds(state) + state->paused / (double)state->n_recent);
}

struct pace {
    int stage, rank;
    double seconds;     /* computing for a sample, relative to the time of the steps */
};

static int by_stage(const void *a, const void *b)
{
    const struct pace *x = a, *y = b;

    return x->stage != y->stage ? (x->stage > y->stage) - (x->stage < y->stage)
                                : order_doubles(&x->seconds, &y->seconds);
}

/* Of two the lower one is the median: the other may then stand out. */
void run_state_compare(struct run_state *state)
{
    int n = state->n_reported;
    struct pace *paces = mem_new((size_t)n, sizeof(*paces));

    for (int r = 0; r < n; r++) {
        const struct run_rank *rank = &state->ranks[r];
        double seconds = rank->samples > 0 ? rank->compute / rank->samples : 0;

        paces[r] = (struct pace){ rank->stage, r, seconds };
    }
    qsort(paces, (size_t)n, sizeof(*paces), by_stage);
    for (int first = 0, end; first < n; first = end) {
        double middle;

        for (end = first + 1; end < n && paces[end].stage == paces[first].stage; end++)
            ;
        middle = paces[first + (end - first - 1) / 2].seconds;
        for (int i = first; i < end; i++)
            state->ranks[paces[i].rank].factor =
                paces[i].stage >= 0 && middle > 0 ? paces[i].seconds / middle : 1;
    }
    free(paces);
}
