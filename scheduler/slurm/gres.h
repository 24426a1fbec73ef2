/* SPDX-License-Identifier: MIT */
/* Slurm's words for generic resources: "gpu:p100:4(S:0-1),gpu:v100:2,nic:1". */
#ifndef TASUKI_SLURM_GRES_H
#define TASUKI_SLURM_GRES_H

#include <stdbool.h>

struct slurm_gpus {
    char *type;             /* "p100"; "gpu" where it has none */
    int n;
    int *index;             /* [n] the job's, of the node; NULL: not said */
};

/* The GPUs of a list, a kind each, in its order; other resources are left out. What cannot be
 * read is left out, too. Returns how many kinds; slurm_gpus_free() them.
 */
int slurm_gpus_of(const char *gres, struct slurm_gpus **gpus);
void slurm_gpus_free(int n, struct slurm_gpus *gpus);
/* How many those are. */
int slurm_count_gpus(const char *gres);
/* Does it name shares of GPUs, "shard" or "mps"? */
bool slurm_has_gpu_parts(const char *gres);

#endif
