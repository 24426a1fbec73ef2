/* SPDX-License-Identifier: MIT */
#include "train/measure_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/gpu_links.h"
#include "topology/model.h"
#include "topology/node.h"
#include "topology/pairs.h"
#include "topology/record.h"
#include "train/gpu.h"
#include "train/probe.h"
#include "train/wire.h"

/* The devices of the model, and who drives them. */
struct driving {
    struct gpu_choices choices;
    struct cluster *cluster;
    int *second;                /* of each device: another rank that uses it, -1: none */
    bool *shared;
    int n_first;                /* ranks that are the first on their GPU, */
    int *first;                 /* in the order of devices */
    int n_ranks;                /* that have a GPU */
    enum nccl_use use;
};

/* Has any node GPUs, and has this rank's 'own'? -1 with 'err'. */
static int has_gpus(const struct topo_record *record, const char *mine, bool *own,
                    struct err *err)
{
    int host = topo_record_find(record, mine), any = 0;

    *own = false;
    for (int kind = 0; kind < topo_record_kinds(record); kind++) {
        struct topo_node *node;
        int first;

        topo_record_count(record, kind, &first);
        node = topo_record_node(record, first, err);
        if (!node)
            return -1;
        any |= node->n_gpus > 0;
        *own |= node->n_gpus > 0 && host >= 0 && topo_record_kind(record, host) == kind;
        topo_node_free(node);
    }
    return any;
}

/* The model calls them by their number on the node. */
static void drive(struct driving *d, const struct topo_node *node, int rank)
{
    struct gpu_choice *choice = &d->choices.list[rank];
    int gpu = topo_node_find_gpu(node, choice->address), device = -1;
    char *id = mem_printf("%s/gpu%d", node->host, gpu);

    if (gpu >= 0)
        device = cluster_find_device(d->cluster, id);
    free(id);
    if (device < 0) {
        choice->why = mem_printf("%s is none of the GPUs that its node reports",
                                 choice->address);
        choice->address[0] = '\0';
        return;
    }
    d->n_ranks++;
    if (d->cluster->devices[device].rank < 0) {
        d->cluster->devices[device].rank = rank;
    } else if (!d->shared[device]) {
        d->shared[device] = true;
        d->second[device] = rank;
    }
}

static int drive_all(struct driving *d, struct comm *comm, const struct topo_record *record,
                     struct err *err)
{
    int n = comm_size(comm);

    d->second = mem_new((size_t)d->cluster->n_devices, sizeof(*d->second));
    d->shared = mem_new((size_t)d->cluster->n_devices, sizeof(*d->shared));
    d->first = mem_new((size_t)n, sizeof(*d->first));
    for (int host = 0; host < topo_record_hosts(record); host++) {
        struct topo_node *node = topo_record_node(record, host, err);

        if (!node)
            return -1;
        for (int r = 0; r < n; r++)
            if (d->choices.list[r].address[0] && strcmp(comm_host(comm, r), node->host) == 0)
                drive(d, node, r);
        topo_node_free(node);
    }
    for (int i = 0; i < d->cluster->n_devices; i++)
        if (d->cluster->devices[i].rank >= 0)
            d->first[d->n_first++] = d->cluster->devices[i].rank;
    return 0;
}

/* What is not measured, as the first rank says why. */
static char *note_of(const struct driving *d, struct comm *comm)
{
    const char *what = d->n_ranks < 2 ? "not measured: " : "";
    int without = 0, first = -1;

    for (int r = 0; r < d->choices.n; r++)
        if (d->choices.list[r].why) {
            first = first < 0 ? r : first;
            without++;
        }
    if (first >= 0 && without > 1)
        return mem_printf("%srank %d (%s) and %d more take no part: %s", what, first,
                          comm_host(comm, first), without - 1, d->choices.list[first].why);
    if (first >= 0)
        return mem_printf("%srank %d (%s) takes no part: %s", what, first,
                          comm_host(comm, first), d->choices.list[first].why);
    return d->n_ranks < 2 ? mem_strdup("not measured: one rank alone has a GPU") : NULL;
}

static bool uses_nccl(const struct driving *d)
{
    return d->use != NCCL_NOWHERE && d->choices.nccl[0] && d->n_first > 1;
}

static char *library_of(const struct driving *d)
{
    if (uses_nccl(d))
        return mem_printf("NCCL %s%s", d->choices.nccl,
                          d->use == NCCL_IN_NODES ? " and, between nodes, hosts" : "");
    return mem_strdup(d->use != NCCL_NOWHERE && d->n_first > 1
                          ? "hosts (there is no NCCL that all ranks have)" : "hosts");
}

static bool is_first(const struct driving *d, int rank)
{
    for (int i = 0; i < d->n_first; i++)
        if (d->first[i] == rank)
            return true;
    return false;
}

/* Who shares a GPU with another rank meets the others by the first of both. */
static int measure_on(struct measuring *m, const struct driving *d, struct gpu *gpu,
                      struct err *err)
{
    bool nccl = uses_nccl(d);
    struct gpu *connected = nccl && is_first(d, comm_rank(m->comm)) ? gpu : NULL;
    struct wire *hosts, *wire;
    int status;

    if (nccl && gpu_connect(m->comm, connected, d->n_first, d->first, err))
        return -1;
    for (int i = 0; i < m->pairs->n_classes; i++) {
        enum cluster_kind kind = m->pairs->classes[i].kind;
        bool by_hosts = !nccl || kind == CLUSTER_DEVICE ||
                        (d->use == NCCL_IN_NODES && kind < CLUSTER_NODE);

        m->pairs->classes[i].way = by_hosts ? "hosts" : "NCCL";
    }
    hosts = gpu ? gpu_wire_hosts(gpu) : NULL;
    wire = connected ? gpu_wire_nccl(connected) : NULL;
    m->hosts_between_nodes = d->use == NCCL_IN_NODES;
    m->host_probe = gpu ? probe_new(m->comm, hosts) : NULL;
    m->probe = gpu ? probe_new(m->comm, wire ? wire : hosts) : NULL;
    status = measure_run(m, err);
    probe_free(m->probe);
    probe_free(m->host_probe);
    wire_free(wire);
    wire_free(hosts);
    return status || (connected && gpu_leave(connected, err)) ? -1 : 0;
}

/* The tree gets what is between its places, the table what is between GPUs so far apart. */
static void apply(const struct measuring *m, const struct driving *d, struct gpu_links *gpus)
{
    struct pairs *places = pairs_by_place(m->pairs);
    struct links *found = links_new(m->cluster, places, m->trials, m->loads, m->full);

    links_apply(found, m->cluster);
    links_free(found);
    pairs_free(places);
    gpus->links = links_new(m->cluster, m->pairs, m->trials, m->loads, m->full);
    gpus->library = library_of(d);
}

static int measure_driven(struct comm *comm, const struct topo_record *record,
                          struct driving *d, bool full, struct gpu_links *gpus, struct err *err)
{
    const char *address = d->choices.list[comm_rank(comm)].address;
    struct measuring m = { .comm = comm, .cluster = d->cluster, .second = d->second,
                           .full = full };
    struct gpu *gpu = NULL;
    size_t bytes;
    int status = -1;

    m.pairs = pairs_choose_gpus(d->cluster, record, d->shared, full, err);
    if (comm_agree(comm, err, !m.pairs))
        return -1;
    bytes = measure_start(&m);
    if (*address)
        gpu = gpu_open(comm, address, bytes, err);
    if (comm_agree(comm, err, *address && !gpu) == 0 && measure_on(&m, d, gpu, err) == 0) {
        apply(&m, d, gpus);
        gpus->cluster = d->cluster;
        d->cluster = NULL;
        status = 0;
        gpu_close(gpu);
    }
    measure_end(&m);
    return status;
}

static int measure_record(struct comm *comm, const struct topo_record *record, bool own,
                          bool full, struct driving *d, struct gpu_links *gpus, struct err *err)
{
    int status;

    if (gpu_choose(comm, own, NULL, &d->choices, err))
        return -1;
    d->cluster = model_of_record(record, "GPUs of this allocation", err);
    status = d->cluster ? drive_all(d, comm, record, err) : -1;
    if (comm_agree(comm, err, status != 0))
        return -1;
    gpus->note = note_of(d, comm);
    return d->n_ranks < 2 ? 0 : measure_driven(comm, record, d, full, gpus, err);
}

int measure_gpus(struct comm *comm, const struct topo_record *record, enum measure how,
                 enum nccl_use use, struct gpu_links **gpus, struct err *err)
{
    struct driving d = { .use = use };
    struct gpu_links *found;
    bool own;
    int any = has_gpus(record, comm_host(comm, comm_rank(comm)), &own, err), status;

    *gpus = NULL;
    if (comm_agree(comm, err, any < 0))
        return -1;
    if (any == 0)
        return 0;
    found = mem_new(1, sizeof(*found));
    status = measure_record(comm, record, own, how == MEASURE_FULL, &d, found, err);
    gpu_choices_clear(&d.choices);
    cluster_free(d.cluster);
    free(d.second);
    free(d.shared);
    free(d.first);
    if (status == 0)
        *gpus = found;
    else
        gpu_links_free(found);
    return status;
}
