/* SPDX-License-Identifier: MIT */
#include "scheduler/plan.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

int plan_lists(const struct plan *plan)
{
    return plan->list ? plan->list->n_lists : plan->n_stages / plan->chunks;
}

int plan_list(const struct plan *plan, int s)
{
    return plan->list ? plan->list->stages[s].list
                      : schedule_list((enum schedule_kind)schedule_find(plan->schedule),
                                      plan_lists(plan), s);
}

int plan_list_first(const struct plan *plan, int l)
{
    return plan->list ? plan->list->lists[l].stages[0] : l;
}

int plan_devices(const struct plan *plan)
{
    int all = 0;

    for (int l = 0; l < plan_lists(plan); l++)
        all += plan->stages[plan_list_first(plan, l)].replicas;
    return all;
}

int plan_versions(const struct plan *plan)
{
    return plan->list ? plan->list->versions
                      : schedule_versions((enum schedule_kind)schedule_find(plan->schedule));
}

bool plan_first(const struct plan *plan, int s)
{
    return plan->list ? plan->list->stages[s].chunk == 0 : s < plan_lists(plan);
}

int plan_worker(const struct plan *plan, int pipeline, int s, int replica)
{
    int l = plan_list(plan, s), n = plan_lists(plan), id = 0, all = 0;

    for (int k = 0; k < n; k++) {
        int replicas = plan->stages[plan_list_first(plan, k)].replicas;

        id += k < l ? replicas : 0;
        all += replicas;
    }
    return pipeline * all + id + replica;
}

static int check_shape(const struct plan *plan, const struct schedule *list, struct err *err)
{
    if (list->n_stages == plan->n_stages && list->micro_batches == plan->micro_batches)
        return 0;
    return err_set(err, "%s: lists for %d stages and %d micro-batches, the plan has %d stages and "
                   "%lld micro-batches", list->source, list->n_stages, list->micro_batches,
                   plan->n_stages, (long long)plan->micro_batches);
}

struct schedule *plan_schedule(const struct plan *plan, const struct schedule_edge *edges,
                               int n_edges, struct err *err)
{
    const struct schedule_options options = { plan->schedule_memory, plan->chunks };

    if (!plan->list)
        return schedule_new(plan->schedule, &options, plan->n_stages, (int)plan->micro_batches,
                            edges, n_edges, err);
    if (check_shape(plan, plan->list, err) || schedule_check(plan->list, edges, n_edges, err))
        return NULL;
    return schedule_copy(plan->list);
}

static void set_schedule_name(struct plan *plan, const char *name)
{
    free(plan->schedule);
    schedule_free(plan->list);
    plan->schedule = mem_strdup(name);
    plan->list = NULL;
    plan->chunks = 1;
    plan->schedule_memory = 0;
}

void plan_set_list(struct plan *plan, const struct schedule *list)
{
    set_schedule_name(plan, list->name);
    plan->list = schedule_copy(list);
}

/* Where devices have several chunks they keep them. */
static int set_named(struct plan *plan, const char *name, struct err *err)
{
    int chunks = plan->n_stages / plan_lists(plan);

    set_schedule_name(plan, name);
    plan->chunks = schedule_chunks((enum schedule_kind)schedule_find(name), chunks);
    return plan_check_lists(plan, err) ? err_prefix(err, "--schedule %s", name) : 0;
}

int plan_set_schedule(struct plan *plan, const char *name_or_file, struct err *err)
{
    struct schedule *list;
    int bad;

    for (int s = 0; s < plan->n_stages; s++)
        plan->stages[s].memory = 0;
    if (schedule_find(name_or_file) >= 0)
        return set_named(plan, name_or_file, err);
    list = schedule_load(name_or_file, err);
    bad = list ? check_shape(plan, list, err) : -1;
    if (!bad) {
        plan_set_list(plan, list);
        bad = plan_check_lists(plan, err) ? err_prefix(err, "%s", name_or_file) : 0;
    }
    schedule_free(list);
    return bad;
}
