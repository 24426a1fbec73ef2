/* SPDX-License-Identifier: MIT */
/* One value made of the values beside it. */
#include "kernels/cuda/cuda.h"

static int run(const struct cuda_kernel *k, struct stream *stream,
               const struct kernel_args *args, struct err *err)
{
    struct cuda_pointwise l = k->launch.pointwise;

    for (int i = 0; i < k->digest->n_inputs && i < 3; i++)
        l.in[i] = args->inputs[i];
    l.out = args->outputs[0];
    l.add = args->accumulate == ACCUMULATE_YES;
    return l.walk.elements ? k->device->cuda->pointwise(stream->cuda, &l, err) : 0;
}

/* Operands that broadcast, as setup_broadcast() has them, or all of one shape. */
static int make(struct cuda_kernel *k, const struct graph *graph, int node)
{
    const struct kernel *d = k->digest;
    struct cuda_pointwise *l = &k->launch.pointwise;

    (void)graph, (void)node;
    if (!cuda_is_f32(k) || d->in[0].dtype != DTYPE_F32 || d->n_inputs > 3)
        return -1;
    l->function = (enum cuda_function)cuda_op_of(k)->argument;
    l->p = d->alpha;
    l->q = d->beta;
    if (d->walk.rank)
        cuda_walk_from(&l->walk, &d->walk);
    else
        l->walk = (struct cuda_walk){ .rank = 1, .n = d->n_inputs, .elements = d->out[0].elements,
                                      .dim = { d->out[0].elements }, .flat = 1 };
    k->run = run;
    k->accumulates = true;
    return 0;
}

const struct cuda_op cuda_ops_pointwise[] = {
    { "Copy", make, CUDA_COPY },
    { "Relu", make, CUDA_RELU },
    { "Neg", make, CUDA_NEG },
    { "Sqrt", make, CUDA_SQRT },
    { "Exp", make, CUDA_EXP },
    { "Log", make, CUDA_LOG },
    { "Tanh", make, CUDA_TANH },
    { "Sigmoid", make, CUDA_SIGMOID },
    { "Add", make, CUDA_ADD },
    { "Sub", make, CUDA_SUB },
    { "Mul", make, CUDA_MUL },
    { "Div", make, CUDA_DIV },
    { "ReluGrad", make, CUDA_RELU_GRAD },
    { "TanhGrad", make, CUDA_TANH_GRAD },
    { "SigmoidGrad", make, CUDA_SIGMOID_GRAD },
    { NULL, NULL, 0 },
};
