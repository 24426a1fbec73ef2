/* SPDX-License-Identifier: MIT */
/* Optimizers of the cpu backend beside the reference. */
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

static void run(const char *name, int threads, enum optimizer_kind kind, struct arrays *a)
{
    const struct backend *backend = backend_find(name);
    struct optimizer_args args = optimizer_defaults(kind);
    struct err err = { 0 };
    struct device *device = backend->device_open(threads, NULL, &err);
    struct stream *stream = backend->stream_new(device, &err);

    args.dtype = DTYPE_F32;
    args.lr = args.trust = 0.03125;
    args.weight_decay = 0.125;
    for (args.step = 1; args.step <= STEPS; args.step++) {
        for (int i = 0; i < N; i++)
            a->g[i] = (float)cos(i + 7 * (double)args.step);
        if (update_range(backend, stream, &args, true, N, a->p, a->g, 0.5, a->m, a->v, &err))
            fail_msg("%s", err.text);
    }
    backend->stream_free(stream);
    backend->device_close(device);
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
        run("cpu", 2, (enum optimizer_kind)kind, &got);
        for (int i = 0; i < N; i++)
            if (fabsf(want.p[i] - got.p[i]) > 0x1p-19f)
                fail_msg("%s: element %d is %.9g, the reference has %.9g",
                         optimizer_name((enum optimizer_kind)kind), i, (double)got.p[i],
                         (double)want.p[i]);
        arrays_free(&want);
        arrays_free(&got);
    }
}

static void threads_do_not_change_the_bits(void **state)
{
    (void)state;
    for (int kind = OPTIMIZER_LARS; kind <= OPTIMIZER_LAMB; kind++) {
        struct arrays one = arrays_new(), two = arrays_new();

        run("cpu", 1, (enum optimizer_kind)kind, &one);
        run("cpu", 2, (enum optimizer_kind)kind, &two);
        assert_memory_equal(one.p, two.p, N * sizeof(float));
        arrays_free(&one);
        arrays_free(&two);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_follow_the_reference),
        cmocka_unit_test(threads_do_not_change_the_bits),
    };

    if (!backend_find("cpu")) {
        puts("1..0 # SKIP this build has no cpu backend (oneDNN)");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
