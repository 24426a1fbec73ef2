/* SPDX-License-Identifier: MIT */
/* A candidate becomes a plan: stages on neighbouring devices, in the order of the pipeline. */
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

int candidate_pipelines(const struct candidate *c)
{
    return c->pipelines ? c->pipelines : 1;
}

struct candidate *candidate_copy(const struct candidate *c)
{
    struct candidate *copy = mem_new(1, sizeof(*copy));

    *copy = *c;
    copy->cuts = mem_new((size_t)c->n_stages + 1, sizeof(int));
    copy->replicas = mem_new((size_t)c->n_stages, sizeof(int));
    for (int s = 0; s <= c->n_stages; s++)
        copy->cuts[s] = c->cuts[s];
    for (int s = 0; s < c->n_stages; s++)
        copy->replicas[s] = c->replicas[s];
    return copy;
}

void candidate_free(struct candidate *c)
{
    if (!c)
        return;
    free(c->cuts);
    free(c->replicas);
    free(c);
}

static char *copy_text(const char *text)
{
    return text ? mem_strdup(text) : NULL;
}

static void fill_blocks(const struct cost *cost, int first, int end, struct plan_stage *stage)
{
    stage->n_blocks = end - first;
    stage->blocks = mem_new((size_t)stage->n_blocks, sizeof(*stage->blocks));
    for (int b = first; b < end; b++) {
        struct plan_block *to = &stage->blocks[b - first];

        to->name = mem_strdup(cost->blocks[b].name);
        to->first_node = copy_text(cost->blocks[b].first_node);
        to->last_node = copy_text(cost->blocks[b].last_node);
    }
}

/* The device of a stage's i-th replica, counted over all pipelines, where its first one of the
 * first pipeline has 'device'.
 */
static int device_of(const struct cluster *cluster, int pipelines, int r, int device, int i)
{
    return i / r * (cluster->n_devices / pipelines) + device + i % r;
}

static double reduce_seconds(const struct cluster *cluster, int pipelines, int device, int r,
                             double bytes)
{
    int *devices = mem_new((size_t)(pipelines * r), sizeof(int));
    double seconds;

    for (int i = 0; i < pipelines * r; i++)
        devices[i] = device_of(cluster, pipelines, r, device, i);
    seconds = bytes > 0 ? cluster_allreduce_time(cluster, pipelines * r, devices, bytes) : 0;
    free(devices);
    return seconds;
}

static void fill_replicas(const struct cluster *cluster, int pipelines, int64_t b, int device,
                          struct plan_stage *stage)
{
    int r = stage->replicas;

    stage->devices = mem_new((size_t)(pipelines * r), sizeof(*stage->devices));
    stage->samples = mem_new((size_t)r, sizeof(*stage->samples));
    for (int i = 0; i < pipelines * r; i++) {
        int d = device_of(cluster, pipelines, r, device, i);

        stage->devices[i] = mem_strdup(cluster->devices[d].id);
    }
    for (int i = 0; i < r; i++) {
        stage->samples[i] = plan_share_start(b, stage->replicas, i + 1) -
                            plan_share_start(b, stage->replicas, i);
    }
}

static int64_t largest(const struct plan_stage *stage)
{
    int64_t most = 0;

    for (int i = 0; i < stage->replicas; i++)
        most = stage->samples[i] > most ? stage->samples[i] : most;
    return most;
}

static void fill_shared(struct plan *plan, const struct cost *cost, const int *stage)
{
    for (int i = 0; i < cost->n_shared; i++) {
        const struct cost_shared *from = &cost->shared[i];
        struct plan_shared *to;
        int last = -1, n = 0;

        for (int k = 0; k < from->n_blocks; k++)
            if (stage[from->blocks[k]] != stage[from->blocks[0]])
                n++;
        if (n == 0)
            continue;
        to = mem_push((void **)&plan->shared, &plan->n_shared, sizeof(*to));
        to->name = mem_strdup(from->name);
        /* Blocks ascend, stages with them. */
        for (int k = 0; k < from->n_blocks; k++) {
            int s = stage[from->blocks[k]];

            if (s != last)
                *(int *)mem_push((void **)&to->stages, &to->n_stages, sizeof(int)) = s;
            last = s;
        }
        to->owner = to->stages[0];
    }
}

static int *stage_array(const struct cost *cost, const struct candidate *c)
{
    int *stage = mem_new((size_t)cost->n_blocks, sizeof(*stage));

    for (int s = 0; s < c->n_stages; s++)
        for (int b = c->cuts[s]; b < c->cuts[s + 1]; b++)
            stage[b] = s;
    return stage;
}

static void fill_figures(const struct cost *cost, const struct cluster *cluster,
                         const struct plan_request *request, const int *stage_of, int s,
                         const struct candidate *c, int device, struct plan_stage *stage)
{
    double own = 0;
    int slots = candidate_slots(request, c, s);
    struct stage_cost sums;

    stage_cost_get(cost, stage_of, s, (double)largest(stage), &sums);
    for (int b = c->cuts[s]; b < c->cuts[s + 1]; b++)
        own += cost->blocks[b].parameters;
    stage->forward = sums.forward;
    stage->dgrad = sums.dgrad;
    stage->wgrad = sums.wgrad;
    stage->memory = stage_memory(cost, &sums, slots,
                                 stage_state_bytes(cost, request->optimizer));
    stage->allreduce = reduce_seconds(cluster, candidate_pipelines(c), device, stage->replicas,
                                      stage_gradient_bytes(cost, own));
}

struct plan *place(const struct cost *cost, const struct cluster *cluster,
                   const struct plan_request *request, const struct candidate *c)
{
    struct plan *plan = mem_new(1, sizeof(*plan));
    int *stage_of = stage_array(cost, c);
    int device = 0;

    plan->global_batch = request->global_batch;
    plan->micro_batch = c->micro_batch;
    plan->micro_batches = c->micro_batches;
    plan->schedule = mem_strdup(schedule_name(c->schedule));
    plan->schedule_memory = c->budget;
    if (request->list)
        plan_set_list(plan, request->list);
    plan->chunks = 1;
    plan->pipelines = candidate_pipelines(c);
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
        fill_blocks(cost, c->cuts[s], c->cuts[s + 1], stage);
        fill_replicas(cluster, plan->pipelines, c->micro_batch, device, stage);
        fill_figures(cost, cluster, request, stage_of, s, c, device, stage);
        device += stage->replicas;
    }
    fill_shared(plan, cost, stage_of);
    free(stage_of);
    return plan;
}
