/* SPDX-License-Identifier: MIT */
/* tasuki simulate: plan.json → predicted timeline. */
#include "config.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plain.h"
#include "commands.h"
#include "scheduler/simulate.h"
#include "scheduler/timeline.h"
#include "topology/gather.h"
#include "topology/machine.h"
#include "topology/xml.h"
#include "base/cache.h"
#include "train/optimizer.h"
#include "train/planning.h"

#define COLUMNS 100     /* of the timeline in text */
#define MAX_THREADS 4096
#define MAX_NODES (1 << 20)
#define MIB (1024.0 * 1024)
#define ROUNDING 1e-12 /* of a share of the iteration */

struct simulate_run {
    const struct options *options;
    struct plan *plan;
    struct cost *cost;
    struct cluster *cluster;
    struct simulation *sim;
};

enum { FORMAT_TEXT, FORMAT_JSON, FORMAT_SVG, FORMAT_TRACE, FORMAT_SCHEDULE };

static const char *device_of(const struct simulate_run *r, int worker)
{
    return r->cluster->devices[r->sim->devices[worker]].id;
}

/* The model that the plan was made for, unchanged. */
static int open_model(const struct simulate_run *r, struct planning *planning,
                      struct planning_source *source, struct err *err)
{
    enum optimizer_kind kind;
    int64_t threads;

    if (option_int(r->options, "threads", 1, MAX_THREADS, 0, &threads, err) ||
        planning_kernels(r->options, &source->backend, err))
        return -1;
    if ((!source->backend || planning_on_gpu(source->backend)) &&
        planning_gpu_kernels(r->plan->precision))
        source->backend = planning_gpu_kernels(r->plan->precision);
    if (optimizer_from_name(r->plan->optimizer, &kind))
        return err_set(err, "%s: optimizer: \"%s\" is not known; give the costs by --cost FILE",
                       options_operand(r->options, 0), r->plan->optimizer);
    planning->threads = (int)threads;
    planning->optimizer = optimizer_defaults(kind);
    if (planning_open(planning, source, err))
        return err_prefix(err, "%s: without --cost FILE its model is needed",
                          options_operand(r->options, 0));
    if (!plan_suits(r->plan, model_hash(planning->model)))
        return err_set(err, "%s has changed since %s was made: plan again, or give --cost FILE",
                       source->model, options_operand(r->options, 0));
    return 0;
}

/* Without a cost file: what the planner would measure or estimate. */
static struct cost *cost_of_model(const struct simulate_run *r, const char *model,
                                  struct err *err)
{
    const struct options *o = r->options;
    char *cache = cache_directory(option_flag(o, "cache", true));
    struct planning planning = {
        .cluster = r->cluster, .cache_directory = cache, .command = "",
        /* The sizes that the planner looks at where none is pinned. */
        .request = { .global_batch = r->plan->global_batch,
                     .batchnorm_samples = r->plan->batchnorm_samples,
                     .offload = r->plan->offload },
    };
    struct planning_source source = {
        .model = model, .data = option_string(o, "data", NULL),
        .loss = option_string(o, "loss", NULL), .fuse = option_flag(o, "fuse", true),
        .float64 = strcmp(r->plan->precision, "float64") == 0,
        .n_freeze = r->plan->n_freeze, .freeze = (const char *const *)r->plan->freeze,
    };
    struct cost *cost = NULL;

    if (data_options_read(o, &source.data_options, err) == 0 &&
        open_model(r, &planning, &source, err) == 0)
        cost = planning_cost(&planning, err);
    planning_close(&planning, &source);
    free(cache);
    return cost;
}

static struct cost *open_cost(const struct simulate_run *r, struct err *err)
{
    const char *path = options_operand(r->options, 0), *const *files;
    int n = option_strings(r->options, "cost", &files);
    struct cost *cost;
    char *model;

    if (n)
        return planning_choose(r->cluster, n, files, err);
    if (!r->plan->model_path) {
        err_set_code(err, EXIT_USAGE, "%s: made from a cost file alone: give it by --cost FILE",
                     path);
        return NULL;
    }
    model = plan_find_model(r->plan, path);
    cost = cost_of_model(r, model, err);
    free(model);
    return cost;
}

static int open_cluster(struct simulate_run *r, struct err *err)
{
    int64_t nodes;
    char *spec, *own;

    if (option_int(r->options, "nodes", 1, MAX_NODES, 0, &nodes, err))
        return -1;
    spec = machine_spec(option_string(r->options, "cluster", NULL), nodes, err);
    if (!spec && nodes == 0 && strcmp(r->plan->cluster, GATHER_HERE) == 0)
        r->cluster = gather_here(err);
    else if (spec)
        r->cluster = cluster_open(spec, err);
    else if (nodes == 0) {
        own = plan_find_cluster(r->plan, options_operand(r->options, 0));
        r->cluster = cluster_open(own, err);
        free(own);
    }
    if (!r->cluster && !spec && nodes == 0)
        err_prefix(err, "%s names its cluster \"%s\": give another by --cluster SPEC",
                   options_operand(r->options, 0), r->plan->cluster);
    free(spec);
    return r->cluster ? 0 : -1;
}

static int open_all(struct simulate_run *r, struct err *err)
{
    const char *schedule = option_string(r->options, "schedule", NULL);
    struct simulated_jitter jitter;
    int64_t seed;

    if (option_number(r->options, "jitter", 0, 1000, 0, &jitter.share, err) ||
        option_int(r->options, "seed", 0, UINT_MAX, 0, &seed, err))
        return -1;
    jitter.seed = (unsigned)seed;
    if (options_operands(r->options) != 1)
        return err_set_code(err, EXIT_USAGE, "simulate: expected one PLAN");
    r->plan = plan_load(options_operand(r->options, 0), err);
    if (!r->plan || open_cluster(r, err) ||
        (schedule && plan_set_schedule(r->plan, schedule, err)))
        return -1;
    r->cost = open_cost(r, err);
    if (r->cost) {
        planning_warn(r->cluster, r->cost);
        planning_warn_precision(r->plan->precision, r->cost);
    }
    r->sim = r->cost ? simulate(r->plan, r->cost, r->cluster, &jitter, err) : NULL;
    return r->sim ? 0 : -1;
}

/* F: the micro-batch's last digit; backward: a letter; W alone: its small letter. */
static char mark_of(const struct instruction *i)
{
    switch (i->kind) {
    case INSTRUCTION_F:
        return (char)('0' + i->micro % 10);
    case INSTRUCTION_B:
    case INSTRUCTION_BW:
        return (char)('A' + i->micro % 10);
    case INSTRUCTION_W:
        return (char)('a' + i->micro % 10);
    case INSTRUCTION_STEP:
        return '#';
    default:
        return ' ';
    }
}

/* Reductions below computations: what overlaps is seen as computation. */
static void draw(const struct simulate_run *r, char *rows)
{
    double scale = r->sim->iteration_seconds > 0 ? COLUMNS / r->sim->iteration_seconds : 0;

    memset(rows, ' ', (size_t)r->sim->n_workers * COLUMNS);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < r->sim->n_events; i++) {
            const struct simulated_event *e = &r->sim->events[i];
            bool reduce = e->instruction.kind == INSTRUCTION_REDUCE;
            char *row = rows + (size_t)e->worker * COLUMNS;
            char mark = reduce ? '=' : mark_of(&e->instruction);

            if (reduce != (pass == 0) || mark == ' ')
                continue;
            for (int c = (int)(e->start * scale); c < (int)(e->end * scale + 0.5); c++)
                if (c < COLUMNS)
                    row[c] = mark;
        }
}

static double share_of(const struct simulate_run *r, double seconds)
{
    return r->sim->iteration_seconds > 0 ? seconds / r->sim->iteration_seconds : 0;
}

/* Neither computing nor waiting for the all-reduce; what the sums are rounded by is no bubble. */
static double bubble_of(const struct simulate_run *r, int w)
{
    double idle = 1 - share_of(r, r->sim->busy[w]) - share_of(r, r->sim->reducing[w]);

    return idle > ROUNDING ? idle : 0;
}

static double mean_bubble(const struct simulate_run *r)
{
    double sum = 0;

    for (int w = 0; w < r->sim->n_workers; w++)
        sum += bubble_of(r, w);
    return sum / r->sim->n_workers;
}

static void print_workers(const struct simulate_run *r, FILE *out)
{
    fprintf(out, "\n%-12s %9s %9s %9s %11s %11s %11s\n", "device", "computes", "reduces",
            "bubble", "memory MiB", "sent MiB", "got MiB");
    for (int w = 0; w < r->sim->n_workers; w++) {
        const double *moved =
            &r->sim->moved[2 * r->cluster->devices[r->sim->devices[w]].place];

        plain_print(out, 12, device_of(r, w));
        fprintf(out, " %7.1f %% %7.1f %% %7.1f %% %11.4g %11.4g %11.4g\n",
                1e2 * share_of(r, r->sim->busy[w]), 1e2 * share_of(r, r->sim->reducing[w]),
                1e2 * bubble_of(r, w), r->sim->memory[w] / MIB, moved[0] / MIB,
                moved[1] / MIB);
    }
}

/* "n1/island0"; malloc'ed. */
static char *path_of(const struct cluster *cluster, int place)
{
    const struct cluster_place *p = &cluster->places[place];
    char *above, *path;

    if (p->parent <= 0)
        return mem_strdup(p->name);
    above = path_of(cluster, p->parent);
    path = mem_printf("%s/%s", above, p->name);
    free(above);
    return path;
}

static bool carries(const struct simulate_run *r, int place)
{
    return r->sim->moved[2 * place] > 0 || r->sim->moved[2 * place + 1] > 0;
}

/* Links between places; those of the devices are theirs. */
static void print_links(const struct simulate_run *r, FILE *out)
{
    bool any = false;

    for (int p = 1; p < r->cluster->n_places; p++) {
        char *path;

        if (r->cluster->places[p].kind == CLUSTER_DEVICE || !carries(r, p))
            continue;
        if (!any)
            fprintf(out, "\n%-24s %11s %11s\n", "link of", "up MiB", "down MiB");
        any = true;
        path = path_of(r->cluster, p);
        plain_print(out, 24, path);
        fprintf(out, " %11.4g %11.4g\n", r->sim->moved[2 * p] / MIB,
                r->sim->moved[2 * p + 1] / MIB);
        free(path);
    }
}

static void print_text(const struct simulate_run *r, FILE *out)
{
    const struct simulation *sim = r->sim;
    char *rows = mem_new((size_t)sim->n_workers * COLUMNS, 1);

    draw(r, rows);
    for (int w = 0; w < sim->n_workers; w++) {
        plain_print(out, 12, device_of(r, w));
        fprintf(out, " |%.*s|\n", COLUMNS, rows + (size_t)w * COLUMNS);
    }
    free(rows);
    fprintf(out, "\n0-9 forward of a micro-batch (last digit), A-J backward, a-j towards "
            "parameters,\n= all-reduce, # update\n");
    print_workers(r, out);
    print_links(r, out);
    if (plan_versions(r->plan) > 1)
        fputs("\nbetween two updates of a pipeline that goes on without a pause;\n"
              SCHEDULE_STALE "\n", out);
    fprintf(out, "\niteration %.6g ms, %.6g samples/s\nbubble    %.3g %%\n",
            1e3 * sim->iteration_seconds, sim->iteration_seconds > 0
                ? (double)r->plan->global_batch / sim->iteration_seconds : 0,
            1e2 * mean_bubble(r));
}

static json_t *event_to_json(const struct simulate_run *r, const struct simulated_event *e)
{
    const struct instruction *i = &e->instruction;
    json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:i, s:f, s:f}", "kind",
                          instruction_name(i->kind), "pipeline", e->pipeline, "stage", e->stage,
                          "replica", e->replica, "micro", i->micro, "start", e->start, "end",
                          e->end);

    json_object_set_new(o, "device", json_string(device_of(r, e->worker)));
    if (i->kind == INSTRUCTION_SEND || i->kind == INSTRUCTION_RECV) {
        json_object_set_new(o, "peer", json_integer(i->peer));
        json_object_set_new(o, "gradient", json_boolean(i->gradient));
    }
    return o;
}

static json_t *to_json(const struct simulate_run *r)
{
    json_t *events = json_array(), *busy = json_array(), *links = json_array();

    for (int i = 0; i < r->sim->n_events; i++)
        json_array_append_new(events, event_to_json(r, &r->sim->events[i]));
    for (int w = 0; w < r->sim->n_workers; w++)
        json_array_append_new(busy, json_pack("{s:s, s:f, s:f, s:f}", "device",
                                              device_of(r, w), "seconds", r->sim->busy[w],
                                              "reducing", r->sim->reducing[w], "memory",
                                              r->sim->memory[w]));
    for (int p = 1; p < r->cluster->n_places; p++) {
        char *path = carries(r, p) ? path_of(r->cluster, p) : NULL;

        if (path)
            json_array_append_new(links, json_pack("{s:s, s:f, s:f}", "link", path, "up",
                                                   r->sim->moved[2 * p], "down",
                                                   r->sim->moved[2 * p + 1]));
        free(path);
    }
    return json_pack("{s:s, s:i, s:f, s:f, s:o, s:o, s:o}", "schema", "tasuki-simulation",
                     "version", 1, "iteration_seconds", r->sim->iteration_seconds, "bubble",
                     mean_bubble(r), "busy", busy, "links", links, "events", events);
}

static int process_of(const struct simulated_event *event, const void *user)
{
    (void)user;
    return event->worker;
}

static json_t *to_trace(const struct simulate_run *r)
{
    const struct timeline timeline = { .process = process_of };
    json_t *events = json_array();

    for (int w = 0; w < r->sim->n_workers; w++) {
        json_array_append_new(events, timeline_process(w, device_of(r, w)));
        for (int row = 0; row < TIMELINE_LANES; row++)
            json_array_append_new(events, timeline_row_name(w, row));
    }
    timeline_add(&timeline, r->sim, events);
    return timeline_file(events);
}

static const char *color_of(enum instruction_kind kind)
{
    switch (kind) {
    case INSTRUCTION_F:
        return "#4c78a8";
    case INSTRUCTION_B:
    case INSTRUCTION_BW:
        return "#f58518";
    case INSTRUCTION_W:
        return "#e8b070";
    case INSTRUCTION_REDUCE:
        return "#54a24b";
    default:
        return "#b279a2";
    }
}

static void print_legend(int left, int y, FILE *out)
{
    static const struct {
        enum instruction_kind kind;
        const char *text;
    } keys[] = { { INSTRUCTION_F, "forward" }, { INSTRUCTION_B, "backward" },
                 { INSTRUCTION_W, "weight gradients" }, { INSTRUCTION_REDUCE, "all-reduce" },
                 { INSTRUCTION_STEP, "update" } };

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                "<text x=\"%d\" y=\"%d\">%s</text>\n", left + (int)i * 130, y - 10,
                color_of(keys[i].kind), left + (int)i * 130 + 16, y, keys[i].text);
}

static void print_svg(const struct simulate_run *r, FILE *out)
{
    const int left = 120, width = 1000, height = 22;
    double scale = r->sim->iteration_seconds > 0 ? width / r->sim->iteration_seconds : 0;

    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n", left + width + 10,
            (r->sim->n_workers + 1) * height);
    for (int w = 0; w < r->sim->n_workers; w++) {
        fprintf(out, "<text x=\"4\" y=\"%d\">", w * height + 15);
        xml_text(out, device_of(r, w));
        fputs("</text>\n", out);
    }
    for (int i = 0; i < r->sim->n_events; i++) {
        const struct simulated_event *e = &r->sim->events[i];
        enum instruction_kind kind = e->instruction.kind;
        bool reduce = kind == INSTRUCTION_REDUCE;

        if (kind == INSTRUCTION_SEND || kind == INSTRUCTION_RECV || e->end <= e->start)
            continue;
        fprintf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\">"
                "<title>%s %d: %.6g ms</title></rect>\n", left + e->start * scale,
                e->worker * height + (reduce ? height - 5 : 1),
                (e->end - e->start) * scale, reduce ? 4 : height - 6, color_of(kind),
                instruction_name(kind), e->instruction.micro, 1e3 * (e->end - e->start));
    }
    fprintf(out, "<text x=\"4\" y=\"%d\">%.6g ms</text>\n", r->sim->n_workers * height + 15,
            1e3 * r->sim->iteration_seconds);
    print_legend(left, r->sim->n_workers * height + 15, out);
    fputs("</svg>\n", out);
}

static int save_json(json_t *json, const char *path, struct err *err)
{
    int rc = json_save(json, path, err);

    json_decref(json);
    return rc;
}

static int print(const struct simulate_run *r, struct err *err)
{
    const char *output = option_string(r->options, "output", "-");
    const char *trace = option_string(r->options, "trace", NULL);
    size_t size = 0;
    char *text = NULL;
    int format, rc;
    FILE *out;

    if (option_word(r->options, "format", &format, err) ||
        (trace && save_json(to_trace(r), trace, err)))
        return -1;
    if (format == FORMAT_JSON || format == FORMAT_TRACE)
        return save_json(format == FORMAT_JSON ? to_json(r) : to_trace(r), output, err);
    out = open_memstream(&text, &size);
    if (!out)
        return err_set(err, "out of memory");
    if (format == FORMAT_SCHEDULE)
        schedule_print(r->sim->schedule, out);
    else if (format == FORMAT_SVG)
        print_svg(r, out);
    else
        print_text(r, out);
    fclose(out);
    rc = file_write(output, text, size, err);
    free(text);
    return rc;
}

int cmd_simulate(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_SIMULATE, argc, argv, 1, err);
    struct simulate_run r = { .options = options };
    int result;

    if (!options)
        return (int)err->code;
    result = open_all(&r, err);
    if (!result)
        result = print(&r, err);
    simulation_free(r.sim);
    cluster_free(r.cluster);
    cost_free(r.cost);
    plan_free(r.plan);
    options_free(options);
    return result ? (int)err->code : EXIT_OK;
}
