/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "train/loss_scale.h"

static void it_halves_where_gradients_overflow_and_doubles_after_a_while(void **state)
{
    struct loss_scale scale = { .factor = 8 };

    (void)state;
    assert_true(loss_scale_judge(&scale, false));
    assert_true(scale.factor == 4 && scale.skipped == 1);
    for (int i = 1; i < LOSS_SCALE_STEPS; i++)
        assert_false(loss_scale_judge(&scale, true));
    assert_true(scale.factor == 4);
    assert_false(loss_scale_judge(&scale, true));
    assert_true(scale.factor == 8 && scale.good == 0);
    assert_false(loss_scale_judge(&scale, true));
    assert_true(loss_scale_judge(&scale, false));
    assert_true(scale.factor == 4 && scale.good == 0 && scale.skipped == 2);
    assert_true(loss_scale_inverse(&scale) == 0.25);
}

static void what_a_factor_of_one_overflows_with_is_not_its_fault(void **state)
{
    struct loss_scale scale = { .factor = 1 }, none = { 0 };

    (void)state;
    assert_false(loss_scale_judge(&scale, false));
    assert_true(scale.factor == 1 && scale.skipped == 0);
    assert_false(loss_scale_judge(&none, false));
    assert_true(none.factor == 0 && loss_scale_inverse(&none) == 1);
}

static void it_stays_a_power_of_two_that_float32_has(void **state)
{
    struct loss_scale scale = { .factor = LOSS_SCALE_MOST, .good = LOSS_SCALE_STEPS - 1 };

    (void)state;
    assert_false(loss_scale_judge(&scale, true));
    assert_true(scale.factor == LOSS_SCALE_MOST);
    assert_true(loss_scale_valid(1) && loss_scale_valid(65536) &&
                loss_scale_valid(LOSS_SCALE_MOST));
    assert_false(loss_scale_valid(0.5) || loss_scale_valid(3) ||
                 loss_scale_valid(2 * LOSS_SCALE_MOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_halves_where_gradients_overflow_and_doubles_after_a_while),
        cmocka_unit_test(what_a_factor_of_one_overflows_with_is_not_its_fault),
        cmocka_unit_test(it_stays_a_power_of_two_that_float32_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
