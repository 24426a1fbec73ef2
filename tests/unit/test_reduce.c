/* SPDX-License-Identifier: MIT */
/* Reductions on a comm that is none: it notes in which order they are posted, and lets them
 * complete only when all of them are asked about.
 */
#include "unit.h"

#include "base/mem.h"
#include "comm/driver.h"
#include "train/reduce.h"

#define BUCKETS 3

static int posted[BUCKETS], n_posted;
static bool asked[BUCKETS];
static char gradients[BUCKETS * 64], scratch[2 * SUMS_AT_ONCE * 64];

static int index_of(const struct comm_request *request)
{
    return request->tag;
}

static int fake_allreduce(struct comm_request *request, struct comm_group *group, void *data,
                          size_t n, enum dtype dtype, bool deterministic, struct err *err)
{
    (void)group;
    (void)n;
    (void)dtype;
    (void)deterministic;
    (void)err;
    request->tag = (int)(((char *)data - gradients) / 64);
    posted[n_posted++] = request->tag;
    asked[request->tag] = false;
    return 0;
}

/* As where sums go through the members in steps, which each takes when it is asked. */
static int fake_test(struct comm_request *request, bool *done, struct err *err)
{
    (void)err;
    asked[index_of(request)] = true;
    *done = true;
    for (int i = 0; i < n_posted; i++)
        *done = *done && asked[posted[i]];
    return 0;
}

static const struct comm_driver driver = { .collective = fake_allreduce, .test = fake_test };

struct scene {
    struct comm comm;
    struct comm_group groups[2];
    int ranks[2];
    struct comm_request requests[BUCKETS];
    struct sum_areas areas[2];
    struct bucket buckets[BUCKETS];
    int first[BUCKETS + 1], list[BUCKETS];
    struct reduce reduce;
};

/* Node n writes bucket list[n]; bucket b belongs to group of[b]. */
static void set_scene(struct scene *s, const int *list, const int *of)
{
    static char host[] = "here";
    static char *hosts[] = { host, host };

    *s = (struct scene){ .comm = { .driver = &driver, .size = 2, .hosts = hosts },
                         .ranks = { 0, 1 } };
    s->comm.patience.deadline = 0.5;
    for (int g = 0; g < 2; g++)
        s->groups[g] = (struct comm_group){ .comm = &s->comm, .n = 2, .ranks = s->ranks };
    for (int g = 0; g < 2; g++)
        s->areas[g] = (struct sum_areas){ .start = scratch + 64 * SUMS_AT_ONCE * g, .bytes = 64,
                                          .n = SUMS_AT_ONCE };
    for (int i = 0; i < BUCKETS; i++) {
        s->requests[i].comm = &s->comm;
        s->buckets[i] = (struct bucket){ .offset = (size_t)i * 64, .bytes = 64,
                                         .group = &s->groups[of[i]],
                                         .areas = &s->areas[of[i]],
                                         .request = &s->requests[i], .writers = 1 };
        s->first[i] = i;
        s->list[i] = list[i];
    }
    s->first[BUCKETS] = BUCKETS;
    s->reduce = (struct reduce){ .comm = &s->comm, .n_buckets = BUCKETS,
                                 .gradients = gradients, .buckets = s->buckets,
                                 .dtype = DTYPE_F32,
                                 .first = s->first, .list = s->list };
    n_posted = 0;
    reduce_start(&s->reduce);
}

/* Sets the scene and runs all its nodes. */
static void run(struct scene *s, const int *list, const int *of)
{
    struct err err = { 0 };

    set_scene(s, list, of);
    for (int node = 0; node < BUCKETS; node++)
        assert_int_equal(reduce_final(&s->reduce, node, &err), 0);
}

static void waiting_asks_about_all_reductions(void **state)
{
    static const int list[] = { 0, 1, 2 }, of[] = { 0, 1, 0 };
    struct scene s;
    struct err err = { 0 };

    (void)state;
    run(&s, list, of);
    if (reduce_wait(&s.reduce, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < BUCKETS; i++)
        assert_true(s.buckets[i].done);
}

/* Replicas with shares of other sizes may run their kernels in another order. */
static void a_group_reduces_in_one_order_whatever_the_kernels(void **state)
{
    static const int orders[][BUCKETS] = { { 0, 1, 2 }, { 2, 1, 0 }, { 1, 2, 0 }, { 0, 2, 1 } };
    static const int same[] = { 0, 0, 0 };

    (void)state;
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct scene s;
        struct err err = { 0 };

        run(&s, orders[i], same);
        if (reduce_wait(&s.reduce, &err))
            fail_msg("%s", err.text);
        assert_int_equal(n_posted, BUCKETS);
        for (int b = 0; b < BUCKETS; b++)
            assert_int_equal(posted[b], b);
    }
}

static void no_more_are_under_way_than_there_is_scratch_for(void **state)
{
    static const int list[] = { 0, 1, 2 }, same[] = { 0, 0, 0 };
    struct scene s;
    struct err err = { 0 };

    (void)state;
    run(&s, list, same);
    assert_int_equal(n_posted, SUMS_AT_ONCE);
    assert_true(s.requests[0].scratch != s.requests[1].scratch);
    assert_int_equal(reduce_test(&s.reduce, &err), 0);
    assert_int_equal(n_posted, BUCKETS);
    assert_true(s.buckets[1].done);
    assert_ptr_equal(s.requests[2].scratch, s.requests[1].scratch);
}

static void a_group_does_not_wait_for_the_kernels_of_another(void **state)
{
    static const int list[] = { 1, 2, 0 }, of[] = { 0, 1, 1 };
    struct scene s;

    (void)state;
    run(&s, list, of);
    assert_int_equal(posted[0], 1);
    assert_int_equal(posted[1], 2);
    assert_int_equal(posted[2], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_asks_about_all_reductions),
        cmocka_unit_test(a_group_reduces_in_one_order_whatever_the_kernels),
        cmocka_unit_test(no_more_are_under_way_than_there_is_scratch_for),
        cmocka_unit_test(a_group_does_not_wait_for_the_kernels_of_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
