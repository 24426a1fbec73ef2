/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/shard.h"

/* A directory of plain files. */
static void remove_directory(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char *file;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        file = mem_printf("%s/%s", path, entry->d_name);
        unlink(file);
        free(file);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static int sync_directory(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), bad;

    if (fd < 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    /* Some file systems cannot sync a directory, and then need not. */
    bad = fsync(fd) < 0 && errno != EINVAL;
    if (bad)
        err_set(err, "%s: %s", path, strerror(errno));
    close(fd);
    return bad ? -1 : 0;
}

static int start_directory(const char *directory, const char *temporary, struct err *err)
{
    if (file_mkdir(directory, err) < 0)
        return -1;
    remove_directory(temporary);
    if (mkdir(temporary, 0777) < 0)
        return err_set(err, "%s: %s", temporary, strerror(errno));
    return 0;
}

static json_t *state_json(const struct checkpoint_state *s)
{
    json_t *top = json_pack(
        "{s:s, s:i, s:I, s:I, s:I, s:I, s:s, s:I, s:b, s:s, s:o}", "schema",
        "tasuki-checkpoint", "version", 1, "step", (json_int_t)s->step, "data_samples",
        (json_int_t)s->data_samples, "global_batch", (json_int_t)s->global_batch,
        "batchnorm_samples", (json_int_t)s->batchnorm_samples, "random", "philox4x32-10",
        "seed", (json_int_t)s->seed, "shuffle", s->shuffle, "precision", s->precision,
        "optimizer", optimizer_to_json(&s->optimizer));

    if (s->best.step > 0)
        json_object_set_new(top, "best", json_pack("{s:s, s:f, s:I}", "metric",
                                                   s->best.by == BEST_ACCURACY ? "accuracy"
                                                                               : "loss",
                                                   "value", s->best.value, "step",
                                                   (json_int_t)s->best.step));
    json_object_set_new(top, "recipe", recipe_to_json(&s->recipe));
    if (s->loss)
        json_object_set_new(top, "loss", json_string(s->loss));
    json_object_set_new(top, "model", json_pack("{s:s, s:s}", "path", s->model_path, "xxh3",
                                                s->model_hash));
    if (s->plan)
        json_object_set(top, "plan", s->plan);
    return top;
}

/* Shards as the ranks described them, in rank order. */
static int write_state(const char *temporary, const struct checkpoint_state *state,
                       const void **parts, const size_t *sizes, int n, struct err *err)
{
    json_t *top = state_json(state), *files = json_array();
    char *path = mem_printf("%s/state.json", temporary);
    int bad = 0;

    for (int r = 0; r < n && !bad; r++) {
        json_t *shard;

        if (sizes[r] == 0)
            continue;
        shard = json_loadb(parts[r], sizes[r], 0, NULL);
        bad = shard ? json_array_append_new(files, shard) : -1;
    }
    json_object_set_new(top, "files", files);
    if (bad)
        err_set(err, "%s: a rank's list of tensors does not parse", path);
    else
        bad = json_save(top, path, err);
    json_decref(top);
    free(path);
    return bad;
}

/* How a new directory took the place of an older one of the same step. */
enum moved { MOVED_NOT, MOVED_IN, MOVED_EXCHANGED, MOVED_ASIDE };

/* An older directory of the same step (of a run that was resumed from before) gives way: at
 * once, since "latest" may name it; in two moves where the file system cannot exchange names.
 */
static enum moved move_in(const char *temporary, const char *final, const char *old,
                          struct err *err)
{
    bool aside;

    if (rename(temporary, final) == 0)
        return MOVED_IN;
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0)
        return MOVED_EXCHANGED;
    remove_directory(old);
    aside = rename(final, old) == 0;
    if ((aside || errno == ENOENT) && rename(temporary, final) == 0)
        return aside ? MOVED_ASIDE : MOVED_IN;
    err_set(err, "%s: %s", final, strerror(errno));
    if (aside)
        (void)rename(old, final);
    return MOVED_NOT;
}

/* As it was before: what is new is at 'temporary' again. */
static void move_back(const char *temporary, const char *final, const char *old,
                      enum moved moved)
{
    if (moved == MOVED_EXCHANGED)
        (void)renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE);
    else if (moved != MOVED_NOT)
        (void)rename(final, temporary);
    if (moved == MOVED_ASIDE)
        (void)rename(old, final);
}

/* "step-00000020" between 'before' and 'after'. */
static bool is_step(const char *name, const char *before, const char *after)
{
    size_t head = strlen(before), digits;

    if (strncmp(name, before, head) != 0 || strncmp(name + head, "step-", 5) != 0)
        return false;
    digits = strspn(name + head + 5, "0123456789");
    return digits > 0 && strcmp(name + head + 5 + digits, after) == 0;
}

static bool is_leftover(const char *name, const char *kept)
{
    if (is_step(name, ".", ".tmp") || is_step(name, "", ".old"))
        return true;
    return kept && is_step(name, "", "") && strcmp(name, kept) != 0;
}

/* What runs that were killed in the midst of a checkpoint left behind; where a name is given,
 * all others, too.
 */
static void remove_leftovers(const char *directory, const char *kept)
{
    DIR *dir = opendir(directory);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char *path;

        if (!is_leftover(entry->d_name, kept))
            continue;
        path = mem_printf("%s/%s", directory, entry->d_name);
        remove_directory(path);
        free(path);
    }
    if (dir)
        closedir(dir);
}

static int write_latest(const char *directory, const char *name, struct err *err)
{
    char *latest = mem_printf("%s/latest", directory), *line = mem_printf("%s\n", name);
    int bad = file_write(latest, line, strlen(line), err);

    free(latest);
    free(line);
    return bad;
}

static int finish(const char *directory, const char *temporary, const char *name,
                  struct err *err)
{
    char *final = mem_printf("%s/%s", directory, name), *old = mem_printf("%s.old", final);
    enum moved moved = MOVED_NOT;
    int bad = sync_directory(temporary, err);

    if (!bad)
        moved = move_in(temporary, final, old, err);
    bad = moved == MOVED_NOT || sync_directory(directory, err) < 0 ||
          write_latest(directory, name, err) < 0;
    if (bad)
        move_back(temporary, final, old, moved);
    else
        remove_leftovers(directory, NULL);
    free(final);
    free(old);
    return bad ? -1 : 0;
}

/* Every rank's list, in rank order, on all. */
static int exchange(struct comm *comm, const json_t *shard, void **block, const void **parts,
                    size_t *sizes, struct err *err)
{
    char *text = shard ? json_dumps(shard, JSON_COMPACT) : NULL;
    int bad = comm_exchange(comm, text ? text : "", text ? strlen(text) : 0, block, parts,
                            sizes, err);

    free(text);
    return bad;
}

static int save_parts(const char *directory, const char *temporary, const char *name,
                      const struct checkpoint_state *state, const struct store *store,
                      const struct placement *placement, struct comm *comm, struct err *err)
{
    int size = comm_size(comm), rank = comm_rank(comm), bad;
    const void **parts = mem_new((size_t)size, sizeof(*parts));
    size_t *sizes = mem_new((size_t)size, sizeof(*sizes));
    char file[64];
    void *block = NULL;
    json_t *shard = NULL;

    snprintf(file, sizeof(file), "shard-%04d.safetensors", rank);
    if (store)
        shard = shard_write(temporary, file, store, placement, err);
    bad = comm_agree(comm, err, store && !shard);
    if (!bad)
        bad = exchange(comm, shard, &block, parts, sizes, err);
    if (!bad) {
        int failed = rank == 0 &&
                     (write_state(temporary, state, parts, sizes, size, err) < 0 ||
                      finish(directory, temporary, name, err) < 0);

        bad = comm_agree(comm, err, failed);
    }
    json_decref(shard);
    free(block);
    free(parts);
    free(sizes);
    return bad;
}

int checkpoint_save(const char *directory, const struct checkpoint_state *state,
                    const struct store *store, const struct placement *placement,
                    struct comm *comm, struct err *err)
{
    char *name = mem_printf("step-%08lld", (long long)state->step);
    char *temporary = mem_printf("%s/.%s.tmp", directory, name);
    int rank = comm_rank(comm);
    int failed = rank == 0 && start_directory(directory, temporary, err) < 0;
    int bad = comm_agree(comm, err, failed);

    if (!bad) {
        bad = save_parts(directory, temporary, name, state, store, placement, comm, err);
        if (bad && rank == 0)
            remove_directory(temporary);
    }
    free(temporary);
    free(name);
    return bad;
}

void checkpoint_prune(const char *directory)
{
    struct err ignored = { 0 };
    char *latest;

    if (checkpoint_latest(directory, &latest, &ignored) < 0 || !latest)
        return;
    remove_leftovers(directory, strrchr(latest, '/') + 1);
    free(latest);
}
