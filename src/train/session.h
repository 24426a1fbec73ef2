/* SPDX-License-Identifier: MIT */
/* The state of a training run, shared by the files that make it up. */
#ifndef TASUKI_TRAIN_SESSION_H
#define TASUKI_TRAIN_SESSION_H

#include "comm/comm.h"
#include "graph/model.h"
#include "scheduler/partition.h"
#include "topology/cluster.h"
#include "train/board.h"
#include "train/checkpoint.h"
#include "train/compile.h"
#include "train/data.h"
#include "train/journal.h"
#include "train/labels.h"
#include "train/metrics.h"
#include "train/placement.h"
#include "train/planning.h"
#include "train/reports.h"
#include "train/runner.h"
#include "train/settings.h"
#include "train/staging.h"
#include "train/trace.h"

struct energy;
struct safetensors;
struct topo_node;

/* A data file and how it feeds this rank. */
struct source {
    struct data *data;
    struct data_reader *reader;
    int **tensors;              /* of each chunk; NULL on a rank without work */
    struct labels labels;
};

/* What an evaluation gives. */
struct evaluation {
    double loss, accuracy;      /* accuracy 0 where nothing is classified */
};

/* The checkpoint that is being written. */
struct saving {
    struct checkpoint_saving *checkpoint;   /* NULL: none is */
    char *directory;
    int64_t step;
    bool ready;                             /* all ranks have done with a stage */
    double start, paused;                   /* paused: seconds in which no step ran */
};

struct session {
    struct train_settings settings;     /* completed from plan and checkpoint */
    struct comm *comm;
    const struct topo_node *node;       /* where this rank is */
    int rank, size;
    const struct backend *backend;
    struct device *device;
    char gpu[32];               /* its PCI address; "": no GPU computes */
    int oldest;                 /* rank whose GPU can do least */
    int architecture;           /* of that, 90: sm_90 */
    struct nccl *nccl;          /* of the runner; NULL: not used */
    char *model_path;
    struct model *model;
    struct model_options model_options;
    bool has_stats, classifies;
    char *loss_text;                    /* as found or chosen */
    struct source train, test;
    struct checkpoint *resumed;
    struct saving saving;
    struct saved_cost {
        int64_t step;                   /* of the last one that is complete; 0: none */
        double start;                   /* clock */
        double paused, written;         /* seconds that training stood still, and in all */
    } saved;
    int n_hosts;                        /* that ranks are on; 0: not counted yet */
    double evaluated;                   /* seconds that the last evaluation took */
    bool save_asked;                    /* rank 0 has said that it is time for the next one */
    double loop_start;                  /* clock, before the first step */
    bool limit_told;                    /* something was said of the job's limit */
    struct checkpoint_lock *lock;       /* of rank 0, while it has one */
    int n_absent;                       /* values of the model without weights … */
    char *absent;                       /* … of which this is one; NULL: there are none */
    struct safetensors *initial_file;   /* of --init, until 'initial' has it */
    struct initial *initial;
    struct cluster *cluster;
    struct plan *given, *plan, *resumed_plan;
    struct cost *cost;                  /* rank 0, for --trace: what the plan comes from; NULL: none */
    struct plan **others;               /* rank 0: [settings.trial - 1]; NULL: no more */
    json_t *plan_json;
    struct placement placement;
    int n_chunks;                       /* stages that this rank runs */
    struct compiled **compiled;         /* of these; NULL on a rank without work, as below */
    struct runner *runner;
    struct store **stores;              /* of the chunks */
    struct prefetch **prefetch;         /* the same; an entry is NULL where the loop reads */
    struct staging *staging;            /* NULL: this rank has nothing staged */
    int staging_ranks, staging_nodes;   /* of all: how many do */
    double staging_start;               /* clock */
    bool staged;                        /* has it been told? */
    struct sampler sampler;
    struct rate rate;
    struct board board;
    struct trace trace;
    struct journal *journal;            /* rank 0 */
    json_t *fallbacks;                  /* likewise, see session_tell_fallbacks(); NULL: none can be */
    struct reports reports;
    bool *slow;                         /* rank 0: [size], see stragglers.h */
    struct metrics metrics;             /* rank 0 keeps them up to date */
    double metrics_written;             /* clock */
    bool metrics_failed;                /* the file could not be written */
    struct checkpoint_best best;        /* of the evaluations so far */
    int64_t first_step, total_steps;
    int64_t bad_steps, last_bad;        /* how many, and the last one */
    int bad_in_row, rollbacks;          /* rollbacks: to the checkpoint of step 'rolled_to' */
    int64_t rolled_to;
    double begun;                       /* clock */
    struct energy *energy;              /* what is counted here */
    double energy_looked;               /* clock */
    struct {
        int nodes, gpus;
        bool leads, has_gpu;            /* is this rank the first of its node, of its GPU? */
        bool told;
        double kwh;                     /* once it is told; NAN: not known */
    } used;
    double mark;                        /* clock when the last phase ended */
    double discovering, opening, planning, compiling;   /* seconds of the phases so far */
    bool agreed;                        /* the error is one that all ranks know of */
};

/* Collective; on failure the session is to be closed. */
int session_open(struct session *session, const struct train_settings *settings,
                 const struct topo_node *node, struct comm *comm, struct err *err);
void session_close(struct session *session);

/* All ranks learn whether any failed: see comm_agree(). The text stays on rank 0 alone. */
int session_agree(struct session *session, int failed, struct err *err);
/* The same for the result of a call that has agreed already: 'bad' is returned. */
int session_agreed(struct session *session, int bad, struct err *err);

/* How many kernels of which operators of the stages, once they are compiled, run on the host of a GPU,
 * or unfused: in words, and for the log. Collective.
 */
int session_tell_fallbacks(struct session *session, struct err *err);
/* Rank 0: write a line to the log. Takes the reference. */
void session_log(struct session *session, json_t *line);
/* A number for JSON; null where it is not finite. */
json_t *session_number(double value);

/* Figures before the first step, and the file of --prometheus, which must be writable; rank 0. */
int session_metrics(struct session *session, struct err *err);
void session_note_step(struct session *session, const struct journal_step *step);
/* --report-every: after so many steps all ranks post what they spent since the run began
 * ('seconds' in 'steps'), and a step later they read it, into log and metrics, before they post
 * again.
 */
int session_post_report(struct session *session, int64_t steps_done,
                        const struct batch_result *spent, double seconds, int64_t steps,
                        struct err *err);
int session_read_report(struct session *session, struct err *err);
/* The run is over. */
void session_end_metrics(struct session *session);

/* The plan, where one is given. Collective. */
int session_open_given(struct session *session, struct err *err);
/* What is to be trained, by that or the model that is given. Collective. */
int session_open_model(struct session *session, struct err *err);
/* The file of --init, if it is one. Collective. */
int session_open_initial(struct session *session, struct err *err);
/* As the user says, else as the plan or checkpoint 'path' was made; -1 where one has float64 alone. */
int session_precision(struct session *session, const char *path, const char *made,
                      struct err *err);
/* Nobody else is to write checkpoints into the directory; rank 0. */
int session_lock(struct session *session, struct err *err);
void session_unlock(struct session *session);
/* Once rank 0 has locked it: do all ranks see that directory? Collective. */
int session_check_shared(struct session *session, struct err *err);
/* With --resume, the newest checkpoint that is whole: the same for all ranks; else the one of
 * --resume-from. Collective.
 */
int session_find_checkpoint(struct session *session, struct err *err);
/* What of it decides what the graph is. */
int session_take_checkpoint(struct session *session, struct err *err);
/* The rest, once model and data are open: go on where it was left. */
int session_resume(struct session *session, struct err *err);
/* What --best keeps, which may be newer than what is resumed, and of a run that went another way.
 * Collective.
 */
int session_resume_best(struct session *session, struct err *err);

/* GPUs that are there and not asked for, or that would idle and no plan says so, are an error with
 * the line to use; fewer cores than --cpus-per-task are a warning. Collective.
 */
int session_check_binding(struct session *session, struct err *err);
/* Rank 0: are the ranks, on so many nodes, where this job of PJM, PBS or Grid Engine may have them?
 * Nodes without ranks are a warning, too many ranks on a node, or others than the job's, an error.
 */
int session_check_nodes(const struct session *session, int hosts, struct err *err);
/* The srun line that gives this step's tasks the GPUs of their nodes, malloc'ed; NULL outside of a
 * step of Slurm, or where this node has none.
 */
char *session_gpu_line(const struct session *session);
/* Each rank takes a GPU that the plan that is given names and CUDA shows it, or the first that CUDA
 * shows it, and no rank before it on its node has; where there are fewer GPUs than ranks they share
 * them in turn. Nothing where no GPU is asked for. Collective.
 */
int session_choose_gpu(struct session *session, struct err *err);
/* A GPU that a rank took and Slurm did not give its step is an error. Collective. */
int session_check_given(struct session *session, struct err *err);
/* What the oldest GPU of the run does not compute in no rank does: said once. Float16 has its loss
 * scaled. To be called once plan and checkpoint have said in what they are.
 */
void session_suit_gpus(struct session *session);
/* Ranks of one process have cores of their own, near their GPUs. Collective. */
int session_bind(struct session *session, struct err *err);
/* The cluster's devices become the GPUs of the ranks, unless the cluster was given. Collective. */
int session_use_gpus(struct session *session, struct err *err);

/* What is here, or what --cluster says. Collective. */
int session_cluster(struct session *session, struct err *err);
/* This rank's share of the cores of its node; 0: not known. */
int session_cores(const struct session *session);
/* On rank 0, whose 'events' are those of all ranks: the forecast of an iteration, at the start of one that
 * was measured, where there are costs to make it of.
 */
void session_add_forecast(struct session *session, json_t *events);
/* For the planner, but for costs that were given. */
struct planning session_planning(const struct session *session);
/* What the settings ask of the planner. */
struct plan_request session_request(const struct session *session);
/* The plan in a line; malloc'ed. */
char *session_describe(const struct session *session);
/* This rank's place in the plan. Collective. */
int session_place(struct session *session, struct err *err);
/* The planner's other plan 'index', which rank 0 has, in place of the plan. Collective. */
int session_next_plan(struct session *session, int index, struct err *err);
/* --trial: of the plan and the others, the one that runs fastest. Collective. */
int session_trial(struct session *session, struct err *err);
/* Plan: from the file given, else by the planner, on rank 0, for all. Collective. */
int session_plan(struct session *session, struct err *err);
/* The stages that this rank has in the plan are compiled, loaded and connected. Collective; on
 * failure, too, session_stop() undoes it.
 */
int session_start(struct session *session, struct err *err);
void session_stop(struct session *session);
/* Has a signal come that ends the run? */
bool session_stop_asked(void);
/* Is it time to write a checkpoint, and end, since the job does? Steps take so long. Rank 0 says so
 * for all: clocks differ.
 */
bool session_ends_soon(struct session *session, double step_seconds);
/* Warn, once, where a signal at the job's limit leaves too little time for a checkpoint. */
void session_weigh_limit(struct session *session, double step_seconds);
/* Threads that read ahead the steps from 'first' to 'end' - 1, for each chunk; an entry is NULL
 * where it reads nothing, or the loop is to do so by itself.
 */
int session_prefetch(const struct session *session, const struct source *source,
                     const struct sampler *sampler, int64_t first, int64_t end,
                     struct prefetch ***prefetch, struct err *err);
void session_prefetch_free(const struct session *session, struct prefetch **prefetch);
/* --stage-to: the nodes begin to copy their data. Collective. */
int session_stage(struct session *session, struct err *err);
/* Use what is copied by now; what this rank has of it. */
void session_note_staging(struct session *session, double entries[BOARD_COUNT]);
/* Once all ranks have what there will be. */
void session_tell_staged(struct session *session, int64_t step,
                         const double sums[BOARD_COUNT]);
/* Of the test data, into the log; the best so far is kept, where that is wanted. Collective. */
int session_evaluate(struct session *session, int64_t steps_done, struct err *err);
void session_tell_best(const struct session *session);
/* A checkpoint into 'directory', where 'keep' stay, see checkpoint.h: it is written while steps go
 * on, after the one before is complete. Collective.
 */
int session_save(struct session *session, const char *directory, int keep,
                 int64_t steps_done, struct err *err);
/* Before the first step: is there room for those that will be written? An error where there is
 * none for one, else a warning. Collective.
 */
int session_check_space(struct session *session, struct err *err);
/* Steps after which the first one comes, and seconds, unless --mtbf is given. */
#define SESSION_FIRST_SAVE 10
#define SESSION_FIRST_SECONDS 60.0

/* Is the interval to follow from what a checkpoint costs? */
bool session_adapts_saves(const struct session *session);
/* Is that when the first one comes, which shows what they cost, where --mtbf is given? */
bool session_saves_first(const struct session *session, int64_t done);
/* Is it time for the next one, when so many steps are done, by what the last one cost? Rank 0 says
 * so for all, once.
 */
bool session_save_is_due(struct session *session, int64_t done);
/* Once it is complete. Collective. */
int session_end_save(struct session *session, struct err *err);
/* This rank no longer writes; no other one is asked. */
void session_drop_save(struct session *session);
/* How far this rank is with it. */
void session_note_save(struct session *session, double entries[BOARD_COUNT]);
/* How far all are: 'ready' where they have done, and then it is to go on. */
void session_follow_save(struct session *session, const double sums[BOARD_COUNT]);
/* Its next stage, or its end. Collective. */
int session_advance_save(struct session *session, struct err *err);
/* All ranks have read that this step, from 0, was bad (guard.h): it goes into the log. Fails, for
 * all, where the run is to end. Collective.
 */
int session_bad_step(struct session *session, int64_t step, double loss, struct err *err);
/* Parameters and state of the newest checkpoint, if there is one; nothing may be under way.
 * Collective.
 */
int session_rollback(struct session *session, int64_t steps_done, struct err *err);
/* A checkpoint, as checkpoint_open_part() has it. Rank 0 reads what it says of itself; what a rank
 * finds wrong is its own to say ('*mine'), and '*checkpoint' is NULL then. Collective.
 */
int session_open_checkpoint(struct session *session, const char *path,
                            struct checkpoint **checkpoint, struct err *mine, struct err *err);
/* What a checkpoint has for this rank; 'failed' as in comm_agree(). Collective. */
int session_load(struct session *session, const struct checkpoint *checkpoint, int failed,
                 struct err *err);
/* What the run costs is counted from here on, which needs a look now and then. Collective. */
int session_usage_start(struct session *session, struct err *err);
void session_usage_look(struct session *session);
/* It is said, and '*usage' is for the log, on rank 0, NULL elsewhere. Collective. */
int session_usage(struct session *session, json_t **usage, struct err *err);
/* The same where a run fails: without energy, which other ranks would have to tell. NULL where it
 * failed before its steps, or was told.
 */
json_t *session_usage_alone(const struct session *session);
/* What a step learns from. */
struct step_batch {
    int64_t *samples;           /* [global batch] */
    double weight_sum;
    int64_t count;              /* labels; on rank 0 */
};

struct stepper {
    struct step_batch batches[2];   /* by step: the one under way, and the next */
    bool flows;                 /* the next is under way, too */
};

void stepper_init(struct stepper *stepper, const struct session *session);
void stepper_clear(struct stepper *stepper);
/* Run a step, behind which the next one 'flows': it is to be the next call's; see runner_step().
 * The result is nothing on a rank without work.
 */
int session_step(struct session *session, struct stepper *stepper, int64_t step, bool flows,
                 struct batch_result *result, struct err *err);
/* Steps, evaluations, checkpoints. Returns the exit code, or -1. */
int session_loop(struct session *session, struct err *err);

#endif
