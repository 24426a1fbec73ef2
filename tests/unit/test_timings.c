/* SPDX-License-Identifier: MIT */
/* What is kept of measured costs, and for how long; load.c's part is played by this test. */
#include "unit.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <sched.h>

#include "base/mem.h"
#include "kernels/backend.h"
#include "train/beside.h"
#include "train/load.h"
#include "train/optimizer.h"
#include "train/timings.h"

#define WRONG 1000.0    /* seconds: nothing takes so long */

static bool crowded, crowded_now;

void load_read(struct load *load)
{
    *load = (struct load){ 0 };
}

bool load_crowded(const struct load *from, const struct load *to, int threads)
{
    (void)from;
    (void)to;
    assert_int_equal(threads, 1);
    return crowded;
}

bool load_crowded_now(int threads)
{
    assert_int_equal(threads, 1);
    return crowded_now;
}

/* The one file of the directory; malloc'ed. */
static char *cache_file(const char *directory)
{
    DIR *dir = opendir(directory);
    const struct dirent *entry;
    char *path = NULL;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.' && asprintf(&path, "%s/%s", directory, entry->d_name) < 0)
            fail();
    closedir(dir);
    assert_non_null(path);
    return path;
}

static double spread;       /* at the end of seconds_of_update() */

static double measure(struct timings *timings, enum optimizer_kind kind)
{
    struct optimizer_args args = optimizer_defaults(kind);
    struct err err = { 0 };
    double seconds;

    args.dtype = DTYPE_F32;
    do
        seconds = timings_update(timings, &args, false, NULL, &err);
    while (timings_round(timings));
    return seconds;
}

static double seconds_of_update(const char *directory)
{
    const struct backend *backend = backend_find("reference");
    struct err err = { 0 };
    struct device *device = backend->device_open(1, NULL, &err);
    struct timings *timings = timings_open(backend, device, 1, 0, directory);
    double seconds = measure(timings, OPTIMIZER_SGD);

    spread = timings_usual_spread(timings);
    timings_close(timings);
    backend->device_close(device);
    return seconds;
}

/* As if it had been slow when that was measured. Returns how much was measured in a crowd. */
static size_t spoil(const char *directory)
{
    char *path = cache_file(directory);
    json_t *top = json_load_file(path, 0, NULL), *seconds = json_object_get(top, "seconds"), *old;
    size_t n = json_object_size(json_object_get(top, "crowded"));
    const char *key;

    assert_int_equal(json_object_size(seconds), 1);
    json_object_foreach(seconds, key, old)
        json_real_set(old, WRONG);
    assert_int_equal(json_dump_file(top, path, 0), 0);
    json_decref(top);
    free(path);
    return n;
}

static void what_was_measured_in_a_crowd_is_measured_again_when_it_is_gone(void **state)
{
    const char *directory = unit_directory();

    crowded = true;
    assert_true(seconds_of_update(directory) < WRONG);
    assert_int_equal(spoil(directory), 1);
    crowded_now = true;
    assert_true(seconds_of_update(directory) >= WRONG);
    crowded = crowded_now = false;
    assert_true(seconds_of_update(directory) < WRONG);
    assert_int_equal(spoil(directory), 0);
    assert_true(seconds_of_update(directory) >= WRONG);
    unit_remove(directory);
    (void)state;
}

static void a_file_without_a_word_about_crowds_is_believed(void **state)
{
    const char *directory = unit_directory();
    json_t *top;
    char *path;

    crowded = crowded_now = false;
    seconds_of_update(directory);
    spoil(directory);
    path = cache_file(directory);
    top = json_load_file(path, 0, NULL);
    json_object_del(top, "crowded");
    assert_int_equal(json_dump_file(top, path, 0), 0);
    json_decref(top);
    free(path);
    assert_true(seconds_of_update(directory) >= WRONG);
    unit_remove(directory);
    (void)state;
}

static void what_was_measured_before_has_the_spread_that_it_had_then(void **state)
{
    const char *directory = unit_directory();
    double measured;

    crowded = crowded_now = false;
    seconds_of_update(directory);
    measured = spread;
    assert_true(measured > 0);
    seconds_of_update(directory);
    assert_true(fabs(spread - measured) <= 1e-9 * measured);
    unit_remove(directory);
    (void)state;
}

static void two_at_a_time_keep_what_both_measured(void **state)
{
    const char *directory = unit_directory();
    const struct backend *backend = backend_find("reference");
    struct err err = { 0 };
    struct device *device = backend->device_open(1, NULL, &err);
    struct timings *one = timings_open(backend, device, 1, 0, directory);
    struct timings *other = timings_open(backend, device, 1, 0, directory);
    json_t *top;
    char *path;

    (void)state;
    measure(one, OPTIMIZER_SGD);
    measure(other, OPTIMIZER_ADAM);
    timings_close(one);
    timings_close(other);
    path = cache_file(directory);
    top = json_load_file(path, 0, NULL);
    assert_int_equal(json_object_size(json_object_get(top, "seconds")), 2);
    json_decref(top);
    free(path);
    unit_remove(directory);
    backend->device_close(device);
}

static void a_site_has_measured_for_all(void **state)
{
    char *site = mem_strdup(unit_directory()), *directory = mem_strdup(unit_directory());
    const struct backend *backend = backend_find("reference");
    struct err err = { 0 };
    struct device *device = backend->device_open(1, NULL, &err);
    struct timings *other;

    (void)state;
    crowded = crowded_now = false;
    seconds_of_update(site);
    spoil(site);
    setenv("TASUKI_SITE_CACHE", site, 1);
    assert_true(seconds_of_update(directory) >= WRONG);
    /* What else is measured does not make the site's our own. */
    other = timings_open(backend, device, 1, 0, directory);
    assert_true(measure(other, OPTIMIZER_SGD) >= WRONG);
    measure(other, OPTIMIZER_ADAM);
    timings_close(other);
    unsetenv("TASUKI_SITE_CACHE");
    assert_true(seconds_of_update(directory) < WRONG);
    setenv("TASUKI_SITE_CACHE", site, 1);
    assert_true(seconds_of_update(directory) < WRONG);
    unsetenv("TASUKI_SITE_CACHE");
    backend->device_close(device);
    unit_remove(site);
    unit_remove(directory);
    free(site);
    free(directory);
}

/* As beside.c has it: it measures, and nothing of that is kept. */
static void who_only_reads_writes_nothing_and_stops_when_told(void **state)
{
    const char *directory = unit_directory();
    const struct backend *backend = backend_find("reference");
    struct optimizer_args args = optimizer_defaults(OPTIMIZER_SGD);
    struct err err = { 0 };
    struct device *device = backend->device_open(1, NULL, &err);
    struct timings *timings = timings_open(backend, device, 1, 1, directory);
    atomic_bool stop = false;

    (void)state;
    args.dtype = DTYPE_F32;
    timings_only_read(timings, &stop);
    assert_true(timings_update(timings, &args, false, NULL, &err) > 0);
    stop = true;
    args = optimizer_defaults(OPTIMIZER_ADAM);
    args.dtype = DTYPE_F32;
    assert_true(timings_update(timings, &args, false, NULL, &err) < 0);
    assert_non_null(strstr(err.text, "stopped"));
    timings_close(timings);
    backend->device_close(device);
    assert_int_equal(rmdir(directory), 0);
}

static void others_get_the_cores_that_are_left(void **state)
{
    cpu_set_t mine;
    int cores;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
    cores = CPU_COUNT(&mine);
    assert_int_equal(beside_count(1, 1), 0);
    assert_int_equal(beside_count(cores, 1), cores - 1);
    assert_int_equal(beside_count(2 * cores, 1), cores - 1);
    assert_int_equal(beside_count(2 * cores, 0), cores - 1);
    assert_int_equal(beside_count(2, cores), 0);
    assert_int_equal(beside_count(2, 2 * cores), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_in_a_crowd_is_measured_again_when_it_is_gone),
        cmocka_unit_test(a_file_without_a_word_about_crowds_is_believed),
        cmocka_unit_test(what_was_measured_before_has_the_spread_that_it_had_then),
        cmocka_unit_test(two_at_a_time_keep_what_both_measured),
        cmocka_unit_test(a_site_has_measured_for_all),
        cmocka_unit_test(who_only_reads_writes_nothing_and_stops_when_told),
        cmocka_unit_test(others_get_the_cores_that_are_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
