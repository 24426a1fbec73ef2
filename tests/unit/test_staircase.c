/* SPDX-License-Identifier: MIT */
/* Figures of rows and columns beside the sums that they stand for. */
#include "unit.h"

#include <string.h>

#include "scheduler/staircase.h"

#define ROWS 40
#define COLUMNS 60

static unsigned next_random(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 16;
}

static void add(struct staircase *s, double whole[ROWS][COLUMNS], unsigned *state)
{
    int first = (int)(next_random(state) % ROWS), last = (int)(next_random(state) % ROWS);
    int column = (int)(next_random(state) % COLUMNS);
    double amount = (double)(next_random(state) % 100) - 30;

    staircase_add(s, first, last, column, amount);
    for (int i = first; i <= last; i++)
        for (int j = column; j < COLUMNS; j++)
            whole[i][j] += amount;
}

/* From few steps in a row to one at most columns. */
static void each_place_has_the_sum_of_what_was_added_there(void **state)
{
    unsigned draws = 1;

    (void)state;
    for (int n = 1; n < 600; n = n * 3 / 2 + 1) {
        static double whole[ROWS][COLUMNS];
        struct staircase s = { 0 };

        memset(whole, 0, sizeof(whole));
        for (int i = 0; i < n; i++)
            add(&s, whole, &draws);
        staircase_settle(&s, ROWS);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++)
                assert_float_equal(staircase_at(&s, i, j), whole[i][j], 0);
        staircase_free(&s);
    }
}

static void one_to_which_nothing_was_added_is_zero(void **state)
{
    struct staircase s = { 0 };

    (void)state;
    staircase_add(&s, 3, 2, 0, 1);
    staircase_settle(&s, ROWS);
    assert_float_equal(staircase_at(&s, 0, 0), 0, 0);
    assert_float_equal(staircase_at(&s, ROWS - 1, COLUMNS), 0, 0);
    staircase_free(&s);
}

/* The last rows have none, and the first. */
static void rows_without_steps_are_zero(void **state)
{
    struct staircase s = { 0 };

    (void)state;
    staircase_add(&s, 2, 2, 5, 7);
    staircase_settle(&s, 5);
    assert_float_equal(staircase_at(&s, 1, 9), 0, 0);
    assert_float_equal(staircase_at(&s, 2, 4), 0, 0);
    assert_float_equal(staircase_at(&s, 2, 5), 7, 0);
    assert_float_equal(staircase_at(&s, 4, 9), 0, 0);
    staircase_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_place_has_the_sum_of_what_was_added_there),
        cmocka_unit_test(one_to_which_nothing_was_added_is_zero),
        cmocka_unit_test(rows_without_steps_are_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
