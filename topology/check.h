/* SPDX-License-Identifier: MIT */
/* Which nodes are not well: by what they say of themselves, and by what their siblings have.
 *
 * Siblings are the nodes with the same processor and the same GPUs. Of each feature the value
 * that most of them have is taken for right; where as many have another, the better one.
 * What a node did not collect is never held against it, but that it could not be collected is.
 */
#ifndef TASUKI_TOPOLOGY_CHECK_H
#define TASUKI_TOPOLOGY_CHECK_H

#include <jansson.h>

struct err;
struct topo_node;
struct topo_record;

struct finding {
    char *host;
    char *what;             /* "GPU3: NVLinks up" */
    char *evidence;         /* "17 of 18; 63 of 64 siblings have 18 of 18" */
    const char *advice;
};

struct findings {
    int n, n_hosts;         /* n_hosts: how many were looked at */
    struct finding *list;   /* by host, in the order of the record */
};

struct findings *topo_check(const struct topo_record *record, struct err *err);
void findings_free(struct findings *findings);
/* With the --exclude= list; malloc'ed. */
char *findings_text(const struct findings *findings);
json_t *findings_to_json(const struct findings *findings);

/* What differs between two nodes, a line each; "" where nothing does. '*n' lines. malloc'ed. */
char *topo_diff(const struct topo_node *a, const struct topo_node *b, int *n);

#endif
