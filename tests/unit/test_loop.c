/* SPDX-License-Identifier: MIT */
/* The training loop allocates nothing: a long run allocates as often as a short one. */
#include "unit.h"

#include "base/log.h"
#include "train/optimizer.h"
#include "train/train.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static long allocations;

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    allocations++;
    return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    allocations++;
    return __libc_realloc(old, size);
}

/* Written beside the data, since a plan says where its model is. */
static void write_plan(const char *path, const char *model, int groups)
{
    char text[2048];

    snprintf(text, sizeof(text),
             "{\"schema\":\"tasuki-plan\",\"version\":1,\"global_batch\":24,\"micro_batches\":4,"
             "\"micro_batch\":6,\"schedule\":\"1f1b\",\"batchnorm_samples\":%d,"
             "\"model\":{\"path\":\"%s\"},\"stages\":[{\"blocks\":[\"all\"],\"replicas\":1,"
             "\"devices\":[[\"0\"]]}]}", groups, model);
    unit_write(path, text);
}

static long count_of_run(const char *model, const char *backend, int64_t steps, int groups)
{
    const char *source = getenv("srcdir");
    char *directory = unit_directory(), plan[600], path[600], data[600], log[600];
    struct launch launch = { .kind = LAUNCH_ALONE };
    struct train_settings t = {
        .input = plan, .data = data, .test = NULL, .log = log, .steps = steps, .fuse = true,
        .optimizer = optimizer_defaults(OPTIMIZER_ADAMW), .shuffle = true, .threads = 1,
        .cluster = "flat:1,bandwidth=1e9,latency=0,memory=16e9", .backend = backend,
        .loss = NULL, .command = "",
        .data_threads = 2, .data_threads_given = true,
    };
    struct err err = { 0 };
    struct comm *comm;
    long before = allocations;
    double kwh;

    snprintf(path, sizeof(path), "%s/tests/data/model/%s/model.onnx", source ? source : "..",
             model);
    snprintf(data, sizeof(data), "%s/tests/data/model/%s/train.safetensors",
             source ? source : "..", model);
    snprintf(plan, sizeof(plan), "%s/plan.json", directory);
    snprintf(log, sizeof(log), "%s/log", directory);
    write_plan(plan, path, groups);
    comm = comm_open(&launch, &err);
    assert_non_null(comm);
    if (train_run(&t, NULL, comm, &kwh, &err))
        fail_msg("%s", err.text);
    comm_close(comm);
    unlink(plan);
    unlink(log);
    rmdir(directory);
    return allocations - before;
}

static void allocates_nothing(const char *model, const char *backend, int groups)
{
    /* The first run may leave things behind that live as long as the process. */
    count_of_run(model, backend, 1, groups);
    assert_int_equal(count_of_run(model, backend, 60, groups),
                     count_of_run(model, backend, 10, groups));
}

static void the_reference_backend_trains_without_allocating(void **state)
{
    (void)state;
    allocates_nothing("mlp", "reference", 0);
    allocates_nothing("cnn", "reference", 3);
    allocates_nothing("transformer-dropout", "reference", 0);
}

/* But for what oneDNN itself allocates when it runs a convolution. */
static void the_cpu_backend_trains_without_allocating(void **state)
{
    (void)state;
    allocates_nothing("mlp", "cpu", 0);
    allocates_nothing("transformer-dropout", "cpu", 0);
}

int main(void)
{
    const struct CMUnitTest reference[] = {
        cmocka_unit_test(the_reference_backend_trains_without_allocating),
    };
    const struct CMUnitTest both[] = {
        cmocka_unit_test(the_reference_backend_trains_without_allocating),
        cmocka_unit_test(the_cpu_backend_trains_without_allocating),
    };

    log_setup(LOG_WARNING, -1);
    if (!backend_find("cpu"))
        return cmocka_run_group_tests(reference, NULL, NULL);
    return cmocka_run_group_tests(both, NULL, NULL);
}

#else

int main(void)
{
    puts("1..0 # SKIP this C library or sanitizer has an allocator of its own");
    return 0;
}

#endif
