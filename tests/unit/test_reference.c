/* SPDX-License-Identifier: MIT */
/* What of the reference backend depends on the step: statistics, dropout, optimizers. */
#include "unit.h"

#include <math.h>

#include "graph/op.h"
#include "kernels/philox.h"
#include "run_graph.h"
#include "train/stepping.h"

static int add(struct graph *graph, enum value_kind kind, struct shape shape,
               struct batch batch)
{
    return graph_add_value(graph, NULL, kind, DTYPE_F64, &shape, batch);
}

static struct run_graph *start(struct graph *graph)
{
    struct err err = { 0 };
    struct run_graph *run = run_graph_new(backend_find("reference"), graph, &err);

    if (!run)
        fail_msg("%s", err.text);
    return run;
}

static void run_all(struct run_graph *run)
{
    struct err err = { 0 };

    if (run_graph_nodes(run, 0, run->n_nodes, &err))
        fail_msg("%s", err.text);
}

/* BatchNorm --------------------------------------------------------------------------- */

enum { CHANNELS = 2, SAMPLES = 12 };

static double sample(int s, int c)
{
    return sin(1 + 3 * s + 0.7 * c) + 0.1 * s;
}

/* Run samples first … first+n-1 of 12 and add their parts of the statistics. */
static void run_share(int first, int n, int group, double mean[2], double variance[2])
{
    struct graph *graph = graph_new(n, DTYPE_F64);
    struct shape channels = { 1, { CHANNELS } };
    struct batch none = { 0 };
    double x[SAMPLES * CHANNELS], ones[] = { 1, 1 }, zeros[] = { 0, 0 }, part[2];
    struct err err = { 0 };
    int ids[5], node;
    struct run_graph *run;

    graph->batchnorm_samples = group;
    ids[0] = add(graph, VALUE_INPUT, (struct shape){ 2, { n, CHANNELS } },
                 (struct batch){ 1, CHANNELS, 1 });
    for (int i = 1; i < 5; i++)
        ids[i] = add(graph, i < 3 ? VALUE_PARAM : VALUE_STAT, channels, none);
    node = op_append(graph, "bn", "BatchNormalization", 5, ids, 1, &err);
    assert_true(node >= 0);
    run = start(graph);
    run->state.global_batch = SAMPLES;
    run->state.first_sample = first;
    for (int s = 0; s < n; s++)
        for (int c = 0; c < CHANNELS; c++)
            x[s * CHANNELS + c] = sample(first + s, c);
    run_graph_set(run, ids[0], x);
    run_graph_set(run, ids[1], ones);
    run_graph_set(run, ids[2], zeros);
    run_graph_set(run, ids[3], zeros);
    run_graph_set(run, ids[4], ones);
    run_all(run);
    run_graph_get(run, graph->nodes[node].outputs[1], part);
    for (int c = 0; c < CHANNELS; c++)
        mean[c] += part[c];
    run_graph_get(run, graph->nodes[node].outputs[2], part);
    for (int c = 0; c < CHANNELS; c++)
        variance[c] += part[c];
    run_graph_free(run);
    graph_free(graph);
}

/* The moving average as PyTorch takes it, one group after the other. */
static void running_statistics_are_the_moving_average_over_groups(void **state)
{
    const double m = 0.1;
    double mean[2] = { 0.3, -0.2 }, variance[2] = { 1.5, 0.7 };
    double parts[2] = { 0 }, squares[2] = { 0 };
    const double old[2] = { 0.3, -0.2 }, old_variance[2] = { 1.5, 0.7 };

    (void)state;
    for (int g = 0; g < SAMPLES / 2; g++)
        for (int c = 0; c < CHANNELS; c++) {
            double a = sample(2 * g, c), b = sample(2 * g + 1, c), mu = (a + b) / 2;

            mean[c] = (1 - m) * mean[c] + m * mu;
            variance[c] = (1 - m) * variance[c] +
                          m * ((a - mu) * (a - mu) + (b - mu) * (b - mu));
        }
    /* Shares of 2, 6 and 4 samples, in any order. */
    run_share(8, 4, 2, parts, squares);
    run_share(0, 2, 2, parts, squares);
    run_share(2, 6, 2, parts, squares);
    for (int c = 0; c < CHANNELS; c++) {
        double decay = pow(1 - m, SAMPLES / 2);

        assert_true(fabs(decay * old[c] + parts[c] - mean[c]) < 1e-14);
        assert_true(fabs(decay * old_variance[c] + squares[c] - variance[c]) < 1e-14);
    }
}

/* Dropout ------------------------------------------------------------------------------ */

enum { WIDTH = 50 };

static void drop(int first, int n, uint64_t seed, int64_t step, bool training, double *y)
{
    struct graph *graph = graph_new(n, DTYPE_F64);
    double x[2 * SAMPLES * WIDTH];
    struct err err = { 0 };
    int v = add(graph, VALUE_INPUT, (struct shape){ 3, { 2, n, WIDTH } },
                (struct batch){ 2, WIDTH, 2 });
    int node = op_append(graph, "drop", "Dropout", 1, &v, 1, &err);
    struct run_graph *run;

    graph_set_float(graph, node, "ratio", 0.25);
    run = start(graph);
    run->state = (struct step_state){ .seed = seed, .step = step, .first_sample = first,
                                      .training = training };
    for (int i = 0; i < 2 * n * WIDTH; i++)
        x[i] = 1;
    run_graph_set(run, v, x);
    run_all(run);
    run_graph_get(run, graph->nodes[node].outputs[0], y);
    run_graph_free(run);
    graph_free(graph);
}

static void dropout_does_not_depend_on_the_shares(void **state)
{
    double whole[2 * SAMPLES * WIDTH], part[2 * SAMPLES * WIDTH];

    (void)state;
    drop(0, SAMPLES, 5, 2, true, whole);
    drop(3, 7, 5, 2, true, part);
    for (int o = 0; o < 2; o++)
        for (int s = 0; s < 7; s++)
            for (int i = 0; i < WIDTH; i++)
                assert_true(part[(o * 7 + s) * WIDTH + i] ==
                            whole[(o * SAMPLES + 3 + s) * WIDTH + i]);
}

static void dropout_keeps_its_ratio_and_changes_with_seed_and_step(void **state)
{
    double a[2 * SAMPLES * WIDTH], b[2 * SAMPLES * WIDTH], c[2 * SAMPLES * WIDTH];
    int n = 2 * SAMPLES * WIDTH, dropped = 0, same_step = 0, same_seed = 0;

    (void)state;
    drop(0, SAMPLES, 5, 2, true, a);
    drop(0, SAMPLES, 5, 3, true, b);
    drop(0, SAMPLES, 6, 2, true, c);
    for (int i = 0; i < n; i++) {
        assert_true(a[i] == 0 || fabs(a[i] - 1 / 0.75) < 1e-15);
        dropped += a[i] == 0;
        same_step += (a[i] == 0) == (b[i] == 0);
        same_seed += (a[i] == 0) == (c[i] == 0);
    }
    /* Means 300, 750, 750 of 1200; six standard deviations are 90 and 101. */
    assert_in_range(dropped, 210, 390);
    assert_in_range(same_step, 649, 851);
    assert_in_range(same_seed, 649, 851);
    drop(0, SAMPLES, 5, 2, false, a);
    for (int i = 0; i < n; i++)
        assert_true(a[i] == 1);
}

/* Known answers of the authors' Random123 distribution. */
static void philox_gives_the_published_numbers(void **state)
{
    struct philox zero = philox_draw(0, (struct philox){ { 0, 0, 0, 0 } });
    struct philox ones = philox_draw(UINT64_MAX, (struct philox){ { ~0u, ~0u, ~0u, ~0u } });
    const struct philox digits = { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 } };
    struct philox pi = philox_draw(0x299f31d0a4093822u, digits);

    (void)state;
    assert_int_equal(zero.word[0], 0x6627e8d5);
    assert_int_equal(zero.word[3], 0x9b00dbd8);
    assert_int_equal(ones.word[0], 0x408f276d);
    assert_int_equal(ones.word[3], 0x6d5451fd);
    assert_int_equal(pi.word[0], 0xd16cfe09);
    assert_int_equal(pi.word[3], 0x24126ea1);
}

/* Optimizers ---------------------------------------------------------------------------- */

static double two_steps(const struct optimizer_args *base)
{
    const struct backend *backend = backend_find("reference");
    struct optimizer_args args = *base;
    double p = 1, g[] = { 0.5, -0.25 }, m = 0, v = 0;
    struct err err = { 0 };
    struct ranges *one = backend->ranges_new(NULL, &(struct range){ .n = 1, .decay = 1 }, 1, &err);

    args.dtype = DTYPE_F64;
    for (args.step = 1; args.step <= 2; args.step++)
        assert_int_equal(backend->optimize(NULL, &args, one,
                                           &(struct range_arrays){ &p, &g[args.step - 1], &m, &v },
                                           2, NULL, &err), 0);
    backend->ranges_free(one);
    return p;
}

/* By hand: gradients 1 and -0.5 after scaling, lr 0.1, weight decay 0.01. */
static void optimizers_follow_their_formulas(void **state)
{
    struct optimizer_args a = { .lr = 0.1, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.99,
                                .epsilon = 1e-8, .weight_decay = 0.01 };
    double p1, g1, g2, b2;

    (void)state;
    a.kind = OPTIMIZER_SGD;
    p1 = 1 - 0.1 * 1.01;
    assert_true(fabs(two_steps(&a) - (p1 - 0.1 * (-0.5 + 0.01 * p1))) < 1e-15);
    a.kind = OPTIMIZER_MOMENTUM;
    g2 = -0.5 + 0.01 * p1;
    assert_true(fabs(two_steps(&a) - (p1 - 0.1 * (0.9 * 1.01 + g2))) < 1e-15);
    a.kind = OPTIMIZER_NESTEROV;
    p1 = 1 - 0.1 * (1.01 + 0.9 * 1.01);
    g2 = -0.5 + 0.01 * p1;
    b2 = 0.9 * 1.01 + g2;
    assert_true(fabs(two_steps(&a) - (p1 - 0.1 * (g2 + 0.9 * b2))) < 1e-15);
    a.kind = OPTIMIZER_ADAM;
    g1 = 1.01;
    p1 = 1 - 0.1 * g1 / (g1 + 1e-8);
    g2 = -0.5 + 0.01 * p1;
    assert_true(fabs(two_steps(&a) -
                     (p1 - 0.1 * ((0.09 * g1 + 0.1 * g2) / 0.19) /
                               (sqrt((0.0099 * g1 * g1 + 0.01 * g2 * g2) / 0.0199) + 1e-8))) <
                1e-12);
    a.kind = OPTIMIZER_ADAMW;
    p1 = 0.999 - 0.1 / (1 + 1e-8);
    assert_true(fabs(two_steps(&a) -
                     (0.999 * p1 - 0.1 * ((0.09 - 0.05) / 0.19) /
                                       (sqrt((0.0099 + 0.0025) / 0.0199) + 1e-8))) < 1e-12);
}

/* A step of two numbers by LARS or LAMB, gradients doubled. */
static void adaptive_step(const struct optimizer_args *args, bool decays, double p[2])
{
    const double g[2] = { 0.15, 0.2 };
    double m[2] = { 0 }, v[2] = { 0 };
    const struct range range = { .n = 2, .decay = decays ? 1 : 0 }, tensor = { .n = decays ? 2 : 0 };
    const struct range_arrays arrays = { p, g, m, v };
    struct stepping s;
    struct err err = { 0 };

    p[0] = 3;
    p[1] = 4;
    assert_int_equal(stepping_init(&s, backend_find("reference"), NULL, NULL, 1, &range, &tensor,
                                   &err), 0);
    assert_int_equal(stepping_norms(&s, args, &arrays, 2, &err), 0);
    assert_int_equal(stepping_run(&s, args, &arrays, 2, &err), 0);
    stepping_clear(&s);
}

/* By hand: |p| = 5, |g| = 0.5. */
static void adaptive_optimizers_scale_by_norms(void **state)
{
    struct optimizer_args a = { .kind = OPTIMIZER_LARS, .dtype = DTYPE_F64, .lr = 0.5,
                                .momentum = 0.9, .trust = 0.01, .weight_decay = 0.1, .step = 1 };
    double p[2], u, r = 0.01 * 5 / (0.5 + 0.1 * 5);

    (void)state;
    adaptive_step(&a, true, p);
    assert_true(fabs(p[0] - (3 - 0.5 * r * (0.3 + 0.1 * 3))) < 1e-15);
    assert_true(fabs(p[1] - (4 - 0.5 * r * (0.4 + 0.1 * 4))) < 1e-15);
    adaptive_step(&a, false, p);
    assert_true(fabs(p[0] - (3 - 0.5 * 0.3)) < 1e-15);
    a = (struct optimizer_args){ .kind = OPTIMIZER_LAMB, .dtype = DTYPE_F64, .lr = 0.5,
                                 .beta1 = 0.9, .beta2 = 0.99, .epsilon = 0.1,
                                 .weight_decay = 0.1, .step = 1 };
    /* The first moments, bias corrected, are the gradient and its size. */
    adaptive_step(&a, true, p);
    u = hypot(0.3 / 0.4 + 0.3, 0.4 / 0.5 + 0.4);
    assert_true(fabs(p[0] - (3 - 0.5 * 5 / u * (0.3 / 0.4 + 0.3))) < 1e-13);
    assert_true(fabs(p[1] - (4 - 0.5 * 5 / u * (0.4 / 0.5 + 0.4))) < 1e-13);
    adaptive_step(&a, false, p);
    assert_true(fabs(p[0] - (3 - 0.5 * 0.3 / 0.4)) < 1e-13);
}

/* Memory -------------------------------------------------------------------------------- */

static void the_peak_counts_what_is_out_at_once(void **state)
{
    const struct backend *backend = backend_find("reference");
    struct err err = { 0 };
    struct device *device = backend->device_open(1, NULL, &err);
    void *a = backend->alloc(device, 1000, &err), *b = backend->alloc(device, 500, &err);

    (void)state;
    backend->release(device, a, 1000);
    a = backend->alloc(device, 700, &err);
    assert_int_equal(backend->peak(device), 1500);
    assert_int_equal((uintptr_t)a % 64, 0);
    backend->release(device, a, 700);
    backend->release(device, b, 500);
    backend->device_close(device);
}

static void copies_cut_an_interval_out_of_rows(void **state)
{
    const struct backend *backend = backend_find("reference");
    const char from[] = "abcdefghijkl";
    char to[] = "............";
    struct err err = { 0 };

    (void)state;
    assert_int_equal(backend->copy(NULL, to, 3, from + 1, 4, 2, 3, &err), 0);
    assert_string_equal(to, "bc.fg.jk....");
}

static void labels_out_of_range_are_an_error(void **state)
{
    struct graph *graph = graph_new(2, DTYPE_F64);
    struct shape logits = { 2, { 2, 3 } }, rows = { 1, { 2 } };
    int ids[3] = { add(graph, VALUE_INPUT, logits, (struct batch){ 1, 3, 1 }), -1, -1 };
    double x[6] = { 0 }, labels[2] = { 1, 3 };
    struct err err = { 0 };
    struct run_graph *run;

    (void)state;
    ids[1] = graph_add_value(graph, NULL, VALUE_INPUT, DTYPE_I64, &rows,
                             (struct batch){ 1, 1, 1 });
    ids[2] = add(graph, VALUE_INPUT, (struct shape){ 0, { 0 } }, (struct batch){ 0 });
    assert_true(op_append(graph, "loss", "CrossEntropySum", 3, ids, 2, &err) >= 0);
    run = start(graph);
    run_graph_set(run, ids[0], x);
    run_graph_set(run, ids[1], labels);
    assert_int_equal(run_graph_nodes(run, 0, 1, &err), -1);
    assert_contains(err.text, "label 3");
    run_graph_free(run);
    graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_statistics_are_the_moving_average_over_groups),
        cmocka_unit_test(dropout_does_not_depend_on_the_shares),
        cmocka_unit_test(dropout_keeps_its_ratio_and_changes_with_seed_and_step),
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(optimizers_follow_their_formulas),
        cmocka_unit_test(adaptive_optimizers_scale_by_norms),
        cmocka_unit_test(the_peak_counts_what_is_out_at_once),
        cmocka_unit_test(copies_cut_an_interval_out_of_rows),
        cmocka_unit_test(labels_out_of_range_are_an_error),
    };

    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
