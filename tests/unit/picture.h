/* SPDX-License-Identifier: MIT */
/* Pictures and tar archives that tests draw. */
#ifndef TASUKI_TESTS_PICTURE_H
#define TASUKI_TESTS_PICTURE_H

#include <stdbool.h>
#include <stddef.h>

struct bytes {
    unsigned char *data;
    size_t size, room;
};

void bytes_add(struct bytes *bytes, const void *data, size_t size);
void bytes_clear(struct bytes *bytes);

bool picture_built(void);       /* are libjpeg and libarchive there? */
/* A JPEG: red grows from left to right, green from top to bottom, blue is 'blue'; 'components'
 * 1 (the grey of it), 3 or 4 (CMYK as Adobe writes it). Empty where there is no libjpeg.
 */
struct bytes picture_draw(int width, int height, int blue, int components, bool progressive);

/* A file of a tar archive in the ustar format. */
void tar_add(struct bytes *tar, const char *name, const void *data, size_t size);
/* A sample: NAME.jpg of this many pixels, and NAME.cls. */
void tar_add_sample(struct bytes *tar, const char *name, int width, int height, int label);
void tar_end(struct bytes *tar);

#endif
