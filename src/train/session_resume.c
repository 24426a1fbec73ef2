/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "train/optimizer.h"
#include "train/session.h"

int session_precision(struct session *session, const char *path, const char *made,
                      struct err *err)
{
    struct train_settings *t = &session->settings;
    bool float64 = strcmp(made, "float64") == 0;

    if (!float64 && strcmp(made, "float32") != 0)
        return err_set(err, "%s: precision \"%.64s\" is not known", path, made);
    if (t->precision_given && t->float64 != float64)
        return err_set(err, "%s: made with --precision %s, not %s", path, made,
                       t->float64 ? "float64" : "float32");
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

int session_find_checkpoint(struct session *session, struct err *err)
{
    struct session *s = session;
    char *latest;

    if (!s->settings.resume)
        return 0;
    if (checkpoint_latest(s->settings.checkpoint, &latest, err) < 0)
        return -1;
    if (!latest)
        return 0;
    s->resumed = checkpoint_open(latest, err);
    free(latest);
    if (!s->resumed)
        return -1;
    if (s->rank == 0 && checkpoint_is_aside(checkpoint_path(s->resumed)))
        log_warning("%s: a run was killed while it replaced this checkpoint: going on from the "
                    "older one", checkpoint_path(s->resumed));
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

/* What is kept may be newer than what is resumed, and of a run that went another way. */
static int resume_best(struct session *s, struct err *err)
{
    struct checkpoint_best best;

    if (s->settings.best == BEST_NONE)
        return 0;
    if (checkpoint_best(s->settings.checkpoint, &best, err) < 0)
        return -1;
    if (best.by == s->settings.best)
        s->best = best;
    return 0;
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
    if (resume_best(s, err) < 0 || resume_freeze(s, saved, err) < 0)
        return -1;
    return 0;
}
