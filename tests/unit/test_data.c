/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/mem.h"
#include "train/data.h"
#include "train/safetensors.h"

static char path[600];

static struct data *make(int n, const struct safetensors_tensor *tensors, struct err *err)
{
    unlink(path);
    assert_int_equal(safetensors_write(path, n, tensors, err), 0);
    return data_open(path, NULL, err);
}

static void all_tensors_have_as_many_samples(void **state)
{
    float a[4] = { 0 };
    struct safetensors_tensor tensors[] = {
        { .name = "a", .dtype = DTYPE_F32, .shape = { 1, { 4 } }, .data = a },
        { .name = "b", .dtype = DTYPE_F32, .shape = { 1, { 3 } }, .data = a },
    };
    struct err err = { 0 };

    (void)state;
    assert_null(make(2, tensors, &err));
    assert_contains(err.text, "\"b\" has 3 samples");
    tensors[1].shape = (struct shape){ 0, { 0 } };
    err = (struct err){ 0 };
    assert_null(make(2, tensors, &err));
    assert_contains(err.text, "no sample dimension");
}

/* Samples 0 … 3, each a 2x2 matrix 10s + 0 … 3. */
static struct data *matrices(struct err *err)
{
    static uint8_t a[16];
    struct safetensors_tensor t = { .name = "x", .dtype = DTYPE_U8, .shape = { 3, { 4, 2, 2 } },
                                    .data = a };

    for (int i = 0; i < 16; i++)
        a[i] = (uint8_t)(10 * (i / 4) + i % 4);
    return make(1, &t, err);
}

static void samples_are_gathered_and_converted(void **state)
{
    struct err err = { 0 };
    struct data *data = matrices(&err);
    struct data_reader *reader;
    struct data_want want = { .to = DTYPE_F64, .batch = { .outer = 1, .inner = 4 } };
    int64_t samples[] = { 3, 1 };
    double out[8];
    static const double first[] = { 30, 31, 32, 33, 10, 11, 12, 13 };
    static const double second[] = { 30, 31, 10, 11, 32, 33, 12, 13 };

    (void)state;
    assert_non_null(data);
    reader = data_reader_new(data);
    assert_int_equal(data_samples(data), 4);
    assert_int_equal(data_gather(reader, &want, 0, samples, 2, 0, 2, out, &err), 0);
    assert_memory_equal(out, first, sizeof(out));
    want.batch = (struct batch){ .outer = 2, .inner = 2 };
    memset(out, 0, sizeof(out));
    assert_int_equal(data_gather(reader, &want, 0, samples, 2, 1, 1, out, &err), 0);
    assert_int_equal(data_gather(reader, &want, 0, samples, 2, 0, 1, out, &err), 0);
    assert_memory_equal(out, second, sizeof(out));
    data_reader_free(reader);
    data_close(data);
}

static int bind(const struct data *data, enum dtype dtype, struct shape shape, const char *name,
                struct err *err)
{
    struct graph *graph = graph_new(5, DTYPE_F32);
    int v = graph_add_value(graph, name, VALUE_INPUT, dtype, &shape,
                            (struct batch){ .outer = 1, .inner = 4, .place = 1 });
    int result = data_bind(data, graph, v, err);

    graph_free(graph);
    return result;
}

static void an_input_needs_its_name_and_shape(void **state)
{
    struct err err = { 0 };
    struct data *data = matrices(&err);

    (void)state;
    assert_int_equal(bind(data, DTYPE_F32, (struct shape){ 3, { 5, 2, 2 } }, "x", &err), 0);
    assert_int_equal(bind(data, DTYPE_F32, (struct shape){ 3, { 5, 2, 2 } }, "y", &err), -1);
    assert_contains(err.text, "no tensor \"y\"");
    err = (struct err){ 0 };
    assert_int_equal(bind(data, DTYPE_F32, (struct shape){ 3, { 5, 4, 1 } }, "x", &err), -1);
    assert_contains(err.text, "a sample is 2x2, the model wants 4x1");
    data_close(data);
}

static void floats_do_not_become_integers(void **state)
{
    float a[4] = { 0 };
    struct safetensors_tensor t = { .name = "x", .dtype = DTYPE_F32, .shape = { 2, { 1, 4 } },
                                    .data = a };
    struct err err = { 0 };
    struct data *data = make(1, &t, &err);

    (void)state;
    assert_int_equal(bind(data, DTYPE_I64, (struct shape){ 2, { 5, 4 } }, "x", &err), -1);
    assert_contains(err.text, "is float32, the model wants int64");
    data_close(data);
}

static void an_epoch_visits_each_sample_once(void **state)
{
    struct sampler sampler;
    struct err err = { 0 };
    int seen[12] = { 0 };

    (void)state;
    assert_int_equal(sampler_init(&sampler, 12, 4, 3, true, &err), 0);
    for (int step = 3; step < 6; step++) {
        const int64_t *batch = sampler_step(&sampler, step);

        for (int i = 0; i < 4; i++)
            seen[batch[i]]++;
    }
    for (int i = 0; i < 12; i++)
        assert_int_equal(seen[i], 1);
    sampler_clear(&sampler);
}

static void the_order_follows_from_seed_and_epoch_alone(void **state)
{
    struct sampler a, b;
    struct err err = { 0 };
    int64_t late[50];
    int changed = 0;

    (void)state;
    assert_int_equal(sampler_init(&a, 100, 50, 3, true, &err), 0);
    assert_int_equal(sampler_init(&b, 100, 50, 3, true, &err), 0);
    sampler_step(&a, 0);
    sampler_step(&a, 5);
    memcpy(late, sampler_step(&a, 9), sizeof(late));
    assert_memory_equal(late, sampler_step(&b, 9), sizeof(late));
    for (int i = 0; i < 50; i++)
        changed += sampler_step(&b, 1)[i] != late[i];
    assert_true(changed > 0);
    sampler_clear(&a);
    sampler_clear(&b);
}

static void without_shuffling_samples_come_in_order(void **state)
{
    struct sampler sampler;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(sampler_init(&sampler, 10, 4, 3, false, &err), 0);
    assert_int_equal(sampler.steps_per_epoch, 2);
    assert_int_equal(sampler_step(&sampler, 1)[0], 4);
    assert_int_equal(sampler_step(&sampler, 2)[3], 3);
    sampler_clear(&sampler);
}

static void an_evaluation_has_each_sample_and_what_completes_the_last_batch(void **state)
{
    static const int64_t partly[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 8, 8, 8, 8, 8 };
    struct sampler sampler, copy;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(sampler_init_whole(&sampler, 10, 4, &err), 0);
    assert_int_equal(sampler.steps_per_epoch, 4);
    assert_int_equal(sampler_copy(&copy, &sampler, &err), 0);
    sampler_clear(&sampler);
    for (int step = 0; step < 4; step++)
        assert_memory_equal(sampler_step(&copy, step), partly + 4 * step, 4 * sizeof(*partly));
    sampler_clear(&copy);
    assert_int_equal(sampler_init_whole(&sampler, 8, 4, &err), 0);
    assert_int_equal(sampler.steps_per_epoch, 2);
    sampler_clear(&sampler);
    assert_int_equal(sampler_init_whole(&sampler, 2, 4, &err), 0);
    assert_int_equal(sampler.steps_per_epoch, 2);
    assert_int_equal(sampler_step(&sampler, 1)[3], 0);
    sampler_clear(&sampler);
}

static void too_few_samples_are_refused(void **state)
{
    struct sampler sampler;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(sampler_init(&sampler, 3, 4, 0, true, &err), -1);
    assert_contains(err.text, "3 samples");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_tensors_have_as_many_samples),
        cmocka_unit_test(samples_are_gathered_and_converted),
        cmocka_unit_test(an_input_needs_its_name_and_shape),
        cmocka_unit_test(floats_do_not_become_integers),
        cmocka_unit_test(an_epoch_visits_each_sample_once),
        cmocka_unit_test(the_order_follows_from_seed_and_epoch_alone),
        cmocka_unit_test(without_shuffling_samples_come_in_order),
        cmocka_unit_test(an_evaluation_has_each_sample_and_what_completes_the_last_batch),
        cmocka_unit_test(too_few_samples_are_refused),
    };
    char *directory = unit_directory();
    int failed;

    snprintf(path, sizeof(path), "%s/d.safetensors", directory);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(directory);
    return failed;
}
