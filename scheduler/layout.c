/* SPDX-License-Identifier: MIT */
#include "scheduler/layout.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"

/* Who finds a place first, by tries: the largest; the largest, and those that are there for long;
 * those that are there where most bytes are, the longest first; then the second anew, as drawn by
 * lot, as long as no more pairs are looked at.
 */
enum { BY_SIZE, BY_SIZE_AND_LENGTH, BY_PEAK, BY_LOT, TRIES = 32 };
#define MAX_PAIRS 2e7

struct entry {
    double key;
    struct layout_buffer *buffer;
};

/* Largest key first; ties in order of birth, then of index, so that the result is one. */
static int by_key(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->key > y->key || x->key < y->key)
        return x->key > y->key ? -1 : 1;
    if (x->buffer->first != y->buffer->first)
        return x->buffer->first < y->buffer->first ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
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

/* The largest sum of live bytes, and where it is. */
static size_t find_peak(const struct layout_buffer *buffers, int n, int *point)
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
        if (live > most) {
            most = live;
            *point = changes[i].point;
        }
    }
    free(changes);
    return most;
}

size_t layout_lower_bound(const struct layout_buffer *buffers, int n)
{
    int point;

    return find_peak(buffers, n, &point);
}

/* A buffer that has its place. */
struct placed {
    int first, last;
    size_t offset, end;
};

/* The smallest gap between the buffers that live at the same time, else the end of them. */
static size_t best_offset(const struct placed *placed, int n, const struct layout_buffer *buffer)
{
    size_t need = layout_aligned(buffer->bytes), end = 0, best = 0, best_gap = SIZE_MAX;
    int first = buffer->first, last = buffer->last;

    for (int i = 0; i < n; i++) {
        const struct placed *p = &placed[i];

        if (p->first > last || first > p->last)
            continue;
        if (p->offset >= end + need && p->offset - end < best_gap) {
            best = end;
            best_gap = p->offset - end;
        }
        if (p->end > end)
            end = p->end;
    }
    return best_gap == SIZE_MAX ? end : best;
}

/* 'placed' stays sorted by offset. */
static void insert(struct placed *placed, int n, struct placed new)
{
    int i = n;

    while (i > 0 && placed[i - 1].offset > new.offset)
        i--;
    memmove(&placed[i + 1], &placed[i], (size_t)(n - i) * sizeof(*placed));
    placed[i] = new;
}

/* In this order: the bytes of the arena; it ends where these are 'most' already. */
static size_t place_all(const struct entry *order, int n, size_t most, struct placed *placed)
{
    size_t end = 0;

    for (int i = 0; i < n && end < most; i++) {
        struct layout_buffer *b = order[i].buffer;
        struct placed new = { b->first, b->last, best_offset(placed, i, b), 0 };

        b->offset = new.offset;
        new.end = new.offset + layout_aligned(b->bytes);
        insert(placed, i, new);
        end = new.end > end ? new.end : end;
    }
    return end;
}

/* From 0 to 1, the same each time. */
static double lot(int try, int i)
{
    uint64_t x = ((uint64_t)try << 32 | (uint32_t)i) * 0x9e3779b97f4a7c15;

    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    return (double)(x >> 40) / (1 << 24);
}

static double key_of(const struct layout_buffer *b, int i, int try, int n_points, int peak)
{
    double bytes = (double)b->bytes, length = b->last - b->first + 1;

    switch (try) {
    case BY_SIZE:
        return bytes;
    case BY_SIZE_AND_LENGTH:
        return bytes * sqrt(length);
    case BY_PEAK:
        return length + (b->first <= peak && peak <= b->last ? n_points : 0);
    default:
        return bytes * pow(length, lot(try, -1)) * (1 + lot(try, i) / 2);
    }
}

static void sort(struct layout_buffer *buffers, int n, int try, int peak, struct entry *entries)
{
    int points = 0;

    for (int i = 0; i < n; i++)
        points = buffers[i].last >= points ? buffers[i].last + 1 : points;
    for (int i = 0; i < n; i++)
        entries[i] = (struct entry){ key_of(&buffers[i], i, try, points, peak), &buffers[i] };
    qsort(entries, (size_t)n, sizeof(*entries), by_key);
}

static size_t place_copies(struct layout_buffer *buffers, int n)
{
    struct entry *entries = mem_new((size_t)n, sizeof(*entries));
    struct placed *placed = mem_new((size_t)n, sizeof(*placed));
    size_t *offsets = mem_new((size_t)n, sizeof(*offsets)), best = SIZE_MAX, least, end;
    int peak = 0;

    least = find_peak(buffers, n, &peak);
    for (int t = 0; t < TRIES && best > least; t++) {
        if (t >= BY_LOT && (double)t * n * n > MAX_PAIRS)
            break;
        sort(buffers, n, t, peak, entries);
        end = place_all(entries, n, best, placed);
        for (int i = 0; i < n && end < best; i++)
            offsets[i] = buffers[i].offset;
        best = end < best ? end : best;
    }
    for (int i = 0; i < n; i++)
        buffers[i].offset = offsets[i];
    free(offsets);
    free(placed);
    free(entries);
    return best;
}

/* How many points, of those where something is born, are not behind this one: less 1, but not
 * below 0.
 */
static int rank(const int *births, int n, int point)
{
    int low = 0, high = n;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (births[middle] <= point)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? low - 1 : 0;
}

/* Of 'buffers', at which points something is born, each once; malloc'ed. */
static int *find_births(const struct layout_buffer *buffers, int n, int *n_births)
{
    int *births = mem_new((size_t)n, sizeof(*births)), all = 0;

    for (int i = 0; i < n; i++)
        if (buffers[i].bytes > 0)
            births[all++] = buffers[i].first;
    order_sort(births, (size_t)all, sizeof(*births), order_ints);
    *n_births = 0;
    for (int i = 0; i < all; i++)
        if (i == 0 || births[i] != births[i - 1])
            births[(*n_births)++] = births[i];
    return births;
}

struct copy {
    struct layout_buffer own;
    struct layout_buffer *of;
};

static int by_life(const void *a, const void *b)
{
    const struct layout_buffer *x = &((const struct copy *)a)->own;
    const struct layout_buffer *y = &((const struct copy *)b)->own;

    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->last != y->last)
        return x->last < y->last ? -1 : 1;
    return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

/* What is placed are copies in one order and with points that are counted by births, so that the
 * arena depends on nothing but which live at the same time.
 */
size_t layout_place(struct layout_buffer *buffers, int n)
{
    struct layout_buffer *own = mem_new((size_t)n, sizeof(*own));
    struct copy *copies = mem_new((size_t)n, sizeof(*copies));
    int n_births, *births = find_births(buffers, n, &n_births);
    size_t bytes;

    for (int i = 0; i < n; i++) {
        copies[i].of = &buffers[i];
        copies[i].own = buffers[i];
        copies[i].own.first = rank(births, n_births, buffers[i].first);
        copies[i].own.last = rank(births, n_births, buffers[i].last);
    }
    order_sort(copies, (size_t)n, sizeof(*copies), by_life);
    for (int i = 0; i < n; i++)
        own[i] = copies[i].own;
    bytes = place_copies(own, n);
    for (int i = 0; i < n; i++)
        copies[i].of->offset = own[i].offset;
    free(births);
    free(copies);
    free(own);
    return bytes;
}
