/* SPDX-License-Identifier: MIT */
/* Do all ranks sum the same gradients? On a comm that is none: rank 1 says what a test says. */
#include "unit.h"

#include "base/mem.h"
#include "comm/driver.h"
#include "train/buckets.h"

/* What rank 1 answers: as rank 0 but for one byte, and so many bytes. */
static struct {
    size_t flip, missing;
} theirs;

static int fake_exchange(struct comm *comm, const void *data, size_t size, void **block,
                         const void **parts, size_t *sizes, struct err *err)
{
    unsigned char *both = mem_new(2, size);

    (void)comm;
    (void)err;
    memcpy(both, data, size);
    memcpy(both + size, data, size);
    if (theirs.flip > 0)
        both[size + theirs.flip - 1] ^= 1;
    *block = both;
    parts[0] = both;
    parts[1] = both + size;
    sizes[0] = size;
    sizes[1] = size - theirs.missing;
    return 0;
}

static int fake_least(struct comm *comm, int value, int *least, struct err *err)
{
    (void)comm;
    (void)err;
    *least = value;
    return 0;
}

static int fake_broadcast(struct comm *comm, int root, void **data, size_t *size,
                          struct err *err)
{
    (void)comm;
    (void)root;
    (void)data;
    (void)size;
    (void)err;
    return 0;
}

static const struct comm_driver driver = { .exchange = fake_exchange, .least = fake_least,
                                           .broadcast = fake_broadcast };

struct scene {
    struct comm comm;
    struct model *model;
    struct plan *plan;
    struct device *device;
    struct placement placement;
    struct compiled *compiled;
};

static const char plan_text[] =
    "{\"schema\":\"tasuki-plan\",\"version\":1,\"global_batch\":24,\"micro_batches\":2,"
    "\"micro_batch\":12,\"schedule\":\"1f1b\",\"stages\":[{\"blocks\":[\"all\"],"
    "\"replicas\":2,\"devices\":[[\"0\",\"1\"]]}]}";

static void open_scene(struct scene *s)
{
    static char host[] = "here";
    static char *hosts[] = { host, host };
    const char *source = getenv("srcdir");
    char path[600];
    struct err err = { 0 };
    json_t *json = json_loads(plan_text, 0, NULL);
    struct compile_options options = { .backend = backend_find("reference") };

    *s = (struct scene){ .comm = { .driver = &driver, .size = 2, .hosts = hosts } };
    snprintf(path, sizeof(path), "%s/tests/data/model/mlp/model.onnx", source ? source : "..");
    s->model = model_open(path, &err);
    s->plan = plan_from_json("plan", json, &err);
    json_decref(json);
    s->device = options.backend->device_open(1, NULL, &err);
    if (!s->model || !s->plan || placement_make(&s->placement, s->plan, NULL, 0, 2, &err))
        fail_msg("%s", err.text);
    options.model = s->model;
    options.model_options = (struct model_options){ .real = DTYPE_F32, .fuse = true,
                                                    .no_loss = false };
    options.model_options.loss = "dot:logits,target";
    options.plan = s->plan;
    options.device = s->device;
    s->compiled = compile_stage(&options, 0, 0, &err);
    if (!s->compiled)
        fail_msg("%s", err.text);
}

static void close_scene(struct scene *s)
{
    compiled_free(s->compiled);
    placement_clear(&s->placement);
    backend_find("reference")->device_close(s->device);
    plan_free(s->plan);
    model_close(s->model);
}

static int check(size_t flip, size_t missing, struct err *err)
{
    struct scene s;
    int bad;

    open_scene(&s);
    theirs.flip = flip;
    theirs.missing = missing;
    bad = buckets_check(&s.comm, 1, &s.compiled, &s.placement, err);
    close_scene(&s);
    return bad;
}

static void replicas_that_sum_alike_pass(void **state)
{
    struct err err = { 0 };

    (void)state;
    if (check(0, 0, &err))
        fail_msg("%s", err.text);
}

static void a_replica_that_sums_something_else_is_named(void **state)
{
    /* The members of the group, then what it sums: 8 bytes each. */
    static const struct { size_t flip, missing; } cases[] = { { 1, 0 }, { 9, 0 }, { 0, 16 },
                                                              { 0, 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = { 0 };

        assert_int_equal(check(cases[i].flip, cases[i].missing, &err), -1);
        assert_contains(err.text, "stage 0 sums other gradients than rank 1 (here) does");
    }
}

/* Each gradient lies in one bucket, and the limit cuts. */
static void buckets_cover_all_gradients_whatever_their_size(void **state)
{
    static const size_t limits[] = { 0, 1, 100, 4096, (size_t)1 << 30 };
    struct scene s;

    (void)state;
    open_scene(&s);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct buckets b;
        int n = 0;

        buckets_make(&b, s.compiled, 1, limits[i]);
        assert_int_equal(b.n_ranges, s.compiled->autodiff.n_params);
        for (int k = 0; k < b.n_cuts; k++) {
            assert_int_equal(b.cuts[k].first, n);
            n += b.cuts[k].n;
            if (limits[i] > 0 && b.cuts[k].n > 1)
                assert_true(b.cuts[k].bytes <= limits[i]);
        }
        assert_int_equal(n, b.n_ranges);
        if (limits[i] == 1)
            assert_int_equal(b.n_cuts, b.n_ranges);
        buckets_clear(&b);
    }
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_that_sum_alike_pass),
        cmocka_unit_test(a_replica_that_sums_something_else_is_named),
        cmocka_unit_test(buckets_cover_all_gradients_whatever_their_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
