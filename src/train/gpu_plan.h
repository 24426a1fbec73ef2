/* SPDX-License-Identifier: MIT */
/* The GPUs that a plan names: HOST/gpuN, in the order of the host's, HOST/ADDRESS or HOST/UUID, with
 * ".I" behind it where several ranks share one.
 */
#ifndef TASUKI_TRAIN_GPU_PLAN_H
#define TASUKI_TRAIN_GPU_PLAN_H

struct plan;
struct topo_node;

struct gpu_plan {
    const struct topo_node *node;   /* this rank's, which has N and UUID; NULL: not known */
    int n;
    const char **devices;           /* each once */
};

struct gpu_names {
    char address[32];
    int index;                      /* -1: not known */
    char uuid[64];                  /* "-": not known */
};

/* 'plan' may be NULL: then it names none. Ids stay the plan's. */
struct gpu_plan gpu_plan_new(const struct plan *plan, const struct topo_node *node);
void gpu_plan_clear(struct gpu_plan *plan);
struct gpu_names gpu_names(const struct topo_node *node, const char *address);
/* The id of the i-th device that is this GPU of that host; NULL: there are not so many. */
const char *gpu_plan_device(const struct gpu_plan *plan, const char *host,
                            const struct gpu_names *gpu, int i);
/* How many are. */
int gpu_plan_count(const struct gpu_plan *plan, const char *host, const struct gpu_names *gpu);
/* Which GPU of its node each of so many tasks of that host will take (gpu.h), malloc'ed, before they meet:
 * they are taken to be shown the same. NULL: the plan names none of these, or fewer than would tell.
 */
int *gpu_plan_take(const struct gpu_plan *plan, const char *host, int tasks);

#endif
