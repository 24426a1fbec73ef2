/* SPDX-License-Identifier: MIT */
#include "train/run_view.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/report.h"
#include "train/run_plot.h"

#define MOST_ROWS 10        /* of the curve */
#define LEAST_ROWS 3
#define FEW_EVENTS 3        /* that a curve leaves room for */
#define LABEL 10            /* columns before the curve */
#define BAR 16              /* of a stage */
#define STRAGGLERS 2
#define LEAST_STAGES 3
#define SILENT 60           /* seconds without a line that are worth a word */

struct lines {
    char **text;
    int n;
};

__attribute__((format(printf, 2, 3))) static void add(struct lines *lines, const char *format,
                                                      ...)
{
    char text[2 * RUN_LINE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (char *c = text; *c; c++)       /* names of files may tell a terminal anything */
        *c = (unsigned char)*c < ' ' ? '?' : *c;
    *(char **)mem_push((void **)&lines->text, &lines->n, sizeof(char *)) = mem_strdup(text);
}

static void clear(struct lines *lines)
{
    for (int i = 0; i < lines->n; i++)
        free(lines->text[i]);
    free(lines->text);
}

static const char *duration(double seconds, char text[32])
{
    long long s = seconds < 3.6e8 ? (long long)seconds : 360000000;

    if (isnan(seconds))
        snprintf(text, 32, "?");
    else if (s >= 86400)
        snprintf(text, 32, "%lldd %02lld:%02lld", s / 86400, s / 3600 % 24, s / 60 % 60);
    else if (s >= 3600)
        snprintf(text, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, 32, "%lld:%02lld", s / 60, s % 60);
    return text;
}

/* The head ---------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

static void add_title(struct lines *l, const struct run_state *s, const struct run_view *v)
{
    char silent[64] = "", time[32];
    const char *name = base_name(v->log);

    if (!run_state_over(s) && v->age >= SILENT)
        snprintf(silent, sizeof(silent), ", nothing new for %s", duration(v->age, time));
    add(l, "tasuki watch %s: %s%s", name, run_phase_name(s->phase), silent);
}

static void add_plan(struct lines *l, const struct run_state *s)
{
    char stages[64] = "", batches[64] = "";
    int used = 0;

    if (!s->model[0])
        return;
    for (int i = 0; i < s->n_stages && used < 24; i++)
        used += snprintf(stages + used, sizeof(stages) - (size_t)used, "%s%d", i ? "," : "",
                         s->replicas[i]);
    if (used >= 24)
        snprintf(stages + used, sizeof(stages) - (size_t)used, ",...");
    if (s->micro_batches > 0)
        snprintf(batches, sizeof(batches), ", %lld x %lld samples",
                 (long long)s->micro_batches, (long long)s->micro_batch);
    add(l, "%s: %d rank%s, %lld x %d stage%s (%s)%s, %s", base_name(s->model), s->n_ranks,
        s->n_ranks == 1 ? "" : "s", (long long)s->pipelines, s->n_stages,
        s->n_stages == 1 ? "" : "s", stages, batches, s->schedule);
}

static void add_progress(struct lines *l, const struct run_state *s, const struct run_view *v)
{
    double share = s->steps > 0 ? (double)s->step / (double)s->steps : 0;
    char bar[RUN_LINE], left[32], tail[160], epoch[32] = "", remains[48] = "";
    int width;

    if (s->epoch > 0)
        snprintf(epoch, sizeof(epoch), ", epoch %lld", (long long)s->epoch);
    if (!isnan(run_state_left(s)))
        snprintf(remains, sizeof(remains), ", %s left", duration(run_state_left(s), left));
    snprintf(tail, sizeof(tail), "step %lld of %lld%s%s", (long long)s->step,
             (long long)s->steps, epoch, remains);
    width = v->width - (int)strlen(tail) - 9;
    if (width < 8) {
        add(l, "%s", tail);
        return;
    }
    run_bar(share, width, v->utf8, bar);
    add(l, "%s %3.0f %%  %s", bar, 100 * fmin(share, 1), tail);
}

/* Figures ----------------------------------------------------------------------------- */

static void add_loss(struct lines *l, const struct run_state *s)
{
    char accuracy[48] = "", best[64] = "";

    if (s->n_recent == 0 && s->n_points == 0)
        return;
    if (!isnan(s->accuracy))
        snprintf(accuracy, sizeof(accuracy), ", accuracy %.2f %%", 100 * s->accuracy);
    if (s->best_step > 0)
        snprintf(best, sizeof(best), "   best %.5g at step %lld", s->best,
                 (long long)s->best_step);
    add(l, "loss       %.5g%s%s", s->loss, accuracy, best);
    if (s->n_bad > 0)
        add(l, "bad steps  %lld, the last %lld", (long long)s->n_bad, (long long)s->last_bad);
}

static void add_test(struct lines *l, const struct run_state *s)
{
    char accuracy[48] = "";

    if (s->test_step == 0)
        return;
    if (!isnan(s->test_accuracy))
        snprintf(accuracy, sizeof(accuracy), ", accuracy %.2f %%", 100 * s->test_accuracy);
    add(l, "test       %.5g%s at step %lld   best %.5g", s->test_loss, accuracy,
        (long long)s->test_step, s->test_best);
}

static void add_speed(struct lines *l, const struct run_state *s)
{
    double seconds = run_state_seconds(s);
    char predicted[64] = "", a[24], b[24];

    if (s->n_recent == 0)
        return;
    if (s->predicted > 0)
        snprintf(predicted, sizeof(predicted), ", predicted %s (%+.0f %%)",
                 report_time(s->predicted, b), 100 * (seconds / s->predicted - 1));
    add(l, "speed      %.5g samples/s, step %s%s", run_state_rate(s), report_time(seconds, a),
        predicted);
}

static void add_rate(struct lines *l, const struct run_state *s)
{
    char norm[48] = "";

    if (isnan(s->lr))
        return;
    if (!isnan(s->norm))
        snprintf(norm, sizeof(norm), ", norm of the gradients %.4g", s->norm);
    add(l, "rate       %.4g%s", s->lr, norm);
}

static void add_checkpoint(struct lines *l, const struct run_state *s)
{
    if (s->n_checkpoints > 0)
        add(l, "checkpoint step %lld in %s", (long long)s->checkpoint_step, s->directory);
}

/* Stages ------------------------------------------------------------------------------ */

static void add_stage(struct lines *l, const struct run_state *s, const struct run_view *v,
                      int stage)
{
    struct run_rank sum = { 0 };
    char bar[RUN_LINE], bytes[24], memory[24] = "";
    int n = 0;

    for (int r = 0; r < s->n_reported; r++) {
        const struct run_rank *rank = &s->ranks[r];

        if (rank->stage != stage)
            continue;
        n++;
        sum.compute += rank->compute;
        sum.idle += rank->idle;
        sum.messages += rank->messages;
        sum.reduce += rank->reduce;
        sum.data += rank->data;
        sum.memory = fmax(sum.memory, rank->memory);
    }
    if (n == 0)
        return;
    run_bar(sum.compute / n, BAR, v->utf8, bar);
    if (sum.memory > 0)
        snprintf(memory, sizeof(memory), "%s", report_bytes(sum.memory, bytes));
    add(l, "%5d %5d  %s %3.0f %%  %5.0f %%  %5.0f %%  %3.0f %%  %3.0f %%  %10s", stage, n, bar,
        100 * sum.compute / n, 100 * sum.idle / n, 100 * sum.messages / n, 100 * sum.reduce / n,
        100 * sum.data / n, memory);
}

static int highest_stage(const struct run_state *s)
{
    int highest = -1;

    for (int r = 0; r < s->n_reported; r++)
        highest = s->ranks[r].stage > highest ? s->ranks[r].stage : highest;
    return highest;
}

/* The slowest of those that come behind 'last' by factor, then by rank; -1: there is none. */
static int next_straggler(const struct run_state *s, int last)
{
    double below = last < 0 ? INFINITY : s->ranks[last].factor;
    int slowest = -1;

    for (int r = 0; r < s->n_reported; r++) {
        double factor = s->ranks[r].factor;

        if (factor >= RUN_STRAGGLER && (factor < below || (factor == below && r > last)) &&
            (slowest < 0 || factor > s->ranks[slowest].factor))
            slowest = r;
    }
    return slowest;
}

static void add_stragglers(struct lines *l, const struct run_state *s)
{
    int n = 0, shown = 0;

    for (int r = 0; r < s->n_reported; r++)
        n += s->ranks[r].factor >= RUN_STRAGGLER;
    for (int r = next_straggler(s, -1); r >= 0 && shown < STRAGGLERS; shown++) {
        add(l, "straggler: rank %d%s%s%s computes %.2f times as long as stage %d's %s", r,
            r < s->n_hosts ? " (" : "", r < s->n_hosts ? s->hosts[r] : "",
            r < s->n_hosts ? ")" : "", s->ranks[r].factor, s->ranks[r].stage,
            s->ranks[r].alone ? "forecast" : "median");
        r = next_straggler(s, r);
    }
    if (n > shown)
        add(l, "and %d more straggler%s", n - shown, n - shown == 1 ? "" : "s");
}

static void add_stages(struct lines *l, const struct run_state *s, const struct run_view *v,
                       int room)
{
    int highest = highest_stage(s), shown;

    if (highest < 0)
        return;
    shown = highest + 1 <= room ? highest + 1 : room - 1;
    add(l, "%s", "");
    add(l, "stage ranks  computing               waiting  sending  sums   data      memory");
    for (int i = 0; i < shown; i++)
        add_stage(l, s, v, i);
    if (shown <= highest)
        add(l, "  ... %d more stages", highest + 1 - shown);
    add_stragglers(l, s);
}

/* The whole --------------------------------------------------------------------------- */

static void add_curve(struct lines *l, const struct run_state *s, const struct run_view *v,
                      int rows)
{
    char (*curve)[RUN_LINE] = mem_new((size_t)rows, sizeof(*curve));
    struct run_plot_range range;
    int columns = run_plot(s, rows, v->width - LABEL - 1, v->utf8, curve, &range);

    for (int row = 0; row < rows && columns > 0; row++)
        if (row == 0 || row == rows - 1)
            add(l, "%*.4g %s", LABEL - 1, row == 0 ? range.high : range.low, curve[row]);
        else
            add(l, "%*s %s", LABEL - 1, row == 1 && range.logarithmic ? "log" : "",
                curve[row]);
    free(curve);
}

static void add_events(struct lines *l, const struct run_state *s, int room)
{
    int64_t n = s->n_events < RUN_EVENTS ? s->n_events : RUN_EVENTS;

    n = n < room ? n : room;
    for (int64_t i = s->n_events - n; i < s->n_events; i++)
        add(l, "step %lld: %s", (long long)s->events[i % RUN_EVENTS].step,
            s->events[i % RUN_EVENTS].text);
}

static void add_foot(struct lines *l, const struct run_state *s, const struct run_view *v)
{
    if (s->error[0])
        add(l, "failed: %s", s->error);
    if (s->bad > 0)
        add(l, "%lld malformed line%s in the log, the first is %s", (long long)s->bad,
            s->bad == 1 ? "" : "s", s->first_bad);
    if (v->live && !run_state_over(s))
        add(l, "q leaves; the run goes on");
}

/* Columns, of which each character takes one. */
static void print_line(FILE *out, const char *text, int width)
{
    int columns = 0;

    for (; *text; text++) {
        if (((unsigned char)*text & 0xc0) != 0x80 && columns++ == width)
            break;
        fputc(*text, out);
    }
    fputc('\n', out);
}

static char *join(const struct lines *parts, int n, const struct run_view *v)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    int printed = 0;

    if (!out)
        return mem_strdup("");
    for (int p = 0; p < n; p++)
        for (int i = 0; i < parts[p].n; i++)
            if (v->height == 0 || printed++ < v->height)
                print_line(out, parts[p].text[i], v->width);
    fclose(out);
    return text;
}

static void add_head(struct lines *l, const struct run_state *s, const struct run_view *v)
{
    add_title(l, s, v);
    add_plan(l, s);
    if (s->phase == RUN_WAITING) {
        add(l, "%s", v->found ? "the run has not begun yet" : "the log is not there yet");
        return;
    }
    add_progress(l, s, v);
    add(l, "%s", "");
    add_loss(l, s);
    add_test(l, s);
    add_speed(l, s);
    add_rate(l, s);
    add_checkpoint(l, s);
}

static int between(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

char *run_view_text(const struct run_state *state, const struct run_view *view)
{
    enum { HEAD, CURVE, STAGES, EVENTS, FOOT, PARTS };
    struct lines parts[PARTS] = { { NULL, 0 } };
    int height = view->height ? view->height : 40, room, rows;
    char *text;

    add_head(&parts[HEAD], state, view);
    add_foot(&parts[FOOT], state, view);
    room = height - parts[HEAD].n - parts[FOOT].n;
    add_stages(&parts[STAGES], state, view, between(room - LEAST_ROWS - 5, LEAST_STAGES, 16));
    room -= parts[STAGES].n;
    rows = between(room - 2 - FEW_EVENTS, LEAST_ROWS, MOST_ROWS);
    if (state->n_points > 1 && room >= LEAST_ROWS + 1) {
        add(&parts[CURVE], "%s", "");
        add_curve(&parts[CURVE], state, view, rows);
    }
    room -= parts[CURVE].n;
    if (state->n_events > 0 && room >= 2) {
        add(&parts[EVENTS], "%s", "");
        add_events(&parts[EVENTS], state, view->height ? room - 1 : 8);
    }
    text = join(parts, PARTS, view);
    for (int i = 0; i < PARTS; i++)
        clear(&parts[i]);
    return text;
}
