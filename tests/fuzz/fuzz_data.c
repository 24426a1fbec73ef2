/* SPDX-License-Identifier: MIT */
/* Hostile data files of the formats that are known by how they start. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "read_data.h"
#include "picture.h"
#include "train/data_format.h"
#include "train/data_tokens.h"
#include "train/npy.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The number where it is to be right, else one that hurts. */
static int64_t mostly(struct fuzz *fuzz, bool structured, int64_t number)
{
    return structured && fuzz_once_in(fuzz, 6) ? fuzz_number(fuzz) : number;
}

static void put_little(struct fuzz_file *file, uint64_t number, int bytes)
{
    unsigned char out[8];

    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(number >> 8 * i);
    fuzz_put(file, out, (size_t)bytes);
}

static void make_npy(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    static const char *const descr[] = { "'<f4'", "'<i8'", "'|u1'", "'>f4'", "[('a', '<f4')]" };
    static const int size[] = { 4, 8, 1, 4, 4 };
    static const unsigned char zeros[8 * 16 * 8];
    size_t type = fuzz_below(fuzz, structured ? COUNT(descr) : 3);
    int64_t rows = 1 + (int64_t)fuzz_below(fuzz, 15), width = 1 + (int64_t)fuzz_below(fuzz, 7);
    int version = structured && fuzz_once_in(fuzz, 8) ? (int)fuzz_below(fuzz, 256)
                                                       : 1 + (int)fuzz_below(fuzz, 3);
    char header[256];
    int n = snprintf(header, sizeof(header), "{'descr': %s, 'fortran_order': %s, 'shape': "
                     "(%" PRId64 ", %" PRId64 "), }", descr[type],
                     structured && fuzz_once_in(fuzz, 8) ? "True" : "False",
                     mostly(fuzz, structured, rows), mostly(fuzz, structured, width));

    fuzz_put(file, NPY_MAGIC, 6);
    put_little(file, (uint64_t)version, 2);
    put_little(file, (uint64_t)mostly(fuzz, structured, n), version == 1 ? 2 : 4);
    fuzz_put(file, header, (size_t)n);
    fuzz_put(file, zeros, (size_t)(rows * width * size[type]));
}

static void make_tokens(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    static const unsigned char zeros[4 * 64];
    size_t width = fuzz_once_in(fuzz, 2) ? 2 : 4, count = 2 + fuzz_below(fuzz, 62);

    fuzz_put(file, TOKENS_MAGIC, 8);
    put_little(file, (uint64_t)mostly(fuzz, structured, 1), 4);
    put_little(file, (uint64_t)mostly(fuzz, structured, (int64_t)width), 4);
    put_little(file, (uint64_t)mostly(fuzz, structured, (int64_t)count), 8);
    put_little(file, (uint64_t)mostly(fuzz, structured, 256), 8);
    fuzz_put(file, zeros, count * width);
}

/* Two samples; the numbers in the headers of the archive are text. */
static void make_tar(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    struct bytes tar = { 0 };

    tar_add_sample(&tar, "a", 9, 9, 1);
    tar_add_sample(&tar, "b", 16, 16, 2);
    tar_end(&tar);
    for (size_t n = structured ? fuzz_below(fuzz, 4) : 0; n > 0; n--)
        tar.data[fuzz_below(fuzz, tar.size)] = (unsigned char)fuzz_next(fuzz);
    fuzz_put(file, tar.data, tar.size);
    bytes_clear(&tar);
}

static void make(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    static void (*const makers[])(struct fuzz *, bool, struct fuzz_file *) = {
        make_npy, make_tokens, make_tar,
    };

    makers[fuzz_below(fuzz, picture_built() ? 3 : 2)](fuzz, structured, file);
    if (!structured)
        fuzz_damage(fuzz, file);
}

static enum fuzz_result try(const char *path, struct err *err)
{
    struct model_tensor input = { "x", DTYPE_I64, { .rank = 1, .dim = { 7 } } };
    struct data_wanted wanted = { .n = 1, .inputs = &input, .label = "labels" };
    struct data *data = data_open(path, NULL, err);
    int bad;

    if (data && strcmp(data->format->name, "tar") == 0)
        input = (struct model_tensor){ "x", DTYPE_F32, { .rank = 3, .dim = { 3, 4, 4 } } };
    if (!data)
        return strstr(err->text, "no .npy file") || strstr(err->text, "safetensors") ||
                       strstr(err->text, "ends inside its header")
                   ? FUZZ_UNPARSED
                   : FUZZ_REFUSED;
    bad = data->format->complete ? data->format->complete(data, &wanted, err) : 0;
    if (!bad)
        bad = fuzz_read_data(data, err);
    data_close(data);
    return bad ? FUZZ_REFUSED : FUZZ_ACCEPTED;
}

int main(int argc, char **argv)
{
    static const struct fuzz_target target = { "data", ".bin", make, try };

    return fuzz_main(&target, argc, argv);
}
