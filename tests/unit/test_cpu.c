/* SPDX-License-Identifier: MIT */
/* The cpu backend's layouts: a lowered program computes what the plain graph computes. */
#include "unit.h"

#include <math.h>

#include "base/mem.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "graph/program.h"
#include "run_graph.h"

enum { BATCH = 4, CLASSES = 5 };

struct net {
    struct graph *graph;
    struct autodiff ad;
    struct program *program;
    double **data; /* of inputs, parameters and statistics */
    int n_data;
    uint64_t random;
    struct err err;
};

/* Something in [-1, 1). */
static double draw(struct net *net)
{
    net->random = net->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(net->random >> 40) / (1 << 23) - 1;
}

static int add(struct net *net, enum value_kind kind, enum dtype dtype, int rank,
               const int64_t *dim, double low, double high)
{
    struct shape shape = {.rank = rank};
    struct batch batch = {.outer = kind == VALUE_INPUT && rank > 0, .inner = 1, .place = 1};
    int v;

    for (int i = 0; i < rank; i++) {
        shape.dim[i] = dim[i];
        batch.inner *= i > 0 ? dim[i] : 1;
    }
    if (!batch.outer)
        batch = (struct batch){.outer = 0};
    v = graph_add_value(net->graph, NULL, kind, dtype, &shape, batch);
    while (net->n_data <= v)
        *(double **)mem_push((void **)&net->data, &net->n_data, sizeof(*net->data)) = NULL;
    net->data[v] = mem_new((size_t)shape_elements(&shape) + 1, sizeof(double));
    for (int64_t i = 0; i < shape_elements(&shape); i++) {
        double x = low + (high - low) * (draw(net) + 1) / 2;

        net->data[v][i] = dtype_is_float(dtype) ? (double)(float)x : floor(x);
    }
    return v;
}

static int param(struct net *net, int rank, const int64_t *dim)
{
    return add(net, VALUE_PARAM, DTYPE_F32, rank, dim, -0.5, 0.5);
}

static int finish(struct net *net, int node)
{
    if (op_infer(net->graph, node, &net->err))
        fail_msg("%s", net->err.text);
    return net->graph->nodes[node].outputs[0];
}

static int begin(struct net *net, const char *op, int n, const int *inputs)
{
    int node = graph_add_node(net->graph, NULL, op_find(op), n, inputs, 0, NULL);

    graph_add_output(net->graph, node);
    return node;
}

static int simple(struct net *net, const char *op, int a, int b)
{
    return finish(net, begin(net, op, b < 0 ? 1 : 2, (int[]){a, b}));
}

static int conv(struct net *net, int x, int64_t c, int64_t o, int64_t k, int64_t stride,
                int64_t pad, bool bias)
{
    int w = param(net, 4, (int64_t[]){o, c, k, k});
    int b = bias ? param(net, 1, &o) : -1;
    int node = begin(net, "Conv", bias ? 3 : 2, (int[]){x, w, b});

    graph_set_ints(net->graph, node, "strides", 2, (int64_t[]){stride, stride});
    graph_set_ints(net->graph, node, "pads", 4, (int64_t[]){pad, pad, pad, pad});
    return finish(net, node);
}

static int batchnorm(struct net *net, int x, int64_t c)
{
    int scale = add(net, VALUE_PARAM, DTYPE_F32, 1, &c, 0.5, 1.5), bias = param(net, 1, &c);
    int mean = add(net, VALUE_STAT, DTYPE_F32, 1, &c, -1, 1);
    int var = add(net, VALUE_STAT, DTYPE_F32, 1, &c, 0.5, 1);

    return finish(net, begin(net, "BatchNormalization", 5, (int[]){x, scale, bias, mean, var}));
}

static int pool(struct net *net, const char *op, int x, int64_t size, int64_t pad)
{
    int node = begin(net, op, 1, &x);

    graph_set_ints(net->graph, node, "kernel_shape", 2, (int64_t[]){size, size});
    graph_set_ints(net->graph, node, "strides", 2, (int64_t[]){2, 2});
    graph_set_ints(net->graph, node, "pads", 4, (int64_t[]){pad, pad, pad, pad});
    return finish(net, node);
}

static int flatten(struct net *net, int x, int64_t n)
{
    int v = net->graph->nodes[begin(net, "Reshape", 1, &x)].outputs[0];
    struct value *y = &net->graph->values[v];

    y->dtype = DTYPE_F32;
    y->shape = (struct shape){2, {BATCH, n}};
    y->batch = (struct batch){1, n, 1};
    return v;
}

static void add_loss(struct net *net, int logits)
{
    int64_t rows = BATCH;
    int labels = add(net, VALUE_INPUT, DTYPE_I64, 1, &rows, 0, CLASSES - 1e-9);
    int node, weight = add(net, VALUE_INPUT, DTYPE_F32, 0, NULL, 1, 1);

    net->graph->weight_sum = weight;
    node = begin(net, "CrossEntropySum", 3, (int[]){logits, labels, weight});
    graph_add_output(net->graph, node);
    net->graph->loss = finish(net, node);
}

/* A stem, a residual block whose shortcut is a convolution of stride 2, and a head that reads
 * the plain form (with 'flat') or only means over space.
 */
static void build(struct net *net, int64_t group, bool flat)
{
    int x, y, z;

    net->graph = graph_new(BATCH, DTYPE_F32);
    net->graph->batchnorm_samples = group;
    net->random = 7;
    x = add(net, VALUE_INPUT, DTYPE_F32, 4, (int64_t[]){BATCH, 3, 11, 11}, -1, 1);
    y = simple(net, "Relu", batchnorm(net, conv(net, x, 3, 20, 3, 1, 1, false), 20), -1);
    y = pool(net, "MaxPool", y, 3, 1);
    z = simple(net, "Relu", batchnorm(net, conv(net, y, 20, 24, 3, 2, 1, false), 24), -1);
    z = batchnorm(net, conv(net, z, 24, 24, 3, 1, 1, false), 24);
    y = simple(net, "Relu", simple(net, "Add", z, conv(net, y, 20, 24, 1, 2, 0, true)), -1);
    y = flat ? pool(net, "AveragePool", y, 2, 0) : simple(net, "GlobalAveragePool", y, -1);
    y = flatten(net, y, 24);
    z = param(net, 2, (int64_t[]){24, CLASSES});
    add_loss(net, simple(net, "Linear", y, z));
    if (autodiff(net->graph, NULL, 1, &net->ad, NULL, &net->err))
        fail_msg("%s", net->err.text);
}

static void drop(struct net *net)
{
    for (int v = 0; v < net->n_data; v++)
        free(net->data[v]);
    free(net->data);
    program_free(net->program);
    graph_free(net->graph);
}

/* A lowered program on the cpu backend ----------------------------------------------- */

struct machine {
    const struct backend *backend;
    struct device *device;
    struct stream *stream;
    struct net *net;
    void **buffers;
    struct kernel **kernels;
    void *workspace;
    int n_values, n_nodes;
    struct step_state state;
};

static void machine_memory(struct machine *m)
{
    const struct program *p = m->net->program;

    for (int v = 0; v < m->n_values; v++) {
        if (p->values[v].root != v)
            continue;
        m->buffers[v] =
            m->backend->alloc(m->device, p->values[v].layout.bytes + 64, &m->net->err);
        memset(m->buffers[v], 0xff, p->values[v].layout.bytes);
    }
    for (int v = 0; v < m->n_values; v++) {
        const struct value *value = &p->graph->values[v];

        m->buffers[v] = m->buffers[p->values[v].root];
        if (value->kind == VALUE_CONST && value->data)
            memcpy(m->buffers[v], value->data, value_bytes(value));
    }
}

static void machine_set(struct machine *m)
{
    struct net *net = m->net;

    for (int v = 0; v < net->n_data; v++)
        for (int64_t i = 0; net->data[v] && i < shape_elements(&net->graph->values[v].shape);
             i++) {
            if (net->graph->values[v].dtype == DTYPE_F32)
                ((float *)m->buffers[v])[i] = (float)net->data[v][i];
            else
                ((int64_t *)m->buffers[v])[i] = (int64_t)net->data[v][i];
        }
}

static void machine_kernels(struct machine *m)
{
    const struct program *p = m->net->program;
    struct value_layout *layouts = mem_new((size_t)m->n_values, sizeof(*layouts));
    size_t most = 64;

    for (int v = 0; v < m->n_values; v++)
        layouts[v] = p->values[v].layout;
    for (int part = 0; part < PART_COUNT; part++)
        for (int i = 0; i < p->list[part].n; i++) {
            int node = p->list[part].nodes[i];
            size_t bytes;

            if (p->graph->nodes[node].op->flags & OP_VIEW)
                continue;
            m->kernels[node] =
                m->backend->kernel_new(m->device, p->graph, node, layouts, &m->net->err);
            if (!m->kernels[node])
                fail_msg("%s", m->net->err.text);
            bytes = m->backend->kernel_workspace(m->kernels[node]);
            most = bytes > most ? bytes : most;
        }
    m->workspace = m->backend->alloc(m->device, most, &m->net->err);
    free(layouts);
}

static struct machine *machine_new(struct net *net, int threads)
{
    struct machine *m = mem_new(1, sizeof(*m));

    m->net = net;
    m->backend = backend_find("cpu");
    m->device = m->backend->device_open(threads, NULL, &net->err);
    if (!m->device)
        fail_msg("%s", net->err.text);
    m->stream = m->backend->stream_new(m->device, &net->err);
    net->program =
        program_new(net->graph, &net->ad, mem_new((size_t)net->graph->n_nodes, sizeof(int)), 0,
                    1, &net->err);
    if (m->backend->lower(m->device, net->program, &net->err))
        fail_msg("%s", net->err.text);
    m->n_values = net->program->n_values;
    m->n_nodes = net->graph->n_nodes;
    m->buffers = mem_new((size_t)m->n_values, sizeof(*m->buffers));
    m->kernels = mem_new((size_t)m->n_nodes, sizeof(*m->kernels));
    m->state = (struct step_state){
        .seed = 1, .global_batch = BATCH, .samples = BATCH, .weight_sum = 1, .training = true};
    machine_memory(m);
    machine_set(m);
    machine_kernels(m);
    return m;
}

static void machine_free(struct machine *m)
{
    const struct program *p = m->net->program;

    for (int n = 0; n < m->n_nodes; n++)
        if (m->kernels[n])
            m->backend->kernel_free(m->kernels[n]);
    for (int v = 0; v < m->n_values; v++)
        if (p->values[v].root == v)
            m->backend->release(m->device, m->buffers[v], p->values[v].layout.bytes + 64);
    m->backend->release(m->device, m->workspace, 0);
    m->backend->stream_free(m->stream);
    m->backend->device_close(m->device);
    free((void *)(uintptr_t)p->stage_of);
    free(m->buffers);
    free(m->kernels);
    free(m);
}

static void run_one(struct machine *m, int n)
{
    const struct program *p = m->net->program;
    const struct node *node = &m->net->graph->nodes[n];
    const void *inputs[16];
    void *outputs[16];
    struct kernel_args args = {
        .inputs = inputs, .outputs = outputs, .workspace = m->workspace, .state = &m->state};

    assert_true(node->n_inputs <= 16 && node->n_outputs <= 16);
    for (int i = 0; i < node->n_inputs; i++)
        inputs[i] = node->inputs[i] < 0 ? NULL : m->buffers[node->inputs[i]];
    for (int i = 0; i < node->n_outputs; i++) {
        outputs[i] = node->outputs[i] < 0 ? NULL : m->buffers[node->outputs[i]];
        if (outputs[i])
            memset(outputs[i], 0xff, p->values[node->outputs[i]].layout.bytes);
    }
    if (m->backend->kernel_run(m->kernels[n], m->stream, &args, &m->net->err))
        fail_msg("%s", m->net->err.text);
}

static void run_all(struct machine *m)
{
    const struct program *p = m->net->program;
    const struct program_list *lists[] = {&p->list[PART_PREPARE], &p->list[PART_FORWARD],
                                          &p->backward};

    for (int l = 0; l < 3; l++)
        for (int i = 0; i < lists[l]->n; i++)
            if (m->kernels[lists[l]->nodes[i]])
                run_one(m, lists[l]->nodes[i]);
}

/* Tests ------------------------------------------------------------------------------- */

/* Gradients in float32 agree within 1e-5 of the largest one, as they have to with PyTorch's. */
static void compare(const struct run_graph *reference, const struct machine *m, int v)
{
    int64_t n = shape_elements(&m->net->graph->values[v].shape);
    double *x = mem_new((size_t)n, sizeof(*x)), largest = 1e-3;
    const float *y = m->buffers[v];

    run_graph_get(reference, v, x);
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(x[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(x[i] - (double)y[i]) <= 1e-5 * largest))
            fail_msg("\"%s\"[%d] is %.9g, expected %.9g (largest %g)",
                     m->net->graph->values[v].name, (int)i, (double)y[i], x[i], largest);
    free(x);
}

static int count_ops(const struct program *p, enum part part, const char *op)
{
    int count = 0;

    for (int i = 0; i < p->list[part].n; i++)
        count += strcmp(p->graph->nodes[p->list[part].nodes[i]].op->name, op) == 0;
    return count;
}

static void lowered_equals_plain(int64_t group, bool flat, int threads)
{
    struct net net = {0};
    struct run_graph *reference;
    struct machine *m;

    build(&net, group, flat);
    reference = run_graph_new(backend_find("reference"), net.graph, &net.err);
    assert_non_null(reference);
    for (int v = 0; v < net.n_data; v++)
        if (net.data[v])
            run_graph_set(reference, v, net.data[v]);
    if (run_graph_nodes(reference, 0, net.graph->n_nodes, &net.err))
        fail_msg("%s", net.err.text);
    m = machine_new(&net, threads);
    run_all(m);
    compare(reference, m, net.graph->loss);
    for (int i = 0; i < net.ad.n_params; i++)
        compare(reference, m, net.ad.params[i].gradient);
    for (int i = 0; i < net.ad.n_stats; i++)
        compare(reference, m, net.ad.stats[i].contribution);
    machine_free(m);
    run_graph_free(reference);
    drop(&net);
}

static void a_lowered_network_gives_the_plain_gradients(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        lowered_equals_plain(0, false, threads);
        lowered_equals_plain(0, true, threads);
        lowered_equals_plain(2, false, threads);
    }
}

/* Only the image is reordered on the way in; the parameters once per step. */
static void values_between_convolutions_are_not_reordered(void **state)
{
    struct net net = {0};
    struct machine *m;

    (void)state;
    build(&net, 0, false);
    m = machine_new(&net, 2);
    assert_int_equal(count_ops(net.program, PART_FORWARD, "Reorder"), 1);
    assert_int_equal(count_ops(net.program, PART_DGRAD, "Reorder"), 0);
    assert_true(count_ops(net.program, PART_WGRAD, "Reorder") <= 4);
    machine_free(m);
    drop(&net);
}

static void a_run_repeats_its_bits(void **state)
{
    struct net net = {0};
    struct machine *m;
    size_t bytes[64];
    void *first[64];

    (void)state;
    build(&net, 0, false);
    m = machine_new(&net, 2);
    run_all(m);
    assert_true(net.ad.n_params <= 64);
    for (int i = 0; i < net.ad.n_params; i++) {
        bytes[i] = value_bytes(&net.graph->values[net.ad.params[i].gradient]);
        first[i] = mem_new(bytes[i], 1);
        memcpy(first[i], m->buffers[net.ad.params[i].gradient], bytes[i]);
    }
    for (int repeat = 0; repeat < 3; repeat++)
        run_all(m);
    for (int i = 0; i < net.ad.n_params; i++) {
        assert_memory_equal(first[i], m->buffers[net.ad.params[i].gradient], bytes[i]);
        free(first[i]);
    }
    machine_free(m);
    drop(&net);
}

/* Whatever the processor can do, and wherever the bytes start. */
static void what_is_evicted_is_still_there(void **state)
{
    static const char *const names[] = { "cpu", "reference" };

    (void)state;
    for (int k = 0; k < 2; k++) {
        const struct backend *backend = backend_find(names[k]);
        struct err err = { 0 };
        struct device *device = backend->device_open(1, NULL, &err);
        unsigned char *bytes = backend->alloc(device, 1000, &err);
        bool can = backend->evict(device, NULL, 0);

        assert_non_null(bytes);
        for (int i = 0; i < 1000; i++)
            bytes[i] = (unsigned char)i;
        for (size_t n = 0; n < 200; n++)
            assert_int_equal(backend->evict(device, bytes + n, 1000 - 2 * n), can);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(bytes[i], (unsigned char)i);
        backend->release(device, bytes, 1000);
        backend->device_close(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lowered_network_gives_the_plain_gradients),
        cmocka_unit_test(values_between_convolutions_are_not_reordered),
        cmocka_unit_test(a_run_repeats_its_bits),
        cmocka_unit_test(what_is_evicted_is_still_there),
    };

    if (!backend_find("cpu")) {
        printf("1..0 # SKIP this build has no cpu backend (oneDNN)\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
