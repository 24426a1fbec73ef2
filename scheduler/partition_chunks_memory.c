/* SPDX-License-Identifier: MIT */
/* Stages of one device share its memory: which of them run something again, so that all fit. */
#include <math.h>
#include <stdlib.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

/* A stage's bytes, and the seconds of what it runs again, by what that is. */
struct choice {
    double bytes[PLAN_RECOMPUTE_COUNT], seconds[PLAN_RECOMPUTE_COUNT];
};

struct device {
    double room;
    enum plan_recompute asked, most;
    int n;
    enum plan_recompute again[SCHEDULE_MAX_CHUNKS];
    struct choice choices[SCHEDULE_MAX_CHUNKS];
};

static double bytes_lacking(const struct device *d)
{
    double bytes = 0;

    for (int i = 0; i < d->n; i++)
        bytes += d->choices[i].bytes[d->again[i]];
    return bytes - d->room;
}

/* Where that frees bytes that are lacking, at the fewest seconds for each; false: nowhere. */
static bool run_more(struct device *d, double lacking)
{
    double least = INFINITY;
    enum plan_recompute to = d->most;
    int at = -1;

    for (int i = 0; i < d->n; i++)
        for (enum plan_recompute r = d->asked; r <= d->most; r++) {
            const struct choice *own = &d->choices[i];
            double freed = own->bytes[d->again[i]] - own->bytes[r];
            double seconds = own->seconds[r] - own->seconds[d->again[i]];

            if (freed <= 0 || seconds / dmin(freed, lacking) >= least)
                continue;
            least = seconds / dmin(freed, lacking);
            at = i;
            to = r;
        }
    if (at >= 0)
        d->again[at] = to;
    return at >= 0;
}

/* What came later may have freed enough: where there is room for it, the most seconds less. */
static bool run_less(struct device *d, double spare)
{
    double most = 0;
    enum plan_recompute to = d->asked;
    int at = -1;

    for (int i = 0; i < d->n; i++)
        for (enum plan_recompute r = d->asked; r < d->again[i]; r++) {
            const struct choice *own = &d->choices[i];
            double seconds = own->seconds[d->again[i]] - own->seconds[r];

            if (own->bytes[r] - own->bytes[d->again[i]] > spare || seconds <= most)
                continue;
            most = seconds;
            at = i;
            to = r;
        }
    if (at >= 0)
        d->again[at] = to;
    return at >= 0;
}

static bool device_fits(struct device *d)
{
    double lacking;

    while ((lacking = bytes_lacking(d)) > 0)
        if (!run_more(d, lacking))
            return false;
    while (run_less(d, -bytes_lacking(d)))
        ;
    return true;
}

static void add_stage(struct search *search, struct candidate *c, int s, struct device *d)
{
    struct choice *own = &d->choices[d->n];
    struct interval_cost cost;

    candidate_interval(search, c, s, candidate_share(c->micro_batch, c->replicas[s]), &cost);
    for (enum plan_recompute r = d->asked; r <= d->most; r++) {
        c->again[s] = r;
        own->bytes[r] = search_interval_bytes(search, c, s, &cost);
        own->seconds[r] = interval_again(&cost, r);
    }
    c->again[s] = d->asked;
    d->again[d->n++] = d->asked;
}

static double room_of(const struct search *search, const struct candidate *c, int l)
{
    return candidate_room(search, c, candidate_list_first(c, l)) - (c->more ? c->more[l] : 0);
}

static bool list_fits(struct search *search, struct candidate *c, int l, enum plan_recompute most)
{
    struct device d = { .room = room_of(search, c, l), .asked = c->again[l], .most = most };

    for (int s = l; s < c->n_stages; s++)
        if (candidate_list(c, s) == l)
            add_stage(search, c, s, &d);
    if (!device_fits(&d))
        return false;
    for (int s = l, i = 0; s < c->n_stages; s++)
        if (candidate_list(c, s) == l)
            c->again[s] = d.again[i++];
    return true;
}

bool chunks_fit(struct search *search, struct candidate *c, enum plan_recompute most)
{
    int lists = c->n_stages / c->chunks;
    double *used = mem_new((size_t)lists, sizeof(*used));
    bool fits = true;

    for (int s = 0; s < c->n_stages; s++)
        used[candidate_list(c, s)] += search_stage_bytes(search, c, s);
    for (int l = 0; l < lists && fits; l++)
        fits = used[l] <= room_of(search, c, l) || (!c->given && list_fits(search, c, l, most));
    free(used);
    return fits;
}
