/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/layers.h"
#include "scheduler/partition_private.h"

/* Intervals of a share of which so many are asked for one by one are worth a table. */
#define MOST_ASKED 200

static double *new_array(size_t n)
{
    return mem_new(n, sizeof(double));
}

static double block_seconds(const struct cost_block *b)
{
    return b->forward[0] + b->dgrad[0] + (b->wgrad ? b->wgrad[0] : 0);
}

/* Bytes that cross before each block, a value counted once. */
static double *crossing_bytes(const struct cost *cost)
{
    double *bytes = new_array((size_t)cost->n_blocks + 1);

    for (int i = 0; i < cost->n_edges;) {
        const struct cost_edge *e = &cost->edges[i];
        int last = e->to;

        for (; i < cost->n_edges && cost_same_value(&cost->edges[i], e); i++)
            last = cost->edges[i].to > last ? cost->edges[i].to : last;
        bytes[e->from + 1] += e->bytes[0];
        if (last + 1 <= cost->n_blocks)
            bytes[last + 1] -= e->bytes[0];
    }
    for (int b = 1; b <= cost->n_blocks; b++)
        bytes[b] += bytes[b - 1];
    return bytes;
}

/* Too many blocks: of each window of equal work take the thinnest place. */
static void choose_cuts(struct table *table, int most)
{
    const struct cost *cost = table->cost;
    double *bytes = crossing_bytes(cost), all = 0, sum = 0;
    int window = 0, best = -1;

    for (int b = 0; b < cost->n_blocks; b++)
        all += block_seconds(&cost->blocks[b]);
    table->n = 0;
    for (int b = 1; b < cost->n_blocks; b++) {
        int w;

        sum += block_seconds(&cost->blocks[b - 1]);
        w = all > 0 ? (int)(sum / all * (most - 1))
                    : (int)((double)b / cost->n_blocks * (most - 1));
        if (w != window && best >= 0) {
            table->cuts[++table->n] = best;
            best = -1;
        }
        window = w;
        if (best < 0 || bytes[b] < bytes[best])
            best = b;
    }
    if (best >= 0)
        table->cuts[++table->n] = best;
    table->cuts[++table->n] = cost->n_blocks;
    free(bytes);
}

static void add_cut(struct table *table, int block)
{
    table->cuts[++table->n] = block;
}

/* How many of a layer's cuts are thinner than that before block 'at', which is first at 0. */
static int thickness_rank(const double *bytes, int blocks, int at)
{
    int rank = at > 0;

    for (int k = 1; k < blocks && at > 0; k++)
        rank += bytes[k] < bytes[at] || (bytes[k] <= bytes[at] && k < at);
    return rank;
}

/* 'room' cuts, the first of which is there: in front of each layer, or of as many as there can be,
 * and at the thinnest places within them.
 */
static void cut_within(struct table *table, const struct layers *layers, int room)
{
    double *bytes = crossing_bytes(table->cost);

    for (int i = 0; i < layers->n; i++) {
        int block = layers->first + i * layers->blocks;
        int cuts = (int)((i + 1) * (int64_t)room / layers->n - i * (int64_t)room / layers->n);

        for (int k = i == 0; k < layers->blocks; k++)
            if (thickness_rank(bytes + block, layers->blocks, k) < cuts)
                add_cut(table, block + k);
    }
    free(bytes);
}

/* Between layers, or where these are few between their blocks, too; and between all blocks
 * before and behind them.
 */
static bool cut_layers(struct table *table, int most)
{
    const struct cost *cost = table->cost;
    struct layers layers = layers_find(cost);
    int behind = layers_behind(cost, &layers), room = most - layers.first - behind;

    if (!layers_are_all(cost, &layers) || room < 1)
        return false;
    for (int b = 1; b <= layers.first; b++)
        add_cut(table, b);
    cut_within(table, &layers, room);
    for (int b = cost->n_blocks - behind; b <= cost->n_blocks; b++)
        add_cut(table, b);
    return true;
}

static void fill_cuts(struct table *table, int most)
{
    table->cuts[0] = 0;
    if (table->cost->n_blocks > most && cut_layers(table, most))
        return;
    if (table->cost->n_blocks > most) {
        choose_cuts(table, most);
        return;
    }
    table->n = table->cost->n_blocks;
    for (int i = 0; i <= table->n; i++)
        table->cuts[i] = i;
}

/* The interval between cuts that a block is in. */
static int *interval_of_blocks(const struct table *table)
{
    int *at = mem_new((size_t)table->cost->n_blocks, sizeof(*at));

    for (int i = 0; i < table->n; i++)
        for (int b = table->cuts[i]; b < table->cuts[i + 1]; b++)
            at[b] = i;
    return at;
}

/* A value as the intervals see it: who reads it, in ascending order, and what goes back. */
struct readers {
    int after;              /* its producer's interval; -1: there is none */
    int n;
    int where[MOST_CUTS];
    double back[MOST_CUTS];
};

static void add_reader(struct readers *r, int where, double back)
{
    if (r->n == 0 || r->where[r->n - 1] != where) {
        r->where[r->n] = where;
        r->back[r->n++] = 0;
    }
    if (back > r->back[r->n - 1])
        r->back[r->n - 1] = back;
}

/* An interval that starts behind the producer and has a reader takes 'amount', and gives back
 * the most of its readers.
 */
static void add_value(const struct readers *r, double amount, struct staircase *received,
                      struct staircase *gradient)
{
    int first = r->after + 1;

    for (int k = 0; k < r->n; k++) {
        double most = 0;

        if (r->where[k] < first)
            continue;
        staircase_add(received, first, r->where[k], r->where[k] + 1, amount);
        for (int l = k; gradient && l < r->n; l++) {
            if (r->back[l] > most)
                staircase_add(gradient, first, r->where[k], r->where[l] + 1,
                              r->back[l] - most);
            most = r->back[l] > most ? r->back[l] : most;
        }
        first = r->where[k] + 1;
    }
}

static void add_blocks(struct staircase *to, const int *blocks, int n, const int *where,
                       double bytes)
{
    struct readers r;

    r.after = -1;
    r.n = 0;
    for (int i = 0; i < n; i++)
        add_reader(&r, where[blocks[i]], 0);
    add_value(&r, bytes, to, NULL);
}

static int end_of_value(const struct cost *cost, int first)
{
    int end = first + 1;

    while (end < cost->n_edges && cost_same_value(&cost->edges[first], &cost->edges[end]))
        end++;
    return end;
}

enum which { ALL, KEPT, REORDERED };    /* whose backward reads it; in another layout */

static bool is_one(const struct cost_edge *e, enum which which)
{
    return which == ALL || (which == KEPT ? !e->once : e->reordered);
}

/* Of the value of an edge; 'end' is behind its last. */
static void find_readers(const struct cost *cost, int edge, const int *where, double samples,
                         enum which which, int *end, struct readers *r)
{
    bool scales = cost->blocks[cost->edges[edge].from].batch_axis;

    r->after = where[cost->edges[edge].from];
    r->n = 0;
    *end = end_of_value(cost, edge);
    for (int k = edge; k < *end; k++)
        if (is_one(&cost->edges[k], which))
            add_reader(r, where[cost->edges[k].to],
                   cost_at(cost, cost->edges[k].gradient_bytes, scales, samples));
}

/* What a stage with it before all its readers sends, or before any: [i, j) with i in front of the
 * producer, and j behind it and not behind 'end'. Rows are j here, and columns i from the end, see
 * sent_at().
 */
static void add_sent(const struct table *table, struct staircase *to, const struct readers *r,
                     int end, double bytes)
{
    staircase_add(to, r->after + 1, end, table->n - r->after, bytes);
}

static double sent_at(const struct table *table, const struct staircase *of, int i, int j)
{
    return staircase_at(of, j, table->n - i);
}

/* Copies in another layout of a value, where it is received, and where it is sent. */
static void add_copies(const struct table *table, const struct readers *r, double bytes,
                       struct share_table *s)
{
    int last = r->n > 0 ? r->where[r->n - 1] : -1;

    add_value(r, bytes, &s->copies_in, NULL);
    if (last <= r->after)
        return;
    add_sent(table, &s->copies_out, r, last, bytes);
    for (int j = r->after + 1; j <= last; j++)
        s->first_out[table_pair(table, r->after, j)] += bytes;
}

/* Of a value, what no backward of a stage reads: where it is received, and where it is sent. */
static void add_once(const struct table *table, const struct readers *r,
                     const struct readers *kept, double bytes, struct share_table *s)
{
    add_value(r, bytes, &s->once, NULL);
    add_value(kept, -bytes, &s->once, NULL);
    if (kept->n == 0 && r->n > 0 && r->where[r->n - 1] > r->after)
        add_sent(table, &s->left, r, r->where[r->n - 1], bytes);
}

static void add_edges(const struct table *table, const int *where, double samples,
                      struct share_table *s)
{
    const struct cost *cost = table->cost;

    for (int i = 0, end; i < cost->n_edges; i = end) {
        const struct cost_edge *e = &cost->edges[i];
        bool scales = cost->blocks[e->from].batch_axis, once = false, reordered = false;
        double bytes = cost_at(cost, e->bytes, scales, samples);
        struct readers r, kept;

        find_readers(cost, i, where, samples, ALL, &end, &r);
        add_value(&r, bytes, &s->received, &s->gradient);
        if (r.n > 0 && r.where[r.n - 1] > r.after)
            add_sent(table, &s->sent, &r, r.where[r.n - 1], bytes);
        if (e->passed_on && r.n > 0 && r.where[0] > r.after)
            add_sent(table, &s->passed, &r, r.where[0], bytes);
        for (int k = i; k < end && !once; k++)
            once = cost->edges[k].once;
        if (once) {
            find_readers(cost, i, where, samples, KEPT, &end, &kept);
            add_once(table, &r, &kept, bytes, s);
        }
        for (int k = i; k < end && !reordered; k++)
            reordered = cost->edges[k].reordered;
        if (reordered) {
            find_readers(cost, i, where, samples, REORDERED, &end, &r);
            add_copies(table, &r, bytes, s);
        }
    }
}

static void count_received(struct table *table, const int *where)
{
    const struct cost *cost = table->cost;

    for (int i = 0, end; i < cost->n_edges; i = end) {
        struct readers r;

        find_readers(cost, i, where, 1, ALL, &end, &r);
        add_value(&r, 1, &table->n_received, NULL);
    }
}

static void fill_next(struct table *table)
{
    table->next = mem_new((size_t)table->cost->n_blocks + 1, sizeof(*table->next));
    for (int block = 0, cut = 0; block <= table->cost->n_blocks; block++) {
        while (cut < table->n && table->cuts[cut] < block)
            cut++;
        table->next[block] = cut;
    }
}

static struct table *fill(struct table *table)
{
    const struct cost *cost = table->cost;
    int *where;

    table->users = 1;
    fill_next(table);
    table->step = new_array((size_t)table->n + 1);
    table->parameters = new_array((size_t)table->n + 1);
    table->prepared = new_array((size_t)table->n + 1);
    where = interval_of_blocks(table);
    for (int i = 0; i < table->n; i++) {
        table->step[i + 1] = table->step[i];
        table->parameters[i + 1] = table->parameters[i];
        table->prepared[i + 1] = table->prepared[i];
        for (int b = table->cuts[i]; b < table->cuts[i + 1]; b++) {
            table->step[i + 1] += cost->blocks[b].step;
            table->parameters[i + 1] += cost->blocks[b].parameters;
            table->prepared[i + 1] += cost->blocks[b].prepared;
        }
    }
    for (int i = 0; i < cost->n_shared; i++)
        add_blocks(&table->shared, cost->shared[i].blocks, cost->shared[i].n_blocks, where,
                   cost->shared[i].bytes);
    count_received(table, where);
    staircase_settle(&table->shared, table->n + 1);
    staircase_settle(&table->n_received, table->n + 1);
    free(where);
    return table;
}

/* With the same cuts for its others. */
static struct table *fill_all(struct table *table)
{
    const struct cost *cost = table->cost;

    table->n_others = cost->n_others;
    table->others = mem_new((size_t)cost->n_others, sizeof(*table->others));
    for (int i = 0; i < cost->n_others; i++)
        table->others[i] = table_at(cost->others[i], table->n, table->cuts);
    return fill(table);
}

struct table *table_new(const struct cost *cost, int most)
{
    struct table *table = mem_new(1, sizeof(*table));

    table->cost = cost;
    fill_cuts(table, most);
    return fill_all(table);
}

struct table *table_at(const struct cost *cost, int n, const int *cuts)
{
    struct table *table = mem_new(1, sizeof(*table));

    table->cost = cost;
    table->n = n;
    memcpy(table->cuts, cuts, ((size_t)n + 1) * sizeof(*cuts));
    return fill_all(table);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
/* All of them. */
#define SHARE_STAIRCASES(s)                                                                      \
    { &(s)->received, &(s)->gradient, &(s)->inputs, &(s)->fed, &(s)->once, &(s)->copies_in,      \
      &(s)->copied_inputs, &(s)->sent, &(s)->passed, &(s)->left, &(s)->copies_out }

static void free_share(struct share_table *s)
{
    struct staircase *const stairs[] = SHARE_STAIRCASES(s);

    for (size_t i = 0; i < COUNT(stairs); i++)
        staircase_free(stairs[i]);
    free(s->work);
    free(s->whole);
    free(s->forward);
    free(s->first_out);
    free(s->most);
    free(s);
}

struct table *table_use(struct table *table)
{
    table->users++;
    return table;
}

void table_free(struct table *table)
{
    if (!table || --table->users > 0)
        return;
    for (int i = 0; i < table->n_shares; i++)
        free_share(table->shares[i]);
    for (int i = 0; i < table->n_others; i++)
        table_free(table->others[i]);
    free(table->others);
    free(table->shares);
    free(table->kept);
    free(table->ideals);
    free(table->next);
    free(table->step);
    free(table->parameters);
    free(table->prepared);
    staircase_free(&table->shared);
    staircase_free(&table->n_received);
    free(table);
}

static struct part_most larger_of(const struct part_most *a, const struct part_most *b)
{
    return (struct part_most){ dmax(a->workspace, b->workspace), dmax(a->ahead, b->ahead),
                               dmax(a->rest, b->rest), dmax(a->turn, b->turn),
                               dmax(a->behind, b->behind), dmax(a->kernels, b->kernels),
                               dmax(a->peak, b->peak), dmax(a->peak_again, b->peak_again) };
}

/* Of 2, 4, ... parts, where that of each is known. */
static void fill_most(const struct table *table, struct part_most *most)
{
    for (int length = 1; 2 * length <= table->n; length *= 2, most += table->n)
        for (int i = 0; i + 2 * length <= table->n; i++)
            most[table->n + i] = larger_of(&most[i], &most[i + length]);
}

static int count_levels(int parts)
{
    int levels = 1;

    while (parts >> levels)
        levels++;
    return levels;
}

/* Two runs of parts that are as long as can be cover an interval. */
static struct part_most most_of(const struct table *table, const struct share_table *s, int i, int j)
{
    int level = count_levels(j - i) - 1;
    const struct part_most *most = s->most + (size_t)level * (size_t)table->n;

    return larger_of(&most[i], &most[j - (1 << level)]);
}

/* What is between two cuts. */
static struct stage_cost part_cost(const struct table *table, int i, int64_t samples)
{
    struct stage_cost part = stage_none();

    for (int k = table->cuts[i]; k < table->cuts[i + 1]; k++)
        stage_add_block(table->cost, &table->cost->blocks[k], (double)samples, &part);
    return part;
}

static void fill_sums(const struct table *table, struct share_table *s)
{
    for (int i = 0; i < table->n; i++) {
        struct stage_cost part = part_cost(table, i, s->samples);

        s->forward[i + 1] = s->forward[i] + part.forward;
        s->dgrad[i + 1] = s->dgrad[i] + part.dgrad;
        s->wgrad[i + 1] = s->wgrad[i] + part.wgrad;
        s->activations[i + 1] = s->activations[i] + part.activations;
        s->delayed[i + 1] = s->delayed[i] + part.delayed;
        s->held[i + 1] = s->held[i] + part.held;
        s->again[i + 1] = s->again[i] + part.again;
        s->dropped[i + 1] = s->dropped[i] + part.dropped;
        s->made_again[i + 1] = s->made_again[i] + part.made_again;
    }
}

static void fill_parts(const struct table *table, struct share_table *s)
{
    for (int i = 0; i < table->n; i++) {
        struct stage_cost part = part_cost(table, i, s->samples);

        s->most[i] = (struct part_most){ part.workspace, part.ahead, part.rest,
                                         part.turn - s->delayed[i],
                                         part.behind - s->delayed[i], part.kernels,
                                         part.peak + s->activations[i],
                                         part.peak_again + s->made_again[i] };
    }
    fill_most(table, s->most);
}

/* What is there at most while a part runs, with the copies of what it sends. */
static void fill_borders(const struct table *table, struct share_table *s)
{
    for (int i = table->n - 1; i >= 0; i--) {
        double kept = s->activations[i + 1] - s->activations[i];
        double workspace = s->most[i].workspace, peak = s->most[i].peak - s->activations[i];

        for (int j = i + 1; j <= table->n; j++) {
            size_t ij = table_pair(table, i, j), behind = table_pair(table, i + 1, j);
            double out = s->first_out[ij];

            s->border[ij] = dmax(workspace + out, j > i + 1 ? s->border[behind] : 0);
            s->border_peak[ij] = dmax(peak + out,
                                      j > i + 1 ? kept + s->border_peak[behind] : 0);
        }
    }
}

static void fill_edges(const struct table *table, struct share_table *s)
{
    const struct cost *cost = table->cost;
    int *where = interval_of_blocks(table);
    double n = (double)s->samples;

    add_edges(table, where, n, s);
    for (int i = 0; i < cost->n_inputs; i++) {
        const struct cost_input *input = &cost->inputs[i];
        double bytes = cost_at(cost, input->bytes, true, n);

        add_blocks(input->once ? &s->fed : &s->inputs, input->to, input->n_to, where, bytes);
        if (input->reordered)
            add_blocks(&s->copied_inputs, input->to, input->n_to, where, bytes);
    }
    if (s->border)
        fill_borders(table, s);
    free(where);
}

/* All lie in one piece, which the first is to be freed for. */
static void new_arrays(double **const arrays[], size_t n_arrays, size_t n)
{
    double *memory = mem_new_large(n_arrays * n, sizeof(*memory));

    for (size_t i = 0; i < n_arrays; i++)
        *arrays[i] = memory + i * n;
}

static void new_sums(const struct table *table, struct share_table *s)
{
    double **const sums[] = { &s->forward, &s->dgrad, &s->wgrad, &s->activations, &s->delayed,
                              &s->held, &s->again, &s->dropped, &s->made_again };

    new_arrays(sums, COUNT(sums), (size_t)table->n + 1);
}

static bool has_copies(const struct cost *cost)
{
    bool any = false;

    for (int i = 0; i < cost->n_edges; i++)
        any |= cost->edges[i].reordered;
    for (int i = 0; i < cost->n_inputs; i++)
        any |= cost->inputs[i].reordered;
    return any;
}

static void new_intervals(const struct table *table, struct share_table *s)
{
    double **const copies[] = { &s->first_out, &s->border, &s->border_peak };

    if (!table->ideals && has_copies(table->cost))
        new_arrays(copies, COUNT(copies), table_pairs(table));
    s->most = mem_new((size_t)count_levels(table->n) * (size_t)table->n, sizeof(*s->most));
}

static struct share_table *new_share(struct table *table, int64_t samples)
{
    struct share_table *s = mem_new(1, sizeof(*s));

    s->samples = samples;
    new_sums(table, s);
    if (!table->ideals)
        fill_sums(table, s);
    *(struct share_table **)mem_push((void **)&table->shares, &table->n_shares, sizeof(s)) = s;
    return s;
}

static struct share_table *find_share(struct table *table, int64_t samples)
{
    struct share_table **recent = &table->recent[samples % RECENT_SHARES];

    if (*recent && (*recent)->samples == samples)
        return *recent;
    for (int i = 0; i < table->n_shares; i++)
        if (table->shares[i]->samples == samples)
            return *recent = table->shares[i];
    return *recent = new_share(table, samples);
}

const struct share_table *table_sums(struct table *table, int64_t samples)
{
    return find_share(table, samples);
}

static const struct share_table *fill_share(const struct table *table, struct share_table *s)
{
    struct staircase *const stairs[] = SHARE_STAIRCASES(s);

    if (s->most)
        return s;
    new_intervals(table, s);
    if (table->ideals) {
        table_fill_ideals(table, s);
    } else {
        fill_parts(table, s);
        fill_edges(table, s);
    }
    for (size_t i = 0; i < COUNT(stairs); i++)
        staircase_settle(stairs[i], table->n + 1);
    return s;
}

const struct share_table *table_share(struct table *table, int64_t samples)
{
    return fill_share(table, find_share(table, samples));
}

const struct share_table *table_share_if_asked(struct table *table, int64_t samples)
{
    struct share_table *s = find_share(table, samples);

    return s->most || ++s->asked > MOST_ASKED ? fill_share(table, s) : NULL;
}

const double *table_work(struct table *table, int64_t samples)
{
    struct share_table *s = find_share(table, samples);

    if (!s->work)
        s->work = work_in_order(table->cost, NULL, samples);
    return s->work;
}

const struct chunking_sums *chunking_sum(struct table *table, int64_t samples)
{
    const struct cost *cost = table->cost;
    struct share_table *s = find_share(table, samples);
    double share = (double)samples;

    if (s->whole)
        return s->whole;
    s->whole = mem_new(1, sizeof(*s->whole));
    for (int i = 0; i < cost->n_blocks; i++) {
        const struct cost_block *b = &cost->blocks[i];
        double forward = cost_at(cost, b->forward, b->batch_axis, share);
        double wgrad = b->wgrad ? cost_at(cost, b->wgrad, b->batch_axis, share) : 0;

        s->whole->forward += forward;
        s->whole->wgrad += wgrad;
        s->whole->work += forward + cost_at(cost, b->dgrad, b->batch_axis, share) + wgrad;
        s->whole->activations += block_kept(cost, b, share);
    }
    return s->whole;
}

/* What comes in in another layout is there with the first of its parts, too; with the first block,
 * where that is not all of the part: then this is too much.
 */
static void set_border(const struct table *table, const struct share_table *s, int i, int j,
                       struct interval_cost *r)
{
    size_t ij = table_pair(table, i, j);
    double in, peak = s->most[i].peak - s->activations[i];

    r->border = r->border_peak = r->copies = r->copied = 0;
    if (!s->border)
        return;
    in = staircase_at(&s->copies_in, i, j);
    r->copied = in + staircase_at(&s->copied_inputs, i, j);
    r->copies = in + sent_at(table, &s->copies_out, i, j);
    if (r->copies <= 0)
        return;
    r->border = dmax(s->border[ij], s->most[i].workspace + in + s->first_out[ij]);
    r->border_peak = dmax(s->border_peak[ij], peak + in + s->first_out[ij]);
}

void table_interval(const struct table *table, const struct share_table *s, int i, int j,
                    struct interval_cost *r)
{
    struct part_most most = most_of(table, s, i, j);
    double passed = sent_at(table, &s->passed, i, j), once = staircase_at(&s->once, i, j);

    r->forward = s->forward[j] - s->forward[i];
    r->dgrad = s->dgrad[j] - s->dgrad[i];
    r->wgrad = s->wgrad[j] - s->wgrad[i];
    r->step = table->step[j] - table->step[i];
    r->parameters = table->parameters[j] - table->parameters[i] +
                    staircase_at(&table->shared, i, j);
    r->prepared = table->prepared[j] - table->prepared[i];
    r->received = staircase_at(&s->received, i, j);
    r->gradient = staircase_at(&s->gradient, i, j);
    r->sent = sent_at(table, &s->sent, i, j);
    r->activations = s->activations[j] - s->activations[i] - passed;
    r->delayed = s->delayed[j] - s->delayed[i];
    r->held = s->held[j] - s->held[i];
    r->rest = most.rest;
    r->turn = dmax(most.turn, -s->delayed[i]) + s->delayed[j];
    r->again = s->again[j] - s->again[i];
    r->dropped = s->dropped[j] - s->dropped[i] - passed;
    r->slot = r->activations + r->received + staircase_at(&s->inputs, i, j) - once;
    r->workspace = dmax(most.workspace, passed);
    r->fed = staircase_at(&s->fed, i, j) + once;
    r->left = passed + sent_at(table, &s->left, i, j);
    r->ahead = most.ahead;
    r->kernels = most.kernels;
    r->made_again = s->made_again[j] - s->made_again[i];
    r->peak = dmax(most.peak, s->activations[i]) - s->activations[i];
    r->peak_again = dmax(most.peak_again, s->made_again[i]) - s->made_again[i];
    r->behind = dmax(most.behind, -s->delayed[i]) + s->delayed[j];
    set_border(table, s, i, j, r);
}
