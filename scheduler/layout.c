/* SPDX-License-Identifier: MIT */
#include "scheduler/layout.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"

/* Largest first; ties in order of birth, then of index, so that the result is one. */
static int by_size(const void *a, const void *b)
{
    const struct layout_buffer *x = *(struct layout_buffer *const *)a;
    const struct layout_buffer *y = *(struct layout_buffer *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool overlaps(const struct layout_buffer *a, const struct layout_buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The smallest gap between the buffers that live at the same time, else the end of them. */
static size_t best_offset(struct layout_buffer *const *placed, int n,
                          const struct layout_buffer *buffer)
{
    size_t need = layout_aligned(buffer->bytes), end = 0, best = 0, best_gap = SIZE_MAX;

    for (int i = 0; i < n; i++) {
        const struct layout_buffer *p = placed[i];

        if (!overlaps(p, buffer))
            continue;
        if (p->offset >= end + need && p->offset - end < best_gap) {
            best = end;
            best_gap = p->offset - end;
        }
        if (p->offset + layout_aligned(p->bytes) > end)
            end = p->offset + layout_aligned(p->bytes);
    }
    return best_gap == SIZE_MAX ? end : best;
}

/* 'placed' stays sorted by offset. */
static void insert(struct layout_buffer **placed, int n, struct layout_buffer *buffer)
{
    int i = n;

    for (; i > 0 && placed[i - 1]->offset > buffer->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = buffer;
}

size_t layout_place(struct layout_buffer *buffers, int n)
{
    struct layout_buffer **order = mem_new((size_t)n, sizeof(*order));
    struct layout_buffer **placed = mem_new((size_t)n, sizeof(*placed));
    size_t end = 0;

    for (int i = 0; i < n; i++)
        order[i] = &buffers[i];
    qsort(order, (size_t)n, sizeof(*order), by_size);
    for (int i = 0; i < n; i++) {
        struct layout_buffer *b = order[i];

        b->offset = best_offset(placed, i, b);
        insert(placed, i, b);
        if (b->offset + layout_aligned(b->bytes) > end)
            end = b->offset + layout_aligned(b->bytes);
    }
    free(placed);
    free(order);
    return end;
}

struct change {
    int point;
    bool birth;
    size_t bytes;
};

static int by_point(const void *a, const void *b)
{
    const struct change *x = a, *y = b;

    if (x->point != y->point)
        return x->point < y->point ? -1 : 1;
    return (int)x->birth - (int)y->birth;
}

size_t layout_lower_bound(const struct layout_buffer *buffers, int n)
{
    struct change *changes = mem_new(2 * (size_t)n, sizeof(*changes));
    size_t live = 0, most = 0;

    for (int i = 0; i < n; i++) {
        size_t bytes = layout_aligned(buffers[i].bytes);

        changes[2 * i] = (struct change){ buffers[i].first, true, bytes };
        changes[2 * i + 1] = (struct change){ buffers[i].last + 1, false, bytes };
    }
    qsort(changes, 2 * (size_t)n, sizeof(*changes), by_point);
    for (int i = 0; i < 2 * n; i++) {
        live = changes[i].birth ? live + changes[i].bytes : live - changes[i].bytes;
        if (live > most)
            most = live;
    }
    free(changes);
    return most;
}
