/* SPDX-License-Identifier: MIT */
#include "train/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"

#define TAG 0
#define MOST_SAMPLES 4          /* places of one depth that are measured */
#define SMALL_TRIPS 41
#define LARGE_TRIPS 9
#define LARGE ((size_t)512 << 10)
#define BUFFERS 16              /* in turn, so that messages do not stay in a cache */
#define SUM_ROUNDS 7
#define SUM_SMALL ((size_t)1 << 10)     /* floats */
#define SLICES 8
#define SUM_LARGE ((size_t)256 << 10)

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare);
    return values[n / 2];
}

/* Two ranks that meet in a place, and what they found. */
struct pair {
    int place, depth;
    int a, b;               /* ranks */
    double latency, bandwidth;
};

static int depth_of(const struct cluster *cluster, int place)
{
    int depth = 0;

    for (; place > 0; place = cluster->places[place].parent)
        depth++;
    return depth;
}

/* The child of 'place' under which the device is; -1: it is elsewhere. */
static int child_above(const struct cluster *cluster, int place, int device)
{
    int child = cluster->devices[device].place;

    while (child > 0 && cluster->places[child].parent != place)
        child = cluster->places[child].parent;
    return child > 0 ? child : -1;
}

/* The first devices of the first two children that have any. */
static bool find_pair(const struct cluster *cluster, int place, struct pair *pair)
{
    int first = -1;

    for (int d = 0; d < cluster->n_devices; d++) {
        int child = child_above(cluster, place, d);

        if (child < 0)
            continue;
        if (first < 0) {
            first = child;
            pair->a = cluster->devices[d].rank;
        } else if (child != first) {
            pair->b = cluster->devices[d].rank;
            pair->place = place;
            pair->depth = depth_of(cluster, place);
            return true;
        }
    }
    return false;
}

static int find_pairs(const struct cluster *cluster, struct pair **pairs)
{
    int found[16] = { 0 }, n = 0;
    struct pair pair = { 0 };

    for (int p = 0; p < cluster->n_places; p++) {
        if (cluster->places[p].kind == CLUSTER_DEVICE || found[depth_of(cluster, p)] ==
            MOST_SAMPLES || !find_pair(cluster, p, &pair))
            continue;
        found[pair.depth]++;
        *(struct pair *)mem_push((void **)pairs, &n, sizeof(pair)) = pair;
    }
    return n;
}

/* There and back; the one-way time is half of it. */
static int trip(struct comm *comm, const struct pair *pair, void *data, size_t bytes,
                struct comm_request *request, double *seconds, struct err *err)
{
    bool starts = comm_rank(comm) == pair->a;
    int peer = starts ? pair->b : pair->a;
    double start = now();

    for (int leg = 0; leg < 2; leg++) {
        int status = (leg == 0) == starts
                         ? comm_send(comm, data, bytes, peer, TAG, request, err)
                         : comm_receive(comm, data, bytes, peer, TAG, request, err);

        if (status || comm_wait(request, err))
            return -1;
    }
    *seconds = (now() - start) / 2;
    return 0;
}

static int trips(struct comm *comm, const struct pair *pair, size_t bytes, int n,
                 double *seconds, struct err *err)
{
    struct comm_request *request = comm_request_new(comm);
    char *data = mem_new(BUFFERS, bytes);
    double times[SMALL_TRIPS], first;
    int status;

    memset(data, 1, BUFFERS * bytes);
    status = trip(comm, pair, data, bytes, request, &first, err);
    for (int i = 0; i < n && !status; i++)
        status = trip(comm, pair, data + (size_t)(i % BUFFERS) * bytes, bytes, request,
                      &times[i], err);
    if (!status)
        *seconds = median(times, n);
    comm_request_free(request);
    free(data);
    return status;
}

/* What rank 'from' has in '*value', all have afterwards. */
static int share(struct comm *comm, int from, void *value, size_t bytes, struct err *err)
{
    void *data = value;
    size_t size = bytes;

    if (comm_broadcast(comm, from, &data, &size, err))
        return -1;
    if (comm_rank(comm) == from)
        return 0;
    if (size == bytes)
        memcpy(value, data, bytes);
    free(data);
    return size == bytes ? 0 : err_set(err, "measurement: %zu bytes for %zu", size, bytes);
}

static int measure_pair(struct comm *comm, struct pair *pair, struct err *err)
{
    int me = comm_rank(comm);
    double small = 0, large = 0, figures[2];

    if ((me == pair->a || me == pair->b) &&
        (trips(comm, pair, 1, SMALL_TRIPS, &small, err) ||
         trips(comm, pair, LARGE, LARGE_TRIPS, &large, err)))
        return err_prefix(err, "measurement");
    figures[0] = small;
    figures[1] = (double)LARGE / fmax(large - small, large / 10);
    if (share(comm, pair->a, figures, sizeof(figures), err))
        return -1;
    pair->latency = figures[0];
    pair->bandwidth = figures[1];
    return 0;
}

/* One pair that crosses a switch's uplink does not show what that carries for all below. */
static bool is_unlimited_switch(const struct cluster_place *place)
{
    return place->kind == CLUSTER_SWITCH && isinf(place->up_bandwidth);
}

/* Places of one depth are taken to be alike. */
static void apply(struct cluster *cluster, const struct pair *pairs, int n, int depth)
{
    double latencies[MOST_SAMPLES], bandwidths[MOST_SAMPLES], latency, bandwidth;
    int found = 0;

    for (int i = 0; i < n; i++)
        if (pairs[i].depth == depth) {
            latencies[found] = pairs[i].latency;
            bandwidths[found++] = pairs[i].bandwidth;
        }
    if (found == 0)
        return;
    latency = median(latencies, found);
    bandwidth = median(bandwidths, found);
    for (int p = 0; p < cluster->n_places; p++) {
        struct cluster_place *place = &cluster->places[p];
        int at = depth_of(cluster, p);

        if (at == depth && place->kind != CLUSTER_DEVICE) {
            place->latency = latency;
            place->latency_origin = ORIGIN_MEASURED;
        } else if (at == depth + 1 && !is_unlimited_switch(place)) {
            place->up_bandwidth = bandwidth;
            place->origin = ORIGIN_MEASURED;
        }
    }
}

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Compute for so many seconds; between the slices ask after the request, as a step does. */
static int compute(double seconds, struct comm_request *request, struct err *err)
{
    bool done = !request;

    for (int slice = 0; slice < SLICES && seconds > 0; slice++) {
        double start = cpu_seconds();

        while (cpu_seconds() - start < seconds / SLICES)
            continue;
        if (!done && comm_test(request, &done, err) < 0)
            return -1;
    }
    return 0;
}

/* A sum of 'n' numbers (0: none), with so many seconds of computing meanwhile. */
static int time_sum(struct comm *comm, struct comm_group *group, float *data, size_t n,
                    double work, double *seconds, struct err *err)
{
    struct comm_request *request = comm_request_new(comm);
    double times[SUM_ROUNDS], start;
    int status = 0;

    for (int i = -1; i < SUM_ROUNDS && !status; i++) {
        status = comm_fence(comm, err);
        start = now();
        if (!status && n > 0)
            status = comm_allreduce(group, data, n, DTYPE_F32, false, request, err);
        status = status || compute(work, n > 0 ? request : NULL, err) ||
                 (n > 0 && comm_wait(request, err));
        if (i >= 0)
            times[i] = now() - start;
    }
    comm_request_free(request);
    if (!status)
        *seconds = median(times, SUM_ROUNDS);
    return status ? -1 : share(comm, 0, seconds, sizeof(*seconds), err);
}

/* How much of a sum's time passes while the rank computes: work that takes as long as the sum,
 * by itself and beside it.
 */
static int measure_overlap(struct comm *comm, struct comm_group *group, float *data,
                           double sum, double *overlap, struct err *err)
{
    double alone, both;

    if (time_sum(comm, group, data, 0, sum, &alone, err) ||
        time_sum(comm, group, data, SUM_LARGE, sum, &both, err))
        return -1;
    *overlap = fmin(fmax((alone + sum - both) / fmin(alone, sum), 0), 1);
    return 0;
}

/* Sums over all ranks, of few and of many bytes: how much longer than the model's ring? */
static int measure_sums(struct comm *comm, struct cluster *cluster, struct err *err)
{
    int n = comm_size(comm), status = -1;
    int *ranks = mem_new((size_t)n, sizeof(*ranks)), *all = mem_new((size_t)n, sizeof(*all));
    float *data = mem_new(SUM_LARGE, sizeof(*data));
    double small, large, wires, trips_only;
    struct comm_group *group;

    for (int i = 0; i < n; i++)
        ranks[i] = all[i] = i;
    group = comm_group_new(comm, n, ranks, err);
    if (!group || time_sum(comm, group, data, SUM_SMALL, 0, &small, err) ||
        time_sum(comm, group, data, SUM_LARGE, 0, &large, err) ||
        measure_overlap(comm, group, data, large, &cluster->sum_overlap, err))
        goto out;
    cluster->sum_latency_factor = cluster->sum_bandwidth_factor = 1;
    trips_only = cluster_allreduce_time(cluster, n, all, 0);
    wires = cluster_allreduce_time(cluster, n, all, (double)(SUM_LARGE - SUM_SMALL) * 4) -
            trips_only;
    cluster->sum_bandwidth_factor = fmax((large - small) / wires, 1e-3);
    cluster->sum_latency_factor = fmax(small / trips_only, 1e-3);
    status = 0;
out:
    comm_group_free(group);
    free(ranks);
    free(all);
    free(data);
    return status;
}

int measure_links(struct comm *comm, struct cluster *cluster, struct err *err)
{
    struct pair *pairs = NULL;
    int n = find_pairs(cluster, &pairs), status = 0;

    for (int i = 0; i < n && !status; i++)
        status = measure_pair(comm, &pairs[i], err);
    for (int depth = 0; depth < 16 && !status; depth++)
        apply(cluster, pairs, n, depth);
    free(pairs);
    return status ? -1 : measure_sums(comm, cluster, err);
}
