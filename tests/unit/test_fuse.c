/* SPDX-License-Identifier: MIT */
/* A fused graph computes what the unfused one does: loss and every gradient, in double and in
 * float.
 */
#include "unit.h"

#include <math.h>

#include "base/mem.h"
#include "graph/autodiff.h"
#include "graph/model.h"
#include "graph/op.h"
#include "onnx_text.h"
#include "run_graph.h"

#define BATCH 3

/* What a network gives: the loss, and gradients by name of the parameter. */
struct outcome {
    double loss;
    int n_params, n_nodes;
    char **names;
    int64_t *sizes;
    double **gradients;
    char ops[2048];         /* " Linear Gelu …" of the forward graph */
};

static char path[600];

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "%s/net.onnx", unit_directory());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    *strrchr(path, '/') = '\0';
    return rmdir(path);
}

static struct graph *build(struct model *model, enum dtype real, bool fuse, const char *loss)
{
    struct model_options options = { .batch = BATCH, .real = real, .fuse = fuse,
                                     .loss = loss };
    struct err err = { 0 };
    struct graph *graph = model_build(model, &options, &err);

    if (!graph)
        fail_msg("%s", err.text);
    return graph;
}

static void fill(struct run_graph *run, int v)
{
    const struct value *value = &run->graph->values[v];
    int64_t n = shape_elements(&value->shape), i;
    double *data = mem_new((size_t)n + 1, sizeof(*data));
    float f;

    for (i = 0; i < n; i++) {
        double drawn = onnx_text_value(value->name, (size_t)i) + 0.5;

        if (value->kind == VALUE_INPUT) {
            data[i] = dtype_is_float(value->dtype) ? 4 * drawn - 2 : floor(3 * drawn);
        } else {
            assert_int_equal(value->file_dtype, DTYPE_F32);
            memcpy(&f, (const char *)value->data + 4 * i, sizeof(f));
            data[i] = (double)f;
        }
    }
    run_graph_set(run, v, data);
    free(data);
}

static void collect(struct outcome *out, struct run_graph *run, const struct graph *graph,
                    const struct autodiff *gradients)
{
    int i;

    run_graph_get(run, graph->loss, &out->loss);
    out->n_params = gradients->n_params;
    out->names = mem_new((size_t)out->n_params, sizeof(*out->names));
    out->sizes = mem_new((size_t)out->n_params, sizeof(*out->sizes));
    out->gradients = mem_new((size_t)out->n_params, sizeof(*out->gradients));
    for (i = 0; i < out->n_params; i++) {
        const struct param_grad *p = &gradients->params[i];

        out->names[i] = mem_strdup(graph->values[p->param].name);
        out->sizes[i] = shape_elements(&graph->values[p->param].shape);
        out->gradients[i] = mem_new((size_t)out->sizes[i], sizeof(double));
        run_graph_get(run, p->gradient, out->gradients[i]);
    }
}

static void run_network(struct model *model, enum dtype real, bool fuse, const char *loss,
                        struct outcome *out)
{
    struct graph *graph = build(model, real, fuse, loss);
    struct autodiff gradients;
    struct err err = { 0 };
    struct run_graph *run;
    int v, n;

    memset(out, 0, sizeof(*out));
    for (n = 0; n < graph->n_nodes; n++) {
        size_t used = strlen(out->ops);

        snprintf(out->ops + used, sizeof(out->ops) - used, " %s", graph->nodes[n].op->name);
    }
    out->n_nodes = graph->n_nodes;
    assert_int_equal(graph_check(graph, &err), 0);
    if (autodiff(graph, NULL, 1, &gradients, NULL, &err))
        fail_msg("%s", err.text);
    run = run_graph_new(backend_find("reference"), graph, &err);
    if (!run)
        fail_msg("%s", err.text);
    for (v = 0; v < graph->n_values; v++)
        if (graph->values[v].kind == VALUE_PARAM ||
            (graph->values[v].kind == VALUE_INPUT && v != graph->weight_sum))
            fill(run, v);
    if (run_graph_nodes(run, 0, graph->n_nodes, &err))
        fail_msg("%s", err.text);
    collect(out, run, graph, &gradients);
    run_graph_free(run);
    graph_free(graph);
}

static void outcome_clear(struct outcome *out)
{
    int i;

    for (i = 0; i < out->n_params; i++) {
        free(out->names[i]);
        free(out->gradients[i]);
    }
    free(out->names);
    free(out->sizes);
    free(out->gradients);
}

static double largest(const struct outcome *out, int p)
{
    double most = 0;
    int64_t i;

    for (i = 0; i < out->sizes[p]; i++)
        most = fmax(most, fabs(out->gradients[p][i]));
    return most;
}

static int find_param(const struct outcome *out, const char *name)
{
    int p;

    for (p = 0; p < out->n_params; p++)
        if (strcmp(out->names[p], name) == 0)
            return p;
    fail_msg("%s has no gradient", name);
    return -1;
}

/* Each of some hundred nodes, gradients among them, rounds what it makes to float. */
#define SINGLE (300 * 0x1p-24)

/* Both ways in one type; the fused one is returned. */
static struct outcome compare(struct model *model, enum dtype real, const char *loss,
                              double tolerance)
{
    struct outcome plain, fused;
    int p, q;
    int64_t i;

    run_network(model, real, false, loss, &plain);
    run_network(model, real, true, loss, &fused);
    if (!(fabs(plain.loss - fused.loss) <= tolerance * fabs(plain.loss)))
        fail_msg("loss: %g and %g (%s)", plain.loss, fused.loss, dtype_name(real));
    assert_int_equal(plain.n_params, fused.n_params);
    for (p = 0; p < plain.n_params; p++) {
        q = find_param(&fused, plain.names[p]);
        for (i = 0; i < plain.sizes[p]; i++)
            if (!(fabs(plain.gradients[p][i] - fused.gradients[q][i]) <=
                  tolerance * (largest(&plain, p) + 1e-3)))
                fail_msg("%s[%d]: %g and %g (%s)", plain.names[p], (int)i,
                         plain.gradients[p][i], fused.gradients[q][i], dtype_name(real));
    }
    outcome_clear(&plain);
    outcome_clear(&fused);
    return fused;
}

/* Both ways agree within 'tolerance', relative, and in float; 'ops' of the fused graph are
 * returned.
 */
static struct outcome agree(const char *text, const char *loss, double tolerance)
{
    struct outcome fused;
    struct err err = { 0 };
    struct model *model;

    onnx_write_text(path, text);
    model = model_open(path, &err);
    if (!model)
        fail_msg("%s", err.text);
    compare(model, DTYPE_F32, loss, SINGLE);
    fused = compare(model, DTYPE_F64, loss, tolerance);
    model_close(model);
    return fused;
}

#define MSE "mse:y,target"
/* Sums of some hundred terms in another order. */
#define SAME 1e-12
/* Constants such as 1/sqrt(2) are rounded to float32 in the unfused form. */
#define ROUNDED 1e-6

static void matmul_and_add_become_linear(void **state)
{
    struct outcome out = agree("input x float batch,5,4\n init w float 4,3\n init b float 3\n"
                               "node MatMul x,w -> h\n node Add b,h -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear MseSum");
}

static void a_transposed_weight_is_read_as_it_is(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 3,4\n init b float 3\n"
                               "node Transpose w -> t perm=[1,0]\n node MatMul x,t -> h\n"
                               "node Add h,b -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear MseSum");
}

static void gemm_and_relu_become_linear(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 3,4\n init b float 3\n"
                               "init v float 3,2\n node Gemm x,w,b -> h transB=1\n"
                               "node Relu h -> r\n node Gemm r,v -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Linear MseSum");
}

static void gemm_with_factors_stays(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n init b float 3\n"
                               "node Gemm x,w,b -> y alpha=0.5 beta=2.0\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Gemm MseSum");
}

static void a_shared_activation_is_kept(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,4\n"
                               "node MatMul x,w -> h\n node Relu h -> r\n node Add r,h -> y\n"
                               "output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Relu Add MseSum");
}

#define NORM_START "opset 16\n input x float batch,5,6\n init g float 6\n init b float 6\n"  \
                   "init w float 6,6\n const two float . = 2.0\n const eps float . = 1e-5\n" \
                   "node MatMul x,w -> h\n"                                                  \
                   "node ReduceMean h -> m axes=[-1]\n node Sub h,m -> d\n"

static void a_spelled_out_norm_becomes_one(void **state)
{
    struct outcome out = agree(NORM_START "node Pow d,two -> s\n"
                               "node ReduceMean s -> v axes=[2] keepdims=1\n"
                               "node Add v,eps -> e\n node Sqrt e -> r\n node Div d,r -> n\n"
                               "node Mul n,g -> k\n node Add k,b -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear LayerNormalization MseSum");
}

static void operands_may_stand_in_any_order(void **state)
{
    struct outcome out = agree(NORM_START "node Mul d,d -> s\n"
                               "node ReduceMean s -> v axes=[-1] keepdims=1\n"
                               "node Add eps,v -> e\n node Sqrt e -> r\n node Div d,r -> n\n"
                               "node Mul g,n -> k\n node Add b,k -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear LayerNormalization MseSum");
}

static void a_norm_without_scale_gets_ones(void **state)
{
    struct outcome out = agree(NORM_START "node Mul d,d -> s\n"
                               "node ReduceMean s -> v axes=[-1] keepdims=1\n"
                               "node Add eps,v -> e\n node Sqrt e -> r\n node Div d,r -> n\n"
                               "node Mul n,n -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear LayerNormalization Mul MseSum");
}

static void another_mean_is_no_norm(void **state)
{
    struct outcome out = agree(NORM_START "node Mul d,d -> s\n"
                               "node ReduceMean s -> v axes=[1] keepdims=1\n"
                               "node Add eps,v -> e\n node Sqrt e -> r\n node Div d,r -> y\n"
                               "output y", MSE, SAME);

    (void)state;
    assert_null(strstr(out.ops, "LayerNormalization"));
}

static void another_spelling_of_the_root_is_a_norm(void **state)
{
    static const char *const roots[] = {
        "node Sqrt e -> r\n node Reciprocal r -> i\n",
        "node Sqrt e -> r\n node Div one,r -> i\n",
        "node Pow e,minus -> i\n",
    };
    char text[1024];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        struct outcome out;

        snprintf(text, sizeof(text), NORM_START "const one float . = 1\n"
                 "const minus float . = -0.5\n node Mul d,d -> s\n"
                 "node ReduceMean s -> v axes=[-1] keepdims=1\n node Add eps,v -> e\n%s"
                 "node Mul i,d -> n\n node Mul g,n -> k\n node Add b,k -> y\n output y",
                 roots[i]);
        out = agree(text, MSE, SAME);
        assert_string_equal(out.ops, " Linear LayerNormalization MseSum");
    }
}

static void every_spelling_of_an_rms_norm_becomes_one(void **state)
{
    static const char *const ends[] = {
        "node Sqrt e -> r\n node Div h,r -> n\n",
        "node Sqrt e -> r\n node Reciprocal r -> i\n node Mul h,i -> n\n",
        "node Sqrt e -> r\n node Div one,r -> i\n node Mul i,h -> n\n",
        "node Pow e,minus -> i\n node Mul h,i -> n\n",
    };
    char text[1024];
    size_t i;

    (void)state;
    for (i = 0; i < 2 * sizeof(ends) / sizeof(ends[0]); i++) {
        struct outcome out;

        snprintf(text, sizeof(text),
                 "opset 16\n input x float batch,5,6\n init g float 6\n init w float 6,6\n"
                 "const two float . = 2.0\n const eps float . = 1e-5\n"
                 "const one float . = 1\n const minus float . = -0.5\n"
                 "node MatMul x,w -> h\n node Pow h,two -> s\n"
                 "node ReduceMean s -> v axes=[-1] keepdims=1\n node Add v,eps -> e\n%s%s"
                 "output y", ends[i / 2], i % 2 ? "node Mul n,n -> y\n"
                                                : "node Mul g,n -> y\n");
        out = agree(text, MSE, SAME);
        assert_string_equal(out.ops, i % 2 ? " Linear RMSNormalization Mul MseSum"
                                           : " Linear RMSNormalization MseSum");
    }
}

#define GELU_START "opset 17\n input x float batch,6\n init w float 6,6\n"               \
                   "const half float . = 0.5\n const one float . = 1\n"                   \
                   "const root float . = 1.4142135623730951\n"                            \
                   "const inverse float . = 0.7071067811865476\n"                         \
                   "const c float . = 0.044715\n const k float . = 0.7978845608028654\n"  \
                   "const three float . = 3\n"                                            \
                   "node MatMul x,w -> m\n node Add m,x -> h\n"

static void every_form_of_gelu_becomes_one(void **state)
{
    static const char *const forms[] = {
        GELU_START "node Div h,root -> a\n node Erf a -> t\n node Add t,one -> p\n"
        "node Mul h,p -> q\n node Mul q,half -> y\n output y",
        GELU_START "node Mul inverse,h -> a\n node Erf a -> t\n node Add one,t -> p\n"
        "node Mul half,h -> q\n node Mul q,p -> y\n output y",
        GELU_START "node Mul h,inverse -> a\n node Erf a -> t\n node Add one,t -> p\n"
        "node Mul p,half -> q\n node Mul q,h -> y\n output y",
        GELU_START "node Pow h,three -> h3\n node Mul c,h3 -> i\n node Add h,i -> j\n"
        "node Mul k,j -> a\n node Tanh a -> t\n node Add one,t -> p\n node Mul half,h -> q\n"
        "node Mul q,p -> y\n output y",
        GELU_START "node Mul h,h -> h2\n node Mul h2,h -> h3\n node Mul h3,c -> i\n"
        "node Add i,h -> j\n node Mul j,k -> a\n node Tanh a -> t\n node Mul half,h -> q\n"
        "node Mul t,q -> u\n node Add u,q -> y\n output y",
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct outcome out = agree(forms[i], MSE, ROUNDED);

        assert_string_equal(out.ops, " Linear Add Gelu MseSum");
    }
}

static void gelu_after_linear_is_its_activation(void **state)
{
    struct outcome out = agree("opset 20\n input x float batch,6\n init w float 6,6\n"
                               "node MatMul x,w -> h\n node Gelu h -> y approximate=\"tanh\"\n"
                               "output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear MseSum");
}

static void what_is_almost_gelu_stays(void **state)
{
    struct outcome out = agree(GELU_START "node Div h,root -> a\n node Erf a -> t\n"
                               "node Add t,half -> p\n node Mul h,p -> q\n"
                               "node Mul q,half -> y\n output y", MSE, SAME);

    (void)state;
    assert_non_null(strstr(out.ops, "Erf"));
}

static void a_value_times_its_sigmoid_is_silu(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n"
                               "const c float . = 1.75\n node MatMul x,w -> h\n"
                               "node Sigmoid h -> s\n node Mul s,h -> a\n"
                               "node Mul c,a -> b\n node Sigmoid b -> t\n"
                               "node Mul a,t -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Swish MseSum");
}

static void silu_after_linear_is_its_activation(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n init b float 3\n"
                               "node MatMul x,w -> h\n node Add h,b -> g\n"
                               "node Sigmoid g -> s\n node Mul g,s -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear MseSum");
}

static void a_silu_of_a_multiple_stays(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n"
                               "const c float . = 1.75\n node MatMul x,w -> h\n"
                               "node Mul c,h -> b\n node Sigmoid b -> s\n"
                               "node Mul h,s -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Swish MseSum");
}

static void a_sigmoid_of_another_or_read_twice_stays(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,4\n"
                               "node MatMul x,w -> h\n node Sigmoid h -> s\n"
                               "node Mul s,x -> a\n node Sigmoid a -> t\n"
                               "node Mul a,t -> b\n node Add b,t -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Sigmoid Mul Sigmoid Mul Add MseSum");
}

static void the_logarithm_of_a_softmax_goes_as_well(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n"
                               "node MatMul x,w -> h\n node Softmax h -> p axis=-1\n"
                               "node Log p -> y\n output y", "cross-entropy:y,labels", SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear CrossEntropySum");
}

static void log_softmax_before_cross_entropy_goes(void **state)
{
    struct outcome out = agree("input x float batch,4\n init w float 4,3\n"
                               "node MatMul x,w -> h\n node LogSoftmax h -> y axis=-1\n"
                               "output y", "cross-entropy:y,labels", SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear CrossEntropySum");
}

static void exchanges_and_factors_go_into_the_product(void **state)
{
    struct outcome out = agree("input x float batch,2,3,4\n init w float 3,4\n"
                               "const s float . = 0.25\n const r float . = 3\n"
                               "node Add x,w -> h\n node Mul s,h -> a\n"
                               "node Transpose h -> t perm=[0,1,3,2]\n node Mul t,s -> b\n"
                               "node MatMul a,b -> c\n node Div c,r -> y\n output y", MSE,
                               ROUNDED);

    (void)state;
    assert_string_equal(out.ops, " Add MatMul MseSum");
}

static void a_transpose_between_reshapes_goes_into_the_product(void **state)
{
    struct outcome out = agree("input x float batch,2,3,4\n init w float 3,4\n"
                               "init s int64 3 = -1,3,4\n const u int64 4 = -1,2,4,3\n"
                               "node Add x,w -> h\n node Reshape h,s -> f\n"
                               "node Transpose f -> t perm=[0,2,1]\n"
                               "node Reshape t,u -> b\n node MatMul h,b -> y\n output y", MSE,
                               SAME);

    (void)state;
    assert_string_equal(out.ops, " Add MatMul MseSum");
}

static void a_quotient_by_the_product_stays(void **state)
{
    struct outcome out = agree("input x float batch,3,4\n init w float 3,4\n"
                               "const r float . = 3\n node Add x,w -> h\n"
                               "node Transpose h -> t perm=[0,2,1]\n node MatMul h,t -> c\n"
                               "node Div r,c -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Add MatMul Div MseSum");
}

#define PROJECTION "input x float batch,5,4\n init w float 4,12\n const z int64 . = 0\n"      \
                   "const o int64 . = 1\n const t int64 . = 2\n node MatMul x,w -> p\n"      \
                   "const s int64 4 = 0,0,3,4\n node Reshape p,s -> q\n"                     \
                   "node Unsqueeze q -> u axes=[0]\n"                                        \
                   "node Transpose u -> v perm=[3,1,2,0,4]\n node Squeeze v -> k axes=[3]\n"

static void one_projection_for_all_is_split(void **state)
{
    struct outcome out = agree("opset 11\n" PROJECTION "node Gather k,o -> b\n"
                               "node Gather k,z -> a\n node Gather k,t -> c\n"
                               "node Mul a,b -> d\n node Sub d,c -> y\n output y", MSE, SAME);

    (void)state;
    assert_null(strstr(out.ops, "Gather"));
    assert_null(strstr(out.ops, "Transpose"));
    assert_non_null(strstr(out.ops, " Split"));
}

static void a_projection_read_twice_is_not_split(void **state)
{
    struct outcome out = agree("opset 11\n" PROJECTION "node Gather k,o -> b\n"
                               "node Gather k,o -> a\n node Gather k,t -> c\n"
                               "node Mul a,b -> d\n node Sub d,c -> y\n output y", MSE, SAME);

    (void)state;
    assert_non_null(strstr(out.ops, "Gather"));
}

static void a_transformer_layer_agrees(void **state)
{
    agree("opset 16\n input x float batch,5,6\n init a float 6,18\n init ab float 18\n"
          "init o float 6,6\n init g float 6\n init b float 6\n init s int64 5 = 0,0,3,2,3\n"
          "init back int64 3 = 0,0,-1\n const two float . = 2.0\n const eps float . = 1e-5\n"
          "const scale float . = 0.57735026\n const i0 int64 . = 0\n const i1 int64 . = 1\n"
          "const i2 int64 . = 2\n"
          "node MatMul x,a -> p\n node Add ab,p -> p1\n node Reshape p1,s -> p2\n"
          "node Transpose p2 -> p3 perm=[2,0,3,1,4]\n node Gather p3,i0 -> q\n"
          "node Gather p3,i1 -> k\n node Gather p3,i2 -> v\n"
          "node Transpose k -> k1 perm=[0,1,3,2]\n node Mul q,scale -> q1\n"
          "node MatMul q1,k1 -> w\n node Softmax w -> w1 axis=-1\n node MatMul w1,v -> c\n"
          "node Transpose c -> c1 perm=[0,2,1,3]\n node Reshape c1,back -> c2\n"
          "node MatMul c2,o -> c3\n node Add c3,x -> r\n"
          "node ReduceMean r -> m axes=[-1]\n node Sub r,m -> d\n node Pow d,two -> d2\n"
          "node ReduceMean d2 -> va axes=[-1]\n node Add va,eps -> ve\n node Sqrt ve -> sd\n"
          "node Div d,sd -> n\n node Mul n,g -> n1\n node Add n1,b -> y\n output y", MSE, SAME);
    (void)state;
}

static void a_sum_that_only_a_norm_reads_goes_into_it(void **state)
{
    static const char *const norms[] = {
        "node LayerNormalization r,g,b -> y\n output y",
        "node LayerNormalization r,g -> y\n output y",
        "node Pow r,two -> s\n node ReduceMean s -> v axes=[-1] keepdims=1\n"
        "node Add v,eps -> e\n node Sqrt e -> q\n node Div r,q -> n\n node Mul n,g -> y\n"
        "output y",
    };
    char text[1024];
    size_t i;

    (void)state;
    for (i = 0; i < 2 * sizeof(norms) / sizeof(norms[0]); i++) {
        struct outcome out;

        snprintf(text, sizeof(text),
                 "opset 17\n input x float batch,5,6\n init g float 6\n init b float 6\n"
                 "init w float 6,6\n const two float . = 2\n const eps float . = 1e-5\n"
                 "node MatMul x,w -> h\n node Add %s -> r\n%s", i % 2 ? "h,b" : "x,h",
                 norms[i / 2]);
        out = agree(text, MSE, SAME);
        assert_int_equal(strstr(out.ops, " AddLayerNorm") || strstr(out.ops, " AddRmsNorm"),
                         i % 2 == 0);
    }
}

static void a_sum_that_goes_on_stays(void **state)
{
    struct outcome out = agree("opset 17\n input x float batch,5,6\n init g float 6\n"
                               "init w float 6,6\n node MatMul x,w -> h\n"
                               "node Add x,h -> r\n node LayerNormalization r,g -> n\n"
                               "node Add n,r -> y\n output y", MSE, SAME);

    (void)state;
    assert_string_equal(out.ops, " Linear Add LayerNormalization Add MseSum");
}

/* Queries, keys and values of two heads from one input. */
#define HEADS "input x float batch,5,8\n init wq float 8,8\n init wk float 8,8\n"          \
              "init wv float 8,8\n init s int64 4 = 0,5,2,4\n"                             \
              "const root float . = 0.7071067811865476\n const two float . = 2\n"           \
              "const half float . = 0.5\n const zero float . = 0\n"                          \
              "node MatMul x,wq -> q0\n node MatMul x,wk -> k0\n node MatMul x,wv -> v0\n"  \
              "node Reshape q0,s -> q1\n node Reshape k0,s -> k1\n node Reshape v0,s -> v1\n" \
              "node Transpose q1 -> q perm=[0,2,1,3]\n node Transpose v1 -> v perm=[0,2,1,3]\n"\
              "node Transpose k1 -> k perm=[0,2,3,1]\n"
#define NEVER "const never float . = -1e38\n"
#define LOWER "const o bool 5,5 = 1\n node Trilu o -> m upper=0\n"
#define ANSWER "node Softmax a -> p axis=-1\n node MatMul p,v -> y\n output y"

static int count_op(const struct outcome *out, const char *op)
{
    char word[64];
    int n = 0;

    snprintf(word, sizeof(word), " %s", op);
    for (const char *at = out->ops; (at = strstr(at, word)); at += strlen(word))
        n += at[strlen(word)] == ' ' || at[strlen(word)] == '\0';
    return n;
}

static void attention_is_found_wherever_its_scale_is(void **state)
{
    static const char *const forms[] = {
        HEADS "node MatMul q,k -> a\n" ANSWER,
        HEADS "node MatMul q,k -> c\n node Mul half,c -> a\n" ANSWER,
        HEADS "node MatMul q,k -> c\n node Div c,two -> a\n" ANSWER,
        HEADS "node Mul q,half -> qs\n node MatMul qs,k -> a\n" ANSWER,
        HEADS "node Mul q,root -> qs\n node Mul root,k -> ks\n node MatMul qs,ks -> a\n" ANSWER,
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct outcome out = agree(forms[i], MSE, i < 4 ? SAME : ROUNDED);

        assert_int_equal(count_op(&out, "Attention"), 1);
        assert_int_equal(count_op(&out, "Softmax"), 0);
    }
}

static void attention_takes_every_mask_with_it(void **state)
{
    static const char *const masks[] = {
        LOWER NEVER "node Where m,c,never -> a\n",
        LOWER NEVER "node Not m -> h\n node Where h,never,c -> a\n",
        LOWER NEVER "node Where m,zero,never -> f\n node Add c,f -> a\n",
        "input f float batch,1,1,5\n node Add f,c -> a\n",
        "init f float 2,5,5\n node Add c,f -> a\n",
        "input t float batch,1,5,5\n" NEVER "node Greater t,zero -> g\n"
        "node Where g,c,never -> a\n",
        LOWER NEVER "input f float batch,1,1,5\n node Add f,c -> d\n"
        "node Where m,d,never -> a\n",
    };
    char text[2048];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        struct outcome out;

        snprintf(text, sizeof(text), "%snode MatMul q,k -> b\n node Mul b,half -> c\n %s%s",
                 HEADS, masks[i], ANSWER);
        out = agree(text, MSE, SAME);
        if (count_op(&out, "Attention") != 1 || count_op(&out, "Softmax") ||
            count_op(&out, "Where"))
            fail_msg("mask %d:%s", (int)i, out.ops);
    }
}

static void queries_without_keys_answer_zero(void **state)
{
    struct outcome out =
        agree(HEADS "input t float batch,1,5,5\n const never float . = -inf\n"
              "node Greater t,two -> g\n node MatMul q,k -> b\n"
              "node Where g,b,never -> a\n node Softmax a -> p0 axis=-1\n"
              "node IsNaN p0 -> n\n node Where n,zero,p0 -> p\n node MatMul p,v -> y\n"
              "output y", MSE, SAME);

    (void)state;
    assert_int_equal(count_op(&out, "Attention"), 1);
    assert_int_equal(count_op(&out, "IsNaN"), 0);
}

static void heads_that_share_keys_are_not_repeated(void **state)
{
    struct outcome out =
        agree("input x float batch,5,16\n init wq float 16,16\n init wk float 16,8\n"
              "init wv float 16,8\n init sq int64 4 = 0,5,4,4\n init sk int64 4 = 0,5,2,4\n"
              "init wide int64 5 = -1,2,1,5,4\n const more int64 5 = 1,2,2,5,4\n"
              "const all int64 4 = -1,4,5,4\n"
              "node MatMul x,wq -> q0\n node MatMul x,wk -> k0\n node MatMul x,wv -> v0\n"
              "node Reshape q0,sq -> q1\n node Reshape k0,sk -> k1\n node Reshape v0,sk -> v1\n"
              "node Transpose q1 -> q perm=[0,2,1,3]\n node Transpose v1 -> v2 perm=[0,2,1,3]\n"
              "node Transpose k1 -> k2 perm=[0,2,1,3]\n"
              "node Reshape k2,wide -> k3\n node Expand k3,more -> k4\n"
              "node Reshape k4,all -> k5\n node Transpose k5 -> k perm=[0,1,3,2]\n"
              "node Reshape v2,wide -> v3\n node Expand v3,more -> v4\n"
              "node Reshape v4,all -> v\n node MatMul q,k -> a\n" ANSWER, MSE, SAME);

    (void)state;
    assert_int_equal(count_op(&out, "Attention"), 1);
    assert_int_equal(count_op(&out, "Expand"), 0);
}

static void probabilities_that_are_read_again_stay(void **state)
{
    static const char *const forms[] = {
        HEADS "node MatMul q,k -> a\n node Softmax a -> p axis=-1\n node MatMul p,v -> z\n"
        "node MatMul p,z -> y\n output y",
        HEADS "node MatMul q,k -> a\n node Softmax a -> p axis=-1\n node MatMul p,v -> z\n"
        "node MatMul a,z -> y\n output y",
        HEADS "node MatMul q,k -> a\n node Softmax a -> p axis=-2\n node MatMul p,v -> y\n"
        "output y",
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct outcome out = agree(forms[i], MSE, SAME);

        assert_int_equal(count_op(&out, "Attention"), 0);
        assert_int_equal(count_op(&out, "Softmax"), 1);
    }
}

/* Opset 23 has the operator; unfused it is taken apart. */
static void the_operator_of_the_file_is_kept(void **state)
{
    static const char *const forms[] = {
        "node Attention q,k,v -> y scale=0.5\n output y",
        "node Attention q,k,v -> y is_causal=1\n output y",
        "input f float batch,1,5,5\n node Attention q,k,v,f -> y is_causal=1\n output y",
        "input t float batch,1,5,5\n node Greater t,z -> g\n"
        "node Attention q,k,v,g -> y scale=0.25\n output y",
    };
    char text[2048];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct outcome out;

        snprintf(text, sizeof(text),
                 "opset 23\n input x float batch,5,16\n init wq float 16,16\n"
                 "init wk float 16,8\n init wv float 16,8\n init sq int64 4 = 0,5,4,4\n"
                 "init sk int64 4 = 0,5,2,4\n const z float . = 1.5\n"
                 "node MatMul x,wq -> q0\n node MatMul x,wk -> k0\n node MatMul x,wv -> v0\n"
                 "node Reshape q0,sq -> q1\n node Reshape k0,sk -> k1\n"
                 "node Reshape v0,sk -> v1\n node Transpose q1 -> q perm=[0,2,1,3]\n"
                 "node Transpose v1 -> v perm=[0,2,1,3]\n"
                 "node Transpose k1 -> k perm=[0,2,1,3]\n%s", forms[i]);
        out = agree(text, MSE, SAME);
        assert_int_equal(count_op(&out, "Attention"), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_and_add_become_linear),
        cmocka_unit_test(a_transposed_weight_is_read_as_it_is),
        cmocka_unit_test(gemm_and_relu_become_linear),
        cmocka_unit_test(gemm_with_factors_stays),
        cmocka_unit_test(a_shared_activation_is_kept),
        cmocka_unit_test(a_spelled_out_norm_becomes_one),
        cmocka_unit_test(operands_may_stand_in_any_order),
        cmocka_unit_test(a_norm_without_scale_gets_ones),
        cmocka_unit_test(another_mean_is_no_norm),
        cmocka_unit_test(another_spelling_of_the_root_is_a_norm),
        cmocka_unit_test(every_spelling_of_an_rms_norm_becomes_one),
        cmocka_unit_test(a_value_times_its_sigmoid_is_silu),
        cmocka_unit_test(silu_after_linear_is_its_activation),
        cmocka_unit_test(a_silu_of_a_multiple_stays),
        cmocka_unit_test(a_sigmoid_of_another_or_read_twice_stays),
        cmocka_unit_test(the_logarithm_of_a_softmax_goes_as_well),
        cmocka_unit_test(every_form_of_gelu_becomes_one),
        cmocka_unit_test(gelu_after_linear_is_its_activation),
        cmocka_unit_test(what_is_almost_gelu_stays),
        cmocka_unit_test(log_softmax_before_cross_entropy_goes),
        cmocka_unit_test(exchanges_and_factors_go_into_the_product),
        cmocka_unit_test(a_transpose_between_reshapes_goes_into_the_product),
        cmocka_unit_test(a_quotient_by_the_product_stays),
        cmocka_unit_test(one_projection_for_all_is_split),
        cmocka_unit_test(a_projection_read_twice_is_not_split),
        cmocka_unit_test(a_transformer_layer_agrees),
        cmocka_unit_test(a_sum_that_only_a_norm_reads_goes_into_it),
        cmocka_unit_test(a_sum_that_goes_on_stays),
        cmocka_unit_test(attention_is_found_wherever_its_scale_is),
        cmocka_unit_test(attention_takes_every_mask_with_it),
        cmocka_unit_test(queries_without_keys_answer_zero),
        cmocka_unit_test(heads_that_share_keys_are_not_repeated),
        cmocka_unit_test(probabilities_that_are_read_again_stay),
        cmocka_unit_test(the_operator_of_the_file_is_kept),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
