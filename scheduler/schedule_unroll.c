/* SPDX-License-Identifier: MIT */
/* Lists whose pipeline is not flushed, as one after the other runs. */
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/schedule.h"

static bool is_update(const struct instruction *i)
{
    return i->kind == INSTRUCTION_REDUCE || i->kind == INSTRUCTION_STEP;
}

/* What of the iteration is of a batch that there is: all but the first in front, and all but
 * what is of the one behind the last.
 */
static void unroll_once(struct instruction_list *out, const struct instruction_list *in,
                        int micro_batches, int iteration, int iterations, bool updates)
{
    for (int k = 0; k < in->n; k++) {
        struct instruction i = in->items[k];
        int batch = iteration + i.micro / micro_batches;

        if (batch < 0 || batch >= iterations ||
            (is_update(&i) && !updates && iteration < iterations - 1))
            continue;
        i.micro += iteration * micro_batches;
        *(struct instruction *)mem_push((void **)&out->items, &out->n, sizeof(i)) = i;
    }
}

struct schedule *schedule_unroll(const struct schedule *schedule, int iterations, bool updates)
{
    struct schedule *all = schedule_copy(schedule);

    all->micro_batches = iterations * schedule->micro_batches;
    all->versions = 1;
    for (int l = 0; l < all->n_lists; l++) {
        struct instruction_list *list = &all->lists[l];

        free(list->items);
        list->items = NULL;
        list->n = 0;
        for (int k = -1; k < iterations; k++)
            unroll_once(list, &schedule->lists[l], schedule->micro_batches, k, iterations,
                        updates);
    }
    return all;
}

void schedule_order(const struct schedule *schedule, int s, bool forward, int *micros)
{
    const struct schedule_stage *here = &schedule->stages[s];
    const struct instruction_list *list = &schedule->lists[here->list];
    int n = 0;

    for (int follows = 1; follows >= 0; follows--)
        for (int k = 0; k < list->n; k++) {
            const struct instruction *i = &list->items[k];
            bool takes = forward ? i->kind == INSTRUCTION_F
                                 : i->kind == INSTRUCTION_B || i->kind == INSTRUCTION_BW;

            if (takes && i->chunk == here->chunk &&
                i->micro / schedule->micro_batches == follows)
                micros[n++] = i->micro % schedule->micro_batches;
        }
}
