/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/progress.h"

static void a_bar_shows_share_time_and_remark(void **state)
{
    char text[300];

    progress_format("train", 30, 120, 10, "loss 0.5", 80, text, sizeof(text));
    assert_string_equal(text, "train [#########---------------------------] 30/120  "
                              "0:10 (0:30 left)  loss 0.5");
    (void)state;
}

static void a_line_without_a_terminal_has_no_bar(void **state)
{
    char text[300];

    progress_format("train", 120, 120, 3700, "loss 0.5", 0, text, sizeof(text));
    assert_string_equal(text, "train 120/120  1:01:40  loss 0.5");
    progress_format("read", 7, 0, 2, "", 80, text, sizeof(text));
    assert_string_equal(text, "read 7  0:02  ");
    (void)state;
}

static void no_text_overruns_its_room(void **state)
{
    char remark[200], text[300];

    memset(remark, 'x', sizeof(remark));
    remark[199] = '\0';
    memset(text, 'y', sizeof(text));
    for (int room = 1; room < 200; room++) {
        progress_format("a long name for a bar", 3, 9, 1e9, remark, 160, text, room);
        assert_true(strlen(text) < (size_t)room);
        assert_int_equal(text[room], 'y');
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bar_shows_share_time_and_remark),
        cmocka_unit_test(a_line_without_a_terminal_has_no_bar),
        cmocka_unit_test(no_text_overruns_its_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
