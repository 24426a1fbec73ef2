/* SPDX-License-Identifier: MIT */
#include "train/journal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

struct journal {
    char *path;
    FILE *file;
    int failed;     /* errno of the first failure */
};

struct journal *journal_open(const char *path, bool append, struct err *err)
{
    struct journal *journal = mem_new(1, sizeof(*journal));

    if (!path)
        return journal;
    journal->path = mem_strdup(path);
    if (file_check_link(path, err) == 0) {
        journal->file = fopen(path, append ? "ae" : "we");
        if (!journal->file)
            err_set(err, "%s: %s", path, strerror(errno));
    }
    if (!journal->file) {
        journal_close(journal, NULL);
        return NULL;
    }
    return journal;
}

static void note_failure(struct journal *journal)
{
    if (journal->failed)
        return;
    journal->failed = errno ? errno : EIO;
    log_warning("%s: %s; the run goes on without its log", journal->path,
                strerror(journal->failed));
}

static void write_line(struct journal *journal, const char *text)
{
    if (!journal->file || journal->failed)
        return;
    errno = 0;
    if (fprintf(journal->file, "%s\n", text) < 0 || fflush(journal->file))
        note_failure(journal);
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
    char text[512], accuracy[64] = "", norm[64] = "", a[32], b[32], c[32], d[32], e[32];

    if (s->classifies)
        snprintf(accuracy, sizeof(accuracy), ",\"accuracy\":%s", number(s->accuracy, a));
    if (s->clips)
        snprintf(norm, sizeof(norm), ",\"gradient_norm\":%s", number(s->norm, a));
    snprintf(text, sizeof(text),
             "{\"step\":%lld,\"epoch\":%lld,\"loss\":%s,\"seconds\":%s,"
             "\"samples_per_second\":%s,\"predicted_seconds\":%s,\"lr\":%s%s%s}",
             (long long)s->step, (long long)s->epoch, number(s->loss, a),
             number(s->seconds, b), number(s->samples_per_second, c),
             number(s->predicted_seconds, d), number(s->lr, e), accuracy, norm);
    write_line(journal, text);
}

int journal_close(struct journal *journal, struct err *err)
{
    int bad = 0;

    if (!journal)
        return 0;
    if (journal->file && fclose(journal->file) && !journal->failed)
        journal->failed = errno;
    if (journal->failed)
        bad = err_set(err, "%s: %s", journal->path, strerror(journal->failed));
    free(journal->path);
    free(journal);
    return bad;
}
