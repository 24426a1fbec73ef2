/* SPDX-License-Identifier: MIT */
#include "scheduler/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/layout.h"

/* The lists of a stage laid end to end, each with a point before it, where it is fed and
 * receives, and one behind it, where it sends.
 */
struct timeline {
    struct program *program;
    int n_parts;
    const struct program_list *parts[PART_COUNT];
    int start[PART_COUNT + 1];  /* the point before a part */
    int *first, *last;      /* of each root; -1: never touched */
};

static int root_of(const struct program *program, int value)
{
    return program->values[value].root;
}

static void touch(struct timeline *line, int value, int point)
{
    int root;

    if (value < 0 || value >= line->program->n_values)
        return;
    root = root_of(line->program, value);
    if (line->first[root] < 0 || point < line->first[root])
        line->first[root] = point;
    if (point > line->last[root])
        line->last[root] = point;
}

static void touch_lists(struct timeline *line)
{
    const struct graph *graph = line->program->graph;

    for (int p = 0; p < line->n_parts; p++) {
        for (int i = 0; i < line->parts[p]->n; i++) {
            const struct node *node = &graph->nodes[line->parts[p]->nodes[i]];

            for (int k = 0; k < node->n_inputs; k++)
                touch(line, node->inputs[k], line->start[p] + 1 + i);
            for (int k = 0; k < node->n_outputs; k++)
                touch(line, node->outputs[k], line->start[p] + 1 + i);
        }
    }
}

static void touch_borders(struct timeline *line)
{
    const struct program *program = line->program;
    const struct autodiff *ad = program->autodiff;
    int forward = line->start[1], backward = line->start[2];
    int forward_end = backward - 1, backward_end = line->start[3] - 1;

    for (int i = 0; i < program->n_inputs; i++)
        touch(line, program->inputs[i], forward);
    for (int i = 0; i < ad->n_boundaries; i++) {
        const struct boundary *b = &ad->boundaries[i];

        if (b->to == program->stage) {
            touch(line, b->value, forward);
            if (b->gradient >= 0)
                touch(line, b->gradient, backward_end);
        }
        if (b->from == program->stage) {
            touch(line, b->value, forward_end);
            if (b->gradient >= 0)
                touch(line, b->received, backward);
        }
    }
}

/* The executor reads these right after the forward part. */
static void touch_results(struct timeline *line)
{
    const struct graph *graph = line->program->graph;
    int end = line->start[2] - 1;
    const int single[] = { graph->loss, graph->correct };

    for (int i = 0; i < 2; i++)
        if (single[i] >= 0 && line->first[root_of(line->program, single[i])] >= 0)
            touch(line, single[i], end);
    for (int i = 0; i < graph->n_outputs; i++)
        if (line->first[root_of(line->program, graph->outputs[i])] >= 0)
            touch(line, graph->outputs[i], end);
}

/* What is run again before B reads what was kept for it. */
static void touch_again(struct timeline *line)
{
    const struct program *program = line->program;

    for (int i = 0; i < program->again.n; i++) {
        const struct node *node = &program->graph->nodes[program->again.nodes[i]];

        for (int k = 0; k < node->n_inputs; k++)
            if (node->inputs[k] >= 0 &&
                !program->values[root_of(program, node->inputs[k])].again)
                touch(line, node->inputs[k], line->start[2]);
    }
}

static void timeline_fill(struct timeline *line, struct program *program,
                          enum backward_form form)
{
    bool merged = form == BACKWARD_MERGED;

    line->program = program;
    line->parts[0] = &program->list[PART_PREPARE];
    line->parts[1] = &program->list[PART_FORWARD];
    line->parts[2] = merged ? &program->backward : &program->list[PART_DGRAD];
    line->parts[3] = &program->list[PART_WGRAD];
    line->n_parts = merged ? 3 : 4;
    for (int p = 0; p < line->n_parts; p++)
        line->start[p + 1] = line->start[p] + line->parts[p]->n + 2;
    line->first = mem_new((size_t)program->n_values, sizeof(int));
    line->last = mem_new((size_t)program->n_values, sizeof(int));
    for (int v = 0; v < program->n_values; v++)
        line->first[v] = line->last[v] = -1;
    touch_lists(line);
    touch_borders(line);
    touch_results(line);
    touch_again(line);
}

/* Does it live in both of two parts that other micro-batches may run between? */
static bool is_kept(const struct timeline *line, int root, enum backward_form form)
{
    bool wgrad = form == BACKWARD_DELAYED && line->first[root] < line->start[3] &&
                 line->last[root] >= line->start[3];
    bool forward = line->first[root] < line->start[2] && line->last[root] >= line->start[2];

    return wgrad || (forward && !line->program->values[root].again);
}

/* What lives within F, or within B and W, is there for one micro-batch at a time. Where there
 * is only one, all share one arena, which is smaller than two.
 */
static void share_places(struct timeline *line, enum backward_form form, int slots)
{
    struct program *program = line->program;
    bool one = slots == 1 && program->again.n == 0;

    for (int v = 0; v < program->n_values; v++) {
        bool slot = one || is_kept(line, root_of(program, v), form);
        enum value_place *place = &program->values[v].place;

        if (*place == PLACE_SLOT || *place == PLACE_SCRATCH)
            *place = slot ? PLACE_SLOT : PLACE_SCRATCH;
    }
}

/* Has it bytes of its own there? */
static bool lies_in(const struct program *program, int v, enum value_place place)
{
    return program->values[v].place == place && program->values[v].root == v;
}

/* Values of one place that share the arena by lifetime. */
static size_t place_by_lifetime(struct timeline *line, enum value_place place)
{
    struct program *program = line->program;
    struct layout_buffer *buffers;
    int *values, n = 0;
    size_t bytes;

    for (int v = 0; v < program->n_values; v++)
        n += lies_in(program, v, place);
    buffers = mem_new((size_t)n, sizeof(*buffers));
    values = mem_new((size_t)n, sizeof(*values));
    n = 0;
    for (int v = 0; v < program->n_values; v++) {
        if (!lies_in(program, v, place))
            continue;
        values[n] = v;
        buffers[n].bytes = program->values[v].layout.bytes;
        buffers[n].first = line->first[v] < 0 ? 0 : line->first[v];
        buffers[n].last = line->last[v] < 0 ? 0 : line->last[v];
        n++;
    }
    bytes = layout_place(buffers, n);
    for (int i = 0; i < n; i++)
        program->values[values[i]].offset = buffers[i].offset;
    free(values);
    free(buffers);
    return bytes;
}

static void place_next(struct program *program, int value, size_t *end)
{
    program->values[value].offset = *end;
    *end += layout_aligned(program->values[value].layout.bytes);
}

static void place_sequence(struct program *program, enum value_place place, const bool *done,
                           size_t *end)
{
    for (int v = 0; v < program->n_values; v++)
        if (program->values[v].place == place && program->values[v].root == v && !done[v])
            place_next(program, v, end);
}

/* Put a trained value and what is accumulated for it at the same offset of the two arrays,
 * so that one flat range of both can be stepped or reduced.
 */
static void place_pair(struct program *program, int value, int gradient, bool *done,
                       size_t *end)
{
    size_t bytes = 0;

    gradient = root_of(program, gradient);
    if (program->values[value].place == PLACE_PARAM && !done[value])
        bytes = layout_aligned(program->values[value].layout.bytes);
    if (program->values[gradient].place == PLACE_GRADIENT && !done[gradient] &&
        layout_aligned(program->values[gradient].layout.bytes) > bytes)
        bytes = layout_aligned(program->values[gradient].layout.bytes);
    if (!done[value])
        program->values[value].offset = *end;
    if (!done[gradient])
        program->values[gradient].offset = *end;
    done[value] = done[gradient] = true;
    *end += bytes;
}

static void place_params(struct program *program)
{
    const struct autodiff *ad = program->autodiff;
    bool *done = mem_new((size_t)program->n_values, sizeof(*done));
    size_t end = 0;

    for (int i = 0; i < ad->n_params; i++)
        if (ad->params[i].stage == program->stage)
            place_pair(program, ad->params[i].param, ad->params[i].gradient, done, &end);
    program->contributions = end;
    for (int i = 0; i < ad->n_stats; i++)
        if (ad->stats[i].stage == program->stage)
            place_pair(program, ad->stats[i].stat, ad->stats[i].contribution, done, &end);
    program->contribution_bytes = end - program->contributions;
    program->param_bytes = program->gradient_bytes = end;
    place_sequence(program, PLACE_PARAM, done, &program->param_bytes);
    place_sequence(program, PLACE_GRADIENT, done, &program->gradient_bytes);
    free(done);
}

static void place_views(struct program *program)
{
    for (int v = 0; v < program->n_values; v++)
        if (program->values[v].root != v)
            program->values[v].offset = program->values[program->values[v].root].offset;
}

void memory_place(struct program *program, enum backward_form form, int slots,
                  size_t workspace)
{
    struct timeline line = { 0 };
    bool *none = mem_new((size_t)program->n_values, sizeof(*none));

    timeline_fill(&line, program, form);
    share_places(&line, form, slots);
    place_params(program);
    program->prepared_bytes = 0;
    place_sequence(program, PLACE_PREPARED, none, &program->prepared_bytes);
    program->slot_bytes = place_by_lifetime(&line, PLACE_SLOT);
    program->scratch_bytes = place_by_lifetime(&line, PLACE_SCRATCH);
    place_views(program);
    program->workspace_bytes = workspace;
    free(none);
    free(line.first);
    free(line.last);
}

struct memory_use memory_use(const struct program *program, int slots, int versions,
                             size_t optimizer, size_t buffers)
{
    struct memory_use use = {
        .parameters = (size_t)versions * program->param_bytes,
        .gradients = program->gradient_bytes +
                     (versions > 1 ? (size_t)versions * program->contribution_bytes : 0),
        .optimizer = optimizer,
        .prepared = (size_t)versions * program->prepared_bytes,
        .slots = (size_t)slots * program->slot_bytes,
        .scratch = program->scratch_bytes,
        .workspace = program->workspace_bytes,
        .buffers = buffers,
    };

    use.total = use.parameters + use.gradients + use.optimizer + use.prepared + use.slots +
                use.scratch + use.workspace + use.buffers;
    return use;
}
