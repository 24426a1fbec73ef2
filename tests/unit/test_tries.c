/* SPDX-License-Identifier: MIT */
/* The count of restarts in vain, beside the checkpoints, and whose it is. */
#include "unit.h"

#include <signal.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/option.h"
#include "cmd_launch.h"

static char *folder, *restarts, *lock;

static int set_up(void **state)
{
    static char *argv[] = { "train", "m.onnx", "--max-restarts", "1", NULL };
    struct err err = { 0 };

    folder = unit_directory();
    restarts = mem_printf("%s/.restarts", folder);
    lock = mem_printf("%s/lock", folder);
    unsetenv("SLURM_RESTART_COUNT");
    *state = options_parse(COMMAND_TRAIN, 4, argv, 1, &err);
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    options_free(*state);
    free(restarts);
    free(lock);
    return unit_remove(folder);
}

static struct launcher launcher(void *const *state, const char *job, char *tag)
{
    return (struct launcher){ .options = *state, .job = job, .checkpoint = folder, .tag = tag };
}

static char *text(void)
{
    static char all[1024];
    FILE *file = fopen(restarts, "r");

    memset(all, 0, sizeof(all));
    if (!file)
        return NULL;
    assert_true(fread(all, 1, sizeof(all) - 1, file) > 0);
    fclose(file);
    return all;
}

static void begin(struct launcher *l)
{
    struct err err = { 0 };

    assert_int_equal(launcher_begin_tries(l, &err), 0);
}

static void end(struct launcher *l, int code)
{
    struct err err = { 0 };

    assert_int_equal(launcher_end_tries(l, code, &err), code);
}

static void a_run_that_ends_leaves_no_count(void **state)
{
    struct launcher l = launcher(state, "7", "a 1");

    begin(&l);
    assert_contains(text(), "\"job\": \"7\"");
    end(&l, EXIT_OK);
    assert_null(text());
}

static void allocations_of_a_job_go_on_counting(void **state)
{
    struct launcher first = launcher(state, "7", "a 1"), second = launcher(state, "7", "b 1"),
                    third = launcher(state, "7", "b 2");
    struct err err = { 0 };

    begin(&first);
    setenv("SLURM_RESTART_COUNT", "1", 1);
    begin(&second);
    assert_int_equal(second.tries.vain, 1);
    assert_int_equal(launcher_begin_tries(&third, &err), -1);
    assert_contains(err.text, "giving up: 1 restarts");
    assert_null(text());
}

static void a_count_of_an_older_release_is_read(void **state)
{
    struct launcher l = launcher(state, "7", "a 1");

    unit_write(restarts, "{\"schema\": \"tasuki-restarts\", \"version\": 1, \"job\": \"7\","
                         " \"inode\": 0, \"seconds\": 0, \"nanoseconds\": 0, \"vain\": 0}");
    setenv("SLURM_RESTART_COUNT", "1", 1);
    begin(&l);
    assert_int_equal(l.tries.vain, 1);
}

static void a_launcher_that_was_cut_off_leaves_the_count_to_the_new_one(void **state)
{
    struct launcher old = launcher(state, "7", "a 1"), new = launcher(state, "7", "b 1");
    struct err err = { 0 };
    char *before;

    begin(&old);
    setenv("SLURM_RESTART_COUNT", "1", 1);
    begin(&new);
    before = mem_strdup(text());
    assert_int_equal(launcher_try_again(&old, &err), 0);
    assert_string_equal(text(), before);
    assert_int_equal(launcher_try_again(&old, &err), -1);
    assert_string_equal(text(), before);
    end(&old, EXIT_FAILED);
    assert_string_equal(text(), before);
    free(before);
    end(&new, EXIT_OK);
    assert_null(text());
}

static void a_launcher_whose_job_goes_on_elsewhere_leaves_its_count(void **state)
{
    struct launcher l = launcher(state, "7", "a 1");

    begin(&l);
    l.replaced = true;
    end(&l, EXIT_FAILED);
    assert_non_null(text());
}

static void another_job_leaves_the_count_of_a_run_that_is_there(void **state)
{
    struct launcher run = launcher(state, "7", "a 1"), hand = launcher(state, "8", "c 1");
    struct err err = { 0 };

    begin(&run);
    unit_write(lock, "{}");
    begin(&hand);
    assert_contains(text(), "\"job\": \"7\"");
    assert_int_equal(launcher_try_again(&hand, &err), 0);
    end(&hand, EXIT_FAILED);
    assert_contains(text(), "\"job\": \"7\"");
}

static void another_job_replaces_the_count_of_a_run_that_is_not_there(void **state)
{
    struct launcher run = launcher(state, "7", "a 1"), next = launcher(state, "8", "c 1");

    begin(&run);
    begin(&next);
    assert_contains(text(), "\"job\": \"8\"");
    end(&next, EXIT_FAILED);
    assert_null(text());
}

static void the_count_is_for_its_user_alone(void **state)
{
    struct launcher l = launcher(state, "7", "a 1");
    mode_t before = umask(0);
    struct stat status;

    begin(&l);
    umask(before);
    assert_int_equal(stat(restarts, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
}

/* Not from what an older run had left there, unless something came after it. */
static void a_job_that_is_started_again_goes_on_from_what_it_wrote_itself(void **state)
{
    char *latest = mem_printf("%s/latest", folder);
    struct launcher first = launcher(state, "7", "a 1"), second = launcher(state, "7", "b 1"),
                    third = launcher(state, "7", "b 2"), unknown = launcher(state, "8", "c 1");

    unit_write(latest, "step-00000004\n");
    begin(&first);
    assert_false(first.tries.resume);
    setenv("SLURM_RESTART_COUNT", "1", 1);
    begin(&second);
    assert_false(second.tries.resume);
    unlink(latest);
    unit_write(latest, "step-00000008\n");
    begin(&third);
    assert_true(third.tries.resume);
    assert_int_equal(third.tries.vain, 0);
    unlink(restarts);
    begin(&unknown);
    assert_true(unknown.tries.resume);
    free(latest);
}

/* An allocation that is too short for a step is one that was in vain. */
static void what_slurm_takes_away_is_no_failure_but_after_notice_it_is(void **state)
{
    struct launcher taken = launcher(state, "7", "a 1"), short_one = launcher(state, "7", "b 1");
    struct err err = { 0 };

    begin(&taken);
    setenv("SLURM_RESTART_COUNT", "1", 1);
    begin(&short_one);
    short_one.told = SIGTERM;
    end(&short_one, EXIT_REQUEUE);
    assert_int_equal(short_one.tries.vain, 0);
    begin(&short_one);
    assert_int_equal(short_one.tries.vain, 1);
    short_one.noticed = true;
    assert_int_equal(launcher_end_tries(&short_one, EXIT_REQUEUE, &err), EXIT_FAILED);
    assert_contains(err.text, "giving up: 1 restarts");
}

/* Nothing is written down, and the job would be given the same nodes again and again. */
static void starts_of_a_job_without_checkpoints_have_an_end(void **state)
{
    struct launcher l = { .options = *state, .job = "7" };
    struct err err = { 0 };

    begin(&l);
    end(&l, EXIT_REQUEUE);
    setenv("SLURM_RESTART_COUNT", "1", 1);
    begin(&l);
    assert_int_equal(launcher_end_tries(&l, EXIT_REQUEUE, &err), EXIT_FAILED);
    assert_contains(err.text, "giving up: 1 restarts");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_run_that_ends_leaves_no_count),
        TEST(allocations_of_a_job_go_on_counting),
        TEST(a_count_of_an_older_release_is_read),
        TEST(a_launcher_that_was_cut_off_leaves_the_count_to_the_new_one),
        TEST(a_launcher_whose_job_goes_on_elsewhere_leaves_its_count),
        TEST(another_job_leaves_the_count_of_a_run_that_is_there),
        TEST(another_job_replaces_the_count_of_a_run_that_is_not_there),
        TEST(the_count_is_for_its_user_alone),
        TEST(a_job_that_is_started_again_goes_on_from_what_it_wrote_itself),
        TEST(what_slurm_takes_away_is_no_failure_but_after_notice_it_is),
        TEST(starts_of_a_job_without_checkpoints_have_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
