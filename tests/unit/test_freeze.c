/* SPDX-License-Identifier: MIT */
/* Parameters that are not trained. */
#include "unit.h"

#include "graph/model.h"
#include "onnx_text.h"

/* "made" is W of the transposed copy; "table" and "half" are no parameters, by the exporter. */
static const char network[] =
    "opset 18\n input x float batch,4\n input t float batch,5\n"
    " init a.weight float 4,6\n init a.bias float 6\n init b.weight float 6,5\n"
    " init table float 6\n init half float 6\n init made float 5\n init pos float 5\n"
    " signature PARAMETER:a.weight PARAMETER:c BUFFER:table CONSTANT_TENSOR:d\n"
    " about a.weight kind PARAMETER\n about table kind BUFFER\n"
    " about half folded d,neg\n about made folded c,val_1\n about nosuch kind BUFFER\n"
    " node MatMul x,a.weight -> h1\n node Add h1,a.bias -> h2\n node Add h2,table -> h3\n"
    " node Mul h3,half -> h4\n node MatMul h4,b.weight -> h5\n node Add h5,made -> h6\n"
    " node Add h6,pos -> y\n output y\n";

static char *write_model(const char *text)
{
    static char path[600];

    snprintf(path, sizeof(path), "%s/model.onnx", unit_directory());
    onnx_write_text(path, text);
    return path;
}

static void remove_model(char *path)
{
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
}

struct scene {
    char *path;
    struct model *model;
    struct graph *graph;
    struct err err;
};

static void build(struct scene *s, const char *text, int n, const char *const *freeze)
{
    struct model_options options = { .batch = 3, .real = DTYPE_F32, .loss = "mse:y,t",
                                     .n_freeze = n, .freeze = freeze };

    *s = (struct scene){ .path = write_model(text) };
    s->model = model_open(s->path, &s->err);
    if (!s->model)
        fail_msg("%s", s->err.text);
    s->graph = model_build(s->model, &options, &s->err);
}

static void clear(struct scene *s)
{
    graph_free(s->graph);
    model_close(s->model);
    remove_model(s->path);
}

static enum value_kind kind_of(const struct scene *s, const char *name)
{
    int v = graph_find_value(s->graph, name);

    if (v < 0)
        fail_msg("no value \"%s\"", name);
    return s->graph->values[v].kind;
}

static void expect_kinds(const struct scene *s, const char *const *names, int n,
                         enum value_kind kind)
{
    for (int i = 0; i < n; i++)
        if (kind_of(s, names[i]) != kind)
            fail_msg("\"%s\" is of another kind", names[i]);
}

static bool says(const struct scene *s, const char *part)
{
    for (int i = 0; i < model_notes(s->model); i++)
        if (strstr(model_note(s->model, i), part))
            return true;
    return false;
}

static void what_the_exporter_calls_no_parameter_is_a_constant(void **state)
{
    static const char *const trained[] = { "a.weight", "a.bias", "b.weight", "made", "pos" };
    static const char *const kept[] = { "table", "half" };
    struct scene s;

    (void)state;
    build(&s, network, 0, NULL);
    if (!s.graph)
        fail_msg("%s", s.err.text);
    expect_kinds(&s, trained, 5, VALUE_PARAM);
    expect_kinds(&s, kept, 2, VALUE_CONST);
    assert_true(s.graph->values[graph_find_value(s.graph, "half")].frozen);
    clear(&s);
}

static void what_was_looked_up_in_a_parameter_is_warned_of(void **state)
{
    static const char *const patterns[] = { "made" };
    struct scene s;

    (void)state;
    build(&s, network, 0, NULL);
    if (!s.graph)
        fail_msg("%s", s.err.text);
    assert_true(says(&s, "warning: 1 initializer was computed by the exporter from parameters, "
                     "and trained in place of them: \"made\" from \"c\""));
    clear(&s);
    build(&s, network, 1, patterns);
    if (!s.graph)
        fail_msg("%s", s.err.text);
    assert_false(says(&s, "computed by the exporter"));
    clear(&s);
}

static void patterns_freeze_names_and_what_was_computed_from_them(void **state)
{
    static const char *const patterns[] = { "a.*", "c" };
    static const char *const trained[] = { "b.weight", "pos" };
    static const char *const kept[] = { "a.weight", "a.bias", "table", "half", "made" };
    struct scene s;
    int n;
    struct model_tensor_data *frozen;

    (void)state;
    build(&s, network, 2, patterns);
    if (!s.graph)
        fail_msg("%s", s.err.text);
    expect_kinds(&s, trained, 2, VALUE_PARAM);
    expect_kinds(&s, kept, 5, VALUE_CONST);
    frozen = model_frozen(s.model, 2, patterns, &n);
    assert_int_equal(n, 5);
    assert_string_equal(frozen[0].name, "a.weight");
    free(frozen);
    clear(&s);
}

static void brackets_in_a_name_match_themselves(void **state)
{
    static const char *const patterns[] = { "w[0]" };
    struct scene s;

    (void)state;
    build(&s, "opset 18\n input x float batch,4\n input t float batch,4\n"
              " init w[0] float 4,4\n init w float 4\n node MatMul x,w[0] -> h\n"
              " node Add h,w -> y\n output y\n", 1, patterns);
    if (!s.graph)
        fail_msg("%s", s.err.text);
    assert_int_equal(kind_of(&s, "w[0]"), VALUE_CONST);
    assert_int_equal(kind_of(&s, "w"), VALUE_PARAM);
    clear(&s);
}

static void a_pattern_that_matches_nothing_is_refused_with_the_nearest(void **state)
{
    static const struct { const char *pattern, *says; } cases[] = {
        { "b.wieght", "did you mean \"b.weight\"?" },
        { "tabel*", "did you mean \"table\"?" },
        { "qqqqqq", "they are \"a.weight\", \"a.bias\"" },
        { "*qq", "they are \"a.weight\", \"a.bias\"" },
        { "", "they are \"a.weight\"" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;

        build(&s, network, 1, &cases[i].pattern);
        assert_null(s.graph);
        assert_int_equal(s.err.code, EXIT_USAGE);
        assert_contains(s.err.text, "--freeze");
        assert_contains(s.err.text, cases[i].says);
        clear(&s);
    }
}

static void something_must_be_left_to_train(void **state)
{
    static const char *const all[] = { "*" };
    struct scene s;

    (void)state;
    build(&s, network, 1, all);
    assert_null(s.graph);
    assert_contains(s.err.text, "leaves nothing to train");
    clear(&s);
}

static void lists_are_alike_if_they_freeze_the_same(void **state)
{
    static const char *const a[] = { "a.*", "pos" };
    static const char *const b[] = { "pos", "a.bias", "a.weight", "table" };
    struct scene s;

    (void)state;
    build(&s, network, 0, NULL);
    assert_true(model_freezes_alike(s.model, 2, a, 4, b));
    assert_true(model_freezes_alike(s.model, 0, NULL, 1, b + 3));
    assert_false(model_freezes_alike(s.model, 2, a, 1, a));
    assert_false(model_freezes_alike(s.model, 0, NULL, 1, a));
    clear(&s);
}

/* The same file with or without the exporter's words is the same graph. */
static void the_hash_does_not_depend_on_what_the_exporter_says(void **state)
{
    char plain[sizeof(network)], hash[32];
    const char *at = network;
    size_t used = 0;
    struct scene s;

    (void)state;
    for (const char *end; *at; at = end) {
        end = at + strcspn(at, "\n");
        end += *end == '\n';
        if (strncmp(at, " about", 6) != 0 && strncmp(at, " signature", 10) != 0) {
            memcpy(plain + used, at, (size_t)(end - at));
            used += (size_t)(end - at);
        }
    }
    plain[used] = '\0';
    build(&s, network, 0, NULL);
    snprintf(hash, sizeof(hash), "%s", model_hash(s.model));
    clear(&s);
    build(&s, plain, 0, NULL);
    assert_string_equal(model_hash(s.model), hash);
    assert_int_equal(kind_of(&s, "table"), VALUE_PARAM);
    clear(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_exporter_calls_no_parameter_is_a_constant),
        cmocka_unit_test(what_was_looked_up_in_a_parameter_is_warned_of),
        cmocka_unit_test(patterns_freeze_names_and_what_was_computed_from_them),
        cmocka_unit_test(brackets_in_a_name_match_themselves),
        cmocka_unit_test(a_pattern_that_matches_nothing_is_refused_with_the_nearest),
        cmocka_unit_test(something_must_be_left_to_train),
        cmocka_unit_test(lists_are_alike_if_they_freeze_the_same),
        cmocka_unit_test(the_hash_does_not_depend_on_what_the_exporter_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
