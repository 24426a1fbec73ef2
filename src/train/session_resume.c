/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/checkpoint_lock.h"
#include "train/optimizer.h"
#include "train/session.h"

int session_precision(struct session *session, const char *path, const char *made,
                      struct err *err)
{
    struct train_settings *t = &session->settings;
    const char *kernels = planning_gpu_kernels(made);
    const struct backend *said = t->backend ? backend_find(t->backend) : NULL;
    bool float64 = strcmp(made, "float64") == 0;

    if (!float64 && !kernels && strcmp(made, "float32") != 0)
        return err_set(err, "%s: precision \"%.64s\" is not known", path, made);
    if (t->precision_given && t->float64 != float64)
        return err_set(err, "%s: made with --precision %s, not %s", path, made,
                       planning_precision(said, t->float64));
    if (kernels && !t->precision_given) {
        if (!planning_on_gpu(t->backend))
            return err_set(err, "%s: made with --precision %s, which needs --device cuda: --precision "
                           "float32 does without", path, made);
        t->backend = kernels;
    }
    t->precision_given = true;
    t->float64 = float64;
    return 0;
}

/* The loss decides what the graph is: before any is made. */
static int resume_loss(struct session *s, const char *saved, struct err *err)
{
    struct train_settings *t = &s->settings;

    if (t->loss && (!saved || strcmp(t->loss, saved) != 0))
        return err_set(err, "%s: made with%s%s", checkpoint_path(s->resumed),
                       saved ? " --loss " : "out --loss", saved ? saved : "");
    t->loss = saved;
    return 0;
}

/* So do the recipe's patterns and smoothing. */
static void resume_recipe(struct session *s)
{
    struct train_settings *t = &s->settings;

    recipe_resume(&t->recipe, &t->recipe_given, &checkpoint_state(s->resumed)->recipe);
}

/* Rank 0 looks for files on behalf of all: others may still see an older directory. Its path,
 * which may be NULL, becomes everybody's.
 */
static int share_path(struct session *s, char **path, struct err *err)
{
    char *text = s->rank == 0 ? mem_strdup(*path ? *path : "") : NULL;
    size_t size = text ? strlen(text) + 1 : 0;
    int bad = comm_broadcast(s->comm, 0, (void **)&text, &size, err);

    free(*path);
    *path = bad || !text[0] ? NULL : mem_strdup(text);
    free(text);
    return bad;
}

int session_open_checkpoint(struct session *session, const char *path,
                            struct checkpoint **checkpoint, struct err *mine, struct err *err)
{
    struct session *s = session;
    void *text = NULL;
    size_t size = 0;
    int bad;

    *checkpoint = NULL;
    if (s->rank == 0)
        checkpoint_read_state(path, &text, &size, mine);
    bad = comm_broadcast(s->comm, 0, &text, &size, err);
    if (!bad && size > 0 && !mine->code)
        *checkpoint = checkpoint_open_part(path, text, size, s->rank, s->size, mine);
    free(text);
    return bad;
}

/* Why a checkpoint is left out; 'text' is malloc'ed, NULL: it is not. */
struct fault {
    bool unreadable;    /* the system does not let it be read; else it is damaged */
    char *text;
};

/* Does any rank find a fault? '*fault' is what the first of them says. */
static int ask_all(struct session *s, const struct err *mine, struct fault *fault, struct err *err)
{
    bool unreadable = mine->number && mine->number != ENOENT && mine->number != ENOTDIR;
    char *said = mine->code ? mem_printf("%c%s", unreadable ? 'u' : 'd', mine->text)
                            : mem_strdup("");
    const void **parts = mem_new((size_t)s->size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)s->size, sizeof(*sizes));
    void *block = NULL;
    int bad = comm_exchange(s->comm, said, strlen(said), &block, parts, sizes, err);

    *fault = (struct fault){ .text = NULL };
    for (int r = 0; r < s->size && !bad && !fault->text; r++) {
        const char *text = parts[r];

        if (sizes[r] == 0)
            continue;
        fault->unreadable = text[0] == 'u';
        fault->text = s->size > 1 ? mem_printf("rank %d (%s): %.*s", r, comm_host(s->comm, r),
                                               (int)sizes[r] - 1, text + 1)
                                  : mem_strdup(mine->text);
    }
    free(said);
    free(block);
    free(parts);
    free(sizes);
    return bad;
}

/* The one before '*path' comes in its place. */
static int step_back(struct session *s, char **path, const struct fault *fault, struct err *err)
{
    char *before = s->rank == 0 ? checkpoint_before(s->settings.checkpoint, *path) : NULL;
    int bad = share_path(s, &before, err);

    if (!bad && !before)
        bad = session_agree(s, s->rank == 0 && err_set(err, "%s; there is no checkpoint before it "
                                                       "in %s", fault->text,
                                                       s->settings.checkpoint),
                            err);
    if (!bad && s->rank == 0)
        log_warning("%s %s: %s; the one before it is %s", *path,
                    fault->unreadable ? "cannot be read and is left out"
                                      : "is damaged and left out", fault->text, before);
    free(*path);
    *path = before;
    return bad;
}

/* What is not as it should be about the one of 'directory' that was taken. */
static void tell_found(const struct session *s, const char *directory)
{
    const char *path = checkpoint_path(s->resumed);

    if (s->rank != 0)
        return;
    /* One that was named itself is no guess. */
    if (strcmp(path, directory) != 0 && !checkpoint_names_latest(directory))
        log_warning("%s: has no file latest: going on from the newest step that is whole, %s",
                    directory, path);
    if (checkpoint_is_aside(path))
        log_warning("%s: a run was killed while it replaced this checkpoint: going on from the "
                    "older one", path);
}

/* The newest that all ranks find whole. */
static int open_newest(struct session *s, char **path, struct err *err)
{
    int bad = 0;

    while (!bad && !s->resumed) {
        struct err mine = { 0 };
        struct checkpoint *c;
        struct fault fault = { .text = NULL };

        bad = session_open_checkpoint(s, *path, &c, &mine, err);
        if (!bad)
            bad = ask_all(s, &mine, &fault, err);
        if (bad || fault.text)
            checkpoint_close(c);
        else
            s->resumed = c;
        if (fault.text)
            bad = step_back(s, path, &fault, err);
        free(fault.text);
    }
    if (!bad)
        tell_found(s, s->settings.checkpoint);
    return bad;
}

/* This one or none. */
static int open_named(struct session *s, struct err *err)
{
    const char *given = s->settings.resume_from;
    struct err mine = { 0 };
    char *path = NULL;
    int bad = session_agree(s, s->rank == 0 && checkpoint_latest(given, &path, err) < 0, err);

    if (!bad)
        bad = share_path(s, &path, err);
    if (!bad)
        bad = session_open_checkpoint(s, path ? path : given, &s->resumed, &mine, err);
    if (!bad && mine.code)
        *err = mine;
    if (!bad)
        bad = session_agree(s, mine.code != 0, err);
    if (!bad)
        tell_found(s, given);
    free(path);
    return bad;
}

/* All but the newest in there are removed: not where another user says. */
static int check_best(const struct session *s, struct err *err)
{
    char *best = mem_printf("%s/best", s->settings.checkpoint);
    int bad = s->settings.best == BEST_NONE ? 0 : file_check_link(best, err);

    free(best);
    return bad;
}

int session_lock(struct session *session, struct err *err)
{
    struct session *s = session;
    const char *directory = s->settings.checkpoint;
    struct lock_owner self;
    char *note;

    if (s->rank != 0 || s->lock)
        return 0;
    if (file_mkdir(directory, err) < 0 || file_check_link(directory, err) < 0 ||
        check_best(s, err) < 0)
        return -1;
    self = lock_owner_self(&s->settings.job);
    s->lock = checkpoint_lock(directory, &self, s->settings.step.asker, &note, err);
    if (s->lock && note)
        log_warning("%s", note);
    free(note);
    return s->lock ? 0 : -1;
}

/* Seconds: what a node knows of a directory on a network file system may be as old. */
#define LATE 60

static bool has_text(const char *path, const void *text, size_t size)
{
    struct err ignored = { 0 };
    struct file_map map;
    bool same;

    if (file_map_open(path, &map, &ignored) < 0)
        return false;
    same = map.size == size && size > 0 && memcmp(map.data, text, size) == 0;
    file_map_close(&map);
    return same;
}

/* The same file is there, not one that an earlier run left on a disk of this node. */
static int await_lock(const struct session *s, const char *lock, const void *text, size_t size,
                      struct err *err)
{
    const struct timespec moment = { .tv_nsec = 100000000 };

    for (int i = 0; i < LATE * 10; i++) {
        if (has_text(lock, text, size))
            return 0;
        nanosleep(&moment, NULL);
    }
    return err_set(err, "%s: is not what rank 0 sees there: checkpoints need a file system that all "
                   "nodes share", s->settings.checkpoint);
}

int session_check_shared(struct session *session, struct err *err)
{
    struct session *s = session;
    struct file_map map = { 0 };
    char *lock;
    void *text;
    size_t size;
    int bad;

    if (s->size == 1 || !s->settings.checkpoint || s->settings.dry_run)
        return 0;
    lock = mem_printf("%s/lock", s->settings.checkpoint);
    bad = session_agree(s, s->rank == 0 && file_map_open(lock, &map, err) < 0, err);
    text = s->rank == 0 ? (void *)map.data : NULL;
    size = s->rank == 0 ? map.size : 0;
    bad = bad || comm_broadcast(s->comm, 0, &text, &size, err);
    bad = bad || session_agree(s, s->rank > 0 && await_lock(s, lock, text, size, err) < 0, err);
    if (s->rank > 0)
        free(text);
    file_map_close(&map);
    free(lock);
    return bad ? -1 : 0;
}

void session_unlock(struct session *session)
{
    checkpoint_unlock(session->lock);
    session->lock = NULL;
}

/* Before anything is read that a run that still lives could replace. */
static int lock_early(struct session *s, struct err *err)
{
    struct stat st;

    if (s->rank != 0 || s->settings.dry_run || stat(s->settings.checkpoint, &st) < 0)
        return 0;
    return session_lock(s, err);
}

int session_find_checkpoint(struct session *session, struct err *err)
{
    struct session *s = session;
    char *path = NULL;
    int bad;

    if (!s->settings.resume)
        return s->settings.resume_from ? open_named(s, err) : 0;
    bad = session_agree(s, lock_early(s, err) < 0 ||
                           (s->rank == 0 &&
                            checkpoint_latest(s->settings.checkpoint, &path, err) < 0), err);
    if (!bad)
        bad = share_path(s, &path, err);
    if (!bad && path)
        bad = open_newest(s, &path, err);
    else if (!bad && s->settings.resume_from)
        bad = open_named(s, err);
    free(path);
    return bad;
}

int session_take_checkpoint(struct session *session, struct err *err)
{
    struct session *s = session;

    if (!s->resumed)
        return 0;
    if (session_precision(s, checkpoint_path(s->resumed),
                          checkpoint_state(s->resumed)->precision, err) < 0)
        return -1;
    resume_recipe(s);
    return resume_loss(s, checkpoint_state(s->resumed)->loss, err);
}

static int check_same(const struct checkpoint *c, const char *what, int64_t said, int64_t saved,
                      struct err *err)
{
    if (said == saved)
        return 0;
    return err_set(err, "%s: made with %s %lld, not %lld", checkpoint_path(c), what,
                   (long long)saved, (long long)said);
}

/* What is frozen is not in the checkpoint, so it must be what was: nobody said otherwise. */
static int resume_freeze(struct session *s, const struct checkpoint_state *saved,
                         struct err *err)
{
    struct model_options *m = &s->model_options;
    struct err ignored = { 0 };
    int n = 0;
    const char *const *freeze = NULL;

    if (saved->plan)
        s->resumed_plan = plan_from_json("plan", saved->plan, &ignored);
    if (s->resumed_plan) {
        n = s->resumed_plan->n_freeze;
        freeze = (const char *const *)s->resumed_plan->freeze;
    }
    if (m->n_freeze && !model_freezes_alike(s->model, m->n_freeze, m->freeze, n, freeze))
        return err_set(err, "%s: made with %s, and what is frozen is not in it; to train other "
                       "parameters, export it and train the exported model",
                       checkpoint_path(s->resumed), n ? "other --freeze patterns" :
                       "no --freeze");
    m->n_freeze = n;
    m->freeze = freeze;
    return 0;
}

int session_resume_best(struct session *session, struct err *err)
{
    struct session *s = session;
    struct checkpoint_best best = { 0 };
    void *data = &best;
    size_t size = sizeof(best);
    int bad = s->rank == 0 && checkpoint_best(s->settings.checkpoint, &best, err) < 0;

    if (session_agree(s, bad, err) || comm_broadcast(s->comm, 0, &data, &size, err))
        return -1;
    if (s->rank != 0) {
        memcpy(&best, data, sizeof(best));
        free(data);
    }
    if (best.by == s->settings.best)
        s->best = best;
    return 0;
}

/* What fp16 was scaled by, nothing else is; steps that were not taken the optimizer does not count,
 * whatever goes on.
 */
static void take_scale(struct loss_scale *scale, const struct loss_scale *saved,
                       const char *precision)
{
    bool takes = scale->factor > 0 || strcmp(precision, "fp16") != 0;

    if (takes && saved->factor > 0)
        *scale = *saved;
    scale->skipped = saved->skipped;
}

int session_resume(struct session *session, struct err *err)
{
    struct session *s = session;
    struct train_settings *t = &s->settings;
    const struct checkpoint *c = s->resumed;
    const struct checkpoint_state *saved = checkpoint_state(c);

    t->global_batch = t->global_batch ? t->global_batch : saved->global_batch;
    if (s->has_stats && !t->batchnorm_samples)
        t->batchnorm_samples = saved->batchnorm_samples;
    if (!t->seed_given)
        t->seed = saved->seed;
    take_scale(&t->scale, &saved->scale, saved->precision);
    optimizer_resume(&t->optimizer, &t->optimizer_given, &saved->optimizer);
    if (check_same(c, "--global-batch", t->global_batch, saved->global_batch, err) < 0 ||
        check_same(c, "--batchnorm-samples", t->batchnorm_samples,
                   saved->batchnorm_samples, err) < 0 ||
        check_same(c, "--seed", (int64_t)t->seed, (int64_t)saved->seed, err) < 0 ||
        check_same(c, "as many samples as", data_samples(s->train.data), saved->data_samples,
                   err) < 0)
        return -1;
    if (t->shuffle != saved->shuffle)
        return err_set(err, "%s: made with --%sshuffle", checkpoint_path(c),
                       saved->shuffle ? "" : "no-");
    if (t->optimizer.kind != saved->optimizer.kind)
        return err_set(err, "%s: made with --optimizer %s, not %s", checkpoint_path(c),
                       optimizer_name(saved->optimizer.kind),
                       optimizer_name(t->optimizer.kind));
    if (*saved->model_hash && *model_hash(s->model) &&
        strcmp(saved->model_hash, model_hash(s->model)) != 0)
        return err_set(err, "%s: made from another graph than that of %s", checkpoint_path(c),
                       s->model_path);
    s->first_step = saved->step;
    return resume_freeze(s, saved, err);
}
