/* SPDX-License-Identifier: MIT */
/* What the links between ranks really do. */
#ifndef TASUKI_TRAIN_MEASURE_H
#define TASUKI_TRAIN_MEASURE_H

#include "comm/comm.h"
#include "topology/cluster.h"
#include "topology/links.h"
#include "train/nccl.h"

struct err;
struct gpu_links;
struct topo_record;
struct wire_gpu;

/* QUICK takes some tenths of a second: one pair of ranks in each of up to four places of a
 * class, and sums over all ranks. FULL takes the pairs of pairs_choose(), each until it is
 * known, both directions, all ranks of a node at once, and measures again what looks slow:
 * about half a second for each round of pairs, so that 1,000 nodes take about a minute.
 */
enum measure { MEASURE_QUICK, MEASURE_FULL, MEASURE_NONE };

/* Replace the table's bandwidths, latencies and factors of sums in 'cluster', which has a device
 * for each of at least two ranks, by what messages between ranks show; the same figures on all
 * ranks. Collective. What was found, in detail, in '*links', unless that is NULL.
 */
int measure_links(struct comm *comm, struct cluster *cluster, enum measure how,
                  struct links **links, struct err *err);

/* The same between the GPUs of a run, as it moves bytes, each rank on one: the cluster's devices are
 * these. Collective.
 */
int measure_wires(struct comm *comm, struct cluster *cluster, const struct wire_gpu *gpu,
                  enum measure how, struct links **links, struct err *err);

/* What links between the ranks' GPUs do, by tasuki-cuda.so alone: by NCCL as far as it is used, and
 * there; else hosts move the bytes. '*gpus' is NULL where no node has any, the same on all ranks
 * otherwise; what could not be measured, it says and why. That a GPU fails while it is used is an
 * error. Collective.
 */
int measure_gpus(struct comm *comm, const struct topo_record *record, enum measure how,
                 enum nccl_use use, struct gpu_links **gpus, struct err *err);

#endif
