/* SPDX-License-Identifier: MIT */
/* Token files: sequences and the labels one token further on. */
#include "unit.h"

#include "base/mem.h"
#include "train/data_format.h"
#include "train/data_tokens.h"

static char path[600];

static size_t put(unsigned char *out, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(number >> 8 * i);
    return (size_t)bytes;
}

/* 'count' tokens 1000, 1001, … of this width behind a header, but where 'version' is 0. */
static void make(unsigned version, int width, uint64_t said, int count, uint64_t vocabulary)
{
    unsigned char file[1024];
    size_t n = 0;
    FILE *out = fopen(path, "wb");

    if (version) {
        memcpy(file, TOKENS_MAGIC, 8);
        n = 8;
        n += put(file + n, version, 4);
        n += put(file + n, (uint64_t)width, 4);
        n += put(file + n, said, 8);
        n += put(file + n, vocabulary, 8);
    }
    for (int i = 0; i < count; i++)
        n += put(file + n, (uint64_t)(1000 + i), width == 3 ? 2 : width);
    assert_non_null(out);
    assert_int_equal(fwrite(file, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

/* As a model with input "x" of [N, length] and labels wants it; 'said' is --sequence-length. */
static struct data *open_for(const char *spec, int64_t length, int64_t said, struct err *err)
{
    struct model_tensor input = { "x", DTYPE_I64, { .rank = 1, .dim = { length } } };
    struct data_wanted wanted = { .n = 1, .inputs = &input, .label = "y" };
    struct data_options options = { .sequence_length = said };
    struct data *data;

    *err = (struct err){ 0 };
    data = data_open(spec, &options, err);
    if (data && data->format->complete(data, &wanted, err) < 0) {
        data_close(data);
        return NULL;
    }
    return data;
}

static void check_sequences(const char *spec, int64_t length, int64_t said)
{
    struct err err;
    struct data *data = open_for(spec, length, said, &err);
    struct data_want want = { .to = DTYPE_I64, .batch = { .outer = 1, .inner = 4 } };
    struct data_reader *reader;
    int64_t out[8], samples[] = { 2, 0 };
    static const int64_t x[] = { 1008, 1009, 1010, 1011, 1000, 1001, 1002, 1003 };

    assert_string_equal(err.text, "");
    assert_int_equal(data_samples(data), 3);
    reader = data_reader_new(data);
    assert_int_equal(data_gather(reader, &want, 0, samples, 2, 0, 2, out, &err), 0);
    assert_memory_equal(out, x, sizeof(x));
    want.tensor = 1;
    assert_int_equal(data_gather(reader, &want, 0, samples, 2, 0, 2, out, &err), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(out[i], x[i] + 1);
    data_reader_free(reader);
    data_close(data);
}

static void labels_are_one_token_further_on(void **state)
{
    char *raw = mem_printf("uint16:%s", path);

    (void)state;
    make(1, 2, 15, 15, 0);
    check_sequences(path, 4, 0);
    check_sequences(path, -1, 4);
    make(1, 4, 13, 13, 1013);
    check_sequences(path, 4, 0);
    make(0, 2, 0, 13, 0);
    check_sequences(raw, 4, 4);
    free(raw);
}

static void the_last_label_must_be_there(void **state)
{
    struct err err;

    (void)state;
    make(1, 2, 4, 4, 0);
    assert_null(open_for(path, 4, 0, &err));
    assert_contains(err.text, "4 tokens are fewer than a sequence of 4");
    make(1, 2, 1, 1, 0);
    assert_null(open_for(path, 1, 0, &err));
    assert_contains(err.text, "1 tokens are no sequence");
    assert_null(open_for(path, -1, 0, &err));
}

static void a_header_that_lies_is_refused(void **state)
{
    char *raw = mem_printf("uint32:%s", path);
    struct err err;

    (void)state;
    make(2, 2, 10, 10, 0);
    assert_null(open_for(path, 4, 0, &err));
    assert_contains(err.text, "version 2");
    make(1, 3, 10, 10, 0);
    assert_null(open_for(path, 4, 0, &err));
    assert_contains(err.text, "tokens of 3 bytes");
    make(1, 2, 11, 10, 0);
    assert_null(open_for(path, 4, 0, &err));
    assert_contains(err.text, "says 11 tokens of 2 bytes, 20 bytes follow");
    make(1, 2, 10, 10, 65537);
    assert_null(open_for(path, 4, 0, &err));
    assert_contains(err.text, "vocabulary of 65537");
    make(0, 2, 0, 9, 0);
    assert_null(open_for(raw, 4, 0, &err));
    assert_contains(err.text, "no multiple of 4");
    free(raw);
}

static void a_token_out_of_the_vocabulary_is_named(void **state)
{
    struct err err;
    struct data *data;
    struct data_want want = { .to = DTYPE_I64, .batch = { .outer = 1, .inner = 4 } };
    struct data_reader *reader;
    int64_t out[4], sample = 1;

    (void)state;
    make(1, 2, 10, 10, 1006);
    data = open_for(path, 4, 0, &err);
    assert_non_null(data);
    assert_int_equal(data_below(data, 0), 1006);
    reader = data_reader_new(data);
    assert_int_equal(data_gather(reader, &want, 0, &sample, 1, 0, 1, out, &err), -1);
    assert_contains(err.text, "token 6 is 1006");
    data_reader_free(reader);
    data_close(data);
}

static void other_inputs_are_refused_by_name(void **state)
{
    struct model_tensor inputs[] = { { "x", DTYPE_I64, { .rank = 1, .dim = { 4 } } },
                                     { "mask", DTYPE_I64, { .rank = 1, .dim = { 4 } } } };
    struct data_wanted wanted = { .n = 2, .inputs = inputs, .label = "y" };
    struct err err = { 0 };
    struct data *data;

    (void)state;
    make(1, 2, 10, 10, 0);
    data = data_open(path, NULL, &err);
    assert_int_equal(data->format->complete(data, &wanted, &err), -1);
    assert_contains(err.text, "\"x\" or \"mask\"");
    inputs[1].dtype = DTYPE_F32;
    err = (struct err){ 0 };
    assert_int_equal(data->format->complete(data, &wanted, &err), -1);
    assert_contains(err.text, "\"mask\" is for no tokens");
    wanted.n = 1;
    wanted.label = "x";
    err = (struct err){ 0 };
    assert_int_equal(data->format->complete(data, &wanted, &err), -1);
    assert_contains(err.text, "no input that reads tokens");
    data_close(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_one_token_further_on),
        cmocka_unit_test(the_last_label_must_be_there),
        cmocka_unit_test(a_header_that_lies_is_refused),
        cmocka_unit_test(a_token_out_of_the_vocabulary_is_named),
        cmocka_unit_test(other_inputs_are_refused_by_name),
    };
    char *directory = unit_directory();
    int failed;

    snprintf(path, sizeof(path), "%s/t.bin", directory);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(directory);
    return failed;
}
