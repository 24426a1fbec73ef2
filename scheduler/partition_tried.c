/* SPDX-License-Identifier: MIT */
/* What a trial has run: real steps overrule forecasts. */
#include "scheduler/partition_tried.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/mem.h"

void plan_shapes_free(struct plan_shape *shapes, int n)
{
    for (int i = 0; i < n; i++) {
        free(shapes[i].blocks);
        free(shapes[i].replicas);
    }
    free(shapes);
}

static void hash_names(FILE *out, char **text, char order[17])
{
    fclose(out);
    cache_hash(*text, order);
    free(*text);
}

void plan_order(const struct plan *plan, char order[17])
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    for (int k = 0; k < plan->n_stages; k++)
        for (int i = 0; i < plan->stages[k].n_blocks; i++)
            fprintf(out, "%s\n", plan->stages[k].blocks[i].name);
    hash_names(out, &text, order);
}

void plan_order_of(const struct cost *cost, char order[17])
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    for (int i = 0; i < cost->n_blocks; i++)
        fprintf(out, "%s\n", cost->blocks[i].name);
    hash_names(out, &text, order);
}

/* Its split, where that is among those that are searched, else NULL. */
static const struct split *split_of(const struct search *s, const struct plan_shape *tried)
{
    for (int i = 0; i < s->n_splits; i++)
        if (s->splits[i].pipelines == tried->pipelines &&
            s->splits[i].micro_batches == tried->micro_batches)
            return &s->splits[i];
    return NULL;
}

/* Is it within the pins, and its blocks those of this network, one stage's behind the other's? */
static bool is_possible(const struct search *s, const struct plan_shape *tried,
                        const struct split *split, const char *order)
{
    const struct plan_request *q = s->request;
    int blocks = 0, devices = 0;

    if (!split || !tried->blocks || tried->schedule < 0 || strcmp(tried->order, order) != 0 ||
        (q->stages && q->stages != tried->stages) ||
        (q->n_replicas && q->n_replicas != tried->stages))
        return false;
    for (int k = 0; k < tried->stages; k++) {
        int r = tried->replicas[k];

        if (tried->blocks[k] > s->cost->n_blocks - blocks || r > s->cluster->n_devices - devices ||
            (q->n_replicas && q->replicas[k] != r) || !shares_allowed(q, split->micro_batch, r))
            return false;
        blocks += tried->blocks[k];
        devices += r;
    }
    return blocks == s->cost->n_blocks && devices <= search_devices(s, tried->pipelines);
}

/* NULL where it does not fit by the estimates. */
static struct candidate *tried_candidate(struct search *s, const struct plan_shape *tried,
                                         const struct split *split)
{
    size_t n = (size_t)tried->stages;
    struct candidate *c = mem_new(1, sizeof(*c));

    *c = (struct candidate){
        .pipelines = tried->pipelines, .n_stages = tried->stages,
        .micro_batch = split->micro_batch, .micro_batches = split->micro_batches, .zero = s->zero,
        .cuts = mem_new(n + 1, sizeof(int)), .replicas = mem_new(n, sizeof(int)),
    };
    memcpy(c->replicas, tried->replicas, n * sizeof(int));
    for (int k = 0; k < tried->stages; k++)
        c->cuts[k + 1] = c->cuts[k] + tried->blocks[k];
    c->schedule = (enum schedule_kind)tried->schedule;
    search_choose_devices(s, c);
    if (set_schedule(s, c, c->schedule)) {
        c->closed = partition_closed(s, c);
        if (isfinite(c->closed))
            return c;
    }
    candidate_free(c);
    return NULL;
}

void search_add_tried(struct search *search)
{
    struct search *s = search;
    char order[17];

    if (s->request->n_tried == 0 || s->request->list)
        return;
    plan_order_of(s->cost, order);
    for (int t = 0; t < s->request->n_tried; t++) {
        const struct plan_shape *tried = &s->request->tried[t];
        const struct split *split = split_of(s, tried);
        struct candidate *c =
            is_possible(s, tried, split, order) ? tried_candidate(s, tried, split) : NULL;

        if (c)
            search_add(s, c);
    }
}

int search_tried(const struct search *s, const struct candidate *c)
{
    int place = 2 * s->request->n_tried;

    for (int t = 0; t < s->request->n_tried; t++) {
        const struct plan_shape *tried = &s->request->tried[t];

        if (tried->stages != c->n_stages || tried->pipelines != candidate_pipelines(c) ||
            tried->devices != candidate_devices(c))
            continue;
        place = 2 * t + 1;
        if (tried->schedule == (int)c->schedule && tried->micro_batches == c->micro_batches)
            return 2 * t;
    }
    return place;
}

int search_tried_first(struct search *s, struct err *err)
{
    int best = 2 * s->request->n_tried, place = 0;

    if (s->request->exhaustive || s->request->policy)
        return 0;
    for (int i = 0; i < s->n_found && best > 0; i++) {
        if (search_tried(s, s->found[i]) >= best)
            continue;
        if (!s->found[i]->exact && search_evaluate(s, s->found[i], true, err))
            return -1;
        if (isfinite(s->found[i]->seconds)) {
            best = search_tried(s, s->found[i]);
            place = i;
        }
    }
    if (place > 0 && (search_tried(s, s->found[0]) < 2 * s->request->n_tried ||
                      s->found[0]->seconds * s->request->doubt >= s->found[place]->seconds))
        search_put_first(s, place);
    return 0;
}
