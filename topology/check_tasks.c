/* SPDX-License-Identifier: MIT */
#include "topology/check_tasks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/findings.h"
#include "topology/node.h"
#include "topology/record.h"
#include "topology/shape.h"
#include "topology/task.h"

struct crew {               /* the tasks of a host */
    int n;
    const struct topo_task **tasks;
};

struct task_check {
    bool some_gpu;          /* some task of some host may use a GPU */
    int n_hosts;
    struct crew *crews;     /* NULL: there are only nodes */
};

struct numa {
    const struct topo_numa *of;
    int n, *cpus;
};

/* One host while it is looked at. */
struct scene {
    const struct topo_node *node;
    const struct crew *crew;
    struct numa *numas;
    struct findings *findings;
};

struct task_check *task_check_new(const struct topo_record *record,
                                  const struct topo_tasks *tasks)
{
    struct task_check *check = mem_new(1, sizeof(*check));

    if (!tasks)
        return check;
    check->n_hosts = topo_record_hosts(record);
    check->crews = mem_new((size_t)check->n_hosts, sizeof(*check->crews));
    for (int i = 0; i < tasks->n; i++) {
        const struct topo_task *task = &tasks->list[i];
        int host = topo_record_find(record, task->host);
        struct crew *crew = host >= 0 ? &check->crews[host] : NULL;

        check->some_gpu |= task->n_visible != 0;
        if (crew)
            *(const struct topo_task **)mem_push((void **)&crew->tasks, &crew->n,
                                                 sizeof(task)) = task;
    }
    return check;
}

void task_check_free(struct task_check *check)
{
    for (int i = 0; i < check->n_hosts; i++)
        free(check->crews[i].tasks);
    free(check->crews);
    free(check);
}

/* The first number that two ascending sets share; -1: none. */
static int common(int n, const int *a, int m, const int *b)
{
    for (int i = 0, j = 0; i < n && j < m;) {
        if (a[i] == b[j])
            return a[i];
        if (a[i] < b[j])
            i++;
        else
            j++;
    }
    return -1;
}

static bool same_cpus(const struct topo_task *a, const struct topo_task *b)
{
    if (a->n_usable != b->n_usable)
        return false;
    for (int i = 0; i < a->n_usable; i++)
        if (a->usable[i] != b->usable[i])
            return false;
    return true;
}

static bool is_near(const struct topo_task *task, const struct numa *numa)
{
    return common(task->n_usable, task->usable, numa->n, numa->cpus) >= 0;
}

/* How many packages the task may run on; 0: not known. */
static int packages_of(const struct scene *s, const struct topo_task *task)
{
    int count = 0;

    for (int i = 0; i < s->node->n_numas; i++) {
        int package = s->numas[i].of->package;
        bool known = package < 0 || !is_near(task, &s->numas[i]);

        for (int j = 0; j < i && !known; j++)
            known = s->numas[j].of->package == package && is_near(task, &s->numas[j]);
        count += !known;
    }
    return count;
}

/* "0-3" of the tasks that are marked; "" of a process by itself. */
static char *ranks_of(const struct scene *s, const bool *marked)
{
    int n = 0, *ranks = mem_new((size_t)s->crew->n, sizeof(int));
    char *text;

    for (int i = 0; i < s->crew->n; i++)
        if (marked[i] && s->crew->tasks[i]->rank >= 0)
            ranks[n++] = s->crew->tasks[i]->rank;
    text = set_text(n, ranks);
    free(ranks);
    return text;
}

/* Takes over 'evidence'. */
static void find(const struct scene *s, const bool *marked, const char *what, char *evidence,
                 const char *advice)
{
    char *ranks = ranks_of(s, marked);

    findings_add(s->findings, s->node->host, ranks, advice, evidence, "%s", what);
    free(ranks);
}

/* Tasks that may run across sockets although one would do: those with the same CPUs at once. */
static void check_sockets(const struct scene *s)
{
    static const char advice[] = "bind tasks within a socket: --cpu-bind=sockets, "
                                 "--distribution=*:block:block";
    const struct topo_node *node = s->node;
    bool *told = mem_new((size_t)s->crew->n, sizeof(bool));

    for (int i = 0; i < s->crew->n; i++) {
        const struct topo_task *task = s->crew->tasks[i];
        int packages = packages_of(s, task);
        bool *marked;
        char *text;

        if (told[i] || packages < 2 || node->packages < 2 ||
            (s->crew->n < node->packages && task->n_usable > node->pus / node->packages))
            continue;
        marked = mem_new((size_t)s->crew->n, sizeof(bool));
        for (int j = i; j < s->crew->n; j++)
            marked[j] = same_cpus(task, s->crew->tasks[j]);
        for (int j = i; j < s->crew->n; j++)
            told[j] |= marked[j];
        text = set_text(task->n_usable, task->usable);
        find(s, marked, task->n_usable < node->pus ? "bound across sockets"
                                                   : "not bound to a socket",
             mem_printf("may run on CPUs %s, of %d packages", text, packages), advice);
        free(text);
        free(marked);
    }
    free(told);
}

/* Those with exactly the same CPUs share them; more than there are CPUs have to wait. */
static void check_crowds(const struct scene *s)
{
    for (int i = 0; i < s->crew->n; i++) {
        const struct topo_task *task = s->crew->tasks[i];
        bool *marked = mem_new((size_t)s->crew->n, sizeof(bool)), seen = false;
        int n = 0;

        for (int j = 0; j < s->crew->n; j++) {
            marked[j] = same_cpus(task, s->crew->tasks[j]);
            seen |= marked[j] && j < i;
            n += marked[j];
        }
        if (!seen && task->n_usable > 0 && n > task->n_usable) {
            char *text = set_text(task->n_usable, task->usable);

            find(s, marked, "more tasks than CPUs",
                 mem_printf("all %d may run on CPUs %s only, of %d on the node", n, text,
                            s->node->pus),
                 "give each its own: --cpus-per-task=N --cpu-bind=cores (mpirun: --map-by "
                 "ppr:N:node --bind-to core)");
            free(text);
        }
        free(marked);
    }
}

/* CPUs that some tasks share, and others do not: a mask that was written by hand, mostly. */
static void check_overlaps(const struct scene *s)
{
    bool *marked = mem_new((size_t)s->crew->n, sizeof(bool));
    int first = -1, second = -1, cpu = -1;

    for (int i = 0; i < s->crew->n; i++)
        for (int j = i + 1; j < s->crew->n; j++) {
            const struct topo_task *a = s->crew->tasks[i], *b = s->crew->tasks[j];
            int shared = same_cpus(a, b) ? -1
                                         : common(a->n_usable, a->usable, b->n_usable,
                                                  b->usable);

            if (shared < 0)
                continue;
            marked[i] = marked[j] = true;
            if (first < 0) {
                first = i;
                second = j;
                cpu = shared;
            }
        }
    if (first >= 0)
        find(s, marked, "CPUs overlap",
             mem_printf("ranks %d and %d may both run on CPU %d, but not on the same CPUs",
                        s->crew->tasks[first]->rank, s->crew->tasks[second]->rank, cpu),
             "let Slurm bind (--cpu-bind=cores), or correct the masks (mask_cpu)");
    free(marked);
}

static bool may_use(const struct scene *s, const struct topo_task *task, int gpu)
{
    if (gpu >= s->node->n_gpus)
        return false;
    for (int i = 0; i < task->n_visible; i++)
        if (task->visible[i] == gpu)
            return true;
    return task->n_visible < 0;
}

static void check_no_gpu(const struct scene *s, bool some_gpu)
{
    bool *marked = mem_new((size_t)s->crew->n, sizeof(bool)), any = false;

    for (int i = 0; i < s->crew->n && some_gpu && s->node->n_gpus > 0; i++) {
        marked[i] = s->crew->tasks[i]->n_visible == 0;
        any |= marked[i];
    }
    if (any)
        find(s, marked, "no GPU", mem_printf("CUDA shows none of the node's %d; other tasks "
                                             "have some", s->node->n_gpus),
             "ask for as many GPUs as tasks, for all of the node: --gpus-per-node=N "
             "--gpu-bind=none");
    free(marked);
}

/* GPUs that no task may use. */
static char *idle_gpus(const struct scene *s)
{
    int n = 0, *idle = mem_new((size_t)s->node->n_gpus, sizeof(int));
    char *text;

    for (int g = 0; g < s->node->n_gpus; g++) {
        bool used = false;

        for (int i = 0; i < s->crew->n; i++)
            used |= may_use(s, s->crew->tasks[i], g);
        if (!used)
            idle[n++] = g;
    }
    text = set_text(n, idle);
    free(idle);
    return text;
}

/* Tasks that have one and the same GPU, while the node has enough for all. */
static void check_shared(const struct scene *s)
{
    for (int g = 0; g < s->node->n_gpus && s->crew->n <= s->node->n_gpus; g++) {
        bool *marked = mem_new((size_t)s->crew->n, sizeof(bool));
        char *idle;
        int n = 0;

        for (int i = 0; i < s->crew->n; i++) {
            marked[i] = s->crew->tasks[i]->n_visible == 1 && may_use(s, s->crew->tasks[i], g);
            n += marked[i];
        }
        if (n > 1 && s->node->gpus[g].mig != 1) {
            idle = idle_gpus(s);
            find(s, marked, "tasks share a GPU",
                 *idle ? mem_printf("each has GPU%d only; no task has GPU %s", g, idle)
                       : mem_printf("each has GPU%d only", g),
                 "show each all of the node, of which it takes its own: --gpus-per-node=N "
                 "--gpu-bind=none (--gpus-per-task hides them from each other)");
            free(idle);
        }
        free(marked);
    }
}

/* The only partition of a GPU that the task may use. */
static const char *only_partition(const struct topo_task *task)
{
    return task->n_visible == 1 && task->n_partitions == 1 ? task->partitions[0] : NULL;
}

/* What CUDA gives to one process each: GPUs, or parts of them. */
static int count_devices(const struct topo_node *node)
{
    int n = 0;

    for (int g = 0; g < node->n_gpus; g++)
        n += node->gpus[g].mig == 1 ? node->gpus[g].n_migs : 1;
    return n;
}

/* The same of what MIG makes of a GPU. */
static void check_partitions(const struct scene *s)
{
    for (int i = 0; i < s->crew->n && s->crew->n <= count_devices(s->node); i++) {
        const char *own = only_partition(s->crew->tasks[i]);
        bool *marked = mem_new((size_t)s->crew->n, sizeof(bool)), seen = false;
        int n = 0;

        for (int j = 0; own && j < s->crew->n; j++) {
            const char *other = only_partition(s->crew->tasks[j]);

            marked[j] = other && strcmp(own, other) == 0;
            seen |= marked[j] && j < i;
            n += marked[j];
        }
        if (n > 1 && !seen)
            find(s, marked, "tasks share a partition of a GPU",
                 mem_printf("each has %s of GPU%d only, of %d partitions and GPUs", own,
                            s->crew->tasks[i]->visible[0], count_devices(s->node)),
                 "give each its own by another CUDA_VISIBLE_DEVICES for each SLURM_LOCALID");
        free(marked);
    }
}

static const struct numa *numa_of(const struct scene *s, int id)
{
    for (int i = 0; i < s->node->n_numas; i++)
        if (s->numas[i].of->id == id && s->numas[i].n > 0)
            return &s->numas[i];
    return NULL;
}

/* A GPU of the task where it may run on CPUs that are not near; -1: one is near, or unknown. */
static int far_gpu(const struct scene *s, const struct topo_task *task)
{
    int far = -1;

    for (int i = 0; i < task->n_visible; i++) {
        int gpu = task->visible[i];
        const struct numa *numa = gpu < s->node->n_gpus
                                      ? numa_of(s, s->node->gpus[gpu].numa) : NULL;

        if (!numa || is_near(task, numa))
            return -1;
        far = gpu;
    }
    return task->n_usable > 0 ? far : -1;
}

static void check_far(const struct scene *s)
{
    bool *marked = mem_new((size_t)s->crew->n, sizeof(bool));
    int first = -1;

    for (int i = 0; i < s->crew->n; i++) {
        marked[i] = far_gpu(s, s->crew->tasks[i]) >= 0;
        first = first < 0 && marked[i] ? i : first;
    }
    if (first >= 0) {
        const struct topo_task *task = s->crew->tasks[first];
        int gpu = far_gpu(s, task);
        char *cpus = set_text(task->n_usable, task->usable);

        find(s, marked, "CPUs are far from the GPU",
             mem_printf("runs on CPUs %s, but GPU%d is near NUMA node %d, CPUs %s", cpus, gpu,
                        s->node->gpus[gpu].numa,
                        numa_of(s, s->node->gpus[gpu].numa)->of->cpus),
             "--gpu-bind=closest, or --accel-bind=g, with --cpus-per-task of at most a NUMA "
             "node");
        free(cpus);
    }
    free(marked);
}

/* Does the driver show a task GPUs that it hides from another? */
static bool are_apart(const struct topo_task *a, const struct topo_task *b)
{
    return a->n_shown > 0 && b->n_shown > 0 &&
           (a->n_shown != b->n_shown ||
            memcmp(a->shown, b->shown, (size_t)a->n_shown * sizeof(int)) != 0);
}

static void check_isolation(const struct scene *s)
{
    bool *marked = mem_new((size_t)s->crew->n, sizeof(bool)), any = false;
    bool alone = s->crew->n == 1 && s->crew->tasks[0]->rank >= 0;

    for (int i = 0; i < s->crew->n && !alone; i++) {
        marked[i] = s->crew->tasks[i]->isolated == 1;
        for (int j = 0; j < s->crew->n; j++)
            marked[i] |= are_apart(s->crew->tasks[i], s->crew->tasks[j]);
        any |= marked[i];
    }
    if (any)
        find(s, marked, "GPUs are isolated",
             mem_strdup("the driver shows each task its own GPUs only (--gpus-per-task, "
                        "--gpu-bind), so that GPUs of the node cannot reach each other by "
                        "NVLink or PCIe"),
             "give GPUs by node and let each task choose its own: srun --mpi=pmix "
             "--ntasks-per-node=N --gpus-per-node=N --gpu-bind=none tasuki ...");
    free(marked);
}

static void look(const struct scene *s, bool some_gpu)
{
    /* Where there are more tasks than CPUs, no binding gives each its own. */
    if (s->crew->n <= s->node->pus) {
        check_sockets(s);
        check_crowds(s);
        check_overlaps(s);
        check_far(s);
    }
    check_no_gpu(s, some_gpu);
    check_shared(s);
    check_partitions(s);
    check_isolation(s);
}

void task_check_host(const struct task_check *check, int host, const struct topo_node *node,
                     struct findings *findings)
{
    struct topo_tasks *own = check->crews ? NULL : topo_tasks_new();
    const struct topo_task *process;
    struct crew alone = { 1, &process };
    struct scene s = { .node = node, .findings = findings,
                       .crew = own ? &alone : &check->crews[host] };

    if (own) {
        topo_tasks_add_node(own, node);
        process = own->list;
    }
    s.numas = mem_new((size_t)node->n_numas, sizeof(*s.numas));
    for (int i = 0; i < node->n_numas; i++) {
        s.numas[i].of = &node->numas[i];
        if (set_parse(node->numas[i].cpus, 65535, &s.numas[i].n, &s.numas[i].cpus))
            s.numas[i].n = 0;
    }
    look(&s, check->some_gpu);
    for (int i = 0; i < node->n_numas; i++)
        free(s.numas[i].cpus);
    free(s.numas);
    topo_tasks_free(own);
}
