/* SPDX-License-Identifier: MIT */
/* Nodes are asked how they are: one step over all of them, and again each that kept silent, by a
 * step of its own, since one that cannot be reached may end the step of all.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cmd_launch.h"
#include "train/health.h"

#define FIRST_TIME 60       /* seconds for all nodes together: drivers may be slow to start */
#define SILENCE 20          /* seconds after which who is left keeps silent, too */
#define EACH_TIME 30        /* for one alone */
#define AT_ONCE 32
#define TRIES 2             /* a busy controller may fail once */
#define MOST_TIME 180       /* seconds for all of this */

/* Some nodes that are asked by one srun. */
struct question {
    int first, n;           /* of the names that are asked at once */
    pid_t child;            /* 0: it has ended */
    int output;
    char *line;             /* what has come of the next one */
    int length;
};

struct round {
    const struct launcher *l;
    int n;
    char *const *names;
    struct answer *answers;     /* [n] */
    double heard;               /* when the last one came; 0: none has */
};

/* Beside whatever else runs there: a step that was not seen to end must not keep it waiting. */
static pid_t start(const struct round *r, const struct question *q, int output)
{
    const struct launcher *l = r->l;
    struct launcher_words words = { .variable = "TASUKI_HEALTH",
                                    .value = l->checkpoint ? l->checkpoint : "" };
    char *list = launcher_list(q->n, r->names + q->first);

    launcher_add(&words, mem_strdup("srun"));
    launcher_add(&words, mem_strdup("--mpi=none"));
    launcher_add(&words, mem_strdup("--overlap"));
    launcher_add(&words, mem_strdup("--no-kill"));
    launcher_add(&words, mem_strdup("--kill-on-bad-exit=0"));
    launcher_add(&words, mem_printf("--nodes=%d", q->n));
    launcher_add(&words, mem_printf("--ntasks=%d", q->n));
    launcher_add(&words, mem_strdup("--ntasks-per-node=1"));
    launcher_add(&words, mem_printf("--nodelist=%s", list));
    launcher_add_training(&words, l, false);
    free(list);
    return launcher_start(l, &words, output);
}

static bool begin(struct round *r, struct question *q)
{
    int ends[2];

    q->output = -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    q->child = start(r, q, ends[1]);
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    q->output = ends[0];
    if (q->child < 0)
        q->child = 0;
    return q->child > 0;
}

/* A node's answer, or what srun says. */
static void take_line(struct round *r, struct question *q)
{
    struct health health;
    int at = q->first;

    if (!health_read(q->line, &health)) {
        /* What follows are consequences. */
        for (; *q->line && at < q->first + q->n; at++)
            if (!r->answers[at].talk)
                r->answers[at].talk = mem_strdup(q->line);
        return;
    }
    while (at < q->first + q->n && strcmp(r->names[at], health.node) != 0)
        at++;
    if (at == q->first + q->n || r->answers[at].there) {
        health_clear(&health);
        return;
    }
    r->answers[at].there = true;
    r->answers[at].health = health;
    r->heard = clock_now();
}

static void take_output(struct round *r, struct question *q)
{
    char block[4096];
    ssize_t n;

    while (q->output >= 0 && (n = read(q->output, block, sizeof(block))) > 0)
        for (ssize_t i = 0; i < n; i++) {
            bool end = block[i] == '\n';

            *(char *)mem_push((void **)&q->line, &q->length, 1) = end ? '\0' : block[i];
            if (!end)
                continue;
            take_line(r, q);
            free(q->line);
            q->line = NULL;
            q->length = 0;
        }
}

static void finish(struct round *r, struct question *q)
{
    int code;

    if (q->child > 0) {
        kill(q->child, SIGKILL);
        waitpid(q->child, &code, 0);
    }
    take_output(r, q);
    if (q->output >= 0)
        close(q->output);
    free(q->line);
}

/* Until all srun have ended, or time is over. */
static void ask(struct launcher *l, struct round *r, int n, struct question *questions,
                double seconds)
{
    double end = clock_now() + seconds;
    int left = 0, code;

    for (int i = 0; i < n; i++)
        left += begin(r, &questions[i]);
    while (left > 0 && clock_now() < end && !launcher_pause(l, 0.05) &&
           (r->heard <= 0 || clock_now() < r->heard + SILENCE))
        for (int i = 0; i < n; i++) {
            struct question *q = &questions[i];

            take_output(r, q);
            if (q->child > 0 && launcher_ended(q->child, &code)) {
                q->child = 0;
                left--;
            }
        }
    for (int i = 0; i < n; i++)
        finish(r, &questions[i]);
}

static void ask_silent(struct launcher *l, struct round *r, double end)
{
    struct question questions[AT_ONCE];
    int next = 0;

    while (next < r->n && !l->told && clock_now() < end) {
        int n = 0;

        for (; next < r->n && n < AT_ONCE; next++) {
            if (r->answers[next].there)
                continue;
            free(r->answers[next].talk);
            r->answers[next].talk = NULL;
            questions[n++] = (struct question){ .first = next, .n = 1 };
        }
        r->heard = 0;
        if (n)
            ask(l, r, n, questions, EACH_TIME);
    }
}

void launcher_ask(struct launcher *l, int n, char *const *names, struct answer *answers)
{
    struct round r = { .l = l, .n = n, .names = names, .answers = answers };
    struct question all = { .n = n };
    double end = clock_now() + MOST_TIME;

    memset(answers, 0, (size_t)n * sizeof(*answers));
    ask(l, &r, 1, &all, FIRST_TIME);
    for (int i = 0; i < TRIES; i++)
        ask_silent(l, &r, end);
}

void launcher_answers_free(int n, struct answer *answers)
{
    for (int i = 0; i < n; i++) {
        if (answers[i].there)
            health_clear(&answers[i].health);
        free(answers[i].talk);
    }
    free(answers);
}
