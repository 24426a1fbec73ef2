/* SPDX-License-Identifier: MIT */
/* Chains of pointwise operators: on graphs that are drawn they give, bit for bit, what the operators give
 * one after the other; and NVRTC compiles all that can be in one. Without a GPU, or what stands in for
 * one, and without NVRTC, there is nothing to test.
 */
#include "unit.h"

#include <dlfcn.h>
#include <string.h>

#include "base/mem.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "graph/program.h"
#include "kernels/backend.h"
#include "kernels/cuda/chain.h"

#define RANK 3
#define NODES 24
#define INPUTS 5
#define DRAWN 4

static uint64_t drawn = 1;

static int draw(int n)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (int)((drawn >> 33) % (uint64_t)n);
}

/* Graphs ------------------------------------------------------------------------------------ */

struct drawn_op {
    const char *name;
    int n;                      /* operands; 0: any number */
    bool broadcasts, narrow;
};

static const struct drawn_op ops[] = {
    { "Add", 2, true, true },         { "Sub", 2, true, true },       { "Mul", 2, true, true },
    { "Max", 2, true, false },        { "Min", 2, true, false },      { "AddN", 0, false, true },
    { "Relu", 1, false, true },       { "Neg", 1, false, true },      { "Tanh", 1, false, true },
    { "Sigmoid", 1, false, true },    { "Gelu", 1, false, true },     { "Swish", 1, false, true },
    { "ReluGrad", 2, false, true },   { "TanhGrad", 2, false, true }, { "SigmoidGrad", 2, false, true },
    { "GeluGrad", 2, false, true },   { "SwishGrad", 2, false, true }, { "Sin", 1, false, false },
    { "Cos", 1, false, false },       { "Abs", 1, false, false },     { "HardSigmoid", 1, false, false },
    { "LeakyRelu", 1, false, false }, { "Elu", 1, false, false },     { "Softplus", 1, false, false },
    { "Mish", 1, false, false },      { "Softsign", 1, false, false }, { "Clip", 1, false, false },
};

static int add_value(struct graph *graph, enum value_kind kind, const struct shape *shape)
{
    return graph_add_value(graph, NULL, kind, DTYPE_F32, shape, (struct batch){ .outer = 0 });
}

/* Of the result's shape, or with axes that are 1, or without the first ones. */
static struct shape narrower(const struct shape *full)
{
    struct shape shape = { .rank = RANK - draw(RANK) };

    for (int k = 0; k < shape.rank; k++)
        shape.dim[k] = draw(3) ? full->dim[RANK - shape.rank + k] : 1;
    return shape;
}

static int reordered(struct graph *graph, int v)
{
    struct shape shape = graph->values[v].shape;
    int to = add_value(graph, VALUE_NODE, &shape);

    graph_add_node(graph, NULL, op_find("Reorder"), 1, &v, 1, &to);
    return to;
}

/* 'pool' has values, the first of them inputs that may broadcast; what is made comes behind. */
static void add_node(struct graph *graph, const struct shape *full, bool narrow, int *pool, int *n)
{
    const struct drawn_op *op;
    int inputs[6], n_inputs, out, node;

    do
        op = &ops[draw((int)(sizeof(ops) / sizeof(ops[0])))];
    while (narrow && !op->narrow);
    n_inputs = op->n ? op->n : 2 + draw(4);
    for (int i = 0; i < n_inputs; i++) {
        int from = op->broadcasts && i == 1 && draw(2) ? draw(INPUTS) : INPUTS + draw(*n - INPUTS);

        /* What was made last is read first: else little is read by one alone. */
        inputs[i] = pool[i == 0 && draw(3) ? *n - 1 : from];
    }
    out = add_value(graph, VALUE_NODE, full);
    node = graph_add_node(graph, NULL, op_find(op->name), n_inputs, inputs, 1, &out);
    if (strcmp(op->name, "Clip") == 0) {
        graph_set_float(graph, node, "min", -0.5);
        graph_set_float(graph, node, "max", 0.75);
    }
    pool[(*n)++] = out;
}

/* Where it is 'narrow' all between the first and the last Reorders is. */
static struct graph *draw_graph(bool narrow)
{
    static const int64_t sizes[] = { 1, 2, 3, 5, 8, 16, 24 };
    struct shape full = { RANK, { 0 } };
    struct graph *graph = graph_new(1, DTYPE_F32);
    int pool[INPUTS + 1 + NODES], n = 0;

    for (int k = 0; k < RANK; k++)
        full.dim[k] = sizes[draw((int)(sizeof(sizes) / sizeof(sizes[0])))];
    for (int i = 0; i <= INPUTS; i++) {
        struct shape shape = i < INPUTS ? narrower(&full) : full;

        pool[n++] = add_value(graph, VALUE_PARAM, &shape);
    }
    for (int i = 0; narrow && i <= INPUTS; i++)
        pool[i] = reordered(graph, pool[i]);
    for (int i = 0; i < NODES; i++)
        add_node(graph, &full, narrow, pool, &n);
    if (narrow)
        reordered(graph, pool[n - 1]);
    return graph;
}

/* Running ------------------------------------------------------------------------------------ */

struct run {
    const struct backend *backend;
    struct device *device;
    struct stream *stream;
    struct program *program;
    struct value_layout *layouts;
    void **buffers;
};

static bool is_made(const struct program *p, int v)
{
    int producer = p->graph->values[v].producer;

    for (int i = 0; i < p->list[PART_FORWARD].n; i++)
        if (p->list[PART_FORWARD].nodes[i] == producer)
            return true;
    return false;
}

static void put(struct run *r, void *to, const void *from, size_t bytes)
{
    struct err err = { 0 };

    assert_int_equal(r->backend->copy(r->stream, to, bytes, from, bytes, bytes, 1, &err), 0);
    assert_int_equal(r->backend->stream_sync(r->stream, &err), 0);
}

static void fill(struct run *r, int v)
{
    int64_t n = shape_elements(&r->program->graph->values[v].shape);
    float *x = mem_new((size_t)n + 1, sizeof(*x));
    uint64_t before = drawn;

    drawn = (uint64_t)v + 77;
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(draw(4001) - 2000) / 700;
    drawn = before;
    put(r, r->buffers[v], x, (size_t)n * sizeof(*x));
    free(x);
}

static void run_node(struct run *r, int node)
{
    const struct node *n = &r->program->graph->nodes[node];
    const void *inputs[CHAIN_OPERANDS];
    void *outputs[1] = { r->buffers[n->outputs[0]] };
    struct kernel_args args = { .inputs = inputs, .outputs = outputs };
    struct err err = { 0 };
    struct kernel *kernel;

    for (int i = 0; i < n->n_inputs; i++)
        inputs[i] = r->buffers[n->inputs[i]];
    kernel = r->backend->kernel_new(r->device, r->program->graph, node, r->layouts, &err);
    if (!kernel)
        fail_msg("%s", err.text);
    assert_int_equal(r->backend->kernel_run(kernel, r->stream, &args, &err), 0);
    /* What nobody reads once more, added to that. */
    if (r->program->graph->values[n->outputs[0]].n_consumers == 0 &&
        r->backend->kernel_accumulates(kernel)) {
        args.accumulate = ACCUMULATE_YES;
        assert_int_equal(r->backend->kernel_run(kernel, r->stream, &args, &err), 0);
    }
    assert_int_equal(r->backend->stream_sync(r->stream, &err), 0);
    r->backend->kernel_free(kernel);
}

static void run_program(struct run *r)
{
    const struct program_list *list = &r->program->list[PART_FORWARD];
    struct err err = { 0 };
    int n = r->program->n_values;

    r->buffers = mem_new((size_t)n, sizeof(*r->buffers));
    r->layouts = mem_new((size_t)n, sizeof(*r->layouts));
    for (int v = 0; v < n; v++) {
        r->layouts[v] = r->program->values[v].layout;
        r->buffers[v] = r->backend->alloc(r->device, value_bytes(&r->program->graph->values[v]), &err);
        assert_non_null(r->buffers[v]);
        if (r->program->graph->values[v].kind == VALUE_PARAM)
            fill(r, v);
    }
    for (int i = 0; i < list->n; i++)
        run_node(r, list->nodes[i]);
}

static void end_run(struct run *r)
{
    for (int v = 0; v < r->program->n_values; v++)
        r->backend->release(r->device, r->buffers[v], value_bytes(&r->program->graph->values[v]));
    free(r->buffers);
    free(r->layouts);
    program_free(r->program);
}

static void set_narrow(struct program *p)
{
    for (int v = 0; v < p->n_values; v++) {
        const struct value *value = &p->graph->values[v];
        const char *reader = value->producer < 0 ? "" : p->graph->nodes[value->producer].op->name;
        bool last = v == p->n_values - 1;

        if (value->kind == VALUE_PARAM || (strcmp(reader, "Reorder") == 0 && last))
            continue;
        p->values[v].layout.opaque = &cuda_narrow_layout;
        p->values[v].layout.bytes /= 2;
    }
}

static struct program *program_for(struct graph *graph, const struct autodiff *autodiff, bool narrow)
{
    struct program *p = program_of_nodes(graph, autodiff, 0);

    program_relink(p);
    if (narrow)
        set_narrow(p);
    return p;
}

static size_t bytes_of(const struct run *r, int v)
{
    return r->layouts[v].bytes;
}

/* All that is still written is the same. */
static void compare(struct run *chained, struct run *plain)
{
    for (int v = 0; v < plain->program->n_values; v++) {
        size_t bytes = bytes_of(plain, v);
        char *a = mem_new(2 * bytes + 1, 1), *b = a + bytes;

        put(plain, a, plain->buffers[v], bytes);
        put(chained, b, chained->buffers[v], bytes);
        if (is_made(chained->program, v) && memcmp(a, b, bytes) != 0)
            fail_msg("value %d differs: seed %llu", v, (unsigned long long)drawn);
        free(a);
    }
}

static int compare_drawn(const struct backend *backend, struct device *device, struct stream *stream)
{
    bool narrow = device->narrow != CUDA_WIDE;
    struct graph *graph = draw_graph(narrow), *copy = graph_copy(graph);
    struct autodiff autodiff = { 0 };
    struct run plain = { backend, device, stream, program_for(graph, &autodiff, narrow), NULL, NULL };
    struct run chained = { backend, device, stream, program_for(copy, &autodiff, narrow), NULL, NULL };
    int saved;

    cuda_form_chains(device, chained.program);
    program_relink(chained.program);
    assert_false(device->no_chains);
    saved = plain.program->list[PART_FORWARD].n - chained.program->list[PART_FORWARD].n;
    run_program(&plain);
    run_program(&chained);
    compare(&chained, &plain);
    end_run(&chained);
    end_run(&plain);
    graph_free(copy);
    graph_free(graph);
    return saved;
}

static void check_backend(const char *name)
{
    const struct backend *backend = backend_find(name);
    struct err err = { 0 };
    struct device *device = backend->device_open(1, NULL, &err);
    struct stream *stream;
    int saved = 0;

    if (!device)
        skip();
    stream = backend->stream_new(device, &err);
    for (int i = 0; i < DRAWN; i++)
        saved += compare_drawn(backend, device, stream);
    print_message("# %s: %d kernels less in %d graphs\n", name, saved, DRAWN);
    assert_true(saved >= 2 * DRAWN);
    backend->stream_free(stream);
    backend->device_close(device);
}

static void chains_of_float32_give_the_same_bits(void **state)
{
    (void)state;
    check_backend("cuda");
}

static void chains_of_bfloat16_give_the_same_bits(void **state)
{
    (void)state;
    check_backend("cuda-bf16");
}

static void chains_of_float16_give_the_same_bits(void **state)
{
    (void)state;
    check_backend("cuda-fp16");
}

/* NVRTC ------------------------------------------------------------------------------------- */

struct nvrtc {
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*destroy)(void **);
    int (*count)(int *);
    int (*list)(int *);
};

static bool open_nvrtc(struct nvrtc *n)
{
    static const char *const names[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so" };
    void *library = NULL;

    for (int i = 0; i < 3 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    *(void **)&n->create = dlsym(library, "nvrtcCreateProgram");
    *(void **)&n->compile = dlsym(library, "nvrtcCompileProgram");
    *(void **)&n->log_size = dlsym(library, "nvrtcGetProgramLogSize");
    *(void **)&n->log = dlsym(library, "nvrtcGetProgramLog");
    *(void **)&n->destroy = dlsym(library, "nvrtcDestroyProgram");
    *(void **)&n->count = dlsym(library, "nvrtcGetNumSupportedArchs");
    *(void **)&n->list = dlsym(library, "nvrtcGetSupportedArchs");
    return n->create && n->compile && n->log_size && n->log && n->destroy && n->count && n->list;
}

/* One that has every function, operands of every kind, and all types of its backend. */
static char *text_of_all(enum cuda_narrow type, int first)
{
    struct chain *c = mem_new(1, sizeof(*c));
    char *text;

    c->type = type;
    c->n_inputs = 3;
    for (int i = 0; i < c->n_inputs; i++)
        c->inputs[i] = (struct chain_input){
            .narrow = type != CUDA_WIDE && i != 1,
            .walk = { .rank = i ? 2 : 1, .n = 1, .elements = 48, .dim = { i ? 6 : 48, 8 },
                      .stride = { { i == 1, i == 2 } }, .flat = i == 0 },
        };
    c->inputs[0].walk.stride[0][0] = 1;
    for (int f = first; f < CUDA_FUNCTION_COUNT && c->n_members < CHAIN_MEMBERS - 1; f++) {
        struct chain_member *m = &c->members[c->n_members++];

        m->function = (enum cuda_function)f;
        m->p = 0.5f;
        m->narrow = type != CUDA_WIDE && f % 2;
        m->n = 3;
        m->operands[0] = (struct chain_operand){ f > first ? CHAIN_MEMBER : CHAIN_INPUT,
                                                 f > first ? c->n_members - 2 : 0 };
        m->operands[1] = (struct chain_operand){ CHAIN_INPUT, 1 };
        m->operands[2] = (struct chain_operand){ CHAIN_INPUT, 2 };
    }
    c->members[c->n_members] = (struct chain_member){
        .sum = true, .n = 2, .operands = { { CHAIN_MEMBER, c->n_members - 1 }, { CHAIN_INPUT, 2 } }
    };
    c->n_members++;
    text = chain_text(c);
    free(c);
    assert_non_null(text);
    return text;
}

static void compile(const struct nvrtc *n, const char *text, int architecture)
{
    char *whole = chain_whole(text), option[40], *log;
    const char *options[] = { option, "--std=c++17", "--diag-suppress=177" };
    void *program = NULL;
    size_t size = 0;
    int result;

    snprintf(option, sizeof(option), "--gpu-architecture=sm_%d", architecture);
    assert_int_equal(n->create(&program, whole, "chain.cu", 0, NULL, NULL), 0);
    result = n->compile(program, 3, options);
    (void)n->log_size(program, &size);
    log = mem_new(size + 1, 1);
    (void)n->log(program, log);
    if (result || strstr(log, "warning"))
        fail_msg("sm_%d: %s", architecture, log);
    free(log);
    n->destroy(&program);
    free(whole);
}

static void nvrtc_compiles_every_function_for_the_oldest_and_the_newest_gpu(void **state)
{
    struct nvrtc n;
    int count, *list;

    (void)state;
    if (!open_nvrtc(&n))
        skip();
    assert_int_equal(n.count(&count), 0);
    list = mem_new((size_t)count, sizeof(*list));
    assert_int_equal(n.list(list), 0);
    for (int first = 0; first < CUDA_FUNCTION_COUNT; first += CHAIN_MEMBERS - 1) {
        char *text = text_of_all(CUDA_WIDE, first);

        compile(&n, text, list[count - 1]);
        free(text);
    }
    for (int type = CUDA_WIDE; type <= CUDA_FLOAT16; type++) {
        char *text = text_of_all((enum cuda_narrow)type, CUDA_ADD);

        compile(&n, text, list[0]);
        free(text);
    }
    free(list);
}

int main(void)
{
    const char *seed = getenv("TASUKI_TEST_SEED");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_of_float32_give_the_same_bits),
        cmocka_unit_test(chains_of_bfloat16_give_the_same_bits),
        cmocka_unit_test(chains_of_float16_give_the_same_bits),
        cmocka_unit_test(nvrtc_compiles_every_function_for_the_oldest_and_the_newest_gpu),
    };

    drawn = seed ? strtoull(seed, NULL, 10) : drawn;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
