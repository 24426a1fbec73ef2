/* SPDX-License-Identifier: MIT */
/* In which form values cross the borders of stages with 16 bits. */
#include "unit.h"

#include "base/mem.h"
#include "graph/model.h"
#include "graph/program.h"
#include "kernels/backend.h"
#include "kernels/cuda/border.h"
#include "onnx_text.h"
#include "scheduler/blocks.h"

/* An image on every way, among them one that a parameter is added to: with one sample it has its shape. */
static const char image[] = "input image float batch,3,8,8\n"
                            "init a float 8,3,3,3\n"
                            "node Conv image,a -> x pads=[1,1,1,1]\n"
                            "init p float 1,8,8,8\n"
                            "node Add x,p -> y\n"
                            "init b float 8,8,3,3\n"
                            "node Conv y,b -> z pads=[1,1,1,1]\n"
                            "init s float 8\n"
                            "init t float 8\n"
                            "init m float 8\n"
                            "init v float 8\n"
                            "node BatchNormalization z,s,t,m,v -> n\n"
                            "node Relu n -> r\n"
                            "init c float 16,8,1,1\n"
                            "node Conv r,c -> q\n"
                            "node GlobalAveragePool q -> g\n"
                            "node Flatten g -> h\n"
                            "init w float 16,10\n"
                            "node MatMul h,w -> o\n"
                            "output o\n";
/* What an attention reads as it is stored others read, too. */
static const char heads[] = "input image float batch,1,8,8\n"
                            "const pixels int64 4 = 0,1,32,2\n"
                            "node Reshape image,pixels -> x\n"
                            "init wq float 2,16\n"
                            "init wk float 2,16\n"
                            "init wv float 2,16\n"
                            "node MatMul x,wq -> q0\n"
                            "node MatMul x,wk -> k0\n"
                            "node MatMul x,wv -> v0\n"
                            "const heads int64 4 = 0,32,2,8\n"
                            "node Reshape q0,heads -> q1\n"
                            "node Reshape k0,heads -> k1\n"
                            "node Reshape v0,heads -> v1\n"
                            "node Transpose q1 -> q perm=[0,2,1,3]\n"
                            "node Transpose k1 -> kt perm=[0,2,3,1]\n"
                            "node Transpose v1 -> v perm=[0,2,1,3]\n"
                            "node MatMul q,kt -> s\n"
                            "const scale float 1 = 0.35\n"
                            "node Mul s,scale -> scaled\n"
                            "node Softmax scaled -> p axis=-1\n"
                            "node MatMul p,v -> y0\n"
                            "node Transpose y0 -> y1 perm=[0,2,1,3]\n"
                            "node Flatten y1 -> h\n"
                            "init w float 512,10\n"
                            "node MatMul h,w -> o\n"
                            "init u float 8,8\n"
                            "node MatMul q1,u -> y2\n"
                            "node Flatten y2 -> h2\n"
                            "init w2 float 512,10\n"
                            "node MatMul h2,w2 -> o2\n"
                            "node Add o,o2 -> out\n"
                            "output out\n";
static const char *const networks[] = { "image", "heads", "transformer", "transformer-post", "causal",
                                        "grouped", "cnn", "skips", "tied", NULL };
static char directory[520];

struct scene {
    struct model *model;
    struct graph *graph;
    struct blocks *blocks;
    struct autodiff autodiff;
    unsigned char *forms;
};

static struct graph *build(struct model *model, int64_t batch)
{
    struct model_options options = { .batch = batch, .real = DTYPE_F32, .fuse = true };
    struct err err = { 0 };
    struct graph *graph = model_build(model, &options, &err);

    if (!graph)
        fail_msg("%s", err.text);
    return graph;
}

/* A stage for each block. */
static void open_scene(struct scene *s, const char *network, int64_t batch, enum cuda_narrow narrow)
{
    const char *source = getenv("srcdir");
    struct err err = { 0 };
    char path[600];
    int *stages;

    if (strcmp(network, "image") == 0 || strcmp(network, "heads") == 0)
        snprintf(path, sizeof(path), "%s/%s.onnx", directory, network);
    else
        snprintf(path, sizeof(path), "%s/tests/data/model/%s/model.onnx", source ? source : "..", network);
    s->model = model_open(path, &err);
    if (!s->model)
        fail_msg("%s", err.text);
    s->graph = build(s->model, batch);
    s->blocks = blocks_new(s->graph, &err);
    stages = arena_alloc(s->graph->arena, (size_t)s->graph->n_nodes, sizeof(*stages));
    for (int n = 0; n < s->graph->n_nodes; n++)
        stages[n] = s->graph->nodes[n].block;
    if (autodiff(s->graph, stages, s->blocks->n, &s->autodiff, &stages, &err))
        fail_msg("%s", err.text);
    s->forms = cuda_border_forms(s->graph, &s->autodiff, narrow);
}

static void close_scene(struct scene *s)
{
    free(s->forms);
    blocks_free(s->blocks);
    graph_free(s->graph);
    model_close(s->model);
}

static enum cuda_form form_in(const struct program *program, int v)
{
    const struct value_layout *layout = &program->values[v].layout;

    if (!layout->opaque)
        return CUDA_SINGLE;
    assert_int_equal(layout->bytes, 2 * shape_elements(&program->graph->values[v].shape));
    return cuda_is_last(layout) ? CUDA_LAST : CUDA_ROWS;
}

/* What it says without a device, and over all cuts, a device has made of the network in one stage. */
static void a_network_is_the_same(const char *network, const char *name, enum cuda_narrow narrow)
{
    const struct backend *backend = backend_find(name);
    struct err err = { 0 };
    struct device *device = backend->device_imagine("NVIDIA H100", &err);
    struct autodiff whole;
    struct program *program;
    struct graph *graph;
    struct scene s;
    int n_narrow = 0;

    if (!device)
        fail_msg("%s", err.text);
    open_scene(&s, network, 2, narrow);
    graph = build(s.model, 2);
    program = blocks_whole(graph, &whole, &err);
    if (!program || backend->lower(device, program, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < s.autodiff.n_boundaries; i++) {
        const struct boundary *b = &s.autodiff.boundaries[i];

        if (program->values[b->value].layout.opaque != &cuda_turned_layout)
            assert_int_equal(form_in(program, b->value), s.forms[b->value]);
        if (b->gradient >= 0 && s.forms[b->value] != CUDA_SINGLE)
            assert_int_not_equal(s.forms[b->gradient], CUDA_SINGLE);
        n_narrow += s.forms[b->value] != CUDA_SINGLE;
    }
    assert_true(2 * n_narrow > s.autodiff.n_boundaries);
    program_free(program);
    graph_free(graph);
    close_scene(&s);
    backend->device_close(device);
}

static void what_crosses_is_as_one_stage_has_it(void **state)
{
    (void)state;
    for (int i = 0; networks[i]; i++) {
        a_network_is_the_same(networks[i], "cuda-bf16", CUDA_BFLOAT16);
        a_network_is_the_same(networks[i], "cuda-fp16", CUDA_FLOAT16);
    }
}

static bool makes(const struct program *program, int v)
{
    for (int part = PART_FORWARD; part < PART_COUNT; part++)
        for (int i = 0; i < program->list[part].n; i++) {
            const struct node *node = &program->graph->nodes[program->list[part].nodes[i]];

            for (int k = 0; k < node->n_outputs; k++)
                if (node->outputs[k] == v)
                    return true;
        }
    return false;
}

static bool receives(const struct program *program, int v)
{
    const struct autodiff *ad = program->autodiff;
    bool received = false;

    for (int i = 0; i < ad->n_boundaries; i++)
        received |= (ad->boundaries[i].to == program->stage && ad->boundaries[i].value == v) ||
                    (ad->boundaries[i].from == program->stage && ad->boundaries[i].received == v);
    return received;
}

/* One value of a stage that was lowered, and what the other side is to have of it. */
static void check_value(const struct program *program, int v, enum cuda_form form, bool sends)
{
    assert_int_equal(form_in(program, v), form);
    assert_ptr_not_equal(program->values[v].layout.opaque, &cuda_turned_layout);
    if (sends)
        assert_true(makes(program, v) || receives(program, v));
}

static void check_stage(const struct backend *backend, struct device *device, const struct graph *graph,
                        const struct autodiff *ad, const int *stage_of, int stage,
                        const unsigned char *forms)
{
    struct graph *own = graph_copy(graph);
    struct err err = { 0 };
    struct program *program = program_new(own, ad, stage_of, stage, 2, &err);

    if (!program || backend->lower(device, program, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < ad->n_boundaries; i++) {
        const struct boundary *b = &ad->boundaries[i];

        if (b->from == stage)
            check_value(program, b->value, (enum cuda_form)forms[b->value], true);
        if (b->from == stage && b->gradient >= 0)
            check_value(program, b->received, (enum cuda_form)forms[b->received], false);
        if (b->to == stage)
            check_value(program, b->value, (enum cuda_form)forms[b->value], false);
        if (b->to == stage && b->gradient >= 0)
            check_value(program, b->gradient, (enum cuda_form)forms[b->gradient], true);
    }
    program_free(program);
    graph_free(own);
}

/* In front of each node: behind attentions, too, and where blocks would never be cut. */
static void cut_everywhere(const struct backend *backend, struct device *device, struct model *model)
{
    int n = 2;

    for (int cut = 1; cut < n; cut++) {
        struct graph *graph = build(model, 2);
        int *stages = arena_alloc(graph->arena, (size_t)graph->n_nodes, sizeof(*stages));
        struct err err = { 0 };
        struct autodiff ad;
        unsigned char *forms;

        n = graph->n_nodes;
        for (int k = 0; k < n; k++)
            stages[k] = k >= cut;
        if (autodiff(graph, stages, 2, &ad, &stages, &err))
            fail_msg("%s", err.text);
        forms = cuda_border_forms(graph, &ad, CUDA_BFLOAT16);
        for (int stage = 0; stage < 2; stage++)
            check_stage(backend, device, graph, &ad, stages, stage, forms);
        free(forms);
        graph_free(graph);
    }
}

static void both_sides_of_any_cut_have_the_same(void **state)
{
    const struct backend *backend = backend_find("cuda-bf16");
    struct err err = { 0 };
    struct device *device = backend->device_imagine("NVIDIA H100", &err);

    (void)state;
    for (int i = 0; networks[i]; i++) {
        struct scene s;

        open_scene(&s, networks[i], 2, CUDA_BFLOAT16);
        cut_everywhere(backend, device, s.model);
        close_scene(&s);
    }
    backend->device_close(device);
}

static void the_samples_of_a_replica_do_not_count(void **state)
{
    (void)state;
    for (int i = 0; networks[i]; i++) {
        struct scene one, many;

        open_scene(&one, networks[i], 1, CUDA_FLOAT16);
        open_scene(&many, networks[i], 6, CUDA_FLOAT16);
        assert_int_equal(one.autodiff.n_boundaries, many.autodiff.n_boundaries);
        for (int k = 0; k < one.autodiff.n_boundaries; k++) {
            const struct boundary *a = &one.autodiff.boundaries[k], *b = &many.autodiff.boundaries[k];

            assert_int_equal(one.forms[a->value], many.forms[b->value]);
            if (a->gradient >= 0)
                assert_int_equal(one.forms[a->gradient], many.forms[b->gradient]);
        }
        close_scene(&one);
        close_scene(&many);
    }
}

static void images_are_sent_whole_and_what_is_summed_is_not_narrow(void **state)
{
    struct value v = { .dtype = DTYPE_F32, .shape = { 4, { 1, 2, 3, 3 } }, .batch = { 1, 18, 1 } };

    (void)state;
    assert_int_equal(cuda_border_form(&v, CUDA_LAST), CUDA_LAST);
    assert_int_equal(cuda_border_form(&v, CUDA_ROWS), CUDA_ROWS);
    v.batch = (struct batch){ 1, 9, 2 };
    assert_int_equal(cuda_border_form(&v, CUDA_LAST), CUDA_ROWS);
    v.batch = (struct batch){ 0 };
    assert_int_equal(cuda_border_form(&v, CUDA_ROWS), CUDA_SINGLE);
}

static int setup(void **state)
{
    char path[600];

    (void)state;
    snprintf(directory, sizeof(directory), "%s", unit_directory());
    snprintf(path, sizeof(path), "%s/image.onnx", directory);
    onnx_write_text(path, image);
    snprintf(path, sizeof(path), "%s/heads.onnx", directory);
    onnx_write_text(path, heads);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unit_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_crosses_is_as_one_stage_has_it),
        cmocka_unit_test(both_sides_of_any_cut_have_the_same),
        cmocka_unit_test(the_samples_of_a_replica_do_not_count),
        cmocka_unit_test(images_are_sent_whole_and_what_is_summed_is_not_narrow),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
