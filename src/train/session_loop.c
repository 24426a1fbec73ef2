/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/order.h"
#include "base/progress.h"
#include "scheduler/timeline.h"
#include "train/gradients.h"
#include "train/session.h"
#include "train/train.h"

#define TIMES 1024

static atomic_bool stop_asked;   /* of all ranks that are threads here */

void train_stop(void)
{
    atomic_store(&stop_asked, true);
}

bool session_stop_asked(void)
{
    return atomic_load(&stop_asked);
}

/* What rank 0 reports. */
struct report {
    struct stepper stepper;
    struct progress *progress;
    double seconds[2];          /* of the same */
    int64_t counts[2];          /* labels */
    int unread;
    int n_steps;
    double times[TIMES];        /* of the last steps, for the median */
    double last_loss, busy;     /* busy: seconds of all steps */
    double first;               /* of the first one */
    struct batch_result spent;  /* sums of this rank */
    bool stop, rollback, save;  /* save: a checkpoint is due */
};

/* One step ---------------------------------------------------------------------------- */

/* The first one warms caches and connections; 0: there is no other. */
static double mean_seconds(const struct report *r)
{
    return r->n_steps > 1 ? (r->busy - r->first) / (r->n_steps - 1) : 0;
}

/* 'flows': the next step is to follow without a pause. */
static int run_step(struct session *s, int64_t step, bool flows, double entries[BOARD_COUNT],
                    struct report *report, struct err *err)
{
    struct batch_result result;

    if (session_step(s, &report->stepper, step, flows, &result, err) < 0)
        return -1;
    comm_at(s->comm, "end of step", s->placement.stage, step + 1, -1);
    report->counts[step % 2] = report->stepper.batches[step % 2].count;
    entries[BOARD_LOSS] = result.loss;
    entries[BOARD_CORRECT] = result.correct;
    entries[BOARD_NORM] = result.norm;
    entries[BOARD_SCALE] = result.loss_scale;
    entries[BOARD_SKIPPED] = result.skipped ? 1 : 0;
    entries[BOARD_BAD] = result.bad ? 1 : 0;
    entries[BOARD_STOP] = session_stop_asked() || session_ends_soon(s, mean_seconds(report));
    entries[BOARD_SAVE] = session_save_is_due(s, step + 1);
    entries[BOARD_REPORT] = reports_due(&s->reports, trace_clock()) ? 1 : 0;
    session_note_staging(s, entries);
    session_note_save(s, entries);
    session_usage_look(s);
    report->spent.compute += result.compute;
    report->spent.receive += result.receive;
    report->spent.idle += result.idle;
    report->spent.send += result.send;
    report->spent.reduce += result.reduce;
    return 0;
}

static void report_step(struct session *s, struct report *r, int64_t step, double seconds,
                        int64_t count, const double sums[BOARD_COUNT])
{
    double loss = sums[BOARD_LOSS];
    struct journal_step line = {
        .step = step + 1, .epoch = sampler_epoch(&s->sampler, step) + 1,
        .loss = loss, .seconds = seconds,
        .samples_per_second = (double)s->settings.global_batch / seconds,
        .predicted_seconds = s->plan->iteration_seconds, .classifies = s->classifies,
        .accuracy = count > 0 ? sums[BOARD_CORRECT] / (double)count : 0,
        .lr = s->settings.optimizer.lr * rate_at(&s->rate, step),
        .clips = s->settings.recipe.clip > 0, .norm = sums[BOARD_NORM],
        .loss_scale = sums[BOARD_SCALE], .skipped = sums[BOARD_SKIPPED] > 0,
    };

    r->last_loss = loss;
    if (s->rank != 0)
        return;
    if (s->classifies)
        progress_update(r->progress, step + 1, "loss %.4f, accuracy %.1f %%", loss,
                        100 * line.accuracy);
    else
        progress_update(r->progress, step + 1, "loss %.6g", loss);
    session_note_step(s, &line);
    session_weigh_limit(s, mean_seconds(r));
    journal_step(s->journal, &line);
    if (line.skipped)
        log_info("step %lld: gradients overflow with a loss scale of %g: it is skipped, and the scale "
                 "halved", (long long)line.step, line.loss_scale);
}

/* Read the oldest post: its step was 'unread' steps before 'next'. */
static int read_one(struct session *s, struct report *r, int64_t next, struct err *err)
{
    int64_t step = next - r->unread;
    double sums[BOARD_COUNT];

    if (board_read(&s->board, sums, err) < 0)
        return -1;
    report_step(s, r, step, r->seconds[step % 2], r->counts[step % 2], sums);
    session_tell_staged(s, step + 1, sums);
    r->stop = r->stop || sums[BOARD_STOP] > 0;
    r->save = r->save || sums[BOARD_SAVE] > 0;
    r->unread--;
    session_follow_save(s, sums);
    if (sums[BOARD_BAD] > 0 && session_bad_step(s, step, sums[BOARD_LOSS], err) < 0)
        return -1;
    r->rollback = r->rollback ||
                  (sums[BOARD_BAD] > 0 && s->settings.guard.policy == GUARD_ROLLBACK);
    if (session_read_report(s, err) < 0)
        return -1;
    return sums[BOARD_REPORT] > 0
               ? session_post_report(s, next, &r->spent, r->busy, r->n_steps, err) : 0;
}

static int read_rest(struct session *s, struct report *r, int64_t next, struct err *err)
{
    while (r->unread > 0)
        if (read_one(s, r, next, err) < 0)
            return -1;
    return session_read_report(s, err);
}

/* The loop ---------------------------------------------------------------------------- */

/* Steps of a period; 0: none. */
static int64_t period(const struct session *s, struct span span)
{
    return span.epochs ? span.n * s->sampler.steps_per_epoch : span.n;
}

static bool is_last(const struct session *s, const struct report *r, int64_t done)
{
    return done == s->total_steps || r->stop;
}

static bool tests(const struct session *s, const struct report *r, int64_t done)
{
    return s->test.data &&
           (is_last(s, r, done) || done % period(s, s->settings.eval_every) == 0);
}

static bool saves(const struct session *s, const struct report *r, int64_t done)
{
    int64_t every = period(s, s->settings.checkpoint_every);

    return s->settings.checkpoint &&
           (is_last(s, r, done) || r->save || session_saves_first(s, done) ||
            (every > 0 && done % every == 0));
}

/* Does the pipeline go on after so many steps without running empty? */
static bool flows_on(const struct session *s, const struct report *r, int64_t done)
{
    return plan_versions(s->plan) > 1 && !is_last(s, r, done) && !tests(s, r, done) &&
           !saves(s, r, done) && !s->saving.ready && !r->rollback;
}

/* What happens between two steps. All ranks take the same branches. After a signal a step that
 * is under way is ended first.
 */
static int between_steps(struct session *s, struct report *r, int64_t done, struct err *err)
{
    bool keep = saves(s, r, done), test = tests(s, r, done);

    /* While the next step is under way a rank may wait for one that waits here. */
    if (r->stepper.flows)
        return 0;
    if (s->saving.ready && session_advance_save(s, err) < 0)
        return -1;
    if (!keep && !test && !r->rollback && !is_last(s, r, done))
        return 0;
    if (read_rest(s, r, done, err) < 0 || (r->rollback && session_rollback(s, done, err) < 0))
        return -1;
    r->rollback = false;
    /* A signal may have shown in what was read just now. */
    if (test && !r->stop && session_evaluate(s, done, err) < 0)
        return -1;
    if (!keep && !(r->stop && s->settings.checkpoint))
        return 0;
    r->save = false;
    if (session_save(s, s->settings.checkpoint, s->settings.keep, done, err) < 0)
        return -1;
    return is_last(s, r, done) ? session_end_save(s, err) : 0;
}

/* They stay in their array until the next step. */
static int dump_gradients(struct session *s, int64_t step, struct err *err)
{
    if (!s->settings.gradients || step != s->first_step)
        return 0;
    for (int c = 0; c < s->n_chunks; c++)
        if (executor_gather_gradients(runner_executor(s->runner, c), err) < 0)
            return -1;
    return session_agreed(s, gradients_write(s->settings.gradients, s->n_chunks, s->stores,
                                             &s->placement,
                                             loss_scale_inverse(&s->settings.scale), s->comm,
                                             err), err);
}

static int loop(struct session *s, struct report *r, int64_t *done, struct err *err)
{
    for (int64_t step = s->first_step;
         step < s->total_steps && (!r->stop || r->stepper.flows); step++) {
        double entries[BOARD_COUNT] = { 0 }, start = trace_clock();

        if (run_step(s, step, flows_on(s, r, step + 1), entries, r, err) < 0 ||
            board_post(&s->board, entries, err) < 0)
            return -1;
        r->unread++;
        r->seconds[step % 2] = trace_clock() - start;
        r->times[r->n_steps++ % TIMES] = r->seconds[step % 2];
        r->busy += r->seconds[step % 2];
        r->first = r->n_steps == 1 ? r->busy : r->first;
        *done = step + 1;
        if (r->unread == 2 && read_one(s, r, step + 1, err) < 0)
            return -1;
        if (reports_counted(&s->reports, step + 1) &&
            session_post_report(s, step + 1, &r->spent, r->busy, r->n_steps, err) < 0)
            return -1;
        if (dump_gradients(s, step, err) < 0 || between_steps(s, r, step + 1, err) < 0)
            return -1;
    }
    return 0;
}

/* Without the first step, which warms caches and connections. */
static double median_seconds(struct report *r)
{
    int skip = r->n_steps > 1 && r->n_steps <= TIMES ? 1 : 0;
    int n = (r->n_steps < TIMES ? r->n_steps : TIMES) - skip;

    if (n == 0)
        return 0;
    qsort(r->times + skip, (size_t)n, sizeof(double), order_doubles);
    return r->times[skip + n / 2];
}

static json_t *phases(const struct session *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "launch", s->settings.launch_seconds,
                     "discover", s->discovering, "open", s->opening, "plan", s->planning,
                     "compile", s->compiling, "steps", trace_clock() - s->mark);
}

static void tell_damage(const struct data *data)
{
    const char *name;
    int64_t n = data ? data_damaged(data, &name) : 0;

    if (n > 0)
        log_warning("%s: %lld times a damaged sample was read as far as it could be, \"%s\" last",
                    data_path(data), (long long)n, name);
}

static const char *outcome(const struct session *s, const struct report *r, int64_t done)
{
    if (!r->stop || done >= s->total_steps)
        return "done";
    return s->settings.checkpoint ? "stopped" : "lost";
}

/* What a rank tells at the end: bytes at most, seconds of all steps, and where it is. */
struct rank_summary {
    double peak, resident;
    double compute, idle, messages, reduce, data;
    double stage, samples;
};

static struct rank_summary rank_summary(const struct session *s, const struct report *r)
{
    const struct batch_result *t = &r->spent;
    const struct placement *p = &s->placement;
    struct rank_summary mine = {
        .peak = (double)s->backend->peak(s->device), .resident = mem_resident(),
        .compute = t->compute, .idle = t->idle, .messages = t->receive - t->idle + t->send,
        .reduce = t->reduce, .stage = p->stage,
    };

    if (p->stage >= 0)
        mine.samples = (double)s->plan->stages[p->stage].samples[p->replica];
    for (int c = 0; c < s->n_chunks; c++)
        mine.data += prefetch_waited(s->prefetch[c]);
    return mine;
}

static json_t *times_to_json(const struct rank_summary *rank)
{
    json_t *stage = rank->stage < 0 ? json_null() : json_integer((json_int_t)rank->stage);

    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:o, s:I}", "compute", rank->compute, "idle",
                     rank->idle, "messages", rank->messages, "reduce", rank->reduce, "data",
                     rank->data, "stage", stage, "samples", (json_int_t)rank->samples);
}

static int gather_summaries(struct session *s, const struct report *r, json_t *peaks,
                            json_t *resident, json_t *ranks, struct err *err)
{
    struct rank_summary mine = rank_summary(s, r), *all = mem_new((size_t)s->size, sizeof(*all));
    int bad = comm_collect(s->comm, &mine, sizeof(mine), all, err);

    for (int i = 0; i < s->size && !bad; i++) {
        json_array_append_new(peaks, json_integer((json_int_t)all[i].peak));
        json_array_append_new(resident, json_integer((json_int_t)all[i].resident));
        json_array_append_new(ranks, times_to_json(&all[i]));
    }
    free(all);
    return bad;
}

/* NULL where what computes has none. */
static json_t *tensor_cores(const struct session *s)
{
    int products, on_them;

    if (!s->backend->tensor_cores)
        return NULL;
    s->backend->tensor_cores(s->device, &products, &on_them);
    return json_pack("{s:i, s:i}", "products", products, "on_them", on_them);
}

static void log_end(struct session *s, struct report *r, int64_t done, double measured,
                    json_t *ranks, json_t *usage)
{
    session_log(s, json_pack("{s:s, s:i, s:I, s:f, s:f, s:o, s:o, s:s, s:f, s:o*, s:o*, s:O*}", "event",
                             "end", "steps", r->n_steps, "bad_steps", (json_int_t)s->bad_steps,
                             "measured_seconds", measured, "predicted_seconds",
                             s->plan->iteration_seconds, "phases", phases(s), "ranks", ranks,
                             "outcome", outcome(s, r, done), "seconds", r->busy, "usage", usage,
                             "tensor_cores", tensor_cores(s), "fallbacks", s->fallbacks));
}

static void say_end(const struct session *s, const struct report *r, double measured)
{
    if (r->n_steps > 0)
        log_info("%d step%s; per iteration: predicted %.3f ms, measured %.3f ms (median)",
                 r->n_steps, r->n_steps == 1 ? "" : "s", 1e3 * s->plan->iteration_seconds,
                 1e3 * measured);
    session_tell_best(s);
    if (s->staging_ranks > 0 && !s->staged)
        log_info("the run ended before all data were staged");
}

/* Peaks and times of all ranks, in the log and in words. */
static int summarize(struct session *s, struct report *r, int64_t done, struct err *err)
{
    json_t *peaks = json_array(), *resident = json_array(), *ranks = json_array();
    json_t *usage = NULL;
    double measured = median_seconds(r);
    int bad = gather_summaries(s, r, peaks, resident, ranks, err);

    tell_damage(s->train.data);
    tell_damage(s->test.data);
    if (s->rank == 0 && !bad)
        say_end(s, r, measured);
    if (!bad)
        bad = session_usage(s, &usage, err);
    session_log(s, json_pack("{s:s, s:o, s:o}", "event", "memory", "peak", peaks, "resident",
                             resident));
    log_end(s, r, done, measured, ranks, usage);
    return bad;
}

static int collect_trace(struct session *s, const void **parts, const size_t *sizes,
                         struct err *err)
{
    json_t *all = json_array(), *top;
    int bad;

    for (int i = 0; i < s->size; i++) {
        json_t *events = json_loadb(parts[i], sizes[i], 0, NULL);

        json_array_extend(all, events);
        json_decref(events);
    }
    session_add_forecast(s, all);
    top = timeline_file(all);
    bad = json_save(top, s->settings.trace, err);
    json_decref(top);
    return bad;
}

static int write_trace(struct session *s, double origin, struct err *err)
{
    const void **parts;
    size_t *sizes;
    void *block = NULL;
    json_t *events;
    char *text;
    int bad;

    if (!s->settings.trace)
        return 0;
    if (s->trace.dropped)
        log_warning("%s: without the last %lld events, for which there was no room",
                    s->settings.trace, (long long)s->trace.dropped);
    parts = mem_new((size_t)s->size, sizeof(*parts));
    sizes = mem_new((size_t)s->size, sizeof(*sizes));
    events = trace_events(&s->trace, s->rank, s->placement.stage, origin);
    text = json_dumps(events, JSON_COMPACT);
    bad = comm_exchange(s->comm, text, strlen(text), &block, parts, sizes, err);
    if (!bad)
        bad = session_agree(s, s->rank == 0 && collect_trace(s, parts, sizes, err) < 0, err);
    json_decref(events);
    free(text);
    free(block);
    free(parts);
    free(sizes);
    return bad;
}

static int stopped(struct session *s, struct err *err)
{
    if (s->settings.checkpoint)
        return EXIT_REQUEUE;
    s->agreed = true;
    return s->rank == 0 ? err_set(err, "stopped by a signal; without --checkpoint nothing "
                                  "was kept")
                        : (int)err_set(err, "%s", "");
}

int session_loop(struct session *session, struct err *err)
{
    struct session *s = session;
    struct report r = { .progress = NULL };
    int64_t done = s->first_step;
    double origin = trace_clock();
    int code = -1;

    stepper_init(&r.stepper, s);
    s->loop_start = origin;
    if (s->rank == 0 && done >= s->total_steps)
        log_info("nothing is left to do: %lld steps were asked for, %lld are done",
                 (long long)s->total_steps, (long long)done);
    else if (s->rank == 0)
        r.progress = progress_new("train", s->total_steps);
    if (loop(s, &r, &done, err) == 0 && session_end_save(s, err) == 0 &&
        (!s->runner || runner_drain(s->runner, err) == 0)) {
        progress_free(r.progress);
        r.progress = NULL;
        if (summarize(s, &r, done, err) == 0 && write_trace(s, origin, err) == 0)
            code = r.stop && done < s->total_steps ? stopped(s, err) : EXIT_OK;
    }
    stepper_clear(&r.stepper);
    progress_free(r.progress);
    return code;
}
