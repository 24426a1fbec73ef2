/* SPDX-License-Identifier: MIT */
/* A lower bound with memory for networks of any size. A stage is told by how many are behind it:
 * that says how many micro-batches it holds, and how far it runs ahead.
 *
 * Take the longest way through the network. An iteration takes at least A, in which one micro-batch
 * goes there and back through all stages, and what is run again on the way back; and what any stage
 * has to run beside that, w. Under 1f1b, where a stage runs 'ahead' more F before its first B,
 *   w = (M - 1 - ahead) F + (M - 1) (B + W)
 * So it takes at least A and the mean of w over all devices: a sum over stages, of which dynamic
 * programming finds the least over all ways to cut, with the recompute without which nothing fits.
 * That the devices suffice is seen to by a price for each, the dearest that leads furthest.
 *
 * Of P pipelines with r replicas of a stage in each the bound sees P r replicas of one pipeline:
 * samples and micro-batches are the same. Blocks off the way are left out.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "scheduler/partition_private.h"

/* Intervals that are looked at, in all: then there is no such bound. */
#define MOST_LOOKED 4e8
/* Halvings of the price. */
#define PRICES 5
/* Of means of seconds and bytes. */
#define MIX 0.25
/* Over the plain bound: then that is good enough. */
#define ENOUGH 0.15
/* What is tried first, of the plan; and by how much less each time. */
#define FIRST 1.1
#define STEP 0.05
/* So often A is looked at, by what it was. */
#define AGAIN 2
#define RECOMPUTES (PLAN_RECOMPUTE_FULL + 1)

/* What is to be least. */
enum aim {
    AIM_PATH,       /* A */
    AIM_FLUSH,      /* seconds: 1f1b, and gpipe, which is no better */
    AIM_TURN,       /* where W may wait: until the last B, */
    AIM_WORK,       /* or from when a sample is there on */
    AIM_DEVICES     /* where these have several stages */
};

/* Stages of so many replicas; sums up to each block on the way, [n + 1]. */
struct option {
    int replicas;
    double *forward, *wgrad, *trip[RECOMPUTES];     /* there and back, of the smallest share */
    double *dgrad[RECOMPUTES];                      /* and what is run again */
    double *fixed, *made[RECOMPUTES - 1];   /* bytes: parameters; kept of a micro-batch */
    double *leaves, *arrives, *read;    /* bytes, no sums: of what crosses each cut, what need not
                                         * be kept in front of it, and the least that is kept behind
                                         * it: by a long stage, by any */
    double *priced;
    bool out[RECOMPUTES];       /* none fits any more */
    double unread;              /* bytes that leave their blocks, and no backward reads */
};

struct distance {
    struct search *search;
    int n, *way;            /* blocks, in order */
    int *within;            /* [n]: a stage from here on keeps what arrives if it ends behind this */
    double room, upper, left, price;
    int devices, lists;     /* lists: where devices have several stages */
    bool fills, v;          /* there: with what they wait for at first; zb-v, not interleaved */
    double mix, all_fixed;  /* fixed: bytes of the way */
    int cap;                /* slots of any stage, at least, far from the end; 0: micro-batches */
    int n_counts;
    int64_t *counts;        /* of micro-batches */
    int64_t b, m;           /* of all pipelines together */
    double path;            /* A, at least */
    double over;            /* how much more than the least a stage may cost, see price_blocks() */
    double *cheapest;       /* [n + 1]: sums of that least */
    int n_options;
    struct option *options;
    enum aim aim;
    double *least, *before; /* [n + 1]: of what is from there on */
    int *used, *used_before;        /* its devices */
    double *sum;            /* scratch */
};

static bool compiles(const struct distance *d)
{
    return d->search->request->memory_of != NULL;
}

/* Bytes are a constant and so many for each sample: beyond the listed sizes, too. */
static double bytes_at(const struct cost *cost, const double *bytes, bool scales, double samples)
{
    int last = cost->n_sizes - 1;
    double most = (double)cost->micro_batch[last];
    double at = bytes ? cost_at(cost, bytes, scales, fmin(samples, most)) : 0;

    if (!bytes || !scales || samples <= most || !last)
        return at;
    return at + fmax(0, (samples - most) * (bytes[last] - bytes[last - 1]) /
                            (most - (double)cost->micro_batch[last - 1]));
}

static double trip(const struct cost *cost, const struct cost_block *b, double samples)
{
    return cost_at(cost, b->forward, b->batch_axis, samples) +
           cost_at(cost, b->dgrad, b->batch_axis, samples);
}

/* The longest way along which gradients come back. */
static void find_way(struct distance *d)
{
    const struct cost *cost = d->search->cost;
    double *to = mem_new((size_t)cost->n_blocks, sizeof(*to));
    int *before = mem_new((size_t)cost->n_blocks, sizeof(*before)), end = 0, edge = 0;

    for (int b = 0; b < cost->n_blocks; b++)
        before[b] = -1;
    for (int b = 0; b < cost->n_blocks; b++) {
        to[b] += trip(cost, &cost->blocks[b], (double)cost->micro_batch[0]);
        end = to[b] > to[end] ? b : end;
        for (; edge < cost->n_edges && cost->edges[edge].from == b; edge++) {
            const struct cost_edge *e = &cost->edges[edge];

            if (e->gradient_bytes[cost->n_sizes - 1] > 0 && to[b] > to[e->to]) {
                to[e->to] = to[b];
                before[e->to] = b;
            }
        }
    }
    for (int b = end; b >= 0; b = before[b])
        d->n++;
    for (int b = end, i = d->n; b >= 0; b = before[b])
        d->way[--i] = b;
    free(to);
    free(before);
}

/* Is it another value than that of the edge before? They are sorted. */
static bool is_first(const struct cost *cost, int e)
{
    return !e || cost->edges[e].from != cost->edges[e - 1].from ||
           strcmp(cost->edges[e].value, cost->edges[e - 1].value) != 0;
}

/* Where the way has all blocks: what crosses each cut, all of it; and the smallest value, which is
 * the least that a stage keeps of what arrives, or what its first block is known to read.
 */
static void fill_cuts(const struct distance *d, double samples, struct option *o)
{
    const struct cost *cost = d->search->cost;

    for (int i = 0; i <= d->n; i++)
        o->arrives[i] = compiles(d) ? INFINITY : 0;
    for (int i = 0; i < d->n; i++)
        o->read[i] = bytes_at(cost, cost->blocks[i].read_from_others, cost->blocks[i].batch_axis,
                              samples);
    for (int e = 0, next; e < cost->n_edges; e = next) {
        const struct cost_edge *edge = &cost->edges[e];
        double bytes = bytes_at(cost, edge->bytes, cost->blocks[edge->from].batch_axis, samples);
        int last = edge->to;

        for (next = e + 1; next < cost->n_edges && !is_first(cost, next); next++)
            last = cost->edges[next].to > last ? cost->edges[next].to : last;
        for (int i = edge->from + 1; i <= last; i++) {
            o->leaves[i] += bytes;
            o->arrives[i] = compiles(d) ? fmin(o->arrives[i], bytes) : o->arrives[i];
        }
        /* By the planner's own sums: what the first block reads. */
        for (int k = e; k < next && !compiles(d); k++)
            o->arrives[cost->edges[k].to] += bytes;
    }
    for (int i = 0; i <= d->n; i++)
        o->arrives[i] = isinf(o->arrives[i]) ? 0 : o->arrives[i];
    for (int i = 0; i <= d->n && !compiles(d); i++)
        o->leaves[i] = 0;
}

/* Where stages are compiled, what is read by a backward within a block has to be made again from
 * what arrives: from one value at least, where no input of the network is read on the way there.
 */
static void fill_within(struct distance *d)
{
    const struct cost *cost = d->search->cost;
    double *own = mem_new((size_t)cost->n_blocks, sizeof(*own));
    bool *reads = mem_new((size_t)cost->n_blocks, sizeof(*reads));

    for (int b = 0; b < cost->n_blocks; b++)
        own[b] = cost->blocks[b].read_from_others ? cost->blocks[b].read_by_backward[0] -
                                                        cost->blocks[b].read_from_others[0] : 0;
    for (int i = 0; i < cost->n_inputs; i++)
        for (int k = 0; k < cost->inputs[i].n_to; k++)
            reads[cost->inputs[i].to[k]] = true;
    for (int i = d->n - 1; i >= 0; i--)
        d->within[i] = !compiles(d) ? i
                     : d->n < cost->n_blocks || reads[i] || !cost->blocks[i].batch_axis ? d->n
                     : own[i] > 0 ? i : i + 1 < d->n ? d->within[i + 1] : d->n;
    free(own);
    free(reads);
}

static double fixed_bytes(const struct distance *d, const struct cost_block *b, int copies)
{
    const struct search *s = d->search;
    const struct stage_cost trained = { .parameters = b->parameters -
                                                      (compiles(d) ? b->statistics : 0) };

    /* Of several stages each is on as many devices as there are, at most. */
    copies = d->aim == AIM_DEVICES ? d->devices : copies;
    return stage_memory(s->cost, &trained, 0, 1, s->state_bytes / (s->zero ? copies : 1));
}

static void fill_block(const struct distance *d, struct option *o, int most, int i)
{
    const struct cost *cost = d->search->cost;
    const struct cost_block *b = &cost->blocks[d->way[i]];
    double share = (double)candidate_share(d->b, o->replicas), least = (double)(d->b / most);
    double forward = cost_at(cost, b->forward, b->batch_axis, share), again = 0, ignored = 0;
    double dgrad = cost_at(cost, b->dgrad, b->batch_axis, share), small = 0;
    double all = bytes_at(cost, b->activations, b->batch_axis, share), selective = all;
    double made = compiles(d) ? bytes_at(cost, b->read_by_backward, b->batch_axis, share) : all;

    block_selective(cost, b, share, &again, &ignored);
    block_selective(cost, b, least, &small, &ignored);
    if (b->selective_activations)
        selective = bytes_at(cost, b->selective_activations, b->batch_axis, share);
    o->forward[i + 1] = o->forward[i] + forward;
    o->wgrad[i + 1] = o->wgrad[i] +
                      (b->wgrad ? cost_at(cost, b->wgrad, b->batch_axis, share) : 0);
    o->fixed[i + 1] = o->fixed[i] + fixed_bytes(d, b, most);
    o->made[0][i + 1] = o->made[0][i] + made;
    o->made[1][i + 1] = o->made[1][i] + selective;
    o->unread += all - made;
    for (enum plan_recompute c = PLAN_RECOMPUTE_NONE; c < RECOMPUTES; c++) {
        double f = cost_at(cost, b->forward, b->batch_axis, least);

        o->dgrad[c][i + 1] = o->dgrad[c][i] + dgrad + fmax(0, recompute_seconds(c, again, forward));
        o->trip[c][i + 1] = o->trip[c][i] +
                            fmin(forward + dgrad + fmax(0, recompute_seconds(c, again, forward)),
                                 trip(cost, b, least) + fmax(0, recompute_seconds(c, small, f)));
    }
}

static void add_option(struct distance *d, int r, int most)
{
    size_t n = (size_t)d->n + 1;
    double *rows = mem_new(n * (6 + 3 * RECOMPUTES), sizeof(double));
    struct option o = { .replicas = r };

    /* The rows of an option lie end to end, and are freed by the first. */
    o.forward = rows;
    o.wgrad = rows += n;
    o.fixed = rows += n;
    o.leaves = rows += n;
    o.arrives = rows += n;
    o.read = rows += n;
    o.priced = rows += n;
    for (int c = 0; c < RECOMPUTES; c++) {
        o.trip[c] = rows += n;
        o.dgrad[c] = rows += n;
    }
    for (int c = 0; c < RECOMPUTES - 1; c++)
        o.made[c] = rows += n;
    for (int i = 0; i < d->n; i++)
        fill_block(d, &o, most, i);
    if (d->n == d->search->cost->n_blocks)
        fill_cuts(d, (double)candidate_share(d->b, r), &o);
    else if (compiles(d))
        memset(o.made[1], 0, n * sizeof(double));
    *(struct option *)mem_push((void **)&d->options, &d->n_options, sizeof(o)) = o;
}

static void clear_options(struct distance *d)
{
    for (int i = 0; i < d->n_options; i++)
        free(d->options[i].forward);
    free(d->options);
    d->options = NULL;
    d->n_options = 0;
}

/* The fewest replicas for each share; the most of them hold the least state each under ZeRO-1. */
static void fill_options(struct distance *d)
{
    int64_t room = d->b < d->devices ? d->b : d->devices;

    for (int r = 1; r <= room;) {
        int64_t share = candidate_share(d->b, r);
        int64_t most = share > 1 ? (d->b - 1) / (share - 1) : d->b;

        most = most < room ? most : room;
        add_option(d, r, (int)most);
        r = (int)most + 1;
    }
    d->path = 0;
    for (int i = 0; i < d->n; i++) {
        double least = INFINITY;

        for (int o = 0; o < d->n_options; o++)
            least = fmin(least, d->options[o].trip[0][i + 1] - d->options[o].trip[0][i]);
        d->path += least;
    }
}

/* Of each block alone: its way there and back, its part of the mean work, and at a price for each
 * device the part of it that its bytes of one micro-batch take. No plan is faster than the sum of
 * the least of these, less the price of all devices.
 */
static double price_blocks(struct distance *d, double price)
{
    double m = (double)d->m - 1;

    for (int i = 0; i < d->n; i++) {
        double least = INFINITY;

        for (int k = 0; k < d->n_options; k++) {
            struct option *o = &d->options[k];
            double bytes = o->fixed[i + 1] - o->fixed[i] + o->made[0][i + 1] - o->made[0][i];
            double work = m * (o->dgrad[0][i + 1] - o->dgrad[0][i]);
            double each = o->trip[0][i + 1] - o->trip[0][i] +
                          o->replicas * (work / d->devices + price * bytes / d->room);

            o->priced[i + 1] = o->priced[i] + each;
            least = fmin(least, each);
        }
        d->cheapest[i + 1] = d->cheapest[i] + least;
    }
    return d->cheapest[d->n] - price * d->devices;
}

/* The best of some prices; what is over it no stage can cost. */
static double price_all(struct distance *d)
{
    double best = -1, at = 0, price = 4 * d->upper / d->devices;

    for (int i = 0; i < PRICES + 1; i++, price = i == PRICES ? 0 : price / 2) {
        double seconds = price_blocks(d, price);

        if (seconds > best) {
            best = seconds;
            at = price;
        }
    }
    d->over = d->upper - price_blocks(d, at);
    return best;
}

/* Bytes of a stage, at least. */
static double least_bytes(const struct distance *d, const struct option *o, enum plan_recompute c,
                          int slots, int i, int j)
{
    double fixed = o->fixed[j] - o->fixed[i];
    double made = o->made[0][j] - o->made[0][i], kept = made;

    if (c == PLAN_RECOMPUTE_FULL)
        kept = fmax(o->read[i], j > d->within[i] ? o->arrives[i] : 0);
    else if (c == PLAN_RECOMPUTE_SELECTIVE)
        kept = fmax(o->read[i],
                    o->made[1][j] - o->made[1][i] - o->leaves[j] - o->unread);
    /* Of one micro-batch all is there when its backward begins. */
    return fixed + made + (slots - 1) * kept;
}

/* How often a stage with so many behind it runs each beside A. */
struct times {
    double forward, dgrad, wgrad, trip;
    int fill;               /* devices that have to wait for it before they start, */
    int drain;              /* and after they are done but for their last W */
    int slots;
    bool late;              /* the only stage of its device that is as near to the end */
};

/* A stage far from the end has. */
static int64_t most_slots(const struct distance *d)
{
    return d->cap && d->cap < d->m ? d->cap : d->m;
}

static struct times times_of(const struct distance *d, int behind)
{
    double m = (double)d->m, ahead = d->aim == AIM_TURN ? 2 * behind : behind;
    struct times t = { .trip = 1, .forward = fmax(0, m - 1 - ahead), .dgrad = m - 1 };
    /* Where devices have several stages there may be one less. */
    int64_t slots = d->aim != AIM_DEVICES ? behind + 1 : behind > 1 ? behind : 1;

    if (d->aim == AIM_FLUSH || d->aim == AIM_PATH)
        t.wgrad = m - 1;
    if (d->aim == AIM_WORK || d->aim == AIM_DEVICES)
        t = (struct times){ .forward = m, .dgrad = m, .wgrad = m };
    t.late = behind < d->lists;
    t.slots = (int)(slots < most_slots(d) ? slots : most_slots(d));
    return t;
}

/* Of all stages of a device neither the seconds nor the bytes are more than 1: nor is a mean of both,
 * or the sum of the larger of the one stage and the smaller of each other.
 */
static double part_of_device(const struct distance *d, bool late, double seconds, double bytes)
{
    return d->mix > 0 ? d->mix * seconds + (1 - d->mix) * bytes
         : late ? fmax(seconds, bytes) : fmin(seconds, bytes);
}

/* With one more stage in front. Does it help? */
static bool add_stages(struct distance *d, struct option *o, const struct times *t,
                       enum plan_recompute c, double price, int last)
{
    double weight = d->aim == AIM_PATH ? 0 : (double)o->replicas / d->devices, *sum = d->sum;
    /* Of itself a stage takes no longer than that. */
    double most = t->fill ? INFINITY : (d->upper - t->trip * d->path) * (1 + 1e-9);
    enum plan_recompute kept = d->aim == AIM_TURN || d->aim == AIM_WORK ? PLAN_RECOMPUTE_NONE : c;
    bool helps = false, fits = false;

    for (int i = 0; i <= d->n; i++)
        sum[i] = (t->forward + t->fill) * o->forward[i] + t->dgrad * o->dgrad[c][i] +
                 t->drain * o->dgrad[PLAN_RECOMPUTE_NONE][i] + t->wgrad * o->wgrad[i];
    for (int i = last; i >= 0; i--)
        for (int j = i + 1; j <= d->n; j++) {
            double made = o->made[0][j] - o->made[0][i], bytes, total;

            d->left--;
            if (o->fixed[j] - o->fixed[i] + (kept ? 1 : t->slots) * made > d->room ||
                (d->aim != AIM_DEVICES && o->priced[j] - o->priced[i] -
                                     (d->cheapest[j] - d->cheapest[i]) > d->over))
                break;
            fits = true;
            if (sum[j] - sum[i] > most)
                break;
            if (isinf(d->before[j]))
                continue;
            bytes = least_bytes(d, o, kept, t->slots, i, j);
            if (bytes > d->room)
                continue;
            total = d->before[j] +
                    (d->aim == AIM_DEVICES
                     ? part_of_device(d, t->late, (sum[j] - sum[i]) / d->upper, bytes / d->room)
                     : weight * (sum[j] - sum[i]) + price * o->replicas +
                           t->trip * (o->trip[c][j] - o->trip[c][i]));
            if (total >= d->least[i])
                continue;
            d->least[i] = total;
            d->used[i] = d->used_before[j] + o->replicas;
            helps = true;
        }
    /* Those that are further from the end keep no less. */
    o->out[c] = !fits;
    return helps;
}

/* With one more in front. Does it help? */
static bool add_layer(struct distance *d, const struct times *t, enum plan_recompute from,
                      enum plan_recompute to, double price, int behind)
{
    int last = d->n - 1 - (d->n == d->search->cost->n_blocks ? behind : 0);
    bool helps = false;

    for (int o = 0; o < d->n_options; o++)
        for (enum plan_recompute c = from; c <= to; c++)
            if (!d->options[o].out[c])
                helps |= add_stages(d, &d->options[o], t, c, price, last);
    return helps;
}

/* The first stage of each device, in front of what 'least' has: device l starts when a micro-batch has
 * passed those of the devices before it, and under interleaved all its B are done before a gradient
 * goes back through them. All stages are cut among their replicas alike: those of the largest share
 * wait for each other.
 */
static void add_first(struct distance *d, enum plan_recompute from, enum plan_recompute to)
{
    size_t n = (size_t)d->n + 1;

    memset(d->options[0].out, 0, sizeof(d->options[0].out));
    for (int l = d->lists - 1; l >= 0 && d->left >= 0; l--) {
        int after = d->lists - 1 - l, behind = d->lists + after;
        struct times t = times_of(d, behind);

        t.fill = after;
        t.drain = d->v ? 0 : after;
        t.wgrad -= d->v ? 0 : 1;
        memcpy(d->before, d->least, n * sizeof(*d->least));
        memcpy(d->used_before, d->used, n * sizeof(*d->used));
        for (int i = 0; i <= d->n; i++)
            d->least[i] = INFINITY;
        add_layer(d, &t, from, to, 0, behind);
    }
}

/* Over all ways to cut, where each device has a price; INFINITY: nothing fits. */
static double least_of(struct distance *d, enum plan_recompute from, enum plan_recompute to,
                       double price)
{
    size_t n = (size_t)d->n + 1;
    int most = d->aim == AIM_DEVICES || d->devices > d->search->cost->n_blocks
                   ? d->search->cost->n_blocks : d->devices;
    double *before = d->before;
    int *used_before = d->used_before;
    /* From there on all that are further from the end are alike. */
    int64_t alike = most_slots(d) > d->lists ? most_slots(d) : d->lists;

    for (int o = 0; o < d->n_options; o++)
        memset(d->options[o].out, 0, sizeof(d->options[o].out));
    for (int i = 0; i < d->n; i++)
        d->least[i] = INFINITY;
    d->least[d->n] = 0;
    d->used[d->n] = 0;
    if (d->fills)
        most = d->v ? d->lists : most - d->lists;
    for (int behind = 0; behind < most && d->left >= 0; behind++) {
        struct times t = times_of(d, behind);

        memcpy(d->before, d->least, n * sizeof(*d->least));
        memcpy(d->used_before, d->used, n * sizeof(*d->used));
        if (behind < alike) {
            add_layer(d, &t, from, to, price, behind);
            continue;
        }
        /* What is behind them may be of the same kind. */
        d->before = d->least;
        d->used_before = d->used;
        while (add_layer(d, &t, from, to, price, behind) && d->left >= 0)
            continue;
        d->before = before;
        d->used_before = used_before;
        break;
    }
    if (d->fills)
        add_first(d, from, to);
    return d->left < 0 ? 0 : d->least[0];
}

/* Seconds, where that is less than 'enough'; else no less than that. */
static double bound_aim(struct distance *d, enum aim aim, enum plan_recompute to, double enough)
{
    enum plan_recompute from = recompute_asked(d->search->request);
    double low = 0, high = 4 * d->upper / d->devices, best = 0, price = d->price;

    d->aim = aim;
    for (int i = 0; i < PRICES && best < enough && d->left >= 0; i++) {
        double seconds = least_of(d, from, to, price);

        if (isinf(seconds))
            return INFINITY;
        if (seconds - price * d->devices > best) {
            best = seconds - price * d->devices;
            d->price = price;
        }
        if (d->used[0] > d->devices)
            low = price;
        else if (price > 0)
            high = price;
        else
            break;
        /* Whether there has to be one is asked second. */
        price = i == 0 && price > 0 && low <= 0 ? 0 : low + (high - low) / 2;
    }
    return best;
}

struct distance *distance_new(struct search *search)
{
    size_t n = (size_t)search->cost->n_blocks + 1;
    struct distance *d = mem_new(1, sizeof(*d));
    double smallest;

    *d = (struct distance){ .search = search, .left = MOST_LOOKED,
                            .devices = search->cluster->n_devices };
    d->way = mem_new(n, sizeof(int));
    d->within = mem_new(n, sizeof(int));
    d->used = mem_new(n, sizeof(int));
    d->used_before = mem_new(n, sizeof(int));
    d->least = mem_new(n, sizeof(double));
    d->cheapest = mem_new(n, sizeof(double));
    d->before = mem_new(n, sizeof(double));
    d->sum = mem_new(n, sizeof(double));
    search_rooms(search, &smallest, &d->room);
    find_way(d);
    fill_within(d);
    return d;
}

void distance_free(struct distance *d)
{
    clear_options(d);
    free(d->counts);
    free(d->way);
    free(d->within);
    free(d->used);
    free(d->used_before);
    free(d->least);
    free(d->cheapest);
    free(d->before);
    free(d->sum);
    free(d);
}

static bool is_allowed(const struct plan_request *q, enum schedule_kind a, enum schedule_kind b)
{
    return schedule_allowed(q, a) || schedule_allowed(q, b);
}

bool distance_slower(struct distance *d, const struct chunking *f, double seconds)
{
    const struct plan_request *q = d->search->request;
    bool frees = recompute_frees(f->kind), slower;
    enum plan_recompute from = frees ? recompute_asked(q) : PLAN_RECOMPUTE_NONE;
    enum plan_recompute to = frees ? recompute_most(q, f->kind) : PLAN_RECOMPUTE_NONE;
    bool chain = d->n == d->search->cost->n_blocks;
    const struct option *o;

    d->v = f->kind == SCHEDULE_ZB_V;
    d->b = candidate_share(f->split->micro_batch, f->replicas);
    d->m = f->split->micro_batches;
    d->lists = f->lists;
    d->cap = f->kind == SCHEDULE_INTERLEAVED ? f->lists : 0;
    d->aim = AIM_DEVICES;
    d->upper = seconds;
    if (d->all_fixed > d->room * f->lists)
        return true;
    add_option(d, 1, 1);
    o = &d->options[0];
    d->all_fixed = o->fixed[d->n];
    slower = o->fixed[d->n] + o->made[0][d->n] > d->room * f->lists;
    for (d->mix = 1; d->mix >= 0 && !slower; d->mix -= MIX) {
        d->fills = d->mix > 0 && chain;
        slower = (d->fills || d->mix < 1) &&
                 least_of(d, from, to, 0) > f->lists * (1 + 1e-9);
    }
    d->fills = false;
    clear_options(d);
    d->lists = d->cap = 0;
    return slower && d->left >= 0;
}

/* Is no plan with so many micro-batches as fast as 'upper'? */
static bool is_slower(struct distance *d)
{
    const struct plan_request *q = d->search->request;
    bool slower = true;

    fill_options(d);
    if (price_all(d) < d->upper && is_allowed(q, SCHEDULE_1F1B, SCHEDULE_GPIPE)) {
        enum plan_recompute most = recompute_most(q, SCHEDULE_1F1B);
        double path = d->path, more = path;

        slower = bound_aim(d, AIM_FLUSH, most, d->upper) >= d->upper;
        /* The longer A is, the less is left for any stage. */
        for (int i = 0; i < AGAIN && !slower && more < d->upper; i++) {
            d->path = more;
            more = fmax(more, bound_aim(d, AIM_PATH, most, d->upper));
        }
        slower |= more >= d->upper;
        if (!slower && more > path) {
            d->path = more;
            slower = bound_aim(d, AIM_FLUSH, most, d->upper) >= d->upper;
        }
        d->path = path;
    }
    if (slower && d->cheapest[d->n] && is_allowed(q, SCHEDULE_ZB_H1, SCHEDULE_ZB)) {
        enum plan_recompute most = recompute_most(q, SCHEDULE_ZB);

        slower = price_all(d) >= d->upper || bound_aim(d, AIM_WORK, most, d->upper) >= d->upper ||
                 bound_aim(d, AIM_TURN, most, d->upper) >= d->upper;
    }
    clear_options(d);
    return slower;
}

/* Those that were not slower the last time come first. */
static bool all_slower(struct distance *d, double seconds)
{
    d->upper = seconds;
    for (int i = 0; i < d->n_counts; i++) {
        int64_t m = d->counts[i];

        d->m = m;
        d->b = d->search->request->global_batch / m;
        if (is_slower(d))
            continue;
        memmove(d->counts + 1, d->counts, (size_t)i * sizeof(m));
        d->counts[0] = m;
        return false;
    }
    return d->left >= 0;
}

static void fill_counts(struct distance *d)
{
    const struct search *s = d->search;

    for (int i = 0; i < s->n_splits; i++) {
        bool seen = false;

        for (int k = 0; k < d->n_counts && !seen; k++)
            seen = d->counts[k] == s->splits[i].micro_batches;
        if (!seen)
            *(int64_t *)mem_push((void **)&d->counts, &d->n_counts, sizeof(int64_t)) =
                s->splits[i].micro_batches;
    }
}

double partition_by_distance(struct search *search, double known, double upper)
{
    const struct plan_request *q = search->request;
    struct distance *d;

    if (upper <= known * (1 + ENOUGH) || q->list || request_versions(q) > 1 ||
        request_chunks(q) > 1)
        return known;
    d = distance_new(search);
    fill_counts(d);
    for (double seconds = upper / FIRST; seconds > known; seconds /= 1 + STEP)
        if (all_slower(d, seconds)) {
            known = seconds;
            break;
        }
    distance_free(d);
    return known;
}
