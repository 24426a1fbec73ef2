/* SPDX-License-Identifier: MIT */
/* tasuki train: a rank of a run, the whole of it, or its launcher. */
#include "config.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/option.h"
#include "cmd_launch.h"
#include "commands.h"
#include "comm/crew.h"
#include "comm/launch.h"
#include "scheduler/plan.h"
#include "scheduler/schedule.h"
#include "topology/node.h"
#include "train/bind.h"
#include "base/cache.h"
#include "train/fate.h"
#include "train/gpu.h"
#include "train/gpu_plan.h"
#include "train/job_limit.h"
#include "train/optimizer.h"
#include "train/planning.h"
#include "train/rail.h"
#include "train/step_facts.h"
#include "train/trace.h"
#include "train/train.h"

enum { PRECISION_FLOAT64 = 1, PRECISION_FP16 = 4 };     /* words of --precision */

#define KEEP 3              /* checkpoints, where it is not said */
#define MAX_COUNT 4096      /* of stages, replicas and threads, as plan has it */
#define MAX_TRIAL 64        /* plans */
#define REPORT_EVERY 30     /* seconds */
/* Seconds between failures of a node: 6.5 in 1000 days of nodes with 8 A100 (Kokolis et al.,
 * Revisiting Reliability in Large-Scale Machine Learning Research Clusters, HPCA 2025, cluster
 * RSC-1).
 */
#define MTBF (1000 / 6.5 * 86400)

/* At 1 the correction of Adam's bias would divide by zero, and averages never move. */
static int read_beta(const struct options *o, const char *name, double def, double *value,
                     struct err *err)
{
    double beta;

    if (option_number(o, name, 0, 1, def, &beta, err) < 0)
        return -1;
    if (beta == 1)
        return err_set_code(err, EXIT_USAGE, "--%s: expected a number below 1", name);
    *value = beta;
    return 0;
}

static int read_optimizer(const struct options *o, struct train_settings *t, struct err *err)
{
    struct optimizer_args d;
    int kind;

    t->optimizer_given = (struct optimizer_given){
        .kind = option_given(o, "optimizer"), .lr = option_given(o, "lr"),
        .momentum = option_given(o, "momentum"), .beta1 = option_given(o, "beta1"),
        .beta2 = option_given(o, "beta2"), .epsilon = option_given(o, "epsilon"),
        .weight_decay = option_given(o, "weight-decay"),
        .trust = option_given(o, "trust-coefficient"),
    };
    if (option_word(o, "optimizer", &kind, err) < 0)
        return -1;
    d = optimizer_defaults((enum optimizer_kind)kind);
    t->optimizer = d;
    if (option_number(o, "lr", 0, 1e30, d.lr, &t->optimizer.lr, err) < 0 ||
        option_number(o, "momentum", 0, 1, d.momentum, &t->optimizer.momentum, err) < 0 ||
        read_beta(o, "beta1", d.beta1, &t->optimizer.beta1, err) < 0 ||
        read_beta(o, "beta2", d.beta2, &t->optimizer.beta2, err) < 0 ||
        option_number(o, "epsilon", 0, 1, d.epsilon, &t->optimizer.epsilon, err) < 0 ||
        option_number(o, "trust-coefficient", 0, 1e30, d.trust, &t->optimizer.trust, err) < 0)
        return -1;
    return option_number(o, "weight-decay", 0, 1e30, d.weight_decay,
                         &t->optimizer.weight_decay, err);
}

static int read_schedule(const struct options *o, struct recipe *r, struct err *err)
{
    int schedule;

    if (option_word(o, "lr-schedule", &schedule, err) < 0 ||
        option_span(o, "warmup", 0, r->warmup, &r->warmup, err) < 0 ||
        option_span(o, "lr-every", 1, r->every, &r->every, err) < 0 ||
        option_span(o, "lr-length", 1, r->length, &r->length, err) < 0 ||
        option_number(o, "lr-factor", 0, 1e30, r->factor, &r->factor, err) < 0 ||
        option_number(o, "lr-final", 0, 1e30, r->final, &r->final, err) < 0)
        return -1;
    r->schedule = (enum rate_kind)schedule;
    return 0;
}

static int read_recipe(const struct options *o, struct train_settings *t, struct err *err)
{
    struct recipe *r = &t->recipe;

    *r = recipe_defaults();
    t->recipe_given = (struct recipe_given){
        .schedule = option_given(o, "lr-schedule"), .warmup = option_given(o, "warmup"),
        .every = option_given(o, "lr-every"), .length = option_given(o, "lr-length"),
        .factor = option_given(o, "lr-factor"), .final = option_given(o, "lr-final"),
        .clip = option_given(o, "clip-norm"), .ema = option_given(o, "ema"),
        .label_smoothing = option_given(o, "label-smoothing"),
        .no_decay = option_given(o, "no-decay"),
    };
    r->n_no_decay = option_strings(o, "no-decay", &r->no_decay);
    if (read_schedule(o, r, err) < 0 ||
        option_number(o, "clip-norm", 0, 1e30, 0, &r->clip, err) < 0 ||
        option_number(o, "label-smoothing", 0, 1, 0, &r->label_smoothing, err) < 0)
        return -1;
    return read_beta(o, "ema", 0, &r->ema, err);
}

/* The order of micro-batches: a name, or a file, which pins what its lists are for. */
static int read_schedule_list(const struct options *o, struct train_settings *t, struct err *err)
{
    const char *schedule = option_string(o, "schedule", NULL);

    if (!schedule || schedule_find(schedule) >= 0) {
        t->schedule = schedule;
        return 0;
    }
    t->list = schedule_load(schedule, err);
    if (!t->list)
        return -1;
    t->stages = t->stages ? t->stages : t->list->n_stages;
    if (!t->micro_batches)
        t->micro_batches = t->list->micro_batches;
    return 0;
}

static int read_pins(const struct options *o, struct train_settings *t, struct err *err)
{
    int64_t stages, pipelines, chunks, trial;
    int offload;

    if (option_int(o, "stages", 1, MAX_COUNT, 0, &stages, err) < 0 ||
        option_int(o, "pipelines", 1, MAX_COUNT, 0, &pipelines, err) < 0 ||
        option_int(o, "chunks", 2, SCHEDULE_MAX_CHUNKS, 0, &chunks, err) < 0 ||
        option_ints(o, "replicas", 1, MAX_COUNT, &t->n_replicas, &t->replicas, err) < 0 ||
        option_int(o, "micro-batches", 1, 1 << 20, 0, &t->micro_batches, err) < 0 ||
        option_int(o, "micro-batch-size", 1, 1 << 30, 0, &t->micro_batch, err) < 0 ||
        option_size(o, "memory", 1, 0, &t->memory, err) < 0 ||
        option_word(o, "offload", &offload, err) < 0 ||
        option_number(o, "schedule-memory", 1, SCHEDULE_MEMORY, 0, &t->schedule_memory, err) < 0)
        return -1;
    t->stages = (int)stages;
    t->chunks = (int)chunks;
    t->pipelines = (int)pipelines;
    t->n_pins = option_strings(o, "pin", &t->pins);
    if (t->n_replicas && t->stages && t->n_replicas != t->stages)
        return err_set_code(err, EXIT_USAGE, "--replicas: %d numbers for --stages %d",
                            t->n_replicas, t->stages);
    if (read_schedule_list(o, t, err) < 0)
        return -1;
    t->cluster = option_string(o, "cluster", NULL);
    t->n_costs = option_strings(o, "cost", &t->costs);
    if (option_given(o, "zero"))
        t->zero = option_flag(o, "zero", true) ? PLAN_ZERO : PLAN_ZERO_NEVER;
    t->offload_given = option_given(o, "offload");
    t->offload = offload == 1;
    t->keep_plan = option_flag(o, "keep-plan", false);
    if (option_int(o, "trial", 2, MAX_TRIAL, 0, &trial, err) < 0)
        return -1;
    t->trial = (int)trial;
    return 0;
}

static int read_length(const struct options *o, struct train_settings *t, struct err *err)
{
    int64_t seed;

    if (option_int(o, "global-batch", 1, 1 << 30, 0, &t->global_batch, err) < 0 ||
        option_int(o, "epochs", 1, 1 << 30, 0, &t->epochs, err) < 0 ||
        option_int(o, "steps", 1, INT64_MAX / 2, 0, &t->steps, err) < 0 ||
        option_int(o, "seed", 0, INT64_MAX, 0, &seed, err) < 0 ||
        option_int(o, "batchnorm-samples", 1, 1 << 30, 0, &t->batchnorm_samples, err) < 0)
        return -1;
    t->seed = (uint64_t)seed;
    t->seed_given = option_given(o, "seed");
    t->shuffle = option_flag(o, "shuffle", true);
    if (!t->epochs == !t->steps)
        return err_set_code(err, EXIT_USAGE, "train: say either --epochs or --steps");
    return 0;
}

static int read_guard(const struct options *o, struct train_settings *t, struct err *err)
{
    int policy;

    if (option_word(o, "on-nan", &policy, err) < 0 ||
        option_number(o, "loss-spike", 1, 1e30, 0, &t->guard.spike, err) < 0)
        return -1;
    t->guard.policy = (enum guard_policy)policy;
    if (t->guard.policy == GUARD_ROLLBACK && !t->checkpoint)
        return err_set_code(err, EXIT_USAGE, "train: --on-nan rollback needs --checkpoint");
    if (t->guard.policy == GUARD_IGNORE && t->guard.spike > 0)
        return err_set_code(err, EXIT_USAGE, "train: --loss-spike does what --on-nan says: "
                            "\"ignore\" is nothing");
    return 0;
}

/* What is measured differs from run to run, and so might the plan. */
static int read_measure(const struct options *o, struct train_settings *t, struct err *err)
{
    int measure;

    if (option_word(o, "measure", &measure, err))
        return -1;
    t->measure = (enum measure)measure;
    if (!t->deterministic || t->measure == MEASURE_NONE)
        return 0;
    if (option_given(o, "measure"))
        return err_set_code(err, EXIT_USAGE, "--measure and --deterministic: which plan is best by "
                            "what is measured may differ from run to run: leave one of them out");
    t->measure = MEASURE_NONE;
    return 0;
}

/* By itself where gradients are float16. */
static int read_scale(const struct options *o, struct train_settings *t, int precision,
                      struct err *err)
{
    double *factor = &t->scale.factor, start = precision == PRECISION_FP16 ? LOSS_SCALE_START : 0;

    if (option_number(o, "loss-scale", 1, LOSS_SCALE_MOST, start, factor, err) < 0)
        return -1;
    return *factor == 0 || loss_scale_valid(*factor)
               ? 0 : err_set_code(err, EXIT_USAGE, "train: --loss-scale: expected a power of 2, "
                                  "got %g", *factor);
}

static int choose_comm(const struct options *o, struct train_settings *t, struct err *err)
{
    const char *way;
    int use = NCCL_NOWHERE;

    if (option_word(o, "comm", &use, err) < 0)
        return -1;
    way = nccl_use_names[use];
    if (use == NCCL_NOWHERE)
        return 0;
    if (!planning_on_gpu(t->backend))
        return err_set_code(err, EXIT_USAGE, "--comm %s moves bytes between GPUs: say --device "
                            "cuda, too", way);
    if (option_flag(o, "deterministic", false))
        return err_set_code(err, EXIT_USAGE, "--comm %s and --deterministic: NCCL adds in an "
                            "order of its own: --comm mpi keeps to that of ranks", way);
    t->nccl = (enum nccl_use)use;
    return 0;
}

static int read_patience(const struct options *o, struct train_settings *t, struct err *err)
{
    if (option_number(o, "deadline", 0, 1e9, 600, &t->deadline, err) < 0 ||
        option_number(o, "warn-after", 0, 1e9, 30, &t->warn_after, err) < 0 ||
        option_number(o, "lost-after", 0, 500, 20, &t->lost_after, err) < 0)
        return -1;
    if (t->lost_after > 0 && t->lost_after < 10)
        return err_set_code(err, EXIT_USAGE, "--lost-after: expected 10 to 500 seconds, or 0");
    return 0;
}

static int read_running(const struct options *o, struct train_settings *t, struct err *err)
{
    int64_t threads, keep;
    int best;

    if (option_int(o, "threads", 1, MAX_COUNT, 0, &threads, err) < 0 ||
        option_number(o, "mtbf", 0, 1e12, MTBF, &t->mtbf, err) < 0 ||
        option_int(o, "keep", 0, MAX_COUNT, KEEP, &keep, err) < 0 ||
        option_int(o, "data-threads", 0, 1024, 0, &t->data_threads, err) < 0 ||
        planning_kernels(o, &t->backend, err) < 0 || choose_comm(o, t, err) < 0 ||
        option_choice(o, "recompute", &t->recompute, err) < 0 ||
        read_patience(o, t, err) < 0 ||
        option_span(o, "eval-every", 1, t->eval_every, &t->eval_every, err) < 0 ||
        option_span(o, "checkpoint-every", 1, t->checkpoint_every, &t->checkpoint_every,
                    err) < 0)
        return -1;
    if (!t->eval_every.n)
        t->eval_every = (struct span){ 1, true };
    t->mtbf_given = option_given(o, "mtbf");
    t->eval_ema = option_flag(o, "eval-ema", false);
    t->data_threads_given = option_given(o, "data-threads");
    t->threads = (int)threads;
    t->deterministic = option_flag(o, "deterministic", false);
    if (t->deterministic && t->trial)
        return err_set_code(err, EXIT_USAGE, "--trial and --deterministic: which plan is fastest "
                            "may differ from run to run: leave one of them out");
    if (read_measure(o, t, err))
        return -1;
    t->cuda_graphs = option_flag(o, "cuda-graphs", true);
    t->dry_run = option_flag(o, "dry-run", false);
    t->checkpoint = option_string(o, "checkpoint", NULL);
    t->keep = (int)keep;
    t->resume = option_flag(o, "resume", false);
    t->resume_from = option_string(o, "resume-from", NULL);
    t->log = option_string(o, "log", NULL);
    t->trace = option_string(o, "trace", NULL);
    if (options_takes(o, "dump-gradients"))
        t->gradients = option_string(o, "dump-gradients", NULL);
    t->prometheus = option_string(o, "prometheus", NULL);
    t->job = job_names();
    if (job_limit_read(&t->limit, &t->step, err) < 0)
        return -1;
    if (option_period(o, "report-every", (struct period){ REPORT_EVERY, false }, &t->report_every,
                      err) < 0)
        return -1;
    if (t->prometheus && t->report_every.n <= 0)
        return err_set_code(err, EXIT_USAGE, "train: --prometheus writes at each report: it "
                            "needs --report-every above 0");
    if (option_word(o, "best", &best, err) < 0 || read_guard(o, t, err) < 0)
        return -1;
    t->best = (enum best_by)best;
    if (t->best != BEST_NONE && (!t->checkpoint || !t->test))
        return err_set_code(err, EXIT_USAGE, "train: --best needs --checkpoint and --test");
    if ((t->resume || t->checkpoint_every.n) && !t->checkpoint)
        return err_set_code(err, EXIT_USAGE, "train: --%s needs --checkpoint",
                            t->resume ? "resume" : "checkpoint-every");
    return 0;
}

/* TASUKI_TEST_DELAY=SEED:MICROSECONDS shakes the order in which ranks arrive;
 * TASUKI_TEST_WRITE_DELAY=SECONDS lets steps overtake the writing of checkpoints.
 */
static int read_delay(struct train_settings *t, struct err *err)
{
    const char *text = getenv("TASUKI_TEST_DELAY"), *write = getenv("TASUKI_TEST_WRITE_DELAY");
    unsigned long long seed;
    int max, end = 0;

    t->write_delay = write ? atof(write) : 0;
    if (!text)
        return 0;
    if (sscanf(text, "%llu:%d%n", &seed, &max, &end) != 2 || text[end] || max < 0)
        return err_set_code(err, EXIT_USAGE,
                            "TASUKI_TEST_DELAY: expected SEED:MICROSECONDS, got \"%s\"", text);
    t->delay_seed = seed;
    t->delay_max = max;
    return 0;
}

static int read_settings(const struct options *o, struct train_settings *t, struct err *err)
{
    int precision;

    if (options_operands(o) != 1)
        return err_set_code(err, EXIT_USAGE, "train: expected a MODEL, a plan or a job file");
    t->input = options_operand(o, 0);
    t->data = option_string(o, "data", NULL);
    t->test = option_string(o, "test", NULL);
    t->stage_to = option_string(o, "stage-to", NULL);
    t->keep_staged = option_flag(o, "keep-staged", false);
    t->loss = option_string(o, "loss", NULL);
    t->init = option_string(o, "init", NULL);
    t->fuse = option_flag(o, "fuse", true);
    t->n_freeze = option_strings(o, "freeze", &t->freeze);
    if (!t->data)
        return err_set_code(err, EXIT_USAGE, "train: --data is missing");
    /* In the environment and other files it may stand for other runs. */
    if (t->keep_staged && !t->stage_to &&
        option_origin(o, "keep-staged") >= OPTION_JOB_FILE)
        return err_set_code(err, EXIT_USAGE, "train: --keep-staged needs --stage-to");
    if (option_word(o, "precision", &precision, err) < 0)
        return -1;
    t->float64 = precision == PRECISION_FLOAT64;
    t->precision_given = option_given(o, "precision");
    t->device_given = option_given(o, "device") || option_given(o, "backend");
    return data_options_read(o, &t->data_options, err) < 0 ||
           read_optimizer(o, t, err) < 0 || read_recipe(o, t, err) < 0 ||
           read_pins(o, t, err) < 0 ||
           read_length(o, t, err) < 0 || read_running(o, t, err) < 0 ||
           read_delay(t, err) < 0 ||
           read_scale(o, t, precision, err) < 0 ? -1 : 0;
}

int train_accepts(const struct options *options, struct err *err)
{
    struct train_settings settings = { 0 };
    int bad = read_settings(options, &settings, err);

    free(settings.replicas);
    schedule_free(settings.list);
    return bad;
}

static void on_signal(int number)
{
    (void)number;
    train_stop();
}

/* SIGINT, where nothing else is there to do something about it, too; a second one ends at once. Of a
 * script's background it is ignored, and stays so.
 */
static void catch_signals(bool alone)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, now;

    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    action.sa_flags |= (int)SA_RESETHAND;
    if (alone && sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        sigaction(SIGINT, &action, NULL);
    /* Whoever reads the log by a pipe may leave. */
    signal(SIGPIPE, SIG_IGN);
}

/* Paths that may name the job: 'paths' are to be freed. */
#define PATHS 4

static int name_paths(struct train_settings *t, char *paths[PATHS], struct err *err)
{
    struct {
        const char *option, **path;
    } all[PATHS] = {
        { "checkpoint", &t->checkpoint }, { "log", &t->log }, { "trace", &t->trace },
        { "prometheus", &t->prometheus },
    };

    for (int i = 0; i < PATHS; i++) {
        if (!*all[i].path)
            continue;
        if (job_path(all[i].option, *all[i].path, &t->job, &paths[i], err) < 0)
            return -1;
        *all[i].path = paths[i];
    }
    return 0;
}

/* Wrong settings are found by every rank and said by one. */
static int run_joined(const struct options *o, struct train_settings *settings,
                      char *paths[PATHS], const struct topo_node *node, struct comm *comm,
                      double *kwh, struct err *err)
{
    int bad = comm_agree(comm, err, read_settings(o, settings, err) < 0 ||
                                    name_paths(settings, paths, err) < 0);

    if (!bad)
        return train_run(settings, node, comm, kwh, err);
    if (!comm_agreed(comm)) {
        comm_follow(comm, err);
        fate_tell(comm, (int)err->code, false, NAN, err->text);
        log_say(LOG_ERROR, "%s", err->text);
        comm_abort(comm, (int)err->code);
    }
    if (comm_rank(comm) > 0)
        err->text[0] = '\0';
    return (int)err->code;
}

/* What all ranks of this process share. */
struct job {
    const struct options *options;
    struct topo_node *node;
    struct step_facts step;
    const char *command, *cache;
    char *const *words;         /* of the command line after "train"; NULL-terminated */
    double start;
};

static int run_rank(const struct launch *launch, void *context, struct err *err)
{
    const struct job *job = context;
    struct train_settings settings = { .command = job->command, .cache_directory = job->cache,
                                       .step = job->step };
    struct comm *comm = comm_open(launch, err);
    char *paths[PATHS] = { NULL };
    double kwh = NAN;
    int code, rank;

    if (!comm)
        return (int)err->code;
    settings.launch_seconds = trace_clock() - job->start;
    rank = comm_rank(comm);
    log_set_rank(comm_size(comm) > 1 ? rank : -1);
    code = run_joined(job->options, &settings, paths, job->node, comm, &kwh, err);
    if (rank == 0)
        fate_tell(comm, code, true, kwh, err->text);
    /* Before the others leave: a launcher ends all when the first one fails. */
    if (code != EXIT_OK && err->text[0]) {
        log_say(LOG_ERROR, "%s", err->text);
        err->text[0] = '\0';
    }
    comm_close(comm);
    for (int i = 0; i < PATHS; i++)
        free(paths[i]);
    free(settings.replicas);
    schedule_free(settings.list);
    /* Rank 0 alone asks to be requeued. */
    return code == EXIT_REQUEUE && rank > 0 ? EXIT_OK : code;
}

static bool computes_on_gpus(const struct options *options)
{
    const char *kernels = NULL;
    struct err ignored = { 0 };

    return planning_kernels(options, &kernels, &ignored) >= 0 && planning_on_gpu(kernels);
}

/* A run that is not told what computes takes the GPUs that it is shown: session_binding.c. */
static bool takes_gpus(const struct job *job)
{
    const struct options *o = job->options;
    const struct topo_node *node = job->node;
    bool any = false;
    int precision;
    struct err ignored = { 0 };

    if (computes_on_gpus(o))
        return true;
    if (option_given(o, "device") || option_given(o, "backend") ||
        option_word(o, "precision", &precision, &ignored) < 0 || precision == PRECISION_FLOAT64)
        return false;
    for (int i = 0; node->n_visible != 0 && i < node->n_gpus; i++)
        any |= node->gpus[i].seen;
    return any;
}

/* auto: one for each GPU that CUDA shows this process; tasks of a node share those that they see in
 * common.
 */
static int ranks_for(const struct job *job, const struct launch *launch, int64_t *ranks,
                     struct err *err)
{
    bool gpus = takes_gpus(job);
    int n = 1;

    if (launch->processes && gpu_share(launch->processes, gpus, &n, err))
        return -1;
    if (!launch->processes && gpus)
        n = gpu_count();
    *ranks = n > 1 ? n : 1;
    return 0;
}

/* 0: auto. */
static int read_ranks(const struct job *job, const struct launch *launch, int64_t *ranks,
                      struct err *err)
{
    const char *text = option_string(job->options, "ranks-in-process", "1");

    *ranks = 0;
    if (strcmp(text, "auto") == 0 ||
        option_int(job->options, "ranks-in-process", 1, MAX_COUNT, 1, ranks, err) == 0)
        return 0;
    return launch->first ? err_hint(err, "or say auto") : launch_follow(err);
}

/* Of several tasks each is one rank, unless it is said that each is several. */
static int run_ranks(struct job *job, struct launch *launch, struct err *err)
{
    int64_t ranks;

    if (read_ranks(job, launch, &ranks, err) < 0)
        return (int)err->code;
    launch->several = launch->kind == LAUNCH_MPI && option_given(job->options, "ranks-in-process");
    if (launch->several && !(launch->processes = comm_open(launch, err)))
        return (int)err->code;
    if (launch->processes)
        comm_set_deadline(launch->processes, launch->deadline);
    if (ranks == 0 && ranks_for(job, launch, &ranks, err) < 0)
        return (int)err->code;
    return crew_run((int)ranks, launch, run_rank, job, err);
}

/* Of the limit, for a checkpoint before it; of GPUs, where nobody says whether they are meant. */
static bool wants_facts(const struct options *o)
{
    return option_string(o, "checkpoint", NULL) ||
           (!option_given(o, "device") && !option_given(o, "backend"));
}

/* With NCCL connections are made at the start, not by whoever comes first, a stream for each
 * direction must not wait behind others, and kernels are loaded before they are first launched: to load
 * one CUDA may wait until the GPU has nothing to do, and by then a receive is on it that waits for a peer
 * who waits for that kernel. Both libraries read this once, and no thread may be there yet that reads the
 * environment.
 */
static void set_libraries(const struct options *o)
{
    int use = NCCL_NOWHERE;
    struct err ignored = { 0 };

    if (option_word(o, "comm", &use, &ignored) < 0 || use == NCCL_NOWHERE)
        return;
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

/* The GPU of each task of this node, where a plan is run that says it; what is wrong with its file is said
 * later.
 */
static int *planned_gpus(const struct job *job, const struct launch *launch)
{
    const char *input = options_operands(job->options) == 1 ? options_operand(job->options, 0) : "";
    struct err ignored = { 0 };
    struct plan *given = plan_is_file(input) && takes_gpus(job) ? plan_load(input, &ignored) : NULL;
    struct gpu_plan plan = gpu_plan_new(given, job->node);
    int *gpus = gpu_plan_take(&plan, launch->host, launch->local_size);

    gpu_plan_clear(&plan);
    plan_free(given);
    return gpus;
}

/* Its cores, before there are threads, and its adapter, before MPI starts: ranks of one process have
 * adapters in common.
 */
static void take_place(struct job *job, const struct launch *launch)
{
    bool one = !option_given(job->options, "ranks-in-process");
    int *gpus = one ? planned_gpus(job, launch) : NULL;

    bind_rank(job->node, launch->local_size, computes_on_gpus(job->options), gpus);
    if (one && launch->kind == LAUNCH_MPI)
        rail_choose(job->node, launch->local_size, takes_gpus(job), gpus);
    free(gpus);
}

static int run(struct job *job, struct err *err)
{
    struct err ignored = { 0 };
    struct launch launch;
    int code;

    job->start = trace_clock();
    if (launcher_is_asked())
        return launcher_answer(job->options, err);
    if (launcher_is_guard())
        return launcher_keep_guard(err);
    if (launch_detect(&launch, err) < 0)
        return (int)err->code;
    /* What is wrong with it is said once all have met. */
    (void)option_number(job->options, "deadline", 0, 1e9, launch.deadline, &launch.deadline,
                        &ignored);
    if (launcher_wanted(job->options, &launch, err))
        return err->code ? (int)err->code : launcher_run(job->options, job->words, err);
    catch_signals(launch.kind == LAUNCH_ALONE && !launch.slurm_step &&
                  option_given(job->options, "checkpoint") &&
                  !option_flag(job->options, "dry-run", false));
    set_libraries(job->options);
    /* Before comm_open(): these may start a process. */
    if (launch.slurm_step && wants_facts(job->options))
        job->step = step_facts_ask(option_string(job->options, "checkpoint", NULL) != NULL);
    job->node = topo_node_discover(NULL, err);
    if (job->node)
        take_place(job, &launch);
    if (launch.first)
        fate_begin();
    code = job->node ? run_ranks(job, &launch, err) : (int)err->code;
    topo_node_free(job->node);
    /* Last: launchers end the others when one has failed. */
    if (code == EXIT_REQUEUE && launch.kind == LAUNCH_MPI)
        launch_linger();
    return code;
}

int cmd_train(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_TRAIN, argc, argv, 1, err);
    struct job job = { .options = options };
    char *line, *cache;
    int code;

    if (!options)
        return (int)err->code;
    line = options_command_line(argc, argv);
    cache = cache_directory(option_flag(options, "cache", true));
    job.command = line;
    job.words = argv + 1;
    job.cache = cache;
    code = run(&job, err);
    free(line);
    free(cache);
    options_free(options);
    return code;
}
