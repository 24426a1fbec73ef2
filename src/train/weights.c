/* SPDX-License-Identifier: MIT */
#include "train/weights.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/forward.h"

/* Where a weight goes; the same one may go to several places. */
struct target {
    struct store *store;
    int value, weight;      /* weight: index of the initializer */
};

struct weights {
    const struct model *model;
    int n;
    struct target *targets;
};

static void find_targets(struct weights *w, struct store *store, bool resumed)
{
    const struct graph *graph = store->compiled->graph;

    for (int v = 0; v < store->compiled->program->n_values; v++) {
        const struct value *value = &graph->values[v];
        int weight = store_keeps(store, v) && value->data &&
                     (!resumed || value->kind == VALUE_CONST)
                         ? model_find_large(w->model, value->data) : -1;

        if (weight >= 0)
            *(struct target *)mem_push((void **)&w->targets, &w->n, sizeof(struct target)) =
                (struct target){ store, v, weight };
    }
}

static int take(void *user, int range, size_t at, const void *data, size_t bytes,
                struct err *err)
{
    const struct weights *w = user;

    for (int i = 0; i < w->n; i++) {
        const struct target *t = &w->targets[i];
        const struct value *value = &t->store->compiled->graph->values[t->value];
        size_t size = dtype_size(value->file_dtype);
        char *to;

        if (t->weight != range)
            continue;
        to = (char *)store_address(t->store, t->value, 0) + at / size * dtype_size(value->dtype);
        if (store_put(t->store, t->value, to, value->file_dtype, data, bytes / size, err) < 0)
            return -1;
    }
    return 0;
}

static void sent(void *user, const void *data, size_t bytes)
{
    const struct weights *w = user;

    model_drop(w->model, data, bytes);
}

int weights_forward(const struct model *model, int n, struct store *const *stores, bool resumed,
                    struct comm *comm, int failed, struct err *err)
{
    struct weights w = { .model = model };
    int all = model_initializers(model), bad;
    struct forward_range *ranges = mem_new((size_t)all, sizeof(*ranges));
    bool *wanted = mem_new((size_t)all, sizeof(*wanted));
    struct forward forward = { .n = all, .ranges = ranges, .wanted = wanted, .take = take,
                               .sent = sent, .user = &w };

    for (int i = 0; i < all; i++)
        ranges[i].data = model_large(model, i, &ranges[i].bytes);
    for (int c = 0; c < n; c++)
        find_targets(&w, stores[c], resumed);
    for (int i = 0; i < w.n; i++)
        wanted[w.targets[i].weight] = true;
    bad = forward_run(&forward, comm, failed, err);
    for (int c = 0; c < n && !bad; c++)
        bad = store_settle(stores[c], err);
    free(w.targets);
    free(wanted);
    free(ranges);
    return bad;
}
