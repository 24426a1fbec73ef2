/* SPDX-License-Identifier: MIT */
/* GPUDirect RDMA: may adapters reach the memory of the GPUs?
 *
 * Either by a module of the kernel (nvidia_peermem, formerly nv_peer_mem; Omni-Path's hfi1 does
 * it itself), or by DMA-BUF, which takes NVIDIA's open kernel module and a kernel whose verbs
 * know DMA-BUF (Linux 5.12, or a vendor's). CUDA need not be asked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "topology/node_read.h"

static bool exists(const char *root, const char *name)
{
    char *path = mem_printf("%s/%s", root, name);
    bool there = access(path, F_OK) == 0;

    free(path);
    return there;
}

/* Does a line of ROOT/NAME have that text? -1: the file cannot be read. */
static int mentions(const char *root, const char *name, const char *text)
{
    char *path = root ? mem_printf("%s/%s", root, name) : NULL, line[512];
    FILE *file = path ? fopen(path, "re") : NULL;
    int found = -1;

    free(path);
    if (!file)
        return -1;
    while (found < 1 && fgets(line, sizeof(line), file))
        found = strstr(line, text) != NULL;
    fclose(file);
    return found;
}

static void set(struct topo_node *node, int gpudirect, const char *text)
{
    node->gpudirect = gpudirect;
    topo_node_set_text(&node->gpudirect_by, text);
}

static void read_dma_buf(struct topo_node *node, const struct topo_input *input)
{
    int open = mentions(input->proc, "driver/nvidia/version", "Open Kernel Module");
    int verbs = open == 1 ? mentions(input->proc, "kallsyms", " ib_umem_dmabuf_get") : -1;

    if (open < 0)
        set(node, -1, "no nvidia_peermem; /proc/driver/nvidia/version was not read");
    else if (open == 0)
        set(node, 0, "no nvidia_peermem, and no DMA-BUF without NVIDIA's open kernel module");
    else if (verbs < 0)
        set(node, -1, "no nvidia_peermem; /proc/kallsyms was not read");
    else if (verbs == 0)
        set(node, 0, "no nvidia_peermem, and the kernel's verbs lack DMA-BUF");
    else
        set(node, 1, "DMA-BUF");
}

static int read_gpudirect(struct topo_node *node, const struct topo_input *input,
                          struct err *err)
{
    static const struct { const char *path, *text; } modules[] = {
        { "module/nvidia_peermem", "nvidia_peermem" },
        { "module/nv_peer_mem", "nv_peer_mem" },
        { "kernel/mm/memory_peers/nvidia-peermem", "nvidia_peermem" },
        { "kernel/mm/memory_peers/nv_mem", "nv_peer_mem" },
        { "module/nvidia/holders/hfi1", "hfi1" },
    };

    (void)err;
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]) && input->sys; i++)
        if (exists(input->sys, modules[i].path)) {
            set(node, 1, modules[i].text);
            return 0;
        }
    /* Without driver or adapters there is nothing to reach. */
    if (input->sys && exists(input->sys, "module/nvidia") &&
        exists(input->sys, "class/infiniband"))
        read_dma_buf(node, input);
    return 0;
}

const struct topo_source topo_source_gpudirect = { "gpudirect", read_gpudirect };
