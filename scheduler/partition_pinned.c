/* SPDX-License-Identifier: MIT */
/* The plan of a request: what pins of blocks leave open of the stages, and the words with it. */
#include "scheduler/partition.h"

#include <stdlib.h>

#include "base/err.h"
#include "scheduler/partition_private.h"
#include "scheduler/policy.h"
#include "scheduler/simulate.h"
#include "scheduler/stage_layout.h"

/* For as many stages as the request pins, or any number. */
static struct plan *partition_once(const struct cost *cost, const struct cluster *cluster,
                                   const struct plan_request *request, char **why,
                                   struct err *err)
{
    struct search *s;
    struct plan *plan = search_plan(cost, cluster, request, &s, err);

    if (!plan && s && !err->code && !request->unexplained)
        (request->policy ? policy_explain_failure : explain_failure)(s, err);
    if (plan && request->listed)
        plan_set_list(plan, request->listed->list);
    if (plan) {
        simulate_forecast(plan, cost, cluster, err);
        describe(s, plan);
        plan->lower_bound_seconds = search_bound(s, plan->iteration_seconds);
        if (why)
            *why = explain(s, plan);
        if (request->n_others && plan_others(s, plan, err)) {
            plan_free(plan);
            plan = NULL;
        }
    }
    search_free(s);
    return plan;
}

void pinned_stages(const struct cost *cost, const struct cluster *cluster,
                   const struct plan_request *request, int *least, int *most)
{
    int chunks = request_chunks(request);

    *most = chunks * cluster->n_devices;
    *most = cost->n_blocks < *most ? cost->n_blocks : *most;
    *least = pins_least_stages(request->block_stage, cost->n_blocks);
    *least = (*least + chunks - 1) / chunks * chunks;
}

/* Pinned blocks say how many stages there are at least: as many more are tried as help. */
static struct plan *partition_pinned(const struct cost *cost, const struct cluster *cluster,
                                     struct plan_request *request, char **why, struct err *err)
{
    int chunks = request_chunks(request), least, most;
    bool unexplained = request->unexplained;
    struct plan *best = NULL;
    struct search *any;

    pinned_stages(cost, cluster, request, &least, &most);
    request->n_others = 0;
    if (least > most) {
        err_set_code(err, EXIT_USAGE, "--pin needs %d stages with this schedule, %d for each device: "
                     "at most %d fit the network's %d blocks and %d devices: pin to lower ones, or "
                     "take another schedule or more devices", least, chunks, most, cost->n_blocks,
                     cluster->n_devices);
        return NULL;
    }
    for (request->stages = least;; request->stages += chunks) {
        struct err local = { 0 };
        char *reasons = NULL;
        struct plan *plan = partition_once(cost, cluster, request, why ? &reasons : NULL, &local);
        bool better = plan && (!best || plan->iteration_seconds < best->iteration_seconds);

        /* Why there is none is said of the fewest. */
        request->unexplained = true;
        if (!plan && request->stages == least)
            *err = local;
        if (better) {
            plan_free(best);
            best = plan;
            if (why) {
                free(*why);
                *why = reasons;
            }
        } else {
            plan_free(plan);
            free(reasons);
        }
        if ((best && !better && !request->exhaustive && chunks == 1) ||
            request->stages + chunks > most)
            break;
    }
    request->stages = 0;
    request->unexplained = unexplained;
    if (!best)
        return NULL;
    *err = (struct err){ 0 };
    any = search_new(cost, cluster, request);
    best->lower_bound_seconds = search_bound(any, best->iteration_seconds);
    search_free(any);
    return best;
}

struct plan *partition_any(const struct cost *cost, const struct cluster *cluster,
                           struct plan_request *request, char **why, struct err *err)
{
    if (request->block_stage && !request->stages)
        return partition_pinned(cost, cluster, request, why, err);
    return partition_once(cost, cluster, request, why, err);
}

/* Devices of one kind have one cost. */
static const struct cost *common_cost(const struct cost *cost, const struct cluster *cluster)
{
    int n;
    const char **kinds = cluster_kinds(cluster, &n);

    cost = cost_common(cost, n, kinds);
    free(kinds);
    return cost;
}

struct plan *partition(const struct cost *cost, const struct cluster *cluster,
                       const struct plan_request *request, char **why, struct err *err)
{
    struct plan_request pinned = *request;
    struct plan_listed listed = { 0 };
    struct err local = { 0 };
    struct cost *reordered = NULL;
    struct plan *plan = NULL;
    int *stages = NULL;
    bool taken;

    cost = common_cost(cost, cluster);
    if (!pinned.memory_of && cost->steps) {
        pinned.memory_of = stage_layout_memory;
        pinned.user = (void *)cost;
    }
    pinned.given_stages = pinned.stages;
    if (pinned.n_replicas && !pinned.stages)
        pinned.stages = pinned.n_replicas;
    taken = !pinned.list || !list_take(&pinned, cluster, &listed, &local);
    if (taken && pinned.n_pins && !pins_reorder(cost, &pinned, &reordered, &local)) {
        cost = reordered ? reordered : cost;
        pinned.block_stage = stages = pins_resolve(cost, &pinned, &local);
    }
    if (why)
        *why = NULL;
    if (!local.code)
        plan = partition_orders(cost, cluster, &pinned, why, &local);
    if (!plan && err && taken && (stages || !pinned.n_pins))
        hint_groups(cost, cluster, &pinned, &local);
    free(stages);
    free(listed.edges);
    cost_free(reordered);
    list_name(request->list, &local);
    if (!plan && err)
        *err = local;
    return plan;
}
