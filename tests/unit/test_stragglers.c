/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "train/stragglers.h"

static void ranks_of_a_stage_are_held_to_its_median_sample(void **state)
{
    struct pace paces[] = { { .stage = 0, .samples = 4, .compute = 4 },
                            { .stage = 0, .samples = 2, .compute = 5 },
                            { .stage = 1, .samples = 2, .compute = 9 },
                            { .stage = 1, .samples = 2, .compute = 6 },
                            { .stage = 1, .samples = 2, .compute = 6 },
                            { .stage = -1 } };

    paces_compare(paces, 6);
    assert_true(paces[0].factor == 1);
    assert_true(paces[1].factor == 2.5);
    assert_true(paces[2].factor == 1.5);
    assert_true(paces[3].factor == 1 && paces[4].factor == 1 && paces[5].factor == 1);
    assert_false(paces[1].alone);
    (void)state;
}

/* All take twice their forecast, one three times as long. */
static void one_alone_in_its_stage_is_held_to_its_forecast(void **state)
{
    struct pace paces[] = { { .stage = 0, .samples = 4, .compute = 4, .forecast = 2 },
                            { .stage = 1, .samples = 4, .compute = 9, .forecast = 3 },
                            { .stage = 2, .samples = 4, .compute = 2, .forecast = 1 } };

    paces_compare(paces, 3);
    assert_true(paces[0].factor == 1);
    assert_true(paces[1].factor == 1.5);
    assert_true(paces[2].factor == 1);
    assert_true(paces[1].alone);
    paces[1].forecast = 0;
    paces_compare(paces, 3);
    assert_true(paces[1].factor == 1);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_stage_are_held_to_its_median_sample),
        cmocka_unit_test(one_alone_in_its_stage_is_held_to_its_forecast),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
