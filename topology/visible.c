/* SPDX-License-Identifier: MIT */
/* Which GPUs this process may use: CUDA_VISIBLE_DEVICES, and what Slurm says it gave.
 *
 * CUDA reads its list from the left and stops at the first entry that names nothing; a GPU that
 * is named twice leaves none. Numbers count the GPUs that the driver shows the process, which
 * inside Slurm's control group are not those of the whole node.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "topology/node_read.h"

/* The i-th GPU of those that the driver shows; all count where no driver was asked. */
static int gpu_at(const struct topo_node *node, long index)
{
    bool any = false;

    for (int i = 0; i < node->n_gpus; i++)
        any |= node->gpus[i].seen;
    for (int i = 0; i < node->n_gpus; i++)
        if ((node->gpus[i].seen || !any) && index-- == 0)
            return i;
    return -1;
}

/* "GPU-5a": as many characters as make it unique. -1: none, -2: several. */
static int gpu_called(const struct topo_node *node, const char *uuid)
{
    int found = -1;

    for (int i = 0; i < node->n_gpus; i++)
        if (strncasecmp(node->gpus[i].uuid, uuid, strlen(uuid)) == 0)
            found = found == -1 ? i : -2;
    return found;
}

/* "MIG-UUID", or the older "MIG-GPU-UUID/1/0"; the partition it is joins those of the node. */
static int gpu_of_mig(struct topo_node *node, const char *uuid)
{
    for (int i = 0; i < node->n_gpus; i++)
        for (int j = 0; j < node->gpus[i].n_migs; j++)
            if (strncasecmp(node->gpus[i].migs[j].uuid, uuid, strlen(uuid)) == 0) {
                *(char **)mem_push((void **)&node->partitions, &node->n_partitions,
                                   sizeof(char *)) = mem_strdup(node->gpus[i].migs[j].uuid);
                return i;
            }
    return -1;
}

static int find(struct topo_node *node, const char *entry)
{
    char *end;
    long index;

    if (strncasecmp(entry, "MIG-", 4) == 0)
        return gpu_of_mig(node, entry);
    if (strncasecmp(entry, "GPU-", 4) == 0)
        return gpu_called(node, entry);
    index = strtol(entry, &end, 10);
    return end == entry || *end || index < 0 || index > 4096 ? -1 : gpu_at(node, index);
}

static bool is_listed(const struct topo_node *node, int gpu)
{
    for (int i = 0; i < node->n_visible; i++)
        if (node->visible[i] == gpu)
            return true;
    return false;
}

/* Several partitions of one GPU are several entries of the list, but one GPU here. */
static bool add(struct topo_node *node, const char *list, const char *entry)
{
    bool mig = strncasecmp(entry, "MIG-", 4) == 0;
    int gpu = find(node, entry);

    if (gpu < 0) {
        if (strcmp(entry, "-1") != 0)
            topo_node_note(node, "CUDA_VISIBLE_DEVICES=%s: %s \"%s\" here: CUDA ignores it and "
                           "all that follows", list,
                           gpu == -2 ? "several GPUs are called" : "there is no GPU", entry);
        return false;
    }
    if (is_listed(node, gpu)) {
        if (mig)
            return true;
        topo_node_note(node, "CUDA_VISIBLE_DEVICES=%s: GPU%d is in it twice: CUDA shows none",
                       list, gpu);
        node->n_visible = 0;
        return false;
    }
    node->visible = mem_resize(node->visible, (size_t)node->n_visible + 1, sizeof(int));
    node->visible[node->n_visible++] = gpu;
    return true;
}

static bool has_numbers(const char *list)
{
    return strpbrk(list, "0123456789") && !strstr(list, "GPU-") && !strstr(list, "MIG-");
}

/* Numbers follow the fastest GPU first unless told otherwise. */
static bool order_is_open(const struct topo_node *node, const char *order)
{
    const char *kind = NULL;

    if (order && strcmp(order, "PCI_BUS_ID") == 0)
        return false;
    for (int i = 0; i < node->n_gpus; i++) {
        const struct topo_gpu *gpu = &node->gpus[i];

        if (gpu->seen && kind && strcmp(gpu->name, kind) != 0)
            return true;
        kind = gpu->seen ? gpu->name : kind;
    }
    return false;
}

static void read_list(struct topo_node *node, const char *list, const char *order)
{
    char *copy = mem_strdup(list), *rest = copy, *entry;

    node->n_visible = 0;
    while ((entry = strsep(&rest, ",")) && add(node, list, entry)) {}
    free(copy);
    topo_node_note(node, "CUDA_VISIBLE_DEVICES=%s: this process sees %d of %d GPUs", list,
                   node->n_visible, node->n_gpus);
    if (has_numbers(list) && order_is_open(node, order))
        topo_node_note(node, "GPUs of several kinds: CUDA numbers the fastest first; with "
                       "CUDA_DEVICE_ORDER=PCI_BUS_ID the numbers are those shown here");
}

/* "0-1,3" or "0,1,3": how many. */
static int count_entries(const char *list)
{
    int n = 0;

    while (isdigit((unsigned char)*list)) {
        char *end;
        long first = strtol(list, &end, 10), last = first;

        if (*end == '-' && isdigit((unsigned char)end[1]))
            last = strtol(end + 1, &end, 10);
        if (last < first || last - first > 4096)
            return -1;
        n += (int)(last - first) + 1;
        list = *end == ',' ? end + 1 : end;
    }
    return *list ? -1 : n;
}

static void explain_slurm(struct topo_node *node, const char *name, const char *list)
{
    int given = count_entries(list), seen = 0;

    for (int i = 0; i < node->n_gpus; i++)
        seen += node->gpus[i].seen;
    if (given < 0)
        topo_node_note(node, "%s=%s: not a list of numbers", name, list);
    else if (seen > 0 && seen == given)
        topo_node_note(node, "%s=%s: Slurm's numbers on the whole node; the control group "
                       "shows this process just these %d, numbered from 0", name, list, given);
    else if (seen > given)
        topo_node_note(node, "%s=%s: Slurm gave %d of the %d GPUs that the driver shows this "
                       "process: devices are not confined (ConstrainDevices)", name, list, given,
                       seen);
    else
        topo_node_note(node, "%s=%s: the driver shows %d of the %d GPUs that Slurm gave", name,
                       list, seen, given);
}

/* --gpus-per-task with a control group for each task: GPUs of one node cannot map each other's
 * memory.
 */
static void read_isolation(struct topo_node *node, const struct topo_input *input)
{
    char *per_task = topo_input_variable(input, "SLURM_GPUS_PER_TASK");
    char *tasks = topo_input_variable(input, "SLURM_NTASKS_PER_NODE");
    int seen = 0;

    for (int i = 0; i < node->n_gpus; i++)
        seen += node->gpus[i].seen;
    if (per_task && seen > 0)
        node->isolated = seen < node->n_gpus && (!tasks || strtol(tasks, NULL, 10) > 1);
    free(per_task);
    free(tasks);
}

static int read_visible(struct topo_node *node, const struct topo_input *input, struct err *err)
{
    static const char *const lists[] = { "SLURM_STEP_GPUS", "SLURM_JOB_GPUS" };
    char *visible = topo_input_variable(input, "CUDA_VISIBLE_DEVICES");
    char *order = topo_input_variable(input, "CUDA_DEVICE_ORDER"), *list = NULL;

    (void)err;
    if (visible && strcmp(visible, "NoDevFiles") == 0)
        topo_node_note(node, "CUDA_VISIBLE_DEVICES=NoDevFiles: Slurm gave this step no GPU");
    if (visible)
        read_list(node, visible, order);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]) && !list; i++) {
        list = topo_input_variable(input, lists[i]);
        if (list)
            explain_slurm(node, lists[i], list);
    }
    read_isolation(node, input);
    free(list);
    free(visible);
    free(order);
    return 0;
}

const struct topo_source topo_source_visible = { "visible", read_visible };
