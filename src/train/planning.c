/* SPDX-License-Identifier: MIT */
#include "train/planning.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "graph/op.h"
#include "train/beside.h"
#include "train/compile.h"
#include "train/data.h"
#include "train/estimate.h"
#include "train/gpu.h"
#include "train/optimizer.h"
#include "train/plan_names.h"
#include "train/profile.h"

#define MAX_SIZES 4
#define LARGEST 64      /* groups */
#define PROBE 2         /* samples of a graph that is only looked at */

static int64_t largest_divisor(int64_t n, int64_t limit)
{
    for (int64_t d = limit < n ? limit : n; d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

int64_t planning_group(const struct plan_request *request, int n_devices)
{
    int64_t whole = request->micro_batch > 0     ? request->micro_batch
                    : request->micro_batches > 0 ? request->global_batch /
                                                       request->micro_batches
                                                 : request->global_batch;

    if (n_devices == 1)
        return whole > 0 ? whole : 1;
    return largest_divisor(request->global_batch, whole > 0 && whole < 16 ? whole : 16);
}

struct model *planning_model(const char *path, struct err *err)
{
    if (json_is_text(path))
        return model_open(path, err);
    err_set(err, "%s: the name is not UTF-8, so no plan and no checkpoint could hold it: rename "
            "the file or its folder", path);
    return NULL;
}

bool planning_on_gpu(const char *kernels)
{
    return kernels && strncmp(kernels, "cuda", 4) == 0;
}

#define AMPERE 80               /* sm_80: the first with bfloat16 and TF32 */

/* What GPUs before Ampere do not have is 'lacking' there, and what serves then is 'instead'. */
static const struct {
    const char *precision, *backend, *lacking, *instead;
} of_gpus[] = {
    { "tf32", "cuda-tf32", "TF32", "cuda" }, { "bf16", "cuda-bf16", "bfloat16", "cuda-fp16" },
    { "fp16", "cuda-fp16", NULL, NULL },
};

#define N_OF_GPUS (sizeof(of_gpus) / sizeof(of_gpus[0]))

const char *planning_gpu_kernels(const char *precision)
{
    for (size_t i = 0; precision && i < N_OF_GPUS; i++)
        if (strcmp(precision, of_gpus[i].precision) == 0)
            return of_gpus[i].backend;
    return NULL;
}

const char *planning_suited(const char *kernels, const char *gpu, int architecture, bool say)
{
    size_t i = 0;

    while (kernels && i < N_OF_GPUS && strcmp(kernels, of_gpus[i].backend) != 0)
        i++;
    if (!kernels || i == N_OF_GPUS || !of_gpus[i].instead || architecture == 0 ||
        architecture >= AMPERE)
        return kernels;
    if (say)
        log_warning("%s is sm_%d, which has no %s: computed is in %s", gpu, architecture,
                    of_gpus[i].lacking, strcmp(of_gpus[i].instead, "cuda") == 0
                                            ? "float32" : "float16, with loss scaling");
    return of_gpus[i].instead;
}

enum cluster_factors planning_factors(const struct backend *backend)
{
    for (int f = FACTORS_TF32; backend && f < FACTORS; f++)
        if (strcmp(backend->name, planning_gpu_kernels(cluster_factors_names[f])) == 0)
            return (enum cluster_factors)f;
    return FACTORS_FLOAT32;
}

const char *planning_precision(const struct backend *backend, bool float64)
{
    for (size_t i = 0; backend && i < N_OF_GPUS; i++)
        if (strcmp(backend->name, of_gpus[i].backend) == 0)
            return of_gpus[i].precision;
    return float64 ? "float64" : "float32";
}

int planning_kernels(const struct options *options, const char **name, struct err *err)
{
    const char *device, *precision = NULL;
    const char *fast;
    bool gpu;

    if (option_choice(options, "device", &device, err) < 0 ||
        option_choice(options, "backend", name, err) < 0 ||
        (options_takes(options, "precision") &&
         option_choice(options, "precision", &precision, err) < 0))
        return -1;
    fast = planning_gpu_kernels(precision);
    gpu = device ? strcmp(device, "cuda") == 0 : fast && !*name;
    if (fast && !gpu)
        return err_set_code(err, EXIT_USAGE, "--precision %s needs --device cuda", precision);
    if (!gpu)
        return 0;
    if (*name)
        return err_set_code(err, EXIT_USAGE, "--device cuda and --backend %s: that is a backend "
                            "of CPUs: leave one of them out", *name);
    *name = fast ? fast : "cuda";
    return 0;
}

const struct backend *planning_backend(const char *name, bool float64, struct err *err)
{
    const struct backend *backend;

    if (!name)
        name = !float64 && backend_find("cpu") ? "cpu" : "reference";
    backend = backend_find(name);
    if (!backend) {
        err_set_code(err, EXIT_USAGE, "backend \"%s\": not in this build", name);
    } else if (float64 && strcmp(name, "reference") != 0) {
        err_set_code(err, EXIT_USAGE, planning_on_gpu(name)
                                          ? "--precision float64 needs --backend reference: "
                                            "--device cuda computes in float32"
                                          : "--precision float64 needs --backend reference");
        backend = NULL;
    }
    return backend;
}

/* What one replica may get of a micro-batch: sizes to measure, multiples of the groups. Times
 * are proportional beyond the largest, so that has to be one that can come up.
 */
static int choose_sizes(const struct plan_request *q, int64_t sizes[MAX_SIZES])
{
    int64_t group = q->batchnorm_samples ? q->batchnorm_samples : 1;
    int64_t most = q->micro_batch     ? q->micro_batch
                   : q->micro_batches ? q->global_batch / q->micro_batches
                                      : q->global_batch;
    int64_t largest = most / group < LARGEST ? most / group : LARGEST;
    int n = 1;

    for (int64_t size = largest; n < MAX_SIZES && size >= 4; size /= 4)
        n++;
    sizes[n - 1] = (largest > 0 ? largest : 1) * group;
    for (int i = n - 1; i > 0; i--)
        sizes[i - 1] = sizes[i] / group / 4 * group;
    return n;
}

static bool has_speed(const struct cluster_device *device)
{
    bool any = device->flops > 0 || device->memory_bandwidth > 0;

    for (int f = FACTORS_TF32; f < FACTORS; f++)
        any |= device->product_flops[f] > 0;
    return any;
}

/* A cluster that is described with the speed of its devices, or of some, is not this machine. */
static bool is_elsewhere(const struct cluster *cluster)
{
    for (int d = 0; d < cluster->n_devices; d++) {
        const struct cluster_device *device = &cluster->devices[d];

        if (strcmp(device->kind, "cpu") != 0 && has_speed(device))
            return true;
    }
    return false;
}

struct trials_key planning_trials(const struct planning *planning)
{
    const struct planning *p = planning;
    bool ours = !p->cost && !is_elsewhere(p->cluster);

    return (struct trials_key){
        .directory = ours ? p->cache_directory : NULL, .model = model_hash(p->model),
        .backend = p->backend->name, .device = p->backend->device_name(p->device),
        .precision = dtype_name(p->model_options.real), .fuse = p->model_options.fuse,
        .offload = p->request.offload, .nodes = cluster_nodes(p->cluster),
        .devices = p->cluster->n_devices,
    };
}

/* Devices of the first one's node; those of flat: are each by itself. */
static int devices_of_node(const struct cluster *cluster)
{
    int node = cluster->devices[0].node, n = 0;

    if (cluster->places[node].kind != CLUSTER_NODE)
        return 1;
    for (int i = 0; i < cluster->n_devices; i++)
        n += cluster->devices[i].node == node;
    return n;
}

/* Measured on a device of its own, so that the run's peak of memory stays the run's; by what
 * trials have shown.
 */
static struct cost *measure_cost(const struct planning *p, struct err *err)
{
    struct trials_key key = planning_trials(p);
    int64_t sizes[MAX_SIZES];
    struct profile_options options = {
        .model = p->model, .model_options = p->model_options, .backend = p->backend,
        .optimizer = p->optimizer, .offload = p->request.offload, .sizes = sizes,
        .threads = p->threads,
    };
    int n_beside = p->backend->separate
                       ? 0 : beside_count(devices_of_node(p->cluster), p->threads);
    struct beside *beside;
    struct cost *cost;

    options.n_sizes = choose_sizes(&p->request, sizes);
    options.model_options.batchnorm_samples = p->request.batchnorm_samples;
    options.optimizer.dtype = p->model_options.real;
    options.device = p->backend->device_open(p->threads, p->gpu, err);
    if (!options.device)
        return NULL;
    options.timings = timings_open(p->backend, options.device, p->threads, n_beside,
                                   p->cache_directory);
    beside = beside_start(&options, n_beside, p->cache_directory);
    cost = profile_cost(&options, err);
    beside_stop(beside);
    timings_say(options.timings, LOG_DEBUG);
    if (cost)
        trials_apply(&key, cost);
    timings_close(options.timings);
    p->backend->device_close(options.device);
    mem_trim();
    return cost;
}

struct cost *planning_choose(const struct cluster *cluster, int n, const char *const *paths,
                             struct err *err)
{
    int n_kinds;
    const char **kinds = cluster_kinds(cluster, &n_kinds);
    struct cost *cost = cost_choose(n, paths, n_kinds, kinds, err);

    free(kinds);
    return cost;
}

/* Has each kind of device costs of its own, as given, or else as planning_cost() estimates them?
 * Those that have none though others do are the slowest of these: a warning says so.
 */
static bool knows_kinds(const struct cluster *cluster, const struct cost *cost)
{
    int n;
    const char **kinds = cluster_kinds(cluster, &n);
    bool known = cost || (is_elsewhere(cluster) && n <= COST_MOST_KINDS);

    for (int k = 0; k < n && known; k++)
        if (cost)
            known = cost_knows(cost, kinds[k]);
        else if (!estimate_knows(cluster, kinds[k]))
            log_warning("%s: nothing says how fast its devices of kind \"%s\" are: they are taken "
                        "to be as fast as the slowest of the others", cluster->name, kinds[k]);
    free(kinds);
    return known;
}

static const char *taken_kind(const struct cluster *cluster, const struct cost *cost)
{
    if (cost)
        return cost->device;
    return is_elsewhere(cluster) ? cluster_slowest(cluster)->kind : "the one that is measured";
}

/* Devices of the one kind that there is, where the costs name another. What was measured names more
 * than the kind: "NVIDIA H200, sm_90, CUDA 13.0".
 */
static void warn_of_other(const struct cluster *cluster, const struct cost *cost)
{
    const char *kind = cluster->devices[0].kind;

    if (*kind && *cost->device && !strstr(cost->device, kind))
        log_warning("%s has devices of kind \"%s\": they are taken to be as fast as \"%s\", which the "
                    "costs are for", cluster->name, kind, cost->device);
}

void planning_warn(const struct cluster *cluster, const struct cost *cost)
{
    char *text = cluster_mixed(cluster, taken_kind(cluster, cost));

    if (text && !knows_kinds(cluster, cost))
        log_warning("%s", text);
    else if (!text && cost)
        warn_of_other(cluster, cost);
    free(text);
}

void planning_warn_precision(const char *precision, const struct cost *cost)
{
    if (cost && strcmp(cost->precision, precision) != 0)
        log_warning("the costs are of training in %s, in which times and messages are forecast: the plan "
                    "is for %s", cost->precision, precision);
}

static const char *precision_of(const struct planning *p)
{
    return planning_precision(p->backend, p->model_options.real == DTYPE_F64);
}

static struct cost *estimate(const struct planning *p, struct err *err)
{
    int64_t sizes[MAX_SIZES], group = p->request.batchnorm_samples;
    struct built *built;
    const struct graph *graph;
    struct cost *cost = NULL;
    int n;

    built = p->built ? p->built : built_new(p->model, &p->model_options);
    n = choose_sizes(&p->request, sizes);
    graph = built_graph(built, group ? sizes[0] : PROBE, group, err);
    if (graph)
        cost = estimate_kinds(&(struct estimate){
            .graph = graph, .n_sizes = n, .sizes = sizes, .cluster = p->cluster,
            .factors = planning_factors(p->backend),
            .optimizer_states = optimizer_states(p->optimizer.kind) + p->averaged,
            .offloaded = p->request.offload ? optimizer_states(p->optimizer.kind) : 0,
        }, err);
    if (!p->built)
        built_free(built);
    return cost;
}

struct cost *planning_cost(const struct planning *planning, struct err *err)
{
    struct cost *cost = is_elsewhere(planning->cluster) ? estimate(planning, err)
                                                        : measure_cost(planning, err);

    if (cost)
        cost_set_precision(cost, precision_of(planning));
    return cost;
}

static int largest_replica(const struct plan_stage *stage)
{
    int largest = 0;

    for (int r = 1; r < stage->replicas; r++)
        if (stage->samples[r] > stage->samples[largest])
            largest = r;
    return largest;
}

/* The largest replica of a stage, as the runtime will compile it. */
static int memory_of(void *user, const struct plan *plan, int stage, struct memory_use *use,
                     struct err *err)
{
    const struct planning *p = user;
    struct compile_options options = {
        .model = p->model, .model_options = p->model_options, .built = p->built, .plan = plan,
        .backend = p->backend, .device = p->device,
        .optimizer_states = optimizer_resident(p->optimizer.kind, p->averaged, plan->offload),
    };
    struct compiled *compiled = compile_stage(&options, stage,
                                              largest_replica(&plan->stages[stage]), err);

    if (!compiled)
        return -1;
    *use = compiled->memory;
    compiled_free(compiled);
    return 0;
}

static void set_text(char **text, const char *value)
{
    free(*text);
    *text = mem_strdup(value);
}

/* Of all samples of an iteration: forward and backward. 0 where that cannot be told. What memory_of()
 * compiled the first stage from is there still. */
static double iteration_flops(const struct planning *p, const struct plan *plan)
{
    const struct plan_stage *first = &plan->stages[0];
    int64_t batch = first->samples[largest_replica(first)];
    const struct differentiated *d = built_differentiated(p->built, plan, batch, NULL);
    double flops = 0;

    for (int n = 0; d && n < d->graph->n_nodes; n++)
        flops += op_flops(d->graph, n);
    return flops * (double)plan->global_batch / (double)batch;
}

static void complete_plan(struct plan *plan, const struct planning *p)
{
    set_text(&plan->model_path, p->model_path);
    set_text(&plan->model_hash, model_hash(p->model));
    set_text(&plan->cluster, p->cluster->name);
    set_text(&plan->precision, precision_of(p));
    set_text(&plan->optimizer, optimizer_name(p->optimizer.kind));
    set_text(&plan->command, p->command);
    plan->batchnorm_samples = p->request.batchnorm_samples;
    plan->flops = iteration_flops(p, plan);
    plan_set_freeze(plan, p->model_options.n_freeze, p->model_options.freeze);
}

struct plan *planning_run(const struct planning *planning, char **why, struct err *err)
{
    struct plan_request request = planning->request;
    struct cost *measured = planning->cost ? NULL : planning_cost(planning, err);
    struct trials_key key = planning_trials(planning);
    struct planning own = *planning;
    struct plan_shape *tried = NULL;
    struct plan_names *names = NULL;
    struct plan *plan;

    if (!planning->cost && !measured)
        return NULL;
    if (request.n_pins && !(names = plan_names_new(planning, err))) {
        cost_free(measured);
        return NULL;
    }
    if (!own.built)
        own.built = built_new(own.model, &own.model_options);
    if (names) {
        request.n_nodes = names->n;
        request.nodes = names->items;
    }
    request.optimizer = optimizer_name(planning->optimizer.kind);
    request.memory_of = memory_of;
    request.factors = planning_factors(planning->backend);
    request.unknown_peak = planning->model_options.real == DTYPE_F64;
    request.user = &own;
    request.n_tried = trials_shapes(&key, request.global_batch, &tried, &request.doubt);
    request.tried = tried;
    plan = partition(measured ? measured : planning->cost, planning->cluster, &request, why,
                     err);
    if (plan)
        complete_plan(plan, &own);
    for (int i = 0; plan && i < request.n_others && request.others[i]; i++)
        complete_plan(request.others[i], &own);
    if (!planning->built)
        built_free(own.built);
    plan_names_free(names);
    if (planning->kept) {
        cost_free(*planning->kept);
        *planning->kept = measured ? measured : planning->cost;
    } else {
        cost_free(measured);
    }
    plan_shapes_free(tried, request.n_tried);
    return plan;
}

int planning_check_offload(const struct cluster *cluster, const struct backend *backend,
                           struct err *err)
{
    bool gpus = !backend || backend->separate;

    for (int d = 0; cluster && d < cluster->n_devices; d++)
        gpus = gpus && strcmp(cluster->devices[d].kind, "cpu") != 0;
    if (gpus)
        return 0;
    return err_set_code(err, EXIT_USAGE, "--offload optimizer needs --device cuda: on CPUs the "
                        "optimizer's state is in memory of the host without it");
}

/* Without a run ------------------------------------------------------------------------ */

/* As planning_suited() for a GPU that is here: bfloat16 is float16 where a device has a figure for that
 * alone, since GPUs before Ampere have no other.
 */
static const char *suited_elsewhere(const char *kernels, const struct cluster *cluster)
{
    for (int d = 0; d < cluster->n_devices && strcmp(kernels, "cuda-bf16") == 0; d++) {
        const struct cluster_device *device = &cluster->devices[d];

        if (device->product_flops[FACTORS_BF16] <= 0 && device->product_flops[FACTORS_FP16] > 0) {
            log_warning("%s has no \"%s\", and has \"%s\": computed is in float16, with loss scaling",
                        *device->kind ? device->kind : cluster->name,
                        cluster_factors_keys[FACTORS_BF16],
                        cluster_factors_keys[FACTORS_FP16]);
            return "cuda-fp16";
        }
    }
    return kernels;
}

/* A GPU that is here stands for those of its kind. */
static bool is_like(const struct planning *p)
{
    return strstr(p->backend->device_name(p->device), cluster_slowest(p->cluster)->kind) != NULL;
}

/* Where nothing is to be measured one of another kind, or none that is here, is imagined. */
static int open_gpu(struct planning *p, const char *kernels, struct err *err)
{
    bool elsewhere = is_elsewhere(p->cluster);
    struct err why = { 0 };

    if (elsewhere && !p->cost)
        kernels = suited_elsewhere(kernels, p->cluster);
    else if (!elsewhere)
        kernels = planning_suited(kernels, "the GPU", gpu_architecture(p->gpu), true);
    p->backend = planning_backend(kernels, false, err);
    if (!p->backend)
        return -1;
    p->device = p->backend->device_open(p->threads, p->gpu, &why);
    if (!p->device && !elsewhere && !p->cost) {
        *err = why;
        return -1;
    }
    if (p->device && elsewhere && !is_like(p)) {
        p->backend->device_close(p->device);
        p->device = NULL;
    }
    if (!p->device)
        p->device = p->backend->device_imagine(cluster_slowest(p->cluster)->kind, err);
    return p->device ? 0 : -1;
}

static int open_device(struct planning *p, const struct planning_source *source,
                       struct err *err)
{
    if (planning_on_gpu(source->backend) && !source->float64)
        return open_gpu(p, source->backend, err);
    p->backend = planning_backend(source->backend, source->float64, err);
    p->device = p->backend ? p->backend->device_open(p->threads, p->gpu, err) : NULL;
    return p->device ? 0 : -1;
}

/* The node, or where dropout makes the value, the one before it. */
static const struct node *maker(const struct graph *graph, int value)
{
    int n = value < 0 ? -1 : graph->values[value].producer;

    if (n >= 0 && strcmp(graph->nodes[n].op->name, "Dropout") == 0)
        return maker(graph, graph->nodes[n].inputs[0]);
    return n < 0 ? NULL : &graph->nodes[n];
}

/* Whole, or as a product with what a Softmax gives. */
static bool has_attention(const struct graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct node *node = &graph->nodes[n], *left;

        if (strcmp(node->op->name, "Attention") == 0)
            return true;
        left = strcmp(node->op->name, "MatMul") == 0 ? maker(graph, node->inputs[0]) : NULL;
        if (left && strcmp(left->op->name, "Softmax") == 0)
            return true;
    }
    return false;
}

static int check_policy(const struct planning *p, const struct graph *graph, struct err *err)
{
    if (!p->request.policy || strcmp(p->request.policy, "megatron") != 0 ||
        has_attention(graph))
        return 0;
    return err_set_code(err, EXIT_USAGE, "--policy megatron: the network is no Transformer: it "
                        "has no attention; --policy equal takes any network");
}

static int choose_group(struct planning *p, struct err *err)
{
    const struct graph *probe = built_graph(p->built, PROBE, 0, err);
    bool has_stats = false;

    if (!probe)
        return -1;
    for (int v = 0; v < probe->n_values; v++)
        has_stats = has_stats || probe->values[v].kind == VALUE_STAT;
    if (check_policy(p, probe, err))
        return -1;
    if (!has_stats)
        p->request.batchnorm_samples = 0;
    else if (!p->request.batchnorm_samples) {
        p->request.batchnorm_samples = planning_group(&p->request, p->cluster->n_devices);
        p->request.batchnorm_chosen = true;
    }
    return 0;
}

int planning_open(struct planning *planning, struct planning_source *source, struct err *err)
{
    struct planning *p = planning;

    p->model_options = (struct model_options){
        .real = source->float64 ? DTYPE_F64 : DTYPE_F32, .fuse = source->fuse,
        .loss = source->loss, .n_freeze = source->n_freeze, .freeze = source->freeze,
    };
    if (source->data) {
        source->opened_data = data_open(source->data, &source->data_options, err);
        if (!source->opened_data)
            return -1;
    }
    p->model = source->opened = planning_model(source->model, err);
    p->model_path = source->model;
    if (!p->model || open_device(p, source, err) < 0 ||
        (p->request.offload &&
         planning_check_offload(p->cluster, p->cost || is_elsewhere(p->cluster) ? NULL : p->backend,
                                err) < 0))
        return -1;
    if (source->data) {
        if (data_complete(source->opened_data, p->model, source->loss, err) < 0)
            return -1;
        p->model_options.tensors = data_tensors(source->opened_data,
                                                &p->model_options.n_tensors);
    }
    p->built = built_new(p->model, &p->model_options);
    planning_warn_precision(precision_of(p), p->cost);
    return choose_group(p, err);
}

void planning_close(struct planning *planning, struct planning_source *source)
{
    if (planning->device)
        planning->backend->device_close(planning->device);
    built_free(planning->built);
    model_close(source->opened);
    data_close(source->opened_data);
}
