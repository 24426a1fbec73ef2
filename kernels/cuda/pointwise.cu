// SPDX-License-Identifier: MIT
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/module.h"
#include "kernels/cuda/walk.cuh"

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

typedef float pointwise_function(float a, float b, float c, float p, float q);

CUDA_DEVICE float4 load_four(const float *x, int64_t i)
{
    float4 zero = { 0, 0, 0, 0 };

    return x ? ((const float4 *)x)[i] : zero;
}

CUDA_DEVICE bool is_wide_at(const void *x)
{
    return ((uintptr_t)x & 15) == 0;
}

template <pointwise_function *F>
CUDA_DEVICE void store_four(const struct cuda_pointwise &l, int64_t e, float4 a, float4 b,
                            float4 c)
{
    float p = (float)l.p, q = (float)l.q;
    float4 y = { F(a.x, b.x, c.x, p, q), F(a.y, b.y, c.y, p, q), F(a.z, b.z, c.z, p, q),
                 F(a.w, b.w, c.w, p, q) };

    if (l.add) {
        float4 old = load_four(l.out, e / 4);

        y.x += old.x, y.y += old.y, y.z += old.z, y.w += old.w;
    }
    ((float4 *)l.out)[e / 4] = y;
}

template <pointwise_function *F>
CUDA_DEVICE void flat_four(const struct cuda_pointwise &l, int64_t i)
{
    store_four<F>(l, 4 * i, load_four(l.in[0], i), load_four(l.in[1], i),
                  load_four(l.in[2], i));
}

template <pointwise_function *F>
CUDA_DEVICE void flat_one(const struct cuda_pointwise &l, int64_t i)
{
    float y = F(l.in[0] ? l.in[0][i] : 0, l.in[1] ? l.in[1][i] : 0, l.in[2] ? l.in[2][i] : 0,
                (float)l.p, (float)l.q);

    l.out[i] = l.add ? l.out[i] + y : y;
}

template <pointwise_function *F>
CUDA_DEVICE void pointwise_flat(const struct cuda_pointwise &l)
{
    bool wide =
        is_wide_at(l.in[0]) && is_wide_at(l.in[1]) && is_wide_at(l.in[2]) && is_wide_at(l.out);
    int64_t fours = wide ? l.walk.elements / 4 : 0;

    CUDA_EACH(i, fours)
        flat_four<F>(l, i);
    CUDA_EACH(i, l.walk.elements - 4 * fours)
        flat_one<F>(l, 4 * fours + i);
}

CUDA_DEVICE float load_one(const float *x, int64_t at)
{
    return x ? x[at] : 0;
}

CUDA_DEVICE float4 load_along(const float *x, int64_t at, int64_t stride)
{
    float4 y;

    if (!x || (stride == 1 && is_wide_at(x + at)))
        return load_four(x ? x + at : x, 0);
    y.x = x[at], y.y = x[at + stride], y.z = x[at + 2 * stride], y.w = x[at + 3 * stride];
    return y;
}

// Four neighbours of a row share what it takes to find them.
template <pointwise_function *F>
CUDA_DEVICE void walk_four(const struct cuda_pointwise &l, int64_t e)
{
    int last = l.walk.rank - 1;
    int64_t at[3];
    float4 a, b, c;

    walk_places<3>(l.walk, e, at);
    a = load_along(l.in[0], at[0], l.walk.stride[0][last]);
    b = load_along(l.in[1], at[1], l.walk.stride[1][last]);
    c = load_along(l.in[2], at[2], l.walk.stride[2][last]);
    store_four<F>(l, e, a, b, c);
}

template <pointwise_function *F>
CUDA_DEVICE void walk_one(const struct cuda_pointwise &l, int64_t e)
{
    int64_t at[3];
    float y;

    walk_places<3>(l.walk, e, at);
    y = F(load_one(l.in[0], at[0]), load_one(l.in[1], at[1]), load_one(l.in[2], at[2]),
          (float)l.p, (float)l.q);
    l.out[e] = l.add ? l.out[e] + y : y;
}

template <pointwise_function *F> CUDA_DEVICE void pointwise_walk(const struct cuda_pointwise &l)
{
    bool wide = l.walk.dim[l.walk.rank - 1] % 4 == 0 && is_wide_at(l.out);
    int64_t fours = wide ? l.walk.elements / 4 : 0;

    CUDA_EACH(i, fours)
        walk_four<F>(l, 4 * i);
    CUDA_EACH(i, l.walk.elements - 4 * fours)
        walk_one<F>(l, i);
}

// Each function has its own kernels, so that cheap ones do not hold the registers of dear ones.
#define FUNCTION(name, expression)                                                        \
    CUDA_DEVICE float pointwise_##name(float a, float b, float c, float p, float q)       \
    {                                                                                     \
        (void)a, (void)b, (void)c, (void)p, (void)q;                                      \
        return expression;                                                                \
    }                                                                                     \
    CUDA_KERNEL(kernel_flat_##name, cuda_pointwise)                                       \
    {                                                                                     \
        pointwise_flat<pointwise_##name>(l);                                              \
    }                                                                                     \
    CUDA_KERNEL(kernel_walk_##name, cuda_pointwise)                                       \
    {                                                                                     \
        pointwise_walk<pointwise_##name>(l);                                              \
    }

FUNCTION(COPY, a)
FUNCTION(SCALE, p * a)
FUNCTION(RELU, a <= 0 ? 0 : a)              // NaN stays NaN
FUNCTION(NEG, -a)
FUNCTION(SQRT, sqrtf(a))
FUNCTION(EXP, expf(a))
FUNCTION(LOG, logf(a))
FUNCTION(ERF, erff(a))
FUNCTION(TANH, tanhf(a))
FUNCTION(SIGMOID, curve_sigmoid(a))
FUNCTION(GELU, curve_gelu(a))
FUNCTION(GELU_TANH, curve_gelu_tanh(a))
FUNCTION(FLOOR, floorf(a))
FUNCTION(CEIL, ceilf(a))
FUNCTION(ROUND, rintf(a))
FUNCTION(SIGN, a != a ? a : (float)((a > 0) - (a < 0)))

// p and q: alpha and beta, or the bounds.
FUNCTION(ABS, fabsf(a))
FUNCTION(RECIPROCAL, 1 / a)
FUNCTION(SIN, sinf(a))
FUNCTION(COS, cosf(a))
FUNCTION(LEAKY_RELU, a < 0 ? p * a : a)
FUNCTION(ELU, a <= 0 ? p * expm1f(a) : a)
FUNCTION(CELU, a <= 0 ? p * expm1f(a / p) : a)
FUNCTION(SELU, q * (a <= 0 ? p * expm1f(a) : a))
FUNCTION(SOFTPLUS, curve_soft(a))
FUNCTION(SOFTSIGN, a / (1 + fabsf(a)))
FUNCTION(HARD_SIGMOID, curve_clip(p * a + q, 0, 1))
FUNCTION(HARD_SWISH, a * curve_clip(a / 6 + 0.5f, 0, 1))
FUNCTION(SWISH, a * curve_sigmoid(p * a))
FUNCTION(MISH, a * tanhf(curve_soft(a)))
FUNCTION(CLIP, curve_clip(a, p, q))

FUNCTION(ADD, a + b)
FUNCTION(SUB, a - b)
FUNCTION(MUL, a * b)
FUNCTION(DIV, a / b)
FUNCTION(POW, powf(a, b))
FUNCTION(MOD, fmodf(a, b))
FUNCTION(MAX, a != a || a > b ? a : b)      // a NaN wins
FUNCTION(MIN, a != a || a < b ? a : b)
FUNCTION(PRELU, a < 0 ? b * a : a)

// a is dy.
FUNCTION(RELU_GRAD, b > 0 ? a : 0)
FUNCTION(TANH_GRAD, a * (1 - b * b))
FUNCTION(SIGMOID_GRAD, a * b * (1 - b))
FUNCTION(SQRT_GRAD, a * 0.5f / b)
FUNCTION(ERF_GRAD, a * TWO_BY_ROOT_PI * expf(-b * b))
FUNCTION(GELU_GRAD, a * curve_gelu_slope(b))
FUNCTION(GELU_TANH_GRAD, a * curve_gelu_tanh_slope(b))
FUNCTION(DIV_GRAD, -a * b / c)
FUNCTION(POW_GRAD, c == 0 ? 0 : a * c * powf(b, c - 1))
FUNCTION(POW_EXPONENT_GRAD, b == 0 ? 0 : a * c * logf(b))
FUNCTION(MAX_GRAD, b > c ? a : b == c ? a / 2 : 0)
FUNCTION(MIN_GRAD, b < c ? a : b == c ? a / 2 : 0)
FUNCTION(PRELU_GRAD, b > 0 ? a : a * c)
FUNCTION(PRELU_SLOPE_GRAD, b < 0 ? a * b : 0)

FUNCTION(ABS_GRAD, a * (float)((b > 0) - (b < 0)))
FUNCTION(RECIPROCAL_GRAD, a * (-b * b))
FUNCTION(SIN_GRAD, a * cosf(b))
FUNCTION(COS_GRAD, a * -sinf(b))
FUNCTION(LEAKY_RELU_GRAD, a * (b > 0 ? 1 : p))
FUNCTION(ELU_GRAD, a * (b <= 0 ? p * expf(b) : 1))
FUNCTION(CELU_GRAD, a * (b <= 0 ? expf(b / p) : 1))
FUNCTION(SELU_GRAD, a * (q * (b <= 0 ? p * expf(b) : 1)))
FUNCTION(SOFTPLUS_GRAD, a * curve_sigmoid(b))
FUNCTION(SOFTSIGN_GRAD, a / ((1 + fabsf(b)) * (1 + fabsf(b))))
FUNCTION(HARD_SIGMOID_GRAD, a * (p * b + q > 0 && p * b + q < 1 ? p : 0))
FUNCTION(HARD_SWISH_GRAD, a * (b < -3 ? 0 : b <= 3 ? b / 3 + 0.5f : 1))
FUNCTION(SWISH_GRAD, a * curve_swish_slope(b, p))
FUNCTION(MISH_GRAD, a * curve_mish_slope(b))
FUNCTION(CLIP_GRAD, a * (b >= p && b <= q ? 1 : 0))

cudaError_t cuda_launch_pointwise(cudaStream_t stream, const struct cuda_pointwise *launch)
{
    static const void *const kernels[][2] = {
#define KERNELS(name) { (const void *)kernel_walk_##name, (const void *)kernel_flat_##name },
        CUDA_FUNCTIONS(KERNELS)
#undef KERNELS
    };
    bool flat = launch->walk.flat;
    bool fours = flat || launch->walk.dim[launch->walk.rank - 1] % 4 == 0;
    int64_t n = fours ? launch->walk.elements / 4 + 3 : launch->walk.elements;

    return CUDA_LAUNCH(kernels[launch->function][flat], cuda_grid(n, CUDA_BLOCK), CUDA_BLOCK,
                       launch, stream);
}

CUDA_DEVICE float4 addn_four(const struct cuda_addn &l, int64_t i)
{
    float4 sum = load_four(l.add ? l.out : NULL, i);

    for (int k = 0; k < l.n; k++) {
        float4 x = load_four(l.in[k], i);

        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    return sum;
}

CUDA_DEVICE float addn_one(const struct cuda_addn &l, int64_t i)
{
    float sum = l.add ? l.out[i] : 0;

    for (int k = 0; k < l.n; k++)
        sum += l.in[k][i];
    return sum;
}

CUDA_KERNEL(kernel_addn, cuda_addn)
{
    bool wide = is_wide_at(l.out);
    int64_t fours;

    for (int k = 0; k < l.n; k++)
        wide = wide && is_wide_at(l.in[k]);
    fours = wide ? l.elements / 4 : 0;
    CUDA_EACH(i, fours)
        ((float4 *)l.out)[i] = addn_four(l, i);
    CUDA_EACH(i, l.elements - 4 * fours)
        l.out[4 * fours + i] = addn_one(l, 4 * fours + i);
}

cudaError_t cuda_launch_addn(cudaStream_t stream, const struct cuda_addn *launch)
{
    return CUDA_LAUNCH(kernel_addn, cuda_grid(launch->elements / 4 + 3, CUDA_BLOCK), CUDA_BLOCK,
                       launch, stream);
}
