/* SPDX-License-Identifier: MIT */
/* What data.c and the formats share. A format is one entry of the table in data.c. */
#ifndef TASUKI_TRAIN_DATA_FORMAT_H
#define TASUKI_TRAIN_DATA_FORMAT_H

#include "train/data.h"

struct arena;
struct data_format;

struct data {
    const struct data_format *format;
    void *state;                    /* the format's own */
    struct data_options options;
    char *path;                     /* as it was given */
    struct arena *arena;            /* names, and what the format keeps */
    int64_t samples;
    int n;
    struct model_tensor *tensors;
    _Atomic int64_t damaged;        /* see data_damaged() */
    const char *_Atomic damaged_name;
    const void **rows;              /* bytes of sample 0 of each; NULL: made by 'read' */
    int n_files;
    struct data_file *files;
};

struct data_reader {
    struct data *data;
    void *state;                    /* the format's own */
};

/* Where a sample's elements go: blocks of 'inner', 'stride' elements apart. */
struct data_target {
    enum dtype type;
    char *out;
    size_t inner, stride;
};

/* What the model and the loss want: inputs with their samples' shapes, -1 where a dimension is
 * open, and the labels, which may be one of the inputs.
 */
struct data_wanted {
    struct model *model;
    const char *loss;
    int n;
    struct model_tensor *inputs;
    const char *label;              /* their name; NULL: the loss has none */
};

struct data_format {
    const char *name;
    bool decodes;                   /* see data_decodes() */
    /* Is this spec meant for it? By the form of the spec and, where it names a file, by what
     * the file starts with ('head', zeros past its end; NULL: no regular file).
     */
    bool (*takes)(const char *spec, const unsigned char *head);
    /* Fills 'state' and, where they are known, 'samples' and the tensors by data_add(). What is
     * left after a failure is for 'close'.
     */
    int (*open)(struct data *data, struct err *err);
    /* NULL: the file says all. */
    int (*complete)(struct data *data, const struct data_wanted *wanted, struct err *err);
    /* As data_bad(); NULL: a file is good or refused. */
    int64_t (*bad)(const struct data *data, int *n, const char *const **names);
    /* One sample of a tensor that has no rows. */
    int (*read)(struct data_reader *reader, int tensor, int64_t sample, int64_t epoch,
                const struct data_target *to, struct err *err);
    /* Integers of the tensor are in 0 … result - 1, which 'read' checks; NULL, 0: not known. */
    int64_t (*below)(const struct data *data, int tensor);
    void (*close)(void *state);     /* NULL is fine */
    void *(*reader_new)(const struct data *data);   /* NULL: readers have no state */
    void (*reader_free)(void *state);
};

extern const struct data_format data_synthetic, data_tokens, data_tar, data_npy,
    data_safetensors;

#define DATA_HEAD 512               /* bytes that 'takes' sees */

/* A tensor of which every sample has 'shape'; 'rows' may be NULL. The name is copied. */
void data_add(struct data *data, const char *name, enum dtype dtype, const struct shape *shape,
              const void *rows);
/* The same from a whole array, whose first dimension is the samples and must be as long as that
 * of the others.
 */
int data_add_array(struct data *data, const char *path, const char *name, enum dtype dtype,
                   const struct shape *shape, const void *rows, struct err *err);

/* A file that samples are read from: see data_files(). */
void data_add_file(struct data *data, const char *path, const struct file_map *map);

/* Elements 'first' to 'first' + 'n' - 1 of a sample. */
void data_put(const struct data_target *to, enum dtype from, const void *values, size_t first,
              size_t n);

/* A sample was read as far as it could be; the name lives as long as the data. */
void data_note_damage(struct data_reader *reader, const char *name);

/* The model's one input beside the labels, for data that have nothing else; it must be one that
 * reads 'what'.
 */
const struct model_tensor *data_only_input(const struct data *data,
                                           const struct data_wanted *wanted,
                                           bool (*reads)(const struct model_tensor *input),
                                           const char *what, struct err *err);

/* Replace what the model leaves open: 'said' (an option's value; 0: not said) by its name. */
int data_fix_dim(const struct data *data, const struct model_tensor *input, int axis,
                 int64_t said, const char *option, int64_t *dim, struct err *err);

#endif
