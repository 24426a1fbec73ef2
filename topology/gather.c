/* SPDX-License-Identifier: MIT */
#include "topology/gather.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/model.h"
#include "topology/node.h"
#include "topology/record.h"
#include "topology/switches.h"
#include "topology/task.h"

/* Until they are measured. Memory copies between processes, two per message; TCP over the
 * loopback of one machine.
 */
#define SHARED_MEMORY_BANDWIDTH 4e9
#define SHARED_MEMORY_LATENCY 2e-6
#define LOOPBACK_BANDWIDTH 2e9
#define LOOPBACK_LATENCY 25e-6
#define CORE_MEMORY_BANDWIDTH 8e9   /* one core streaming */
#define USABLE_MEMORY 0.9           /* of a node: the system and MPI want some */

struct host {
    const char *name;
    struct topo_node *node;      /* as the first rank of the host described it */
    int machine;
    int n_ranks;
    int *ranks;
    int cores;              /* that its ranks together may use */
};

struct machine {
    const char *id;
    int n_hosts, n_ranks;
    int cores;
};

struct merge {
    int n_hosts, n_machines;
    struct host *hosts;
    struct machine *machines;
    int *rank_cores;        /* by each rank's own affinity */
};

char *gather_pack(const struct topo_node *node, bool whole, size_t *size, struct err *err)
{
    return topo_record_pack(node, whole, size, err);
}

/* Hardware threads count as the part of a core that they are. */
static int cores_of(const struct topo_node *node, int n_usable)
{
    double cores = node->pus > 0 ? (double)n_usable * node->cores / node->pus : n_usable;

    return cores < 1 ? 1 : (int)lround(cores);
}

static int find_host(struct merge *m, const char *name)
{
    /* Ranks of a host mostly come one after the other. */
    for (int i = m->n_hosts - 1; i >= 0; i--)
        if (strcmp(m->hosts[i].name, name) == 0)
            return i;
    *(struct host *)mem_push((void **)&m->hosts, &m->n_hosts, sizeof(struct host)) =
        (struct host){ .name = name, .machine = -1 };
    return m->n_hosts - 1;
}

/* Nodes that do not say on which machine they are have one each. */
static int find_machine(struct merge *m, const char *id)
{
    for (int i = 0; i < m->n_machines && *id; i++)
        if (strcmp(m->machines[i].id, id) == 0)
            return i;
    *(struct machine *)mem_push((void **)&m->machines, &m->n_machines,
                                sizeof(struct machine)) = (struct machine){ .id = id };
    return m->n_machines - 1;
}

/* The PUs of any rank of the host, as cores of it. */
static void add_usable(struct topo_node *all, const struct topo_node *node)
{
    for (int i = 0; i < node->n_usable; i++) {
        bool known = false;

        for (int j = 0; j < all->n_usable && !known; j++)
            known = all->usable[j] == node->usable[i];
        if (known)
            continue;
        all->usable = mem_resize(all->usable, (size_t)all->n_usable + 1,
                                 sizeof(*all->usable));
        all->usable[all->n_usable++] = node->usable[i];
    }
}

static void add_rank(struct merge *m, int rank, const char *name, struct topo_node *node)
{
    int index = find_host(m, name);
    struct host *host = &m->hosts[index];

    *(int *)mem_push((void **)&host->ranks, &host->n_ranks, sizeof(int)) = rank;
    m->rank_cores[rank] = cores_of(node, node->n_usable);
    if (!host->node) {
        host->node = node;
        return;
    }
    add_usable(host->node, node);
    topo_node_free(node);
}

static void find_machines(struct merge *m)
{
    for (int i = 0; i < m->n_hosts; i++) {
        struct host *host = &m->hosts[i];
        struct machine *machine;

        host->cores = cores_of(host->node, host->node->n_usable);
        host->machine = find_machine(m, host->node->machine);
        machine = &m->machines[host->machine];
        machine->n_hosts++;
        machine->n_ranks += host->n_ranks;
        /* Virtual nodes see the same cores. */
        machine->cores = host->cores > machine->cores ? host->cores : machine->cores;
    }
}

static void place_ranks(struct cluster *cluster, const struct merge *m,
                        const struct host *host, int place)
{
    const struct machine *machine = &m->machines[host->machine];
    int share = machine->cores / machine->n_ranks;

    for (int i = 0; i < host->n_ranks; i++) {
        char *id = mem_printf("%s/cpu%d", host->name, i);
        int index = cluster_add_device(cluster, id, "cpu", place, SHARED_MEMORY_BANDWIDTH);
        struct cluster_device *d = &cluster->devices[index];
        int own = m->rank_cores[host->ranks[i]];

        d->rank = host->ranks[i];
        d->cores = own < share ? own : share > 1 ? share : 1;
        d->memory = fmax(1, floor(USABLE_MEMORY * host->node->memory / machine->n_ranks));
        d->flops = host->node->flops * d->cores;
        d->memory_bandwidth = CORE_MEMORY_BANDWIDTH * d->cores;
        free(id);
    }
}

static void place_host(struct cluster *cluster, const struct merge *m, const struct host *host,
                       int parent, const struct model_network *network)
{
    int place = cluster_add_place(cluster, CLUSTER_NODE, host->name, parent,
                                  network->bandwidth);

    cluster->places[place].flow_bandwidth = network->flow_bandwidth;
    cluster->places[place].origin = network->origin;
    cluster->places[place].latency = SHARED_MEMORY_LATENCY;
    cluster->places[place].cores = host->cores;
    place_ranks(cluster, m, host, place);
}

/* Hosts that get places, below their switches. */
struct placing {
    struct cluster *cluster;
    const struct merge *merge;
    int n_hosts;
    const struct host **hosts;
    bool virtual;           /* on one machine, whose loopback joins them */
};

static void place_one(void *context, int host, int parent)
{
    static const struct model_network loopback = { LOOPBACK_BANDWIDTH, INFINITY, 0,
                                                   ORIGIN_TABLE };
    const struct placing *p = context;
    struct model_network network = model_network(p->hosts[host]->node);

    place_host(p->cluster, p->merge, p->hosts[host], parent,
               p->virtual ? &loopback : &network);
}

static void place_hosts(struct placing *p, int parent)
{
    const char **paths = mem_new((size_t)p->n_hosts, sizeof(*paths));

    for (int i = 0; i < p->n_hosts; i++)
        paths[i] = p->hosts[i]->node->switches;
    switches_place(p->cluster, parent, p->n_hosts, paths, place_one, p);
    free(paths);
}

/* The hosts of a machine on which several are virtual, or those that have one each. */
static int choose_hosts(const struct merge *m, int machine, const struct host **hosts)
{
    int n = 0;

    for (int i = 0; i < m->n_hosts; i++) {
        int own = m->hosts[i].machine;

        if (own == machine || (machine < 0 && m->machines[own].n_hosts == 1))
            hosts[n++] = &m->hosts[i];
    }
    return n;
}

static void place_machine(struct placing *p, int machine)
{
    struct model_network network;
    int place;

    p->n_hosts = choose_hosts(p->merge, machine, p->hosts);
    p->virtual = true;
    network = model_network(p->hosts[0]->node);
    place = cluster_add_place(p->cluster, CLUSTER_SWITCH, "machine", 0, network.bandwidth);
    p->cluster->places[place].flow_bandwidth = network.flow_bandwidth;
    p->cluster->places[place].origin = network.origin;
    p->cluster->places[place].latency = LOOPBACK_LATENCY;
    p->cluster->places[place].cores = p->merge->machines[machine].cores;
    place_hosts(p, place);
}

static void place_all(struct cluster *cluster, const struct merge *m)
{
    struct placing p = { .cluster = cluster, .merge = m,
                         .hosts = mem_new((size_t)m->n_hosts, sizeof(*p.hosts)) };

    for (int i = 0; i < m->n_hosts; i++)
        cluster->places[0].latency = fmax(cluster->places[0].latency,
                                          model_network(m->hosts[i].node).latency);
    for (int i = 0; i < m->n_machines; i++)
        if (m->machines[i].n_hosts > 1)
            place_machine(&p, i);
    p.virtual = false;
    p.n_hosts = choose_hosts(m, -1, p.hosts);
    place_hosts(&p, 0);
    free(p.hosts);
}

static void merge_free(struct merge *m)
{
    for (int i = 0; i < m->n_hosts; i++) {
        topo_node_free(m->hosts[i].node);
        free(m->hosts[i].ranks);
    }
    free(m->hosts);
    free(m->machines);
    free(m->rank_cores);
}

struct cluster *gather_merge(int n_ranks, const char *const *hosts, const void *const *parts,
                             const size_t *sizes, const char *name, struct err *err)
{
    struct merge m = { .rank_cores = mem_new((size_t)n_ranks, sizeof(int)) };
    struct cluster *cluster = NULL;

    for (int r = 0; r < n_ranks; r++) {
        int at = find_host(&m, hosts[r]);   /* which may move the hosts */
        int first = m.hosts[at].n_ranks ? m.hosts[at].ranks[0] : r;
        struct topo_node *node = topo_record_unpack(hosts[r], parts[r], sizes[r], parts[first],
                                                    sizes[first], err);

        if (!node) {
            err_prefix(err, "rank %d", r);
            goto out;
        }
        add_rank(&m, r, hosts[r], node);
    }
    find_machines(&m);
    cluster = cluster_new(name);
    place_all(cluster, &m);
    if (cluster_check(cluster, err)) {
        cluster_free(cluster);
        cluster = NULL;
    }
out:
    merge_free(&m);
    return cluster;
}

struct cluster *gather_here(struct err *err)
{
    struct topo_node *node = topo_node_discover(NULL, err);
    struct cluster *cluster = NULL;
    size_t size;
    char *part;

    if (!node)
        return NULL;
    part = gather_pack(node, true, &size, err);
    if (part) {
        const char *hosts[] = { node->host };
        const void *parts[] = { part };

        cluster = gather_merge(1, hosts, parts, &size, GATHER_HERE, err);
    }
    free(part);
    topo_node_free(node);
    return cluster;
}

static const char *address_of(const json_t *gpu)
{
    const char *address = json_string_value(json_object_get(gpu, "address"));

    return address ? address : "";
}

/* {HOST: {ADDRESS: …}}: GPUs that only some ranks of a host see, as those describe them. */
static json_t *hidden_gpus(int n_ranks, const void *const *parts, const size_t *sizes)
{
    json_t *hidden = json_object();
    struct err ignored = { 0 };     /* who adds the part reports it */

    for (int r = 0; r < n_ranks; r++) {
        json_t *own = topo_record_own(parts[r], sizes[r], &ignored);
        json_t *gpus = json_object_get(own, "gpus"), *known, *gpu;
        const char *host = json_string_value(json_object_get(own, "host")), *index;

        if (json_is_object(gpus) && !json_object_get(hidden, host))
            json_object_set_new(hidden, host, json_object());
        known = json_object_get(hidden, host);
        json_object_foreach(gpus, index, gpu)
            if (!json_object_get(known, address_of(gpu)))
                json_object_set(known, address_of(gpu), gpu);
        json_decref(own);
    }
    return hidden;
}

/* The node with those GPUs that it does not see itself. */
static struct topo_node *complete(const struct topo_node *node, json_t *gpus, struct err *err)
{
    json_t *json = topo_node_to_json(node), *list = json_object_get(json, "gpus"), *gpu;
    struct topo_node *whole;
    const char *address;
    size_t i;

    json_object_foreach(gpus, address, gpu) {
        int at = topo_node_find_gpu(node, address);

        if (at >= 0 && !node->gpus[at].seen)
            json_array_set(list, (size_t)at, gpu);
        else if (at < 0 && *address)
            json_array_append(list, gpu);
    }
    /* Of which others each reaches was said of fewer. */
    if (json_array_size(list) > (size_t)node->n_gpus)
        json_array_foreach(list, i, gpu)
            json_object_del(gpu, "p2p");
    whole = topo_node_from_json(node->host, json, err);
    json_decref(json);
    return whole;
}

/* 'hidden' are the GPUs that other ranks of its host see; NULL: there are none. */
static int add_part(struct topo_record *record, const void *part, size_t size, json_t *hidden,
                    struct err *err)
{
    struct topo_node *node, *whole;
    int status = -1;

    if (!hidden)
        return topo_record_add_packed(record, part, size, err);
    node = topo_record_unpack("its node", part, size, NULL, 0, err);
    whole = node ? complete(node, hidden, err) : NULL;
    if (whole)
        status = topo_record_add_node(record, whole, err);
    topo_node_free(node);
    topo_node_free(whole);
    return status;
}

struct topo_record *gather_record_of(int n_ranks, const void *const *parts, const size_t *sizes,
                                     struct err *err)
{
    struct topo_record *record = topo_record_new();
    json_t *hidden = hidden_gpus(n_ranks, parts, sizes);
    int status = 0;

    for (int r = 0; r < n_ranks && status == 0; r++) {
        json_t *own = topo_record_own(parts[r], sizes[r], err);
        const char *host = json_string_value(json_object_get(own, "host"));

        status = own ? 0 : -1;
        if (own && topo_record_find(record, host) < 0)
            status = add_part(record, parts[r], sizes[r], json_object_get(hidden, host), err);
        if (status)
            err_prefix(err, "rank %d", r);
        json_decref(own);
    }
    json_decref(hidden);
    if (status == 0)
        return record;
    topo_record_free(record);
    return NULL;
}

/* {HOST: {ADDRESS: 3}}: the GPUs of the hosts whose ranks do not see the same. */
static json_t *gpu_places(const struct topo_record *record, int n_ranks,
                          const void *const *parts, const size_t *sizes, struct err *err)
{
    json_t *places = json_object(), *hidden = hidden_gpus(n_ranks, parts, sizes), *gpus;
    const char *host;

    json_object_foreach(hidden, host, gpus) {
        struct topo_node *node = topo_record_node(record, topo_record_find(record, host), err);
        json_t *of_host = json_object();

        for (int i = 0; node && i < node->n_gpus; i++)
            json_object_set_new(of_host, node->gpus[i].address, json_integer(i));
        json_object_set_new(places, host, of_host);
        topo_node_free(node);
    }
    json_decref(hidden);
    return places;
}

struct topo_tasks *gather_tasks(const struct topo_record *record, int n_ranks,
                                const void *const *parts, const size_t *sizes, struct err *err)
{
    struct topo_tasks *tasks = topo_tasks_new();
    json_t *places = gpu_places(record, n_ranks, parts, sizes, err);

    for (int r = 0; r < n_ranks && tasks; r++) {
        json_t *own = topo_record_own(parts[r], sizes[r], err);
        const char *host = json_string_value(json_object_get(own, "host"));

        if (!own || topo_tasks_add(tasks, r, own, json_object_get(places, host), err)) {
            err_prefix(err, "rank %d", r);
            topo_tasks_free(tasks);
            tasks = NULL;
        }
        json_decref(own);
    }
    json_decref(places);
    return tasks;
}
