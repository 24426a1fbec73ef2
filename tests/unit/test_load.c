/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "train/load.h"

static void busy_time_of_the_own_cores_alone_is_summed(void **state)
{
    char text[] = "cpu  1 2 3 4 5 6 7 8 9 10\n"
                  "cpu0 100 20 30 9999 9999 4 5 6 100 20\n"
                  "cpu1 7000 0 0 0 0 0 0 0 0 0\n"
                  "cpu10 1000 200 300 9999 9999 40 50 60 0 0\n"
                  "intr 12345 1 2 3\n"
                  "cpu11 7000\n";
    FILE *stat = fmemopen(text, sizeof(text) - 1, "r");
    long ticks = sysconf(_SC_CLK_TCK);
    cpu_set_t mine;
    int cores;
    double busy;

    CPU_ZERO(&mine);
    CPU_SET(0, &mine);
    CPU_SET(10, &mine);
    CPU_SET(11, &mine);
    busy = load_of_cores(stat, &mine, &cores);
    assert_int_equal(cores, 2);
    assert_int_equal((long)(busy * (double)ticks + 0.5), 165 + 1650);
    fclose(stat);
    (void)state;
}

static void expect(double others, double own, int cores, int threads, bool crowded)
{
    struct load from = { .clock = 5, .busy = 70, .own = 3, .cores = cores };
    struct load to = { .clock = 15, .busy = 70 + others + own, .own = 3 + own, .cores = cores };

    assert_int_equal(load_crowded(&from, &to, threads), crowded);
}

static void others_count_where_no_core_is_left_over_for_them(void **state)
{
    /* in 10 seconds */
    expect(0, 40, 4, 4, false);
    expect(3, 37, 4, 0, false);
    expect(8, 32, 4, 4, true);
    expect(8, 20, 4, 2, false);
    expect(25, 15, 4, 2, true);
    expect(20, 20, 4, 2, false);
    expect(8, 32, 0, 4, false);
    (void)state;
}

static void the_live_machine_can_be_asked(void **state)
{
    struct load from, to;

    load_read(&from);
    load_read(&to);
    assert_true(to.clock >= from.clock);
    assert_true(to.own >= from.own);
    assert_true(to.cores >= 0);
    (void)load_crowded_now(0);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(busy_time_of_the_own_cores_alone_is_summed),
        cmocka_unit_test(others_count_where_no_core_is_left_over_for_them),
        cmocka_unit_test(the_live_machine_can_be_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
