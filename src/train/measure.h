/* SPDX-License-Identifier: MIT */
/* What the links between ranks really do. */
#ifndef TASUKI_TRAIN_MEASURE_H
#define TASUKI_TRAIN_MEASURE_H

#include "comm/comm.h"
#include "topology/cluster.h"

struct err;

/* Replace the table's bandwidths and latencies in 'cluster', which has a device for each rank,
 * by what messages between ranks show; the same figures on all ranks. Collective.
 *
 * For each kind of place one pair of ranks that meet there sends messages to and fro, small
 * ones for the latency and larger ones for the bandwidth (the median of several); places of
 * one kind and depth take the median over up to four of them.
 */
int measure_links(struct comm *comm, struct cluster *cluster, struct err *err);

#endif
