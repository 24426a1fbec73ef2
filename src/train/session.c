/* SPDX-License-Identifier: MIT */
#include "topology/energy.h"
#include "train/session.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/buckets.h"
#include "train/order.h"
#include "train/planning.h"
#include "train/safetensors.h"

#define MAX_READERS 16

int session_agreed(struct session *session, int bad, struct err *err)
{
    if (!bad)
        return 0;
    /* Agreeing may itself have failed: where a rank died, for instance. */
    session->agreed = comm_agreed(session->comm);
    if (session->agreed && session->rank != 0)
        err->text[0] = '\0';
    return -1;
}

int session_agree(struct session *session, int failed, struct err *err)
{
    return session_agreed(session, comm_agree(session->comm, err, failed), err);
}

json_t *session_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void session_log(struct session *session, json_t *line)
{
    if (session->journal)
        journal_write(session->journal, line);
    else
        json_decref(line);
}

/* Data ----------------------------------------------------------------------------------- */

static int open_backend(struct session *s, struct err *err)
{
    /* What a plan or a checkpoint says of float64 was not known when GPUs were chosen. */
    if (s->settings.float64 && !s->settings.device_given && planning_on_gpu(s->settings.backend))
        return err_set_code(err, EXIT_USAGE, "GPUs are there, and they do not compute in float64, as "
                            "this run does: --device cpu says that they are not meant to be used");
    session_suit_gpus(s);
    s->backend = planning_backend(s->settings.backend, s->settings.float64, err);
    if (!s->backend ||
        (s->settings.offload && planning_check_offload(NULL, s->backend, err) < 0))
        return -1;
    if (!s->settings.threads)
        s->settings.threads = session_cores(s);
    s->device = s->backend->device_open(s->settings.threads, s->gpu[0] ? s->gpu : NULL, err);
    return s->device ? 0 : -1;
}

static void tell_bad(const struct session *s, const struct data *data)
{
    const char *const *names;
    int n;
    int64_t bad = data_bad(data, &n, &names);

    for (int i = 0; s->rank == 0 && i < n; i++)
        log_warning("%s", names[i]);
    if (s->rank == 0 && bad > 0)
        log_warning("%s: %lld bad samples are left out", data_path(data), (long long)bad);
}

static int open_data(struct session *s, struct source *source, const char *spec,
                     struct err *err)
{
    struct data_options options = s->settings.data_options;

    options.test = source == &s->test;
    options.cache = s->settings.cache_directory;
    options.keeps_cache = s->rank == 0;
    options.seed = s->resumed && !s->settings.seed_given ? checkpoint_state(s->resumed)->seed
                                                         : s->settings.seed;
    source->data = data_open(spec, &options, err);
    if (!source->data || data_complete(source->data, s->model, s->settings.loss, err) < 0)
        return -1;
    tell_bad(s, source->data);
    source->reader = data_reader_new(source->data);
    return 0;
}

static int bind_source(struct source *source, const struct graph *probe, struct err *err)
{
    for (int v = 0; v < probe->n_values; v++)
        if (probe->values[v].kind == VALUE_INPUT && v != probe->weight_sum &&
            probe->values[v].n_consumers > 0 && data_bind(source->data, probe, v, err) < 0)
            return -1;
    return labels_init(&source->labels, source->data, probe, err);
}

/* The graph at some batch size says whether data and labels fit, before any plan is made. */
static int probe_graph(struct session *s, struct err *err)
{
    struct model_options options = s->model_options;
    struct graph *probe;
    const char *absent;
    int bad;

    options.batch = 2;
    probe = model_build(s->model, &options, err);
    if (!probe)
        return -1;
    for (int i = 0; s->rank == 0 && i < model_notes(s->model); i++)
        log_info("%s", model_note(s->model, i));
    for (int v = 0; v < probe->n_values; v++)
        s->has_stats = s->has_stats || probe->values[v].kind == VALUE_STAT;
    if ((absent = initial_absent(probe, &s->n_absent)))
        s->absent = mem_strdup(absent);
    s->classifies = probe->correct >= 0;
    s->loss_text = mem_strdup(probe->loss_rule.text ? probe->loss_rule.text : "");
    if (probe->loss < 0)
        bad = err_set(err, "%s: no loss: say --loss", s->model_path);
    else
        bad = bind_source(&s->train, probe, err);
    if (!bad && s->test.data)
        bad = bind_source(&s->test, probe, err);
    graph_free(probe);
    return bad;
}

/* What the user says, else what the plan that was given says. */
static void choose_freeze(struct session *s)
{
    struct model_options *m = &s->model_options;

    m->n_freeze = s->settings.n_freeze;
    m->freeze = s->settings.freeze;
    if (m->n_freeze == 0 && s->given) {
        m->n_freeze = s->given->n_freeze;
        m->freeze = (const char *const *)s->given->freeze;
    }
}

/* What the model has no weights for: a checkpoint has its parameters. */
static int make_initial(struct session *s, struct err *err)
{
    const char *how = s->settings.init;

    if (!s->absent && how && !s->resumed)
        return err_set_code(err, EXIT_USAGE, "--init: %s has its weights", s->model_path);
    if (!s->absent) {
        s->initial = initial_of_model(s->model);
        return 0;
    }
    if (!how && !s->resumed)
        return err_set(err, "%s: has no weights for \"%.200s\"%s: say --init=fan-in, or --init "
                       "FILE for those of a safetensors file", s->model_path, s->absent,
                       s->n_absent > 1 ? " and others" : "");
    s->initial = initial_new(s->model, &s->model_options, s->initial_file, how != NULL, err);
    s->initial_file = NULL;
    return s->initial ? 0 : -1;
}

static int open_initial(struct session *s, struct err *err)
{
    if (make_initial(s, err) < 0)
        return -1;
    if (s->size > 1)
        initial_share(s->initial);
    return 0;
}

/* All that is read -------------------------------------------------------------------- */

static int open_inputs(struct session *s, struct err *err)
{
    if (session_take_checkpoint(s, err) < 0 || open_backend(s, err) < 0)
        return -1;
    if (open_data(s, &s->train, s->settings.data, err) < 0 ||
        (s->settings.test && open_data(s, &s->test, s->settings.test, err) < 0))
        return -1;
    s->model_options = (struct model_options){
        .real = s->settings.float64 ? DTYPE_F64 : DTYPE_F32, .fuse = s->settings.fuse,
        .loss = s->settings.loss, .label_smoothing = s->settings.recipe.label_smoothing,
        .n_no_decay = s->settings.recipe.n_no_decay, .no_decay = s->settings.recipe.no_decay,
    };
    s->model_options.tensors = data_tensors(s->train.data, &s->model_options.n_tensors);
    choose_freeze(s);
    if (probe_graph(s, err) < 0)
        return -1;
    if (s->resumed && session_resume(s, err) < 0)
        return -1;
    return open_initial(s, err);
}

/* What cannot be written shows now, not after hours. */
static int probe_outputs(struct session *s, struct err *err)
{
    const char *files[] = { s->settings.trace, s->settings.gradients };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (files[i] && file_check_link(files[i], err) < 0)
            return -1;
    if (s->settings.stage_to && staging_probe(s->settings.stage_to, err) < 0)
        return -1;
    return s->settings.checkpoint ? session_lock(s, err) : 0;
}

/* What a step is ---------------------------------------------------------------------- */

/* Pins that this run is too small for are answered with the line to start it by. */
static int check_ranks(const struct session *s, struct err *err)
{
    const struct train_settings *t = &s->settings;
    const struct plan_request request = session_request(s);
    int chunks = request_chunks(&request);
    int need = t->list ? t->list->n_lists : t->stages / chunks;

    for (int i = 0, sum = 0; i < t->n_replicas; i++) {
        sum += t->replicas[i];
        need = sum / chunks > need ? sum / chunks : need;
    }
    if (need <= s->size)
        return 0;
    return err_set_code(err, EXIT_USAGE, "%s needs %d ranks, this run has %d: start it with "
                        "\"srun --mpi=pmix -n %d tasuki train ...\" or \"mpirun -n %d tasuki "
                        "train ...\", or as one process with --ranks-in-process %d",
                        t->n_replicas ? "--replicas" : t->list ? t->list->source : "--stages",
                        need, s->size, need, need, need);
}

static int complete_settings(struct session *s, struct err *err)
{
    struct train_settings *t = &s->settings;

    if (check_ranks(s, err) < 0)
        return -1;

    if (t->trial && s->given)
        return err_set_code(err, EXIT_USAGE, "--trial: %s is a plan: give its model, or leave "
                            "--trial out", t->input);
    if (!t->global_batch && s->given)
        t->global_batch = s->given->global_batch;
    if (!t->global_batch)
        return err_set_code(err, EXIT_USAGE, "train: --global-batch is missing");
    if (!s->has_stats)
        t->batchnorm_samples = 0;
    else if (!t->batchnorm_samples && s->given)
        t->batchnorm_samples = s->given->batchnorm_samples;
    if (s->has_stats && !t->batchnorm_samples) {
        struct plan_request request = session_request(s);

        t->batchnorm_samples = planning_group(&request, s->size);
        if (s->rank == 0)
            log_info("BatchNorm normalises over %lld samples (--batchnorm-samples)",
                     (long long)t->batchnorm_samples);
    }
    if (sampler_init(&s->sampler, data_samples(s->train.data), t->global_batch, t->seed,
                     t->shuffle, err) < 0) {
        err_prefix(err, "%s", data_path(s->train.data));
        return -1;
    }
    s->total_steps = t->steps ? t->steps : t->epochs * s->sampler.steps_per_epoch;
    if (recipe_resolve(&t->recipe, s->sampler.steps_per_epoch, s->total_steps, err) < 0)
        return -1;
    s->rate = recipe_rate(&t->recipe);
    if (t->eval_ema && t->recipe.ema <= 0)
        return err_set_code(err, EXIT_USAGE, "train: --eval-ema needs --ema");
    if (t->best == BEST_ACCURACY && !s->classifies)
        return err_set_code(err, EXIT_USAGE, "train: --best accuracy: the model classifies "
                            "nothing, its loss is %s", s->loss_text);
    if (s->rank == 0 && s->sampler.samples % t->global_batch)
        log_info("%lld of %lld samples of each epoch do not fill a batch and are left out",
                 (long long)(s->sampler.samples % t->global_batch),
                 (long long)s->sampler.samples);
    return 0;
}

/* Pictures cost time, what is mapped hardly any. */
int session_prefetch(const struct session *session, const struct source *source,
                     const struct sampler *sampler, int64_t first, int64_t end,
                     struct prefetch ***prefetch, struct err *err)
{
    const struct session *s = session;
    int cores = session_cores(s), most = cores > MAX_READERS ? MAX_READERS : cores;
    struct prefetch_options options = {
        .data = source->data, .placement = &s->placement, .plan = s->plan, .sampler = sampler,
        .first_step = first, .end_step = end, .threads = (int)s->settings.data_threads,
    };
    struct err problem = { 0 };

    *prefetch = mem_new((size_t)s->n_chunks, sizeof(struct prefetch *));
    if (!s->settings.data_threads_given)
        options.threads = data_decodes(source->data) && most > 0 ? most : 1;
    if (options.threads == 0)
        return 0;
    for (int c = 0; c < s->n_chunks && !problem.code; c++) {
        options.tensors = source->tensors[c];
        options.compiled = s->compiled[c];
        options.device = s->device;
        (*prefetch)[c] = prefetch_new(&options, &problem);
    }
    return problem.code ? err_set(err, "%s", problem.text) : 0;
}

void session_prefetch_free(const struct session *session, struct prefetch **prefetch)
{
    for (int c = 0; prefetch && c < session->n_chunks; c++)
        prefetch_free(prefetch[c]);
    free(prefetch);
}

static int make_prefetch(struct session *s, struct err *err)
{
    return session_prefetch(s, &s->train, &s->sampler, s->first_step, s->total_steps,
                            &s->prefetch, err);
}

/* A dry run must leave the log of an earlier run alone. */
static int open_journal(struct session *s, struct err *err)
{
    if (s->rank != 0 || s->settings.dry_run)
        return 0;
    s->journal = journal_open(s->settings.log, s->resumed != NULL, err);
    return s->journal && session_metrics(s, err) == 0 ? 0 : -1;
}

/* Seconds since the last phase ended. */
static double phase(struct session *s)
{
    double before = s->mark;

    s->mark = trace_clock();
    return s->mark - before;
}

/* Every rank opens the data itself, on its own node: all must have found the same samples. */
static int check_data(struct session *s, struct err *err)
{
    int64_t mine[2] = { data_samples(s->train.data),
                        s->test.data ? data_samples(s->test.data) : 0 };
    int64_t(*all)[2] = mem_new((size_t)s->size, sizeof(*all));
    int bad = comm_collect(s->comm, mine, sizeof(mine), all, err);

    for (int r = 1; r < s->size && !bad; r++)
        for (int i = 0; i < 2 && !bad; i++)
            if (all[r][i] != all[0][i])
                bad = err_set(err, "%s: rank %d (%s) finds %lld samples, rank 0 (%s) %lld",
                              data_path(i ? s->test.data : s->train.data), r,
                              comm_host(s->comm, r), (long long)all[r][i],
                              comm_host(s->comm, 0), (long long)all[0][i]);
    free(all);
    return bad;
}

/* GPUs may idle where nothing is run. */
static int check_binding(struct session *s, struct err *err)
{
    struct err ignored = { 0 };
    int bad = session_check_binding(s, s->settings.dry_run ? &ignored : err) < 0;

    return s->settings.dry_run ? 0 : session_agree(s, bad, err);
}

/* Each step may fail on any rank; all learn of it before the next collective. */
int session_open(struct session *session, const struct train_settings *settings,
                 const struct topo_node *node, struct comm *comm, struct err *err)
{
    struct session *s = session;

    *s = (struct session){ .settings = *settings, .comm = comm, .node = node,
                           .rank = comm_rank(comm), .size = comm_size(comm),
                           .placement = { .stage = -1 } };
    comm_set_deadline(comm, settings->deadline);
    comm_set_warn_after(comm, settings->warn_after);
    comm_set_lost_after(comm, settings->lost_after);
    s->begun = s->mark = trace_clock();
    if (session_cluster(s, err) < 0)
        return -1;
    s->discovering = phase(s);
    if (session_open_given(s, err) < 0 || check_binding(s, err) < 0 ||
        session_choose_gpu(s, err) < 0 || session_bind(s, err) < 0 ||
        session_open_model(s, err) < 0 ||
        session_find_checkpoint(s, err) < 0 || session_open_initial(s, err) < 0 ||
        session_agree(s, open_inputs(s, err) < 0 ||
                             complete_settings(s, err) < 0 ||
                             (!settings->dry_run && probe_outputs(s, err) < 0) ||
                             open_journal(s, err) < 0, err) ||
        (s->resumed && settings->best != BEST_NONE && session_resume_best(s, err) < 0) ||
        session_check_shared(s, err) < 0 ||
        session_agree(s, check_data(s, err) < 0 ||
                             (s->given && order_check(s->given, comm, err) < 0), err) ||
        session_use_gpus(s, err) < 0 || session_usage_start(s, err) < 0)
        return -1;
    s->opening = phase(s);
    if (session_plan(s, err) < 0)
        return -1;
    s->planning = phase(s);
    if (settings->dry_run)
        return 0;
    if (session_start(s, err) < 0 || session_tell_fallbacks(s, err) < 0 ||
        session_check_space(s, err) < 0 ||
        session_stage(s, err) < 0)
        return -1;
    if (session_agree(s, make_prefetch(s, err) < 0, err) ||
        board_init(&s->board, comm, err) < 0)
        return -1;
    reports_init(&s->reports, comm, settings->report_every);
    s->slow = mem_new((size_t)s->size, sizeof(*s->slow));
    s->compiling = phase(s);
    return 0;
}

static void close_source(struct source *source)
{
    labels_clear(&source->labels);
    data_reader_free(source->reader);
    data_close(source->data);
}

void session_close(struct session *session)
{
    struct session *s = session;

    session_drop_save(s);
    session_unlock(s);
    reports_clear(&s->reports);
    board_clear(&s->board);
    free(s->metrics.ranks);
    free(s->slow);
    energy_free(s->energy);
    session_stop(s);
    staging_close(s->staging);
    trace_clear(&s->trace);
    sampler_clear(&s->sampler);
    placement_clear(&s->placement);
    json_decref(s->plan_json);
    json_decref(s->fallbacks);
    plan_free(s->plan);
    plan_free(s->given);
    plan_free(s->resumed_plan);
    for (int i = 0; s->others && i < s->settings.trial - 1; i++)
        plan_free(s->others[i]);
    free(s->others);
    cost_free(s->cost);
    cluster_free(s->cluster);
    checkpoint_close(s->resumed);
    initial_free(s->initial);
    safetensors_close(s->initial_file);
    free(s->absent);
    close_source(&s->train);
    close_source(&s->test);
    if (s->device)
        s->backend->device_close(s->device);
    model_close(s->model);
    free(s->model_path);
    free(s->loss_text);
}
