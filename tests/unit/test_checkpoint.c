/* SPDX-License-Identifier: MIT */
/* How a checkpoint takes the place of another one. */
#include "unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "train/checkpoint.h"
#include "train/checkpoint_directory.h"

#define STEP "step-00000020"

static char *directory, final[600], old[600], temporary[600];

static int setup(void **state)
{
    (void)state;
    directory = unit_directory();
    snprintf(final, sizeof(final), "%s/" STEP, directory);
    snprintf(old, sizeof(old), "%s/" STEP ".old", directory);
    snprintf(temporary, sizeof(temporary), "%s/." STEP ".tmp", directory);
    return 0;
}

static int teardown(void **state)
{
    char *latest = mem_printf("%s/latest", directory);

    (void)state;
    checkpoint_remove(final);
    checkpoint_remove(old);
    unlink(latest);
    free(latest);
    return rmdir(directory);
}

/* A directory with a file that says which it is. */
static void make(const char *path, const char *text)
{
    char *file = mem_printf("%s/state.json", path);

    assert_int_equal(mkdir(path, 0777), 0);
    unit_write(file, text);
    free(file);
}

static void expect(const char *path, const char *text)
{
    char *file = mem_printf("%s/state.json", path), found[16] = "";
    FILE *stream = fopen(file, "r");

    assert_non_null(stream);
    assert_non_null(fgets(found, sizeof(found), stream));
    assert_string_equal(found, text);
    fclose(stream);
    free(file);
}

static void a_checkpoint_takes_the_place_of_one_of_its_step(void **state)
{
    struct err err = { 0 };
    char *latest;

    (void)state;
    make(final, "older");
    make(temporary, "newer");
    assert_int_equal(checkpoint_finish(directory, temporary, STEP, 1, &err), 0);
    expect(final, "newer");
    assert_int_equal(access(temporary, F_OK), -1);
    assert_int_equal(checkpoint_latest(directory, &latest, &err), 0);
    assert_string_equal(latest, final);
    free(latest);
}

/* A directory of another file system cannot be moved here. */
static void where_the_move_fails_the_one_that_was_renamed_away_stays(void **state)
{
    struct err err = { 0 };

    (void)state;
    make(old, "older");
    assert_int_equal(checkpoint_finish(directory, "/proc/self/task", STEP, 0, &err), -1);
    assert_contains(err.text, final);
    expect(old, "older");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_checkpoint_takes_the_place_of_one_of_its_step, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            where_the_move_fails_the_one_that_was_renamed_away_stays, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
