/* SPDX-License-Identifier: MIT */
/* How many bytes a stage will want, and may have. */
#include <math.h>

#include "scheduler/partition_private.h"

double search_limit(const struct search *search, int device)
{
    double limit = search->request->memory;
    double own = search->cluster->devices[device].memory;

    if (search->memory > 0)
        return search->memory;
    return limit > 0 && limit < own ? limit : own;
}

double search_room(const struct search *search, int pipelines, int device, int r)
{
    double room = search_limit(search, device);
    int n = search_devices(search, pipelines);

    for (int p = 0; p < pipelines && !search->uniform; p++)
        for (int d = device; d < device + r; d++)
            room = fmin(room, search_limit(search, p * n + d));
    return room;
}

int64_t candidate_share(int64_t b, int r)
{
    return (b + r - 1) / r;
}

int candidate_slots(bool gpipe, int64_t micro_batches, int behind)
{
    return (int)(gpipe || behind + 1 > micro_batches ? micro_batches : behind + 1);
}

/* A receive is posted one ahead; each slot may have its sends under way. */
static double message_buffers(const struct interval_cost *c, int64_t micro_batches, int slots)
{
    double ahead = micro_batches < 2 ? 1 : 2;

    return ahead * (c->received + c->sent) + slots * (c->sent + c->gradient);
}

/* What stages have besides the sums of the cost file is foreseen where they are compiled. */
struct stage_bytes interval_bytes(const struct search *search, const struct interval_cost *c,
                                  int64_t micro_batches, int slots)
{
    struct stage_cost kept = { .parameters = c->parameters };
    struct stage_cost moving = { .activations = c->slot, .workspace = c->workspace };
    struct stage_bytes bytes = {
        .fixed = stage_memory(search->cost, &kept, slots, search->state_bytes),
        .moving = stage_memory(search->cost, &moving, slots, search->state_bytes),
    };

    if (search->request->memory_of)
        bytes.moving += message_buffers(c, micro_batches, slots);
    return bytes;
}

double search_memory(const struct search *search, const struct interval_cost *c,
                     int64_t micro_batches, int slots)
{
    struct stage_bytes bytes = interval_bytes(search, c, micro_batches, slots);

    return bytes.fixed * search->factor_fixed + bytes.moving * search->factor_moving;
}

struct stage_bytes search_stage(struct search *search, const struct candidate *c, int s)
{
    struct table *table = search->table;
    const struct share_table *share =
        table_share(table, candidate_share(c->micro_batch, c->replicas[s]));
    struct interval_cost cost;

    table_interval(table, share, table_cut(table, c->cuts[s]), table_cut(table, c->cuts[s + 1]),
                   &cost);
    return interval_bytes(search, &cost, c->micro_batches,
                          candidate_slots(c->gpipe, c->micro_batches, c->n_stages - 1 - s));
}
