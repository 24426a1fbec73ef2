/* SPDX-License-Identifier: MIT */
#include "comm/ordered.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "comm/sum.h"

/* What the parts of a sum are found by. */
struct step {
    struct comm_request *request;
    struct ordered *o;
    const struct ordered_driver *driver;
    size_t size;            /* bytes of an element */
    int n, me;
};

static struct step step_of(struct comm_request *request, struct ordered *o,
                           const struct ordered_driver *driver)
{
    return (struct step){ .request = request, .o = o, .driver = driver,
                          .size = sum_element(o->dtype, NULL), .n = request->group->n,
                          .me = request->group->me };
}

static size_t slice_start(const struct step *s, int member)
{
    return comm_slice_start(s->o->count, s->n, member);
}

static size_t slice_length(const struct step *s, int member)
{
    return slice_start(s, member + 1) - slice_start(s, member);
}

static unsigned char *slice(const struct step *s, int member)
{
    return s->o->data + slice_start(s, member) * s->size;
}

/* What this round is about of a member's slice; at the end of a slice it may be nothing. */
static size_t round_length(const struct step *s, int member)
{
    size_t length = slice_length(s, member);
    size_t left = length > s->o->summed ? length - s->o->summed : 0;

    return left < s->o->round ? left : s->o->round;
}

static unsigned char *round_start(const struct step *s, int member)
{
    return slice(s, member) + s->o->summed * s->size;
}

/* Member i's part of that: in my own data or in the scratch, packed in member order. */
static unsigned char *part(const struct step *s, int member)
{
    if (member == s->me)
        return round_start(s, member);
    return s->o->scratch + (size_t)(member - (member > s->me)) * s->o->round * s->size;
}

static const void *part_of(const void *step, int member)
{
    return part(step, member);
}

/* Over my own data. */
static void sum_round(const struct step *s)
{
    sum_parts(s->o->dtype, s->n, part_of, s, round_length(s, s->me), part(s, s->me));
}

/* Small steps around the ring of members, so that not all write to the same one first. */
static int post_collect(const struct step *s, struct err *err)
{
    size_t mine = round_length(s, s->me) * s->size;
    int tag = s->request->tag;

    for (int i = 1; i < s->n; i++) {
        int from = (s->me - i + s->n) % s->n;

        if (s->driver->receive(s->request, part(s, from), mine, from, tag, err))
            return -1;
    }
    for (int i = 1; i < s->n; i++) {
        int to = (s->me + i) % s->n;

        if (s->driver->send(s->request, round_start(s, to), round_length(s, to) * s->size, to, tag,
                            err))
            return -1;
    }
    return 0;
}

static int post_spread(const struct step *s, struct err *err)
{
    size_t mine = slice_length(s, s->me) * s->size;
    int tag = s->request->tag + 1;

    s->o->phase = ORDERED_SPREAD;
    for (int i = 1; i < s->n; i++) {
        int from = (s->me - i + s->n) % s->n;

        if (s->driver->receive(s->request, slice(s, from), slice_length(s, from) * s->size, from,
                               tag, err))
            return -1;
    }
    for (int i = 1; i < s->n; i++)
        if (s->driver->send(s->request, slice(s, s->me), mine, (s->me + i) % s->n, tag, err))
            return -1;
    return 0;
}

/* The last slice is one of the longest. */
static size_t longest_slice(const struct step *s)
{
    return slice_length(s, s->n - 1);
}

static int take_scratch(const struct step *s, struct err *err)
{
    struct ordered *o = s->o;
    size_t others = (size_t)s->n - 1, need;

    o->scratch = s->request->scratch;
    o->round = s->request->scratch_bytes / others / s->size;
    if (o->scratch && o->round == 0)
        return err_set(err, "%zu bytes are too few to sum in", s->request->scratch_bytes);
    if (o->scratch)
        return 0;
    o->round = longest_slice(s);
    if (size_mul(o->round * s->size, others, &need))
        return err_set(err, "%zu elements are too many", o->count);
    if (need > o->own_bytes) {
        ordered_clear(o);
        o->own = mem_try(need, 1, err);
        if (!o->own)
            return -1;
        o->own_bytes = need;
    }
    o->scratch = o->own;
    return 0;
}

int ordered_start(struct comm_request *request, struct ordered *ordered,
                  const struct ordered_driver *driver, void *data, size_t n, enum dtype dtype,
                  struct err *err)
{
    struct step step;

    if (!sum_element(dtype, err))
        return -1;
    ordered->dtype = dtype;
    ordered->count = n;
    ordered->data = data;
    ordered->summed = 0;
    step = step_of(request, ordered, driver);
    request->bytes = n * step.size;
    if (request->operation == COMM_ALL_GATHER)
        return post_spread(&step, err);
    if (take_scratch(&step, err))
        return -1;
    ordered->phase = ORDERED_COLLECT;
    return post_collect(&step, err);
}

int ordered_next(struct comm_request *request, struct ordered *ordered,
                 const struct ordered_driver *driver, bool *done, struct err *err)
{
    struct step step;

    *done = ordered->phase != ORDERED_COLLECT;
    if (*done)
        return 0;
    step = step_of(request, ordered, driver);
    sum_round(&step);
    ordered->summed += ordered->round;
    if (ordered->summed < longest_slice(&step))
        return post_collect(&step, err);
    *done = request->operation == COMM_REDUCE_SCATTER;
    return *done ? 0 : post_spread(&step, err);
}

void ordered_clear(struct ordered *ordered)
{
    free(ordered->own);
    ordered->own = NULL;
    ordered->own_bytes = 0;
}
