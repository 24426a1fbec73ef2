/* SPDX-License-Identifier: MIT */
#include "scheduler/stage_arrays.h"

#include <stdlib.h>
#include <string.h>

#include "base/extreme.h"
#include "base/mem.h"
#include "graph/dtype.h"
#include "scheduler/layout.h"
#include "scheduler/sums.h"

#define MESSAGE_ALIGNMENT 8     /* of each value in one */
#define MOST_BYTES 0x1p43       /* of a message, or a parameter: what no device has */

static size_t whole(double bytes)
{
    return (size_t)dmin(bytes, MOST_BYTES);
}

static double aligned(double bytes)
{
    return (double)layout_aligned(whole(bytes));
}

/* Parameters ---------------------------------------------------------------------------- */

enum { OWN = -1 };

/* A parameter of the stage, or statistics. */
struct range {
    bool statistics;
    int block;              /* the first here that reads it */
    int shared;             /* of the file, where other stages read it, too; else OWN */
    int index;
    double offset, bytes;
};

struct ranges {
    const struct cost *cost;
    const struct plan *plan;
    const int *stage;
    int s, n;
    struct range *items;
};

static void add_range(struct ranges *r, bool statistics, int block, int shared, double bytes)
{
    struct range *new;

    if (bytes <= 0)
        return;
    new = mem_push((void **)&r->items, &r->n, sizeof(*new));
    *new = (struct range){ statistics, block, shared, r->n, 0, bytes };
}

/* Its tensors, or where these are not known what they are together. */
static void add_block(struct ranges *r, int block)
{
    const struct cost_block *b = &r->cost->blocks[block];
    double trained = b->parameters - b->statistics, all = 0;

    for (int i = 0; i < b->n_tensors; i++) {
        add_range(r, all + b->tensors[i] / 2 > trained, block, OWN, b->tensors[i]);
        all += b->tensors[i];
    }
    if (b->n_tensors == 0) {
        add_range(r, false, block, OWN, trained);
        add_range(r, true, block, OWN, b->statistics);
    }
}

/* How many blocks of the stage read it, and the first of them. */
static int readers_here(const struct ranges *r, const struct cost_shared *shared, int *first)
{
    int n = 0;

    for (int i = shared->n_blocks - 1; i >= 0; i--)
        if (r->stage[shared->blocks[i]] == r->s) {
            *first = shared->blocks[i];
            n++;
        }
    return n;
}

/* As gradients become final, from the last block to the first; then statistics. */
static int by_place(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    if (x->statistics != y->statistics)
        return x->statistics ? 1 : -1;
    if (x->block != y->block)
        return (x->block > y->block) == x->statistics ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void find_ranges(struct ranges *r, struct stage_arrays *result)
{
    double end = 0;
    int first = 0;

    for (int b = 0; b < r->cost->n_blocks; b++)
        if (r->stage[b] == r->s)
            add_block(r, b);
    for (int k = 0; k < r->cost->n_shared; k++) {
        const struct cost_shared *shared = &r->cost->shared[k];
        int n = readers_here(r, shared, &first);

        if (n > 0)
            add_range(r, false, first, n < shared->n_blocks ? k : OWN, shared->bytes);
    }
    if (r->n > 0)
        qsort(r->items, (size_t)r->n, sizeof(*r->items), by_place);
    for (int i = 0; i < r->n; i++) {
        r->items[i].offset = end;
        end += aligned(r->items[i].bytes);
        result->statistics += r->items[i].statistics ? aligned(r->items[i].bytes) : 0;
    }
    result->parameters = end;
}

/* What blocks_cost.c adds to what is prepared: for each block that reads it. */
static double aligning_of(const struct ranges *r)
{
    const struct cost *cost = r->cost;
    double bytes = 0;
    int first;

    for (int b = 0; b < cost->n_blocks; b++)
        for (int i = 0; r->stage[b] == r->s && i < cost->blocks[b].n_tensors; i++)
            bytes += aligned(cost->blocks[b].tensors[i]) - cost->blocks[b].tensors[i];
    for (int k = 0; k < cost->n_shared; k++)
        bytes += readers_here(r, &cost->shared[k], &first) *
                 (aligned(cost->shared[k].bytes) - cost->shared[k].bytes);
    return COST_ALIGNED_ARRAYS * bytes;
}

/* Sums and slices ----------------------------------------------------------------------- */

/* Is there a stage in front of 's' that reads it and that the same ranks run? */
static bool has_earlier(const struct ranges *r, const bool *in, int s)
{
    for (int k = 0; k < s; k++)
        if (in[k] && plan_list(r->plan, k) == plan_list(r->plan, s))
            return true;
    return false;
}

/* Ranks that sum its gradient; 'earlier': this stage's do so for a stage in front of it. */
static int members_of(const struct ranges *r, int shared, bool *earlier)
{
    const struct cost_shared *of = shared == OWN ? NULL : &r->cost->shared[shared];
    bool *in = mem_new((size_t)r->plan->n_stages, sizeof(*in));
    int n = 0;

    in[r->s] = true;
    for (int i = 0; of && i < of->n_blocks; i++)
        in[r->stage[of->blocks[i]]] = true;
    for (int s = 0; s < r->plan->n_stages; s++)
        if (in[s] && !has_earlier(r, in, s))
            n += r->plan->pipelines * r->plan->stages[s].replicas;
    *earlier = has_earlier(r, in, r->s);
    free(in);
    return n;
}

static double scratch_of(const struct ranges *r, int shared, double bytes, int at_once)
{
    bool earlier;
    int n = members_of(r, shared, &earlier);

    return n < 2 || earlier ? 0 : (double)at_once * (double)sums_scratch(whole(bytes), n);
}

static double sums_of(const struct ranges *r, double bucket)
{
    double bytes = scratch_of(r, OWN, bucket, SUMS_AT_ONCE);

    for (int i = 0; i < r->n; i++)
        if (r->items[i].shared != OWN)
            bytes += scratch_of(r, r->items[i].shared, dmin(r->items[i].bytes, SUMS_TIED), 1);
    return bytes;
}

/* A replica's longest slice of a bucket, as slices_bytes() has it. */
static double slice_of(const struct ranges *r, int shared, double bytes)
{
    bool earlier, one = shared != OWN && plan_lists(r->plan) < r->plan->n_stages;
    bool large = strcmp(r->cost->precision, dtype_name(DTYPE_F64)) == 0;
    size_t element = dtype_size(large ? DTYPE_F64 : DTYPE_F32), elements = whole(bytes) / element;
    size_t n = one ? 1 : (size_t)members_of(r, shared, &earlier);

    return aligned((double)(element * ((elements + n - 1) / n)));
}

/* Where what other stages read, too, stands among the others of its block is not known: it may cut a
 * bucket in two.
 */
static double unknown_cuts(const struct ranges *r)
{
    double bytes = 0;

    for (int i = 0; i < r->n; i++)
        if (r->items[i].shared != OWN && i > 0 && r->items[i - 1].block == r->items[i].block)
            bytes += LAYOUT_ALIGNMENT;
    return bytes;
}

static double slices_of(const struct ranges *r, double bucket)
{
    const struct range *first = NULL;
    double bytes = 0, end = 0;

    for (int i = 0; i < r->n; i++) {
        const struct range *item = &r->items[i];

        if (first && (item->shared != first->shared ||
                      item->offset + item->bytes - first->offset > bucket)) {
            bytes += slice_of(r, first->shared, end - first->offset);
            first = NULL;
        }
        first = first ? first : item;
        end = item->offset + item->bytes;
    }
    return first ? bytes + slice_of(r, first->shared, end - first->offset) : bytes;
}

void stage_arrays_get(const struct cost *cost, const struct plan *plan, const int *stage, int s,
                      struct stage_arrays *result)
{
    struct ranges r = { cost, plan, stage, s, 0, NULL };
    double bucket;

    *result = (struct stage_arrays){ 0 };
    find_ranges(&r, result);
    bucket = stage_bucket_bytes(stage_gradient_bytes(cost, result->parameters));
    result->aligning = aligning_of(&r);
    result->state = plan->zero ? slices_of(&r, bucket) + unknown_cuts(&r)
                                     : result->parameters;
    result->sums = cost->message_buffers > 0 ? sums_of(&r, bucket) : 0;
    free(r.items);
}

/* Messages ------------------------------------------------------------------------------ */

struct share {
    int64_t first, end;
};

static struct share share_of(const struct plan *plan, int s, int replica)
{
    int n = plan->stages[s].replicas;

    return (struct share){ plan_share_start(plan->micro_batch, n, replica),
                           plan_share_start(plan->micro_batch, n, replica + 1) };
}

/* Does this replica of the stage that makes a value send what is not cut to one that begins there? */
static bool serves(struct share from, struct share to)
{
    return from.first <= to.first && to.first < from.end;
}

static double piece_of(const struct cost *cost, const double *list, bool scales, double samples)
{
    size_t bytes = whole(cost_at(cost, list, scales, samples));

    return (double)((bytes + MESSAGE_ALIGNMENT - 1) / MESSAGE_ALIGNMENT * MESSAGE_ALIGNMENT);
}

/* Has it as many bytes whatever the samples, though its block has others? */
static bool is_constant(const struct cost *cost, const double *list)
{
    return cost->n_sizes > 1 && list[cost->n_sizes - 1] <= list[0];
}

/* A message between two replicas, forward or back. */
static double message_bytes(const struct cost *cost, const struct traffic *t, struct share from,
                            struct share to, bool gradient)
{
    int64_t first = from.first > to.first ? from.first : to.first;
    int64_t end = from.end < to.end ? from.end : to.end;
    double bytes = 0;

    for (int i = 0; i < t->n_values && first < end; i++) {
        const struct cost_edge *e = t->values[i];
        const double *list = gradient ? t->gradient_bytes[i] : e->bytes;
        bool scales = cost->blocks[e->from].batch_axis && !is_constant(cost, e->bytes);

        if (scales || serves(from, to))
            bytes += piece_of(cost, list, scales, (double)(end - first));
    }
    return aligned(bytes);
}

double stage_message_buffers(const struct cost *cost, const struct plan *plan,
                             const struct traffic_list *traffic, const struct schedule *schedule,
                             int s, int replica)
{
    double bytes = 0, received = dmin(cost->message_buffers, (double)plan->micro_batches);
    int ahead = schedule_ahead(schedule, s);

    if (ahead > SCHEDULE_SENDS && cost->message_buffers > 0)
        received = ahead;
    for (int i = 0; i < traffic->n; i++) {
        const struct traffic *t = &traffic->items[i];
        bool sends = t->from == s;
        int peer = sends ? t->to : t->from;
        double sent = dmin(cost->message_buffers * abs(t->to - t->from),
                           schedule->stages[t->from < t->to ? t->from : t->to].slots);

        for (int k = 0; k < plan->stages[peer].replicas && (sends || t->to == s); k++) {
            struct share own = share_of(plan, s, replica), other = share_of(plan, peer, k);
            struct share from = sends ? own : other, to = sends ? other : own;

            bytes += (sends ? sent : received) * message_bytes(cost, t, from, to, false) +
                     (sends ? received : sent) * message_bytes(cost, t, from, to, true);
        }
    }
    return bytes;
}
