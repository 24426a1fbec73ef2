/* SPDX-License-Identifier: MIT */
/* The plan: stages, replicas, devices, micro-batches, schedule (tasuki-plan(5)). */
#ifndef TASUKI_SCHEDULER_PLAN_H
#define TASUKI_SCHEDULER_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "scheduler/schedule.h"

struct err;

struct plan_block {
    char *name;
    char *first_node, *last_node;   /* ONNX names; NULL where made from a cost file alone */
};

/* What of the forward is run again before each backward, and not kept: what memory-bound operators
 * make (graph/recompute.h), or all, so that only a stage's inputs are kept.
 */
enum plan_recompute {
    PLAN_RECOMPUTE_NONE, PLAN_RECOMPUTE_SELECTIVE, PLAN_RECOMPUTE_FULL, PLAN_RECOMPUTE_COUNT
};

struct plan_stage {
    int n_blocks;
    struct plan_block *blocks;
    int replicas;                   /* r of one pipeline */
    char **devices;                 /* [pipelines * replicas] ids, pipeline-major */
    int64_t *samples;               /* [replicas]: share of one micro-batch */
    enum plan_recompute recompute;
    double forward, dgrad, wgrad;   /* seconds per micro-batch, of the largest share; where devices
                                     * are of several kinds, of the replica that takes longest */
    double allreduce;               /* seconds, nothing else running */
    /* Of an iteration, mean over its replicas: seconds of computing, of waiting for the
     * all-reduce after that, and of waiting for other stages; where a device has several
     * stages, its waiting is divided among them.
     */
    double busy, reducing, idle;
    double busiest;                 /* of these replicas: seconds of computing; not in files */
    double memory;                  /* bytes, of the largest share */
    double memory_limit;            /* bytes that each of its devices may use; INFINITY: any */
    double parameters;              /* bytes, shared ones included */
    double sent;                    /* bytes of one micro-batch that later stages read */
};

/* May, must or must not the optimizer's state be sharded? */
enum plan_zero { PLAN_ZERO_ANY, PLAN_ZERO, PLAN_ZERO_NEVER };

struct plan_shared {
    char *name;                     /* parameter */
    int owner;                      /* stage that steps it first: the lowest that reads it */
    int n_stages;
    int *stages;
};

struct plan {
    int64_t global_batch, micro_batches, micro_batch;   /* global = pipelines*batches*micro */
    char *schedule;                 /* "gpipe", "1f1b", ...; the name of 'list' if there is one */
    struct schedule *list;          /* instructions that were given; NULL: made by the name */
    int chunks;                     /* schedule_options; 1 where there is a list */
    double schedule_memory;
    int pipelines;
    bool zero;                      /* optimizer state in shards, one for each copy: ZeRO-1 */
    bool offload;                   /* of GPUs, optimizer state in memory of the host */
    int64_t batchnorm_samples;
    int n_freeze;                   /* --freeze: patterns of parameters that are not trained */
    char **freeze;
    double iteration_seconds, lower_bound_seconds;
    double flops, peak_flops;       /* of an iteration; of its devices per second; 0: not known */
    char *model_path, *model_hash;  /* NULL where made from a cost file alone */
    char *cluster;                  /* as given to --cluster, or a description */
    char *precision, *optimizer, *command;
    int n_stages, n_shared;
    struct plan_stage *stages;      /* in topological order */
    int *stage_of;                  /* of each block of the cost file, where no stage says which it
                                     * has; else NULL */
    struct plan_shared *shared;
};

const char *plan_recompute_name(enum plan_recompute recompute); /* "none", "selective", "full" */
/* PLAN_RECOMPUTE_COUNT where none is called so. */
enum plan_recompute plan_recompute_find(const char *name);

/* First sample of replica i of r in a micro-batch of b samples: floor(i*b/r). */
int64_t plan_share_start(int64_t b, int r, int i);

/* Where the model is: a relative path is looked for beside the plan file, too. malloc'ed. */
char *plan_find_model(const struct plan *plan, const char *plan_path);
/* Its cluster: a relative path to a topology file is looked for beside the plan file, too. malloc'ed. */
char *plan_find_cluster(const struct plan *plan, const char *plan_path);
/* Was it made for the graph of this hash? Yes where one of the two is not known. */
bool plan_suits(const struct plan *plan, const char *model_hash);

/* What the stages run: the list that was given, checked, or what the schedule's name makes.
 * 'edges' as for schedule_new().
 */
struct schedule *plan_schedule(const struct plan *plan, const struct schedule_edge *edges,
                               int n_edges, struct err *err);
/* How many lists run a pipeline, and which runs stage 's'. */
int plan_lists(const struct plan *plan);
int plan_list(const struct plan *plan, int s);
/* The first stage of a list. */
int plan_list_first(const struct plan *plan, int l);
/* Of a pipeline: replicas of all its lists. */
int plan_devices(const struct plan *plan);
/* Versions of the weights: 2 where an update is computed from weights one update old. */
int plan_versions(const struct plan *plan);
/* Is it the first chunk of its list? */
bool plan_first(const struct plan *plan, int s);
/* Who runs a replica of a stage: pipeline-major, then by list, then by replica. */
int plan_worker(const struct plan *plan, int pipeline, int s, int replica);
/* Does the schedule suit the stages and micro-batches, and are stages of one list on the same
 * devices, those of different lists on others?
 */
int plan_check_lists(const struct plan *plan, struct err *err);
/* Run these instructions. They are copied. */
void plan_set_list(struct plan *plan, const struct schedule *list);
/* Run what this says: the name of a schedule, or a file of instructions for as many stages and
 * micro-batches. The memory of the stages is not known then.
 */
int plan_set_schedule(struct plan *plan, const char *name_or_file, struct err *err);

/* Copies the patterns. */
void plan_set_freeze(struct plan *plan, int n, const char *const *patterns);

/* By its name, *.json: of what may also be a model. */
bool plan_is_file(const char *path);
/* Strict: sums, ranges, device counts and names are checked. */
struct plan *plan_load(const char *path, struct err *err);
struct plan *plan_from_json(const char *path, const json_t *json, struct err *err);
json_t *plan_to_json(const struct plan *plan);
int plan_save(const struct plan *plan, const char *path, struct err *err);
void plan_free(struct plan *plan);

#endif
