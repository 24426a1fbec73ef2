/* SPDX-License-Identifier: MIT */
/* What the files of tasuki topo share. */
#ifndef TASUKI_CMD_TOPO_H
#define TASUKI_CMD_TOPO_H

#include <stdbool.h>

struct err;
struct topo_node;

enum { FORMAT_TEXT, FORMAT_JSON, FORMAT_SVG, FORMAT_DOT, FORMAT_NCCL };

struct request {
    int format, measure;
    int nccl;                   /* enum nccl_use */
    bool check, diff;
    bool measure_asked;         /* it is not the default */
    const char *input, *output, *job, *partition;
    const char *machine;        /* --save-machine */
    bool elsewhere, force;      /* -o says where to save it; it may replace another */
    struct slurm_facts *facts;  /* of the partition whose machine is saved, where known */
    const char *one, *other;    /* what --diff compares */
    bool found;                 /* the check found a problem, or there is a difference */
};

/* What is reported: the nodes, and the cluster that the planner sees. */
struct view {
    struct topo_record *record;
    struct cluster *cluster;
    struct slurm_facts *facts;      /* what Slurm alone knows; NULL: it was not asked */
    char *job;                      /* of PJM, PBS or Grid Engine, and what it has; NULL: none */
    const char *library;    /* of the messages between ranks; NULL: there is one process */
    struct topo_tasks *tasks;       /* NULL: nodes alone were described */
    struct links *links;            /* NULL: nothing was measured */
    struct gpu_links *gpus;         /* NULL: nor was it to be, or there are none */
};

/* A view starts as zeros; after a failure, too, it is to be closed. */
int topo_view_node(const struct topo_node *node, struct view *view, struct err *err);
/* Of the facts of the view. A job that waits has no nodes, and no cluster. */
int topo_view_facts(struct view *view, struct err *err);
/* What a file or a folder describes. */
int topo_view_input(const char *path, struct view *view, struct err *err);
void topo_view_close(struct view *view);
/* What is not collected must not look as if nothing were wrong. */
int topo_view_need_hardware(const struct view *view, const char *input, struct err *err);

/* Takes over 'text'. Names are what a file says: a terminal must not obey them. */
int topo_save_text(const struct request *request, char *text, struct err *err);
int topo_report_diff(struct request *request, struct err *err);

#endif
