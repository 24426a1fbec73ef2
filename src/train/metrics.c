/* SPDX-License-Identifier: MIT */
#include "train/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"

/* Of a label: backslash, quote and line feed are escaped, whatever else is no text. */
static void print_value(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '\\' || c == '"')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else
            fputc(c < ' ' ? '?' : c, out);
    }
}

static void print_labels(FILE *out, const struct metrics *m)
{
    fputc('{', out);
    if (m->job) {
        fputs("job=\"", out);
        print_value(out, m->job);
        fputs("\",", out);
    }
    fputs("model=\"", out);
    print_value(out, m->model);
    fputc('"', out);
}

static void print_number(FILE *out, double value)
{
    if (isnan(value))
        fputs("NaN\n", out);
    else if (isinf(value))
        fputs(value > 0 ? "+Inf\n" : "-Inf\n", out);
    else
        fprintf(out, "%.17g\n", value);
}

static void print_head(FILE *out, const char *name, const char *help)
{
    fprintf(out, "# HELP tasuki_%s %s\n# TYPE tasuki_%s gauge\n", name, help, name);
}

static void print_gauge(FILE *out, const struct metrics *m, const char *name, const char *help,
                        double value)
{
    print_head(out, name, help);
    fprintf(out, "tasuki_%s", name);
    print_labels(out, m);
    fputs("} ", out);
    print_number(out, value);
}

static void print_known(FILE *out, const struct metrics *m, const char *name, const char *help,
                        double value)
{
    if (!isnan(value))
        print_gauge(out, m, name, help, value);
}

static void print_rank(FILE *out, const struct metrics *m, const char *name, int rank,
                       double value)
{
    fprintf(out, "tasuki_%s", name);
    print_labels(out, m);
    fprintf(out, ",rank=\"%d\"", rank);
    if (m->ranks[rank].stage >= 0)
        fprintf(out, ",stage=\"%d\"", m->ranks[rank].stage);
    fputs("} ", out);
    print_number(out, value);
}

static void print_ranks(FILE *out, const struct metrics *m)
{
    if (m->n_ranks == 0)
        return;
    print_head(out, "memory_bytes", "Most that was allotted for the network on a rank.");
    for (int r = 0; r < m->n_ranks; r++)
        print_rank(out, m, "memory_bytes", r, m->ranks[r].memory);
    print_head(out, "compute_share", "Share of the time that a rank computed.");
    for (int r = 0; r < m->n_ranks; r++)
        print_rank(out, m, "compute_share", r, m->ranks[r].compute);
}

static void print_all(FILE *out, const struct metrics *m)
{
    print_gauge(out, m, "running", "1 while the run lasts, 0 after its end.", m->running);
    print_gauge(out, m, "step", "Steps done.", (double)m->step);
    print_gauge(out, m, "steps", "Steps in all.", (double)m->steps);
    print_gauge(out, m, "epoch", "Epoch of the last step, from 1.", (double)m->epoch);
    print_gauge(out, m, "loss", "Loss of the last step.", m->loss);
    print_known(out, m, "accuracy", "Share of the labels of the last step that was right.",
                m->accuracy);
    print_known(out, m, "learning_rate", "Learning rate of the last step.", m->lr);
    print_known(out, m, "step_seconds", "Seconds that the last step took.", m->step_seconds);
    print_gauge(out, m, "predicted_seconds", "Seconds of a step as the plan foresees them.",
                m->predicted_seconds);
    print_known(out, m, "samples_per_second", "Samples of the last step in a second.",
                m->samples_per_second);
    print_known(out, m, "test_loss", "Loss of the last evaluation.", m->test_loss);
    print_known(out, m, "test_accuracy", "Accuracy of the last evaluation.", m->test_accuracy);
    if (m->checkpoint_step > 0)
        print_gauge(out, m, "checkpoint_step", "Step of the newest checkpoint.",
                    (double)m->checkpoint_step);
    print_ranks(out, m);
}

char *metrics_text(const struct metrics *metrics)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    print_all(out, metrics);
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

int metrics_write(const struct metrics *metrics, const char *path, struct err *err)
{
    char *text = metrics_text(metrics);
    int bad = text ? file_write(path, text, strlen(text), err)
                   : err_set(err, "%s: no memory", path);

    free(text);
    return bad;
}
