/* SPDX-License-Identifier: MIT */
#include "train/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/progress.h"
#include "topology/fit.h"
#include "topology/pairs.h"
#include "train/measure_private.h"
#include "train/probe.h"
#include "train/wire.h"

/* What one rank tells the others of one pair, or of one transfer of a load. */
struct pair_record {
    int pair;
    struct link_trial trial;
};

struct flow_record {
    int flow;
    double bytes, seconds[MEASURE_ROUNDS];
};

static int rank_of(const struct measuring *m, int device)
{
    return m->cluster->devices[device].rank;
}

/* The other rank of a pair; -1: this one is none of both. 'starts': is this one the first? */
static int peer_of(const struct measuring *m, const struct pair *pair, bool *starts)
{
    int first = rank_of(m, pair->a), me = comm_rank(m->comm);
    int other = pair->b == pair->a ? m->second[pair->a] : rank_of(m, pair->b);

    *starts = me == first;
    return *starts ? other : me == other ? first : -1;
}

static struct probe *probe_of(const struct measuring *m, const struct pair *pair)
{
    const struct cluster_device *devices = m->cluster->devices;
    bool apart = devices[pair->a].node != devices[pair->b].node;

    return pair->a == pair->b || (apart && m->hosts_between_nodes) ? m->host_probe : m->probe;
}

static int measure_pair(struct measuring *m, const struct pair *pair, int peer, bool starts,
                        struct link_trial *trial, struct err *err)
{
    static const struct probe_effort quick = { 0.02, 5, 40, 0 };
    static const struct probe_effort full = { 0.25, 20, 100, 1 };
    struct probe *probe = probe_of(m, pair);

    if (probe_trips(probe, peer, starts, m->full ? &full : &quick, m->n_sizes, m->bytes,
                    trial->quiet, trial->median, err))
        return -1;
    return m->full && (probe_stream(probe, peer, starts, &trial->there, err) ||
                       probe_stream(probe, peer, !starts, &trial->back, err)) ? -1 : 0;
}

/* What each rank has found, all have afterwards: 'take' is called with each record. */
static int share(struct measuring *m, const void *records, int n, size_t size,
                 void (*take)(struct measuring *m, const void *record), struct err *err)
{
    int ranks = comm_size(m->comm);
    const void **parts = mem_new((size_t)ranks, sizeof(*parts));
    size_t *sizes = mem_new((size_t)ranks, sizeof(*sizes));
    void *block = NULL, *record = mem_new(1, size);
    int status = comm_exchange(m->comm, records, (size_t)n * size, &block, parts, sizes, err);

    for (int r = 0; r < ranks && !status; r++)
        for (size_t at = 0; at + size <= sizes[r]; at += size) {
            memcpy(record, (const char *)parts[r] + at, size);
            take(m, record);
        }
    free(record);
    free(block);
    free(parts);
    free(sizes);
    return status;
}

static void take_pair(struct measuring *m, const void *record)
{
    const struct pair_record *r = record;

    if (m->again)
        links_merge(&m->trials[r->pair], &r->trial);
    else
        m->trials[r->pair] = r->trial;
}

static void take_flow(struct measuring *m, const void *record)
{
    const struct flow_record *r = record;

    m->flows[r->flow] = *r;
}

static void say(struct measuring *m, const char *what)
{
    if (m->progress)
        progress_update(m->progress, ++m->done, "%s", what);
}

/* All rounds of these pairs, of which 'index' (NULL: the same) says which of all they are. */
static int run_rounds(struct measuring *m, const struct pair *pairs, const int *index, int n,
                      int n_rounds, struct err *err)
{
    struct pair_record *records = NULL;
    int n_records = 0, status = 0;

    for (int round = 0; round < n_rounds && !status; round++) {
        for (int i = 0; i < n && !status; i++) {
            struct pair_record record = { .pair = index ? index[i] : i };
            bool starts;
            int peer = peer_of(m, &pairs[i], &starts);

            if (pairs[i].round != round || peer < 0)
                continue;
            status = measure_pair(m, &pairs[i], peer, starts, &record.trial, err);
            if (starts)
                *(struct pair_record *)mem_push((void **)&records, &n_records,
                                                sizeof(record)) = record;
        }
        status = status || comm_fence(m->comm, err) ? -1 : 0;
        say(m, "pairs of ranks");
    }
    if (status == 0)
        status = share(m, records, n_records, sizeof(*records), take_pair, err);
    free(records);
    return status;
}

/* Somebody else may have been at work: only what is slow twice is slow. */
static int measure_suspects(struct measuring *m, struct err *err)
{
    int n_pairs = m->pairs->n_pairs, n = 0, status = 0;
    bool *suspect = mem_new((size_t)n_pairs, sizeof(*suspect));
    int *index = mem_new((size_t)n_pairs, sizeof(*index));
    struct pair *pairs = mem_new((size_t)n_pairs, sizeof(*pairs));

    if (links_suspects(m->pairs, m->trials, m->full, suspect) > 0) {
        for (int i = 0; i < n_pairs; i++)
            if (suspect[i]) {
                pairs[n] = m->pairs->pairs[i];
                index[n++] = i;
            }
        m->again = true;
        status = run_rounds(m, pairs, index, n, pairs_schedule(m->cluster, n, pairs), err);
    }
    free(suspect);
    free(index);
    free(pairs);
    return status;
}

static int run_flow(struct measuring *m, int flow, int peer, bool sends, int round,
                    struct flow_record *record, struct err *err)
{
    size_t bytes;

    record->flow = flow;
    if (probe_burst(probe_of(m, &m->pairs->flows[flow]), peer, sends, &bytes, &record->seconds[round], err))
        return -1;
    record->bytes = (double)bytes;
    return 0;
}

/* A load takes as long as its slowest transfer. */
static double load_rate(const struct measuring *m, const struct pair_load *load)
{
    double times[MEASURE_ROUNDS] = { 0 }, bytes = 0;

    for (int i = load->first; i < load->first + load->n; i++) {
        bytes += m->flows[i].bytes;
        for (int round = 0; round < MEASURE_ROUNDS; round++)
            times[round] = fmax(times[round], m->flows[i].seconds[round]);
    }
    return bytes / fit_quiet(times, MEASURE_ROUNDS);
}

static int measure_loads(struct measuring *m, double *loads, struct err *err)
{
    const struct pairs *pairs = m->pairs;
    struct flow_record *records = NULL;
    int n = 0, status = 0;

    m->flows = mem_new((size_t)pairs->n_flows, sizeof(*m->flows));
    for (int l = 0; l < pairs->n_loads && !status; l++) {
        const struct pair_load *load = &pairs->loads[l];
        struct flow_record record = { .flow = -1 };
        bool mine = false;

        for (int round = -1; round < MEASURE_ROUNDS && !status; round++) {
            status = comm_fence(m->comm, err);
            for (int i = load->first; i < load->first + load->n && !status; i++) {
                bool sends;
                int peer = peer_of(m, &pairs->flows[i], &sends);

                if (peer < 0)
                    continue;
                status = run_flow(m, i, peer, sends, round < 0 ? 0 : round, &record, err);
                mine = sends;
            }
        }
        if (mine)
            *(struct flow_record *)mem_push((void **)&records, &n, sizeof(record)) = record;
        say(m, "all ranks of a node at once");
    }
    if (status == 0)
        status = share(m, records, n, sizeof(*records), take_flow, err);
    for (int l = 0; l < pairs->n_loads && !status; l++)
        loads[l] = load_rate(m, &pairs->loads[l]);
    free(records);
    free(m->flows);
    return status;
}

/* How much of what moves passes while the rank computes: so many seconds by itself, beside work that takes
 * as long, which takes 'alone' by itself.
 */
static double overlap_of(double moving, double alone, double both)
{
    return fmin(fmax((alone + moving - both) / fmin(alone, moving), 0), 1);
}

static int measure_overlap(struct measuring *m, struct comm_group *group, size_t floats,
                           double sum, struct err *err)
{
    const size_t which[] = { 0, floats };
    const double work[] = { sum, sum };
    double s[2];

    if (probe_sums(m->probe, group, 2, which, work, s, err))
        return -1;
    m->cluster->sum_overlap = overlap_of(sum, s[0], s[1]);
    return 0;
}

/* Do the threads on its node have a core each? */
static bool has_cores(const struct cluster *cluster, int device)
{
    int place = cluster_core_place(cluster, device), threads = 0;

    for (int d = 0; d < cluster->n_devices; d++)
        if (cluster_core_place(cluster, d) == place)
            threads += cluster->devices[d].cores;
    return threads <= cluster->places[place].cores;
}

/* Likewise of a message between rank 0 and one on another node where there are several; the others
 * wait. Where they take turns on cores with those two, their turns would be measured.
 */
static int measure_message_overlap(struct measuring *m, size_t bytes, struct err *err)
{
    int rank = comm_rank(m->comm), other = comm_far_rank(m->comm);
    int peer = rank == 0 ? other : rank == other ? 0 : -1;
    struct probe_ends alone, ends[2];
    double message;

    if (comm_size(m->comm) < 2)
        return 0;
    for (int d = 0; d < m->cluster->n_devices; d++)
        if ((rank_of(m, d) == 0 || rank_of(m, d) == other) && !has_cores(m->cluster, d))
            return 0;
    if (probe_messages(m->probe, peer, bytes, 1, (bool[]){ true }, (double[]){ 0 }, &alone, err))
        return -1;
    message = alone.receive;
    if (probe_messages(m->probe, peer, bytes, 2, (bool[]){ false, true },
                       (double[]){ message, message }, ends, err))
        return -1;
    m->cluster->send_overlap = overlap_of(message, ends[0].send, ends[1].send);
    m->cluster->receive_overlap = overlap_of(message, ends[0].receive, ends[1].receive);
    return 0;
}

/* By comm.h, and what else the computing threads of hosts have to do with it. */
static int time_sums(struct measuring *m, int n, struct links_sums *sums, struct err *err)
{
    int n_ranks = comm_size(m->comm), *ranks = mem_new((size_t)n_ranks, sizeof(*ranks));
    struct comm_group *group;
    int status;

    for (int i = 0; i < n_ranks; i++)
        ranks[i] = i;
    group = comm_group_new(m->comm, n_ranks, ranks, err);
    status = group && probe_sums(m->probe, group, n, sums->floats, NULL, sums->seconds, err) == 0 &&
                     measure_overlap(m, group, sums->floats[n - 1], sums->seconds[n - 1], err) == 0 &&
                     measure_message_overlap(m, sums->floats[n - 1] * sizeof(float), err) == 0
                 ? 0 : -1;
    comm_group_free(group);
    free(ranks);
    return status;
}

/* Of GPUs: while bytes move they compute. */
static int time_gpu_sums(struct measuring *m, int n, struct links_sums *sums, struct err *err)
{
    m->cluster->sum_overlap = m->cluster->send_overlap = m->cluster->receive_overlap = 1;
    return probe_sums(m->probe, NULL, n, sums->floats, NULL, sums->seconds, err);
}

/* Sums over all ranks, of few and of many bytes: how much longer than the model's ring? */
static int measure_sums(struct measuring *m, struct err *err)
{
    struct links_sums sums;
    int n = links_sum_sizes(m->full, m->pairs->gpus, sums.floats);

    if (m->pairs->gpus ? time_gpu_sums(m, n, &sums, err) : time_sums(m, n, &sums, err))
        return -1;
    links_apply_sums(m->cluster, n, &sums);
    return 0;
}

size_t measure_start(struct measuring *m)
{
    m->trials = mem_new((size_t)m->pairs->n_pairs, sizeof(*m->trials));
    m->loads = mem_new((size_t)m->pairs->n_loads, sizeof(*m->loads));
    m->n_sizes = links_sizes(m->full, m->pairs->gpus, m->bytes);
    if (m->full)
        m->progress = progress_new("measure", m->pairs->n_rounds + m->pairs->n_loads);
    return probe_pool(m->bytes[m->n_sizes - 1]);
}

int measure_run(struct measuring *m, struct err *err)
{
    if (run_rounds(m, m->pairs->pairs, NULL, m->pairs->n_pairs, m->pairs->n_rounds, err))
        return -1;
    return m->full && (measure_suspects(m, err) || measure_loads(m, m->loads, err)) ? -1 : 0;
}

void measure_end(struct measuring *m)
{
    progress_free(m->progress);
    pairs_free(m->pairs);
    free(m->trials);
    free(m->loads);
}

/* With a wire, which is freed. */
static int measure_on(struct measuring *m, struct wire *wire, struct links **links, struct err *err)
{
    struct links *found = NULL;
    int status;

    m->probe = probe_new(m->comm, wire);
    status = measure_run(m, err);
    if (status == 0) {
        found = links_new(m->cluster, m->pairs, m->trials, m->loads, m->full);
        links_apply(found, m->cluster);
        status = measure_sums(m, err);
    }
    if (status == 0 && links)
        *links = found;
    else
        links_free(found);
    probe_free(m->probe);
    wire_free(wire);
    return status;
}

int measure_links(struct comm *comm, struct cluster *cluster, enum measure how,
                  struct links **links, struct err *err)
{
    struct measuring m = { .comm = comm, .cluster = cluster, .full = how == MEASURE_FULL };
    int status;

    m.pairs = pairs_choose(cluster, m.full);
    status = measure_on(&m, wire_of_hosts(comm, measure_start(&m)), links, err);
    measure_end(&m);
    return status ? err_prefix(err, "measurement") : 0;
}

/* Of each pair its ranks, and of each transfer of a load. */
static int *ranks_of(const struct measuring *m, int *n)
{
    const struct pairs *pairs = m->pairs;
    int *ranks = mem_new(2 * (size_t)(pairs->n_pairs + pairs->n_flows), sizeof(*ranks));

    *n = 0;
    for (int i = 0; i < pairs->n_pairs + pairs->n_flows; i++, (*n)++) {
        const struct pair *pair = i < pairs->n_pairs ? &pairs->pairs[i]
                                                     : &pairs->flows[i - pairs->n_pairs];

        ranks[2 * i] = rank_of(m, pair->a);
        ranks[2 * i + 1] = rank_of(m, pair->b);
    }
    return ranks;
}

int measure_wires(struct comm *comm, struct cluster *cluster, const struct wire_gpu *gpu,
                  enum measure how, struct links **links, struct err *err)
{
    struct measuring m = { .comm = comm, .cluster = cluster, .full = how == MEASURE_FULL };
    struct wire *wire;
    int *ranks, n, status = -1;

    m.pairs = pairs_choose(cluster, m.full);
    m.pairs->gpus = true;
    ranks = ranks_of(&m, &n);
    wire = wire_of_gpus(comm, gpu, measure_start(&m), n, ranks, err);
    if (wire)
        status = measure_on(&m, wire, links, err);
    free(ranks);
    measure_end(&m);
    return status ? err_prefix(err, "measurement") : 0;
}
