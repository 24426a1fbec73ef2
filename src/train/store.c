/* SPDX-License-Identifier: MIT */
#include "train/store.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

/* Every block is freed with the size that it was asked for. */
struct block {
    char **memory;
    size_t bytes;
};

static int list_blocks(struct store *s, struct block blocks[13])
{
    const struct program *p = s->compiled->program;
    int n = 0;

    blocks[n++] = (struct block){ &s->params, p->param_bytes };
    blocks[n++] = (struct block){ &s->gradients, p->gradient_bytes };
    for (int i = 0; i < s->n_states; i++)
        blocks[n++] = (struct block){ &s->states[i], s->compiled->state_bytes };
    if (s->averaged)
        blocks[n++] = (struct block){ &s->averages, s->compiled->state_bytes };
    blocks[n++] = (struct block){ &s->prepared, p->prepared_bytes };
    blocks[n++] = (struct block){ &s->slots, (size_t)s->n_slots * p->slot_bytes };
    blocks[n++] = (struct block){ &s->scratch, p->scratch_bytes };
    blocks[n++] = (struct block){ &s->workspace, p->workspace_bytes };
    blocks[n++] = (struct block){ &s->buffers, s->buffer_bytes };
    blocks[n++] = (struct block){ &s->weight_sum, COMPILE_SCALARS };
    return n;
}

int store_init(struct store *store, const struct compiled *compiled,
               const struct placement *placement, struct device *device,
               struct stream *stream, int optimizer_states, bool averaged,
               size_t buffer_bytes, struct err *err)
{
    struct block blocks[13];
    int n;

    *store = (struct store){
        .compiled = compiled, .device = device, .stream = stream,
        .n_slots = compiled->schedule->stages[compiled->stage].slots,
        .n_states = optimizer_states, .averaged = averaged, .buffer_bytes = buffer_bytes,
    };
    slices_make(&store->slices, compiled, placement);
    n = list_blocks(store, blocks);
    for (int i = 0; i < n; i++) {
        if (blocks[i].bytes == 0)
            continue;
        *blocks[i].memory = compiled->backend->alloc(device, blocks[i].bytes, err);
        if (!*blocks[i].memory ||
            compiled->backend->fill_zero(stream, *blocks[i].memory, blocks[i].bytes, err) < 0) {
            store_clear(store);
            return -1;
        }
    }
    return 0;
}

void store_clear(struct store *store)
{
    struct block blocks[13];
    int n;

    if (!store->compiled)
        return;
    n = list_blocks(store, blocks);
    for (int i = 0; i < n; i++)
        if (*blocks[i].memory)
            store->compiled->backend->release(store->device, *blocks[i].memory,
                                              blocks[i].bytes);
    slices_clear(&store->slices);
    *store = (struct store){ 0 };
}

void *store_address(const struct store *store, int value, int slot)
{
    const struct program *p = store->compiled->program;
    const struct program_value *v;

    if (value < 0 || value >= p->n_values)
        return NULL;
    if (value == store->compiled->graph->weight_sum)
        return store->weight_sum;
    v = &p->values[p->values[value].root];
    switch (v->place) {
    case PLACE_PARAM: return store->params + v->offset;
    case PLACE_GRADIENT: return store->gradients + v->offset;
    case PLACE_PREPARED: return store->prepared + v->offset;
    case PLACE_SLOT: return store->slots + (size_t)slot * p->slot_bytes + v->offset;
    case PLACE_SCRATCH: return store->scratch + v->offset;
    default: return NULL;
    }
}

static int load_value(struct store *store, const struct initial *initial, uint64_t seed,
                      int value, struct err *err)
{
    const struct value *v = &store->compiled->graph->values[value];
    size_t n = (size_t)shape_elements(&v->shape), bytes = n * dtype_size(v->dtype);
    void *to = store_address(store, value, 0), *data;
    int bad = 0;

    if (!to || bytes == 0)
        return 0;
    data = mem_new(bytes, 1);
    if (v->data)
        dtype_convert(v->file_dtype, v->data, v->dtype, data, n);
    else
        bad = initial_fill(initial, seed, v, data, err);
    if (!bad)
        bad = store->compiled->backend->copy(store->stream, to, bytes, data, bytes, bytes, 1,
                                             err);
    if (!bad)
        bad = store->compiled->backend->stream_sync(store->stream, err);
    free(data);
    return bad;
}

int store_load(struct store *store, const struct initial *initial, uint64_t seed,
               struct err *err)
{
    const struct program *p = store->compiled->program;

    for (int v = 0; v < p->n_values; v++) {
        enum value_kind kind = store->compiled->graph->values[v].kind;

        if (p->values[v].root != v || p->values[v].place == PLACE_NONE)
            continue;
        if (kind != VALUE_PARAM && kind != VALUE_STAT && kind != VALUE_CONST)
            continue;
        if (load_value(store, initial, seed, v, err) < 0)
            return -1;
    }
    return 0;
}
