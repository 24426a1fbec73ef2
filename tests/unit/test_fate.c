/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/fate.h"

static void put(const char *directory, const char *name, const char *text)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void the_first_that_failed_comes_first_and_what_is_damaged_does_not_count(void **state)
{
    char directory[] = "/tmp/tasuki-fate-XXXXXX";
    struct fate *fates;

    (void)state;
    assert_non_null(mkdtemp(directory));
    put(directory, "0.json", "{\"rank\": 0, \"code\": 0, \"agreed\": true, \"time\": 1.0, "
        "\"host\": \"n1\", \"text\": \"\", \"step\": \"4\", \"kwh\": 0.5}");
    put(directory, "3.json", "{\"rank\": 3, \"code\": 1, \"agreed\": false, \"time\": 9.0, "
        "\"host\": \"n4\", \"text\": \"late\", \"step\": \"4\"}");
    put(directory, "2.json", "{\"rank\": 2, \"code\": 1, \"agreed\": false, \"time\": 8.5, "
        "\"host\": \"n3\", \"text\": \"early\", \"step\": \"4\"}");
    put(directory, "1.json", "{\"rank\": 1, \"code\"");
    put(directory, "5.json", "[]");
    assert_int_equal(fate_read(directory, &fates), 3);
    assert_string_equal(fates[0].text, "early");
    assert_string_equal(fates[0].host, "n3");
    assert_string_equal(fates[0].step, "4");
    assert_false(fates[0].agreed);
    assert_int_equal(fates[1].rank, 3);
    assert_true(fates[2].agreed);
    assert_true(fates[2].kwh == 0.5);
    assert_true(isnan(fates[1].kwh));
    fate_free(3, fates);
    fate_forget(directory);
    assert_int_equal(access(directory, F_OK), -1);
}

static void those_of_launchers_that_are_gone_are_removed_by_name_and_age(void **state)
{
    char parent[] = "/tmp/tasuki-fate-XXXXXX", one[64], other[64];
    time_t now = time(NULL);
    const struct timespec before[2] = { { .tv_sec = now - 60 }, { .tv_sec = now - 60 } };

    (void)state;
    assert_non_null(mkdtemp(parent));
    snprintf(one, sizeof(one), "%s/.fate-7-0", parent);
    snprintf(other, sizeof(other), "%s/.fate-71-0", parent);
    assert_int_equal(mkdir(one, 0700), 0);
    assert_int_equal(mkdir(other, 0700), 0);
    put(one, "0.json", "{}");
    fate_forget_old(parent, ".fate-", now - 30);
    assert_int_equal(access(one, F_OK), 0);
    assert_int_equal(utimensat(AT_FDCWD, one, before, 0), 0);
    fate_forget_old(parent, ".fate-8", now - 30);
    assert_int_equal(access(one, F_OK), 0);
    fate_forget_old(parent, ".fate-", now - 30);
    assert_int_equal(access(one, F_OK), -1);
    assert_int_equal(access(other, F_OK), 0);
    fate_forget(other);
    assert_int_equal(rmdir(parent), 0);
}

static void a_link_is_neither_read_nor_followed_where_fates_are_removed(void **state)
{
    char parent[] = "/tmp/tasuki-fate-XXXXXX", place[64], target[64], file[80];
    struct fate *fates;
    struct err err = { 0 };
    struct stat st;

    (void)state;
    assert_non_null(mkdtemp(parent));
    snprintf(place, sizeof(place), "%s/.fate-7-0", parent);
    snprintf(target, sizeof(target), "%s/target", parent);
    snprintf(file, sizeof(file), "%s/0.json", target);
    assert_int_equal(mkdir(target, 0700), 0);
    put(target, "0.json", "{\"rank\": 0, \"code\": 0, \"agreed\": true, \"time\": 1.0, "
        "\"host\": \"n1\", \"text\": \"\", \"step\": \"4\"}");
    assert_int_equal(fate_read(target, &fates), 1);
    fate_free(1, fates);
    assert_int_equal(symlink(target, place), 0);
    assert_int_equal(fate_read(place, &fates), 0);
    fate_forget_old(parent, ".fate-7-", time(NULL) + 60);
    assert_int_equal(lstat(place, &st), -1);
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(symlink(target, place), 0);
    assert_int_equal(fate_make(place, &err), 0);
    assert_int_equal(lstat(place, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(unit_remove(parent), 0);
}

static void a_directory_that_others_may_use_is_refused(void **state)
{
    char place[] = "/tmp/tasuki-fate-XXXXXX", inner[64];
    struct err err = { 0 };

    (void)state;
    assert_non_null(mkdtemp(place));
    snprintf(inner, sizeof(inner), "%s/0.json", place);
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_int_equal(fate_make(place, &err), 0);
    assert_int_equal(chmod(place, 0777), 0);
    assert_int_equal(fate_make(place, &err), -1);
    assert_contains(err.text, place);
    assert_int_equal(unit_remove(place), 0);
}

static void whether_one_can_be_left_is_tried_and_leaves_nothing(void **state)
{
    char directory[] = "/tmp/tasuki-fate-XXXXXX";
    struct err err = { 0 };

    (void)state;
    assert_non_null(mkdtemp(directory));
    assert_int_equal(fate_check(directory, &err), 0);
    assert_int_equal(rmdir(directory), 0);
    /* Gone, as a later launcher leaves it, is not full. */
    assert_int_equal(fate_check(directory, &err), 0);
}

static void where_no_directory_is_there_is_no_fate(void **state)
{
    struct fate *fates;

    (void)state;
    assert_int_equal(fate_read("/nowhere/at/all", &fates), 0);
    assert_null(fates);
}

static void a_step_that_begins_is_known_by_its_number(void **state)
{
    char directory[] = "/tmp/tasuki-fate-XXXXXX", *step;
    struct fate *fates;

    (void)state;
    assert_non_null(mkdtemp(directory));
    unsetenv("TASUKI_FATE");
    setenv("SLURM_STEP_ID", "12", 1);
    fate_begin();
    setenv("TASUKI_FATE", directory, 1);
    unsetenv("SLURM_STEP_ID");
    fate_begin();
    assert_null(fate_step(directory));
    setenv("SLURM_STEP_ID", "12", 1);
    fate_begin();
    step = fate_step(directory);
    assert_string_equal(step, "12");
    free(step);
    assert_int_equal(fate_read(directory, &fates), 0);
    put(directory, "step", "{\"step\": 12}");
    assert_null(fate_step(directory));
    fate_forget(directory);
    assert_int_equal(access(directory, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_failed_comes_first_and_what_is_damaged_does_not_count),
        cmocka_unit_test(those_of_launchers_that_are_gone_are_removed_by_name_and_age),
        cmocka_unit_test(a_link_is_neither_read_nor_followed_where_fates_are_removed),
        cmocka_unit_test(a_directory_that_others_may_use_is_refused),
        cmocka_unit_test(whether_one_can_be_left_is_tried_and_leaves_nothing),
        cmocka_unit_test(where_no_directory_is_there_is_no_fate),
        cmocka_unit_test(a_step_that_begins_is_known_by_its_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
