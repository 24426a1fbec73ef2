/* SPDX-License-Identifier: MIT */
/* What measuring hosts (measure.c) and GPUs (measure_gpus.c) have in common: pairs of ranks in
 * rounds, those that look slow again, loads.
 */
#ifndef TASUKI_TRAIN_MEASURE_PRIVATE_H
#define TASUKI_TRAIN_MEASURE_PRIVATE_H

#include "train/measure.h"

struct flow_record;
struct pairs;
struct probe;
struct progress;

#define MEASURE_ROUNDS 5        /* of each load */

struct measuring {
    struct comm *comm;
    struct cluster *cluster;    /* its devices know their ranks */
    struct pairs *pairs;
    const int *second;          /* of GPUs: another rank that uses the device */
    struct probe *probe;
    struct probe *host_probe;   /* between GPUs, where hosts move the bytes: of two ranks on one, and, */
    bool hosts_between_nodes;   /* if so, across nodes */
    bool full;
    int n_sizes;
    size_t bytes[LINKS_SIZES];
    struct link_trial *trials;  /* of each pair */
    struct flow_record *flows;  /* of each transfer of a load */
    double *loads;
    bool again;                 /* pairs are measured for the second time */
    struct progress *progress;  /* NULL: it is over soon */
    int done;                   /* rounds */
};

/* With 'comm', 'cluster', 'pairs' and 'full'. Returns how large the pool of a wire is to be. */
size_t measure_start(struct measuring *m);
/* Then with a probe, on all ranks: the same trials and loads on all. Collective. */
int measure_run(struct measuring *m, struct err *err);
void measure_end(struct measuring *m);

#endif
