/* SPDX-License-Identifier: MIT */
/* WebDataset tars of JPEG pictures and classes (tasuki-data(5)). */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "train/crop.h"
#include "train/data_format.h"
#include "train/shards.h"
#include "train/tar_index.h"

struct tar {
    struct tar_index index;
    int channels, height, width;    /* as the model wants them */
    float mean[3], factor[3];
};

struct tar_reader {
    struct jpeg *jpeg;
    float *planes;
};

static bool takes(const char *spec, const unsigned char *head)
{
    struct stat st;
    char **paths;
    int n;

    if (head)
        return file_ends_in(spec, ".tar") || memcmp(head + 257, "ustar", 5) == 0;
    if (stat(spec, &st) < 0)
        return file_ends_in(spec, ".tar");
    if (!S_ISDIR(st.st_mode) || shards_find(spec, ".tar", &paths, &n, NULL) < 0)
        return false;
    shards_free(paths, n);
    return true;
}

static int open_shards(struct data *data, struct err *err)
{
    struct tar *tar = data->state = mem_new(1, sizeof(*tar));
    struct tar_index *index = &tar->index;

    if (!tar_index_built() || !jpeg_built())
        return err_set(err, "%s: pictures in tar archives are read by libarchive and libjpeg: "
                       "this build is without %s", data->path,
                       tar_index_built() ? "libjpeg" : "libarchive");
    if (tar_index_open(index, data->path, data->options.cache, data->options.keeps_cache,
                       err) < 0)
        return -1;
    if (index->n_bad > data->options.max_bad)
        return err_set(err, "%s (bad samples: %lld of %lld, more than --max-bad-samples %lld)",
                       index->bad[0], (long long)index->n_bad,
                       (long long)(index->n + index->n_bad), (long long)data->options.max_bad);
    data->samples = index->n;
    for (int i = 0; i < index->n_shards; i++)
        data_add_file(data, index->paths[i], &index->maps[i]);
    return 0;
}

static int64_t bad_samples(const struct data *data, int *n, const char *const **names)
{
    const struct tar *tar = data->state;

    *n = tar->index.n_named;
    *names = (const char *const *)tar->index.bad;
    return tar->index.n_bad;
}

/* Floats, [N, C, H, W]. */
static bool reads_pictures(const struct model_tensor *input)
{
    return input->shape.rank == 3 && dtype_is_float(input->dtype);
}

/* Of ImageNet, in 0 … 255; grey is the mean of the three. */
static void choose_scale(struct tar *tar, const struct data_options *o)
{
    static const double mean[] = { 0.485, 0.456, 0.406 }, std[] = { 0.229, 0.224, 0.225 };

    for (int c = 0; c < 3; c++) {
        double m = o->image_std[0] > 0 ? o->image_mean[c]
                   : tar->channels == 1 ? 0.449 : mean[c];
        double s = o->image_std[0] > 0 ? o->image_std[c] : tar->channels == 1 ? 0.226 : std[c];

        tar->mean[c] = (float)(255 * m);
        tar->factor[c] = (float)(1 / (255 * s));
    }
}

/* No file is read for them. */
static const int64_t *list_labels(struct data *data)
{
    const struct tar *tar = data->state;
    int64_t *labels = arena_alloc(data->arena, (size_t)data->samples, sizeof(*labels));

    for (int64_t i = 0; i < data->samples; i++)
        labels[i] = tar->index.samples[i].label;
    return labels;
}

static int complete(struct data *data, const struct data_wanted *wanted, struct err *err)
{
    const struct model_tensor *input = data_only_input(data, wanted, reads_pictures,
                                                       "pictures", err);
    struct tar *tar = data->state;
    struct shape shape;

    if (!input)
        return -1;
    shape = input->shape;
    shape.dim[0] = shape.dim[0] < 0 ? 3 : shape.dim[0];
    if (shape.dim[0] != 1 && shape.dim[0] != 3)
        return err_set(err, "%s: input \"%s\" wants %lld colors, pictures have 1 or 3",
                       data->path, input->name, (long long)shape.dim[0]);
    for (int i = 1; i < 3; i++) {
        if (data_fix_dim(data, input, i, data->options.image_size, "image-size",
                         &shape.dim[i], err) < 0)
            return -1;
        if (shape.dim[i] < 1 || shape.dim[i] > 1 << 15)
            return err_set(err, "%s: input \"%s\": pictures of %lld pixels are not supported",
                           data->path, input->name, (long long)shape.dim[i]);
    }
    tar->channels = (int)shape.dim[0];
    tar->height = (int)shape.dim[1];
    tar->width = (int)shape.dim[2];
    choose_scale(tar, &data->options);
    data_add(data, input->name, DTYPE_F32, &shape, NULL);
    if (wanted->label)
        data_add(data, wanted->label, DTYPE_I64, &(struct shape){ 0 }, list_labels(data));
    return 0;
}

static struct crop choose_crop(const struct data *data, const struct tar_sample *s,
                               int64_t sample, int64_t epoch)
{
    const struct tar *tar = data->state;

    if (data->options.test || !data->options.augment)
        return crop_middle(s->width, s->height, tar->width, tar->height);
    return crop_random(data->options.seed, epoch, sample, s->width, s->height);
}

static void normalise(const struct tar *tar, bool flip, float *planes)
{
    for (int c = 0; c < tar->channels; c++)
        for (int y = 0; y < tar->height; y++) {
            float *row = planes + ((size_t)c * (size_t)tar->height + (size_t)y) *
                                      (size_t)tar->width;

            for (int x = 0; x < tar->width; x++)
                row[x] = (row[x] - tar->mean[c]) * tar->factor[c];
            for (int a = 0, b = tar->width - 1; flip && a < b; a++, b--) {
                float swap = row[a];

                row[a] = row[b];
                row[b] = swap;
            }
        }
}

static int read_sample(struct data_reader *reader, int tensor, int64_t sample, int64_t epoch,
                       const struct data_target *to, struct err *err)
{
    const struct data *data = reader->data;
    const struct tar *tar = data->state;
    const struct tar_sample *s = &tar->index.samples[sample];
    struct tar_reader *own = reader->state;
    struct crop crop;
    bool damaged;

    (void)tensor;
    crop = choose_crop(data, s, sample, epoch);
    if (jpeg_decode(own->jpeg, s->bytes, s->size, &crop.window, tar->channels, tar->height,
                    tar->width, own->planes, &damaged, err) < 0)
        return err_prefix(err, "%s: sample \"%s\"", tar->index.paths[s->shard], s->name);
    if (damaged)
        data_note_damage(reader, s->name);
    normalise(tar, crop.flip, own->planes);
    data_put(to, DTYPE_F32, own->planes, 0,
             (size_t)tar->channels * (size_t)tar->height * (size_t)tar->width);
    return 0;
}

static void close_shards(void *state)
{
    struct tar *tar = state;

    if (tar)
        tar_index_clear(&tar->index);
    free(tar);
}

static void *reader_new(const struct data *data)
{
    const struct tar *tar = data->state;
    struct tar_reader *own = mem_new(1, sizeof(*own));

    own->jpeg = jpeg_new();
    own->planes = mem_new((size_t)tar->channels * (size_t)tar->height * (size_t)tar->width,
                          sizeof(float));
    return own;
}

static void reader_free(void *state)
{
    struct tar_reader *own = state;

    jpeg_free(own->jpeg);
    free(own->planes);
    free(own);
}

const struct data_format data_tar = {
    .name = "tar", .decodes = true, .takes = takes, .open = open_shards, .complete = complete,
    .bad = bad_samples, .read = read_sample, .close = close_shards, .reader_new = reader_new,
    .reader_free = reader_free,
};
