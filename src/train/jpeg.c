/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "train/jpeg.h"

#include "base/err.h"
#include "base/mem.h"

#ifdef HAVE_JPEG

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "train/resize.h"

#define MAX_PIXELS ((int64_t)1 << 28)
#define TAIL 1024               /* bytes in which the end must be found */
#define GREY 128
#define MAX_SCANS 500           /* each takes a pass over all pixels */
#define SCANNED_PIXELS (MAX_PIXELS / 8)     /* of several scans, whose coefficients are kept */

struct jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char why[JMSG_LENGTH_MAX];
    unsigned char *pixels;          /* the part that was decoded, interleaved */
    size_t room;
    struct resize resize;
};

bool jpeg_built(void)
{
    return true;
}

static void fail(j_common_ptr info)
{
    struct jpeg *jpeg = info->client_data;

    info->err->format_message(info, jpeg->why);
    longjmp(jpeg->failed, 1);
}

/* Warnings are counted, and nothing is printed. */
static void note(j_common_ptr info, int level)
{
    if (level < 0)
        info->err->num_warnings++;
}

static void count_scans(j_common_ptr info)
{
    struct jpeg *jpeg = info->client_data;

    if (jpeg->info.input_scan_number <= MAX_SCANS)
        return;
    jpeg->errors.msg_code = 0;
    snprintf(jpeg->why, sizeof(jpeg->why), "more than %d scans", MAX_SCANS);
    longjmp(jpeg->failed, 1);
}

struct jpeg *jpeg_new(void)
{
    struct jpeg *jpeg = mem_new(1, sizeof(*jpeg));

    jpeg->info.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = fail;
    jpeg->errors.emit_message = note;
    jpeg->info.client_data = jpeg;
    if (setjmp(jpeg->failed) == 0)
        jpeg_create_decompress(&jpeg->info);
    jpeg->progress.progress_monitor = count_scans;
    jpeg->info.progress = &jpeg->progress;
    return jpeg;
}

void jpeg_free(struct jpeg *jpeg)
{
    if (!jpeg)
        return;
    jpeg_destroy_decompress(&jpeg->info);
    resize_clear(&jpeg->resize);
    free(jpeg->pixels);
    free(jpeg);
}

static bool has_end(const unsigned char *bytes, size_t size)
{
    size_t least = size > TAIL ? size - TAIL : 0;

    for (size_t i = size; i >= least + 2; i--)
        if (bytes[i - 2] == 0xff && bytes[i - 1] == JPEG_EOI)
            return true;
    return false;
}

/* NULL, or why not. */
static const char *read_header(struct jpeg *jpeg, const void *bytes, size_t size)
{
    struct jpeg_decompress_struct *info = &jpeg->info;

    if (size < 4 || memcmp(bytes, "\xff\xd8\xff", 3) != 0)
        return "no JPEG";
    jpeg_mem_src(info, bytes, size);
    jpeg_read_header(info, TRUE);
    if ((int64_t)info->image_width * info->image_height >
        (jpeg_has_multiple_scans(info) ? SCANNED_PIXELS : MAX_PIXELS))
        return "more pixels than are supported";
    if (info->data_precision != 8)
        return "not 8 bits for each color";
    return NULL;
}

static void choose_colors(struct jpeg *jpeg, int channels)
{
    J_COLOR_SPACE from = jpeg->info.jpeg_color_space;

    if (from == JCS_CMYK || from == JCS_YCCK)
        jpeg->info.out_color_space = JCS_CMYK;
    else
        jpeg->info.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
}

const char *jpeg_check(struct jpeg *jpeg, const void *bytes, size_t size, int *width,
                       int *height)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    const char *why;

    if (setjmp(jpeg->failed)) {
        jpeg_abort_decompress(info);
        return jpeg->why;
    }
    why = read_header(jpeg, bytes, size);
    if (!why && !has_end(bytes, size))
        why = "its end is missing";
    if (!why) {
        choose_colors(jpeg, 3);
        /* A progressive one would be read through here. */
        if (!jpeg_has_multiple_scans(info))
            jpeg_start_decompress(info);
        *width = (int)info->image_width;
        *height = (int)info->image_height;
    }
    jpeg_abort_decompress(info);
    return why;
}

/* The coarsest of the scales that libjpeg does fast which still has enough pixels. */
static unsigned choose_scale(const struct jpeg_window *window, int height, int width)
{
    unsigned scale = 1;

    while (scale < 8 && (window->width * scale < 8.0 * width ||
                         window->height * scale < 8.0 * height))
        scale *= 2;
    return scale;
}

/* Where the window lies in the scaled picture. */
struct part {
    JDIMENSION x, y, width, height; /* decoded */
    int components;
    double left, top, scale;        /* of the window, in the part */
};

static int find_part(struct jpeg *jpeg, const struct jpeg_window *window, unsigned scale,
                     struct part *p, struct err *err)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    double f = scale / 8.0, right = ceil((window->x + window->width) * f - 1e-9);
    double bottom = ceil((window->y + window->height) * f - 1e-9);
    size_t bytes;

    p->scale = f;
    p->x = (JDIMENSION)(window->x * f);
    p->y = (JDIMENSION)(window->y * f);
    p->x = p->x < info->output_width ? p->x : info->output_width - 1;
    p->y = p->y < info->output_height ? p->y : info->output_height - 1;
    p->width = (right < info->output_width ? (JDIMENSION)right : info->output_width) - p->x;
    p->height = (bottom < info->output_height ? (JDIMENSION)bottom : info->output_height) -
                p->y;
    p->width = p->width ? p->width : 1;
    p->height = p->height ? p->height : 1;
    if (p->width < info->output_width)
        jpeg_crop_scanline(info, &p->x, &p->width);
    p->components = info->output_components;
    p->left = window->x * f - p->x;
    p->top = window->y * f - p->y;
    bytes = (size_t)p->width * p->height * (size_t)p->components;
    if (bytes > jpeg->room) {
        free(jpeg->pixels);
        jpeg->room = 0;
        jpeg->pixels = mem_try(bytes, 1, err);
        if (!jpeg->pixels)
            return -1;
        jpeg->room = bytes;
    }
    memset(jpeg->pixels, GREY, bytes);
    return 0;
}

/* Adobe's CMYK is stored inverted; three of four bytes remain. */
static void to_rgb(const struct jpeg *jpeg, struct part *p)
{
    size_t n = (size_t)p->width * p->height;
    unsigned char flip = jpeg->info.saw_Adobe_marker ? 0 : 0xff;

    for (size_t i = 0; i < n; i++) {
        const unsigned char *in = jpeg->pixels + 4 * i;
        unsigned char k = in[3] ^ flip, rgb[3];

        for (int c = 0; c < 3; c++)
            rgb[c] = (unsigned char)((in[c] ^ flip) * k / 255);
        memcpy(jpeg->pixels + 3 * i, rgb, 3);
    }
    p->components = 3;
}

/* One picture on its way. What changes lives here, where longjmp() leaves it. */
struct decoding {
    const void *bytes;
    size_t size;
    const struct jpeg_window *window;
    int channels, height, width;
    struct part part;
    bool opened;                    /* the header is that of a picture */
    bool started;                   /* the part is known */
    const char *why;                /* it is refused */
    struct err *err;
};

static int read_part(struct jpeg *jpeg, struct decoding *d)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    struct part *p = &d->part;

    d->opened = true;
    choose_colors(jpeg, d->channels);
    info->scale_num = choose_scale(d->window, d->height, d->width);
    info->scale_denom = 8;
    jpeg_calc_output_dimensions(info);
    jpeg_start_decompress(info);
    if (find_part(jpeg, d->window, info->scale_num, p, d->err) < 0)
        return -1;
    d->started = true;
    if (p->y > 0)
        jpeg_skip_scanlines(info, p->y);
    while (info->output_scanline < p->y + p->height) {
        size_t row = info->output_scanline - p->y;
        JSAMPROW at = jpeg->pixels + row * p->width * (size_t)p->components;

        jpeg_read_scanlines(info, &at, 1);
    }
    return 0;
}

/* 1: libjpeg gave up, and says why in jpeg->why. */
static int read_picture(struct jpeg *jpeg, struct decoding *d)
{
    if (setjmp(jpeg->failed))
        return 1;
    d->why = read_header(jpeg, d->bytes, d->size);
    return d->why ? err_set(d->err, "%s", d->why) : read_part(jpeg, d);
}

static int all_grey(struct jpeg *jpeg, size_t n, float *out)
{
    jpeg_abort_decompress(&jpeg->info);
    for (size_t i = 0; i < n; i++)
        out[i] = GREY;
    return 0;
}

int jpeg_decode(struct jpeg *jpeg, const void *bytes, size_t size,
                const struct jpeg_window *window, int channels, int height, int width,
                float *out, bool *damaged, struct err *err)
{
    struct decoding d = { .bytes = bytes, .size = size, .window = window, .channels = channels,
                          .height = height, .width = width, .err = err };
    int bad = read_picture(jpeg, &d);
    struct resize_source source;

    *damaged = bad > 0 || jpeg->errors.num_warnings > 0;
    /* What jpeg_check() cannot see is damage: the picture is grey from there on. */
    if (bad > 0 && (!d.opened || jpeg->errors.msg_code == JERR_OUT_OF_MEMORY))
        bad = err_set(err, "%s", jpeg->why);
    else if (bad > 0 && !d.started)
        return all_grey(jpeg, (size_t)channels * (size_t)height * (size_t)width, out);
    bad = bad < 0 ? -1 : 0;
    if (!bad && d.part.components == 4)
        to_rgb(jpeg, &d.part);
    jpeg_abort_decompress(&jpeg->info);
    if (bad)
        return -1;
    source = (struct resize_source){
        .pixels = jpeg->pixels, .width = (int)d.part.width, .height = (int)d.part.height,
        .components = d.part.components, .left = d.part.left, .top = d.part.top,
        .window_width = window->width * d.part.scale,
        .window_height = window->height * d.part.scale,
    };
    return resize_planes(&jpeg->resize, &source, channels, height, width, out, err);
}

#else

bool jpeg_built(void)
{
    return false;
}

struct jpeg *jpeg_new(void)
{
    return NULL;
}

void jpeg_free(struct jpeg *jpeg)
{
    (void)jpeg;
}

const char *jpeg_check(struct jpeg *jpeg, const void *bytes, size_t size, int *width,
                       int *height)
{
    (void)jpeg;
    (void)bytes;
    (void)size;
    (void)width;
    (void)height;
    return "this build is without libjpeg";
}

int jpeg_decode(struct jpeg *jpeg, const void *bytes, size_t size,
                const struct jpeg_window *window, int channels, int height, int width,
                float *out, bool *damaged, struct err *err)
{
    (void)jpeg;
    (void)bytes;
    (void)size;
    (void)window;
    (void)channels;
    (void)height;
    (void)width;
    (void)out;
    *damaged = false;
    return err_set(err, "this build is without libjpeg");
}

#endif
