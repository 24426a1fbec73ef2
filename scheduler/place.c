/* SPDX-License-Identifier: MIT */
/* A candidate becomes a plan. */
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

static char *copy_text(const char *text)
{
    return text ? mem_strdup(text) : NULL;
}

static void fill_blocks(const struct cost *cost, const struct candidate *c, int s,
                        struct plan_stage *stage)
{
    stage->n_blocks = c->cuts[s + 1] - c->cuts[s];
    stage->blocks = mem_new((size_t)stage->n_blocks, sizeof(*stage->blocks));
    for (int i = 0; i < stage->n_blocks; i++) {
        const struct cost_block *from = &cost->blocks[candidate_block(c, c->cuts[s] + i)];
        struct plan_block *to = &stage->blocks[i];

        to->name = mem_strdup(from->name);
        to->first_node = copy_text(from->first_node);
        to->last_node = copy_text(from->last_node);
    }
}

/* The devices of a stage, over all pipelines. */
static int *devices_of(const struct cluster *cluster, const struct candidate *c, int s)
{
    int r = c->replicas[s], all = candidate_pipelines(c) * r, first = candidate_first(c, s);
    int *devices = mem_new((size_t)all, sizeof(*devices));

    for (int i = 0; i < all; i++)
        devices[i] = candidate_device(c, cluster, i / r, first + i % r);
    return devices;
}

static void fill_replicas(const struct cluster *cluster, const struct candidate *c, int s,
                          struct plan_stage *stage)
{
    int r = stage->replicas, all = candidate_pipelines(c) * r;
    int *devices = devices_of(cluster, c, s);
    int64_t b = c->micro_batch;

    stage->devices = mem_new((size_t)all, sizeof(*stage->devices));
    stage->samples = mem_new((size_t)r, sizeof(*stage->samples));
    for (int i = 0; i < all; i++)
        stage->devices[i] = mem_strdup(cluster->devices[devices[i]].id);
    for (int i = 0; i < r; i++)
        stage->samples[i] = plan_share_start(b, r, i + 1) - plan_share_start(b, r, i);
    free(devices);
}

static int64_t largest(const struct plan_stage *stage)
{
    int64_t most = 0;

    for (int i = 0; i < stage->replicas; i++)
        most = stage->samples[i] > most ? stage->samples[i] : most;
    return most;
}

/* The stages of these blocks, each once, in ascending order. */
static void fill_users(const struct cost_shared *from, const int *stage, int n_stages,
                       struct plan_shared *to)
{
    for (int s = 0; s < n_stages; s++)
        for (int k = 0; k < from->n_blocks; k++)
            if (stage[from->blocks[k]] == s) {
                *(int *)mem_push((void **)&to->stages, &to->n_stages, sizeof(int)) = s;
                break;
            }
    to->owner = to->stages[0];
}

static void fill_shared(struct plan *plan, const struct cost *cost, const int *stage)
{
    for (int i = 0; i < cost->n_shared; i++) {
        const struct cost_shared *from = &cost->shared[i];
        struct plan_shared *to;
        int n = 0;

        for (int k = 0; k < from->n_blocks; k++)
            if (stage[from->blocks[k]] != stage[from->blocks[0]])
                n++;
        if (n == 0)
            continue;
        to = mem_push((void **)&plan->shared, &plan->n_shared, sizeof(*to));
        to->name = mem_strdup(from->name);
        fill_users(from, stage, plan->n_stages, to);
    }
}

/* What each stage has, and what they send each other. */
struct shape {
    const int *stage_of, *slots;
    const struct traffic_list *traffic;
};

/* A kind of device and a share, of which a stage may have many replicas. */
struct kind_share {
    const struct cost *cost;
    int64_t samples;
};

/* False where it was there. */
static bool add_share(struct kind_share **shares, int *n, struct kind_share share)
{
    for (int i = *n - 1; i >= 0; i--)
        if ((*shares)[i].cost == share.cost && (*shares)[i].samples == share.samples)
            return false;
    *(struct kind_share *)mem_push((void **)shares, n, sizeof(share)) = share;
    return true;
}

/* Where devices are of several kinds: of the replica that takes longest. */
static void take_slowest(const struct cost *cost, const struct cluster *cluster,
                         const struct shape *shape, int s, const struct candidate *c,
                         struct plan_stage *stage)
{
    int *devices = devices_of(cluster, c, s), n = 0;
    struct kind_share *shares = NULL;
    double most = -1;

    for (int i = 0; i < candidate_pipelines(c) * stage->replicas; i++) {
        struct kind_share own = { cost_for(cost, cluster->devices[devices[i]].kind),
                                  stage->samples[i % stage->replicas] };
        struct stage_seconds seconds;
        double again, all;

        if (!add_share(&shares, &n, own))
            continue;
        seconds = stage_seconds(own.cost, shape->stage_of, s, (double)own.samples);
        again = recompute_seconds(stage->recompute, seconds.again, seconds.forward);
        all = seconds.forward + seconds.dgrad + again + seconds.wgrad;
        if (all <= most)
            continue;
        most = all;
        stage->forward = seconds.forward;
        stage->dgrad = seconds.dgrad + again;
        stage->wgrad = seconds.wgrad;
    }
    free(shares);
    free(devices);
}

static void fill_figures(const struct cost *cost, const struct cluster *cluster,
                         const struct plan_request *request, const struct shape *shape, int s,
                         const struct candidate *c, struct plan_stage *stage)
{
    double own = 0, state = stage_state_bytes(cost, request->optimizer, request->offload);
    int slots = shape->slots[s];
    int copies = candidate_pipelines(c) * stage->replicas;
    struct stage_cost sums;
    int *devices;

    stage_cost_get(cost, shape->stage_of, s, (double)largest(stage), &sums);
    for (int i = c->cuts[s]; i < c->cuts[s + 1]; i++)
        own += cost->blocks[candidate_block(c, i)].parameters;
    stage->forward = sums.forward;
    stage->dgrad = sums.dgrad;
    stage->wgrad = sums.wgrad;
    stage->dgrad += recompute_seconds(stage->recompute, sums.again, sums.forward);
    if (cost->n_others)
        take_slowest(cost, cluster, shape, s, c, stage);
    stage_backward(&sums, candidate_backward(request, c, s, sums.gradients), stage->recompute,
                   slots);
    stage->memory = stage_memory(cost, &sums, slots, request_versions(request),
                                 c->zero ? state / copies : state) +
                    traffic_buffer_bytes(cost, shape->traffic, s, (double)largest(stage),
                                         c->micro_batches, shape->slots) +
                    stage_sum_bytes(stage_gradient_bytes(cost, sums.parameters),
                                    cost->message_buffers, copies);
    if (own <= 0)
        return;
    devices = devices_of(cluster, c, s);
    stage->allreduce = allreduce_time(cluster, copies, devices, c->zero,
                                      stage_gradient_bytes(cost, own));
    free(devices);
}

/* All but what the stages compute, and which blocks they have. */
static struct plan *place_stages(const struct cost *cost, const struct cluster *cluster,
                                 const struct plan_request *request, const struct candidate *c)
{
    struct plan *plan = mem_new(1, sizeof(*plan));

    plan->global_batch = request->global_batch;
    plan->micro_batch = c->micro_batch;
    plan->micro_batches = c->micro_batches;
    plan->schedule = mem_strdup(schedule_name(c->schedule));
    plan->schedule_memory = c->budget;
    plan->chunks = c->chunks ? c->chunks : 1;
    if (request->list)
        plan_set_list(plan, request->list);
    plan->pipelines = candidate_pipelines(c);
    plan->zero = c->zero && (request->zero == PLAN_ZERO || candidate_copies(c) > 1);
    plan->offload = request->offload;
    plan->batchnorm_samples = request->batchnorm_samples;
    plan->cluster = mem_strdup(cluster->name);
    plan->precision = mem_strdup(cost->precision);
    plan->optimizer = mem_strdup(request->optimizer ? request->optimizer : "");
    plan->command = mem_strdup("");
    plan->n_stages = c->n_stages;
    plan->stages = mem_new((size_t)c->n_stages, sizeof(*plan->stages));
    for (int s = 0; s < c->n_stages; s++) {
        struct plan_stage *stage = &plan->stages[s];

        stage->replicas = c->replicas[s];
        stage->recompute = c->again ? c->again[s] : PLAN_RECOMPUTE_NONE;
        fill_replicas(cluster, c, s, stage);
    }
    return plan;
}

struct plan *place(const struct cost *cost, const struct cluster *cluster,
                   const struct plan_request *request, const struct candidate *c)
{
    struct plan *plan = place_stages(cost, cluster, request, c);
    int *stage_of = candidate_stages(c), *slots = mem_new((size_t)c->n_stages, sizeof(*slots));
    struct traffic_list *traffic = traffic_new(cost, stage_of);
    struct shape shape = { stage_of, slots, traffic };

    for (int s = 0; s < c->n_stages; s++)
        slots[s] = candidate_slots(request, c, s);
    for (int s = 0; s < c->n_stages; s++) {
        fill_blocks(cost, c, s, &plan->stages[s]);
        fill_figures(cost, cluster, request, &shape, s, c, &plan->stages[s]);
    }
    fill_shared(plan, cost, stage_of);
    traffic_free(traffic);
    free(slots);
    free(stage_of);
    return plan;
}

struct plan *place_roughly(const struct cost *cost, const struct cluster *cluster,
                           const struct plan_request *request, const struct candidate *c)
{
    struct plan *plan = place_stages(cost, cluster, request, c);

    plan->stage_of = candidate_stages(c);
    return plan;
}
