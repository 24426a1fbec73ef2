/* SPDX-License-Identifier: MIT */
/* Pictures resized by a triangle filter, whose width is that of an output pixel where the
 * picture shrinks, and two of its own pixels where it grows.
 */
#ifndef TASUKI_TRAIN_RESIZE_H
#define TASUKI_TRAIN_RESIZE_H

#include <stddef.h>

struct err;

/* Memory that is kept from picture to picture; zeroed at first. */
struct resize {
    float *rows;                /* [height][components][out width] */
    float *weights;
    int *first, *count;         /* of the pixels that an output pixel is made of */
    size_t n_rows, n_weights, n_first;
};

struct resize_source {
    const unsigned char *pixels;    /* [height][width][components] */
    int width, height, components;
    double left, top, window_width, window_height;  /* the part that is wanted, in pixels */
};

void resize_clear(struct resize *resize);
/* Planes [channels][height][width]; components are 'channels', or 3 that grey is made of. */
int resize_planes(struct resize *resize, const struct resize_source *source, int channels,
                  int height, int width, float *out, struct err *err);

#endif
