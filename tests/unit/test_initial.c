/* SPDX-License-Identifier: MIT */
/* What parameters start from where the model has no weights. */
#include "unit.h"

#include <math.h>

#include "graph/model.h"
#include "onnx_text.h"
#include "train/initial.h"

static const char network[] =
    "opset 18\n input ids int64 batch,6\n input image float batch,3,8,8\n"
    " absent table float 50,16\n absent places float 6,16\n absent w float 64,16\n"
    " absent b float 64\n absent scale float 64\n absent shift float 64\n"
    " absent v float 64,8\n absent vb float 8\n absent k float 16,3,3,3\n absent kb float 16\n"
    " absent bn.w float 16\n absent bn.b float 16\n absent bn.m float 16\n"
    " absent bn.v float 16\n absent slope float 16,1,1\n absent free float 8\n"
    " node Gather table,ids -> e\n node Add e,places -> p\n node Transpose w -> wt perm=[1,0]\n"
    " node MatMul p,wt -> h\n node Add h,b -> hb\n"
    " node LayerNormalization hb,scale,shift -> n axis=-1\n node MatMul n,v -> o\n"
    " node Add vb,o -> o2\n node Mul o2,free -> o3\n"
    " node Conv image,k,kb -> c\n"
    " node BatchNormalization c,bn.w,bn.b,bn.m,bn.v -> cn,m2,v2 training_mode=1\n"
    " node PRelu cn,slope -> r\n node GlobalAveragePool r -> g\n node Flatten g -> f\n"
    " output o3\n output f\n";

struct scene {
    char path[600];
    struct model *model;
    struct graph *graph;
    struct initial *initial;
};

static const struct value *value(const struct scene *s, const char *name)
{
    int v = graph_find_value(s->graph, name);

    if (v < 0)
        fail_msg("no value %s", name);
    return &s->graph->values[v];
}

static void open_scene(struct scene *s, bool fuse)
{
    struct model_options options = { .batch = 3, .real = DTYPE_F64, .fuse = fuse,
                                     .no_loss = true };
    struct err err = { 0 };

    snprintf(s->path, sizeof(s->path), "%s/model.onnx", unit_directory());
    onnx_write_text(s->path, network);
    s->model = model_open(s->path, &err);
    s->graph = s->model ? model_build(s->model, &options, &err) : NULL;
    s->initial = s->graph ? initial_new(s->model, &options, NULL, true, &err) : NULL;
    if (!s->initial)
        fail_msg("%s", err.text);
}

static void close_scene(struct scene *s)
{
    initial_free(s->initial);
    graph_free(s->graph);
    model_close(s->model);
    unlink(s->path);
    *strrchr(s->path, '/') = '\0';
    rmdir(s->path);
}

static double *filled(const struct scene *s, const char *name, uint64_t seed)
{
    const struct value *v = value(s, name);
    size_t n = (size_t)shape_elements(&v->shape);
    double *x = calloc(n + 1, sizeof(*x));
    struct err err = { 0 };

    assert_non_null(x);
    x[n] = 7;
    /* In two pieces, where there is more than one. */
    if (initial_read(s->initial, seed, v, 0, n < 4 ? n : 4, x, &err) ||
        (n > 4 && initial_read(s->initial, seed, v, 4, n - 4, x + 4, &err)))
        fail_msg("%s", err.text);
    assert_true(x[n] == 7);
    return x;
}

static void all_are(const struct scene *s, const char *name, double wanted)
{
    double *x = filled(s, name, 1);

    for (int64_t i = 0; i < shape_elements(&value(s, name)->shape); i++)
        if (x[i] != wanted)
            fail_msg("%s[%d] is %g, not %g", name, (int)i, x[i], wanted);
    free(x);
}

/* The largest of n uniform numbers lies above (1 - 20/n) of the bound but for one case in 10^8. */
static void within(const struct scene *s, const char *name, double bound)
{
    int64_t n = shape_elements(&value(s, name)->shape);
    double *x = filled(s, name, 1), largest = 0;

    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(x[i]));
    if (largest > bound || (n > 40 && largest < bound * (1 - 20.0 / (double)n)))
        fail_msg("%s: the largest is %g, the bound %g", name, largest, bound);
    free(x);
}

static void deviates_by(const struct scene *s, const char *name, double deviation)
{
    int64_t n = shape_elements(&value(s, name)->shape);
    double *x = filled(s, name, 1), sum = 0, squares = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        squares += x[i] * x[i];
    }
    /* Six standard errors: of the mean 1/sqrt(n), of the mean square sqrt(2/n). */
    assert_true(fabs(sum / (double)n) < 6 * deviation / sqrt((double)n));
    assert_true(fabs(squares / (double)n / deviation / deviation - 1) <
                6 * sqrt(2.0 / (double)n));
    free(x);
}

static void each_role_has_its_rule(void **state)
{
    struct scene s;

    (void)state;
    open_scene(&s, true);
    deviates_by(&s, "table", 1);
    deviates_by(&s, "places", 0.02);
    within(&s, "w", 1 / sqrt(16));
    within(&s, "b", 1 / sqrt(16));
    within(&s, "v", 1 / sqrt(64));
    within(&s, "vb", 1 / sqrt(64));
    within(&s, "k", 1 / sqrt(27));
    within(&s, "kb", 1 / sqrt(27));
    all_are(&s, "scale", 1);
    all_are(&s, "shift", 0);
    all_are(&s, "bn.w", 1);
    all_are(&s, "bn.b", 0);
    all_are(&s, "bn.m", 0);
    all_are(&s, "bn.v", 1);
    all_are(&s, "slope", 0.25);
    all_are(&s, "free", 1);
    close_scene(&s);
}

static void numbers_follow_from_seed_and_name(void **state)
{
    struct scene fused, plain;
    double *x, *y, *z, *other;

    (void)state;
    open_scene(&fused, true);
    open_scene(&plain, false);
    x = filled(&fused, "w", 1);
    y = filled(&plain, "w", 1);
    z = filled(&fused, "w", 2);
    other = filled(&fused, "v", 1);
    assert_memory_equal(x, y, 1024 * sizeof(*x));
    assert_true(x[0] != z[0] && x[1] != z[1]);
    /* Names tell apart what has the same size. */
    assert_true(x[0] / other[0] != 2 && x[1] / other[1] != 2);
    free(x);
    free(y);
    free(z);
    free(other);
    close_scene(&plain);
    close_scene(&fused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_role_has_its_rule),
        cmocka_unit_test(numbers_follow_from_seed_and_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
