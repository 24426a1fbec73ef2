/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <sys/stat.h>

#include "base/file.h"
#include "train/safetensors.h"

static char path[600];

/* A file with this header and 'size' bytes of data, all 1. */
static struct safetensors *open_text(const char *header, size_t size, struct err *err)
{
    FILE *file = fopen(path, "w");
    uint64_t length = strlen(header);

    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> (8 * i) & 0xff), file);
    fputs(header, file);
    for (size_t i = 0; i < size; i++)
        fputc(1, file);
    fclose(file);
    return safetensors_open(path, err);
}

static void refused(const char *header, size_t size, const char *why)
{
    struct err err = { 0 };
    struct safetensors *file = open_text(header, size, &err);

    assert_null(file);
    assert_contains(err.text, path);
    assert_contains(err.text, why);
}

static void what_is_written_is_read(void **state)
{
    float a[6] = { 1, 2, 3, 4, 5, 6 };
    double b = 0.5;
    int64_t c[2] = { -1, 1 };
    struct safetensors_tensor tensors[] = {
        { .name = "a", .dtype = DTYPE_F32, .shape = { 2, { 2, 3 } }, .data = a },
        { .name = "b \"q\"", .dtype = DTYPE_F64, .shape = { 0, { 0 } }, .data = &b },
        { .name = "c", .dtype = DTYPE_I64, .shape = { 1, { 2 } }, .data = c },
        { .name = "empty", .dtype = DTYPE_U8, .shape = { 2, { 3, 0 } }, .data = NULL },
    };
    struct err err = { 0 };
    struct safetensors *file;
    const struct safetensors_tensor *t;

    (void)state;
    unlink(path);
    assert_int_equal(safetensors_write(path, 4, tensors, &err), 0);
    file = safetensors_open(path, &err);
    assert_non_null(file);
    assert_int_equal(safetensors_count(file), 4);
    t = safetensors_find(file, "a");
    assert_non_null(t);
    assert_int_equal(t->shape.dim[1], 3);
    assert_memory_equal(t->data, a, sizeof(a));
    assert_int_equal((uintptr_t)t->data % 8, 0);
    t = safetensors_find(file, "b \"q\"");
    assert_int_equal(t->shape.rank, 0);
    assert_memory_equal(t->data, &b, sizeof(b));
    assert_memory_equal(safetensors_find(file, "c")->data, c, sizeof(c));
    assert_int_equal(safetensors_find(file, "empty")->bytes, 0);
    assert_null(safetensors_find(file, "d"));
    safetensors_close(file);
}

static void the_head_alone_tells_what_is_in_it(void **state)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]}}";
    struct err err = { 0 };
    struct safetensors *file = open_text(header, 11, &err), *there;
    size_t bytes, size;
    const void *head;

    (void)state;
    assert_non_null(file);
    head = safetensors_head(file, &bytes);
    size = safetensors_map(file)->size;
    assert_int_equal(bytes, 8 + strlen(header));
    assert_int_equal(size, bytes + 11);
    there = safetensors_open_head(path, head, bytes, size, &err);
    assert_non_null(there);
    assert_int_equal(safetensors_count(there), 2);
    assert_string_equal(safetensors_at(there, 1)->name, "b");
    assert_int_equal(safetensors_at(there, 1)->bytes, 3);
    assert_memory_equal(safetensors_find(there, "b")->data, "\0\0", 3);
    safetensors_close(there);
    assert_null(safetensors_open_head(path, head, bytes - 1, size, &err));
    assert_contains(err.text, path);
    assert_null(safetensors_open_head(path, head, bytes, bytes - 1, &err));
    assert_null(safetensors_open_head(path, head, 0, 0, &err));
    safetensors_close(file);
}

static void an_existing_file_is_not_overwritten(void **state)
{
    struct err err = { 0 };

    (void)state;
    unit_write(path, "x");
    assert_int_equal(safetensors_write(path, 0, NULL, &err), -1);
    assert_contains(err.text, path);
}

static void only_a_regular_file_is_replaced(void **state)
{
    struct err err = { 0 };
    struct safetensors *file;
    struct stat status;

    (void)state;
    unit_write(path, "x");
    assert_int_equal(safetensors_replace(path, 0, NULL, &err), 0);
    file = safetensors_open(path, &err);
    assert_non_null(file);
    safetensors_close(file);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(safetensors_replace(path, 0, NULL, &err), -1);
    assert_contains(err.text, "not a regular file");
    assert_int_equal(stat(path, &status), 0);
    assert_true(S_ISFIFO(status.st_mode));
    unlink(path);
}

static void a_header_that_does_not_fit_is_refused(void **state)
{
    struct err err = { 0 };

    (void)state;
    unit_write(path, "1234");
    assert_null(safetensors_open(path, &err));
    assert_contains(err.text, "too short");
    unit_write(path, "\xff\xff\xff\xff\xff\xff\xff\x7f{}");
    err = (struct err){ 0 };
    assert_null(safetensors_open(path, &err));
    assert_contains(err.text, "does not fit");
    refused("{", 0, "header");
    refused("[]", 0, "expected an object");
    refused("{\"a\":1,\"a\":1}", 0, "header");
    refused("{\"__metadata__\":{\"k\":1}}", 0, "not a string");
}

static void sizes_must_agree(void **state)
{
    (void)state;
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
            "do not agree");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "outside");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "outside");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
            "non-negative");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],"
            "\"data_offsets\":[0,0]}}", 0, "too large");
    refused("{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not known");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],"
            "\"data_offsets\":[0,4]}}", 4, "8 dimensions");
    refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
            "expected dtype");
}

static void overlaps_and_holes_are_refused(void **state)
{
    (void)state;
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}", 5, "overlaps");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}", 5, "no tensor");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 5, "at the end");
}

static void every_type_is_written_and_read(void **state)
{
    struct safetensors_tensor tensors[DTYPE_BF16];
    uint64_t value = 1;
    struct err err = { 0 };
    struct safetensors *file;

    (void)state;
    for (int i = 0; i < DTYPE_BF16; i++)
        tensors[i] = (struct safetensors_tensor){ .name = dtype_name(DTYPE_F32 + i),
                                                  .dtype = DTYPE_F32 + i, .data = &value };
    unlink(path);
    assert_int_equal(safetensors_write(path, DTYPE_BF16, tensors, &err), 0);
    file = safetensors_open(path, &err);
    assert_non_null(file);
    for (int i = 0; i < DTYPE_BF16; i++) {
        const struct safetensors_tensor *t = safetensors_find(file, tensors[i].name);

        assert_int_equal(t->dtype, tensors[i].dtype);
        assert_memory_equal(t->data, &value, dtype_size(t->dtype));
    }
    safetensors_close(file);
}

static void a_foreign_type_is_listed_but_has_no_dtype(void **state)
{
    struct err err = { 0 };
    struct safetensors *file;

    (void)state;
    file = open_text("{\"h\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                     4, &err);
    assert_non_null(file);
    assert_int_equal(safetensors_at(file, 0)->dtype, DTYPE_NONE);
    assert_string_equal(safetensors_at(file, 0)->type, "F8_E4M3");
    safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(the_head_alone_tells_what_is_in_it),
        cmocka_unit_test(an_existing_file_is_not_overwritten),
        cmocka_unit_test(only_a_regular_file_is_replaced),
        cmocka_unit_test(a_header_that_does_not_fit_is_refused),
        cmocka_unit_test(sizes_must_agree),
        cmocka_unit_test(overlaps_and_holes_are_refused),
        cmocka_unit_test(every_type_is_written_and_read),
        cmocka_unit_test(a_foreign_type_is_listed_but_has_no_dtype),
    };
    char *directory = unit_directory();
    int failed;

    snprintf(path, sizeof(path), "%s/t.safetensors", directory);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(directory);
    return failed;
}
