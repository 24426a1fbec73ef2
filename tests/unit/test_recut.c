/* SPDX-License-Identifier: MIT */
/* The cuts of search_recut(), beside all there are. */
#include "planning.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "scheduler/memory.h"
#include "scheduler/partition_private.h"

#define BLOCKS 18
#define STAGES 8
#define COUNT 10        /* micro-batches */
#define CLOSE 1e-9
/* By so much its limits fall from one to the next. */
#define STEP 0.98

struct scene {
    struct cost *cost;
    struct cluster *cluster;
    struct plan_request request;
    struct search *search;
};

static int as_estimated(void *user, const struct plan *plan, int stage, struct memory_use *use,
                        struct err *err)
{
    (void)user;
    (void)err;
    use->total = (size_t)plan->stages[stage].memory;
    return 0;
}

static void open_scene(struct scene *s, unsigned seed, const char *spec)
{
    *s = (struct scene){ .cost = even_cost(BLOCKS, 1, 1000), .cluster = open_cluster(spec),
                         .request = { .global_batch = COUNT, .schedule = "1f1b",
                                      .memory_of = as_estimated } };
    for (int i = 0; i < BLOCKS; i++) {
        s->cost->blocks[i].forward[0] = random_in(&seed, 0.2, 2);
        s->cost->blocks[i].dgrad[0] = random_in(&seed, 0.2, 2);
        s->cost->blocks[i].wgrad[0] = random_in(&seed, 0, 2);
    }
    s->search = search_new(s->cost, s->cluster, &s->request);
}

static void close_scene(struct scene *s)
{
    search_free(s->search);
    cluster_free(s->cluster);
    cost_free(s->cost);
}

static struct candidate *candidate_of(const int *cuts)
{
    struct candidate *c = mem_new(1, sizeof(*c));

    *c = (struct candidate){ .n_stages = STAGES, .micro_batch = 1, .micro_batches = COUNT,
                             .cuts = mem_new(STAGES + 1, sizeof(int)), .schedule = SCHEDULE_1F1B,
                             .replicas = mem_new(STAGES, sizeof(int)) };
    for (int k = 0; k < STAGES; k++)
        c->replicas[k] = 1;
    memcpy(c->cuts, cuts, (STAGES + 1) * sizeof(int));
    return c;
}

/* What an iteration takes at least: one micro-batch's way there and back, and what any stage has to
 * compute beside it. INFINITY: it does not fit.
 */
static double least_seconds(const struct scene *s, struct candidate *c)
{
    double path = 0, most = 0;

    if (isinf(partition_closed(s->search, c)))
        return INFINITY;
    for (int k = 0; k < STAGES; k++) {
        double f = 0, d = 0, w = 0;

        for (int i = c->cuts[k]; i < c->cuts[k + 1]; i++) {
            f += s->cost->blocks[i].forward[0];
            d += s->cost->blocks[i].dgrad[0];
            w += s->cost->blocks[i].wgrad[0];
        }
        if (c->again[k] == PLAN_RECOMPUTE_FULL)
            d += f;
        path += f + d;
        most = fmax(most, (COUNT - 1 - (STAGES - 1 - k)) * f + (COUNT - 1) * (d + w));
    }
    return path + most;
}

/* Of all ways to cut. */
static double least_of_all(const struct scene *s, int *cuts, int k)
{
    double least = INFINITY;

    if (k == STAGES) {
        struct candidate *c = candidate_of(cuts);

        least = least_seconds(s, c);
        candidate_free(c);
        return least;
    }
    for (cuts[k] = cuts[k - 1] + 1; cuts[k] <= BLOCKS - (STAGES - k); cuts[k]++)
        least = fmin(least, least_of_all(s, cuts, k + 1));
    return least;
}

static void of_all_ways_to_cut_none_is_better(void **state)
{
    static const char *const specs[] = { "flat:8,bandwidth=1e30,latency=0,memory=1e30",
                                         "flat:8,bandwidth=1e30,latency=0,memory=7500" };
    int even[STAGES + 1], cuts[STAGES + 1] = { [STAGES] = BLOCKS }, n_again = 0;

    (void)state;
    for (int k = 0; k <= STAGES; k++)
        even[k] = k * BLOCKS / STAGES;
    for (unsigned seed = 1; seed <= 12; seed++) {
        struct candidate *best;
        struct scene s;
        double before, least;

        open_scene(&s, seed, specs[seed % 2]);
        search_add(s.search, candidate_of(even));
        assert_int_equal(search_evaluate(s.search, s.search->found[0], true, NULL), 0);
        before = s.search->found[0]->seconds;
        assert_int_equal(search_recut(s.search, NULL), 0);
        best = s.search->found[0];
        least = least_of_all(&s, cuts, 1);
        if (best->seconds > before || best->seconds < least * (1 - CLOSE) ||
            least_seconds(&s, best) > least / STEP)
            fail_msg("seed %u: %.9g s, %.9g by the form; %.9g with even cuts, %.9g at least", seed,
                     best->seconds, least_seconds(&s, best), before, least);
        for (int k = 0; k < STAGES; k++)
            n_again += best->again[k] != PLAN_RECOMPUTE_NONE;
        close_scene(&s);
    }
    assert_true(n_again > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_all_ways_to_cut_none_is_better),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
