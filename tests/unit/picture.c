/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_JPEG
#include <jpeglib.h>
#endif

#include "base/mem.h"

void bytes_add(struct bytes *bytes, const void *data, size_t size)
{
    if (bytes->size + size > bytes->room) {
        bytes->room = 2 * (bytes->size + size);
        bytes->data = mem_resize(bytes->data, bytes->room, 1);
    }
    if (size)
        memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

void bytes_clear(struct bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct bytes){ 0 };
}

#if defined(HAVE_JPEG) && defined(HAVE_ARCHIVE)

bool picture_built(void)
{
    return true;
}

#else

bool picture_built(void)
{
    return false;
}

#endif

#ifdef HAVE_JPEG

static void draw_pixel(int x, int y, int width, int height, int blue, int components,
                       unsigned char *out)
{
    int red = 255 * x / width, green = 255 * y / height;

    switch (components) {
    case 1:
        out[0] = (unsigned char)((299 * red + 587 * green + 114 * blue) / 1000);
        break;
    case 4:         /* inverted, without black */
        out[3] = 255;
        /* fall through */
    default:
        out[0] = (unsigned char)red;
        out[1] = (unsigned char)green;
        out[2] = (unsigned char)blue;
    }
}

struct bytes picture_draw(int width, int height, int blue, int components, bool progressive)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    unsigned char *memory = NULL, *row = mem_new((size_t)width * 4, 1);
    unsigned long size = 0;
    struct bytes bytes = { 0 };

    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &memory, &size);
    info.image_width = (JDIMENSION)width;
    info.image_height = (JDIMENSION)height;
    info.input_components = components;
    info.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB
                                                                           : JCS_CMYK;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 95, TRUE);
    info.write_Adobe_marker = components == 4;
    if (progressive)
        jpeg_simple_progression(&info);
    jpeg_start_compress(&info, TRUE);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++)
            draw_pixel(x, y, width, height, blue, components, row + x * components);
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    bytes_add(&bytes, memory, size);
    free(memory);
    free(row);
    return bytes;
}

#else

struct bytes picture_draw(int width, int height, int blue, int components, bool progressive)
{
    (void)width;
    (void)height;
    (void)blue;
    (void)components;
    (void)progressive;
    return (struct bytes){ 0 };
}

#endif

void tar_add(struct bytes *tar, const char *name, const void *data, size_t size)
{
    static const unsigned char zeros[512];
    char head[512] = { 0 };
    unsigned sum = 0;

    snprintf(head, 100, "%s", name);
    memcpy(head + 100, "0000644\0" "0000000\0" "0000000\0", 24);
    snprintf(head + 124, 12, "%011o", (unsigned)size);
    memcpy(head + 136, "00000000000\0" "        " "0", 21);
    memcpy(head + 257, "ustar\0" "00", 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)head[i];
    snprintf(head + 148, 7, "%06o", sum);
    bytes_add(tar, head, sizeof(head));
    bytes_add(tar, data, size);
    bytes_add(tar, zeros, (512 - size % 512) % 512);
}

void tar_add_sample(struct bytes *tar, const char *name, int width, int height, int label)
{
    struct bytes picture = picture_draw(width, height, 10 + 20 * label, 3, false);
    char file[128], text[16];

    snprintf(file, sizeof(file), "%s.jpg", name);
    tar_add(tar, file, picture.data, picture.size);
    snprintf(file, sizeof(file), "%s.cls", name);
    snprintf(text, sizeof(text), "%d\n", label);
    tar_add(tar, file, text, strlen(text));
    bytes_clear(&picture);
}

void tar_end(struct bytes *tar)
{
    static const unsigned char zeros[1024];

    bytes_add(tar, zeros, sizeof(zeros));
}
