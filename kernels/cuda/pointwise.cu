// SPDX-License-Identifier: MIT
#include "kernels/cuda/curves.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/module.h"
#include "kernels/cuda/walk.cuh"

typedef float pointwise_function(float a, float b, float c, float p, float q);

template <typename REAL> CUDA_DEVICE float4 load_four(const void *x, int64_t i)
{
    float4 zero = { 0, 0, 0, 0 };

    return x ? four_of((const REAL *)x, i) : zero;
}

template <typename REAL> CUDA_DEVICE float load_one(const void *x, int64_t at)
{
    return x ? real_of(((const REAL *)x)[at]) : 0;
}

template <pointwise_function *F, typename OUT>
CUDA_DEVICE void store_four(const struct cuda_pointwise &l, int64_t e, float4 a, float4 b,
                            float4 c)
{
    float p = (float)l.p, q = (float)l.q;
    float4 y = { F(a.x, b.x, c.x, p, q), F(a.y, b.y, c.y, p, q), F(a.z, b.z, c.z, p, q),
                 F(a.w, b.w, c.w, p, q) };

    if (l.add) {
        float4 old = load_four<OUT>(l.out, e / 4);

        y.x = old.x + real_apart(y.x), y.y = old.y + real_apart(y.y);
        y.z = old.z + real_apart(y.z), y.w = old.w + real_apart(y.w);
    }
    put_four((OUT *)l.out, e / 4, y);
}

template <pointwise_function *F, typename OUT>
CUDA_DEVICE void store_one(const struct cuda_pointwise &l, int64_t e, float a, float b, float c)
{
    OUT *out = (OUT *)l.out + e;
    float y = F(a, b, c, (float)l.p, (float)l.q);

    put_real(out, l.add ? real_of(*out) + real_apart(y) : y);
}

template <pointwise_function *F, typename IN, typename OUT>
CUDA_DEVICE void pointwise_flat(const struct cuda_pointwise &l)
{
    bool wide = is_wide_at<IN>(l.in[0]) && is_wide_at<IN>(l.in[1]) && is_wide_at<IN>(l.in[2]) &&
                is_wide_at<OUT>(l.out);
    int64_t fours = wide ? l.walk.elements / 4 : 0;

    CUDA_EACH(i, fours)
        store_four<F, OUT>(l, 4 * i, load_four<IN>(l.in[0], i), load_four<IN>(l.in[1], i),
                           load_four<IN>(l.in[2], i));
    CUDA_EACH(i, l.walk.elements - 4 * fours) {
        int64_t e = 4 * fours + i;

        store_one<F, OUT>(l, e, load_one<IN>(l.in[0], e), load_one<IN>(l.in[1], e),
                          load_one<IN>(l.in[2], e));
    }
}

template <typename REAL>
CUDA_DEVICE float4 load_along(const void *operand, int64_t at, int64_t stride)
{
    const REAL *x = (const REAL *)operand + at;
    float4 y;

    if (!operand || (stride == 1 && is_wide_at<REAL>(x)))
        return load_four<REAL>(operand ? x : NULL, 0);
    y.x = real_of(x[0]), y.y = real_of(x[stride]), y.z = real_of(x[2 * stride]);
    y.w = real_of(x[3 * stride]);
    return y;
}

// Four neighbours of a row share what it takes to find them.
template <pointwise_function *F, typename REAL>
CUDA_DEVICE void walk_four(const struct cuda_pointwise &l, int64_t e)
{
    int last = l.walk.rank - 1;
    int64_t at[3];
    float4 a, b, c;

    walk_places<3>(l.walk, e, at);
    a = load_along<REAL>(l.in[0], at[0], l.walk.stride[0][last]);
    b = load_along<REAL>(l.in[1], at[1], l.walk.stride[1][last]);
    c = load_along<REAL>(l.in[2], at[2], l.walk.stride[2][last]);
    store_four<F, REAL>(l, e, a, b, c);
}

template <pointwise_function *F, typename REAL>
CUDA_DEVICE void pointwise_walk(const struct cuda_pointwise &l)
{
    bool wide = l.walk.dim[l.walk.rank - 1] % 4 == 0 && is_wide_at<REAL>(l.out);
    int64_t fours = wide ? l.walk.elements / 4 : 0;

    CUDA_EACH(i, fours)
        walk_four<F, REAL>(l, 4 * i);
    CUDA_EACH(e, l.walk.elements - 4 * fours) {
        int64_t at[3];

        walk_places<3>(l.walk, e, at);
        store_one<F, REAL>(l, e, load_one<REAL>(l.in[0], at[0]), load_one<REAL>(l.in[1], at[1]),
                           load_one<REAL>(l.in[2], at[2]));
    }
}

// Each function has its own kernels, so that cheap ones do not hold the registers of dear ones.
#define WIDE(name)                                                                        \
    CUDA_KERNEL(kernel_flat_##name, cuda_pointwise)                                       \
    {                                                                                     \
        pointwise_flat<pointwise_##name, float, float>(l);                                \
    }                                                                                     \
    CUDA_KERNEL(kernel_walk_##name, cuda_pointwise)                                       \
    {                                                                                     \
        pointwise_walk<pointwise_##name, float>(l);                                       \
    }

// The same for CUDA_NARROW_FUNCTIONS.
#define NARROW_OF(type, name)                                                             \
    CUDA_KERNEL(kernel_##type##_flat_##name, cuda_pointwise)                              \
    {                                                                                     \
        pointwise_flat<pointwise_##name, struct type, struct type>(l);                    \
    }                                                                                     \
    CUDA_KERNEL(kernel_##type##_walk_##name, cuda_pointwise)                              \
    {                                                                                     \
        pointwise_walk<pointwise_##name, struct type>(l);                                 \
    }
#define NARROW(name) NARROW_OF(bfloat, name) NARROW_OF(float16, name)

CUDA_FUNCTIONS(WIDE)
CUDA_NARROW_FUNCTIONS(NARROW)

// From one type to the other.
#define REORDERS(type)                                                                    \
    CUDA_KERNEL(kernel_to_##type, cuda_pointwise)                                         \
    {                                                                                     \
        pointwise_flat<pointwise_COPY, float, struct type>(l);                            \
    }                                                                                     \
    CUDA_KERNEL(kernel_from_##type, cuda_pointwise)                                       \
    {                                                                                     \
        pointwise_flat<pointwise_COPY, struct type, float>(l);                            \
    }

REORDERS(bfloat)
REORDERS(float16)

static const void *reorder_of(const struct cuda_pointwise *l)
{
    if (l->narrow == CUDA_WIDE)
        return l->narrow_out == CUDA_FLOAT16 ? (const void *)kernel_to_float16
                                             : (const void *)kernel_to_bfloat;
    return l->narrow == CUDA_FLOAT16 ? (const void *)kernel_from_float16
                                     : (const void *)kernel_from_bfloat;
}

static const void *narrow_kernel_of(const struct cuda_pointwise *l)
{
    int at = 2 * (l->narrow == CUDA_FLOAT16) + (l->walk.flat != 0);

    switch (l->function) {
#define PAIR(type, name) (const void *)kernel_##type##_walk_##name, (const void *)kernel_##type##_flat_##name
#define KERNELS(name)                                                                     \
    case CUDA_##name: {                                                                   \
        static const void *const kernels[] = { PAIR(bfloat, name), PAIR(float16, name) }; \
        return kernels[at];                                                               \
    }
        CUDA_NARROW_FUNCTIONS(KERNELS)
#undef KERNELS
#undef PAIR
    default:
        return NULL;            // no kernel is made of it: see lower.c
    }
}

static const void *kernel_of(const struct cuda_pointwise *l)
{
    static const void *const kernels[][2] = {
#define KERNELS(name) { (const void *)kernel_walk_##name, (const void *)kernel_flat_##name },
        CUDA_FUNCTIONS(KERNELS)
#undef KERNELS
    };

    if (l->narrow != l->narrow_out)
        return reorder_of(l);
    return l->narrow ? narrow_kernel_of(l) : kernels[l->function][l->walk.flat];
}

cudaError_t cuda_launch_pointwise(cudaStream_t stream, const struct cuda_pointwise *launch)
{
    bool fours = launch->walk.flat || launch->walk.dim[launch->walk.rank - 1] % 4 == 0;
    int64_t n = fours ? launch->walk.elements / 4 + 3 : launch->walk.elements;
    const void *kernel = kernel_of(launch);

    return kernel ? CUDA_LAUNCH(kernel, cuda_grid(n, CUDA_BLOCK), CUDA_BLOCK, launch, stream)
                  : cudaErrorInvalidValue;
}

template <typename REAL> CUDA_DEVICE float4 addn_four(const struct cuda_addn &l, int64_t i)
{
    float4 sum = load_four<REAL>(l.add ? l.out : NULL, i);

    for (int k = 0; k < l.n; k++) {
        float4 x = load_four<REAL>(l.in[k], i);

        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    return sum;
}

template <typename REAL> CUDA_DEVICE float addn_one(const struct cuda_addn &l, int64_t i)
{
    float sum = load_one<REAL>(l.add ? l.out : NULL, i);

    for (int k = 0; k < l.n; k++)
        sum += load_one<REAL>(l.in[k], i);
    return sum;
}

template <typename REAL> CUDA_DEVICE void add_all(const struct cuda_addn &l)
{
    REAL *out = (REAL *)l.out;
    bool wide = is_wide_at<REAL>(out);
    int64_t fours;

    for (int k = 0; k < l.n; k++)
        wide = wide && is_wide_at<REAL>(l.in[k]);
    fours = wide ? l.elements / 4 : 0;
    CUDA_EACH(i, fours)
        put_four(out, i, addn_four<REAL>(l, i));
    CUDA_EACH(i, l.elements - 4 * fours)
        put_real(out + 4 * fours + i, addn_one<REAL>(l, 4 * fours + i));
}

CUDA_KERNEL(kernel_addn, cuda_addn)
{
    CUDA_BY_TYPE(l.narrow, add_all, l);
}

cudaError_t cuda_launch_addn(cudaStream_t stream, const struct cuda_addn *launch)
{
    return CUDA_LAUNCH(kernel_addn, cuda_grid(launch->elements / 4 + 3, CUDA_BLOCK), CUDA_BLOCK,
                       launch, stream);
}
