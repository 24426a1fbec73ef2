/* SPDX-License-Identifier: MIT */
/* Optimizers of the cpu backend, or of TASUKI_TEST_BACKEND, beside the reference. */
#include "unit.h"

#include <math.h>

#include "base/mem.h"
#include "train/optimizer.h"
#include "train/update.h"

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

static void run(const char *name, int threads, enum optimizer_kind kind, struct arrays *a)
{
    struct optimizer_args args = optimizer_defaults(kind);
    struct machine m = { 0 };

    args.dtype = DTYPE_F32;
    args.lr = args.trust = 0.03125;
    args.weight_decay = 0.125;
    machine_open(&m, name, threads, a);
    for (args.step = 1; args.step <= STEPS; args.step++) {
        for (int i = 0; i < N; i++)
            a->g[i] = (float)cos(i + 7 * (double)args.step);
        move(&m, m.there.g, a->g);
        if (update_range(m.backend, m.stream, &args, true, N, m.there.p, m.there.g, 0.5,
                         m.there.m, m.there.v, &m.err))
            fail_msg("%s", m.err.text);
    }
    move(&m, a->p, m.there.p);
    move(&m, a->m, m.there.m);
    move(&m, a->v, m.there.v);
    machine_close(&m);
}

static const char *tested(void)
{
    const char *wanted = getenv("TASUKI_TEST_BACKEND");

    return wanted ? wanted : "cpu";
}

/* Each step rounds a number below 2 a few times, and moves it by 1/32 of one that is rounded
 * about 20 times: 3 x (4 + 20/32) half units in the last place, less than 16 x 2^-24 x 2.
 */
static void all_follow_the_reference(void **state)
{
    (void)state;
    for (int kind = OPTIMIZER_SGD; kind <= OPTIMIZER_LAMB; kind++) {
        struct arrays want = arrays_new(), got = arrays_new();

        run("reference", 1, (enum optimizer_kind)kind, &want);
        run(tested(), 2, (enum optimizer_kind)kind, &got);
        for (int i = 0; i < N; i++)
            if (!(fabsf(want.p[i] - got.p[i]) <= 0x1p-19f))
                fail_msg("%s: element %d is %.9g, the reference has %.9g",
                         optimizer_name((enum optimizer_kind)kind), i, (double)got.p[i],
                         (double)want.p[i]);
        arrays_free(&want);
        arrays_free(&got);
    }
}

/* Of numbers that are rounded to float once, sums in double. */
static void sums_of_squares_are_made_in_double(void **state)
{
    struct arrays a = arrays_new();
    struct machine m = { 0 };

    (void)state;
    machine_open(&m, tested(), 2, &a);
    for (int n = 0; n <= N; n = 3 * n + 1) {
        double want = 0, got = -1;

        for (int i = 0; i < n; i++)
            want += (double)a.p[i] * (double)a.p[i];
        if (m.backend->sum_squares(m.stream, DTYPE_F32, (size_t)n, m.there.p, &got, &m.err) < 0)
            fail_msg("%s", m.err.text);
        if (!(fabs(got - want) <= 0x1p-40 * want))
            fail_msg("%d elements: %.17g, expected %.17g", n, got, want);
    }
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
        cmocka_unit_test(sums_of_squares_are_made_in_double),
        cmocka_unit_test(threads_do_not_change_the_bits),
    };

    if (!backend_find(tested())) {
        puts("1..0 # SKIP this build lacks the backend (cpu: oneDNN)");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
