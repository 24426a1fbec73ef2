/* SPDX-License-Identifier: MIT */
#include "train/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Uniform in [0, n) without bias. */
static uint64_t random_below(uint64_t *state, uint64_t n)
{
    uint64_t limit = UINT64_MAX - UINT64_MAX % n, x;

    do
        x = next_random(state);
    while (x >= limit);
    return x % n;
}

static void make_order(struct sampler *s, int64_t epoch)
{
    uint64_t state = s->seed;

    state = next_random(&state) ^ (uint64_t)epoch;
    for (int64_t i = 0; i < s->samples; i++)
        s->order[i] = i;
    for (int64_t i = s->samples - 1; s->shuffle && i > 0; i--) {
        int64_t j = (int64_t)random_below(&state, (uint64_t)i + 1), swap = s->order[i];

        s->order[i] = s->order[j];
        s->order[j] = swap;
    }
    s->epoch = epoch;
}

int sampler_init(struct sampler *sampler, int64_t samples, int64_t global_batch,
                 uint64_t seed, bool shuffle, struct err *err)
{
    if (samples < global_batch)
        return err_set(err, "the data has %lld samples, fewer than one global batch of %lld",
                       (long long)samples, (long long)global_batch);
    *sampler = (struct sampler){ .samples = samples, .global_batch = global_batch,
                                 .steps_per_epoch = samples / global_batch, .seed = seed,
                                 .shuffle = shuffle, .epoch = -1, .length = samples };
    sampler->order = mem_try((size_t)samples, sizeof(int64_t), err);
    return sampler->order ? 0 : -1;
}

int sampler_init_whole(struct sampler *sampler, int64_t samples, int64_t global_batch,
                       struct err *err)
{
    int64_t rest = samples % global_batch, steps = samples / global_batch + (rest ? 2 : 0);

    *sampler = (struct sampler){ .samples = samples, .global_batch = global_batch,
                                 .steps_per_epoch = steps, .length = steps * global_batch };
    sampler->order = mem_try((size_t)sampler->length, sizeof(int64_t), err);
    for (int64_t i = 0; sampler->order && i < sampler->length; i++)
        sampler->order[i] = i < samples ? i : samples - rest;
    return sampler->order ? 0 : -1;
}

int sampler_copy(struct sampler *copy, const struct sampler *sampler, struct err *err)
{
    int64_t *order = mem_try((size_t)sampler->length, sizeof(int64_t), err);

    if (!order)
        return -1;
    memcpy(order, sampler->order, (size_t)sampler->length * sizeof(int64_t));
    *copy = *sampler;
    copy->order = order;
    return 0;
}

void sampler_clear(struct sampler *sampler)
{
    free(sampler->order);
    sampler->order = NULL;
}

int64_t sampler_epoch(const struct sampler *sampler, int64_t step)
{
    return step / sampler->steps_per_epoch;
}

const int64_t *sampler_step(struct sampler *sampler, int64_t step)
{
    int64_t epoch = sampler_epoch(sampler, step);

    if (epoch != sampler->epoch)
        make_order(sampler, epoch);
    return sampler->order + step % sampler->steps_per_epoch * sampler->global_batch;
}
