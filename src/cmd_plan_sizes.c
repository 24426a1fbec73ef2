/* SPDX-License-Identifier: MIT */
/* tasuki plan --nodes FIRST..LAST: which size to ask for. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/plain.h"
#include "cmd_plan.h"

#define MOST_SIZE (1 << 20)
#define MOST_SIZES 4096

/* "FIRST..LAST", or with 'single' N alone, which leaves 'last' at 0. */
static int read_range(const struct options *o, const char *name, bool single,
                      struct size_request *q, struct err *err)
{
    const char *text = option_string(o, name, NULL);
    char *end;
    long first, last = 0;

    if (!text)
        return 0;
    first = strtol(text, &end, 10);
    if (end != text && strncmp(end, "..", 2) == 0) {
        const char *rest = end + 2;

        last = strtol(rest, &end, 10);
        if (end == rest || last < first || last > MOST_SIZE || last - first >= MOST_SIZES)
            end = (char *)text;
    } else if (!single) {
        end = (char *)text;
    }
    if (end == text || *end || first < 1 || first > MOST_SIZE)
        return err_set_code(err, EXIT_USAGE, "--%s: expected %sFIRST..LAST, such as 1..16, got "
                            "\"%s\"", name, single ? "a number of nodes or " : "", text);
    q->first = (int)first;
    q->last = (int)last;
    return 0;
}

/* In other places than the command line it may stand for training. */
static const char *given_of(const struct options *o, const char *const *names)
{
    for (; *names; names++)
        if (option_origin(o, *names) == OPTION_COMMAND_LINE)
            return *names;
    return NULL;
}

int sizes_read(const struct options *options, struct size_request *request, struct err *err)
{
    static const char *const ours[] = { "steps", "epochs", "samples", "start-up", "data-size",
                                        "stage-to", NULL };
    const struct options *o = options;
    struct size_request *q = request;
    const char *other;

    q->nodes = !option_given(o, "gpus");
    if (!q->nodes && option_given(o, "nodes"))
        return err_set_code(err, EXIT_USAGE, "--nodes and --gpus: leave one of them out");
    if (read_range(o, q->nodes ? "nodes" : "gpus", q->nodes, q, err) ||
        option_int(o, "steps", 1, (int64_t)1 << 40, 0, &q->steps, err) ||
        option_int(o, "epochs", 1, 1 << 20, 0, &q->epochs, err) ||
        option_number(o, "start-up", 0, 1e9, 0, &q->start_up, err) ||
        option_size(o, "data-size", 0, 0, &q->data_bytes, err))
        return -1;
    q->staged = option_given(o, "stage-to");
    other = q->last ? NULL : given_of(o, ours);
    if (other)
        return err_set_code(err, EXIT_USAGE, "--%s: only --nodes FIRST..LAST and --gpus "
                            "FIRST..LAST ask for it", other);
    if (q->last && q->steps && q->epochs)
        return err_set_code(err, EXIT_USAGE, "--steps and --epochs: leave one of them out");
    if (q->last && !q->steps && !q->epochs && (other = given_of(o, ours)))
        return err_set_code(err, EXIT_USAGE, "--%s: needs --steps or --epochs", other);
    return 0;
}

/* What does not fill a batch is left out of each epoch, as in training. */
int sizes_settle(const struct options *options, int64_t samples, int64_t global_batch,
                 struct size_request *request, struct err *err)
{
    int64_t given;

    if (option_int(options, "samples", 1, (int64_t)1 << 40, 0, &given, err))
        return -1;
    request->samples = samples = given ? given : samples;
    if (!request->last || !request->epochs)
        return 0;
    if (!samples)
        return err_set_code(err, EXIT_USAGE, "--epochs: needs --data DATA or --samples N");
    if (samples < global_batch)
        return err_set_code(err, EXIT_USAGE, "--epochs: %lld samples do not fill a batch of "
                            "%lld: --global-batch %lld would do", (long long)samples,
                            (long long)global_batch, (long long)samples);
    request->steps = request->epochs * (samples / global_batch);
    return 0;
}

static void print_row(const struct sizes *sizes, int i, FILE *out)
{
    const struct size_row *row = &sizes->rows[i];
    bool all = sizes->request.steps > 0;

    fprintf(out, "%c%5d %7d  ", i == sizes->best ? '*' : ' ', row->nodes, row->devices);
    if (!row->plan) {
        fprintf(out, "%s\n", row->refused);
        return;
    }
    fprintf(out, "%6d %12.5g %11.5g %9.0f %%", row->plan->n_stages,
            1e3 * row->plan->iteration_seconds,
            (double)row->plan->global_batch / row->step, 1e2 * row->efficiency);
    if (all)
        fprintf(out, " %10.5g %9.4g %9.4g %9.4g %10.4g", 1e3 * row->reading, row->staging,
                row->steps, row->finish, row->node_hours);
    fprintf(out, "  %8.0f %% %7.0f %% %5.0f %%\n", 1e2 * row->busy, 1e2 * row->reducing,
            1e2 * row->idle);
}

/* Why not the next larger one? */
void sizes_reason(const struct sizes *sizes, FILE *out)
{
    const struct size_row *best = &sizes->rows[sizes->best], *next = best + 1;
    const char *what = sizes->request.nodes ? "nodes" : "devices";
    int size = sizes->request.nodes ? best->nodes : best->devices;

    fprintf(out, "Recommended: %d %s. No size is done more than %g %% sooner, and none that is "
            "done as soon\nneeds fewer node-hours.\n", size, what, 1e2 * SIZES_NEAR);
    if (sizes->best + 1 == sizes->n)
        return;
    if (!next->plan) {
        fprintf(out, "%d %s: %s.\n", size + 1, what, next->refused);
        return;
    }
    fprintf(out, "%d %s would take %.4g times as long, at %.4g times the node-hours: of a device's "
            "time\n%.0f %% is computing, not %.0f %%; %.0f %% all-reduce, not %.0f %%; %.0f %% "
            "waiting, not %.0f %%.\n", size + 1, what, next->finish / best->finish,
            next->node_hours / best->node_hours, 1e2 * next->busy, 1e2 * best->busy,
            1e2 * next->reducing, 1e2 * best->reducing, 1e2 * next->idle, 1e2 * best->idle);
    if (next->reading > next->plan->iteration_seconds)
        fprintf(out, "Its steps wait for data: %.4g s to read, %.4g s to compute one%s.\n",
                next->reading, next->plan->iteration_seconds,
                sizes->request.staged ? "" : "; --stage-to DIR reads copies");
}

static void print_table(const struct sizes *sizes, const struct cluster *cluster, FILE *out)
{
    const struct size_request *q = &sizes->request;

    plain_print(out, 0, cluster->name);
    if (q->steps)
        fprintf(out, ": %lld steps, start-up %g s", (long long)q->steps, q->start_up);
    fprintf(out, "\n\n%6s %7s  %6s %12s %11s %11s", "nodes", "devices", "stages",
            "iteration ms", "samples/s", "efficiency");
    if (q->steps)
        fprintf(out, " %10s %9s %9s %9s %10s", "reading ms", "staging s", "steps s",
                "finish s", "node-hours");
    fprintf(out, "  %10s %9s %7s\n", "computes", "reduces", "waits");
    for (int i = 0; i < sizes->n; i++)
        print_row(sizes, i, out);
    if (sizes->best >= 0) {
        fputc('\n', out);
        sizes_reason(sizes, out);
    }
    if (q->steps && q->start_up <= 0)
        fprintf(out, "The start of a run is not counted: --start-up SECONDS.\n");
    if (q->steps && q->data_bytes <= 0)
        fprintf(out, "Reading the data is not counted: --data-size BYTES.\n");
    else if (q->steps && !sizes->storage)
        fprintf(out, "Reading the data is not counted: the cluster says nothing of storage.\n");
    else if (q->steps && q->samples <= 0)
        fprintf(out, "What a step reads is not counted: --samples N.\n");
}

int sizes_print(const struct sizes *sizes, const struct cluster *cluster,
                const struct options *options, struct err *err)
{
    const char *output = option_string(options, "output", NULL);
    json_t *json;
    int format, bad;

    if (option_word(options, "format", &format, err))
        return -1;
    if (format > 1)
        return err_set_code(err, EXIT_USAGE, "--format svg draws one plan: leave out --%s "
                            "FIRST..LAST", sizes->request.nodes ? "nodes" : "gpus");
    if (sizes->best < 0)
        return err_set(err, "no size has a plan; %d: %s", sizes->request.first,
                       sizes->rows[0].refused);
    if (output && plan_save(sizes->rows[sizes->best].plan, output, err))
        return -1;
    if (output && strcmp(output, "-") == 0)
        return 0;
    if (!format && !log_speaks(LOG_INFO))
        return 0;
    if (!format) {
        print_table(sizes, cluster, stdout);
        return 0;
    }
    json = sizes_to_json(sizes);
    bad = json_save(json, "-", err);
    json_decref(json);
    return bad;
}
