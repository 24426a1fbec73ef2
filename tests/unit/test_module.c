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

static void assert_moved(const char *folder, const char *bindir, const char *compiled,
                         const char *expected)
{
    char *path = module_moved(folder, bindir, compiled);

    assert_string_equal(path, expected);
    free(path);
}

static void what_was_moved_as_a_whole_is_found_from_the_program(void **state)
{
    assert_moved("/opt/bin", "/opt/bin", "/opt/lib/tasuki", "/opt/lib/tasuki");
    assert_moved("/new/place/bin", "/opt/bin", "/opt/lib/tasuki", "/new/place/lib/tasuki");
    assert_moved("/bin", "/opt/bin", "/opt/lib/tasuki", "/lib/tasuki");
    assert_moved("/root/usr/bin", "/usr/bin", "/etc/tasuki", "/root/etc/tasuki");
    (void)state;
}

static void a_program_elsewhere_has_what_configure_was_told(void **state)
{
    assert_moved("/home/x/build", "/opt/bin", "/opt/lib/tasuki", "/opt/lib/tasuki");
    assert_moved("/new/bin", "/usr/bin", "/etc/tasuki", "/etc/tasuki");
    assert_moved("/new/cabin", "/opt/bin", "/opt/lib/tasuki", "/opt/lib/tasuki");
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_module_is_named_with_where_it_was_looked_for),
        cmocka_unit_test(a_file_that_is_no_module_is_named),
        cmocka_unit_test(what_was_moved_as_a_whole_is_found_from_the_program),
        cmocka_unit_test(a_program_elsewhere_has_what_configure_was_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
