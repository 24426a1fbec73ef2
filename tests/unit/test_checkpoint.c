/* SPDX-License-Identifier: MIT */
/* How a checkpoint takes the place of another one. */
#include "unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
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
    (void)state;
    return unit_remove(directory);
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

/* Another directory, to which a link leads in place of one of ours. */
static void elsewhere(const char *at, char path[600])
{
    snprintf(path, 600, "%s/elsewhere", directory);
    make(path, "other");
    assert_int_equal(symlink(path, at), 0);
}

static void a_link_in_place_of_a_step_is_removed_and_not_what_it_leads_to(void **state)
{
    const char *const places[] = { temporary, final, old };
    char target[600];
    struct err err = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct stat st;

        elsewhere(places[i], target);
        assert_int_equal(checkpoint_start(directory, temporary, &err), 0);
        assert_int_equal(rmdir(temporary), 0);
        make(temporary, "newer");
        assert_int_equal(checkpoint_finish(directory, temporary, STEP, 1, &err), 0);
        expect(final, "newer");
        expect(target, "other");
        assert_int_equal(lstat(old, &st), -1);
        assert_int_equal(lstat(temporary, &st), -1);
        file_remove_directory(final);
        file_remove_directory(target);
    }
}

static void links_among_the_steps_that_go_lead_to_what_stays(void **state)
{
    char older[600], target[600];
    struct err err = { 0 };
    struct stat st;

    (void)state;
    snprintf(older, sizeof(older), "%s/step-00000010", directory);
    elsewhere(older, target);
    make(temporary, "newer");
    assert_int_equal(checkpoint_finish(directory, temporary, STEP, CHECKPOINT_KEEP_ONLY, &err), 0);
    assert_int_equal(lstat(older, &st), -1);
    expect(target, "other");
}

static void a_link_in_place_of_latest_gives_way(void **state)
{
    char *latest = mem_printf("%s/latest", directory), target[600];
    struct err err = { 0 };
    char *path;

    (void)state;
    snprintf(target, sizeof(target), "%s/file", directory);
    unit_write(target, "other");
    assert_int_equal(symlink(target, latest), 0);
    make(temporary, "newer");
    assert_int_equal(checkpoint_finish(directory, temporary, STEP, 1, &err), 0);
    assert_int_equal(checkpoint_latest(directory, &path, &err), 0);
    assert_string_equal(path, final);
    unlink(latest);
    rename(target, latest);
    free(path);
    assert_int_equal(checkpoint_latest(directory, &path, &err), 0);
    assert_contains(path, "/other");
    free(path);
    free(latest);
}

static void no_checkpoint_goes_where_a_link_of_another_user_leads(void **state)
{
    char best[600], made[700], target[600];
    struct err err = { 0 };

    (void)state;
    if (geteuid() != 0)
        skip();
    snprintf(best, sizeof(best), "%s/best", directory);
    snprintf(made, sizeof(made), "%s/." STEP ".tmp", best);
    elsewhere(best, target);
    assert_int_equal(checkpoint_start(best, made, &err), 0);
    assert_int_equal(lchown(best, 65534, 65534), 0);
    /* In a folder that only its owner writes to nobody else can have put it. */
    assert_int_equal(checkpoint_start(best, made, &err), 0);
    assert_int_equal(chmod(directory, 0777), 0);
    assert_int_equal(checkpoint_start(best, made, &err), -1);
    assert_contains(err.text, "best: is a link that another user made (user 65534)");
    strcat(best, "/");
    assert_int_equal(file_check_link(best, &err), -1);
}

/* A folder of a project: its group, which this user is none of, and the owner may write there. */
static void make_project(const char *path)
{
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(chown(path, 1000, 60000), 0);
    assert_int_equal(chmod(path, 02770), 0);
}

static void no_checkpoint_goes_where_a_member_of_the_group_leads(void **state)
{
    char project[600], run[700], made[800], deeper[800], target[600];
    struct err err = { 0 };

    (void)state;
    if (geteuid() != 0)
        skip();
    snprintf(project, sizeof(project), "%s/project", directory);
    snprintf(run, sizeof(run), "%s/run", project);
    snprintf(made, sizeof(made), "%s/." STEP ".tmp", run);
    snprintf(deeper, sizeof(deeper), "%s/deeper", run);
    make_project(project);
    elsewhere(run, target);
    /* At the end of the path, */
    assert_int_equal(lchown(run, 1001, 60000), 0);
    assert_int_equal(checkpoint_start(run, made, &err), -1);
    assert_contains(err.text, "project/run: is a link that another user made (user 1001)");
    /* and in its midst: nothing is made where it leads. */
    assert_int_equal(checkpoint_start(deeper, made, &err), -1);
    assert_contains(err.text, "project/run/deeper: ");
    assert_contains(err.text, "project/run is a link that another user made (user 1001)");
    file_mkdirs(deeper);
    assert_int_equal(access(deeper, F_OK), -1);
    /* The folder's owner, root and this user may. */
    assert_int_equal(lchown(run, 1000, 60000), 0);
    assert_int_equal(checkpoint_start(run, made, &err), 0);
    assert_int_equal(lchown(run, 0, 0), 0);
    assert_int_equal(checkpoint_start(deeper, made, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_checkpoint_takes_the_place_of_one_of_its_step, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            where_the_move_fails_the_one_that_was_renamed_away_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_link_in_place_of_a_step_is_removed_and_not_what_it_leads_to, setup, teardown),
        cmocka_unit_test_setup_teardown(links_among_the_steps_that_go_lead_to_what_stays, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_link_in_place_of_latest_gives_way, setup, teardown),
        cmocka_unit_test_setup_teardown(no_checkpoint_goes_where_a_link_of_another_user_leads,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(no_checkpoint_goes_where_a_member_of_the_group_leads, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
