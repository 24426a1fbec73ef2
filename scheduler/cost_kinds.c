/* SPDX-License-Identifier: MIT */
/* Costs of one network on several kinds of device. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/cost.h"
#include "scheduler/cost_steps.h"

/* Of all blocks at so many samples. */
static double whole_seconds(const struct cost *cost, double samples)
{
    double seconds = 0;

    for (int b = 0; b < cost->n_blocks; b++) {
        const struct cost_block *block = &cost->blocks[b];

        seconds += cost_at(cost, block->forward, block->batch_axis, samples) +
                   cost_at(cost, block->dgrad, block->batch_axis, samples);
        if (block->wgrad)
            seconds += cost_at(cost, block->wgrad, block->batch_axis, samples);
    }
    return seconds;
}

static bool is_slower(const struct cost *a, const struct cost *b)
{
    double samples = (double)b->micro_batch[b->n_sizes - 1];

    return whole_seconds(a, samples) > whole_seconds(b, samples);
}

/* Networks ----------------------------------------------------------------------------- */

static int differ(const struct cost *a, const struct cost *b, const char *what, const char *name,
                  struct err *err)
{
    return err_set(err, "the costs for \"%s\" and for \"%s\" are not of one network: %s%s%s%s "
                   "of one is not in the other: make both of one model, in the same way",
                   a->device, b->device, what, *name ? " \"" : "", name, *name ? "\"" : "");
}

static bool same_ints(int n, const int *a, int m, const int *b)
{
    return n == m && (n == 0 || memcmp(a, b, (size_t)n * sizeof(*a)) == 0);
}

static int check_blocks(const struct cost *a, const struct cost *b, struct err *err)
{
    if (a->n_blocks != b->n_blocks)
        return err_set(err, "the costs for \"%s\" and for \"%s\" are not of one network: one has "
                       "%d blocks, the other %d: make both of one model, in the same way",
                       a->device, b->device, a->n_blocks, b->n_blocks);
    for (int i = 0; i < a->n_blocks; i++) {
        const struct cost_block *x = &a->blocks[i], *y = &b->blocks[i];

        if (strcmp(x->name, y->name) != 0 || x->batch_axis != y->batch_axis ||
            !x->selective_dgrad != !y->selective_dgrad || !x->wgrad != !y->wgrad)
            return differ(a, b, "block", x->name, err);
    }
    return 0;
}

static bool same_bytes(const struct cost *cost, const double *a, const double *b)
{
    return memcmp(a, b, (size_t)cost->n_sizes * sizeof(*a)) == 0;
}

static int check_edges(const struct cost *a, const struct cost *b, struct err *err)
{
    if (a->n_edges != b->n_edges)
        return differ(a, b, "an edge", "", err);
    for (int i = 0; i < a->n_edges; i++) {
        const struct cost_edge *x = &a->edges[i], *y = &b->edges[i];

        if (x->from != y->from || x->to != y->to || strcmp(x->value, y->value) != 0 ||
            x->passed_on != y->passed_on || x->once != y->once ||
            !same_bytes(a, x->bytes, y->bytes) ||
            !same_bytes(a, x->gradient_bytes, y->gradient_bytes))
            return differ(a, b, "the edge of", x->value, err);
    }
    return 0;
}

static int check_rest(const struct cost *a, const struct cost *b, struct err *err)
{
    if (a->n_inputs != b->n_inputs)
        return differ(a, b, "an input", "", err);
    if (a->n_shared != b->n_shared)
        return differ(a, b, "a shared parameter", "", err);
    for (int i = 0; i < a->n_inputs; i++)
        if (!same_ints(a->inputs[i].n_to, a->inputs[i].to, b->inputs[i].n_to, b->inputs[i].to))
            return differ(a, b, "input", a->inputs[i].name, err);
    for (int i = 0; i < a->n_shared; i++)
        if (!same_ints(a->shared[i].n_blocks, a->shared[i].blocks, b->shared[i].n_blocks,
                       b->shared[i].blocks))
            return differ(a, b, "shared parameter", a->shared[i].name, err);
    return 0;
}

static int check_network(const struct cost *a, const struct cost *b, struct err *err)
{
    if (strcmp(a->precision, b->precision) != 0)
        return err_set(err, "the costs for \"%s\" are in %s, those for \"%s\" in %s: make both in "
                       "the same precision", a->device, a->precision, b->device, b->precision);
    if (a->n_sizes != b->n_sizes ||
        memcmp(a->micro_batch, b->micro_batch,
               (size_t)a->n_sizes * sizeof(*a->micro_batch)) != 0)
        return err_set(err, "the costs for \"%s\" and for \"%s\" are of other \"micro_batch\" "
                       "sizes: make both with the same ones", a->device, b->device);
    return check_blocks(a, b, err) || check_edges(a, b, err) || check_rest(a, b, err) ? -1 : 0;
}

/* Bytes -------------------------------------------------------------------------------- */

/* What is not there stands for nothing, or for more than any list could say. */
enum left_out { NOTHING, MOST };

static const struct {
    size_t at;
    enum left_out left_out;
} byte_lists[] = {
    { offsetof(struct cost_block, activations), NOTHING },
    { offsetof(struct cost_block, kept_for_wgrad), MOST },
    { offsetof(struct cost_block, gradients_for_wgrad), NOTHING },
    { offsetof(struct cost_block, workspace), NOTHING },
    { offsetof(struct cost_block, workspace_forward), NOTHING },
    { offsetof(struct cost_block, workspace_delayed), MOST },
    { offsetof(struct cost_block, activations_delayed), MOST },
    { offsetof(struct cost_block, peak_delayed), MOST },
    { offsetof(struct cost_block, kernels), NOTHING },
    { offsetof(struct cost_block, peak), MOST },
    { offsetof(struct cost_block, selective_activations), NOTHING },
    { offsetof(struct cost_block, selective_peak), MOST },
    { offsetof(struct cost_block, made_again), NOTHING },
};

static void raise_list(double **to, const double *from, int n, enum left_out left_out)
{
    if (*to && !from && left_out == MOST) {
        free(*to);
        *to = NULL;
    }
    if (!*to && from && left_out == NOTHING)
        *to = mem_new((size_t)n, sizeof(**to));
    for (int i = 0; i < n && *to && from; i++)
        (*to)[i] = dmax((*to)[i], from[i]);
}

static void raise_block(struct cost_block *to, const struct cost_block *from, int n)
{
    for (size_t i = 0; i < sizeof(byte_lists) / sizeof(byte_lists[0]); i++)
        raise_list((double **)((char *)to + byte_lists[i].at),
                   *(double *const *)((const char *)from + byte_lists[i].at), n,
                   byte_lists[i].left_out);
    to->parameters = dmax(to->parameters, from->parameters);
    to->prepared = dmax(to->prepared, from->prepared);
}

/* What fits by these fits on either. Steps stay those of one kind, and say nothing of one that has
 * none.
 */
static void raise_bytes(struct cost *to, const struct cost *from)
{
    int n = to->n_sizes;

    if (!from->steps) {
        cost_steps_free(to->steps);
        to->steps = NULL;
    }
    for (int i = 0; i < to->n_blocks; i++)
        raise_block(&to->blocks[i], &from->blocks[i], n);
    for (int i = 0; i < to->n_edges; i++)
        to->edges[i].reordered |= from->edges[i].reordered;
    for (int i = 0; i < to->n_inputs; i++) {
        raise_list(&to->inputs[i].bytes, from->inputs[i].bytes, n, NOTHING);
        to->inputs[i].reordered |= from->inputs[i].reordered;
    }
    for (int i = 0; i < to->n_shared; i++)
        to->shared[i].bytes = dmax(to->shared[i].bytes, from->shared[i].bytes);
    to->optimizer_bytes_per_parameter = dmax(to->optimizer_bytes_per_parameter,
                                             from->optimizer_bytes_per_parameter);
    to->gradient_bytes_per_parameter = dmax(to->gradient_bytes_per_parameter,
                                            from->gradient_bytes_per_parameter);
    to->message_buffers = dmax(to->message_buffers, from->message_buffers);
    to->spread = dmax(to->spread, from->spread);
}

/* Kinds -------------------------------------------------------------------------------- */

static void add_other(struct cost *cost, struct cost *other)
{
    *(struct cost **)mem_push((void **)&cost->others, &cost->n_others, sizeof(other)) = other;
}

struct cost *cost_join(struct cost *a, struct cost *b, struct err *err)
{
    struct cost *slow = is_slower(b, a) ? b : a, *fast = slow == a ? b : a;
    int bad = check_network(a, b, err);

    if (!bad && a->n_others + b->n_others + 2 > COST_MOST_KINDS) {
        bad = err_set(err, "costs for more than %d kinds of device", COST_MOST_KINDS);
        err_hint(err, "give one that names no device for those that are alike");
    }
    if (bad) {
        cost_free(a);
        cost_free(b);
        return NULL;
    }
    raise_bytes(slow, fast);
    for (int i = 0; i < fast->n_others; i++)
        add_other(slow, fast->others[i]);
    fast->n_others = 0;
    add_other(slow, fast);
    return slow;
}

/* Of that kind, or of any; NULL: none is. */
static const struct cost *find_kind(const struct cost *cost, const char *kind)
{
    if (strcmp(cost->device, kind) == 0)
        return cost;
    for (int i = 0; i < cost->n_others; i++)
        if (strcmp(cost->others[i]->device, kind) == 0)
            return cost->others[i];
    return NULL;
}

const struct cost *cost_for(const struct cost *cost, const char *kind)
{
    const struct cost *found = cost->n_others ? find_kind(cost, kind) : cost;

    if (!found)
        found = find_kind(cost, "");
    return found ? found : cost;
}

bool cost_knows(const struct cost *cost, const char *kind)
{
    return find_kind(cost, kind) || find_kind(cost, "");
}

const struct cost *cost_common(const struct cost *cost, int n_kinds, const char *const *kinds)
{
    for (int k = 1; k < n_kinds; k++)
        if (cost_for(cost, kinds[k]) != cost_for(cost, kinds[0]))
            return cost;
    return n_kinds ? cost_for(cost, kinds[0]) : cost;
}

static void lower_list(double *to, const double *from, int n)
{
    for (int i = 0; i < n && to && from; i++)
        to[i] = dmin(to[i], from[i]);
}

static void lower_seconds(struct cost *to, const struct cost *from)
{
    for (int i = 0; i < to->n_blocks; i++) {
        struct cost_block *b = &to->blocks[i];
        const struct cost_block *other = &from->blocks[i];

        lower_list(b->forward, other->forward, to->n_sizes);
        lower_list(b->dgrad, other->dgrad, to->n_sizes);
        lower_list(b->wgrad, other->wgrad, to->n_sizes);
        lower_list(b->selective_dgrad, other->selective_dgrad, to->n_sizes);
        b->step = dmin(b->step, other->step);
    }
}

struct cost *cost_least(const struct cost *cost, int n_kinds, const char *const *kinds)
{
    json_t *json = cost_to_json(cost);
    struct cost *least = cost_from_json(cost->device, json, NULL);

    json_decref(json);
    for (int k = 0; k < n_kinds; k++)
        lower_seconds(least, cost_for(cost, kinds[k]));
    return least;
}

/* Files -------------------------------------------------------------------------------- */

static void free_all(struct cost **costs, int n)
{
    for (int i = 0; i < n; i++)
        cost_free(costs[i]);
    free(costs);
}

static struct cost **load_all(int n, const char *const *paths, struct err *err)
{
    struct cost **costs = mem_new((size_t)n, sizeof(*costs));

    for (int i = 0; i < n; i++) {
        costs[i] = cost_load(paths[i], err);
        if (!costs[i]) {
            free_all(costs, n);
            return NULL;
        }
    }
    return costs;
}

/* The first for the kind, -1: none. */
static int first_of(struct cost *const *costs, int n, const char *kind)
{
    for (int i = 0; i < n; i++)
        if (strcmp(costs[i]->device, kind) == 0)
            return i;
    return -1;
}

/* Which files the kinds want: those for them; for the others one for any. Fails where there is
 * none, though there is for others.
 */
static int choose(struct cost *const *costs, int n, int n_kinds, const char *const *kinds,
                  bool *wanted, struct err *err)
{
    const char *missing = NULL;
    bool any = false;

    for (int k = 0; k < n_kinds; k++) {
        int own = first_of(costs, n, kinds[k]), stands = own < 0 ? first_of(costs, n, "") : own;

        any |= own >= 0;
        if (stands >= 0)
            wanted[stands] = true;
        else if (!missing)
            missing = kinds[k];
    }
    if (any && missing)
        return err_set_code(err, EXIT_USAGE, "no --cost is for devices of kind \"%s\", which the "
                            "cluster has too: give another one, made for these", missing);
    for (int i = 0; !any && i < n; i++)
        wanted[i] = i == 0;
    return 0;
}

struct cost *cost_choose(int n, const char *const *paths, int n_kinds, const char *const *kinds,
                         struct err *err)
{
    struct cost **costs = load_all(n, paths, err), *joined = NULL;
    bool *wanted, bad;

    if (!costs)
        return NULL;
    wanted = mem_new((size_t)n, sizeof(*wanted));
    bad = choose(costs, n, n_kinds, kinds, wanted, err);
    for (int i = 0; i < n && !bad; i++)
        if (wanted[i]) {
            joined = joined ? cost_join(joined, costs[i], err) : costs[i];
            costs[i] = NULL;
            bad = !joined;
        }
    free(wanted);
    free_all(costs, n);
    return joined;
}
