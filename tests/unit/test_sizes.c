/* SPDX-License-Identifier: MIT */
/* Which sizes are compared. */
#include "planning.h"

#include "scheduler/sizes.h"

static struct plan *refuse(void *user, const struct cluster *part, struct err *err)
{
    (void)user;
    (void)part;
    err_set(err, "not here");
    return NULL;
}

static void check_sizes(int first, int last, int most, const char *expected)
{
    struct cluster *cluster = open_cluster("flat:100,bandwidth=1e9,latency=0");
    struct size_request request = { .first = first, .last = last, .most = most, .plan = refuse };
    struct sizes *sizes = sizes_new(cluster, &request, NULL);
    char text[512];
    size_t used = 0;

    assert_non_null(sizes);
    for (int i = 0; i < sizes->n; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d", i ? " " : "",
                                 sizes_size(sizes, i));
    assert_string_equal(text, expected);
    sizes_free(sizes);
    cluster_free(cluster);
}

static void of_many_sizes_four_of_each_doubling_are_compared(void **state)
{
    (void)state;
    check_sizes(1, 100, 32, "1 2 3 4 5 6 7 8 10 12 14 16 20 24 28 32 40 48 56 64 80 96 100");
    check_sizes(11, 64, 32, "11 12 14 16 20 24 28 32 40 48 56 64");
    check_sizes(7, 50, 4, "7 8 10 12 14 16 20 24 28 32 40 48 50");
}

static void of_few_all_are_and_where_nothing_else_is_said(void **state)
{
    (void)state;
    check_sizes(9, 12, 4, "9 10 11 12");
    check_sizes(30, 41, 0, "30 31 32 33 34 35 36 37 38 39 40 41");
    check_sizes(5, 5, 1, "5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_many_sizes_four_of_each_doubling_are_compared),
        cmocka_unit_test(of_few_all_are_and_where_nothing_else_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
