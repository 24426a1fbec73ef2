/* SPDX-License-Identifier: MIT */
#include "topology/given.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/node_read.h"
#include "topology/shape.h"

#define MOST 4095           /* of a list's numbers */
/* Slurm numbers its own steps (batch script, interactive shell) from here on. */
#define SPECIAL_STEPS 0xfffffff0u

/* A step without GPUs inherits SLURM_JOB_GPUS of the script that starts it. */
static bool in_step(const struct topo_input *input)
{
    char *step = topo_input_variable(input, "SLURM_STEP_ID");
    bool in = step && *step && strtoul(step, NULL, 10) < SPECIAL_STEPS;

    free(step);
    return in;
}

static char *find_list(const struct topo_input *input, const char **name)
{
    char *list = topo_input_variable(input, *name = "SLURM_STEP_GPUS");

    if (!list && !in_step(input))
        list = topo_input_variable(input, *name = "SLURM_JOB_GPUS");
    return list;
}

/* N of its device file, /dev/nvidiaN; -1: not known. */
static int minor_of(const struct topo_input *input, const char *address)
{
    char *path = mem_printf("%s/driver/nvidia/gpus/%s/information", input->proc, address);
    FILE *file = fopen(path, "re");
    char line[256];
    int minor = -1;

    while (file && minor < 0 && fgets(line, sizeof(line), file))
        if (sscanf(line, "Device Minor: %d", &minor) != 1)
            minor = -1;
    if (file)
        fclose(file);
    free(path);
    return minor;
}

/* The GPUs of the node in the order of Slurm's numbers, malloc'ed; NULL: not known. */
static int *number_all(const struct topo_node *node, const struct topo_input *input, int *n)
{
    int *gpus = mem_new((size_t)node->n_gpus, sizeof(*gpus));
    bool known = node->n_partitions == 0;

    *n = 0;
    for (int i = 0; i < node->n_gpus && known; i++) {
        const struct topo_gpu *gpu = &node->gpus[i];
        int minor = gpu->seen && input->proc ? minor_of(input, gpu->address) : -1;

        known = gpu->seen ? gpu->mig != 1 && minor == *n : !topo_node_is_nvidia(node, gpu);
        if (gpu->seen)
            gpus[(*n)++] = i;
    }
    if (known)
        return gpus;
    free(gpus);
    return NULL;
}

struct topo_given topo_given_gpus(const struct topo_node *node, const struct topo_input *input)
{
    struct topo_given given = { .name = NULL };
    const char *name;
    int there, *gpus = number_all(node, input, &there);

    given.list = find_list(input, &name);
    if (gpus && given.list && set_parse(given.list, MOST, &given.n, &given.gpus) == 0 &&
        given.n > 0 && given.n < there && given.gpus[given.n - 1] < there) {
        given.name = name;
        for (int i = 0; i < given.n; i++)
            given.gpus[i] = gpus[given.gpus[i]];
    }
    free(gpus);
    return given;
}

void topo_given_clear(struct topo_given *given)
{
    free(given->list);
    free(given->gpus);
}
