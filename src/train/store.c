/* SPDX-License-Identifier: MIT */
#include "train/store.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/layout.h"

/* One behind the other in the arena, but for those of the host. */
struct block {
    char **memory;
    size_t bytes;
    bool host;          /* in memory of the host: messages come from there and go there */
};

#define MAX_BLOCKS 16

static int list_blocks(struct store *s, struct block blocks[MAX_BLOCKS])
{
    const struct program *p = s->compiled->program;
    int n = 0;

    for (int v = 0; v < s->n_versions; v++) {
        blocks[n++] = (struct block){ &s->weights[v], p->param_bytes, false };
        blocks[n++] = (struct block){ &s->prepared[v], p->prepared_bytes, false };
        if (s->n_versions > 1)
            blocks[n++] = (struct block){ &s->contributions[v], p->contribution_bytes, false };
    }
    blocks[n++] = (struct block){ &s->gradients, p->gradient_bytes, false };
    for (int i = 0; i < s->n_states; i++)
        blocks[n++] = (struct block){ &s->states[i], s->compiled->state_bytes, s->offload };
    if (s->averaged)
        blocks[n++] = (struct block){ &s->averages, s->compiled->state_bytes, false };
    blocks[n++] = (struct block){ &s->slots, (size_t)s->n_slots * p->slot_bytes, false };
    blocks[n++] = (struct block){ &s->scratch, p->scratch_bytes, false };
    blocks[n++] = (struct block){ &s->workspace, p->workspace_bytes, false };
    blocks[n++] = (struct block){ &s->buffers, s->buffer_bytes, s->compiled->backend->separate };
    blocks[n++] = (struct block){ &s->direct, s->direct_bytes, false };
    blocks[n++] = (struct block){ &s->weight_sum, (size_t)s->n_versions * MEMORY_SCALARS, false };
    return n;
}

/* What the model or a checkpoint has is to come; the zeros between are read, too. */
static void forget_kept(const struct store *s)
{
    const struct backend *backend = s->compiled->backend;
    const struct program *p = s->compiled->program;

    for (int i = 0; backend->forget && i < s->n_versions * p->n_values; i++) {
        int v = i % p->n_values;

        if (store_keeps(s, v))
            backend->forget(s->stream, store_address_at(s, v, 0, i / p->n_values),
                            p->values[v].layout.bytes);
    }
}

static int make_arena(struct store *s, const struct block *blocks, int n, struct err *err)
{
    for (int i = 0; i < n; i++)
        s->arena_bytes += blocks[i].host ? 0 : layout_aligned(blocks[i].bytes);
    s->arena = s->compiled->backend->alloc(s->device, s->arena_bytes, err);
    return s->arena ? 0 : -1;
}

/* A device's own memory is zeros. Of the host's each block is, and its pages lie where the threads
 * are that will work on them.
 */
static int place_block(struct store *s, const struct block *block, size_t *at, struct err *err)
{
    const struct backend *backend = s->compiled->backend;

    if (block->host) {
        *block->memory = backend->alloc_aside(s->device, block->bytes, true, err);
        return *block->memory ? 0 : -1;
    }
    *block->memory = s->arena + *at;
    *at += layout_aligned(block->bytes);
    return backend->separate ? 0 : backend->fill_zero(s->stream, *block->memory, block->bytes, err);
}

static int place_blocks(struct store *s, const struct block *blocks, int n, struct err *err)
{
    size_t at = 0;

    if (make_arena(s, blocks, n, err) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (blocks[i].bytes > 0 && place_block(s, &blocks[i], &at, err) < 0)
            return -1;
    return 0;
}

int store_init(struct store *store, const struct compiled *compiled,
               const struct placement *placement, struct device *device,
               struct stream *stream, int optimizer_states, bool offload, bool averaged,
               size_t buffer_bytes, size_t direct_bytes, struct err *err)
{
    struct block blocks[MAX_BLOCKS];
    int n;

    *store = (struct store){
        .compiled = compiled, .device = device, .stream = stream,
        .n_slots = compiled->schedule->stages[compiled->stage].slots,
        .n_versions = compiled->schedule->versions, .n_states = optimizer_states,
        .offload = offload, .averaged = averaged, .buffer_bytes = buffer_bytes,
        .direct_bytes = direct_bytes,
    };
    slices_make(&store->slices, compiled, placement);
    n = list_blocks(store, blocks);
    if (place_blocks(store, blocks, n, err) < 0) {
        store_clear(store);
        return -1;
    }
    store->params = store->weights[store->latest];
    forget_kept(store);
    return 0;
}

void store_clear(struct store *store)
{
    struct block blocks[MAX_BLOCKS];
    int n;

    if (!store->compiled)
        return;
    n = list_blocks(store, blocks);
    for (int i = 0; i < n; i++)
        if (blocks[i].host && *blocks[i].memory)
            store->compiled->backend->release_aside(store->device, *blocks[i].memory, true);
    if (store->arena)
        store->compiled->backend->release(store->device, store->arena, store->arena_bytes);
    pieces_clear(&store->pieces);
    slices_clear(&store->slices);
    *store = (struct store){ 0 };
}

void *store_address(const struct store *store, int value, int slot)
{
    return store_address_at(store, value, slot, store->latest);
}

/* Over the version before it. */
static int copy_latest(struct store *store, char *const versions[SCHEDULE_VERSIONS],
                       size_t bytes, struct err *err)
{
    if (bytes == 0)
        return 0;
    return store->compiled->backend->copy(store->stream, versions[1 - store->latest], bytes,
                                          versions[store->latest], bytes, bytes, 1, err);
}

int store_turn(struct store *store, struct err *err)
{
    if (store->n_versions == 1)
        return 0;
    if (store->compiled->backend->forget)
        store->compiled->backend->forget(store->stream, store->weights[1 - store->latest],
                                         store->compiled->program->param_bytes);
    if (copy_latest(store, store->weights, store->compiled->program->param_bytes, err) < 0)
        return -1;
    store->latest = 1 - store->latest;
    store->params = store->weights[store->latest];
    return 0;
}

int store_take_contributions(struct store *store, int version, struct err *err)
{
    const struct program *p = store->compiled->program;
    const struct backend *backend = store->compiled->backend;
    size_t bytes = p->contribution_bytes;

    if (!store->contributions[version])
        return 0;
    return backend->copy(store->stream, store->gradients + p->contributions, bytes,
                         store->contributions[version], bytes, bytes, 1, err);
}

void store_forget_gradients(struct store *store)
{
    const struct backend *backend = store->compiled->backend;
    const struct program_value *values = store->compiled->program->values;

    for (int v = 0; backend->forget && v < store->compiled->program->n_values; v++)
        if (values[v].place == PLACE_GRADIENT && values[v].root == v)
            backend->forget(store->stream, store->gradients + values[v].offset,
                            values[v].layout.bytes);
}

static char *gradient_at(const struct store *store, size_t offset, int version)
{
    const struct program *p = store->compiled->program;

    if (store->contributions[version] && offset >= p->contributions &&
        offset < p->contributions + p->contribution_bytes)
        return store->contributions[version] + (offset - p->contributions);
    return store->gradients + offset;
}

void *store_address_at(const struct store *store, int value, int slot, int version)
{
    const struct program *p = store->compiled->program;
    const struct program_value *v;

    if (value < 0 || value >= p->n_values)
        return NULL;
    if (value == store->compiled->graph->weight_sum)
        return store->weight_sum + version * MEMORY_SCALARS;
    v = &p->values[p->values[value].root];
    switch (v->place) {
    case PLACE_PARAM: return store->weights[version] + v->offset;
    case PLACE_GRADIENT: return gradient_at(store, v->offset, version);
    case PLACE_PREPARED: return store->prepared[version] + v->offset;
    case PLACE_SLOT: return store->slots + (size_t)slot * p->slot_bytes + v->offset;
    case PLACE_SCRATCH: return store->scratch + v->offset;
    default: return NULL;
    }
}

static int open_pieces(struct store *store, struct err *err)
{
    return pieces_init(&store->pieces, store->compiled->backend, store->device, store->stream, err);
}

/* Piece by piece: no file, and no copy of a whole value, is in memory beside what was allotted. */
static int load_value(struct store *store, const struct initial *initial, uint64_t seed,
                      int value, struct err *err)
{
    const struct value *v = &store->compiled->graph->values[value];
    size_t size = dtype_size(v->dtype), n = (size_t)shape_elements(&v->shape);
    size_t most = PIECE_BYTES / size;
    char *to = store_address(store, value, 0);
    void *piece;

    for (size_t first = 0; to && first < n; first += most) {
        size_t some = n - first < most ? n - first : most;

        if (pieces_take(&store->pieces, &piece, err) < 0 ||
            initial_read(initial, seed, v, first, some, piece, err) < 0 ||
            pieces_send(&store->pieces, to + first * size, some * size, err) < 0)
            return -1;
    }
    return 0;
}

bool store_keeps(const struct store *store, int value)
{
    const struct program_value *v = &store->compiled->program->values[value];
    enum value_kind kind = store->compiled->graph->values[value].kind;

    return v->root == value && v->place != PLACE_NONE &&
           (kind == VALUE_PARAM || kind == VALUE_STAT || kind == VALUE_CONST);
}

static int load_values(struct store *store, const struct initial *initial, uint64_t seed,
                       struct err *err)
{
    const struct value *values = store->compiled->graph->values;
    enum dtype type;

    for (int v = 0; v < store->compiled->program->n_values; v++)
        if (store_keeps(store, v) && initial_find(initial, &values[v], &type) < 0 &&
            load_value(store, initial, seed, v, err) < 0)
            return -1;
    return 0;
}

int store_put(struct store *store, int value, char *to, enum dtype type, const void *data, size_t n,
              struct err *err)
{
    enum dtype dtype = store->compiled->graph->values[value].dtype;
    size_t size = dtype_size(dtype), most = PIECE_BYTES / size;
    void *piece;

    if (open_pieces(store, err) < 0)
        return -1;
    for (size_t first = 0; first < n; first += most) {
        size_t some = n - first < most ? n - first : most;

        if (pieces_take(&store->pieces, &piece, err) < 0)
            return -1;
        dtype_convert(type, (const char *)data + first * dtype_size(type), dtype, piece, some);
        if (pieces_send(&store->pieces, to + first * size, some * size, err) < 0)
            return -1;
    }
    return 0;
}

int store_arrive(struct store *store, struct err *err)
{
    if (pieces_wait(&store->pieces, err) < 0)
        return -1;
    pieces_clear(&store->pieces);
    return 0;
}

/* Nothing is older before the first update. Constants are among what is prepared. */
int store_settle(struct store *store, bool weights, struct err *err)
{
    const struct program *p = store->compiled->program;

    if (store->n_versions > 1 &&
        ((weights && copy_latest(store, store->weights, p->param_bytes, err) < 0) ||
         copy_latest(store, store->prepared, p->prepared_bytes, err) < 0))
        return -1;
    return store_arrive(store, err);
}

int store_load(struct store *store, const struct initial *initial, uint64_t seed,
               struct err *err)
{
    return open_pieces(store, err) < 0 || load_values(store, initial, seed, err) < 0
               ? -1
               : store_arrive(store, err);
}
