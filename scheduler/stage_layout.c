/* SPDX-License-Identifier: MIT */
#include "scheduler/stage_layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "graph/program.h"
#include "scheduler/cost_steps.h"
#include "scheduler/layout.h"
#include "scheduler/memory.h"
#include "scheduler/stage.h"
#include "scheduler/stage_arrays.h"

#define PARAMETER_BYTES 4.0     /* what "parameters" is counted in */
#define KERNEL_PARTS 3          /* of a kernel's scratch, at most: sums and factors of a norm */
#define MOST_BYTES 0x1p43       /* of a value: what no device has, and can be summed */

/* Stages of the borders: what is in front of this one, it, and what is behind. */
enum { FRONT, HERE, BEHIND };
/* Layouts: the one in which values are fed, received and sent, and that of the kernels. */
enum { PLAIN, OTHER, LAYOUTS };

/* A value of the file, copies in another layout being the same. */
struct held {
    int id[LAYOUTS];            /* in the stage's graph; -1: not there yet */
    int made;                   /* the layout that it is made, or received, in */
    bool crosses;               /* made here, and sent to another stage */
    bool summed;                /* it is all of a parameter's gradient here, and has no place */
    int same;                   /* what it is, here; -1: itself */
    int like;                   /* the value of the file that has its bytes */
};

struct laying {
    const struct cost *cost;
    const struct cost_steps *steps;
    const int *stage;
    int s;
    double samples, group;
    struct graph *graph;        /* of this stage */
    int n_held;
    struct held *held;          /* of each value of the file, then sums that are made here alone */
    int n_borders;
    struct boundary *borders;
    int n_results, *results;
    int stamp, *seen;           /* stages that something was received from */
};

static int new_held(struct laying *l, int like)
{
    struct held *h = mem_push((void **)&l->held, &l->n_held, sizeof(*h));

    *h = (struct held){ { -1, -1 }, PLAIN, false, false, -1, like };
    return l->n_held - 1;
}

/* Of BatchNorm's; 'group': samples of one where the plan does not say. */
static double groups_of(const struct laying *l, double group)
{
    group = l->group > 0 ? l->group : group;
    return group > 0 && group < l->samples ? l->samples / group : 1;
}

static int new_value(struct laying *l, int v, enum value_kind kind)
{
    const struct cost_value *from = &l->steps->values[l->held[v].like];
    double bytes = cost_at(l->cost, from->bytes, from->batch_axis, l->samples) *
                   (from->grouped ? groups_of(l, (double)from->group) : 1);
    struct shape shape = { 1, { (int64_t)dmin(bytes, MOST_BYTES) } };

    return graph_add_value(l->graph, NULL, kind, DTYPE_U8, &shape, (struct batch){ 0, 0, 0 });
}

static void add_node(struct laying *l, const struct op *op, enum part part, int n,
                     const int *inputs, int n_outputs, const int *outputs)
{
    int node = graph_add_node(l->graph, NULL, op, n, inputs, n_outputs, outputs);

    l->graph->nodes[node].part = part;
}

/* 'value' is sent, or else received, and is a gradient or none. */
static void add_border(struct laying *l, int value, bool sent, bool gradient)
{
    struct boundary *b = mem_push((void **)&l->borders, &l->n_borders, sizeof(*b));

    *b = (struct boundary){ -1, HERE, BEHIND, -1, -1 };
    if (sent == gradient) {
        b->from = FRONT;
        b->to = HERE;
    }
    if (!gradient)
        b->value = value;
    else
        b->gradient = b->received = value;
}

static bool is_op(const struct cost_step *step, const char *name)
{
    return strcmp(step->op->name, name) == 0;
}

/* Makes a copy in another layout. */
static bool is_reorder(const struct cost_step *step)
{
    return step && is_op(step, "Reorder") && step->n_makes == 1;
}

/* What it makes has the bytes of what it reads, or where that is nothing, of what has no place in
 * the arenas.
 */
static bool is_view(const struct cost_step *step)
{
    return step && step->op->flags & OP_VIEW && step->n_reads <= 1 && step->n_makes == 1;
}

static const struct cost_step *maker_of(const struct laying *l, int v)
{
    int maker = v < l->steps->n_values ? l->steps->values[v].maker : -1;

    return maker < 0 ? NULL : &l->steps->items[maker];
}

static bool is_here(const struct laying *l, const struct cost_step *step)
{
    return l->stage[step->block] == l->s;
}

static const struct cost_return *return_of(const struct laying *l, int v)
{
    int back = v < l->steps->n_values ? l->steps->values[v].back : -1;

    return back < 0 ? NULL : &l->steps->returns[back];
}

/* What it is a copy of, or a view that is made here; what is handed over within a stage is what was
 * handed over there.
 */
static int value_of(const struct laying *l, int v)
{
    while (v < l->steps->n_values) {
        const struct cost_return *r = return_of(l, v);
        const struct cost_step *maker = maker_of(l, v);

        if (is_reorder(maker) || (is_view(maker) && maker->n_reads == 1 && is_here(l, maker)))
            v = maker->reads[0];
        else if (r && l->stage[r->from] == l->stage[r->to])
            v = r->value;
        else if (l->held[v].same >= 0)
            v = l->held[v].same;
        else
            break;
    }
    return v;
}

static bool is_gradient(const struct laying *l, int v)
{
    return return_of(l, v) || (maker_of(l, v) && maker_of(l, v)->part != PART_FORWARD);
}

/* As it comes in: fed, or from another stage. */
static void receive(struct laying *l, int v)
{
    bool fed = !maker_of(l, v) && !return_of(l, v);

    l->held[v].id[PLAIN] = new_value(l, v, fed ? VALUE_INPUT : VALUE_NODE);
    if (!fed)
        add_border(l, l->held[v].id[PLAIN], false, is_gradient(l, v));
}

/* Is it there without a place in the arenas? */
static bool is_outside(const struct laying *l, int v)
{
    const struct cost_step *maker;

    v = value_of(l, v);
    maker = maker_of(l, v);
    return l->held[v].summed || (v < l->steps->n_values &&
           (l->steps->values[v].prepared ||
            (is_view(maker) && maker->n_reads == 0 && is_here(l, maker))));
}

/* In a layout, for what reads it in a part. */
static int have(struct laying *l, int v, int layout, enum part part)
{
    struct held *h;

    v = value_of(l, v);
    h = &l->held[v];
    if (h->id[PLAIN] < 0 && h->id[OTHER] < 0)
        receive(l, v);
    if (h->id[layout] < 0) {
        h->id[layout] = new_value(l, v, VALUE_NODE);
        add_node(l, op_find("Reorder"), part, 1, &h->id[!layout], 1, &h->id[layout]);
    }
    return h->id[layout];
}

static int made_in(struct laying *l, int v)
{
    return l->held[value_of(l, v)].made;
}

/* Does it run in the other layout where it does so in the whole network? Convolutions choose;
 * what else there is follows what it reads.
 */
static bool runs_other(struct laying *l, const struct cost_step *step)
{
    if (step->op->flags & OP_CONV)
        return true;
    if (step->follows >= 0)
        return made_in(l, step->follows) == OTHER;
    for (int k = 0; k < step->n_reads; k++)
        if (l->steps->values[step->reads[k]].reordered && made_in(l, step->reads[k]) == OTHER)
            return true;
    return false;
}

static int made_layout(struct laying *l, int v, bool other)
{
    return other && l->steps->values[v].reordered ? OTHER : PLAIN;
}

static int make(struct laying *l, int v, int layout)
{
    struct held *h = &l->held[v];

    h->id[layout] = new_value(l, v, VALUE_NODE);
    h->made = h->crosses ? PLAIN : layout;
    return h->id[layout];
}

static void add_step(struct laying *l, const struct cost_step *step)
{
    int *inputs = mem_new((size_t)step->n_reads + 1, sizeof(*inputs)), n = 0;
    int *outputs = mem_new((size_t)step->n_makes + 1, sizeof(*outputs)), n_outputs = 0;
    bool other = runs_other(l, step);

    for (int k = 0; k < step->n_reads; k++) {
        int v = step->reads[k];

        if (!is_outside(l, v))
            inputs[n++] = have(l, v, made_layout(l, v, other), step->part);
    }
    for (int k = 0; k < step->n_makes; k++)
        if (!l->held[step->makes[k]].summed)
            outputs[n_outputs++] = make(l, step->makes[k], made_layout(l, step->makes[k], other));
    add_node(l, step->op, step->part, n, inputs, n_outputs, outputs);
    for (int k = 0; k < step->n_makes; k++)
        if (l->held[step->makes[k]].crosses)
            have(l, step->makes[k], PLAIN, step->part);
    free(outputs);
    free(inputs);
}

/* Of gradients: all are added in the other layout where one is made in that. */
static void add_sum(struct laying *l, const int *parts, int n, int sum)
{
    int *inputs = mem_new((size_t)n, sizeof(*inputs)), layout = PLAIN, output;

    for (int k = 0; k < n; k++)
        layout = made_in(l, parts[k]) == OTHER ? OTHER : layout;
    for (int k = 0; k < n; k++)
        inputs[k] = have(l, parts[k], layout, PART_DGRAD);
    output = make(l, sum, layout);
    add_node(l, op_find("AddN"), PART_DGRAD, n, inputs, 1, &output);
    if (l->held[sum].crosses)
        have(l, sum, PLAIN, PART_DGRAD);
    free(inputs);
}

/* Is it the first that was received from its stage for what is added now? */
static bool is_first_from(struct laying *l, int stage)
{
    bool first = l->seen[stage] != l->stamp;

    l->seen[stage] = l->stamp;
    return first;
}

/* What this stage contributes is summed first, and one sum comes from each other stage. */
static void add_gradients(struct laying *l, const struct cost_step *step)
{
    int *parts = mem_new((size_t)step->n_reads + 1, sizeof(*parts)), sum = step->makes[0];
    int *others = mem_new((size_t)step->n_reads + 1, sizeof(*others)), n = 0, n_others = 0;

    l->stamp++;
    for (int k = 0; k < step->n_reads; k++) {
        int v = value_of(l, step->reads[k]);

        if (!return_of(l, v))
            parts[n++] = v;
        else if (is_first_from(l, l->stage[return_of(l, v)->from]))
            others[n_others++] = v;
    }
    if (n > 1 && n_others > 0) {
        int own = new_held(l, sum);

        add_sum(l, parts, n, own);
        parts[0] = own;
        n = 1;
    }
    for (int k = 0; k < n_others; k++)
        parts[n++] = others[k];
    if (n > 1)
        add_sum(l, parts, n, sum);
    else if (n == 1)
        l->held[sum].same = parts[0];
    free(others);
    free(parts);
}

static bool is_sum(const struct cost_step *step)
{
    return step->part == PART_DGRAD && is_op(step, "AddN") && step->n_makes == 1;
}

/* Adds up what blocks contribute to the gradient of a parameter that all of them read. */
static bool is_parameter_sum(const struct cost_step *step)
{
    return step->part == PART_WGRAD && is_op(step, "AddN") && step->n_makes == 0;
}

/* The contributions of blocks of stage 's'. */
static int parts_here(const struct cost_steps *steps, const struct cost_step *step,
                      const int *stage, int s, int *parts)
{
    int n = 0;

    for (int k = 0; k < step->n_reads; k++) {
        int maker = steps->values[step->reads[k]].maker;

        if (maker >= 0 && stage[steps->items[maker].block] == s)
            parts[n++] = step->reads[k];
    }
    return n;
}

/* One alone is the gradient here. */
static void add_parameter_sum(struct laying *l, const struct cost_step *step, bool mark)
{
    int *parts = mem_new((size_t)step->n_reads + 1, sizeof(*parts));
    int n = parts_here(l->steps, step, l->stage, l->s, parts);
    bool alone = n == 1 && !is_reorder(maker_of(l, parts[0])) && !is_view(maker_of(l, parts[0]));

    if (mark && alone)
        l->held[parts[0]].summed = true;
    for (int k = 0; k < n && !mark && !alone; k++)
        parts[k] = have(l, parts[k], PLAIN, PART_WGRAD);
    if (n > 0 && !mark && !alone)
        add_node(l, step->op, PART_WGRAD, n, parts, 0, NULL);
    free(parts);
}

static void mark_sums(struct laying *l)
{
    for (int i = 0; i < l->steps->n; i++)
        if (is_parameter_sum(&l->steps->items[i]))
            add_parameter_sum(l, &l->steps->items[i], true);
}

/* The most that the kernel of such a sum asks for, which does not add to what is there: with what is
 * counted with all kernels.
 */
static double sum_workspace(const struct cost *cost, const int *stage, int s, double samples)
{
    double most = 0;

    for (int i = 0; i < cost->steps->n; i++) {
        const struct cost_step *step = &cost->steps->items[i];
        int *parts;

        if (!is_parameter_sum(step))
            continue;
        parts = mem_new((size_t)step->n_reads + 1, sizeof(*parts));
        if (parts_here(cost->steps, step, stage, s, parts) > 1) {
            const struct cost_value *v = &cost->steps->values[parts[0]];
            double bytes = cost_at(cost, v->bytes, v->batch_axis, samples);

            most = dmax(most, (double)layout_aligned((size_t)dmin(bytes, MOST_BYTES)) +
                                  MEMORY_SCALARS);
        }
        free(parts);
    }
    return most;
}

static void add_part(struct laying *l, enum part part)
{
    for (int i = 0; i < l->steps->n; i++) {
        const struct cost_step *step = &l->steps->items[i];

        if (step->part == part && is_parameter_sum(step))
            add_parameter_sum(l, step, false);
        if (step->part != part || !is_here(l, step) || is_reorder(step) || is_view(step) ||
            is_parameter_sum(step))
            continue;
        if (is_sum(step))
            add_gradients(l, step);
        else
            add_step(l, step);
    }
}

/* What later stages read of the forward. */
static void mark_values(struct laying *l)
{
    for (int i = 0; i < l->steps->n; i++) {
        const struct cost_step *step = &l->steps->items[i];

        for (int k = 0; k < step->n_reads && !is_here(l, step) && !is_reorder(step); k++) {
            int v = step->reads[k];

            while (is_reorder(maker_of(l, v)))
                v = maker_of(l, v)->reads[0];
            if (maker_of(l, v) && is_here(l, maker_of(l, v)) && !is_gradient(l, v))
                l->held[value_of(l, v)].crosses = true;
        }
    }
}

static void send_values(struct laying *l)
{
    for (int v = 0; v < l->steps->n_values; v++)
        if (l->held[v].crosses && !is_gradient(l, v) && !is_outside(l, v))
            add_border(l, have(l, v, PLAIN, PART_FORWARD), true, false);
}

/* Does this stage send it back to another? */
static bool goes_back(const struct laying *l, const struct cost_return *r)
{
    return r && l->stage[r->from] == l->s && l->stage[r->to] != l->s;
}

/* What it contributes to a sum that another stage makes: the values that go there. */
static int find_parts(const struct laying *l, const struct cost_step *step, bool *done, int *parts)
{
    int n = 0;

    if (!is_sum(step) || is_here(l, step))
        return 0;
    for (int k = 0; k < step->n_reads; k++) {
        int v = step->reads[k], back;

        while (is_reorder(maker_of(l, v)))
            v = maker_of(l, v)->reads[0];
        back = l->steps->values[v].back;
        if (back < 0 || done[back] || !goes_back(l, return_of(l, v)))
            continue;
        done[back] = true;
        parts[n++] = return_of(l, v)->value;
    }
    return n;
}

static void send_gradient(struct laying *l, int v, bool mark)
{
    if (mark)
        l->held[value_of(l, v)].crosses = true;
    else
        add_border(l, have(l, v, PLAIN, PART_DGRAD), true, true);
}

static void send_sum(struct laying *l, const int *parts, int n, int like)
{
    int sum = new_held(l, like);

    l->held[sum].crosses = true;
    add_sum(l, parts, n, sum);
    add_border(l, l->held[sum].id[PLAIN], true, true);
}

/* Gradients of what came from stages in front; 'mark': only says which these are. */
static void send_gradients(struct laying *l, bool mark)
{
    bool *done = mem_new((size_t)l->steps->n_returns + 1, sizeof(*done));

    for (int i = 0; i < l->steps->n; i++) {
        const struct cost_step *step = &l->steps->items[i];
        int *parts = mem_new((size_t)step->n_reads + 1, sizeof(*parts));
        int n = find_parts(l, step, done, parts);

        if (n == 1)
            send_gradient(l, parts[0], mark);
        else if (n > 1 && !mark)
            send_sum(l, parts, n, step->makes[0]);
        free(parts);
    }
    for (int i = 0; i < l->steps->n_returns; i++)
        if (!done[i] && goes_back(l, &l->steps->returns[i]))
            send_gradient(l, l->steps->returns[i].value, mark);
    free(done);
}

/* What is read when the forward is done. */
static void add_results(struct laying *l)
{
    for (int v = 0; v < l->steps->n_values; v++)
        for (int k = 0; k < LAYOUTS && l->steps->values[v].result; k++) {
            int id = l->held[value_of(l, v)].id[k];

            if (id >= 0)
                *(int *)mem_push((void **)&l->results, &l->n_results, sizeof(int)) = id;
        }
    l->graph->n_outputs = l->n_results;
    l->graph->outputs = l->results;
}

static void lay(struct laying *l)
{
    l->graph = graph_new(1, DTYPE_F32);
    for (int v = 0; v < l->steps->n_values; v++)
        new_held(l, v);
    mark_values(l);
    mark_sums(l);
    send_gradients(l, true);
    add_part(l, PART_FORWARD);
    send_values(l);
    add_part(l, PART_DGRAD);
    send_gradients(l, false);
    add_part(l, PART_WGRAD);
    add_results(l);
}

static void laying_clear(struct laying *l)
{
    graph_free(l->graph);
    free(l->held);
    free(l->borders);
    free(l->results);
    free(l->seen);
}

double stage_layout_bytes(const struct cost *cost, const int *stage, int s, double samples,
                          double group, enum backward_form form, enum plan_recompute recompute,
                          int slots)
{
    struct laying l = { .cost = cost, .steps = cost->steps, .stage = stage, .s = s,
                        .samples = samples, .group = group,
                        .seen = mem_new((size_t)cost->n_blocks + 1, sizeof(int)) };
    struct autodiff borders = { 0 };
    struct program *program;
    double bytes;

    lay(&l);
    borders.n_boundaries = l.n_borders;
    borders.boundaries = l.borders;
    program = program_of_nodes(l.graph, &borders, HERE);
    if (recompute != PLAN_RECOMPUTE_NONE)
        program_recompute(program, recompute == PLAN_RECOMPUTE_SELECTIVE);
    memory_place(program, form, slots, 0);
    bytes = (double)layout_aligned(program->slot_bytes) * slots + (double)program->scratch_bytes;
    program_free(program);
    laying_clear(&l);
    return bytes;
}

/* What is prepared for blocks of other stages first, and read here, too. */
static double prepared_again(const struct cost *cost, const int *stage, int s, double samples)
{
    const struct cost_steps *steps = cost->steps;
    bool *counted = mem_new((size_t)steps->n_values, sizeof(*counted));
    double bytes = 0;

    for (int i = 0; i < steps->n; i++)
        for (int k = 0; k < steps->items[i].n_reads; k++) {
            int id = steps->items[i].reads[k];
            const struct cost_value *v = &steps->values[id];

            if (!v->prepared || counted[id] || stage[steps->items[i].block] != s)
                continue;
            counted[id] = true;
            if (stage[steps->items[v->reader].block] != s)
                bytes += (double)layout_aligned(
                    (size_t)dmin(cost_at(cost, v->bytes, v->batch_axis, samples), MOST_BYTES));
        }
    free(counted);
    return bytes;
}

static int largest_replica(const struct plan *plan, int s)
{
    const struct plan_stage *stage = &plan->stages[s];
    int largest = 0;

    for (int r = 1; r < stage->replicas; r++)
        if (stage->samples[r] > stage->samples[largest])
            largest = r;
    return largest;
}

/* Seven of them can be summed. */
static size_t whole(double bytes)
{
    return (size_t)dmin(bytes, 0x1p60);
}

/* The first listed size that is no less; n_sizes: there is none. */
static int size_at(const struct cost *cost, double samples)
{
    int i = 0;

    while (i < cost->n_sizes && (double)cost->micro_batch[i] < samples)
        i++;
    return i;
}

/* Of the kernels' scratch a part may not depend on the samples; and its parts are aligned, each by
 * itself, which the sizes that were measured do not tell of those between. It is no more than at the
 * next one of these.
 */
static double kernel_bytes(const struct cost *cost, const int *stage, int s, double samples)
{
    double most = 0;
    int next = size_at(cost, samples);

    for (int b = 0; b < cost->n_blocks; b++) {
        const struct cost_block *block = &cost->blocks[b];
        double bytes;

        if (stage[b] != s || !block->kernels)
            continue;
        bytes = cost_at(cost, block->kernels, block->batch_axis, samples);
        if (next == 0)
            bytes = block->kernels[0];
        else if (next < cost->n_sizes)
            bytes = dmin(bytes + (KERNEL_PARTS - 1) * LAYOUT_ALIGNMENT, block->kernels[next]);
        most = dmax(most, bytes);
    }
    return (double)layout_aligned((size_t)dmin(most, MOST_BYTES));
}

/* What stage_memory() is the sum of, with the arenas in place of the workspace. */
static void add_up(const struct cost *cost, const struct plan *plan, int s,
                   const struct traffic_list *traffic, const struct schedule *schedule,
                   const int *stage, struct memory_use *use)
{
    int replica = largest_replica(plan, s), versions = plan_versions(plan);
    double samples = (double)plan->stages[s].samples[replica];
    const char *optimizer = plan->optimizer && plan->optimizer[0] ? plan->optimizer : NULL;
    double state = stage_state_bytes(cost, optimizer, plan->offload);
    struct stage_arrays arrays;
    struct stage_cost sums;

    stage_cost_get(cost, stage, s, samples, &sums);
    stage_arrays_get(cost, plan, stage, s, &arrays);
    use->parameters = whole(versions * arrays.parameters);
    use->gradients = whole(stage_gradient_bytes(cost, arrays.parameters +
                                                (versions > 1 ? versions * arrays.statistics : 0)));
    use->optimizer = whole(arrays.state / PARAMETER_BYTES * state);
    use->prepared = whole(versions * (dmax(0, sums.prepared - arrays.aligning) +
                                      prepared_again(cost, stage, s, samples)));
    use->scratch = whole(stage_layout_bytes(cost, stage, s, samples,
                                            (double)plan->batchnorm_samples,
                                            schedule_backward(schedule, s),
                                            plan->stages[s].recompute,
                                            schedule->stages[s].slots));
    use->workspace = whole(dmax(kernel_bytes(cost, stage, s, samples),
                                plan->micro_batches > 1
                                    ? sum_workspace(cost, stage, s, samples) : 0));
    /* One divisor of the loss is counted with the kernels. */
    use->buffers = whole(stage_message_buffers(cost, plan, traffic, schedule, s, replica) +
                         arrays.sums + (versions - 1) * MEMORY_SCALARS);
    use->total = use->parameters + use->gradients + use->optimizer + use->prepared + use->scratch +
                 use->workspace + use->buffers;
}

/* On devices of one kind. */
static int lay_out(const struct cost *cost, const struct plan *plan, int s, struct memory_use *use,
                   struct err *err)
{
    int *stage = stage_of_blocks(plan, cost, err);
    struct traffic_list *traffic = stage ? traffic_new(cost, stage) : NULL;
    struct schedule_edge *edges;
    struct schedule *schedule;

    if (!stage)
        return -1;
    edges = mem_new((size_t)traffic->n + 1, sizeof(*edges));
    traffic_edges(cost, traffic, edges);
    schedule = plan_schedule(plan, edges, traffic->n, err);
    *use = (struct memory_use){ 0 };
    if (schedule)
        add_up(cost, plan, s, traffic, schedule, stage, use);
    schedule_free(schedule);
    free(edges);
    traffic_free(traffic);
    free(stage);
    return schedule ? 0 : -1;
}

int stage_layout_memory(void *user, const struct plan *plan, int s, struct memory_use *use,
                        struct err *err)
{
    const struct cost *cost = user;
    int bad = lay_out(cost, plan, s, use, err);

    for (int i = 0; i < cost->n_others && !bad; i++) {
        struct memory_use own;

        bad = lay_out(cost->others[i], plan, s, &own, err);
        if (!bad && own.total > use->total)
            *use = own;
    }
    return bad;
}

double stage_layout_total(const struct cost *cost, const struct plan *plan, int stage)
{
    struct memory_use use;

    return stage_layout_memory((void *)cost, plan, stage, &use, NULL) ? 0 : (double)use.total;
}
