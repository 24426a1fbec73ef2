/* SPDX-License-Identifier: MIT */
#include "scheduler/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/simulate_private.h"
#include "scheduler/stage_layout.h"

void sim_add_event(struct sim *sim, int worker, const struct instruction *instruction,
                   double start, double end)
{
    const struct worker *w = &sim->workers[worker];
    struct simulated_event *e;

    e = mem_push((void **)&sim->events, &sim->n_events, sizeof(*e));
    *e = (struct simulated_event){ worker, w->parts[instruction->chunk].stage, w->pipeline,
                                   w->replica, *instruction, start, end };
}

/* Is the iteration that the worker is in the one whose times are given? */
static bool is_measured(const struct sim *sim, const struct worker *w)
{
    return !sim->once || w->steps == SIM_MEASURED;
}

static const struct instruction_list *list_of(const struct sim *sim, const struct worker *w)
{
    return &sim->schedule->lists[w->list];
}

static bool have_arrived(const struct part *part, const struct instruction *i, bool gradient)
{
    return part->arrived[gradient][i->micro] == part->in[gradient].n;
}

/* All replicas of the other stage take one more. */
static bool may_send(const struct sim *sim, const struct part *part, const struct instruction *i)
{
    const struct id_list *out = &part->out[i->gradient];

    for (int k = 0; k < out->n; k++) {
        const struct channel *c = &sim->channels[out->items[k]];

        if (c->to_stage == i->peer && c->sent - c->done >= c->most)
            return false;
    }
    return true;
}

static bool has_worker(const struct group *g, int worker)
{
    for (int k = 0; k < g->workers.n; k++)
        if (g->workers.items[k] == worker)
            return true;
    return false;
}

/* The groups of the stages come first. */
static bool reduced(const struct sim *sim, int worker)
{
    const struct worker *w = &sim->workers[worker];

    for (int c = 0; c < w->n_parts; c++)
        if (!group_done(&sim->groups[w->parts[c].stage], w->steps + 1))
            return false;
    for (int i = sim->plan->n_stages; i < sim->n_groups; i++)
        if (!group_done(&sim->groups[i], w->steps + 1) && has_worker(&sim->groups[i], worker))
            return false;
    return true;
}

static bool may_run(const struct sim *sim, int id, const struct instruction *i)
{
    const struct part *part = &sim->workers[id].parts[i->chunk];

    switch (i->kind) {
    case INSTRUCTION_F:
        return have_arrived(part, i, false);
    case INSTRUCTION_B:
    case INSTRUCTION_BW:
        return have_arrived(part, i, true);
    case INSTRUCTION_SEND:
        return may_send(sim, part, i);
    case INSTRUCTION_REDUCE:
        return reduced(sim, id);
    default:
        return true;
    }
}

/* Seconds of the next piece of the last backward: one block, from the last to the first. */
static double piece_seconds(const struct sim *sim, const struct part *part, bool merged)
{
    const struct id_list *blocks = &sim->blocks[part->stage];
    const struct cost *cost = part->kind;
    const struct cost_block *b = &cost->blocks[blocks->items[blocks->n - 1 - part->pieces]];
    double n = (double)part->samples;
    double seconds = b->wgrad ? cost_at(cost, b->wgrad, b->batch_axis, n) : 0, saved = 0;

    if (merged && part->recompute == PLAN_RECOMPUTE_FULL)
        seconds += cost_at(cost, b->forward, b->batch_axis, n);
    else if (merged && part->recompute == PLAN_RECOMPUTE_SELECTIVE)
        block_selective(cost, b, n, &seconds, &saved);
    return merged ? seconds + cost_at(cost, b->dgrad, b->batch_axis, n) : seconds;
}

static double step_seconds(const struct worker *w)
{
    double seconds = 0;

    for (int c = 0; c < w->n_parts; c++)
        seconds += w->parts[c].cost.step;
    return seconds;
}

static double compute_seconds(const struct sim *sim, const struct worker *w,
                              const struct instruction *i)
{
    const struct part *part = &w->parts[i->chunk];
    bool merged = i->kind == INSTRUCTION_BW;

    switch (i->kind) {
    case INSTRUCTION_F:
        return part->cost.forward;
    case INSTRUCTION_B:
        return part->cost.dgrad;
    case INSTRUCTION_STEP:
        return step_seconds(w);
    default:
        if (w->next == part->last_backward)
            return piece_seconds(sim, part, merged);
        return merged ? part->cost.dgrad + part->cost.wgrad : part->cost.wgrad;
    }
}

static void message(struct sim *sim, const struct worker *w, const struct instruction *i)
{
    bool send = i->kind == INSTRUCTION_SEND;
    const struct part *part = &w->parts[i->chunk];
    const struct id_list *list = send ? &part->out[i->gradient] : &part->in[i->gradient];

    for (int k = 0; k < list->n; k++) {
        const struct channel *c = &sim->channels[list->items[k]];

        if ((send ? c->to_stage : c->from_stage) != i->peer)
            continue;
        if (send)
            channel_send(sim, list->items[k], i->micro);
        else
            channel_post(sim, list->items[k]);
    }
}

/* When the first of its parts began to be reduced. */
static double reduce_start(const struct sim *sim, const struct worker *w)
{
    double first = sim->now;

    for (int c = 0; c < w->n_parts; c++) {
        double start = sim->groups[w->parts[c].stage].start;

        first = start > 0 && start < first ? start : first;
    }
    return first;
}

/* Busy threads share the cores of their node. */
static double pace_of(const struct sim *sim, const struct worker *w)
{
    int cores = sim->cluster->places[w->node].cores, busy = sim->node_threads[w->node];
    double pace = cores && busy > cores && w->threads ? (double)cores / busy : 1;

    if (w->reductions)
        pace *= sim->cluster->sum_overlap;
    if (w->sending)
        pace *= sim->cluster->send_overlap;
    return w->receiving ? pace * sim->cluster->receive_overlap : pace;
}

/* At a pace of 0 it goes on later. */
static void set_end(struct sim *sim, int worker)
{
    const struct worker *w = &sim->workers[worker];

    timers_set(&sim->timers, worker, w->left > 0 ? sim->now + w->left / w->rate : sim->now);
}

void worker_pace(struct sim *sim, int worker)
{
    struct worker *w = &sim->workers[worker];
    double pace = pace_of(sim, w);

    if (!w->computing || (pace <= w->rate && pace >= w->rate))
        return;
    w->left = dmax(w->left - (sim->now - w->since) * w->rate, 0);
    w->since = sim->now;
    w->rate = pace;
    set_end(sim, worker);
}

/* One worker more or less computes on a node. */
static void change_threads(struct sim *sim, int node, int change)
{
    const struct id_list *workers = &sim->node_workers[node];

    if (!change)
        return;
    sim->node_threads[node] += change;
    for (int i = 0; sim->cluster->places[node].cores && i < workers->n; i++)
        worker_pace(sim, workers->items[i]);
}

static void compute(struct sim *sim, int id, double seconds)
{
    struct worker *w = &sim->workers[id];

    w->left = sim->jitter > 0 ? seconds * (1 + sim->jitter * erand48(sim->seed)) : seconds;
    w->since = sim->now;
    w->rate = pace_of(sim, w);
    set_end(sim, id);
}

/* Run what can be run at once; stop at a computation or where something is missing. */
static void advance_worker(struct sim *sim, int id)
{
    struct worker *w = &sim->workers[id];
    const struct instruction_list *list = list_of(sim, w);

    w->check = false;
    while (!w->computing && w->next < list->n) {
        const struct instruction *i = &list->items[w->next];

        if (i->kind == INSTRUCTION_REDUCE && !w->reducing) {
            w->reducing = true;
            w->waiting = sim->now;
            groups_start(sim);
        }
        if (!may_run(sim, id, i))
            return;
        if (i->kind == INSTRUCTION_SEND || i->kind == INSTRUCTION_RECV) {
            message(sim, w, i);
            w->next++;
        } else if (i->kind == INSTRUCTION_REDUCE) {
            sim_record(sim, id, i, reduce_start(sim, w), sim->now);
            if (is_measured(sim, w))
                w->reduced = sim->now - w->waiting;
            w->next++;
        } else {
            w->computing = true;
            w->start = sim->now;
            change_threads(sim, w->node, w->threads);
            compute(sim, id, compute_seconds(sim, w, i));
        }
    }
}

/* STEP is of all parts. */
static void count_busy(struct worker *w, const struct instruction *i, double seconds)
{
    double all = i->kind == INSTRUCTION_STEP ? step_seconds(w) : 0;

    w->busy += seconds;
    if (i->kind != INSTRUCTION_STEP)
        w->parts[i->chunk].busy += seconds;
    else
        for (int c = 0; c < w->n_parts; c++)
            w->parts[c].busy += all > 0 ? seconds * w->parts[c].cost.step / all : 0;
}

static void end_iteration(struct sim *sim, struct worker *w)
{
    w->stepped[w->steps++] = sim->now;
    sim->measured |= w->steps == SIM_MEASURED;
    w->reducing = false;
    for (int c = 0; c < w->n_parts; c++) {
        w->parts[c].pieces = 0;
        w->parts[c].last_backward = sim_last_backward(list_of(sim, w), c, w->next + 1);
    }
}

/* The end of a computation, or of one piece of the last backward. */
static void finish(struct sim *sim, int id)
{
    struct worker *w = &sim->workers[id];
    const struct instruction *i = &list_of(sim, w)->items[w->next];
    struct part *part = &w->parts[i->chunk];
    bool last = w->next == part->last_backward;

    if (last && ++part->pieces < sim->blocks[part->stage].n) {
        compute(sim, id, piece_seconds(sim, part, i->kind == INSTRUCTION_BW));
    } else {
        sim_record(sim, id, i, w->start, sim->now);
        if (is_measured(sim, w))
            count_busy(w, i, sim->now - w->start);
        if (i->kind == INSTRUCTION_STEP)
            end_iteration(sim, w);
        w->computing = false;
        w->next++;
        change_threads(sim, w->node, -w->threads);
        worker_check(sim, id);
    }
    if (last)
        group_start(sim, part->stage);
}

static int deadlock(const struct sim *sim, struct err *err)
{
    for (int i = 0; i < sim->n_workers; i++) {
        const struct worker *w = &sim->workers[i];

        if (w->next < list_of(sim, w)->n)
            return err_set(err, "simulation: stage %d, replica %d waits for ever at "
                           "instruction %d", w->parts[0].stage, w->replica, w->next);
    }
    return 0;
}

static void advance_all(struct sim *sim)
{
    while (sim->n_checks) {
        int id = sim->checks[sim->first_check];

        sim->first_check = sim->first_check + 1 < sim->n_workers ? sim->first_check + 1 : 0;
        sim->n_checks--;
        advance_worker(sim, id);
    }
}

/* From update to update, of the worker that needs longest: all come to keep to its pace. */
static double steady_seconds(const struct sim *sim)
{
    double most = 0;

    for (int i = 0; i < sim->n_workers; i++) {
        const double *stepped = sim->workers[i].stepped;

        most = dmax(most, stepped[SIM_MEASURED] - stepped[SIM_MEASURED - 1]);
    }
    return most;
}

static int sim_run(struct sim *sim, struct err *err)
{
    for (;;) {
        double now;

        advance_all(sim);
        now = timers_first(&sim->timers);
        if (!isfinite(now)) {
            sim->seconds = sim->once ? steady_seconds(sim) : sim->now;
            return deadlock(sim, err);
        }
        if (now > sim->limit && !sim->once) {
            sim->seconds = INFINITY;
            return 0;
        }
        sim->now = now;
        while (timers_first(&sim->timers) <= now) {
            int id = timers_take(&sim->timers);

            if (id < sim->n_workers)
                finish(sim, id);
            else
                flow_timer(sim, id - sim->n_workers);
        }
    }
}

/* Of each stage as the plan says, else by the steps of the cost file; 0: nothing says it. */
static double *known_memory(const struct sim *sim)
{
    double *bytes = mem_new((size_t)sim->plan->n_stages, sizeof(*bytes));

    for (int k = 0; k < sim->plan->n_stages; k++) {
        bytes[k] = sim->plan->stages[k].memory;
        if (bytes[k] <= 0 && sim->cost->steps)
            bytes[k] = stage_layout_total(sim->cost, sim->plan, k);
    }
    return bytes;
}

/* All stages of a device: what is 'known' of them, else the sums of the cost file. */
static double memory_of(const struct sim *sim, const struct traffic_list *traffic,
                        const int *slots_of, const double *known, const struct worker *w,
                        double state)
{
    double bytes = 0;

    for (int c = 0; c < w->n_parts; c++) {
        const struct part *part = &w->parts[c];
        const struct plan_stage *stage = &sim->plan->stages[part->stage];
        int copies = sim->plan->pipelines * stage->replicas;
        double samples = (double)part->samples;
        struct stage_cost cost;
        int slots = slots_of[part->stage];

        if (known[part->stage] > 0) {
            bytes += known[part->stage];
            continue;
        }
        stage_cost_get(sim->cost, sim->stage, part->stage, samples, &cost);
        stage_backward(&cost, schedule_backward(sim->schedule, part->stage), part->recompute,
                       slots);
        bytes += stage_memory(sim->cost, &cost, slots, plan_versions(sim->plan),
                              sim->plan->zero ? state / copies : state) +
                 traffic_buffer_bytes(sim->cost, traffic, part->stage, samples,
                                      sim->plan->micro_batches, slots_of) +
                 stage_sum_bytes(stage_gradient_bytes(sim->cost, cost.parameters),
                                 sim->cost->message_buffers, copies);
    }
    return bytes;
}

static bool has_the_same(const struct worker *a, const struct worker *b)
{
    for (int c = 0; a->list == b->list && c < a->n_parts; c++)
        if (a->parts[c].samples != b->parts[c].samples)
            return false;
    return a->list == b->list;
}

/* Of several iterations keep what happens within the time of one, from the first update before
 * that on.
 */
static void cut_out(struct sim *sim)
{
    double start = INFINITY, end;
    int n = 0;

    for (int i = 0; i < sim->n_workers; i++)
        start = dmin(start, sim->workers[i].stepped[SIM_MEASURED - 1]);
    end = start + sim->seconds;
    for (int i = 0; i < sim->n_events; i++) {
        struct simulated_event e = sim->events[i];

        if (e.end <= start || e.start >= end)
            continue;
        e.start = dmax(e.start, start) - start;
        e.end = dmin(e.end, end) - start;
        e.instruction.micro %= sim->once->micro_batches;
        sim->events[n++] = e;
    }
    sim->n_events = n;
    for (int i = 0; i < 2 * sim->cluster->n_places; i++)
        sim->moved[i] /= SIM_ITERATIONS;
}

static void take_workers(const struct sim *sim, struct simulation *result)
{
    size_t n = (size_t)sim->n_workers;
    const struct plan *plan = sim->plan;
    double state = stage_state_bytes(sim->cost, plan->optimizer && plan->optimizer[0]
                                                    ? plan->optimizer : NULL, plan->offload);
    struct traffic_list *traffic = traffic_new(sim->cost, sim->stage);
    int *slots = mem_new((size_t)sim->schedule->n_stages, sizeof(*slots));
    double *known = known_memory(sim);

    for (int k = 0; k < sim->schedule->n_stages; k++)
        slots[k] = sim->schedule->stages[k].slots;
    result->n_workers = sim->n_workers;
    result->busy = mem_new(n, sizeof(double));
    result->reducing = mem_new(n, sizeof(double));
    result->memory = mem_new(n, sizeof(double));
    result->devices = mem_new(n, sizeof(int));
    for (int i = 0; i < sim->n_workers; i++) {
        const struct worker *w = &sim->workers[i];

        result->busy[i] = w->busy;
        result->reducing[i] = w->reduced;
        result->memory[i] = i && has_the_same(w, w - 1)
                                ? result->memory[i - 1]
                                : memory_of(sim, traffic, slots, known, w, state);
        result->devices[i] = w->device;
    }
    traffic_free(traffic);
    free(known);
    free(slots);
}

struct simulation *simulate(const struct plan *plan, const struct cost *cost,
                            const struct cluster *cluster,
                            const struct simulated_jitter *jitter, struct err *err)
{
    struct sim *sim = sim_new(plan, cost, cluster, true, INFINITY, err);
    struct simulation *result;

    if (sim && jitter) {
        sim->jitter = jitter->share;
        memcpy(sim->seed, &jitter->seed, sizeof(jitter->seed));
    }
    if (!sim || sim_run(sim, err)) {
        sim_free(sim);
        return NULL;
    }
    if (sim->once)
        cut_out(sim);
    sim_sort_events(sim);
    result = mem_new(1, sizeof(*result));
    result->iteration_seconds = sim->seconds;
    result->n_events = sim->n_events;
    result->events = sim->events;
    take_workers(sim, result);
    result->schedule = schedule_copy(sim->once ? sim->once : sim->schedule);
    result->moved = sim->moved;
    sim->events = NULL;
    sim->moved = NULL;
    sim_free(sim);
    return result;
}

double simulate_within(double limit, const struct plan *plan, const struct cost *cost,
                       const struct cluster *cluster, struct err *err)
{
    struct sim *sim = sim_new(plan, cost, cluster, false, limit, err);
    double seconds = -1;

    if (sim && (isinf(sim->seconds) || sim_run(sim, err) == 0))
        seconds = sim->seconds;
    sim_free(sim);
    return seconds;
}

double simulate_seconds(const struct plan *plan, const struct cost *cost,
                        const struct cluster *cluster, struct err *err)
{
    return simulate_within(INFINITY, plan, cost, cluster, err);
}

int simulate_forecast(struct plan *plan, const struct cost *cost, const struct cluster *cluster,
                      struct err *err)
{
    struct sim *sim = sim_new(plan, cost, cluster, false, INFINITY, err);
    int bad = sim ? sim_run(sim, err) : -1;

    for (int i = 0; i < plan->n_stages; i++)
        plan->stages[i].busy = plan->stages[i].reducing = plan->stages[i].idle =
            plan->stages[i].busiest = 0;
    for (int i = 0; !bad && i < sim->n_workers; i++) {
        const struct worker *w = &sim->workers[i];
        double idle = dmax(sim->seconds - w->busy - w->reduced, 0) / w->n_parts;

        for (int c = 0; c < w->n_parts; c++) {
            struct plan_stage *stage = &plan->stages[w->parts[c].stage];
            double replicas = stage->replicas * plan->pipelines / sim->copies;

            stage->busy += w->parts[c].busy / replicas;
            stage->busiest = dmax(stage->busiest, w->parts[c].busy);
            stage->reducing += w->reduced / w->n_parts / replicas;
            stage->idle += idle / replicas;
        }
    }
    if (!bad)
        plan->iteration_seconds = sim->seconds;
    sim_free(sim);
    return bad;
}

void simulation_free(struct simulation *simulation)
{
    if (!simulation)
        return;
    free(simulation->events);
    free(simulation->busy);
    free(simulation->reducing);
    free(simulation->memory);
    free(simulation->devices);
    free(simulation->moved);
    schedule_free(simulation->schedule);
    free(simulation);
}
