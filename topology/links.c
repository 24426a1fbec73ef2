/* SPDX-License-Identifier: MIT */
#include "topology/links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/fit.h"
#include "topology/pairs.h"

#define MOST_FULL ((size_t)3 << 20)
#define MOST_QUICK ((size_t)384 << 10)
#define GPUS_MORE 8             /* times as many bytes */
#define SLOW_RATE 0.6           /* of what is usual */
#define SLOW_LATENCY 3.0
#define FEWEST 4                /* pairs from which something is usual */
#define SCATTER (4 * 1.4826)    /* four standard deviations, from the median deviation */
/* Of all-reduces: what a topology file may say. */
#define LEAST_FACTOR 1e-3
#define MOST_FACTOR 1e9
#define SEVERAL 1.15            /* a load is faster than one transfer by so much: not noise */

int links_sizes(bool full, bool gpus, size_t bytes[LINKS_SIZES])
{
    size_t most = (full ? MOST_FULL : MOST_QUICK) * (gpus ? GPUS_MORE : 1);
    int n = 0;

    bytes[n++] = 8;
    for (size_t size = 1536; size <= most; size *= 2)
        bytes[n++] = size;
    return n;
}

/* What is usual in a class, and how far its pairs are from it. */
struct usual {
    double median, scatter;
};

static struct usual usual_of(double *values, int n)
{
    struct usual usual = { .median = fit_quantile(values, n, 0.5) };

    for (int i = 0; i < n; i++)
        values[i] = fabs(values[i] - usual.median);
    usual.scatter = SCATTER * fit_quantile(values, n, 0.5);
    return usual;
}

/* The ways in which a pair may be slow. */
enum figure { TO_AND_FRO, THERE, BACK, SMALL, N_FIGURES };

static double figure_of(const struct link_trial *trial, enum figure figure, int n_sizes,
                        const size_t *bytes)
{
    switch (figure) {
    case TO_AND_FRO: return (double)bytes[n_sizes - 1] / trial->quiet[n_sizes - 1];
    case THERE: return trial->there;
    case BACK: return trial->back;
    default: return trial->quiet[0];
    }
}

static bool is_slow(double value, enum figure figure, const struct usual *usual)
{
    if (figure == SMALL)
        return value > SLOW_LATENCY * usual->median && value > usual->median + usual->scatter;
    return value < SLOW_RATE * usual->median && value < usual->median - usual->scatter;
}

/* One past the last pair of the class of pair 'first'. */
static int class_end(const struct pairs *pairs, int first)
{
    int end = first;

    while (end < pairs->n_pairs && pairs->pairs[end].class == pairs->pairs[first].class)
        end++;
    return end;
}

static struct usual figures_of(const struct pairs *pairs, const struct link_trial *trials,
                               int first, int end, enum figure figure, bool full,
                               double *values)
{
    size_t bytes[LINKS_SIZES];
    int n = links_sizes(full, pairs->gpus, bytes);

    /* A direction may have gone unmeasured, in all or in none. */
    for (int i = first; i < end; i++)
        values[i - first] = figure_of(&trials[i], figure, n, bytes);
    return usual_of(values, end - first);
}

/* A pair that is slow in one rate is judged by what is usual alone in the others: where other work
 * slowed some of its class it need not stand out.
 */
static unsigned other_rates(const struct link_trial *trial, const struct usual *usual,
                            unsigned slow, int n_sizes, const size_t *bytes)
{
    const enum figure rates[] = { TO_AND_FRO, THERE, BACK };
    unsigned more = 0;

    for (int i = 0; i < 3; i++)
        if (figure_of(trial, rates[i], n_sizes, bytes) < SLOW_RATE * usual[rates[i]].median)
            more |= 1u << rates[i];
    return slow & (1u << TO_AND_FRO | 1u << THERE | 1u << BACK) ? slow | more : slow;
}

/* For each pair the bits of the figures in which it is slow. */
static unsigned *find_slow(const struct pairs *pairs, const struct link_trial *trials,
                           bool full, struct usual *usuals)
{
    unsigned *slow = mem_new((size_t)pairs->n_pairs, sizeof(*slow));
    double *values = mem_new((size_t)pairs->n_pairs, sizeof(*values));
    size_t bytes[LINKS_SIZES];
    int n = links_sizes(full, pairs->gpus, bytes);

    for (int first = 0, end; first < pairs->n_pairs; first = end) {
        struct usual *usual = &usuals[pairs->pairs[first].class * N_FIGURES];

        end = class_end(pairs, first);
        for (int f = 0; f < N_FIGURES && end - first >= FEWEST; f++) {
            usual[f] = figures_of(pairs, trials, first, end, (enum figure)f, full,
                                  values);
            for (int i = first; i < end; i++)
                if (is_slow(figure_of(&trials[i], (enum figure)f, n, bytes), (enum figure)f,
                            &usual[f]))
                    slow[i] |= 1u << f;
        }
        for (int i = first; i < end; i++)
            slow[i] = other_rates(&trials[i], usual, slow[i], n, bytes);
    }
    free(values);
    return slow;
}

int links_suspects(const struct pairs *pairs, const struct link_trial *trials, bool full,
                   bool *suspect)
{
    struct usual *usuals = mem_new((size_t)pairs->n_classes * N_FIGURES, sizeof(*usuals));
    unsigned *slow = find_slow(pairs, trials, full, usuals);
    int n = 0;

    for (int i = 0; i < pairs->n_pairs; i++) {
        suspect[i] = slow[i] != 0;
        n += suspect[i];
    }
    free(slow);
    free(usuals);
    return n;
}

void links_merge(struct link_trial *trial, const struct link_trial *again)
{
    for (int s = 0; s < LINKS_SIZES; s++) {
        trial->quiet[s] = fmin(trial->quiet[s], again->quiet[s]);
        trial->median[s] = fmin(trial->median[s], again->median[s]);
    }
    trial->there = fmax(trial->there, again->there);
    trial->back = fmax(trial->back, again->back);
}

/* Within a node devices are named, across nodes nodes. */
static const char *name_of(const struct cluster *cluster, const struct pair_class *class,
                           int device)
{
    const struct cluster_device *d = &cluster->devices[device];

    return d->node > 0 && class->kind <= CLUSTER_SWITCH ? cluster->places[d->node].name : d->id;
}

static const char *host_of(const struct cluster *cluster, int device)
{
    const struct cluster_device *d = &cluster->devices[device];

    return d->node > 0 ? cluster->places[d->node].name : d->id;
}

static char *join(const struct cluster *cluster, const struct pair_class *class,
                  const char *how, int a, int b)
{
    return mem_printf("%s %s %s", name_of(cluster, class, a), how, name_of(cluster, class, b));
}

/* In how many slow pairs is the node of the device? */
static int count_slow(const struct cluster *cluster, const struct pairs *pairs,
                      const unsigned *slow, int device)
{
    int node = cluster->devices[device].node, n = 0;

    for (int i = 0; i < pairs->n_pairs; i++)
        n += slow[i] && (node > 0 ? cluster->devices[pairs->pairs[i].a].node == node ||
                                        cluster->devices[pairs->pairs[i].b].node == node
                                  : pairs->pairs[i].a == device || pairs->pairs[i].b == device);
    return n;
}

static void add_slow(struct links *links, const struct cluster *cluster,
                     const struct pairs *pairs, const unsigned *slow, int i, enum figure figure,
                     double value, double usual)
{
    const struct pair *pair = &pairs->pairs[i];
    const struct pair_class *class = &pairs->classes[pair->class];
    int from = figure == BACK ? pair->b : pair->a, to = figure == BACK ? pair->a : pair->b;
    bool guilty = count_slow(cluster, pairs, slow, pair->b) >
                  count_slow(cluster, pairs, slow, pair->a);
    struct links_slow *s = mem_push((void **)&links->slow, &links->n_slow, sizeof(*s));

    *s = (struct links_slow){
        .host = mem_strdup(host_of(cluster, guilty ? pair->b : pair->a)),
        .what = join(cluster, class, figure == THERE || figure == BACK ? "->" : "-", from, to),
        .class = pairs_class_name(cluster, class), .is_latency = figure == SMALL,
        .value = value, .usual = usual,
    };
}

/* Slow in one direction: that is said; in both, the pair. */
static void name_slow(struct links *links, const struct cluster *cluster,
                      const struct pairs *pairs, const struct link_trial *trials)
{
    struct usual *usuals = mem_new((size_t)pairs->n_classes * N_FIGURES, sizeof(*usuals));
    unsigned *slow = find_slow(pairs, trials, links->full, usuals);

    for (int i = 0; i < pairs->n_pairs; i++) {
        const struct usual *usual = &usuals[pairs->pairs[i].class * N_FIGURES];
        const unsigned both = 1u << THERE | 1u << BACK;
        unsigned ways = slow[i] & both;
        bool pair = slow[i] & 1u << TO_AND_FRO && (ways == 0 || ways == both);

        for (int f = 0; f < N_FIGURES; f++) {
            bool one_way = f == THERE || f == BACK;
            bool said = one_way ? !pair : f == SMALL || pair;

            if (slow[i] & 1u << f && said)
                add_slow(links, cluster, pairs, slow, i, (enum figure)f,
                         figure_of(&trials[i], (enum figure)f, links->n_sizes, links->bytes),
                         usual[f].median);
        }
    }
    free(slow);
    free(usuals);
}

/* Of each size what half of the pairs have, and a line through that. */
static void fit_class(const struct links *links, struct links_class *class,
                      const struct link_trial *trials, int n)
{
    double *values = mem_new((size_t)n, sizeof(*values)), noise = 0, bytes[LINKS_SIZES];
    for (int s = 0; s < links->n_sizes; s++) {
        for (int i = 0; i < n; i++)
            values[i] = trials[i].quiet[s];
        class->seconds[s] = fit_quantile(values, n, 0.5);
        for (int i = 0; i < n; i++)
            values[i] = trials[i].median[s] / trials[i].quiet[s] - 1;
        noise += fit_quantile(values, n, 0.5) / links->n_sizes;
    }
    for (int s = 0; s < links->n_sizes; s++)
        bytes[s] = (double)links->bytes[s];
    class->curve = fit_curve(links->n_sizes, bytes, class->seconds);
    class->error = fit_error(&class->curve, links->n_sizes, bytes, class->seconds);
    class->noise = noise;
    free(values);
}

static void find_slowest(const struct links *links, const struct cluster *cluster,
                         const struct pairs *pairs, const struct link_trial *trials, int first,
                         int end, struct links_class *class)
{
    int last = links->n_sizes - 1, slowest = first;

    for (int i = first; i < end; i++)
        if (trials[i].quiet[last] > trials[slowest].quiet[last])
            slowest = i;
    class->slowest = join(cluster, &pairs->classes[pairs->pairs[first].class], "-",
                          pairs->pairs[slowest].a, pairs->pairs[slowest].b);
    class->slowest_bandwidth = (double)links->bytes[last] / trials[slowest].quiet[last];
}

/* What half of the loads had. */
static void add_loads(const struct pairs *pairs, const double *loads, int which,
                      struct links_class *class)
{
    double *values = mem_new((size_t)pairs->n_loads, sizeof(*values));
    int n = 0;

    for (int i = 0; i < pairs->n_loads; i++)
        if (pairs->loads[i].class == which) {
            values[n++] = loads[i];
            class->together = pairs->loads[i].n > class->together ? pairs->loads[i].n
                                                                  : class->together;
        }
    if (n > 0)
        class->together_bandwidth = fit_quantile(values, n, 0.5);
    free(values);
}

struct links *links_new(const struct cluster *cluster, const struct pairs *pairs,
                        const struct link_trial *trials, const double *loads, bool full)
{
    struct links *links = mem_new(1, sizeof(*links));

    links->full = full;
    links->n_sizes = links_sizes(full, pairs->gpus, links->bytes);
    for (int first = 0, end; first < pairs->n_pairs; first = end) {
        const struct pair_class *of = &pairs->classes[pairs->pairs[first].class];
        struct links_class *class =
            mem_push((void **)&links->classes, &links->n_classes, sizeof(*class));

        end = class_end(pairs, first);
        class->name = pairs_class_name(cluster, of);
        class->way = of->way ? mem_strdup(of->way) : NULL;
        class->depth = of->depth;
        class->kind = (int)of->kind;
        class->pairs = end - first;
        fit_class(links, class, trials + first, end - first);
        find_slowest(links, cluster, pairs, trials, first, end, class);
        add_loads(pairs, loads, pairs->pairs[first].class, class);
    }
    if (full)
        name_slow(links, cluster, pairs, trials);
    return links;
}

void links_free(struct links *links)
{
    if (!links)
        return;
    for (int i = 0; i < links->n_classes; i++) {
        free(links->classes[i].name);
        free(links->classes[i].way);
        free(links->classes[i].slowest);
    }
    for (int i = 0; i < links->n_slow; i++) {
        free(links->slow[i].host);
        free(links->slow[i].what);
        free(links->slow[i].class);
    }
    free(links->classes);
    free(links->slow);
    free(links);
}

static void set_wire(struct cluster_place *place, const struct links_class *class)
{
    double one = class->curve.line.bandwidth;
    double rails = place->up_bandwidth / place->flow_bandwidth;

    /* One transfer that crosses a switch's uplink does not show what that carries for all. */
    if (place->kind == CLUSTER_SWITCH && isinf(place->up_bandwidth) && class->together == 0)
        return;
    if (class->together > 0) {
        place->up_bandwidth = fmax(one, class->together_bandwidth);
        rails = place->up_bandwidth / one;
    } else {
        rails = isfinite(rails) ? fmax(rails, 1) : 1;
        place->up_bandwidth = one * rails;
    }
    place->flow_bandwidth = rails > SEVERAL ? one : INFINITY;
    place->origin = ORIGIN_MEASURED;
}

/* What went over a wire on its way further up cannot have been faster than the wire. */
static void raise_wire(struct cluster_place *place, double bandwidth)
{
    if (fmin(place->up_bandwidth, place->flow_bandwidth) >= bandwidth)
        return;
    place->up_bandwidth = fmax(place->up_bandwidth, bandwidth);
    if (place->flow_bandwidth < bandwidth)
        place->flow_bandwidth = bandwidth;
    place->origin = ORIGIN_MEASURED;
}

static void apply_class(const struct links_class *class, struct cluster *cluster,
                        const int *depths, bool *inside)
{
    for (int p = 0; p < cluster->n_places; p++) {
        struct cluster_place *place = &cluster->places[p];
        int parent = place->parent;

        if (depths[p] == class->depth && (int)place->kind == class->kind) {
            place->latency = class->curve.line.latency;
            place->eager = (struct cluster_eager){ class->curve.eager_bytes,
                                                   class->curve.eager_latency,
                                                   class->curve.copy_bandwidth };
            place->latency_origin = ORIGIN_MEASURED;
        }
        inside[p] = parent >= 0 && (inside[parent] || (depths[parent] == class->depth &&
                                    (int)cluster->places[parent].kind == class->kind));
        if (inside[p] && depths[p] == class->depth + 1)
            set_wire(place, class);
        else if (inside[p])
            raise_wire(place, class->curve.line.bandwidth);
    }
}

void links_apply(const struct links *links, struct cluster *cluster)
{
    int *depths = mem_new((size_t)cluster->n_places, sizeof(*depths));
    bool *inside = mem_new((size_t)cluster->n_places, sizeof(*inside));

    for (int p = 1; p < cluster->n_places; p++)
        depths[p] = depths[cluster->places[p].parent] + 1;
    /* The closest first: what lies further off raises their wires. */
    for (int i = 0; i < links->n_classes; i++)
        apply_class(&links->classes[i], cluster, depths, inside);
    free(depths);
    free(inside);
}

int links_sum_sizes(bool full, bool gpus, size_t floats[LINKS_SIZES])
{
    static const size_t quick[] = { 1 << 10, 16 << 10, 256 << 10 };
    static const size_t all[] = { 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20 };
    int n = full ? 5 : 3;

    memcpy(floats, full ? all : quick, (size_t)n * sizeof(*floats));
    for (int i = 1; i < n && gpus; i++)
        floats[i] *= GPUS_MORE;
    return n;
}

static double in_range(double factor)
{
    return fmin(fmax(factor, LEAST_FACTOR), MOST_FACTOR);
}

void links_apply_sums(struct cluster *cluster, int n, const struct links_sums *sums)
{
    int *all = mem_new((size_t)cluster->n_devices, sizeof(*all));
    double bytes[LINKS_SIZES], latency, ring;
    struct fit_line line;

    for (int d = 0; d < cluster->n_devices; d++)
        all[d] = d;
    for (int s = 0; s < n; s++)
        bytes[s] = (double)sums->floats[s] * 4;
    line = fit_line(n, bytes, sums->seconds);
    cluster->sum_latency_factor = cluster->sum_bandwidth_factor = 1;
    latency = cluster_allreduce_time(cluster, cluster->n_devices, all, 0);
    ring = cluster_allreduce_time(cluster, cluster->n_devices, all, bytes[n - 1]) - latency;
    /* Wires whose fit has no slope, on a busy machine, may make a ring of no time at all. */
    cluster->sum_bandwidth_factor = in_range(bytes[n - 1] / line.bandwidth / ring);
    if (latency > 0)
        cluster->sum_latency_factor = in_range(line.latency / latency);
    free(all);
}
