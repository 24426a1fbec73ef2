/* SPDX-License-Identifier: MIT */
/* What a training run was asked to do. Strings belong to the caller. */
#ifndef TASUKI_TRAIN_SETTINGS_H
#define TASUKI_TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/plan.h"
#include "train/best.h"
#include "train/data.h"
#include "train/guard.h"
#include "train/job.h"
#include "train/job_limit.h"
#include "train/loss_scale.h"
#include "train/measure.h"
#include "train/nccl.h"
#include "train/optimizer.h"
#include "train/recipe.h"
#include "train/step_facts.h"

struct schedule;

struct train_settings {
    const char *input;          /* MODEL.onnx or plan.json */
    const char *data, *test;    /* see data_open(); 'test' may be NULL */
    struct data_options data_options;
    int64_t data_threads;       /* that read ahead; 0: none */
    bool data_threads_given;    /* else as many as the format is worth */
    const char *stage_to;       /* directory of each node for copies of the data; NULL: none */
    bool keep_staged;
    const char *loss;           /* NULL: chosen */
    const char *init;           /* see initial.h; NULL: not said */
    bool precision_given;       /* else as the plan or the checkpoint says */
    bool float64, fuse;
    int n_freeze;               /* patterns, see model.h; 0: as the plan or checkpoint says */
    const char *const *freeze;
    int64_t batchnorm_samples;  /* 0: not said */

    int64_t global_batch;       /* 0: as the plan or the checkpoint says */
    int64_t epochs, steps;      /* 0: not said */
    struct optimizer_given optimizer_given;
    struct optimizer_args optimizer;
    struct recipe_given recipe_given;
    struct recipe recipe;
    bool seed_given;
    uint64_t seed;
    bool shuffle;

    const char *cluster;        /* NULL: what is here */
    int n_costs;
    const char *const *costs;
    int pipelines, stages, n_replicas;  /* pins; 0: free */
    int n_pins;                 /* --pin */
    const char *const *pins;
    int *replicas;
    int64_t micro_batches, micro_batch;
    const char *schedule;
    struct schedule *list;      /* instructions in its place */
    int chunks;                 /* of --schedule interleaved */
    double schedule_memory;
    enum plan_zero zero;
    bool offload_given, offload;    /* else as the plan or the checkpoint says */
    const char *recompute;      /* or NULL */
    double memory;              /* bytes; 0: as the machine has it */
    bool keep_plan;
    int trial;                  /* plans to run before the first step; 0: none */

    enum nccl_use nccl;
    const char *backend;        /* NULL: cpu, or reference for float64 */
    bool device_given;          /* it was chosen by the user */
    int threads;                /* 0: this rank's share of the cores */
    bool deterministic, dry_run;
    enum measure measure;       /* of the links of the machine that it is on */
    bool cuda_graphs;
    const char *cache_directory;    /* of measured costs; NULL: none */
    double deadline, warn_after, lost_after;
    struct guard guard;         /* policy and spike */
    struct loss_scale scale;    /* to begin with */
    struct span eval_every;
    bool eval_ema;
    enum best_by best;
    const char *checkpoint;     /* directory; NULL: none */
    struct span checkpoint_every;   /* 0: by 'mtbf' */
    double mtbf;                /* seconds between failures of a node; 0: one at the end alone */
    bool mtbf_given;
    int keep;                   /* checkpoints that stay; 0: all */
    bool resume;
    const char *resume_from;    /* a checkpoint's directory; NULL: none is named */
    const char *log, *trace;
    struct period report_every; /* 0: never */
    const char *prometheus;     /* file of metrics; NULL: none */
    struct job_names job;
    struct job_limit limit;     /* of it */
    struct step_facts step;     /* where this is the first task of one */
    const char *gradients;      /* file for those of the first step; NULL: none */
    double launch_seconds;      /* what joining the other ranks took */
    const char *command;        /* the command line, for the plan file */
    uint64_t delay_seed;        /* tests, see executor.h */
    int delay_max;
    double write_delay;         /* of checkpoints, the same; seconds */
};

#endif
