/* SPDX-License-Identifier: MIT */
/* Ranks that compute longer than their like. */
#ifndef TASUKI_TRAIN_STRAGGLERS_H
#define TASUKI_TRAIN_STRAGGLERS_H

#include <jansson.h>
#include <stdbool.h>

#include "comm/comm.h"
#include "scheduler/plan.h"
#include "train/reports.h"

/* What a rank did in a while. */
struct pace {
    int stage;              /* -1: none */
    double samples;         /* of a micro-batch */
    double compute;         /* seconds */
    double forecast;        /* of these; 0: none */
    /* Out: how many times as long as the median of its stage it computes for a sample; where it
     * is alone there, how much further from its forecast it is than the median rank. 1 where
     * there is nothing to compare with.
     */
    double factor;
    bool alone;
};

void paces_compare(struct pace *paces, int n);

/* From what all ranks have reported, on rank 0. '*line' is the event "stragglers" of the log, NULL
 * where there are none; those that were none in the report before are named on the terminal.
 * 'slow' [size] keeps which they are.
 */
void stragglers_find(const struct reports *reports, const struct plan *plan,
                     const struct comm *comm, bool *slow, json_t **line);

#endif
