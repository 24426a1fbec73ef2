/* SPDX-License-Identifier: MIT */
/* Where devices are of several kinds: what they take at least, for bounds; and which has what. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/partition_private.h"

static double kind_seconds(const struct cost *all, const char *kind)
{
    const struct cost *cost = cost_for(all, kind);
    double *sums = work_in_order(cost, NULL, cost->micro_batch[cost->n_sizes - 1]);
    double seconds = sums[cost->n_blocks];

    free(sums);
    return seconds;
}

/* Than the slowest kind: what takes no time is no faster than that. */
#define MOST_FASTER 1e6

/* The fastest one comes first. */
static const char **kinds_by_speed(const struct search *s, int *n)
{
    const char **kinds = cluster_kinds(s->cluster, n);

    for (int k = 1; k < *n; k++)
        if (kind_seconds(s->cost, kinds[k]) < kind_seconds(s->cost, kinds[0])) {
            const char *fastest = kinds[k];

            kinds[k] = kinds[0];
            kinds[0] = fastest;
        }
    return kinds;
}

static double all_work(const struct search *s, int kind)
{
    int64_t most = s->cost->micro_batch[s->cost->n_sizes - 1];

    return table_work(table_kind(s->table, kind), most)[s->cost->n_blocks];
}

double search_mean_speed(const struct search *s)
{
    double own = s->mixed ? all_work(s, 0) : 0, sum = 0;

    if (own <= 0)
        return 1;
    for (int d = 0; d < s->cluster->n_devices; d++)
        sum += own / dmax(all_work(s, s->kind[d]), own / MOST_FASTER);
    return sum / s->cluster->n_devices;
}

struct search *search_least_new(struct search *s)
{
    int n;
    const char **kinds = kinds_by_speed(s, &n);
    struct cost *least = cost_least(s->cost, n, kinds);
    struct search *search = search_new(least, s->cluster, s->request);

    search->least = least;
    search->rest = cost_least(s->cost, n - 1, kinds + 1);
    search->fast = cost_for(s->cost, kinds[0]);
    search->zero = s->zero;
    search->actual = s;
    for (int d = 0; d < s->cluster->n_devices; d++)
        search->n_fast += strcmp(s->cluster->devices[d].kind, kinds[0]) == 0;
    free(kinds);
    return search;
}

void search_least_free(struct search *search)
{
    struct cost *least = search->least, *rest = search->rest;

    search_free(search);
    cost_free(least);
    cost_free(rest);
}

static bool has_kind(const struct search *s, const struct plan *plan, int stage, const char *kind)
{
    const struct plan_stage *of = &plan->stages[stage];

    for (int i = 0; i < plan->pipelines * of->replicas; i++) {
        int device = cluster_find_device(s->cluster, of->devices[i]);

        if (strcmp(s->cluster->devices[device].kind, kind) == 0)
            return true;
    }
    return false;
}

void explain_kinds(const struct search *s, const struct plan *plan, FILE *out)
{
    int n;
    const char **kinds = cluster_kinds(s->cluster, &n);

    for (int k = 0; k < n && s->mixed; k++) {
        int found = 0;

        fprintf(out, "Stages on %s:", *kinds[k] ? kinds[k] : "devices of no named kind");
        for (int i = 0; i < plan->n_stages; i++)
            if (has_kind(s, plan, i, kinds[k]))
                fprintf(out, "%s %d", found++ ? "," : "", i);
        fprintf(out, "%s.\n", found ? "" : " none");
    }
    free(kinds);
}
