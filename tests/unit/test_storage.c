/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <math.h>

#include "base/json.h"
#include "topology/storage.h"

static const struct cluster_storage lustre = {
    .bandwidth = 100e9, .client_bandwidth = 5e9, .slow_down = 0.5, .local_bandwidth = 2e9,
    .local_size = 1e12,
};

static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

static void nodes_read_at_their_own_rate_until_the_shared_one_is_less(void **state)
{
    (void)state;
    assert_true(close_to(storage_seconds(&lustre, 1, 10e9, false), 2));
    assert_true(close_to(storage_seconds(&lustre, 20, 10e9, false), 2));
    assert_true(close_to(storage_seconds(&lustre, 40, 10e9, false), 4));
    assert_true(close_to(storage_local_seconds(&lustre, 10e9), 5));
}

static void each_further_reader_of_one_file_slows_all_down(void **state)
{
    (void)state;
    assert_true(close_to(storage_seconds(&lustre, 1, 10e9, true), 2));
    assert_true(close_to(storage_seconds(&lustre, 3, 10e9, true), 2 * (1 + 0.5 * 2)));
}

static void what_is_not_known_takes_no_time(void **state)
{
    const struct cluster_storage none = { 0 };

    (void)state;
    assert_false(storage_is_known(&none));
    assert_true(storage_seconds(&none, 8, 1e12, true) == 0);
    assert_true(storage_local_seconds(&none, 1e12) == 0);
}

static void what_is_written_is_read_back(void **state)
{
    json_t *top = json_pack("{s:s, s:i, s:o}", "schema", "x", "version", 1, "storage",
                            storage_to_json(&lustre));
    struct cluster_storage back = { 0 };
    struct json_reader r, sub;
    char *text;

    (void)state;
    assert_int_equal(json_reader_top(&r, "file", top, "x", 1, NULL), 0);
    assert_int_equal(json_reader_sub(&sub, &r, "storage", -1, json_object_get(top, "storage"),
                                     NULL), 0);
    assert_int_equal(storage_read(&back, &sub, NULL), 0);
    assert_true(storage_is_known(&back));
    assert_memory_equal(&back, &lustre, sizeof(back));
    text = storage_text(&back);
    assert_string_equal(text, "shared, 100 GB/s for all, 5 GB/s for a node, one file is 50 % "
                        "slower for each further reader; disk in the node 931 GiB, 2 GB/s");
    free(text);
    storage_clear(&back);
    json_decref(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_read_at_their_own_rate_until_the_shared_one_is_less),
        cmocka_unit_test(each_further_reader_of_one_file_slows_all_down),
        cmocka_unit_test(what_is_not_known_takes_no_time),
        cmocka_unit_test(what_is_written_is_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
