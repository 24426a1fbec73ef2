/* SPDX-License-Identifier: MIT */
#include "train/compile.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "scheduler/layout.h"
#include "train/buckets.h"
#include "train/route.h"
#include "train/slices.h"

static int take_built(struct compiled *c, const struct compile_options *options, int64_t batch,
                      struct err *err)
{
    const struct differentiated *d = built_differentiated(options->built, options->plan, batch,
                                                          err);

    if (!d)
        return -1;
    c->graph = d->graph;
    c->shared = true;
    c->autodiff = d->autodiff;
    c->stage_of = d->stage_of;
    return 0;
}

static int build_graph(struct compiled *c, const struct compile_options *options,
                       struct err *err)
{
    const struct plan *plan = options->plan;
    struct model_options m = options->model_options;
    struct differentiated d = { 0 };
    int r = plan->stages[c->stage].replicas, bad;

    m.batch = plan_share_start(plan->micro_batch, r, c->replica + 1) -
              plan_share_start(plan->micro_batch, r, c->replica);
    if (m.batch < 1)
        return err_set(err, "stage %d: %d replicas for %lld samples of a micro-batch",
                       c->stage, r, (long long)plan->micro_batch);
    if (options->built)
        return take_built(c, options, m.batch, err);
    m.batchnorm_samples = plan->batchnorm_samples;
    c->graph = model_build(options->model, &m, err);
    bad = c->graph ? differentiate(&d, c->graph, options->model, plan, err) : -1;
    c->autodiff = d.autodiff;
    c->stage_of = d.stage_of;
    return bad;
}

/* Boundaries are sorted by (from, to): one edge for each pair. */
static void make_edges(struct compiled *c)
{
    for (int i = 0; i < c->autodiff.n_boundaries; i++) {
        const struct boundary *b = &c->autodiff.boundaries[i];
        struct schedule_edge *last = c->n_edges ? &c->edges[c->n_edges - 1] : NULL;

        if (!last || last->from != b->from || last->to != b->to) {
            last = mem_push((void **)&c->edges, &c->n_edges, sizeof(*last));
            last->from = b->from;
            last->to = b->to;
        }
        last->gradient = last->gradient || b->gradient >= 0;
    }
}

bool compiled_is_view(const struct compiled *compiled, int node)
{
    const struct node *n = &compiled->graph->nodes[node];
    const struct program_value *values = compiled->program->values;

    return (n->op->flags & OP_VIEW) && n->n_inputs > 0 && n->inputs[0] >= 0 &&
           values[n->inputs[0]].root == values[n->outputs[0]].root;
}

static bool is_gradient(const struct program *program, int value)
{
    const struct program_value *values = program->values;

    return value >= 0 && values[values[value].root].place == PLACE_GRADIENT;
}

bool compiled_is_gradient(const struct compiled *compiled, int value)
{
    return is_gradient(compiled->program, value);
}

static int check_support(const struct compiled *c, struct device *device, struct err *err)
{
    char list[1024] = "";
    int missing = 0;

    for (int part = 0; part < PART_COUNT; part++) {
        for (int i = 0; i < c->program->list[part].n; i++) {
            int node = c->program->list[part].nodes[i];
            const struct node *n = &c->graph->nodes[node];
            size_t length = strlen(list);

            if (compiled_is_view(c, node) || c->backend->supports(device, c->graph, node))
                continue;
            snprintf(list + length, sizeof(list) - length, "%s\"%s\" (%s)",
                     missing ? ", " : "", n->name, n->op->name);
            missing++;
        }
    }
    if (!missing)
        return 0;
    return err_set(err, "backend %s has no kernel for %d node%s: %s", c->backend->name,
                   missing, missing == 1 ? "" : "s", list);
}

size_t compile_gradient_bytes(const struct program *program, int node)
{
    const struct node *n = &program->graph->nodes[node];
    size_t bytes = 0;

    for (int k = 0; k < n->n_outputs; k++)
        if (is_gradient(program, n->outputs[k]))
            bytes += layout_aligned(program->values[n->outputs[k]].layout.bytes);
    return bytes;
}

/* What is run again makes its contributions a second time, for nothing. */
size_t compiled_spare(const struct compiled *c, int node, bool again)
{
    if (!again && (c->schedule->micro_batches < 2 ||
                   c->backend->kernel_accumulates(c->kernels[node])))
        return 0;
    return compile_gradient_bytes(c->program, node);
}

static int make_kernels(struct compiled *c, struct device *device, size_t *workspace,
                        struct err *err)
{
    struct program *p = c->program;
    struct value_layout *layouts = mem_new((size_t)p->n_values, sizeof(*layouts));
    int bad = 0;

    for (int v = 0; v < p->n_values; v++)
        layouts[v] = p->values[v].layout;
    c->n_kernels = c->graph->n_nodes;
    c->kernels = mem_new((size_t)c->n_kernels, sizeof(*c->kernels));
    for (int part = 0; part < PART_COUNT && !bad; part++) {
        for (int i = 0; i < p->list[part].n && !bad; i++) {
            int node = p->list[part].nodes[i];
            size_t bytes;

            if (compiled_is_view(c, node))
                continue;
            c->kernels[node] = c->backend->kernel_new(device, c->graph, node, layouts, err);
            if (!c->kernels[node]) {
                bad = -1;
                break;
            }
            bytes = layout_aligned(c->backend->kernel_workspace(c->kernels[node])) +
                    compiled_spare(c, node, part == PART_FORWARD && p->again.n > 0);
            *workspace = bytes > *workspace ? bytes : *workspace;
        }
    }
    free(layouts);
    return bad;
}

static size_t sum_bytes(const struct compiled *c, const struct plan *plan)
{
    struct buckets b;
    size_t bytes;

    buckets_make(&b, c, plan->n_stages, 0);
    bytes = buckets_scratch(&b, c, plan, b.n_groups).at;
    buckets_clear(&b);
    return bytes;
}

static int make_program(struct compiled *c, const struct compile_options *options,
                        struct err *err)
{
    const struct plan *plan = options->plan;
    struct routes routes;
    size_t workspace = 0;
    int slots, versions, bad;

    make_edges(c);
    c->schedule = plan_schedule(plan, c->edges, c->n_edges, err);
    if (!c->schedule)
        return -1;
    slots = c->schedule->stages[c->stage].slots;
    versions = c->schedule->versions;
    c->program = program_new(c->graph, &c->autodiff, c->stage_of, c->stage, plan->n_stages,
                             err);
    if (!c->program)
        return -1;
    c->program->shared = c->shared;
    bad = c->backend->lower ? c->backend->lower(options->device, c->program, err) : 0;
    c->graph = c->program->graph;
    c->shared = c->program->shared;
    if (bad < 0)
        return -1;
    if (plan->stages[c->stage].recompute != PLAN_RECOMPUTE_NONE)
        program_recompute(c->program,
                          plan->stages[c->stage].recompute == PLAN_RECOMPUTE_SELECTIVE);
    if (check_support(c, options->device, err) < 0 ||
        make_kernels(c, options->device, &workspace, err) < 0)
        return -1;
    memory_place(c->program, schedule_backward(c->schedule, c->stage), slots, workspace);
    c->program->slot_bytes = layout_aligned(c->program->slot_bytes);
    routes_make(&routes, plan, c->stage, c->replica, c);
    c->sharded = plan->zero;
    c->state_bytes = slices_bytes(c, plan);
    c->sum_bytes = sum_bytes(c, plan);
    c->memory = memory_use(c->program, slots, versions,
                           (size_t)options->optimizer_states * c->state_bytes,
                           routes.bytes + c->sum_bytes +
                               (size_t)versions * MEMORY_SCALARS);
    routes_clear(&routes);
    return 0;
}

struct compiled *compile_stage(const struct compile_options *options, int stage, int replica,
                               struct err *err)
{
    struct compiled *c = mem_new(1, sizeof(*c));

    c->backend = options->backend;
    c->stage = stage;
    c->replica = replica;
    if (build_graph(c, options, err) < 0 || make_program(c, options, err) < 0) {
        compiled_free(c);
        return NULL;
    }
    return c;
}

void compiled_free(struct compiled *compiled)
{
    if (!compiled)
        return;
    for (int i = 0; i < compiled->n_kernels; i++)
        if (compiled->kernels[i])
            compiled->backend->kernel_free(compiled->kernels[i]);
    free(compiled->kernels);
    program_free(compiled->program);
    schedule_free(compiled->schedule);
    free(compiled->edges);
    if (!compiled->shared)
        graph_free(compiled->graph);
    free(compiled);
}
