/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <math.h>

#include "train/checkpoint_interval.h"

static double of(double paused, double mtbf, int nodes)
{
    return checkpoint_interval(&(struct checkpoint_pace){ .paused = paused, .mtbf = mtbf,
                                                          .nodes = nodes });
}

static void it_is_the_root_of_twice_the_cost_times_the_time_between_failures(void **state)
{
    (void)state;
    assert_true(of(2, 100, 1) == 20);
    assert_true(of(8, 100, 1) == 40);
    assert_true(of(2, 400, 1) == 40);
    assert_true(of(2, 100, 4) == 10);
    assert_true(of(50, 3600, 100) == 60);
    assert_true(of(0, 100, 1) == 0);
}

/* With the default of --mtbf, see tasuki-train(1). */
static void it_is_in_minutes_what_the_manual_says(void **state)
{
    (void)state;
    assert_true(round(of(0.1, 1.33e7, 1) / 60) == 27);
    assert_true(round(of(0.1, 1.33e7, 16) / 60) == 7);
}

static void a_larger_cost_makes_it_longer_and_more_nodes_shorter(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        assert_true(of(ldexp(0.01, i + 1), 1e6, 8) > of(ldexp(0.01, i), 1e6, 8));
        assert_true(of(3, 1e6, 2 << i) < of(3, 1e6, 1 << i));
    }
}

static void none_begins_before_the_one_before_it_is_complete(void **state)
{
    struct checkpoint_pace pace = { .paused = 2, .written = 19, .mtbf = 100, .nodes = 1 };

    (void)state;
    assert_true(checkpoint_interval(&pace) == 20);
    pace.written = 21;
    assert_true(checkpoint_interval(&pace) == 21);
}

static void they_take_no_more_than_their_share(void **state)
{
    struct checkpoint_pace pace = { .paused = 2, .mtbf = 100, .nodes = 1, .most_share = 0.125 };

    (void)state;
    assert_true(checkpoint_interval(&pace) == 20);
    pace.nodes = 4;
    assert_true(checkpoint_interval(&pace) == 16);
    pace.written = 17;
    assert_true(checkpoint_interval(&pace) == 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_root_of_twice_the_cost_times_the_time_between_failures),
        cmocka_unit_test(it_is_in_minutes_what_the_manual_says),
        cmocka_unit_test(a_larger_cost_makes_it_longer_and_more_nodes_shorter),
        cmocka_unit_test(none_begins_before_the_one_before_it_is_complete),
        cmocka_unit_test(they_take_no_more_than_their_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
