/* SPDX-License-Identifier: MIT */
/* Copies of data on a disk of the node: used where they are right, and nowhere else. */
#include "config.h"

#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/staging_private.h"

#define SIZE 100000

static char *base;
static char disk[600], source[2][600];

static void fill(const char *path, char letter)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    char bytes[SIZE];

    memset(bytes, letter, SIZE);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, SIZE), SIZE);
    assert_int_equal(close(fd), 0);
}

static int setup(void **state)
{
    base = unit_directory();
    snprintf(disk, sizeof(disk), "%s/disk", base);
    for (int i = 0; i < 2; i++) {
        snprintf(source[i], sizeof(source[i]), "%s/source%d", base, i);
        fill(source[i], (char)('a' + i));
    }
    log_setup(LOG_ERROR, -1);
    (void)state;
    return mkdir(disk, 0700);
}

/* Fails where something is left behind. */
static int teardown(void **state)
{
    unlink(source[0]);
    unlink(source[1]);
    (void)state;
    return rmdir(disk) < 0 ? -1 : rmdir(base);
}

/* Two files, as the run has them open, and what staging makes of them. */
struct rank {
    struct data_file files[2];
    const struct data_file *list[2];
    struct staging *staging;
    struct err err;
};

static void map_files(struct rank *r)
{
    *r = (struct rank){ .staging = NULL };
    for (int i = 0; i < 2; i++) {
        r->files[i].path = source[i];
        r->list[i] = &r->files[i];
        assert_int_equal(file_map_open(source[i], &r->files[i].map, &r->err), 0);
    }
}

static void stage(struct rank *r, const struct rank *leader, bool keep)
{
    struct staging_options options = {
        .parent = disk, .host = "node", .keep = keep, .n = 2, .first = 1, .files = r->list,
        .directory = leader ? staging_directory(leader->staging) : NULL,
    };

    r->staging = staging_open(&options, &r->err);
    if (!r->staging)
        fail_msg("%s", r->err.text);
}

static struct staging_state finish(struct rank *r)
{
    double limit = clock_now() + 60;

    while (!staging_state(r->staging).over && clock_now() < limit) {
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
        staging_take(r->staging);
    }
    assert_true(staging_state(r->staging).over);
    return staging_state(r->staging);
}

static void leave(struct rank *r)
{
    staging_close(r->staging);
    for (int i = 0; i < 2; i++)
        file_map_close(&r->files[i].map);
}

/* A run from start to end; what it had and copied. */
static struct staging_state whole_run(bool keep)
{
    struct rank rank;
    struct staging_state state;

    map_files(&rank);
    stage(&rank, NULL, keep);
    state = finish(&rank);
    leave(&rank);
    return state;
}

/* The path of the only copy in the directory whose name ends so. */
static char *find_copy(const char *end, int *n)
{
    char *path = mem_printf("%s/tasuki-%ld-node-0", disk, (long)geteuid()), *found = NULL;
    DIR *directory = opendir(path);
    const struct dirent *entry;

    *n = 0;
    while (directory && (entry = readdir(directory))) {
        size_t length = strlen(entry->d_name), part = strlen(end);

        if (entry->d_name[0] == '.' || length < part ||
            strcmp(entry->d_name + length - part, end) != 0)
            continue;
        free(found);
        found = mem_printf("%s/%s", path, entry->d_name);
        ++*n;
    }
    if (directory)
        closedir(directory);
    free(path);
    return found;
}

static void copies_take_the_place_of_originals_on_every_rank(void **state)
{
    struct rank leader, other;
    struct staging_state last;

    (void)state;
    map_files(&leader);
    map_files(&other);
    stage(&leader, NULL, false);
    stage(&other, &leader, false);
    last = finish(&leader);
    assert_true(last.bytes == 2 * SIZE && last.copied == 2 * SIZE);
    finish(&other);
    for (int i = 0; i < 2; i++) {
        fill(source[i], 'x');
        assert_int_equal(leader.files[i].map.data[SIZE - 1], 'a' + i);
        assert_int_equal(other.files[i].map.data[0], 'a' + i);
    }
    leave(&other);
    leave(&leader);
}

static void what_was_kept_is_used_again_unless_it_is_damaged(void **state)
{
    struct staging_state last;
    char *path;
    int n, fd;

    (void)state;
    last = whole_run(true);
    assert_true(last.copied == 2 * SIZE);
    last = whole_run(true);
    assert_true(last.bytes == 2 * SIZE && last.copied == 0);
    path = find_copy("", &n);
    assert_int_equal(n, 2);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "!", 1, SIZE / 2), 1);
    close(fd);
    free(path);
    last = whole_run(true);
    assert_true(last.bytes == 2 * SIZE && last.copied == SIZE);
    last = whole_run(false);
    assert_true(last.bytes == 2 * SIZE && last.copied == 0);
}

static void a_kept_copy_of_another_age_is_made_anew(void **state)
{
    struct timespec times[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
    struct staging_state last;

    (void)state;
    whole_run(true);
    assert_int_equal(utimensat(AT_FDCWD, source[0], times, 0), 0);
    last = whole_run(false);
    assert_true(last.bytes == 2 * SIZE && last.copied == SIZE);
}

static void an_original_that_changes_is_read_where_it_is(void **state)
{
    struct timespec times[2] = { { .tv_sec = 1000000000 }, { .tv_sec = 1000000000 } };
    struct staging_state last;
    struct rank rank;

    (void)state;
    map_files(&rank);
    assert_int_equal(utimensat(AT_FDCWD, source[0], times, 0), 0);
    stage(&rank, NULL, false);
    last = finish(&rank);
    assert_true(last.bytes == SIZE);
    fill(source[0], 'x');
    assert_int_equal(rank.files[0].map.data[0], 'x');
    leave(&rank);
}

static void map_one_twice(struct rank *r)
{
    map_files(r);
    file_map_close(&r->files[1].map);
    r->files[1].path = source[0];
    assert_int_equal(file_map_open(source[0], &r->files[1].map, &r->err), 0);
}

static void a_file_that_is_there_twice_is_copied_once(void **state)
{
    struct staging_state last;
    struct rank rank;

    (void)state;
    map_one_twice(&rank);
    stage(&rank, NULL, true);
    last = finish(&rank);
    assert_true(last.bytes == SIZE && last.copied == SIZE);
    leave(&rank);
    map_one_twice(&rank);
    stage(&rank, NULL, false);
    last = finish(&rank);
    assert_true(last.bytes == SIZE && last.copied == 0);
    fill(source[0], 'x');
    for (int i = 0; i < 2; i++)
        assert_int_equal(rank.files[i].map.data[0], 'a');
    leave(&rank);
}

static void two_runs_have_directories_of_their_own(void **state)
{
    struct rank a, b;

    (void)state;
    map_files(&a);
    map_files(&b);
    stage(&a, NULL, false);
    stage(&b, NULL, false);
    assert_string_not_equal(staging_directory(a.staging), staging_directory(b.staging));
    assert_true(finish(&a).bytes == 2 * SIZE);
    assert_true(finish(&b).bytes == 2 * SIZE);
    leave(&a);
    leave(&b);
}

static void what_may_be_another_users_is_passed_over(void **state)
{
    char *target = mem_printf("%s/target", base);
    char *link = mem_printf("%s/tasuki-%ld-node-0", disk, (long)geteuid());
    char *open_to_all = mem_printf("%s/tasuki-%ld-node-1", disk, (long)geteuid());
    char *third = mem_printf("%s/tasuki-%ld-node-2", disk, (long)geteuid());
    struct rank rank;

    (void)state;
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(mkdir(open_to_all, 0700), 0);
    assert_int_equal(chmod(open_to_all, 0777), 0);
    map_files(&rank);
    stage(&rank, NULL, true);
    assert_contains(staging_directory(rank.staging), "-node-2");
    finish(&rank);
    assert_int_equal(rmdir(target), 0);         /* nothing is in it */
    assert_int_equal(rmdir(open_to_all), 0);
    assert_int_equal(unlink(link), 0);
    leave(&rank);
    assert_int_equal(rename(third, link), 0);
    whole_run(false);
    free(third);
    free(target);
    free(link);
    free(open_to_all);
}

static void where_a_write_fails_the_originals_are_read_and_nothing_half_stays(void **state)
{
    struct rlimit old, limit;
    struct staging_state last;
    struct rank rank;
    int n;

    (void)state;
    map_files(&rank);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){ SIZE / 2, old.rlim_max };
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    stage(&rank, NULL, false);
    last = finish(&rank);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_true(last.bytes == 0);
    free(find_copy("", &n));
    assert_int_equal(n, 0);
    assert_int_equal(rank.files[1].map.data[0], 'b');
    leave(&rank);
}

static void a_part_that_a_killed_run_left_is_removed(void **state)
{
    char *copy, *part;
    int n;

    (void)state;
    whole_run(true);
    copy = find_copy("", &n);
    part = mem_strdup(copy);
    memcpy(strrchr(part, '-'), ".new", 5);
    assert_int_equal(rename(copy, part), 0);
    assert_true(whole_run(true).copied == SIZE);
    free(find_copy(".new", &n));
    assert_int_equal(n, 0);
    whole_run(false);
    free(copy);
    free(part);
}

/* Or a descriptor that was opened meanwhile would be closed in its place. */
static void where_no_place_is_left_no_descriptor_is_given(void **state)
{
    struct err err = { 0 };
    char *path = NULL, *taken;
    int fd = -1, n = 0;

    (void)state;
    do {
        taken = mem_printf("%s/tasuki-%ld-node-%d", disk, (long)geteuid(), n++);
        assert_int_equal(mkdir(taken, 0700) || chmod(taken, 0777), 0);
        free(taken);
    } while (n < 64);
    assert_int_equal(staging_claim(disk, "node", &path, &fd, &err), -1);
    assert_contains(err.text, "64 directories");
    assert_true(!path && fd == -1);
    while (n--) {
        taken = mem_printf("%s/tasuki-%ld-node-%d", disk, (long)geteuid(), n);
        assert_int_equal(rmdir(taken), 0);
        free(taken);
    }
}

static void a_directory_that_cannot_be_used_is_an_error(void **state)
{
    struct staging_options options = { .parent = source[0], .host = "node" };
    struct err err = { 0 };

    (void)state;
    assert_null(staging_open(&options, &err));
    assert_contains(err.text, source[0]);
    assert_contains(err.text, "Not a directory");
}

int main(void)
{
#ifdef HAVE_XXHASH
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(copies_take_the_place_of_originals_on_every_rank, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_was_kept_is_used_again_unless_it_is_damaged, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_kept_copy_of_another_age_is_made_anew, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_original_that_changes_is_read_where_it_is, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_file_that_is_there_twice_is_copied_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(two_runs_have_directories_of_their_own, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_may_be_another_users_is_passed_over, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            where_a_write_fails_the_originals_are_read_and_nothing_half_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(a_part_that_a_killed_run_left_is_removed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(where_no_place_is_left_no_descriptor_is_given, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_directory_that_cannot_be_used_is_an_error, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    print_message("1..0 # SKIP no xxhash\n");
    return 0;
#endif
}
