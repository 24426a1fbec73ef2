/* SPDX-License-Identifier: MIT */
/* What partition_dp.c knows beforehand: which kinds of device are where, and what the blocks before a
 * cut take at least.
 */
#include <math.h>
#include <stdlib.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_dp.h"

void dp_fill_kinds(struct run *run)
{
    const struct search *s = run->search;
    size_t width = (size_t)run->devices + 1;

    if (!s->mixed)
        return;
    run->of_kind = mem_new((size_t)s->n_kinds * width, sizeof(*run->of_kind));
    for (int k = 0; k < s->n_kinds; k++)
        for (int d = 0; d < run->devices; d++) {
            int *row = run->of_kind + (size_t)k * width;

            row[d + 1] = row[d];
            for (int p = 0; p < run->pipelines; p++) {
                int at = p * run->devices + d;

                row[d + 1] += s->kind[s->order ? s->order[at] : at] == k;
            }
        }
}

/* Of the part behind a cut, on the kind of device that takes least. */
static double part_seconds(const struct run *run, const struct option *option, int i)
{
    double least = INFINITY;

    for (int k = 0; k < run->search->n_kinds; k++) {
        const struct share_table *s = option->kinds[k];

        if (!run->of_kind || dp_has_kind(run, k, 0, run->devices))
            least = dmin(least, s->forward[i + 1] - s->forward[i] + s->dgrad[i + 1] -
                                    s->dgrad[i] + s->wgrad[i + 1] - s->wgrad[i]);
    }
    return least;
}

/* Add a row: what it takes where this option may be chosen, too. */
static void add_row(const struct run *run, const struct option *option, struct least *each,
                    struct least *row)
{
    double slow = run->search->slow;

    row[0] = (struct least){ 0, 0, 0 };
    for (int i = 0; i < run->n; i++) {
        double all = part_seconds(run, option, i);

        each[i].path = dmin(each[i].path, all);
        each[i].work = dmin(each[i].work, all * option->replicas);
        row[i + 1].work = row[i].work + slow * each[i].work;
        row[i + 1].path = row[i].path + slow * each[i].path;
        row[i + 1].longest = dmax(row[i].longest, slow * each[i].path);
    }
}

/* What a device of the kind is worth, at most, in such as take least; 1: these take no time. */
static double speed_of(const struct run *run, int kind)
{
    double speed = 0;

    for (int o = 0; o < run->n_options; o++)
        for (int i = 0; i < run->n; i++) {
            const struct share_table *s = run->options[o].kinds[kind];
            double own = s->forward[i + 1] - s->forward[i] + s->dgrad[i + 1] - s->dgrad[i] +
                         s->wgrad[i + 1] - s->wgrad[i];

            if (own > 0)
                speed = dmax(speed, part_seconds(run, &run->options[o], i) / own);
        }
    return speed > 0 ? dmin(1, speed) : 1;
}

void dp_fill_speeds(struct run *run)
{
    const struct search *s = run->search;
    double speeds[COST_MOST_KINDS];

    if (!run->of_kind)
        return;
    run->speeds = mem_new((size_t)run->devices + 1, sizeof(*run->speeds));
    for (int k = 0; k < s->n_kinds; k++)
        speeds[k] = speed_of(run, k);
    for (int d = 0; d < run->devices; d++)
        run->speeds[d + 1] = INFINITY;
    for (int p = 0; p < run->pipelines; p++) {
        double sum = 0;

        for (int d = 0; d < run->devices; d++) {
            int at = p * run->devices + d;

            sum += speeds[s->kind[s->order ? s->order[at] : at]];
            run->speeds[d + 1] = dmin(run->speeds[d + 1], sum);
        }
    }
}

void dp_fill_bounds(struct run *run)
{
    size_t width = (size_t)run->n + 1;
    struct least *each = mem_new((size_t)run->n, sizeof(*each));
    const struct least *all;
    int rows = 0, o = 0, pinned = run->search->request->stages;

    if (run->n_options) {
        run->least_replicas = run->options[0].replicas;
        run->most_replicas = run->options[run->n_options - 1].replicas;
    }
    run->row = mem_new((size_t)run->devices + 1, sizeof(*run->row));
    run->least = mem_resize(NULL, ((size_t)run->n_options + 1) * width, sizeof(*run->least));
    run->least[0] = (struct least){ 0, 0, 0 };
    for (int i = 0; i < run->n; i++)
        each[i] = run->least[i + 1] = (struct least){ INFINITY, INFINITY, INFINITY };
    for (int d = 1; d <= run->devices; d++) {
        for (; o < run->n_options && run->options[o].replicas <= d; o++)
            if (o == 0 || run->options[o].share != run->options[o - 1].share)
                add_row(run, &run->options[o], each, run->least + (size_t)++rows * width);
        run->row[d] = rows;
    }
    all = dp_least_at(run, run->devices, run->n);
    run->level = dmax(all->longest,
                      all->work / dp_worth(run, dp_devices_for(run, pinned ? pinned : run->n,
                                                         run->devices), run->devices));
    free(each);
}
