/* SPDX-License-Identifier: MIT */
/* Is there room for the checkpoints of a run? */
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/room.h"
#include "train/checkpoint_directory.h"
#include "train/session.h"
#include "train/shard.h"

/* What a checkpoint takes: of a rank, then of all. */
struct need {
    double copied;      /* bytes of host memory of a rank; of all: the most of one */
    double bytes, files;
};

static struct need rank_need(const struct session *s)
{
    struct need need = { .bytes = 0 };

    for (int c = 0; c < s->n_chunks; c++) {
        size_t files;

        need.copied += (double)shard_bytes(s->stores[c], &s->placement, &files);
        need.bytes += (double)files;
        need.files++;
    }
    return need;
}

/* A move may cut a piece in two, and who takes something has a file more. */
static void add_moves(struct need *total, const size_t *bytes, int n)
{
    struct shard_move *moves;
    int n_moves = shard_moves(bytes, n, &moves);

    for (int i = 0; i < n_moves; i++)
        total->files += i == 0 || moves[i].to != moves[i - 1].to;
    total->bytes += 3.0 * SHARD_DESCRIBED * n_moves;
    free(moves);
}

static int total_need(struct session *s, struct need *total, struct err *err)
{
    struct need mine = rank_need(s), *all = mem_new((size_t)s->size, sizeof(*all));
    size_t *copied = mem_new((size_t)s->size, sizeof(*copied));
    int bad = comm_collect(s->comm, &mine, sizeof(mine), all, err);

    *total = (struct need){ .files = 2 };       /* the directory and its state.json */
    for (int r = 0; r < s->size && !bad; r++) {
        total->bytes += all[r].bytes;
        total->files += all[r].files;
        total->copied = fmax(total->copied, all[r].copied);
        copied[r] = (size_t)all[r].copied;
    }
    if (!bad)
        add_moves(total, copied, s->size);
    free(copied);
    free(all);
    return bad;
}

/* How many the run will write. */
static double n_saves(const struct session *s)
{
    struct span every = s->settings.checkpoint_every;
    double steps = (double)(s->total_steps - s->first_step);
    double period = (double)every.n * (double)(every.epochs ? s->sampler.steps_per_epoch : 1);

    /* As many as there may be at a time, unless the run is a short one by the forecast. */
    if (session_adapts_saves(s))
        return !s->settings.mtbf_given &&
               steps * s->plan->iteration_seconds < SESSION_FIRST_SECONDS ? 1
                                                                          : s->settings.keep + 1;
    return period > 0 ? ceil(steps / period) : 1;
}

/* How many are there at a time, beside those that are there now: one more than stay, since the
 * oldest goes once the newest is complete.
 */
static double n_more(const struct session *s)
{
    const char *directory = s->settings.checkpoint;
    double there = checkpoint_count_steps(directory, s->first_step), more = n_saves(s);

    if (s->settings.keep > 0)
        more = fmax(1, fmin(more + there, s->settings.keep + 1) - there);
    if (s->settings.best != BEST_NONE) {
        char *best = mem_printf("%s/best", directory);

        more += checkpoint_count_steps(best, INT64_MAX) > 0 ? 1 : 2;
        free(best);
    }
    return more;
}

static int compare(const struct session *s, const struct need *one, struct err *err)
{
    const char *path = s->settings.checkpoint;
    struct room room;
    double n = n_more(s);
    char *unasked;

    if (room_in(path, &room, err) < 0)
        return -1;
    unasked = room_unasked(path, &room);
    if (unasked)
        log_debug("%s", unasked);
    free(unasked);
    if (one->bytes > room.bytes)
        return err_set(err, "%s: no space left for one checkpoint: it takes %.4g MB, %.4g MB %s",
                       path, 1e-6 * one->bytes, 1e-6 * room.bytes, room_said(room.bytes_limit));
    if (one->files > room.files)
        return err_set(err, "%s: no space left for one checkpoint: it takes %.0f files, %.0f %s",
                       path, one->files, room.files, room_said(room.files_limit));
    if (n * one->bytes > room.bytes)
        log_warning("%s: up to %.0f more checkpoints of %.4g MB take %.4g MB, %.4g MB %s "
                    "(--keep, --checkpoint-every)", path, n, 1e-6 * one->bytes,
                    1e-6 * n * one->bytes, 1e-6 * room.bytes, room_said(room.bytes_limit));
    else if (n * one->files > room.files)
        log_warning("%s: up to %.0f more checkpoints of %.0f files take %.0f files, %.0f %s "
                    "(--keep, --checkpoint-every)", path, n, one->files, n * one->files,
                    room.files, room_said(room.files_limit));
    return 0;
}

int session_check_space(struct session *session, struct err *err)
{
    struct session *s = session;
    struct need need;

    if (!s->settings.checkpoint || s->first_step >= s->total_steps)
        return 0;
    if (total_need(s, &need, err) < 0)
        return -1;
    if (s->rank == 0)
        log_debug("a checkpoint takes %.4g MB in %.0f files, and %.4g MB of a rank's memory while "
                  "it is written", 1e-6 * need.bytes, need.files, 1e-6 * need.copied);
    return session_agree(s, s->rank == 0 && compare(s, &need, err) < 0, err);
}
