/* SPDX-License-Identifier: MIT */
/* What blocks have beside what they keep, from a program as a backend has lowered it. */
#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"
#include "graph/program.h"
#include "scheduler/blocks.h"
#include "scheduler/layout.h"

/* F, then B and W, end to end: when each root is touched first and last, and whether several blocks
 * do that in F.
 */
struct life {
    int first, last, block;
    bool leaves;
};

struct lives {
    const struct program *program;
    const struct program_list *lists[2];
    int behind;                 /* F ends before it */
    struct life *items;         /* of each value; first -1: never touched */
};

static void touch(struct lives *l, int value, int time, int block)
{
    struct life *life = value < 0 ? NULL : &l->items[l->program->values[value].root];

    if (!life)
        return;
    if (life->first < 0) {
        life->first = time;
        life->block = block;
    }
    life->last = time;
    life->leaves = life->leaves || (time < l->behind && block != life->block);
}

static void find_lives(struct lives *l)
{
    const struct graph *graph = l->program->graph;
    int time = 0;

    l->items = mem_new((size_t)l->program->n_values, sizeof(*l->items));
    for (int v = 0; v < l->program->n_values; v++)
        l->items[v] = (struct life){ .first = -1 };
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < l->lists[k]->n; i++, time++) {
            const struct node *node = &graph->nodes[l->lists[k]->nodes[i]];

            for (int v = 0; v < node->n_inputs; v++)
                touch(l, node->inputs[v], time, node->block);
            for (int v = 0; v < node->n_outputs; v++)
                touch(l, node->outputs[v], time, node->block);
        }
    }
}

/* Neither kept, nor sent where the stage ends here, nor there as long as the parameters. */
static bool is_temporary(const struct lives *l, int value)
{
    const struct program_value *v = &l->program->values[value];
    const struct life *life = &l->items[value];

    return v->root == value && life->first >= 0 && !life->leaves &&
           (v->place == PLACE_SLOT || v->place == PLACE_SCRATCH) &&
           (life->first >= l->behind || life->last < l->behind);
}

void blocks_workspace(const struct program *program, int n_blocks, double *most)
{
    struct lives l = { .program = program, .behind = program->list[PART_FORWARD].n,
                       .lists = { &program->list[PART_FORWARD], &program->backward } };
    int end = l.behind + program->backward.n;
    double *live = mem_new((size_t)end + 1, sizeof(*live));

    find_lives(&l);
    for (int v = 0; v < program->n_values; v++) {
        if (!is_temporary(&l, v))
            continue;
        live[l.items[v].first] += (double)layout_aligned(program->values[v].layout.bytes);
        live[l.items[v].last + 1] -= (double)layout_aligned(program->values[v].layout.bytes);
    }
    for (int t = 0; t < end; t++) {
        int node = t < l.behind ? l.lists[0]->nodes[t] : l.lists[1]->nodes[t - l.behind];
        int block = program->graph->nodes[node].block;

        live[t] += t ? live[t - 1] : 0;
        if (block >= 0 && block < n_blocks && live[t] > most[block])
            most[block] = live[t];
    }
    free(l.items);
    free(live);
}
