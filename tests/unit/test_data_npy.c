/* SPDX-License-Identifier: MIT */
/* .npy files: what NumPy writes is read, and nothing else. */
#include "unit.h"

#include <sys/stat.h>

#include "base/mem.h"
#include "train/data.h"
#include "train/npy.h"

static const char *directory;

/* A file of this version, this header and 'bytes' of elements 0, 1, 2, …; returns its size. */
static size_t make(unsigned char *file, int version, const char *header, size_t bytes)
{
    size_t length = strlen(header), n = 6;

    memcpy(file, NPY_MAGIC, n);
    file[n++] = (unsigned char)version;
    file[n++] = 0;
    for (int i = 0; i < (version == 1 ? 2 : 4); i++)
        file[n++] = (unsigned char)(length >> 8 * i);
    memcpy(file + n, header, length);
    n += length;
    for (size_t i = 0; i < bytes; i++)
        file[n++] = (unsigned char)i;
    return n;
}

static int parse(int version, const char *header, size_t bytes, struct npy *npy,
                 struct err *err)
{
    static unsigned char file[1024];

    *err = (struct err){ 0 };
    return npy_parse("a.npy", file, make(file, version, header, bytes), npy, err);
}

static void all_three_versions_are_read(void **state)
{
    struct err err;
    struct npy npy;

    (void)state;
    for (int version = 1; version <= 3; version++) {
        assert_int_equal(parse(version, "{'descr': '<f4', 'fortran_order': False, "
                               "'shape': (3, 2), }   \n", 24, &npy, &err), 0);
        assert_int_equal(npy.dtype, DTYPE_F32);
        assert_int_equal(npy.shape.rank, 2);
        assert_int_equal(npy.shape.dim[0], 3);
        assert_int_equal(((const unsigned char *)npy.data)[23], 23);
    }
    assert_int_equal(parse(4, "{}", 0, &npy, &err), -1);
    assert_contains(err.text, "version 4");
}

static void a_vector_has_a_comma(void **state)
{
    struct err err;
    struct npy npy;

    (void)state;
    assert_int_equal(parse(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }", 5,
                           &npy, &err), 0);
    assert_int_equal(npy.shape.rank, 1);
    assert_int_equal(parse(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (5), }", 5,
                           &npy, &err), -1);
    assert_contains(err.text, "no tuple of sizes");
}

static void every_type_is_read(void **state)
{
    static const struct {
        const char *descr;
        enum dtype dtype;
    } types[] = {
        { "<f2", DTYPE_F16 }, { "<f4", DTYPE_F32 }, { "<f8", DTYPE_F64 }, { "|i1", DTYPE_I8 },
        { "<i2", DTYPE_I16 }, { "<i4", DTYPE_I32 }, { "<i8", DTYPE_I64 }, { "|u1", DTYPE_U8 },
        { "<u2", DTYPE_U16 }, { "<u4", DTYPE_U32 }, { "<u8", DTYPE_U64 }, { "|b1", DTYPE_BOOL },
    };
    char header[100];
    struct err err;
    struct npy npy;

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        snprintf(header, sizeof(header),
                 "{'descr': '%s', 'fortran_order': False, 'shape': (3,), }", types[i].descr);
        assert_int_equal(parse(1, header, 3 * dtype_size(types[i].dtype), &npy, &err), 0);
        assert_int_equal(npy.dtype, types[i].dtype);
    }
}

static void other_orders_and_types_are_refused_by_name(void **state)
{
    static const char *const cases[][2] = {
        { "{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "Fortran's order" },
        { "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "big-endian" },
        { "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", "type '<c8'" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "records" },
        { "{'descr': '<f4', 'descr': '<f4', 'shape': (1,), }", "each once" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "each once" },
        { "{'descr': '<f4', 'fortran_order': False, }", "each once" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "no tuple" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", "follows" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }", "empty" },
        { "{'descr': '<f4", "no plain type" },
        { "", "no dictionary" },
    };
    struct err err;
    struct npy npy;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(1, cases[i][0], 4, &npy, &err), -1);
        assert_contains(err.text, "a.npy");
        assert_contains(err.text, cases[i][1]);
    }
}

static void sizes_are_not_trusted(void **state)
{
    static const char header[] = "{'descr': '<f8', 'fortran_order': False, 'shape': "
                                 "(4294967296, 4294967296, 2), }";
    unsigned char file[64];
    struct err err;
    struct npy npy;
    size_t n;

    (void)state;
    assert_int_equal(parse(1, header, 0, &npy, &err), -1);
    assert_contains(err.text, "do not agree");
    assert_int_equal(parse(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 11,
                           &npy, &err), -1);
    assert_contains(err.text, "do not agree");
    n = make(file, 2, "{}", 0);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(npy_parse("a.npy", file, cut, &npy, &err), -1);
    file[11] = 0xff;            /* a header of 4 GiB */
    assert_int_equal(npy_parse("a.npy", file, n, &npy, &err), -1);
    assert_contains(err.text, "ends inside its header");
}

static char *save(const char *name, const char *header, size_t bytes)
{
    unsigned char file[256];
    char *path = mem_printf("%s/%s", directory, name);
    FILE *out = fopen(path, "wb");

    assert_non_null(out);
    assert_int_equal(fwrite(file, make(file, 1, header, bytes), 1, out), 1);
    assert_int_equal(fclose(out), 0);
    return path;
}

static void check_both(const char *spec)
{
    struct err err = { 0 };
    struct data *data = data_open(spec, NULL, &err);
    struct data_want want = { .to = DTYPE_I64, .batch = { .outer = 1, .inner = 2 } };
    struct data_reader *reader;
    const struct model_tensor *tensors;
    int64_t sample = 2, out[2];
    int n;

    assert_string_equal(err.text, "");
    tensors = data_tensors(data, &n);
    assert_int_equal(n, 2);
    assert_int_equal(data_samples(data), 3);
    assert_string_equal(tensors[0].name, "x");
    assert_string_equal(tensors[1].name, "y");
    reader = data_reader_new(data);
    assert_int_equal(data_gather(reader, &want, 0, &sample, 1, 0, 1, out, &err), 0);
    assert_int_equal(out[1], 5);
    data_reader_free(reader);
    data_close(data);
}

static void arrays_are_named_by_the_list_or_by_their_files(void **state)
{
    char *x = save("x.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }", 6);
    char *y = save("y.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", 3);
    char *spec = mem_printf("x=%s,y=%s", x, y);
    struct err err = { 0 };

    (void)state;
    check_both(spec);
    check_both(directory);
    free(spec);
    spec = mem_printf("x=%s,x=%s", x, y);
    assert_null(data_open(spec, NULL, &err));
    assert_contains(err.text, "\"x\" is there twice");
    free(spec);
    err = (struct err){ 0 };
    assert_null(data_open("x=/nonexistent,y", NULL, &err));
    assert_contains(err.text, "/nonexistent");
    free(y);
    y = save("y.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }", 4);
    err = (struct err){ 0 };
    assert_null(data_open(directory, NULL, &err));
    assert_contains(err.text, "\"y\" has 4 samples, \"x\" has 3");
    unlink(x);
    unlink(y);
    free(x);
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_three_versions_are_read),
        cmocka_unit_test(a_vector_has_a_comma),
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(other_orders_and_types_are_refused_by_name),
        cmocka_unit_test(sizes_are_not_trusted),
        cmocka_unit_test(arrays_are_named_by_the_list_or_by_their_files),
    };
    int failed;

    directory = unit_directory();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(directory);
    return failed;
}
