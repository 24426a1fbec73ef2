/* SPDX-License-Identifier: MIT */
#include "train/data.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/option.h"
#include "train/data_format.h"

static const struct data_format *const formats[] = {
    &data_synthetic, &data_tokens, &data_tar, &data_npy, &data_safetensors,
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int bad_colors(const char *name, struct err *err)
{
    return err_set_code(err, EXIT_USAGE, "--%s: expected R,G,B, or one number for all, from 0 "
                        "to 1", name);
}

/* "R,G,B", or one number for all. */
static int read_colors(const struct options *options, const char *name, double colors[3],
                       struct err *err)
{
    const char *text = option_string(options, name, NULL);
    char *end;
    int n = 0;

    if (!text)
        return 0;
    do {
        colors[n] = strtod(text, &end);
        if (end == text || !(colors[n] >= 0 && colors[n] <= 1))
            return bad_colors(name, err);
        text = end + 1;
        n++;
    } while (*end == ',' && n < 3);
    if (*end || n == 2)
        return bad_colors(name, err);
    if (n == 1)
        colors[1] = colors[2] = colors[0];
    return 0;
}

static int check_colors(const struct options *options, const struct data_options *data,
                        struct err *err)
{
    if (option_given(options, "image-mean") != option_given(options, "image-std"))
        return err_set_code(err, EXIT_USAGE, "--image-mean and --image-std go together");
    for (int c = 0; option_given(options, "image-std") && c < 3; c++)
        if (data->image_std[c] <= 0)
            return err_set_code(err, EXIT_USAGE, "--image-std: expected more than 0");
    return 0;
}

int data_options_read(const struct options *options, struct data_options *data,
                      struct err *err)
{
    *data = (struct data_options){ .augment = true, .max_bad = INT64_MAX };
    if (options_takes(options, "max-bad-samples") &&
        (option_int(options, "max-bad-samples", 0, INT64_MAX, 0, &data->max_bad, err) < 0 ||
         read_colors(options, "image-mean", data->image_mean, err) < 0 ||
         read_colors(options, "image-std", data->image_std, err) < 0 ||
         check_colors(options, data, err) < 0))
        return -1;
    if (options_takes(options, "augment"))
        data->augment = option_flag(options, "augment", true);
    if (option_int(options, "sequence-length", 1, 1 << 30, 0, &data->sequence_length, err) < 0)
        return -1;
    return option_int(options, "image-size", 1, 1 << 15, 0, &data->image_size, err);
}

/* Opening ---------------------------------------------------------------------------- */

/* The beginning of a regular file; false where there is none. */
static bool read_head(const char *path, unsigned char head[DATA_HEAD])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    bool there = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);

    memset(head, 0, DATA_HEAD);
    there = there && pread(fd, head, DATA_HEAD, 0) >= 0;
    if (fd >= 0)
        close(fd);
    return there;
}

static const struct data_format *find_format(const char *spec)
{
    unsigned char head[DATA_HEAD];
    bool there = read_head(spec, head);
    size_t i = 0;

    while (!formats[i]->takes(spec, there ? head : NULL))
        i++;
    return formats[i];
}

void data_add(struct data *data, const char *name, enum dtype dtype, const struct shape *shape,
              const void *rows)
{
    size_t n = (size_t)data->n + 1;

    data->tensors = mem_resize(data->tensors, n, sizeof(*data->tensors));
    data->rows = mem_resize(data->rows, n, sizeof(*data->rows));
    data->tensors[data->n] = (struct model_tensor){
        .name = arena_strdup(data->arena, name), .dtype = dtype, .shape = *shape,
    };
    data->rows[data->n++] = rows;
}

int data_add_array(struct data *data, const char *path, const char *name, enum dtype dtype,
                   const struct shape *shape, const void *rows, struct err *err)
{
    struct shape sample = { .rank = shape->rank - 1 };

    if (shape->rank == 0)
        return err_set(err, "%s: tensor \"%s\": a scalar has no sample dimension", path, name);
    if (data->n == 0)
        data->samples = shape->dim[0];
    if (shape->dim[0] != data->samples)
        return err_set(err, "%s: tensor \"%s\" has %lld samples, \"%s\" has %lld", path, name,
                       (long long)shape->dim[0], data->tensors[0].name,
                       (long long)data->samples);
    for (int i = 1; i < shape->rank; i++)
        sample.dim[i - 1] = shape->dim[i];
    data_add(data, name, dtype, &sample, rows);
    return 0;
}

void data_add_file(struct data *data, const char *path, const struct file_map *map)
{
    *(struct data_file *)mem_push((void **)&data->files, &data->n_files,
                                  sizeof(*data->files)) =
        (struct data_file){ arena_strdup(data->arena, path), *map };
}

struct data *data_open(const char *spec, const struct data_options *options, struct err *err)
{
    struct data *data = mem_new(1, sizeof(*data));

    data->path = mem_strdup(spec);
    data->arena = arena_new();
    data->options = options ? *options : (struct data_options){ .max_bad = INT64_MAX };
    data->format = find_format(spec);
    if (data->format->open(data, err) < 0)
        goto fail;
    if (data->samples == 0) {
        err_set(err, "%s: no samples", data->path);
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
    data->format->close(data->state);
    arena_free(data->arena);
    free(data->tensors);
    free(data->rows);
    free(data->files);
    free(data->path);
    free(data);
}

const char *data_path(const struct data *data)
{
    return data->path;
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

const struct data_file *data_files(const struct data *data, int *n)
{
    *n = data->n_files;
    return data->files;
}

bool data_file_feeds(const struct data *data, int file, int tensor)
{
    const struct file_map *map = &data->files[file].map;
    const unsigned char *rows = data->rows[tensor];

    return !rows || (rows >= map->data && rows < map->data + map->size);
}

/* What the model wants --------------------------------------------------------------- */

/* The labels' name: the last one in --loss, and what the loss takes where nothing is said. */
static const char *label_name(const char *loss)
{
    const char *comma = loss ? strrchr(loss, ',') : NULL;

    if (!loss)
        return "labels";
    return comma ? comma + 1 : NULL;
}

int data_complete(struct data *data, struct model *model, const char *loss,
                  struct err *err)
{
    struct data_wanted wanted = { .model = model, .loss = loss, .label = label_name(loss) };
    struct model_tensor input;
    int result;

    if (!data->format->complete)
        return 0;
    while (model_input(model, wanted.n, &input))
        *(struct model_tensor *)mem_push((void **)&wanted.inputs, &wanted.n, sizeof(input)) =
            input;
    result = data->format->complete(data, &wanted, err);
    free(wanted.inputs);
    return result;
}

const struct model_tensor *data_only_input(const struct data *data,
                                           const struct data_wanted *wanted,
                                           bool (*reads)(const struct model_tensor *input),
                                           const char *what, struct err *err)
{
    const struct model_tensor *found = NULL;
    int bad = 0;

    for (int i = 0; i < wanted->n && !bad; i++) {
        const struct model_tensor *input = &wanted->inputs[i];

        if (wanted->label && strcmp(input->name, wanted->label) == 0)
            continue;
        if (!reads(input))
            bad = err_set(err, "%s: input \"%s\" is for no %s, and the data have nothing else",
                          data->path, input->name, what);
        else if (found)
            bad = err_set(err, "%s: which input reads the %s, \"%s\" or \"%s\"? The data have "
                          "nothing else", data->path, what, found->name, input->name);
        found = input;
    }
    if (!found)
        bad = err_set(err, "%s: the model has no input that reads %s", data->path, what);
    return bad ? NULL : found;
}

int data_fix_dim(const struct data *data, const struct model_tensor *input, int axis,
                 int64_t said, const char *option, int64_t *dim, struct err *err)
{
    if (*dim < 0 && !said)
        return err_set(err, "%s: dimension %d of input \"%s\" is not fixed by the model: say "
                       "--%s", data->path, axis + 1, input->name, option);
    if (*dim >= 0 && said && *dim != said)
        return err_set(err, "--%s %lld: dimension %d of input \"%s\" is %lld", option,
                       (long long)said, axis + 1, input->name, (long long)*dim);
    if (*dim < 0)
        *dim = said;
    return 0;
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

int64_t data_bad(const struct data *data, int *n, const char *const **names)
{
    *n = 0;
    return data->format->bad ? data->format->bad(data, n, names) : 0;
}

void data_note_damage(struct data_reader *reader, const char *name)
{
    atomic_store(&reader->data->damaged_name, name);
    atomic_fetch_add(&reader->data->damaged, 1);
}

int64_t data_damaged(const struct data *data, const char **name)
{
    int64_t n = atomic_load(&data->damaged);

    *name = atomic_load(&data->damaged_name);
    return n;
}

bool data_decodes(const struct data *data)
{
    return data->format->decodes;
}

int64_t data_below(const struct data *data, int tensor)
{
    return data->format->below ? data->format->below(data, tensor) : 0;
}

/* Reading ---------------------------------------------------------------------------- */

struct data_reader *data_reader_new(struct data *data)
{
    struct data_reader *reader = mem_new(1, sizeof(*reader));

    reader->data = data;
    if (data->format->reader_new)
        reader->state = data->format->reader_new(data);
    return reader;
}

void data_reader_free(struct data_reader *reader)
{
    if (!reader)
        return;
    if (reader->data->format->reader_free)
        reader->data->format->reader_free(reader->state);
    free(reader);
}

void data_put(const struct data_target *to, enum dtype from, const void *values, size_t first,
              size_t n)
{
    const char *in = values;
    size_t size = dtype_size(to->type), in_size = dtype_size(from);

    while (n > 0) {
        size_t block = first / to->inner, at = first % to->inner;
        size_t part = to->inner - at < n ? to->inner - at : n;

        dtype_convert(from, in, to->type, to->out + (block * to->stride + at) * size, part);
        in += part * in_size;
        first += part;
        n -= part;
    }
}

int data_gather(struct data_reader *reader, const struct data_want *want, int64_t epoch,
                const int64_t *samples, int64_t n, int64_t first, int64_t count, void *out,
                struct err *err)
{
    const struct data *data = reader->data;
    const struct model_tensor *t = &data->tensors[want->tensor];
    const char *rows = data->rows[want->tensor];
    size_t elements = (size_t)(want->batch.outer * want->batch.inner);
    struct data_target to = { .type = want->to, .inner = (size_t)want->batch.inner,
                              .stride = (size_t)(n * want->batch.inner) };

    for (int64_t s = first; s < first + count; s++) {
        to.out = (char *)out + (size_t)s * to.inner * dtype_size(to.type);
        if (rows)
            data_put(&to, t->dtype, rows + (size_t)samples[s] * elements * dtype_size(t->dtype),
                     0, elements);
        else if (data->format->read(reader, want->tensor, samples[s], epoch, &to, err) < 0)
            return -1;
    }
    return 0;
}
