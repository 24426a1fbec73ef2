/* SPDX-License-Identifier: MIT */
#include "train/beside.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

struct worker {
    struct beside *beside;
    pthread_t thread;
};

struct beside {
    struct profile_options options;
    void *packed;               /* the model: each worker builds graphs of one of its own */
    size_t size;
    const char *directory;
    int n_beside;
    atomic_bool stop;
    int n;
    struct worker *workers;
};

int beside_count(int ranks, int threads)
{
    cpu_set_t mine;
    int cores = sched_getaffinity(0, sizeof(mine), &mine) == 0 ? CPU_COUNT(&mine) : 1, runs;

    if (threads <= 0)
        threads = cores / ranks > 0 ? cores / ranks : 1;
    runs = cores / threads < ranks ? cores / threads : ranks;
    return runs > 1 ? runs - 1 : 0;
}

/* What goes wrong here goes wrong in what they are beside of, which says so. */
static void *work(void *argument)
{
    struct beside *b = ((struct worker *)argument)->beside;
    struct profile_options o = b->options;
    struct err err = { 0 };

    o.model = model_unpack(model_path(b->options.model), b->packed, b->size, &err);
    o.device = o.model ? o.backend->device_open(o.threads, NULL, &err) : NULL;
    if (o.device) {
        o.timings = timings_open(o.backend, o.device, o.threads, b->n_beside, b->directory);
        timings_only_read(o.timings, &b->stop);
        cost_free(profile_cost(&o, &err));
        timings_close(o.timings);
        o.backend->device_close(o.device);
    }
    model_close(o.model);
    return NULL;
}

struct beside *beside_start(const struct profile_options *options, int n, const char *directory)
{
    struct beside *b = n > 0 ? mem_new(1, sizeof(*b)) : NULL;

    if (!b)
        return NULL;
    b->options = *options;
    b->packed = model_pack(options->model, &b->size);
    b->directory = directory;
    b->n_beside = n;
    b->workers = mem_new((size_t)n, sizeof(*b->workers));
    for (; b->n < n; b->n++) {
        b->workers[b->n].beside = b;
        if (pthread_create(&b->workers[b->n].thread, NULL, work, &b->workers[b->n]))
            break;
    }
    return b;
}

void beside_stop(struct beside *beside)
{
    if (!beside)
        return;
    atomic_store(&beside->stop, true);
    for (int i = 0; i < beside->n; i++)
        pthread_join(beside->workers[i].thread, NULL);
    free(beside->workers);
    free(beside->packed);
    free(beside);
}
