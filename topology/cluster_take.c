/* SPDX-License-Identifier: MIT */
/* Which nodes of a described machine, where some are asked for. This runs before anything is
 * checked: what is malformed has no nodes, and is complained about when it is read.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/cluster_private.h"

#define MOST_NODES ((int64_t)1 << 40)

static int64_t count_of(const json_t *place)
{
    const json_t *names = json_object_get(place, "names");
    const json_t *count = json_object_get(place, "count");
    int64_t n = count ? json_integer_value(count) : 1;

    if (names)
        return (int64_t)json_array_size(names);
    return n < 0 || n > CLUSTER_MOST_DEVICES ? 0 : n;
}

static int64_t nodes_each(const json_t *place, int depth)
{
    const char *kind = json_string_value(json_object_get(place, "kind"));
    const json_t *child;
    int64_t sum = 0;
    size_t i;

    if (depth > CLUSTER_MOST_LEVELS || !kind)
        return 0;
    if (strcmp(kind, "node") == 0)
        return 1;
    json_array_foreach(json_object_get(place, "children"), i, child) {
        sum += count_of(child) * nodes_each(child, depth + 1);
        if (sum > MOST_NODES)
            return MOST_NODES;
    }
    return sum;
}

int64_t take_nodes_each(const json_t *place)
{
    return nodes_each(place, 0);
}

int64_t take_nodes(const json_t *place)
{
    return count_of(place) * nodes_each(place, 0);
}

static bool has_switches(const json_t *place)
{
    const json_t *first = json_array_get(json_object_get(place, "children"), 0);
    const char *kind = json_string_value(json_object_get(first, "kind"));

    return kind && strcmp(kind, "switch") == 0;
}

const json_t *take_growing(const json_t *root)
{
    const json_t *place = root, *children = json_object_get(root, "children");

    while (json_array_size(children) == 1 && count_of(json_array_get(children, 0)) == 1 &&
           has_switches(json_array_get(children, 0))) {
        place = json_array_get(children, 0);
        children = json_object_get(place, "children");
    }
    return place;
}

/* Of two sizes, the one to fill first: the least that is enough, else the greatest. */
static bool is_better(int64_t a, int64_t b, int64_t nodes)
{
    return a >= nodes ? b < nodes || a < b : b < nodes && a > b;
}

static int64_t best_size(size_t n, const int64_t *each, const int64_t *left, int64_t nodes)
{
    int64_t best = 0;

    for (size_t i = 0; i < n; i++)
        if (left[i] > 0 && each[i] > 0 && (best == 0 || is_better(each[i], best, nodes)))
            best = each[i];
    return best;
}

void take_shares(const json_t *children, int64_t nodes, int64_t *shares)
{
    size_t n = json_array_size(children);
    int64_t *each = mem_new(n, sizeof(*each)), *left = mem_new(n, sizeof(*left)), size;

    for (size_t i = 0; i < n; i++) {
        each[i] = take_nodes_each(json_array_get(children, i));
        left[i] = count_of(json_array_get(children, i));
        shares[i] = 0;
    }
    while (nodes > 0 && (size = best_size(n, each, left, nodes)) > 0)
        for (size_t i = 0; i < n && nodes > 0; i++) {
            int64_t k = nodes / size;

            if (each[i] != size || left[i] == 0)
                continue;
            k = k < left[i] ? k : left[i];
            left[i] -= k;
            shares[i] += k * size;
            nodes -= k * size;
            if (left[i] == 0 || nodes == 0 || nodes >= size)
                continue;
            shares[i] += nodes;     /* the last, in part */
            nodes = 0;
        }
    free(each);
    free(left);
}
