/* SPDX-License-Identifier: MIT */
/* Lists that are given, in place of the name of a schedule. What a schedule makes is searched for by
 * its name, so that the plan is the one that it has, and the list is put into that.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

#define REFUSE(...) err_set_code(err, EXIT_USAGE, __VA_ARGS__)

static int check_chunk_counts(const struct schedule *list, struct err *err)
{
    const struct instruction_list *first = &list->lists[0];

    for (int l = 1; l < list->n_lists; l++) {
        const struct instruction_list *own = &list->lists[l];

        if (own->n_chunks != first->n_chunks)
            return err_set(err, "%s: stages in the list of stage %d: %d, in that of stage %d: %d; "
                           "all devices of a plan have as many", list->source, own->stages[0],
                           own->n_chunks, first->stages[0], first->n_chunks);
    }
    return 0;
}

static int check_itself(const struct schedule *list, struct err *err)
{
    int n, bad;
    struct schedule_edge *edges = schedule_edges(list, &n);

    bad = schedule_check(list, edges, n, err);
    free(edges);
    return bad || check_chunk_counts(list, err) ? -1 : 0;
}

/* What the list pins, and is pinned otherwise. */
static int check_pins(const struct schedule *list, const struct cluster *cluster,
                      const struct plan_request *q, struct err *err)
{
    int chunks = list->n_stages / list->n_lists;
    int64_t each = q->global_batch / (q->pipelines ? q->pipelines : 1);

    if (list->n_stages != q->stages || list->micro_batches != q->micro_batches)
        return REFUSE("%s: lists for %d stages and %d micro-batches, asked for %d and %lld; "
                      "leave out --stages, --replicas and --micro-batches", list->source,
                      list->n_stages, list->micro_batches, q->stages,
                      (long long)q->micro_batches);
    if (q->n_replicas && q->n_replicas != list->n_stages)
        return REFUSE("%s: lists for %d stages, --replicas names %d", list->source,
                      list->n_stages, q->n_replicas);
    if (q->chunks && q->chunks != chunks)
        return REFUSE("%s: lists of %d stage%s, --chunks says %d: leave it out", list->source,
                      chunks, chunks == 1 ? "" : "s", q->chunks);
    if (q->schedule_memory > 0)
        return REFUSE("%s: says how many slots there are: leave out --schedule-memory",
                      list->source);
    if (each % list->micro_batches)
        return REFUSE("%s: lists for %d micro-batches, which do not divide the global batch of "
                      "%lld%s", list->source, list->micro_batches, (long long)q->global_batch,
                      q->pipelines > 1 ? " over --pipelines" : "");
    if (list->n_lists > cluster->n_devices)
        return REFUSE("%s: lists for %d devices, %s has %d", list->source, list->n_lists,
                      cluster->name, cluster->n_devices);
    return 0;
}

int list_take(struct plan_request *q, const struct cluster *cluster, struct plan_listed *listed,
              struct err *err)
{
    struct schedule_options options;
    int like;

    if (check_pins(q->list, cluster, q, err) || check_itself(q->list, err))
        return -1;
    like = schedule_like(q->list, &options);
    if (like < 0)
        return 0;
    listed->list = q->list;
    listed->edges = schedule_edges(q->list, &listed->n_edges);
    q->schedule = schedule_name((enum schedule_kind)like);
    q->chunks = like == SCHEDULE_INTERLEAVED ? options.chunks : 0;
    q->schedule_memory = options.memory;
    q->listed = listed;
    q->list = NULL;
    return 0;
}

static bool same_edges(const struct plan_listed *listed, const struct schedule_edge *edges, int n)
{
    for (int i = 0; i < n && n == listed->n_edges; i++)
        if (edges[i].from != listed->edges[i].from || edges[i].to != listed->edges[i].to ||
            edges[i].gradient != listed->edges[i].gradient)
            return false;
    return n == listed->n_edges;
}

bool list_suits(struct search *search, const struct candidate *c)
{
    const struct plan_listed *listed = search->request->listed;
    struct traffic_list *traffic;
    struct schedule_edge *edges;
    bool suits;
    int *stage;

    if (!listed)
        return true;
    stage = candidate_stages(c);
    traffic = traffic_new(search->cost, stage);
    edges = mem_new((size_t)traffic->n, sizeof(*edges));
    traffic_edges(search->cost, traffic, edges);
    suits = same_edges(listed, edges, traffic->n) ||
            schedule_check(listed->list, edges, traffic->n, &search->refused) == 0;
    free(edges);
    traffic_free(traffic);
    free(stage);
    return suits;
}

void list_name(const struct schedule *list, struct err *err)
{
    if (list && err->code && strncmp(err->text, list->source, strlen(list->source)) != 0)
        err_prefix(err, "%s", list->source);
}
