/* SPDX-License-Identifier: MIT */
/* The nodes of an allocation: which are good, and how many ranks each gets. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "cmd_launch.h"
#include "cmd_submit.h"
#include "scheduler/slurm/gres.h"
#include "scheduler/slurm/slurm.h"
#include "train/planning.h"

#define MOST_TASKS 4096

/* A number above 0 of the environment; 0: not there. */
static int64_t number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long value = text ? strtol(text, &end, 10) : 0;

    return text && *text && !*end && value > 0 && value < INT32_MAX ? value : 0;
}

/* Of so many nodes what the smallest has, and all. */
struct sizes {
    int64_t nodes, least, sum;
};

static void count(struct sizes *sizes, int64_t value, int64_t nodes)
{
    if (sizes->nodes == 0 || value < sizes->least)
        sizes->least = value;
    sizes->nodes += nodes;
    sizes->sum += value * nodes;
}

/* "4(x3),2"; 0: not known. */
static struct sizes count_cpus(void)
{
    const char *text = getenv("SLURM_JOB_CPUS_PER_NODE");
    struct sizes sizes = { 0 };

    while (text && *text) {
        char *end;
        long n = strtol(text, &end, 10), nodes = 1;

        if (end == text || n <= 0)
            return (struct sizes){ 0 };
        if (sscanf(end, "(x%7ld)", &nodes) == 1 && nodes < 1)
            nodes = 1;
        count(&sizes, n, nodes);
        text = strchr(end, ',');
        text = text ? text + 1 : NULL;
    }
    return sizes;
}

static struct sizes count_gpus(const struct slurm_facts *facts)
{
    struct sizes sizes = { 0 };

    for (int i = 0; facts && i < facts->n_nodes; i++)
        count(&sizes, slurm_count_gpus(facts->nodes[i].given), 1);
    return sizes;
}

static bool is_uneven(const struct sizes *sizes)
{
    return sizes->sum > sizes->least * sizes->nodes;
}

/* Each GPU gets a rank. */
static void note_gpus(struct launcher *l, const struct slurm_facts *facts)
{
    const struct sizes gpus = count_gpus(facts);

    for (int i = 0; i < facts->n_nodes && is_uneven(&gpus); i++)
        *(struct launcher_gpus *)mem_push((void **)&l->uneven, &l->n_uneven, sizeof(*l->uneven)) =
            (struct launcher_gpus){ .node = mem_strdup(facts->nodes[i].name),
                                    .n = slurm_count_gpus(facts->nodes[i].given) };
}

static void say_idle_of(const struct launcher *l, const char *what, const struct sizes *sizes)
{
    int64_t idle = sizes->sum - sizes->least * sizes->nodes;

    if (idle > 0)
        log_warning("nodes are of unequal size, and each gets %" PRId64 " rank%s: %" PRId64
                    " of %" PRId64 " %s stay idle", l->tasks, l->tasks == 1 ? "" : "s", idle,
                    sizes->sum, what);
}

/* Nodes with more CPUs get no more ranks than others. These share all CPUs, unless there is a number of
 * them to each.
 */
static void say_idle(const struct launcher *l, const struct slurm_facts *facts,
                     const struct sizes *cpus)
{
    const struct sizes gpus = count_gpus(facts);

    if (!l->bind || strcmp(l->bind, "all") != 0)
        say_idle_of(l, "CPUs", cpus);
    if (l->gpus && !l->n_uneven)
        say_idle_of(l, "GPUs", &gpus);
}

/* A --cpu-bind of the user's is srun's to do; without one ranks bind themselves. What a task of a
 * step had, in whose shell the job was submitted, says of what type it is, too.
 */
static void choose_binding(struct launcher *l)
{
    const char *own = getenv("SLURM_CPU_BIND"), *hint = getenv("SLURM_HINT");
    int64_t cpus = number_of("SLURM_CPUS_PER_TASK");
    bool whole = hint && strcmp(hint, "nomultithread") == 0;

    if (own && *own && !getenv("SLURM_CPU_BIND_TYPE"))
        return;
    unsetenv("SLURM_CPU_BIND");
    l->bind = cpus ? mem_printf("%" PRId64 " %s", cpus, whole ? "cores" : "threads")
                   : mem_strdup("all");
}

/* One task for each node is what salloc says where the user did not; sbatch says what it was told,
 * and who gives tasks CPUs counts them.
 */
static bool may_be_default(const struct slurm_facts *facts)
{
    const char *kind = getenv("ENVIRONMENT");
    bool by_script = facts ? *facts->batch_host != '\0' : kind && strcmp(kind, "BATCH") == 0;

    return !by_script && !number_of("SLURM_CPUS_PER_TASK");
}

/* What the job was told, else what submit would tell it. */
static int choose_tasks(struct launcher *l, struct slurm_facts *facts, struct err *err)
{
    struct submit job = { .options = (struct options *)l->options, .facts = facts,
                          .partition = "", .nodes = l->nodes };
    const struct sizes sizes = count_cpus(), gpus = count_gpus(facts);
    int64_t cpus = sizes.least, all = number_of("SLURM_NTASKS");
    const char *kernels;
    bool given, is_default;

    if (planning_kernels(l->options, &kernels, err) < 0 ||
        option_int(l->options, "ntasks-per-node", 1, MOST_TASKS, 0, &job.tasks, err) < 0)
        return -1;
    job.on_gpus = planning_on_gpu(kernels);
    if (!job.tasks)
        job.tasks = number_of("SLURM_NTASKS_PER_NODE");
    is_default = !job.tasks && all == l->nodes && may_be_default(facts);
    if (!job.tasks && all % l->nodes == 0 && !(is_uneven(&gpus) && all == gpus.sum))
        job.tasks = all / l->nodes;
    given = job.tasks > 0 && !is_default;
    if (submit_choose_tasks(&job, err))
        return -1;
    if (is_default && job.gpus > 0)
        job.tasks = job.gpus;
    l->tasks = !given && cpus > 0 && job.tasks > cpus ? cpus : job.tasks;
    l->gpus = job.gpus;         /* all: that some would idle ranks say */
    l->cpus = number_of("SLURM_CPUS_PER_TASK");
    if (!l->cpus && cpus)
        l->cpus = cpus > l->tasks ? cpus / l->tasks : 1;
    choose_binding(l);
    if (!given && facts && l->gpus > 0 && l->tasks == l->gpus)
        note_gpus(l, facts);
    say_idle(l, facts, &sizes);
    return 0;
}

static void forget_names(struct launcher *l)
{
    for (int i = 0; i < l->n_names; i++)
        free(l->names[i]);
    free(l->names);
    l->names = NULL;
    l->n_names = 0;
}

static bool is_down(const struct slurm_node *node)
{
    return strncmp(node->state, "down", 4) == 0;
}

/* Those that Slurm does not take for dead. */
static void take_names(struct launcher *l, const struct slurm_facts *facts)
{
    forget_names(l);
    for (int i = 0; i < facts->n_nodes; i++) {
        const struct slurm_node *node = &facts->nodes[i];

        if (!is_down(node))
            *(char **)mem_push((void **)&l->names, &l->n_names, sizeof(char *)) =
                mem_strdup(node->name);
        else
            log_warning("node %s is left out: Slurm says %s%s%s", node->name, node->state,
                        *node->reason ? ", " : "", node->reason);
    }
}

int launcher_first_look(struct launcher *l, struct err *err)
{
    struct err why = { 0 };
    struct slurm_facts *facts = launcher_ask_job(l, &why);
    int bad;

    if (!facts && slurm_is_away(&why)) {
        *err = why;
        return -1;
    }
    if (facts && launcher_is_ours(l, facts, err)) {
        slurm_facts_free(facts);
        return -1;
    }
    l->nodes = number_of("SLURM_JOB_NUM_NODES");
    if (facts && facts->n_nodes > 0)
        l->nodes = facts->n_nodes;
    if (facts) {
        take_names(l, facts);
        launcher_note_time(l, facts);
    } else {
        log_warning("nodes are not checked: %s", why.text);
    }
    /* As soon as can be: of a node that is lost before there is one nobody would know. */
    launcher_guard(l);
    if (l->nodes <= 0 || (facts && l->n_names == 0))
        bad = err_set(err, "job %s: it has no node that can be used", l->job);
    else
        bad = choose_tasks(l, facts, err) || (facts && launcher_check(l, facts, err)) ? -1 : 0;
    slurm_facts_free(facts);
    return bad;
}

int launcher_look_again(struct launcher *l, struct err *err)
{
    struct slurm_facts *facts;
    int bad;

    /* Nobody could say so at the start, either. */
    if (l->n_names == 0)
        return 0;
    facts = launcher_ask_job(l, err);
    l->replaced = !facts;
    if (!facts && slurm_no_job(err))
        /* As where its controller was killed before it had written down the job. */
        err_set(err, "job %s is over: Slurm knows of it no more; a new one goes on from the "
                "checkpoints with --resume", l->job);
    if (!facts)
        return -1;
    take_names(l, facts);
    launcher_note_time(l, facts);
    bad = launcher_is_ours(l, facts, err) || launcher_check(l, facts, err) ? -1 : 0;
    slurm_facts_free(facts);
    return bad;
}
