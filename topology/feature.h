/* SPDX-License-Identifier: MIT */
/* What nodes are compared by: facts in words, by a key that is the same on every node.
 *
 * GPUs and NICs are numbered by PCI address; names, serial numbers, clocks and addresses, which
 * healthy siblings do not share, are no features. What was not collected is none either.
 */
#ifndef TASUKI_TOPOLOGY_FEATURE_H
#define TASUKI_TOPOLOGY_FEATURE_H

#include <stdbool.h>

struct topo_node;

enum feature_kind {
    FEATURE_PROCESSOR, FEATURE_MEMORY, FEATURE_GPUS, FEATURE_GPU, FEATURE_NVLINK, FEATURE_PCIE,
    FEATURE_MODE, FEATURE_P2P, FEATURE_DRIVER, FEATURE_GPUDIRECT, FEATURE_NIC, FEATURE_PORT,
    FEATURE_SOURCE
};

struct feature {
    enum feature_kind kind;
    char *key;              /* "GPU3: NVLinks up" */
    char *value;            /* "17 of 18" */
    double number;          /* the value as a number; NAN: it is none */
    double slack;           /* two numbers are alike that differ by less than this part */
    bool of_gpu, of_nic;    /* one with a number, or several */
};

struct features {
    int n;
    struct feature *list;   /* by key */
};

struct features *features_of(const struct topo_node *node);
/* The only one of its kind, of so many bytes; feature_clear() it. */
struct feature feature_of_memory(double bytes);
void feature_clear(struct feature *feature);
void features_free(struct features *features);
/* NULL: it was not collected. */
const struct feature *feature_find(const struct features *features, const char *key);
int feature_alike(const struct feature *a, const struct feature *b);

/* What may be done about a difference. */
const char *feature_advice(enum feature_kind kind);

#endif
