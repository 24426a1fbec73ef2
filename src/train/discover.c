/* SPDX-License-Identifier: MIT */
#include "train/discover.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/gather.h"

/* A lone process may describe a machine on which it does not run. */
static struct cluster *merge(struct comm *comm, const struct topo_node *node,
                             const void *const *parts, const size_t *sizes, struct err *err)
{
    int n = comm_size(comm);
    const char **hosts = mem_new((size_t)n, sizeof(*hosts));
    struct cluster *cluster;

    for (int r = 0; r < n; r++)
        hosts[r] = n > 1 ? comm_host(comm, r) : node->host;
    cluster = gather_merge(n, hosts, parts, sizes, n > 1 ? "this allocation" : "this node",
                           err);
    free(hosts);
    return cluster;
}

bool discover_is_first(const struct comm *comm)
{
    int rank = comm_rank(comm);

    for (int r = 0; r < rank; r++)
        if (comm_same_host(comm, r, rank))
            return false;
    return true;
}

struct cluster *discover_cluster(struct comm *comm, const struct topo_node *node,
                                 enum measure measure, struct links **links, struct err *err)
{
    int n = comm_size(comm);
    const void **parts = mem_new((size_t)n, sizeof(*parts));
    size_t *sizes = mem_new((size_t)n, sizeof(*sizes)), size = 0;
    struct cluster *cluster = NULL;
    void *block = NULL;
    char *text = gather_pack(node, discover_is_first(comm), &size, err);

    if (comm_agree(comm, err, !text) ||
        comm_exchange(comm, text, size, &block, parts, sizes, err))
        goto out;
    cluster = merge(comm, node, parts, sizes, err);
    if (comm_agree(comm, err, !cluster) ||
        (measure != MEASURE_NONE && n > 1 &&
         measure_links(comm, cluster, measure, links, err))) {
        cluster_free(cluster);
        cluster = NULL;
    }
out:
    free(text);
    free(block);
    free(parts);
    free(sizes);
    return cluster;
}
