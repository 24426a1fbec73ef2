/* SPDX-License-Identifier: MIT */
#include <unistd.h>

#include "base/mem.h"
#include "model_text.h"
#include "onnx_text.h"
#include "unit.h"

enum { N = 64 };

/* Beside large weights there are a copy that exporters make, a mask, vectors, and one whose bytes a
 * large weight has, too.
 */
#define ALL "input t int64 batch,64\n external e float 64,64 weights.bin 0 16384\n"            \
            "external val_7 float 64,64 weights.bin 16384 16384\n init w float 64,64\n"        \
            "init half float16 64,64\n init m float 64,64 = 0,-inf\n init b float 64\n"        \
            "typed k int64 1 = 64\n external small float 64 weights.bin 0 256\n"               \
            "node Gather e,t -> a\n node MatMul a,w -> c\n node Add c,m -> d\n"                \
            "node Add d,b -> f\n node MatMul f,half -> g\n node Mul g,small -> h\n"            \
            "node MatMul h,val_7 -> y\n output y"

static void write_weights(void)
{
    char path[600];
    FILE *file;

    snprintf(path, sizeof(path), "%s/weights.bin", net_directory);
    file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 2 * N * N; i++) {
        int at = i % (N * N), transposed = at % N * N + at / N;
        float x = (float)onnx_text_value("e", (size_t)(i < N * N ? at : transposed));

        assert_int_equal(fwrite(&x, sizeof(x), 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
}

static void remove_files(void)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/weights.bin", net_directory);
    unlink(path);
    unlink(net_path);
}

static struct graph *build_of(struct model *of, int64_t batch)
{
    struct model_options options = { .batch = batch, .real = DTYPE_F32 };
    struct err err = { 0 };
    struct graph *graph = model_build(of, &options, &err);

    if (!graph)
        fail_msg("%s", err.text);
    return graph;
}

static bool is_zero(const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i])
            return false;
    return true;
}

static void compare(const struct model *there, const struct graph *a, const struct graph *b)
{
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_values, b->n_values);
    for (int v = 0; v < a->n_values; v++) {
        const struct value *x = &a->values[v], *y = &b->values[v];
        size_t bytes = (size_t)shape_elements(&x->shape) * dtype_size(x->file_dtype);

        assert_string_equal(x->name, y->name);
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(!x->data, !y->data);
        if (x->data && model_find_large(there, y->data) < 0)
            assert_memory_equal(x->data, y->data, bytes);
    }
}

static void its_graphs_are_the_same_without_its_files(void **state)
{
    struct err err = { 0 };
    struct model *there;
    struct graph *a, *b;
    size_t size, bytes;
    void *packed;

    (void)state;
    write_weights();
    open_model(ALL);
    packed = model_pack(model, &size);
    /* Of six matrices the mask. */
    assert_true(size > 16384 && size < 2 * 16384);
    remove_files();
    there = model_unpack(net_path, packed, size, &err);
    if (!there)
        fail_msg("%s", err.text);
    free(packed);
    assert_string_equal(model_hash(there), model_hash(model));
    assert_int_equal(model_initializers(there), model_initializers(model));
    for (int i = 0; i < model_initializers(model); i++)
        assert_int_equal(!model_large(there, i, &bytes), !model_large(model, i, &bytes));
    for (int64_t batch = 2; batch < 5; batch += 2) {
        a = build_of(model, batch);
        b = build_of(there, batch);
        assert_int_equal(value(b, "val_7")->kind, VALUE_NODE);
        assert_int_equal(value(b, "m")->kind, VALUE_CONST);
        assert_true(model_find_large(there, value(b, "w")->data) >= 0);
        assert_true(is_zero(value(b, "w")->data, N * N * sizeof(float)));
        assert_int_equal(model_find_large(there, value(b, "b")->data), -1);
        compare(there, a, b);
        graph_free(b);
        graph_free(a);
    }
    model_close(there);
    model_close(model);
}

static void what_others_read_for_its_numbers_is_packed(void **state)
{
    struct err err = { 0 };
    struct model *there;
    struct graph *graph;
    size_t size;
    void *packed;

    (void)state;
    open_model("opset 23\n input q float batch,2,64,8\n init m float 64,64\n"
               "node Attention q,q,q,m -> y\n output y");
    packed = model_pack(model, &size);
    there = model_unpack(net_path, packed, size, &err);
    if (!there)
        fail_msg("%s", err.text);
    graph = build_of(there, 2);
    assert_int_equal(model_find_large(there, value(graph, "m")->data), -1);
    assert_false(is_zero(value(graph, "m")->data, N * N * sizeof(float)));
    graph_free(graph);
    free(packed);
    model_close(there);
    model_close(model);
}

static void what_is_dropped_of_it_stays(void **state)
{
    struct err err = { 0 };
    struct model *there;
    size_t size;
    void *packed;
    struct graph *graph;
    float before[N], after[N];

    (void)state;
    open_model("input x float batch,64\n init w float 64,64\n init b float 64\n"
               "node MatMul x,w -> a\n node Add a,b -> y\n output y");
    packed = model_pack(model, &size);
    there = model_unpack(net_path, packed, size, &err);
    assert_non_null(there);
    graph = build_of(there, 2);
    memcpy(before, value(graph, "b")->data, sizeof(before));
    model_drop(there, value(graph, "b")->data, sizeof(before));
    memcpy(after, value(graph, "b")->data, sizeof(after));
    assert_memory_equal(before, after, sizeof(before));
    assert_false(is_zero((const unsigned char *)after, sizeof(after)));
    graph_free(graph);
    free(packed);
    model_close(there);
    model_close(model);
}

static void one_that_is_cut_off_is_refused(void **state)
{
    size_t size;
    void *packed;

    (void)state;
    write_weights();
    open_model(ALL);
    packed = model_pack(model, &size);
    for (size_t n = 0; n < size; n += n < 64 || n + 64 >= size ? 1 : 251) {
        struct err err = { 0 };
        void *part = mem_new(n, 1);

        memcpy(part, packed, n);
        assert_null(model_unpack(net_path, part, n, &err));
        assert_int_equal(strncmp(err.text, net_path, strlen(net_path)), 0);
        free(part);
    }
    free(packed);
    model_close(model);
    remove_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_graphs_are_the_same_without_its_files),
        cmocka_unit_test(what_others_read_for_its_numbers_is_packed),
        cmocka_unit_test(what_is_dropped_of_it_stays),
        cmocka_unit_test(one_that_is_cut_off_is_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
