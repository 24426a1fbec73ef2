/* SPDX-License-Identifier: MIT */
/* tasuki plan: model or cost file, and cluster → plan.json, and why. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd_plan.h"
#include "commands.h"
#include "scheduler/partition.h"
#include "scheduler/schedule.h"
#include "topology/cluster.h"
#include "topology/gather.h"
#include "topology/machine.h"
#include "base/cache.h"
#include "train/optimizer.h"
#include "train/planning.h"

#define MAX_SAMPLES ((int64_t)1 << 40)
#define MAX_COUNT 4096

/* What is of use with a model alone, and is read without one, too. */
struct network {
    struct planning_source source;
    int64_t threads;
    enum optimizer_kind optimizer;
};

struct plan_run {
    const struct options *options;
    const char *command;
    struct network network;
    struct plan_request request;
    struct size_request sizes;
    int *replicas;
    struct schedule *list;
    char *spec;                 /* of the cluster; NULL: this machine */
    struct cluster *cluster;
    struct cost *cost;
    struct plan *plan;
    struct sizes *compared;     /* in place of one plan */
    char *why;
};

static int read_schedule(struct plan_run *r, struct err *err)
{
    const char *schedule = option_string(r->options, "schedule", NULL);

    if (!schedule || schedule_find(schedule) >= 0) {
        r->request.schedule = schedule;
        return 0;
    }
    r->request.list = r->list = schedule_load(schedule, err);
    if (!r->list)
        return -1;
    r->request.stages = r->request.stages ? r->request.stages : r->list->n_stages;
    if (!r->request.micro_batches)
        r->request.micro_batches = r->list->micro_batches;
    return 0;
}

static int read_request(struct plan_run *r, struct err *err)
{
    const struct options *o = r->options;
    struct plan_request *q = &r->request;
    int64_t stages, pipelines, chunks;
    int offload;

    if (!option_given(o, "global-batch"))
        return err_set_code(err, EXIT_USAGE, "plan: --global-batch N is needed");
    if (option_int(o, "global-batch", 1, MAX_SAMPLES, 0, &q->global_batch, err) ||
        option_int(o, "stages", 1, MAX_COUNT, 0, &stages, err) ||
        option_int(o, "pipelines", 1, MAX_COUNT, 0, &pipelines, err) ||
        option_int(o, "chunks", 2, SCHEDULE_MAX_CHUNKS, 0, &chunks, err) ||
        option_ints(o, "replicas", 1, MAX_COUNT, &q->n_replicas, &r->replicas, err) ||
        option_int(o, "micro-batches", 1, MAX_SAMPLES, 0, &q->micro_batches, err) ||
        option_int(o, "micro-batch-size", 1, MAX_SAMPLES, 0, &q->micro_batch, err) ||
        option_int(o, "batchnorm-samples", 1, MAX_SAMPLES, 0, &q->batchnorm_samples, err) ||
        option_size(o, "memory", 1, 0, &q->memory, err) ||
        option_choice(o, "policy", &q->policy, err) ||
        option_number(o, "schedule-memory", 1, SCHEDULE_MEMORY, 0, &q->schedule_memory, err) ||
        option_choice(o, "recompute", &q->recompute, err) ||
        option_word(o, "offload", &offload, err) ||
        option_choice(o, "optimizer", &q->optimizer, err))
        return -1;
    if (option_given(o, "zero"))
        q->zero = option_flag(o, "zero", true) ? PLAN_ZERO : PLAN_ZERO_NEVER;
    q->offload = offload == 1;
    q->stages = (int)stages;
    q->chunks = (int)chunks;
    q->pipelines = (int)pipelines;
    q->n_pins = option_strings(o, "pin", &q->pins);
    q->exhaustive = option_flag(o, "exhaustive", false);
    q->replicas = r->replicas;
    return read_schedule(r, err);
}

static int open_cluster(struct plan_run *r, struct err *err)
{
    const char *given = option_string(r->options, "cluster", NULL);
    int64_t nodes = r->sizes.nodes ? r->sizes.last ? r->sizes.last : r->sizes.first : 0;

    /* What says how many nodes there are has as many as are compared, or more. */
    if (r->sizes.last && given && machine_counts(given))
        nodes = 0;
    r->spec = machine_spec(given, nodes, err);
    if (r->spec)
        r->cluster = cluster_open(r->spec, err);
    else if (nodes == 0)
        r->cluster = gather_here(err);
    return r->cluster ? 0 : -1;
}

static struct plan *plan_part_by_cost(void *user, const struct cluster *part, struct err *err)
{
    const struct plan_run *r = user;

    return partition(r->cost, part, &r->request, NULL, err);
}

static struct plan *plan_part(void *user, const struct cluster *part, struct err *err)
{
    struct planning *planning = user;

    planning->cluster = part;
    return planning_run(planning, NULL, err);
}

/* The cluster as others find it, too: its name may be one that the file gives itself. */
static void set_origin(const struct plan_run *r, struct plan *plan)
{
    free(plan->command);
    plan->command = mem_strdup(r->command);
    if (!r->spec)
        return;
    free(plan->cluster);
    plan->cluster = mem_strdup(r->spec);
}

static int compare_sizes(struct plan_run *r, struct err *err)
{
    struct sizes *sizes = sizes_new(r->cluster, &r->sizes, err);

    if (!sizes)
        return -1;
    for (int i = 0; i < sizes->n; i++)
        if (sizes->rows[i].plan)
            set_origin(r, sizes->rows[i].plan);
    r->compared = sizes;
    return 0;
}

/* The network is measured once for all sizes. */
static int compare_model(struct plan_run *r, struct planning *planning, struct err *err)
{
    struct cost *measured = NULL;
    int bad = -1;

    if (!planning->cost)
        planning->cost = measured = planning_cost(planning, err);
    if (planning->cost) {
        r->sizes.plan = plan_part;
        r->sizes.user = planning;
        bad = compare_sizes(r, err);
    }
    cost_free(measured);
    return bad;
}

static int open_cost(struct plan_run *r, struct err *err)
{
    const char *const *paths;
    int n = option_strings(r->options, "cost", &paths);

    if (n)
        r->cost = planning_choose(r->cluster, n, paths, err);
    if (n && !r->cost)
        return -1;
    planning_warn(r->cluster, r->cost);
    return 0;
}

static int read_network(struct plan_run *r, struct err *err)
{
    const struct options *o = r->options;
    struct network *n = &r->network;
    struct planning_source *source = &n->source;
    int precision, optimizer;

    *source = (struct planning_source){
        .model = options_operand(o, 0), .data = option_string(o, "data", NULL),
        .loss = option_string(o, "loss", NULL), .fuse = option_flag(o, "fuse", true),
    };
    if (data_options_read(o, &source->data_options, err) ||
        option_word(o, "precision", &precision, err) ||
        option_int(o, "threads", 1, MAX_COUNT, 0, &n->threads, err) ||
        planning_kernels(o, &source->backend, err) ||
        option_word(o, "optimizer", &optimizer, err))
        return -1;
    source->float64 = precision == 1;
    source->n_freeze = option_strings(o, "freeze", &source->freeze);
    n->optimizer = (enum optimizer_kind)optimizer;
    return 0;
}

/* Costs of a model are measured here, unless a cost file is given; its memory is that of its
 * compiled stages.
 */
static int plan_model(struct plan_run *r, struct err *err)
{
    const struct options *o = r->options;
    struct planning_source *source = &r->network.source;
    char *cache = cache_directory(option_flag(o, "cache", true));
    struct planning planning = { .request = r->request, .cluster = r->cluster,
                                 .cost = r->cost, .cache_directory = cache, .command = "",
                                 .threads = (int)r->network.threads,
                                 .optimizer = optimizer_defaults(r->network.optimizer) };
    int bad = planning_open(&planning, source, err);

    if (!bad)
        bad = sizes_settle(o, source->opened_data ? data_samples(source->opened_data) : 0,
                           r->request.global_batch, &r->sizes, err);
    if (!bad && r->sizes.last) {
        bad = compare_model(r, &planning, err);
    } else if (!bad) {
        r->plan = planning_run(&planning, &r->why, err);
        bad = r->plan ? 0 : -1;
    }
    planning_close(&planning, source);
    free(cache);
    return bad;
}

static int make_plan(struct plan_run *r, struct err *err)
{
    if (options_operands(r->options) > 0)
        return plan_model(r, err);
    if ((r->request.offload && planning_check_offload(r->cluster, NULL, err)) ||
        sizes_settle(r->options, 0, r->request.global_batch, &r->sizes, err))
        return -1;
    if (r->sizes.last) {
        r->sizes.plan = plan_part_by_cost;
        r->sizes.user = r;
        return compare_sizes(r, err);
    }
    r->plan = partition(r->cost, r->cluster, &r->request, &r->why, err);
    return r->plan ? 0 : -1;
}

enum { FORMAT_TEXT, FORMAT_JSON, FORMAT_SVG };

static int print_svg(const struct plan_run *r, struct err *err)
{
    char *text = plan_svg(r->plan, r->cluster);
    int bad = text ? file_write("-", text, strlen(text), err) : err_set(err, "out of memory");

    free(text);
    return bad;
}

static int print(const struct plan_run *r, struct err *err)
{
    const char *output = option_string(r->options, "output", NULL);
    int format;

    if (option_word(r->options, "format", &format, err))
        return -1;
    if (output && plan_save(r->plan, output, err))
        return -1;
    if (output && strcmp(output, "-") == 0)
        return 0;
    if (format == FORMAT_JSON)
        return plan_save(r->plan, "-", err);
    if (format == FORMAT_SVG)
        return print_svg(r, err);
    if (log_speaks(LOG_INFO))
        plan_table(r->plan, r->cluster, r->why, stdout);
    return 0;
}

static int work(struct plan_run *r, struct err *err)
{
    if (options_operands(r->options) == 0 && !option_given(r->options, "cost"))
        return err_set_code(err, EXIT_USAGE, "plan: a MODEL or --cost FILE is needed");
    if (read_request(r, err) || read_network(r, err) ||
        sizes_read(r->options, &r->sizes, err) || open_cluster(r, err) || open_cost(r, err) ||
        make_plan(r, err))
        return -1;
    if (r->plan)
        set_origin(r, r->plan);
    return 0;
}

static void clear(struct plan_run *r)
{
    free(r->why);
    plan_free(r->plan);
    sizes_free(r->compared);
    cost_free(r->cost);
    cluster_free(r->cluster);
    schedule_free(r->list);
    free(r->replicas);
    free(r->spec);
}

struct sizes *plan_sizes(int argc, char **argv, int most, struct err *err)
{
    struct options *options = options_parse(COMMAND_PLAN, argc, argv, 1, err);
    struct plan_run r = { .options = options, .command = "", .sizes.most = most };
    struct sizes *sizes = NULL;

    if (options && work(&r, err) == 0) {
        sizes = r.compared;
        r.compared = NULL;
    }
    clear(&r);
    options_free(options);
    return sizes;
}

int cmd_plan(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_PLAN, argc, argv, 1, err);
    struct plan_run r = { .options = options };
    char *command = NULL;
    int result;

    if (!options)
        return (int)err->code;
    r.command = command = options_command_line(argc, argv);
    mem_expect_much();
    result = work(&r, err);
    if (!result && r.compared)
        result = sizes_print(r.compared, r.cluster, options, err);
    else if (!result)
        result = print(&r, err);
    clear(&r);
    free(command);
    options_free(options);
    return result ? (int)err->code : EXIT_OK;
}
