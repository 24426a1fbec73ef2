/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <string.h>

#include "comm/where.h"

static struct sighting at(const char *what, int stage, int micro, int operation, int peer)
{
    struct sighting s = { .at = { .step = 5, .stage = stage, .micro = micro,
                                  .operation = operation, .peer = peer, .seconds = 10 } };

    memcpy(s.at.what, what, strlen(what));
    return s;
}

static void the_record_says_what_was_written_last(void **state)
{
    struct where where = { .turn = 0 };
    struct whereabouts now;
    char text[160];

    where_at(&where, "B", 1, 5, 3);
    where_does(&where, WHERE_RECEIVES, 7);
    where_read(&where, &now);
    assert_true(now.seconds >= 0 && now.seconds < 60);
    where_text(&now, text, sizeof(text));
    assert_string_equal(text, "step 5, stage 1, B of micro-batch 3: receives from rank 7");
    where_at(&where, "checkpoint", -1, 0, -1);
    where_read(&where, &now);
    where_text(&now, text, sizeof(text));
    assert_string_equal(text, "checkpoint: computes");
    (void)state;
}

static void a_text_that_is_too_long_is_cut(void **state)
{
    struct sighting s = at("REDUCE", 100, 100, WHERE_SUMS, -1);
    char text[12];

    where_text(&s.at, text, sizeof(text));
    assert_string_equal(text, "step 5, sta");
    (void)state;
}

static void the_silent_come_first_then_who_computes_then_the_minority(void **state)
{
    struct sighting ranks[8];
    struct where_group *groups;
    char text[64];
    int n;

    for (int r = 0; r < 8; r++)
        ranks[r] = at("REDUCE", 0, -1, WHERE_SUMS, -1);
    ranks[2] = at("F", 1, 2, WHERE_RECEIVES, 3);
    ranks[5] = at("F", 1, 2, WHERE_COMPUTES, -1);
    ranks[6].silent = 4;
    ranks[7].gone = true;
    groups = where_groups(ranks, 8, &n);
    assert_int_equal(n, 4);
    assert_int_equal(groups[0].ranks[0], 6);
    assert_int_equal(groups[1].ranks[0], 5);
    assert_int_equal(groups[2].ranks[0], 2);
    where_ranks_text(&groups[3], text, sizeof(text));
    assert_string_equal(text, "0, 1, 3, 4");
    where_groups_free(groups, n);
    assert_int_equal(where_stuck(ranks, 8), 6);
    assert_int_equal(where_waiting(ranks, 8, 3), 2);
    assert_int_equal(where_waiting(ranks, 8, 6), 0);
    assert_int_equal(where_waiting(ranks + 2, 1, 0), -1);
    ranks[6].silent = -1;
    assert_int_equal(where_stuck(ranks, 8), 5);
    ranks[5] = ranks[0];
    assert_int_equal(where_stuck(ranks, 8), 6);
    ranks[6].silent = 0;
    assert_int_equal(where_stuck(ranks, 8), -1);
    groups = where_groups(ranks, 8, &n);
    where_ranks_text(&groups[1], text, sizeof(text));
    assert_string_equal(text, "0, 1, 3-6");
    where_groups_free(groups, n);
    (void)state;
}

static void no_ranks_make_no_groups(void **state)
{
    struct sighting gone = { .gone = true };
    int n;

    assert_null(where_groups(&gone, 1, &n));
    assert_int_equal(n, 0);
    assert_int_equal(where_stuck(&gone, 1), -1);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_record_says_what_was_written_last),
        cmocka_unit_test(a_text_that_is_too_long_is_cut),
        cmocka_unit_test(the_silent_come_first_then_who_computes_then_the_minority),
        cmocka_unit_test(no_ranks_make_no_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
