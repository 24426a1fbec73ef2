/* SPDX-License-Identifier: MIT */
/* From a model and a cluster to a plan: costs measured or read, then the planner, whose memory
 * forecast is the compiled stage itself.
 */
#ifndef TASUKI_TRAIN_PLANNING_H
#define TASUKI_TRAIN_PLANNING_H

#include "base/option.h"
#include "graph/model.h"
#include "kernels/backend.h"
#include "scheduler/cost.h"
#include "scheduler/partition.h"
#include "train/built.h"
#include "train/data.h"
#include "train/trials.h"

struct err;

struct planning {
    struct model *model;
    const char *model_path;             /* for the plan file */
    struct model_options model_options;
    struct built *built;                /* of them; NULL: one for each call */
    const struct backend *backend;
    struct device *device;              /* compiles stages; measuring opens its own, */
    const char *gpu;                    /* at this address; NULL: the first, if any */
    int threads;
    const char *cache_directory;        /* of measured costs; NULL: none */
    struct optimizer_args optimizer;
    bool averaged;                      /* --ema: one array more for each parameter */
    const struct cluster *cluster;
    struct cost *cost;                  /* NULL: measure; else the caller's */
    struct cost **kept;                 /* NULL, or where what was measured, or given, stays: the
                                         * caller's, too */
    struct plan_request request;        /* optimizer, memory_of and user are filled in */
    const char *command;
};

/* '*why' as partition() leaves it; may be NULL. */
struct plan *planning_run(const struct planning *planning, char **why, struct err *err);

/* The costs that planning_run() takes where none are given: measured on the device that is here, or
 * estimated for each kind of a cluster that is elsewhere. By the request's batch sizes.
 */
struct cost *planning_cost(const struct planning *planning, struct err *err);

/* Those of the files that are made for kinds of the cluster's devices, as one (cost_choose()). */
struct cost *planning_choose(const struct cluster *cluster, int n, const char *const *paths,
                             struct err *err);
/* Says so where the devices are of several kinds and are all taken to be one: that of 'cost', or, NULL,
 * of planning_cost().
 */
void planning_warn(const struct cluster *cluster, const struct cost *cost);
/* Where the costs, if not NULL, were taken in another precision than a plan's. */
void planning_warn_precision(const char *precision, const struct cost *cost);

/* Where trials of the model on this cluster are kept; its strings are the planning's. Nowhere
 * where its costs are not measured.
 */
struct trials_key planning_trials(const struct planning *planning);

/* BatchNorm's groups where nobody said: what one device takes at once, or at most 16 samples
 * where several may share the batch.
 */
int64_t planning_group(const struct plan_request *request, int n_devices);

/* model_open(), but for a path that plans and checkpoints could not name. */
struct model *planning_model(const char *path, struct err *err);
/* What --device, --backend and --precision say together: the name for planning_backend(); NULL: the
 * default.
 */
int planning_kernels(const struct options *options, const char **name, struct err *err);
/* The name for what GPUs alone compute in, "tf32" and so on; NULL: it is none of these. */
const char *planning_gpu_kernels(const char *precision);
/* What is computed in place of these kernels, where the oldest GPU, of this name, is of this architecture:
 * without bfloat16 float16, without TF32 float32. Where that is something else it may be said.
 */
const char *planning_suited(const char *kernels, const char *gpu, int architecture, bool say);
/* The word of --precision for what a backend computes in; 'backend' may be NULL. */
const char *planning_precision(const struct backend *backend, bool float64);
/* What factors of products are rounded to with it. */
enum cluster_factors planning_factors(const struct backend *backend);
/* Is it a backend of GPUs? NULL is none. */
bool planning_on_gpu(const char *kernels);
/* Kernels by name; NULL: cpu, or reference for float64, which no other has. */
const struct backend *planning_backend(const char *name, bool float64, struct err *err);

/* Is there memory of GPUs that the optimizer's state may leave? Of the devices of a cluster, and of
 * what computes; both may be NULL.
 */
int planning_check_offload(const struct cluster *cluster, const struct backend *backend,
                           struct err *err);

/* For a command that has no run: the model, its data and a device. */
struct planning_source {
    const char *model, *data, *loss;    /* paths; data and loss may be NULL */
    struct data_options data_options;
    const char *backend;                /* see planning_backend() */
    bool float64, fuse;
    int n_freeze;                           /* as in model_options */
    const char *const *freeze;
    struct model *opened;               /* what planning_close() closes */
    struct data *opened_data;
};

/* Fills model, options, backend and device; asks the graph whether it has BatchNorm, and
 * chooses the request's groups where they are not given.
 */
int planning_open(struct planning *planning, struct planning_source *source, struct err *err);
void planning_close(struct planning *planning, struct planning_source *source);

#endif
