/* SPDX-License-Identifier: MIT */
#include "train/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "topology/fit.h"
#include "train/wire.h"

#define TAG 0
#define MOST_TRIPS 256
#define LITTLE ((size_t)64 << 10)       /* so small that the message before it matters */
#define POOL ((size_t)16 << 20)         /* more than caches of a core */
#define SETTLED 0.03                    /* relative difference of two halves */
#define BURST 8                         /* messages in one direction, */
#define PIECE ((size_t)1 << 20)         /* of so many bytes */
#define STREAM_SECONDS 0.05
#define MOST_BURSTS 7
#define SUM_ROUNDS 31
#define SLICES 8

struct probe {
    struct comm *comm;
    struct comm_request *request;       /* what the two tell each other, and sums */
    struct wire *wire;
    size_t at;                          /* of its pool: where the next message starts */
    int n[PROBE_SIZES];                 /* times that were taken */
    double times[PROBE_SIZES][MOST_TRIPS];
};

/* What this thread itself has computed. */
static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

size_t probe_pool(size_t most)
{
    most = most < PIECE ? PIECE : most;
    return most < POOL / 2 ? POOL : 2 * most;
}

struct probe *probe_new(struct comm *comm, struct wire *wire)
{
    struct probe *probe = mem_new(1, sizeof(*probe));

    probe->comm = comm;
    probe->wire = wire;
    probe->request = comm_request_new(comm);
    return probe;
}

void probe_free(struct probe *probe)
{
    if (!probe)
        return;
    comm_request_free(probe->request);
    free(probe);
}

static char *take_buffer(struct probe *probe, size_t bytes)
{
    char *data;

    if (probe->at + bytes > probe->wire->size)
        probe->at = 0;
    data = probe->wire->pool + probe->at;
    probe->at += (bytes + 63) / 64 * 64;
    return data;
}

/* What is not measured. */
static int tell(struct probe *probe, int peer, bool send, void *data, size_t bytes,
                struct err *err)
{
    int status = send ? comm_send(probe->comm, data, bytes, peer, TAG, probe->request, err)
                      : comm_receive(probe->comm, data, bytes, peer, TAG, probe->request, err);

    return status ? -1 : comm_wait(probe->request, err);
}

static int move(struct probe *probe, int peer, bool send, char *data, size_t bytes,
                struct err *err)
{
    struct wire *wire = probe->wire;

    return wire->post(wire, 0, peer, send, data, bytes, err) ? -1 : wire->wait(wire, 0, err);
}

static int trip(struct probe *probe, int peer, bool starts, size_t bytes, double *seconds,
                struct err *err)
{
    char *data = take_buffer(probe, bytes);
    double start = clock_now();

    if (move(probe, peer, starts, data, bytes, err) ||
        move(probe, peer, !starts, data, bytes, err))
        return -1;
    *seconds = (clock_now() - start) / 2;
    return 0;
}

/* Of each size so many trips, the sizes in turn. */
static int block(struct probe *probe, int peer, bool starts, int n, const size_t *bytes,
                 const int *counts, struct err *err)
{
    double seconds;
    int left = 1;

    for (int round = 0; left > 0; round++) {
        left = 0;
        for (int s = 0; s < n; s++) {
            if (round >= counts[s])
                continue;
            left += round + 1 < counts[s];
            if ((bytes[s] <= LITTLE && trip(probe, peer, starts, bytes[s], &seconds, err)) ||
                trip(probe, peer, starts, bytes[s], &seconds, err))
                return -1;
            if (probe->n[s] < MOST_TRIPS)
                probe->times[s][probe->n[s]++] = seconds;
        }
    }
    return 0;
}

static double quiet_of(const double *times, int n)
{
    double copy[MOST_TRIPS];

    memcpy(copy, times, (size_t)n * sizeof(*copy));
    return fit_quiet(copy, n);
}

/* Do the first and the second half of the times say the same? */
static bool is_settled(const struct probe *probe, int n)
{
    for (int s = 0; s < n; s++) {
        int half = probe->n[s] / 2;
        double one = quiet_of(probe->times[s], half);
        double other = quiet_of(probe->times[s] + half, probe->n[s] - half);

        if (fabs(one - other) > SETTLED * fmin(one, other))
            return false;
    }
    return true;
}

/* How often, from how long the first trip took: each size gets its share of the time. */
static void count_trips(const struct probe *probe, const struct probe_effort *effort, int n,
                        const size_t *bytes, int *counts)
{
    for (int s = 0; s < n; s++) {
        double cost = 2 * probe->times[s][0] * (bytes[s] <= LITTLE ? 2 : 1);
        double fit = effort->seconds / (n * cost);

        counts[s] = fit > effort->most ? effort->most : (int)fit;
        counts[s] = counts[s] < effort->fewest ? effort->fewest : counts[s];
    }
}

/* Who starts says how many trips follow; zero: it is over. */
static int agree(struct probe *probe, int peer, bool starts, int n, int *counts,
                 struct err *err)
{
    return tell(probe, peer, starts, counts, (size_t)n * sizeof(*counts), err);
}

int probe_trips(struct probe *probe, int peer, bool starts, const struct probe_effort *effort,
                int n, const size_t *bytes, double *quiet, double *median, struct err *err)
{
    int counts[PROBE_SIZES];

    memset(probe->n, 0, sizeof(probe->n));
    for (int s = 0; s < n; s++)
        counts[s] = 1;
    for (int repeat = -1;; repeat++) {
        if (agree(probe, peer, starts, n, counts, err))
            return -1;
        if (counts[0] == 0)
            break;
        if (block(probe, peer, starts, n, bytes, counts, err))
            return -1;
        if (starts && repeat < 0)
            count_trips(probe, effort, n, bytes, counts);
        else if (starts && (repeat >= effort->repeats || is_settled(probe, n)))
            memset(counts, 0, sizeof(counts));
        if (repeat < 0)
            memset(probe->n, 0, sizeof(probe->n));
    }
    for (int s = 0; s < n && starts; s++) {
        quiet[s] = fit_quiet(probe->times[s], probe->n[s]);
        median[s] = fit_quantile(probe->times[s], probe->n[s], 0.5);
    }
    return 0;
}

int probe_burst(struct probe *probe, int peer, bool sends, size_t *bytes, double *seconds,
                struct err *err)
{
    struct wire *wire = probe->wire;
    char arrived = 1;
    double start = clock_now();

    for (int i = 0; i < BURST + WIRE_SLOTS; i++) {
        int slot = i % WIRE_SLOTS;

        if ((i >= WIRE_SLOTS && wire->wait(wire, slot, err)) ||
            (i < BURST && wire->post(wire, slot, peer, sends, take_buffer(probe, PIECE), PIECE,
                                     err)))
            return -1;
    }
    if (tell(probe, peer, !sends, &arrived, 1, err))
        return -1;
    *bytes = BURST * PIECE;
    *seconds = clock_now() - start;
    return 0;
}

int probe_stream(struct probe *probe, int peer, bool sends, double *rate, struct err *err)
{
    double times[MOST_BURSTS], sum = 0;
    int n = 0, more = 1;
    size_t bytes = 0;

    for (;;) {
        if (agree(probe, peer, sends, 1, &more, err))
            return -1;
        if (!more)
            break;
        if (probe_burst(probe, peer, sends, &bytes, &times[n], err))
            return -1;
        sum += times[n++];
        if (sends)
            more = n < MOST_BURSTS && (n < 2 || sum < STREAM_SECONDS);
    }
    if (sends)
        *rate = (double)bytes / fit_quiet(times, n);
    return tell(probe, peer, sends, rate, sizeof(*rate), err);
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

static int time_sum(struct probe *probe, struct comm_group *group, size_t floats, double work,
                    double *seconds, struct err *err)
{
    struct comm_request *request = group ? probe->request : NULL;
    float *data = (float *)(void *)take_buffer(probe, floats * sizeof(float));
    int status = comm_fence(probe->comm, err);
    double start = clock_now();

    if (!status && !group)
        status = probe->wire->sum(probe->wire, data, floats, err);
    else if (!status && floats > 0)
        status = comm_allreduce(group, data, floats, DTYPE_F32, false, request, err);
    status = status || compute(work, floats > 0 ? request : NULL, err) ||
             (request && floats > 0 && comm_wait(request, err));
    *seconds = clock_now() - start;
    return status ? -1 : 0;
}

/* What rank 0 has, all have afterwards. */
static int share(struct comm *comm, double *values, int n, struct err *err)
{
    void *data = values;
    size_t size = (size_t)n * sizeof(*values), bytes = size;

    if (comm_broadcast(comm, 0, &data, &size, err))
        return -1;
    if (comm_rank(comm) == 0)
        return 0;
    if (size == bytes)
        memcpy(values, data, bytes);
    free(data);
    return size == bytes ? 0 : err_set(err, "measurement: %zu bytes for %zu", size, bytes);
}

int probe_sums(struct probe *probe, struct comm_group *group, int n, const size_t *floats,
               const double *work, double *seconds, struct err *err)
{
    double ignored;

    if (group)
        memset(probe->wire->pool, 0, probe->wire->size);    /* sums of zeros stay what they are */
    for (int round = -1; round < SUM_ROUNDS; round++)
        for (int s = 0; s < n; s++) {
            double *time = round < 0 ? &ignored : &probe->times[s][round];

            if ((floats[s] * sizeof(float) <= LITTLE &&
                 time_sum(probe, group, floats[s], 0, time, err)) ||
                time_sum(probe, group, floats[s], work ? work[s] : 0, time, err))
                return -1;
        }
    for (int s = 0; s < n; s++)
        seconds[s] = fit_quantile(probe->times[s], SUM_ROUNDS, 0.5);
    return share(probe->comm, seconds, n, err);
}

static int time_message(struct probe *probe, int peer, bool sends, size_t bytes, double work,
                        double *seconds, struct err *err)
{
    struct comm_request *request = peer >= 0 && bytes > 0 ? probe->request : NULL;
    char *data = take_buffer(probe, bytes);
    int status = comm_fence(probe->comm, err);
    double start = clock_now(), computed;

    work = peer < 0 ? 0 : work;
    if (!status && request)
        status = sends ? comm_send(probe->comm, data, bytes, peer, TAG, request, err)
                       : comm_receive(probe->comm, data, bytes, peer, TAG, request, err);
    status = status || compute(work, request, err);
    computed = clock_now() - start;
    status = status || (request && comm_wait(request, err));
    *seconds = sends && work > 0 ? computed : clock_now() - start;
    return status ? -1 : 0;
}

int probe_messages(struct probe *probe, int peer, size_t bytes, int n, const bool *moves,
                   const double *work, struct probe_ends *ends, struct err *err)
{
    bool first = comm_rank(probe->comm) < peer;
    double ignored;

    for (int round = -2; round < 2 * SUM_ROUNDS; round++)
        for (int i = 0; i < n; i++) {
            bool sends = (round % 2 == 0) == first;
            double *time = round < 0 ? &ignored : &probe->times[2 * i + !sends][round / 2];

            if (time_message(probe, peer, sends, moves[i] ? bytes : 0, work[i], time, err))
                return -1;
        }
    for (int i = 0; i < n; i++) {
        ends[i].send = fit_quiet(probe->times[2 * i], SUM_ROUNDS);
        ends[i].receive = fit_quiet(probe->times[2 * i + 1], SUM_ROUNDS);
    }
    return share(probe->comm, &ends[0].send, 2 * n, err);
}
