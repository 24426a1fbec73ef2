/* SPDX-License-Identifier: MIT */
#include "topology/feature.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/distance.h"
#include "topology/node.h"
#include "topology/report.h"

#define MEMORY_SLACK 0.03   /* firmware takes its part, not the same on every node */
#define RATE_SLACK 0.02

static struct feature *add(struct features *features, enum feature_kind kind, double number,
                           char *value, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Takes over 'value'; the key is formatted. */
static struct feature *add(struct features *features, enum feature_kind kind, double number,
                           char *value, const char *format, ...)
{
    struct feature *f = mem_push((void **)&features->list, &features->n, sizeof(*f));
    char key[128];
    va_list args;

    va_start(args, format);
    vsnprintf(key, sizeof(key), format, args);
    va_end(args);
    *f = (struct feature){ .kind = kind, .key = mem_strdup(key), .value = value,
                           .number = number, .of_gpu = strncmp(format, "GPU%d", 5) == 0,
                           .of_nic = strncmp(format, "NIC%d", 5) == 0 };
    return f;
}

static char *number_text(double number)
{
    return mem_printf("%g", number);
}

static char *rate_text(double rate)
{
    char text[24];

    return mem_strdup(report_rate(rate, text));
}

static void add_text(struct features *f, enum feature_kind kind, const char *value,
                     const char *key)
{
    if (*value)
        add(f, kind, NAN, mem_strdup(value), "%s", key);
}

struct feature feature_of_memory(double bytes)
{
    char text[24];

    return (struct feature){ .kind = FEATURE_MEMORY, .key = mem_strdup("memory"),
                             .value = mem_strdup(report_bytes(bytes, text)), .number = bytes,
                             .slack = MEMORY_SLACK };
}

static void add_processors(struct features *f, const struct topo_node *node)
{
    add_text(f, FEATURE_PROCESSOR, node->cpu, "processor");
    add(f, FEATURE_PROCESSOR, node->packages, number_text(node->packages), "packages");
    add(f, FEATURE_PROCESSOR, node->numa_nodes, number_text(node->numa_nodes), "NUMA nodes");
    add(f, FEATURE_PROCESSOR, node->cores, number_text(node->cores), "cores");
    add(f, FEATURE_PROCESSOR, node->pus, number_text(node->pus), "threads");
    if (node->memory > 0)
        *(struct feature *)mem_push((void **)&f->list, &f->n, sizeof(struct feature)) =
            feature_of_memory(node->memory);
    add_text(f, FEATURE_DRIVER, node->driver, "driver");
    if (node->gpudirect >= 0)
        add(f, FEATURE_GPUDIRECT, node->gpudirect,
            mem_printf("%s%s", node->gpudirect ? "by " : "none: ", node->gpudirect_by),
            "GPUDirect");
}

static void add_sources(struct features *f, const struct topo_node *node)
{
    static const char *const words[] = { "answered", "not there", "failed" };

    for (int i = 0; i < node->n_said; i++) {
        const struct topo_said *said = &node->said[i];

        add(f, FEATURE_SOURCE, NAN,
            said->state == TOPO_USED ? mem_strdup(words[said->state])
                                     : mem_printf("%s (%s)", words[said->state], said->text),
            "source %s", said->name);
    }
}

static void add_links(struct features *f, const struct topo_gpu *gpu, int i)
{
    double slowest = INFINITY;
    int up = 0, known = 0;

    for (int j = 0; j < gpu->n_links; j++) {
        up += gpu->links[j].up == 1;
        known += gpu->links[j].up >= 0;
        if (gpu->links[j].up == 1 && gpu->links[j].bandwidth > 0)
            slowest = fmin(slowest, gpu->links[j].bandwidth);
    }
    if (gpu->n_links >= 0 && known == gpu->n_links)
        add(f, FEATURE_NVLINK, up, mem_printf("%d of %d", up, gpu->n_links),
            "GPU%d: NVLinks up", i);
    if (isfinite(slowest))
        add(f, FEATURE_NVLINK, slowest, rate_text(slowest), "GPU%d: slowest NVLink",
            i)->slack = RATE_SLACK;
}

static void add_modes(struct features *f, const struct topo_gpu *gpu, int i)
{
    if (gpu->mig >= 0)
        add(f, FEATURE_MODE, gpu->mig, gpu->mig ? mem_printf("on, %d partitions", gpu->n_migs)
                                                : mem_strdup("off"), "GPU%d: MIG", i);
    if (gpu->ecc >= 0)
        add(f, FEATURE_MODE, gpu->ecc, mem_strdup(gpu->ecc ? "on" : "off"), "GPU%d: ECC", i);
    if (gpu->p2p[0])
        add(f, FEATURE_P2P, NAN, mem_strdup(gpu->p2p), "GPU%d: access to other GPUs", i);
}

/* A width that idles is still the width; generations fall when nothing moves. */
static void add_gpu(struct features *f, const struct topo_node *node, int i)
{
    const struct topo_gpu *gpu = &node->gpus[i];
    char memory[24];

    if (!gpu->seen)
        return;
    if (gpu->name[0])
        add(f, FEATURE_GPU, NAN, mem_strdup(gpu->name), "GPU%d: name", i);
    if (gpu->memory > 0)
        add(f, FEATURE_GPU, gpu->memory, mem_strdup(report_bytes(gpu->memory, memory)),
            "GPU%d: memory", i)->slack = MEMORY_SLACK;
    if (gpu->pcie_width >= 0)
        add(f, FEATURE_PCIE, gpu->pcie_width, mem_printf("x%d", gpu->pcie_width),
            "GPU%d: PCIe width", i);
    if (gpu->pcie_max_gen >= 0)
        add(f, FEATURE_PCIE, gpu->pcie_max_gen, number_text(gpu->pcie_max_gen),
            "GPU%d: PCIe generation", i);
    add_links(f, gpu, i);
    add_modes(f, gpu, i);
}

static void add_gpus(struct features *f, const struct topo_node *node)
{
    const struct topo_said *driver = topo_node_said(node, "nvml");
    int seen = 0;

    for (int i = 0; i < node->n_gpus; i++) {
        seen += node->gpus[i].seen;
        add_gpu(f, node, i);
    }
    if (node->n_pcis > 0)
        add(f, FEATURE_GPUS, node->n_gpus, number_text(node->n_gpus), "GPUs");
    if (driver && driver->state == TOPO_USED)
        add(f, FEATURE_GPUS, seen, number_text(seen), "GPUs that the driver shows");
}

/* PCI alone: NVLinks are compared by their number. */
static void add_distances(struct features *f, const struct topo_node *node, int n_rails,
                          const int *rails)
{
    char word[16];

    for (int i = 0; i < node->n_gpus; i++) {
        size_t room = 8 * (size_t)(node->n_gpus + n_rails) + 1, used = 0;
        char *row = mem_new(room, 1);

        for (int j = 0; j < node->n_gpus + n_rails && node->n_pcis > 0; j++)
            used += (size_t)snprintf(row + used, room - used, "%s%s", j ? " " : "",
                                     topo_distance_word(
                                         j < node->n_gpus
                                             ? topo_distance_pci(node, i, j)
                                             : topo_distance_nic(node, i,
                                                                 rails[j - node->n_gpus]),
                                         word));
        if (node->n_pcis > 0)
            add(f, FEATURE_PCIE, NAN, row, "GPU%d: way to GPUs and NICs", i)->of_nic = true;
        else
            free(row);
    }
}

static void add_nic(struct features *f, const struct topo_nic *nic, int i)
{
    if (nic->fabric[0])
        add(f, FEATURE_NIC, NAN, mem_strdup(nic->fabric), "NIC%d: fabric", i);
    if (nic->state[0])
        add(f, FEATURE_PORT, NAN, mem_strdup(nic->state), "NIC%d: state", i);
    if (nic->bandwidth > 0)
        add(f, FEATURE_PORT, nic->bandwidth,
            nic->rate[0] ? mem_strdup(nic->rate) : rate_text(nic->bandwidth), "NIC%d: rate",
            i)->slack = RATE_SLACK;
    if (nic->pcie_width >= 0)
        add(f, FEATURE_PCIE, nic->pcie_width, mem_printf("x%d", nic->pcie_width),
            "NIC%d: PCIe width", i);
    if (nic->pcie_speed > 0)
        add(f, FEATURE_PCIE, nic->pcie_speed, mem_printf("%g GT/s", nic->pcie_speed),
            "NIC%d: PCIe speed", i);
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct feature *)a)->key, ((const struct feature *)b)->key);
}

struct features *features_of(const struct topo_node *node)
{
    struct features *features = mem_new(1, sizeof(*features));
    int *rails, n = topo_rails(node, &rails);

    add_processors(features, node);
    add_sources(features, node);
    add_gpus(features, node);
    add_distances(features, node, n, rails);
    add(features, FEATURE_NIC, n, number_text(n), "NICs");
    for (int i = 0; i < n; i++)
        add_nic(features, &node->nics[rails[i]], i);
    free(rails);
    qsort(features->list, (size_t)features->n, sizeof(struct feature), compare);
    return features;
}

void feature_clear(struct feature *feature)
{
    free(feature->key);
    free(feature->value);
}

void features_free(struct features *features)
{
    if (!features)
        return;
    for (int i = 0; i < features->n; i++)
        feature_clear(&features->list[i]);
    free(features->list);
    free(features);
}

const struct feature *feature_find(const struct features *features, const char *key)
{
    const struct feature wanted = { .key = (char *)key };

    return features->n ? bsearch(&wanted, features->list, (size_t)features->n, sizeof(wanted),
                                 compare)
                       : NULL;
}

int feature_alike(const struct feature *a, const struct feature *b)
{
    if (isnan(a->number) || isnan(b->number) || a->slack == 0)
        return strcmp(a->value, b->value) == 0;
    return fabs(a->number - b->number) <= a->slack * fmax(fabs(a->number), fabs(b->number));
}

const char *feature_advice(enum feature_kind kind)
{
    switch (kind) {
    case FEATURE_PROCESSOR: return "another kind of node: ask for one kind (--constraint)";
    case FEATURE_MEMORY: return "a memory module may have failed: leave the node out and tell "
                                "the administrators";
    case FEATURE_GPUS: return "a GPU fell off the bus or is hidden (dmesg: Xid 79): leave the "
                              "node out";
    case FEATURE_GPU: return "GPUs of another kind: ask for one kind (--gres=gpu:TYPE:N)";
    case FEATURE_NVLINK: return "nvidia-smi nvlink -s and -e show the link: leave the node "
                                "out; a reset of the GPUs may bring it back";
    case FEATURE_PCIE: return "lspci -vv shows LnkSta: the card may have to be reseated: leave "
                              "the node out";
    case FEATURE_MODE: return "nvidia-smi -q shows the mode; the administrators set it";
    case FEATURE_P2P: return "nvidia-smi topo -p2p r shows it: access between GPUs is switched "
                             "off (ACS, IOMMU or a setting of the driver)";
    case FEATURE_DRIVER: return "the driver was not updated with the others: leave the node "
                                "out";
    case FEATURE_GPUDIRECT: return "modprobe nvidia_peermem, by the administrators: until then "
                                   "messages go through the host's memory";
    case FEATURE_NIC: return "an adapter is missing or another: leave the node out";
    case FEATURE_PORT: return "ibstat and ibdiagnet show the port; the cable may be bad: leave "
                              "the node out";
    case FEATURE_SOURCE: return "what it would say was not collected on this node";
    }
    return "";
}
