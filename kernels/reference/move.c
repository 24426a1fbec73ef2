/* SPDX-License-Identifier: MIT */
/* Kernels that move elements of any type and compute nothing. */
#include <string.h>

#include "base/err.h"
#include "kernels/reference/reference.h"

/* Copy 'n' elements of 'size' bytes, 'stride' elements apart in the source. */
static void take(unsigned char *to, const unsigned char *from, int64_t n, int64_t stride,
                 size_t size)
{
    int64_t step = stride * (int64_t)size, i;

    if (stride == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    /* Constant sizes let the compiler make moves of the calls. */
    for (i = 0; i < n; i++, to += size, from += step) {
        if (size == 8)
            memcpy(to, from, 8);
        else if (size == 4)
            memcpy(to, from, 4);
        else if (size == 2)
            memcpy(to, from, 2);
        else
            memcpy(to, from, 1);
    }
}

static int run_move(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    const struct walk *w = &k->walk;
    size_t size = dtype_size(k->out[0].dtype);
    const unsigned char *x = args->inputs[0];
    unsigned char *y = args->outputs[0];
    int64_t n = row_length(w);
    struct cursor c;

    (void)err;
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c), y += n * (int64_t)size)
        take(y, x + c.at[0] * (int64_t)size, n, row_stride(w, 0), size);
    return 0;
}

static int run_copy(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    (void)err;
    memmove(args->outputs[0], args->inputs[0],
            (size_t)k->out[0].elements * dtype_size(k->out[0].dtype));
    return 0;
}

static int run_concat(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    size_t size = dtype_size(k->out[0].dtype);
    unsigned char *y = args->outputs[0];
    int64_t o;
    int i;

    (void)err;
    for (o = 0; o < k->before; o++)
        for (i = 0; i < k->n_inputs; i++) {
            size_t bytes = (size_t)(k->in[i].elements / k->before) * size;

            memcpy(y, (const unsigned char *)args->inputs[i] + (size_t)o * bytes, bytes);
            y += bytes;
        }
    return 0;
}

static int run_split(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    size_t size = dtype_size(k->in[0].dtype);
    const unsigned char *x = args->inputs[0];
    int64_t o;
    int i;

    (void)err;
    for (o = 0; o < k->before; o++)
        for (i = 0; i < k->n_outputs; i++) {
            size_t bytes = (size_t)(k->out[i].elements / k->before) * size;

            if (args->outputs[i])
                memcpy((unsigned char *)args->outputs[i] + (size_t)o * bytes, x, bytes);
            x += bytes;
        }
    return 0;
}

static int run_where(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    const struct walk *w = &k->walk;
    size_t size = dtype_size(k->out[0].dtype);
    const unsigned char *condition = args->inputs[0];
    unsigned char *y = args->outputs[0];
    int64_t n = row_length(w), j;
    struct cursor c;

    (void)err;
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++, y += size) {
            int from = condition[c.at[0] + j * row_stride(w, 0)] ? 1 : 2;
            int64_t at = c.at[from] + j * row_stride(w, from);

            memcpy(y, (const unsigned char *)args->inputs[from] + (size_t)at * size, size);
        }
    return 0;
}

int ref_index(const struct kernel *k, const struct kernel_args *args, int64_t i, int64_t *index,
              struct err *err)
{
    int64_t at = ref_int(&k->in[1], args->inputs[1], i);

    if (at < -k->length || at >= k->length)
        return err_set(err, "node \"%s\": index %lld is not below %lld", k->name,
                       (long long)at, (long long)k->length);
    *index = at < 0 ? at + k->length : at;
    return 0;
}

static int run_gather(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    size_t bytes = (size_t)k->after * dtype_size(k->out[0].dtype);
    unsigned char *y = args->outputs[0];
    int64_t o, i, at;

    for (o = 0; o < k->before; o++)
        for (i = 0; i < k->in[1].elements; i++, y += bytes) {
            if (ref_index(k, args, i, &at, err))
                return -1;
            memcpy(y, (const unsigned char *)args->inputs[0] +
                   (size_t)(o * k->length + at) * bytes, bytes);
        }
    return 0;
}

static int run_cast(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    (void)err;
    dtype_convert(k->in[0].dtype, args->inputs[0], k->out[0].dtype, args->outputs[0],
                  (size_t)k->out[0].elements);
    return 0;
}

/* Only a GPU has a kernel of its text. */
static int run_chain(const struct kernel *k, const struct kernel_args *args, struct err *err)
{
    (void)args;
    return err_set(err, "node \"%s\": a chain runs on a GPU alone", k->name);
}

const struct ref_entry ref_entries_any[] = {
    REF_ENTRY("Cast", setup_plain, run_cast),
    REF_ENTRY("Chain", setup_plain, run_chain),
    REF_ENTRY("Copy", setup_plain, run_copy),
    REF_ENTRY("Reorder", setup_plain, run_copy),
    REF_ENTRY("Reshape", setup_plain, run_copy),
    REF_ENTRY("View", setup_plain, run_copy),
    REF_ENTRY("Where", setup_broadcast, run_where),
    REF_ENTRY("Transpose", setup_transpose, run_move),
    REF_ENTRY("Slice", setup_slice, run_move),
    REF_ENTRY("Expand", setup_broadcast, run_move),
    REF_ENTRY("Concat", setup_axis, run_concat),
    REF_ENTRY("Split", setup_axis, run_split),
    REF_ENTRY("Gather", setup_gather, run_gather),
    { .op = NULL },
};
