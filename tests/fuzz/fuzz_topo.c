/* SPDX-License-Identifier: MIT */
/* Hostile topology files. What is accepted is asked about as the planner would. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "fuzz.h"
#include "scheduler/slurm/slurm.h"
#include "topology/check.h"
#include "topology/cluster.h"
#include "topology/describe.h"
#include "topology/gpu_links.h"
#include "topology/model.h"
#include "topology/node_read.h"
#include "topology/record.h"
#include "topology/report.h"
#include "topology/task.h"

static const char *const keys[] = {
    "kind", "name", "bandwidth", "origin", "latency", "latency_origin", "cores", "children",
    "id", "device", "memory", "flops", "memory_bandwidth", "rank", "schema", "version", "root",
    "efficiency", "algorithm", "allreduce", "bandwidth_factor", "latency_factor", "colour",
    "names", "nodes", "hosts",
    "own", "node", "gpus", "nics", "pcis", "parent", "address", "links", "remote", "p2p",
    "usable", "visible", "numas", "migs", "uuid", "flow_bandwidth", "tasks", "shown", "host",
    "slurm", "switches", "given", "gres", "level", "time_left", "sockets", "job", "eager",
    "bytes", "copy_bandwidth", "measured", "classes", "seconds", "slowest", "slow", "pair",
    "usual", "count", "extend_to", "source", "storage", "slow_down", "client_bandwidth",
    "local_size", "cluster", "way", "library", "note", "",
};

static const char *const words[] = {
    "root", "switch", "node", "island", "device", "measured", "reported", "table", "cpu", "",
    "n1/cpu0", "tasuki-topo", "a/b/c", "\xc3\xa9", "leaf", "/a/b/c/d/e/f/g", "gpu:x:9(IDX:0-8)",
    "gpu:((", ",,gpu:99999", "n1", "a#", "/b#", "tree", "best",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static json_t *hostile_value(struct fuzz *fuzz)
{
    switch (fuzz_below(fuzz, 7)) {
    case 0: return json_integer(fuzz_number(fuzz));
    case 1: return json_real(ldexp(1, (int)fuzz_below(fuzz, 2000) - 1000));
    case 2: return json_real(-(double)fuzz_below(fuzz, 10));
    case 3: return json_string(words[fuzz_below(fuzz, COUNT(words))]);
    case 4: return json_array();
    case 5: return json_object();
    default: return fuzz_once_in(fuzz, 2) ? json_null() : json_boolean(fuzz_once_in(fuzz, 2));
    }
}

/* An object or array in 'value', chosen at random; NULL: there is none. */
static json_t *inner(struct fuzz *fuzz, json_t *value)
{
    json_t *found = NULL, *each;
    const char *key;
    size_t i, n = 0;

    if (json_is_object(value))
        json_object_foreach(value, key, each) {
            if ((json_is_object(each) || json_is_array(each)) && fuzz_below(fuzz, ++n) == 0)
                found = each;
        }
    else
        json_array_foreach(value, i, each)
            if ((json_is_object(each) || json_is_array(each)) && fuzz_below(fuzz, ++n) == 0)
                found = each;
    return found;
}

/* An object somewhere in the file. */
static json_t *pick(struct fuzz *fuzz, json_t *top)
{
    json_t *object = top, *at = top;

    while ((at = inner(fuzz, at)) && !fuzz_once_in(fuzz, 8))
        if (json_is_object(at))
            object = at;
    return object;
}

static void mutate(struct fuzz *fuzz, json_t *top)
{
    json_t *object = pick(fuzz, top);
    json_t *children = json_object_get(object, "children");
    const char *key = keys[fuzz_below(fuzz, COUNT(keys))];

    switch (fuzz_below(fuzz, 5)) {
    case 0:
        json_object_del(object, key);
        break;
    case 1:     /* the same subtree twice: ids that are not unique */
        if (json_array_size(children) > 0)
            json_array_append_new(children, json_deep_copy(json_array_get(children, 0)));
        break;
    case 2:     /* deeper */
        if (json_is_array(children)) {
            json_t *inner = json_pack("{s:s, s:s, s:o}", "kind", "switch", "name", "s",
                                      "children", json_deep_copy(children));

            json_array_clear(children);
            json_array_append_new(children, inner);
        }
        break;
    default:
        json_object_set_new(object, key, hostile_value(fuzz));
    }
}

static void add_gpu(struct topo_node *node, int i)
{
    char address[32];
    struct topo_gpu *gpu;
    struct topo_nvlink *link;

    snprintf(address, sizeof(address), "0000:%02x:00.0", 0x11 + i);
    topo_node_add_pci(node, TOPO_PCI_DEVICE, address)->parent = 1;
    gpu = topo_node_add_gpu(node, address);
    topo_node_set_text(&gpu->name, "Tesla V100-SXM2-32GB");
    topo_node_set_text(&gpu->p2p, i ? "KX" : "XK");
    gpu->memory = 32e9;
    link = topo_gpu_add_link(gpu, 0);
    link->up = 1;
    link->remote = TOPO_REMOTE_GPU;
    link->bandwidth = 25e9;
    topo_node_set_text(&link->address, i ? "0000:11:00.0" : "0000:12:00.0");
    topo_gpu_add_mig(gpu, "MIG-1");
}

static json_t *valid_nodes(void)
{
    struct topo_record *record = topo_record_new();
    struct err err = { 0 };
    json_t *json;

    for (int n = 0; n < 3; n++) {
        struct topo_node *node = topo_node_new();
        struct topo_nic *nic;

        topo_node_set_text(&node->host, n == 0 ? "n0" : n == 1 ? "n1" : "n2");
        node->cores = node->pus = 8 + n / 2;
        node->numa_nodes = 2;
        topo_node_set_text(&topo_node_add_numa(node, 0)->cpus, "0-3");
        topo_node_add_pci(node, TOPO_PCI_HOST, "0000:[10-1f]");
        topo_node_add_pci(node, TOPO_PCI_BRIDGE, "0000:10:01.0")->parent = 0;
        add_gpu(node, 0);
        add_gpu(node, 1);
        nic = topo_node_add_nic(node, "mlx5_0", 1);
        nic->hca = true;
        topo_node_set_text(&nic->address, "0000:13:00.0");
        topo_record_add_node(record, node, &err);
        topo_node_free(node);
    }
    json = topo_record_to_json(record);
    topo_record_free(record);
    return json;
}

static json_t *valid_tasks(void)
{
    return json_pack("[{s:i, s:s, s:s, s:[i], s:s}, {s:i, s:s, s:s, s:[i,i]}, {s:i, s:s}]",
                     "rank", 0, "host", "n0", "usable", "0-3", "visible", 1, "shown", "1",
                     "rank", 1, "host", "n0", "usable", "2,4-5", "visible", 0, 1,
                     "rank", 2, "host", "n2");
}

static json_t *valid_slurm(void)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:[{s:s, s:s, s:s, s:i, s:i, s:i}, {s:s}],"
                     " s:[{s:s, s:[s,s]}, {s:s, s:i, s:[s]}]}",
                     "job", "7", "topology", "topology/tree", "state", "running", "time_left",
                     (json_int_t)90061, "nodes", "name", "n1", "gres", "gpu:p100:4(S:0-1),nic:1",
                     "given", "gpu:p100:2(IDX:0,3)", "sockets", 2, "cores", 8, "threads", 2,
                     "name", "n2", "switches", "name", "leaf", "nodes", "n1", "n2", "name",
                     "spine", "level", 1, "switches", "leaf");
}

/* Places that stand for several, under two levels of switches. */
static json_t *machine(void)
{
    static const char text[] =
        "{'schema': 'tasuki-topo', 'version': 1, 'name': 'm', 'source': 's', 'extend_to': 40,"
        " 'storage': {'bandwidth': 1e9, 'slow_down': 0.1, 'source': {'bandwidth': 's'}},"
        " 'root': {'latency': 2e-6, 'children': [{'kind': 'switch', 'name': 'spine',"
        "  'children': [{'kind': 'switch', 'name': 'leaf#', 'count': 3, 'bandwidth': 4e9,"
        "   'source': 's', 'children': [{'kind': 'node', 'name': 'n#', 'count': 4, 'cores': 4,"
        "    'bandwidth': 1e9, 'source': {'cores': 's'}, 'children': [{'kind': 'device',"
        "     'id': '/cpu#', 'count': 2, 'device': 'cpu', 'memory': 1e9, 'cores': 2}]}]}]}]}}";
    char *copy = mem_strdup(text);
    json_t *json;

    for (char *quote = copy; (quote = strchr(quote, '\''));)
        *quote = '"';
    json = json_loads(copy, 0, NULL);
    free(copy);
    return json;
}

static json_t *valid_gpus(const struct cluster *cluster)
{
    json_t *class = json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:[f, f], s:s, s:f}", "class",
                              "NV4", "way", "NCCL", "pairs", 1, "latency", 1e-5, "bandwidth",
                              1e10, "error", 0.1, "noise", 0.1, "seconds", 1e-5, 2e-5, "slowest",
                              "a - b", "slowest_bandwidth", 1e10);

    return json_pack("{s:o, s:s, s:s, s:{s:s, s:[i, i], s:[o], s:[]}}", "cluster",
                     cluster_to_json(cluster), "library", "NCCL", "note", "x", "measured",
                     "measure", "full", "bytes", 8, 1536, "classes", class, "slow");
}

static json_t *valid(struct fuzz *fuzz)
{
    static const char *const specs[] = {
        "flat:3,bandwidth=1e9,memory=16e9", "tree:2x2,inside=150e9,across=12.5e9",
        "tree:3x1,inside=1e9,across=1e9,latency=1e-6,flops=1e12,memory=1G",
    };
    struct err err = { 0 };
    struct cluster *cluster = cluster_open(specs[fuzz_below(fuzz, COUNT(specs))], &err);
    json_t *json;

    cluster->sum_latency_factor = 1.5;
    cluster->sum_algorithm = (enum allreduce)fuzz_below(fuzz, ALLREDUCE_BEST + 1);
    json = fuzz_once_in(fuzz, 3) ? machine() : cluster_to_json(cluster);
    json_object_set_new(json, "gpus", valid_gpus(cluster));
    cluster_free(cluster);
    json_object_set_new(json, "nodes", valid_nodes());
    json_object_set_new(json, "tasks", valid_tasks());
    json_object_set_new(json, "slurm", valid_slurm());
    return json;
}

static void make(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    json_t *json = valid(fuzz);
    size_t n = structured ? 1 + fuzz_below(fuzz, 4) : 0;
    char *text;

    while (n-- > 0)
        mutate(fuzz, json);
    text = json_dumps(json, JSON_INDENT(1));
    fuzz_put(file, text, strlen(text));
    free(text);
    json_decref(json);
    if (!structured)
        fuzz_damage(fuzz, file);
}

/* Must end, whatever the figures are; the results may be anything but nonsense. */
static void use(const struct cluster *c)
{
    int n = c->n_devices < 8 ? c->n_devices : 8, devices[8], wires[16], up;
    char *text = report_cluster(c);
    json_t *json = cluster_to_json(c);

    for (int i = 0; i < n; i++)
        devices[i] = n - 1 - i;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            struct cluster_link link = cluster_link(c, a, b);

            if (!(link.bandwidth > 0) || !(link.latency >= 0) ||
                cluster_route(c, a, b, wires, &up) > 16 || cluster_core_place(c, a) < 0)
                abort();
        }
    if (isnan(cluster_allreduce_time(c, n, devices, 1e6)) || !json)
        abort();
    json_decref(json);
    free(text);
}

static void use_record(const struct topo_record *record, const struct topo_tasks *tasks,
                       const struct cluster *cluster)
{
    struct err err = { 0 };
    struct findings *findings = topo_check(record, tasks, NULL, NULL, &err);

    if (findings)
        free(findings_text(findings));
    findings_free(findings);
    free(topo_tasks_text(tasks));
    json_decref(topo_tasks_to_json(tasks));
    free(report_record(record, &err));
    free(report_switches(record, cluster, &err));
    free(report_svg(record, cluster, &err));
    free(report_dot(record, cluster, &err));
    for (int i = 0; i < topo_record_hosts(record); i++) {
        struct topo_node *node = topo_record_node(record, i, &err);

        if (node) {
            free(report_node(node));
            free(report_nccl(node, &err));
        }
        topo_node_free(node);
    }
    cluster_free(model_of_record(record, "fuzz", &err));
}

/* Returns whether it is what Slurm said; a file without it is fine. */
static bool use_facts(const char *path, const json_t *json, struct err *err)
{
    struct slurm_facts *facts = json ? slurm_facts_from_json(path, json, err) : NULL;
    struct topo_record *record = facts ? slurm_record(facts, err) : NULL;

    if (record) {
        free(slurm_text(facts));
        free(slurm_title(facts));
        json_decref(slurm_facts_to_json(facts));
        cluster_free(model_of_record(record, "fuzz", err));
    }
    topo_record_free(record);
    slurm_facts_free(facts);
    return facts || !json;
}

/* Some of its nodes, and what would be saved of it, which must be good. */
static void use_machine(const char *path, const json_t *json, const struct cluster *all,
                        const struct topo_record *record)
{
    struct err err = { 0 };
    json_t *saved = describe_machine("m", all, record, &err);
    struct cluster *again = saved ? cluster_from_json("saved", saved, 17, &err) : NULL;
    struct cluster *some = cluster_from_json(path, json, 5, &err);

    if (saved && !again)
        abort();
    if (some)
        use(some);
    json_decref(saved);
    cluster_free(again);
    cluster_free(some);
}

/* Returns whether it is what was measured between GPUs; a file without it is fine. */
static bool use_gpus(const char *path, const json_t *json, const struct topo_record *record,
                     struct err *err)
{
    struct gpu_links *gpus = json ? gpu_links_from_json(path, json, err) : NULL;
    struct err ignored = { 0 };

    if (gpus) {
        free(gpu_links_text(gpus));
        json_decref(gpu_links_to_json(gpus));
    }
    if (gpus && gpus->cluster) {
        use(gpus->cluster);
        json_decref(describe_machine("m", gpus->cluster, record, &ignored));
    }
    gpu_links_free(gpus);
    return gpus || !json;
}

static enum fuzz_result try(const char *path, struct err *err)
{
    json_t *json = json_load(path, err);
    struct topo_record *record = NULL;
    struct topo_tasks *tasks = NULL;
    struct cluster *cluster;
    bool known;

    if (!json)
        return FUZZ_UNPARSED;
    known = use_facts(path, json_object_get(json, "slurm"), err);
    cluster = cluster_from_json(path, json, 0, err);
    if (cluster)
        record = topo_record_from_json(path, json_object_get(json, "nodes"), err);
    if (record)
        tasks = topo_tasks_from_json(path, json_object_get(json, "tasks"), err);
    if (tasks) {
        use(cluster);
        use_record(record, tasks, cluster);
        use_machine(path, json, cluster, record);
        known &= use_gpus(path, json_object_get(json, "gpus"), record, err);
    }
    json_decref(json);
    cluster_free(cluster);
    topo_record_free(record);
    topo_tasks_free(tasks);
    return tasks && known ? FUZZ_ACCEPTED : FUZZ_REFUSED;
}

int main(int argc, char **argv)
{
    static const struct fuzz_target target = { "topo", ".json", make, try };

    return fuzz_main(&target, argc, argv);
}
