/* SPDX-License-Identifier: MIT */
/* One value made of the values beside it. */
#include "kernels/cuda/cuda.h"
#include "kernels/philox.h"

int cuda_run_pointwise(const struct cuda_kernel *k, struct stream *stream,
                       const struct kernel_args *args, struct err *err)
{
    struct cuda_pointwise l = k->launch.pointwise;

    for (int i = 0; i < l.walk.n; i++)
        l.in[i] = args->inputs[i];
    l.out = args->outputs[0];
    l.add = args->accumulate == ACCUMULATE_YES;
    return l.walk.elements ? k->device->cuda->pointwise(stream->cuda, &l, err) : 0;
}

/* Operands that broadcast, as setup_broadcast() has them, or all of one shape. */
static void find_walk(const struct kernel *d, struct cuda_walk *walk)
{
    if (d->walk.rank)
        cuda_walk_from(walk, &d->walk);
    else {
        *walk = (struct cuda_walk){ .rank = 1, .n = d->n_inputs, .elements = d->out[0].elements,
                                    .dim = { d->out[0].elements }, .flat = 1 };
        for (int i = 0; i < walk->n && i < CUDA_OPERANDS; i++)
            walk->stride[i][0] = 1;
    }
    cuda_walk_merge(walk);
}

static bool all_f32(const struct kernel *d)
{
    for (int i = 0; i < d->n_inputs; i++)
        if (d->in[i].dtype != DTYPE_F32)
            return false;
    return d->out[0].dtype == DTYPE_F32;
}

static int make(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    struct cuda_pointwise *l = &k->launch.pointwise;

    (void)graph, (void)node;
    if (!all_f32(d) || d->n_inputs > 3)
        return -1;
    l->function = (enum cuda_function)cuda_op_of(k)->argument;
    l->p = d->alpha;
    l->q = d->beta;
    l->narrow = l->narrow_out = k->narrow;
    find_walk(d, &l->walk);
    k->run = cuda_run_pointwise;
    k->accumulates = true;
    return 0;
}

static int make_gelu(struct cuda_kernel *k, const struct graph *graph, int node)
{
    int bad = make(k, graph, node);

    if (!bad && k->digest->activation == REF_GELU_TANH)
        k->launch.pointwise.function = k->launch.pointwise.function == CUDA_GELU
                                           ? CUDA_GELU_TANH : CUDA_GELU_TANH_GRAD;
    return bad;
}

static int make_spread(struct cuda_kernel *k, const struct graph *graph, int node)
{
    int bad = make(k, graph, node);

    k->launch.pointwise.p = k->digest->scale;
    return bad;
}

/* Sums of any number ----------------------------------------------------------------------- */

int cuda_run_sum(const struct cuda_kernel *k, struct stream *stream, const struct kernel_args *args,
                 struct err *err)
{
    struct cuda_addn l = { .n = k->digest->n_inputs, .elements = k->digest->out[0].elements,
                           .narrow = k->narrow, .out = args->outputs[0], .add = args->accumulate == ACCUMULATE_YES };

    for (int i = 0; i < l.n; i++)
        l.in[i] = args->inputs[i];
    return l.elements ? k->device->cuda->addn(stream->cuda, &l, err) : 0;
}

static int make_addn(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    if (!all_f32(k->digest) || k->digest->n_inputs > CUDA_TERMS)
        return -1;
    k->run = cuda_run_sum;
    k->accumulates = true;
    return 0;
}

/* Any type --------------------------------------------------------------------------------- */

static int run_typed(const struct cuda_kernel *k, struct stream *stream,
                     const struct kernel_args *args, struct err *err)
{
    struct cuda_typed l = k->launch.typed;

    for (int i = 0; i < l.walk.n; i++)
        l.in[i] = args->inputs[i];
    l.out = args->outputs[0];
    return l.walk.elements ? k->device->cuda->typed(stream->cuda, &l, err) : 0;
}

static int make_typed_as(struct cuda_kernel *k, enum cuda_typed_function function)
{
    const struct kernel *d = k->digest;
    struct cuda_typed *l = &k->launch.typed;

    if (d->n_inputs > 3)
        return -1;
    l->function = function;
    for (int i = 0; i < d->n_inputs; i++)
        l->from[i] = (int)d->in[i].dtype;
    l->to = (int)d->out[0].dtype;
    l->negative = d->alpha != 0;
    l->positive = d->beta != 0;
    find_walk(d, &l->walk);
    k->run = run_typed;
    return 0;
}

static int make_typed(struct cuda_kernel *k, const struct graph *graph, int node)
{
    (void)graph, (void)node;
    return make_typed_as(k, (enum cuda_typed_function)cuda_op_of(k)->argument);
}

/* float32, or whole numbers; float64 has no kernel. */
static int make_either(struct cuda_kernel *k, const struct graph *graph, int node,
                       enum cuda_typed_function whole)
{
    if (make(k, graph, node) == 0)
        return 0;
    return dtype_is_float(k->digest->in[0].dtype) ? -1 : make_typed_as(k, whole);
}

#define EITHER(name, function)                                                              \
    static int make_##name(struct cuda_kernel *k, const struct graph *graph, int node)      \
    {                                                                                       \
        return make_either(k, graph, node, function);                                       \
    }

EITHER(add, CUDA_TYPED_ADD)
EITHER(sub, CUDA_TYPED_SUB)
EITHER(mul, CUDA_TYPED_MUL)
EITHER(neg, CUDA_TYPED_NEG)
EITHER(abs, CUDA_TYPED_ABS)
EITHER(sign, CUDA_TYPED_SIGN)
EITHER(max, CUDA_TYPED_MAX)
EITHER(min, CUDA_TYPED_MIN)

/* Base and exponent may be of different types. */
static int make_pow(struct cuda_kernel *k, const struct graph *graph, int node)
{
    return make(k, graph, node) == 0 ? 0 : make_typed_as(k, CUDA_TYPED_POW);
}

static int make_pow_grad(struct cuda_kernel *k, const struct graph *graph, int node)
{
    return make(k, graph, node) == 0 ? 0 : make_typed_as(k, CUDA_TYPED_POW_GRAD);
}

/* Dropout ---------------------------------------------------------------------------------- */

static int run_dropout(const struct cuda_kernel *k, struct stream *stream,
                       const struct kernel_args *args, struct err *err)
{
    struct cuda_dropout l = k->launch.dropout;

    l.state = args->state;
    l.in = args->inputs[0];
    l.out = args->outputs[0];
    l.mask = k->digest->n_outputs > 1 ? args->outputs[1] : NULL;
    return k->digest->out[0].elements ? k->device->cuda->dropout(stream->cuda, &l, err) : 0;
}

static int make_dropout(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    bool samples = d->out[0].batch.outer > 0;

    (void)graph, (void)node;
    if (!cuda_is_f32(k))
        return -1;
    k->launch.dropout = (struct cuda_dropout){
        .key = d->key, .threshold = philox_threshold(d->ratio),
        .scale = (float)(1 / (1 - d->ratio)), .samples = samples,
        .outer = samples ? d->out[0].batch.outer : 1, .batch = samples ? d->batch : 1,
        .inner = samples ? d->out[0].batch.inner : d->out[0].elements,
        .narrow = k->narrow,
    };
    k->run = run_dropout;
    return 0;
}

#define CURVE(name, NAME) { name, make, CUDA_##NAME }, { name "Grad", make, CUDA_##NAME##_GRAD }

const struct cuda_op cuda_ops_pointwise[] = {
    CURVE("Relu", RELU),
    CURVE("Sqrt", SQRT),
    CURVE("Erf", ERF),
    CURVE("Tanh", TANH),
    CURVE("Sigmoid", SIGMOID),
    CURVE("Reciprocal", RECIPROCAL),
    CURVE("Sin", SIN),
    CURVE("Cos", COS),
    CURVE("LeakyRelu", LEAKY_RELU),
    CURVE("Elu", ELU),
    CURVE("Celu", CELU),
    CURVE("Selu", SELU),
    CURVE("Softplus", SOFTPLUS),
    CURVE("Softsign", SOFTSIGN),
    CURVE("HardSigmoid", HARD_SIGMOID),
    CURVE("HardSwish", HARD_SWISH),
    CURVE("Swish", SWISH),
    CURVE("Mish", MISH),
    CURVE("Clip", CLIP),
    CURVE("PRelu", PRELU),
    { "PReluSlopeGrad", make, CUDA_PRELU_SLOPE_GRAD },
    { "Exp", make, CUDA_EXP },
    { "Log", make, CUDA_LOG },
    { "Floor", make, CUDA_FLOOR },
    { "Ceil", make, CUDA_CEIL },
    { "Round", make, CUDA_ROUND },
    { "Gelu", make_gelu, CUDA_GELU },
    { "GeluGrad", make_gelu, CUDA_GELU_GRAD },
    { "Neg", make_neg, CUDA_NEG },
    { "Abs", make_abs, CUDA_ABS },
    { "AbsGrad", make, CUDA_ABS_GRAD },
    { "Sign", make_sign, CUDA_SIGN },
    { "Add", make_add, CUDA_ADD },
    { "Sub", make_sub, CUDA_SUB },
    { "Mul", make_mul, CUDA_MUL },
    { "Div", make, CUDA_DIV },
    { "DivGrad", make, CUDA_DIV_GRAD },
    { "Mod", make, CUDA_MOD },
    { "Max", make_max, CUDA_MAX },
    { "MaxGrad", make, CUDA_MAX_GRAD },
    { "Min", make_min, CUDA_MIN },
    { "MinGrad", make, CUDA_MIN_GRAD },
    { "Pow", make_pow, CUDA_POW },
    { "PowGrad", make_pow_grad, CUDA_POW_GRAD },
    { "PowExponentGrad", make, CUDA_POW_EXPONENT_GRAD },
    { "ReduceGrad", make_spread, CUDA_SCALE },
    { "AddN", make_addn, 0 },
    { "Dropout", make_dropout, 0 },
    { "DropoutGrad", make_dropout, 0 },
    { "Cast", make_typed, CUDA_TYPED_CAST },
    { "And", make_typed, CUDA_TYPED_AND },
    { "Or", make_typed, CUDA_TYPED_OR },
    { "Xor", make_typed, CUDA_TYPED_XOR },
    { "Not", make_typed, CUDA_TYPED_NOT },
    { "Equal", make_typed, CUDA_TYPED_EQUAL },
    { "Less", make_typed, CUDA_TYPED_LESS },
    { "LessOrEqual", make_typed, CUDA_TYPED_LESS_OR_EQUAL },
    { "Greater", make_typed, CUDA_TYPED_GREATER },
    { "GreaterOrEqual", make_typed, CUDA_TYPED_GREATER_OR_EQUAL },
    { "IsNaN", make_typed, CUDA_TYPED_IS_NAN },
    { "IsInf", make_typed, CUDA_TYPED_IS_INF },
    { NULL, NULL, 0 },
};
