/* SPDX-License-Identifier: MIT */
/* A log as it is read while it grows: whole lines only, whatever is in them. */
#include "unit.h"

#include <jansson.h>
#include <math.h>

#include "base/tail.h"
#include "train/run_view.h"

static const char start[] =
    "{\"event\":\"start\",\"first_step\":1,\"steps\":100,\"model\":\"net.onnx\",\"ranks\":3,"
    "\"replicas\":[2,1],\"plan\":{\"schedule\":\"1f1b\",\"pipelines\":1,\"micro_batches\":4,"
    "\"micro_batch\":8},\"hosts\":[\"a\",\"b\",\"c\"]}\n";

static void take_line(void *context, const char *text, size_t length)
{
    run_state_line(context, text, length);
}

static void take_restart(void *context)
{
    run_state_clear(context);
    run_state_init(context);
}

static void feed(struct run_state *s, const char *line)
{
    run_state_line(s, line, strlen(line));
}

/* All that is known, as text; malloc'ed. */
static char *dump(const struct run_state *s)
{
    json_t *json = run_view_json(s, "log");
    char *text = json_dumps(json, JSON_COMPACT);

    json_decref(json);
    assert_non_null(text);
    return text;
}

static void append(const char *path, const char *mode, const char *data, size_t n)
{
    FILE *file = fopen(path, mode);

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    fclose(file);
}

static void write_steps(char *text, size_t room, int first, int end)
{
    size_t used = strlen(text);

    for (int i = first; i < end; i++)
        used += (size_t)snprintf(text + used, room - used,
                                 "{\"step\":%d,\"epoch\":1,\"loss\":%.17g,\"seconds\":0.%d1,"
                                 "\"samples_per_second\":%d,\"predicted_seconds\":0.1,"
                                 "\"lr\":0.1}\n", i, 3.0 / i, i % 7 + 1, 100 + i % 5);
}

static struct tail *open_tail(const char *path, struct run_state *s)
{
    struct tail_reader reader = { take_line, take_restart, s };

    return tail_new(path, &reader);
}

static const char others[] =
    "{\"event\":\"evaluation\",\"step\":50,\"loss\":0.5,\"accuracy\":0.75,\"seconds\":1}\n"
    "no JSON at all\n"
    "{\"event\":\"checkpoint\",\"step\":50,\"directory\":\"out\",\"seconds\":0.5}\n"
    "{\"event\":\"ranks\",\"step\":50,\"steps\":50,\"seconds\":10,\"ranks\":["
    "{\"stage\":0,\"samples\":4,\"compute\":5},{\"stage\":0,\"samples\":4,\"compute\":9},"
    "{\"stage\":1,\"samples\":8,\"compute\":8}]}\n";

static void a_log_that_comes_in_pieces_says_what_the_whole_says(void **state)
{
    static char text[1 << 16];
    char *directory = unit_directory(), path[600], *whole;
    struct run_state all;
    struct err err = { 0 };

    snprintf(path, sizeof(path), "%s/log", directory);
    text[0] = '\0';
    strcat(text, start);
    write_steps(text, sizeof(text), 1, 51);
    strcat(text, others);
    write_steps(text, sizeof(text), 51, 60);
    run_state_init(&all);
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        run_state_line(&all, line, (size_t)(end - line));
    whole = dump(&all);
    assert_contains(whole, "\"malformed\":1");
    for (unsigned seed = 1; seed <= 30; seed++) {
        size_t size = strlen(text), at = 0;
        struct run_state pieces;
        struct tail *tail = open_tail(path, &pieces);
        char *last;

        run_state_init(&pieces);
        unlink(path);
        srand(seed);
        while (at < size) {
            size_t n = 1 + (size_t)rand() % (seed < 10 ? 40 : 3000);

            n = n < size - at ? n : size - at;
            append(path, at ? "a" : "w", text + at, n);
            at += n;
            assert_true(tail_poll(tail, &err) >= 0);
        }
        last = dump(&pieces);
        assert_string_equal(whole, last);
        free(last);
        tail_free(tail);
        run_state_clear(&pieces);
    }
    free(whole);
    run_state_clear(&all);
    unit_remove(directory);
    (void)state;
}

static void the_last_line_counts_when_it_is_complete(void **state)
{
    char *directory = unit_directory(), path[600];
    struct run_state s;
    struct tail *tail;
    struct err err = { 0 };

    snprintf(path, sizeof(path), "%s/log", directory);
    run_state_init(&s);
    tail = open_tail(path, &s);
    assert_int_equal(tail_poll(tail, &err), 0);
    assert_false(tail_found(tail));
    append(path, "w", "{\"step\":1,\"loss\":2}", 19);
    assert_int_equal(tail_poll(tail, &err), 0);
    assert_true(tail_found(tail));
    assert_int_equal(s.phase, RUN_WAITING);
    append(path, "a", "\n", 1);
    assert_int_equal(tail_poll(tail, &err), 1);
    assert_int_equal(s.step, 1);
    tail_free(tail);
    run_state_clear(&s);
    unit_remove(directory);
    (void)state;
}

/* Shorter, as long, longer, and under the same name: nothing of the old file is left. */
static void a_truncated_or_replaced_file_is_read_anew(void **state)
{
    static const char old[] = "{\"step\":7,\"loss\":2}\n{\"step\":8,\"loss\":1}\n";
    static const char *const news[] = {
        "{\"step\":1,\"loss\":5}\n",
        "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n",
        "{\"step\":1,\"loss\":5}\n{\"step\":2,\"loss\":4}\n{\"step\":3,\"loss\":3}\n",
    };
    char *directory = unit_directory(), path[600], other[600];
    struct err err = { 0 };

    snprintf(path, sizeof(path), "%s/log", directory);
    snprintf(other, sizeof(other), "%s/other", directory);
    for (int i = 0; i < 6; i++) {
        struct run_state s;
        struct tail *tail = open_tail(path, &s);
        const char *text = news[i % 3];

        run_state_init(&s);
        append(path, "w", old, strlen(old));
        assert_int_equal(tail_poll(tail, &err), 1);
        assert_int_equal(s.step, 8);
        append(i < 3 ? path : other, "w", text, strlen(text));
        if (i >= 3)
            assert_int_equal(rename(other, path), 0);
        assert_int_equal(tail_poll(tail, &err), 1);
        assert_int_equal(s.step, i % 3 + 1);
        assert_int_equal(s.lines, i % 3 + 1);
        assert_true(s.best == 5 - i % 3);
        tail_free(tail);
        run_state_clear(&s);
    }
    unit_remove(directory);
    (void)state;
}

static void hostile_lines_are_counted_and_the_first_is_named(void **state)
{
    static const char *const lines[] = {
        "", "{", "[]", "null", "{}", "{\"step\":0,\"loss\":1}", "{\"step\":-3,\"loss\":1}",
        "{\"step\":1e999,\"loss\":1}", "{\"step\":1,\"loss\":NaN}",
        "{\"step\":\"1\",\"loss\":1}",
        "{\"step\":99999999999999999999999,\"loss\":1}", "{\"event\":7}", "{\"step\":1}",
        "{\"step\":1,\"step\":2,\"loss\":1}", "\xff\xfe", "{\"step\":1.5,\"loss\":1}",
    };
    const int n = sizeof(lines) / sizeof(lines[0]);
    static char deep[4000];
    struct run_state s;

    run_state_init(&s);
    feed(&s, "{\"step\":3,\"loss\":1.5}");
    for (int i = 0; i < n; i++)
        feed(&s, lines[i]);
    memset(deep, '[', sizeof(deep));
    run_state_line(&s, deep, sizeof(deep));
    run_state_line(&s, "{\"step\":4,\0\"loss\":1}", 20);
    run_state_line(&s, NULL, 0);
    assert_int_equal(s.bad, n + 3);
    assert_contains(s.first_bad, "line 2: ");
    assert_int_equal(s.step, 3);
    assert_true(s.loss == 1.5);
    run_state_clear(&s);
    (void)state;
}

static void huge_numbers_and_wrong_types_are_shown_without_harm(void **state)
{
    static const char *const lines[] = {
        "{\"event\":\"start\",\"first_step\":9223372036854775807,\"steps\":9223372036854775807,"
        "\"ranks\":9223372036854775807,\"replicas\":[9223372036854775807,-1,\"x\"],"
        "\"hosts\":[1,null,\"h\"],\"plan\":[],\"model\":{}}",
        "{\"step\":9223372036854775807,\"loss\":1.7e308,\"seconds\":1e308,"
        "\"samples_per_second\":1e308,\"predicted_seconds\":1e-308,\"lr\":-1e308}",
        "{\"step\":1,\"loss\":-1.7e308,\"seconds\":1e308,\"samples_per_second\":0}",
        "{\"step\":2,\"loss\":null,\"accuracy\":null,\"seconds\":-1}",
        "{\"event\":\"ranks\",\"seconds\":1e-308,\"ranks\":[{\"stage\":9223372036854775807,"
        "\"compute\":1e308},{\"stage\":1048575,\"compute\":-4},7,null,{\"stage\":-1}]}",
        "{\"event\":\"ranks\",\"seconds\":0,\"ranks\":[{}]}",
        "{\"event\":\"memory\",\"peak\":{\"a\":1}}",
        "{\"event\":\"memory\",\"peak\":[1e308,null]}",
        "{\"event\":\"end\",\"ranks\":{},\"outcome\":3}",
        "{\"event\":\"evaluation\",\"step\":[],\"loss\":null,\"seconds\":1e308}",
        "{\"event\":\"checkpoint\",\"directory\":7}", "{\"event\":\"trial\"}",
        "{\"event\":\"staged\",\"nodes\":-1}", "{\"event\":\"failed\",\"error\":[]}",
        "{\"event\":\"of a version to come\",\"x\":1}",
    };
    struct run_state s;

    run_state_init(&s);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        for (int width = 1; width < 200; width += 33) {
            struct run_view view = { .log = "log", .width = width, .height = width % 30,
                                     .utf8 = width % 2, .live = true, .age = 1e300 };
            char *text;

            feed(&s, lines[i]);
            text = run_view_text(&s, &view);
            free(text);
            text = dump(&s);
            free(text);
        }
    assert_int_equal(s.bad, 0);
    run_state_clear(&s);
    (void)state;
}

static void nothing_in_a_log_commands_the_terminal(void **state)
{
    struct run_view view = { .log = "log", .width = 200 };
    struct run_state s;
    char *text;

    run_state_init(&s);
    feed(&s, "{\"event\":\"start\",\"model\":\"a\\u001b[2Jb\\u009b\",\"ranks\":1,\"steps\":3}");
    feed(&s, "{\"event\":\"failed\",\"error\":\"\\u001b]0;x\\u0007\\n\"}");
    text = run_view_text(&s, &view);
    for (const char *c = text; *c; c++)
        assert_true((unsigned char)*c >= ' ' || *c == '\n');
    assert_contains(text, "a?[2Jb?");
    assert_contains(text, "failed: ?]0;x??");
    assert_int_equal(s.phase, RUN_FAILED);
    free(text);
    run_state_clear(&s);
    (void)state;
}

static void no_view_is_larger_than_the_terminal(void **state)
{
    static char text[1 << 16];
    struct run_state s;

    run_state_init(&s);
    text[0] = '\0';
    strcat(text, start);
    write_steps(text, sizeof(text), 1, 60);
    strcat(text, others);
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
        run_state_line(&s, line, (size_t)(end - line));
    for (int width = 20; width <= 160; width += 7)
        for (int height = 1; height <= 60; height++) {
            struct run_view view = { .log = "log", .width = width, .height = height,
                                     .utf8 = height % 2, .live = true };
            char *drawn = run_view_text(&s, &view);
            int rows = 0, columns = 0;

            for (const char *c = drawn; *c; c++) {
                columns = *c == '\n' ? 0 : columns + (((unsigned char)*c & 0xc0) != 0x80);
                rows += *c == '\n';
                assert_true(columns <= width);
            }
            assert_true(rows <= height);
            free(drawn);
        }
    run_state_clear(&s);
    (void)state;
}

static void a_replica_that_computes_longer_is_a_straggler(void **state)
{
    struct run_view view = { .log = "log", .width = 80 };
    struct run_state s;
    char *text;

    run_state_init(&s);
    run_state_line(&s, start, strlen(start));
    /* A larger share of the samples is no fault. */
    feed(&s, "{\"event\":\"ranks\",\"seconds\":10,\"ranks\":[{\"stage\":0,\"samples\":4,"
             "\"compute\":4},{\"stage\":0,\"samples\":8,\"compute\":8},{\"stage\":1,"
             "\"samples\":12,\"compute\":9}]}");
    for (int r = 0; r < 3; r++)
        assert_true(s.ranks[r].factor == 1);
    feed(&s, "{\"event\":\"ranks\",\"seconds\":10,\"ranks\":[{\"stage\":0,\"samples\":4,"
             "\"compute\":4},{\"stage\":0,\"samples\":4,\"compute\":8},{\"stage\":1,"
             "\"samples\":8,\"compute\":9}]}");
    assert_true(s.ranks[1].factor == 2);
    text = run_view_text(&s, &view);
    assert_contains(text, "straggler: rank 1 (b) computes 2.00 times");
    free(text);
    /* What a report cannot show is told; of ranks that are not there nothing is. */
    feed(&s, "{\"event\":\"stragglers\",\"ranks\":[{\"rank\":2,\"factor\":3,\"beyond\":"
             "\"forecast\"},{\"rank\":3,\"factor\":9,\"beyond\":\"forecast\"},{\"rank\":-1,"
             "\"factor\":9,\"beyond\":\"forecast\"},{\"rank\":0,\"beyond\":\"forecast\"},7]}");
    assert_true(s.ranks[2].factor == 3 && s.ranks[0].factor == 1);
    text = run_view_text(&s, &view);
    assert_contains(text, "straggler: rank 2 (c) computes 3.00 times as long as stage 1's forecast");
    assert_contains(text, "straggler: rank 1 (b) computes 2.00 times as long as stage 0's median");
    free(text);
    run_state_clear(&s);
    (void)state;
}

static void a_resumed_run_forgets_the_steps_that_it_does_again(void **state)
{
    struct run_state s;

    run_state_init(&s);
    feed(&s, "{\"event\":\"start\",\"first_step\":1,\"steps\":9}");
    for (int i = 1; i <= 6; i++) {
        char line[64];

        snprintf(line, sizeof(line), "{\"step\":%d,\"loss\":%d}", i, 10 - i);
        feed(&s, line);
    }
    assert_true(s.best == 4);
    feed(&s, "{\"event\":\"failed\",\"error\":\"x\"}");
    assert_true(run_state_over(&s));
    feed(&s, "{\"event\":\"start\",\"first_step\":4,\"steps\":9}");
    assert_int_equal(s.phase, RUN_STARTING);
    assert_int_equal(s.step, 3);
    assert_int_equal(s.n_points, 3);
    assert_true(s.best == 7 && s.best_step == 3);
    feed(&s, "{\"event\":\"end\",\"outcome\":\"done\"}");
    assert_int_equal(s.phase, RUN_DONE);
    run_state_clear(&s);
    (void)state;
}

static void the_curve_of_a_long_run_keeps_its_room_and_its_mean(void **state)
{
    struct run_state s;
    double sum = 0;

    run_state_init(&s);
    for (int i = 1; i <= 64 * RUN_POINTS; i++) {
        char line[64];

        snprintf(line, sizeof(line), "{\"step\":%d,\"loss\":%d}", i, i % 2);
        feed(&s, line);
    }
    assert_true(s.n_points <= RUN_POINTS && s.n_points >= RUN_POINTS / 2);
    for (int i = 0; i < s.n_points; i++)
        sum += s.points[i].loss;
    assert_true(fabs(sum / s.n_points - 0.5) < 1e-9);
    assert_int_equal(s.points[s.n_points - 1].step, 64 * RUN_POINTS);
    run_state_clear(&s);
    (void)state;
}

static void what_is_left_counts_the_pauses(void **state)
{
    struct run_state s;

    run_state_init(&s);
    feed(&s, "{\"event\":\"start\",\"first_step\":1,\"steps\":12}");
    assert_true(isnan(run_state_left(&s)));
    feed(&s, "{\"step\":1,\"loss\":1,\"seconds\":9,\"samples_per_second\":1}");
    feed(&s, "{\"step\":2,\"loss\":1,\"seconds\":2,\"samples_per_second\":4}");
    feed(&s, "{\"step\":3,\"loss\":1,\"seconds\":2,\"samples_per_second\":4}");
    feed(&s, "{\"event\":\"evaluation\",\"step\":2,\"loss\":1,\"seconds\":3}");
    assert_true(run_state_rate(&s) == 4);
    assert_true(run_state_left(&s) == 9 * (2 + 1));
    run_state_clear(&s);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_that_comes_in_pieces_says_what_the_whole_says),
        cmocka_unit_test(the_last_line_counts_when_it_is_complete),
        cmocka_unit_test(a_truncated_or_replaced_file_is_read_anew),
        cmocka_unit_test(hostile_lines_are_counted_and_the_first_is_named),
        cmocka_unit_test(huge_numbers_and_wrong_types_are_shown_without_harm),
        cmocka_unit_test(nothing_in_a_log_commands_the_terminal),
        cmocka_unit_test(no_view_is_larger_than_the_terminal),
        cmocka_unit_test(a_replica_that_computes_longer_is_a_straggler),
        cmocka_unit_test(a_resumed_run_forgets_the_steps_that_it_does_again),
        cmocka_unit_test(the_curve_of_a_long_run_keeps_its_room_and_its_mean),
        cmocka_unit_test(what_is_left_counts_the_pauses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
