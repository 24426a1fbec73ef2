/* SPDX-License-Identifier: MIT */
/* What tasuki topo reports, from wherever it is known. */
#include "cmd_topo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "scheduler/slurm/slurm.h"
#include "topology/cluster.h"
#include "topology/gpu_links.h"
#include "topology/links.h"
#include "topology/machine.h"
#include "topology/model.h"
#include "topology/node_read.h"
#include "topology/record.h"
#include "topology/task.h"

void topo_view_close(struct view *view)
{
    topo_record_free(view->record);
    cluster_free(view->cluster);
    slurm_facts_free(view->facts);
    topo_tasks_free(view->tasks);
    links_free(view->links);
    gpu_links_free(view->gpus);
    free(view->job);
}

int topo_view_node(const struct topo_node *node, struct view *view, struct err *err)
{
    view->record = topo_record_new();
    if (topo_record_add_node(view->record, node, err))
        return -1;
    view->cluster = model_of_record(view->record, "this node", err);
    return view->cluster ? 0 : -1;
}

int topo_view_facts(struct view *view, struct err *err)
{
    char *title = slurm_title(view->facts);

    view->record = slurm_record(view->facts, err);
    if (view->record && view->facts->n_nodes > 0)
        view->cluster = model_of_record(view->record, title, err);
    free(title);
    return view->record && (view->cluster || view->facts->n_nodes == 0) ? 0 : -1;
}

/* What Slurm once said. */
static int view_recording(const char *path, struct view *view, struct err *err)
{
    json_t *json = json_load(path, err);

    view->facts = json ? slurm_facts_from_json(path, json, err) : NULL;
    json_decref(json);
    return view->facts ? topo_view_facts(view, err) : -1;
}

/* A topology file: its cluster, and its nodes, tasks and Slurm's facts where it has some. */
static int view_file(const char *path, struct view *view, struct err *err)
{
    struct machine_parts parts;
    int status;

    view->cluster = machine_open(path, &parts, err);
    view->record = parts.record;
    view->tasks = parts.tasks;
    view->links = parts.links;
    view->gpus = parts.gpus;
    if (parts.slurm)
        view->facts = slurm_facts_from_json(path, parts.slurm, err);
    status = view->cluster && (view->facts || !parts.slurm) ? 0 : -1;
    json_decref(parts.slurm);
    return status;
}

int topo_view_input(const char *path, struct view *view, struct err *err)
{
    char *slurm = mem_printf("%s/slurm.json", path);
    bool recorded = access(slurm, F_OK) == 0;
    struct topo_node *node;
    int status = recorded ? view_recording(slurm, view, err) : -1;

    free(slurm);
    if (recorded)
        return status;
    if (access(path, F_OK) == 0 && access(path, R_OK) != 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    if (access(path, F_OK) != 0 || topo_is_json(path))
        return view_file(path, view, err);
    node = topo_node_discover(path, err);
    if (node)
        status = topo_view_node(node, view, err);
    topo_node_free(node);
    return status;
}

int topo_view_need_hardware(const struct view *view, const char *input, struct err *err)
{
    if (view->facts)
        return err_set(err, "%s: what --check and --diff need, Slurm does not know", input);
    if (topo_record_hosts(view->record) == 0)
        return err_set(err, "%s: only the tree of its nodes is described, not their hardware, "
                       "which --check and --diff need", input);
    return 0;
}
