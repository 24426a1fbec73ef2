/* SPDX-License-Identifier: MIT */
/* tasuki plan: what the plan is, what it costs and why. */
#include "config.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/plain.h"
#include "cmd_plan.h"

#define MOST_RUNS 3     /* of devices in a row that are written out */

/* "7.871 KiB", "1.2 M": at most 9 letters. */
static const char *scaled(double value, double step, const char *const *units, char text[32])
{
    int unit = 0;

    while (value >= step && unit < 4) {
        value /= step;
        unit++;
    }
    snprintf(text, 32, "%.4g %s", value, units[unit]);
    return text;
}

const char *bytes_text(double bytes, char text[32])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };

    return isfinite(bytes) ? scaled(bytes, 1024, units, text) : "any";
}

static const char *count_text(double n, char text[32])
{
    static const char *const units[] = { "", "K", "M", "G", "T" };

    return scaled(n, 1000, units, text);
}

/* The number at the end of an id, and how long what stands before it is. */
static long split_id(const char *id, size_t *head)
{
    size_t n = strlen(id);

    *head = n;
    while (*head > 0 && n - *head < 9 && isdigit((unsigned char)id[*head - 1]))
        (*head)--;
    return *head < n ? strtol(id + *head, NULL, 10) : -1;
}

static bool follows(const char *before, const char *id)
{
    size_t a, b;
    long m = split_id(before, &a), n = split_id(id, &b);

    return a == b && memcmp(before, id, a) == 0 && m >= 0 && n == m + 1;
}

/* "n1/gpu0-3, n2/gpu0-3, ... (32 devices)"; malloc'ed. */
static char *devices_text(const struct plan *plan, const struct plan_stage *stage)
{
    int n = plan->pipelines * stage->replicas, runs = 0;
    size_t size, head;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return mem_strdup("");
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && follows(stage->devices[end - 1], stage->devices[end]);)
            end++;
        if (runs++ == MOST_RUNS) {
            fprintf(out, ", ... (%d devices)", n);
            break;
        }
        fprintf(out, "%s%s", i ? ", " : "", stage->devices[i]);
        split_id(stage->devices[end - 1], &head);
        if (end > i + 1)
            fprintf(out, "-%s", stage->devices[end - 1] + head);
    }
    fclose(out);
    return text;
}

/* Parameters are counted in bytes of their precision. */
static double parameters_of(const struct plan *plan, const struct plan_stage *stage)
{
    return stage->parameters / (strcmp(plan->precision, "float64") == 0 ? 8 : 4);
}

static void print_what(const struct plan *plan, FILE *out)
{
    fprintf(out, "%5s %8s %10s  %-24s %s\n", "stage", "replicas", "parameters", "devices",
            "nodes");
    for (int s = 0; s < plan->n_stages; s++) {
        const struct plan_stage *stage = &plan->stages[s];
        const struct plan_block *first = &stage->blocks[0];
        const struct plan_block *last = &stage->blocks[stage->n_blocks - 1];
        const char *from = first->first_node ? first->first_node : first->name;
        const char *to = last->last_node ? last->last_node : last->name;
        char *devices = devices_text(plan, stage), number[32];

        fprintf(out, "%5d %8d %10s  ", s, stage->replicas,
                count_text(parameters_of(plan, stage), number));
        plain_print(out, 24, devices);
        fputc(' ', out);
        plain_print(out, 0, from);
        if (strcmp(from, to) != 0) {
            fputs(" ... ", out);
            plain_print(out, 0, to);
        }
        fprintf(out, " (%d block%s)\n", stage->n_blocks, stage->n_blocks == 1 ? "" : "s");
        free(devices);
    }
}

static bool runs_again(const struct plan *plan)
{
    for (int s = 0; s < plan->n_stages; s++)
        if (plan->stages[s].recompute != PLAN_RECOMPUTE_NONE)
            return true;
    return false;
}

/* What is run again, where anything is. */
static void print_costs(const struct plan *plan, FILE *out)
{
    bool again = runs_again(plan);

    fprintf(out, "\n%5s %9s %9s %9s %10s  %10s of %-10s %11s%s\n", "stage", "F ms", "B ms", "W ms",
            "reduce ms", "memory", "at most", "sends", again ? "  recompute" : "");
    for (int s = 0; s < plan->n_stages; s++) {
        const struct plan_stage *stage = &plan->stages[s];
        char memory[32], limit[32], sent[32];

        fprintf(out, "%5d %9.4g %9.4g %9.4g %10.4g  %10s of %-10s %11s%s%s\n", s,
                1e3 * stage->forward, 1e3 * stage->dgrad, 1e3 * stage->wgrad,
                1e3 * stage->allreduce, bytes_text(stage->memory, memory),
                bytes_text(stage->memory_limit, limit), bytes_text(stage->sent, sent),
                again ? "  " : "", again ? plan_recompute_name(stage->recompute) : "");
    }
}

static void print_utilization(const struct plan *plan, FILE *out)
{
    double seconds = plan->iteration_seconds, all = plan->peak_flops;

    if (plan->flops <= 0)
        fprintf(out, "MFU          not known: a cost file says nothing of operations\n");
    else if (all <= 0 && strcmp(plan->precision, "float32") != 0)
        fprintf(out, "MFU          not known: nothing says how fast its devices are in %s\n",
                plan->precision);
    else if (all <= 0)
        fprintf(out, "MFU          not known: nothing says how fast its devices can be\n");
    else
        fprintf(out, "MFU          %.3g %%: %.4g of %.4g TFLOP/s\n",
                1e2 * plan->flops / seconds / all, 1e-12 * plan->flops / seconds, 1e-12 * all);
}

/* Where the time of the devices of a list goes, over all their stages. */
struct device_shares {
    double busy, reducing, idle;
};

static struct device_shares shares_of(const struct plan *plan, int list)
{
    struct device_shares sums = { 0 };

    for (int s = 0; s < plan->n_stages; s++)
        if (plan_list(plan, s) == list) {
            sums.busy += plan->stages[s].busy;
            sums.reducing += plan->stages[s].reducing;
            sums.idle += plan->stages[s].idle;
        }
    return sums;
}

static void print_limit(const struct device_shares *most, int stage, bool several, FILE *out)
{
    const char *beside = several ? " and those beside it" : "";

    if (most->busy >= most->reducing && most->busy >= most->idle)
        fprintf(out, "stage %d%s, which compute%s", stage, beside, several ? "" : "s");
    else if (most->reducing >= most->idle)
        fprintf(out, "the all-reduce of stage %d%s, which wait%s for it", stage, beside,
                several ? "" : "s");
    else
        fprintf(out, "the bubble: even stage %d%s wait%s for others", stage, beside,
                several ? "" : "s");
}

/* Shares of the time of all devices that are used, and what the busiest does. */
static void print_shares(const struct plan *plan, FILE *out)
{
    struct device_shares all = { 0 }, most = { -1, -1, 0 };
    double seconds = 0;
    int busiest = 0;

    for (int l = 0; l < plan_lists(plan); l++) {
        struct device_shares own = shares_of(plan, l);
        int first = plan_list_first(plan, l);
        double n = plan->pipelines * plan->stages[first].replicas;

        all.busy += n * own.busy;
        all.reducing += n * own.reducing;
        all.idle += n * own.idle;
        seconds += n * plan->iteration_seconds;
        if (fmax(own.busy, own.reducing) > fmax(most.busy, most.reducing)) {
            most = own;
            busiest = first;
        }
    }
    if (seconds <= 0)
        return;
    fprintf(out, "devices      compute %.3g %%, wait for the all-reduce %.3g %%, bubble %.3g %%\n",
            1e2 * all.busy / seconds, 1e2 * all.reducing / seconds, 1e2 * all.idle / seconds);
    fprintf(out, "limited by   ");
    print_limit(&most, busiest, plan->n_stages > plan_lists(plan), out);
    fprintf(out, " %.3g %% of the time\n", 1e2 * fmax(most.busy, fmax(most.reducing, most.idle)) /
                                            plan->iteration_seconds);
}

static void print_head(const struct plan *plan, const struct cluster *cluster, FILE *out)
{
    int used = 0;

    for (int s = 0; s < plan->n_stages; s++)
        used += plan_first(plan, s) ? plan->pipelines * plan->stages[s].replicas : 0;
    if (plan->pipelines > 1)
        fprintf(out, "%d pipelines of ", plan->pipelines);
    fprintf(out, "%d stage%s on %d of %d devices of ", plan->n_stages,
            plan->n_stages == 1 ? "" : "s", used, cluster->n_devices);
    plain_print(out, 0, cluster->name);
    fprintf(out, ", %s%s%s, %lld micro-batch%s of %lld\n\n", plan->schedule,
            plan->zero ? ", ZeRO-1" : "", plan->offload ? ", offload" : "",
            (long long)plan->micro_batches, plan->micro_batches == 1 ? "" : "es",
            (long long)plan->micro_batch);
    if (plan_versions(plan) > 1)
        fputs(SCHEDULE_STALE "\n\n", out);
}

static void print_shared(const struct plan *plan, FILE *out)
{
    for (int i = 0; i < plan->n_shared; i++) {
        fputs("shared       ", out);
        plain_print(out, 0, plan->shared[i].name);
        fprintf(out, ", owned by stage %d\n", plan->shared[i].owner);
    }
}

void plan_table(const struct plan *plan, const struct cluster *cluster, const char *why,
                FILE *out)
{
    double bound = plan->lower_bound_seconds, seconds = plan->iteration_seconds;

    print_head(plan, cluster, out);
    print_what(plan, out);
    print_costs(plan, out);
    fprintf(out, "\niteration    %.6g ms, %.6g samples/s\n", 1e3 * seconds,
            seconds > 0 ? (double)plan->global_batch / seconds : 0);
    print_utilization(plan, out);
    print_shares(plan, out);
    fprintf(out, "lower bound  %.6g ms, the plan is %.3g %% above\n", 1e3 * bound,
            bound > 0 && seconds > bound * (1 + 1e-9) ? 1e2 * (seconds / bound - 1) : 0);
    print_shared(plan, out);
    if (plan->batchnorm_samples > 1)
        fprintf(out, "BatchNorm    over groups of %lld samples: each share is a multiple of them, "
                "by --batchnorm-samples\n", (long long)plan->batchnorm_samples);
    fprintf(out, "\n%s", why ? why : "");
}
