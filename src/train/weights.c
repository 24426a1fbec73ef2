/* SPDX-License-Identifier: MIT */
#include "train/weights.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/forward.h"

/* Where a weight goes; the same one may go to several places. */
struct target {
    struct store *store;
    int value, range;
    enum dtype type;        /* in the file */
};

struct weights {
    const struct initial *initial;
    int n;
    struct target *targets;
};

static void find_targets(struct weights *w, struct store *store, bool resumed)
{
    const struct value *values = store->compiled->graph->values;

    for (int v = 0; v < store->compiled->program->n_values; v++) {
        struct target t = { .store = store, .value = v };

        if (!store_keeps(store, v) || (resumed && values[v].kind != VALUE_CONST))
            continue;
        t.range = initial_find(w->initial, &values[v], &t.type);
        if (t.range >= 0)
            *(struct target *)mem_push((void **)&w->targets, &w->n, sizeof(t)) = t;
    }
}

static int take(void *user, int range, size_t at, const void *data, size_t bytes,
                struct err *err)
{
    const struct weights *w = user;

    for (int i = 0; i < w->n; i++) {
        const struct target *t = &w->targets[i];
        enum dtype dtype = t->store->compiled->graph->values[t->value].dtype;
        size_t size = dtype_size(t->type);
        char *to;

        if (t->range != range)
            continue;
        to = (char *)store_address(t->store, t->value, 0) + at / size * dtype_size(dtype);
        if (store_put(t->store, t->value, to, t->type, data, bytes / size, err) < 0)
            return -1;
    }
    return 0;
}

static void sent(void *user, const void *data, size_t bytes)
{
    const struct weights *w = user;

    initial_drop(w->initial, data, bytes);
}

int weights_forward(const struct initial *initial, int n, struct store *const *stores, bool resumed,
                    struct comm *comm, int failed, struct err *err)
{
    struct weights w = { .initial = initial };
    int all = initial_ranges(initial), bad;
    struct forward_range *ranges = mem_new((size_t)all, sizeof(*ranges));
    bool *wanted = mem_new((size_t)all, sizeof(*wanted));
    struct forward forward = { .n = all, .ranges = ranges, .wanted = wanted, .take = take,
                               .sent = sent, .user = &w, .meet = FORWARD_MEET };

    for (int i = 0; i < all; i++)
        ranges[i].data = initial_range(initial, i, &ranges[i].bytes);
    for (int c = 0; c < n; c++)
        find_targets(&w, stores[c], resumed);
    for (int i = 0; i < w.n; i++)
        wanted[w.targets[i].range] = true;
    bad = forward_run(&forward, comm, failed, err);
    free(w.targets);
    free(wanted);
    free(ranges);
    return bad;
}
