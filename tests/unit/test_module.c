/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/module.h"

static void a_missing_module_is_named_with_where_it_was_looked_for(void **state)
{
    struct err err = { 0 };

    setenv("TASUKI_PKGLIBDIR", "/nonexistent", 1);
    assert_null(module_find("mpi"));
    assert_null(module_open("mpi", &err));
    assert_contains(err.text, "tasuki-mpi.so is not installed (looked in /nonexistent)");
    unsetenv("TASUKI_PKGLIBDIR");
    assert_null(module_open("nosuch", &err));
    assert_contains(err.text, "/.libs and /");
    (void)state;
}

static void a_file_that_is_no_module_is_named(void **state)
{
    char *directory = unit_directory(), path[600], *found;
    struct err err = { 0 };

    snprintf(path, sizeof(path), "%s/tasuki-broken.so", directory);
    unit_write(path, "not ELF");
    setenv("TASUKI_PKGLIBDIR", directory, 1);
    found = module_find("broken");
    assert_string_equal(found, path);
    free(found);
    assert_null(module_open("broken", &err));
    assert_contains(err.text, path);
    unsetenv("TASUKI_PKGLIBDIR");
    unlink(path);
    rmdir(directory);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_module_is_named_with_where_it_was_looked_for),
        cmocka_unit_test(a_file_that_is_no_module_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
