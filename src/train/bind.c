/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "train/bind.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "topology/node.h"
#include "topology/shape.h"
#include "topology/shares.h"

/* A number of the environment; -1: not there. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long value = text ? strtol(text, &end, 10) : -1;

    return text && *text && !*end && value >= 0 && value < 1 << 20 ? (int)value : -1;
}

/* The first hardware thread of its core, by which the core is called. */
static int core_of(int pu)
{
    char *path = mem_printf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", pu);
    FILE *file = fopen(path, "re");
    int first = pu;

    if (file && fscanf(file, "%d", &first) != 1)
        first = pu;
    if (file)
        fclose(file);
    free(path);
    return first;
}

static int *cores_of(const struct topo_node *node)
{
    int *cores = mem_new((size_t)node->n_usable + 1, sizeof(*cores));

    for (int i = 0; i < node->n_usable; i++)
        cores[i] = core_of(node->usable[i]);
    return cores;
}

/* "all" is 0; -1: not said. */
static int most_cores(const struct topo_node *node)
{
    const char *text = getenv("TASUKI_BIND");
    int n, threads = node->cores > 0 ? node->pus / node->cores : 1;
    char what[8];

    if (text && strcmp(text, "all") == 0)
        return 0;
    if (!text || sscanf(text, "%6d %7s", &n, what) != 2 || n <= 0)
        return -1;
    return strcmp(what, "cores") == 0 || threads < 1 ? n : (n + threads - 1) / threads;
}

/* A machine that is only described has PUs that this process has not. */
static bool may_run_there(const struct topo_node *node)
{
    cpu_set_t mine;

    if (sched_getaffinity(0, sizeof(mine), &mine))
        return false;
    for (int i = 0; i < node->n_usable; i++)
        if (node->usable[i] >= CPU_SETSIZE || !CPU_ISSET((size_t)node->usable[i], &mine))
            return false;
    return node->n_usable > 0;
}

/* Where nothing keeps jobs apart, those of others may run on the same cores. */
static bool are_ours(const struct shares_request *request)
{
    int given = number_of("SLURM_CPUS_ON_NODE"), cores = shares_cores(request);

    if (given < 0 || cores <= given)
        return true;
    log_debug("not bound: %d cores, of which the job has %d, and Slurm does not say which",
              cores, given);
    return false;
}

static bool bind_to(const struct topo_node *node, const struct share *share)
{
    char *text = set_text(share->n, share->pus);
    cpu_set_t set;
    bool bound;

    CPU_ZERO(&set);
    for (int i = 0; i < share->n; i++)
        CPU_SET((size_t)share->pus[i], &set);
    bound = sched_setaffinity(0, sizeof(set), &set) == 0;
    if (bound)
        log_debug("bound to CPUs %s", text);
    else
        log_warning("%s: cannot be bound to CPUs %s: %s", node->host, text, strerror(errno));
    free(text);
    return bound;
}

/* NULL: not to be bound. */
static struct share *share_out(struct shares_request *request)
{
    int *cores = cores_of(request->node);
    struct share *shares;

    request->cores = cores;
    shares = are_ours(request) ? shares_of(request) : NULL;
    request->cores = NULL;
    free(cores);
    return shares;
}

void bind_rank(struct topo_node *node, int ranks, bool on_gpus, const int *gpus)
{
    int rank = number_of("SLURM_LOCALID"), most = most_cores(node);
    struct shares_request request = { .node = node, .ranks = ranks, .most = most,
                                      .on_gpus = on_gpus, .gpus = gpus };
    struct share *shares;

    if (most < 0 || rank < 0 || rank >= ranks || !may_run_there(node))
        return;
    shares = share_out(&request);
    if (shares && bind_to(node, &shares[rank])) {
        memcpy(node->usable, shares[rank].pus, (size_t)shares[rank].n * sizeof(int));
        node->n_usable = shares[rank].n;
    }
    shares_free(ranks, shares);
}

/* By the user, who may also have turned it off so. */
static bool openmp_binds(void)
{
    static const char *const names[] = { "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                         "KMP_AFFINITY" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]))
            return true;
    return false;
}

void bind_thread(struct shares_request *request, int rank, int threads)
{
    struct share *shares;

    if (openmp_binds() || !may_run_there(request->node))
        return;
    shares = share_out(request);
    if (shares && shares[rank].n >= threads)
        bind_to(request->node, &shares[rank]);
    shares_free(request->ranks, shares);
}
