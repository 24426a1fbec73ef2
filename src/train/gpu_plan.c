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
