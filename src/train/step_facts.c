/* SPDX-License-Identifier: MIT */
#include "train/step_facts.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/module.h"
#include "scheduler/slurm/gres.h"
#include "scheduler/slurm/slurm.h"

#define PATIENCE 10000      /* milliseconds, in which other ranks wait, too */
#define MOST_NAME 64        /* of a job */

static void take_gpus(struct step_facts *known, const struct slurm_facts *facts)
{
    for (int i = 0; i < facts->n_nodes; i++) {
        int n = slurm_count_gpus(facts->nodes[i].gres);

        if (n <= known->gpus)
            continue;
        known->gpus = n;
        snprintf(known->node, sizeof(known->node), "%s", facts->nodes[i].name);
    }
}

/* Where nothing is left Slurm lets the job run on (OverTimeLimit), for how long it does not say. */
static void take_limit(struct step_facts *known, const struct slurm_facts *facts)
{
    if (facts->time_limit <= 0 || facts->time_left <= 0)
        return;
    known->end = (double)time(NULL) + (double)facts->time_left;
    known->limit = (double)facts->time_limit;
}

/* The end of the job as Slurm has it now; 0: it has none, NAN: not known. */
static double end_now(const char *job)
{
    struct err ignored = { 0 };
    struct slurm_facts *facts = slurm_ask_job(job, &ignored);
    double end = NAN;

    if (facts && strcmp(facts->state, "running") == 0 && facts->time_limit != -1)
        end = facts->time_limit > 0 ? (double)time(NULL) + (double)facts->time_left : 0;
    slurm_facts_free(facts);
    return end;
}

static enum other_job fate_of(const char *job)
{
    struct err err = { 0 };
    struct slurm_facts *facts = slurm_ask_job(job, &err);
    enum other_job fate = facts && facts->over == 1 ? OTHER_JOB_OVER : OTHER_JOB_LIVES;

    if (!facts && slurm_no_job(&err))
        fate = OTHER_JOB_UNKNOWN;
    slurm_facts_free(facts);
    return fate;
}

static ssize_t answer(const char *own_job, const char *question, int fd)
{
    double end;
    char fate;

    if (*question) {
        fate = (char)fate_of(question);
        return send(fd, &fate, sizeof(fate), MSG_NOSIGNAL);
    }
    end = end_now(own_job);
    return send(fd, &end, sizeof(end), MSG_NOSIGNAL);
}

/* In a process of its own, until the run ends. Signals to the step are not meant for it. A question
 * is another job, or "" for the own one's end.
 */
static void answer_questions(const char *job, int fd)
{
    char question[MOST_NAME];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    while (recv(fd, question, sizeof(question), 0) > 0) {
        question[sizeof(question) - 1] = '\0';
        if (answer(job, question, fd) < 0)
            break;
    }
    _exit(0);
}

static bool has_module(void)
{
    char *module = module_find("slurm");
    bool found = module != NULL;

    free(module);
    return found;
}

/* Later, threads forbid to fork. Returns a socket to it, 0: there is none. */
static int start_asking(const char *job)
{
    int ends[2];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return 0;
    child = fork();
    if (child == 0) {
        close(ends[0]);
        answer_questions(job, ends[1]);
    }
    close(ends[1]);
    if (child > 0)
        return ends[0];
    close(ends[0]);
    return 0;
}

struct step_facts step_facts_ask(bool ends_with_checkpoint)
{
    const char *job = getenv("SLURM_JOB_ID"), *rank = getenv("SLURM_PROCID");
    struct step_facts known = { 0 };
    struct err ignored = { 0 };
    struct slurm_facts *facts;

    if (!job || !rank || strcmp(rank, "0") != 0)
        return known;
    facts = getenv("TASUKI_JOB_NOTICE") ? NULL : slurm_ask_job(job, &ignored);
    if (facts) {
        take_limit(&known, facts);
        take_gpus(&known, facts);
    }
    slurm_facts_free(facts);
    if (ends_with_checkpoint && has_module())
        known.asker = start_asking(job);
    return known;
}

/* Has it come? One of another size is to an earlier question, and came too late for that. */
static bool ask(int asker, const char *question, void *to, size_t size)
{
    struct pollfd wait = { .fd = asker, .events = POLLIN };
    size_t length = strlen(question) + 1;
    char text[MOST_NAME];
    ssize_t n;

    if (asker <= 0 || send(asker, question, length, MSG_NOSIGNAL) != (ssize_t)length)
        return false;
    for (;;) {
        int ready = poll(&wait, 1, PATIENCE);

        if (ready < 0 && errno == EINTR)
            continue;
        if (ready != 1 || (n = recv(asker, text, sizeof(text), 0)) <= 0)
            return false;
        if ((size_t)n == size) {
            memcpy(to, text, size);
            return true;
        }
    }
}

void step_facts_ask_again(int asker, double *end)
{
    double now;

    if (ask(asker, "", &now, sizeof(now)) && !isnan(now))
        *end = now;
}

enum other_job step_facts_other_job(int asker, const char *job)
{
    char fate;

    if (!*job || !ask(asker, job, &fate, sizeof(fate)))
        return OTHER_JOB_LIVES;
    return (enum other_job)fate;
}

bool gpus_are_hidden(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    return visible && (!*visible || strcmp(visible, "-1") == 0);
}

bool gpus_are_named(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    return visible && strcmp(visible, "NoDevFiles") != 0 && !gpus_are_hidden();
}
