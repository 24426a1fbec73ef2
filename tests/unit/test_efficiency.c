/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <math.h>

#include "base/json.h"
#include "topology/efficiency.h"
#include "train/calibrate.h"

/* Some operations of double precision. */
static bool close_to(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

static int parse(const char *text, struct efficiency *efficiency, struct err *err)
{
    json_t *json = json_loads(text, 0, NULL);
    struct json_reader r = { .file = "topo.json", .object = json };
    int bad;

    assert_non_null(json);
    bad = efficiency_read(&r, "efficiency", efficiency, err);
    json_decref(json);
    return bad;
}

static void a_share_is_a_power_of_work_between_points_and_stays_outside(void **state)
{
    struct efficiency e;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(parse("{\"efficiency\": {\"matmul\": [[1e6, 0.01], [1e8, 0.16], [1e9, 0.5]],"
                           " \"memory\": [[1, 0.5]]}}", &e, &err), 0);
    assert_true(efficiency_share(&e, EFFICIENCY_MATMUL, 1) == 0.01);
    assert_true(efficiency_share(&e, EFFICIENCY_MATMUL, 1e6) == 0.01);
    assert_true(close_to(efficiency_share(&e, EFFICIENCY_MATMUL, 1e7), 0.04));
    assert_true(close_to(efficiency_share(&e, EFFICIENCY_MATMUL, 1e8), 0.16));
    assert_true(close_to(efficiency_share(&e, EFFICIENCY_MATMUL, sqrt(1e17)), sqrt(0.08)));
    assert_true(efficiency_share(&e, EFFICIENCY_MATMUL, INFINITY) == 0.5);
    assert_true(efficiency_share(&e, EFFICIENCY_MEMORY, 1e12) == 0.5);
    /* What has no curve reaches all. */
    assert_true(efficiency_share(&e, EFFICIENCY_CONV, 1e6) == 1);
    assert_true(efficiency_share(NULL, EFFICIENCY_MATMUL, 1e6) == 1);
}

static void what_is_written_is_read_back(void **state)
{
    struct efficiency a, b;
    struct err err = { 0 };
    json_t *json = json_object();
    char *text;

    (void)state;
    assert_int_equal(parse("{\"efficiency\": {\"attention\": [[3, 0.1], [5.5, 0.125]],"
                           " \"normalization\": [[7, 1]]}}", &a, &err), 0);
    json_object_set_new(json, "efficiency", efficiency_json(&a));
    text = json_dumps(json, JSON_REAL_PRECISION(17));
    assert_int_equal(parse(text, &b, &err), 0);
    assert_true(efficiency_same(&a, &b));
    assert_false(efficiency_is_none(&a));
    assert_int_equal(parse("{}", &b, &err), 0);
    assert_true(efficiency_is_none(&b));
    free(text);
    json_decref(json);
}

#define CURVE(points) "{\"efficiency\": {\"convolution\": " points "}}"

static void what_is_no_curve_is_refused_by_file_and_key(void **state)
{
    static const struct { const char *text, *named; } cases[] = {
        { "{\"efficiency\": 1}", "efficiency" },
        { "{\"efficiency\": {\"gemm\": [[1, 1]]}}", "\"gemm\"" },
        { CURVE("1"), "efficiency.convolution" },
        { CURVE("[]"), "1 to 16 points" },
        { CURVE("[[1, 1], [2, 1], [3, 1], [4, 1], [5, 1], [6, 1], [7, 1], [8, 1], [9, 1],"
                " [10, 1], [11, 1], [12, 1], [13, 1], [14, 1], [15, 1], [16, 1], [17, 1]]"),
          "1 to 16 points" },
        { CURVE("[0.5]"), "point 1: expected [work, share]" },
        { CURVE("[[1, 0.5, 2]]"), "point 1: expected [work, share]" },
        { CURVE("[[1, \"half\"]]"), "point 1: expected [work, share]" },
        { CURVE("[[0, 0.5]]"), "point 1: work" },
        { CURVE("[[-1, 0.5]]"), "point 1: work" },
        { CURVE("[[1e-300, 0.1], [1e300, 0.8]]"), "point 1: work" },
        { CURVE("[[1, 0]]"), "point 1: a share" },
        { CURVE("[[1, 0.5], [2, 1.01]]"), "point 2: a share" },
        { CURVE("[[2, 0.5], [2, 0.6]]"), "point 2: work must ascend" },
        { CURVE("[[2, 0.5], [1, 0.6]]"), "point 2: work must ascend" },
        { CURVE("[[1, 0.1], [2, 0.3]]"), "point 2: a call would take less time" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct efficiency e;
        struct err err = { 0 };

        assert_int_equal(parse(cases[i].text, &e, &err), -1);
        if (!strstr(err.text, cases[i].named) || !strstr(err.text, "topo.json"))
            fail_msg("%s: %s", cases[i].text, err.text);
    }
}

/* A device with so many operations/s that takes 'idle' seconds for each call. */
static void add_calls(struct calibration *c, enum efficiency_class of, double rate, double idle)
{
    for (double work = 1e3; work < 1e12; work *= 10) {
        struct node_work w = { of, work, work };

        calibration_add(c, &w, idle + work / rate);
    }
}

/* No two calls a decade apart fall into one bin. */
static void curves_that_are_fitted_give_the_times_back(void **state)
{
    struct calibration c = { 0 };
    struct efficiency e;
    double flops = 0, bandwidth = 4e9;

    (void)state;
    add_calls(&c, EFFICIENCY_MATMUL, 1e12, 1e-6);
    add_calls(&c, EFFICIENCY_MEMORY, 2e9, 1e-6);
    calibration_fit(&c, &flops, &bandwidth, &e);
    assert_true(flops > 0.99e12 && flops <= 1e12);
    assert_true(bandwidth == 4e9);
    assert_int_equal(e.curves[EFFICIENCY_CONV].n, 0);
    for (double work = 1e3; work < 1e12; work *= 10) {
        double product = work / flops / efficiency_share(&e, EFFICIENCY_MATMUL, work);
        double move = work / bandwidth / efficiency_share(&e, EFFICIENCY_MEMORY, work);

        assert_true(close_to(product, 1e-6 + work / 1e12));
        assert_true(close_to(move, 1e-6 + work / 2e9));
    }
    calibration_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_share_is_a_power_of_work_between_points_and_stays_outside),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(what_is_no_curve_is_refused_by_file_and_key),
        cmocka_unit_test(curves_that_are_fitted_give_the_times_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
