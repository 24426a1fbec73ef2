/* SPDX-License-Identifier: MIT */
#include "train/route.h"

#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/layout.h"

struct interval {
    int64_t first, end;
};

static struct interval share(const struct plan *plan, int stage, int replica)
{
    int r = plan->stages[stage].replicas;

    return (struct interval){ plan_share_start(plan->micro_batch, r, replica),
                              plan_share_start(plan->micro_batch, r, replica + 1) };
}

static struct interval overlap(struct interval a, struct interval b)
{
    return (struct interval){ a.first > b.first ? a.first : b.first,
                              a.end < b.end ? a.end : b.end };
}

/* The replica of 'from' that serves replica 'reader' of 'to' with what is not cut. */
static int provider(const struct plan *plan, int from, int to, int reader)
{
    struct interval mine = share(plan, to, reader);
    int i = 0;

    while (share(plan, from, i).end <= mine.first)
        i++;
    return i;
}

static size_t message_align(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

/* Append the part of a value that both replicas own, as it lies there. */
static void add_piece(struct route *route, const struct compiled *c, int value,
                      const struct value *like, struct interval mine, struct interval both)
{
    size_t bytes = c->program->values[value].layout.bytes;
    struct route_piece *piece = mem_push((void **)&route->pieces, &route->n, sizeof(*piece));

    piece->value = value;
    piece->at = route->bytes;
    piece->whole = like->batch.outer == 0;
    if (piece->whole) {
        piece->rows = 1;
        piece->width = piece->stride = bytes;
    } else {
        size_t inner = bytes / ((size_t)like->batch.outer * (size_t)(mine.end - mine.first));

        piece->rows = (size_t)like->batch.outer;
        piece->width = (size_t)(both.end - both.first) * inner;
        piece->stride = (size_t)(mine.end - mine.first) * inner;
        piece->offset = (size_t)(both.first - mine.first) * inner;
    }
    route->bytes += message_align(piece->rows * piece->width);
}

/* Is this boundary part of the route, and which value stands for it here? */
static int route_value(const struct route *route, int stage, const struct boundary *b)
{
    bool forward_sender = route->send != route->gradient;   /* this rank is the producer */
    int from = forward_sender ? stage : route->peer;
    int to = forward_sender ? route->peer : stage;

    if (b->from != from || b->to != to)
        return -1;
    if (!route->gradient)
        return b->value;
    return route->send ? b->gradient : b->gradient < 0 ? -1 : b->received;
}

static void fill_route(struct route *route, const struct plan *plan, int stage, int replica,
                       const struct compiled *c)
{
    struct interval mine = share(plan, stage, replica);
    struct interval both = overlap(mine, share(plan, route->peer, route->replica));
    bool producer = route->send != route->gradient;
    int serves = producer ? provider(plan, stage, route->peer, route->replica)
                          : provider(plan, route->peer, stage, replica);
    bool whole = serves == (producer ? replica : route->replica);

    if (both.first >= both.end)
        return;
    for (int i = 0; i < c->autodiff.n_boundaries; i++) {
        const struct boundary *b = &c->autodiff.boundaries[i];
        const struct value *like = &c->graph->values[b->value];
        int value = route_value(route, stage, b);

        if (value >= 0 && (like->batch.outer > 0 || whole))
            add_piece(route, c, value, like, mine, both);
    }
    route->bytes = layout_aligned(route->bytes);
}

static int in_flight(const struct plan *plan, const struct compiled *c, int peer, bool send)
{
    int ahead;

    if (send)
        return schedule_sends(c->schedule, c->stage, peer);
    ahead = schedule_ahead(c->schedule, c->stage);
    return ahead > 2 ? ahead : plan->micro_batches < 2 ? 1 : 2;
}

static void add_routes(struct routes *routes, const struct plan *plan, int stage, int replica,
                       const struct compiled *c, bool send, bool gradient)
{
    for (int peer = 0; peer < plan->n_stages; peer++) {
        for (int r = 0; r < plan->stages[peer].replicas; r++) {
            struct route route = { .peer = peer, .replica = r, .gradient = gradient,
                                   .send = send };

            fill_route(&route, plan, stage, replica, c);
            if (route.n == 0)
                continue;
            route.depth = in_flight(plan, c, peer, send);
            routes->bytes += (size_t)route.depth * route.bytes;
            *(struct route *)mem_push((void **)&routes->items, &routes->n, sizeof(route)) =
                route;
        }
    }
}

/* Whole gradients come from any number of readers: the first is copied, the others added. */
static void mark_sums(struct routes *routes, const struct compiled *c)
{
    bool *seen = mem_new((size_t)c->graph->n_values, sizeof(*seen));

    for (int i = 0; i < routes->n; i++) {
        struct route *route = &routes->items[i];

        for (int k = 0; !route->send && route->gradient && k < route->n; k++) {
            struct route_piece *piece = &route->pieces[k];

            if (piece->whole) {
                piece->add = seen[piece->value];
                seen[piece->value] = true;
            }
        }
    }
    for (int i = 0; i < c->autodiff.n_boundaries; i++) {
        const struct boundary *b = &c->autodiff.boundaries[i];

        if (b->from == c->stage && b->gradient >= 0 &&
            c->graph->values[b->value].batch.outer == 0 && !seen[b->received])
            *(int *)mem_push((void **)&routes->zero, &routes->n_zero, sizeof(int)) =
                b->received;
    }
    free(seen);
}

void routes_make(struct routes *routes, const struct plan *plan, int stage, int replica,
                 const struct compiled *compiled)
{
    *routes = (struct routes){ 0 };
    add_routes(routes, plan, stage, replica, compiled, false, false);
    add_routes(routes, plan, stage, replica, compiled, false, true);
    add_routes(routes, plan, stage, replica, compiled, true, false);
    add_routes(routes, plan, stage, replica, compiled, true, true);
    mark_sums(routes, compiled);
}

void routes_clear(struct routes *routes)
{
    for (int i = 0; i < routes->n; i++)
        free(routes->items[i].pieces);
    free(routes->items);
    free(routes->zero);
    *routes = (struct routes){ 0 };
}
