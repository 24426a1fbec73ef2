/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include "base/mem.h"
#include "train/route.h"

#define BATCH 8
#define VALUES 6

/* Two stages with 'a' and 'b' replicas and one value [2, b, 3] of floats from one to the other,
 * beside one that depends on no sample.
 */
struct scene {
    struct plan plan;
    struct plan_stage stages[2];
    struct boundary boundaries[2];
    struct instruction_list lists[2];
    struct schedule_stage scheduled[2];
    struct schedule schedule;
    struct program_value values[VALUES];
    struct program program;
    struct compiled compiled;
};

static size_t element = 4;      /* bytes of one of what is cut */

static void set_scene(struct scene *s, int a, int b, int stage, int replica)
{
    struct shape batch = { 3, { 2, 0, 3 } }, none = { 1, { 5 } };
    struct graph *graph;
    int r = stage ? b : a;
    int64_t share = plan_share_start(BATCH, r, replica + 1) -
                    plan_share_start(BATCH, r, replica);

    memset(s, 0, sizeof(*s));
    s->stages[0].replicas = a;
    s->stages[1].replicas = b;
    s->plan = (struct plan){ .micro_batch = BATCH, .micro_batches = 2, .n_stages = 2,
                             .stages = s->stages, .pipelines = 1 };
    s->scheduled[0].slots = s->scheduled[1].slots = 2;
    s->scheduled[1].list = 1;
    s->schedule = (struct schedule){ .n_stages = 2, .n_lists = 2, .micro_batches = 2,
                                     .stages = s->scheduled, .lists = s->lists };
    graph = graph_new(share, DTYPE_F32);
    batch.dim[1] = share;
    for (int i = 0; i < 3; i++)
        graph_add_value(graph, NULL, VALUE_NODE, DTYPE_F32, &batch,
                        (struct batch){ .outer = 2, .inner = 3, .place = 2 });
    for (int i = 0; i < 3; i++)
        graph_add_value(graph, NULL, VALUE_NODE, DTYPE_F32, &none, (struct batch){ 0 });
    for (int i = 0; i < 2; i++)
        s->boundaries[i] = (struct boundary){ .value = 3 * i, .from = 0, .to = 1,
                                              .gradient = 3 * i + 1, .received = 3 * i + 2 };
    for (int v = 0; v < VALUES; v++)
        s->values[v].layout.bytes = v < 3 ? element * (size_t)shape_elements(&batch)
                                          : value_bytes(&graph->values[v]);
    s->program.values = s->values;
    s->compiled = (struct compiled){ .graph = graph, .program = &s->program, .stage = stage,
                                     .replica = replica, .schedule = &s->schedule,
                                     .autodiff = { .n_boundaries = 2,
                                                   .boundaries = s->boundaries } };
}

static const struct route *find(const struct routes *routes, bool send, bool gradient,
                                int replica)
{
    for (int i = 0; i < routes->n; i++)
        if (routes->items[i].send == send && routes->items[i].gradient == gradient &&
            routes->items[i].replica == replica)
            return &routes->items[i];
    return NULL;
}

/* What one side sends the other side expects: bytes, and samples in the same order. */
static void both_sides_agree(int a, int b)
{
    for (int i = 0; i < a; i++) {
        for (int j = 0; j < b; j++) {
            struct scene x, y;
            struct routes from, to;

            set_scene(&x, a, b, 0, i);
            set_scene(&y, a, b, 1, j);
            routes_make(&from, &x.plan, 0, i, &x.compiled);
            routes_make(&to, &y.plan, 1, j, &y.compiled);
            for (int gradient = 0; gradient < 2; gradient++) {
                const struct route *s = find(&from, !gradient, gradient, j);
                const struct route *r = find(&to, gradient, gradient, i);

                assert_int_equal(s != NULL, r != NULL);
                if (!s)
                    continue;
                assert_int_equal(s->bytes, r->bytes);
                assert_int_equal(s->n, r->n);
                for (int k = 0; k < s->n; k++) {
                    assert_int_equal(s->pieces[k].at, r->pieces[k].at);
                    assert_int_equal(s->pieces[k].width, r->pieces[k].width);
                    assert_int_equal(s->pieces[k].rows, r->pieces[k].rows);
                }
            }
            routes_clear(&from);
            routes_clear(&to);
            graph_free(x.compiled.graph);
            graph_free(y.compiled.graph);
        }
    }
}

static void sender_and_receiver_agree(void **state)
{
    (void)state;
    for (element = 2; element <= 4; element += 2)
        for (int a = 1; a <= BATCH; a++)
            for (int b = 1; b <= BATCH; b++)
                both_sides_agree(a, b);
    element = 4;
}

/* [2, b, 3], of which a replica has 4 samples and the other 2 of these. */
static void values_are_sent_as_they_lie(void **state)
{
    (void)state;
    for (element = 2; element <= 4; element += 2) {
        struct scene s;
        struct routes routes;
        const struct route_piece *p;

        set_scene(&s, 2, 4, 0, 1);
        routes_make(&routes, &s.plan, 0, 1, &s.compiled);
        p = &find(&routes, true, false, 3)->pieces[0];
        assert_int_equal(p->rows, 2);
        assert_int_equal(p->width, 2 * 3 * element);
        assert_int_equal(p->stride, 4 * 3 * element);
        assert_int_equal(p->offset, 2 * 3 * element);
        routes_clear(&routes);
        graph_free(s.compiled.graph);
    }
    element = 4;
}

static void every_sample_arrives_once(void **state)
{
    (void)state;
    for (int a = 1; a <= BATCH; a++) {
        for (int j = 0; j < 3; j++) {
            struct scene s;
            struct routes routes;
            int covered[BATCH] = { 0 }, whole = 0;
            int64_t share = plan_share_start(BATCH, 3, j + 1) - plan_share_start(BATCH, 3, j);

            set_scene(&s, a, 3, 1, j);
            routes_make(&routes, &s.plan, 1, j, &s.compiled);
            for (int i = 0; i < routes.n; i++) {
                const struct route *r = &routes.items[i];

                for (int k = 0; !r->send && k < r->n; k++) {
                    const struct route_piece *p = &r->pieces[k];

                    whole += p->whole;
                    for (size_t at = p->offset; !p->whole && at < p->offset + p->width;
                         at += 12)
                        covered[at / 12]++;
                }
            }
            for (int64_t i = 0; i < share; i++)
                assert_int_equal(covered[i], 1);
            assert_int_equal(whole, 1);
            routes_clear(&routes);
            graph_free(s.compiled.graph);
        }
    }
}

static void whole_gradients_are_added_once_each(void **state)
{
    int pieces = 0, copies = 0, zeros = 0;

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct scene s;
        struct routes routes;

        set_scene(&s, 3, 4, 0, i);
        routes_make(&routes, &s.plan, 0, i, &s.compiled);
        for (int k = 0; k < routes.n; k++) {
            const struct route *r = &routes.items[k];

            for (int p = 0; !r->send && p < r->n; p++) {
                pieces += r->pieces[p].whole;
                copies += r->pieces[p].whole && !r->pieces[p].add;
            }
        }
        zeros += routes.n_zero;
        routes_clear(&routes);
        graph_free(s.compiled.graph);
    }
    assert_int_equal(pieces, 4);            /* one from each reader */
    assert_int_equal(copies + zeros, 3);    /* each producer starts from something */
}

/* Two are on their way to a neighbour, and two are awaited, however many slots a stage has. */
static void buffers_do_not_grow_with_the_slots(void **state)
{
    for (int slots = 1; slots <= 8; slots++) {
        struct scene s;
        struct routes routes;

        set_scene(&s, 1, 1, 0, 0);
        s.scheduled[0].slots = slots;
        routes_make(&routes, &s.plan, 0, 0, &s.compiled);
        assert_int_equal(find(&routes, true, false, 0)->depth, slots < 2 ? slots : 2);
        assert_int_equal(find(&routes, false, true, 0)->depth, 2);
        routes_clear(&routes);
        graph_free(s.compiled.graph);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sender_and_receiver_agree),
        cmocka_unit_test(values_are_sent_as_they_lie),
        cmocka_unit_test(every_sample_arrives_once),
        cmocka_unit_test(whole_gradients_are_added_once_each),
        cmocka_unit_test(buffers_do_not_grow_with_the_slots),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
