/* SPDX-License-Identifier: MIT */
/* Between partition.c (the search), partition_rank.c (simulation and order), partition_table.c (costs
 * of intervals of blocks), partition_dp.c (dynamic programming), partition_closed.c,
 * partition_small.c, partition_places.c, partition_improve.c, partition_recut.c, partition_again.c,
 * partition_orders.c, partition_narrow.c, partition_devices.c, partition_chunks.c,
 * partition_chunks_memory.c, partition_candidate.c, partition_memory.c, partition_fit.c,
 * partition_link.c, partition_request.c and partition_pin.c (pins), partition_list.c (lists that are
 * given), partition_hint.c, partition_explain.c (reasons), partition_kinds.c, partition_bound.c,
 * partition_chunks_bound.c, partition_relax.[ch], partition_relax_few.c, partition_way.[ch],
 * partition_distance.c, partition_ideals.c, partition_tried.[ch] (what a trial has run) and place.c.
 */
#ifndef TASUKI_SCHEDULER_PARTITION_PRIVATE_H
#define TASUKI_SCHEDULER_PARTITION_PRIVATE_H

#include <stdio.h>

#include "base/err.h"
#include "base/extreme.h"
#include "scheduler/partition.h"
#include "scheduler/schedule.h"
#include "scheduler/stage.h"
#include "scheduler/staircase.h"

/* Blocks are cut only at these places, 0 = cuts[0] < … < cuts[n] = n_blocks; an interval
 * [i, j) of cuts is one stage.
 */
#define MAX_CUTS 256
#define MOST_CUTS 256   /* that a table may have */
#define FEW 128         /* times devices: with so few, more of all is tried, */
#define SOME 512        /* with so many, of most */
/* On any cluster with so few all plans are gone through, however many these are. */
#define EXHAUSTIVE_BLOCKS 8
#define EXHAUSTIVE_DEVICES 4

/* Of all blocks. */
struct chunking_sums {
    double forward, work, wgrad, activations;
};

/* The most of what is between two cuts, as in struct stage_cost; 'turn' and 'behind' less 'delayed' up
 * to there, the peaks with 'activations' and 'made_again' up to there.
 */
struct part_most {
    double workspace, ahead, rest, turn, behind, kernels, peak, peak_again;
};

/* Costs at one share. Sums from 0 to each cut; what intervals [i, j) have, row i and column j, and
 * 'most' are there once table_share() was called.
 */
struct share_table {
    int64_t samples;
    int asked;              /* times, by table_share_if_asked() */
    double *forward, *dgrad, *wgrad, *activations, *delayed, *held;
    double *again, *dropped, *made_again;   /* where it recomputes selectively, see
                                             * struct stage_cost */
    struct staircase received, gradient, inputs, fed, once;
    struct part_most *most;         /* [levels * (cuts - 1)]: of 1, 2, 4, ... parts from each on */
    double *work;           /* [blocks + 1]: by table_work() */
    struct chunking_sums *whole;    /* by chunking_sum() */
    /* In another layout: of what is received, and of inputs. */
    struct staircase copies_in, copied_inputs;
    /* What later stages read, each value once; of these what no backward reads here, see
     * stage_cost_get(); copies in another layout. Rows are j, columns [cuts - 1] - i.
     */
    struct staircase sent, passed, left, copies_out;
    /* [table_pair()], where there are any copies: of what the interval's first part sends; and what
     * is there at most with what each part sends.
     */
    double *first_out, *border, *border_peak;
};

#define RECOMPUTES (PLAN_RECOMPUTE_FULL + 1)
#define KEPT_INTERVALS 1024
#define RECENT_SHARES 16
#define IDEAL_WORDS (MOST_CUTS / 64)

/* A set of blocks. */
struct ideal {
    uint64_t bits[IDEAL_WORDS];
};

struct interval_cost {
    double forward, dgrad, wgrad, step, parameters, prepared, workspace;
    double activations, slot;   /* kept; and with what is received */
    double delayed, turn, held, rest;   /* as in struct stage_cost */
    double again, dropped, made_again, peak, peak_again, behind;
    double copies, border, border_peak, copied;
    double received, gradient, sent, fed, left, ahead, kernels;
};

/* A stage that is no interval between cuts, by its blocks. */
struct kept_interval {
    int first, end;
    int reach;              /* the last block that reads what it has */
    int64_t samples;        /* 0: there is none */
    struct interval_cost cost;
};

struct table {
    const struct cost *cost;
    struct ideal *ideals;   /* [n + 1]: what is before each cut, in place of 'cuts'; or NULL */
    bool partial;           /* these leave blocks out */
    int n;                  /* cuts - 1: stages at most */
    int cuts[MOST_CUTS + 1];
    int *next;              /* [blocks + 1]: the first cut that is not in front of a block */
    double *step, *parameters, *prepared;   /* sums */
    struct staircase shared;        /* of intervals: bytes of shared parameters */
    struct staircase n_received;    /* values of earlier stages */
    int n_shares;
    struct share_table **shares, *recent[RECENT_SHARES];    /* the latter by their samples */
    struct kept_interval *kept;     /* [KEPT_INTERVALS], once one is asked for */
    int users;
    int n_others;
    struct table **others;  /* with the same cuts: of the cost's others */
};

/* Of a kind of device: 0 is that of the cost itself, then come its others. */
static inline struct table *table_kind(struct table *table, int kind)
{
    return kind ? table->others[kind - 1] : table;
}

/* The place of an interval [i, j) in arrays of them, and how many these have: i <= j <= n. */
static inline size_t table_pair(const struct table *table, int i, int j)
{
    return (size_t)i * (2 * (size_t)table->n + 3 - (size_t)i) / 2 + (size_t)(j - i);
}

static inline size_t table_pairs(const struct table *table)
{
    return ((size_t)table->n + 1) * ((size_t)table->n + 2) / 2;
}

/* The cut before a block. */
static inline int table_cut(const struct table *table, int block)
{
    return table->next[block];
}

/* With so many cuts at most. */
struct table *table_new(const struct cost *cost, int most);
/* With these cuts, [n + 1]. */
struct table *table_at(const struct cost *cost, int n, const int *cuts);
/* With all cuts that the graph has; NULL where these are more than MOST_CUTS. A pair of them is an
 * interval where the one is within the other. The workspace, and what is sent, is left at 0.
 */
struct table *table_ideals(const struct cost *cost);
void table_fill_ideals(const struct table *table, struct share_table *share);
bool ideal_has(const struct ideal *ideal, int block);
bool ideal_within(const struct ideal *a, const struct ideal *b);
/* For another that frees it. */
struct table *table_use(struct table *table);
void table_free(struct table *table);
/* The table for a share, made on first use: its sums alone; with intervals; the same where they are
 * there, or where it was asked for often enough, else NULL.
 */
const struct share_table *table_sums(struct table *table, int64_t samples);
const struct share_table *table_share(struct table *table, int64_t samples);
const struct share_table *table_share_if_asked(struct table *table, int64_t samples);
/* Seconds of the blocks in that order (NULL: as in the cost file), summed up, [blocks + 1]; nothing is
 * run again; malloc'ed. The latter is the table's.
 */
double *work_in_order(const struct cost *cost, const int *order, int64_t samples);
const double *table_work(struct table *table, int64_t samples);
void table_interval(const struct table *table, const struct share_table *share, int i, int j,
                    struct interval_cost *result);

/* One point of the search. */
struct candidate {
    int pipelines;          /* 0 counts as 1 */
    int n_stages;
    int *cuts;              /* [n_stages + 1] places in 'order', from 0 to all */
    int *order;             /* [blocks]: a topological one; NULL: as in the cost file */
    int *replicas;
    int *devices;           /* [pipelines * replicas]: pipeline by pipeline, then stage by stage;
                             * NULL: in order, each pipeline as many devices in a row */
    int64_t micro_batch, micro_batches;
    enum schedule_kind schedule;
    int chunks;             /* stages of a device, which have the same replicas; 0 counts as 1 */
    const struct schedule *list;    /* which has which of several; NULL: as 'schedule' has them */
    bool zero;              /* the optimizer's state is sharded */
    enum plan_recompute *again;     /* [n_stages]: see search_fits(); NULL: none */
    bool given;             /* that is what it is to be */
    double *more;           /* [n_stages]: bytes of each device beyond the estimate, as compiled; NULL:
                             * not known */
    double budget;          /* of SCHEDULE_ZB: schedule_slots()' memory */
    double closed;          /* seconds by the closed form */
    double seconds;         /* by simulation */
    bool exact;             /* of all micro-batches, not of some */
    bool far;               /* by the closed form slower than others of as many micro-batches */
};

/* One way to split the global batch. */
struct split {
    int pipelines;
    int64_t micro_batch, micro_batches;
    double closed;          /* of the best candidate; 0: none was found */
};

#define KEPT_SIMULATED 32

/* Other moves may lead to the same candidate. */
struct simulated {
    struct candidate *candidate;    /* with its seconds; NULL: there is none */
    bool exact;             /* was it to be? */
    double effort;
};

/* An all-reduce, once it was asked for. */
struct reduce_time {
    struct allreduce_line lines[ALLREDUCE_KINDS];   /* of those that may be */
};

/* The devices below a place: they are in a row. */
struct span {
    int first, end;
};

/* What a search needs. */
struct search {
    const struct cost *cost;
    const struct cluster *cluster;
    const struct plan_request *request;
    struct table *table;
    double state_bytes;     /* of the optimizer, for a 4-byte parameter */
    /* Exact over estimated bytes, as found so far; and of what is faster and does not fit, 0: none. */
    double factor_fixed, factor_moving, short_fixed, short_moving;
    double memory;          /* limit in place of all others, where > 0 */
    double limit;           /* INFINITY, or seconds from which on it does not matter what is exact */
    int versions;           /* of the weights, see request_versions() */
    bool zero;              /* state is sharded */
    double unsharded;       /* seconds of the best found without that; 0: none fits, or pinned */
    bool tight;             /* memory kept something from being looked at */
    bool refined;           /* what is near the best found was looked at */
    bool unfit;             /* nothing that was found fits exactly */
    bool feasible;          /* any plan that fits will do */
    bool flat;              /* request_is_flat() */
    bool uniform;           /* all devices have the same memory */
    bool mixed;             /* they are of several kinds, which have costs of their own */
    int n_kinds;            /* of table_kind() */
    int *kind;              /* [devices] */
    /* By search_least_new(), else NULL: its cost; that of the fastest kind of device, and the least of
     * all others; devices of that kind; and the search by what each device takes.
     */
    struct cost *least, *rest;
    const struct cost *fast;
    int n_fast;
    struct search *actual;
    int *order;             /* devices, pipeline by pipeline, that partition_dp() cuts for; NULL: as
                             * the cluster has them */
    double slow;            /* of computing, while all devices are busy */
    double best;            /* closed form of the best candidate yet */
    bool few, some;         /* cuts and devices: more of all is tried, of most */
    double slack;           /* times the best: candidates up to there are worth a simulation */
    int most_found;         /* and so many of them */
    long looked;            /* intervals, by partition_dp(), see there */
    struct dp_scratch *scratch;         /* its own; NULL: none yet */
    double effort;          /* replicas times micro-batches that were simulated */
    int n_simulated;        /* in all; the last of them are kept */
    struct simulated *simulated;    /* [KEPT_SIMULATED], once there is one */
    long count;             /* plans that there are, as far as they were counted */
    bool complete;          /* all of them were simulated */
    int n_reduces;
    struct reduce_time *reduces;
    int ***reduce;          /* [devices + 1]: by pipelines; in one of them by replicas, and first
                             * device: which of 'reduces', from 1; NULL, 0: not asked for yet */
    struct span *below;     /* [places] */
    int n_splits;
    struct split *splits;   /* one pipeline first; the largest micro-batches first */
    int n_found;
    struct candidate **found;   /* the best, by closed form */
    const struct candidate *taken;      /* of these, for the plan */
    struct err refused;         /* why the list that was given does not suit a candidate */
};

/* A list, and the stages that send each other something. */
struct plan_listed {
    const struct schedule *list;
    struct schedule_edge *edges;
    int n_edges;
};

/* The request's list, or why it is refused. Where a schedule makes it the request is for that, with
 * the list as 'listed', whose edges are to be freed.
 */
int list_take(struct plan_request *request, const struct cluster *cluster,
              struct plan_listed *listed, struct err *err);
/* Do the candidate's stages send each other what 'listed' says, if there is one? Else the search's
 * 'refused' says which do not.
 */
bool list_suits(struct search *search, const struct candidate *c);
/* Put the file before an error that does not begin with it. */
void list_name(const struct schedule *list, struct err *err);

struct candidate *candidate_copy(const struct candidate *c);
void candidate_free(struct candidate *c);
/* The same point of one search? */
bool candidate_same(const struct candidate *a, const struct candidate *b);
int candidate_pipelines(const struct candidate *c);
/* Of one pipeline. */
int candidate_devices(const struct candidate *c);
/* Of a stage, over all pipelines, at most. */
int candidate_copies(const struct candidate *c);
/* Its devices, each with its stages, of one pipeline and without replicas. */
int candidate_lists(const struct candidate *c);
/* Which of its devices has stage 's'. */
int candidate_list(const struct candidate *c, int s);
/* The first stage of a device. */
int candidate_list_first(const struct candidate *c, int l);
/* Where in a pipeline the devices of stage 's' begin. */
int candidate_first(const struct candidate *c, int s);
/* The device of the replica that is number 'at' of its pipeline. */
int candidate_device(const struct candidate *c, const struct cluster *cluster, int pipeline,
                     int at);
/* The block at a place of its order. */
int candidate_block(const struct candidate *c, int at);
/* The stage of each block; malloc'ed. */
int *candidate_stages(const struct candidate *c);
/* Give it these, none of them empty. */
void candidate_assign(struct candidate *c, const int *stage);
/* The first and the last place of each cut between stages, [n_stages + 1]. */
struct cut_range {
    int from, to;
};

/* Where to cut 'n' parts in a row into stages, none empty, so that the slowest is as fast as can
 * be: 'cuts' [n_stages + 1], in these ranges (NULL: any; else such as pins_ranges() gives). The
 * seconds of the first i parts in stage k are sums[k][i], which ascend.
 */
void even_cuts(const double *const *sums, int n, int n_stages, const struct cut_range *ranges,
               int *cuts);
/* The largest share of 'r' replicas. */
int64_t candidate_share(int64_t micro_batch, int r);
/* Micro-batches in flight in a stage. */
int candidate_slots(const struct plan_request *request, const struct candidate *c, int s);
/* Sums over a stage at so many samples. */
void candidate_interval(struct search *search, const struct candidate *c, int s, int64_t samples,
                        struct interval_cost *result);
/* The same at the largest share, but for seconds: those of the replica that takes longest; and the
 * least of each that any replica takes, or would with the smallest share where 'smallest'.
 */
void candidate_slowest(struct search *search, const struct candidate *c, int s,
                       struct interval_cost *result);
void candidate_soonest(struct search *search, const struct candidate *c, int s, bool smallest,
                       struct interval_cost *result);
/* A kind of device that a stage has replicas on, and the most samples that one of these has. */
struct pace {
    int kind;
    int64_t samples;
};

/* Of a stage, each kind once; returns how many. */
int candidate_paces(const struct search *search, const struct candidate *c, int s,
                    struct pace paces[COST_MOST_KINDS]);
/* That with which all blocks take longest. */
struct pace candidate_slowest_pace(const struct search *search, const struct candidate *c, int s);
/* The least memory of a stage's devices. */
double candidate_room(const struct search *search, const struct candidate *c, int s);

/* The best candidates for one micro-batch size and schedule are added to 'found'. How many
 * slots a stage has under those that put W off is known where the number of stages is pinned;
 * else some of these may hold more than fits, which is seen before they are simulated.
 *
 * Objective (the closed form), over stages s with work t_s = F + B + W of the largest share,
 * messages c_s in from the stage before (values and gradients) and r_s for all-reduce and
 * update:
 *   T = sum of max(t_s, c_s) + (M - 1) * max of max(t_s, c_s) + max of r_s
 * and where the pipeline is not flushed, in the steady state:
 *   T = M * max(max of max(t_s, c_s), sum of max(t_s, c_s) over the first S - M + 1) +
 *       max of r_s + sum of B over the stages that share a parameter, or lie between such
 * Of more stages than micro-batches these first ones have M slots each, one as many as the other,
 * and so run in step: none begins the next forward before all of them have ended a backward. A
 * stage that shares a parameter with one in front waits for the last backward of that, which is
 * therefore counted, unlike its own.
 * M, and t of one pipeline; the all-reduce is over all. With 'even' only pipelines with one
 * replica count for all stages are tried, and none is added: 'best' becomes a bound for the
 * search proper. False: none fits and is fast enough; else one may.
 */
bool partition_dp(struct search *search, const struct split *split, enum schedule_kind kind,
                  bool even);
void partition_dp_forget(struct search *search);
/* Orders of the devices, of which several are searched where not all have the same memory, or are of
 * one kind.
 */
enum device_order {
    DEVICES_IN_ORDER, DEVICES_REVERSED, DEVICES_LARGEST_FIRST, DEVICES_LARGEST_LAST,
    DEVICES_FASTEST_FIRST, DEVICES_FASTEST_LAST
};

#define DEVICE_ORDERS 6

/* Set the search's; false where one before that has as much memory, and the same kind, in each
 * place.
 */
bool search_order_devices(struct search *search, int pipelines, enum device_order kind);
/* Are they as large, and of one kind? */
bool search_same_devices(const struct search *search, int a, int b);
/* Where a stage of the candidate does not fit where it is: those that want most get the largest. */
void search_choose_devices(struct search *search, struct candidate *c);
/* The same for all sizes, schedules and orders of devices that are searched, with so many pipelines
 * (0: any); and, where there are few cuts and devices, for other orders of the blocks.
 */
void search_cuts(struct search *search, int pipelines);
void search_orders(struct search *search);
/* Which devices are taken, while each is in turn. */
struct places {
    const struct cluster *cluster;
    int *like;              /* [places]: the first sibling that differs in nothing */
    int *used;              /* [places]: devices below it that are taken */
};

void places_init(struct places *places, const struct cluster *cluster);
void places_clear(struct places *places);
/* Is it free, and is nothing that is free before it as good? */
bool places_offer(const struct places *places, int device);
/* 'change': 1, or -1 to give it back. */
void places_take(struct places *places, int device, int change);

/* Every plan of these, simulated as far as it may be kept; the best that fit are added to 'found', sorted:
 * - pipelines, micro-batch sizes and counts: as search_new() has them;
 * - stages: every way to part the blocks into a row of sets, none empty, so that no block is
 *   before one that it reads;
 * - replicas of each stage: any number that the micro-batch allows, as long as a pipeline has no
 *   more than its part of the devices, of which some may stay idle;
 * - devices of the replicas: any, but of those that differ only by what is alike in the cluster
 *   tree, or by the order of the pipelines, one;
 * - schedules: 1f1b, gpipe, zb-h1, and zb with each number of slots;
 * and where the request is exhaustive what is_chunking() allows: interleaved with each number of
 * chunks, and zb-v, on each number of devices with each number of replicas, on any of them as
 * above, cut in every way between neighbours in the cost file; and of what does not fit without, each
 * choice of what stages run again that does.
 * All of that within the pins. '*count' is how many there are; where that is more than 'most'
 * nothing is added. -1 on an error.
 */
int partition_small(struct search *search, long most, long *count, struct err *err);
/* The same of one way to cut: 'see' gets each plan without chunks that has these pipelines, stages
 * ([blocks]), replicas and micro-batches. False where they are more than 'most', and some were left out.
 */
typedef void small_see(void *context, struct candidate *c);
bool small_plans(struct search *search, const struct candidate *c, const int *stage, long most,
                 small_see *see, void *context);

/* The closed form of partition_dp(): of the slowest stage, of those that are summed up, and of the
 * tail.
 */
static inline double closed_iteration(const struct search *search, int64_t m, double most,
                                      double sum, double tail)
{
    if (search->versions > 1)
        return (double)m * dmax(most, sum) + tail;
    return (double)(m - 1) * most + sum + tail;
}

/* Is a stage summed up that is, with those behind it, one of so many? */
static inline bool closed_sums(const struct search *search, int64_t m, int stages)
{
    return search->versions == 1 || stages >= m;
}
/* Seconds of a micro-batch that stage s > 0 may wait for: values, and gradients that go back, as if
 * all were placed in order.
 */
double candidate_message(struct search *search, const struct candidate *c, int s);
/* The closed form of any candidate; INFINITY where it does not fit into the memory. */
double partition_closed(struct search *search, struct candidate *c);
/* The same where devices have several stages, whatever the memory: over devices d with the work t_d
 * of all their stages, messages c_d and tails r_d
 *   T = M * max of max(t_d, c_d) + fill + max of r_d, less what is hidden of it
 * where the fill is what the first stages of all devices but the last take for a micro-batch, under
 * zb-v, which fills the end with W, their F; and all messages, which nothing hides while the
 * pipeline fills.
 */
double chunks_closed(struct search *search, const struct candidate *c);

/* Fill in 'seconds': of all micro-batches where 'exact' or where there are few, else foreseen
 * from some; INFINITY where it does not fit, or takes longer than the search's limit. -1 on an error.
 */
int search_evaluate(struct search *search, struct candidate *c, bool exact, struct err *err);
/* What was simulated. */
void search_forget(struct search *search);
/* All that were found, until that takes too long: then the closed form says where the others stand.
 * -1 on an error.
 */
int search_simulate(struct search *search, struct err *err);
/* What the closed form found, simulated and sorted. -1 on an error. */
int search_rank(struct search *search, struct err *err);
/* Where the simulation has all of that slower than what the closed form left out: with each number of
 * pipelines, and for the first nodes alone, what is as fast by the closed form as the best by the
 * simulation. Adds to what was found, and sorts. -1 on an error.
 */
int search_again(struct search *search, struct err *err);
/* Drop what was found twice. Where there is little, that is as often started from again
 * (search_improve()).
 */
void search_drop_doubles(struct search *search);
/* Simulate what is found fastest in full, until the fastest is; and sort. -1 on an error. */
int search_settle(struct search *search, struct err *err);
/* By 'seconds'; ties, for one result: fewer stages, pipelines, micro-batches, 1f1b before
 * others.
 */
bool candidate_better(const struct candidate *a, const struct candidate *b);
/* Where devices share cores: are these forecasts not told apart? */
bool search_same(const struct search *search, double faster, double slower);
/* What was found at this place comes before the rest. */
void search_put_first(struct search *search, int place);
/* The place of its split. */
int search_split(const struct search *search, const struct candidate *c);
/* The fastest first. */
void search_sort(struct search *search);
/* Those from a place on. */
void search_sort_from(struct search *search, int from);
/* The best by the closed form first. */
void search_sort_closed(struct search *search);
/* The best of 'some' [n] are added to what was found, sorted so; the others, and what was found and is
 * too much now, are freed.
 */
void search_keep(struct search *search, struct candidate **some, int n);
/* Cut some of the fastest anew, which is added to what was found, and sort. -1 on an error. */
int search_recut(struct search *search, struct err *err);
/* Local moves while they help, from the fastest that were found, and sort; each climb adds one to
 * 'found'.
 */
int search_improve(struct search *search, struct err *err);
/* Counts what another one has simulated as its own, but for a part that is left to it; not where
 * there are few cuts and devices.
 */
void search_share_effort(struct search *search, const struct search *other);

/* Seconds that a candidate takes at least, by what its stages compute. */
double candidate_least(struct search *search, const struct candidate *c);

/* Whole pipelines side by side are looked at where some devices are closer than others: else
 * replicas of the stages do as well.
 */
struct search *search_new(const struct cost *cost, const struct cluster *cluster,
                          const struct plan_request *request);
/* For bounds where devices are of several kinds: all take the least that any takes. */
struct search *search_least_new(struct search *search);
void search_least_free(struct search *search);
/* How much faster devices are than the slowest kind, on average. */
double search_mean_speed(const struct search *search);
/* Is there state of the optimizer, of which shards are less to keep, or to have a step wait for? */
bool search_has_state(const struct search *search);
/* Devices that each pipeline may have. */
int search_devices(const struct search *search, int pipelines);
void search_free(struct search *search);
/* Forget what was found. */
void search_reset(struct search *search);
double search_limit(const struct search *search, int device);
/* The least and the most of any device. */
void search_rooms(const struct search *search, double *smallest, double *largest);
/* The least limit of a stage's devices: 'r' from 'device' on in each pipeline. */
double search_room(const struct search *search, int pipelines, int device, int r);
/* The estimate of a stage's bytes: parameters and what goes with them; all else. */
struct stage_bytes {
    double fixed, moving;
};

/* 'copies' devices hold it; 'form': of its backward; 'again': what it runs again, and does not
 * keep.
 */
struct stage_bytes interval_bytes(const struct search *search, const struct interval_cost *cost,
                                  int64_t micro_batches, int slots, int copies,
                                  enum backward_form form, enum plan_recompute again);
/* For each message between neighbours, in a run. */
double search_message_buffers(const struct search *search);
/* For a stage of a candidate; and all of it, by the factors. */
struct stage_bytes search_stage(struct search *search, const struct candidate *c, int s);
double search_stage_bytes(struct search *search, const struct candidate *c, int s);
/* The same of a stage with these sums. */
double search_interval_bytes(const struct search *search, const struct candidate *c, int s,
                             const struct interval_cost *cost);
/* All of it, by the factors. */
double search_memory(const struct search *search, const struct interval_cost *cost,
                     int64_t micro_batches, int slots, int copies, enum backward_form form,
                     enum plan_recompute again);
/* The way from a stage of 'r' replicas that starts at device 'from' to one that starts at 'to':
 * how it starts, and seconds per byte of the receiver, of each sender on wires that they share,
 * and of one transfer where it does not get the whole wire.
 */
struct message_link {
    struct cluster_link link;
    double each, own, flow;
};

/* Fill in 'below', which search_link() reads. */
void search_fill_below(struct search *search);
struct message_link search_link(const struct search *search, int from, int r, int to);
/* Seconds per micro-batch of values, or of gradients: of a receiver, of a sender. */
double search_message(const struct message_link *link, double bytes, double own_bytes);
double search_allreduce(struct search *search, int pipelines, int device, int r, double bytes);
/* The same in two steps. The group's is there until another one is asked for; NULL: nothing to sum. */
const struct reduce_time *search_reduce_time(struct search *search, int pipelines, int device,
                                             int r);
double search_reduce_seconds(const struct search *search, const struct reduce_time *time,
                             double bytes);
void search_forget_reduces(struct search *search);

/* Pipelines whose devices have several stages each, one behind the other or as a V. */
struct chunking {
    const struct split *split;
    enum schedule_kind kind;
    int lists, chunks, replicas;    /* devices are lists times replicas */
    enum device_order order;        /* see chunking_order() */
    double closed;                  /* seconds at least, by the search */
};

/* One crossbar of equal devices: in whatever order they are taken, plans are the same. */
bool request_is_flat(const struct cluster *cluster);
/* Where request_chunks() are several: do the pins suit; and all candidates, into 'found'. */
int check_chunks(const struct plan_request *request, struct err *err);
void search_chunks(struct search *search);
/* Are they looked at where nobody asks for them? Not where anything says which block is where, or
 * how stages are run.
 */
bool chunks_allowed(const struct plan_request *request);
/* Or are they asked for, and nothing says which block is where? */
bool chunks_searched(const struct plan_request *request);
/* Does the request allow it, and has the network as many stages? */
bool is_chunking(const struct search *search, const struct chunking *chunking);
/* Stages that each of so many devices may have. */
int chunking_most(const struct search *search, int lists);
/* Set the search's order to that one; false where such devices are not looked at: in another order
 * than that of the cluster only where they are of several kinds.
 */
bool chunking_order(struct search *search, const struct chunking *chunking);
/* Give it the devices that come first in this order, which is the search's, or last where it begins
 * with those that are to be left out.
 */
void chunking_place(const struct search *search, const struct chunking *chunking,
                    struct candidate *candidate);
/* There, with cuts that make the devices even. */
struct candidate *chunking_new(struct search *search, const struct chunking *chunking);
/* Of all blocks at a share. */
const struct chunking_sums *chunking_sum(struct table *table, int64_t share);
/* Every way to cut, these first, where there are few; what is faster is added to what was found. */
void search_cut_chunks(struct search *search, int n, const struct chunking *chunkings);
/* Takes the candidate, to what was found. */
void search_add(struct search *search, struct candidate *c);
/* Simulate the best of these, where allowed, and add them to what was found, sorted. -1: error. */
int search_beside_chunks(struct search *search, struct err *err);
/* Lists that are given are searched for as 1f1b. */
bool schedule_allowed(const struct plan_request *request, enum schedule_kind schedule);
/* What keeps least of what the request allows; of lists of several stages the form of that. */
enum schedule_kind least_schedule(const struct plan_request *request);
/* Of the weights: 2 where the request asks for a schedule that is not flushed. */
int request_versions(const struct plan_request *request);
/* Give the candidate a schedule, zb as many slots as fit; false where it is not allowed. */
bool set_schedule(struct search *search, struct candidate *c, enum schedule_kind schedule);
/* Does the estimate of every stage's memory fit, where some recompute? Says which, unless that is
 * given.
 */
bool search_fits(struct search *search, struct candidate *c);
/* Does a stage run more again than is asked for, so that its device fits? */
bool chooses_again(const struct search *search, const struct candidate *c);
/* Where it does: each other choice that may fit; none where W waits, since that frees nothing. */
typedef void again_see(void *context, struct candidate *candidate);
void search_each_again(struct search *search, struct candidate *c, again_see *see, void *context);
/* The same where devices have several stages, which 'again' says what they run again at least: those
 * run more, up to 'most', of which that costs a device the fewest seconds for what it lacks.
 */
bool chunks_fit(struct search *search, struct candidate *c, enum plan_recompute most);
/* How far the estimates were off. */
struct factors {
    double fixed, moving;
};

/* The fastest candidate whose exact memory fits, as a plan; NULL with err->code 0 if none. */
struct plan *search_first_that_fits(struct search *search, struct factors *factors,
                                    struct err *err);
/* Does the memory of the stages fit as they are compiled? It is left in 'plan', which the
 * candidate was made; -1: an error.
 */
int search_fits_exactly(struct search *search, const struct candidate *c, struct plan *plan,
                        struct err *err);
/* Does a stage that recomputes keep less? Not where W waits, and with it what it needs. */
bool recompute_frees(enum schedule_kind kind);
/* How stage 's' runs its backward, where its gradients for others are so many bytes. */
enum backward_form candidate_backward(const struct plan_request *request,
                                      const struct candidate *c, int s, double gradients);
/* The same under a schedule: what others wait for goes first. */
enum backward_form kind_backward(enum schedule_kind kind, double gradients);
/* Seconds of what an interval runs again. */
static inline double interval_again(const struct interval_cost *c, enum plan_recompute again)
{
    return recompute_seconds(again, c->again, c->forward);
}

/* What must all stages recompute, at least; and what, at most, those that fit no other way? */
enum plan_recompute recompute_asked(const struct plan_request *request);
enum plan_recompute recompute_most(const struct plan_request *request, enum schedule_kind kind);
/* The first stage of zb-h1 and zb, where no W waits, keeps and recomputes as that of 1f1b. */
enum schedule_kind kind_at(enum schedule_kind kind, bool first);
/* Is 'r' a replica count that the request allows for a stage? */
bool shares_allowed(const struct plan_request *request, int64_t micro_batch, int r);

/* Fails where the pins contradict each other, the cluster or the network. */
int check_request(const struct cost *cost, const struct cluster *cluster,
                  const struct plan_request *request, struct err *err);
/* Micro-batch sizes: every divisor of the global batch that the pins allow, largest first. */
int64_t *micro_sizes(const struct plan_request *request, int *n);
/* '*search' is the one that found the plan, or did not; NULL where the request cannot be. Not for pins
 * without a number of stages.
 */
struct plan *search_plan(const struct cost *cost, const struct cluster *cluster,
                         const struct plan_request *request, struct search **search,
                         struct err *err);
/* How many stages pinned blocks want at least, and how many there may be. */
void pinned_stages(const struct cost *cost, const struct cluster *cluster,
                   const struct plan_request *request, int *least, int *most);
/* partition() for pins that are resolved. */
struct plan *partition_any(const struct cost *cost, const struct cluster *cluster,
                           struct plan_request *request, char **why, struct err *err);
/* The same with the blocks in another topological order, too, where much less crosses its cuts than
 * those of the cost file's: what is read is there for a shorter time. That order does not depend on
 * the file's. Not where pins or rules of others are by the file's, nor where there are few cuts and
 * devices: there the search tries many orders itself.
 */
struct plan *partition_orders(const struct cost *cost, const struct cluster *cluster,
                              struct plan_request *request, char **why, struct err *err);
/* Where BatchNorm's groups are what leaves no plan: which would. */
void hint_groups(const struct cost *cost, const struct cluster *cluster,
                 const struct plan_request *request, struct err *err);
/* Which of the pins it is without which there is a plan; false where it is no single one. */
bool hint_pins(const struct search *search, struct err *err);
/* Whether state in shards would do, where a rule of others was not asked for it. */
bool hint_zero(const struct search *search, struct err *err);
/* Bytes of each device with which there is a plan, where there is none with 'short_of': about so many,
 * or more; 0: not found.
 */
double search_suffices(const struct search *search, double short_of, double bytes);
/* Why nothing was found. Always -1. */
int explain_failure(struct search *search, struct err *err);
/* With the blocks in an order in which their pins can be; NULL where they can, or no order helps. Fails
 * where the patterns contradict each other or the network.
 */
int pins_reorder(const struct cost *cost, const struct plan_request *request,
                 struct cost **reordered, struct err *err);
/* The stage of each block that the request's patterns give it, -1: any; malloc'ed. NULL where
 * they contradict each other, the network or the number of stages.
 */
int *pins_resolve(const struct cost *cost, const struct plan_request *request, struct err *err);
int pins_least_stages(const int *pins, int n_blocks);
/* 'pins' may be NULL. */
bool pins_hold(const int *pins, const struct candidate *c);
/* Where in the table so many stages may be cut, none of them empty; malloc'ed, NULL where the pins
 * leave no place.
 */
struct cut_range *pins_ranges(const int *pins, const struct table *table, int n_stages);
/* May a stage with this number have this interval between cuts? */
bool pins_allow(const int *pins, const struct table *table, int interval, int stage);

/* Fill in what the plan says of its stages beyond what a run needs. */
void describe(const struct search *search, struct plan *plan);
/* Which stages are on which kind of device, where these are several, in lines. */
void explain_kinds(const struct search *search, const struct plan *plan, FILE *out);
/* Why this plan, and why not others, in lines; malloc'ed. */
char *explain(struct search *search, const struct plan *plan);
/* The request's 'others'. */
int plan_others(struct search *search, const struct plan *plan, struct err *err);

/* The largest of all bounds that follow, of all plans that are allowed: of interest below 'upper', the
 * seconds of one.
 */
double search_bound(struct search *search, double upper);
/* Seconds below which no plan for this request can come. */
double partition_lower_bound(const struct cost *cost, const struct cluster *cluster,
                             const struct plan_request *request);
/* The same, and closer: bubbles, messages and all-reduces count. Nothing above 'upper', the
 * seconds of a plan, is of interest. 0 where the graph has too many cuts to look at each.
 */
double partition_relaxed(struct search *search, double upper);
/* Where devices are of several kinds and there is little to try: what is faster than all that was found
 * is added to that, sorted.
 */
void search_cut_few(struct search *s);
/* The same for plans whose devices have several stages, of which partition_relaxed() knows nothing;
 * 'upper' where none is allowed.
 */
double partition_chunks_bound(struct search *search, double upper);

/* The same with memory and what it forces, for any number of blocks, where that is more than what is
 * 'known'.
 */
double partition_by_distance(struct search *search, double known, double upper);

/* The bandwidth of the slowest wire between so many devices, where it is most: [devices + 1], freed
 * by who asks.
 */
double *search_widest(const struct search *search);

/* The candidate as a plan, stages on the first devices in order. */
struct plan *place(const struct cost *cost, const struct cluster *cluster,
                   const struct plan_request *request, const struct candidate *c);
/* What simulate_seconds() wants of it: without its stages' figures, and the names of their blocks. */
struct plan *place_roughly(const struct cost *cost, const struct cluster *cluster,
                           const struct plan_request *request, const struct candidate *c);

#endif
