/* SPDX-License-Identifier: MIT */
#include "train/tape.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/layout.h"

/* Behind the workspace of its kernel. */
static char *spare_of(const struct tape_item *item, const struct store *store)
{
    return (char *)store->workspace +
           layout_aligned(store->compiled->backend->kernel_workspace(item->kernel));
}

static void bind_sums(struct tape_item *item, const struct store *store)
{
    const struct compiled *c = store->compiled;
    const struct node *node = &c->graph->nodes[item->node];
    char *spare = spare_of(item, store);

    if (compiled_spare(c, item->node, false) == 0)
        return;
    for (int k = 0; k < node->n_outputs; k++) {
        struct tape_sum *sum;
        size_t bytes;

        if (!compiled_is_gradient(c, node->outputs[k]))
            continue;
        bytes = c->program->values[node->outputs[k]].layout.bytes;
        sum = mem_push((void **)&item->sums, &item->n_sums, sizeof(*sum));
        *sum = (struct tape_sum){ .output = k, .spare = spare,
                                  .n = bytes / dtype_size(c->graph->real) };
        spare += layout_aligned(bytes);
    }
}

static void **addresses(const struct store *store, int n, const int *values, int slot)
{
    void **list = mem_new((size_t)n, sizeof(*list));

    for (int i = 0; i < n; i++)
        list[i] = store_address_at(store, values[i], slot % store->n_slots,
                                   slot / store->n_slots);
    return list;
}

/* What is run again has made its gradients before. */
static void **output_addresses(const struct store *store, const struct node *node, int slot,
                               char *spare)
{
    void **list = addresses(store, node->n_outputs, node->outputs, slot);

    for (int k = 0; spare && k < node->n_outputs; k++) {
        if (!compiled_is_gradient(store->compiled, node->outputs[k]))
            continue;
        list[k] = spare;
        spare += layout_aligned(store->compiled->program->values[node->outputs[k]].layout.bytes);
    }
    return list;
}

static void bind(struct tape *tape, struct tape_item *item, const struct store *store,
                 const struct step_state *states, bool again)
{
    char *spare = again ? spare_of(item, store) : NULL;
    const struct node *node = &store->compiled->graph->nodes[item->node];

    item->args = mem_new((size_t)tape->n_slots, sizeof(*item->args));
    for (int slot = 0; slot < tape->n_slots; slot++) {
        item->args[slot] = (struct kernel_args){
            .inputs = (const void *const *)addresses(store, node->n_inputs, node->inputs, slot),
            .outputs = output_addresses(store, node, slot, spare),
            .workspace = store->workspace,
            .state = &states[slot],
        };
    }
    for (int k = 0; k < node->n_outputs; k++)
        item->gradient |= compiled_is_gradient(store->compiled, node->outputs[k]);
    if (!again)
        bind_sums(item, store);
    if (node->n_outputs > tape->max_outputs)
        tape->max_outputs = node->n_outputs;
}

void tape_init(struct tape *tape, const struct program_list *list, const struct store *store,
               const struct step_state *states, bool again)
{
    const struct compiled *c = store->compiled;

    *tape = (struct tape){ .backend = c->backend, .compiled = c, .stream = store->stream,
                           .real = c->graph->real,
                           .n_slots = store->n_versions * store->n_slots };
    tape->items = mem_new((size_t)list->n, sizeof(*tape->items));
    for (int i = 0; i < list->n; i++) {
        struct tape_item *item = &tape->items[tape->n];

        if (!c->kernels[list->nodes[i]])
            continue;
        item->node = list->nodes[i];
        item->kernel = c->kernels[item->node];
        item->n_outputs = c->graph->nodes[item->node].n_outputs;
        bind(tape, item, store, states, again);
        tape->n++;
    }
    tape->outputs = mem_new((size_t)tape->max_outputs, sizeof(*tape->outputs));
}

void tape_clear(struct tape *tape)
{
    for (int i = 0; i < tape->n; i++) {
        for (int slot = 0; slot < tape->n_slots; slot++) {
            free((void *)tape->items[i].args[slot].inputs);
            free((void *)tape->items[i].args[slot].outputs);
        }
        free(tape->items[i].args);
        free(tape->items[i].sums);
    }
    free(tape->items);
    free(tape->outputs);
    *tape = (struct tape){ 0 };
}

static bool in_place(const struct tape *tape, const struct tape_item *item,
                     const struct kernel_args *args, const void *output)
{
    const struct node *node = &tape->compiled->graph->nodes[item->node];

    for (int i = 0; i < node->n_inputs; i++)
        if (args->inputs[i] == output)
            return true;
    return false;
}

/* What a kernel makes is not there before it has run, and what it adds to is not what it will be. */
static void forget(const struct tape *tape, const struct tape_item *item,
                   const struct kernel_args *args)
{
    const struct backend *backend = tape->backend;
    const struct node *node = &tape->compiled->graph->nodes[item->node];
    const struct program_value *values = tape->compiled->program->values;

    backend->forget(tape->stream, args->workspace, backend->kernel_workspace(item->kernel));
    for (int k = 0; k < node->n_outputs; k++) {
        void *output = args->outputs[k];

        if (output)
            (args->accumulate || in_place(tape, item, args, output) ? backend->renew
                                                                    : backend->forget)(
                tape->stream, output, values[node->outputs[k]].layout.bytes);
    }
}

static int run_one(const struct tape *tape, const struct tape_item *item,
                   const struct kernel_args *args, struct err *err)
{
    if (tape->backend->forget)
        forget(tape, item, args);
    return tape->backend->kernel_run(item->kernel, tape->stream, args, err);
}

static int add_one(const struct tape *tape, const struct tape_sum *sum, void *to, struct err *err)
{
    if (tape->backend->renew)
        tape->backend->renew(tape->stream, to, sum->n * dtype_size(tape->real));
    return tape->backend->add(tape->stream, tape->real, sum->n, sum->spare, to, err);
}

static int run_and_add(const struct tape *tape, const struct tape_item *item,
                       struct kernel_args *args, size_t n_outputs, struct err *err)
{
    void *const *sums = args->outputs;

    memcpy(tape->outputs, sums, n_outputs * sizeof(*tape->outputs));
    for (int k = 0; k < item->n_sums; k++)
        tape->outputs[item->sums[k].output] = item->sums[k].spare;
    args->outputs = tape->outputs;
    if (run_one(tape, item, args, err) < 0)
        return -1;
    for (int k = 0; k < item->n_sums; k++)
        if (add_one(tape, &item->sums[k], sums[item->sums[k].output], err) < 0)
            return -1;
    return 0;
}

int tape_run(const struct tape *tape, int i, int slot, bool accumulate, struct err *err)
{
    const struct tape_item *item = &tape->items[i];
    struct kernel_args args = item->args[slot];

    if (accumulate && item->n_sums)
        return run_and_add(tape, item, &args, (size_t)item->n_outputs, err);
    args.accumulate = accumulate && item->gradient ? ACCUMULATE_YES : ACCUMULATE_NO;
    return run_one(tape, item, &args, err);
}
