/* SPDX-License-Identifier: MIT */
/* The network adapter of a task: of several of its node, the nearest to its GPU, or to its cores.
 *
 * UCX uses those of UCX_NET_DEVICES ("mlx5_0:1"), PSM2 that of HFI_UNIT, of hfi1_0 the 0. NCCL is
 * told nothing: it looks by itself, and wants the same NCCL_IB_HCA on all ranks.
 */
#ifndef TASUKI_TRAIN_RAIL_H
#define TASUKI_TRAIN_RAIL_H

#include <stdbool.h>

struct topo_node;

/* This is one of so many tasks of its node, 0: not known, which compute on these GPUs, as in bind_rank().
 * Before MPI starts. The environment stays as it is where a user, or a file ucx.conf (in UCX_CONFIG_DIR,
 * /etc/ucx, HOME or here), says anything of adapters, of how many to use or of transports, where they cannot
 * be opened or are not alike, and where tasks are fewer than the adapters that are nearest to some: then a
 * task may use all.
 */
void rail_choose(const struct topo_node *node, int tasks, bool on_gpus, const int *gpus);
/* Into the log: the adapter that the environment says, and how far it is from that GPU, -1: none. */
void rail_tell(const struct topo_node *node, int gpu);

#endif
