/* SPDX-License-Identifier: MIT */
/* Windows of JPEG pictures as numbers, by libjpeg. A decoder belongs to one thread and keeps
 * its memory from picture to picture.
 */
#ifndef TASUKI_TRAIN_JPEG_H
#define TASUKI_TRAIN_JPEG_H

#include <stdbool.h>
#include <stddef.h>

struct err;
struct jpeg;

/* Part of a picture, in its pixels. */
struct jpeg_window {
    double x, y, width, height;
};

bool jpeg_built(void);              /* is libjpeg there? */
struct jpeg *jpeg_new(void);
void jpeg_free(struct jpeg *jpeg);

/* Is this a whole JPEG that can be decoded, by its headers, tables and end? The compressed data
 * between them are not read. Gives its size. NULL, or why not.
 */
const char *jpeg_check(struct jpeg *jpeg, const void *bytes, size_t size, int *width,
                       int *height);

/* The window, resized to 'channels' (1: grey, 3: red, green, blue) planes of height x width,
 * 0 to 255, each pixel the mean of those that it covers weighted by a triangle (as PIL and
 * torchvision resize with antialiasing). Where the compressed data are damaged what cannot be
 * decoded is grey, and '*damaged' is set. Fails where the headers are not what jpeg_check()
 * accepts, or memory ends.
 */
int jpeg_decode(struct jpeg *jpeg, const void *bytes, size_t size,
                const struct jpeg_window *window, int channels, int height, int width,
                float *out, bool *damaged, struct err *err);

#endif
