/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/session.h"
#include "train/stragglers.h"

#define LEAST_SECONDS 1.0   /* between two files of --prometheus */

/* A file that cannot be written any more is no reason to end a run. */
static void write_metrics(struct session *s)
{
    struct err err = { 0 };

    if (!s->settings.prometheus || s->metrics_failed)
        return;
    s->metrics_written = trace_clock();
    if (metrics_write(&s->metrics, s->settings.prometheus, &err) < 0) {
        log_warning("%s; the run goes on without it", err.text);
        s->metrics_failed = true;
    }
}

/* Opening a pipe would wait for its reader, with every file anew. */
static int write_first(struct session *s, struct err *err)
{
    const char *path = s->settings.prometheus;
    struct stat st;

    if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode))
        return err_set(err, "--prometheus %s: is a pipe: expected a file, which is replaced whole",
                       path);
    return metrics_write(&s->metrics, path, err);
}

int session_metrics(struct session *session, struct err *err)
{
    struct session *s = session;

    s->metrics = (struct metrics){
        .job = s->settings.job.job, .model = s->model_path, .running = true,
        .step = s->first_step, .steps = s->total_steps, .loss = NAN, .accuracy = NAN, .lr = NAN,
        .step_seconds = NAN, .predicted_seconds = NAN, .samples_per_second = NAN,
        .test_loss = NAN, .test_accuracy = NAN,
        .ranks = mem_new((size_t)s->size, sizeof(*s->metrics.ranks)),
    };
    if (!s->settings.prometheus)
        return 0;
    s->metrics_failed = write_first(s, err) < 0;
    return s->metrics_failed ? -1 : 0;
}

void session_note_step(struct session *session, const struct journal_step *step)
{
    struct metrics *m = &session->metrics;

    m->step = step->step;
    m->epoch = step->epoch;
    m->loss = step->loss;
    m->accuracy = step->classifies ? step->accuracy : NAN;
    m->lr = step->lr;
    m->step_seconds = step->seconds;
    m->predicted_seconds = step->predicted_seconds;
    m->samples_per_second = step->samples_per_second;
}

static struct report_sums sums_of(const struct session *s, const struct batch_result *spent,
                                  double seconds, int64_t steps)
{
    const struct placement *p = &s->placement;
    struct report_sums sums = {
        .stage = p->stage, .spent = *spent, .memory = (double)s->backend->peak(s->device),
        .seconds = seconds, .steps = steps,
    };

    if (p->stage >= 0)
        sums.samples = s->plan->stages[p->stage].samples[p->replica];
    for (int c = 0; c < s->n_chunks; c++)
        sums.data += prefetch_waited(s->prefetch[c]);
    return sums;
}

int session_post_report(struct session *session, int64_t steps_done,
                        const struct batch_result *spent, double seconds, int64_t steps,
                        struct err *err)
{
    struct session *s = session;
    struct report_sums sums = sums_of(s, spent, seconds, steps);

    return reports_post(&s->reports, s->board.group, steps_done, &sums, err);
}

static void note_ranks(struct session *s)
{
    const struct reports *r = &s->reports;

    s->metrics.n_ranks = s->size;
    for (int i = 0; i < s->size; i++)
        s->metrics.ranks[i] = (struct rank_metrics){
            .stage = (int)reports_figure(r, i, REPORT_STAGE),
            .compute = r->seconds > 0 ? reports_figure(r, i, REPORT_COMPUTE) / r->seconds : 0,
            .memory = reports_figure(r, i, REPORT_MEMORY),
        };
}

int session_read_report(struct session *session, struct err *err)
{
    struct session *s = session;
    json_t *line, *stragglers;

    if (!s->reports.pending)
        return 0;
    if (reports_read(&s->reports, &line, err) < 0)
        return -1;
    if (s->rank != 0)
        return 0;
    note_ranks(s);
    journal_write_short(s->journal, line);
    stragglers_find(&s->reports, s->plan, s->comm, s->slow, &stragglers);
    if (stragglers)
        journal_write_short(s->journal, stragglers);
    if (trace_clock() - s->metrics_written >= LEAST_SECONDS)
        write_metrics(s);
    return 0;
}

void session_end_metrics(struct session *session)
{
    session->metrics.running = false;
    if (session->metrics.ranks)
        write_metrics(session);
}
