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

/* Of a rank. */
struct rank_place {
    bool leads;             /* the first rank of its node */
    char address[32];       /* of its GPU; "": none */
};

/* Of processors by the first rank of a node, of a GPU by the first rank that has it; of others 0.
 * NAN where they are not known.
 */
struct energy_sum {
    double cpus, gpus;
};

static bool leads(const struct session *s)
{
    for (int r = 0; r < s->rank; r++)
        if (comm_same_host(s->comm, r, s->rank))
            return false;
    return true;
}

/* Is its GPU that of no rank before it? */
static bool is_counted(const struct session *s, const struct rank_place *all, int rank)
{
    for (int r = 0; r < rank; r++)
        if (strcmp(all[r].address, all[rank].address) == 0 &&
            comm_same_host(s->comm, r, rank))
            return false;
    return all[rank].address[0];
}

int session_usage_start(struct session *session, struct err *err)
{
    struct session *s = session;
    struct rank_place mine = { .leads = leads(s) };
    struct rank_place *all = mem_new((size_t)s->size, sizeof(*all));
    int bad;

    snprintf(mine.address, sizeof(mine.address), "%s", s->gpu);
    s->energy = energy_start(mine.leads, s->gpu);
    s->energy_looked = trace_clock();
    bad = comm_collect(s->comm, &mine, sizeof(mine), all, err);
    for (int r = 0; r < s->size && !bad; r++) {
        s->used.nodes += all[r].leads;
        s->used.gpus += is_counted(s, all, r);
    }
    s->used.leads = mine.leads;
    s->used.has_gpu = !bad && is_counted(s, all, s->rank);
    free(all);
    return bad;
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

static double hours(const struct session *s)
{
    return (s->settings.launch_seconds + trace_clock() - s->begun) / 3600;
}

static double both(const struct energy_sum *sum)
{
    if (isnan(sum->gpus) || isnan(sum->cpus))
        return isnan(sum->gpus) ? sum->cpus : sum->gpus;
    return sum->gpus + sum->cpus;
}

static json_t *say(const struct session *s, const struct energy_sum *sum)
{
    char cpus[48] = "processors not collected", gpus[48] = "GPUs not collected";
    double nodes = s->used.nodes * hours(s), gpu_hours = s->used.gpus * hours(s);

    if (!isnan(sum->cpus))
        snprintf(cpus, sizeof(cpus), "processors %.4g", sum->cpus);
    if (!isnan(sum->gpus))
        snprintf(gpus, sizeof(gpus), "GPUs %.4g", sum->gpus);
    if (isnan(both(sum)))
        log_info("%.4g node-hours, %.4g GPU-hours, energy not collected", nodes, gpu_hours);
    else
        log_info("%.4g node-hours, %.4g GPU-hours, %.4g kWh (%s%s%s)", nodes, gpu_hours,
                 both(sum), cpus, s->used.gpus ? ", " : "", s->used.gpus ? gpus : "");
    return json_pack("{s:i, s:i, s:f, s:f, s:o, s:o, s:o}", "nodes", s->used.nodes, "gpus",
                     s->used.gpus, "node_hours", nodes, "gpu_hours", gpu_hours, "cpu_kwh",
                     session_number(sum->cpus), "gpu_kwh", session_number(sum->gpus), "kwh",
                     session_number(both(sum)));
}

int session_usage(struct session *session, json_t **usage, struct err *err)
{
    struct session *s = session;
    struct energy_sum mine, sum = { 0 };
    struct energy_sum *all = mem_new((size_t)s->size, sizeof(*all));
    int bad;

    energy_read(s->energy, &mine.cpus, &mine.gpus);
    if (!s->used.leads)
        mine.cpus = 0;
    if (!s->used.has_gpu)
        mine.gpus = 0;
    bad = comm_collect(s->comm, &mine, sizeof(mine), all, err);
    for (int r = 0; r < s->size && !bad; r++) {
        sum.cpus += all[r].cpus / KWH;
        sum.gpus += all[r].gpus / KWH;
    }
    if (s->used.gpus == 0)
        sum.gpus = NAN;
    *usage = bad || s->rank > 0 ? NULL : say(s, &sum);
    s->used.told = true;
    s->used.kwh = both(&sum);
    free(all);
    return bad;
}

json_t *session_usage_alone(const struct session *session)
{
    const struct energy_sum unknown = { NAN, NAN };

    return session->compiling > 0 && !session->used.told ? say(session, &unknown) : NULL;
}
