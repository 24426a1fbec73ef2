/* SPDX-License-Identifier: MIT */
#include "train/gpu_plan.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "scheduler/plan.h"
#include "topology/node.h"

static void add(struct gpu_plan *plan, const char *device)
{
    for (int i = 0; i < plan->n; i++)
        if (strcmp(plan->devices[i], device) == 0)
            return;
    *(const char **)mem_push((void **)&plan->devices, &plan->n, sizeof(char *)) = device;
}

struct gpu_plan gpu_plan_new(const struct plan *plan, const struct topo_node *node)
{
    struct gpu_plan own = { .node = node };

    for (int s = 0; plan && s < plan->n_stages; s++)
        for (int i = 0; plan_first(plan, s) && i < plan->pipelines * plan->stages[s].replicas; i++)
            add(&own, plan->stages[s].devices[i]);
    return own;
}

void gpu_plan_clear(struct gpu_plan *plan)
{
    free(plan->devices);
}

struct gpu_names gpu_names(const struct topo_node *node, const char *address)
{
    struct gpu_names names = { .index = node ? topo_node_find_gpu(node, address) : -1 };
    const char *uuid = names.index < 0 ? "" : node->gpus[names.index].uuid;

    snprintf(names.address, sizeof(names.address), "%s", address);
    snprintf(names.uuid, sizeof(names.uuid), "%s", uuid[0] ? uuid : "-");
    return names;
}

/* "NAME", or "NAME.1". */
static bool is_called(const char *text, const char *name)
{
    size_t n = strlen(name);

    if (strncasecmp(text, name, n) != 0)
        return false;
    text += n;
    return !*text || (*text == '.' && text[1] && !text[1 + strspn(text + 1, "0123456789")]);
}

static bool is(const char *device, const char *host, const struct gpu_names *gpu)
{
    size_t n = strlen(host);
    char numbered[32];

    if (strncmp(device, host, n) != 0 || device[n] != '/')
        return false;
    device += n + 1;
    snprintf(numbered, sizeof(numbered), "gpu%d", gpu->index);
    return is_called(device, gpu->address) || (gpu->index >= 0 && is_called(device, numbered)) ||
           (gpu->uuid[0] != '-' && is_called(device, gpu->uuid));
}

const char *gpu_plan_device(const struct gpu_plan *plan, const char *host,
                            const struct gpu_names *gpu, int i)
{
    for (int d = 0; d < plan->n; d++)
        if (is(plan->devices[d], host, gpu) && i-- == 0)
            return plan->devices[d];
    return NULL;
}

int gpu_plan_count(const struct gpu_plan *plan, const char *host, const struct gpu_names *gpu)
{
    int n = 0;

    while (gpu_plan_device(plan, host, gpu, n))
        n++;
    return n;
}

/* For how many ranks it names each of these GPUs; returns the sum. */
static int count_all(const struct gpu_plan *plan, const char *host, int n, const int *shown,
                     int *counts)
{
    int sum = 0;

    for (int i = 0; i < n; i++) {
        struct gpu_names gpu = gpu_names(plan->node, plan->node->gpus[shown[i]].address);

        counts[i] = gpu_plan_count(plan, host, &gpu);
        sum += counts[i];
    }
    return sum;
}

/* As gpu_choose(): those that it names, each to as many tasks; then those that nobody has; then all in
 * turn. 'counts' is used up.
 */
static void deal(int n, const int *shown, int *counts, int tasks, int *gpus)
{
    bool *taken = mem_new((size_t)n, sizeof(*taken));
    int task = 0;

    for (int i = 0; i < n; i++)
        for (; counts[i] > 0 && task < tasks; counts[i]--) {
            taken[i] = true;
            gpus[task++] = shown[i];
        }
    for (int i = 0; i < n && task < tasks; i++)
        if (!taken[i])
            gpus[task++] = shown[i];
    for (; task < tasks; task++)
        gpus[task] = shown[task % n];
    free(taken);
}

int *gpu_plan_take(const struct gpu_plan *plan, const char *host, int tasks)
{
    int n, *shown = topo_node_shown(plan->node, &n), *gpus = NULL;
    int *counts = mem_new((size_t)n + 1, sizeof(*counts));
    int named = count_all(plan, host, n, shown, counts);

    if (tasks > 0 && named > 0 && (n >= tasks || named >= tasks)) {
        gpus = mem_new((size_t)tasks, sizeof(*gpus));
        deal(n, shown, counts, tasks, gpus);
    }
    free(shown);
    free(counts);
    return gpus;
}
