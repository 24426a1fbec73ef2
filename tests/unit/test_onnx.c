/* SPDX-License-Identifier: MIT */
/* What the ONNX reader accepts, and what it says to the rest. */
#include "unit.h"

#include <math.h>
#include <sys/stat.h>

#include "graph/onnx.h"
#include "graph/wire.h"
#include "onnx_text.h"

static char directory[520], path[600];

static int setup(void **state)
{
    (void)state;
    strcpy(directory, unit_directory());
    snprintf(path, sizeof(path), "%s/net.onnx", directory);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unit_remove(directory);
}

static struct onnx *open_text(const char *text)
{
    struct err err = { 0 };
    struct onnx *onnx;

    onnx_write_text(path, text);
    onnx = onnx_open(path, &err);
    if (!onnx)
        fail_msg("%s", err.text);
    return onnx;
}

/* Refused with the path and 'part' in one line. */
static void refused(const char *text, const char *part)
{
    struct err err = { 0 };

    onnx_write_text(path, text);
    assert_null(onnx_open(path, &err));
    assert_int_equal(err.code, EXIT_FAILED);
    assert_contains(err.text, path);
    assert_contains(err.text, part);
    assert_null(strchr(err.text, '\n'));
}

static void refused_bytes(const void *bytes, size_t size, const char *part)
{
    struct err err = { 0 };
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    assert_null(onnx_open(path, &err));
    assert_contains(err.text, part);
}

static const struct onnx_tensor *initializer(const struct onnx *onnx, const char *name)
{
    int v = onnx_find(onnx, name);

    assert_true(v >= 0);
    return &onnx->initializers[onnx->values[v].index];
}

static void weights_stay_in_the_mapping(void **state)
{
    struct onnx *onnx = open_text("input x float batch,4\n init w float 4,3\n"
                                  "node MatMul x,w -> y\n output y");
    const struct onnx_tensor *w = initializer(onnx, "w");
    float first;

    (void)state;
    assert_true(w->in_file && w->size == 48 && w->dtype == DTYPE_F32);
    assert_true(w->data >= onnx->map.data && w->data + w->size <= onnx->map.data +
                                                                    onnx->map.size);
    memcpy(&first, w->data, sizeof(first));
    assert_true(first == (float)onnx_text_value("w", 0));
    assert_int_equal(onnx->inputs[0].shape.dim[0], -1);
    assert_int_equal(onnx->inputs[0].shape.dim[1], 4);
    onnx_close(onnx);
}

static void typed_data_are_read(void **state)
{
    struct onnx *onnx = open_text("input x float batch,3\n typed f float 3 = 1.5,2,3\n"
                                  "typed d double 1 = 0.25\n typed i int64 3 = -1,300,7\n"
                                  "typed n int32 2 = -5,9\n typed b bool 2 = 1,0\n"
                                  "typed s int8 2 = -5,9\n typed u uint64 1 = 5000000000\n"
                                  "typed h float16 2 = 15360,49152\n"
                                  "node Add x,f -> y\n output y");
    const struct onnx_tensor *i = initializer(onnx, "i"), *n = initializer(onnx, "n");
    const int64_t expected[] = { -1, 300, 7 };
    const int32_t narrow[] = { -5, 9 };

    (void)state;
    assert_true(initializer(onnx, "f")->in_file);
    assert_memory_equal(initializer(onnx, "f")->data, ((float[]){ 1.5f, 2, 3 }), 12);
    assert_memory_equal(initializer(onnx, "d")->data, &(double){ 0.25 }, 8);
    assert_memory_equal(i->data, expected, sizeof(expected));
    assert_memory_equal(n->data, narrow, sizeof(narrow));
    assert_memory_equal(initializer(onnx, "b")->data, "\1\0", 2);
    assert_memory_equal(initializer(onnx, "s")->data, ((int8_t[]){ -5, 9 }), 2);
    assert_memory_equal(initializer(onnx, "u")->data, &(uint64_t){ 5000000000 }, 8);
    assert_true(dtype_real(DTYPE_F16, initializer(onnx, "h")->data, 0) == 1);
    assert_true(dtype_real(DTYPE_F16, initializer(onnx, "h")->data, 1) == -2);
    onnx_close(onnx);
}

static void nodes_out_of_order_are_sorted(void **state)
{
    struct onnx *onnx = open_text("input x float batch,4\n node Relu b -> y\n"
                                  "node Relu a -> b\n node Relu x -> a\n output y");

    (void)state;
    assert_string_equal(onnx->main.nodes[0].proto->output[0], "a");
    assert_string_equal(onnx->main.nodes[2].proto->output[0], "y");
    onnx_close(onnx);
}

static void a_cycle_is_named(void **state)
{
    (void)state;
    refused("input x float batch,4\n node Add x,c -> a\n node Relu a -> b\n node Relu b -> c\n"
            "output c", "lies on a cycle");
}

static void broken_names_are_refused(void **state)
{
    (void)state;
    refused("input x float batch,4\n node Relu z -> y\n output y",
            "reads \"z\", which nothing makes");
    refused("input x float batch,4\n node Relu x -> y\n node Relu x -> y\n output y",
            "two values are named \"y\"");
    refused("input x float batch,4\n init w float 2\n init w float 2\n node Relu x -> y\n"
            "output y", "two values are named \"w\"");
    refused("input x float batch,4\n node Relu x -> y\n output z",
            "nothing makes the output \"z\"");
    refused("input x float batch,4\n node Relu x -> y", "has no output");
}

static void only_opsets_9_to_28_are_read(void **state)
{
    (void)state;
    refused("opset 8\n input x float b,4\n node Relu x -> y\n output y", "opset 8");
    refused("opset 29\n input x float b,4\n node Relu x -> y\n output y", "opset 29");
    onnx_close(open_text("opset 9\n input x float b,4\n node Relu x -> y\n output y"));
    onnx_close(open_text("opset 28\n input x float b,4\n node Relu x -> y\n output y"));
}

static void data_must_fit_their_shape(void **state)
{
    static const unsigned char tensor[] = {
        0x3a, 20, 0x2a, 18, 0x08, 3, 0x10, 1, 0x42, 1, 'w', 0x4a, 8, 0, 0, 0, 0, 0, 0, 0, 0,
    };

    (void)state;
    refused("input x float b,4\n init w string 2\n node Relu x -> y\n output y",
            "tensor \"w\": elements of type string");
    refused("input x float b,4\n init w float 1,1,1,1,1,1,1,1,1 = 1\n node Relu x -> y\n"
            "output y", "more than 8 dimensions");
    /* Three floats in eight bytes; the opset comes first in the checks. */
    refused_bytes(tensor, sizeof(tensor), "runs past the end");
}

static void external_data_are_mapped(void **state)
{
    char file[600];
    struct onnx *onnx;

    (void)state;
    snprintf(file, sizeof(file), "%s/weights.bin", directory);
    unit_write(file, "0123456789abcdefABCDEFGHIJKLMNOP");
    onnx = open_text("input x float b,4\n external w float 4 weights.bin 16 16\n"
                     "node Add x,w -> y\n output y");
    assert_memory_equal(initializer(onnx, "w")->data, "ABCDEFGHIJKLMNOP", 16);
    assert_false(initializer(onnx, "w")->in_file);
    onnx_close(onnx);
    refused("input x float b,4\n external w float 4 weights.bin 17 16\n node Add x,w -> y\n"
            "output y", "too short");
    refused("input x float b,4\n external w float 4 weights.bin 18446744073709551608 16\n"
            "node Add x,w -> y\n output y", "too short");
    refused("input x float b,4\n external w float 4 weights.bin -1 16\n node Add x,w -> y\n"
            "output y", "no number");
    refused("input x float b,4\n external w float 4 weights.bin 0 12\n node Add x,w -> y\n"
            "output y", "16 bytes of external data expected, 12 given");
}

static void absent_weights_have_a_shape_and_no_data(void **state)
{
    struct onnx *onnx = open_text("input x float b,4\n absent w float 4\n"
                                  "node Add x,w -> y\n output y");

    (void)state;
    assert_null(initializer(onnx, "w")->data);
    assert_int_equal(initializer(onnx, "w")->size, 16);
    onnx_close(onnx);
    /* Nothing is allocated for them. */
    onnx = open_text("input x float b,4\n absent w float 1000000,1000000\n"
                     "node Relu x -> y\n output y");
    assert_int_equal(initializer(onnx, "w")->size, 4000000000000);
    onnx_close(onnx);
    refused("input x float b,4\n absent n int64 2\n node Reshape x,n -> y\n output y",
            "only floating weights may be absent");
}

static void external_data_stay_in_the_directory(void **state)
{
    char link[600], outside[600];

    (void)state;
    snprintf(outside, sizeof(outside), "%s.outside", directory);
    unit_write(outside, "0123456789abcdef");
    snprintf(link, sizeof(link), "%s/link.bin", directory);
    assert_int_equal(symlink(outside, link), 0);
    refused("input x float b,4\n external w float 4 link.bin 0 16\n node Add x,w -> y\n"
            "output y", "a link out of the model's directory");
    refused("input x float b,4\n external w float 4 ../x.bin 0 16\n node Add x,w -> y\n"
            "output y", "leaves the model's directory");
    refused("input x float b,4\n external w float 4 a/../../x.bin 0 16\n node Add x,w -> y\n"
            "output y", "leaves the model's directory");
    refused("input x float b,4\n external w float 4 /etc/passwd 0 16\n node Add x,w -> y\n"
            "output y", "is no relative path");
    refused("input x float b,4\n external w float 4 . 0 16\n node Add x,w -> y\n output y",
            "net.onnx");
    unlink(outside);
}

static void what_is_no_protobuf_says_where(void **state)
{
    (void)state;
    refused_bytes("", 0, "empty");
    refused_bytes("\x08", 1, "byte 1: a number is cut off");
    refused_bytes("\x3a\x05\x12", 3, "runs past the end");
    refused_bytes("\x0b", 1, "groups are not allowed");
    refused_bytes("\x3a\x00\x3a\x00", 4, "given twice");
    refused_bytes("\x3d\x00\x00\x00\x00", 5, "wrong type");
    refused_bytes("\x3a\x04\x12\x02\x0a\xff", 6, "not plain UTF-8");
    refused_bytes("\x08\x08", 2, "no graph");
}

/* Subgraphs in attributes of nodes of subgraphs … */
static void deep_nesting_is_refused(void **state)
{
    unsigned char file[600], *at = file + sizeof(file);
    size_t size = 0;
    int level;

    (void)state;
    for (level = 0; level < 64; level++) {
        /* graph { node { attribute { g { … } } } }, lengths as two bytes */
        static const unsigned char tags[] = { 0x32, 0x2a, 0x0a };
        size_t t;

        for (t = 0; t < 3 && size + 3 < sizeof(file) - 3; t++) {
            at -= 3;
            at[0] = tags[t];
            at[1] = (unsigned char)((size & 0x7f) | 0x80);
            at[2] = (unsigned char)(size >> 7);
            size += 3;
        }
    }
    at -= 3;
    at[0] = 0x3a;
    at[1] = (unsigned char)((size & 0x7f) | 0x80);
    at[2] = (unsigned char)(size >> 7);
    refused_bytes(at, size + 3, "nested too deep");
}

static void a_flood_of_elements_is_refused(void **state)
{
    static unsigned char file[2 * (WIRE_MAX_ELEMENTS + 8)];
    const struct wire_message empty = { "Test", (const struct wire_field[]){ { .number = 0 } } };
    struct wire_copy copy = { 0 };
    struct err err = { 0 };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(file); i += 2)
        file[i] = 0x0a;
    assert_int_equal(wire_strip(file, sizeof(file), &empty, true, &copy, &err), -1);
    assert_contains(err.text, "too many elements");
}

static void the_hash_is_of_the_graph_not_of_its_weights(void **state)
{
    const char *graph = "input x float b,4\n init w float 4 = %s\n init i int64 1 = %s\n"
                        "node Add x,w -> z\n node Reshape z,i -> y\n output y";
    char text[300], hash[3][17];
    const char *values[3][2] = { { "1,2", "4" }, { "3,4", "4" }, { "1,2", "-1" } };
    struct onnx *onnx;
    int i;

    (void)state;
    for (i = 0; i < 3; i++) {
        snprintf(text, sizeof(text), graph, values[i][0], values[i][1]);
        onnx = open_text(text);
        strcpy(hash[i], onnx->hash);
        onnx_close(onnx);
    }
    if (!hash[0][0]) /* without xxhash there is none */
        return;
    assert_string_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[0], hash[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_stay_in_the_mapping),
        cmocka_unit_test(typed_data_are_read),
        cmocka_unit_test(nodes_out_of_order_are_sorted),
        cmocka_unit_test(a_cycle_is_named),
        cmocka_unit_test(broken_names_are_refused),
        cmocka_unit_test(only_opsets_9_to_28_are_read),
        cmocka_unit_test(data_must_fit_their_shape),
        cmocka_unit_test(external_data_are_mapped),
        cmocka_unit_test(absent_weights_have_a_shape_and_no_data),
        cmocka_unit_test(external_data_stay_in_the_directory),
        cmocka_unit_test(what_is_no_protobuf_says_where),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(a_flood_of_elements_is_refused),
        cmocka_unit_test(the_hash_is_of_the_graph_not_of_its_weights),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
