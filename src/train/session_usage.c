/* SPDX-License-Identifier: MIT */
/* What a run has cost: hours of nodes and GPUs, and energy where it can be read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "topology/energy.h"
#include "train/session.h"

#define LOOK 30.0           /* seconds between two looks at the counters */
#define KWH 3.6e6           /* joules */

struct rank_usage {
    double cpus, gpu;       /* joules; cpus: of the node, by its first rank */
    bool leads;
    char address[32];       /* of its GPU; "": none */
};

/* Of all ranks. */
struct usage_sum {
    int nodes, gpus;
    double hours, cpus, gpu;    /* kWh: NAN where one is not known */
};

static bool leads(const struct session *s)
{
    for (int r = 0; r < s->rank; r++)
        if (comm_same_host(s->comm, r, s->rank))
            return false;
    return true;
}

void session_usage_start(struct session *session)
{
    struct session *s = session;

    s->energy = energy_start(leads(s), s->gpu);
    s->energy_looked = trace_clock();
}

void session_usage_look(struct session *session)
{
    struct session *s = session;
    double now = trace_clock();

    if (!s->energy || now - s->energy_looked < LOOK)
        return;
    s->energy_looked = now;
    energy_look(s->energy);
}

/* Ranks may share a GPU. */
static bool counted(const struct session *s, const struct rank_usage *all, int rank)
{
    for (int r = 0; r < rank; r++)
        if (strcmp(all[r].address, all[rank].address) == 0 &&
            comm_same_host(s->comm, r, rank))
            return true;
    return false;
}

static struct usage_sum sum_up(const struct session *s, const struct rank_usage *all)
{
    struct usage_sum sum = { .hours = (s->settings.launch_seconds + trace_clock() - s->begun) /
                                      3600 };

    for (int r = 0; r < s->size; r++) {
        if (all[r].leads) {
            sum.nodes++;
            sum.cpus += all[r].cpus / KWH;
        }
        if (all[r].address[0] && !counted(s, all, r)) {
            sum.gpus++;
            sum.gpu += all[r].gpu / KWH;
        }
    }
    if (sum.gpus == 0)
        sum.gpu = NAN;
    return sum;
}

static double both(const struct usage_sum *sum)
{
    if (isnan(sum->gpu) || isnan(sum->cpus))
        return isnan(sum->gpu) ? sum->cpus : sum->gpu;
    return sum->gpu + sum->cpus;
}

static void say(const struct usage_sum *sum)
{
    char cpus[48] = "processors not collected", gpus[48] = "GPUs not collected";

    if (isnan(both(sum))) {
        log_info("%.4g node-hours, %.4g GPU-hours, energy not collected",
                 sum->nodes * sum->hours, sum->gpus * sum->hours);
        return;
    }
    if (!isnan(sum->cpus))
        snprintf(cpus, sizeof(cpus), "processors %.4g", sum->cpus);
    if (!isnan(sum->gpu))
        snprintf(gpus, sizeof(gpus), "GPUs %.4g", sum->gpu);
    log_info("%.4g node-hours, %.4g GPU-hours, %.4g kWh (%s%s%s)", sum->nodes * sum->hours,
             sum->gpus * sum->hours, both(sum), cpus, sum->gpus ? ", " : "",
             sum->gpus ? gpus : "");
}

int session_usage(struct session *session, json_t **usage, struct err *err)
{
    struct session *s = session;
    struct rank_usage mine = { .leads = leads(s) };
    struct rank_usage *all = mem_new((size_t)s->size, sizeof(*all));
    const void **parts = mem_new((size_t)s->size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)s->size, sizeof(*sizes));
    struct usage_sum sum;
    void *block = NULL;
    int bad;

    energy_read(s->energy, &mine.cpus, &mine.gpu);
    snprintf(mine.address, sizeof(mine.address), "%s", s->gpu);
    bad = comm_exchange(s->comm, &mine, sizeof(mine), &block, parts, sizes, err);
    for (int r = 0; r < s->size && !bad; r++)
        memcpy(&all[r], parts[r], sizeof(all[r]));
    *usage = NULL;
    if (!bad && s->rank == 0) {
        sum = sum_up(s, all);
        say(&sum);
        *usage = json_pack("{s:i, s:i, s:f, s:f, s:o, s:o, s:o}", "nodes", sum.nodes, "gpus",
                           sum.gpus, "node_hours", sum.nodes * sum.hours, "gpu_hours",
                           sum.gpus * sum.hours, "cpu_kwh", session_number(sum.cpus), "gpu_kwh",
                           session_number(sum.gpu), "kwh", session_number(both(&sum)));
    }
    free(block);
    free(parts);
    free(sizes);
    free(all);
    return bad;
}
