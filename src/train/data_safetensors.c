/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "train/data_format.h"
#include "train/safetensors.h"

/* The last in the table: whatever is no other format. */
static bool takes(const char *spec, const unsigned char *head)
{
    (void)spec;
    (void)head;
    return true;
}

static int open_file(struct data *data, struct err *err)
{
    struct safetensors *file = data->state = safetensors_open(data->path, err);

    for (int i = 0; file && i < safetensors_count(file); i++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);

        if (t->dtype == DTYPE_NONE)
            return err_set(err, "%s: tensor \"%s\": type %s is not supported (floats of 16, 32 "
                           "or 64 bits, integers of 8 to 64, bool)", data->path, t->name,
                           t->type);
        if (data_add_array(data, data->path, t->name, t->dtype, &t->shape, t->data, err) < 0)
            return -1;
    }
    if (!file)
        return -1;
    data_add_file(data, data->path, safetensors_map(file));
    return 0;
}

static void close_file(void *state)
{
    safetensors_close(state);
}

const struct data_format data_safetensors = {
    .name = "safetensors", .takes = takes, .open = open_file, .close = close_file,
};
