/* SPDX-License-Identifier: MIT */
/* Run ONNX's node tests: folders with a model.onnx and data in test_data_set_N.
 *
 *   onnx_node DIRECTORY…
 *
 * prints a line "pass|fail|na TAB operator TAB test TAB why" for each. A test passes when the
 * outputs of every data set are those of the files on every backend, and, where the reader can
 * fold the operator, once more with constants for inputs. What the reader wants to know as a
 * constant (a shape, axes, bounds) is made an initializer; everything else is fed. Inputs hold
 * no samples (model_options.no_batch) but where an operator's meaning is about samples
 * (BatchNormalization; losses, once more): then the first axis of the first input is the batch.
 * "na" are tests that have a type which Tasuki refuses, and nothing else.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "graph/fold.h"
#include "graph/model.h"
#include "graph/onnx.h"
#include "run_graph.h"

enum { MAX_VALUES = 64, MAX_PATH = 4096 };

struct test {
    const char *folder;
    const char *op;             /* of the only node, or "several nodes" */
    const char *name;
    double rtol, atol;
    int64_t batch;              /* 0: inputs hold no samples */
    char why[2560];
};

struct data_set {
    int n_inputs, n_outputs;
    OnnxFile__Tensor *tensors[2 * MAX_VALUES];  /* inputs, then outputs; NULL: left out */
};

/* Inputs that the reader takes as constants only, as bits. */
static const struct {
    const char *op;
    unsigned inputs;
} constants[] = {
    { "Reshape", 2 },       { "Expand", 2 },        { "Slice", 30 },      { "Split", 2 },
    { "Squeeze", 2 },       { "Unsqueeze", 2 },     { "Tile", 2 },        { "Pad", 14 },
    { "ReduceMean", 2 },    { "ReduceSum", 2 },     { "ReduceMax", 2 },   { "ReduceMin", 2 },
    { "ReduceL1", 2 },      { "ReduceL2", 2 },      { "ReduceProd", 2 },
    { "ReduceSumSquare", 2 }, { "ReduceLogSum", 2 }, { "ReduceLogSumExp", 2 },
    { "Resize", 14 },       { "Upsample", 2 },      { "TopK", 2 },        { "OneHot", 6 },
    { "CumSum", 2 },        { "Trilu", 2 },         { "Dropout", 6 },     { "Range", 7 },
    { "ConstantOfShape", 1 }, { "NonZero", 1 },     { "If", 1 },          { "Loop", 7 },
    { "BatchNormalization", 30 },
    { "SoftmaxCrossEntropyLoss", 4 },               { "NegativeLogLikelihoodLoss", 4 },
};

static unsigned constant_inputs(const char *op)
{
    size_t i;

    for (i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
        if (strcmp(constants[i].op, op) == 0)
            return constants[i].inputs;
    return 0;
}

/* Files ------------------------------------------------------------------------------- */

static OnnxFile__Tensor *read_tensor(const char *folder, int set, const char *kind, int index)
{
    char path[MAX_PATH];
    OnnxFile__Tensor *tensor;
    struct file_map map;

    snprintf(path, sizeof(path), "%s/test_data_set_%d/%s_%d.pb", folder, set, kind, index);
    if (access(path, R_OK) || file_map_open(path, &map, NULL))
        return NULL;
    tensor = onnx_file__tensor__unpack(NULL, map.size, map.data);
    file_map_close(&map);
    return tensor;
}

static OnnxFile__Model *read_model(const char *folder)
{
    char path[MAX_PATH];
    OnnxFile__Model *model;
    struct file_map map;

    snprintf(path, sizeof(path), "%s/model.onnx", folder);
    if (file_map_open(path, &map, NULL))
        return NULL;
    model = onnx_file__model__unpack(NULL, map.size, map.data);
    file_map_close(&map);
    return model;
}

/* Under the name of its input or output. Old files have the bits of bfloat16 as uint16, as numpy
 * had them.
 */
static void adopt(OnnxFile__Tensor *tensor, const char *prefix, const OnnxFile__ValueInfo *info)
{
    const OnnxFile__TensorType *type = info->type ? info->type->tensor_type : NULL;

    free(tensor->name);
    tensor->name = mem_printf("%s%s", prefix, info->name);
    if (type && onnx_dtype(type->elem_type) == DTYPE_BF16 &&
        onnx_dtype(tensor->data_type) == DTYPE_U16)
        tensor->data_type = type->elem_type;
}

static int read_set(const struct test *t, const OnnxFile__Graph *graph, int set,
                    struct data_set *data)
{
    size_t i;

    memset(data, 0, sizeof(*data));
    data->n_inputs = (int)graph->n_input;
    data->n_outputs = (int)graph->n_output;
    if (graph->n_input > MAX_VALUES || graph->n_output > MAX_VALUES)
        return -1;
    for (i = 0; i < graph->n_input; i++) {
        OnnxFile__Tensor *tensor = read_tensor(t->folder, set, "input", (int)i);

        if ((data->tensors[i] = tensor))
            adopt(tensor, "", graph->input[i]);
    }
    for (i = 0; i < graph->n_output; i++) {
        OnnxFile__Tensor *tensor = read_tensor(t->folder, set, "output", (int)i);

        if (!tensor)
            return i ? -1 : 1;
        data->tensors[data->n_inputs + (int)i] = tensor;
        adopt(tensor, "expected ", graph->output[i]);
    }
    return 0;
}

static void free_set(struct data_set *data)
{
    for (int i = 0; i < data->n_inputs + data->n_outputs; i++)
        if (data->tensors[i])
            onnx_file__tensor__free_unpacked(data->tensors[i], NULL);
}

/* The input's type says what the data are: files may leave dimensions open. */
static void fix_shape(OnnxFile__ValueInfo *info, const OnnxFile__Tensor *tensor,
                      OnnxFile__Shape *shape, OnnxFile__Dimension *dims,
                      OnnxFile__Dimension **list)
{
    onnx_file__shape__init(shape);
    for (size_t i = 0; i < tensor->n_dims; i++) {
        onnx_file__dimension__init(&dims[i]);
        dims[i].has_dim_value = 1;
        dims[i].dim_value = tensor->dims[i];
        list[i] = &dims[i];
    }
    shape->n_dim = tensor->n_dims;
    shape->dim = list;
    info->type->tensor_type->shape = shape;
}

static int write_model(const OnnxFile__Model *model, const char *path)
{
    size_t size = onnx_file__model__get_packed_size(model);
    uint8_t *bytes = mem_new(size + 1, 1);
    int result;

    onnx_file__model__pack(model, bytes);
    result = file_write(path, bytes, size, NULL);
    free(bytes);
    return result;
}

/* An operator as it has been since before opset 9 is the same in opset 9. */
struct sets {
    OnnxFile__OperatorSet set[8], *list[8];
};

static void raise_opset(OnnxFile__Model *model, struct sets *sets)
{
    for (size_t i = 0; i < model->n_opset_import && i < 8; i++) {
        sets->set[i] = *model->opset_import[i];
        if (sets->set[i].version < ONNX_MIN_OPSET && !*onnx_domain(sets->set[i].domain))
            sets->set[i].version = ONNX_MIN_OPSET;
        sets->list[i] = &sets->set[i];
    }
    if (model->n_opset_import > 8)
        model->n_opset_import = 8;
    model->opset_import = sets->list;
}

/* A node that gives the tensor: what an initializer is not sure to be, a constant. */
static OnnxFile__Node *constant_node(OnnxFile__Tensor *tensor)
{
    OnnxFile__Node *node = mem_new(1, sizeof(*node));
    OnnxFile__Attribute *attr = mem_new(1, sizeof(*attr));

    onnx_file__node__init(node);
    onnx_file__attribute__init(attr);
    node->op_type = mem_strdup("Constant");
    node->n_output = node->n_attribute = 1;
    node->output = mem_new(1, sizeof(*node->output));
    node->output[0] = mem_strdup(tensor->name);
    node->attribute = mem_new(1, sizeof(*node->attribute));
    node->attribute[0] = attr;
    attr->name = mem_strdup("value");
    attr->t = tensor;
    return node;
}

static void free_constant_node(OnnxFile__Node *node)
{
    node->attribute[0]->t = NULL;
    onnx_file__node__free_unpacked(node, NULL);
}

/* The model with all inputs as constants. */
static int compose_constants(const OnnxFile__Model *from, const struct data_set *data,
                             const char *path)
{
    OnnxFile__Model model = *from;
    OnnxFile__Graph graph = *from->graph;
    OnnxFile__Node **nodes = mem_new(graph.n_node + MAX_VALUES, sizeof(*nodes));
    struct sets sets;
    size_t n = 0, i;
    int k, result;

    for (k = 0; k < data->n_inputs; k++)
        if (data->tensors[k])
            nodes[n++] = constant_node(data->tensors[k]);
    for (i = 0; i < graph.n_node; i++)
        nodes[n + i] = graph.node[i];
    graph.node = nodes;
    graph.n_node += n;
    graph.n_input = 0;
    model.graph = &graph;
    raise_opset(&model, &sets);
    result = write_model(&model, path);
    while (n-- > 0)
        free_constant_node(nodes[n]);
    free(nodes);
    return result;
}

/* The model with the chosen inputs (bits) as initializers, and the outputs expected. */
static int compose(const struct test *t, const OnnxFile__Model *from,
                   const struct data_set *data, uint64_t fixed, bool expected, const char *path)
{
    OnnxFile__Model model = *from;
    OnnxFile__Graph graph = *from->graph;
    OnnxFile__Tensor *list[4 * MAX_VALUES];
    OnnxFile__Shape shapes[MAX_VALUES], *saved[MAX_VALUES];
    OnnxFile__Dimension dims[MAX_VALUES][16], *dim_lists[MAX_VALUES][16];
    struct sets sets;
    size_t n = 0, i;
    int result;

    if (graph.n_initializer + (size_t)(data->n_inputs + data->n_outputs) > 4 * MAX_VALUES)
        return -1;
    for (i = 0; i < graph.n_initializer; i++)
        list[n++] = graph.initializer[i];
    for (int k = 0; k < data->n_inputs + data->n_outputs; k++)
        if (data->tensors[k] && (k < data->n_inputs ? fixed >> k & 1 : expected))
            list[n++] = data->tensors[k];
    graph.initializer = list;
    graph.n_initializer = n;
    model.graph = &graph;
    /* With samples, new statistics are a matter of the step: over groups, and unbiased as
     * PyTorch's; and of a loss, nothing but the loss is left in the graph.
     */
    if (t->batch)
        graph.n_output = 1;
    for (i = 0; i < graph.n_input; i++) {
        OnnxFile__Type *type = graph.input[i]->type;

        saved[i] = type && type->tensor_type ? type->tensor_type->shape : NULL;
        if (data->tensors[i] && type && type->tensor_type && data->tensors[i]->n_dims <= 16)
            fix_shape(graph.input[i], data->tensors[i], &shapes[i], dims[i], dim_lists[i]);
    }
    raise_opset(&model, &sets);
    result = write_model(&model, path);
    for (i = 0; i < graph.n_input; i++)
        if (graph.input[i]->type && graph.input[i]->type->tensor_type)
            graph.input[i]->type->tensor_type->shape = saved[i];
    return result;
}

/* Comparison -------------------------------------------------------------------------- */

static const struct onnx_tensor *find(const struct onnx *onnx, const char *prefix,
                                      const char *name)
{
    char full[1024];

    snprintf(full, sizeof(full), "%s%s", prefix, name);
    for (int i = 0; i < onnx->n_initializers; i++)
        if (strcmp(onnx->initializers[i].name, full) == 0)
            return &onnx->initializers[i];
    return NULL;
}

/* Results of small floating types were made by operators that rounded to that type, ours in the
 * run's: one unit in the last place is left for what their parts were rounded by.
 */
static bool close_enough(const struct test *t, enum dtype dtype, double ours, double theirs)
{
    double unit = dtype == DTYPE_F16 ? 0x1p-10 : dtype == DTYPE_BF16 ? 0x1p-7 : 0;
    uint64_t rounded;

    dtype_put_real(dtype, &rounded, 0, ours);
    ours = dtype_real(dtype, &rounded, 0);
    if (isinf(theirs) || isinf(ours))
        return ours == theirs;
    if (isnan(theirs) || isnan(ours))
        return isnan(theirs) && isnan(ours);
    return fabs(ours - theirs) <= t->atol + (t->rtol + unit) * fabs(theirs);
}

static int compare_kind(struct test *t, const struct run_graph *run, int v, const char *name,
                        const struct onnx_tensor *expected)
{
    const struct value *value = &run->graph->values[v];
    bool real = dtype_is_float(expected->dtype);
    char ours[128], theirs[128];

    if (shape_equal(&value->shape, &expected->shape) &&
        (real ? dtype_is_float(value->dtype) : value->dtype == expected->dtype))
        return 0;
    snprintf(t->why, sizeof(t->why), "%s: %s is %s %s, expected %s %s", run->backend->name,
             name, dtype_name(value->dtype), shape_text(&value->shape, ours, sizeof(ours)),
             dtype_name(expected->dtype), shape_text(&expected->shape, theirs, sizeof(theirs)));
    return -1;
}

static int compare(struct test *t, const struct run_graph *run, int v, const char *name,
                   const struct onnx_tensor *expected)
{
    const struct value *value = &run->graph->values[v];
    bool real = dtype_is_float(expected->dtype);
    const void *data = run->buffers[v];
    int64_t i;

    for (i = 0; i < shape_elements(&value->shape); i++) {
        double x = dtype_real(value->dtype, data, i);
        double y = dtype_real(expected->dtype, expected->data, i);

        if (real ? close_enough(t, expected->dtype, x, y)
                 : dtype_whole(value->dtype, data, i) ==
                       dtype_whole(expected->dtype, expected->data, i))
            continue;
        snprintf(t->why, sizeof(t->why), "%s: %s[%d] is %.9g, expected %.9g",
                 run->backend->name, name, (int)i, x, y);
        return -1;
    }
    return 0;
}

/* Which elements a Dropout drops ONNX leaves open, and the files have numpy's. The rest is defined:
 * y = x * mask / (1 - ratio), where the mask drops the share 'ratio', here to 4 standard
 * deviations. Output 1 is the mask, if it is there.
 */
static int check_dropout(struct test *t, const struct run_graph *run, const struct onnx *all)
{
    const struct graph *graph = run->graph;
    const struct onnx_node *node = &all->main.nodes[0];
    const struct onnx_tensor *x = find(all, "", all->values[node->inputs[0]].name);
    const struct onnx_tensor *given = node->proto->n_input < 2 || node->inputs[1] < 0 ? NULL
                                      : find(all, "", all->values[node->inputs[1]].name);
    double ratio = given ? dtype_real(given->dtype, given->data, 0) : 0.5;
    const struct value *value = &graph->values[graph->outputs[0]];
    int64_t n = shape_elements(&value->shape), dropped = 0;

    for (int64_t i = 0; i < n; i++) {
        double from = dtype_real(x->dtype, x->data, i);
        double y = dtype_real(value->dtype, run->buffers[graph->outputs[0]], i);
        bool kept = graph->n_outputs < 2 ? y != 0
                    : dtype_whole(DTYPE_BOOL, run->buffers[graph->outputs[1]], i) != 0;

        dropped += !kept;
        if (close_enough(t, x->dtype, y, kept ? from / (1 - ratio) : 0))
            continue;
        snprintf(t->why, sizeof(t->why), "%s: element %d of %.9g became %.9g",
                 run->backend->name, (int)i, from, y);
        return -1;
    }
    if (fabs((double)dropped - ratio * (double)n) <=
        4 * sqrt(ratio * (1 - ratio) * (double)n))
        return 0;
    snprintf(t->why, sizeof(t->why), "%s: %d elements of %d are dropped", run->backend->name,
             (int)dropped, (int)n);
    return -1;
}

/* Running ----------------------------------------------------------------------------- */

/* What the executor knows before a step of the labels. */
static double weight_sum(const struct graph *graph, const struct onnx *all)
{
    const struct loss_rule *rule = &graph->loss_rule;
    const struct onnx_tensor *tensor;
    double sum = 0;

    if (rule->weight == LOSS_WEIGHT_SAMPLES)
        return rule->per_sample * (double)graph->batch;
    if (rule->weight != LOSS_WEIGHT_LABELS || rule->labels < 0)
        return 1;
    tensor = find(all, "", graph->values[rule->labels].name);
    for (int64_t i = 0; i < shape_elements(&tensor->shape); i++) {
        int64_t label = dtype_whole(tensor->dtype, tensor->data, i);
        const struct value *weights = rule->class_weights < 0
                                          ? NULL : &graph->values[rule->class_weights];

        if (rule->ignores && label == rule->ignore_index)
            continue;
        sum += weights ? dtype_real(weights->file_dtype, weights->data, label) : 1;
    }
    return sum;
}

static void feed(struct run_graph *run, const struct onnx *all)
{
    const struct graph *graph = run->graph;

    for (int v = 0; v < graph->n_values; v++) {
        const struct value *value = &graph->values[v];
        const struct onnx_tensor *tensor = find(all, "", value->name);

        if (value->kind != VALUE_NODE && value->kind != VALUE_CONST && tensor)
            dtype_convert(tensor->dtype, tensor->data, value->dtype, run->buffers[v],
                          (size_t)shape_elements(&value->shape));
    }
}

static int run_on(struct test *t, const char *backend, const struct graph *graph,
                  const struct onnx *all, struct err *err)
{
    struct run_graph *run = run_graph_new(backend_find(backend), graph, err);
    bool dropout = strncmp(t->name, "test_training_dropout", 21) == 0;
    int i, result = -1;

    if (!run)
        return -1;
    run->state.training = dropout || strstr(t->name, "training_mode");
    run->state.weight_sum = graph->weight_sum >= 0 ? weight_sum(graph, all) : 1;
    feed(run, all);
    if (run_graph_nodes(run, 0, graph->n_nodes, err))
        goto cleanup;
    for (i = 0; i < all->main.n_outputs; i++) {
        const char *name = all->values[all->main.outputs[i]].name;
        const struct onnx_tensor *expected = find(all, "expected ", name);

        if (compare_kind(t, run, graph->outputs[i], name, expected) ||
            (!dropout && compare(t, run, graph->outputs[i], name, expected)))
            goto cleanup;
    }
    result = dropout ? check_dropout(t, run, all) : 0;
cleanup:
    run_graph_free(run);
    return result;
}

static enum dtype widest(const struct onnx *all)
{
    enum dtype real = DTYPE_F32;

    for (int i = 0; i < all->n_initializers; i++)
        if (all->initializers[i].dtype == DTYPE_F64)
            real = DTYPE_F64;
    return real;
}

/* As the file has it, or fused. */
static int build_and_run(struct test *t, const char *path, const struct onnx *all, bool fuse,
                         struct err *err)
{
    static const char *const backends[] = { "reference", "cpu" };
    struct model_options options = { .batch = t->batch ? t->batch : 1, .real = widest(all),
                                     .no_batch = !t->batch, .fuse = fuse };
    struct model *model = model_open(path, err);
    struct model_tensor tensors[4 * MAX_VALUES];
    struct graph *graph = NULL;
    int result = -1, i;

    if (!model)
        return -1;
    options.no_loss = !t->batch || strcmp(t->op, "BatchNormalization") == 0;
    for (i = 0; i < all->n_initializers && !t->batch; i++)
        tensors[i] = (struct model_tensor){ all->initializers[i].name,
                                            all->initializers[i].dtype,
                                            all->initializers[i].shape };
    options.n_tensors = i;
    options.tensors = tensors;
    graph = model_build(model, &options, err);
    if (graph)
        result = 0;
    for (size_t b = 0; b < sizeof(backends) / sizeof(backends[0]) && !result; b++)
        if (backend_find(backends[b]))
            result = run_on(t, backends[b], graph, all, err);
    graph_free(graph);
    model_close(model);
    return result;
}

static int attempt(struct test *t, const OnnxFile__Model *model, const struct data_set *data,
                   uint64_t fixed, const char *scratch)
{
    char all_path[MAX_PATH], path[MAX_PATH];
    struct err err = { 0 };
    struct onnx *all = NULL;
    int result = -1;

    *t->why = '\0';
    snprintf(all_path, sizeof(all_path), "%s/all.onnx", scratch);
    snprintf(path, sizeof(path), "%s/run.onnx", scratch);
    if (compose(t, model, data, UINT64_MAX, true, all_path) ||
        (fixed == UINT64_MAX ? compose_constants(model, data, path)
                             : compose(t, model, data, fixed, false, path)))
        snprintf(t->why, sizeof(t->why), "the scratch folder cannot be written");
    else if ((all = onnx_open(all_path, &err)))
        result = build_and_run(t, path, all, false, &err) ||
                         build_and_run(t, path, all, true, &err) ? -1 : 0;
    onnx_close(all);
    if (result && !*t->why)
        snprintf(t->why, sizeof(t->why), "%s",
                 strncmp(err.text, path, strlen(path)) == 0 ? err.text + strlen(path) + 2
                                                            : err.text);
    return result;
}

static uint64_t integers(const struct data_set *data)
{
    uint64_t bits = 0;

    for (int i = 0; i < data->n_inputs; i++) {
        const OnnxFile__Tensor *tensor = data->tensors[i];

        if (tensor && !dtype_is_float(onnx_dtype(tensor->data_type)))
            bits |= (uint64_t)1 << i;
    }
    return bits;
}

/* The tests give inputs in the order of the node's, those left out skipped. */
static uint64_t named_constants(const OnnxFile__Model *model)
{
    const OnnxFile__Graph *graph = model->graph;
    uint64_t bits = 0;

    for (size_t n = 0; n < graph->n_node; n++) {
        unsigned wanted = constant_inputs(graph->node[n]->op_type);

        for (size_t i = 0; i < graph->node[n]->n_input && i < 32; i++)
            for (size_t k = 0; k < graph->n_input && wanted >> i & 1; k++)
                if (strcmp(graph->node[n]->input[i], graph->input[k]->name) == 0)
                    bits |= (uint64_t)1 << k;
    }
    return bits;
}

static bool folds(const OnnxFile__Graph *graph)
{
    for (size_t n = 0; n < graph->n_node; n++)
        if (!fold_knows(graph->node[n]->op_type) || graph->node[n]->n_output != 1)
            return false;
    return true;
}

static bool has_subgraphs(const OnnxFile__Graph *graph)
{
    for (size_t n = 0; n < graph->n_node; n++)
        for (size_t i = 0; i < graph->node[n]->n_attribute; i++)
            if (graph->node[n]->attribute[i]->g)
                return true;
    return false;
}

static int64_t first_axis(const struct data_set *data)
{
    return data->tensors[0] && data->tensors[0]->n_dims ? data->tensors[0]->dims[0] : 1;
}

static int run_set(struct test *t, const OnnxFile__Model *model, const struct data_set *data,
                   const char *scratch)
{
    uint64_t fixed = named_constants(model);
    int result;

    t->batch = strcmp(t->op, "BatchNormalization") == 0 ? first_axis(data) : 0;
    result = attempt(t, model, data, fixed, scratch);

    if (result && model->graph->n_node > 1 && (fixed | integers(data)) != fixed)
        result = attempt(t, model, data, fixed | integers(data), scratch);
    /* What a loop runs by may be computed from any input. */
    if (result && has_subgraphs(model->graph))
        result = attempt(t, model, data, UINT64_MAX, scratch);
    if (!result && folds(model->graph))
        result = attempt(t, model, data, UINT64_MAX, scratch);
    /* A loss of samples is divided by what is known of all of them. */
    if (!result && strstr(t->op, "Loss") && data->tensors[data->n_inputs]->n_dims == 0) {
        t->batch = first_axis(data);
        result = attempt(t, model, data, fixed, scratch);
    }
    return result;
}

/* What cannot be ------------------------------------------------------------------------ */

static const char *kind_of_value(const OnnxFile__ValueInfo *info)
{
    return !info->type || !info->type->tensor_type ? "a sequence or an optional"
           : onnx_dtype(info->type->tensor_type->elem_type) == DTYPE_NONE
               ? onnx_dtype_name(info->type->tensor_type->elem_type) : NULL;
}

/* A type that is not supported: the only reason why a test says nothing of us. NULL: it does. */
static const char *not_applicable(const OnnxFile__Model *model)
{
    const OnnxFile__Graph *graph = model->graph;
    const char *why = NULL;

    for (size_t i = 0; i < graph->n_input && !why; i++)
        why = kind_of_value(graph->input[i]);
    for (size_t i = 0; i < graph->n_output && !why; i++)
        why = kind_of_value(graph->output[i]);
    return why;
}

/* One test ------------------------------------------------------------------------------ */

static void read_tolerance(struct test *t)
{
    char path[MAX_PATH];
    FILE *file;

    t->rtol = 1e-3;     /* onnx.backend.test's own */
    t->atol = 1e-7;
    snprintf(path, sizeof(path), "%s/tolerance", t->folder);
    file = fopen(path, "r");
    if (!file)
        return;
    if (fscanf(file, "%lf %lf", &t->rtol, &t->atol) != 2)
        fprintf(stderr, "onnx_node: %s: no two numbers\n", path);
    fclose(file);
}

static const char *run_sets(struct test *t, const OnnxFile__Model *model, const char *scratch)
{
    const char *verdict = "fail";
    struct data_set data;
    int set, found = 0;

    snprintf(t->why, sizeof(t->why), "there is no data");
    for (set = 0; found == 0; set++) {
        found = read_set(t, model->graph, set, &data);
        if (found == 0)
            verdict = run_set(t, model, &data, scratch) ? "fail" : "pass";
        free_set(&data);
        if (verdict[0] == 'f')
            break;
    }
    return verdict;
}

static void run_test(const char *folder, const char *scratch)
{
    struct test t = { .folder = folder };
    OnnxFile__Model *model = read_model(folder);
    const char *slash = strrchr(folder, '/'), *verdict = "fail", *why = NULL;

    t.name = slash ? slash + 1 : folder;
    t.op = "several nodes";
    if (model && model->graph && model->graph->n_node == 1)
        t.op = model->graph->node[0]->op_type;
    read_tolerance(&t);
    if (!model || !model->graph) {
        snprintf(t.why, sizeof(t.why), "this is no model");
    } else if ((why = not_applicable(model))) {
        verdict = "na";
        snprintf(t.why, sizeof(t.why), "%s", why);
    } else {
        verdict = run_sets(&t, model, scratch);
    }
    printf("%s\t%s\t%s\t%s\n", verdict, t.op, t.name, verdict[0] == 'p' ? "" : t.why);
    fflush(stdout);
    if (model)
        onnx_file__model__free_unpacked(model, NULL);
}

/* A crash is a failure of one test. */
static void run_apart(const char *folder, const char *scratch)
{
    const char *slash = strrchr(folder, '/');
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        run_test(folder, scratch);
        _exit(EXIT_SUCCESS);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0)
        perror("onnx_node: fork");
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        printf("fail\tcrashed\t%s\tended with status %d\n", slash ? slash + 1 : folder, status);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char scratch[] = "/tmp/onnx_node.XXXXXX", path[MAX_PATH];

    if (!mkdtemp(scratch)) {
        perror("onnx_node: mkdtemp");
        return EXIT_FAILURE;
    }
    for (int i = 1; i < argc; i++)
        run_apart(argv[i], scratch);
    snprintf(path, sizeof(path), "%s/all.onnx", scratch);
    unlink(path);
    snprintf(path, sizeof(path), "%s/run.onnx", scratch);
    unlink(path);
    rmdir(scratch);
    return EXIT_SUCCESS;
}
