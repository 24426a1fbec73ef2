/* SPDX-License-Identifier: MIT */
/* What blocks have at most while they run, in a training step of a whole network. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "graph/op.h"
#include "graph/program.h"
#include "scheduler/blocks.h"
#include "scheduler/layout.h"

/* A node that runs: when, of which block, and what is there. */
struct step {
    int time, block;
    /* Bytes: temporary ones, of these what waits for the block's own W; of what it made what is
     * 'kept', of that what is made 'again'.
     */
    double beside, waits, own, again;
    double delayed;             /* both, of what is there until W where that is put off */
};

/* Of a root: from when to when it is there, and the block that touches it first. */
struct life {
    int first, last, block;     /* first -1: never */
    double bytes;               /* 0 where it has no place in a stage's arena */
    bool kept;                  /* from F for B */
    int waits;                  /* made by B, and of the block whose W reads it; -1: none */
    bool stays;                 /* W reads it */
    int last_b;                 /* when another part reads it last */
    bool given;                 /* of these, fed, or a copy of what is */
    bool again;                 /* of these, what selective recompute makes again */
};

struct lives {
    int n_steps, n_times, n, n_blocks;
    int backward;               /* when it begins */
    struct step *steps;
    struct life *items;         /* of each value */
};

static struct lives lives_new(int n_steps, int n_values, int n_blocks)
{
    /* One more step, behind all. */
    struct lives l = { .n = n_values, .n_blocks = n_blocks,
                       .steps = mem_new((size_t)n_steps + 1, sizeof(*l.steps)),
                       .items = mem_new((size_t)n_values, sizeof(*l.items)) };

    for (int v = 0; v < n_values; v++)
        l.items[v] = (struct life){ .first = -1, .last = -1, .last_b = -1, .waits = -1 };
    return l;
}

static void lives_clear(struct lives *l)
{
    free(l->steps);
    free(l->items);
}

static void add_step(struct lives *l, int time, int block)
{
    if (block >= 0 && block < l->n_blocks)
        l->steps[l->n_steps++] = (struct step){ .time = time, .block = block };
    if (time >= l->n_times)
        l->n_times = time + 1;
}

static void touch(struct life *life, int time, int block, bool wgrad)
{
    if (life->first < 0) {
        life->first = time;
        life->block = block;
    }
    if (time > life->last)
        life->last = time;
    if (!wgrad && time > life->last_b)
        life->last_b = time;
}

static void note_wgrad(struct life *life, const struct node *node, int block)
{
    if (node->part != PART_WGRAD)
        return;
    life->waits = block;
    life->stays = true;
}

static void fill_beside(struct lives *l)
{
    double *live = mem_new((size_t)l->n_times + 1, sizeof(*live));

    for (int v = 0; v < l->n; v++) {
        const struct life *life = &l->items[v];

        if (life->kept || life->first < 0)
            continue;
        live[life->first] += life->bytes;
        live[life->last + 1] -= life->bytes;
    }
    for (int t = 1; t < l->n_times; t++)
        live[t] += live[t - 1];
    for (int i = 0; i < l->n_steps; i++)
        l->steps[i].beside = live[l->steps[i].time];
    free(live);
}

static int by_block_and_time(const void *a, const void *b)
{
    const struct step *x = a, *y = b;

    if (x->block != y->block)
        return x->block < y->block ? -1 : 1;
    return x->time < y->time ? -1 : x->time > y->time;
}

/* The first step of a block at this time, or later; else what is behind them. */
static int find_step(const struct lives *l, int block, int time)
{
    int low = 0, high = l->n_steps;

    while (low < high) {
        int middle = low + (high - low) / 2;
        const struct step *s = &l->steps[middle];

        if (s->block < block || (s->block == block && s->time < time))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What a block keeps, and what waits for its W, while it runs: where it comes, and goes. */
static void add_own(struct lives *l, const struct life *life)
{
    int block = life->kept ? life->block : life->waits;
    int first, behind, stays;

    if (life->given || life->first < 0 || block < 0)
        return;
    first = find_step(l, block, life->first);
    behind = find_step(l, block, life->last + 1);
    stays = life->stays ? find_step(l, block + 1, 0) : find_step(l, block, life->last_b + 1);
    l->steps[first].delayed += life->bytes;
    l->steps[stays > first ? stays : first].delayed -= life->bytes;
    if (life->kept) {
        l->steps[first].own += life->bytes;
        l->steps[behind].own -= life->bytes;
    } else {
        l->steps[first].waits += life->bytes;
        l->steps[behind].waits -= life->bytes;
    }
    if (life->kept && life->again) {
        l->steps[first].again += life->bytes;
        l->steps[behind].again -= life->bytes;
    }
}

static void fill_own(struct lives *l)
{
    qsort(l->steps, (size_t)l->n_steps, sizeof(*l->steps), by_block_and_time);
    for (int v = 0; v < l->n; v++)
        add_own(l, &l->items[v]);
    /* All that comes in a block goes there, or where the next begins. */
    for (int i = 1; i < l->n_steps; i++) {
        struct step *s = &l->steps[i];

        s->own += s[-1].own;
        s->waits += s[-1].waits;
        s->again += s[-1].again;
        s->delayed += s[-1].delayed;
    }
}

static void fill_peaks(struct lives *l, struct block_peaks *peaks)
{
    fill_beside(l);
    fill_own(l);
    for (int i = 0; i < l->n_steps; i++) {
        const struct step *s = &l->steps[i];
        int b = s->block;

        peaks->workspace[b] = dmax(peaks->workspace[b], s->beside);
        if (s->time < l->backward)
            peaks->ahead[b] = dmax(peaks->ahead[b], s->beside);
        else
            peaks->rest[b] = dmax(peaks->rest[b], s->beside - s->waits);
        peaks->delayed[b] = dmax(peaks->delayed[b], s->delayed);
        peaks->peak_delayed[b] = dmax(peaks->peak_delayed[b],
                                      s->beside - s->waits + s->delayed);
        peaks->peak[b] = dmax(peaks->peak[b], s->beside + s->own);
        peaks->again[b] = dmax(peaks->again[b], s->beside + s->again);
    }
}

/* Made by B: what W alone makes for itself does not wait. */
static bool is_backward(const struct graph *graph, int value)
{
    int producer = graph->values[value].producer;

    return producer < 0 || graph->nodes[producer].part == PART_DGRAD;
}

/* Of a program as a backend has lowered it ----------------------------------------------- */

static void touch_all(const struct program *program, int node, int time, struct lives *l)
{
    const struct node *n = &program->graph->nodes[node];

    for (int k = 0; k < n->n_inputs; k++)
        if (n->inputs[k] >= 0) {
            struct life *life = &l->items[program->values[n->inputs[k]].root];

            touch(life, time, n->block, n->part == PART_WGRAD);
            note_wgrad(life, n, n->block);
        }
    for (int k = 0; k < n->n_outputs; k++)
        if (n->outputs[k] >= 0)
            touch(&l->items[program->values[n->outputs[k]].root], time, n->block, false);
}

/* What it is a copy of, in another layout; else itself. */
static int original_of(const struct graph *graph, int value)
{
    int producer = graph->values[value].producer;

    while (producer >= 0 && strcmp(graph->nodes[producer].op->name, "Reorder") == 0) {
        value = graph->nodes[producer].inputs[0];
        producer = graph->values[value].producer;
    }
    return value;
}

void blocks_peaks_of_program(const struct program *program, int n_blocks, const bool *again,
                             struct block_peaks *peaks)
{
    const struct program_list *lists[] = { &program->list[PART_FORWARD], &program->backward };
    int behind = lists[0]->n, time = 0;
    struct lives l = lives_new(behind + lists[1]->n, program->n_values, n_blocks);

    l.backward = behind;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < lists[k]->n; i++, time++) {
            add_step(&l, time, program->graph->nodes[lists[k]->nodes[i]].block);
            touch_all(program, lists[k]->nodes[i], time, &l);
        }
    for (int v = 0; v < program->n_values; v++) {
        const struct program_value *value = &program->values[v];
        struct life *life = &l.items[v];
        int original = original_of(program->graph, v);

        if (value->place == PLACE_SLOT || value->place == PLACE_SCRATCH)
            life->bytes = (double)layout_aligned(value->layout.bytes);
        life->kept = life->first < behind && life->last >= behind;
        life->waits = is_backward(program->graph, v) ? life->waits : -1;
        life->given = program->graph->values[original].kind == VALUE_INPUT;
        life->again = again[original];
        /* A copy is there in place of what the block made. */
        if (original != v)
            life->block = l.items[program->values[original].root].block;
    }
    fill_peaks(&l, peaks);
    lives_clear(&l);
}

/* What lowering does to a value that has to stay plain: its readers have one beside it. */
static bool is_copied(const struct graph *graph, int value)
{
    for (int i = 0; i < graph->values[value].n_consumers; i++)
        if (strcmp(graph->nodes[graph->values[value].consumers[i]].op->name, "Reorder") == 0)
            return true;
    return false;
}

bool blocks_reorder_input(const struct program *program, int value)
{
    return is_copied(program->graph, value);
}

bool blocks_reorder(const struct program *program, int value, int block)
{
    const struct graph *graph = program->graph;

    if (!program->values[value].layout.opaque || program->values[value].layout.crosses)
        return false;
    for (int i = 0; i < graph->values[value].n_consumers; i++) {
        const struct node *node = &graph->nodes[graph->values[value].consumers[i]];

        if (node->part == PART_FORWARD && node->block == block &&
            strcmp(node->op->name, "Reorder") != 0)
            return true;
    }
    return false;
}

/* Of a graph, one stage for each block ---------------------------------------------------- */

/* W right behind the last B that it reads from. */
static int time_of(const struct graph *graph, const struct node *node, const int *time)
{
    int last = 0;

    for (int i = 0; i < node->n_inputs; i++) {
        int producer = node->inputs[i] < 0 ? -1 : graph->values[node->inputs[i]].producer;

        if (producer >= 0 && time[producer] > last)
            last = time[producer];
    }
    return last;
}

static void fill_graph(const struct block_timing *t, const int *root, struct lives *l)
{
    const struct graph *graph = t->graph;
    int *time = mem_new((size_t)graph->n_nodes, sizeof(*time)), now = 0;

    for (int n = 0; n < graph->n_nodes; n++) {
        const struct node *node = &graph->nodes[n];
        int block = node->part == PART_PREPARE ? -1 : t->stage_of[n];

        time[n] = node->part == PART_WGRAD ? time_of(graph, node, time) : now++;
        if (node->part == PART_FORWARD)
            l->backward = time[n] + 1;
        add_step(l, time[n], block);
        for (int k = 0; k < node->n_inputs; k++)
            if (node->inputs[k] >= 0) {
                struct life *life = &l->items[root[node->inputs[k]]];

                touch(life, time[n], block, node->part == PART_WGRAD);
                note_wgrad(life, node, block);
            }
        for (int k = 0; k < node->n_outputs; k++)
            if (node->outputs[k] >= 0)
                touch(&l->items[root[node->outputs[k]]], time[n], block, false);
    }
    free(time);
}

/* What lives as long as the parameters has no place in the arena. */
static void leave_out_sums(const struct autodiff *ad, const int *root, struct lives *l)
{
    for (int i = 0; i < ad->n_params; i++)
        if (ad->params[i].gradient >= 0)
            l->items[root[ad->params[i].gradient]].bytes = 0;
    for (int i = 0; i < ad->n_stats; i++)
        l->items[root[ad->stats[i].contribution]].bytes = 0;
}

void blocks_peaks_of_graph(const struct block_timing *t, int n_blocks, const int *root,
                           const bool *kept, const bool *again, struct block_peaks *peaks)
{
    const struct graph *graph = t->graph;
    struct lives l = lives_new(graph->n_nodes, graph->n_values, n_blocks);

    fill_graph(t, root, &l);
    for (int v = 0; v < graph->n_values; v++) {
        int producer = graph->values[v].producer;

        if (root[v] != v || producer < 0 || graph->nodes[producer].part == PART_PREPARE)
            continue;
        l.items[v].bytes = (double)layout_aligned((size_t)blocks_bytes(graph, t->batch, v));
        l.items[v].kept = kept[v];
        l.items[v].waits = is_backward(graph, v) ? l.items[v].waits : -1;
        l.items[v].again = again[v];
    }
    leave_out_sums(t->autodiff, root, &l);
    fill_peaks(&l, peaks);
    lives_clear(&l);
}
