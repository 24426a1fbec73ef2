/* SPDX-License-Identifier: MIT */
/* What a check found: on which node, or with which of its tasks, by what evidence, and what may
 * be done about it.
 */
#ifndef TASUKI_TOPOLOGY_FINDINGS_H
#define TASUKI_TOPOLOGY_FINDINGS_H

#include <jansson.h>

struct finding {
    char *host;
    char *ranks;            /* "0-3": it is about these tasks, and no reason to do without the
                             * node; "": about the process itself; NULL: about the node */
    char *what;             /* "GPU3: NVLinks up" */
    char *evidence;         /* "17 of 18; 63 of 64 siblings have 18 of 18" */
    const char *advice;
};

/* What is told whether or not anything is wrong. */
struct remark {
    char *text, *host;      /* the first that it is about, */
    int n_hosts;            /* of so many */
};

struct findings {
    int n, n_hosts;         /* n_hosts: how many were looked at */
    struct finding *list;   /* by host, in the order of the record */
    int n_remarks;
    struct remark *remarks;
};

struct findings *findings_new(int n_hosts);
void findings_free(struct findings *findings);
/* Takes over 'evidence', copies 'host' and 'ranks'; what follows is 'what' as for printf(). */
void findings_add(struct findings *findings, const char *host, const char *ranks,
                  const char *advice, char *evidence, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* Takes over 'text'; the same of several hosts is one remark. */
void findings_remark(struct findings *findings, const char *host, char *text);

/* Remarks first, then node by node; what the tasks of many nodes have in common is told once. Then the --exclude=
 * list of the nodes with findings of their own. malloc'ed.
 */
char *findings_text(const struct findings *findings);
json_t *findings_to_json(const struct findings *findings);

#endif
