/* SPDX-License-Identifier: MIT */
/* Every operator of the table: gradients against finite differences in double, and every
 * backend against the reference.
 */
#include "unit.h"

#include <math.h>
#include <time.h>

#include "base/mem.h"
#include "graph/autodiff.h"
#include "kernels/cuda/cuda.h"
#include "op_case.h"
#include "run_graph.h"

#define EPS32 0x1p-24
#define EPS64 0x1p-53

static uint64_t seed;
static bool covered[256];       /* by place in the operator table */

static int table_index(const struct op *op)
{
    for (int i = 0; op_at(i); i++)
        if (op_at(i) == op)
            return i;
    fail_msg("%s is not in the table", op->name);
    return -1;
}

static int64_t elements(const struct graph *graph, int v)
{
    return shape_elements(&graph->values[v].shape);
}

/* Losses ------------------------------------------------------------------------------ */

static int append(struct graph *graph, const char *op, int n, const int *inputs,
                  struct err *err)
{
    int node = op_append(graph, NULL, op, n, inputs, 1, err);

    if (node < 0)
        fail_msg("%s", err->text);
    return graph->nodes[node].outputs[0];
}

/* A random linear function of an output: its gradient is random everywhere. */
static int dot_with_target(struct op_case *c, int v)
{
    struct graph *graph = c->graph;
    struct value y = graph->values[v];
    int target = graph_add_value(graph, NULL, VALUE_INPUT, y.dtype, &y.shape, y.batch);

    while (c->n_data <= target)
        *(double **)mem_push((void **)&c->data, &c->n_data, sizeof(*c->data)) = NULL;
    c->data[target] = mem_new((size_t)shape_elements(&y.shape), sizeof(double));
    for (int64_t i = 0; i < shape_elements(&y.shape); i++)
        c->data[target][i] = case_uniform(c, -1, 1);
    return append(graph, "DotSum", 3, (int[]){ v, target, graph->weight_sum }, c->err);
}

static void add_loss(struct op_case *c)
{
    const struct op *op = c->graph->nodes[c->node].op;
    int n = strcmp(op->name, "Split") == 0 ? c->graph->nodes[c->node].n_outputs : 1, loss = -1;

    if (c->graph->loss >= 0)
        return;
    case_weight_sum(c);
    for (int i = 0; i < n; i++) {
        int part = dot_with_target(c, c->graph->nodes[c->node].outputs[i]);

        loss = loss < 0 ? part
                        : append(c->graph, "Add", 2, (int[]){ loss, part }, c->err);
    }
    c->graph->loss = loss;
}

static struct op_case *make(const struct op_kind *kind, int variant, enum dtype real,
                            struct autodiff *ad, int *n_forward)
{
    struct op_case *c = op_case_new(kind, variant, seed, real);

    memset(ad, 0, sizeof(*ad));
    if (c->gradient)
        add_loss(c);
    *n_forward = c->graph->n_nodes;
    if (c->gradient && autodiff(c->graph, NULL, 1, ad, NULL, c->err))
        fail_msg("%s, variant %d: %s", kind->op, variant, c->err->text);
    if (graph_check(c->graph, c->err))
        fail_msg("%s, variant %d: %s", kind->op, variant, c->err->text);
    return c;
}

/* 'last': of 16 bits images have their channels last, where operators take that. */
static struct run_graph *start(const char *backend, struct op_case *c, bool last)
{
    struct run_graph *run = (last ? run_graph_new_last : run_graph_new)(backend_find(backend), c->graph,
                                                                        c->err);

    if (!run)
        fail_msg("%s", c->err->text);
    run->state.step = 3;
    run->state.first_sample = 7 * c->graph->batch;
    run->state.global_batch = 9 * c->graph->batch;
    run->state.training = c->training;
    run->state.weight_sum = c->graph->weight_sum >= 0 ? 0.75 : 1;
    for (int v = 0; v < c->n_data; v++)
        if (c->data[v])
            run_graph_set(run, v, c->data[v]);
    return run;
}

static void run_nodes(struct run_graph *run, struct op_case *c, int first, int end)
{
    if (run_graph_nodes(run, first, end, c->err))
        fail_msg("%s", c->err->text);
}

/* Gradients --------------------------------------------------------------------------- */

static double loss_at(struct run_graph *run, struct op_case *c, int n_forward, int v,
                      const double *direction, double step)
{
    int64_t n = elements(c->graph, v);
    double *moved = mem_new((size_t)n, sizeof(*moved)), loss;

    for (int64_t i = 0; i < n; i++)
        moved[i] = c->data[v][i] + step * direction[i];
    run_graph_set(run, v, moved);
    run_nodes(run, c, 0, n_forward);
    run_graph_get(run, c->graph->loss, &loss);
    free(moved);
    return loss;
}

/* The size of the numbers whose sum the loss is: they set its rounding error. */
static double loss_magnitude(struct run_graph *run, struct op_case *c, int n_forward)
{
    double sum = 1;

    for (int v = 0; v < c->graph->n_values; v++) {
        int producer = c->graph->values[v].producer;
        double *x;

        if (producer >= n_forward || !dtype_is_float(c->graph->values[v].dtype))
            continue;
        x = mem_new((size_t)elements(c->graph, v), sizeof(*x));
        run_graph_get(run, v, x);
        for (int64_t i = 0; i < elements(c->graph, v); i++)
            sum += fabs(x[i]);
        free(x);
    }
    return sum;
}

/* Central differences at h and h/2: their difference bounds the truncation error of the
 * second, by about three; rounding is that of two losses over h.
 */
static void check_direction(struct run_graph *run, struct op_case *c, int n_forward, int v,
                            const double *direction, double expected, double magnitude)
{
    const double h = 0x1p-10;
    double coarse = (loss_at(run, c, n_forward, v, direction, h) -
                     loss_at(run, c, n_forward, v, direction, -h)) / (2 * h);
    double fine = (loss_at(run, c, n_forward, v, direction, h / 2) -
                   loss_at(run, c, n_forward, v, direction, -h / 2)) / h;
    double tolerance = fabs(coarse - fine) + 16 * EPS64 * magnitude / h;

    run_graph_set(run, v, c->data[v]);
    /* A step that is too long for the function would let anything pass. */
    if (!(tolerance < 1e-3 * (1 + fabs(expected))))
        fail_msg("%s, variant %d: tolerance %g is useless", c->graph->nodes[c->node].op->name,
                 c->variant, tolerance);
    if (!(fabs(fine - expected) <= tolerance))
        fail_msg("%s, variant %d (batch %d, seed %llu): gradient of \"%s\" is %.12g, "
                 "differences give %.12g (tolerance %g)",
                 c->graph->nodes[c->node].op->name, c->variant, (int)c->graph->batch,
                 (unsigned long long)seed, c->graph->values[v].name, expected, fine, tolerance);
}

/* A few single elements and one direction through all of them. */
static void check_gradient(struct run_graph *run, struct op_case *c, int n_forward, int v,
                           const double *gradient, double magnitude)
{
    int64_t n = elements(c->graph, v);
    double *direction = mem_new((size_t)n, sizeof(*direction)), expected = 0;

    for (int k = 0; k < 4 && n > 0; k++) {
        int64_t i = case_int(c, 0, (int)n - 1);

        direction[i] = 1;
        check_direction(run, c, n_forward, v, direction, gradient[i], magnitude);
        direction[i] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        direction[i] = case_uniform(c, -1, 1);
        expected += direction[i] * gradient[i];
    }
    check_direction(run, c, n_forward, v, direction, expected, magnitude);
    free(direction);
}

static int n_reals(const struct op_case *c)
{
    int n = 0;

    for (int v = 0; v < c->n_data; v++)
        n += c->data[v] && c->graph->values[v].kind == VALUE_PARAM;
    return n;
}

static void check_gradients(struct op_case *c, const struct autodiff *ad, int n_forward)
{
    struct run_graph *run = start("reference", c, false);
    double magnitude, **gradients = mem_new((size_t)ad->n_params, sizeof(*gradients));

    run_nodes(run, c, 0, c->graph->n_nodes);
    for (int n = 0; n < c->graph->n_nodes; n++)
        covered[table_index(c->graph->nodes[n].op)] = true;
    magnitude = loss_magnitude(run, c, n_forward);
    assert_int_equal(ad->n_params, c->gradient ? n_reals(c) : 0);
    for (int i = 0; i < ad->n_params; i++) {
        gradients[i] = mem_new((size_t)elements(c->graph, ad->params[i].param),
                               sizeof(**gradients));
        run_graph_get(run, ad->params[i].gradient, gradients[i]);
    }
    for (int i = 0; i < ad->n_params; i++) {
        check_gradient(run, c, n_forward, ad->params[i].param, gradients[i], magnitude);
        free(gradients[i]);
    }
    free(gradients);
    run_graph_free(run);
}

static void gradients_agree_with_differences(void **state)
{
    const struct op_kind *kind = *state;

    for (int variant = 0; variant < kind->variants; variant++) {
        struct autodiff ad;
        int n_forward;
        struct op_case *c = make(kind, variant, DTYPE_F64, &ad, &n_forward);

        check_gradients(c, &ad, n_forward);
        op_case_free(c);
    }
}

/* Backends ---------------------------------------------------------------------------- */

/* What a pool saves for its gradient is the backend's own business. */
static bool is_saved(const struct graph *graph, int v)
{
    int producer = graph->values[v].producer;

    return producer >= 0 && strcmp(graph->nodes[producer].op->name, "MaxPool") == 0 &&
           graph->nodes[producer].outputs[0] != v;
}

static double *get(const struct run_graph *run, int v)
{
    double *x = mem_new((size_t)elements(run->graph, v), sizeof(*x));

    run_graph_get(run, v, x);
    return x;
}

/* Give a node the inputs that it had in another run, each moved by up to a relative 'amount', or of
 * 'narrow' alone those that it has in 16 bits.
 */
static void move_inputs(struct run_graph *to, const struct run_graph *from, int node,
                        struct op_case *c, double amount, const struct run_graph *narrow)
{
    const struct node *n = &from->graph->nodes[node];

    for (int i = 0; i < n->n_inputs; i++) {
        int v = n->inputs[i];
        double *x;

        if (v < 0 || is_saved(from->graph, v))
            continue;
        x = get(from, v);
        if (dtype_is_float(from->graph->values[v].dtype) &&
            (!narrow || cuda_narrows_input(narrow->graph, node, i)))
            for (int64_t k = 0; amount != 0 && k < elements(from->graph, v); k++)
                x[k] *= 1 + case_uniform(c, -amount, amount);
        run_graph_set(to, v, x);
        free(x);
    }
}

static void take_inputs(struct run_graph *to, const struct run_graph *from, int node,
                        struct op_case *c, double amount)
{
    move_inputs(to, from, node, c, amount, NULL);
}

/* What is written for each output; NULL for those that are not compared. */
static double **get_outputs(const struct run_graph *run, const struct graph *graph, int node)
{
    const struct node *n = &graph->nodes[node];
    double **y = mem_new((size_t)n->n_outputs + 1, sizeof(*y));

    for (int i = 0; i < n->n_outputs; i++)
        if (n->outputs[i] >= 0 && !is_saved(graph, n->outputs[i]))
            y[i] = get(run, n->outputs[i]);
    return y;
}

static void free_outputs(double **y, int n)
{
    for (int i = 0; i < n; i++)
        free(y[i]);
    free(y);
}

/* How far one rounding of each input can move each output: what a float32 kernel may differ by,
 * times the roundings on the way, which add like a random walk, as those of a long sum do.
 */
static double *output_bounds(struct run_graph *exact, const struct run_graph *single, int node,
                             struct op_case *c)
{
    const struct node *n = &single->graph->nodes[node];
    double *spread = mem_new((size_t)n->n_outputs + 1, sizeof(*spread));
    double *largest = mem_new((size_t)n->n_outputs + 1, sizeof(*largest));
    double **y, **moved;

    take_inputs(exact, single, node, c, 0);
    run_nodes(exact, c, node, node + 1);
    y = get_outputs(exact, single->graph, node);
    /* As many that no chance of signs makes all of them small. */
    for (int trial = 0; trial < 8; trial++) {
        take_inputs(exact, single, node, c, 2 * EPS32);
        run_nodes(exact, c, node, node + 1);
        moved = get_outputs(exact, single->graph, node);
        for (int o = 0; o < n->n_outputs; o++)
            for (int64_t i = 0; y[o] && i < elements(exact->graph, n->outputs[o]); i++) {
                spread[o] = fmax(spread[o], fabs(moved[o][i] - y[o][i]));
                largest[o] = fmax(largest[o], fabs(y[o][i]));
            }
        free_outputs(moved, n->n_outputs);
    }
    free_outputs(y, n->n_outputs);
    for (int o = 0; o < n->n_outputs; o++)
        spread[o] = 32 * spread[o] + (8 + sqrt(c->terms)) * EPS32 * largest[o];
    free(largest);
    return spread;
}

#define NARROW_TOLERANCE 2.5        /* roundings, of the norm: of bfloat16 1e-2 */

/* bfloat16 has 8 bits, float16 11; below 2^-14 float16 has but multiples of 2^-24. */
static double rounding(enum dtype narrow)
{
    return narrow == DTYPE_F16 ? 0x1p-11 : 0x1p-8;
}

static double smallest_error(enum dtype narrow)
{
    return narrow == DTYPE_F16 ? 0x1p-25 : 0;
}

/* As lower.c does. */
static void give_outputs(struct graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++)
        if (strcmp(graph->nodes[n].op->name, "AttentionGrad") == 0)
            cuda_give_output(graph, n);
}

static bool runs_narrow(const struct run_graph *run, int node)
{
    const struct node *n = &run->graph->nodes[node];
    bool any = false;

    for (int i = 0; run->narrow && i < n->n_inputs; i++)
        any = any || cuda_narrows_input(run->graph, node, i);
    return any && run->narrow;
}

static double distance(const double *x, double times, const double *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (times * x[i] - y[i]) * (times * x[i] - y[i]);
    return sqrt(sum);
}

/* How far a rounding of each input to 16 bits moves an output: what an attention, whose probabilities
 * are rounded on the way, may differ by where terms cancel, by the norm.
 */
static double narrow_spread(struct run_graph *exact, const struct run_graph *single,
                            const struct run_graph *other, int node, int v, struct op_case *c)
{
    double *y, *moved, spread = 0;

    take_inputs(exact, single, node, c, 0);
    run_nodes(exact, c, node, node + 1);
    y = get(exact, v);
    for (int trial = 0; trial < 8; trial++) {
        move_inputs(exact, single, node, c, rounding(other->narrow), other);
        run_nodes(exact, c, node, node + 1);
        moved = get(exact, v);
        spread = fmax(spread, distance(y, 1, moved, elements(exact->graph, v)));
        free(moved);
    }
    free(y);
    return spread;
}

/* By the norm of the difference: 'bound' is what float32 might be off in each. */
static void compare_norms(const struct run_graph *other, const struct run_graph *single,
                          struct run_graph *exact, int node, int v, const double *x, const double *y,
                          int times, double bound, struct op_case *c)
{
    const char *op = single->graph->nodes[node].op->name;
    int64_t count = elements(other->graph, v);
    double *zero = mem_new((size_t)count + 1, sizeof(*zero));
    double norm = distance(x, times, zero, count), off = distance(x, times, y, count);
    double allowed = NARROW_TOLERANCE * rounding(other->narrow) * norm;

    free(zero);
    bound = (bound + times * smallest_error(other->narrow)) * sqrt((double)count);
    if (!(off <= allowed + bound) && strncmp(op, "Attention", strlen("Attention")) == 0)
        allowed = fmax(allowed, 2 * times * narrow_spread(exact, single, other, node, v, c));
    if (!(off <= allowed + bound))
        fail_msg("%s (in the case of %s, variant %d, batch %d, seed %llu): \"%s\" is off by %g of "
                 "its norm on %s", op, c->graph->nodes[c->node].op->name, c->variant,
                 (int)c->graph->batch, (unsigned long long)seed, other->graph->values[v].name,
                 off / norm, other->backend->name);
}

/* The other's are 'times' as large. */
static void compare_outputs(struct run_graph *other, const struct run_graph *single,
                            struct run_graph *exact, int node, int times, const double *bounds,
                            struct op_case *c)
{
    const struct node *n = &single->graph->nodes[node];

    for (int i = 0; i < n->n_outputs; i++) {
        double *x, *y, bound;
        int v = n->outputs[i];

        if (v < 0 || is_saved(single->graph, v))
            continue;
        bound = dtype_is_float(single->graph->values[v].dtype) ? times * bounds[i] : 0;
        x = get(single, v);
        y = get(other, v);
        if (bound > 0 && runs_narrow(other, node))
            compare_norms(other, single, exact, node, v, x, y, times, bound, c);
        else for (int64_t k = 0; k < elements(single->graph, v); k++)
            if (!(fabs(times * x[k] - y[k]) <= bound))
                fail_msg("%s (in the case of %s, variant %d, batch %d, seed %llu): output "
                         "%d[%d] is %.9g on %s, %d times %.9g on reference "
                         "(bound %g)",
                         n->op->name, c->graph->nodes[c->node].op->name, c->variant,
                         (int)c->graph->batch, (unsigned long long)seed, i, (int)k, y[k],
                         other->backend->name, times, x[k], bound);
        free(x);
        free(y);
    }
}

/* Compares the results of a node. A kernel that can add to its outputs then runs once more onto
 * them, which doubles them.
 */
static void compare_node(struct run_graph *other, const struct run_graph *single,
                         struct run_graph *exact, int node, struct op_case *c)
{
    double *bounds = output_bounds(exact, single, node, c);

    compare_outputs(other, single, exact, node, 1, bounds, c);
    if (other->backend->kernel_accumulates(other->kernels[node])) {
        if (run_graph_add(other, node, c->err))
            fail_msg("%s", c->err->text);
        compare_outputs(other, single, exact, node, 2, bounds, c);
    }
    free(bounds);
}

static bool takes_last(const struct graph *graph)
{
    bool any = false;

    for (int n = 0; n < graph->n_nodes; n++)
        any = any || cuda_takes_last(graph, n);
    return any;
}

static bool is_narrow(const char *backend)
{
    return strcmp(backend, "cuda-bf16") == 0 || strcmp(backend, "cuda-fp16") == 0;
}

static void compare_runs(struct op_case *c, struct op_case *twin, const char *name, bool last)
{
    struct run_graph *exact = start("reference", twin, false);
    struct run_graph *single = start("reference", c, false), *other = start(name, c, last);

    run_nodes(single, c, 0, c->graph->n_nodes);
    run_nodes(exact, twin, 0, twin->graph->n_nodes);
    for (int n = 0; n < c->graph->n_nodes; n++) {
        if (c->graph->nodes[n].op->flags & OP_VIEW)
            continue;
        if (other->narrow) {
            run_graph_round_inputs(single, n, other->narrow);
            run_nodes(single, c, n, n + 1);
        }
        take_inputs(other, single, n, c, 0);
        run_nodes(other, c, n, n + 1);
        compare_node(other, single, exact, n, c);
    }
    run_graph_free(other);
    run_graph_free(single);
    run_graph_free(exact);
}

static void compare_backend(const struct op_kind *kind, int variant, const char *name)
{
    struct autodiff ad;
    int n_forward;
    struct op_case *c = make(kind, variant, DTYPE_F32, &ad, &n_forward);
    struct op_case *twin = make(kind, variant, DTYPE_F64, &ad, &n_forward);

    if (is_narrow(name))
        give_outputs(c->graph);
    compare_runs(c, twin, name, false);
    if (is_narrow(name) && takes_last(c->graph))
        compare_runs(c, twin, name, true);
    op_case_free(twin);
    op_case_free(c);
}

static bool is_large(const struct op_kind *kind)
{
    for (int i = 0; op_kinds_large[i].op; i++)
        if (kind == &op_kinds_large[i])
            return true;
    return false;
}

/* Of those in pieces, which take a stand-in or a sanitizer long, a backend that is named has a third, by
 * the seed, and so has a build that tries a share, where TASUKI_TEST_LONG does not ask for all.
 */
static bool is_drawn(const struct op_kind *kind, int variant)
{
    const char *all = getenv("TASUKI_TEST_LONG");
    int apart = getenv("TASUKI_TEST_BACKEND") ? 3 : some_apart(3);

    return !is_large(kind) ||
           (all && *all && strcmp(all, "0") != 0) || (seed + (uint64_t)variant) % (uint64_t)apart == 0;
}

/* On those that every machine can open, or the one that TASUKI_TEST_BACKEND names. The reference,
 * beside itself, has no pieces.
 */
static void backends_agree(void **state)
{
    const char *wanted = getenv("TASUKI_TEST_BACKEND");
    const char *const names[] = { wanted ? wanted : "reference", wanted ? NULL : "cpu" };
    const struct op_kind *kind = *state;

    for (size_t b = !wanted && is_large(kind); b < sizeof(names) / sizeof(names[0]) && names[b]; b++)
        for (int variant = 0; backend_find(names[b]) && variant < kind->variants; variant++)
            if (is_drawn(kind, variant))
                compare_backend(kind, variant, names[b]);
}

static const struct op_kind *kind_of(const char *op)
{
    for (int i = 0; op_kind_at(i); i++)
        if (strcmp(op_kind_at(i)->op, op) == 0)
            return op_kind_at(i);
    fail_msg("%s has no case", op);
    return NULL;
}

/* By an error, or, where the host does not see labels, by the loss. */
static void a_label_that_is_no_class_is_seen(void **state)
{
    const char *wanted = getenv("TASUKI_TEST_BACKEND");
    struct autodiff ad;
    int n_forward;
    struct op_case *c = make(kind_of("CrossEntropySum"), 0, DTYPE_F32, &ad, &n_forward);
    struct run_graph *run;

    (void)state;
    c->data[c->graph->nodes[c->node].inputs[1]][0] = 99;
    run = start(wanted ? wanted : "reference", c, false);
    if (run_graph_nodes(run, 0, n_forward, c->err)) {
        assert_contains(c->err->text, "label 99 of row 0");
    } else {
        double loss = 0;

        run_graph_get(run, c->graph->loss, &loss);
        assert_true(isnan(loss));
    }
    run_graph_free(run);
    op_case_free(c);
}

/* The table --------------------------------------------------------------------------- */

/* But for what only GPUs have: test_chain. */
static void every_operator_has_a_case(void **state)
{
    (void)state;
    for (int i = 0; op_at(i); i++)
        if (!(op_at(i)->flags & OP_FOLD) && !covered[i] && strcmp(op_at(i)->name, "Chain") != 0)
            fail_msg("operator %s has no case in op_cases.c", op_at(i)->name);
}

static void every_name_stands_for_one_operator(void **state)
{
    (void)state;
    for (int i = 0; op_at(i); i++)
        assert_ptr_equal(op_find(op_at(i)->name), op_at(i));
}

static uint64_t choose_seed(void)
{
    const char *text = getenv("TASUKI_TEST_SEED");

    return text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
}

static size_t count_kinds(const struct op_kind *list)
{
    size_t n = 0;

    while (list ? list[n].op != NULL : op_kind_at((int)n) != NULL)
        n++;
    return n;
}

/* What is asked of the reference alone is not asked again where a backend is named. Where there is no
 * other than the reference (test_cpu says so), none is asked for pieces.
 */
int main(void)
{
    bool all = !getenv("TASUKI_TEST_BACKEND");
    struct CMUnitTest *tests;
    size_t n = 0, n_named, kinds = count_kinds(NULL), large;
    int result;

    large = all && !backend_find("cpu") ? 0 : count_kinds(op_kinds_large);
    seed = choose_seed();
    printf("# TASUKI_TEST_SEED=%llu\n", (unsigned long long)seed);
    tests = mem_new(2 * kinds + large + 3, sizeof(*tests));
    for (size_t i = 0; i < 2 * kinds; i++) {
        const struct op_kind *kind = op_kind_at((int)i / 2);

        if (i % 2 == 0 && !all)
            continue;
        tests[n++] = (struct CMUnitTest){
            .name = mem_printf(i % 2 ? "%s agrees on every backend"
                                     : "%s agrees with finite differences", kind->op),
            .test_func = i % 2 ? backends_agree : gradients_agree_with_differences,
            .initial_state = (void *)(uintptr_t)kind,
        };
    }
    for (size_t i = 0; i < large; i++)
        tests[n++] = (struct CMUnitTest){
            .name = mem_printf("%s in pieces agrees on every backend", op_kinds_large[i].op),
            .test_func = backends_agree,
            .initial_state = (void *)(uintptr_t)&op_kinds_large[i],
        };
    n_named = n;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_label_that_is_no_class_is_seen);
    if (all)
        tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_operator_has_a_case);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_name_stands_for_one_operator);
    result = _cmocka_run_group_tests("ops", tests, n, NULL, NULL);
    for (size_t i = 0; i < n_named; i++)
        free((void *)(uintptr_t)tests[i].name);
    free(tests);
    return result;
}
