/* SPDX-License-Identifier: MIT */
/* Ranks that the launcher started, or that are threads of one process, bind themselves, each to its
 * share of the cores.
 *
 * A list of masks for srun is the same on all nodes, and Slurm takes none where a job has only
 * parts of nodes. So the launcher asks for --cpu-bind=none, by which each rank may run on all
 * cores that the job has on its node and on no other, and says in TASUKI_BIND how many of them
 * a rank gets at most: "all", "4 cores", or "4 threads" of cores.
 */
#ifndef TASUKI_TRAIN_BIND_H
#define TASUKI_TRAIN_BIND_H

#include <stdbool.h>

struct shares_request;
struct topo_node;

/* This is one of so many ranks of its node, 0: not known, which compute on these of its GPUs; NULL: if
 * 'on_gpus', each on its own of those that CUDA shows. Nothing where no launcher says so; where it cannot
 * be, the rank stays as it was started. What is left is node->usable. Before anything starts threads,
 * which inherit it.
 */
void bind_rank(struct topo_node *node, int ranks, bool on_gpus, const int *gpus);
/* This thread is one of the request's ranks, which share what their process may use; threads that it
 * starts inherit that. It stays as it is where it is to have more threads than that are cores of its
 * share, or the environment says how OpenMP binds threads (OMP_PROC_BIND, whatever it says).
 */
void bind_thread(struct shares_request *request, int rank, int threads);

#endif
