/* SPDX-License-Identifier: MIT */
/* Where there is no plan: what would leave one, which is said when it was tried. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "scheduler/partition_private.h"

/* Larger ones that are tried; and how close to the least that does, if there are few cuts and
 * devices.
 */
#define MOST_GUESSES 4
#define GUESS 1.25
#define HALVINGS 10
/* Cuts times devices up to which pins are left out to see what is found: each is a search. */
#define MOST_TRIED 4096
/* Of a BatchNorm's group, and how many of its parts are tried. */
#define MOST_PARTS 4096
#define MOST_GROUPS 6
#define CLOSE 0.01
#define PINS 8

/* Is there a plan where every device has so many bytes? */
static bool fits_devices_of(const struct search *search, double bytes)
{
    struct cluster *cluster = cluster_first(search->cluster, search->cluster->n_devices);
    struct plan_request request = *search->request;
    struct err ignored = { 0 };
    struct search *s;
    struct plan *plan;

    for (int d = 0; d < cluster->n_devices; d++)
        cluster->devices[d].memory = bytes;
    request.memory = 0;
    plan = search_plan(search->cost, cluster, &request, &s, &ignored);
    search_free(s);
    cluster_free(cluster);
    plan_free(plan);
    return plan != NULL;
}

double search_suffices(const struct search *search, double short_of, double bytes)
{
    double low = short_of, high = ceil(bytes);

    for (int i = 0; !fits_devices_of(search, high); i++) {
        if (i == MOST_GUESSES)
            return 0;
        low = high;
        high = ceil(high * GUESS);
    }
    for (int i = 0; i < HALVINGS && search->few && high - low > high * CLOSE; i++) {
        double middle = ceil(low + (high - low) / 2);

        if (fits_devices_of(search, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}

static bool has_plan_of(const struct cost *cost, const struct cluster *cluster,
                        const struct plan_request *request)
{
    struct err ignored = { 0 };
    struct search *s;
    struct plan *plan = search_plan(cost, cluster, request, &s, &ignored);

    search_free(s);
    plan_free(plan);
    return plan != NULL;
}

static bool has_plan(const struct cost *cost, const struct cluster *cluster,
                     const struct plan_request *request, int64_t group)
{
    struct plan_request other = *request;
    int most;

    other.batchnorm_samples = group;
    other.n_others = 0;
    if (!other.block_stage || other.stages)
        return has_plan_of(cost, cluster, &other);
    pinned_stages(cost, cluster, &other, &other.stages, &most);
    for (; other.stages <= most; other.stages += request_chunks(&other))
        if (has_plan_of(cost, cluster, &other))
            return true;
    return false;
}

/* The option, where it is given; then the request is without. */
static const char *leave_out(struct plan_request *r, int pin)
{
    struct plan_request all = *r;

    switch (pin) {
    case 0:
        r->stages = r->n_replicas ? r->given_stages : 0;
        r->n_replicas = 0;
        return all.n_replicas ? "--replicas" : all.given_stages && !all.list && !all.listed
                                                   ? "--stages" : NULL;
    case 1:
        r->block_stage = NULL;
        r->n_pins = 0;
        r->stages = r->n_replicas ? r->n_replicas : r->given_stages;
        return all.block_stage ? "--pin" : NULL;
    case 2:
        r->pipelines = 0;
        return all.pipelines ? "--pipelines" : NULL;
    case 3:
        r->micro_batches = 0;
        return all.micro_batches && !all.list && !all.listed ? "--micro-batches" : NULL;
    case 4:
        r->micro_batch = 0;
        return all.micro_batch ? "--micro-batch-size" : NULL;
    case 5:
        r->schedule = NULL;
        r->schedule_memory = r->chunks = 0;
        return all.schedule && !all.listed ? "--schedule" : NULL;
    case 6:
        r->recompute = NULL;
        return all.recompute ? "--recompute" : NULL;
    default:
        r->zero = PLAN_ZERO_ANY;
        return all.zero == PLAN_ZERO_NEVER ? "--no-zero" : NULL;
    }
}

bool hint_pins(const struct search *search, struct err *err)
{
    if (search->table->n * search->cluster->n_devices > MOST_TRIED)
        return false;
    for (int pin = 0; pin < PINS; pin++) {
        struct plan_request other = *search->request;
        const char *name = leave_out(&other, pin);

        if (!name || !has_plan(search->cost, search->cluster, &other, other.batchnorm_samples))
            continue;
        err_hint(err, "without %s there is a plan", name);
        return true;
    }
    return false;
}

bool hint_zero(const struct search *search, struct err *err)
{
    struct plan_request other = *search->request;

    /* Without replicas of a stage there is nobody to share its state with. */
    other.zero = PLAN_ZERO;
    if (search->request->zero != PLAN_ZERO_ANY || search->state_bytes <= 0 ||
        strcmp(search->request->policy, "gpipe") == 0 ||
        !has_plan(search->cost, search->cluster, &other, other.batchnorm_samples))
        return false;
    err_hint(err, "--zero would do");
    return true;
}

void hint_groups(const struct cost *cost, const struct cluster *cluster,
                 const struct plan_request *request, struct err *err)
{
    int64_t group = request->batchnorm_samples, smaller = 1;
    int tried = 0, pipelines = request->pipelines ? request->pipelines : 1;

    if (group < 2 || request->global_batch / pipelines % group ||
        !has_plan(cost, cluster, request, 1))
        return;
    for (int64_t by = 2; by < MOST_PARTS && by < group && tried < MOST_GROUPS; by++) {
        if (group % by)
            continue;
        tried++;
        if (has_plan(cost, cluster, request, group / by)) {
            smaller = group / by;
            break;
        }
    }
    err_hint(err, "each share is a multiple of BatchNorm's %lld samples%s: --batchnorm-samples "
             "%lld would do", (long long)group,
             request->batchnorm_chosen ? ", the default" : "", (long long)smaller);
}
