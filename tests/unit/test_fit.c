/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "topology/fit.h"
#include "topology/links.h"

#define TRIPS 100       /* of each size, as measure.c takes at most */
#define SEEDS 300

/* xorshift64*: the same numbers everywhere. */
static uint64_t state;

static double uniform(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (double)((state * 2685821657736338717u) >> 11) / 9007199254740992.0;
}

static double exponential(double mean)
{
    return -mean * log(1 - uniform());
}

/* What others do to a message: now and then much, always a little, never less than nothing. */
struct noise {
    double mean;        /* relative */
    double outliers;    /* share of messages that take up to ten times as long */
};

static double disturbed(double seconds, const struct noise *noise)
{
    seconds *= 1 + exponential(noise->mean);
    if (uniform() < noise->outliers)
        seconds *= 1 + 9 * uniform();
    return seconds;
}

static int sizes_of(double bytes[LINKS_SIZES])
{
    size_t sizes[LINKS_SIZES];
    int n = links_sizes(true, false, sizes);

    for (int i = 0; i < n; i++)
        bytes[i] = (double)sizes[i];
    return n;
}

static struct fit_curve measure(const struct fit_curve *truth, const struct noise *noise,
                                double bytes[LINKS_SIZES])
{
    double seconds[LINKS_SIZES], trips[TRIPS];
    int n = sizes_of(bytes);

    for (int s = 0; s < n; s++) {
        for (int i = 0; i < TRIPS; i++)
            trips[i] = disturbed(fit_time(truth, bytes[s]), noise);
        seconds[s] = fit_quiet(trips, TRIPS);
    }
    return fit_curve(n, bytes, seconds);
}

/* From shared memory to a wide network: some sizes show the latency, some the bandwidth. */
static struct fit_curve any_line(void)
{
    return (struct fit_curve){ .line = { 1e-6 * pow(50, uniform()), 3e8 * pow(100, uniform()) },
                               .copy_bandwidth = INFINITY };
}

static double off(double value, double truth)
{
    return fabs(value / truth - 1);
}

static void times_without_noise_give_the_line(void **unused)
{
    const struct noise none = { 0, 0 };

    (void)unused;
    state = 1;
    for (int seed = 0; seed < SEEDS; seed++) {
        struct fit_curve truth = any_line(), found;
        double bytes[LINKS_SIZES];

        found = measure(&truth, &none, bytes);
        assert_true(off(found.line.latency, truth.line.latency) < 1e-9);
        assert_true(off(found.line.bandwidth, truth.line.bandwidth) < 1e-9);
        assert_true(found.eager_bytes <= 0);
    }
}

/* The lower decile of 100 times lies -s ln(1 - 0.1 / (1 - p)) above the truth, and has a
 * standard deviation of about s sqrt(q (1 - q) / 100) / (1 - q), where q = 0.1 / (1 - p): for
 * s = 15 % and p = 20 % 2 % and 0.6 %. So 5 % are five standard deviations for one size alone,
 * and a line is through several.
 */
static void noise_and_outliers_leave_latency_and_bandwidth_within_5_percent(void **unused)
{
    static const struct noise noises[] = {
        { 0.01, 0 }, { 0.02, 0.1 }, { 0.05, 0 }, { 0.05, 0.2 }, { 0.1, 0.05 }, { 0.1, 0.2 },
        { 0.15, 0 }, { 0.15, 0.2 },
    };

    (void)unused;
    for (size_t k = 0; k < sizeof(noises) / sizeof(noises[0]); k++)
        for (int seed = 1; seed <= SEEDS; seed++) {
            struct fit_curve truth, found;
            double bytes[LINKS_SIZES];

            state = (uint64_t)seed * 1000003 + k;
            truth = any_line();
            found = measure(&truth, &noises[k], bytes);
            if (off(found.line.latency, truth.line.latency) > 0.05 ||
                off(found.line.bandwidth, truth.line.bandwidth) > 0.05)
                fail_msg("noise %g, outliers %g, seed %d: latency %g for %g, bandwidth %g for "
                         "%g", noises[k].mean, noises[k].outliers, seed, found.line.latency,
                         truth.line.latency, found.line.bandwidth, truth.line.bandwidth);
            assert_true(found.eager_bytes <= 0);
        }
}

/* Short messages without asking, longer ones at more than twice the latency. */
static struct fit_curve any_two_lines(void)
{
    struct fit_curve truth = any_line();

    truth.eager_bytes = ldexp(1, 12 + (int)(5 * uniform()));
    truth.eager_latency = truth.line.latency;
    /* Below where bytes take longer than asking: otherwise it would hardly show. */
    truth.line.bandwidth = truth.eager_bytes / truth.line.latency * (1 + 4 * uniform());
    truth.line.latency *= 2.5 + uniform();
    truth.copy_bandwidth = truth.line.bandwidth * (1 + 4 * uniform());
    return truth;
}

static void an_eager_limit_is_found(void **unused)
{
    const struct noise noise = { 0.05, 0.1 };

    (void)unused;
    for (int seed = 1; seed <= SEEDS; seed++) {
        struct fit_curve truth, found;
        double bytes[LINKS_SIZES];
        int n;

        state = (uint64_t)seed * 7919;
        truth = any_two_lines();
        found = measure(&truth, &noise, bytes);
        n = sizes_of(bytes);
        if (off(found.eager_bytes, truth.eager_bytes) > 0)
            fail_msg("seed %d: %g for %g bytes", seed, found.eager_bytes, truth.eager_bytes);
        for (int s = 0; s < n; s++)
            if (off(fit_time(&found, bytes[s]), fit_time(&truth, bytes[s])) > 0.05)
                fail_msg("seed %d: %g bytes", seed, bytes[s]);
        assert_true(off(found.line.bandwidth, truth.line.bandwidth) < 0.05);
    }
}

static void nothing_is_ever_negative(void **unused)
{
    const double bytes[] = { 8, 1e3, 1e4, 1e5, 1e6, 1e7 };
    const double falling[] = { 5e-5, 4e-5, 3e-5, 2e-5, 2e-5, 2e-5 };
    const double steep[] = { 1e-9, 1e-8, 2e-6, 1e-4, 1e-2, 1 };
    struct fit_curve curve = fit_curve(6, bytes, falling);

    (void)unused;
    assert_true(curve.line.latency >= 0 && curve.line.bandwidth > 0);
    assert_true(isfinite(curve.line.bandwidth));
    curve = fit_curve(6, bytes, steep);
    assert_true(curve.line.latency >= 0 && curve.line.bandwidth > 0);
    assert_true(curve.eager_latency >= 0 && curve.copy_bandwidth > 0);
}

static void quantiles_lie_between_neighbours(void **unused)
{
    double values[] = { 4, 1, 3, 2, 5 };

    (void)unused;
    assert_true(fit_quantile(values, 5, 0.5) == 3);
    assert_true(fit_quantile(values, 5, 0) == 1);
    assert_true(fit_quantile(values, 5, 1) == 5);
    assert_true(off(fit_quantile(values, 5, 0.1), 1.4) < 1e-12);
    assert_true(fit_quiet(values, 1) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_without_noise_give_the_line),
        cmocka_unit_test(noise_and_outliers_leave_latency_and_bandwidth_within_5_percent),
        cmocka_unit_test(an_eager_limit_is_found),
        cmocka_unit_test(nothing_is_ever_negative),
        cmocka_unit_test(quantiles_lie_between_neighbours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
