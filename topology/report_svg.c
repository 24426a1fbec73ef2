/* SPDX-License-Identifier: MIT */
#include "topology/report.h"
#include "topology/node.h"
#include "topology/record.h"
#include "topology/svg_node.h"

char *report_svg(const struct topo_record *record, const struct cluster *cluster,
                 struct err *err)
{
    struct topo_node *node;
    char *text;

    if (topo_record_hosts(record) != 1)
        return svg_of_nodes(record, cluster, err);
    node = topo_record_node(record, 0, err);
    text = node ? svg_of_node(node) : NULL;
    topo_node_free(node);
    return text;
}
