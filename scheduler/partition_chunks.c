/* SPDX-License-Identifier: MIT */
/* Schedules that give a device several stages, where one is asked for: stages as even as they get,
 * on every number of devices with every number of replicas, all of which are simulated.
 */
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/partition_private.h"

int request_chunks(const struct plan_request *r)
{
    if (!r->schedule || r->list || schedule_find(r->schedule) < 0)
        return 1;
    return schedule_chunks((enum schedule_kind)schedule_find(r->schedule),
                           r->chunks ? r->chunks : 2);
}

/* The slowest stage as fast as it gets. */
static void cut_evenly(struct search *s, int64_t samples, int stages, int *cuts)
{
    const struct share_table *share = table_share(s->table, samples);
    double *sum = mem_new((size_t)s->table->n + 1, sizeof(*sum));

    for (int i = 0; i < s->table->n; i++) {
        struct interval_cost own;

        table_interval(s->table, share, i, i + 1, &own);
        sum[i + 1] = sum[i] + own.forward + own.dgrad + own.wgrad;
    }
    even_cuts(sum, 0, s->table->n, stages, cuts);
    for (int k = 0; k <= stages; k++)
        cuts[k] = s->table->cuts[cuts[k]];
    free(sum);
}

static void add(struct search *s, const struct split *split, int lists, int replicas)
{
    int chunks = request_chunks(s->request), stages = lists * chunks;
    struct candidate c = {
        .pipelines = split->pipelines, .n_stages = stages, .micro_batch = split->micro_batch,
        .micro_batches = split->micro_batches, .chunks = chunks, .zero = s->zero,
        .schedule = (enum schedule_kind)schedule_find(s->request->schedule),
        .cuts = mem_new((size_t)stages + 1, sizeof(int)),
        .replicas = mem_new((size_t)stages, sizeof(int)),
    };

    for (int k = 0; k < stages; k++)
        c.replicas[k] = replicas;
    cut_evenly(s, candidate_share(c.micro_batch, replicas), stages, c.cuts);
    *(struct candidate **)mem_push((void **)&s->found, &s->n_found, sizeof(*s->found)) =
        candidate_copy(&c);
    free(c.cuts);
    free(c.replicas);
}

void search_chunks(struct search *s)
{
    const struct plan_request *r = s->request;
    int chunks = request_chunks(r);
    enum schedule_kind kind = (enum schedule_kind)schedule_find(r->schedule);

    s->few = true;      /* what the closed form says is of one stage for each device */
    for (int i = 0; i < s->n_splits; i++) {
        const struct split *split = &s->splits[i];
        int devices = search_devices(s, split->pipelines);

        for (int lists = 1; lists <= devices && lists * chunks <= s->table->n; lists++) {
            if ((r->stages && lists * chunks != r->stages) ||
                schedule_suits(kind, lists, split->micro_batches, NULL))
                continue;
            for (int n = 1; lists * n <= devices; n++)
                if (shares_allowed(r, split->micro_batch, n) &&
                    (!r->n_replicas || r->replicas[0] == n))
                    add(s, split, lists, n);
        }
    }
}

int check_chunks(const struct plan_request *r, struct err *err)
{
    int chunks = request_chunks(r);
    enum schedule_kind kind;

    if (r->chunks && (!r->schedule || schedule_find(r->schedule) != SCHEDULE_INTERLEAVED))
        return err_set_code(err, EXIT_USAGE, "--chunks is about --schedule interleaved alone");
    if (chunks == 1)
        return 0;
    kind = (enum schedule_kind)schedule_find(r->schedule);
    if (r->policy || r->exhaustive)
        return err_set_code(err, EXIT_USAGE, "--schedule %s and --%s: leave one of them out",
                            r->schedule, r->policy ? "policy" : "exhaustive");
    if (r->stages % chunks)
        return err_set_code(err, EXIT_USAGE, "--stages %d: --schedule %s has %d on each device",
                            r->stages, r->schedule, chunks);
    for (int i = 1; i < r->n_replicas; i++)
        if (r->replicas[i] != r->replicas[0])
            return err_set_code(err, EXIT_USAGE, "--replicas: --schedule %s has the same number "
                                "for all stages", r->schedule);
    if (r->stages && r->micro_batches &&
        schedule_suits(kind, r->stages / chunks, r->micro_batches, err)) {
        err->code = EXIT_USAGE;
        return -1;
    }
    return 0;
}
