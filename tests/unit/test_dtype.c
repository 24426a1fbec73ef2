/* SPDX-License-Identifier: MIT */
/* Elements of every type, and arithmetic on integers at the ends of their range. */
#include "unit.h"

#include <math.h>

#include "graph/integer.h"

static const enum dtype integers[] = { DTYPE_I32, DTYPE_I64, DTYPE_U8,  DTYPE_I8,
                                       DTYPE_I16, DTYPE_U16, DTYPE_U32, DTYPE_U64 };

enum { COUNT = sizeof(integers) / sizeof(integers[0]) };

static void integers_are_kept_at_odd_addresses_by_every_type(void **state)
{
    unsigned char bytes[1 + 3 * sizeof(int64_t)] = { 0 };

    (void)state;
    for (int k = 0; k < COUNT; k++) {
        enum dtype type = integers[k];
        const int64_t values[] = { integer_smallest(type), 1, integer_largest(type) };

        for (int i = 0; i < 3; i++)
            dtype_put_whole(type, bytes + 1, i, values[i]);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(dtype_whole(type, bytes + 1, i), values[i]);
            assert_int_equal(dtype_wrap(type, values[i]), values[i]);
            assert_true(dtype_real(type, bytes + 1, i) == dtype_widen(type, values[i]));
        }
        assert_int_equal(integer_order(type, values[0], values[2]), -1);
        assert_int_equal(integer_order(type, values[2], values[1]), 1);
        assert_int_equal(integer_order(type, values[2], values[2]), 0);
    }
}

static void integers_wrap_around(void **state)
{
    (void)state;
    for (int k = 0; k < COUNT; k++) {
        enum dtype type = integers[k];
        uint64_t most = (uint64_t)integer_largest(type);

        assert_int_equal(dtype_wrap(type, (int64_t)(most + 1)), integer_smallest(type));
    }
    assert_int_equal(dtype_wrap(DTYPE_I8, 200), -56);
    assert_int_equal(dtype_wrap(DTYPE_U16, -1), 65535);
    assert_int_equal(dtype_wrap(DTYPE_BOOL, 2), 1);
}

static void real_numbers_are_truncated(void **state)
{
    (void)state;
    assert_int_equal(dtype_truncate(DTYPE_I8, -2.9), -2);
    assert_int_equal(dtype_truncate(DTYPE_U8, 300.5), 44);
    assert_int_equal(dtype_truncate(DTYPE_I64, 1e30), INT64_MAX);
    assert_int_equal(dtype_truncate(DTYPE_I64, -1e30), INT64_MIN);
    assert_int_equal(dtype_truncate(DTYPE_U64, 0x1p63 + 2048), INT64_MIN + 2048);
    assert_int_equal(dtype_truncate(DTYPE_U64, 1e30), (int64_t)UINT64_MAX);
    assert_int_equal(dtype_truncate(DTYPE_I32, (double)NAN), 0);
    assert_int_equal(dtype_truncate(DTYPE_BOOL, 0.5), 1);
}

static void conversions_go_by_way_of_the_value(void **state)
{
    const uint64_t from[] = { UINT64_MAX, 5 };
    const double real[] = { -1.5, 3e9 };
    unsigned char small[2];
    uint32_t wide[2];
    double to[2];

    (void)state;
    dtype_convert(DTYPE_U64, from, DTYPE_F64, to, 2);
    assert_true(to[0] == 0x1p64 && to[1] == 5);
    dtype_convert(DTYPE_U64, from, DTYPE_I8, small, 2);
    assert_true(small[0] == 255 && small[1] == 5);
    dtype_convert(DTYPE_F64, real, DTYPE_U32, wide, 2);
    assert_true(wide[0] == UINT32_MAX && wide[1] == 3000000000u);
}

/* By the definition: sign, 5 or 8 bits of exponent, 10 or 7 of fraction. */
static double small_float(unsigned bits, int fraction_bits)
{
    int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    int fraction = (int)(bits & ((1u << fraction_bits) - 1));
    double size = exponent == 0 ? ldexp(fraction, 1 - bias - fraction_bits)
                                : ldexp(fraction + (1 << fraction_bits),
                                        exponent - bias - fraction_bits);

    if (exponent == (1 << exponent_bits) - 1)
        size = (double)(fraction ? NAN : INFINITY);
    return bits >> 15 ? -size : size;
}

static void every_small_float_is_read_and_written(void **state)
{
    static const enum dtype types[] = { DTYPE_F16, DTYPE_BF16 };

    (void)state;
    for (int k = 0; k < 2; k++)
        for (unsigned bits = 0; bits < 1 << 16; bits++) {
            uint16_t from = (uint16_t)bits, to;
            double x = small_float(bits, k ? 7 : 10), y = dtype_real(types[k], &from, 0);

            dtype_put_real(types[k], &to, 0, x);
            if (isnan(x))
                assert_true(isnan(y) && isnan(dtype_real(types[k], &to, 0)));
            else
                assert_true(x == y && from == to);
        }
}

/* Half way to the next goes to the even one, a little more or less to the nearest. */
static void small_floats_are_rounded_to_the_nearest(void **state)
{
    static const enum dtype types[] = { DTYPE_F16, DTYPE_BF16 };
    uint16_t top[2];

    (void)state;
    dtype_put_real(DTYPE_F16, top, 0, 65519);
    dtype_put_real(DTYPE_F16, top, 1, -65520);
    assert_true(dtype_real(DTYPE_F16, top, 0) == 65504);
    assert_true(dtype_real(DTYPE_F16, top, 1) == (double)-INFINITY);
    for (int k = 0; k < 2; k++)
        for (uint16_t bits = 1; small_float(bits, k ? 7 : 10) < (double)INFINITY; bits++) {
            double x = small_float(bits, k ? 7 : 10), before = small_float(bits - 1u, k ? 7 : 10);
            double middle = (x + before) / 2;
            uint16_t low, half, high;

            /* The nearest float to these is the middle itself. */
            dtype_put_real(types[k], &low, 0, nextafter(middle, before));
            dtype_put_real(types[k], &half, 0, middle);
            dtype_put_real(types[k], &high, 0, nextafter(middle, x));
            assert_int_equal(low, bits - 1);
            assert_int_equal(half, bits % 2 ? bits - 1 : bits);
            assert_int_equal(high, bits);
        }
}

static void division_knows_whether_there_is_a_sign(void **state)
{
    int64_t y;

    (void)state;
    assert_int_equal(integer_divide(DTYPE_U64, -2, 2, &y), 0);
    assert_int_equal(y, INT64_MAX);
    assert_int_equal(integer_divide(DTYPE_I64, -2, 2, &y), 0);
    assert_int_equal(y, -1);
    assert_int_equal(integer_divide(DTYPE_I64, INT64_MIN, -1, &y), 0);
    assert_int_equal(y, INT64_MIN);
    assert_int_equal(integer_rest(DTYPE_U64, -1, 10, false, &y), 0);
    assert_int_equal(y, 5);     /* of 18446744073709551615 */
    assert_int_equal(integer_rest(DTYPE_I64, -1, 10, false, &y), 0);
    assert_int_equal(y, 9);
    assert_int_equal(integer_rest(DTYPE_I64, -1, 10, true, &y), 0);
    assert_int_equal(y, -1);
    assert_int_equal(integer_divide(DTYPE_U8, 1, 0, &y), -1);
    assert_int_equal(integer_rest(DTYPE_U64, 1, 0, false, &y), -1);
}

static void powers_take_an_exponent_of_any_type(void **state)
{
    (void)state;
    assert_int_equal(integer_power(DTYPE_I32, 3, DTYPE_U64, 4), 81);
    assert_int_equal(integer_power(DTYPE_I32, -1, DTYPE_I8, -3), -1);
    assert_int_equal(integer_power(DTYPE_U64, -1, DTYPE_I8, -3), 0);
    assert_int_equal(integer_power(DTYPE_I64, 1, DTYPE_I64, INT64_MIN), 1);
    assert_int_equal(integer_power(DTYPE_I64, -1, DTYPE_U64, -1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_kept_at_odd_addresses_by_every_type),
        cmocka_unit_test(integers_wrap_around),
        cmocka_unit_test(real_numbers_are_truncated),
        cmocka_unit_test(conversions_go_by_way_of_the_value),
        cmocka_unit_test(every_small_float_is_read_and_written),
        cmocka_unit_test(small_floats_are_rounded_to_the_nearest),
        cmocka_unit_test(division_knows_whether_there_is_a_sign),
        cmocka_unit_test(powers_take_an_exponent_of_any_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
