/* SPDX-License-Identifier: MIT */
#include "train/calibrate.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

#define BIN_BITS 3      /* a bin is a factor of 8 in work */

void calibration_add(struct calibration *calibration, const struct node_work *work,
                     double seconds)
{
    double amount = work->of >= EFFICIENCY_NORM ? work->bytes : work->flops;
    struct calibration_call *call;

    if (amount <= 0 || seconds <= 0)
        return;
    call = mem_push((void **)&calibration->calls, &calibration->n, sizeof(*call));
    *call = (struct calibration_call){ work->of, amount, amount / seconds };
}

void calibration_clear(struct calibration *calibration)
{
    free(calibration->calls);
    *calibration = (struct calibration){ 0 };
}

/* Sums of logarithms. */
struct bin {
    int n;
    double work, speed;
};

static void fill_bins(const struct calibration *c, enum efficiency_class of,
                      struct bin bins[EFFICIENCY_POINTS])
{
    for (int i = 0; i < c->n; i++) {
        const struct calibration_call *call = &c->calls[i];
        int at = ilogb(call->work) / BIN_BITS;
        struct bin *bin;

        if (call->of != of)
            continue;
        at = at < 0 ? 0 : at < EFFICIENCY_POINTS ? at : EFFICIENCY_POINTS - 1;
        bin = &bins[at];
        bin->n++;
        bin->work += log(call->work);
        bin->speed += log(call->speed);
    }
}

/* Points whose share is a speed yet. */
static void fit_curve(const struct calibration *c, enum efficiency_class of,
                      struct efficiency *efficiency)
{
    struct efficiency_point *points = efficiency->curves[of].points;
    struct bin bins[EFFICIENCY_POINTS] = { 0 };
    int n = 0;

    fill_bins(c, of, bins);
    for (int i = 0; i < EFFICIENCY_POINTS; i++) {
        struct efficiency_point *p = &points[n];

        if (bins[i].n == 0)
            continue;
        p->work = exp(bins[i].work / bins[i].n);
        p->share = exp(bins[i].speed / bins[i].n);
        /* More to do does not take less time. */
        if (n > 0)
            p->share = fmin(p->share, p[-1].share * p->work / p[-1].work);
        n++;
    }
    efficiency->curves[of].n = n;
}

void calibration_fit(const struct calibration *calibration, double *flops,
                     double *memory_bandwidth, struct efficiency *efficiency)
{
    *efficiency = (struct efficiency){ 0 };
    for (int c = 0; c < EFFICIENCY_CLASSES; c++) {
        double *peak = c >= EFFICIENCY_NORM ? memory_bandwidth : flops;

        fit_curve(calibration, (enum efficiency_class)c, efficiency);
        for (int i = 0; i < efficiency->curves[c].n; i++)
            *peak = fmax(*peak, efficiency->curves[c].points[i].share);
    }
    for (int c = 0; c < EFFICIENCY_CLASSES; c++)
        for (int i = 0; i < efficiency->curves[c].n; i++)
            efficiency->curves[c].points[i].share /= c >= EFFICIENCY_NORM ? *memory_bandwidth
                                                                          : *flops;
}
