/* SPDX-License-Identifier: MIT */
#include "topology/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/distance.h"
#include "topology/node.h"
#include "topology/record.h"
#include "topology/switches.h"

/* Until they are measured. */
#define NVLINK_LATENCY 2e-6
#define PCIE_LATENCY 5e-6
#define FABRIC_LATENCY 2e-6
#define FABRIC_BANDWIDTH 12.5e9
#define ETHERNET_LATENCY 30e-6
#define ETHERNET_BANDWIDTH 1.25e9
#define PCIE_BANDWIDTH 12e9             /* where not even the link is known */
#define SHARED_MEMORY_LATENCY 2e-6
#define SHARED_MEMORY_BANDWIDTH 4e9
#define CORE_MEMORY_BANDWIDTH 8e9
#define USABLE_MEMORY 0.9

/* Peak float32 operations (not TF32) and bytes per second, from the makers' data sheets; what
 * comes first fits first.
 */
static const struct maker {
    const char *part;
    double flops, memory_bandwidth;
} makers[] = {
    { "P100", 10.6e12, 732e9 },         { "V100S", 16.4e12, 1134e9 },
    { "V100-PCI", 14e12, 900e9 },       { "V100", 15.7e12, 900e9 },
    { "T4", 8.1e12, 320e9 },            { "A100-SXM4-80GB", 19.5e12, 2039e9 },
    { "A100 80GB PCI", 19.5e12, 1935e9 }, { "A100", 19.5e12, 1555e9 },
    { "A40", 37.4e12, 696e9 },          { "L40S", 91.6e12, 864e9 },
    { "L4", 30.3e12, 300e9 },           { "H100 PCI", 51e12, 2039e9 },
    { "H100", 67e12, 3352e9 },          { "H200", 67e12, 4800e9 },
    { "GH200", 67e12, 4000e9 },         { "B200", 80e12, 8000e9 },
};

const char *model_device_kind(const char *name)
{
    static const char *const brands[] = { "NVIDIA Corporation ", "NVIDIA ", "Tesla " };

    for (size_t i = 0; i < sizeof(brands) / sizeof(brands[0]); i++)
        if (strncmp(name, brands[i], strlen(brands[i])) == 0)
            name += strlen(brands[i]);
    return name;
}

static double pcie_bandwidth(const struct topo_node *node, const struct topo_gpu *gpu,
                             enum origin *origin)
{
    /* GB/s of a lane by generation, after its encoding. */
    static const double lanes[] = { 0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563 };
    int pci = topo_node_find_pci(node, gpu->address);

    *origin = ORIGIN_REPORTED;
    /* An idle GPU slows its link down: the most that both ends can. */
    if (gpu->pcie_max_gen > 0 && gpu->pcie_max_gen < 7 && gpu->pcie_width > 0)
        return lanes[gpu->pcie_max_gen] * 1e9 * gpu->pcie_width;
    if (pci >= 0 && node->pcis[pci].bandwidth > 0)
        return node->pcis[pci].bandwidth;
    *origin = ORIGIN_TABLE;
    return PCIE_BANDWIDTH;
}

/* What leaves a GPU by NVLink; 0: nothing. */
static double nvlink_bandwidth(const struct topo_node *node, int gpu)
{
    double sum = 0;
    int peers = 0;

    for (int i = 0; i < node->n_gpus; i++) {
        struct topo_distance d = topo_distance_gpus(node, gpu, i);

        if (d.near != TOPO_NVLINK)
            continue;
        peers++;
        sum += d.bandwidth;
    }
    return peers > 0 ? sum / peers : 0;
}

/* The GPUs that NVLinks join, directly or by way of others, get one number. */
static void find_islands(const struct topo_node *node, int *island)
{
    for (int i = 0; i < node->n_gpus; i++)
        island[i] = i;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < node->n_gpus; i++)
            for (int j = 0; j < node->n_gpus; j++)
                if (island[j] < island[i] &&
                    topo_distance_gpus(node, i, j).near == TOPO_NVLINK) {
                    island[i] = island[j];
                    changed = true;
                }
    }
}

static void add_gpu(struct cluster *cluster, const struct topo_node *node, int gpu, int parent,
                    double bandwidth, enum origin origin)
{
    const struct topo_gpu *g = &node->gpus[gpu];
    char *id = mem_printf("%s/gpu%d", node->host, gpu);
    int index = cluster_add_device(cluster, id, model_device_kind(g->name), parent, bandwidth);
    struct cluster_device *device = &cluster->devices[index];

    cluster->places[device->place].origin = origin;
    if (g->memory > 0)
        device->memory = g->memory;
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
        if (strstr(g->name, makers[i].part)) {
            device->flops = makers[i].flops;
            device->memory_bandwidth = makers[i].memory_bandwidth;
            break;
        }
    free(id);
}

static void add_island(struct cluster *cluster, const struct topo_node *node, int parent,
                       const int *island, int number)
{
    char *name = mem_printf("island%d", number);
    int place = cluster_add_place(cluster, CLUSTER_ISLAND, name, parent, INFINITY);
    enum origin origin = ORIGIN_REPORTED;
    double out = 0;

    cluster->places[place].latency = NVLINK_LATENCY;
    for (int i = 0; i < node->n_gpus; i++) {
        double bandwidth = island[i] == number ? nvlink_bandwidth(node, i) : 0;

        if (island[i] != number)
            continue;
        out += pcie_bandwidth(node, &node->gpus[i], &origin);
        add_gpu(cluster, node, i, place, bandwidth > 0 ? bandwidth : PCIE_BANDWIDTH,
                bandwidth > 0 ? ORIGIN_REPORTED : ORIGIN_TABLE);
    }
    cluster->places[place].up_bandwidth = out;
    cluster->places[place].origin = origin;
    free(name);
}

static int members(const int *island, int n, int number)
{
    int count = 0;

    for (int i = 0; i < n; i++)
        count += island[i] == number;
    return count;
}

static void add_gpus(struct cluster *cluster, const struct topo_node *node, int place)
{
    int *island = mem_new((size_t)node->n_gpus, sizeof(int));

    find_islands(node, island);
    cluster->places[place].latency = PCIE_LATENCY;
    for (int i = 0; i < node->n_gpus; i++) {
        enum origin origin;
        double bandwidth = pcie_bandwidth(node, &node->gpus[i], &origin);

        if (island[i] != i)
            continue;
        if (members(island, node->n_gpus, i) > 1)
            add_island(cluster, node, place, island, i);
        else
            add_gpu(cluster, node, i, place, bandwidth, origin);
    }
    free(island);
}

struct model_gpu model_gpu(const struct topo_node *node, int gpu)
{
    struct model_gpu g = { "", 0, PCIE_BANDWIDTH, ORIGIN_TABLE, ORIGIN_TABLE };
    int *island;

    if (gpu < 0)
        return g;
    island = mem_new((size_t)node->n_gpus, sizeof(int));
    find_islands(node, island);
    if (members(island, node->n_gpus, island[gpu]) > 1)
        snprintf(g.island, sizeof(g.island), "%s", node->gpus[island[gpu]].address);
    g.nvlink = nvlink_bandwidth(node, gpu);
    g.nvlink_origin = g.nvlink > 0 ? ORIGIN_REPORTED : ORIGIN_TABLE;
    if (g.nvlink <= 0)
        g.nvlink = PCIE_BANDWIDTH;
    g.pcie = pcie_bandwidth(node, &node->gpus[gpu], &g.pcie_origin);
    free(island);
    return g;
}

/* A copy of a device, with another wire. */
static void add_rank(struct cluster *cluster, const struct cluster_device *device, int parent,
                     double bandwidth, enum origin origin)
{
    int index = cluster_add_device(cluster, device->id, device->kind, parent, bandwidth);
    struct cluster_device *d = &cluster->devices[index], own = *d;

    *d = *device;
    d->id = own.id;
    d->kind = own.kind;
    d->place = own.place;
    d->node = own.node;
    cluster->places[d->place].origin = origin;
}

/* Those of a node from 'first' on that are on the island of that one. */
static void add_ranks_of(struct cluster *cluster, const struct cluster *ranks, int first, int last,
                         const struct model_gpu *gpus, int number, int parent)
{
    const struct model_gpu *of = &gpus[ranks->devices[first].rank];
    char *name = mem_printf("island%d", number);
    int place = cluster_add_place(cluster, CLUSTER_ISLAND, name, parent, INFINITY);
    enum origin origin = ORIGIN_REPORTED;
    double out = 0;

    cluster->places[place].latency = NVLINK_LATENCY;
    for (int d = first; d < last; d++) {
        const struct model_gpu *g = &gpus[ranks->devices[d].rank];

        if (strcmp(g->island, of->island) != 0)
            continue;
        out += g->pcie;
        origin = g->pcie_origin == ORIGIN_TABLE ? ORIGIN_TABLE : origin;
        add_rank(cluster, &ranks->devices[d], place, g->nvlink, g->nvlink_origin);
    }
    cluster->places[place].up_bandwidth = out;
    cluster->places[place].origin = origin;
    free(name);
}

/* The devices from 'first' on are those of the node. */
static void add_node_ranks(struct cluster *cluster, const struct cluster *ranks, int first, int last,
                           const struct model_gpu *gpus, int place)
{
    int islands = 0;

    for (int d = first; d < last; d++) {
        const struct model_gpu *g = &gpus[ranks->devices[d].rank];
        int before = 0, all = 0;

        for (int e = first; e < last && g->island[0]; e++) {
            bool same = strcmp(gpus[ranks->devices[e].rank].island, g->island) == 0;

            before += same && e < d;
            all += same;
        }
        if (all < 2)
            add_rank(cluster, &ranks->devices[d], place, g->pcie, g->pcie_origin);
        else if (before == 0)
            add_ranks_of(cluster, ranks, d, last, gpus, islands++, place);
    }
}

struct cluster *model_of_ranks(const struct cluster *cluster, const struct model_gpu *gpus)
{
    struct cluster *tree = cluster_new(cluster->name);
    int *to = mem_new((size_t)cluster->n_places, sizeof(*to));

    for (int p = 0; p < cluster->n_places; p++) {
        const struct cluster_place *place = &cluster->places[p];
        struct cluster_place *own;

        if (place->kind == CLUSTER_DEVICE)
            continue;
        to[p] = p == 0 ? 0 : cluster_add_place(tree, place->kind, place->name, to[place->parent],
                                               place->up_bandwidth);
        own = &tree->places[to[p]];
        own->flow_bandwidth = place->flow_bandwidth;
        own->origin = place->origin;
        own->cores = place->cores;
        own->latency = place->kind == CLUSTER_NODE ? PCIE_LATENCY : place->latency;
        if (place->kind != CLUSTER_NODE)
            continue;
        add_node_ranks(tree, cluster, cluster_device_from(cluster, p),
                       cluster_device_from(cluster, cluster_end(cluster, p)), gpus, to[p]);
    }
    free(to);
    return tree;
}

static void add_cpu(struct cluster *cluster, const struct topo_node *node, int place)
{
    char *id = mem_printf("%s/cpu0", node->host);
    int index = cluster_add_device(cluster, id, "cpu", place, SHARED_MEMORY_BANDWIDTH);
    struct cluster_device *device = &cluster->devices[index];

    cluster->places[place].latency = SHARED_MEMORY_LATENCY;
    cluster->places[place].cores = node->cores;
    device->cores = node->cores;
    device->memory = fmax(1, floor(USABLE_MEMORY * node->memory));
    device->flops = node->flops * node->cores;
    device->memory_bandwidth = CORE_MEMORY_BANDWIDTH * node->cores;
    free(id);
}

static bool is_fabric(const struct topo_nic *nic)
{
    static const char *const drivers[] = { "mlx", "hfi", "ib", "qib", "hsi", "cxi", "efa",
                                           "opa" };

    for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
        if (strncmp(nic->name, drivers[i], strlen(drivers[i])) == 0)
            return true;
    return nic->hca;
}

/* Where no rail is known: as the fastest interface suggests it. */
static void guess_network(const struct topo_node *node, struct model_network *network)
{
    double unknown = ETHERNET_BANDWIDTH;

    for (int i = 0; i < node->n_nics; i++) {
        network->bandwidth = fmax(network->bandwidth, node->nics[i].bandwidth);
        if (is_fabric(&node->nics[i]))
            unknown = FABRIC_BANDWIDTH;
    }
    network->origin = network->bandwidth > 0 ? ORIGIN_REPORTED : ORIGIN_TABLE;
    if (network->bandwidth <= 0)
        network->bandwidth = unknown;
}

struct model_network model_network(const struct topo_node *node)
{
    struct model_network network = { .flow_bandwidth = 0, .latency = ETHERNET_LATENCY,
                                     .origin = ORIGIN_REPORTED };
    int *rails, n = topo_rails(node, &rails), up = 0;

    for (int i = 0; i < n; i++) {
        const struct topo_nic *nic = &node->nics[rails[i]];
        bool known = nic->bandwidth > 0;
        double rate = known ? nic->bandwidth : is_fabric(nic) ? FABRIC_BANDWIDTH : 0;

        if (topo_nic_is_down(nic) || rate <= 0)
            continue;
        up++;
        network.bandwidth += rate;
        network.flow_bandwidth = fmax(network.flow_bandwidth, rate);
        if (!known)
            network.origin = ORIGIN_TABLE;
    }
    free(rails);
    if (up == 0)
        guess_network(node, &network);
    if (up < 2)
        network.flow_bandwidth = INFINITY;
    for (int i = 0; i < node->n_nics; i++)
        if (is_fabric(&node->nics[i]))
            network.latency = FABRIC_LATENCY;
    return network;
}

static void add_node(struct cluster *cluster, const struct topo_node *node, int parent)
{
    struct model_network network = model_network(node);
    int place = cluster_add_place(cluster, CLUSTER_NODE, node->host, parent,
                                  network.bandwidth);

    cluster->places[place].flow_bandwidth = network.flow_bandwidth;
    cluster->places[place].origin = network.origin;
    cluster->places[0].latency = fmax(cluster->places[0].latency, network.latency);
    if (node->n_gpus > 0)
        add_gpus(cluster, node, place);
    else
        add_cpu(cluster, node, place);
}

struct modelling {
    struct cluster *cluster;
    const struct topo_record *record;
    struct err *err;
    bool failed;
};

static void model_host(void *context, int host, int parent)
{
    struct modelling *m = context;
    struct topo_node *node = m->failed ? NULL : topo_record_node(m->record, host, m->err);

    m->failed = !node;
    if (node)
        add_node(m->cluster, node, parent);
    topo_node_free(node);
}

struct cluster *model_of_record(const struct topo_record *record, const char *name,
                                struct err *err)
{
    int n = topo_record_hosts(record);
    struct modelling m = { cluster_new(name), record, err, false };
    const char **paths = mem_new((size_t)n, sizeof(*paths));

    for (int i = 0; i < n; i++)
        paths[i] = topo_record_switches(record, i);
    switches_place(m.cluster, 0, n, paths, model_host, &m);
    free(paths);
    if (!m.failed && cluster_check(m.cluster, err) == 0)
        return m.cluster;
    cluster_free(m.cluster);
    return NULL;
}
