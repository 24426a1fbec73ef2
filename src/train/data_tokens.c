/* SPDX-License-Identifier: MIT */
/* Token files (tasuki-data(5)), cut into sequences. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "train/data_format.h"
#include "train/data_tokens.h"

#define CHUNK 256               /* tokens widened at once */

struct tokens {
    struct file_map map;
    const char *path;
    const unsigned char *bytes;     /* of token 0 */
    int width;                      /* bytes of a token */
    int64_t count, length;          /* length: of a sequence; 0: not known yet */
    int64_t below;                  /* all are less */
};

static uint64_t little(const unsigned char *bytes, int n)
{
    uint64_t number = 0;

    for (int i = 0; i < n; i++)
        number |= (uint64_t)bytes[i] << 8 * i;
    return number;
}

/* Bytes of a token where the spec says it: "uint16:FILE"; 0 where it does not. */
static int raw_width(const char *spec)
{
    if (strncmp(spec, "uint16:", 7) == 0)
        return 2;
    return strncmp(spec, "uint32:", 7) == 0 ? 4 : 0;
}

static bool takes(const char *spec, const unsigned char *head)
{
    if (head)
        return memcmp(head, TOKENS_MAGIC, 8) == 0;
    return raw_width(spec) > 0;
}

static int read_header(struct tokens *t, struct err *err)
{
    const unsigned char *head = t->map.data;
    uint64_t version, width, count, vocabulary;

    if (t->map.size < TOKENS_HEADER)
        return err_set(err, "%s: the file ends inside its header", t->path);
    version = little(head + 8, 4);
    width = little(head + 12, 4);
    count = little(head + 16, 8);
    vocabulary = little(head + 24, 8);
    if (version != 1)
        return err_set(err, "%s: version %llu of token files is not known (1)", t->path,
                       (unsigned long long)version);
    if (width != 2 && width != 4)
        return err_set(err, "%s: tokens of %llu bytes are not supported (2 or 4)", t->path,
                       (unsigned long long)width);
    if (count != (t->map.size - TOKENS_HEADER) / width ||
        (t->map.size - TOKENS_HEADER) % width != 0)
        return err_set(err, "%s: the header says %llu tokens of %llu bytes, %zu bytes follow",
                       t->path, (unsigned long long)count, (unsigned long long)width,
                       t->map.size - TOKENS_HEADER);
    if (vocabulary > (uint64_t)1 << 8 * width)
        return err_set(err, "%s: a vocabulary of %llu does not fit into %llu bytes", t->path,
                       (unsigned long long)vocabulary, (unsigned long long)width);
    t->width = (int)width;
    t->bytes = head + TOKENS_HEADER;
    t->count = (int64_t)count;
    t->below = vocabulary ? (int64_t)vocabulary : (int64_t)1 << 8 * width;
    return 0;
}

static int open_file(struct data *data, struct err *err)
{
    struct tokens *t = data->state = mem_new(1, sizeof(*t));

    t->width = raw_width(data->path);
    t->path = t->width ? strchr(data->path, ':') + 1 : data->path;
    if (file_map_open(t->path, &t->map, err) < 0)
        return -1;
    if (t->width) {
        if (t->map.size % (size_t)t->width != 0)
            return err_set(err, "%s: %zu bytes are no multiple of %d", t->path, t->map.size,
                           t->width);
        t->bytes = t->map.data;
        t->count = (int64_t)(t->map.size / (size_t)t->width);
        t->below = (int64_t)1 << 8 * t->width;
    } else if (read_header(t, err) < 0) {
        return -1;
    }
    if (t->count < 2)
        return err_set(err, "%s: %lld tokens are no sequence", t->path, (long long)t->count);
    data_add_file(data, t->path, &t->map);
    data->samples = t->count - 1;
    return 0;
}

static bool reads_tokens(const struct model_tensor *input)
{
    return input->shape.rank == 1 && (input->dtype == DTYPE_I64 || input->dtype == DTYPE_I32);
}

static int complete(struct data *data, const struct data_wanted *wanted, struct err *err)
{
    struct tokens *t = data->state;
    const struct model_tensor *input = data_only_input(data, wanted, reads_tokens,
                                                       "tokens", err);
    struct shape shape;

    if (!input)
        return -1;
    shape = input->shape;
    if (data_fix_dim(data, input, 0, data->options.sequence_length, "sequence-length",
                     &shape.dim[0], err) < 0)
        return -1;
    t->length = shape.dim[0];
    data->samples = t->length > 0 ? (t->count - 1) / t->length : 0;
    if (data->samples == 0)
        return err_set(err, "%s: %lld tokens are fewer than a sequence of %lld and the next",
                       t->path, (long long)t->count, (long long)t->length);
    data_add(data, input->name, DTYPE_I64, &shape, NULL);
    if (wanted->label)
        data_add(data, wanted->label, DTYPE_I64, &shape, NULL);
    return 0;
}

/* Tensor 1, the labels, is one token further on. */
static int read_sample(struct data_reader *reader, int tensor, int64_t sample, int64_t epoch,
                       const struct data_target *to, struct err *err)
{
    const struct tokens *t = reader->data->state;
    int64_t start = sample * t->length + tensor, values[CHUNK];

    (void)epoch;
    for (int64_t first = 0; first < t->length; first += CHUNK) {
        int64_t n = t->length - first < CHUNK ? t->length - first : CHUNK;

        for (int64_t i = 0; i < n; i++) {
            int64_t at = start + first + i;

            values[i] = (int64_t)little(t->bytes + at * t->width, t->width);
            if (values[i] >= t->below)
                return err_set(err, "%s: token %lld is %lld, the header says a vocabulary of "
                               "%lld", t->path, (long long)at, (long long)values[i],
                               (long long)t->below);
        }
        data_put(to, DTYPE_I64, values, (size_t)first, (size_t)n);
    }
    return 0;
}

static int64_t below(const struct data *data, int tensor)
{
    (void)tensor;
    return ((const struct tokens *)data->state)->below;
}

static void close_file(void *state)
{
    struct tokens *t = state;

    if (t)
        file_map_close(&t->map);
    free(t);
}

const struct data_format data_tokens = {
    .name = "tokens", .takes = takes, .open = open_file, .complete = complete,
    .read = read_sample, .below = below, .close = close_file,
};
