/* SPDX-License-Identifier: MIT */
/* Between simulate.c (workers and time), simulate_setup.c and simulate_wire.c (messages,
 * reductions and wires).
 */
#ifndef TASUKI_SCHEDULER_SIMULATE_PRIVATE_H
#define TASUKI_SCHEDULER_SIMULATE_PRIVATE_H

#include "scheduler/simulate.h"
#include "scheduler/stage.h"

#define MAX_WIRES 16

/* The way between two devices: wires are 2 * place + (0 up, 1 down). */
struct route {
    int n;
    int wires[MAX_WIRES];
    double latency;
};

/* Bytes on their way. */
struct flow {
    const struct route *route;
    double latency, bytes;      /* that are left */
    double rate;
    double start;
    int channel, group;         /* whose they are; the other is -1 */
};

/* Messages of one edge and direction between two replicas, in order. */
struct channel {
    int from, to;               /* workers */
    bool gradient;
    double bytes;
    struct route route;
    int sent, posted, done;
    int *order;                 /* [micro_batches] as sent */
    bool *arrived;              /* [micro_batches] */
    bool busy;
};

struct id_list {
    int n;
    int *items;
};

/* One replica of a stage. */
struct worker {
    int pipeline, stage, replica, device, threads;
    int node;                   /* place whose cores it shares */
    int64_t samples;
    struct stage_cost cost;
    struct id_list in[2], out[2];   /* channels: values, gradients */
    int next;                   /* instruction */
    int last_backward;          /* the instruction whose pieces are reduced */
    int pieces;                 /* blocks of it that are done */
    bool computing, check, reducing;
    double left, rate, start;   /* of the computation */
    int reductions;             /* of its gradients under way */
    double busy, reduced;       /* seconds */
};

/* Gradients that some workers sum. A stage's has a piece for each block, last block first;
 * that of a shared parameter has one, ready when its workers reach REDUCE.
 */
struct group {
    bool shared;
    struct id_list workers;     /* in device order */
    int n_pieces;
    double *bytes;              /* [n_pieces] */
    int reduced, target;        /* pieces that are done; that are under way */
    int flows;                  /* left of those under way */
    struct route *ring;         /* [workers] */
    double latency;             /* of a whole collective */
    double start;               /* of the first collective */
};

struct sim {
    const struct plan *plan;
    const struct cost *cost;
    const struct cluster *cluster;
    bool record;
    int *stage;                 /* of each block */
    struct id_list *blocks;     /* of each stage */
    struct schedule *schedule;
    int n_workers, n_channels, n_groups, n_flows, flow_room;
    struct worker *workers;
    struct channel *channels;
    struct group *groups;       /* one for each stage, then of shared parameters */
    struct flow *flows, *landed;    /* under way; scratch */
    int *wire_users;            /* [2 * n_places] */
    int *node_threads;          /* [n_places]: busy */
    double now;
    int n_events;
    struct simulated_event *events;
};

struct sim *sim_new(const struct plan *plan, const struct cost *cost,
                    const struct cluster *cluster, bool record, struct err *err);
void sim_free(struct sim *sim);
void id_add(struct id_list *list, int id);

/* Post one side of a micro-batch's message; what can move, moves. */
void channel_send(struct sim *sim, int channel, int micro);
void channel_post(struct sim *sim, int channel);
/* Start what all workers of the groups have ready. */
void groups_start(struct sim *sim);
bool group_done(const struct group *group);
/* Share the wires; seconds until a flow arrives or starts to move (INFINITY: none). */
double flows_next(struct sim *sim);
/* Let 'seconds' pass; those that arrive mark their workers to be checked. */
void flows_advance(struct sim *sim, double seconds);
void sim_record(struct sim *sim, int worker, const struct instruction *instruction,
                double start, double end);

#endif
