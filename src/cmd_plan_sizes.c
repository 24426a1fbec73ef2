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
/* Of the whole time: less is noise of the arithmetic. */
#define SAME 1e-6

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
    double start_up[2];

    q->nodes = !option_given(o, "gpus");
    if (!q->nodes && option_given(o, "nodes"))
        return err_set_code(err, EXIT_USAGE, "--nodes and --gpus: leave one of them out");
    if (read_range(o, q->nodes ? "nodes" : "gpus", q->nodes, q, err) ||
        option_int(o, "steps", 1, (int64_t)1 << 40, 0, &q->steps, err) ||
        option_int(o, "epochs", 1, 1 << 20, 0, &q->epochs, err) ||
        option_two_numbers(o, "start-up", 0, 1e9, start_up, err) ||
        option_size(o, "data-size", 0, 0, &q->data_bytes, err))
        return -1;
    q->start_up = option_given(o, "start-up") ? start_up[0] : -1;
    q->start_up_node = start_up[1];
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
        fprintf(out, " %10.5g %10.4g %9.4g %9.4g %9.4g %10.4g", 1e3 * row->reading,
                row->parts[SIZE_START_UP], row->parts[SIZE_STAGING], row->steps, row->finish,
                row->node_hours);
    fprintf(out, "  %8.0f %% %7.0f %% %5.0f %%  %s\n", 1e2 * row->busy, 1e2 * row->reducing,
            1e2 * row->idle, size_part_name(row->limit));
}

static const char *const costs[SIZE_PARTS] = {
    [SIZE_START_UP] = "its start takes",
    [SIZE_STAGING] = "copies of the data take",
    [SIZE_READING] = "waiting for data takes",
    [SIZE_COMPUTES] = "computing takes",
    [SIZE_REDUCES] = "the all-reduce takes",
    [SIZE_UNEVEN] = "shares that are uneven cost",
    [SIZE_WAITS] = "waiting for other stages takes",
    [SIZE_UNUSED] = "devices without work cost",
};

/* Why a larger size loses: what takes longer than in the best, or, where nothing does, most. */
static void print_loss(const struct sizes *sizes, int i, FILE *out)
{
    const struct size_row *best = &sizes->rows[sizes->best], *row = &sizes->rows[i];
    int size = sizes_size(sizes, i);
    enum size_part most;
    double more;

    fprintf(out, "%d %s: ", size, sizes->request.nodes ? "nodes" : "devices");
    if (!row->plan) {
        fprintf(out, "%s.\n", row->refused);
        return;
    }
    most = size_grows(row, best);
    more = row->parts[most] - best->parts[most];
    if (fabs(row->finish - best->finish) <= SAME * best->finish)
        fputs("no sooner", out);
    else if (row->finish < best->finish)
        fprintf(out, "%.2g %% sooner", 1e2 * (1 - row->finish / best->finish));
    else
        fprintf(out, "%.4g times as long", row->finish / best->finish);
    fprintf(out, ", %.4g times the node-hours: ", row->node_hours / best->node_hours);
    if (more > SAME * row->finish)
        fprintf(out, "%s %.4g s more.\n", costs[most], more);
    else
        fprintf(out, "%s %.4g s.\n", costs[row->limit], row->parts[row->limit]);
    if (row->reading > row->plan->iteration_seconds)
        fprintf(out, "Its steps wait for data: %.4g s to read, %.4g s to compute one%s.\n",
                row->reading, row->plan->iteration_seconds,
                sizes->request.staged ? "" : "; --stage-to DIR reads copies");
}

/* A size whose devices do less than those of the sizes beside it. */
static void print_dip(const struct sizes *sizes, int i, FILE *out)
{
    const struct size_row *row = &sizes->rows[i], *less = row - 1, *more = row + 1;
    enum size_part most = size_wastes(row, less);

    fprintf(out, "%d %s are a dip, efficiency %.3g %% between %.3g and %.3g: %s %.4g s.\n",
            sizes_size(sizes, i), sizes->request.nodes ? "nodes" : "devices",
            1e2 * row->efficiency, 1e2 * less->efficiency, 1e2 * more->efficiency, costs[most],
            row->parts[most]);
}

void sizes_reason(const struct sizes *sizes, FILE *out)
{
    const struct size_row *best = &sizes->rows[sizes->best];

    fprintf(out, "Recommended: %d %s. No size is done more than %g %% sooner, and none that is "
            "done as soon\nneeds fewer node-hours.\n", sizes_size(sizes, sizes->best),
            sizes->request.nodes ? "nodes" : "devices", 1e2 * SIZES_NEAR);
    if (best->limit != SIZE_COMPUTES)
        fprintf(out, "Most of it is not computing: %s %.4g of %.4g s.\n", costs[best->limit],
                best->parts[best->limit], best->finish);
    for (int i = sizes->best + 1; i < sizes->n; i++)
        print_loss(sizes, i, out);
    for (int i = 1; i + 1 < sizes->n; i++)
        if (size_dips(sizes, i))
            print_dip(sizes, i, out);
}

static void print_table(const struct sizes *sizes, const struct cluster *cluster, FILE *out)
{
    const struct size_request *q = &sizes->request;

    plain_print(out, 0, cluster->name);
    if (q->steps)
        fprintf(out, ": %lld steps", (long long)q->steps);
    fprintf(out, "\n\n%6s %7s  %6s %12s %11s %11s", "nodes", "devices", "stages",
            "iteration ms", "samples/s", "efficiency");
    if (q->steps)
        fprintf(out, " %10s %10s %9s %9s %9s %10s", "reading ms", "start-up s", "staging s",
                "steps s", "finish s", "node-hours");
    fprintf(out, "  %10s %9s %7s  %s\n", "computes", "reduces", "waits", "limited by");
    for (int i = 0; i < sizes->n; i++)
        print_row(sizes, i, out);
    if (sizes->best >= 0) {
        fputc('\n', out);
        sizes_reason(sizes, out);
    }
    if (q->steps && !sizes->start_up)
        fprintf(out, "The start of a run is not counted: --start-up SECONDS[,PER_NODE].\n");
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
