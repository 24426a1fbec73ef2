/* SPDX-License-Identifier: MIT */
/* What all ranks spent their time on, every so many seconds or steps, without stalling the pipeline:
 * rank 0 says on the board of a step that it is time, all post their figures when they read that, a
 * step later, and rank 0 has them another step later. Where steps are counted, all know when.
 */
#ifndef TASUKI_TRAIN_REPORTS_H
#define TASUKI_TRAIN_REPORTS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/option.h"
#include "comm/comm.h"
#include "train/executor.h"

struct err;

/* Of one rank: seconds since the last report as in struct batch_result, and bytes. */
enum report_figure {
    REPORT_STAGE, REPORT_SAMPLES, REPORT_COMPUTE, REPORT_IDLE, REPORT_MESSAGES, REPORT_REDUCE,
    REPORT_DATA, REPORT_MEMORY, REPORT_COUNT
};

/* All are sums since the run began, but for the first two and 'memory'. */
struct report_sums {
    int stage;                  /* of this rank, -1: none */
    int64_t samples;            /* its share of a micro-batch */
    struct batch_result spent;
    double data;                /* seconds that it waited for data */
    double memory;              /* bytes, at most so far */
    double seconds;             /* of the steps, on this rank's clock */
    int64_t steps;
};

struct reports {
    struct period every;        /* 0: never */
    int rank, size;
    double last;                /* clock */
    struct report_sums told;    /* at the last report */
    double *figures;            /* [size * REPORT_COUNT] */
    struct comm_request *request;
    bool pending;
    int64_t step, steps;        /* steps done then, and since the report before */
    double seconds;
};

void reports_init(struct reports *reports, struct comm *comm, struct period every);
void reports_clear(struct reports *reports);
/* Is it time, where seconds count? On rank 0; the others are told. */
bool reports_due(struct reports *reports, double now);
/* Is it after so many steps, where these count? All ranks know. */
bool reports_counted(const struct reports *reports, int64_t done);
/* 'group' of all ranks, NULL where there is one. Nothing may be pending. */
int reports_post(struct reports *reports, struct comm_group *group, int64_t step,
                 const struct report_sums *sums, struct err *err);
/* What is pending: '*line' is the line of the log on rank 0, NULL on the others. */
int reports_read(struct reports *reports, json_t **line, struct err *err);
/* One figure of a rank in what was read last. */
double reports_figure(const struct reports *reports, int rank, enum report_figure figure);

#endif
