/* SPDX-License-Identifier: MIT */
#ifndef TASUKI_FUZZ_READ_DATA_H
#define TASUKI_FUZZ_READ_DATA_H

#include <stdlib.h>

#include "train/data.h"

/* Read every element of what was accepted. */
static int fuzz_read_data(struct data *data, struct err *err)
{
    int n, bad = 0;
    const struct model_tensor *tensors = data_tensors(data, &n);
    struct data_reader *reader = data_reader_new(data);

    for (int t = 0; t < n; t++) {
        int64_t inner = shape_elements(&tensors[t].shape);
        struct data_want want = { t, dtype_is_float(tensors[t].dtype) ? DTYPE_F64 : DTYPE_I64,
                                  { .outer = 1, .inner = inner } };
        void *out = calloc((size_t)inner + 1, 8);

        for (int64_t s = 0; out && !bad && s < data_samples(data) && s < 64; s++)
            bad = data_gather(reader, &want, 0, &s, 1, 0, 1, out, err);
        free(out);
    }
    data_reader_free(reader);
    return bad;
}

#endif
