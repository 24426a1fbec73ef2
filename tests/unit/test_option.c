/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "unit.h"

#include "base/option.h"
#include "train/optimizer.h"

static struct options *parse(enum command_id command, struct err *err, ...)
{
    char *argv[32] = { (char *)(uintptr_t)"command" };
    int argc = 1;
    va_list args;

    va_start(args, err);
    while ((argv[argc] = va_arg(args, char *)))
        argc++;
    va_end(args);
    return options_parse(command, argc, argv, 2, err);
}

static void expect_usage(enum command_id command, const char *a, const char *b,
                         const char *part)
{
    struct err err = { 0 };

    assert_null(parse(command, &err, a, b, NULL));
    assert_int_equal(err.code, EXIT_USAGE);
    assert_contains(err.text, part);
}

static void all_forms_of_an_option_are_read(void **state)
{
    struct err err = { 0 };
    struct options *o = parse(COMMAND_PLAN, &err, "-qo", "a.json", "--stages=3", "--replicas",
                              "2,1", "--no-fuse", "m.onnx", "--", "-x", NULL);
    int64_t stages;
    int n, *replicas;

    assert_non_null(o);
    assert_string_equal(option_string(o, "output", ""), "a.json");
    assert_true(option_flag(o, "quiet", false));
    assert_false(option_flag(o, "fuse", true));
    assert_int_equal(option_int(o, "stages", 1, 9, 0, &stages, &err), 0);
    assert_int_equal(stages, 3);
    assert_int_equal(option_ints(o, "replicas", 1, 9, &n, &replicas, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(replicas[0], 2);
    assert_int_equal(replicas[1], 1);
    free(replicas);
    assert_int_equal(options_operands(o), 2);
    assert_string_equal(options_operand(o, 1), "-x");
    assert_null(options_operand(o, 2));
    options_free(o);
    (void)state;
}

static void an_option_may_mean_something_without_its_word(void **state)
{
    static const struct { const char *argv[3], *value; } forms[] = {
        { { "--measure", NULL }, "full" },
        { { "--measure", "--check", NULL }, "full" },
        { { "--measure", "none", NULL }, "none" },
        { { "--measure=quick", "--check", NULL }, "quick" },
    };

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct err err = { 0 };
        struct options *o = parse(COMMAND_TOPO, &err, forms[i].argv[0], forms[i].argv[1],
                                  NULL);

        assert_non_null(o);
        assert_string_equal(option_string(o, "measure", ""), forms[i].value);
        assert_int_equal(options_operands(o), 0);
        options_free(o);
    }
    (void)state;
}

static void a_mistyped_option_is_refused_with_the_nearest_one(void **state)
{
    expect_usage(COMMAND_TRAIN, "--lrr=1", NULL, "did you mean --lr?");
    expect_usage(COMMAND_TRAIN, "--no-shufle", NULL, "did you mean --shuffle?");
    expect_usage(COMMAND_TRAIN, "--check", NULL, "did you mean --checkpoint?");
    expect_usage(COMMAND_TRAIN, "--zzzzzzzz", NULL, "unknown option --zzzzzzzz");
    expect_usage(COMMAND_TOPO, "--lr", "1", "unknown option --lr");
    expect_usage(COMMAND_TRAIN, "-x", NULL, "unknown option -x");
    (void)state;
}

static void wrong_use_of_an_option_is_refused(void **state)
{
    expect_usage(COMMAND_TRAIN, "--lr", NULL, "--lr: expected X");
    expect_usage(COMMAND_TRAIN, "--resume=1", NULL, "--resume: takes no argument");
    expect_usage(COMMAND_TRAIN, "--no-lr", NULL, "unknown option --no-lr");
    expect_usage(COMMAND_PLAN, "-o", NULL, "-o: expected FILE");
    (void)state;
}

static void too_many_operands_are_refused(void **state)
{
    struct err err = { 0 };

    assert_null(parse(COMMAND_PLAN, &err, "a", "b", "c", NULL));
    assert_contains(err.text, "unexpected operand \"c\"");
    assert_int_equal(err.code, EXIT_USAGE);
    (void)state;
}

static void numbers_are_strict(void **state)
{
    static const char *const bad[] = { "", "x", "1x", " 1", "+1", "0x10", "inf", "nan", "1e999",
                                       "11", "-1", "1,2" };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = { 0 };
        struct options *o = parse(COMMAND_TRAIN, &err, "--lr", bad[i], "--seed", bad[i], NULL);
        double number = 7;
        int64_t integer = 7;

        assert_non_null(o);
        assert_int_equal(option_number(o, "lr", 0, 10, 0, &number, &err), -1);
        assert_contains(err.text, "--lr: expected a number from 0 to 10, got \"");
        assert_int_equal(option_int(o, "seed", 0, 10, 0, &integer, &err), -1);
        assert_contains(err.text, "--seed: expected an integer from 0 to 10, got \"");
        assert_int_equal(err.code, EXIT_USAGE);
        assert_true(number == 7 && integer == 7);
        options_free(o);
    }
    (void)state;
}

static double size_of(const char *text)
{
    struct err err = { 0 };
    struct options *o = parse(COMMAND_PLAN, &err, "--memory", text, NULL);
    double size = -1;

    if (option_size(o, "memory", 1, 0, &size, &err))
        assert_contains(err.text, "--memory: expected a size");
    options_free(o);
    return size;
}

static void sizes_take_binary_and_decimal_suffixes(void **state)
{
    assert_true(size_of("100") == 100);
    assert_true(size_of("1e6") == 1e6);
    assert_true(size_of("2K") == 2048);
    assert_true(size_of("2KiB") == 2048);
    assert_true(size_of("2kB") == 2000);
    assert_true(size_of("1.5M") == 1.5 * 1024 * 1024);
    assert_true(size_of("16GB") == 16e9);
    assert_true(size_of("1T") == 0x1p40);
    assert_true(size_of("-1") == -1);
    assert_true(size_of("0") == -1);
    assert_true(size_of("1Q") == -1);
    assert_true(size_of("1KK") == -1);
    assert_true(size_of("1e30") == -1);
    (void)state;
}

static void lists_are_strict(void **state)
{
    static const char *const bad[] = { "", "1,", ",1", "1,,2", "1;2", "0,1", "a" };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = { 0 };
        struct options *o = parse(COMMAND_PLAN, &err, "--replicas", bad[i], NULL);
        int n = 0, *values = NULL;

        assert_int_equal(option_ints(o, "replicas", 1, 8, &n, &values, &err), -1);
        assert_null(values);
        options_free(o);
    }
    (void)state;
}

static void a_word_must_be_one_of_the_list(void **state)
{
    struct err err = { 0 };
    struct options *o = parse(COMMAND_TRAIN, &err, "--schedule", "1f1b", "--optimizer", "adamx",
                              NULL);
    int index = -1;

    assert_int_equal(option_word(o, "schedule", &index, &err), 0);
    assert_int_equal(index, 1);
    assert_int_equal(option_word(o, "optimizer", &index, &err), -1);
    assert_string_equal(err.text, "--optimizer: expected sgd, momentum, nesterov, adam, "
                                  "adamw, lars or lamb, got \"adamx\"");
    assert_int_equal(option_word(o, "precision", &index, &err), 0);
    assert_int_equal(index, 0);
    options_free(o);
    (void)state;
}

static void a_span_is_in_steps_or_epochs(void **state)
{
    static const char *const wrong[] = { "-1", "0", "2.5", "3 epochs", "4weeks", "epochs", "5epochss" };
    struct err err = { 0 };
    struct options *o = parse(COMMAND_TRAIN, &err, "--warmup", "7", "--lr-every", "3epochs",
                              "--lr-length", "1step", NULL);
    struct span span = { 0 }, def = { 30, true };

    assert_int_equal(option_span(o, "warmup", 0, def, &span, &err), 0);
    assert_true(span.n == 7 && !span.epochs);
    assert_int_equal(option_span(o, "lr-every", 1, def, &span, &err), 0);
    assert_true(span.n == 3 && span.epochs);
    assert_int_equal(option_span(o, "lr-length", 1, def, &span, &err), 0);
    assert_true(span.n == 1 && !span.epochs);
    assert_int_equal(option_span(o, "eval-every", 1, def, &span, &err), 0);
    assert_true(span.n == 30 && span.epochs);
    options_free(o);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        o = parse(COMMAND_TRAIN, &err, "--lr-every", wrong[i], NULL);
        assert_int_equal(option_span(o, "lr-every", 1, def, &span, &err), -1);
        assert_non_null(strstr(err.text, "--lr-every: expected a number of steps, at least 1"));
        options_free(o);
    }
    (void)state;
}

static void a_period_is_in_seconds_or_steps(void **state)
{
    static const char *const wrong[] = { "-1", "2.5steps", "50 steps", "3epochs", "steps", "1e10" };
    static const struct {
        const char *text;
        double n;
        bool steps;
    } right[] = { { "0.5", 0.5, false }, { "50steps", 50, true }, { "1step", 1, true }, { "0", 0, false } };
    struct period period = { 0, false }, def = { 30, false };
    struct err err = { 0 };
    struct options *o = parse(COMMAND_TRAIN, &err, NULL);

    assert_int_equal(option_period(o, "report-every", def, &period, &err), 0);
    assert_true(period.n == 30 && !period.steps);
    options_free(o);
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        o = parse(COMMAND_TRAIN, &err, "--report-every", right[i].text, NULL);
        assert_int_equal(option_period(o, "report-every", def, &period, &err), 0);
        assert_true(period.n == right[i].n && period.steps == right[i].steps);
        options_free(o);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        o = parse(COMMAND_TRAIN, &err, "--report-every", wrong[i], NULL);
        assert_int_equal(option_period(o, "report-every", def, &period, &err), -1);
        assert_non_null(strstr(err.text, "--report-every: expected a number of seconds, at least 0"));
        options_free(o);
    }
    (void)state;
}

static void optimizers_are_listed_in_the_order_of_their_kinds(void **state)
{
    for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_LAMB; kind++) {
        const char *name = optimizer_name((enum optimizer_kind)kind);
        struct err err = { 0 };
        struct options *o = parse(COMMAND_TRAIN, &err, "--optimizer", name, NULL);
        int index = -1;

        assert_int_equal(option_word(o, "optimizer", &index, &err), 0);
        assert_int_equal(index, kind);
        options_free(o);
    }
    (void)state;
}

static void an_option_beats_the_environment(void **state)
{
    struct err err = { 0 };
    struct options *o;
    int64_t n;

    setenv("TASUKI_GLOBAL_BATCH", "8", 1);
    setenv("TASUKI_SHUFFLE", "no", 1);
    o = parse(COMMAND_TRAIN, &err, "--global-batch", "16", NULL);
    assert_non_null(o);
    assert_int_equal(option_int(o, "global-batch", 1, 99, 0, &n, &err), 0);
    assert_int_equal(n, 16);
    assert_false(option_flag(o, "shuffle", true));
    assert_int_equal(option_origin(o, "shuffle"), OPTION_ENVIRONMENT);
    options_free(o);

    setenv("TASUKI_GLOBAL_BATCH", "x", 1);
    o = parse(COMMAND_TRAIN, &err, NULL);
    assert_int_equal(option_int(o, "global-batch", 1, 99, 0, &n, &err), -1);
    assert_contains(err.text, "TASUKI_GLOBAL_BATCH: expected");
    options_free(o);

    setenv("TASUKI_SHUFFLE", "maybe", 1);
    assert_null(parse(COMMAND_TRAIN, &err, NULL));
    assert_contains(err.text, "TASUKI_SHUFFLE: expected yes or no, got \"maybe\"");
    unsetenv("TASUKI_GLOBAL_BATCH");
    unsetenv("TASUKI_SHUFFLE");
    (void)state;
}

static void an_option_that_may_be_repeated_keeps_all_values(void **state)
{
    struct err err = { 0 };
    struct options *o = parse(COMMAND_PLAN, &err, "--cost=a", "--cost", "b", "--stages=1",
                              "--stages=2", NULL);
    const char *const *values;

    assert_int_equal(option_strings(o, "cost", &values), 2);
    assert_string_equal(values[0], "a");
    assert_string_equal(values[1], "b");
    assert_int_equal(option_strings(o, "stages", &values), 1);
    assert_string_equal(values[0], "2");
    options_free(o);
    (void)state;
}

#ifdef HAVE_INIH
static void user_file_is_read_and_named_in_errors(void **state)
{
    char *directory = unit_directory(), path[600];
    struct err err = { 0 };
    struct options *o;
    double lr;

    snprintf(path, sizeof(path), "%s/tasuki.conf", directory);
    setenv("XDG_CONFIG_HOME", directory, 1);
    unit_write(path, "# mine\nlr = abc\nbatch-size = 3\n");
    o = parse(COMMAND_TRAIN, &err, NULL);
    assert_non_null(o);
    assert_int_equal(option_number(o, "lr", 0, 1, 0, &lr, &err), -1);
    assert_contains(err.text, "tasuki.conf:2: lr: expected a number from 0 to 1, got \"abc\"");
    options_free(o);

    unit_write(path, "\nepochz = 3\n");
    assert_null(parse(COMMAND_TRAIN, &err, NULL));
    assert_contains(err.text, "tasuki.conf:2: unknown option epochz; did you mean epochs?");
    assert_int_equal(err.code, EXIT_USAGE);

    unit_write(path, "nonsense\n");
    assert_null(parse(COMMAND_TRAIN, &err, NULL));
    assert_contains(err.text, "tasuki.conf:1: expected \"key = value\"");
    unit_write(path, "[train]\nlr = 1\n");
    assert_null(parse(COMMAND_TRAIN, &err, NULL));
    assert_contains(err.text, "sections are not used here");
    unlink(path);
    rmdir(directory);
    unsetenv("XDG_CONFIG_HOME");
    (void)state;
}

static void a_job_file_stands_in_for_the_model_and_options_win(void **state)
{
    char *directory = unit_directory(), path[600], *text;
    struct err err = { 0 };
    struct options *o;
    size_t size;
    FILE *out;
    int64_t n;

    snprintf(path, sizeof(path), "%s/job.conf", directory);
    unit_write(path, "model = net.onnx\nglobal-batch = 8\nsteps = 5\nshuffle = no\n");
    o = parse(COMMAND_TRAIN, &err, path, "--steps", "6", NULL);
    assert_non_null(o);
    assert_string_equal(options_operand(o, 0), "net.onnx");
    assert_int_equal(option_int(o, "global-batch", 1, 99, 0, &n, &err), 0);
    assert_int_equal(n, 8);
    assert_int_equal(option_int(o, "steps", 1, 99, 0, &n, &err), 0);
    assert_int_equal(n, 6);

    out = open_memstream(&text, &size);
    options_print_config(o, out);
    fclose(out);
    options_free(o);
    unit_write(path, text);
    free(text);
    o = parse(COMMAND_TRAIN, &err, path, NULL);
    assert_non_null(o);
    assert_int_equal(option_int(o, "steps", 1, 99, 0, &n, &err), 0);
    assert_int_equal(n, 6);
    assert_false(option_flag(o, "shuffle", true));
    options_free(o);
    assert_null(parse(COMMAND_TRAIN, &err, path, "more", NULL));
    assert_contains(err.text, "unexpected operand \"more\" beside the job file");

    unit_write(path, "steps = 5\n");
    assert_null(parse(COMMAND_TRAIN, &err, path, NULL));
    assert_contains(err.text, "no \"model = FILE\" in it");
    unlink(path);
    assert_null(parse(COMMAND_TRAIN, &err, path, NULL));
    assert_contains(err.text, "job.conf: no such file");
    rmdir(directory);
    (void)state;
}
#endif

static void a_command_line_is_quoted_where_a_shell_wants_it(void **state)
{
    const char *const words[] = { "plan", "net.onnx", "--freeze", "*.weight", "it's", "" };
    char *text = options_command_line(6, (char **)(uintptr_t)words);

    assert_string_equal(text, "tasuki plan net.onnx --freeze '*.weight' 'it'\\''s' ''");
    free(text);
    (void)state;
}

static bool negates(const char *name, const char *other)
{
    return strncmp(name, "no-", 3) == 0 && strcmp(name + 3, other) == 0;
}

static void every_entry_of_the_table_is_sound(void **state)
{
    const struct option_spec *a, *b;

    for (int i = 0; (a = option_at(i)); i++) {
        assert_true(a->name[0] && a->help[0] && a->commands);
        assert_true(strncmp(a->name, "no-", 3) != 0 || a->argument);
        for (int j = 0; j < i && (b = option_at(j)); j++)
            if (a->commands & b->commands) {
                assert_string_not_equal(a->name, b->name);
                assert_false(negates(a->name, b->name) || negates(b->name, a->name));
                assert_true(!a->letter || a->letter != b->letter);
            }
    }
    assert_null(option_at(-1));
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_of_an_option_are_read),
        cmocka_unit_test(an_option_may_mean_something_without_its_word),
        cmocka_unit_test(a_mistyped_option_is_refused_with_the_nearest_one),
        cmocka_unit_test(wrong_use_of_an_option_is_refused),
        cmocka_unit_test(too_many_operands_are_refused),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(sizes_take_binary_and_decimal_suffixes),
        cmocka_unit_test(lists_are_strict),
        cmocka_unit_test(a_word_must_be_one_of_the_list),
        cmocka_unit_test(a_span_is_in_steps_or_epochs),
        cmocka_unit_test(a_period_is_in_seconds_or_steps),
        cmocka_unit_test(optimizers_are_listed_in_the_order_of_their_kinds),
        cmocka_unit_test(an_option_beats_the_environment),
        cmocka_unit_test(an_option_that_may_be_repeated_keeps_all_values),
#ifdef HAVE_INIH
        cmocka_unit_test(user_file_is_read_and_named_in_errors),
        cmocka_unit_test(a_job_file_stands_in_for_the_model_and_options_win),
#endif
        cmocka_unit_test(a_command_line_is_quoted_where_a_shell_wants_it),
        cmocka_unit_test(every_entry_of_the_table_is_sound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
