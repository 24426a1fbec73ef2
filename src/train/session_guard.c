/* SPDX-License-Identifier: MIT */
/* What is done about a step whose numbers are bad, once all ranks have read so on the board. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/session.h"

#define MOST_IN_A_ROW 50    /* then nothing is learnt any more */
#define MOST_ROLLBACKS 3    /* to one checkpoint */

/* Of all ranks, the find to name, and whose it is; -1: nobody's. */
static int gather_finds(struct session *s, int64_t step, struct guard_find *first, int *rank,
                        struct err *err)
{
    const struct guard_find *mine = s->runner ? runner_found(s->runner, step) : NULL;
    struct guard_find none = { .step = step }, *finds = mem_new((size_t)s->size, sizeof(*finds));
    int bad = comm_collect(s->comm, mine ? mine : &none, sizeof(none), finds, err);

    *rank = -1;
    if (!bad) {
        *rank = guard_first(finds, s->size);
        *first = *rank >= 0 ? finds[*rank] : none;
        first->tensor[sizeof(first->tensor) - 1] = '\0';
    }
    free(finds);
    return bad;
}

static void describe(const struct session *s, const struct guard_find *find, int rank,
                     char *text, size_t size)
{
    long long step = (long long)find->step + 1;
    const char *node = comm_host(s->comm, rank < 0 ? 0 : rank);

    if (find->cause == GUARD_GRADIENT)
        snprintf(text, size, "step %lld: the gradient of \"%s\" is not finite (stage %d, rank "
                 "%d, %s)", step, find->tensor, (int)find->stage, rank, node);
    else if (find->cause == GUARD_SPIKE)
        snprintf(text, size, "step %lld: the loss is %.4g, %.3g times the usual %.4g", step,
                 find->loss, find->loss / find->usual, find->usual);
    else
        snprintf(text, size, "step %lld: the %s not finite", step, find->cause == GUARD_LOSS
                                                                       ? "loss is"
                                                                       : "gradients' norm is");
}

static const char *action(const struct session *s)
{
    static const char *const names[] = { "stop", "skip", "rollback", "ignore" };

    return names[s->settings.guard.policy];
}

static void log_find(struct session *s, const struct guard_find *find, int rank, double loss)
{
    static const char *const causes[] = { "norm", "spike", "norm", "loss", "gradient" };
    bool gradient = find->cause == GUARD_GRADIENT;

    session_log(s, json_pack("{s:s, s:I, s:s, s:o, s:o, s:o, s:o, s:s, s:I}", "event", "bad_step",
                             "step", (json_int_t)find->step + 1, "cause", causes[find->cause],
                             "tensor", gradient ? json_string(find->tensor) : json_null(),
                             "stage", gradient ? json_integer(find->stage) : json_null(),
                             "rank", gradient ? json_integer(rank) : json_null(), "loss",
                             session_number(loss), "action", action(s), "count",
                             (json_int_t)s->bad_steps));
}

/* All ranks fail, and rank 0 says why. */
static int give_up(struct session *s, const char *what, const char *why, struct err *err)
{
    return session_agree(s, err_set(err, "%s%s", what, why) < 0, err);
}

int session_bad_step(struct session *session, int64_t step, double loss, struct err *err)
{
    struct session *s = session;
    struct guard_find find;
    char text[512];
    int rank;

    if (gather_finds(s, step, &find, &rank, err) < 0)
        return -1;
    s->bad_steps++;
    s->bad_in_row = s->bad_steps > 1 && s->last_bad == step - 1 ? s->bad_in_row + 1 : 1;
    s->last_bad = step;
    describe(s, &find, rank, text, sizeof(text));
    if (s->rank == 0)
        log_find(s, &find, rank, loss);
    if (s->settings.guard.policy == GUARD_STOP)
        return give_up(s, text, "; --on-nan says what else may be done", err);
    if (s->bad_in_row >= MOST_IN_A_ROW)
        return give_up(s, text, ", like those before it: nothing is learnt any more", err);
    if (s->rank == 0)
        log_warning("%s: %s", text, s->settings.guard.policy == GUARD_SKIP
                                        ? "it is skipped" : "back to the last checkpoint");
    return 0;
}

/* The newest checkpoint of this run, by rank 0; "": there is none. */
static int find_newest(struct session *s, char **path, struct err *err)
{
    size_t size = 0;
    void *data = NULL;
    bool saved = s->rank == 0 && checkpoint_names_latest(s->settings.checkpoint);
    int bad = saved ? checkpoint_latest(s->settings.checkpoint, path, err) : 0;

    if (session_agree(s, bad < 0, err))
        return -1;
    if (s->rank == 0) {
        *path = *path ? *path : mem_strdup("");
        data = *path;
        size = strlen(*path) + 1;
    }
    if (comm_broadcast(s->comm, 0, &data, &size, err))
        return -1;
    *path = data;
    return 0;
}

static int load(struct session *s, const char *path, int64_t *step, struct err *err)
{
    struct checkpoint *checkpoint;
    struct err mine = { 0 };
    int bad = session_open_checkpoint(s, path, &checkpoint, &mine, err);

    if (!bad && mine.code)
        *err = mine;
    if (!bad)
        bad = session_load(s, checkpoint, mine.code != 0, err);
    if (!bad)
        *step = checkpoint_state(checkpoint)->step;
    checkpoint_close(checkpoint);
    return bad;
}

static int go_back(struct session *s, const char *path, int64_t done, struct err *err)
{
    int64_t step = 0;

    if (load(s, path, &step, err) < 0)
        return -1;
    s->rollbacks = s->rollbacks > 0 && s->rolled_to == step ? s->rollbacks + 1 : 1;
    s->rolled_to = step;
    if (s->rollbacks > MOST_ROLLBACKS)
        return give_up(s, path, ": this checkpoint was gone back to three times in vain", err);
    if (s->rank == 0)
        log_info("the parameters are those after step %lld again; the samples go on",
                 (long long)step);
    session_log(s, json_pack("{s:s, s:I, s:I, s:s}", "event", "rollback", "step",
                             (json_int_t)done, "to", (json_int_t)step, "path", path));
    return 0;
}

int session_rollback(struct session *session, int64_t done, struct err *err)
{
    struct session *s = session;
    char *path = NULL;
    int bad = (s->runner && runner_drain(s->runner, err) < 0) ||
                      session_end_save(s, err) < 0 || find_newest(s, &path, err) < 0
                  ? -1 : 0;

    if (!bad && path[0])
        bad = go_back(s, path, done, err);
    else if (!bad && s->rank == 0)
        log_warning("there is no checkpoint yet: the step is skipped only");
    free(path);
    return bad;
}
