/* SPDX-License-Identifier: MIT */
#include "train/data.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "train/convert.h"
#include "train/safetensors.h"

struct data {
    struct safetensors *file;
    int64_t samples;
    int n;
    struct model_tensor *tensors;
    const struct safetensors_tensor **stored;   /* the same, with their bytes */
};

static int add_tensor(struct data *data, const struct safetensors_tensor *t, struct err *err)
{
    const char *path = safetensors_path(data->file);
    struct model_tensor *to = &data->tensors[data->n];

    if (t->dtype == DTYPE_NONE)
        return err_set(err, "%s: tensor \"%s\": type %s is not supported (float32, float64, "
                       "int32, int64, uint8 or bool)", path, t->name, t->type);
    if (t->shape.rank == 0)
        return err_set(err, "%s: tensor \"%s\": a scalar has no sample dimension", path,
                       t->name);
    if (data->n == 0)
        data->samples = t->shape.dim[0];
    if (t->shape.dim[0] != data->samples)
        return err_set(err, "%s: tensor \"%s\" has %lld samples, \"%s\" has %lld", path,
                       t->name, (long long)t->shape.dim[0], data->tensors[0].name,
                       (long long)data->samples);
    to->name = t->name;
    to->dtype = t->dtype;
    to->shape.rank = t->shape.rank - 1;
    for (int i = 1; i < t->shape.rank; i++)
        to->shape.dim[i - 1] = t->shape.dim[i];
    data->stored[data->n++] = t;
    return 0;
}

struct data *data_open(const char *path, struct err *err)
{
    struct data *data = mem_new(1, sizeof(*data));
    int n;

    data->file = safetensors_open(path, err);
    if (!data->file)
        goto fail;
    n = safetensors_count(data->file);
    data->tensors = mem_new((size_t)n, sizeof(*data->tensors));
    data->stored = mem_new((size_t)n, sizeof(*data->stored));
    for (int i = 0; i < n; i++)
        if (add_tensor(data, safetensors_at(data->file, i), err) < 0)
            goto fail;
    if (data->samples == 0) {
        err_set(err, "%s: no samples", path);
        goto fail;
    }
    return data;
fail:
    data_close(data);
    return NULL;
}

void data_close(struct data *data)
{
    if (!data)
        return;
    free(data->tensors);
    free(data->stored);
    safetensors_close(data->file);
    free(data);
}

const char *data_path(const struct data *data)
{
    return safetensors_path(data->file);
}

int64_t data_samples(const struct data *data)
{
    return data->samples;
}

const struct model_tensor *data_tensors(const struct data *data, int *n)
{
    *n = data->n;
    return data->tensors;
}

static int find_tensor(const struct data *data, const char *name)
{
    for (int i = 0; i < data->n; i++)
        if (strcmp(data->tensors[i].name, name) == 0)
            return i;
    return -1;
}

static struct shape without(const struct shape *shape, int dimension)
{
    struct shape result = { .rank = shape->rank - 1 };

    for (int i = 0, j = 0; i < shape->rank; i++)
        if (i != dimension)
            result.dim[j++] = shape->dim[i];
    return result;
}

int data_bind(const struct data *data, const struct graph *graph, int value, struct err *err)
{
    const struct value *v = &graph->values[value];
    int t = find_tensor(data, v->name), at;
    const struct model_tensor *tensor;
    struct shape want;
    char have_text[128], want_text[128];

    if (t < 0)
        return err_set(err, "%s: no tensor \"%s\", which the model reads", data_path(data),
                       v->name);
    tensor = &data->tensors[t];
    at = v->batch.outer > 0 ? v->batch.place - 1 : -1;
    if (at < 0 || at >= v->shape.rank)
        return err_set(err, "input \"%s\" has no batch dimension: it cannot be fed by sample",
                       v->name);
    want = without(&v->shape, at);
    if (!shape_equal(&want, &tensor->shape))
        return err_set(err, "%s: tensor \"%s\": a sample is %s, the model wants %s",
                       data_path(data), v->name,
                       shape_text(&tensor->shape, have_text, sizeof(have_text)),
                       shape_text(&want, want_text, sizeof(want_text)));
    if (dtype_is_float(tensor->dtype) && !dtype_is_float(v->dtype))
        return err_set(err, "%s: tensor \"%s\" is %s, the model wants %s", data_path(data),
                       v->name, dtype_name(tensor->dtype), dtype_name(v->dtype));
    return t;
}

void data_gather(const struct data *data, int tensor, const int64_t *samples, int64_t n,
                 enum dtype to, struct batch batch, void *out)
{
    const struct safetensors_tensor *t = data->stored[tensor];
    size_t inner = (size_t)batch.inner, outer = (size_t)batch.outer;
    size_t in_row = inner * dtype_size(t->dtype), out_row = inner * dtype_size(to);

    for (int64_t s = 0; s < n; s++) {
        const char *from = (const char *)t->data + (size_t)samples[s] * outer * in_row;

        for (size_t o = 0; o < outer; o++)
            convert(t->dtype, from + o * in_row, to,
                    (char *)out + (o * (size_t)n + (size_t)s) * out_row, inner);
    }
}

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
                                 .shuffle = shuffle, .epoch = -1 };
    sampler->order = mem_try((size_t)samples, sizeof(int64_t), err);
    return sampler->order ? 0 : -1;
}

void sampler_clear(struct sampler *sampler)
{
    free(sampler->order);
    sampler->order = NULL;
}

const int64_t *sampler_step(struct sampler *sampler, int64_t step)
{
    int64_t epoch = step / sampler->steps_per_epoch;

    if (epoch != sampler->epoch)
        make_order(sampler, epoch);
    return sampler->order + step % sampler->steps_per_epoch * sampler->global_batch;
}
