/* SPDX-License-Identifier: MIT */
/* Between simulate.c (workers), simulate_setup.c, simulate_alike.c, simulate_wire.c (messages,
 * reductions and wires) and simulate_order.c (the order of what was recorded).
 */
#ifndef TASUKI_SCHEDULER_SIMULATE_PRIVATE_H
#define TASUKI_SCHEDULER_SIMULATE_PRIVATE_H

#include <math.h>

#include "base/timers.h"
#include "scheduler/simulate.h"
#include "scheduler/stage.h"

/* Where the schedule is not flushed: one of them is measured, and another one follows it. */
#define SIM_ITERATIONS (SCHEDULE_STEADY + 1)
#define SIM_MEASURED 2

/* The way between two devices: wires are 2 * place + (0 up, 1 down). */
struct route {
    int n;
    int wires[CLUSTER_WIRES];
    struct cluster_link link;
};

struct id_list {
    int n, room;
    int *items;
};

/* Bytes on their way. */
struct flow {
    const struct route *route;
    double bytes, rate, since;  /* that were left, from when on, at which pace */
    double start;
    int channel, group;         /* whose they are; the other is -1 */
    bool moving;                /* the latency is over */
};

/* One direction of a wire. */
struct wire {
    struct id_list flows;       /* that move */
    double share, before;       /* what each gets; got before the last came or went */
};

/* Messages of one edge and direction between two replicas, in order. */
struct channel {
    int from, to;               /* workers */
    int from_stage, to_stage;
    bool gradient;
    double bytes;
    struct route route;
    int sent, posted, done;
    int most;                   /* sent and not done */
    int *order;                 /* [micro_batches] as sent; all of an edge and direction share it */
    bool busy;
};

/* One replica of a stage, a chunk of its worker's list. */
struct part {
    int stage;
    int64_t samples;
    const struct cost *kind;    /* of its device: what counts is seconds */
    struct stage_seconds cost;
    enum plan_recompute recompute;  /* what is run again in B */
    struct id_list in[2], out[2];   /* channels: values, gradients */
    int *arrived[2];            /* [micro_batches]: messages of those that come in */
    int last_backward;          /* of an iteration: the instruction whose pieces are reduced */
    int pieces;                 /* blocks of it that are done */
    double busy;                /* seconds */
};

/* Who runs a list: one replica of the stages that are its chunks. */
struct worker {
    int pipeline, list, replica, device, threads;
    int node;                   /* place whose cores it shares */
    int n_parts;
    struct part *parts;
    int next;                   /* instruction */
    int steps;                  /* iterations that are over */
    double stepped[SIM_ITERATIONS];     /* when */
    bool computing, check, reducing;
    double left, rate, since;   /* of the computation: seconds, from when on, at which pace */
    double start;               /* of the instruction */
    int reductions;             /* of its gradients under way */
    int sending, receiving;     /* messages under way, where they slow it down */
    double waiting;             /* since when at REDUCE */
    double busy, reduced;       /* seconds */
};

/* One way to sum them, as in topology/allreduce.h. */
struct group_way {
    struct allreduce_line line;
    int n_phases;
    struct group_phase {
        int n;
        struct route *hops;
        double latency, share;
    } phases[ALLREDUCE_PHASES];
};

/* Gradients that some workers sum. A stage's has a piece for each bucket of blocks, last block
 * first; that of a shared parameter has one, ready when its workers reach REDUCE.
 */
struct group {
    bool shared;
    int stage;                  /* where it is not shared */
    struct id_list workers;     /* in device order */
    int n_pieces;
    double *bytes;              /* [n_pieces] */
    int *ready;                 /* [blocks + 1]: pieces, when so many blocks are done; not shared */
    int reduced, target;        /* pieces of all iterations that are done; under way */
    int flows;                  /* left of those under way */
    int n_ways;                 /* that the cluster may take */
    struct group_way ways[ALLREDUCE_KINDS];
    int way, phase;             /* under way */
    double moving;              /* bytes, likewise */
    double start;               /* of the first collective */
};

struct sim {
    const struct plan *plan;
    const struct cost *cost;
    const struct cluster *cluster;
    struct arena *arena;        /* of lists, and of arrays of one size */
    bool record;
    int shift, copies;          /* devices of each part, and how many of them go like the first:
                                 * simulate_copies() */
    double jitter;              /* computations take up to so much longer, relative */
    unsigned short seed[3];
    double *moved;              /* [2 * n_places]: bytes over each wire */
    int *stage;                 /* of each block */
    struct id_list *blocks;     /* of each stage */
    struct schedule *schedule;  /* that is run: all iterations */
    struct schedule *once;      /* one of them; NULL where there is one */
    bool measured;              /* a worker is in the one that is; before that nothing is kept */
    double seconds;             /* of an iteration; INFINITY: more than the limit */
    double limit;
    int n_workers, n_channels, n_groups, n_flows;
    struct worker *workers;
    struct channel *channels;
    struct group *groups;       /* one for each stage, then of shared parameters */
    struct flow *flows;
    struct id_list idle_flows;  /* to be used again */
    struct wire *wires;         /* [2 * n_places] */
    struct id_list *node_workers;   /* [n_places] */
    int *node_threads;          /* [n_places]: busy */
    int *checks;                /* [n_workers], a ring: workers that may go on */
    int first_check, n_checks;
    struct timers timers;       /* of each worker, then n_workers on of each flow */
    double now;
    int n_events;
    struct simulated_event *events;
};

/* What is recorded is all, else pipelines that are alike are left out. 'limit': of seconds. */
struct sim *sim_new(const struct plan *plan, const struct cost *cost,
                    const struct cluster *cluster, bool record, double limit, struct err *err);
void sim_free(struct sim *sim);
/* The part of a worker that runs a stage. */
struct part *part_of(const struct sim *sim, int worker, int stage);
void id_list_grow(struct sim *sim, struct id_list *list);

static inline void id_add(struct sim *sim, struct id_list *list, int id)
{
    if (list->n == list->room)
        id_list_grow(sim, list);
    list->items[list->n++] = id;
}

/* Post one side of a micro-batch's message; what can move, moves. */
void channel_send(struct sim *sim, int channel, int micro);
void channel_post(struct sim *sim, int channel);
/* Start what all workers of a group, or of any, have ready. */
void group_start(struct sim *sim, int group);
void groups_start(struct sim *sim);
/* Are the gradients of so many iterations summed? */
bool group_done(const struct group *group, int iterations);
/* Workers in all, and those that others stand for. */
int group_size(const struct sim *sim, const struct group *group);
/* The last backward of a chunk's iteration, of which instruction 'from' is. */
int sim_last_backward(const struct instruction_list *list, int chunk, int from);
/* The latency of a flow is over, or it has arrived. */
void flow_timer(struct sim *sim, int flow);
/* Something has happened that may let the worker go on. */
static inline void worker_check(struct sim *sim, int worker)
{
    int place = sim->first_check + sim->n_checks;

    if (sim->workers[worker].check)
        return;
    sim->workers[worker].check = true;
    sim->checks[place < sim->n_workers ? place : place - sim->n_workers] = worker;
    sim->n_checks++;
}

/* A computation goes on at the pace that cores and reductions leave it now. */
void worker_pace(struct sim *sim, int worker);

/* As struct simulation has them. */
void sim_sort_events(struct sim *sim);
void sim_add_event(struct sim *sim, int worker, const struct instruction *instruction,
                   double start, double end);

static inline void sim_record(struct sim *sim, int worker,
                              const struct instruction *instruction, double start, double end)
{
    if (sim->record && (!sim->once || sim->measured))
        sim_add_event(sim, worker, instruction, start, end);
}

#endif
