/* SPDX-License-Identifier: MIT */
/* What a checkpoint has for each rank, from the rank that has read the file. */
#include <stdlib.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "train/checkpoint_private.h"
#include "train/forward.h"
#include "train/owned.h"
#include "train/shard.h"

/* Where a saved tensor goes; the same one may go to several places. */
struct target {
    struct store *store;
    struct owned_tensor tensor;
    int saved;
};

struct source {
    int saved;
    const struct extent *part;
};

struct loading {
    const struct checkpoint *checkpoint;
    int n_targets, n_sources;
    struct target *targets;
    struct source *sources;     /* of each range */
};

static int add_target(struct loading *l, struct store *store,
                      const struct owned_tensor *tensor, struct err *err)
{
    const struct checkpoint *c = l->checkpoint;
    const struct value *v = &store->compiled->graph->values[tensor->value];
    int saved = checkpoint_find(c, v->name, tensor->kind);

    if (saved < 0 && (tensor->kind == CHECKPOINT_EMA || tensor->kind == CHECKPOINT_PREVIOUS))
        saved = checkpoint_find(c, v->name, CHECKPOINT_VALUE);
    if (saved < 0)
        return err_set(err, "%s: no \"%s\" (%s)", c->path, v->name, shard_kinds[tensor->kind]);
    if (!shape_equal(&c->tensors[saved].shape, &v->shape))
        return err_set(err, "%s: \"%s\" has another shape than in the model", c->path, v->name);
    *(struct target *)mem_push((void **)&l->targets, &l->n_targets, sizeof(struct target)) =
        (struct target){ store, *tensor, saved };
    return 0;
}

static int add_store(struct loading *l, struct store *store, struct err *err)
{
    struct owned_tensor *list;
    int n = owned_list(store, &list), bad = 0;

    for (int i = 0; i < n && !bad; i++)
        bad = add_target(l, store, &list[i], err);
    free(list);
    return bad;
}

/* Elements of the saved tensor that the target has of those from 'from' to 'to'. */
static bool overlap(const struct target *t, int saved, int64_t *from, int64_t *to)
{
    int64_t start = t->tensor.start, end = start + t->tensor.count;

    *from = *from > start ? *from : start;
    *to = *to < end ? *to : end;
    return t->saved == saved && *from < *to;
}

static bool is_wanted(const struct loading *l, const struct source *source)
{
    for (int i = 0; i < l->n_targets; i++) {
        int64_t from = source->part->start, to = from + source->part->count;

        if (overlap(&l->targets[i], source->saved, &from, &to))
            return true;
    }
    return false;
}

static int put(const struct target *t, enum dtype type, const char *data, int64_t from, int64_t n,
               struct err *err)
{
    enum dtype dtype = t->store->compiled->graph->values[t->tensor.value].dtype;
    char *to = t->tensor.memory + (size_t)(from - t->tensor.start) * dtype_size(dtype);

    return store_put(t->store, t->tensor.value, to, type, data, (size_t)n, err);
}

static int take(void *user, int range, size_t at, const void *data, size_t bytes,
                struct err *err)
{
    const struct loading *l = user;
    const struct source *source = &l->sources[range];
    enum dtype type = l->checkpoint->tensors[source->saved].dtype;
    size_t size = dtype_size(type);
    int64_t start = source->part->start + (int64_t)(at / size);

    for (int i = 0; i < l->n_targets; i++) {
        int64_t from = start, to = start + (int64_t)(bytes / size);

        if (overlap(&l->targets[i], source->saved, &from, &to) &&
            put(&l->targets[i], type, (const char *)data + (size_t)(from - start) * size, from,
                to - from, err) < 0)
            return -1;
    }
    return 0;
}

static void sent(void *user, const void *data, size_t bytes)
{
    const struct checkpoint *c = ((const struct loading *)user)->checkpoint;

    for (int i = 0; i < c->n_shards; i++)
        if (c->shards[i])
            file_map_drop(safetensors_map(c->shards[i]), data, bytes);
}

static void add_sources(struct loading *l)
{
    const struct checkpoint *c = l->checkpoint;

    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->tensors[i].n_parts; k++)
            *(struct source *)mem_push((void **)&l->sources, &l->n_sources,
                                       sizeof(struct source)) =
                (struct source){ i, &c->tensors[i].parts[k] };
}

static struct forward_range range_of(const struct checkpoint *c, const struct source *source)
{
    return (struct forward_range){
        .reader = source->part->file % c->ranks,
        .bytes = (size_t)source->part->count * dtype_size(c->tensors[source->saved].dtype),
        .data = source->part->data,
    };
}

static int run(struct loading *l, struct comm *comm, int failed, struct err *err)
{
    struct forward_range *ranges = mem_new((size_t)l->n_sources, sizeof(*ranges));
    bool *wanted = mem_new((size_t)l->n_sources, sizeof(*wanted));
    struct forward forward = { .n = l->n_sources, .ranges = ranges, .wanted = wanted,
                               .take = take, .sent = sent, .user = l, .meet = FORWARD_MEET };
    int bad;

    for (int i = 0; i < l->n_sources; i++) {
        ranges[i] = range_of(l->checkpoint, &l->sources[i]);
        wanted[i] = is_wanted(l, &l->sources[i]);
    }
    bad = forward_run(&forward, comm, failed, err);
    free(wanted);
    free(ranges);
    return bad;
}

int checkpoint_load(const struct checkpoint *checkpoint, int n, struct store *const *stores,
                    struct comm *comm, int failed, struct err *err)
{
    struct loading l = { .checkpoint = checkpoint };
    int bad;

    if (checkpoint)
        add_sources(&l);
    for (int i = 0; i < n && !failed; i++)
        failed = add_store(&l, stores[i], err) < 0;
    bad = run(&l, comm, failed, err);
    for (int i = 0; i < n && !bad; i++)
        bad = store_arrive(stores[i], err);
    free(l.targets);
    free(l.sources);
    return bad;
}
