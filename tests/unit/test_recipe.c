/* SPDX-License-Identifier: MIT */
/* Learning rates, and recipes in checkpoints. */
#include "unit.h"

#include <math.h>

#include "base/json.h"
#include "train/recipe.h"

static void assert_near(double got, double wanted)
{
    if (fabs(got - wanted) > 1e-15)
        fail_msg("%.17g in place of %.17g", got, wanted);
}

static void a_warm_up_reaches_the_whole_rate_at_its_last_step(void **state)
{
    struct rate r = { .kind = RATE_CONSTANT, .warmup = 4 };

    (void)state;
    assert_near(rate_at(&r, 0), 0.25);
    assert_near(rate_at(&r, 3), 1);
    assert_near(rate_at(&r, 4), 1);
    r.warmup = 0;
    assert_near(rate_at(&r, 0), 1);
}

static void steps_are_counted_from_the_start(void **state)
{
    struct rate r = { .kind = RATE_STEP, .warmup = 2, .every = 3, .factor = 0.1 };

    (void)state;
    assert_near(rate_at(&r, 0), 0.5);
    assert_near(rate_at(&r, 2), 1);
    assert_near(rate_at(&r, 3), 0.1);
    assert_near(rate_at(&r, 6), 0.1 * 0.1);
}

static void cosine_and_linear_end_at_their_length_and_stay_there(void **state)
{
    struct rate r = { .kind = RATE_COSINE, .warmup = 2, .length = 10, .final = 0.2 };

    (void)state;
    assert_near(rate_at(&r, 1), 1);
    assert_near(rate_at(&r, 2), 1);
    assert_near(rate_at(&r, 6), 0.6);
    assert_near(rate_at(&r, 4), 0.6 + 0.4 * sqrt(0.5));
    assert_near(rate_at(&r, 10), 0.2);
    assert_near(rate_at(&r, 1000), 0.2);
    r.kind = RATE_LINEAR;
    assert_near(rate_at(&r, 4), 0.8);
    assert_near(rate_at(&r, 10), 0.2);
    assert_near(rate_at(&r, 1000), 0.2);
}

static void one_cycle_rises_from_a_25th_and_falls(void **state)
{
    struct rate r = { .kind = RATE_ONE_CYCLE, .warmup = 5, .length = 13, .final = 0.001 };

    (void)state;
    assert_near(rate_at(&r, 0), 0.04);
    assert_near(rate_at(&r, 2), 0.52);
    assert_near(rate_at(&r, 4), 1);
    assert_near(rate_at(&r, 8), 0.5005);
    assert_near(rate_at(&r, 12), 0.001);
    assert_near(rate_at(&r, 20), 0.001);
}

static void every_schedule_is_finite_however_short(void **state)
{
    (void)state;
    for (int kind = RATE_CONSTANT; kind <= RATE_ONE_CYCLE; kind++)
        for (int64_t length = 1; length < 6; length++)
            for (int64_t warmup = 0; warmup <= length; warmup++)
                for (int64_t t = 0; t < 8; t++) {
                    struct rate r = { .kind = (enum rate_kind)kind, .warmup = warmup,
                                      .every = 1, .length = length, .factor = 0.5 };
                    double rate = rate_at(&r, t);

                    assert_true(rate >= 0 && rate <= 1);
                }
}

static void epochs_become_steps_and_the_rest_follows_from_the_run(void **state)
{
    struct recipe r = recipe_defaults();
    struct err err = { 0 };

    (void)state;
    r.schedule = RATE_COSINE;
    r.warmup = (struct span){ 2, true };
    assert_int_equal(recipe_resolve(&r, 7, 100, &err), 0);
    assert_int_equal(r.warmup.n, 14);
    assert_int_equal(r.every.n, 210);
    assert_int_equal(r.length.n, 100);
    assert_true(r.final == 0);
    assert_int_equal(recipe_resolve(&r, 7, 1000, &err), 0);
    assert_int_equal(r.length.n, 100);
}

static void a_warm_up_beyond_the_schedule_is_refused(void **state)
{
    struct recipe r = recipe_defaults();
    struct err err = { 0 };

    (void)state;
    r.schedule = RATE_LINEAR;
    r.warmup.n = 101;
    assert_int_equal(recipe_resolve(&r, 7, 100, &err), -1);
    assert_non_null(strstr(err.text, "--warmup: 101 steps"));
    r.schedule = RATE_STEP;
    assert_int_equal(recipe_resolve(&r, 7, 100, &err), 0);
    r.warmup = (struct span){ INT64_MAX / 4, true };
    assert_int_equal(recipe_resolve(&r, 7, 100, &err), -1);
}

static int read_back(struct recipe *r, const char *text, const char ***patterns,
                     struct err *err)
{
    json_t *json = json_loads(text, 0, NULL);
    struct json_reader reader;
    int bad;

    assert_non_null(json);
    bad = json_reader_top(&reader, "state.json", json, "t", 1, err) < 0 ||
          recipe_from_json(r, &reader, patterns, err) < 0;
    if (!bad && r->n_no_decay)
        assert_string_equal(r->no_decay[0], "*bias");
    json_decref(json);
    return bad;
}

static void what_is_written_is_read(void **state)
{
    const char *decay[] = { "*bias", "norm" }, **patterns = NULL;
    struct recipe r = recipe_defaults(), back;
    struct err err = { 0 };
    json_t *top;
    char *text;

    (void)state;
    r.schedule = RATE_ONE_CYCLE;
    r.warmup.n = 3;
    r.clip = 0.5;
    r.ema = 0.99;
    r.label_smoothing = 0.1;
    r.n_no_decay = 2;
    r.no_decay = decay;
    assert_int_equal(recipe_resolve(&r, 5, 50, &err), 0);
    top = json_pack("{s:s, s:i, s:o}", "schema", "t", "version", 1, "recipe",
                    recipe_to_json(&r));
    text = json_dumps(top, JSON_REAL_PRECISION(17));
    assert_int_equal(read_back(&back, text, &patterns, &err), 0);
    assert_int_equal(back.schedule, RATE_ONE_CYCLE);
    assert_true(back.warmup.n == 3 && back.every.n == 150 && !back.every.epochs);
    assert_true(back.length.n == 50 && back.final == 4e-6 && back.factor == 0.1);
    assert_true(back.clip == 0.5 && back.ema == 0.99 && back.label_smoothing == 0.1);
    assert_int_equal(back.n_no_decay, 2);
    free(patterns);
    free(text);
    json_decref(top);
}

static void a_damaged_recipe_names_its_key(void **state)
{
    static const char *const texts[] = { "{\"lr_schedule\":\"steep\"", "{\"lr_schedule\":\"step\"" };
    static const char rest[] = ",\"warmup\":0,\"lr_every\":1,\"lr_factor\":1,\"lr_length\":1,"
                               "\"lr_final\":0,\"clip_norm\":0,\"label_smoothing\":0,\"ema\":0,"
                               "\"no_decay\":[\"*bias\",1]}";
    static const char *const keys[] = { "lr_schedule", "no_decay" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        const char **patterns = NULL;
        struct err err = { 0 };
        struct recipe r;
        char text[512];

        snprintf(text, sizeof(text), "{\"schema\":\"t\",\"version\":1,\"recipe\":%s%s}", texts[i],
                 rest);
        assert_true(read_back(&r, text, &patterns, &err) != 0);
        assert_non_null(strstr(err.text, keys[i]));
        free(patterns);
    }
}

static void a_resume_keeps_what_is_not_said(void **state)
{
    struct recipe saved = { .schedule = RATE_COSINE, .length = { 90, false }, .clip = 2,
                            .factor = 0.5, .ema = 0.9 }, r;
    struct recipe_given given = { .clip = true, .factor = true };

    (void)state;
    r = recipe_defaults();
    r.clip = 1;
    r.factor = 0.25;
    recipe_resume(&r, &given, &saved);
    assert_int_equal(r.schedule, RATE_COSINE);
    assert_true(r.length.n == 90 && r.clip == 1 && r.factor == 0.25 && r.ema == 0.9);
    r = recipe_defaults();
    r.schedule = RATE_LINEAR;
    given = (struct recipe_given){ .schedule = true };
    recipe_resume(&r, &given, &saved);
    assert_int_equal(r.schedule, RATE_LINEAR);
    assert_true(r.length.n == 0 && r.clip == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_warm_up_reaches_the_whole_rate_at_its_last_step),
        cmocka_unit_test(steps_are_counted_from_the_start),
        cmocka_unit_test(cosine_and_linear_end_at_their_length_and_stay_there),
        cmocka_unit_test(one_cycle_rises_from_a_25th_and_falls),
        cmocka_unit_test(every_schedule_is_finite_however_short),
        cmocka_unit_test(epochs_become_steps_and_the_rest_follows_from_the_run),
        cmocka_unit_test(a_warm_up_beyond_the_schedule_is_refused),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_damaged_recipe_names_its_key),
        cmocka_unit_test(a_resume_keeps_what_is_not_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
