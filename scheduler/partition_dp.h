/* SPDX-License-Identifier: MIT */
/* Between partition_dp.c (states, and what extends them), partition_dp_bounds.c (what is in front of
 * them takes at least) and partition_dp_message.c (what goes between their stages).
 */
#ifndef TASUKI_SCHEDULER_PARTITION_DP_H
#define TASUKI_SCHEDULER_PARTITION_DP_H

#include "base/extreme.h"
#include "scheduler/partition_private.h"

/* Of the stages behind the first: its message is not known before the stage in front of it. */
struct node {
    double bottleneck, sum;
    double own;             /* f + d + w of the first stage */
    double tail;            /* longest all-reduce and update, the first stage's too */
    double back;            /* backward between stages that share a parameter, its too */
    double level;           /* the bottleneck as far as it can matter */
    double message;         /* what the first stage may wait for, at most */
    int first, end, replicas, stages, devices;
    const struct share_table *share;
    struct node *next;      /* the stage behind */
};

struct node_list {
    int n;
    struct node **items;
};

/* Replica counts worth a look, see is_option(). */
struct option {
    int replicas;
    const struct share_table *share;
    const struct share_table *kinds[COST_MOST_KINDS];   /* the same, of table_kind() */
};

/* What the blocks before a cut take at least, on so many devices, for a micro-batch. */
struct least {
    double work;            /* device-seconds */
    double path;            /* seconds, one block after the other */
    double longest;         /* seconds of one block */
};

/* What runs leave each other: large arrays, of which each looks at few places. */
struct dp_scratch {
    struct node_list *lists;    /* none has any node */
    /* [2 * devices], once it was asked for: from the device before, from the first. */
    struct message_link *beside;
};

struct run {
    struct search *search;
    struct arena *arena;
    int pipelines;
    int64_t b, m;
    enum schedule_kind kind;
    int n, devices;         /* cuts, devices */
    int n_options;
    struct option *options;
    int least_replicas, most_replicas;      /* of these */
    const struct share_table *whole;    /* all samples in one share */
    struct dp_scratch *scratch;
    struct node_list *lists;    /* [(n + 1) * (devices + 1)], the scratch's */
    size_t words;           /* of 'used' for each cut */
    uint64_t *used;         /* [(n + 1) * words]: a bit for each list that was written to */
    int *row;               /* [devices + 1]: of 'least', for so many devices */
    struct least *least;    /* [rows * (n + 1)] */
    double level;           /* of the bottleneck of any plan */
    bool *waits;            /* [n + 1]: see waits_at() */
    int *of_kind;           /* [n_kinds * (devices + 1)]: devices of a kind, of any pipeline, before a
                             * place; NULL: all are of one */
    double *speeds;         /* [devices + 1]: what the devices before a place are worth, at most, in fast
                             * ones; NULL, too */
    double slack;           /* times the best: what is worth a look */
    int most_kept;          /* partial plans in a state */
    long looked, most;      /* intervals; where there would be more, the run ends */
    bool found;             /* a plan, or not all was looked at */
};

/* Of many shares no interval is worth a look. */
static inline const struct share_table *dp_intervals(const struct run *run,
                                                     const struct share_table *share)
{
    return share->most ? share : table_share(run->search->table, share->samples);
}

/* Are any of 'r' devices from this one on of the kind? */
static inline bool dp_has_kind(const struct run *run, int kind, int device, int r)
{
    const int *row = run->of_kind + (size_t)kind * ((size_t)run->devices + 1);

    return row[device + r] > row[device];
}

static inline const struct least *dp_least_at(const struct run *run, int devices, int first)
{
    return &run->least[(size_t)run->row[devices] * ((size_t)run->n + 1) + (size_t)first];
}

/* Devices that so many stages may have at most, of these. */
static inline int dp_devices_for(const struct run *run, int stages, int devices)
{
    int most = stages * run->most_replicas;

    return most < devices ? most : devices;
}

/* What so many devices of those before a place are worth. */
static inline double dp_worth(const struct run *run, int devices, int place)
{
    return run->speeds ? dmin(devices, run->speeds[place]) : devices;
}

/* run->of_kind, where there are several: a device of a pipeline may be of another kind in each. */
void dp_fill_kinds(struct run *run);
/* run->speeds, where there are several: of the pipeline that has least. */
void dp_fill_speeds(struct run *run);
/* run->least, a row for each share that more devices bring, and run->level. */
void dp_fill_bounds(struct run *run);

/* Put messages between a new first stage and the one behind it. */
void dp_add_message(const struct run *run, const struct node *behind, const struct option *option,
                    int device, struct node *node);
/* What the first stage may wait for: as if all samples went through one wire. */
void dp_set_message(const struct run *run, int device, struct node *node);

#endif
