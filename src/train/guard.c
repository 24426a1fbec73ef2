/* SPDX-License-Identifier: MIT */
#include "train/guard.h"

#include <math.h>
#include <stddef.h>

#define WARM 10         /* steps from which on a loss is usual */
#define WEIGHT 0.02     /* of the last one in the mean */

bool guard_shares(const struct guard *guard)
{
    return guard->policy == GUARD_SKIP || guard->policy == GUARD_ROLLBACK || guard->spike > 0;
}

struct guard_find *guard_begin(struct guard *guard, int64_t step)
{
    struct guard_find *find = &guard->finds[step % 2];

    *find = (struct guard_find){ .step = step };
    return find;
}

const struct guard_find *guard_found(const struct guard *guard, int64_t step)
{
    const struct guard_find *find = &guard->finds[step % 2];

    return find->step == step && find->cause != GUARD_FINE ? find : NULL;
}

bool guard_judge(struct guard *guard, int64_t step, double squares, double loss)
{
    struct guard_find *find = &guard->finds[step % 2];

    if (!isfinite(squares) || !isfinite(loss)) {
        if (find->cause == GUARD_FINE)
            find->cause = GUARD_NORM;
        return true;
    }
    if (guard->spike > 0 && guard->seen >= WARM && loss > guard->spike * guard->usual) {
        find->cause = GUARD_SPIKE;
        find->loss = loss;
        find->usual = guard->usual;
        return true;
    }
    guard->seen++;
    guard->usual += (loss - guard->usual) *
                    ((double)guard->seen * WEIGHT < 1 ? 1 / (double)guard->seen : WEIGHT);
    return false;
}

/* Later stages have their gradients first. */
static bool is_before(const struct guard_find *a, const struct guard_find *b)
{
    if (a->cause != b->cause)
        return a->cause > b->cause;
    if (a->stage != b->stage)
        return a->stage > b->stage;
    return a->order < b->order;
}

int guard_first(const struct guard_find *finds, int n)
{
    int first = -1;

    for (int i = 0; i < n; i++)
        if (finds[i].cause != GUARD_FINE && (first < 0 || is_before(&finds[i], &finds[first])))
            first = i;
    return first;
}
