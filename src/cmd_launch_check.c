/* SPDX-License-Identifier: MIT */
/* Nodes are asked how they are: one step over all of them, and again each that kept silent, by a
 * step of its own, since one that cannot be reached may end the step of all. So many of these steps
 * run at a time, and the time of each counts from its own start: a node for which there was no time
 * has not kept silent.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "cmd_launch.h"
#include "train/health.h"

/* Some nodes that are asked by one srun. */
struct question {
    int first, n;           /* of the names that are asked at once; n 0: none are */
    pid_t child;            /* 0: it has ended */
    int output;
    double end;             /* clock_now() when its time is over */
    char *line;             /* what has come of the next one */
    int length;
    bool over;
};

struct round {
    struct launcher *l;
    const struct launcher_patience *patience;
    int n;
    char *const *names;
    struct answer *answers;     /* [n] */
    double heard;               /* when the last one came; 0: none has */
    int over;                   /* asked alone, so many have answered or had their time */
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
    /* Else those of the whole job, where it was given them by their number (--gpus). */
    if (l->gpus)
        launcher_add(&words, mem_printf("--gpus-per-node=%" PRId64, l->gpus));
    launcher_add_training(&words, l, false);
    free(list);
    return launcher_start(l, &words, output);
}

/* False: errno says why not. */
static bool begin(const struct round *r, struct question *q, double seconds)
{
    int ends[2], why;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return false;
    q->child = start(r, q, ends[1]);
    why = errno;
    close(ends[1]);
    if (q->child < 0) {
        close(ends[0]);
        errno = why;
        return false;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    q->output = ends[0];
    q->end = clock_now() + seconds;
    return true;
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

    while ((n = read(q->output, block, sizeof(block))) > 0)
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

/* Has srun ended, or its time? */
static bool is_over(struct round *r, struct question *q)
{
    int code;

    take_output(r, q);
    if (q->child > 0 && launcher_ended(q->child, &code))
        q->child = 0;
    return q->child == 0 || clock_now() >= q->end;
}

static void finish(struct round *r, struct question *q, double end)
{
    if (q->child > 0)
        launcher_await(q->child, end);
    take_output(r, q);
    close(q->output);
    free(q->line);
    *q = (struct question){ .n = 0 };
}

/* Of some questions finish those that are over, or all: how many. All are killed before the end of
 * one is waited for, and have one time for it, since many may hang at once.
 */
static int finish_some(struct round *r, int n, struct question *some, bool all)
{
    double end;
    int finished = 0;

    for (int i = 0; i < n; i++) {
        some[i].over = some[i].n && (is_over(r, &some[i]) || all);
        if (some[i].over && some[i].child > 0)
            kill(some[i].child, SIGKILL);
    }
    end = clock_now() + LAUNCHER_DYING;
    for (int i = 0; i < n; i++)
        if (some[i].over) {
            finish(r, &some[i], end);
            finished++;
        }
    return finished;
}

static void ask_all(struct round *r)
{
    const struct launcher_patience *p = r->patience;
    struct question q = { .n = r->n };

    if (!begin(r, &q, p->first))
        return;
    while (!is_over(r, &q) && !launcher_pause(r->l, 0.05) &&
           (r->heard <= 0 || clock_now() < r->heard + p->silence))
        continue;
    finish_some(r, 1, &q, true);
}

static bool ask_alone(struct round *r, struct question *q, int node)
{
    struct answer *a = &r->answers[node];
    const char *why;
    bool begun;

    *q = (struct question){ .first = node, .n = 1 };
    begun = begin(r, q, r->patience->each);
    why = begun ? NULL : strerror(errno);
    /* What was said in a try that took place counts more than that another one could not. */
    if (begun || !a->asked) {
        free(a->talk);
        a->talk = why ? mem_strdup(why) : NULL;
    }
    a->asked = a->asked || begun;
    q->n = begun;
    return begun;
}

/* From a node on, the next one that has not answered; r->n: there is none. */
static int next_silent(const struct round *r, int node)
{
    while (node < r->n && r->answers[node].there)
        node++;
    return node;
}

/* Ask in the places that are free, from '*next' on: in how many. */
static int fill(struct round *r, struct question *pool, int busy, int *next)
{
    int begun = 0;

    for (int i = 0; i < r->patience->at_once && *next < r->n; i++) {
        if (pool[i].n)
            continue;
        if (ask_alone(r, &pool[i], *next))
            begun++;
        else if (busy + begun > 0)
            break;      /* what cannot be started now can be when another one has ended */
        *next = next_silent(r, *next + 1);
    }
    return begun;
}

static bool is_own(const struct round *r, int node)
{
    return r->l->home && strcmp(r->names[node], r->l->home) == 0;
}

/* Is the node of this process, if it is one of these, being asked, or yet to be? */
static bool own_is_open(const struct round *r, const struct question *pool, int next)
{
    for (int i = 0; i < r->patience->at_once; i++)
        if (pool[i].n && is_own(r, pool[i].first))
            return true;
    while (next < r->n && !is_own(r, next))
        next++;
    return next < r->n;
}

/* Of as many as are asked at a time nobody has answered, and this process's node neither: that is
 * no fault of nodes.
 */
static bool none_starts(const struct round *r, const struct question *pool, int next)
{
    return r->heard <= 0 && r->over >= r->patience->at_once && next < r->n &&
           !own_is_open(r, pool, next);
}

/* Of as many as are asked at a time, 'pool', those that are over make room for the next ones.
 * False: no step starts.
 */
static bool ask_silent(struct round *r, struct question *pool)
{
    int next = next_silent(r, 0), busy = 0, places = r->patience->at_once;
    bool starts = true;

    r->over = 0;
    do {
        int over = finish_some(r, places, pool, false);

        r->over += over;
        busy -= over;
        starts = !none_starts(r, pool, next);
        if (starts)
            busy += fill(r, pool, busy, &next);
    } while (starts && (busy > 0 || next < r->n) && !launcher_pause(r->l, 0.05));
    finish_some(r, places, pool, true);
    return starts;
}

/* Those that have not answered yet, the first time or another one. */
static bool ask_again(struct round *r, struct question *pool, bool first, struct err *err)
{
    const struct launcher_patience *p = r->patience;

    if (next_silent(r, 0) == r->n || (!first && launcher_pause(r->l, p->pause)))
        return true;
    return !(p->await && p->await(r->l, err)) && ask_silent(r, pool);
}

bool launcher_ask(struct launcher *l, const struct launcher_patience *patience, int n,
                  char *const *names, struct answer *answers, struct err *err)
{
    struct round r = { .l = l, .patience = patience, .n = n, .names = names,
                       .answers = answers };
    struct question *pool = mem_new((size_t)patience->at_once, sizeof(*pool));
    bool starts = true;

    memset(answers, 0, (size_t)n * sizeof(*answers));
    ask_all(&r);
    for (int i = 0; i < patience->tries && !l->told && starts; i++)
        starts = ask_again(&r, pool, i == 0, err);
    for (int i = 0; i < n && !starts; i++)
        answers[i].asked = false;
    free(pool);
    return starts;
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
