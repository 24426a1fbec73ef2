/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/json.h"

static json_t *read_text(const char *text, struct err *err)
{
    char path[] = "/tmp/tasuki-json.XXXXXX";
    int fd = mkstemp(path);
    json_t *json;

    assert_true(fd >= 0);
    close(fd);
    unit_write(path, text);
    json = json_load(path, err);
    unlink(path);
    return json;
}

static void deep_nesting_is_refused(void **state)
{
    char text[200] = "";
    struct err err = { 0 };
    json_t *json;

    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    json = read_text(text, &err);
    assert_non_null(json);
    json_decref(json);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_null(read_text(text, &err));
    assert_contains(err.text, "nested deeper than 64 levels");
    memset(text, '[', 100);
    text[1] = '"';
    strcpy(text + 100, "\"]");
    json = read_text(text, &err);
    assert_non_null(json);
    json_decref(json);
    (void)state;
}

static void broken_files_are_refused_with_the_line(void **state)
{
    struct err err = { 0 };

    assert_null(read_text("{\n \"a\": 1,\n}", &err));
    assert_contains(err.text, ":3: ");
    assert_null(read_text("{\"a\": 1, \"a\": 2}", &err));
    assert_contains(err.text, "duplicate");
    assert_null(read_text("", &err));
    assert_contains(err.text, "the file is empty");
    assert_null(read_text("{} x", &err));
    assert_null(json_load("/nonexistent/file", &err));
    assert_contains(err.text, "/nonexistent/file: No such file");
    assert_null(json_load("/tmp", &err));
    assert_contains(err.text, "/tmp: not a regular file");
    (void)state;
}

static void schema_and_version_are_checked(void **state)
{
    struct err err = { 0 };
    struct json_reader r;
    json_t *json = json_pack("{s:s, s:i}", "schema", "tasuki-plan", "version", 2);

    assert_int_equal(json_reader_top(&r, "f", json, "tasuki-cost", 2, &err), -1);
    assert_string_equal(err.text, "f: schema: expected \"tasuki-cost\", got \"tasuki-plan\"");
    assert_int_equal(json_reader_top(&r, "f", json, "tasuki-plan", 1, &err), -1);
    assert_string_equal(err.text, "f: version: expected 1, got 2");
    assert_int_equal(json_reader_top(&r, "f", json, "tasuki-plan", 2, &err), 0);
    assert_int_equal(json_reader_end(&r, &err), 0);
    json_decref(json);
    json = json_array();
    assert_int_equal(json_reader_top(&r, "f", json, "tasuki-plan", 2, &err), -1);
    assert_string_equal(err.text, "f: expected an object");
    json_decref(json);
    (void)state;
}

static void errors_name_file_and_key(void **state)
{
    struct err err = { 0 };
    struct json_reader top = { .file = "plan.json" }, stage;
    json_t *json = json_pack("{s:s, s:i, s:[{s:f, s:b, s:s, s:i}]}", "schema", "x", "version",
                             1, "stages", "replicas", 1.5, "flag", 1, "name", "n", "extra", 1);
    const json_t *stages;
    const char *string;
    int64_t n = 7;
    double x;
    bool b;

    assert_int_equal(json_reader_top(&top, "plan.json", json, "x", 1, &err), 0);
    assert_int_equal(json_get_array(&top, "stages", true, &stages, &err), 0);
    assert_int_equal(json_reader_sub(&stage, &top, "stages", 0, json_array_get(stages, 0),
                                     &err), 0);
    assert_int_equal(json_get_int(&stage, "replicas", 1, 9, NULL, &n, &err), -1);
    assert_string_equal(err.text,
                        "plan.json: stages[0].replicas: expected an integer from 1 to 9");
    assert_int_equal(n, 7);
    assert_int_equal(json_get_number(&stage, "replicas", 2, 3, NULL, &x, &err), -1);
    assert_contains(err.text, "expected a number from 2 to 3");
    assert_int_equal(json_get_string(&stage, "flag", true, NULL, &string, &err), -1);
    assert_contains(err.text, "stages[0].flag: expected a string");
    assert_int_equal(json_get_bool(&stage, "name", NULL, &b, &err), -1);
    assert_int_equal(json_get_int(&stage, "missing", 1, 9, NULL, &n, &err), -1);
    assert_string_equal(err.text, "plan.json: stages[0].missing: missing");
    assert_int_equal(json_reader_end(&stage, &err), -1);
    assert_string_equal(err.text, "plan.json: stages[0]: unknown key \"extra\"");
    json_decref(json);
    (void)state;
}

static void absent_keys_take_their_defaults(void **state)
{
    struct err err = { 0 };
    struct json_reader r;
    json_t *json = json_pack("{s:s, s:i, s:f}", "schema", "x", "version", 1, "real", 4.0);
    const int64_t def_int = 3;
    const double def_number = 2.5;
    const bool def_bool = true;
    const char *string;
    const json_t *list;
    int64_t n;
    double x;
    bool b;

    assert_int_equal(json_reader_top(&r, "f", json, "x", 1, &err), 0);
    assert_int_equal(json_get_int(&r, "a", 0, 9, &def_int, &n, &err), 0);
    assert_int_equal(n, 3);
    assert_int_equal(json_get_int(&r, "real", 0, 9, NULL, &n, &err), 0);
    assert_int_equal(n, 4);
    assert_int_equal(json_get_number(&r, "b", 0, 9, &def_number, &x, &err), 0);
    assert_true(x == 2.5);
    assert_int_equal(json_get_bool(&r, "c", &def_bool, &b, &err), 0);
    assert_true(b);
    assert_int_equal(json_get_string(&r, "d", false, "def", &string, &err), 0);
    assert_string_equal(string, "def");
    assert_int_equal(json_get_array(&r, "e", false, &list, &err), 0);
    assert_null(list);
    assert_int_equal(json_get_object(&r, "e", true, &list, &err), -1);
    json_decref(json);
    (void)state;
}

static void what_is_saved_is_read_back_to_the_bit(void **state)
{
    char *directory = unit_directory(), path[600];
    struct err err = { 0 };
    json_t *json = json_pack("{s:f, s:s}", "x", 0.1 + 0.2, "name", "\xe4\xb8\x8d\xe8\x80\x81");
    json_t *back;

    snprintf(path, sizeof(path), "%s/a.json", directory);
    assert_int_equal(json_save(json, path, &err), 0);
    back = json_load(path, &err);
    assert_true(json_equal(json, back));
    json_decref(json);
    json_decref(back);
    unlink(path);
    assert_int_equal(rmdir(directory), 0);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(broken_files_are_refused_with_the_line),
        cmocka_unit_test(schema_and_version_are_checked),
        cmocka_unit_test(errors_name_file_and_key),
        cmocka_unit_test(absent_keys_take_their_defaults),
        cmocka_unit_test(what_is_saved_is_read_back_to_the_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
