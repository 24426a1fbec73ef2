/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <math.h>

#include "train/guard.h"

static void a_loss_is_held_to_those_before_it_once_there_are_some(void **state)
{
    struct guard guard = { .policy = GUARD_SKIP, .spike = 2 };
    int64_t step = 0;

    guard_begin(&guard, step);
    assert_false(guard_judge(&guard, step, 1, 100));
    for (step = 1; step < 40; step++) {
        guard_begin(&guard, step);
        assert_false(guard_judge(&guard, step, 1, 1));
        assert_null(guard_found(&guard, step));
    }
    guard_begin(&guard, step);
    assert_false(guard_judge(&guard, step, 1, 1.9 * guard.usual));
    guard_begin(&guard, ++step);
    assert_true(guard_judge(&guard, step, 1, 2.1 * guard.usual));
    assert_int_equal(guard_found(&guard, step)->cause, GUARD_SPIKE);
    assert_null(guard_found(&guard, step - 2));
    (void)state;
}

static void what_is_not_finite_is_bad_and_not_usual(void **state)
{
    struct guard guard = { .policy = GUARD_SKIP };

    guard_begin(&guard, 0);
    assert_true(guard_judge(&guard, 0, INFINITY, 1));
    assert_int_equal(guard_found(&guard, 0)->cause, GUARD_NORM);
    guard_begin(&guard, 1)->cause = GUARD_LOSS;
    assert_true(guard_judge(&guard, 1, 1, NAN));
    assert_int_equal(guard_found(&guard, 1)->cause, GUARD_LOSS);
    assert_int_equal(guard.seen, 0);
    (void)state;
}

static void the_gradient_that_was_final_first_is_named(void **state)
{
    struct guard_find finds[] = {
        { .cause = GUARD_GRADIENT, .stage = 0, .order = 0 },
        { .cause = GUARD_LOSS, .stage = 3 },
        { .cause = GUARD_GRADIENT, .stage = 2, .order = 7 },
        { .cause = GUARD_GRADIENT, .stage = 2, .order = 5 },
        { .cause = GUARD_FINE, .stage = 9 },
    };

    assert_int_equal(guard_first(finds, 5), 3);
    assert_int_equal(guard_first(finds + 1, 1), 0);
    assert_int_equal(guard_first(finds + 4, 1), -1);
    (void)state;
}

static void only_what_acts_before_the_step_needs_all_ranks(void **state)
{
    assert_false(guard_shares(&(struct guard){ .policy = GUARD_STOP }));
    assert_false(guard_shares(&(struct guard){ .policy = GUARD_IGNORE }));
    assert_true(guard_shares(&(struct guard){ .policy = GUARD_STOP, .spike = 3 }));
    assert_true(guard_shares(&(struct guard){ .policy = GUARD_ROLLBACK }));
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_is_held_to_those_before_it_once_there_are_some),
        cmocka_unit_test(what_is_not_finite_is_bad_and_not_usual),
        cmocka_unit_test(the_gradient_that_was_final_first_is_named),
        cmocka_unit_test(only_what_acts_before_the_step_needs_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
