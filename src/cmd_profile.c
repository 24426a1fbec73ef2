/* SPDX-License-Identifier: MIT */
/* tasuki profile: what a model costs on this device. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "commands.h"
#include "topology/cluster.h"
#include "train/data.h"
#include "train/estimate.h"
#include "train/optimizer.h"
#include "train/planning.h"
#include "train/profile.h"

struct profile_run {
    const struct options *options;
    struct profile_options profile;
    struct data *data;
    int64_t *sizes;
};

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static int read_sizes(struct profile_run *r, struct err *err)
{
    static const int defaults[] = { 1, 2, 4, 8 };
    int *given, n;
    int64_t group;

    if (option_int(r->options, "batchnorm-samples", 1, 1 << 30, 0, &group, err) < 0 ||
        option_ints(r->options, "batch-size", 1, 1 << 30, &n, &given, err) < 0)
        return -1;
    r->profile.model_options.batchnorm_samples = group;
    r->profile.n_sizes = n ? n : 4;
    r->sizes = mem_new((size_t)r->profile.n_sizes, sizeof(*r->sizes));
    for (int i = 0; i < r->profile.n_sizes; i++)
        r->sizes[i] = n ? given[i] : defaults[i] * (group ? group : 1);
    free(given);
    qsort(r->sizes, (size_t)r->profile.n_sizes, sizeof(*r->sizes), by_size);
    for (int i = 1; i < r->profile.n_sizes; i++)
        if (r->sizes[i] == r->sizes[i - 1])
            return err_set_code(err, EXIT_USAGE, "--batch-size: %lld is there twice",
                                (long long)r->sizes[i]);
    r->profile.sizes = r->sizes;
    return 0;
}

static int open_device(struct profile_run *r, bool float64, struct err *err)
{
    const char *name;
    int64_t threads;
    char *directory;

    if (option_int(r->options, "threads", 1, 4096, 0, &threads, err) < 0 ||
        option_choice(r->options, "backend", &name, err) < 0)
        return -1;
    r->profile.backend = planning_backend(name, float64, err);
    if (!r->profile.backend)
        return -1;
    r->profile.threads = (int)threads;
    r->profile.device = r->profile.backend->device_open((int)threads, err);
    if (!r->profile.device)
        return -1;
    directory = timings_directory(option_flag(r->options, "cache", true));
    r->profile.timings = timings_open(r->profile.backend, r->profile.device, (int)threads,
                                      directory);
    free(directory);
    return 0;
}

static int open_data(struct profile_run *r, const char *spec, struct err *err)
{
    struct data_options options;

    if (data_options_read(r->options, &options, err) < 0)
        return -1;
    r->data = data_open(spec, &options, err);
    return r->data ? 0 : -1;
}

static int open_model(struct profile_run *r, struct err *err)
{
    struct model_options *m = &r->profile.model_options;
    const char *data = option_string(r->options, "data", NULL);
    int precision, optimizer;

    if (options_operands(r->options) != 1)
        return err_set_code(err, EXIT_USAGE, "profile: expected a MODEL");
    if (option_word(r->options, "precision", &precision, err) < 0 ||
        option_word(r->options, "optimizer", &optimizer, err) < 0)
        return -1;
    m->real = precision == 1 ? DTYPE_F64 : DTYPE_F32;
    m->fuse = option_flag(r->options, "fuse", true);
    m->loss = option_string(r->options, "loss", NULL);
    m->n_freeze = option_strings(r->options, "freeze", &m->freeze);
    r->profile.optimizer = optimizer_defaults((enum optimizer_kind)optimizer);
    r->profile.optimizer.dtype = m->real;
    if (data && open_data(r, data, err) < 0)
        return -1;
    r->profile.model = model_open(options_operand(r->options, 0), err);
    if (!r->profile.model)
        return -1;
    if (r->data) {
        if (data_complete(r->data, r->profile.model, m->loss, err) < 0)
            return -1;
        m->tensors = data_tensors(r->data, &m->n_tensors);
    }
    return open_device(r, precision == 1, err);
}

/* For the devices of a cluster that is not here. */
static struct cost *estimate(const struct profile_run *r, struct err *err)
{
    const char *spec = option_string(r->options, "cluster", NULL);
    struct model_options options = r->profile.model_options;
    struct cluster *cluster;
    struct graph *graph;
    struct cost *cost = NULL;

    if (!spec) {
        err_set_code(err, EXIT_USAGE, "profile: --roofline needs --cluster SPEC");
        return NULL;
    }
    cluster = cluster_open(spec, err);
    if (!cluster)
        return NULL;
    options.batch = r->sizes[0];
    graph = model_build(r->profile.model, &options, err);
    if (graph && cluster->devices[0].flops <= 0 && cluster->devices[0].memory_bandwidth <= 0)
        err_set(err, "--cluster %s: nothing says how fast its devices are", spec);
    else if (graph)
        cost = estimate_cost(graph, r->profile.n_sizes, r->sizes, &cluster->devices[0],
                             optimizer_states(r->profile.optimizer.kind), err);
    graph_free(graph);
    cluster_free(cluster);
    return cost;
}

static void say_spread(const struct timings *timings)
{
    double median, worst;
    int n = timings ? timings_spread(timings, &median, &worst) : 0;

    if (n)
        log_info("%d operators measured; half of their rounds within %.3g %%, of the worst within "
                 "%.3g %%", n, 1e2 * median, 1e2 * worst);
}

static int write_cost(struct profile_run *r, const char *output, struct err *err)
{
    struct cost *cost = option_flag(r->options, "roofline", false)
                            ? estimate(r, err) : profile_cost(&r->profile, err);
    int bad;

    if (!cost)
        return -1;
    say_spread(r->profile.timings);
    bad = cost_save(cost, output, err);
    cost_free(cost);
    return bad;
}

static int run_profile(struct profile_run *r, struct err *err)
{
    const char *output = option_string(r->options, "output", NULL);
    int format;

    if (option_word(r->options, "format", &format, err) < 0 || read_sizes(r, err) < 0 ||
        open_model(r, err) < 0)
        return -1;
    if (option_given(r->options, "cluster") && !option_flag(r->options, "roofline", false))
        return err_set_code(err, EXIT_USAGE, "profile: --cluster is about --roofline alone");
    if (format == 1 || option_flag(r->options, "roofline", false) ||
        (output && !option_given(r->options, "format")))
        return write_cost(r, output ? output : "-", err);
    if (output)
        return err_set_code(err, EXIT_USAGE, "profile: -o writes JSON; the table goes to "
                            "standard output");
    for (int i = 0; i < r->profile.n_sizes; i++) {
        if (i > 0)
            putchar('\n');
        if (profile_table(&r->profile, r->sizes[i], stdout, err) < 0)
            return -1;
    }
    return 0;
}

int cmd_profile(int argc, char **argv, struct err *err)
{
    struct profile_run r = { .options = options_parse(COMMAND_PROFILE, argc, argv, 1, err) };
    int bad = r.options ? run_profile(&r, err) : -1;

    timings_close(r.profile.timings);
    if (r.profile.device)
        r.profile.backend->device_close(r.profile.device);
    model_close(r.profile.model);
    data_close(r.data);
    free(r.sizes);
    options_free((struct options *)r.options);
    return bad < 0 ? (int)err->code : EXIT_OK;
}
