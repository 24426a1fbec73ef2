/* SPDX-License-Identifier: MIT */
#include "train/crop.h"

#include <math.h>

#include "graph/graph.h"
#include "kernels/philox.h"

#define TRIES 10

static double uniform(uint32_t word)
{
    return (double)word / 4294967296.0;
}

/* Where nothing drawn fits: the largest in the middle whose sides are 3:4 to 4:3. */
static struct jpeg_window largest(int width, int height)
{
    double ratio = (double)width / height, w = width, h = height;

    if (ratio < 3.0 / 4)
        h = round(w / (3.0 / 4));
    else if (ratio > 4.0 / 3)
        w = round(h * (4.0 / 3));
    return (struct jpeg_window){ floor((width - w) / 2), floor((height - h) / 2), w, h };
}

struct crop crop_random(uint64_t seed, int64_t epoch, int64_t sample, int width, int height)
{
    uint64_t key = philox_key(seed, graph_key("crop"));
    struct philox counter = { { 0, (uint32_t)epoch, (uint32_t)sample,
                                (uint32_t)((uint64_t)sample >> 32) } };
    struct crop crop = { .flip = philox_draw(key, counter).word[0] & 1 };

    for (counter.word[0] = 1; counter.word[0] <= TRIES; counter.word[0]++) {
        struct philox p = philox_draw(key, counter);
        double area = (double)width * height * (0.08 + 0.92 * uniform(p.word[0]));
        double side = log(4.0 / 3), ratio = exp(side * (2 * uniform(p.word[1]) - 1));
        double w = round(sqrt(area * ratio)), h = round(sqrt(area / ratio));

        if (w < 1 || h < 1 || w > width || h > height)
            continue;
        crop.window = (struct jpeg_window){ floor(uniform(p.word[2]) * (width - w + 1)),
                                            floor(uniform(p.word[3]) * (height - h + 1)),
                                            w, h };
        return crop;
    }
    crop.window = largest(width, height);
    return crop;
}

struct crop crop_middle(int width, int height, int out_width, int out_height)
{
    double x = (double)width / out_width, y = (double)height / out_height;
    double scale = (x < y ? x : y) * 7 / 8;
    double w = scale * out_width, h = scale * out_height;

    return (struct crop){ .window = { (width - w) / 2, (height - h) / 2, w, h } };
}
