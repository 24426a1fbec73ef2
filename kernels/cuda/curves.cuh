// SPDX-License-Identifier: MIT
// The functions of launch.h's CUDA_FUNCTIONS: pointwise_NAME(a, b, c, p, q). Also part of the text of chains.
#ifndef TASUKI_KERNELS_CUDA_CURVES_CUH
#define TASUKI_KERNELS_CUDA_CURVES_CUH

#include "kernels/cuda/device.cuh"

#define ROOT_HALF 0.70710678118654752f      // sqrt(1 / 2)
#define TWO_BY_ROOT_PI 1.12837916709551257f // 2 / sqrt(pi)
#define TANH_A 0.79788456080286536f         // sqrt(2 / pi)
#define TANH_B 0.044715f

CUDA_DEVICE float curve_sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

CUDA_DEVICE float curve_soft(float x)
{
    return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

CUDA_DEVICE float curve_clip(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

CUDA_DEVICE float curve_gelu(float x)
{
    return 0.5f * x * erfcf(-x * ROOT_HALF);
}

CUDA_DEVICE float curve_gelu_slope(float x)
{
    return 0.5f * erfcf(-x * ROOT_HALF) +
           x * expf(-0.5f * x * x) * (0.5f * ROOT_HALF * TWO_BY_ROOT_PI);
}

CUDA_DEVICE float curve_gelu_tanh(float x)
{
    return 0.5f * x * (1 + tanhf(TANH_A * (x + TANH_B * x * x * x)));
}

CUDA_DEVICE float curve_gelu_tanh_slope(float x)
{
    float t = tanhf(TANH_A * (x + TANH_B * x * x * x));

    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * TANH_A * (1 + 3 * TANH_B * x * x);
}

CUDA_DEVICE float curve_swish_slope(float x, float p)
{
    float s = curve_sigmoid(p * x);

    return s + p * x * s * (1 - s);
}

CUDA_DEVICE float curve_mish_slope(float x)
{
    float t = tanhf(curve_soft(x));

    return t + x * (1 - t * t) * curve_sigmoid(x);
}

#define CURVE(name, expression)                                                           \
    CUDA_DEVICE float pointwise_##name(float a, float b, float c, float p, float q)       \
    {                                                                                     \
        (void)a, (void)b, (void)c, (void)p, (void)q;                                      \
        return expression;                                                                \
    }
CURVE(COPY, a)
CURVE(SCALE, p * a)
CURVE(RELU, a <= 0 ? 0 : a)              // NaN stays NaN
CURVE(NEG, -a)
CURVE(SQRT, sqrtf(a))
CURVE(EXP, expf(a))
CURVE(LOG, logf(a))
CURVE(ERF, erff(a))
CURVE(TANH, tanhf(a))
CURVE(SIGMOID, curve_sigmoid(a))
CURVE(GELU, curve_gelu(a))
CURVE(GELU_TANH, curve_gelu_tanh(a))
CURVE(FLOOR, floorf(a))
CURVE(CEIL, ceilf(a))
CURVE(ROUND, rintf(a))
CURVE(SIGN, a != a ? a : (float)((a > 0) - (a < 0)))

// p and q: alpha and beta, or the bounds.
CURVE(ABS, fabsf(a))
CURVE(RECIPROCAL, 1 / a)
CURVE(SIN, sinf(a))
CURVE(COS, cosf(a))
CURVE(LEAKY_RELU, a < 0 ? p * a : a)
CURVE(ELU, a <= 0 ? p * expm1f(a) : a)
CURVE(CELU, a <= 0 ? p * expm1f(a / p) : a)
CURVE(SELU, q * (a <= 0 ? p * expm1f(a) : a))
CURVE(SOFTPLUS, curve_soft(a))
CURVE(SOFTSIGN, a / (1 + fabsf(a)))
CURVE(HARD_SIGMOID, curve_clip(p * a + q, 0, 1))
CURVE(HARD_SWISH, a * curve_clip(a / 6 + 0.5f, 0, 1))
CURVE(SWISH, a * curve_sigmoid(p * a))
CURVE(MISH, a * tanhf(curve_soft(a)))
CURVE(CLIP, curve_clip(a, p, q))

CURVE(ADD, a + b)
CURVE(SUB, a - b)
CURVE(MUL, a * b)
CURVE(DIV, a / b)
CURVE(POW, powf(a, b))
CURVE(MOD, fmodf(a, b))
CURVE(MAX, a != a || a > b ? a : b)      // a NaN wins
CURVE(MIN, a != a || a < b ? a : b)
CURVE(PRELU, a < 0 ? b * a : a)

// a is dy.
CURVE(RELU_GRAD, b > 0 ? a : 0)
CURVE(TANH_GRAD, a * (1 - b * b))
CURVE(SIGMOID_GRAD, a * b * (1 - b))
CURVE(SQRT_GRAD, a * 0.5f / b)
CURVE(ERF_GRAD, a * TWO_BY_ROOT_PI * expf(-b * b))
CURVE(GELU_GRAD, a * curve_gelu_slope(b))
CURVE(GELU_TANH_GRAD, a * curve_gelu_tanh_slope(b))
CURVE(DIV_GRAD, -a * b / c)
CURVE(POW_GRAD, c == 0 ? 0 : a * c * powf(b, c - 1))
CURVE(POW_EXPONENT_GRAD, b == 0 ? 0 : a * c * logf(b))
CURVE(MAX_GRAD, b > c ? a : b == c ? a / 2 : 0)
CURVE(MIN_GRAD, b < c ? a : b == c ? a / 2 : 0)
CURVE(PRELU_GRAD, b > 0 ? a : a * c)
CURVE(PRELU_SLOPE_GRAD, b < 0 ? a * b : 0)

CURVE(ABS_GRAD, a * (float)((b > 0) - (b < 0)))
CURVE(RECIPROCAL_GRAD, a * (-b * b))
CURVE(SIN_GRAD, a * cosf(b))
CURVE(COS_GRAD, a * -sinf(b))
CURVE(LEAKY_RELU_GRAD, a * (b > 0 ? 1 : p))
CURVE(ELU_GRAD, a * (b <= 0 ? p * expf(b) : 1))
CURVE(CELU_GRAD, a * (b <= 0 ? expf(b / p) : 1))
CURVE(SELU_GRAD, a * (q * (b <= 0 ? p * expf(b) : 1)))
CURVE(SOFTPLUS_GRAD, a * curve_sigmoid(b))
CURVE(SOFTSIGN_GRAD, a / ((1 + fabsf(b)) * (1 + fabsf(b))))
CURVE(HARD_SIGMOID_GRAD, a * (p * b + q > 0 && p * b + q < 1 ? p : 0))
CURVE(HARD_SWISH_GRAD, a * (b < -3 ? 0 : b <= 3 ? b / 3 + 0.5f : 1))
CURVE(SWISH_GRAD, a * curve_swish_slope(b, p))
CURVE(MISH_GRAD, a * curve_mish_slope(b))
CURVE(CLIP_GRAD, a * (b >= p && b <= q ? 1 : 0))

#endif
