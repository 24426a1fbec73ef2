/* SPDX-License-Identifier: MIT */
/* read_data DATA SIZE SECONDS: read pictures of SIZE x SIZE from DATA on one thread, as
 * training does, for so long and print how many each second. For etc/bench/jpeg.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"
#include "train/data_format.h"

static int run(struct data *data, int64_t size, double seconds, struct err *err)
{
    struct data_reader *reader = data_reader_new(data);
    struct data_want want = { 0, DTYPE_F32, { .outer = 1, .inner = 3 * size * size } };
    float *out = malloc((size_t)want.batch.inner * sizeof(*out));
    double begin = clock_now(), spent = 0;
    int64_t n = 0;
    int bad = out ? 0 : err_set(err, "out of memory");

    for (; !bad && spent < seconds; n++, spent = clock_now() - begin) {
        int64_t sample = n % data_samples(data);

        bad = data_gather(reader, &want, n / data_samples(data), &sample, 1, 0, 1, out, err);
    }
    if (!bad)
        printf("%.2f\n", (double)n / spent);
    free(out);
    data_reader_free(reader);
    return bad;
}

int main(int argc, char **argv)
{
    struct data_options options = { .augment = true, .seed = 1 };
    struct err err = { 0 };
    struct data *data;
    int64_t size;
    int bad;

    if (argc != 4) {
        fprintf(stderr, "usage: read_data DATA SIZE SECONDS\n");
        return EXIT_USAGE;
    }
    size = atoi(argv[2]);
    data = data_open(argv[1], &options, &err);
    bad = !data;
    if (!bad) {
        struct model_tensor input = { "x", DTYPE_F32, { .rank = 3, .dim = { 3, size, size } } };
        struct data_wanted wanted = { .n = 1, .inputs = &input, .label = "labels" };

        bad = (data->format->complete && data->format->complete(data, &wanted, &err) < 0) ||
              run(data, size, atof(argv[3]), &err) < 0;
    }
    if (bad)
        fprintf(stderr, "read_data: %s\n", err.text);
    data_close(data);
    return bad ? EXIT_FAILED : EXIT_OK;
}
