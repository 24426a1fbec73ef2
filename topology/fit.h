/* SPDX-License-Identifier: MIT */
/* From times of messages to latency and bandwidth.
 *
 * Model: 'bytes' take latency + bytes / bandwidth (Hockney 1994). Machines are shared, and what
 * others do makes a message take longer, never shorter; now and then by much. So of the times
 * of one size the lower decile is taken, and the line is laid through those so that the sum of
 * the squared relative errors is smallest: a forecast that is 20 % off is as wrong for 4 KiB
 * as for 4 MiB.
 *
 * MPI sends short messages at once ("eagerly"), which costs a copy, and longer ones after the
 * receiver was asked: one line through both may be wrong by a factor of two. Where it is, there
 * are two: up to a power of two, which is what such limits are, eager bytes take
 * latency + bytes / copy_bandwidth + bytes / bandwidth.
 *
 * With noise that is exponential, of mean s, and a share p of outliers, the lower
 * decile lies -s ln(1 - 0.1 / (1 - p)) above the truth: 2.7 % for s = 20 % and p = 20 %.
 */
#ifndef TASUKI_TOPOLOGY_FIT_H
#define TASUKI_TOPOLOGY_FIT_H

struct fit_line {
    double latency;     /* seconds */
    double bandwidth;   /* bytes/s */
};

/* The value below which this share of them lies, linear between two of them; sorts. n >= 1. */
double fit_quantile(double *values, int n, double share);
/* What the time of a message is without the others: the lower decile. Sorts; n >= 1. */
double fit_quiet(double *seconds, int n);

/* Through n >= 2 sizes, ascending, and their times, all positive. Neither latency nor time
 * per byte is ever negative: where the best line has one that is, it is the best line without.
 */
struct fit_line fit_line(int n, const double *bytes, const double *seconds);

struct fit_curve {
    struct fit_line line;       /* of all messages, or of those that are longer than eager */
    double eager_bytes;         /* 0: one line is enough */
    double eager_latency, copy_bandwidth;   /* INFINITY: no copy */
};

/* Through sizes, ascending, and their times. Two lines need two sizes for the shorter messages
 * and three for the longer, and have to be closer to the times by far than one.
 */
struct fit_curve fit_curve(int n, const double *bytes, const double *seconds);
double fit_time(const struct fit_curve *curve, double bytes);
/* The largest relative error: |forecast / time - 1|. */
double fit_error(const struct fit_curve *curve, int n, const double *bytes,
                 const double *seconds);

#endif
