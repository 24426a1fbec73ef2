/* SPDX-License-Identifier: MIT */
#include "train/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

struct journal {
    char *path;
    pthread_mutex_t lock;       /* for whole lines */
    FILE *file;
    bool failed;
};

/* Opening a pipe would wait for its reader. */
static FILE *open_file(const char *path, bool append, struct err *err)
{
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | (append ? O_APPEND : O_TRUNC), fd;
    struct stat st;
    FILE *file;

    if (file_check_link(path, err) < 0)
        return NULL;
    fd = open(path, flags, 0666);
    if (fd < 0 && errno == ENXIO && stat(path, &st) == 0 && S_ISFIFO(st.st_mode)) {
        err_set(err, "--log %s: is a pipe that nobody reads", path);
        return NULL;
    }
    file = fd < 0 || fcntl(fd, F_SETFL, flags & O_APPEND) < 0 ? NULL
                                                              : fdopen(fd, append ? "a" : "w");
    if (!file)
        err_set(err, "%s: %s", path, strerror(errno));
    if (!file && fd >= 0)
        close(fd);
    return file;
}

struct journal *journal_open(const char *path, bool append, struct err *err)
{
    struct journal *journal = mem_new(1, sizeof(*journal));

    pthread_mutex_init(&journal->lock, NULL);
    if (!path)
        return journal;
    journal->path = mem_strdup(path);
    journal->file = open_file(path, append, err);
    if (!journal->file) {
        journal_close(journal);
        return NULL;
    }
    return journal;
}

static void note_failure(struct journal *journal)
{
    if (journal->failed)
        return;
    journal->failed = true;
    log_warning("%s: %s; the run goes on without its log", journal->path,
                strerror(errno ? errno : EIO));
}

static void write_line(struct journal *journal, const char *text)
{
    if (!journal->file)
        return;
    pthread_mutex_lock(&journal->lock);
    errno = 0;
    if (!journal->failed && (fprintf(journal->file, "%s\n", text) < 0 || fflush(journal->file)))
        note_failure(journal);
    pthread_mutex_unlock(&journal->lock);
}

static void write_json(struct journal *journal, json_t *line, size_t digits)
{
    char *text = journal->file ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(digits))
                               : NULL;

    write_line(journal, text ? text : "{}");
    free(text);
    json_decref(line);
}

void journal_write(struct journal *journal, json_t *line)
{
    write_json(journal, line, 17);
}

void journal_write_short(struct journal *journal, json_t *line)
{
    write_json(journal, line, 4);
}

/* JSON knows neither infinity nor NaN. */
static const char *number(double value, char text[32])
{
    snprintf(text, 32, isfinite(value) ? "%.17g" : "null", value);
    return text;
}

void journal_step(struct journal *journal, const struct journal_step *s)
{
    char text[512], accuracy[64] = "", norm[64] = "", scale[64] = "";
    char a[32], b[32], c[32], d[32], e[32];

    if (s->classifies)
        snprintf(accuracy, sizeof(accuracy), ",\"accuracy\":%s", number(s->accuracy, a));
    if (s->clips)
        snprintf(norm, sizeof(norm), ",\"gradient_norm\":%s", number(s->norm, a));
    if (s->loss_scale > 0)
        snprintf(scale, sizeof(scale), ",\"loss_scale\":%.17g,\"skipped\":%s", s->loss_scale,
                 s->skipped ? "true" : "false");
    snprintf(text, sizeof(text),
             "{\"step\":%lld,\"epoch\":%lld,\"loss\":%s,\"seconds\":%s,"
             "\"samples_per_second\":%s,\"predicted_seconds\":%s,\"lr\":%s%s%s%s}",
             (long long)s->step, (long long)s->epoch, number(s->loss, a),
             number(s->seconds, b), number(s->samples_per_second, c),
             number(s->predicted_seconds, d), number(s->lr, e), accuracy, norm,
             scale);
    write_line(journal, text);
}

void journal_close(struct journal *journal)
{
    if (!journal)
        return;
    if (journal->file && fclose(journal->file) && !journal->failed)
        log_warning("%s: %s; the end of the log may be missing", journal->path, strerror(errno));
    pthread_mutex_destroy(&journal->lock);
    free(journal->path);
    free(journal);
}
