/* SPDX-License-Identifier: MIT */
#include "train/executor_private.h"

#include <string.h>

#include "base/err.h"

/* Messages move and buckets complete only while somebody asks. */
static int progress(struct executor *e, struct err *err)
{
    if (reduce_test(&e->reduce, err) < 0)
        return -1;
    if (e->routes.n == 0)
        return 0;
    e->turn = (e->turn + 1) % e->routes.n;
    return passage_progress(&e->passages[e->turn], err);
}

static int make_final(struct executor *e, enum tape_kind kind, const struct replay_piece *piece,
                      struct err *err)
{
    for (int i = piece->first; i < piece->first + piece->n; i++)
        if (reduce_final(&e->reduce, e->tapes[kind].items[i].node, err) < 0)
            return -1;
    return 0;
}

static int play(struct executor *e, enum tape_kind kind, int slot, bool accumulate, bool last,
                struct err *err)
{
    struct replay *replay = &e->replays[kind];

    for (int p = 0; p < replay->n; p++) {
        if (replay_run(replay, p, slot, accumulate, err) < 0 ||
            (last && make_final(e, kind, &replay->pieces[p], err) < 0) || progress(e, err) < 0)
            return -1;
    }
    return 0;
}

static int run_tape(struct executor *e, enum tape_kind kind, const struct trace_event *what,
                    int slot, bool accumulate, bool last, struct err *err)
{
    return stamps_begin(&e->stamps, TRACE_COMPUTE, err) < 0 ||
                   play(e, kind, slot, accumulate, last, err) < 0
               ? -1
               : stamps_end(&e->stamps, what, err);
}

static int prepare(struct executor *e, int version, struct err *err)
{
    const struct tape *tape = &e->tapes[TAPE_P];

    for (int i = 0; i < tape->n; i++)
        if (tape_run(tape, i, version * e->store.n_slots, false, err) < 0)
            return -1;
    return 0;
}

int executor_prepare(struct executor *executor, struct err *err)
{
    for (int v = 0; v < executor->store.n_versions; v++)
        if (prepare(executor, v, err) < 0)
            return -1;
    return executor->backend->stream_sync(executor->stream, err);
}

/* Slots are taken in turn from batch to batch, too. */
static int slot_of(const struct executor *e, const struct batch_args *args, int micro)
{
    return (int)((args->step * micro_batches(e) + micro) % e->store.n_slots);
}

/* The same as tapes and states number it. */
static int bound_slot(const struct executor *e, const struct batch_args *args, int micro)
{
    return args->version * e->store.n_slots + slot_of(e, args, micro);
}

static void touch_host(const struct executor *e, const void *memory, size_t bytes, bool writes)
{
    if (e->backend->host_touches)
        e->backend->host_touches(e->options.device, memory, bytes, writes);
}

/* Staging is one for all: there the host goes on when it is free again. */
static int feed_one(struct executor *e, const void *from, void *to, size_t bytes,
                    struct err *err)
{
    touch_host(e, from, bytes, true);
    if (e->backend->copy(e->lanes.in, to, bytes, from, bytes, bytes, 1, err) < 0)
        return -1;
    return from == e->staging ? e->backend->stream_sync(e->lanes.in, err) : 0;
}

/* NULL: all is done when it is handed over. */
static int record(struct event *event, const struct executor *e, struct err *err)
{
    return event ? e->backend->event_record(event, e->stream, err) : 0;
}

/* However long it takes: that it is done is progress, after which the next one is asked for eagerly. */
static int wait_for(struct event *event, const struct executor *e, struct err *err)
{
    bool done = false;

    if (!event)
        return 0;
    while (!done) {
        if (e->backend->event_done(event, &done, err) < 0)
            return -1;
        if (!done)
            comm_idle(e->options.comm);
    }
    return comm_asked(e->options.comm, true, err);
}

/* What was read ahead goes back when it is copied: before more of it is taken. */
static int give_back(struct executor *e, struct err *err)
{
    if (!e->lender)
        return 0;
    if (wait_for(e->fed, e, err) < 0)
        return -1;
    prefetch_release(e->lender);
    e->lender = NULL;
    return 0;
}

static int lend(struct executor *e, struct prefetch *prefetch, struct err *err)
{
    if (!e->fed) {
        prefetch_release(prefetch);
        return 0;
    }
    e->lender = prefetch;
    return e->backend->event_record(e->fed, e->lanes.in, err);
}

static int feed(struct executor *e, const struct batch_args *args, int slot,
                const struct step_state *state, struct err *err)
{
    const struct program *p = e->compiled->program;
    struct prefetch *prefetch = args->prefetch[e->chunk];
    const void *const *ready = NULL;

    if (give_back(e, err) < 0 || (prefetch && prefetch_take(prefetch, &ready, err) < 0))
        return -1;
    for (int i = 0; i < p->n_inputs; i++) {
        const struct value *v = &e->compiled->graph->values[p->inputs[i]];
        const void *from = ready ? ready[i] : e->staging;
        void *to = store_address(&e->store, p->inputs[i], slot);
        size_t bytes = value_bytes(v);
        struct data_want want;

        if (!to)
            continue;
        want = (struct data_want){ args->tensors[e->chunk][i], v->dtype, v->batch };
        if ((!ready &&
             data_gather(args->reader, &want, args->epoch, args->samples + state->first_sample,
                         state->samples, 0, state->samples, e->staging, err) < 0) ||
            feed_one(e, from, to, bytes, err) < 0)
            return -1;
    }
    return ready ? lend(e, prefetch, err) : 0;
}

static void set_state(struct executor *e, const struct batch_args *args, int micro,
                      bool training, struct step_state *state)
{
    const struct plan *plan = e->options.plan;
    const struct placement *place = e->options.placement;
    int r = plan->stages[e->compiled->stage].replicas;
    int64_t first = plan_share_start(plan->micro_batch, r, place->replica);
    int64_t end = plan_share_start(plan->micro_batch, r, place->replica + 1);

    *state = (struct step_state){
        .seed = e->options.seed, .step = args->step, .global_batch = plan->global_batch,
        .first_sample = (place->pipeline * plan->micro_batches + micro) * plan->micro_batch +
                        first,
        .samples = end - first, .weight_sum = args->weight_sum, .training = training,
    };
}

/* Everything that comes from this direction for this micro-batch. */
static int receive_all(struct executor *e, const struct batch_args *args, int micro,
                       bool gradient, bool traced, struct batch_result *result,
                       struct err *err)
{
    int slot = slot_of(e, args, micro);

    for (int i = 0; gradient && i < e->routes.n_zero; i++) {
        int value = e->routes.zero[i];

        if (e->backend->fill_zero(e->lanes.in, store_address(&e->store, value, slot),
                                  value_bytes(&e->compiled->graph->values[value]), err) < 0)
            return -1;
    }
    for (int i = 0; i < e->routes.n; i++) {
        const struct route *r = &e->routes.items[i];
        double start = trace_clock(), there, end;

        if (r->send || r->gradient != gradient)
            continue;
        if (passage_wait(&e->passages[i], *e->options.passages, err) < 0)
            return -1;
        there = trace_clock();
        if (stamps_begin(&e->stamps, TRACE_IN, err) < 0 ||
            passage_receive(&e->passages[i], micro, slot, err) < 0 ||
            stamps_end(&e->stamps, &(struct trace_event){ .kind = INSTRUCTION_RECV, .micro = micro,
                                                          .peer = r->peer, .step = args->step },
                       err) < 0)
            return -1;
        end = trace_clock();
        result->idle += there - start;
        result->receive += end - start;
        if (e->options.trace && traced)
            trace_add(e->options.trace, INSTRUCTION_RECV, micro, r->peer, args->step, start,
                      end);
    }
    return 0;
}

static int send_all(struct executor *e, const struct batch_args *args, int micro, int peer,
                    bool gradient, struct batch_result *result, struct err *err)
{
    int slot = slot_of(e, args, micro);

    for (int i = 0; i < e->routes.n; i++) {
        const struct route *r = &e->routes.items[i];
        double start = trace_clock(), there;

        if (!r->send || r->gradient != gradient || (peer >= 0 && r->peer != peer))
            continue;
        if (passage_wait(&e->passages[i], *e->options.passages, err) < 0)
            return -1;
        there = trace_clock();
        if (lanes_begin_leaving(&e->lanes, err) < 0 ||
            stamps_begin(&e->stamps, TRACE_OUT, err) < 0 ||
            passage_send(&e->passages[i], micro, slot, e->stamps.on ? args->step : -1, err) < 0 ||
            stamps_end(&e->stamps, &(struct trace_event){ .kind = INSTRUCTION_SEND, .micro = micro,
                                                          .peer = r->peer, .step = args->step },
                       err) < 0)
            return -1;
        result->idle += there - start;
        result->send += trace_clock() - start;
    }
    return 0;
}

static int read_scalar(struct executor *e, int value, int slot, int at, struct err *err)
{
    size_t bytes = dtype_size(e->compiled->graph->real);
    char *to = e->scalars + (size_t)at * sizeof(double);

    if (e->backend->forget)
        e->backend->forget(e->stream, to, bytes);
    return e->backend->copy(e->stream, to, bytes, store_address(&e->store, value, slot), bytes,
                            bytes, 1, err);
}

static int scalar_at(const struct executor *e, const struct batch_args *args, int micro)
{
    return 2 * (args->version * (int)micro_batches(e) + micro);
}

/* Each has a place of its own till the batch has ended: copies need not be waited for. */
static struct step_state *state_of(const struct executor *e, const struct batch_args *args,
                                   int micro)
{
    return &e->new_states[args->version * micro_batches(e) + micro];
}

static int bring_state(struct executor *e, const struct batch_args *args, int micro,
                       bool training, struct err *err)
{
    struct step_state *state = state_of(e, args, micro);

    touch_host(e, state, sizeof(*state), true);
    set_state(e, args, micro, training, state);
    return e->backend->copy(e->lanes.in, &e->states[bound_slot(e, args, micro)], sizeof(*state),
                            state, sizeof(*state), sizeof(*state), 1, err);
}

/* Nothing is left in a slot for the next micro-batch, nor in scratch from part to part. */
static void forget_slot(struct executor *e, int slot, int bound)
{
    size_t bytes = e->compiled->program->slot_bytes;

    if (!e->backend->forget)
        return;
    e->backend->forget(e->lanes.in, &e->states[bound], sizeof(e->states[bound]));
    e->backend->forget(e->lanes.in, e->store.slots + (size_t)slot * bytes, bytes);
    e->backend->forget(e->scratch[0] ? e->lanes.in : e->stream, e->store.scratch,
                       e->compiled->program->scratch_bytes);
}

static int forward(struct executor *e, const struct batch_args *args, int micro, bool training,
                   bool last, struct batch_result *result, struct err *err)
{
    const struct trace_event what = { .kind = INSTRUCTION_F, .micro = micro, .peer = -1,
                                      .step = args->step };
    bool accumulate = e->begun[args->version];
    int slot = slot_of(e, args, micro), bound = bound_slot(e, args, micro);
    int at = scalar_at(e, args, micro);
    double start;

    if (lanes_begin_arrival(&e->lanes, slot, e->scratch[0], err) < 0)
        return -1;
    forget_slot(e, slot, bound);
    if (receive_all(e, args, micro, false, training, result, err) < 0)
        return -1;
    start = trace_clock();
    e->begun[args->version] = true;
    if (bring_state(e, args, micro, training, err) < 0 ||
        feed(e, args, slot, state_of(e, args, micro), err) < 0 ||
        lanes_end_arrival(&e->lanes, err) < 0 || lanes_begin_use(&e->lanes, slot, err) < 0 ||
        run_tape(e, TAPE_F, &what, bound, accumulate, last, err) < 0)
        return -1;
    if (e->has_loss && read_scalar(e, e->compiled->graph->loss, slot, at, err) < 0)
        return -1;
    if (e->has_correct &&
        read_scalar(e, e->compiled->graph->correct, slot, at + 1, err) < 0)
        return -1;
    result->compute += trace_clock() - start;
    return record(e->scored[args->version], e, err) < 0 ? -1 : lanes_end_use(&e->lanes, slot, err);
}

static double scalar(const struct executor *e, int at)
{
    const char *from = e->scalars + (size_t)at * sizeof(double);
    float f;
    double d;

    touch_host(e, from, dtype_size(e->compiled->graph->real), false);
    if (e->compiled->graph->real == DTYPE_F32) {
        memcpy(&f, from, sizeof(f));
        return (double)f;
    }
    memcpy(&d, from, sizeof(d));
    return d;
}

void executor_begin(struct executor *executor, bool training)
{
    /* In an evaluation weights may be kept there. */
    if (training)
        store_forget_gradients(&executor->store);
    reduce_start(&executor->reduce);
    memset(executor->started, 0, sizeof(executor->started));
}

/* From the i-th place of what is sent, which the batch before last, with this version, has ended with. */
static int put_scalar(struct executor *e, int i, double value, void *to, struct err *err)
{
    size_t bytes = dtype_size(e->compiled->graph->real);
    float single = (float)value;
    char *from = e->sent + (size_t)i * sizeof(double);

    touch_host(e, from, bytes, true);
    memcpy(from, bytes == sizeof(float) ? (const void *)&single : &value, bytes);
    return e->backend->copy(e->stream, to, bytes, from, bytes, bytes, 1, err);
}

/* What it was before is of no use. */
static void forget_scalar(struct executor *e, void *scalar)
{
    if (e->backend->forget)
        e->backend->forget(e->stream, scalar, dtype_size(e->compiled->graph->real));
}

int executor_scale_loss(struct executor *executor, double factor, int version, struct err *err)
{
    struct executor *e = executor;
    int seed = e->compiled->autodiff.seed;
    void *to = seed > 0 ? store_address_at(&e->store, seed, 0, version) : NULL;

    if (!to || e->factors[version] == factor)
        return 0;
    e->factors[version] = factor;
    forget_scalar(e, to);
    return put_scalar(e, 2 * version + 1, factor, to, err);
}

int executor_start(struct executor *executor, const struct batch_args *args, bool training,
                   bool follows, struct err *err)
{
    struct executor *e = executor;
    void *to;

    e->begun[args->version] = false;
    e->stamps.on = training;
    for (int i = 0; i < e->routes.n; i++) {
        bool gradient = e->routes.items[i].gradient;

        if (gradient && !training)
            continue;
        if (passage_start(&e->passages[i], (int)micro_batches(e),
                          gradient ? e->backward_micros : e->forward_micros, follows,
                          training ? args->step : -1, err) < 0)
            return -1;
    }
    to = e->store.weight_sum + args->version * MEMORY_SCALARS;
    forget_scalar(e, to);
    return put_scalar(e, 2 * args->version, args->weight_sum, to, err);
}

int executor_reduce(struct executor *executor, const struct batch_args *args,
                    struct batch_result *result, struct err *err)
{
    struct executor *e = executor;
    double start = trace_clock();

    e->reduce.step = args->step;
    if (passage_settle_all(*e->options.passages, err) < 0 ||
        store_take_contributions(&e->store, args->version, err) < 0 ||
        reduce_wait(&e->reduce, err) < 0)
        return -1;
    result->reduce += trace_clock() - start;
    for (int i = 0; e->options.trace && i < e->reduce.n_buckets; i++) {
        const struct bucket *b = &e->reduce.buckets[i];

        if (b->group)
            trace_add(e->options.trace, INSTRUCTION_REDUCE, i, -1, args->step, b->start, b->end);
    }
    return 0;
}

static bool counts_squares(const struct executor *e)
{
    const struct placement *place = e->options.placement;

    return (place->pipeline == 0 && place->replica == 0) || e->compiled->sharded;
}

int executor_sum(struct executor *executor, struct err *err)
{
    struct executor *e = executor;

    if (!counts_squares(e))
        return 0;
    return update_sum(&e->update, &e->store, err) < 0 ? -1 : record(e->summed, e, err);
}

int executor_squares(struct executor *executor, double *squares, struct err *err)
{
    struct executor *e = executor;

    *squares = 0;
    if (!counts_squares(e))
        return 0;
    if (wait_for(e->summed, e, err) < 0)
        return -1;
    *squares = update_squares(&e->update);
    return 0;
}

int executor_first_bad(struct executor *executor, int *order, const char **name, struct err *err)
{
    return update_first_bad(&executor->update, &executor->store, order, name, err);
}

int executor_skip(struct executor *executor, struct err *err)
{
    struct executor *e = executor;

    if (e->store.n_versions == 1)
        return 0;
    return store_turn(&e->store, err) < 0 ? -1 : prepare(e, e->store.latest, err);
}

/* What parts of a tensor sum up to, a group at a time. */
static int sum_norms(struct executor *e, struct err *err)
{
    struct update *u = &e->update;
    double *shares;

    if (!e->compiled->sharded || !u->stepping.tensors)
        return 0;
    if (stepping_take(&u->stepping, err) < 0 || e->backend->stream_sync(e->stream, err) < 0)
        return -1;
    shares = stepping_shares(&u->stepping);
    for (int i = 0, end; i < u->n_ranges; i = end) {
        for (end = i + 1; end < u->n_ranges && u->ranges[end].group == u->ranges[i].group;)
            end++;
        if (reduce_numbers(&e->reduce, u->ranges[i].group, shares + i, end - i, err) < 0)
            return -1;
    }
    return stepping_put(&u->stepping, err);
}

/* Parameters that others have changed, into their place here. */
static int gather(struct executor *e, char *array, struct err *err)
{
    if (!e->compiled->sharded)
        return 0;
    if (e->backend->stream_sync(e->stream, err) < 0)
        return -1;
    return reduce_gather(&e->reduce, array, err);
}

/* All that a step writes it writes anew; LARS and LAMB read some of it before. */
static void renew_params(struct executor *e)
{
    const struct update *u = &e->update;
    const struct store *s = &e->store;
    char *const arrays[] = { s->states[0], s->states[1], s->averages };

    if (!e->backend->renew || u->args.kind == OPTIMIZER_LARS || u->args.kind == OPTIMIZER_LAMB)
        return;
    for (int i = 0; i < u->n_ranges; i++) {
        const struct update_range *r = &u->ranges[i];

        e->backend->renew(e->stream, s->params + r->param, r->bytes);
        for (size_t k = 0; k < sizeof(arrays) / sizeof(arrays[0]); k++)
            if (arrays[k])
                e->backend->renew(e->stream, arrays[k] + r->state, r->bytes);
    }
}

int executor_update(struct executor *executor, const struct update_step *step, struct err *err)
{
    struct executor *e = executor;

    if (stamps_begin(&e->stamps, TRACE_COMPUTE, err) < 0 || store_turn(&e->store, err) < 0 ||
        update_norms(&e->update, &e->store, step, err) < 0 || sum_norms(e, err) < 0)
        return -1;
    renew_params(e);
    e->reduce.step = step->batch;
    if (update_run(&e->update, &e->store, step, err) < 0 ||
        gather(e, e->store.params, err) < 0 || prepare(e, e->store.latest, err) < 0)
        return -1;
    return stamps_end(&e->stamps, &(struct trace_event){ .kind = INSTRUCTION_STEP, .peer = -1,
                                                         .step = step->batch }, err);
}

static int backward(struct executor *e, const struct batch_args *args,
                    const struct instruction *ins, bool last, struct batch_result *result,
                    struct err *err)
{
    enum tape_kind tape = tape_of(ins->kind);
    const struct trace_event what = { .kind = ins->kind, .peer = -1, .step = args->step,
                                      .micro = ins->micro % (int)micro_batches(e) };
    const struct trace_event again = { .kind = INSTRUCTION_F, .again = true, .peer = -1,
                                       .micro = what.micro, .step = args->step };
    bool accumulate = e->started[tape];
    int slot = slot_of(e, args, ins->micro), bound = bound_slot(e, args, ins->micro);
    double start;

    e->reduce.step = args->step;
    start = trace_clock();
    if (lanes_begin_use(&e->lanes, slot, err) < 0)
        return -1;
    if (tape != TAPE_W && e->backend->forget)
        e->backend->forget(e->stream, e->store.scratch, e->compiled->program->scratch_bytes);
    if (tape != TAPE_W && e->tapes[TAPE_AGAIN].n > 0 &&
        run_tape(e, TAPE_AGAIN, &again, bound, false, false, err) < 0)
        return -1;
    result->compute += trace_clock() - start;
    if (tape != TAPE_W &&
        (lanes_begin_arrival(&e->lanes, slot, e->scratch[1], err) < 0 ||
         receive_all(e, args, ins->micro, true, true, result, err) < 0 ||
         lanes_end_arrival(&e->lanes, err) < 0))
        return -1;
    start = trace_clock();
    e->started[tape] = true;
    if (run_tape(e, tape, &what, bound, accumulate, last, err) < 0)
        return -1;
    result->compute += trace_clock() - start;
    return lanes_end_use(&e->lanes, slot, err);
}

int executor_run(struct executor *executor, const struct batch_args *args, int index,
                 struct batch_result *result, struct err *err)
{
    struct executor *e = executor;
    const struct instruction *ins = &e->list->items[index];
    int micro = ins->micro % (int)micro_batches(e);

    switch (ins->kind) {
    case INSTRUCTION_F:
        return forward(e, args, micro, true, index == e->last[TAPE_F], result, err);
    case INSTRUCTION_SEND:
        return send_all(e, args, micro, ins->peer, ins->gradient, result, err);
    case INSTRUCTION_RECV:      /* posted by the passages, completed by F and B */
        return progress(e, err);
    default:
        return backward(e, args, ins, index == e->last[tape_of(ins->kind)], result, err);
    }
}

int executor_evaluate(struct executor *executor, const struct batch_args *args, int micro,
                      struct batch_result *result, struct err *err)
{
    if (forward(executor, args, micro, false, false, result, err) < 0)
        return -1;
    return send_all(executor, args, micro, -1, false, result, err);
}

int executor_finish(struct executor *executor, const struct batch_args *args,
                    struct batch_result *result, struct err *err)
{
    struct executor *e = executor;

    if (passage_settle_all(*e->options.passages, err) < 0 ||
        wait_for(e->scored[args->version], e, err) < 0 || give_back(e, err) < 0 ||
        stamps_read(&e->stamps, err) < 0)
        return -1;
    for (int m = 0; m < micro_batches(e); m++) {
        result->loss += e->has_loss ? scalar(e, scalar_at(e, args, m)) : 0;
        result->correct += e->has_correct ? scalar(e, scalar_at(e, args, m) + 1) : 0;
    }
    return 0;
}

int executor_loss(struct executor *executor, const struct batch_args *args, double *loss,
                  struct err *err)
{
    const struct executor *e = executor;

    *loss = 0;
    if (!e->has_loss)
        return 0;
    if (wait_for(e->scored[args->version], e, err) < 0)
        return -1;
    for (int m = 0; m < micro_batches(e); m++)
        *loss += scalar(e, scalar_at(e, args, m));
    return 0;
}

int executor_average(struct executor *executor, bool averages, struct err *err)
{
    struct executor *e = executor;
    int bad = averages ? update_borrow(&e->update, &e->store, err)
                       : update_return(&e->update, &e->store, err);

    e->reduce.step = -1;
    if (bad || gather(e, e->store.params, err) < 0)
        return -1;
    return executor_prepare(e, err);
}

int executor_gather_gradients(struct executor *executor, struct err *err)
{
    executor->reduce.step = -1;
    return gather(executor, executor->store.gradients, err);
}

int executor_drain(struct executor *executor, struct err *err)
{
    for (int i = 0; i < executor->routes.n; i++)
        if (passage_drain(&executor->passages[i], err) < 0)
            return -1;
    return executor->backend->stream_sync(executor->stream, err);
}
