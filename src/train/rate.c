/* SPDX-License-Identifier: MIT */
#include "train/rate.h"

#include <math.h>

#define CYCLE_START (1.0 / 25)
#define CYCLE_RISE 0.3

static double cosine(double from, double to, double part)
{
    return to + (from - to) * (1 + cos(M_PI * part)) / 2;
}

/* How far it is from the end of the warm-up to the end, at most 1. */
static double decayed(const struct rate *r, int64_t t)
{
    if (t >= r->length)
        return 1;
    return t > r->warmup ? (double)(t - r->warmup) / (double)(r->length - r->warmup) : 0;
}

static double one_cycle(const struct rate *r, int64_t t)
{
    double rise = r->warmup > 0 ? (double)r->warmup : CYCLE_RISE * (double)r->length;
    double top = fmax(rise - 1, 0), last = (double)r->length - 1;

    if ((double)t < top)
        return cosine(CYCLE_START, 1, (double)t / top);
    if ((double)t >= last)
        return last > top ? r->final : 1;
    return cosine(1, r->final, ((double)t - top) / (last - top));
}

double rate_at(const struct rate *rate, int64_t t)
{
    const struct rate *r = rate;
    double rising = t < r->warmup ? (double)(t + 1) / (double)r->warmup : 1;

    switch (r->kind) {
    case RATE_STEP:
        return rising * pow(r->factor, (double)(t / r->every));
    case RATE_COSINE:
        return rising * cosine(1, r->final, decayed(r, t));
    case RATE_LINEAR:
        return rising * (1 + (r->final - 1) * decayed(r, t));
    case RATE_ONE_CYCLE:
        return one_cycle(r, t);
    default:
        return rising;
    }
}
