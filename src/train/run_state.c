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

static double pace(const struct run_rank *rank)
{
    return rank->samples > 0 ? rank->compute / rank->samples : 0;
}

/* Of two the lower one: the other may then stand out. */
double run_state_factor(const struct run_state *state, int rank)
{
    const struct run_rank *me = &state->ranks[rank];
    double *paces = mem_new((size_t)state->n_reported, sizeof(double)), middle;
    int n = 0;

    for (int r = 0; r < state->n_reported; r++)
        if (state->ranks[r].stage == me->stage)
            paces[n++] = pace(&state->ranks[r]);
    qsort(paces, (size_t)n, sizeof(double), order_doubles);
    middle = paces[(n - 1) / 2];
    free(paces);
    return me->stage >= 0 && n > 1 && middle > 0 ? pace(me) / middle : 1;
}
