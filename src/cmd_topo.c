/* SPDX-License-Identifier: MIT */
/* tasuki topo: this node; under srun or mpirun, the allocation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/option.h"
#include "comm/comm.h"
#include "commands.h"
#include "topology/cluster.h"
#include "topology/node.h"
#include "topology/report.h"
#include "train/discover.h"

enum { MEASURE_QUICK, MEASURE_NONE };
enum { FORMAT_TEXT, FORMAT_JSON };

struct request {
    int format, measure;
    const char *input, *output;
};

static int read_request(const struct options *options, struct request *request,
                        struct err *err)
{
    if (option_word(options, "format", &request->format, err) ||
        option_word(options, "measure", &request->measure, err))
        return -1;
    request->input = option_string(options, "input", NULL);
    request->output = option_string(options, "output", "-");
    return 0;
}

static char *text_report(const struct comm *comm, const struct topo_node *node,
                         const struct cluster *cluster)
{
    char *hardware = report_node(node), *tree = report_cluster(cluster), *text;

    if (comm_size(comm) > 1)
        text = mem_printf("%s\n%s  %-26s %s\n", hardware, tree, "library", comm_library(comm));
    else
        text = mem_printf("%s\n%s", hardware, tree);
    free(hardware);
    free(tree);
    return text;
}

static int write_report(const struct request *request, const struct comm *comm,
                        const struct topo_node *node, const struct cluster *cluster,
                        struct err *err)
{
    char *text;
    int status;

    if (request->format == FORMAT_JSON)
        return cluster_save(cluster, request->output, err);
    text = text_report(comm, node, cluster);
    status = file_write(request->output, text, strlen(text), err);
    free(text);
    return status;
}

/* Rank 0 writes, and all learn whether it could. */
static int report(const struct request *request, struct comm *comm,
                  const struct topo_node *node, struct err *err)
{
    struct cluster *cluster =
        discover_cluster(comm, node, request->measure == MEASURE_QUICK, err);
    int status = 0;

    if (!cluster)
        return -1;
    if (comm_rank(comm) == 0)
        status = write_report(request, comm, node, cluster, err);
    cluster_free(cluster);
    return comm_agree(comm, err, status != 0);
}

static int with_ranks(const struct request *request, const struct topo_node *node,
                      struct err *err)
{
    struct launch launch;
    struct comm *comm;
    int status;

    /* A described machine is nobody's allocation. */
    if (request->input)
        launch = (struct launch){ .kind = LAUNCH_ALONE };
    else if (launch_detect(&launch, err))
        return -1;
    comm = comm_open(&launch, err);
    if (!comm)
        return -1;
    status = report(request, comm, node, err);
    if (status) {
        comm_follow(comm, err);
        return -1;
    }
    comm_close(comm);
    return 0;
}

int cmd_topo(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_TOPO, argc, argv, 0, err);
    struct request request;
    struct topo_node *node = NULL;
    int status = -1;

    if (!options)
        return (int)err->code;
    if (read_request(options, &request, err) == 0 &&
        (node = topo_node_discover(request.input, err)))
        status = with_ranks(&request, node, err);
    topo_node_free(node);
    options_free(options);
    return status ? (int)err->code : EXIT_OK;
}
