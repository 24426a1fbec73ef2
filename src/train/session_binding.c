/* SPDX-License-Identifier: MIT */
/* Is what the ranks were given what the run uses? GPUs that nobody asked for, that would idle,
 * that Slurm gave and the driver does not show, or that some ranks are shown and others are not,
 * end it before it begins; that a rank has fewer cores than were asked for, shares its GPU, or
 * cannot reach those of others, is a warning.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "graph/graph.h"
#include "topology/node.h"
#include "train/gpu_plan.h"
#include "train/session.h"

#define MOST_GPUS 32        /* of a node; what is beyond is not counted */

/* What a rank tells the others. */
struct bound {
    int cpus, asked;            /* that it may run on; of --cpus-per-task, 0: not said */
    int given;                  /* GPUs that Slurm gave the step on its node, and shows it */
    bool shown;                 /* the driver shows some, whatever CUDA does */
    bool sure;                  /* that CUDA shows it no others than those below */
    bool isolated;              /* Slurm hides the GPUs of other tasks from the driver */
    uint64_t seen;              /* what stands for the addresses that the driver shows it */
    bool parts;                 /* of GPUs, by MIG */
    int there;                  /* GPUs on its node that CUDA could use; 0: the user hides them */
    int in_job;                 /* rank 0: those of the node of the job that has most, */
    char job_node[64];          /* by Slurm, and which one that is */
    char said[96];              /* by the driver */
    int n;
    char gpus[MOST_GPUS][16];   /* addresses of those that CUDA would show it */
    int planned[MOST_GPUS];     /* devices that they are of the plan that is given */
};

static void add_gpu(struct bound *bound, const struct topo_gpu *gpu)
{
    if (gpu->seen && bound->n < MOST_GPUS)
        snprintf(bound->gpus[bound->n++], sizeof(bound->gpus[0]), "%.15s", gpu->address);
}

static void add_planned(struct bound *bound, const struct session *s)
{
    struct gpu_plan plan = gpu_plan_new(s->given, s->node);

    for (int i = 0; i < bound->n; i++) {
        struct gpu_names gpu = gpu_names(s->node, bound->gpus[i]);

        bound->planned[i] = gpu_plan_count(&plan, comm_host(s->comm, s->rank), &gpu);
    }
    gpu_plan_clear(&plan);
}

/* "0-1,3": how many; of a list that Slurm made. */
static int count_list(const char *list)
{
    int n = 0;

    while (*list) {
        char *end;
        long first = strtol(list, &end, 10), last = first;

        if (end == list)
            return 0;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        n += last >= first && last - first < 65536 ? (int)(last - first) + 1 : 0;
        list = *end == ',' ? end + 1 : end;
    }
    return n;
}

/* Those that a user has hidden from CUDA are not missed. */
static int given_gpus(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *list = getenv("SLURM_STEP_GPUS");
    const char *count = getenv("SLURM_GPUS_ON_NODE");
    int n = list ? count_list(list) : 0;

    if (!getenv("SLURM_STEP_ID") || gpus_are_hidden() ||
        (visible && strcmp(visible, "NoDevFiles") == 0))
        return 0;
    return n || !count ? n : (int)strtol(count, NULL, 10);
}

static void add_driver(struct bound *bound, const struct topo_node *node)
{
    const struct topo_said *nvml = topo_node_said(node, "nvml");

    for (int i = 0; i < node->n_gpus; i++) {
        if (!node->gpus[i].seen)
            continue;
        bound->shown = true;
        bound->seen = 31 * bound->seen + graph_key(node->gpus[i].address);
    }
    bound->sure = node->n_visible == 0 || (nvml && nvml->state == TOPO_USED);
    bound->isolated = node->isolated == 1;
    bound->parts = node->n_partitions > 0;
    bound->given = given_gpus();
    snprintf(bound->said, sizeof(bound->said), "%s", nvml ? nvml->text : "it was not asked");
}

/* Where devices are confined the driver shows those of the step alone; PCI has all. */
static void add_present(struct bound *bound, const struct topo_node *node,
                        const struct step_facts *step)
{
    if (gpus_are_hidden())
        return;
    for (int i = 0; i < node->n_gpus; i++)
        bound->there += node->gpus[i].seen || topo_node_is_nvidia(node, &node->gpus[i]);
    bound->in_job = step->gpus;
    snprintf(bound->job_node, sizeof(bound->job_node), "%s", step->node);
}

/* 'node': NULL where nobody looked. */
static struct bound own(const struct topo_node *node, const struct step_facts *step)
{
    const char *asked = getenv("SLURM_CPUS_PER_TASK");
    struct bound bound = { .cpus = node ? node->n_usable : 0 };

    if (!node)
        return bound;
    add_driver(&bound, node);
    add_present(&bound, node, step);
    if (asked && getenv("SLURM_STEP_ID"))
        bound.asked = (int)strtol(asked, NULL, 10);
    for (int i = 0; node->n_visible < 0 && i < node->n_gpus; i++)
        add_gpu(&bound, &node->gpus[i]);
    for (int i = 0; i < node->n_visible; i++)
        add_gpu(&bound, &node->gpus[node->visible[i]]);
    return bound;
}

/* The first rank of each rank's host. */
static int *first_ranks(const struct session *s)
{
    int *first = mem_new((size_t)s->size, sizeof(*first));

    for (int r = 0; r < s->size; r++)
        while (!comm_same_host(s->comm, first[r], r))
            first[r]++;
    return first;
}

/* Has a rank before this one, on its host, the same GPU? */
static bool counted(const int *first, const struct bound *all, int rank, const char *gpu)
{
    for (int r = first[rank]; r < rank; r++)
        for (int i = 0; first[r] == first[rank] && i < all[r].n; i++)
            if (strcmp(all[r].gpus[i], gpu) == 0)
                return true;
    return false;
}

/* Of the host whose first rank this is. */
static int count_gpus(const struct session *s, const int *first, const struct bound *all, int host,
                      int *ranks, int *planned)
{
    int gpus = 0;

    *ranks = 0;
    for (int r = host; r < s->size; r++) {
        if (first[r] != host)
            continue;
        ++*ranks;
        for (int i = 0; i < all[r].n; i++) {
            if (counted(first, all, r, all[r].gpus[i]))
                continue;
            gpus++;
            *planned += all[r].planned[i];
        }
    }
    return gpus;
}

/* A plan whose devices are all here says itself which idle. */
static bool says_which(const struct session *s, int planned)
{
    struct gpu_plan plan = gpu_plan_new(s->given, s->node);
    bool all = plan.n > 0 && plan.n == planned;

    gpu_plan_clear(&plan);
    return all;
}

struct tally {
    int hosts, gpus;
    int most;           /* GPUs of a host */
    int idle;           /* GPUs beyond one for each rank of their host; 0 where a plan says which */
    int first;          /* rank on a host with GPUs; -1: there are none */
};

static struct tally count(const struct session *s, const struct bound *all)
{
    struct tally t = { .first = -1 };
    int *first = first_ranks(s), planned = 0;

    for (int r = 0; r < s->size; r++) {
        int ranks, gpus;

        if (first[r] != r)
            continue;
        gpus = count_gpus(s, first, all, r, &ranks, &planned);
        t.hosts++;
        t.gpus += gpus;
        t.most = gpus > t.most ? gpus : t.most;
        t.idle += gpus > ranks ? gpus - ranks : 0;
        t.first = t.first < 0 && gpus ? r : t.first;
    }
    t.idle = says_which(s, planned) ? 0 : t.idle;
    free(first);
    return t;
}

/* Ranks of the host that has most of them. */
static int most_ranks(const struct session *s)
{
    int *first = first_ranks(s), most = 0;

    for (int r = 0; r < s->size; r++) {
        int n = 0;

        for (int q = r; q < s->size; q++)
            n += first[q] == first[r];
        most = n > most ? n : most;
    }
    free(first);
    return most;
}

static int count_hosts(const struct session *s)
{
    int *first = first_ranks(s), n = 0;

    for (int r = 0; r < s->size; r++)
        n += first[r] == r;
    free(first);
    return n;
}

/* As many tasks as there are, and what each node of them is to have; 0: it is left out. */
static char *step_line(const struct session *s, int cpus, int gpus)
{
    char of_cpus[40] = "", of_gpus[56] = "";

    if (cpus > 0)
        snprintf(of_cpus, sizeof(of_cpus), " --cpus-per-task=%d", cpus);
    if (gpus > 0)
        snprintf(of_gpus, sizeof(of_gpus), " --gpus-per-node=%d --gpu-bind=none", gpus);
    return mem_printf("srun --mpi=pmix -N%d --ntasks-per-node=%d%s%s tasuki ...", count_hosts(s),
                      most_ranks(s), of_cpus, of_gpus);
}

char *session_gpu_line(const struct session *session)
{
    int there = session->node ? session->node->n_gpus : 0, each = most_ranks(session);

    if (!getenv("SLURM_STEP_ID") || there == 0)
        return NULL;
    return step_line(session, 0, each < there ? each : there);
}

/* The line that would have been right. */
static char *better_line(const struct session *s, const struct tally *t)
{
    if (getenv("SLURM_STEP_ID"))
        return mem_printf("srun --mpi=pmix -N%d --ntasks-per-node=%d --gpus-per-node=%d tasuki ...",
                          t->hosts, t->most, t->most);
    if (s->size > 1)
        return mem_printf("mpirun -n %d tasuki ...", t->gpus);
    return mem_printf("--ranks-in-process %d, or mpirun -n %d tasuki ...", t->gpus, t->gpus);
}

/* A run on CPUs would look as if all were well. */
static int check_driver(const struct session *s, const struct bound *all, struct err *err)
{
    for (int r = 0; r < s->size; r++)
        if (all[r].given > 0 && !all[r].shown)
            return err_set_code(err, EXIT_USAGE,
                                "rank %d (%s): Slurm gave this step %d GPU%s there, and the driver "
                                "shows none: %s; --device cpu says that none are meant to be used",
                                r, comm_host(s->comm, r), all[r].given,
                                all[r].given == 1 ? "" : "s", all[r].said);
    return 0;
}

/* The same where Slurm gave the step none, or there is no driver. */
static int check_absent(const struct session *s, const struct bound *all, const struct tally *t,
                        struct err *err)
{
    bool by_slurm = all[0].in_job > 0;
    int r = 0, there;

    while (r < s->size - 1 && !by_slurm && !all[r].there)
        r++;
    there = by_slurm ? all[0].in_job : all[r].there;
    if (there == 0)
        return 0;
    err_set_code(err, EXIT_USAGE, "%s has %d GPU%s%s, and no rank is shown any",
                 by_slurm ? all[0].job_node : comm_host(s->comm, r), there, there == 1 ? "" : "s",
                 by_slurm ? " by Slurm" : "");
    if (getenv("SLURM_STEP_ID"))
        return err_hint(err, "use srun --mpi=pmix -N%d --ntasks-per-node=%d --gpus-per-node=%d "
                        "tasuki ..., or --device cpu, where none are meant to be used", t->hosts,
                        there, there);
    return err_hint(err, "%s; --device cpu says that none are meant to be used", all[r].said);
}

/* The GPU that a rank takes (train/gpu.h); NULL: those before it have all that it sees. */
static const char *taken_gpu(const int *first, const struct bound *all, const char **taken,
                             int rank)
{
    for (int i = 0; i < all[rank].n; i++) {
        bool is_free = true;

        for (int r = first[rank]; r < rank && is_free; r++)
            is_free = first[r] != first[rank] || !taken[r] ||
                      strcmp(taken[r], all[rank].gpus[i]) != 0;
        if (is_free)
            return all[rank].gpus[i];
    }
    return NULL;
}

/* Ranks beyond one for each GPU that they see; '*one' is the first of them. */
static int count_sharers(const struct session *s, const struct bound *all, int *one)
{
    const char **taken = mem_new((size_t)s->size, sizeof(*taken));
    int *first = first_ranks(s), n = 0;

    for (int r = 0; r < s->size; r++) {
        taken[r] = taken_gpu(first, all, taken, r);
        if (taken[r] || all[r].n == 0 || all[r].parts)
            continue;
        *one = n ? *one : r;
        n++;
    }
    free(first);
    free(taken);
    return n;
}

static void warn_of_sharers(const struct session *s, const struct bound *all,
                            const struct tally *t)
{
    int one = 0, n = s->rank == 0 ? count_sharers(s, all, &one) : 0, each = most_ranks(s);
    char *line;

    if (n == 0)
        return;
    /* More than the node has cannot be asked for. */
    if (s->node && s->node->n_gpus < each && t->most < each)
        each = t->most;
    line = getenv("SLURM_STEP_ID")
               ? mem_printf("a GPU for each: srun --mpi=pmix -N%d --ntasks-per-node=%d "
                            "--gpus-per-node=%d --gpu-bind=none tasuki ...", t->hosts, each, each)
               : mem_printf("there are %d GPUs", t->gpus);
    log_warning("%d of %d ranks share a GPU with another, rank %d (%s) for one, and take turns; %s",
                n, s->size, one, comm_host(s->comm, one), line);
    free(line);
}

/* Do all have some, or is it for CUDA to say? Where GPUs are not asked for by name, all must. */
static int check_every(const struct session *s, const struct bound *all, const struct tally *t,
                       struct err *err)
{
    bool given = s->settings.device_given;
    int one = -1, n = 0, each = most_ranks(s);
    char *line;

    for (int r = 0; r < s->size; r++) {
        if (all[r].n > 0 || (given && !all[r].sure))
            continue;
        one = n ? one : r;
        n++;
    }
    if (n == 0)
        return 0;
    if (s->node && s->node->n_gpus > 0 && s->node->n_gpus < each)
        each = s->node->n_gpus;
    each = each < t->most ? t->most : each;
    line = getenv("SLURM_STEP_ID") ? step_line(s, 0, each)
                                   : mem_strdup("CUDA_VISIBLE_DEVICES with one for each rank");
    err_set_code(err, EXIT_USAGE, "rank %d (%s) is shown no GPU, %d of %d ranks are; use %s%s", one,
                 comm_host(s->comm, one), s->size - n, s->size, line,
                 given ? "" : ", or --device cpu, where none are meant to be used");
    free(line);
    return -1;
}

/* Tasks of a node that the driver shows other GPUs than their neighbours. */
static int count_isolated(const struct session *s, const struct bound *all, int *one)
{
    int *first = first_ranks(s), n = 0;

    for (int r = 0; r < s->size; r++) {
        bool apart = false;

        for (int q = first[r]; q < s->size && !apart && all[r].shown && !all[r].parts; q++)
            apart = comm_process(s->comm, q) != comm_process(s->comm, r) &&
                    first[q] == first[r] && all[q].shown &&
                    (all[q].seen != all[r].seen || (all[q].isolated && all[r].isolated));
        *one = apart && n == 0 ? r : *one;
        n += apart;
    }
    free(first);
    return n;
}

static void warn_of_isolation(const struct session *s, const struct bound *all,
                              const struct tally *t)
{
    int one = 0, n = s->rank == 0 ? count_isolated(s, all, &one) : 0;
    char *line;

    if (n == 0)
        return;
    line = getenv("SLURM_STEP_ID") ? step_line(s, 0, t->most)
                                   : mem_strdup("a control group for all ranks of a node");
    log_warning("%d of %d ranks, rank %d (%s) for one, are shown their own GPUs only "
                "(--gpus-per-task, --gpu-bind), which cannot reach each other by NVLink or PCIe "
                "then; use %s", n, s->size, one, comm_host(s->comm, one), line);
    free(line);
}

/* Where nothing is said and all ranks are shown GPUs, these are used. */
static int choose_device(struct session *s, const struct bound *all, int first, struct err *err)
{
    if (s->settings.float64)
        return err_set_code(err, EXIT_USAGE,
                            "%d GPU%s of %s, and --device is not given: --device cuda uses GPUs, "
                            "--device cpu says that none are meant to be used", all[first].n,
                            all[first].n == 1 ? "" : "s", comm_host(s->comm, first));
    s->settings.backend = "cuda";
    return 0;
}

/* Does Slurm keep GPUs from all, so that CUDA need not be asked? It says itself why else. */
static bool are_all_sure(const struct session *s, const struct bound *all)
{
    bool sure = getenv("SLURM_STEP_ID") != NULL;

    for (int r = 0; r < s->size; r++)
        sure = sure && all[r].sure;
    return sure;
}

static int check_gpus(struct session *s, const struct bound *all, const struct tally *tally,
                      struct err *err)
{
    struct tally t = *tally;
    bool given = s->settings.device_given, on_gpu = planning_on_gpu(s->settings.backend), apart;
    char *line;

    if (!given && check_driver(s, all, err) < 0)
        return -1;
    if (t.first < 0)
        return !given || (on_gpu && are_all_sure(s, all)) ? check_absent(s, all, &t, err) : 0;
    if (!given && !on_gpu && choose_device(s, all, t.first, err) < 0)
        return -1;
    if (!planning_on_gpu(s->settings.backend))
        return 0;
    if (check_every(s, all, &t, err) < 0)
        return -1;
    warn_of_sharers(s, all, &t);
    warn_of_isolation(s, all, &t);
    if (t.idle == 0)
        return 0;
    line = better_line(s, &t);
    apart = comm_process(s->comm, s->size - 1) + 1 == s->size;
    err_set_code(err, EXIT_USAGE,
                 "%d %s%s, %d GPUs: %d would idle; use %s%s%s (CUDA_VISIBLE_DEVICES says which "
                 "are meant)", s->size, apart ? "task" : "rank", s->size == 1 ? "" : "s", t.gpus,
                 t.idle, line, given ? "" : ", or --device cpu",
                 apart ? ", or --ranks-in-process auto" : "");
    free(line);
    return -1;
}

static void check_cpus(const struct session *s, const struct bound *all, const struct tally *t)
{
    bool on_cpu = s->settings.device_given && !planning_on_gpu(s->settings.backend);
    int first = -1, n = 0;
    char *line;

    for (int r = 0; r < s->size; r++) {
        if (all[r].asked <= all[r].cpus || all[r].cpus == 0)
            continue;
        first = first < 0 ? r : first;
        n++;
    }
    if (n == 0)
        return;
    line = step_line(s, all[first].asked, on_cpu ? 0 : t->most);
    log_warning("%d of %d ranks may run on fewer cores than the job's --cpus-per-task asked for, "
                "rank %d (%s) on %d of %d: srun does not inherit it; use %s", n, s->size, first,
                comm_host(s->comm, first), all[first].cpus, all[first].asked, line);
    free(line);
}

int session_check_binding(struct session *session, struct err *err)
{
    struct session *s = session;
    struct bound mine = own(s->node, &s->settings.step);
    struct bound *all = mem_new((size_t)s->size, sizeof(*all));
    struct tally t = { 0 };
    int bad;

    add_planned(&mine, s);
    bad = comm_collect(s->comm, &mine, sizeof(mine), all, err);
    if (!bad)
        t = count(s, all);
    if (!bad && s->rank == 0) {
        check_cpus(s, all, &t);
        bad = session_check_nodes(s, count_hosts(s), err);
    }
    bad = bad || check_gpus(s, all, &t, err);
    free(all);
    return bad ? -1 : 0;
}
