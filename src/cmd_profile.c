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
#include "base/cache.h"
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
    bool roofline = option_flag(r->options, "roofline", false);
    const char *name;
    int64_t threads;
    char *directory;

    if (option_int(r->options, "threads", 1, 4096, 0, &threads, err) < 0 ||
        planning_kernels(r->options, &name, err) < 0)
        return -1;
    r->profile.backend = planning_backend(name, float64, err);
    if (!r->profile.backend)
        return -1;
    if (r->profile.offload && !roofline &&
        planning_check_offload(NULL, r->profile.backend, err) < 0)
        return -1;
    r->profile.threads = (int)threads;
    r->profile.device = roofline && r->profile.backend->device_imagine
                            ? r->profile.backend->device_imagine(NULL, err)
                            : r->profile.backend->device_open((int)threads, NULL, err);
    if (!r->profile.device)
        return -1;
    directory = cache_directory(option_flag(r->options, "cache", true));
    r->profile.timings = timings_open(r->profile.backend, r->profile.device, (int)threads,
                                      0, directory);
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
    int precision, optimizer, offload;

    if (options_operands(r->options) != 1)
        return err_set_code(err, EXIT_USAGE, "profile: expected a MODEL");
    if (option_word(r->options, "precision", &precision, err) < 0 ||
        option_word(r->options, "optimizer", &optimizer, err) < 0 ||
        option_word(r->options, "offload", &offload, err) < 0)
        return -1;
    m->real = precision == 1 ? DTYPE_F64 : DTYPE_F32;
    m->fuse = option_flag(r->options, "fuse", true);
    m->loss = option_string(r->options, "loss", NULL);
    m->n_freeze = option_strings(r->options, "freeze", &m->freeze);
    r->profile.optimizer = optimizer_defaults((enum optimizer_kind)optimizer);
    r->profile.optimizer.dtype = m->real;
    r->profile.offload = offload == 1;
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

/* Which 'option' is about. */
static struct cluster *open_cluster(const struct profile_run *r, const char *option,
                                    struct err *err)
{
    const char *spec = option_string(r->options, "cluster", NULL);

    if (spec)
        return cluster_open(spec, err);
    err_set_code(err, EXIT_USAGE, "profile: --%s needs --cluster SPEC", option);
    return NULL;
}

/* A file is of one kind. */
static void warn_mixed(const struct cluster *cluster)
{
    char *text = cluster_mixed(cluster, cluster_slowest(cluster)->kind);

    if (text)
        log_warning("%s", text);
    free(text);
}

/* For the devices of a cluster that is not here. */
static struct cost *estimate(const struct profile_run *r, struct err *err)
{
    struct model_options options = r->profile.model_options;
    int states = optimizer_states(r->profile.optimizer.kind);
    struct cluster *cluster = open_cluster(r, "roofline", err);
    struct graph *graph = NULL;
    struct cost *cost = NULL;

    if (!cluster)
        return NULL;
    options.batch = r->sizes[0];
    warn_mixed(cluster);
    if (!r->profile.offload || planning_check_offload(cluster, NULL, err) == 0)
        graph = model_build(r->profile.model, &options, err);
    if (graph)
        cost = estimate_cost(&(struct estimate){
            .graph = graph, .n_sizes = r->profile.n_sizes, .sizes = r->sizes, .cluster = cluster,
            .factors = planning_factors(r->profile.backend), .optimizer_states = states,
            .offloaded = r->profile.offload ? states : 0, .steps = true,
        }, cluster_slowest(cluster), err);
    graph_free(graph);
    cluster_free(cluster);
    return cost;
}

static int write_cost(struct profile_run *r, const char *output, struct err *err)
{
    struct profile_options options = r->profile;
    struct cost *cost;
    int bad;

    options.steps = true;
    cost = option_flag(r->options, "roofline", false)
               ? estimate(r, err) : profile_cost(&options, err);
    if (!cost)
        return -1;
    cost_set_precision(cost, planning_precision(options.backend,
                                                options.model_options.real == DTYPE_F64));
    timings_say(r->profile.timings, LOG_INFO);
    bad = cost_save(cost, output, err);
    cost_free(cost);
    return bad;
}

/* The devices that are described as the first one is. */
static void set_efficiency(struct cluster *cluster, double flops, double memory_bandwidth,
                           const struct efficiency *efficiency)
{
    struct cluster_device first = cluster->devices[0];
    int number = cluster_add_efficiency(cluster, efficiency);

    for (int i = 0; i < cluster->n_devices; i++) {
        struct cluster_device *d = &cluster->devices[i];
        struct cluster_place *leaf = &cluster->places[d->place];
        char *source;

        if (strcmp(d->kind, first.kind) != 0 || d->flops != first.flops ||
            d->memory_bandwidth != first.memory_bandwidth)
            continue;
        source = mem_printf("%s%sefficiency: measured by tasuki profile",
                            leaf->source ? cluster->sources[leaf->source - 1] : "",
                            leaf->source ? "; " : "");
        d->flops = flops;
        d->memory_bandwidth = memory_bandwidth;
        d->efficiency[FACTORS_FLOAT32] = number;
        leaf->source = cluster_add_source(cluster, source);
        free(source);
    }
}

static void say_peak(const char *figure, double described, double peak)
{
    if (peak > described && described > 0)
        log_info("%s: %.3g was reached, which is more than the %.3g that the cluster had", figure,
                 peak, described);
}

static int write_efficiency(struct profile_run *r, const char *output, struct err *err)
{
    struct cluster *cluster = open_cluster(r, "efficiency", err);
    struct calibration calibration = { 0 };
    struct efficiency efficiency;
    int bad = -1;

    if (cluster && profile_calibrate(&r->profile, &calibration, err) == 0) {
        const struct cluster_device *d = &cluster->devices[0];
        double flops = d->flops, bandwidth = d->memory_bandwidth;

        calibration_fit(&calibration, &flops, &bandwidth, &efficiency);
        timings_say(r->profile.timings, LOG_INFO);
        say_peak("flops", d->flops, flops);
        say_peak("memory_bandwidth", d->memory_bandwidth, bandwidth);
        set_efficiency(cluster, flops, bandwidth, &efficiency);
        bad = cluster_save(cluster, output, err);
    }
    calibration_clear(&calibration);
    cluster_free(cluster);
    return bad;
}

static int run_profile(struct profile_run *r, struct err *err)
{
    const char *output = option_string(r->options, "output", NULL);
    bool roofline = option_flag(r->options, "roofline", false);
    bool efficiency = option_flag(r->options, "efficiency", false);
    int format;

    if (option_word(r->options, "format", &format, err) < 0 || read_sizes(r, err) < 0 ||
        open_model(r, err) < 0)
        return -1;
    if (efficiency && planning_factors(r->profile.backend) != FACTORS_FLOAT32)
        return err_set_code(err, EXIT_USAGE, "--efficiency: shares are of the speed in float32: leave out "
                            "--precision");
    if (roofline && efficiency)
        return err_set_code(err, EXIT_USAGE, "profile: --roofline measures nothing, and "
                            "--efficiency does: give one of them");
    if (option_given(r->options, "cluster") && !roofline && !efficiency)
        return err_set_code(err, EXIT_USAGE, "profile: --cluster is about --roofline and "
                            "--efficiency alone");
    if (option_given(r->options, "format") && format != 1 && (roofline || efficiency))
        return err_set_code(err, EXIT_USAGE, "profile: --format text is the table of what was "
                            "measured in a training step; %s writes JSON",
                            roofline ? "--roofline" : "--efficiency");
    if (efficiency)
        return write_efficiency(r, output ? output : "-", err);
    if (format == 1 || roofline ||
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
