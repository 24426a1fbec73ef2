/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "scheduler/layout.h"

#define MANY 200

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void fill(struct layout_buffer *buffers, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        buffers[i].bytes = next_random(&seed) % 5000;
        buffers[i].first = (int)(next_random(&seed) % 100);
        buffers[i].last = buffers[i].first + (int)(next_random(&seed) % 30);
        buffers[i].offset = 1;
    }
}

static void buffers_that_live_at_once_do_not_overlap(void **state)
{
    struct layout_buffer b[MANY];

    (void)state;
    for (unsigned seed = 1; seed <= 20; seed++) {
        size_t bytes;

        fill(b, MANY, seed);
        bytes = layout_place(b, MANY);
        for (int i = 0; i < MANY; i++) {
            assert_int_equal(b[i].offset % LAYOUT_ALIGNMENT, 0);
            assert_true(b[i].offset + b[i].bytes <= bytes);
            for (int k = 0; k < i; k++) {
                if (b[i].first > b[k].last || b[k].first > b[i].last)
                    continue;
                assert_true(b[i].offset + b[i].bytes <= b[k].offset ||
                            b[k].offset + b[k].bytes <= b[i].offset);
            }
        }
        assert_true(bytes >= layout_lower_bound(b, MANY));
    }
}

static void the_same_buffers_get_the_same_places(void **state)
{
    struct layout_buffer a[MANY], b[MANY];

    (void)state;
    fill(a, MANY, 7);
    fill(b, MANY, 7);
    assert_int_equal(layout_place(a, MANY), layout_place(b, MANY));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(a[i].offset, b[i].offset);
}

static void one_after_the_other_share_their_bytes(void **state)
{
    struct layout_buffer b[] = {
        { .bytes = 100, .first = 0, .last = 1 },
        { .bytes = 100, .first = 2, .last = 3 },
        { .bytes = 60, .first = 1, .last = 2 },
    };

    (void)state;
    assert_int_equal(layout_place(b, 3), 128 + 64);
    assert_int_equal(layout_lower_bound(b, 3), 128 + 64);
    assert_int_equal(b[0].offset, b[1].offset);
}

/* By size alone they take 384 bytes. */
static void where_the_largest_first_leaves_gaps_another_order_does_not(void **state)
{
    struct layout_buffer b[] = {
        { .bytes = 128, .first = 1, .last = 3 },
        { .bytes = 128, .first = 2, .last = 4 },
        { .bytes = 192, .first = 5, .last = 5 },
        { .bytes = 128, .first = 4, .last = 6 },
    };

    (void)state;
    assert_int_equal(layout_lower_bound(b, 4), 320);
    assert_int_equal(layout_place(b, 4), 320);
}

static void nothing_needs_nothing(void **state)
{
    (void)state;
    assert_int_equal(layout_place(NULL, 0), 0);
    assert_int_equal(layout_lower_bound(NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_that_live_at_once_do_not_overlap),
        cmocka_unit_test(the_same_buffers_get_the_same_places),
        cmocka_unit_test(one_after_the_other_share_their_bytes),
        cmocka_unit_test(where_the_largest_first_leaves_gaps_another_order_does_not),
        cmocka_unit_test(nothing_needs_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
