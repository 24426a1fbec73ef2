/* SPDX-License-Identifier: MIT */
#include "train/runner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/ties.h"

struct runner {
    struct runner_options options;
    const struct instruction_list *list;
    int n;
    struct executor **executors;        /* of the chunks */
    struct ties *ties;                  /* NULL where the list has one chunk */
    struct comm_group *everybody;       /* who sums up squares and loss; NULL: this rank alone */
    struct comm_request *clipping;
    struct guard guard;
    struct loss_scale scale;
    struct passage *passages;           /* of all chunks */
    bool flows;                         /* forwards of the next step were run in the last one */
    uint64_t random;
};

struct runner *runner_new(const struct runner_options *options, struct err *err)
{
    struct runner *r = mem_new(1, sizeof(*r));
    struct executor_options chunk = options->executor;

    r->options = *options;
    r->guard = options->guard;
    r->scale = options->scale;
    chunk.passages = &r->passages;
    r->list = &options->compiled[0]->schedule->lists[chunk.placement->list];
    r->random = options->delay_seed * 2654435761u + (uint64_t)comm_rank(chunk.comm) + 1;
    r->executors = mem_new((size_t)options->n_chunks, sizeof(struct executor *));
    for (int c = 0; c < options->n_chunks; c++) {
        chunk.compiled = options->compiled[c];
        r->executors[r->n] = executor_new(&chunk, err);
        if (!r->executors[r->n++]) {
            runner_free(r);
            return NULL;
        }
    }
    return r;
}

static bool needs_sums(const struct runner *r)
{
    return r->options.clip > 0 || r->scale.factor > 0 || guard_shares(&r->guard);
}

int runner_connect(struct runner *runner, struct err *err)
{
    struct runner *r = runner;
    const struct placement *place = r->options.executor.placement;
    struct comm *comm = r->options.executor.comm;
    int *ranks, n = 0;

    for (int c = 0; c < r->n; c++)
        if (executor_connect(r->executors[c], err) < 0)
            return -1;
    r->ties = ties_new(comm, r->options.executor.plan, place, r->n, r->executors,
                       r->options.executor.deterministic, err);
    if (!r->ties)
        return -1;
    if (!needs_sums(r) || place->n_ranks < 2)
        return 0;
    ranks = mem_new((size_t)place->first[place->n_stages], sizeof(*ranks));
    n = placement_ranks(place, ranks);
    r->everybody = comm_group_new(comm, n, ranks, err);
    r->clipping = comm_request_new(comm);
    free(ranks);
    return r->everybody ? 0 : -1;
}

void runner_free(struct runner *runner)
{
    struct runner *r = runner;

    if (!r)
        return;
    if (r->clipping)
        comm_request_free(r->clipping);
    if (r->everybody)
        comm_group_free(r->everybody);
    ties_free(r->ties);
    for (int c = 0; c < r->n; c++)
        executor_free(r->executors[c]);
    free(r->executors);
    free(r);
}

struct executor *runner_executor(struct runner *runner, int c)
{
    return runner->executors[c];
}

static void delay(struct runner *r)
{
    struct timespec wait = { 0, 0 };
    uint64_t us;

    if (r->options.delay_max <= 0)
        return;
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    us = (r->random >> 33) % (uint64_t)r->options.delay_max;
    wait.tv_sec = (time_t)(us / 1000000);
    wait.tv_nsec = (long)(us % 1000000) * 1000;
    nanosleep(&wait, NULL);
}

/* The first bad gradient here, in the order in which they became final. */
static int name_gradient(struct runner *r, struct guard_find *find, struct err *err)
{
    for (int c = r->n - 1; c >= 0; c--) {
        const char *name;
        int order;

        if (executor_first_bad(r->executors[c], &order, &name, err) < 0)
            return -1;
        if (order < 0)
            continue;
        find->stage = r->options.compiled[c]->stage;
        find->order = order;
        snprintf(find->tensor, sizeof(find->tensor), "%s", name);
        return 0;
    }
    return 0;
}

/* What this rank has of the sums over all: squares of gradients, of which for each stage one
 * replica speaks, and the loss.
 */
static int sum_here(struct runner *r, const struct batch_args *args, double sums[2],
                    struct err *err)
{
    double squares, loss, inverse = loss_scale_inverse(&r->scale);

    sums[0] = sums[1] = 0;
    for (int c = 0; c < r->n; c++) {
        if (executor_squares(r->executors[c], &squares, err) < 0 ||
            executor_loss(r->executors[c], args, &loss, err) < 0)
            return -1;
        sums[0] += squares * inverse * inverse;
        sums[1] += loss;
    }
    return 0;
}

/* What is bad in what this rank has of them. */
static int find_bad(struct runner *r, int64_t step, const double sums[2], struct err *err)
{
    struct guard_find *find = guard_begin(&r->guard, step);

    if (!isfinite(sums[1]))
        find->cause = GUARD_LOSS;
    if (isfinite(sums[0]))
        return 0;
    find->cause = GUARD_GRADIENT;
    return name_gradient(r, find, err);
}

static int sum_up(struct runner *r, double sums[2], struct batch_result *result, struct err *err)
{
    double start = trace_clock();

    if (r->everybody &&
        (comm_allreduce(r->everybody, sums, 2, DTYPE_F64, true, r->clipping, err) < 0 ||
         comm_wait(r->clipping, err) < 0))
        return -1;
    result->reduce += trace_clock() - start;
    return 0;
}

static bool is_first(const struct runner *r)
{
    const struct placement *place = r->options.executor.placement;

    return place->stage == 0 && place->pipeline == 0 && place->replica == 0;
}

/* What gradients are multiplied by is that of PyTorch's clip_grad_norm_(). */
static double clip(const struct runner *r, double squares, double *norm)
{
    double factor = r->options.clip / (sqrt(squares) + 1e-6);

    if (r->options.clip <= 0)
        return 1;
    if (is_first(r))
        *norm = sqrt(squares);
    return factor < 1 ? factor : 1;
}

/* Have gradients overflowed? A loss that is not finite itself is no matter of what it is scaled by. */
static bool overflows(struct runner *r, const double sums[2], struct batch_result *result)
{
    double factor = r->scale.factor;
    bool skip = factor > 0 && isfinite(sums[1]) &&
                loss_scale_judge(&r->scale, isfinite(sums[0]) != 0);

    if (is_first(r)) {
        result->loss_scale = factor;
        result->skipped = skip;
    }
    return skip;
}

static bool looks(const struct runner *r)
{
    return r->guard.policy != GUARD_IGNORE || needs_sums(r);
}

static int sum_all(struct runner *r, struct err *err)
{
    for (int c = 0; c < r->n && looks(r); c++)
        if (executor_sum(r->executors[c], err) < 0)
            return -1;
    return 0;
}

/* What no step depends on is looked at when the update has been handed over. */
static int look_back(struct runner *r, const struct batch_args *args, struct batch_result *result,
                     struct err *err)
{
    double here[2];

    if (!looks(r) || needs_sums(r))
        return 0;
    if (sum_here(r, args, here, err) < 0 || find_bad(r, args->step, here, err) < 0)
        return -1;
    result->bad = guard_found(&r->guard, args->step) != NULL;
    return 0;
}

/* Before the step: what gradients are multiplied by, and whether it is not to be taken, which all
 * ranks find alike.
 */
static int weigh(struct runner *r, const struct batch_args *args, struct batch_result *result,
                 double *scale, bool *skip, struct err *err)
{
    double here[2], sums[2], start = trace_clock();
    bool ignores = r->guard.policy == GUARD_IGNORE;

    *scale = loss_scale_inverse(&r->scale);
    *skip = false;
    if (sum_all(r, err) < 0)
        return -1;
    if (!needs_sums(r))
        return 0;
    if (sum_here(r, args, here, err) < 0)
        return -1;
    memcpy(sums, here, sizeof(sums));
    result->compute += trace_clock() - start;
    if (sum_up(r, sums, result, err) < 0)
        return -1;
    *scale *= clip(r, sums[0], &result->norm);
    *skip = overflows(r, sums, result);
    if (*skip)
        return 0;
    if (!ignores && find_bad(r, args->step, here, err) < 0)
        return -1;
    *skip = !ignores && guard_judge(&r->guard, args->step, sums[0], sums[1]);
    result->bad = guard_found(&r->guard, args->step) != NULL;
    return 0;
}

static int update(struct runner *r, const struct batch_args *args, struct batch_result *result,
                  struct err *err)
{
    struct update_step step = { .step = args->step - r->scale.skipped, .batch = args->step,
                                .rate = args->rate };
    double start;
    bool skip;

    if (weigh(r, args, result, &step.g_scale, &skip, err) < 0)
        return -1;
    start = trace_clock();
    for (int c = 0; c < r->n; c++)
        if ((skip ? executor_skip(r->executors[c], err)
                  : executor_update(r->executors[c], &step, err)) < 0)
            return -1;
    result->compute += trace_clock() - start;
    return 0;
}

struct loss_scale runner_loss_scale(const struct runner *runner)
{
    return runner->scale;
}

const struct guard_find *runner_found(const struct runner *runner, int64_t step)
{
    return guard_found(&runner->guard, step);
}

static int reduce(struct runner *r, const struct batch_args *args, struct batch_result *result,
                  struct err *err)
{
    double start;

    for (int c = 0; c < r->n; c++)
        if (executor_reduce(r->executors[c], args, result, err) < 0)
            return -1;
    start = trace_clock();
    if (ties_sum(r->ties, err) < 0)
        return -1;
    result->reduce += trace_clock() - start;
    return 0;
}

static int run_instruction(struct runner *r, const struct batch_args *args, int index,
                           struct batch_result *result, struct err *err)
{
    const struct instruction *ins = &r->list->items[index];

    switch (ins->kind) {
    case INSTRUCTION_REDUCE:
        return reduce(r, args, result, err);
    case INSTRUCTION_STEP:
        return update(r, args, result, err);
    default:
        return executor_run(r->executors[ins->chunk], args, index, result, err);
    }
}

static bool is_whole(const struct instruction *ins)
{
    return ins->kind == INSTRUCTION_REDUCE || ins->kind == INSTRUCTION_STEP;
}

/* A range of its own, for profilers. */
static int run_ranged(struct runner *r, const struct batch_args *args, int index, int micro,
                      struct batch_result *result, struct err *err)
{
    const struct instruction *ins = &r->list->items[index];
    const struct backend *backend = r->options.compiled[0]->backend;
    struct device *device = r->options.executor.device;
    char name[32];
    int bad;

    if (!backend->range_push)
        return run_instruction(r, args, index, result, err);
    snprintf(name, sizeof(name), is_whole(ins) ? "%s" : "%s %d", instruction_name(ins->kind), micro);
    backend->range_push(device, name);
    bad = run_instruction(r, args, index, result, err);
    backend->range_pop(device);
    return bad;
}

static void begin(struct runner *r, bool training, struct batch_result *result)
{
    *result = (struct batch_result){ 0 };
    for (int c = 0; c < r->n; c++)
        executor_begin(r->executors[c], training);
}

static int scale_loss(struct runner *r, const struct batch_args *args, struct err *err)
{
    for (int c = 0; c < r->n && r->scale.factor > 0; c++)
        if (executor_scale_loss(r->executors[c], r->scale.factor, args->version, err) < 0)
            return -1;
    return 0;
}

static int start(struct runner *r, const struct batch_args *args, bool training, bool follows,
                 struct err *err)
{
    for (int c = 0; c < r->n; c++)
        if (executor_start(r->executors[c], args, training, follows, err) < 0)
            return -1;
    return 0;
}

static int finish(struct runner *r, const struct batch_args *args, struct batch_result *result,
                  struct err *err)
{
    for (int c = 0; c < r->n; c++)
        if (executor_finish(r->executors[c], args, result, err) < 0)
            return -1;
    return nccl_read_trace(r->options.executor.nccl, err);
}

/* Is it of the batch that follows? */
static bool is_ahead(const struct runner *r, const struct instruction *ins)
{
    return ins->micro >= r->options.executor.plan->micro_batches;
}

/* For the report of what hangs. */
static void note_place(const struct runner *r, const struct instruction *ins, int64_t step,
                       int micro)
{
    bool whole = is_whole(ins);

    comm_at(r->options.executor.comm, instruction_name(ins->kind),
            whole ? r->options.executor.placement->stage
                  : r->options.compiled[ins->chunk]->stage,
            step + 1, whole ? -1 : micro);
}

static int run_traced(struct runner *r, const struct batch_args *args, int index,
                      struct batch_result *result, struct err *err)
{
    const struct instruction *ins = &r->list->items[index];
    struct trace *trace = r->options.executor.trace;
    int micro = ins->micro % (int)r->options.executor.plan->micro_batches;
    double begin, received = result->receive;

    note_place(r, ins, args->step, micro);
    delay(r);
    begin = trace_clock();
    if (run_ranged(r, args, index, micro, result, err) < 0) {
        err_prefix(err, "step %lld, micro-batch %d", (long long)args->step + 1, micro);
        return -1;
    }
    if (trace && ins->kind != INSTRUCTION_RECV && ins->kind != INSTRUCTION_REDUCE)
        trace_add(trace, ins->kind, micro, ins->peer, args->step,
                  begin + result->receive - received, trace_clock());
    return 0;
}

/* What the step before would have run ahead. */
static int fill(struct runner *r, const struct batch_args *args, struct batch_result *result,
                struct err *err)
{
    if (start(r, args, true, false, err) < 0)
        return -1;
    for (int i = 0; i < r->list->n; i++)
        if (is_ahead(r, &r->list->items[i]) && run_traced(r, args, i, result, err) < 0)
            return -1;
    return 0;
}

/* A batch is computed with weights one update old, where there are two versions; those are the
 * latest ones while the batch before is under way.
 */
static struct batch_args with_version(const struct runner *r, const struct batch_args *args,
                                      bool latest)
{
    const struct store *store = executor_store(r->executors[0]);
    struct batch_args own = *args;

    own.version = latest || store->n_versions == 1 ? store->latest : 1 - store->latest;
    return own;
}

int runner_step(struct runner *runner, const struct batch_args *args,
                const struct batch_args *next, struct batch_result *result, struct err *err)
{
    struct runner *r = runner;
    struct batch_args this = with_version(r, args, false), ahead = { 0 };

    begin(r, true, result);
    if (scale_loss(r, &this, err) < 0 || (!r->flows && fill(r, &this, result, err) < 0))
        return -1;
    if (next)
        ahead = with_version(r, next, true);
    r->flows = next != NULL;
    if (next && start(r, &ahead, true, true, err) < 0)
        return -1;
    for (int i = 0; i < r->list->n; i++) {
        bool of_next = is_ahead(r, &r->list->items[i]);

        if ((next || !of_next) && run_traced(r, of_next ? &ahead : &this, i, result, err) < 0)
            return -1;
    }
    return finish(r, &this, result, err) < 0 ? -1 : look_back(r, &this, result, err);
}

static int evaluate(struct runner *r, const struct batch_args *args, bool ahead,
                    struct batch_result *result, struct err *err)
{
    int n = (int)r->options.executor.plan->micro_batches;

    for (int i = 0; i < r->list->n; i++) {
        const struct instruction *ins = &r->list->items[i];

        if (ins->kind == INSTRUCTION_F && is_ahead(r, ins) == ahead &&
            executor_evaluate(r->executors[ins->chunk], args, ins->micro % n, result, err) < 0)
            return -1;
    }
    return 0;
}

/* In the list's order, which does not deadlock: no F or SEND waits for more than in a step. */
int runner_evaluate(struct runner *runner, const struct batch_args *args,
                    struct batch_result *result, struct err *err)
{
    struct runner *r = runner;
    const struct batch_args latest = with_version(r, args, true);

    begin(r, false, result);
    if (start(r, &latest, false, false, err) < 0 ||
        evaluate(r, &latest, true, result, err) < 0 ||
        evaluate(r, &latest, false, result, err) < 0)
        return -1;
    return finish(r, &latest, result, err);
}

int runner_average(struct runner *runner, bool averages, struct err *err)
{
    for (int c = 0; c < runner->n; c++)
        if (executor_average(runner->executors[c], averages, err) < 0)
            return -1;
    return 0;
}

int runner_drain(struct runner *runner, struct err *err)
{
    for (int c = 0; c < runner->n; c++)
        if (executor_drain(runner->executors[c], err) < 0)
            return -1;
    return nccl_read_trace(runner->options.executor.nccl, err);
}
