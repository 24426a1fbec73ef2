/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "train/compile.h"
#include "train/optimizer.h"
#include "train/profile.h"
#include "train/store.h"
#include "train/tape.h"
#include "train/trace.h"
#include "train/update.h"

#define STEPS 5     /* measured, after one to warm up */

struct table_row {
    const char *op;
    int nodes;          /* in a step */
    double seconds;     /* of all measured steps */
};

struct table {
    const struct profile_options *options;
    const struct compiled *compiled;
    struct store store;
    struct step_state *state;   /* where kernels can read it */
    struct tape tapes[3];
    struct update update;
    int n_rows;
    struct table_row *rows;
    double step_seconds;    /* of all measured steps, wall time */
};

static struct table_row *row_of(struct table *t, const char *op)
{
    struct table_row *row;

    for (int i = 0; i < t->n_rows; i++)
        if (strcmp(t->rows[i].op, op) == 0)
            return &t->rows[i];
    row = mem_push((void **)&t->rows, &t->n_rows, sizeof(*row));
    row->op = op;
    return row;
}

static int run_tape(struct table *t, const struct tape *tape, bool measured, struct err *err)
{
    const struct graph *graph = t->compiled->graph;

    for (int i = 0; i < tape->n; i++) {
        struct table_row *row = row_of(t, graph->nodes[tape->items[i].node].op->name);
        double start = trace_clock();

        if (tape_run(tape, i, 0, false, err) < 0 ||
            tape->backend->stream_sync(tape->stream, err) < 0)
            return -1;
        if (measured)
            row->seconds += trace_clock() - start;
        else
            row->nodes++;
    }
    return 0;
}

/* Inputs that are valid whatever they mean: 0 for integers, small numbers for floats. A step
 * may use their places for other things once they are read.
 */
static int fill_inputs(struct table *t, struct err *err)
{
    const struct program *p = t->compiled->program;
    const struct backend *backend = t->compiled->backend;
    float one_f = 1;
    double one_d = 1;
    bool single = t->compiled->graph->real == DTYPE_F32;
    size_t element = single ? sizeof(one_f) : sizeof(one_d);

    for (int i = 0; i < p->n_inputs; i++) {
        const struct value *v = &t->compiled->graph->values[p->inputs[i]];
        size_t n = (size_t)shape_elements(&v->shape), bytes = value_bytes(v);
        void *to = store_address(&t->store, p->inputs[i], 0);
        char *host;
        int bad;

        if (!to)
            continue;
        host = mem_new(bytes, 1);
        for (size_t k = 0; k < n && dtype_is_float(v->dtype); k++) {
            double d = (double)(k * 7919 % 1999) / 1000 - 1;
            float f = (float)d;

            memcpy(host + k * element, single ? (void *)&f : (void *)&d, element);
        }
        bad = backend->copy(t->store.stream, to, bytes, host, bytes, bytes, 1, err);
        if (!bad)
            bad = backend->stream_sync(t->store.stream, err);
        free(host);
        if (bad)
            return -1;
    }
    if (backend->copy(t->store.stream, t->store.weight_sum, element,
                      single ? (void *)&one_f : (void *)&one_d, element, element, 1, err) < 0)
        return -1;
    return backend->stream_sync(t->store.stream, err);
}

static int run_step(struct table *t, int64_t step, struct err *err)
{
    struct update_step now = { .step = step, .g_scale = 1 };
    double start, update;
    struct table_row *row;

    if (fill_inputs(t, err) < 0)
        return -1;
    t->state->step = step;
    start = trace_clock();
    for (int i = 0; i < 3; i++)
        if (run_tape(t, &t->tapes[i], step > 0, err) < 0)
            return -1;
    update = trace_clock();
    /* At rate 0 nothing is learnt: made-up labels are soon fitted, and then all gradients are
     * denormal, which takes a processor up to ten times as long.
     */
    if (update_norms(&t->update, &t->store, &now, err) < 0 ||
        update_run(&t->update, &t->store, &now, err) < 0 ||
        t->compiled->backend->stream_sync(t->store.stream, err) < 0)
        return -1;
    row = row_of(t, "(optimizer)");
    row->nodes = 1;
    if (step > 0) {
        row->seconds += trace_clock() - update;
        t->step_seconds += trace_clock() - start;
    }
    return 0;
}

static int by_seconds(const void *a, const void *b)
{
    const struct table_row *x = a, *y = b;

    return x->seconds > y->seconds ? -1 : x->seconds < y->seconds;
}

static void print_table(struct table *t, int64_t samples, FILE *out)
{
    double kernels = 0, reorders = 0;

    for (int i = 0; i < t->n_rows; i++) {
        kernels += t->rows[i].seconds;
        if (strcmp(t->rows[i].op, "Reorder") == 0)
            reorders += t->rows[i].seconds;
    }
    qsort(t->rows, (size_t)t->n_rows, sizeof(*t->rows), by_seconds);
    fprintf(out, "device    %s\nsamples   %lld\nstep      %.3f ms, %.3f ms of it in kernels\n"
            "reorders  %.1f %%\n\n%-28s %6s %12s %8s\n",
            t->compiled->backend->device_name(t->options->device), (long long)samples,
            1e3 * t->step_seconds / STEPS, 1e3 * kernels / STEPS,
            kernels > 0 ? 100 * reorders / kernels : 0, "operator", "nodes", "ms", "share");
    for (int i = 0; i < t->n_rows; i++)
        fprintf(out, "%-28s %6d %12.4f %6.1f %%\n", t->rows[i].op, t->rows[i].nodes,
                1e3 * t->rows[i].seconds / STEPS,
                kernels > 0 ? 100 * t->rows[i].seconds / kernels : 0);
}

/* A plan of one stage on one device, for the whole model. */
static void plan_alone(struct plan *plan, struct plan_stage *stage, int64_t samples)
{
    static char schedule[] = "gpipe";

    *plan = (struct plan){ .global_batch = samples, .micro_batches = 1, .micro_batch = samples,
                           .schedule = schedule, .chunks = 1, .pipelines = 1, .n_stages = 1,
                           .stages = stage };
    *stage = (struct plan_stage){ .replicas = 1 };
}

/* What the model has no weights for takes as long with any that it may start from. */
static int load(struct table *t, struct err *err)
{
    struct initial *initial = NULL;
    int n, bad;

    if (initial_absent(t->compiled->graph, &n)) {
        initial = initial_new(t->options->model, &t->options->model_options, NULL, true,
                              err);
        if (!initial)
            return -1;
    }
    bad = store_load(&t->store, initial, 0, err);
    initial_free(initial);
    return bad;
}

static int run_table(struct table *t, const struct plan *plan, struct err *err)
{
    const struct program *p = t->compiled->program;
    const struct program_list *lists[3] = { &p->list[PART_PREPARE], &p->list[PART_FORWARD],
                                            &p->backward };

    t->state = t->options->backend->alloc_aside(t->options->device, sizeof(*t->state), true, err);
    if (!t->state || load(t, err) < 0)
        return -1;
    *t->state = (struct step_state){ .global_batch = plan->global_batch,
                                     .samples = plan->global_batch, .weight_sum = 1,
                                     .training = true };
    for (int i = 0; i < 3; i++)
        tape_init(&t->tapes[i], lists[i], &t->store, t->state, false);
    if (update_init(&t->update, &t->store, &t->options->optimizer, 0, plan, err) < 0)
        return -1;
    for (int step = 0; step <= STEPS; step++)
        if (run_step(t, step, err) < 0)
            return -1;
    return 0;
}

int profile_table(const struct profile_options *options, int64_t samples, FILE *out,
                  struct err *err)
{
    struct table t = { .options = options };
    struct plan plan;
    struct plan_stage stage;
    struct compile_options compile = {
        .model = options->model, .model_options = options->model_options, .plan = &plan,
        .backend = options->backend, .device = options->device,
        .optimizer_states = optimizer_resident(options->optimizer.kind, false, options->offload),
    };
    struct compiled *compiled;
    struct stream *stream = NULL;
    int bad = -1;

    plan_alone(&plan, &stage, samples);
    plan.batchnorm_samples = options->model_options.batchnorm_samples;
    plan.offload = options->offload;
    compiled = compile_stage(&compile, 0, 0, err);
    t.compiled = compiled;
    if (compiled)
        stream = options->backend->stream_new(options->device, err);
    if (stream && store_init(&t.store, compiled, NULL, options->device, stream,
                             optimizer_states(options->optimizer.kind), options->offload, false,
                             0, 0, err) == 0)
        bad = run_table(&t, &plan, err);
    if (!bad)
        print_table(&t, samples, out);
    for (int i = 0; i < 3; i++)
        tape_clear(&t.tapes[i]);
    update_clear(&t.update);
    store_clear(&t.store);
    if (t.state)
        options->backend->release_aside(options->device, t.state, true);
    if (stream)
        options->backend->stream_free(stream);
    compiled_free(compiled);
    free(t.rows);
    return bad;
}
