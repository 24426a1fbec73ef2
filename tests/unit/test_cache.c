/* SPDX-License-Identifier: MIT */
/* Whose turn it is to change the cache, and what goes when it is full. */
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/mem.h"
#include "base/cache.h"

static const char *directory;

static char *path_of(const char *name)
{
    return mem_printf("%s/%s", directory, name);
}

/* So many bytes, last of use 'age' seconds ago. */
static void put(const char *name, size_t size, time_t age)
{
    char *path = path_of(name), *bytes = mem_new(size, 1);
    struct timespec times[2] = { { .tv_sec = time(NULL) - age }, { .tv_sec = time(NULL) - age } };
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    free(bytes);
    free(path);
}

static void use(const char *name)
{
    char *path = path_of(name);

    cache_touch(path);
    free(path);
}

static bool is_there(const char *name)
{
    char *path = path_of(name);
    bool there = access(path, F_OK) == 0;

    free(path);
    return there;
}

static void names_say_what_and_of_which_version(void **state)
{
    char one[17], other[17], *path, *site;

    (void)state;
    cache_hash("a", one);
    cache_hash("b", other);
    assert_int_equal(strlen(one), 16);
    assert_string_not_equal(one, other);
    path = cache_path("/cache", "trial", one, ".json");
    unsetenv("TASUKI_SITE_CACHE");
    assert_null(cache_site_path(path));
    setenv("TASUKI_SITE_CACHE", "/site", 1);
    site = cache_site_path(path);
    unsetenv("TASUKI_SITE_CACHE");
    assert_memory_equal(site, "/site/trial-", 12);
    assert_string_equal(site + 12, path + strlen("/cache/trial-"));
    free(site);
    free(path);
}

/* Another process, while this one is at it. */
static bool other_enters(void)
{
    int status, child = fork();

    if (child == 0)
        _exit(cache_enter(directory) >= 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

static void one_process_changes_it_at_a_time(void **state)
{
    int turn;

    (void)state;
    directory = unit_directory();
    turn = cache_enter(directory);
    assert_true(turn >= 0);
    assert_false(other_enters());
    cache_leave(directory, turn);
    assert_true(other_enters());
    assert_int_equal(unit_remove(directory), 0);
    assert_int_equal(cache_enter("/proc/no such place"), -1);
}

static void the_lock_is_for_its_user_alone_whatever_the_umask(void **state)
{
    mode_t before = umask(0);
    struct stat status;
    char *lock;

    (void)state;
    directory = unit_directory();
    lock = path_of(".lock");
    cache_leave(directory, cache_enter(directory));
    umask(before);
    assert_int_equal(stat(lock, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    free(lock);
    assert_int_equal(unit_remove(directory), 0);
}

static void what_was_of_no_use_for_longest_goes_first(void **state)
{
    int turn;

    (void)state;
    directory = unit_directory();
    setenv("TASUKI_CACHE_LIMIT", "250", 1);
    turn = cache_enter(directory);
    put("cpu-0123456789abcdef.json", 100, 30);
    put("tar-0123456789abcdef.index", 100, 200000);
    put("cudnn-0123456789abcdef.plan", 100, 150000);
    put("trial-0123456789abcdef.json", 100, 20);
    put("somebody-elses.json", 1000, 900000);
    put("0123456789abcdef.json", 1000, 900000);
    put("cpu-0123456789abcdef.json.bak", 1000, 900000);
    put("cpu-0123456789abcdef.json.0011223344556677", 1000, 900000);
    put("cpu-0123456789abcdef.json.8899aabbccddeeff", 1000, 9);
    cache_leave(directory, turn);
    assert_true(is_there("cpu-0123456789abcdef.json"));
    assert_true(is_there("trial-0123456789abcdef.json"));
    assert_true(is_there("somebody-elses.json") && is_there("0123456789abcdef.json"));
    assert_false(is_there("tar-0123456789abcdef.index"));
    assert_false(is_there("cudnn-0123456789abcdef.plan"));
    assert_true(is_there("cpu-0123456789abcdef.json.bak"));
    assert_false(is_there("cpu-0123456789abcdef.json.0011223344556677"));
    assert_true(is_there("cpu-0123456789abcdef.json.8899aabbccddeeff"));
    turn = cache_enter(directory);
    put("cpu-0123456789abcdef.json", 100, 200000);
    put("tar-0123456789abcdef.index", 100, 100000);
    use("cpu-0123456789abcdef.json");
    cache_leave(directory, turn);
    assert_true(is_there("cpu-0123456789abcdef.json"));
    assert_false(is_there("tar-0123456789abcdef.index"));
    setenv("TASUKI_CACHE_LIMIT", "many", 1);
    put("tar-0123456789abcdef.index", 1000, 0);
    turn = cache_enter(directory);
    cache_leave(directory, turn);
    assert_true(is_there("tar-0123456789abcdef.index"));
    unsetenv("TASUKI_CACHE_LIMIT");
    assert_int_equal(unit_remove(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_say_what_and_of_which_version),
        cmocka_unit_test(one_process_changes_it_at_a_time),
        cmocka_unit_test(the_lock_is_for_its_user_alone_whatever_the_umask),
        cmocka_unit_test(what_was_of_no_use_for_longest_goes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
