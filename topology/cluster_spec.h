/* SPDX-License-Identifier: MIT */
/* What-if clusters written as one word: "flat:16,…" and "tree:4x8,…" (see cluster.h). */
#ifndef TASUKI_TOPOLOGY_CLUSTER_SPEC_H
#define TASUKI_TOPOLOGY_CLUSTER_SPEC_H

#include <stdbool.h>

struct cluster;
struct err;

/* Does the text say "flat:" or "tree:"? Otherwise it is a path. */
bool cluster_is_spec(const char *text);

/* Errors are EXIT_USAGE and quote the word that is wrong. */
struct cluster *cluster_from_spec(const char *spec, struct err *err);

#endif
