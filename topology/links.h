/* SPDX-License-Identifier: MIT */
/* What was measured between ranks, class by class of pairs (pairs.h), and what it says of the
 * cluster. How messages travel is the caller's affair: it brings the times.
 */
#ifndef TASUKI_TOPOLOGY_LINKS_H
#define TASUKI_TOPOLOGY_LINKS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "topology/fit.h"

struct cluster;
struct err;
struct pairs;

#define LINKS_SIZES 16          /* of messages, at most */

/* What one pair showed. */
struct link_trial {
    double quiet[LINKS_SIZES];  /* seconds one way, without the others: fit_quiet() */
    double median[LINKS_SIZES];
    double there, back;         /* bytes/s of many messages in one direction; 0: not tried */
};

struct links_class {
    char *name;
    char *way;                  /* who carries the bytes between GPUs: "NCCL"; NULL: hosts */
    int depth, kind;            /* of the places */
    int pairs;
    struct fit_curve curve;     /* of half of the pairs */
    double error;               /* of the curve, relative, the largest */
    double noise;               /* how much longer half of the messages take, relative */
    double seconds[LINKS_SIZES];
    char *slowest;              /* "n3 - n7" */
    double slowest_bandwidth;
    int together;               /* transfers of a load; 0: none was tried */
    double together_bandwidth;  /* of all of them */
};

/* A pair that is much slower than others of its class, in two measurements; of 'full' ones. */
struct links_slow {
    char *host;                 /* of the two, who is in more such pairs */
    char *what;                 /* "n3 -> n7", "n3 - n7" */
    char *class;
    bool is_latency;
    double value, usual;        /* bytes/s, or seconds */
};

struct links {
    bool full;
    int n_sizes;
    size_t bytes[LINKS_SIZES];
    int n_classes, n_slow;
    struct links_class *classes;    /* the closest first */
    struct links_slow *slow;
};

/* The sizes that are measured, ascending; how many is returned. Next to each power of two from
 * 2048 on lies one above and one below. Between GPUs they go further: NVLinks want long ones.
 */
int links_sizes(bool full, bool gpus, size_t bytes[LINKS_SIZES]);

/* 'trials' of all pairs; 'loads', bytes/s of each load. */
struct links *links_new(const struct cluster *cluster, const struct pairs *pairs,
                        const struct link_trial *trials, const double *loads, bool full);
void links_free(struct links *links);

/* Which pairs look much slower than half of their class? To measure them again: marks them, and
 * returns how many. Classes of fewer than four pairs have none.
 */
int links_suspects(const struct pairs *pairs, const struct link_trial *trials, bool full,
                   bool *suspect);
/* A pair that was measured twice: the better of both. */
void links_merge(struct link_trial *trial, const struct link_trial *again);

/* Replace latencies and bandwidths of the places where pairs meet. Places of a class are taken
 * to be alike. A wire gets what a load had together, and what one transfer had as the limit of
 * one; without a load, what one transfer had, times the wires that the table says lie side by
 * side.
 */
void links_apply(const struct links *links, struct cluster *cluster);

/* Sums over all devices: which sizes are measured (how many is returned), and factors from what
 * they took, so that cluster_allreduce_time() comes closest to all of them.
 */
struct links_sums {
    size_t floats[LINKS_SIZES];
    double seconds[LINKS_SIZES];
};

int links_sum_sizes(bool full, bool gpus, size_t floats[LINKS_SIZES]);
void links_apply_sums(struct cluster *cluster, int n, const struct links_sums *sums);

/* A table of these "links" or "GPU links"; malloc'ed. */
char *links_text(const struct links *links, const char *what);
/* "3.1 GB/s of 12.4 GB/s", the evidence; malloc'ed. */
char *links_evidence(const struct links_slow *slow);
/* The key "measured" of a topology file; NULL with 'err' where it is wrong. */
json_t *links_to_json(const struct links *links);
struct links *links_from_json(const char *path, const json_t *json, struct err *err);

#endif
