// SPDX-License-Identifier: MIT
// Optimizers over flat ranges: the formulas of kernels/reference/update.c, in float.
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

// One parameter, its gradient and its state.
struct parameter {
    float p, g, m, v;
};

CUDA_DEVICE void step_momentum(const struct cuda_update &l, struct parameter *e)
{
    e->g += l.decay * e->p;
    // 0 times what is there before the first step would be NaN, if that is not finite.
    e->m = l.momentum == 0 ? e->g : l.momentum * e->m + e->g;
    e->p -= l.rate * (l.rule == CUDA_RULE_NESTEROV ? e->g + l.look_ahead * e->m : e->m);
}

// 1 - beta is rounded once, so that averages stay where nothing changes.
CUDA_DEVICE void step_averages(const struct cuda_update &l, struct parameter *e)
{
    e->m += l.blend1 * (e->g - e->m);
    e->v += l.blend2 * (e->g * e->g - e->v);
}

CUDA_DEVICE float direction_of(const struct cuda_update &l, const struct parameter *e)
{
    return e->m * l.unbias1 / (sqrtf(e->v) * l.unbias2 + l.epsilon);
}

CUDA_DEVICE void step_parameter(const struct cuda_update &l, struct parameter *e)
{
    switch (l.rule) {
    case CUDA_RULE_SGD:
        e->p -= l.rate * (e->g + l.decay * e->p);
        break;
    case CUDA_RULE_MOMENTUM:
    case CUDA_RULE_NESTEROV:
        step_momentum(l, e);
        break;
    case CUDA_RULE_ADAM:
        e->g += l.decay * e->p;
        step_averages(l, e);
        e->p -= l.rate * direction_of(l, e);
        break;
    case CUDA_RULE_ADAMW:
        step_averages(l, e);
        e->p -= l.rate * l.decay * e->p;
        e->p -= l.rate * direction_of(l, e);
        break;
    case CUDA_RULE_LAMB:
        e->p -= l.rate * (direction_of(l, e) + l.decay * e->p);
        break;
    case CUDA_RULE_MOMENTS:
        step_averages(l, e);
        break;
    }
}

CUDA_DEVICE struct parameter load_parameter(const struct cuda_update &l, int64_t i)
{
    struct parameter e = { l.p[i], 0, l.m ? l.m[i] : 0, l.v ? l.v[i] : 0 };

    if (l.rule != CUDA_RULE_LAMB)
        e.g = l.g_scale * l.g[i];
    return e;
}

CUDA_DEVICE void store_state(const struct cuda_update &l, int64_t i, const struct parameter *e)
{
    if (l.m)
        l.m[i] = e->m;
    if (l.v)
        l.v[i] = e->v;
}

// p[n], m[n], v[n]
CUDA_KERNEL(kernel_update, cuda_update)
{
    CUDA_EACH(i, l.n) {
        struct parameter e = load_parameter(l, i);

        step_parameter(l, &e);
        l.p[i] = e.p;
        if (l.rule != CUDA_RULE_LAMB)
            store_state(l, i, &e);
    }
}

// m[n], v[n], parts[blocks]
CUDA_KERNEL(kernel_moments, cuda_update)
{
    __shared__ double shared[CUDA_BLOCK];
    double sum = 0;

    CUDA_EACH(i, l.n) {
        struct parameter e = load_parameter(l, i);
        double u;

        step_parameter(l, &e);
        store_state(l, i, &e);
        u = (double)(direction_of(l, &e) + l.decay * e.p);
        sum += u * u;
    }
    sum = block_sum_double(sum, shared);
    if (threadIdx.x == 0)
        l.parts[blockIdx.x] = sum;
}

static cudaError_t launch_result(cudaStream_t stream, unsigned blocks, const double *parts,
                                 double *result)
{
    struct cuda_total total = { blocks, { parts, NULL }, NULL, { NULL, NULL }, result };

    return launch_total(stream, &total);
}

extern "C" cudaError_t cuda_launch_update(cudaStream_t stream, const struct cuda_update *l)
{
    unsigned blocks = part_blocks(l->n);
    cudaError_t code;

    if (l->rule != CUDA_RULE_MOMENTS)
        return CUDA_LAUNCH(kernel_update, cuda_grid(l->n, CUDA_BLOCK), CUDA_BLOCK, l, stream);
    code = CUDA_LAUNCH(kernel_moments, blocks, CUDA_BLOCK, l, stream);
    return code == cudaSuccess ? launch_result(stream, blocks, l->parts, l->result) : code;
}

// parts[blocks]
CUDA_KERNEL(kernel_squares, cuda_squares)
{
    __shared__ double shared[CUDA_BLOCK];
    double sum = 0;

    CUDA_EACH(i, l.n)
        sum += (double)l.x[i] * (double)l.x[i];
    sum = block_sum_double(sum, shared);
    if (threadIdx.x == 0)
        l.parts[blockIdx.x] = sum;
}

extern "C" cudaError_t cuda_launch_squares(cudaStream_t stream, const struct cuda_squares *l)
{
    unsigned blocks = part_blocks(l->n);
    cudaError_t code = CUDA_LAUNCH(kernel_squares, blocks, CUDA_BLOCK, l, stream);

    return code == cudaSuccess ? launch_result(stream, blocks, l->parts, l->result) : code;
}

#ifndef CUDA_EMULATED
#include <stdio.h>

/* nvcc before 11.5 does not say it. */
#ifdef __CUDA_ARCH_LIST__
static const int architectures[] = { __CUDA_ARCH_LIST__ };
#else
static const int architectures[] = { 0 };
#endif

extern "C" cudaError_t cuda_code(void)
{
    struct cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, (const void *)kernel_update);
}

extern "C" void cuda_architectures(char *text, size_t size)
{
    size_t at = 0;

    snprintf(text, size, "what its nvcc was told");
    for (int architecture : architectures)
        if (architecture > 0 && at < size)
            at += (size_t)snprintf(text + at, size - at, "%ssm_%d", at ? " " : "", architecture / 10);
}
#endif
