/* SPDX-License-Identifier: MIT */
/* A file with other values, and nothing else changed. */
#include "model_text.h"
#include "unit.h"

#include "base/file.h"

static int new_values(void *user, const char *name, enum dtype dtype, size_t elements,
                      void *data, struct err *err)
{
    (void)user;
    (void)err;
    if (strcmp(name, "w") != 0)
        return 1;
    for (size_t i = 0; i < elements; i++)
        dtype_put_real(dtype, data, (int64_t)i, (double)i);
    return 0;
}

static void an_export_changes_nothing_but_the_values(void **state)
{
    char copy[600];
    struct file_map before, after;
    struct err err = { 0 };
    size_t i, first = 0, last = 0;

    (void)state;
    snprintf(copy, sizeof(copy), "%s/copy.onnx", net_directory);
    open_model("input x float batch,4\n init v float 4\n init w float 2,2 = 7,7,7,7\n"
               "init u float 4\n node Add x,v -> y\n output y");
    assert_int_equal(model_export(model, copy, new_values, NULL, &err), 0);
    assert_int_equal(file_map_open(net_path, &before, &err), 0);
    assert_int_equal(file_map_open(copy, &after, &err), 0);
    assert_int_equal(before.size, after.size);
    for (i = 0; i < before.size; i++)
        if (before.data[i] != after.data[i]) {
            first = first ? first : i;
            last = i;
        }
    assert_true(first && last - first < 16);
    file_map_close(&before);
    file_map_close(&after);
    model_close(model);
}

static void small_floats_are_trained_as_the_runs_and_exported_as_they_were(void **state)
{
    struct err err = { 0 };
    struct graph *graph;
    char copy[600];

    (void)state;
    snprintf(copy, sizeof(copy), "%s/copy.onnx", net_directory);
    open_model("input x float16 batch,2\n init w float16 2,2 = 0.5\n init b bfloat16 2 = 1.5\n"
               "const c float16 . = 2\n node MatMul x,w -> m\n node Add m,b -> a\n"
               "node Mul a,c -> t\n node Cast t -> y to=10\n output y");
    graph = build_with((struct model_options){ .batch = 3, .real = DTYPE_F32 });
    assert_int_equal(value(graph, "x")->dtype, DTYPE_F32);
    assert_int_equal(value(graph, "w")->dtype, DTYPE_F32);
    assert_int_equal(value(graph, "w")->file_dtype, DTYPE_F16);
    assert_true(dtype_real(DTYPE_F16, value(graph, "w")->data, 3) == 0.5);
    assert_true(dtype_real(DTYPE_BF16, value(graph, "b")->data, 1) == 1.5);
    assert_int_equal(value(graph, "t")->dtype, DTYPE_F32);
    assert_int_equal(count(graph, "Cast"), 0);
    assert_int_equal(model_export(model, copy, new_values, NULL, &err), 0);
    done(graph);
    model = model_open(copy, &err);
    assert_non_null(model);
    graph = build_with((struct model_options){ .batch = 3, .real = DTYPE_F64 });
    assert_int_equal(value(graph, "w")->file_dtype, DTYPE_F16);
    assert_true(dtype_real(DTYPE_F16, value(graph, "w")->data, 3) == 3);
    done(graph);
}

static void an_export_takes_external_data_in(void **state)
{
    char copy[600], file[600];
    struct err err = { 0 };
    struct graph *graph;
    float data[4];

    (void)state;
    snprintf(copy, sizeof(copy), "%s/copy.onnx", net_directory);
    snprintf(file, sizeof(file), "%s/weights.bin", net_directory);
    unit_write(file, "0123456789abcdefABCDEFGHIJKLMNOP");
    open_model("input x float batch,4\n external w float 4 weights.bin 0 16\n"
               "external b float 4 weights.bin 16 16\n init c float 4\n node Mul x,w -> a\n"
               "node Add a,c -> d\n node Add d,b -> y\n output y");
    assert_int_equal(model_export(model, copy, new_values, NULL, &err), 0);
    model_close(model);
    unlink(file);
    model = model_open(copy, &err);
    if (!model)
        fail_msg("%s", err.text);
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32 });
    memcpy(data, value(graph, "w")->data, sizeof(data));
    assert_true(data[0] == 0 && data[3] == 3);
    assert_memory_equal(value(graph, "b")->data, "ABCDEFGHIJKLMNOP", 16);
    done(graph);
}

static int unchanged(void *user, const char *name, enum dtype dtype, size_t elements,
                     void *data, struct err *err)
{
    (void)user;
    (void)name;
    (void)dtype;
    (void)elements;
    (void)data;
    (void)err;
    return 1;
}

static void a_model_without_weights_is_built_and_exported_with_new_ones(void **state)
{
    char copy[600];
    struct err err = { 0 };
    struct graph *graph;
    float data[4];

    (void)state;
    snprintf(copy, sizeof(copy), "%s/copy.onnx", net_directory);
    open_model("input x float batch,4\n absent w float 4\n init c float 4\n"
               "node Mul x,w -> a\n node Add a,c -> y\n output y");
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32 });
    assert_int_equal(value(graph, "w")->kind, VALUE_PARAM);
    assert_null(value(graph, "w")->data);
    graph_free(graph);
    assert_int_equal(model_export(model, copy, unchanged, NULL, &err), -1);
    assert_non_null(strstr(err.text, "\"w\" has no values"));
    assert_int_equal(model_export(model, copy, new_values, NULL, &err), 0);
    model_close(model);
    model = model_open(copy, &err);
    assert_non_null(model);
    graph = build_with((struct model_options){ .batch = 2, .real = DTYPE_F32 });
    memcpy(data, value(graph, "w")->data, sizeof(data));
    assert_true(data[0] == 0 && data[3] == 3);
    done(graph);
}

static int failing(void *user, const char *name, enum dtype dtype, size_t elements, void *data,
                   struct err *err)
{
    (void)user;
    (void)dtype;
    (void)elements;
    (void)data;
    return err_set(err, "%s is lost", name);
}

static void a_failed_export_leaves_no_file(void **state)
{
    char copy[600];
    struct err err = { 0 };

    (void)state;
    snprintf(copy, sizeof(copy), "%s/failed.onnx", net_directory);
    open_model(NET);
    assert_int_equal(model_export(model, copy, failing, NULL, &err), -1);
    assert_string_equal(err.text, "w is lost");
    assert_int_equal(access(copy, F_OK), -1);
    model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_export_changes_nothing_but_the_values),
        cmocka_unit_test(small_floats_are_trained_as_the_runs_and_exported_as_they_were),
        cmocka_unit_test(an_export_takes_external_data_in),
        cmocka_unit_test(a_model_without_weights_is_built_and_exported_with_new_ones),
        cmocka_unit_test(a_failed_export_leaves_no_file),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
