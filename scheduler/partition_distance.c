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

#include "base/extreme.h"
#include "base/mem.h"
#include "scheduler/partition_way.h"

/* Intervals that are looked at, in all: then there is no such bound. */
#define MOST_LOOKED 2.5e8
/* Halvings of the price of blocks. */
#define HALVINGS 5
/* Prices of stages that are tried; how much dearer the next one is, or cheaper, where all before
 * were too cheap, or too dear; and of what there is at most so little may be left out.
 */
#define PRICES 6
#define FAR 4
#define SURE 5e-3
/* Over the plain bound: then that is good enough. */
#define ENOUGH 0.15
/* By how much less than the plan is tried first, and each time; how often the step is halved. */
#define FIRST 1.1
#define STEP 1.08
#define CLOSER 1
/* So often A is looked at, by what it was, while it grows by so much. */
#define AGAIN 5
#define GROWS 0.01

/* What is to be least. */
enum aim {
    AIM_PATH,       /* A */
    AIM_FLUSH,      /* seconds: 1f1b, and gpipe, which is no better */
    AIM_TURN,       /* where W may wait: until the last B, */
    AIM_WORK,       /* or from when a sample is there on */
    AIMS
};

struct option {
    struct way_sums sums;
    double *priced;         /* [n + 1]: see price_blocks() */
    bool out[RECOMPUTES];   /* none fits any more */
};

/* So many micro-batches; A of the plans that are faster than 'upper', at least; and the longest seconds
 * that no plan is known to be as fast as.
 */
struct count {
    int64_t m;
    double path, upper, slower;
};

struct distance {
    struct way way;
    double upper, left, price[AIMS];
    int devices;
    int n_counts;
    struct count *counts;
    int64_t b, m;           /* of all pipelines together */
    double path;            /* A, at least */
    double over;            /* how much more than the least a stage may cost, see price_blocks() */
    double *cheapest;       /* [n + 1]: sums of that least */
    int n_options;
    struct option *options;
    enum aim aim;
    double *least, *before; /* [n + 1]: of what is from there on */
    int *used, *used_before;        /* its devices */
    double *scratch;        /* [4 * (n + 1)]: see rows_of() */
};

static void add_option(struct distance *d, int replicas, int most)
{
    struct option *o = mem_push((void **)&d->options, &d->n_options, sizeof(*o));

    *o = (struct option){ .priced = mem_new((size_t)d->way.n + 1, sizeof(double)) };
    way_sums_init(&o->sums, &d->way, d->b, d->m, replicas, most, most);
}

static void clear_options(struct distance *d)
{
    for (int i = 0; i < d->n_options; i++) {
        way_sums_clear(&d->options[i].sums);
        free(d->options[i].priced);
    }
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
    for (int i = 0; i < d->way.n; i++) {
        double least = INFINITY;

        for (int o = 0; o < d->n_options; o++) {
            const double *trip = d->options[o].sums.trip[0];

            least = dmin(least, trip[i + 1] - trip[i]);
        }
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

    for (int i = 0; i < d->way.n; i++) {
        double least = INFINITY;

        for (int k = 0; k < d->n_options; k++) {
            const struct way_sums *o = &d->options[k].sums;
            double bytes = o->fixed[i + 1] - o->fixed[i] + o->made[1][i + 1] - o->made[1][i];
            double work = m * (o->dgrad[0][i + 1] - o->dgrad[0][i]);
            double each = o->trip[0][i + 1] - o->trip[0][i] +
                          o->replicas * (work / d->devices + price * bytes / d->way.room);

            d->options[k].priced[i + 1] = d->options[k].priced[i] + each;
            least = dmin(least, each);
        }
        d->cheapest[i + 1] = d->cheapest[i] + least;
    }
    return d->cheapest[d->way.n] - price * d->devices;
}

/* The best of some prices; what is over it no stage can cost. */
static double price_all(struct distance *d)
{
    double best = -1, at = 0, price = 4 * d->upper / d->devices;

    for (int i = 0; i < HALVINGS + 1; i++, price = i == HALVINGS ? 0 : price / 2) {
        double seconds = price_blocks(d, price);

        if (seconds > best) {
            best = seconds;
            at = price;
        }
    }
    d->over = d->upper - price_blocks(d, at);
    return best;
}

/* How often a stage with so many behind it runs each beside A. */
struct times {
    double forward, dgrad, wgrad, trip;
    int slots;
};

static struct times times_of(const struct distance *d, int behind)
{
    double m = (double)d->m, ahead = d->aim == AIM_TURN ? 2 * behind : behind;
    struct times t = { .trip = 1, .forward = dmax(0, m - 1 - ahead), .dgrad = m - 1 };

    if (d->aim == AIM_FLUSH || d->aim == AIM_PATH)
        t.wgrad = m - 1;
    if (d->aim == AIM_WORK)
        t = (struct times){ .forward = m, .dgrad = m, .wgrad = m };
    t.slots = behind + 1 < d->m ? behind + 1 : (int)d->m;
    return t;
}

/* What a stage may have, and what is counted of it, up to each block: sums, or with what is behind. */
struct rows {
    double *sum;            /* seconds beside A */
    double *kept, *over;    /* bytes; cost beyond the least */
    double *total;          /* with all stages that begin there */
};

static struct rows rows_of(const struct distance *d)
{
    size_t n = (size_t)d->way.n + 1;

    return (struct rows){ d->scratch, d->scratch + n, d->scratch + 2 * n, d->scratch + 3 * n };
}

/* With one more stage in front. Does it help? */
static bool add_stages(struct distance *d, struct option *option, const struct times *t,
                       enum plan_recompute c, double price, int last)
{
    const struct way_sums *o = &option->sums;
    const double *fixed = o->fixed, *made = o->made[c == PLAN_RECOMPUTE_SELECTIVE];
    const double *priced = option->priced;
    const double *cheapest = d->cheapest, *trip = o->trip[c];
    double weight = d->aim == AIM_PATH ? 0 : (double)o->replicas / d->devices;
    double each = price * o->replicas, room = d->way.room;
    /* Of itself a stage takes no longer than that. */
    double most = (d->upper - t->trip * d->path) * (1 + 1e-9);
    int slots = c == PLAN_RECOMPUTE_FULL ? 1 : t->slots, n = d->way.n;
    struct rows rows = rows_of(d);
    bool helps = false, fits = false;
    int known = 0;          /* from there on there is something behind */

    while (known < n && isinf(d->before[known]))
        known++;
    for (int i = 0; i <= n; i++) {
        rows.sum[i] = t->forward * o->forward[i] + t->dgrad * o->dgrad[c][i] +
                      t->wgrad * o->wgrad[i];
        rows.kept[i] = fixed[i] + slots * made[i];
        rows.over[i] = priced[i] - cheapest[i];
        rows.total[i] = d->before[i] + weight * rows.sum[i] + t->trip * trip[i];
    }
    for (int i = last; i >= 0; i--) {
        /* No less than what is asked again below. */
        double held = room * (1 + 1e-9) + fixed[i] + slots * made[i];
        double dear = d->over + priced[i] - cheapest[i];
        double least = d->least[i], front = each - weight * rows.sum[i] - t->trip * trip[i];
        int j = i + 1, behind = 0;

        for (; j <= n; j++) {
            if (rows.kept[j] > held || rows.over[j] > dear)
                break;
            fits = true;
            if (rows.sum[j] - rows.sum[i] > most)
                break;
            if (rows.total[j] + front >= least || way_bytes(&d->way, o, c, t->slots, i, j) > room)
                continue;
            least = rows.total[j] + front;
            behind = j;
        }
        /* Nor do those reach that which begin before it. */
        if (fits && j <= known)
            break;
        d->left -= j - i;
        if (!behind)
            continue;
        d->least[i] = least;
        d->used[i] = d->used_before[behind] + o->replicas;
        /* What is behind may be what is found here. */
        rows.total[i] = d->before[i] + weight * rows.sum[i] + t->trip * trip[i];
        if (d->before == d->least && i < known)
            known = i;
        helps = true;
    }
    /* Those that are further from the end keep no less. */
    option->out[c] = !fits;
    return helps;
}

/* Where W waits only the first stage frees anything by running more again. */
static bool frees_first(const struct distance *d)
{
    return (d->aim == AIM_TURN || d->aim == AIM_WORK) && d->m > 1 && way_is_chain(&d->way);
}

/* With one more in front. Does it help? */
static bool add_layer(struct distance *d, const struct times *t, enum plan_recompute from,
                      enum plan_recompute to, double price, int behind)
{
    int last = d->way.n - 1 - (way_is_chain(&d->way) ? behind : 0);
    bool helps = false;

    for (int o = 0; o < d->n_options; o++)
        for (enum plan_recompute c = from; c <= to; c++)
            if (!d->options[o].out[c])
                helps |= add_stages(d, &d->options[o], t, c, price,
                                    c > from && frees_first(d) ? 0 : last);
    return helps;
}

/* Over all ways to cut, where each device has a price; INFINITY: nothing fits. */
static double least_of(struct distance *d, enum plan_recompute from, enum plan_recompute to,
                       double price)
{
    size_t n = (size_t)d->way.n + 1;
    int most = d->way.search->cost->n_blocks;
    double *before = d->before;
    int *used_before = d->used_before;

    most = d->devices < most ? d->devices : most;
    for (int o = 0; o < d->n_options; o++)
        memset(d->options[o].out, 0, sizeof(d->options[o].out));
    for (int i = 0; i < d->way.n; i++)
        d->least[i] = INFINITY;
    d->least[d->way.n] = 0;
    d->used[d->way.n] = 0;
    for (int behind = 0; behind < most && d->left >= 0; behind++) {
        struct times t = times_of(d, behind);

        memcpy(d->before, d->least, n * sizeof(*d->least));
        memcpy(d->used_before, d->used, n * sizeof(*d->used));
        if (behind < d->m) {
            add_layer(d, &t, from, to, price, behind);
            continue;
        }
        /* All that are further from the end are alike: what is behind them may be, too. */
        d->before = d->least;
        d->used_before = d->used;
        while (add_layer(d, &t, from, to, price, behind) && d->left >= 0)
            continue;
        d->before = before;
        d->used_before = used_before;
        break;
    }
    return d->left < 0 ? 0 : d->least[0];
}

/* What no plan is faster than at a price, and by how much that grows with it, at most. */
struct line {
    bool known;
    double price, seconds, slope;
};

/* The price to try after one that was too cheap, one that was too dear, or both; and what there is
 * at most at any: less than where these lines meet.
 */
static double next_price(const struct line *cheap, const struct line *dear, double first, bool last,
                         double *most)
{
    double price;

    if (!dear->known)
        return cheap->price * FAR + first;
    if (!cheap->known)
        return last ? 0 : dear->price / FAR;
    price = (dear->seconds - dear->slope * dear->price - cheap->seconds +
             cheap->slope * cheap->price) / (cheap->slope - dear->slope);
    *most = cheap->seconds + cheap->slope * (price - cheap->price);
    return dmax(price, 0);
}

/* Seconds, where that is less than 'enough'; else no less than that. */
static double bound_aim(struct distance *d, enum aim aim, enum plan_recompute to, double enough)
{
    enum plan_recompute from = recompute_asked(d->way.search->request);
    struct line cheap = { 0 }, dear = { 0 };
    double best = 0, at = d->price[aim], price = at, most = INFINITY;

    d->aim = aim;
    for (int i = 0; i < PRICES && best < enough && d->left >= 0; i++) {
        double seconds = least_of(d, from, to, price);
        struct line line = { true, price, seconds - price * d->devices, d->used[0] - d->devices };

        if (isinf(seconds))
            return INFINITY;
        if (line.seconds > best) {
            best = line.seconds;
            at = price;
        }
        /* As many devices as there are, or too many for nothing. */
        if (d->used[0] == d->devices || (line.slope < 0 && price <= 0))
            break;
        *(line.slope > 0 ? &cheap : &dear) = line;
        price = next_price(&cheap, &dear, d->upper / d->devices / FAR, i + 2 == PRICES, &most);
        if (most < best * (1 + SURE) || (aim != AIM_PATH && most < enough))
            break;
    }
    /* Where A grows beyond all plans, so does its price. */
    if (best < enough || aim != AIM_PATH)
        d->price[aim] = at;
    return best;
}

static bool is_allowed(const struct plan_request *q, enum schedule_kind a, enum schedule_kind b)
{
    return schedule_allowed(q, a) || schedule_allowed(q, b);
}

/* The longer A is, the less is left for any stage, and that makes A longer. As long as 'upper'? */
static bool is_path_long(struct distance *d, enum plan_recompute most)
{
    for (int i = 0; i < AGAIN; i++) {
        double path = bound_aim(d, AIM_PATH, most, d->upper), before = d->path;

        if (path >= d->upper)
            return true;
        d->path = dmax(path, before);
        if (path < before * (1 + GROWS))
            break;
    }
    return false;
}

/* Is no plan with so many micro-batches as fast as 'upper'? */
static bool is_slower(struct distance *d, struct count *count)
{
    const struct plan_request *q = d->way.search->request;
    bool slower = true;

    d->m = count->m;
    d->b = q->global_batch / d->m;
    fill_options(d);
    if (price_all(d) < d->upper && is_allowed(q, SCHEDULE_1F1B, SCHEDULE_GPIPE)) {
        enum plan_recompute most = recompute_most(q, SCHEDULE_1F1B);
        double path = d->path, known;

        if (count->upper >= d->upper)
            d->path = dmax(path, count->path);
        known = d->path;
        slower = bound_aim(d, AIM_FLUSH, most, d->upper) >= d->upper || is_path_long(d, most) ||
                 (d->path > known && bound_aim(d, AIM_FLUSH, most, d->upper) >= d->upper);
        count->path = d->path;
        count->upper = d->upper;
        d->path = path;
    }
    if (slower && d->cheapest[d->way.n] > 0 && is_allowed(q, SCHEDULE_ZB_H1, SCHEDULE_ZB)) {
        enum plan_recompute most = recompute_most(q, SCHEDULE_1F1B);

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
        struct count count;

        if (d->counts[i].slower >= seconds)
            continue;
        if (is_slower(d, &d->counts[i])) {
            d->counts[i].slower = seconds;
            continue;
        }
        count = d->counts[i];
        memmove(d->counts + 1, d->counts, (size_t)i * sizeof(count));
        d->counts[0] = count;
        return false;
    }
    return d->left >= 0;
}

static void fill_counts(struct distance *d)
{
    const struct search *s = d->way.search;

    for (int i = 0; i < s->n_splits; i++) {
        bool seen = false;

        for (int k = 0; k < d->n_counts && !seen; k++)
            seen = d->counts[k].m == s->splits[i].micro_batches;
        if (!seen)
            *(struct count *)mem_push((void **)&d->counts, &d->n_counts, sizeof(*d->counts)) =
                (struct count){ .m = s->splits[i].micro_batches };
    }
}

/* What no plan is as fast as. */
static double longest(struct distance *d, double known, double upper)
{
    double seconds = upper / FIRST, step = STEP;

    while (seconds > known && d->left >= 0 && !all_slower(d, seconds))
        seconds /= step;
    if (seconds <= known || d->left < 0)
        return known;
    for (int i = 0; i < CLOSER && seconds > known; i++) {
        step = sqrt(step);
        seconds *= all_slower(d, seconds * step) ? step : 1;
    }
    return dmax(seconds, known);
}

double partition_by_distance(struct search *search, double known, double upper)
{
    const struct plan_request *q = search->request;
    size_t n = (size_t)search->cost->n_blocks + 1;
    struct distance d = { .left = MOST_LOOKED, .devices = search->cluster->n_devices };

    if (known <= 0 || upper <= known * (1 + ENOUGH) || q->list || request_versions(q) > 1 ||
        request_chunks(q) > 1)
        return known;
    way_init(&d.way, search);
    d.used = mem_new(n, sizeof(int));
    d.used_before = mem_new(n, sizeof(int));
    d.least = mem_new(n, sizeof(double));
    d.cheapest = mem_new(n, sizeof(double));
    d.before = mem_new(n, sizeof(double));
    d.scratch = mem_new(4 * n, sizeof(double));
    fill_counts(&d);
    known = longest(&d, known, upper);
    way_clear(&d.way);
    free(d.counts);
    free(d.used);
    free(d.used_before);
    free(d.least);
    free(d.cheapest);
    free(d.before);
    free(d.scratch);
    return known;
}
