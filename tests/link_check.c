/* SPDX-License-Identifier: MIT */
/* Forecasts of messages and sums beside their measurement: link_check [SECONDS].
 *
 * Two ranks or more. Sizes of messages between rank 0 and the last one, and of sums over all,
 * are measured in turn: those that tasuki topo --measure=full fits, and others between them. So
 * what disturbs the machine disturbs both. That is done five times, with a fit each time, and
 * of each size the median of the five ratios of forecast and measurement counts.
 * Rank 0 prints it. Exit code 0: all messages that were not fitted are within 20 %; 1: not; 77:
 * not, but the ratios of some size are more than 10 % apart: to be measured again.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "comm/comm.h"
#include "topology/cluster.h"
#include "topology/fit.h"
#include "topology/links.h"
#include "train/probe.h"
#include "train/wire.h"

#define MOST 32
#define PASSES 5
#define APART 0.1
#define GOOD 0.2

struct sizes {
    int n;
    size_t bytes[MOST];
    bool fitted[MOST];
};

static struct comm *comm;
static struct err err;

static void must(int status, const char *what)
{
    if (!status)
        return;
    if (comm)
        comm_follow(comm, &err);
    fprintf(stderr, "link_check: %s: %s\n", what, err.text);
    exit(EXIT_FAILED);
}

static void add(struct sizes *sizes, size_t bytes, bool fitted)
{
    int at = sizes->n++;

    for (; at > 0 && sizes->bytes[at - 1] > bytes; at--) {
        sizes->bytes[at] = sizes->bytes[at - 1];
        sizes->fitted[at] = sizes->fitted[at - 1];
    }
    sizes->bytes[at] = bytes;
    sizes->fitted[at] = fitted;
}

/* What was measured each time, and what was forecast by the sizes that were fitted. */
struct passes {
    struct sizes sizes;
    double measured[PASSES][MOST], forecast[PASSES][MOST];
};

static struct fit_curve fit(const struct sizes *sizes, const double *seconds)
{
    double bytes[MOST], some[MOST];
    int n = 0;

    for (int s = 0; s < sizes->n; s++)
        if (sizes->fitted[s]) {
            bytes[n] = (double)sizes->bytes[s];
            some[n++] = seconds[s];
        }
    return fit_curve(n, bytes, some);
}

/* 0, 1 or 77. */
static int judge(const char *what, const struct passes *p)
{
    double worst = 0, apart = 0;

    printf("%s of %d ranks\n", what, comm_size(comm));
    for (int s = 0; s < p->sizes.n; s++) {
        double times[PASSES], ratios[PASSES], ratio, spread;

        for (int i = 0; i < PASSES; i++) {
            times[i] = p->measured[i][s];
            ratios[i] = p->forecast[i][s] / p->measured[i][s];
        }
        ratio = fit_quantile(ratios, PASSES, 0.5);
        spread = fit_quantile(ratios, PASSES, 0.75) - fit_quantile(ratios, PASSES, 0.25);
        printf("  %9zu bytes %-6s %10.2f us, forecast/measured %.2f (+- %.2f)\n",
               p->sizes.bytes[s], p->sizes.fitted[s] ? "fitted" : "",
               1e6 * fit_quantile(times, PASSES, 0.5), ratio, spread / 2);
        if (p->sizes.fitted[s])
            continue;
        worst = fmax(worst, fabs(ratio - 1));
        apart = fmax(apart, spread);
    }
    printf("%s: forecasts of what was not fitted are off by %.1f %% at most\n", what,
           100 * worst);
    return worst <= GOOD ? 0 : apart > APART ? 77 : 1;
}

static int check_messages(struct probe *probe, double seconds, struct fit_curve *curve)
{
    static const size_t others[] = { 100, 2000, 3900, 5000, 9000, 17000, 35000, 70000, 140000,
                                     280000, 560000, 1100000, 2200000 };
    const struct probe_effort effort = { seconds / PASSES, 20, 200, 0 };
    int me = comm_rank(comm), last = comm_size(comm) - 1, n;
    struct passes p = { .sizes.n = 0 };
    size_t fitted[LINKS_SIZES];
    double median[MOST];

    n = links_sizes(true, false, fitted);
    for (int i = 0; i < n; i++)
        add(&p.sizes, fitted[i], true);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        add(&p.sizes, others[i], false);
    for (int i = 0; i < PASSES && (me == 0 || me == last); i++) {
        must(probe_trips(probe, me == 0 ? last : 0, me == 0, &effort, p.sizes.n, p.sizes.bytes,
                         p.measured[i], median, &err), "messages");
        if (me != 0)
            continue;
        *curve = fit(&p.sizes, p.measured[i]);
        for (int s = 0; s < p.sizes.n; s++)
            p.forecast[i][s] = fit_time(curve, (double)p.sizes.bytes[s]);
    }
    must(comm_fence(comm, &err), "fence");
    return me == 0 ? judge("messages", &p) : 0;
}

/* The cluster that messages have shown, with the factors that sums of some sizes give. */
static void forecast_sums(const struct fit_curve *curve, const struct sizes *sizes,
                          const double *measured, double *forecast)
{
    char spec[128];
    struct links_sums sums;
    struct cluster *cluster;
    int n = comm_size(comm), fitted = 0, *all = calloc((size_t)n, sizeof(*all));

    snprintf(spec, sizeof(spec), "flat:%d,bandwidth=%.9g,latency=%.9g", n,
             curve->line.bandwidth, curve->line.latency);
    cluster = cluster_open(spec, &err);
    must(!cluster || !all, spec);
    for (int i = 0; i < n; i++)
        all[i] = i;
    for (int s = 0; s < sizes->n; s++)
        if (sizes->fitted[s]) {
            sums.floats[fitted] = sizes->bytes[s] / sizeof(float);
            sums.seconds[fitted++] = measured[s];
        }
    links_apply_sums(cluster, fitted, &sums);
    for (int s = 0; s < sizes->n; s++)
        forecast[s] = cluster_allreduce_time(cluster, n, all, (double)sizes->bytes[s]);
    cluster_free(cluster);
    free(all);
}

static struct comm_group *everybody(void)
{
    int n = comm_size(comm), *all = calloc((size_t)n, sizeof(*all));
    struct comm_group *group;

    for (int i = 0; all && i < n; i++)
        all[i] = i;
    group = comm_group_new(comm, n, all, &err);
    must(!group, "group");
    free(all);
    return group;
}

static void check_sums(struct probe *probe, const struct fit_curve *curve)
{
    static const size_t others[] = { 3 << 10, 24 << 10, 160 << 10, 512 << 10 };
    struct comm_group *group = everybody();
    struct passes p = { .sizes.n = 0 };
    size_t fitted[LINKS_SIZES], floats[MOST];
    int n = links_sum_sizes(true, false, fitted);

    for (int i = 0; i < n; i++)
        add(&p.sizes, fitted[i] * sizeof(float), true);
    for (int i = 0; i < 4; i++)
        add(&p.sizes, others[i] * sizeof(float), false);
    for (int s = 0; s < p.sizes.n; s++)
        floats[s] = p.sizes.bytes[s] / sizeof(float);
    for (int i = 0; i < PASSES; i++) {
        must(probe_sums(probe, group, p.sizes.n, floats, NULL, p.measured[i], &err), "sums");
        if (comm_rank(comm) == 0)
            forecast_sums(curve, &p.sizes, p.measured[i], p.forecast[i]);
    }
    comm_group_free(group);
    if (comm_rank(comm) == 0)
        judge("sums", &p);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 4;
    struct fit_curve curve;
    struct probe *probe;
    struct wire *wire;
    struct launch launch;
    int messages;

    must(launch_detect(&launch, &err), "launch");
    comm = comm_open(&launch, &err);
    must(!comm || comm_size(comm) < 2, "two ranks are needed");
    wire = wire_of_hosts(comm, probe_pool((size_t)4 << 20));
    probe = probe_new(comm, wire);
    messages = check_messages(probe, seconds, &curve);
    check_sums(probe, &curve);
    probe_free(probe);
    wire_free(wire);
    comm_close(comm);
    return messages;
}
