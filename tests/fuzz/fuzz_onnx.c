/* SPDX-License-Identifier: MIT */
/* Hostile ONNX files: read, and built at two batch sizes with gradients. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/autodiff.h"
#include "graph/model.h"
#include "onnx_text.h"

static const char *const networks[] = {
    "input x float batch,6\n init w float 8,6\n init b float 8\n init v float 8,3\n"
    "node Gemm x,w,b -> h transB=1\n node Relu h -> r\n node MatMul r,v -> y\n output y",

    "opset 11\n input x float 2,3,8,8\n init w float 4,3,3,3\n init s float 4\n init o float 4\n"
    "init m float 4\n init v float 4\n init f float 5,64\n const n int64 2 = 2,-1\n"
    "node Conv x,w -> c kernel_shape=[3,3] pads=[1,1,1,1] strides=[1,1] group=1\n"
    "node BatchNormalization c,s,o,m,v -> d momentum=0.9 epsilon=1e-5\n node Relu d -> r\n"
    "node MaxPool r -> p kernel_shape=[2,2] strides=[2,2] ceil_mode=0\n"
    "node AveragePool r -> a kernel_shape=[2,2] strides=[2,2] auto_pad=\"SAME_UPPER\"\n"
    "node Add p,a -> q\n node Reshape q,n -> z\n"
    "node Gemm z,f -> y transB=1 alpha=1.0 beta=1.0\n output y",

    "opset 18\n input t int64 batch,4\n init e float 10,6\n init w float 6,6\n init g float 6\n"
    "init k int64 4 = 0,0,2,3\n const two float . = 2.0\n const eps float . = 1e-5\n"
    "const one int64 1 = 1\n const zero int64 1 = 0\n const big int64 1 = 2147483647\n"
    "node Gather e,t -> x\n node Shape x -> s\n node Slice s,zero,one -> s0\n"
    "node Reshape x,k -> h\n node Transpose h -> i perm=[0,2,1,3]\n"
    "node Transpose h -> j perm=[0,2,3,1]\n node MatMul i,j -> q\n node Softmax q -> a axis=-1\n"
    "node MatMul a,i -> u\n node Transpose u -> u1 perm=[0,2,1,3]\n node Shape x -> s1\n"
    "node Reshape u1,s1 -> o\n node MatMul o,w -> o1\n node Add o1,x -> o2\n"
    "node ReduceMean o2 -> m axes=[-1] keepdims=1\n node Sub o2,m -> d\n node Pow d,two -> d2\n"
    "node ReduceMean d2 -> v axes=[-1] keepdims=1\n node Add v,eps -> v1\n node Sqrt v1 -> v2\n"
    "node Div d,v2 -> l\n node Mul l,g -> y\n node Dropout y -> y1\n output y1",

    "input x float batch,4\n init w float 4,4\n node LayerNormalization x,w -> bad\n"
    "const c float . = 0.5\n const r float . = 1.4142135\n const o float . = 1\n"
    "const st int64 2 = 0,0\n const en int64 2 = 3,2\n const sh int64 3 = 1,-1,2\n"
    "node MatMul x,w -> h\n node Div h,r -> h1\n node Erf h1 -> h2\n node Add h2,o -> h3\n"
    "node Mul h3,h -> h4\n node Mul h4,c -> g\n node Reshape g,sh -> g1\n"
    "node Concat g1,g1 -> g2 axis=2\n node ReduceMean g2 -> y keepdims=0\n output y",

    "opset 13\n input x float batch,3,4\n input l int64 batch,3\n init w float 4,12\n"
    "signature PARAMETER:v BUFFER:c CONSTANT_TENSOR:k\n about w folded v,val_1\n"
    "about c kind BUFFER\n about q folded k,val_2\n"
    "init c float 12\n init q int64 4 = 0,0,3,4\n const i0 int64 . = 0\n const i1 int64 . = 1\n"
    "const i2 int64 . = -1\n const ax int64 1 = 0\n const ax2 int64 1 = 3\n"
    "const half int64 2 = 2,2\n const neg float . = -1e9\n const step int64 . = 1\n"
    "node MatMul x,w -> p\n node Reshape p,q -> r\n node Unsqueeze r,ax -> u\n"
    "node Transpose u -> t perm=[3,1,2,0,4]\n node Squeeze t,ax2 -> s\n"
    "node Gather s,i0 -> a\n node Gather s,i1 -> b\n node Gather s,i2 -> d\n"
    "node Transpose b -> bt perm=[0,2,1]\n node MatMul a,bt -> m\n node Shape m -> ms\n"
    "node Gather ms,i1 -> n\n node Range i0,n,step -> ids\n node Unsqueeze ids,ax -> row\n"
    "node Transpose row -> col perm=[1,0]\n node Less col,row -> mask\n"
    "node Where mask,neg,m -> mm\n node Softmax mm -> sm axis=2\n node MatMul sm,d -> o\n"
    "node Split o,half -> o1,o2 axis=2\n node Concat o2,o1 -> o3 axis=-1\n"
    "node Expand o3,ms -> never\n node ReduceSum o3,ax2 -> never2\n"
    "node MatMul o3,w -> z\n node Transpose z -> y perm=[0,2,1]\n"
    "node SoftmaxCrossEntropyLoss y,l,c -> loss ignore_index=-1\n output loss",
    /* What becomes several operators. */
    "opset 23\n input x float batch,5,8\n init w float 2,16,8\n init r float 2,16,4\n"
    "init b float 2,32\n init k float 8,8\n init s float 3 = 1,2,1.5\n"
    "init p int64 6 = 0,1,0,0,2,-1\n init t int64 3 = 1,2,1\n init n int64 1 = 2\n"
    "init ax int64 . = 1\n node Transpose x -> xt perm=[1,0,2]\n"
    "node LSTM xt,w,r,b -> h,hn,cn direction=\"bidirectional\" hidden_size=4\n"
    "node ReduceMax h -> hm axes=[1] keepdims=0\n node Transpose hm -> a perm=[1,0,2]\n"
    "node ReduceMean a -> am axes=[1,2] keepdims=1\n node MatMul x,k -> q\n"
    "node Attention q,q,x -> o q_num_heads=2 kv_num_heads=2 is_causal=1\n"
    "node Resize o,-,s -> z mode=\"cubic\" coordinate_transformation_mode=\"align_corners\"\n"
    "node Pad z,p -> z1 mode=\"reflect\"\n node Tile z1,t -> z2\n"
    "node CumSum z2,ax -> z3 reverse=1\n node TopK z3,n -> v,i axis=1 largest=1\n"
    "node GatherElements z3,i -> g axis=1\n"
    "node Einsum v,g -> e equation=\"bij,bkj->bik\"\n node Add e,am -> y\n output y",

    "opset 17\n input x float batch,4,6,6\n init w float 4,2,2,2\n init b float 4\n"
    "init g float 4\n init d int64 . = 3\n init hv float 2 = 0,1\n"
    "node ConvTranspose x,w,b -> c group=2 strides=[2,2] pads=[1,0,0,1] "
    "output_padding=[1,1]\n node InstanceNormalization c,g,g -> e epsilon=0.01\n"
    "node GlobalMaxPool e -> m\n node Flatten m -> f axis=1\n"
    "node ArgMax f -> am axis=1 keepdims=0\n node OneHot am,d,hv -> oh axis=-1\n"
    "node ReduceMax oh -> om axes=[1] keepdims=0\n node Trilu c -> tr upper=0\n"
    "node ReduceLogSumExp tr -> ls axes=[1,2,3] keepdims=0\n node Add ls,om -> y\n output y",

    "input x float batch,4\n init w float 4\n const n int64 . = 2\n const zero int64 . = 0\n"
    "const c bool . = 1\n node Loop n,c,x -> h,s body={B}\n const ax int64 1 = 0\n"
    "node ReduceSum s,ax -> r keepdims=0\n node Add h,r -> y\n output y\n"
    "graph B\n input i\n input go\n input h\n node Equal i,zero -> c\n"
    "node If c -> t then_branch={T} else_branch={E}\n node Loop n,-,t -> m body={M}\n"
    "output go\n output m\n output t\n end\n"
    "graph T\n init w2 float 4\n node Tanh h -> a\n node Mul a,w2 -> b\n output b\n end\n"
    "graph E\n node Relu h -> a\n output a\n end\n"
    "graph M\n input j\n input k\n input u\n node Mul u,w -> v\n output k\n output v\n end",

    "input x float batch,4\n init w float 4\n const yes bool . = 1\n const no bool . = 0\n"
    "node f:S x,yes -> h,g beta=0.5\n node f:S h,no -> k\n node Add k,g -> y\n output y\n"
    "function f:S x,c,o -> z,x alpha,beta\n default alpha=0.25\n node f:T x -> t\n"
    "node LayerNormalization t,t0,o -> t1 epsilon=@alpha\n const t0 float 4 = 1,2,3,4\n"
    "node If c -> z then_branch={T} else_branch={E}\n end\n"
    "graph T\n node f:R t1 -> u\n output u\n end\n"
    "graph E\n node Neg t -> u\n node LeakyRelu u -> v alpha=@beta\n output v\n end\n"
    "function f:R t -> u,u\n node Relu t -> u\n end\n"
    "function f:T p -> q\n opset 13\n node f:R p -> r\n node Tanh r -> q\n end",
};

/* One field in so many is damaged. */
struct damage {
    struct fuzz *fuzz;
    size_t rate;
};

static int mutate_number(void *user, int64_t *value)
{
    struct damage *d = user;

    if (!fuzz_once_in(d->fuzz, d->rate))
        return 1;
    *value = fuzz_once_in(d->fuzz, 2) ? fuzz_number(d->fuzz)
                                      : *value + (int64_t)fuzz_below(d->fuzz, 5) - 2;
    return 1;
}

static int mutate_string(void *user, const char **text)
{
    static const char *const others[] = {
        "x", "y", "w", "h", "s", "", "axis", "perm", "Add", "MatMul", "Reshape", "Concat",
        "Slice", "Expand", "Identity", "Constant", "Range", "Where", "Loop", "value", "Cast",
        "Squeeze", "Split", "Tile", "ReduceSum", "SoftmaxCrossEntropyLoss", "a\nb", "\xff",
        "Transpose", "Flatten", "Shape", "Gather", "GlobalAveragePool", "Log", "Pow",
        "If", "S", "T", "R", "f", "c", "a", "b", "u", "t", "alpha", "beta", "body",
    };
    struct damage *d = user;

    if (fuzz_once_in(d->fuzz, d->rate))
        *text = others[fuzz_below(d->fuzz, sizeof(others) / sizeof(others[0]))];
    return 1;
}

static int mutate_message(void *user)
{
    struct damage *d = user;

    if (!fuzz_once_in(d->fuzz, 2 * d->rate))
        return 1;
    return fuzz_once_in(d->fuzz, 2) ? 0 : 2;
}

static void make(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    struct damage damage = { fuzz, 12 + fuzz_below(fuzz, 120) };
    const struct onnx_mutator mutator = { mutate_number, mutate_string, mutate_message,
                                          &damage };
    const char *text = networks[fuzz_below(fuzz, sizeof(networks) / sizeof(networks[0]))];
    struct onnx_bytes bytes = { 0 };
    uint64_t noise;
    size_t n;

    if (!structured && fuzz_once_in(fuzz, 4)) {
        for (n = fuzz_below(fuzz, 64); n > 0; n--) {
            noise = fuzz_next(fuzz);
            fuzz_put(file, &noise, sizeof(noise));
        }
        return;
    }
    onnx_from_text(text, structured ? &mutator : NULL, &bytes);
    fuzz_put(file, bytes.data, bytes.size);
    free(bytes.data);
    if (!structured)
        fuzz_damage(fuzz, file);
}

static int build(struct model *model, int64_t batch, bool fuse, struct err *err)
{
    struct model_options options = { .batch = batch, .real = DTYPE_F32, .fuse = fuse };
    struct graph *graph = model_build(model, &options, err);
    struct autodiff gradients;
    int result = graph ? 0 : -1;

    if (graph && autodiff(graph, NULL, 1, &gradients, NULL, err))
        result = err_prefix(err, "%s", model_path(model));
    graph_free(graph);
    return result;
}

/* What one rank takes, all do. */
static struct model *unpacked(const struct model *model)
{
    struct err err = { 0 };
    size_t size;
    void *packed = model_pack(model, &size);
    struct model *there = model_unpack(model_path(model), packed, size, &err);

    free(packed);
    if (!there || strcmp(model_hash(there), model_hash(model)) != 0) {
        fprintf(stderr, "unpacked it is another model: %s\n", err.text);
        abort();
    }
    return there;
}

static enum fuzz_result try(const char *path, struct err *err)
{
    struct model *model = model_open(path, err), *there;
    int result;

    /* A file that is a message of the right form has passed the parser. */
    if (!model)
        return strstr(err->text, ": byte ") || strstr(err->text, "empty") ? FUZZ_UNPARSED
                                                                          : FUZZ_REFUSED;
    there = unpacked(model);
    result = build(model, 1, true, err);
    if (!result)
        result = build(there, 3, false, err);
    model_close(there);
    model_close(model);
    return result ? FUZZ_REFUSED : FUZZ_ACCEPTED;
}

int main(int argc, char **argv)
{
    static const struct fuzz_target target = { "onnx", ".onnx", make, try };

    return fuzz_main(&target, argc, argv);
}
