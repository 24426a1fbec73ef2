/* SPDX-License-Identifier: MIT */
/* --pin PATTERN=STAGE: which blocks are to be in which stages. */
#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/near.h"
#include "scheduler/partition_private.h"

#define REFUSE(...) err_set_code(err, EXIT_USAGE, __VA_ARGS__)

/* The pins of the blocks in the making: 'by' is which option pinned a block. */
struct pinning {
    const struct cost *cost;
    const struct plan_request *request;
    int *stage, *by;        /* [blocks]: -1: free */
};

static int set_block(struct pinning *p, int block, int pin, int stage, struct err *err)
{
    const char *const *pins = p->request->pins;

    if (p->stage[block] >= 0 && p->stage[block] != stage)
        return REFUSE("--pin %s and %s: both mean block \"%s\", which is never cut; leave one of "
                      "them out", pins[p->by[block]], pins[pin], p->cost->blocks[block].name);
    p->stage[block] = stage;
    p->by[block] = pin;
    return 0;
}

static bool matches(const char *pattern, const char *name)
{
    return name && (strcmp(pattern, name) == 0 || fnmatch(pattern, name, 0) == 0);
}

static int no_match(const struct pinning *p, const char *pin, const char *pattern,
                    struct err *err)
{
    struct near near;

    near_start(&near, pattern);
    for (int b = 0; b < p->cost->n_blocks; b++)
        near_try(&near, p->cost->blocks[b].name);
    for (int i = 0; i < p->request->n_nodes; i++)
        near_try(&near, p->request->nodes[i].name);
    if (near.best)
        return REFUSE("--pin %s: matches no node and no block; did you mean \"%s\"?", pin,
                      near.best);
    return REFUSE("--pin %s: matches no node and no block; the first block is \"%s\"", pin,
                  p->cost->blocks[0].name);
}

static int find_block(const struct cost *cost, const char *name)
{
    for (int b = 0; b < cost->n_blocks; b++)
        if (strcmp(cost->blocks[b].name, name) == 0)
            return b;
    return -1;
}

static int pin_matches(struct pinning *p, int pin, const char *pattern, int stage,
                       struct err *err)
{
    bool any = false;

    for (int b = 0; b < p->cost->n_blocks; b++) {
        const struct cost_block *block = &p->cost->blocks[b];

        if (!matches(pattern, block->name) && !matches(pattern, block->first_node) &&
            !matches(pattern, block->last_node))
            continue;
        any = true;
        if (set_block(p, b, pin, stage, err))
            return -1;
    }
    for (int i = 0; i < p->request->n_nodes; i++) {
        int block = matches(pattern, p->request->nodes[i].name)
                        ? find_block(p->cost, p->request->nodes[i].block) : -1;

        if (block >= 0 && set_block(p, block, pin, stage, err))
            return -1;
        any |= block >= 0;
    }
    return any ? 0 : no_match(p, p->request->pins[pin], pattern, err);
}

static int apply(struct pinning *p, int pin, struct err *err)
{
    const char *text = p->request->pins[pin], *equals = strrchr(text, '=');
    char *pattern, *end;
    long stage = -1;
    int bad;

    if (equals && isdigit((unsigned char)equals[1]))
        stage = strtol(equals + 1, &end, 10);
    if (stage < 0 || *end || stage >= p->cost->n_blocks || equals == text)
        return REFUSE("--pin %s: expected PATTERN=STAGE with a stage from 0 to %d, a block for "
                      "each", text, p->cost->n_blocks - 1);
    pattern = mem_printf("%.*s", (int)(equals - text), text);
    bad = pin_matches(p, pin, pattern, (int)stage, err);
    free(pattern);
    return bad;
}

/* Block 'then' is pinned to an earlier stage than 'first', which comes before it. */
static int refuse_order(const struct pinning *p, int first, int then, struct err *err)
{
    const char *const *pins = p->request->pins;

    return REFUSE("--pin %s and %s: block \"%s\" comes after \"%s\" in the network, not before "
                  "it: pin it to %d or more, or leave one of them out", pins[p->by[first]],
                  pins[p->by[then]], p->cost->blocks[then].name, p->cost->blocks[first].name,
                  p->stage[first]);
}

/* Stages take the blocks in their order, none of them empty. */
static int check_order(const struct pinning *p, int stages, struct err *err)
{
    const struct cost *cost = p->cost;
    const char *const *pins = p->request->pins;
    int last = -1;

    for (int b = 0; b < cost->n_blocks; b++) {
        int stage = p->stage[b], before = last < 0 ? 0 : p->stage[last];
        int between = last < 0 ? b : b - last;

        if (stage < 0)
            continue;
        if (last >= 0 && stage < before)
            return refuse_order(p, last, b, err);
        if (stage - before > between)
            return REFUSE("--pin %s: too few blocks are before \"%s\" for the stages before it: "
                          "pin it to %d or less", pins[p->by[b]], cost->blocks[b].name,
                          before + between);
        if (stages && stage >= stages)
            return REFUSE("--pin %s: --stages %d has stages 0 to %d; at least --stages %d would do",
                          pins[p->by[b]], stages, stages - 1, stage + 1);
        last = b;
    }
    if (stages && last >= 0 && stages - 1 - p->stage[last] > cost->n_blocks - 1 - last)
        return REFUSE("--pin %s: too few blocks are behind \"%s\" for the stages behind it: at "
                      "most --stages %d would do", pins[p->by[last]], cost->blocks[last].name,
                      p->stage[last] + cost->n_blocks - last);
    return 0;
}

/* The stages of all patterns; whether they can be is not looked at. */
static int pinning_init(struct pinning *p, const struct cost *cost,
                        const struct plan_request *request, struct err *err)
{
    size_t n = (size_t)cost->n_blocks;

    *p = (struct pinning){ .cost = cost, .request = request, .stage = mem_new(n, sizeof(int)),
                           .by = mem_new(n, sizeof(int)) };
    memset(p->stage, -1, n * sizeof(int));
    for (int i = 0; i < request->n_pins; i++)
        if (apply(p, i, err))
            return -1;
    return 0;
}

/* Of each block the pinned one of what it reads from, or itself, that is in the latest stage; -1:
 * none is pinned. Fails where that is behind its own.
 */
static int push_down(const struct pinning *p, const int *start, const int *into, int *latest,
                     struct err *err)
{
    const struct cost *cost = p->cost;

    for (int b = 0; b < cost->n_blocks; b++) {
        latest[b] = -1;
        for (int i = start[b]; i < start[b + 1]; i++) {
            int from = latest[cost->edges[into[i]].from];

            if (from >= 0 && (latest[b] < 0 || p->stage[from] > p->stage[latest[b]]))
                latest[b] = from;
        }
        if (p->stage[b] < 0)
            continue;
        if (latest[b] >= 0 && p->stage[latest[b]] > p->stage[b])
            return refuse_order(p, latest[b], b, err);
        latest[b] = b;
    }
    return 0;
}

/* The first stage of what reads it and is pinned, or its own; 'none' where nothing is. */
static void pull_up(const struct pinning *p, const int *start, const int *into, int none,
                    int *soonest)
{
    for (int b = 0; b < p->cost->n_blocks; b++)
        soonest[b] = p->stage[b] >= 0 ? p->stage[b] : none;
    for (int b = p->cost->n_blocks - 1; b >= 0; b--)
        for (int i = start[b]; i < start[b + 1]; i++) {
            int from = p->cost->edges[into[i]].from;

            soonest[from] = soonest[b] < soonest[from] ? soonest[b] : soonest[from];
        }
}

/* A block for a stage that has none: the last that may go there from those before. */
static void fill_stage(const struct pinning *p, int stage, const int *soonest, bool *stays,
                       int *key)
{
    const struct cost *cost = p->cost;

    for (int b = 0; b < cost->n_blocks; b++) {
        if (key[b] == stage)
            return;
        stays[b] = p->stage[b] >= 0 || key[b] > stage || soonest[b] < stage;
    }
    for (int e = 0; e < cost->n_edges; e++)
        stays[cost->edges[e].from] |= key[cost->edges[e].to] < stage;
    for (int b = cost->n_blocks - 1; b >= 0; b--)
        if (!stays[b]) {
            key[b] = stage;
            return;
        }
}

/* By stages: what is free goes behind what is pinned that it reads of, else with what is pinned
 * that reads it.
 */
static void fill_keys(const struct pinning *p, const int *start, const int *into,
                      const int *latest, int *key)
{
    const struct cost *cost = p->cost;
    int n = cost->n_blocks, stages = pins_least_stages(p->stage, n);
    int *soonest = mem_new((size_t)n, sizeof(*soonest));
    bool *stays = mem_new((size_t)n, sizeof(*stays));

    pull_up(p, start, into, stages, soonest);
    for (int b = 0; b < n; b++) {
        key[b] = latest[b] >= 0 ? p->stage[latest[b]] : soonest[b] < stages ? soonest[b] : 0;
        for (int i = start[b]; i < start[b + 1]; i++) {
            int from = key[cost->edges[into[i]].from];

            key[b] = from > key[b] ? from : key[b];
        }
    }
    for (int s = stages - 2; s >= 0; s--)
        fill_stage(p, s, soonest, stays, key);
    free(soonest);
    free(stays);
}

/* Stage by stage, within each as the cost file has them. */
static void sort_blocks(const int *key, int n, int *order)
{
    int *first = mem_new((size_t)n + 1, sizeof(*first));

    for (int b = 0; b < n; b++)
        first[key[b] + 1]++;
    for (int s = 1; s <= n; s++)
        first[s] += first[s - 1];
    for (int b = 0; b < n; b++)
        order[first[key[b]]++] = b;
    free(first);
}

static int find_order(const struct pinning *p, int *order, struct err *err)
{
    size_t n = (size_t)p->cost->n_blocks;
    int *latest = mem_new(n, sizeof(*latest)), *key = mem_new(n, sizeof(*key));
    int *start, *into, bad;

    cost_edges_into(p->cost, &start, &into);
    bad = push_down(p, start, into, latest, err);
    if (!bad) {
        fill_keys(p, start, into, latest, key);
        sort_blocks(key, p->cost->n_blocks, order);
    }
    free(start);
    free(into);
    free(latest);
    free(key);
    return bad;
}

int pins_reorder(const struct cost *cost, const struct plan_request *request,
                 struct cost **reordered, struct err *err)
{
    int *order = mem_new((size_t)cost->n_blocks, sizeof(*order));
    struct pinning p;
    int bad = pinning_init(&p, cost, request, err);

    *reordered = NULL;
    if (!bad && check_order(&p, request->stages, NULL)) {
        bad = find_order(&p, order, err);
        if (!bad)
            *reordered = cost_reordered(cost, order);
    }
    free(p.stage);
    free(p.by);
    free(order);
    return bad;
}

int *pins_resolve(const struct cost *cost, const struct plan_request *request, struct err *err)
{
    struct pinning p;
    int bad = pinning_init(&p, cost, request, err);

    if (!bad)
        bad = check_order(&p, request->stages, err);
    free(p.by);
    if (!bad)
        return p.stage;
    free(p.stage);
    return NULL;
}

int pins_least_stages(const int *pins, int n_blocks)
{
    int most = 0;

    for (int b = 0; b < n_blocks; b++)
        most = pins[b] > most ? pins[b] : most;
    return most + 1;
}

bool pins_hold(const int *pins, const struct candidate *c)
{
    if (!pins)
        return true;
    for (int s = 0; s < c->n_stages; s++)
        for (int i = c->cuts[s]; i < c->cuts[s + 1]; i++) {
            int pinned = pins[candidate_block(c, i)];

            if (pinned >= 0 && pinned != s)
                return false;
        }
    return true;
}

struct cut_range *pins_ranges(const int *pins, const struct table *table, int n_stages)
{
    struct cut_range *ranges = mem_new((size_t)n_stages + 1, sizeof(*ranges));
    bool possible = true;

    for (int k = 0; k <= n_stages; k++)
        ranges[k] = (struct cut_range){ k, table->n - (n_stages - k) };
    for (int b = 0; pins && b < table->cuts[table->n]; b++) {
        struct cut_range *front = &ranges[pins[b] < 0 ? 0 : pins[b]], *behind = front + 1;
        int last = table_cut(table, b + 1) - 1, first = table_cut(table, b + 1);

        possible &= pins[b] < n_stages;
        if (pins[b] < 0 || pins[b] >= n_stages)
            continue;
        front->to = last < front->to ? last : front->to;
        behind->from = first > behind->from ? first : behind->from;
    }
    for (int k = 1; k <= n_stages; k++)
        if (ranges[k].from <= ranges[k - 1].from)
            ranges[k].from = ranges[k - 1].from + 1;
    for (int k = n_stages - 1; k >= 0; k--)
        if (ranges[k].to >= ranges[k + 1].to)
            ranges[k].to = ranges[k + 1].to - 1;
    for (int k = 0; k <= n_stages; k++)
        possible &= ranges[k].from <= ranges[k].to;
    if (possible)
        return ranges;
    free(ranges);
    return NULL;
}

bool pins_allow(const int *pins, const struct table *table, int interval, int stage)
{
    for (int b = table->cuts[interval]; pins && b < table->cuts[interval + 1]; b++)
        if (pins[b] >= 0 && pins[b] != stage)
            return false;
    return true;
}
