/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/executor_private.h"
#include "train/optimizer.h"

static bool runs_here(const struct executor *e, int value)
{
    int producer = value < 0 ? -1 : e->compiled->graph->values[value].producer;

    return producer >= 0 && e->compiled->stage_of[producer] == e->compiled->stage;
}

static size_t staging_bytes(const struct compiled *c)
{
    size_t most = 0;

    for (int i = 0; i < c->program->n_inputs; i++) {
        size_t bytes = value_bytes(&c->graph->values[c->program->inputs[i]]);

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The order in which micro-batches are computed, and the last run of each tape. With two versions
 * of the weights the last forward of a list is of the batch that follows: what forwards sum up is
 * reduced where the list does so.
 */
static void read_list(struct executor *e)
{
    e->forward_micros = mem_new((size_t)micro_batches(e), sizeof(int));
    e->backward_micros = mem_new((size_t)micro_batches(e), sizeof(int));
    schedule_order(e->compiled->schedule, e->compiled->stage, true, e->forward_micros);
    schedule_order(e->compiled->schedule, e->compiled->stage, false, e->backward_micros);
    for (int i = 0; i < e->list->n; i++) {
        const struct instruction *ins = &e->list->items[i];

        if (computes(ins->kind) && ins->chunk == e->chunk)
            e->last[tape_of(ins->kind)] = i;
    }
    if (e->store.n_versions > 1)
        e->last[TAPE_F] = -1;
}

static void make_tapes(struct executor *e)
{
    const struct program *p = e->compiled->program;
    const struct program_list *lists[TAPE_COUNT] = {
        [TAPE_P] = &p->list[PART_PREPARE], [TAPE_F] = &p->list[PART_FORWARD],
        [TAPE_B] = &p->list[PART_DGRAD],   [TAPE_W] = &p->list[PART_WGRAD],
        [TAPE_BW] = &p->backward,        [TAPE_AGAIN] = &p->again,
    };

    for (int t = 0; t < TAPE_COUNT; t++)
        tape_init(&e->tapes[t], lists[t], &e->store, e->states, t == TAPE_AGAIN);
}

static bool in_scratch(const struct executor *e, int value)
{
    const struct program_value *values = e->compiled->program->values;

    return values[values[value].root].place == PLACE_SCRATCH;
}

static void find_scratch(struct executor *e)
{
    const struct program *p = e->compiled->program;

    for (int i = 0; i < p->n_inputs; i++)
        e->scratch[0] |= in_scratch(e, p->inputs[i]);
    for (int i = 0; i < e->routes.n_zero; i++)
        e->scratch[1] |= in_scratch(e, e->routes.zero[i]);
}

static int rank_of(const struct executor *e, const struct route *r)
{
    const struct placement *place = e->options.placement;

    return placement_rank(place, r->peer, place->pipeline, r->replica);
}

static bool is_direct(const struct executor *e, const struct route *r)
{
    return nccl_reaches(e->options.nccl, rank_of(e, r));
}

static size_t direct_bytes(const struct executor *e)
{
    size_t bytes = 0;

    for (int i = 0; i < e->routes.n; i++)
        if (is_direct(e, &e->routes.items[i]))
            bytes += (size_t)e->routes.items[i].depth * e->routes.items[i].bytes;
    return bytes;
}

/* NCCL's messages have no tags: are they sent in the order in which they are received? */
static int check_order(const struct executor *e, const struct route *r, struct err *err)
{
    const struct schedule *schedule = e->compiled->schedule;
    size_t n = (size_t)micro_batches(e);
    int *mine = mem_new(n, sizeof(int)), *theirs = mem_new(n, sizeof(int)), differ;

    schedule_order(schedule, e->compiled->stage, !r->gradient, mine);
    schedule_order(schedule, r->peer, !r->gradient, theirs);
    differ = memcmp(mine, theirs, n * sizeof(int)) != 0;
    free(mine);
    free(theirs);
    return differ ? err_set(err, "stages %d and %d take micro-batches in different orders, in which "
                            "NCCL cannot carry messages: --comm mpi can", e->compiled->stage,
                            r->peer)
                  : 0;
}

/* Teams of neighbouring pairs of stages do not wait for each other in nccl_connect(). */
static int use_nccl(struct executor *e, struct passage *passage, const struct route *r,
                    struct err *err)
{
    int stage = e->compiled->stage, me = comm_rank(e->options.comm);
    int from = r->send ? stage : r->peer, to = r->send ? r->peer : stage;
    int ranks[] = { r->send ? me : passage->rank, r->send ? passage->rank : me };
    int64_t key = (from < to ? from : to) % 2, n = e->options.placement->n_stages;

    key = ((2 * key + r->gradient) * n + from) * n + to;
    return check_order(e, r, err) < 0
               ? -1
               : passage_use_nccl(passage, nccl_team_new(e->options.nccl, 2, ranks, key, true),
                                  err);
}

/* Two ranks may exchange between several stages of theirs: each pair has tags of its own. */
static int make_passages(struct executor *e, struct err *err)
{
    const struct schedule *schedule = e->compiled->schedule;
    char *at = e->store.buffers, *direct = e->store.direct;

    e->passages = mem_new((size_t)e->routes.n, sizeof(*e->passages));
    for (int i = 0; i < e->routes.n; i++) {
        const struct route *r = &e->routes.items[i];
        int low = r->peer < e->compiled->stage ? r->peer : e->compiled->stage;
        int high = r->peer < e->compiled->stage ? e->compiled->stage : r->peer;
        int pair = schedule->stages[low].chunk * schedule_most_chunks(schedule) +
                   schedule->stages[high].chunk;
        char **buffers = is_direct(e, r) ? &direct : &at;

        if (passage_init(&e->passages[i], r, e->options.comm, rank_of(e, r),
                         2 * (int)micro_batches(e) * pair, &e->store, &e->lanes, *buffers,
                         e->options.passages, err) < 0)
            return -1;
        e->scratch[r->gradient] |= !r->send && e->passages[i].scratch;
        *buffers += (size_t)r->depth * r->bytes;
        if (is_direct(e, r) && use_nccl(e, &e->passages[i], r, err) < 0)
            return -1;
    }
    return 0;
}

static int check_tags(const struct executor *e, struct err *err)
{
    int chunks = schedule_most_chunks(e->compiled->schedule);
    int max = comm_max_tag(e->options.comm) / (2 * chunks * chunks);

    if (micro_batches(e) > max)
        return err_set(err, "%lld micro-batches: this MPI allows %d",
                       (long long)micro_batches(e), max);
    return 0;
}

static int make_events(struct executor *e, struct err *err)
{
    struct event **events[] = { &e->fed, &e->summed, &e->scored[0], &e->scored[1] };

    for (int i = 0; i < 2 + e->store.n_versions; i++) {
        *events[i] = e->backend->event_new(e->options.device, err);
        if (!*events[i])
            return -1;
    }
    return 0;
}

static void free_events(struct executor *e)
{
    struct event *events[] = { e->fed, e->summed, e->scored[0], e->scored[1] };

    for (int i = 0; i < 4; i++)
        if (events[i])
            e->backend->event_free(events[i]);
}

/* To all replicas of a stage; these stand together. */
static void say_sent(const struct executor *e)
{
    const struct route *r = e->routes.items;
    size_t bytes = 0;

    for (int i = 0; i < e->routes.n; i++) {
        const struct route *next = i + 1 < e->routes.n ? &r[i + 1] : NULL;

        bytes += r[i].bytes;
        if (next && next->peer == r[i].peer && next->gradient == r[i].gradient && next->send == r[i].send)
            continue;
        if (r[i].send)
            log_debug("stage %d: %zu bytes of %s go to stage %d, for each micro-batch", e->compiled->stage,
                      bytes, r[i].gradient ? "gradients" : "values", r[i].peer);
        bytes = 0;
    }
}

static int set_up(struct executor *e, struct err *err)
{
    const struct executor_options *o = &e->options;

    if (check_tags(e, err) < 0)
        return -1;
    routes_make(&e->routes, o->plan, e->compiled->stage, o->placement->replica, e->compiled);
    say_sent(e);
    if (lanes_init(&e->lanes, e->backend, o->device,
                   e->compiled->schedule->stages[e->compiled->stage].slots, err) < 0)
        return -1;
    e->stream = e->lanes.compute;
    if (stamps_init(&e->stamps, o->trace, &e->lanes, o->device, e->chunk, err) < 0)
        return -1;
    if (store_init(&e->store, e->compiled, o->placement, o->device, e->stream,
                   optimizer_states(o->optimizer.kind), o->plan->offload, o->ema > 0,
                   e->routes.bytes + e->compiled->sum_bytes - direct_bytes(e), direct_bytes(e),
                   err) < 0 ||
        store_load(&e->store, o->initial, o->seed, err) < 0)
        return -1;
    e->states = e->backend->alloc_aside(
        o->device, (size_t)(e->store.n_versions * e->store.n_slots) * sizeof(*e->states), false,
        err);
    if (!e->states)
        return -1;
    e->new_states = e->backend->alloc_aside(
        o->device, (size_t)(e->store.n_versions * micro_batches(e)) * sizeof(*e->states), true,
        err);
    if (!e->new_states)
        return -1;
    make_tapes(e);
    e->store.sums = e->store.buffers + e->routes.bytes - e->store.direct_bytes;
    find_scratch(e);
    if (make_passages(e, err) < 0)
        return -1;
    read_list(e);
    if (e->backend->separate && make_events(e, err) < 0)
        return -1;
    e->staging = e->backend->alloc_aside(o->device, staging_bytes(e->compiled), true, err);
    if (!e->staging)
        return -1;
    e->scalars = e->backend->alloc_aside(
        o->device, (size_t)(e->store.n_versions * micro_batches(e)) * 2 * sizeof(double), true, err);
    if (!e->scalars)
        return -1;
    e->sent = e->backend->alloc_aside(o->device, (size_t)e->store.n_versions * 2 * sizeof(double),
                                      true, err);
    if (!e->sent)
        return -1;
    e->has_loss = runs_here(e, e->compiled->graph->loss);
    e->has_correct = runs_here(e, e->compiled->graph->correct);
    return update_init(&e->update, &e->store, &o->optimizer, o->ema, o->plan, err);
}

struct executor *executor_new(const struct executor_options *options, struct err *err)
{
    struct executor *e = mem_new(1, sizeof(*e));

    e->options = *options;
    e->compiled = options->compiled;
    e->backend = e->compiled->backend;
    e->list = &e->compiled->schedule->lists[options->placement->list];
    e->chunk = e->compiled->schedule->stages[e->compiled->stage].chunk;
    if (set_up(e, err) < 0) {
        executor_free(e);
        return NULL;
    }
    return e;
}

/* Pieces end where a bucket becomes final, so that it is on its way while the next one runs. */
static void make_replays(struct executor *e)
{
    for (int t = TAPE_F; t < TAPE_COUNT; t++) {
        const struct tape *tape = &e->tapes[t];
        bool *ends = mem_new((size_t)tape->n, sizeof(*ends));
        bool *seen = mem_new((size_t)e->reduce.n_buckets, sizeof(*seen));

        for (int i = tape->n - 1; i >= 0; i--)
            ends[i] = reduce_writes(&e->reduce, tape->items[i].node, seen);
        replay_init(&e->replays[t], tape, ends, e->options.recorded);
        free(seen);
        free(ends);
    }
}

int executor_connect(struct executor *executor, struct err *err)
{
    const struct executor_options *o = &executor->options;
    const struct program *p = executor->compiled->program;

    if (reduce_init(&executor->reduce, o->comm, executor->compiled, o->plan, o->placement,
                    executor->store.gradients, executor->store.sums,
                    schedule_most_chunks(executor->compiled->schedule) == 1, o->deterministic,
                    err) < 0)
        return -1;
    make_replays(executor);
    if (o->nccl && reduce_use_nccl(&executor->reduce, o->nccl, executor->compiled, o->placement,
                                   schedule_most_chunks(executor->compiled->schedule) == 1,
                                   err) < 0)
        return -1;
    return executor->backend->separate
               ? reduce_use_mirror(&executor->reduce, executor->backend, o->device,
                                   &executor->lanes, p->gradient_bytes, err)
               : 0;
}

void executor_free(struct executor *executor)
{
    struct executor *e = executor;

    if (!e)
        return;
    reduce_clear(&e->reduce);
    update_clear(&e->update);
    for (int i = 0; e->passages && i < e->routes.n; i++)
        passage_clear(&e->passages[i]);
    for (int t = 0; t < TAPE_COUNT; t++) {
        replay_clear(&e->replays[t]);
        tape_clear(&e->tapes[t]);
    }
    routes_clear(&e->routes);
    store_clear(&e->store);
    free_events(e);
    stamps_clear(&e->stamps);
    lanes_clear(&e->lanes);
    if (e->new_states)
        e->backend->release_aside(e->options.device, e->new_states, true);
    free(e->passages);
    if (e->states)
        e->backend->release_aside(e->options.device, e->states, false);
    free(e->forward_micros);
    free(e->backward_micros);
    if (e->staging)
        e->backend->release_aside(e->options.device, e->staging, true);
    if (e->scalars)
        e->backend->release_aside(e->options.device, e->scalars, true);
    if (e->sent)
        e->backend->release_aside(e->options.device, e->sent, true);
    free(e);
}

struct store *executor_store(struct executor *executor)
{
    return &executor->store;
}

int executor_bind(const struct executor *executor, const struct data *data, int **tensors,
                  struct err *err)
{
    const struct program *p = executor->compiled->program;
    int *list = mem_new((size_t)p->n_inputs, sizeof(int));

    for (int i = 0; i < p->n_inputs; i++) {
        list[i] = data_bind(data, executor->compiled->graph, p->inputs[i], err);
        if (list[i] < 0) {
            free(list);
            return -1;
        }
    }
    *tensors = list;
    return 0;
}
