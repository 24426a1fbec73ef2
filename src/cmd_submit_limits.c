/* SPDX-License-Identifier: MIT */
/* How many nodes and ranks a job asks for, and whether its partition gives them. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/option.h"
#include "cmd_plan.h"
#include "cmd_submit.h"
#include "scheduler/slurm/gres.h"
#include "scheduler/slurm/slurm.h"
#include "topology/cluster.h"
#include "topology/machine.h"
#include "train/step_facts.h"

#define MOST_COMPARED 32    /* sizes, unless a range is given: of more some are planned */

/* Asking ------------------------------------------------------------------------------- */

int submit_ask(struct submit *job, struct err *err)
{
    struct err why = { 0 };
    char *module;
    bool has_module;

    if (job->scheduler != SCHEDULER_SLURM)
        return 0;
    job->facts = slurm_ask_partition(job->partition, &why);
    if (job->facts)
        return 0;
    module = module_find("slurm");
    has_module = module != NULL;
    free(module);
    /* sbatch will know; a script alone is for anywhere. */
    if (job->last >= 0 && (job->dry_run || !has_module)) {
        log_say(job->dry_run ? LOG_INFO : LOG_WARNING, "limits are not checked: %s", why.text);
        return 0;
    }
    return err_set_code(err, why.code, "%s", why.text);
}

/* May it be given to a job some day soon? */
static bool usable(const struct slurm_node *node)
{
    static const char *const bad[] = { "down", "drain", "fail", "maint", "error", "future",
                                       "invalid", "not_responding", "unknown" };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (strstr(node->state, bad[i]) && !strstr(node->state, "powered_down"))
            return false;
    return true;
}

static int64_t usable_nodes(const struct slurm_facts *facts)
{
    int64_t n = 0;

    for (int i = 0; i < facts->n_nodes; i++)
        n += usable(&facts->nodes[i]);
    return n;
}

/* Checking ----------------------------------------------------------------------------- */

static int check_state(const struct slurm_facts *facts, struct err *err)
{
    if (strcmp(facts->state, "up") == 0)
        return 0;
    if (strcmp(facts->state, "down") != 0)
        return err_set(err, "partition %s is in state %s: it takes no jobs", facts->partition,
                       facts->state);
    log_warning("partition %s is down: jobs wait until it is up", facts->partition);
    return 0;
}

static int check_time(const struct submit *job, struct err *err)
{
    const struct slurm_facts *facts = job->facts;
    int64_t most = facts->time_limit;

    if (!job->time || most <= 0 || job->time <= most)
        return 0;
    return err_set(err, "--time %" PRId64 ":%02d: partition %s allows %" PRId64 ":%02d (hours "
                   "and minutes); a run that needs longer goes on in further allocations",
                   job->time / 3600, (int)(job->time / 60 % 60), facts->partition, most / 3600,
                   (int)(most / 60 % 60));
}

static int check_nodes(const struct submit *job, int64_t nodes, struct err *err)
{
    const struct slurm_facts *facts = job->facts;
    int64_t there = usable_nodes(facts);

    if (facts->nodes_most > 0 && nodes > facts->nodes_most)
        return err_set(err, "--nodes %" PRId64 ": partition %s gives a job %" PRId64 " at most",
                       nodes, facts->partition, facts->nodes_most);
    if (nodes > facts->n_nodes)
        return err_set(err, "--nodes %" PRId64 ": partition %s has %d", nodes, facts->partition,
                       facts->n_nodes);
    if (nodes < facts->nodes_least)
        return err_set(err, "--nodes %" PRId64 ": partition %s gives a job %" PRId64
                       " at least", nodes, facts->partition, facts->nodes_least);
    if (nodes > there)
        log_warning("--nodes %" PRId64 ": of partition %s %" PRId64 " can be used now: the job "
                    "waits for more", nodes, facts->partition, there);
    return 0;
}

static int check_range(const struct submit *job, struct err *err)
{
    return check_nodes(job, job->first, err) || check_nodes(job, job->last, err) ? -1 : 0;
}

int submit_check(const struct submit *job, struct err *err)
{
    if (!job->facts)
        return 0;
    if (check_state(job->facts, err) || check_time(job, err))
        return -1;
    if (job->last < 0)          /* set_range() will choose */
        return 0;
    return job->last > 0 ? check_range(job, err) : check_nodes(job, job->nodes, err);
}

/* Nodes -------------------------------------------------------------------------------- */

/* As many as the partition gives one job now. */
static int set_range(struct submit *job, struct err *err)
{
    const struct slurm_facts *facts = job->facts;
    int64_t most;

    if (!facts)
        return err_set_code(err, EXIT_USAGE, "--nodes auto: the limits are Slurm's, which is "
                            "not asked here; --nodes FIRST..LAST needs nobody");
    most = usable_nodes(facts);
    if (facts->nodes_most > 0 && most > facts->nodes_most)
        most = facts->nodes_most;
    job->first = facts->nodes_least > 1 ? facts->nodes_least : 1;
    job->last = most;
    job->most = MOST_COMPARED;
    if (job->last < job->first)
        return err_set(err, "--nodes auto: no node of partition %s can be used now",
                       facts->partition);
    log_info("partition %s gives %" PRId64 " to %" PRId64 " nodes; compared: %s", facts->partition,
             job->first, most, most - job->first < MOST_COMPARED
                 ? "all of these" : "those up to 8, and four of each doubling");
    return 0;
}

static struct sizes *compare(const struct submit *job, struct err *err)
{
    char *path = file_temporary(".conf", job->job_file, err);
    char *range = mem_printf("--nodes=%" PRId64 "..%" PRId64, job->first, job->last);
    char *cluster = job->cluster ? mem_printf("--cluster=%s", job->cluster) : NULL;
    char *words[] = { "plan", path, range, cluster, NULL };
    struct sizes *sizes = path ? plan_sizes(cluster ? 4 : 3, words, job->most, err) : NULL;

    if (path)
        unlink(path);
    free(path);
    free(range);
    free(cluster);
    return sizes;
}

/* On stderr, line by line. */
static void say_reason(const struct sizes *sizes)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return;
    sizes_reason(sizes, out);
    fclose(out);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (*line)
            log_info("%s", line);
    free(text);
}

int submit_choose_nodes(struct submit *job, struct err *err)
{
    struct sizes *sizes;

    if (job->last < 0 && set_range(job, err))
        return -1;
    if (job->last == 0)
        return 0;
    sizes = compare(job, err);
    if (!sizes)
        return -1;
    if (sizes->best < 0) {
        err_set(err, "no size has a plan; %d nodes: %s", sizes->request.first,
                sizes->rows[0].refused);
    } else {
        job->nodes = sizes->rows[sizes->best].nodes;
        say_reason(sizes);
    }
    sizes_free(sizes);
    return job->nodes ? 0 : -1;
}

/* Ranks -------------------------------------------------------------------------------- */

/* What every node has at least that may be given. */
struct share {
    int64_t gpus, sockets, cores, threads;
    bool uncounted;         /* GPUs, or parts of them, that Slurm does not count: ranks find them */
};

static bool in_job(const struct slurm_facts *facts)
{
    return facts && *facts->job;
}

/* A job keeps nodes that are drained, say, after it has started; only dead ones do not count. */
static bool counts(const struct slurm_facts *facts, const struct slurm_node *node)
{
    return in_job(facts) ? strncmp(node->state, "down", 4) != 0 : usable(node);
}

/* Of a job's node those that it was given. */
static int64_t gpus_of(const struct slurm_facts *facts, const struct slurm_node *node)
{
    return slurm_count_gpus(in_job(facts) ? node->given : node->gres);
}

static void take_less(int64_t *value, int64_t other)
{
    *value = *value < 0 || other < *value ? other : *value;
}

static struct share share_of(const struct slurm_facts *facts)
{
    struct share share = { .gpus = -1, .sockets = -1, .cores = -1, .threads = -1 };

    for (int i = 0; facts && i < facts->n_nodes; i++) {
        const struct slurm_node *node = &facts->nodes[i];

        if (!counts(facts, node))
            continue;
        share.uncounted |= in_job(facts) && slurm_has_gpu_parts(node->given);
        take_less(&share.gpus, gpus_of(facts, node));
        take_less(&share.sockets, node->sockets);
        take_less(&share.cores, (int64_t)node->sockets * node->cores);
        take_less(&share.threads, node->threads);
    }
    share.uncounted = in_job(facts) && share.gpus <= 0 && (share.uncounted || gpus_are_named());
    if (share.uncounted)
        share.gpus = -1;
    return share;
}

/* Devices of a node of --cluster, or of the machine that was saved; 0: there is none. */
static int64_t devices_of_cluster(const struct submit *job, struct err *err)
{
    struct err none = { 0 };
    bool counted = job->cluster && machine_counts(job->cluster);
    char *spec = machine_spec(job->cluster, counted ? 0 : 1, job->cluster ? err : &none);
    struct cluster *cluster = spec ? cluster_open(spec, err) : NULL;
    int64_t devices = cluster ? cluster->n_devices / cluster_nodes(cluster) : 0;
    int bad = (spec && !cluster) || (!spec && job->cluster);

    cluster_free(cluster);
    free(spec);
    return bad ? -1 : devices;
}

/* The node that has most, whether or not they are a job's; NULL: none has any. */
static const struct slurm_node *richest(const struct slurm_facts *facts, int *most)
{
    const struct slurm_node *found = NULL;

    *most = 0;
    for (int i = 0; i < facts->n_nodes; i++) {
        const struct slurm_node *node = &facts->nodes[i];
        int n = counts(facts, node) ? slurm_count_gpus(node->gres) : 0;

        if (n <= *most)
            continue;
        *most = n;
        found = node;
    }
    return found;
}

/* Where nothing is said ranks take the GPUs that their job was given; those that nobody asked for
 * would idle without a word.
 */
static int choose_device(struct submit *job, const struct share *share, struct err *err)
{
    const struct slurm_facts *facts = job->facts;
    const struct slurm_node *node;
    int n;

    if (job->on_gpus || !facts || share->uncounted || option_given(job->options, "device") ||
        option_given(job->options, "backend") || gpus_are_hidden())
        return 0;
    job->on_gpus = in_job(facts) && share->gpus > 0;
    node = job->on_gpus ? NULL : richest(facts, &n);
    if (node && in_job(facts))
        return err_set_code(err, EXIT_USAGE, "job %s: node %s has %d GPU%s, and not all nodes of "
                            "the job were given any: ask sbatch or salloc for --gpus-per-node=%d, "
                            "or say --device cpu, where none are meant to be used", facts->job,
                            node->name, n, n == 1 ? "" : "s", n);
    if (node)
        return err_set_code(err, EXIT_USAGE, "partition %s: node %s has %d GPU%s, and --device is "
                            "not given: --device cuda uses GPUs, --device cpu says that none are "
                            "meant to be used", facts->partition, node->name, n, n == 1 ? "" : "s");
    return 0;
}

static int check_gpus(const struct submit *job, const struct share *share, struct err *err)
{
    if (!job->on_gpus || share->gpus < 0 || job->tasks <= share->gpus)
        return 0;
    return err_set(err, "--ntasks-per-node %" PRId64 ": nodes of partition %s have %" PRId64
                   " GPUs, and each rank takes one", job->tasks, job->facts->partition,
                   share->gpus);
}

/* All that a job was given of a node; of a partition one for each rank. */
static int64_t gpus_to_ask_for(const struct submit *job, const struct share *share)
{
    if (!job->on_gpus || share->uncounted)
        return 0;
    return in_job(job->facts) && share->gpus > 0 ? share->gpus : job->tasks;
}

int submit_choose_tasks(struct submit *job, struct err *err)
{
    struct share share = share_of(job->facts);

    if (choose_device(job, &share, err))
        return -1;
    if (job->on_gpus && share.gpus == 0)
        return err_set(err, "--device cuda: nodes of partition %s have no GPUs",
                       job->facts->partition);
    if (!job->tasks)
        job->tasks = share.uncounted ? 1 : job->on_gpus ? share.gpus : share.sockets;
    if (job->tasks <= 0)
        job->tasks = devices_of_cluster(job, err);
    if (job->tasks < 0)
        return -1;
    if (job->tasks == 0) {
        job->tasks = 1;
        log_info("one rank on each node: nothing says what a node has; --ntasks-per-node N");
    }
    if (check_gpus(job, &share, err))
        return -1;
    job->gpus = gpus_to_ask_for(job, &share);
    job->cpus = share.cores > job->tasks ? share.cores / job->tasks : share.cores > 0 ? 1 : 0;
    job->one_thread = share.threads > 1;
    return 0;
}
