/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

void places_init(struct places *places, const struct cluster *cluster)
{
    size_t n = (size_t)cluster->n_places;

    *places = (struct places){ cluster, mem_new(n, sizeof(int)), mem_new(n, sizeof(int)) };
    for (int p = 0; p < cluster->n_places; p++) {
        int q = 0;

        while (q < p && (cluster->places[q].parent != cluster->places[p].parent ||
                         !cluster_alike(cluster, q, p)))
            q++;
        places->like[p] = q;
    }
}

void places_clear(struct places *places)
{
    free(places->like);
    free(places->used);
}

/* Is there a free place before this one or one above it, that is as good? */
static bool has_twin(const struct places *w, int device)
{
    const struct cluster *cluster = w->cluster;

    for (int p = cluster->devices[device].place; p > 0; p = cluster->places[p].parent) {
        if (w->used[p])
            return false;
        for (int q = w->like[p]; q < p; q++)
            if (w->like[q] == w->like[p] && !w->used[q])
                return true;
    }
    return false;
}

bool places_offer(const struct places *places, int device)
{
    return !places->used[places->cluster->devices[device].place] && !has_twin(places, device);
}

void places_take(struct places *places, int device, int change)
{
    const struct cluster *cluster = places->cluster;

    for (int p = cluster->devices[device].place; p >= 0; p = cluster->places[p].parent)
        places->used[p] += change;
}
