/* SPDX-License-Identifier: MIT */
/* Between whom to measure links: pairs of devices of each class, in rounds in which no pair
 * disturbs another.
 *
 * The class of a pair is the kind of place in which the two meet: a node, a switch, the
 * network. In each place, neighbouring children and children half of the list apart are
 * measured. Where children are nodes or contain some, a node takes part with its first device,
 * and at most 32 nodes of a child do; of the devices of one node 16 do. Pairs of a round share
 * no wire and no cores. So the number of rounds does not depend on how many nodes there are,
 * only on how many share the wire of a switch: 1,000 nodes on switches of 25 take about 100.
 *
 * GPUs of one node are of the class that their distance is (distance.h), and each is measured
 * with each other one.
 */
#ifndef TASUKI_TOPOLOGY_PAIRS_H
#define TASUKI_TOPOLOGY_PAIRS_H

#include <stdbool.h>

#include "topology/cluster.h"

struct err;
struct topo_record;

struct pair_class {
    int depth;                  /* of the places where pairs meet, below the root; -1: these */
    enum cluster_kind kind;     /* pairs say nothing of the place */
    int place;                  /* the first of them */
    char word[16];              /* of GPUs on one node: "NV4", "PIX", "X"; else "" */
    const char *way;            /* who carries the bytes between GPUs: "NCCL"; else NULL */
};

struct pair {
    int class;
    int a, b;                   /* devices, on different children of one place, or the same */
    int round;
};

/* All devices of one child of a place send to those of another at once. */
struct pair_load {
    int class;
    int first, n;               /* its pairs, among the flows */
};

struct pairs {
    bool gpus;                  /* not hosts */
    int n_classes, n_pairs, n_rounds, n_loads, n_flows;
    struct pair_class *classes; /* by depth, the deepest first */
    struct pair *pairs;         /* by class */
    struct pair_load *loads;    /* one after the other, not in rounds */
    struct pair *flows;         /* from a to b */
};

/* Not 'full': one pair in each of up to four places of a class, and no loads. */
struct pairs *pairs_choose(const struct cluster *cluster, bool full);
/* Of the GPUs that ranks drive, as the model of their nodes has them (model.h). 'shared': of
 * each device, does a second rank use it? Then these two are a pair, "X". NULL with 'err'.
 */
struct pairs *pairs_choose_gpus(const struct cluster *cluster, const struct topo_record *record,
                                const bool *shared, bool full, struct err *err);
/* The same pairs by places alone, for links_apply(). */
struct pairs *pairs_by_place(const struct pairs *pairs);
void pairs_free(struct pairs *pairs);

/* "same node", "same machine", "same switch", "across switches", …; malloc'ed. */
char *pairs_class_name(const struct cluster *cluster, const struct pair_class *class);

/* Distribute over rounds: the first in which each pair shares no wire and no cores with others.
 * Returns how many rounds; a pair for which there is none (after 1024) has round -1.
 */
int pairs_schedule(const struct cluster *cluster, int n, struct pair *pairs);

#endif
