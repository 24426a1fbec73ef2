/* SPDX-License-Identifier: MIT */
#include "topology/fit.h"

#include <math.h>
#include <stdlib.h>

#include "base/order.h"

#define QUIET 0.1
#define GOOD_ENOUGH 0.15
#define FAR_BETTER 1.5
#define NO_SLOPE 1e-12  /* of the latency, for all the bytes: bandwidth stays finite */

double fit_quantile(double *values, int n, double share)
{
    double at = share * (n - 1);
    int below = (int)at;

    qsort(values, (size_t)n, sizeof(*values), order_doubles);
    if (below >= n - 1)
        return values[n - 1];
    return values[below] + (at - below) * (values[below + 1] - values[below]);
}

double fit_quiet(double *seconds, int n)
{
    return fit_quantile(seconds, n, QUIET);
}

/* Sums over u = 1/t, v = bytes/t, and what a*u + b*v should be: 1, less what is known. */
struct sums {
    double u, v, uu, uv, vv;
};

static struct sums add_up(int n, const double *bytes, const double *seconds, double slope)
{
    struct sums s = { 0 };

    for (int i = 0; i < n; i++) {
        double u = 1 / seconds[i], v = bytes[i] / seconds[i], rest = 1 - slope * v;

        s.u += u * rest;
        s.v += v * rest;
        s.uu += u * u;
        s.uv += u * v;
        s.vv += v * v;
    }
    return s;
}

/* The best a and b, none of them negative. */
static void solve(const struct sums *s, double *a, double *b)
{
    double whole = s->uu * s->vv - s->uv * s->uv;

    *a = (s->u * s->vv - s->v * s->uv) / whole;
    *b = (s->v * s->uu - s->u * s->uv) / whole;
    if (!(*a > 0)) {
        *a = 0;
        *b = fmax(s->v / s->vv, 0);
    } else if (!(*b > 0)) {
        *a = fmax(s->u / s->uu, 0);
        *b = 0;
    }
}

struct fit_line fit_line(int n, const double *bytes, const double *seconds)
{
    struct sums s = add_up(n, bytes, seconds, 0);
    double latency, slope;

    solve(&s, &latency, &slope);
    return (struct fit_line){ latency, 1 / fmax(slope, NO_SLOPE * latency / bytes[n - 1]) };
}

/* The first 'short_ones' of the sizes are eager. */
static struct fit_curve two_lines(int n, const double *bytes, const double *seconds,
                                  int short_ones)
{
    struct fit_curve curve = {
        .line = fit_line(n - short_ones, bytes + short_ones, seconds + short_ones)
    };
    struct sums s = add_up(short_ones, bytes, seconds, 1 / curve.line.bandwidth);
    double copy;

    solve(&s, &curve.eager_latency, &copy);
    curve.copy_bandwidth = copy > 0 ? 1 / copy : INFINITY;
    curve.eager_bytes = exp2(floor(log2(bytes[short_ones])));
    if (curve.eager_bytes < bytes[short_ones - 1] || curve.eager_bytes >= bytes[short_ones])
        curve.eager_bytes = bytes[short_ones - 1];
    return curve;
}

double fit_time(const struct fit_curve *curve, double bytes)
{
    double start = bytes <= curve->eager_bytes
                       ? curve->eager_latency + bytes / curve->copy_bandwidth
                       : curve->line.latency;

    return start + bytes / curve->line.bandwidth;
}

double fit_error(const struct fit_curve *curve, int n, const double *bytes,
                 const double *seconds)
{
    double worst = 0;

    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs(fit_time(curve, bytes[i]) / seconds[i] - 1));
    return worst;
}

static double squares(const struct fit_curve *curve, int n, const double *bytes,
                      const double *seconds)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += pow(fit_time(curve, bytes[i]) / seconds[i] - 1, 2);
    return sum;
}

struct fit_curve fit_curve(int n, const double *bytes, const double *seconds)
{
    struct fit_curve one = { .line = fit_line(n, bytes, seconds), .copy_bandwidth = INFINITY };
    struct fit_curve best = one;
    double least = squares(&one, n, bytes, seconds) / FAR_BETTER;

    if (fit_error(&one, n, bytes, seconds) < GOOD_ENOUGH)
        return one;
    for (int short_ones = 2; short_ones + 3 <= n; short_ones++) {
        struct fit_curve two = two_lines(n, bytes, seconds, short_ones);
        double sum = squares(&two, n, bytes, seconds);

        /* To ask the receiver first takes time. */
        if (sum < least && two.line.latency >= two.eager_latency) {
            least = sum;
            best = two;
        }
    }
    return best;
}
