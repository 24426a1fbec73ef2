/* SPDX-License-Identifier: MIT */
/* Where not all devices have as much memory, or are of one kind: which of them a stage gets. */
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

/* What is sorted: devices, by bytes or by how fast they are, or stages, by bytes. */
struct sized {
    int id;
    double bytes;
};

static int by_bytes(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;

    if (x->bytes < y->bytes || x->bytes > y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->id - y->id;
}

static int by_id(const void *a, const void *b)
{
    return ((const struct sized *)a)->id - ((const struct sized *)b)->id;
}

/* The largest first. */
static struct sized *sort_devices(const struct search *s)
{
    int n = s->cluster->n_devices;
    struct sized *devices = mem_new((size_t)n, sizeof(*devices));

    for (int d = 0; d < n; d++)
        devices[d] = (struct sized){ d, search_limit(s, d) };
    qsort(devices, (size_t)n, sizeof(*devices), by_bytes);
    return devices;
}

/* The fastest first. */
static struct sized *sort_kinds(const struct search *s)
{
    int n = s->cluster->n_devices;
    struct sized *devices = mem_new((size_t)n, sizeof(*devices));
    int64_t most = s->cost->micro_batch[s->cost->n_sizes - 1];

    for (int d = 0; d < n; d++)
        devices[d] = (struct sized){
            d, -table_work(table_kind(s->table, s->kind[d]), most)[s->cost->n_blocks] };
    qsort(devices, (size_t)n, sizeof(*devices), by_bytes);
    return devices;
}

static void fill_order(const struct search *s, int pipelines, enum device_order kind, int *order)
{
    int all = s->cluster->n_devices, n = search_devices(s, pipelines);
    struct sized *sorted = kind < DEVICES_FASTEST_FIRST ? sort_devices(s) : sort_kinds(s);

    for (int p = 0; p < pipelines; p++)
        for (int i = 0; i < n; i++) {
            int at = p * n + i, rank = i * pipelines + p;

            switch (kind) {
            case DEVICES_IN_ORDER: order[at] = at; break;
            case DEVICES_REVERSED: order[at] = all - 1 - at; break;
            case DEVICES_LARGEST_FIRST:
            case DEVICES_FASTEST_FIRST: order[at] = sorted[rank].id; break;
            default: order[at] = sorted[pipelines * n - 1 - rank].id; break;
            }
        }
    free(sorted);
}

bool search_same_devices(const struct search *s, int a, int b)
{
    return s->kind[a] == s->kind[b] && search_limit(s, a) >= search_limit(s, b) &&
           search_limit(s, a) <= search_limit(s, b);
}

/* Do stages find the same devices? */
static bool same_places(const struct search *s, const int *a, const int *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!search_same_devices(s, a[i], b[i]))
            return false;
    return true;
}

bool search_order_devices(struct search *s, int pipelines, enum device_order kind)
{
    int n = pipelines * search_devices(s, pipelines);
    int *other;

    free(s->order);
    s->order = NULL;
    if (kind == DEVICES_IN_ORDER || (s->uniform && !s->mixed) ||
        (!s->mixed && kind >= DEVICES_FASTEST_FIRST))
        return kind == DEVICES_IN_ORDER;
    s->order = mem_new((size_t)n, sizeof(*s->order));
    other = mem_new((size_t)n, sizeof(*other));
    fill_order(s, pipelines, kind, s->order);
    for (enum device_order k = DEVICES_IN_ORDER; k < kind && s->order; k++) {
        fill_order(s, pipelines, k, other);
        if (same_places(s, s->order, other, n)) {
            free(s->order);
            s->order = NULL;
        }
    }
    free(other);
    return s->order;
}

/* What each list wants at least, by its first stage. */
static struct sized *sort_lists(struct search *s, struct candidate *c, int lists)
{
    struct sized *sorted = mem_new((size_t)lists, sizeof(*sorted));

    for (int l = 0; l < lists; l++)
        sorted[l].id = candidate_list_first(c, l);
    for (int k = 0; k < c->n_stages; k++) {
        struct stage_bytes bytes;

        c->again[k] = recompute_asked(s->request);
        bytes = search_stage(s, c, k);
        sorted[candidate_list(c, k)].bytes += bytes.fixed + bytes.moving;
    }
    qsort(sorted, (size_t)lists, sizeof(*sorted), by_bytes);
    return sorted;
}

void search_choose_devices(struct search *s, struct candidate *c)
{
    int lists = candidate_lists(c), pipelines = candidate_pipelines(c);
    int each = candidate_devices(c), at = 0;
    struct sized *devices, *sorted;

    if (s->uniform || search_fits(s, c))
        return;
    devices = sort_devices(s);
    sorted = sort_lists(s, c, lists);
    c->devices = mem_resize(c->devices, (size_t)(pipelines * each), sizeof(*c->devices));
    for (int l = 0; l < lists; l++) {
        int first = candidate_first(c, sorted[l].id), r = c->replicas[sorted[l].id];

        /* Pipeline by pipeline, in the order of the cluster. */
        qsort(devices + at, (size_t)(pipelines * r), sizeof(*devices), by_id);
        for (int i = 0; i < pipelines * r; i++)
            c->devices[i / r * each + first + i % r] = devices[at++].id;
    }
    free(sorted);
    free(devices);
}
