/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/simd_private.h"

/* PyTorch's formulas, in its order of operations. */

static void sgd(size_t n, const struct simd_update *u, float *p, const float *g)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++)
        p[i] -= u->lr * (g[i] * u->g_scale + u->decay * p[i]);
}

static void momentum(size_t n, const struct simd_update *u, float *p, const float *g, float *m)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++) {
        float d = g[i] * u->g_scale + u->decay * p[i];
        m[i] = u->momentum * m[i] + d;
        p[i] -= u->lr * m[i];
    }
}

static void nesterov(size_t n, const struct simd_update *u, float *p, const float *g, float *m)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++) {
        float d = g[i] * u->g_scale + u->decay * p[i];
        m[i] = u->momentum * m[i] + d;
        p[i] -= u->lr * (d + u->momentum * m[i]);
    }
}

static inline void adam_one(const struct simd_update *u, float d, float *p, float *m, float *v)
{
    *m = *m + (d - *m) * u->rest1;
    *v = u->beta2 * *v + u->rest2 * d * d;
    *p -= u->step_size * *m / (sqrtf(*v) * u->root_scale + u->epsilon);
}

static void adam(size_t n, const struct simd_update *u, float *p, const float *g, float *m,
                 float *v)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++)
        adam_one(u, g[i] * u->g_scale + u->decay * p[i], &p[i], &m[i], &v[i]);
}

static void adamw(size_t n, const struct simd_update *u, float *p, const float *g, float *m,
                  float *v)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++) {
        p[i] *= u->keep;
        adam_one(u, g[i] * u->g_scale, &p[i], &m[i], &v[i]);
    }
}

static inline float lamb_direction(const struct simd_update *u, float p, float m, float v)
{
    return m * u->m_scale / (sqrtf(v) * u->root_scale + u->epsilon) + u->decay * p;
}

static double lamb_moments(size_t n, const struct simd_update *u, const float *p,
                           const float *g, float *m, float *v)
{
    double total = 0;
    size_t i;

#pragma omp simd reduction(+ : total)
    for (i = 0; i < n; i++) {
        float d = g[i] * u->g_scale, direction;

        m[i] += (d - m[i]) * u->rest1;
        v[i] = u->beta2 * v[i] + u->rest2 * d * d;
        direction = lamb_direction(u, p[i], m[i], v[i]);
        total += (double)direction * (double)direction;
    }
    return total;
}

static void lamb(size_t n, const struct simd_update *u, float *p, const float *m,
                 const float *v)
{
    size_t i;

#pragma omp simd
    for (i = 0; i < n; i++)
        p[i] -= u->trusted * lamb_direction(u, p[i], m[i], v[i]);
}

void SIMD(fill_train)(struct simd *table)
{
    table->sgd = sgd;
    table->momentum = momentum;
    table->nesterov = nesterov;
    table->adam = adam;
    table->adamw = adamw;
    table->lamb_moments = lamb_moments;
    table->lamb = lamb;
}
