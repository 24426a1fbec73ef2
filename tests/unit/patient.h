/* SPDX-License-Identifier: MIT */
/* Nodes with 8 GPUs, 8 NICs and 8 tasks each, and the faults that are planted in them. */
#ifndef TASUKI_TESTS_PATIENT_H
#define TASUKI_TESTS_PATIENT_H

#include <stdbool.h>

#include "topology/node.h"

#define UNITS 8         /* GPUs, NICs and tasks of a node */
#define FAULTS 30

/* A node on its way into the record: what is planted, and what is to be found. */
struct patient {
    struct topo_node *node;
    struct bound {
        char cpus[48], visible[16], shown[16];
    } tasks[UNITS];
    int gpus[UNITS], nics[UNITS];   /* each fault takes one of its own */
    int pairs[UNITS / 2];           /* of tasks on the same socket */
    int n_gpus, n_nics, n_pairs;    /* taken */
    int gone_gpus, gone_nics;       /* behind the last of the node, until it is freed */
    int n_expected;
    char expected[32][64];
};

int draw(int n);

/* What healthy siblings do not share: serials, clocks, some memory, the order of things. */
struct topo_node *sibling(int number);
/* Task i has CPUs 14i to 14i+11 and GPU i; the two CPUs behind are nobody's. */
void start(struct patient *p, int number);
void forget_links(struct topo_gpu *gpu);

enum taken { NODE, GPU, NIC, PAIR };

struct fault {
    void (*plant)(struct patient *p);
    enum taken takes;
    bool alone;             /* it hides others of the same node */
};
extern const struct fault faults[];

/* Some by their names. */
void dead_link(struct patient *p);
void no_gpudirect(struct patient *p);
void across_sockets(struct patient *p);

#endif
