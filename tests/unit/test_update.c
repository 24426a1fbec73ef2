/* SPDX-License-Identifier: MIT */
/* Optimizers of the cpu backend, or of TASUKI_TEST_BACKEND, beside the reference. */
#include "unit.h"

#include <math.h>

#include "base/mem.h"
#include "train/optimizer.h"
#include "train/stepping.h"

/* Several of the pieces that norms are summed over, and a rest. */
enum { N = 3 * 65536 + 1234, STEPS = 3 };

struct arrays {
    float *p, *g, *m, *v;
};

static struct arrays arrays_new(void)
{
    struct arrays a = { mem_new(N, sizeof(float)), mem_new(N, sizeof(float)),
                        mem_new(N, sizeof(float)), mem_new(N, sizeof(float)) };

    for (int i = 0; i < N; i++)
        a.p[i] = (float)sin(i);
    return a;
}

static void arrays_free(struct arrays *a)
{
    free(a->p);
    free(a->g);
    free(a->m);
    free(a->v);
}

struct machine {
    const struct backend *backend;
    struct device *device;
    struct stream *stream;
    struct arrays there;        /* in its memory */
    struct err err;
};

static void move(struct machine *m, void *to, const void *from)
{
    size_t bytes = N * sizeof(float);

    if (m->backend->copy(m->stream, to, bytes, from, bytes, bytes, 1, &m->err) < 0 ||
        m->backend->stream_sync(m->stream, &m->err) < 0)
        fail_msg("%s", m->err.text);
}

static void machine_open(struct machine *m, const char *name, int threads,
                         const struct arrays *a)
{
    float **there[] = { &m->there.p, &m->there.g, &m->there.m, &m->there.v };
    float *const here[] = { a->p, a->g, a->m, a->v };

    m->backend = backend_find(name);
    m->device = m->backend->device_open(threads, NULL, &m->err);
    m->stream = m->device ? m->backend->stream_new(m->device, &m->err) : NULL;
    if (!m->stream)
        fail_msg("%s", m->err.text);
    for (int i = 0; i < 4; i++) {
        *there[i] = m->backend->alloc(m->device, N * sizeof(float), &m->err);
        move(m, *there[i], here[i]);
    }
}

static void machine_close(struct machine *m)
{
    float *const there[] = { m->there.p, m->there.g, m->there.m, m->there.v };

    for (int i = 0; i < 4; i++)
        m->backend->release(m->device, there[i], N * sizeof(float));
    m->backend->stream_free(m->stream);
    m->backend->device_close(m->device);
}

static const struct range all = { .n = N, .decay = 1 };

static void step(struct machine *m, struct stepping *s, const struct optimizer_args *args)
{
    const struct range_arrays there = { m->there.p, m->there.g, m->there.m, m->there.v };

    if (stepping_norms(s, args, &there, 0.5, &m->err) < 0 ||
        stepping_run(s, args, &there, 0.5, &m->err) < 0)
        fail_msg("%s", m->err.text);
}

static void step_init(struct machine *m, struct stepping *s, enum optimizer_kind kind, int n,
                      const struct range *ranges, const struct range *tensors)
{
    if (stepping_init(s, m->backend, m->device, m->stream, n, ranges,
                      stepping_needs_norms(kind) ? tensors : NULL, &m->err) < 0)
        fail_msg("%s", m->err.text);
}

/* Of ranges of the arrays; see stepping_init(). */
static void run_ranges(const char *name, int threads, enum optimizer_kind kind, int n,
                       const struct range *ranges, const struct range *tensors, struct arrays *a)
{
    struct optimizer_args args = optimizer_defaults(kind);
    struct machine m = { 0 };
    struct stepping s;

    args.dtype = DTYPE_F32;
    args.lr = args.trust = 0.03125;
    args.weight_decay = 0.125;
    machine_open(&m, name, threads, a);
    step_init(&m, &s, kind, n, ranges, tensors);
    for (args.step = 1; args.step <= STEPS; args.step++) {
        for (int i = 0; i < N; i++)
            a->g[i] = (float)cos(i + 7 * (double)args.step);
        move(&m, m.there.g, a->g);
        step(&m, &s, &args);
    }
    move(&m, a->p, m.there.p);
    move(&m, a->m, m.there.m);
    move(&m, a->v, m.there.v);
    stepping_clear(&s);
    machine_close(&m);
}

static void run(const char *name, int threads, enum optimizer_kind kind, struct arrays *a)
{
    run_ranges(name, threads, kind, 1, &all, &all, a);
}

static const char *tested(void)
{
    const char *wanted = getenv("TASUKI_TEST_BACKEND");

    return wanted ? wanted : "cpu";
}

/* Each step rounds a number below 2 a few times, and moves it by 1/32 of one that is rounded
 * about 20 times: 3 x (4 + 20/32) half units in the last place, less than 16 x 2^-24 x 2.
 */
static void expect_near(enum optimizer_kind kind, const struct arrays *want,
                        const struct arrays *got)
{
    for (int i = 0; i < N; i++)
        if (!(fabsf(want->p[i] - got->p[i]) <= 0x1p-19f))
            fail_msg("%s: element %d is %.9g, the reference has %.9g", optimizer_name(kind), i,
                     (double)got->p[i], (double)want->p[i]);
}

static void all_follow_the_reference(void **state)
{
    (void)state;
    for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_LAMB; kind++) {
        struct arrays want = arrays_new(), got = arrays_new();

        run("reference", 1, (enum optimizer_kind)kind, &want);
        run(tested(), 2, (enum optimizer_kind)kind, &got);
        expect_near((enum optimizer_kind)kind, &want, &got);
        arrays_free(&want);
        arrays_free(&got);
    }
}

/* Ranges of many lengths and of none, which lie elsewhere in each array; some do not decay. */
enum { RANGES = 9 };
static const size_t lengths[RANGES] = { 0, 1, 4096, 0, 4097, 65537, 100000, 7, 0 };

static void make_ranges(struct range *ranges, struct range *tensors)
{
    size_t at = 0;

    for (int i = 0; i < RANGES; i++) {
        ranges[i] = (struct range){ .n = lengths[i], .p = at, .g = at + 64 * (size_t)i,
                                    .state = N - at - lengths[i], .decay = i % 3 ? 1 : 0 };
        tensors[i] = (struct range){ .n = i % 3 ? lengths[i] : 0, .g = at };
        at += lengths[i] + 16;
    }
}

static void ranges_that_are_stepped_at_once_follow_the_reference(void **state)
{
    struct range ranges[RANGES], tensors[RANGES];

    (void)state;
    make_ranges(ranges, tensors);
    for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_LAMB; kind++) {
        struct arrays want = arrays_new(), got = arrays_new();

        run_ranges("reference", 1, (enum optimizer_kind)kind, RANGES, ranges, tensors, &want);
        run_ranges(tested(), 2, (enum optimizer_kind)kind, RANGES, ranges, tensors, &got);
        expect_near((enum optimizer_kind)kind, &want, &got);
        /* What lies between them stays. */
        for (int i = 0; i < RANGES; i++)
            for (size_t k = ranges[i].p + lengths[i]; k < ranges[i].p + lengths[i] + 16; k++)
                assert_true(got.p[k] == (float)sin((double)k));
        arrays_free(&want);
        arrays_free(&got);
    }
}

/* The bits of one range are its own, whatever is stepped beside it. */
static void a_range_has_the_bits_that_it_has_alone(void **state)
{
    struct range ranges[RANGES], tensors[RANGES];

    (void)state;
    make_ranges(ranges, tensors);
    for (int kind = OPTIMIZER_LARS; kind <= OPTIMIZER_LAMB; kind++) {
        struct arrays beside = arrays_new();

        run_ranges(tested(), 2, (enum optimizer_kind)kind, RANGES, ranges, tensors, &beside);
        for (int i = 4; i < 7; i++) {
            struct arrays alone = arrays_new();

            run_ranges(tested(), 2, (enum optimizer_kind)kind, 1, &ranges[i], &tensors[i], &alone);
            assert_memory_equal(alone.p + ranges[i].p, beside.p + ranges[i].p,
                                lengths[i] * sizeof(float));
            arrays_free(&alone);
        }
        arrays_free(&beside);
    }
}

/* Of numbers that are rounded to float once, sums in double. */
static void sums_of_squares_are_made_in_double(void **state)
{
    struct arrays a = arrays_new();
    struct range lots[16];
    struct machine m = { 0 };
    struct stepping s;
    int n = 0;

    (void)state;
    machine_open(&m, tested(), 2, &a);
    for (size_t length = 0; length <= N; length = 3 * length + 1)
        lots[n++] = (struct range){ .n = length, .g = (N - length) / 2 };
    step_init(&m, &s, OPTIMIZER_SGD, n, lots, NULL);
    if (stepping_sum(&s, DTYPE_F32, m.there.p, &m.err) < 0 ||
        m.backend->stream_sync(m.stream, &m.err) < 0)
        fail_msg("%s", m.err.text);
    for (int k = 0; k < n; k++) {
        double want = 0;

        for (size_t i = lots[k].g; i < lots[k].g + lots[k].n; i++)
            want += (double)a.p[i] * (double)a.p[i];
        if (!(fabs(stepping_squares(&s)[k] - want) <= 0x1p-40 * want))
            fail_msg("%zu elements: %.17g, expected %.17g", lots[k].n, stepping_squares(&s)[k], want);
    }
    stepping_clear(&s);
    machine_close(&m);
    arrays_free(&a);
}

static void threads_do_not_change_the_bits(void **state)
{
    (void)state;
    for (int kind = OPTIMIZER_LARS; kind <= OPTIMIZER_LAMB; kind++) {
        struct arrays one = arrays_new(), two = arrays_new();

        run(tested(), 1, (enum optimizer_kind)kind, &one);
        run(tested(), 2, (enum optimizer_kind)kind, &two);
        assert_memory_equal(one.p, two.p, N * sizeof(float));
        arrays_free(&one);
        arrays_free(&two);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_follow_the_reference),
        cmocka_unit_test(ranges_that_are_stepped_at_once_follow_the_reference),
        cmocka_unit_test(a_range_has_the_bits_that_it_has_alone),
        cmocka_unit_test(sums_of_squares_are_made_in_double),
        cmocka_unit_test(threads_do_not_change_the_bits),
    };

    if (!backend_find(tested())) {
        puts("1..0 # SKIP this build lacks the backend (cpu: oneDNN)");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
