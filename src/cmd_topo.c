/* SPDX-License-Identifier: MIT */
/* tasuki topo: this node; under srun or mpirun, the allocation; what a file describes, or what
 * Slurm knows of a job or partition.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/option.h"
#include "comm/comm.h"
#include "cmd_topo.h"
#include "commands.h"
#include "scheduler/slurm/slurm.h"
#include "topology/check.h"
#include "topology/cluster.h"
#include "topology/describe.h"
#include "topology/gather.h"
#include "topology/gpu_links.h"
#include "topology/links.h"
#include "topology/machine.h"
#include "topology/node_read.h"
#include "topology/record.h"
#include "topology/report.h"
#include "topology/task.h"
#include "train/discover.h"
#include "train/job_nodes.h"

static int read_request(const struct options *options, struct request *request,
                        struct err *err)
{
    int operands = options_operands(options);

    *request = (struct request){
        .check = option_flag(options, "check", false),
        .diff = option_flag(options, "diff", false),
        .measure_asked = option_origin(options, "measure") == OPTION_COMMAND_LINE,
        .input = option_string(options, "input", NULL),
        .machine = option_string(options, "save-machine", NULL),
        .elsewhere = option_given(options, "output"),
        .force = option_flag(options, "force", false),
        .output = option_string(options, "output", "-"),
        .job = option_string(options, "job", NULL),
        .partition = option_string(options, "partition", NULL),
        .one = operands > 0 ? options_operand(options, 0) : NULL,
        .other = operands > 1 ? options_operand(options, 1) : NULL,
    };
    if (option_word(options, "format", &request->format, err) ||
        option_word(options, "measure", &request->measure, err) ||
        option_word(options, "comm", &request->nccl, err))
        return -1;
    if (!option_given(options, "comm"))
        request->nccl = NCCL_EVERYWHERE;
    if (operands != (request->diff ? 2 : 0))
        return err_set_code(err, EXIT_USAGE, request->diff
                                ? "--diff compares two: files, or nodes of --input"
                                : "only --diff takes operands, got \"%s\"", request->one);
    if (!!request->job + !!request->partition + !!request->input > 1)
        return err_set_code(err, EXIT_USAGE, "--job, --partition and --input each describe "
                            "something else: give one of them");
    if ((request->job || request->partition) && (request->check || request->diff))
        return err_set_code(err, EXIT_USAGE, "what --check and --diff need, Slurm does not know: "
                            "use srun tasuki topo --check");
    if (request->measure_asked && request->measure != MEASURE_NONE &&
        (request->input || request->job || request->partition || request->diff))
        return err_set_code(err, EXIT_USAGE, "--measure is about the ranks that are here: not "
                            "with --input, --job, --partition or --diff");
    if (request->check && request->diff)
        return err_set_code(err, EXIT_USAGE, "--check and --diff ask for different things: give "
                            "one of them");
    if (request->force && !request->machine)
        return err_set_code(err, EXIT_USAGE, "--force goes with --save-machine");
    if (request->machine && (request->check || request->diff || request->format ||
                             request->job || request->partition))
        return err_set_code(err, EXIT_USAGE, "--save-machine writes a description of what is "
                            "here, or of --input, and no report beside it");
    if ((request->check || request->diff) && request->format > FORMAT_JSON)
        return err_set_code(err, EXIT_USAGE, "--check and --diff are text or JSON");
    return 0;
}

int topo_save_text(const struct request *request, char *text, struct err *err)
{
    int status;

    for (char *c = text; c && *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\n') || *c == 0x7f)
            *c = '?';
    status = text ? file_write(request->output, text, strlen(text), err) : -1;
    free(text);
    return status;
}

static int save_json(const struct request *request, const struct view *view, struct err *err)
{
    json_t *json = cluster_to_json(view->cluster), *nodes = topo_record_to_json(view->record);
    int status;

    if (!json || !nodes)
        return err_set(err, "%s: out of memory", request->output);
    if (view->tasks)
        json_object_set_new(json, "tasks", topo_tasks_to_json(view->tasks));
    if (view->facts)
        json_object_set_new(json, "slurm", slurm_facts_to_json(view->facts));
    if (topo_record_hosts(view->record) > 0)
        json_object_set(json, "nodes", nodes);
    if (view->links)
        json_object_set_new(json, "measured", links_to_json(view->links));
    if (view->gpus)
        json_object_set_new(json, "gpus", gpu_links_to_json(view->gpus));
    status = json_save(json, request->output, err);
    json_decref(nodes);
    json_decref(json);
    return status;
}

/* The figures of the tree would all be from tables: it is left to the other formats. */
static char *facts_text_of(const struct view *view, struct err *err)
{
    char *facts = slurm_text(view->facts), *switches, *text = NULL;

    switches = view->cluster ? report_switches(view->record, view->cluster, err)
                             : mem_strdup("");
    if (switches)
        text = mem_printf("%s%s", facts, switches);
    free(facts);
    free(switches);
    return text;
}

static char *text_of(const struct view *view, struct err *err)
{
    char *nodes = report_record(view->record, err), *switches, *tasks, *tree, *links, *gpus;
    char *library, *text;

    switches = nodes ? report_switches(view->record, view->cluster, err) : NULL;
    if (!switches) {
        free(nodes);
        return NULL;
    }
    tasks = view->tasks ? topo_tasks_text(view->tasks) : NULL;
    tree = report_cluster(view->cluster);
    links = view->links ? links_text(view->links, "links") : mem_strdup("");
    library = view->library ? mem_printf("  %-26s %s\n", "library", view->library)
                            : mem_strdup("");
    gpus = view->gpus ? gpu_links_text(view->gpus) : mem_strdup("");
    text = mem_printf("%s%s%s%s%s%s%s%s%s%s", view->job ? view->job : "",
                      view->job ? "\n\n" : "", nodes, switches, tasks ? tasks : "",
                      tasks ? "\n" : "", tree, links, library, gpus);
    free(gpus);
    free(library);
    free(links);
    free(nodes);
    free(switches);
    free(tasks);
    free(tree);
    return text;
}

/* NCCL's file is of one node: the first, which the others should be like. */
static char *nccl_of(const struct topo_record *record, struct err *err)
{
    struct topo_node *node = NULL;
    char *text;

    if (topo_record_hosts(record) == 0)
        err_set(err, "there is no node in it, only a tree");
    else
        node = topo_record_node(record, 0, err);
    if (!node)
        return NULL;
    text = report_nccl(node, err);
    topo_node_free(node);
    return text;
}

static int save_check(struct request *request, const struct view *view, struct err *err)
{
    struct findings *findings;
    int status = -1;
    json_t *json;

    if (request->input && topo_view_need_hardware(view, request->input, err))
        return -1;
    findings = topo_check(view->record, view->tasks, view->links,
                          view->gpus ? view->gpus->links : NULL, err);
    if (!findings)
        return -1;
    request->found = findings->n > 0;
    if (request->format == FORMAT_JSON) {
        json = findings_to_json(findings);
        status = json_save(json, request->output, err);
        json_decref(json);
    } else {
        status = topo_save_text(request, findings_text(findings), err);
    }
    findings_free(findings);
    return status;
}

/* How many nodes of this job's partition are like its own, as far as Slurm knows; 0: nobody
 * does.
 */
static int nodes_of_partition(const struct slurm_facts *facts, const struct topo_record *record)
{
    const struct slurm_node *own = NULL;
    int n = 0;

    for (int i = 0; facts && i < facts->n_nodes && !own; i++)
        if (topo_record_find(record, facts->nodes[i].name) >= 0)
            own = &facts->nodes[i];
    for (int i = 0; own && i < facts->n_nodes; i++) {
        const struct slurm_node *node = &facts->nodes[i];

        n += node->sockets == own->sockets && node->cores == own->cores &&
             node->threads == own->threads && strcmp(node->gres, own->gres) == 0;
    }
    return n;
}

static int write_description(const struct request *request, const struct view *view,
                             const char *path, struct err *err)
{
    bool exists = strcmp(path, "-") != 0 && access(path, F_OK) == 0;
    bool measured = view->gpus && view->gpus->links;
    struct err ignored = { 0 };
    json_t *json, *older;
    int status;

    if (exists && !request->force)
        return err_set(err, "%s exists: --force replaces it", path);
    json = describe_machine(request->machine, measured ? view->gpus->cluster : view->cluster,
                            view->record, err);
    if (!json)
        return -1;
    if (!request->input)
        json_object_set_new(json, "extend_to", json_integer(
            nodes_of_partition(request->facts, view->record)));
    older = exists ? json_load(path, &ignored) : NULL;
    describe_keep(json, older);
    status = json_save(json, path, err);
    json_decref(older);
    json_decref(json);
    if (status == 0)
        log_info("%s describes %s: --cluster %s:N are N of its nodes", path, request->machine,
                 request->elsewhere ? path : request->machine);
    return status;
}

static int save_machine(const struct request *request, const struct view *view,
                        struct err *err)
{
    char *path = request->elsewhere ? mem_strdup(request->output)
                                    : machine_save_path(request->machine, err);
    int status = path ? write_description(request, view, path, err) : -1;

    free(path);
    return status;
}

static int refuse_empty(const struct slurm_facts *facts, struct err *err)
{
    char *title = slurm_title(facts);

    err_set(err, "%s is %s and has no nodes", title, facts->state);
    free(title);
    return -1;
}

static int write_report(struct request *request, const struct view *view, struct err *err)
{
    if (request->machine)
        return save_machine(request, view, err);
    if (!view->cluster && request->format != FORMAT_TEXT)
        return refuse_empty(view->facts, err);
    if (view->facts && request->format == FORMAT_TEXT && !request->check)
        return topo_save_text(request, facts_text_of(view, err), err);
    if (request->check)
        return save_check(request, view, err);
    switch (request->format) {
    case FORMAT_JSON: return save_json(request, view, err);
    case FORMAT_SVG:
        return topo_save_text(request, report_svg(view->record, view->cluster, err), err);
    case FORMAT_DOT:
        return topo_save_text(request, report_dot(view->record, view->cluster, err), err);
    case FORMAT_NCCL: return topo_save_text(request, nccl_of(view->record, err), err);
    default: return topo_save_text(request, text_of(view, err), err);
    }
}

static int report_input(struct request *request, struct err *err)
{
    struct view view = { 0 };
    int status = topo_view_input(request->input, &view, err);

    if (status == 0)
        status = write_report(request, &view, err);
    topo_view_close(&view);
    return status;
}

/* From a login node, or from wherever slurmctld can be reached. */
static int report_slurm(struct request *request, struct err *err)
{
    struct view view = { .facts = request->job ? slurm_ask_job(request->job, err)
                                               : slurm_ask_partition(request->partition, err) };
    int status = view.facts ? topo_view_facts(&view, err) : -1;

    if (status == 0)
        status = write_report(request, &view, err);
    topo_view_close(&view);
    return status;
}

/* Every rank tells every rank what it may use, the first of each host its node as well. */
static int gather_view(struct comm *comm, struct topo_node *node, struct view *view,
                       struct err *err)
{
    int n = comm_size(comm), status = -1;
    const void **parts = mem_new((size_t)n, sizeof(*parts));
    size_t *sizes = mem_new((size_t)n, sizeof(*sizes)), size = 0;
    void *block = NULL;
    char *text;

    /* The launcher's name: virtual nodes share a machine, and its. */
    if (n > 1)
        topo_node_set_text(&node->host, comm_host(comm, comm_rank(comm)));
    text = gather_pack(node, discover_is_first(comm), &size, err);
    if (comm_agree(comm, err, !text) == 0 &&
        comm_exchange(comm, text, size, &block, parts, sizes, err) == 0) {
        view->record = gather_record_of(n, parts, sizes, err);
        if (view->record && n > 1)
            view->tasks = gather_tasks(view->record, n, parts, sizes, err);
        status = comm_agree(comm, err, !view->record || (n > 1 && !view->tasks));
    }
    free(text);
    free(block);
    free(parts);
    free(sizes);
    return status;
}

static int view_ranks(const struct request *request, struct comm *comm,
                      struct topo_node *node, struct view *view, struct err *err)
{
    if (comm_size(comm) == 1 && node->n_gpus > 0)
        return topo_view_node(node, view, err);
    if (gather_view(comm, node, view, err))
        return -1;
    view->cluster = discover_cluster(comm, node, (enum measure)request->measure, &view->links,
                                     err);
    if (!view->cluster || comm_size(comm) == 1)
        return view->cluster ? 0 : -1;
    view->library = comm_library(comm);
    return request->measure == MEASURE_NONE
               ? 0 : measure_gpus(comm, view->record, (enum measure)request->measure,
                                  (enum nccl_use)request->nccl, &view->gpus, err);
}

/* Slurm's are in its own facts. */
static void find_job(struct view *view)
{
    struct err err = { 0 };
    struct job_nodes nodes;

    if (job_nodes_read(&nodes, &err) < 0)
        log_warning("the nodes of this job are not known: %s", err.text);
    else if (nodes.variable)
        view->job = job_nodes_title(&nodes);
    job_nodes_clear(&nodes);
}

/* Rank 0 writes, and all learn whether it could. */
static int report(struct request *request, struct comm *comm,
                  struct topo_node *node, struct err *err)
{
    struct view view = { 0 };
    int status = view_ranks(request, comm, node, &view, err);

    if (status == 0) {
        if (comm_rank(comm) == 0) {
            find_job(&view);
            status = write_report(request, &view, err);
        }
        status = comm_agree(comm, err, status != 0);
    }
    topo_view_close(&view);
    return status;
}

static int report_ranks(struct request *request, struct topo_node *node,
                        struct err *err)
{
    struct launch launch;
    struct comm *comm;
    int status;

    if (launch_detect(&launch, err))
        return -1;
    comm = comm_open(&launch, err);
    if (!comm)
        return -1;
    log_set_rank(comm_rank(comm));
    if (comm_size(comm) == 1 && request->measure_asked && request->measure != MEASURE_NONE)
        log_warning("--measure: one rank alone has nobody to send to, nothing is measured: "
                    "start several by srun or mpirun");
    status = report(request, comm, node, err);
    if (status) {
        comm_follow(comm, err);
        return -1;
    }
    comm_close(comm);
    return 0;
}

/* Inside a job, where the task's environment does not name them. */
static void find_switches(struct topo_node *node)
{
    const char *job = getenv("SLURM_JOB_ID"), *recorded = getenv("HWLOC_XMLFILE");

    if (job && *job && !node->switches[0] && !(recorded && *recorded))
        slurm_find_switches(node, job, getenv("SLURMD_NODENAME"));
}

/* The launcher's PMIx is outside of a container, and the one of tasuki-mpi.so in it. */
static void find_pmix(struct topo_node *node)
{
    struct err ignored = { 0 };
    void *module = node->container[0] ? module_open("mpi", &ignored) : NULL;
    const char *(*version)(void) = NULL;

    if (module)
        *(void **)&version = module_symbol(module, "tasuki_pmix_version", &ignored);
    if (version)
        topo_node_set_text(&node->pmix_client, version());
}

/* The node is read before any rank is, since that may start a child process. */
static int report_here(struct request *request, struct err *err)
{
    const char *partition = getenv("SLURM_JOB_PARTITION"), *rank = getenv("SLURM_PROCID");
    struct topo_node *node = topo_node_discover(NULL, err);
    struct err ignored = { 0 };
    int status;

    if (request->machine && partition && (!rank || strcmp(rank, "0") == 0))
        request->facts = slurm_ask_partition(partition, &ignored);
    if (node) {
        find_switches(node);
        find_pmix(node);
    }
    status = node ? report_ranks(request, node, err) : -1;
    slurm_facts_free(request->facts);
    topo_node_free(node);
    return status;
}

int cmd_topo(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_TOPO, argc, argv, 2, err);
    struct request request = { 0 };
    int status = -1;

    if (!options)
        return (int)err->code;
    /* A described machine is nobody's allocation. */
    if (read_request(options, &request, err) == 0)
        status = request.diff                         ? topo_report_diff(&request, err)
                 : request.input                      ? report_input(&request, err)
                 : request.job || request.partition   ? report_slurm(&request, err)
                                                      : report_here(&request, err);
    options_free(options);
    return status ? (int)err->code : request.found ? EXIT_FOUND : EXIT_OK;
}
