/* SPDX-License-Identifier: MIT */
/* Operators that the reader makes of others: a batch gives the loss and the gradients that its
 * samples give one by one.
 */
#include "unit.h"

#include <math.h>

#include "base/mem.h"
#include "graph/autodiff.h"
#include "graph/model.h"
#include "onnx_text.h"
#include "run_graph.h"

enum { SAMPLES = 3 };

/* Each ends in y, whose squares are summed. */
static const struct net {
    const char *name, *text;
} nets[] = {
    { "lstm", "input x float batch,5,3\n init w float 2,16,3\n init r1 float 1,16,4\n"
              "init r2 float 1,16,4\n init b1 float 1,32\n init b2 float 1,32\n"
              "node Concat r1,r2 -> r axis=0\n node Concat b1,b2 -> b axis=0\n"
              "node Transpose x -> t perm=[1,0,2]\n"
              "node LSTM t,w,r,b -> y direction=\"bidirectional\"" },
    { "gru", "input x float batch,4,3\n init w float 1,12,3\n init r float 1,12,4\n"
             "init b float 1,24\n node GRU x,w,r,b -> y linear_before_reset=1 layout=1" },
    { "gru without", "input x float batch,4,3\n init w float 1,12,3\n init r1 float 1,12,2\n"
                     "init r2 float 1,12,2\n init b float 1,24\n"
                     "node Concat r1,r2 -> r axis=2\n"
                     "node GRU x,w,r,b -> y layout=1 direction=\"reverse\"" },
    { "rnn", "input x float batch,4,3\n init w float 1,4,3\n init r float 1,4,4\n"
             "node RNN x,w,r -> -,y direction=\"reverse\" layout=1" },
    { "attention", "input x float batch,5,8\n init q float 8,16\n init k float 8,8\n"
                   "node MatMul x,q -> a\n node MatMul x,k -> b\n"
                   "node Attention a,b,b -> y q_num_heads=4 kv_num_heads=2 is_causal=1" },
    { "window", "opset 25\n input x float batch,5,8\n init q float 8,16\n init k float 8,8\n"
                "init e float 8,6\n node MatMul x,q -> a\n node MatMul x,k -> b\n"
                "node MatMul x,e -> l\n node ReduceMax l -> m axes=[1] keepdims=0\n"
                "node ArgMax m -> n axis=1 keepdims=0\n"
                "node Attention a,b,b,-,-,-,n -> y q_num_heads=4 kv_num_heads=2 "
                "left_window_size=1 right_window_size=1" },
    { "einsum", "input x float batch,4,3\n init w float 3,2,5\n init v float 2,3\n"
                "node Einsum x,w -> a equation=\"bti,iho->bhto\"\n"
                "node Einsum a,v,x -> b equation=\"bhto,hi,bti->bth\"\n"
                "node Einsum b -> c equation=\"...th->...ht\"\n"
                "node Einsum c,x -> y equation=\"bht,bti->bhi\"" },
    { "rotary", "input x float batch,4,12\n init w float 12,12\n init c float batch,4,2\n"
                "node MatMul x,w -> a\n init cos float 5,2\n init sin float 5,2\n"
                "init p int64 1,4 = 0,1,2,3\n"
                "node RotaryEmbedding a,cos,sin,p -> y num_heads=3" },
    { "norms", "input x float batch,4,3,2\n init s float 2\n init t float 2\n init c float 4\n"
               "init d float 4\n init e float 2\n"
               "node GroupNormalization x,s,t -> a num_groups=2\n"
               "node InstanceNormalization a,c,d -> b\n node RMSNormalization b,e -> y" },
    { "upsampling", "input x float batch,2,3,4\n init w float 2,3,2,2\n init b float 3\n"
                    "init s float 4 = 1,1,2,1.5\n init none float 0\n"
                    "node ConvTranspose x,w,b -> a strides=[2,2] output_padding=[1,0]\n"
                    "node Resize a,none,s -> y mode=\"cubic\"" },
    { "one window that reaches beyond", "input x float batch,2,2,2\n init w float 2,1,1\n"
                                        "node Mul x,w -> a\n node MaxPool a -> y "
                                        "kernel_shape=[3,3] strides=[2,2] ceil_mode=1" },
    { "nearest", "input x float batch,2,3,4\n init w float 2,1,1\n init s float 4 = 1,1,2,2\n"
                 "node Mul x,w -> a\n node Resize a,-,s -> y" },
    { "moves", "input x float batch,4,4\n init w float 4,4\n node MatMul x,w -> a\n"
               "init p int64 6 = 0,1,0,0,2,-1\n node Pad a,p -> b mode=\"reflect\"\n"
               "init r int64 3 = 1,2,2\n node Tile b,r -> c\n node Trilu c -> d upper=0\n"
               "init e int64 . = 1\n node CumSum d,e -> y reverse=1" },
    { "choice", "input x float batch,5,4\n init w float 4\n node Mul x,w -> a\n"
                "init k int64 1 = 2\n node TopK a,k -> b,i axis=1\n"
                "node GatherElements x,i -> c axis=1\n node Mul b,c -> d\n"
                "node ReduceMax d -> e axes=[2] keepdims=1\n node Add d,e -> y" },
    /* Pairs (s, k), and s * 4 + k in what is flat, as torch.vmap writes the indices of a mask. */
    { "pairs", "input x float batch,4\n init w float 4\n node Mul x,w -> a\n"
               "const o int64 . = 0\n const i int64 . = 1\n init f int64 2 = 1,2\n"
               "init k int64 1,3,1 = 2,-4,3\n node Shape x -> n end=1\n node Squeeze n -> b\n"
               "node Range o,b,i -> r\n node Unsqueeze r,f -> s\n node Max s,k -> m\n"
               "node Shape m -> d\n node Expand s,d -> p\n node Expand k,d -> q\n"
               "node Concat p,q -> t axis=2\n node GatherND a,t -> y" },
    { "flat", "input x float batch,4,2\n init w float 2\n node Mul x,w -> a\n"
              "const o int64 . = 0\n const i int64 . = 1\n const l int64 . = 4\n"
              "init f int64 2 = 1,2\n init k int64 1,3,1 = 2,0,3\n node Shape x -> n end=1\n"
              "init e int64 2 = -1,2\n node Reshape a,e -> g\n node Squeeze n -> b\n"
              "node Range o,b,i -> r\n node Mul r,l -> v\n node Unsqueeze v,f -> s\n"
              "node Add s,k -> t\n node Gather g,t -> y" },
    { "hot", "input x float batch,5\n init w float 3\n init v float 2 = 0,1\n"
             "init n int64 . = 3\n node ArgMax x -> i axis=1 keepdims=0\n"
             "node OneHot i,n,v -> h\n node Mul h,w -> y" },
    { "curves", "input x float batch,6\n init w float 6\n node PRelu x,w -> a\n"
                "const lo float . = -0.4\n const hi float . = 0.3\n node Clip a,lo,hi -> b\n"
                "node Swish b -> c\n node HardSwish c -> d\n node Max d,x,w -> e\n"
                "node ReduceLogSumExp e -> f axes=[1] keepdims=1\n node Mod x,w -> g fmod=1\n"
                "node Add f,g -> y" },
    { "negative log-likelihood", "input x float batch,3,4\n input l int64 batch,4\n"
                                 "init w float 3,1\n node Mul x,w -> a\n"
                                 "node NegativeLogLikelihoodLoss a,l -> y reduction=\"none\"" },
    { "scatter", "input x float batch,4\n init w float 4\n node Mul x,w -> a\n"
                 "node Transpose a -> b perm=[1,0]\n init i int64 2,1 = 1,3\n"
                 "init j int64 2 = 0,2\n node Gather b,j -> u\n"
                 "node ScatterND b,i,u -> y" },
};

struct result {
    double loss;
    int n;                  /* parameters */
    double *gradients[8];
    int64_t elements[8];
};

static double drawn(int64_t sample, int64_t i)
{
    return sin(1.7 * (double)(sample * 131 + i) + 0.3);
}

/* Inputs are functions of the sample and the element. */
static void feed(struct run_graph *run, int first)
{
    const struct graph *graph = run->graph;

    for (int v = 0; v < graph->n_values; v++) {
        const struct value *value = &graph->values[v];
        int64_t n = shape_elements(&value->shape), per = n / graph->batch;
        double *x;

        if (value->kind == VALUE_CONST || value->kind == VALUE_NODE || v == graph->weight_sum)
            continue;
        x = mem_new((size_t)n, sizeof(*x));
        for (int64_t i = 0; i < n; i++)
            x[i] = value->kind == VALUE_PARAM ? onnx_text_value(value->name, (size_t)i)
                   : dtype_is_float(value->dtype) ? drawn(first + i / per, i % per)
                                                  : (double)((first + i) % 3);
        run_graph_set(run, v, x);
        free(x);
    }
}

static void take(struct run_graph *run, const struct autodiff *ad, struct result *sum)
{
    double loss;

    run_graph_get(run, run->graph->loss, &loss);
    sum->loss += loss;
    sum->n = ad->n_params;
    for (int p = 0; p < ad->n_params && p < 8; p++) {
        int64_t n = shape_elements(&run->graph->values[ad->params[p].param].shape);
        double *x = mem_new((size_t)n, sizeof(*x));

        if (!sum->gradients[p])
            sum->gradients[p] = mem_new((size_t)n, sizeof(*x));
        sum->elements[p] = n;
        run_graph_get(run, ad->params[p].gradient, x);
        for (int64_t i = 0; i < n; i++)
            sum->gradients[p][i] += x[i];
        free(x);
    }
}

static void run_batch(const char *path, int batch, int first, struct result *sum)
{
    struct model_options options = { .batch = batch, .real = DTYPE_F64, .fuse = true };
    struct autodiff ad = { 0 };
    struct err err = { 0 };
    struct model *model = model_open(path, &err);
    struct graph *graph = model ? model_build(model, &options, &err) : NULL;
    struct run_graph *run;

    if (!graph || autodiff(graph, NULL, 1, &ad, NULL, &err) || graph_check(graph, &err))
        fail_msg("%s", err.text);
    run = run_graph_new(backend_find("reference"), graph, &err);
    if (!run)
        fail_msg("%s", err.text);
    run->state.weight_sum = 1;
    feed(run, first);
    if (run_graph_nodes(run, 0, graph->n_nodes, &err))
        fail_msg("%s", err.text);
    take(run, &ad, sum);
    run_graph_free(run);
    graph_free(graph);
    model_close(model);
}

static void a_batch_is_the_sum_of_its_samples(void **state)
{
    const struct net *net = *state;
    struct result whole = { 0 }, parts = { 0 };
    char path[] = "/tmp/test_samples.XXXXXX";
    double largest = 0;
    char *text = mem_printf("opset 23\n%s\n node Mul y,y -> square\n"
                            "node ReduceSum square -> loss keepdims=0\n output loss\n",
                            net->text);
    int file = mkstemp(path);

    assert_true(file >= 0);
    close(file);
    onnx_write_text(path, text);
    run_batch(path, SAMPLES, 0, &whole);
    for (int s = 0; s < SAMPLES; s++)
        run_batch(path, 1, s, &parts);
    assert_true(fabs(whole.loss - parts.loss) <= 1e-12 * fabs(whole.loss));
    assert_int_equal(whole.n, parts.n);
    assert_true(whole.n > 0);
    for (int p = 0; p < whole.n; p++)
        for (int64_t i = 0; i < whole.elements[p]; i++)
            largest = fmax(largest, fabs(whole.gradients[p][i]));
    assert_true(largest > 0);
    for (int p = 0; p < whole.n; p++) {
        for (int64_t i = 0; i < whole.elements[p]; i++)
            assert_true(fabs(whole.gradients[p][i] - parts.gradients[p][i]) <= 1e-12 * largest);
        free(whole.gradients[p]);
        free(parts.gradients[p]);
    }
    unlink(path);
    free(text);
}

int main(void)
{
    enum { N = sizeof(nets) / sizeof(nets[0]) };
    struct CMUnitTest tests[N];
    int result;

    for (int i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){
            .name = mem_printf("a batch is the sum of its samples: %s", nets[i].name),
            .test_func = a_batch_is_the_sum_of_its_samples,
            .initial_state = (void *)(uintptr_t)&nets[i],
        };
    result = _cmocka_run_group_tests("samples", tests, N, NULL, NULL);
    for (int i = 0; i < N; i++)
        free((void *)(uintptr_t)tests[i].name);
    return result;
}
