/* SPDX-License-Identifier: MIT */
/* What differs between nodes, feature by feature (feature.h). */
#ifndef TASUKI_TOPOLOGY_DIFF_H
#define TASUKI_TOPOLOGY_DIFF_H

#include <jansson.h>

struct err;
struct topo_node;
struct topo_record;

/* Between two nodes, a line each; "" where nothing does. '*n' lines. malloc'ed. */
char *topo_diff(const struct topo_node *a, const struct topo_node *b, int *n);
/* Between the nodes of the same name: [{"host": …, "differences": [lines]}] of those that
 * differ, {"host": …, "only": "one" or "other"} of those that only the first or the second has.
 */
json_t *topo_diff_records(const struct topo_record *one, const struct topo_record *other,
                          struct err *err);
/* Lines as an array of them. Takes over 'lines'. */
json_t *topo_diff_lines(char *lines);

#endif
