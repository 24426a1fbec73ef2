/* SPDX-License-Identifier: MIT */
#include "train/slices.h"

#include <stdlib.h>

#include "base/mem.h"
#include "comm/comm.h"
#include "scheduler/layout.h"

/* No slice of so many elements is longer. */
static size_t longest(size_t elements, int members)
{
    return (elements + (size_t)members - 1) / (size_t)members;
}

/* Its gradients are not scattered, see reduce_init(). */
static bool is_whole(const struct compiled *c, int group)
{
    return group > 0 && schedule_most_chunks(c->schedule) > 1;
}

size_t slices_bytes(const struct compiled *compiled, const struct plan *plan)
{
    size_t element = dtype_size(compiled->graph->real), bytes = 0;
    struct buckets b;

    if (!plan->zero)
        return compiled->program->gradient_bytes;
    buckets_make(&b, compiled, plan->n_stages, 0);
    for (int i = 0; i < b.n_cuts; i++) {
        int group = b.cuts[i].group, n = 1;

        if (!is_whole(compiled, group))
            n = buckets_members(&b, group, plan);
        bytes += layout_aligned(element * longest(b.cuts[i].bytes / element, n));
    }
    buckets_clear(&b);
    return bytes;
}

static void cut_bucket(struct slices *slices, const struct buckets *b, int i, size_t element,
                       const struct placement *placement, int *ranks, bool whole, size_t *state)
{
    const struct bucket_cut *cut = &b->cuts[i];
    int n = whole ? 1 : buckets_ranks(b, cut->group, placement, ranks), me = 0;
    int rank = placement_rank(placement, placement->stage, placement->pipeline,
                              placement->replica);
    size_t elements = cut->bytes / element, start;

    while (!whole && ranks[me] != rank)
        me++;
    start = comm_slice_start(elements, n, me);
    slices->items[i] = (struct slice){
        .bucket = cut->offset, .bucket_bytes = cut->bytes, .group = cut->group,
        .offset = cut->offset + start * element, .state = *state,
        .bytes = (comm_slice_start(elements, n, me + 1) - start) * element, .whole = whole,
        .counts = !whole || (placement->pipeline == 0 && placement->replica == 0),
    };
    *state += layout_aligned(element * longest(elements, n));
}

void slices_make(struct slices *slices, const struct compiled *compiled,
                 const struct placement *placement)
{
    size_t all = compiled->program->gradient_bytes, state = 0;
    struct buckets b;
    int *ranks;

    *slices = (struct slices){ 0 };
    if (!compiled->sharded) {
        *(struct slice *)mem_push((void **)&slices->items, &slices->n, sizeof(struct slice)) =
            (struct slice){ .bucket_bytes = all, .bytes = all, .whole = true, .counts = true };
        return;
    }
    buckets_make(&b, compiled, placement->n_stages, 0);
    ranks = mem_new((size_t)placement->n_ranks, sizeof(*ranks));
    slices->n = b.n_cuts;
    slices->items = mem_new((size_t)b.n_cuts, sizeof(*slices->items));
    for (int i = 0; i < b.n_cuts; i++)
        cut_bucket(slices, &b, i, dtype_size(compiled->graph->real), placement, ranks,
                   is_whole(compiled, b.cuts[i].group), &state);
    free(ranks);
    buckets_clear(&b);
}

void slices_clear(struct slices *slices)
{
    free(slices->items);
    *slices = (struct slices){ 0 };
}

struct slice slices_part(const struct slices *slices, size_t offset, size_t bytes)
{
    const struct slice *s = slices->items;
    struct slice part;
    size_t end;

    while (s->bucket + s->bucket_bytes <= offset && s + 1 < slices->items + slices->n)
        s++;
    part = *s;
    end = s->offset + s->bytes < offset + bytes ? s->offset + s->bytes : offset + bytes;
    part.offset = s->offset > offset ? s->offset : offset;
    part.bytes = part.offset < end ? end - part.offset : 0;
    part.state = part.bytes ? s->state + (part.offset - s->offset) : 0;
    return part;
}
