/* SPDX-License-Identifier: MIT */
#include "train/owned.h"

#include "base/mem.h"

bool owned_here(const struct compiled *compiled, int param)
{
    const struct autodiff *ad = &compiled->autodiff;

    for (int i = 0; i < ad->n_params; i++)
        if (ad->params[i].param == param && ad->params[i].stage < compiled->stage)
            return false;
    return true;
}

static struct owned_tensor *add(struct owned_tensor **list, int *n, const struct graph *graph,
                                int value, enum checkpoint_kind kind, char *memory, bool owner)
{
    struct owned_tensor *t = mem_push((void **)list, n, sizeof(*t));

    *t = (struct owned_tensor){ .value = value, .kind = kind, .memory = memory, .owner = owner,
                                .count = shape_elements(&graph->values[value].shape) };
    return t;
}

/* Arrays of state lie as the slices say; 'at' is the parameter's place among the gradients. */
static void add_state(struct owned_tensor **list, int *n, const struct store *store, int value,
                      enum checkpoint_kind kind, char *array, size_t at, bool owner)
{
    const struct graph *graph = store->compiled->graph;
    size_t element = dtype_size(graph->values[value].dtype);
    struct slice part = slices_part(&store->slices, at, value_bytes(&graph->values[value]));
    struct owned_tensor *t;

    if (part.bytes == 0)
        return;
    t = add(list, n, graph, value, kind, array + part.state, owner);
    if (part.whole)
        return;
    t->share = t->owner = true;
    t->start = (int64_t)((part.offset - at) / element);
    t->count = (int64_t)(part.bytes / element);
}

int owned_list(const struct store *store, struct owned_tensor **list)
{
    const struct compiled *c = store->compiled;
    const struct autodiff *ad = &c->autodiff;
    int n = 0;

    *list = NULL;
    for (int i = 0; i < ad->n_params; i++) {
        const struct param_grad *p = &ad->params[i];
        bool owner;
        size_t at;

        if (p->stage != c->stage)
            continue;
        owner = owned_here(c, p->param);
        at = c->program->values[c->program->values[p->gradient].root].offset;
        add(list, &n, c->graph, p->param, CHECKPOINT_VALUE, store_address(store, p->param, 0),
            owner)->gradient = store->gradients + at;
        if (store->n_versions > 1)
            add(list, &n, c->graph, p->param, CHECKPOINT_PREVIOUS,
                store_address_at(store, p->param, 0, 1 - store->latest), owner);
        if (store->n_states > 0)
            add_state(list, &n, store, p->param, CHECKPOINT_M, store->states[0], at, owner);
        if (store->n_states > 1)
            add_state(list, &n, store, p->param, CHECKPOINT_V, store->states[1], at, owner);
        if (store->averages)
            add_state(list, &n, store, p->param, CHECKPOINT_EMA, store->averages, at, owner);
    }
    for (int i = 0; i < ad->n_stats; i++) {
        int stat = ad->stats[i].stat;

        if (ad->stats[i].stage != c->stage)
            continue;
        add(list, &n, c->graph, stat, CHECKPOINT_VALUE, store_address(store, stat, 0), true);
        if (store->n_versions > 1)
            add(list, &n, c->graph, stat, CHECKPOINT_PREVIOUS,
                store_address_at(store, stat, 0, 1 - store->latest), true);
    }
    return n;
}
