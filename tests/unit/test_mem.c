/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/mem.h"
#include "base/near.h"

static void sizes_that_overflow_are_refused(void **state)
{
    size_t size = 7;
    struct err err = { 0 };

    assert_int_equal(size_mul(SIZE_MAX / 2, 3, &size), -1);
    assert_int_equal(size_add(SIZE_MAX, 1, &size), -1);
    assert_int_equal(size_mul(6, 7, &size), 0);
    assert_int_equal(size, 42);
    assert_null(mem_try(SIZE_MAX / 2, 3, &err));
    assert_contains(err.text, "too many");
    (void)state;
}

static void pushed_elements_are_zeroed_and_kept(void **state)
{
    int *array = NULL, count = 0;

    for (int i = 0; i < 100; i++) {
        int *slot = mem_push((void **)&array, &count, sizeof(*array));

        assert_int_equal(*slot, 0);
        *slot = i;
    }
    assert_int_equal(count, 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(array[i], i);
    free(array);
    (void)state;
}

static void arena_memory_is_zeroed_aligned_and_apart(void **state)
{
    struct arena *arena = arena_new();
    unsigned char *last = NULL;

    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        unsigned char *p = arena_alloc(arena, n, 1);

        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
        assert_true(p != last);
        last = p;
    }
    assert_string_equal(arena_printf(arena, "%d-%s", 7, "x"), "7-x");
    arena_free(arena);
    arena_free(NULL);
    (void)state;
}

static void an_error_keeps_its_text_under_prefixes(void **state)
{
    struct err err = { 0 };

    assert_int_equal(err_set(&err, "node \"%s\"", "n"), -1);
    assert_int_equal(err.code, EXIT_FAILED);
    err_prefix(&err, "%s", "model.onnx");
    assert_string_equal(err.text, "model.onnx: node \"n\"");
    err_set_code(&err, EXIT_USAGE, "usage");
    assert_int_equal(err.code, EXIT_USAGE);
    assert_int_equal(err_set(NULL, "nobody listens"), -1);
    (void)state;
}

static void the_nearest_word_wins_and_far_ones_do_not(void **state)
{
    struct near near;

    near_start(&near, "optimiser");
    near_try(&near, "options");
    near_try(&near, "optimizer");
    assert_string_equal(near.best, "optimizer");
    near_start(&near, "xyzzy");
    near_try(&near, "optimizer");
    assert_null(near.best);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(pushed_elements_are_zeroed_and_kept),
        cmocka_unit_test(arena_memory_is_zeroed_aligned_and_apart),
        cmocka_unit_test(an_error_keeps_its_text_under_prefixes),
        cmocka_unit_test(the_nearest_word_wins_and_far_ones_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
