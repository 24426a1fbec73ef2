/* SPDX-License-Identifier: MIT */
#include "train/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void resize_clear(struct resize *resize)
{
    free(resize->rows);
    free(resize->weights);
    free(resize->first);
    *resize = (struct resize){ 0 };
}

static int grow(void **memory, size_t *have, size_t need, size_t size, struct err *err)
{
    if (need <= *have)
        return 0;
    free(*memory);
    *have = 0;
    *memory = mem_try(need, size, err);
    if (!*memory)
        return -1;
    *have = need;
    return 0;
}

/* For each of 'out' pixels the input pixels it is made of, and their weights: the sum is 1. */
static int find_weights(struct resize *r, double start, double length, int in, int out,
                        int *taps, struct err *err)
{
    double scale = length / out, reach = scale > 1 ? scale : 1;

    *taps = (int)ceil(2 * reach) + 2;
    if (grow((void **)&r->weights, &r->n_weights, (size_t)out * (size_t)*taps, sizeof(float),
             err) < 0 ||
        grow((void **)&r->first, &r->n_first, 2 * (size_t)out, sizeof(int), err) < 0)
        return -1;
    r->count = r->first + out;
    for (int i = 0; i < out; i++) {
        double center = start + (i + 0.5) * scale, sum = 0;
        int from = (int)floor(center - reach + 0.5), to = (int)floor(center + reach + 0.5);
        float *w = r->weights + (size_t)i * (size_t)*taps;

        from = from < 0 ? 0 : from > in - 1 ? in - 1 : from;
        to = to > in ? in : to <= from ? from + 1 : to;
        for (int x = from; x < to; x++) {
            double distance = fabs((x + 0.5 - center) / reach);

            w[x - from] = distance < 1 ? (float)(1 - distance) : 0;
            sum += w[x - from];
        }
        for (int x = from; x < to; x++)
            w[x - from] = sum > 0 ? (float)(w[x - from] / sum) : x == from;
        r->first[i] = from;
        r->count[i] = to - from;
    }
    return 0;
}

/* The loop below for three colors, of which the compiler then knows that they are three. */
static void shrink_colors(const struct resize *r, const unsigned char *in, int width, int taps,
                          float *out)
{
    for (int x = 0; x < width; x++) {
        const float *w = r->weights + (size_t)x * (size_t)taps;
        const unsigned char *at = in + (size_t)r->first[x] * 3;
        float red = 0, green = 0, blue = 0;

        for (int i = 0; i < r->count[x]; i++, at += 3) {
            red += w[i] * (float)at[0];
            green += w[i] * (float)at[1];
            blue += w[i] * (float)at[2];
        }
        out[x] = red;
        out[width + x] = green;
        out[2 * width + x] = blue;
    }
}

static void shrink_row(const struct resize *r, const unsigned char *in, int components,
                       int width, int taps, float *out)
{
    if (components == 3) {
        shrink_colors(r, in, width, taps, out);
        return;
    }
    for (int x = 0; x < width; x++) {
        const float *w = r->weights + (size_t)x * (size_t)taps;
        const unsigned char *at = in + (size_t)r->first[x] * (size_t)components;
        float sum[3] = { 0 };

        for (int i = 0; i < r->count[x]; i++, at += components)
            for (int c = 0; c < components; c++)
                sum[c] += w[i] * (float)at[c];
        for (int c = 0; c < components; c++)
            out[c * width + x] = sum[c];
    }
}

/* The weights of ITU-R BT.601, as libjpeg and PIL have them. */
static void make_grey(float *rows, int height, int width)
{
    for (int y = 0; y < height; y++) {
        float *to = rows + (size_t)y * (size_t)width;
        const float *row = rows + (size_t)y * 3 * (size_t)width;

        for (int x = 0; x < width; x++)
            to[x] = 0.299f * row[x] + 0.587f * row[width + x] + 0.114f * row[2 * width + x];
    }
}

static void sum_rows(const struct resize *r, int channels, int height, int width, int taps,
                     float *out)
{
    size_t row = (size_t)channels * (size_t)width, plane = (size_t)height * (size_t)width;

    for (int y = 0; y < height; y++) {
        const float *w = r->weights + (size_t)y * (size_t)taps;

        for (int c = 0; c < channels; c++) {
            const float *in = r->rows + (size_t)r->first[y] * row + (size_t)(c * width);
            float *to = out + (size_t)c * plane + (size_t)y * (size_t)width;

            memset(to, 0, (size_t)width * sizeof(*to));
            for (int i = 0; i < r->count[y]; i++, in += row)
                for (int x = 0; x < width; x++)
                    to[x] += w[i] * in[x];
        }
    }
}

int resize_planes(struct resize *resize, const struct resize_source *source, int channels,
                  int height, int width, float *out, struct err *err)
{
    struct resize *r = resize;
    const struct resize_source *s = source;
    size_t row = (size_t)s->components * (size_t)width;
    int taps;

    if (grow((void **)&r->rows, &r->n_rows, (size_t)s->height * row, sizeof(float), err) < 0 ||
        find_weights(r, s->left, s->window_width, s->width, width, &taps, err) < 0)
        return -1;
    for (int y = 0; y < s->height; y++)
        shrink_row(r, s->pixels + (size_t)y * (size_t)s->width * (size_t)s->components,
                   s->components, width, taps, r->rows + (size_t)y * row);
    if (s->components > channels)
        make_grey(r->rows, s->height, width);
    if (find_weights(r, s->top, s->window_height, s->height, height, &taps, err) < 0)
        return -1;
    sum_rows(r, channels, height, width, taps, out);
    return 0;
}
