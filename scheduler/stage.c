/* SPDX-License-Identifier: MIT */
#include "scheduler/stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/sums.h"

/* In bytes for a parameter of four: what "parameters" is counted in. */
#define PARAMETER_BYTES 4.0
/* Of a stage; and bytes of one. */
#define BUCKETS 4
#define LEAST_BUCKET (16 << 10)
#define MOST_BUCKET (4 << 20)

/* What crosses of the value of these edges, where it does: towards the stage, or from it. */
static void add_value(const struct cost *cost, const int *stage, int s, double samples,
                      const struct cost_edge *edges, int n, struct stage_cost *r)
{
    bool scales = cost->blocks[edges->from].batch_axis, sends = stage[edges->from] == s;
    bool crosses = false, reordered = false, kept = false;  /* does any backward there read it? */
    double bytes, back = 0;

    for (int i = 0; i < n; i++) {
        bool there = sends ? stage[edges[i].to] != s : stage[edges[i].to] == s;

        crosses |= there;
        kept |= (sends || there) && !edges[i].once;
        reordered |= there && edges[i].reordered;
        if (there && !sends)
            back = dmax(back, cost_at(cost, edges[i].gradient_bytes, scales, samples));
    }
    if (!crosses)
        return;
    bytes = cost_at(cost, edges->bytes, scales, samples);
    *(sends ? &r->sent : &r->values) += bytes;
    *(sends ? &r->left : &r->fed) += kept ? 0 : bytes;
    r->copies += reordered ? bytes : 0;
    r->copied += !sends && reordered ? bytes : 0;
    r->gradients += back;
}

/* Edges are sorted by value on load, so that the readers of one stand together. */
static void add_messages(const struct cost *cost, const int *stage, int s, double samples,
                         struct stage_cost *r)
{
    const struct cost_edge *edges = cost->edges;

    for (int i = 0, first, end; i < cost->n_edges; i = end) {
        end = i + 1;
        if (stage[edges[i].from] != s && stage[edges[i].to] != s)
            continue;
        for (first = i; first > 0 && cost_same_value(&edges[first - 1], &edges[i]); first--)
            ;
        while (end < cost->n_edges && cost_same_value(&edges[i], &edges[end]))
            end++;
        add_value(cost, stage, s, samples, &edges[first], end - first, r);
    }
}

/* What its last blocks make for later stages alone is kept no longer than it is sent. */
static void leave_out_passed_on(const struct cost *cost, const int *stage, int s, double samples,
                                struct stage_cost *r)
{
    double passed = 0;

    for (int i = 0, end; i < cost->n_edges; i = end) {
        const struct cost_edge *e = &cost->edges[i];
        bool leaves = e->passed_on && stage[e->from] == s;

        end = i + 1;
        if (!leaves)
            continue;
        leaves &= stage[e->to] != s;
        for (; end < cost->n_edges && cost_same_value(e, &cost->edges[end]); end++)
            leaves &= stage[cost->edges[end].to] != s;
        if (leaves)
            passed += cost_at(cost, e->bytes, cost->blocks[e->from].batch_axis, samples);
    }
    r->activations -= passed;
    r->dropped -= passed;
    r->workspace = dmax(r->workspace, passed);
    r->left += passed;
}

static bool reads(const int *blocks, int n, const int *stage, int s)
{
    for (int i = 0; i < n; i++)
        if (stage[blocks[i]] == s)
            return true;
    return false;
}

/* What a block has of one list of the cost file, or where that is not there. */
static double or_else(const struct cost_point *at, const struct cost_block *block,
                      const double *list, double without)
{
    return list ? cost_there(at, list, block->batch_axis) : without;
}

static void add_selective(const struct cost_point *at, const struct cost_block *block,
                          double *again, double *dropped)
{
    bool scales = block->batch_axis;

    if (!block->selective_dgrad)
        return;
    *again += cost_there(at, block->selective_dgrad, scales) -
              cost_there(at, block->dgrad, scales);
    *dropped += cost_there(at, block->activations, scales) -
                cost_there(at, block->selective_activations, scales);
}

void block_selective(const struct cost *cost, const struct cost_block *block, double samples,
                     double *again, double *dropped)
{
    struct cost_point at = cost_point(cost, samples);

    add_selective(&at, block, again, dropped);
}

static double made_again(const struct cost_point *at, const struct cost_block *block)
{
    double seconds = 0, dropped = 0;

    add_selective(at, block, &seconds, &dropped);
    return dmax(or_else(at, block, block->made_again, 0), dropped);
}

double block_made_again(const struct cost *cost, const struct cost_block *block, double samples)
{
    struct cost_point at = cost_point(cost, samples);

    return made_again(&at, block);
}

double block_kept(const struct cost *cost, const struct cost_block *block, double samples)
{
    bool scales = block->batch_axis;
    double passed = block->passed_on ? cost_at(cost, block->passed_on, scales, samples) : 0;

    return dmax(0, cost_at(cost, block->activations, scales, samples) - passed);
}

struct stage_cost stage_none(void)
{
    return (struct stage_cost){ .turn = -INFINITY, .behind = -INFINITY };
}

/* What is there while it runs: by itself, and with what the blocks up to it keep. */
static void add_peaks(const struct cost_point *at, const struct cost_block *b, double again,
                      struct stage_cost *r)
{
    double workspace = or_else(at, b, b->workspace, 0);
    double activations = cost_there(at, b->activations, b->batch_axis);

    r->peak = dmax(r->peak, r->activations + dmax(workspace, or_else(at, b, b->peak,
                                                                     workspace + activations)));
    r->peak_again = dmax(r->peak_again,
                         r->made_again + dmax(workspace, or_else(at, b, b->selective_peak,
                                                                 workspace + again)));
    r->workspace = dmax(r->workspace, workspace);
    r->ahead = dmax(r->ahead, or_else(at, b, b->workspace_forward, 0));
    r->kernels = dmax(r->kernels, or_else(at, b, b->kernels, 0));
}

/* The same where W is put off. */
static void add_delayed(const struct cost_point *at, const struct cost_block *b,
                        struct stage_cost *r)
{
    double workspace = or_else(at, b, b->workspace, 0);
    double activations = cost_there(at, b->activations, b->batch_axis);
    double held = or_else(at, b, b->gradients_for_wgrad, 0);
    /* What comes to its activations while its B runs; with what else is there then. */
    double turn = dmin(held, or_else(at, b, b->activations_delayed, INFINITY) - activations);
    double behind = b->peak_delayed
                        ? cost_there(at, b->peak_delayed, b->batch_axis) - activations
                        : workspace;

    if (b->gradients_for_wgrad && b->kept_for_wgrad)
        r->delayed += held + or_else(at, b, b->kept_for_wgrad, 0) - activations;
    r->held += held;
    r->rest = dmax(r->rest, or_else(at, b, b->workspace_delayed, dmax(0, workspace - held)));
    r->turn = dmax(r->turn, turn - r->delayed);
    r->behind = dmax(r->behind, behind - r->delayed);
}

void stage_add_block(const struct cost *cost, const struct cost_block *b, double samples,
                     struct stage_cost *r)
{
    struct cost_point at = cost_point(cost, samples);
    double again = made_again(&at, b);
    bool scales = b->batch_axis;

    add_peaks(&at, b, again, r);
    add_delayed(&at, b, r);
    r->forward += cost_there(&at, b->forward, scales);
    r->dgrad += cost_there(&at, b->dgrad, scales);
    r->wgrad += or_else(&at, b, b->wgrad, 0);
    r->activations += cost_there(&at, b->activations, scales);
    r->made_again += again;
    add_selective(&at, b, &r->again, &r->dropped);
    r->step += b->step;
    r->parameters += b->parameters;
    r->prepared += b->prepared;
}

/* What a block sends in another layout: copies that it has beside what is there while it runs. */
static double copies_out(const struct cost *cost, const int *stage, int block, double samples,
                         int *edge)
{
    bool scales = cost->blocks[block].batch_axis;
    const struct cost_edge *counted = NULL;
    double bytes = 0;

    for (; *edge < cost->n_edges && cost->edges[*edge].from <= block; ++*edge) {
        const struct cost_edge *e = &cost->edges[*edge];

        if (e->from < block || !e->reordered || stage[e->to] == stage[block] ||
            (counted && cost_same_value(counted, e)))
            continue;
        bytes += cost_at(cost, e->bytes, scales, samples);
        counted = e;
    }
    return bytes;
}

/* What comes in in another layout is there with the first block, what goes out with its own. */
static void add_border(const struct cost *cost, const int *stage, int s, double samples,
                       struct stage_cost *r)
{
    double before = 0, in = r->copied;
    int edge = 0;

    if (r->copies < 1) {
        r->copies = 0;
        return;
    }
    for (int i = 0; i < cost->n_blocks; i++) {
        struct stage_cost block = stage_none();
        double copies;

        if (stage[i] != s)
            continue;
        copies = copies_out(cost, stage, i, samples, &edge);
        stage_add_block(cost, &cost->blocks[i], samples, &block);
        r->border = dmax(r->border, block.workspace + in + copies);
        r->border_peak = dmax(r->border_peak, before + block.peak + in + copies);
        before += block.activations;
        in = 0;
    }
}

struct stage_seconds stage_seconds(const struct cost *cost, const int *stage, int s,
                                   double samples)
{
    struct cost_point at = cost_point(cost, samples);
    struct stage_seconds r = { 0 };
    double dropped = 0;

    for (int i = 0; i < cost->n_blocks; i++) {
        const struct cost_block *b = &cost->blocks[i];

        if (stage[i] != s)
            continue;
        r.forward += cost_there(&at, b->forward, b->batch_axis);
        r.dgrad += cost_there(&at, b->dgrad, b->batch_axis);
        r.wgrad += or_else(&at, b, b->wgrad, 0);
        r.step += b->step;
        add_selective(&at, b, &r.again, &dropped);
    }
    return r;
}

void stage_cost_get(const struct cost *cost, const int *stage, int s, double samples,
                    struct stage_cost *result)
{
    struct stage_cost r = stage_none();

    for (int i = 0; i < cost->n_blocks; i++)
        if (stage[i] == s)
            stage_add_block(cost, &cost->blocks[i], samples, &r);
    r.turn = dmax(r.turn, 0) + r.delayed;
    r.behind = dmax(r.behind, 0) + r.delayed;
    for (int i = 0; i < cost->n_shared; i++)
        if (reads(cost->shared[i].blocks, cost->shared[i].n_blocks, stage, s))
            r.parameters += cost->shared[i].bytes;
    add_messages(cost, stage, s, samples, &r);
    r.received = r.values - r.fed;
    add_border(cost, stage, s, samples, &r);
    for (int i = 0; i < cost->n_inputs; i++) {
        double bytes = cost_at(cost, cost->inputs[i].bytes, true, samples);

        if (!reads(cost->inputs[i].to, cost->inputs[i].n_to, stage, s))
            continue;
        *(cost->inputs[i].once ? &r.fed : &r.received) += bytes;
        r.copied += cost->inputs[i].reordered ? bytes : 0;
    }
    leave_out_passed_on(cost, stage, s, samples, &r);
    *result = r;
}

double stage_bucket_bytes(double gradients)
{
    return dmin(dmax(gradients / BUCKETS, LEAST_BUCKET), MOST_BUCKET);
}

double stage_gradient_bytes(const struct cost *cost, double parameters)
{
    return parameters * cost->gradient_bytes_per_parameter / PARAMETER_BYTES;
}

/* Activations and what goes with a block in one arena, where the backward frees them as it goes. */
static double one_arena(const struct stage_cost *s, enum backward_form form)
{
    double merged = dmax(dmax(s->peak, s->border_peak), s->activations + s->left);

    if (form == BACKWARD_MERGED)
        return merged;
    return dmax(merged, s->activations + dmax(s->behind, dmax(s->delayed, s->border)));
}

void stage_backward(struct stage_cost *stage, enum backward_form form,
                    enum plan_recompute recompute, int slots)
{
    double waiting = form == BACKWARD_SPLIT ? stage->held + stage->rest : 0;
    /* Where nothing is worth it, none is run again. */
    bool none = recompute == PLAN_RECOMPUTE_NONE ||
                (recompute == PLAN_RECOMPUTE_SELECTIVE && stage->made_again <= 0);
    double forward;

    stage->workspace = dmax(stage->workspace, stage->border);
    if (!none) {
        /* What it is run again from is kept. */
        stage->received += stage->fed;
        stage->fed = 0;
    }
    forward = dmax(stage->ahead, stage->left) + stage->fed + stage->copies;
    stage->fed = 0;
    if (form == BACKWARD_DELAYED) {
        stage->delayed = stage->turn;
        /* With what waits no less than where W comes at once. */
        stage->workspace = dmax(dmax(stage->rest + stage->copies, forward),
                                stage->workspace - dmax(0, stage->turn));
        return;
    }
    stage->workspace = dmax(dmax(stage->workspace, waiting), forward);
    if (recompute == PLAN_RECOMPUTE_FULL || (none && slots == 1)) {
        /* One arena takes no more than two. */
        stage->workspace = dmin(stage->activations + stage->workspace,
                                dmax(one_arena(stage, form), forward)) +
                           (recompute == PLAN_RECOMPUTE_FULL ? stage->copied : 0);
        stage->activations = stage->delayed = 0;
        return;
    }
    stage->delayed = 0;
    if (none)
        return;
    stage->workspace = form == BACKWARD_MERGED
                           ? dmax(stage->workspace,
                                  dmax(stage->peak_again, stage->made_again + stage->left) +
                                      stage->copies)
                           : stage->workspace + stage->made_again;
    stage->activations -= dmax(0, stage->dropped);
}

double stage_fixed(const struct cost *cost, double parameters, double prepared, int versions,
                   double state_bytes)
{
    return parameters * (versions + state_bytes / PARAMETER_BYTES) + versions * prepared +
           stage_gradient_bytes(cost, parameters);
}

double stage_memory(const struct cost *cost, const struct stage_cost *stage, int slots,
                    int versions, double state_bytes)
{
    return stage_fixed(cost, stage->parameters, stage->prepared, versions, state_bytes) +
           slots * (stage->activations + dmax(stage->delayed, 0) + stage->received) +
           stage->workspace + stage->kernels;
}

double stage_message_bytes(const struct stage_cost *stage, double buffers, int64_t micro_batches,
                           int slots)
{
    double all = buffers < (double)micro_batches ? buffers : (double)micro_batches;
    double own = slots < all ? slots : all;

    return all * (stage->values + stage->gradients + stage->sent) + own * stage->sent;
}

double stage_sum_bytes(double gradients, double buffers, int copies)
{
    if (buffers <= 0 || copies < 2 || gradients <= 0)
        return 0;
    return (double)(SUMS_AT_ONCE * sums_scratch((size_t)stage_bucket_bytes(gradients), copies));
}

double stage_state_bytes(const struct cost *cost, const char *optimizer, bool offload)
{
    if (offload)
        return 0;
    if (!optimizer)
        return cost->optimizer_bytes_per_parameter;
    if (strcmp(optimizer, "sgd") == 0)
        return 0;
    if (strcmp(optimizer, "momentum") == 0 || strcmp(optimizer, "nesterov") == 0 ||
        strcmp(optimizer, "lars") == 0)
        return PARAMETER_BYTES;
    return 2 * PARAMETER_BYTES;
}

/* An edge that crosses a cut, in the order of the list to be made. */
struct crossing {
    int from, to, edge;
};

static int by_stages(const void *a, const void *b)
{
    const struct crossing *x = a, *y = b;

    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return x->edge < y->edge ? -1 : x->edge > y->edge;
}

static bool larger(const struct cost *cost, const double *a, const double *b)
{
    return a[cost->n_sizes - 1] > b[cost->n_sizes - 1];
}

/* Values lie in the list's arrays one behind the other. */
static void add_crossing(struct traffic_list *list, const struct cost *cost,
                         const struct crossing *c)
{
    struct traffic *t = list->n ? &list->items[list->n - 1] : NULL;
    struct cost_edge *e = &cost->edges[c->edge];

    if (!t || t->from != c->from || t->to != c->to) {
        struct traffic *next = &list->items[list->n++];

        *next = (struct traffic){ c->from, c->to, 0, t ? t->values + t->n_values : list->values,
                                  t ? t->gradient_bytes + t->n_values : list->gradient_bytes };
        t = next;
    }
    if (t->n_values && cost_same_value(t->values[t->n_values - 1], e)) {
        if (larger(cost, e->gradient_bytes, t->gradient_bytes[t->n_values - 1]))
            t->gradient_bytes[t->n_values - 1] = e->gradient_bytes;
        return;
    }
    t->values[t->n_values] = e;
    t->gradient_bytes[t->n_values++] = e->gradient_bytes;
}

struct traffic_list *traffic_new(const struct cost *cost, const int *stage)
{
    struct traffic_list *list = mem_new(1, sizeof(*list));
    struct crossing *crossings = mem_new((size_t)cost->n_edges, sizeof(*crossings));
    size_t n = 0;

    for (int i = 0; i < cost->n_edges; i++) {
        int from = stage[cost->edges[i].from], to = stage[cost->edges[i].to];

        if (from != to)
            crossings[n++] = (struct crossing){ from, to, i };
    }
    qsort(crossings, n, sizeof(*crossings), by_stages);
    list->items = mem_new(n, sizeof(*list->items));
    list->values = mem_new(n, sizeof(*list->values));
    list->gradient_bytes = mem_new(n, sizeof(*list->gradient_bytes));
    for (size_t i = 0; i < n; i++)
        add_crossing(list, cost, &crossings[i]);
    free(crossings);
    return list;
}

void traffic_free(struct traffic_list *list)
{
    if (!list)
        return;
    free(list->items);
    free(list->values);
    free(list->gradient_bytes);
    free(list);
}

double traffic_bytes(const struct cost *cost, const struct traffic *t, double samples,
                     bool whole, bool gradient)
{
    double bytes = 0;

    for (int i = 0; i < t->n_values; i++) {
        bool scales = cost->blocks[t->values[i]->from].batch_axis;

        if (scales || whole)
            bytes += cost_at(cost, gradient ? t->gradient_bytes[i] : t->values[i]->bytes,
                             scales, samples);
    }
    return bytes;
}

double traffic_buffer_bytes(const struct cost *cost, const struct traffic_list *list, int s,
                            double samples, int64_t micro_batches, const int *slots)
{
    double received = dmin(cost->message_buffers, (double)micro_batches), bytes = 0;

    for (int i = 0; i < list->n; i++) {
        const struct traffic *t = &list->items[i];
        int far = t->to > t->from ? t->to - t->from : t->from - t->to;
        double sent = dmin(cost->message_buffers * far, slots[t->from < t->to ? t->from : t->to]);
        bool sends = t->from == s;

        if (!sends && t->to != s)
            continue;
        bytes += (sends ? sent : received) * traffic_bytes(cost, t, samples, true, false) +
                 (sends ? received : sent) * traffic_bytes(cost, t, samples, true, true);
    }
    return bytes;
}

void traffic_edges(const struct cost *cost, const struct traffic_list *list,
                   struct schedule_edge *edges)
{
    for (int i = 0; i < list->n; i++) {
        const struct traffic *t = &list->items[i];

        /* A value of no bytes says nothing about its gradient: it has one. */
        edges[i] = (struct schedule_edge){ t->from, t->to, false };
        for (int k = 0; k < t->n_values; k++)
            edges[i].gradient |= t->gradient_bytes[k][cost->n_sizes - 1] > 0 ||
                                 t->values[k]->bytes[cost->n_sizes - 1] <= 0;
    }
}

struct name {
    const char *text;
    int index;
};

struct names {
    const char *const *texts;
    int n;
    struct name *sorted;        /* where one was not found beside the last; else NULL */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static void sort_names(struct names *names)
{
    names->sorted = mem_new((size_t)names->n, sizeof(*names->sorted));
    for (int b = 0; b < names->n; b++)
        names->sorted[b] = (struct name){ names->texts[b], b };
    qsort(names->sorted, (size_t)names->n, sizeof(*names->sorted), by_name);
}

/* Mostly it is the next; -1: there is none. */
static int find_name(struct names *names, const char *text, int next)
{
    struct name wanted = { text, 0 };
    const struct name *found;

    if (next < names->n && strcmp(names->texts[next], text) == 0)
        return next;
    if (!names->sorted)
        sort_names(names);
    found = bsearch(&wanted, names->sorted, (size_t)names->n, sizeof(wanted), by_name);
    return found ? found->index : -1;
}

static int assign(const struct plan *plan, struct names *names, const char *where, int *stage,
                  struct err *err)
{
    int next = 0;

    for (int s = 0; s < plan->n_stages; s++) {
        for (int i = 0; i < plan->stages[s].n_blocks; i++) {
            const char *text = plan->stages[s].blocks[i].name;
            int found = find_name(names, text, next);

            if (found < 0)
                return err_set(err, "the plan's block \"%s\" is not in the %s", text, where);
            stage[found] = s;
            next = found + 1;
        }
    }
    return 0;
}

int *stage_by_name(const struct plan *plan, const char *const *names, int n, const char *where,
                   struct err *err)
{
    struct names all = { .texts = names, .n = n };
    int *stage = mem_new((size_t)n, sizeof(*stage)), bad;

    for (int b = 0; b < n; b++)
        stage[b] = -1;
    bad = assign(plan, &all, where, stage, err);
    for (int b = 0; b < n && !bad; b++)
        if (stage[b] < 0)
            bad = err_set(err, "the %s's block \"%s\" is not in the plan", where, names[b]);
    free(all.sorted);
    if (!bad)
        return stage;
    free(stage);
    return NULL;
}

int *stage_of_blocks(const struct plan *plan, const struct cost *cost, struct err *err)
{
    const char **names;
    int *stage;

    if (plan->stage_of) {
        stage = mem_new((size_t)cost->n_blocks, sizeof(*stage));
        return memcpy(stage, plan->stage_of, (size_t)cost->n_blocks * sizeof(*stage));
    }
    names = mem_new((size_t)cost->n_blocks, sizeof(*names));
    for (int b = 0; b < cost->n_blocks; b++)
        names[b] = cost->blocks[b].name;
    stage = stage_by_name(plan, names, cost->n_blocks, "cost file", err);
    free(names);
    for (int i = 0; i < cost->n_edges && stage; i++)
        if (stage[cost->edges[i].from] > stage[cost->edges[i].to]) {
            err_set(err, "the plan puts block \"%s\" before \"%s\", which it reads",
                    cost->blocks[cost->edges[i].to].name,
                    cost->blocks[cost->edges[i].from].name);
            free(stage);
            stage = NULL;
        }
    return stage;
}
