/* SPDX-License-Identifier: MIT */
#include "train/reports.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void reports_init(struct reports *reports, struct comm *comm, struct period every)
{
    *reports = (struct reports){ .every = every, .rank = comm_rank(comm),
                                 .size = comm_size(comm) };
    if (every.n <= 0)
        return;
    reports->figures = mem_new((size_t)reports->size * REPORT_COUNT, sizeof(double));
    if (reports->size > 1)
        reports->request = comm_request_new(comm);
}

void reports_clear(struct reports *reports)
{
    if (reports->request)
        comm_request_free(reports->request);
    free(reports->figures);
    *reports = (struct reports){ .every = { 0, false } };
}

bool reports_due(struct reports *reports, double now)
{
    if (reports->every.n <= 0 || reports->every.steps || reports->rank != 0 ||
        reports->pending)
        return false;
    if (reports->last == 0)
        reports->last = now;
    if (now - reports->last < reports->every.n)
        return false;
    reports->last = now;
    return true;
}

bool reports_counted(const struct reports *reports, int64_t done)
{
    const struct period *every = &reports->every;

    return every->n > 0 && every->steps && done % (int64_t)every->n == 0;
}

/* Others' places are zero, so that the sum over all ranks has each rank's figures. */
static void fill(struct reports *reports, const struct report_sums *sums)
{
    const struct report_sums *told = &reports->told;
    double *mine = reports->figures + (size_t)reports->rank * REPORT_COUNT;

    memset(reports->figures, 0, (size_t)reports->size * REPORT_COUNT * sizeof(double));
    mine[REPORT_STAGE] = sums->stage;
    mine[REPORT_SAMPLES] = (double)sums->samples;
    mine[REPORT_COMPUTE] = sums->spent.compute - told->spent.compute;
    mine[REPORT_IDLE] = sums->spent.idle - told->spent.idle;
    mine[REPORT_MESSAGES] = sums->spent.receive - sums->spent.idle + sums->spent.send -
                            (told->spent.receive - told->spent.idle + told->spent.send);
    mine[REPORT_REDUCE] = sums->spent.reduce - told->spent.reduce;
    mine[REPORT_DATA] = sums->data - told->data;
    mine[REPORT_MEMORY] = sums->memory;
}

int reports_post(struct reports *reports, struct comm_group *group, int64_t step,
                 const struct report_sums *sums, struct err *err)
{
    fill(reports, sums);
    reports->step = step;
    reports->steps = sums->steps - reports->told.steps;
    reports->seconds = sums->seconds - reports->told.seconds;
    reports->told = *sums;
    reports->pending = true;
    if (!group)
        return 0;
    return comm_allreduce(group, reports->figures, (size_t)reports->size * REPORT_COUNT,
                          DTYPE_F64, false, reports->request, err);
}

double reports_figure(const struct reports *reports, int rank, enum report_figure figure)
{
    return reports->figures[(size_t)rank * REPORT_COUNT + figure];
}

static json_t *rank_to_json(const struct reports *reports, int rank)
{
    const double *f = reports->figures + (size_t)rank * REPORT_COUNT;
    json_t *stage = f[REPORT_STAGE] < 0 ? json_null()
                                        : json_integer((json_int_t)f[REPORT_STAGE]);

    return json_pack("{s:o, s:I, s:f, s:f, s:f, s:f, s:f, s:I}", "stage", stage, "samples",
                     (json_int_t)f[REPORT_SAMPLES], "compute", f[REPORT_COMPUTE], "idle",
                     f[REPORT_IDLE], "messages", f[REPORT_MESSAGES], "reduce",
                     f[REPORT_REDUCE], "data", f[REPORT_DATA], "memory",
                     (json_int_t)f[REPORT_MEMORY]);
}

int reports_read(struct reports *reports, json_t **line, struct err *err)
{
    json_t *ranks;

    *line = NULL;
    if (reports->request && comm_wait(reports->request, err) < 0)
        return -1;
    reports->pending = false;
    if (reports->rank != 0)
        return 0;
    ranks = json_array();
    for (int r = 0; r < reports->size; r++)
        json_array_append_new(ranks, rank_to_json(reports, r));
    *line = json_pack("{s:s, s:I, s:I, s:f, s:o}", "event", "ranks", "step",
                      (json_int_t)reports->step, "steps", (json_int_t)reports->steps, "seconds",
                      reports->seconds, "ranks", ranks);
    return 0;
}
