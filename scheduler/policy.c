/* SPDX-License-Identifier: MIT */
#include "scheduler/policy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/layers.h"
#include "scheduler/policy_private.h"

/* So many are simulated. */
#define MAX_FOUND 16
/* And of these beside what the search finds. */
#define MAX_SEEDS 4
/* Relative, of sums in another order. */
#define ROUNDING 1e-9

#define REFUSE(...) err_set_code(err, EXIT_USAGE, __VA_ARGS__)

/* A policy cuts between layers, where the network is nothing else, else between blocks. */
static int count_units(const struct cost *cost, const struct layers *layers)
{
    int n = layers_are_all(cost, layers) ? layers->n : cost->n_blocks;

    return n < MOST_CUTS ? n : MOST_CUTS;
}

static struct table *unit_table(const struct cost *cost, const struct layers *layers)
{
    bool by_layer = layers_are_all(cost, layers);
    int all = by_layer ? layers->n : cost->n_blocks, n = count_units(cost, layers);
    int cuts[MOST_CUTS + 1] = { 0 };

    for (int i = 1; i < n; i++) {
        int unit = (int)((int64_t)i * all / n);

        cuts[i] = by_layer ? layers->first + unit * layers->blocks : unit;
    }
    cuts[n] = cost->n_blocks;
    return table_at(cost, n, cuts);
}

/* equal, megatron ---------------------------------------------------------------------- */

static void add(struct search *s, struct candidate *c, enum schedule_kind kind)
{
    struct candidate **place;

    c->schedule = kind;
    if (!s->request->policy)
        search_choose_devices(s, c);
    set_schedule(s, c, kind);
    c->closed = partition_closed(s, c);
    if (isinf(c->closed)) {
        candidate_free(c);
        return;
    }
    place = mem_push((void **)&s->found, &s->n_found, sizeof(*s->found));
    *place = c;
}

/* Of the table's cuts the one before the stage, where all have as many parts. */
static int even_cut(const struct table *table, int stage, int stages)
{
    return (int)((int64_t)stage * table->n / stages);
}

/* What the closed form is no less than: without messages, and what memory makes it run again. */
static double least_closed(struct search *s, const struct candidate *c)
{
    double most = 0, sum = 0;

    for (int k = 0; k < c->n_stages && !s->mixed; k++) {
        const struct share_table *share =
            table_sums(s->table, candidate_share(c->micro_batch, c->replicas[k]));
        int i = even_cut(s->table, k, c->n_stages), j = even_cut(s->table, k + 1, c->n_stages);
        double own = s->slow * (share->forward[j] - share->forward[i] + share->dgrad[j] -
                                share->dgrad[i] + share->wgrad[j] - share->wgrad[i]);

        most = dmax(most, own);
        sum += closed_sums(s, c->micro_batches, c->n_stages - k) ? own : 0;
    }
    return closed_iteration(s, c->micro_batches, most, sum, 0) * (1 - ROUNDING);
}

/* Is it a seed that so many others are faster than? */
static bool is_no_seed(struct search *s, const struct candidate *c)
{
    double least;
    int faster = 0;

    if (s->request->policy || c->n_stages == 1)
        return false;
    least = least_closed(s, c);
    for (int i = 0; i < s->n_found && faster < MAX_SEEDS; i++)
        faster += s->found[i]->n_stages > 1 && s->found[i]->closed < least;
    return faster == MAX_SEEDS;
}

static void add_even(struct search *s, const struct split *split, int stages)
{
    const struct plan_request *q = s->request;
    int replicas = s->cluster->n_devices / stages;
    struct candidate shape = {
        .pipelines = 1, .n_stages = stages, .micro_batch = split->micro_batch,
        .micro_batches = split->micro_batches, .zero = s->zero,
        .cuts = mem_new((size_t)stages + 1, sizeof(int)),
        .replicas = mem_new((size_t)stages, sizeof(int)),
    };
    bool possible = true;

    for (int k = 0; k <= stages; k++)
        shape.cuts[k] = s->table->cuts[even_cut(s->table, k, stages)];
    for (int k = 0; k < stages; k++) {
        shape.replicas[k] = q->n_replicas ? q->replicas[k] : replicas;
        possible &= shares_allowed(q, split->micro_batch, shape.replicas[k]);
    }
    if (possible && !is_no_seed(s, &shape))
        add(s, candidate_copy(&shape),
            q->schedule ? (enum schedule_kind)schedule_find(q->schedule) : SCHEDULE_1F1B);
    free(shape.cuts);
    free(shape.replicas);
}

static void search_even(struct search *s, bool exactly)
{
    int pinned = s->request->stages;
    int most = s->table->n < s->cluster->n_devices ? s->table->n : s->cluster->n_devices;

    if (pinned > s->table->n)
        return;     /* some would have no block */
    /* Small micro-batches first: they are mostly faster, and nothing is asked of the others. */
    for (int i = s->n_splits - 1; i >= 0; i--)
        for (int stages = pinned ? pinned : 1; stages <= (pinned ? pinned : most); stages++)
            if (s->splits[i].pipelines == 1 && (!exactly || s->table->n % stages == 0))
                add_even(s, &s->splits[i], stages);
}

void policy_seed(struct search *s)
{
    struct candidate **found = s->found;
    int n = s->n_found, kept = 0;

    if (s->request->list)
        return;
    s->found = NULL;
    s->n_found = 0;
    search_even(s, false);
    search_sort_closed(s);
    found = mem_resize(found, (size_t)(n + s->n_found), sizeof(*found));
    for (int i = 0; i < s->n_found; i++) {
        bool wanted = s->found[i]->n_stages == 1 || kept < MAX_SEEDS;

        kept += wanted && s->found[i]->n_stages > 1;
        if (wanted)
            found[n++] = s->found[i];
        else
            candidate_free(s->found[i]);
    }
    free(s->found);
    s->found = found;
    s->n_found = n;
}

static void search_equal(struct search *s)
{
    search_even(s, false);
}

static void search_megatron(struct search *s)
{
    search_even(s, true);
}

/* gpipe, rannc ------------------------------------------------------------------------- */

static void search_gpipe(struct search *s)
{
    int most = s->table->n < s->cluster->n_devices ? s->table->n : s->cluster->n_devices;
    int stages = s->request->stages ? s->request->stages : most;

    for (int i = 0; i < s->n_splits; i++) {
        struct balance *balance;
        struct candidate *c;

        if (s->splits[i].pipelines > 1)
            continue;
        balance = balance_new(s, &s->splits[i], stages, 1, INFINITY);
        for (int k = 0; k < stages; k++)
            balance_extend(balance);
        c = balance_candidate(balance);
        if (c)
            add(s, c, SCHEDULE_GPIPE);
        balance_free(balance);
    }
}

static bool is_power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* The least number of stages, above 'from', that fits with any number of micro-batches. */
static void find_fewest(struct search *s, struct balance **balances, int n, int from, int most)
{
    int pinned = s->request->stages;

    for (int stages = 1; stages <= most && s->n_found == 0; stages++)
        for (int i = 0; i < n; i++) {
            struct candidate *c;

            balance_extend(balances[i]);
            if (pinned ? stages != pinned : stages <= from)
                continue;
            c = balance_candidate(balances[i]);
            if (c)
                add(s, c, SCHEDULE_GPIPE);
        }
}

/* Pipelines that have so many devices each. */
static void search_pipelines(struct search *s, int pipelines, int from, int devices)
{
    double bandwidth =
        s->cluster->n_devices > 1 ? cluster_link(s->cluster, 0, 1).bandwidth : INFINITY;
    struct balance **balances = NULL;
    int n = 0;

    for (int i = 0; i < s->n_splits; i++)
        if (s->splits[i].pipelines == pipelines && is_power_of_two(s->splits[i].micro_batches))
            *(struct balance **)mem_push((void **)&balances, &n, sizeof(*balances)) =
                balance_new(s, &s->splits[i], devices, devices, bandwidth);
    find_fewest(s, balances, n, from, devices < s->table->n ? devices : s->table->n);
    for (int i = 0; i < n; i++)
        balance_free(balances[i]);
    free(balances);
}

static void search_rannc(struct search *s)
{
    int nodes = cluster_nodes(s->cluster), before = 0;

    for (int n = 1; n <= nodes && s->n_found == 0 && before < s->table->n; n++) {
        int devices = search_devices(s, nodes / n);

        if (nodes % n)
            continue;
        search_pipelines(s, nodes / n, before, devices);
        before = devices;
    }
}

/* -------------------------------------------------------------------------------------- */

static int check_gpipe(const struct plan_request *q, struct err *err)
{
    for (int i = 0; i < q->n_replicas; i++)
        if (q->replicas[i] > 1)
            return REFUSE("--policy gpipe: a stage has one device: leave out --replicas, or say "
                          "--policy equal");
    return 0;
}

static int check_rannc(const struct plan_request *q, struct err *err)
{
    for (int i = 0; i < q->n_replicas; i++)
        if (!is_power_of_two(q->replicas[i]))
            return REFUSE("--policy rannc: --replicas %d: only powers of two", q->replicas[i]);
    if (q->micro_batches && !is_power_of_two(q->micro_batches))
        return REFUSE("--policy rannc: --micro-batches %lld: only powers of two",
                      (long long)q->micro_batches);
    return 0;
}

/* Is it layers, and nothing else but what is before and behind them? */
static int check_layers(const struct cost *cost, const struct layers *layers, struct err *err)
{
    const char *not = "--policy megatron: the network is no Transformer:";
    int after = layers_behind(cost, layers);

    if (layers->n < 2)
        return REFUSE("%s no layer of it is repeated; --policy equal takes any network", not);
    if (layers->first > layers->blocks)
        return REFUSE("%s %d blocks, \"%s\" to \"%s\", are before the first of %d equal layers, "
                      "which have %d; --policy equal takes any network", not, layers->first,
                      cost->blocks[0].name, cost->blocks[layers->first - 1].name, layers->n,
                      layers->blocks);
    if (after > layers->blocks)
        return REFUSE("%s %d blocks, \"%s\" to \"%s\", are behind the last of %d equal layers, "
                      "which have %d; --policy equal takes any network", not, after,
                      cost->blocks[cost->n_blocks - after].name,
                      cost->blocks[cost->n_blocks - 1].name, layers->n, layers->blocks);
    return 0;
}

static int check_megatron(const struct cost *cost, const struct plan_request *q,
                          const struct layers *layers, struct err *err)
{
    if (check_layers(cost, layers, err))
        return -1;
    for (int i = 1; i < q->n_replicas; i++)
        if (q->replicas[i] != q->replicas[0])
            return REFUSE("--policy megatron: every stage has as many replicas as any other, "
                          "--replicas says %d and %d", q->replicas[0], q->replicas[i]);
    if (q->stages && layers->n % q->stages)
        return REFUSE("--policy megatron: %d layers do not divide into %d stages", layers->n,
                      q->stages);
    return 0;
}

static const struct policy {
    const char *name;
    bool gpipe;             /* its pipelines are those of GPipe */
    void (*search)(struct search *search);
    int (*check)(const struct plan_request *request, struct err *err);
} policies[] = {
    { "rannc", true, search_rannc, check_rannc },
    { "gpipe", true, search_gpipe, check_gpipe },
    { "megatron", false, search_megatron, NULL },
    { "equal", false, search_equal, NULL },
};

static const struct policy *find(const char *name)
{
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
        if (strcmp(policies[i].name, name) == 0)
            return &policies[i];
    return NULL;
}

int policy_check(const struct cost *cost, const struct plan_request *q, struct err *err)
{
    const struct policy *policy = find(q->policy);
    struct layers layers = layers_find(cost);
    int units = count_units(cost, &layers);

    if (!policy)
        return REFUSE("--policy %s: expected " POLICY_NAMES, q->policy);
    if (policy->gpipe && q->schedule && strcmp(q->schedule, "gpipe") != 0)
        return REFUSE("--policy %s runs under --schedule gpipe, not %s", q->policy, q->schedule);
    if (q->exhaustive)
        return REFUSE("--policy %s and --exhaustive: leave one of them out", q->policy);
    if (q->n_pins || q->pipelines)
        return REFUSE("--policy %s and %s: leave one of them out", q->policy,
                      q->n_pins ? "--pin" : "--pipelines");
    if (policy->gpipe && q->list)
        return REFUSE("--policy %s runs under --schedule gpipe, not a list of instructions",
                      q->policy);
    if (q->stages > units)
        return REFUSE("--policy %s: --stages %d: the network has %d %s", q->policy, q->stages,
                      units, units < cost->n_blocks ? "layers" : "blocks");
    if (policy->check && policy->check(q, err))
        return -1;
    return strcmp(q->policy, "megatron") == 0 ? check_megatron(cost, q, &layers, err) : 0;
}

void policy_search(struct search *s)
{
    struct layers layers = layers_find(s->cost);

    table_free(s->table);
    s->table = unit_table(s->cost, &layers);
    find(s->request->policy)->search(s);
    search_sort_closed(s);
    while (s->n_found > MAX_FOUND)
        candidate_free(s->found[--s->n_found]);
}

int policy_explain_failure(struct search *s, struct err *err)
{
    const char *name = s->request->policy;

    search_reset(s);
    s->memory = INFINITY;
    policy_search(s);
    if (s->n_found) {
        err_set(err, "--policy %s: no plan of its kind fits into the memory of %d devices", name,
                s->cluster->n_devices);
        return hint_zero(s, err) || hint_pins(s, err)
                   ? -1 : err_hint(err, "more of them may do, or leave out --policy");
    }
    REFUSE("--policy %s: these pins leave no plan of its kind", name);
    return hint_pins(s, err) ? -1 : err_hint(err, "leave out --policy, or some of them");
}
