// SPDX-License-Identifier: MIT
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/module.h"

CUDA_DEVICE float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

CUDA_DEVICE float gelu_tanh(float x)
{
    return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

CUDA_DEVICE float apply(enum cuda_function f, float a, float b, float c, float p, float q)
{
    (void)c, (void)p, (void)q;
    switch (f) {
    case CUDA_RELU: return a <= 0 ? 0 : a;      /* NaN stays NaN */
    case CUDA_NEG: return -a;
    case CUDA_SQRT: return sqrtf(a);
    case CUDA_EXP: return expf(a);
    case CUDA_LOG: return logf(a);
    case CUDA_TANH: return tanhf(a);
    case CUDA_SIGMOID: return sigmoid(a);
    case CUDA_GELU: return 0.5f * a * (1 + erff(a * 0.70710678f));
    case CUDA_GELU_TANH: return gelu_tanh(a);
    case CUDA_SWISH: return a * sigmoid(p * a);
    case CUDA_ADD: return a + b;
    case CUDA_SUB: return a - b;
    case CUDA_MUL: return a * b;
    case CUDA_DIV: return a / b;
    case CUDA_RELU_GRAD: return b > 0 ? a : 0;
    case CUDA_TANH_GRAD: return a * (1 - b * b);
    case CUDA_SIGMOID_GRAD: return a * b * (1 - b);
    default: return a;
    }
}

/* y[n] of the walk's shape. */
CUDA_KERNEL(kernel_pointwise, cuda_pointwise)
{
    float p = (float)l.p, q = (float)l.q;

    CUDA_EACH(e, l.walk.elements) {
        float a = l.in[0] ? l.in[0][walk_at(l.walk, 0, e)] : 0;
        float b = l.in[1] ? l.in[1][walk_at(l.walk, 1, e)] : 0;
        float c = l.in[2] ? l.in[2][walk_at(l.walk, 2, e)] : 0;
        float y = apply(l.function, a, b, c, p, q);

        l.out[e] = l.add ? l.out[e] + y : y;
    }
}

extern "C" cudaError_t cuda_launch_pointwise(cudaStream_t stream, const struct cuda_pointwise *l)
{
    return CUDA_LAUNCH(kernel_pointwise, cuda_grid(l->walk.elements, CUDA_BLOCK), CUDA_BLOCK, l,
                       stream);
}
