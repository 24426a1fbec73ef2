// SPDX-License-Identifier: MIT
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/module.h"
#include "kernels/cuda/walk.cuh"
#include "kernels/philox.h"
#include "kernels/step.h"

// Four elements of a sample share what is drawn.
CUDA_DEVICE struct philox draw(const struct cuda_dropout &l, const struct step_state &state,
                               int64_t s, int64_t quad)
{
    uint64_t sample = (uint64_t)(l.samples ? state.first_sample + s : 0);

    return philox_dropout(philox_key(state.seed, l.key), (uint64_t)state.step, sample,
                          (uint64_t)quad);
}

CUDA_DEVICE bool is_kept(const struct cuda_dropout &l, bool training, uint32_t word)
{
    return !training || word >= l.threshold;
}

CUDA_DEVICE float drop(const struct cuda_dropout &l, bool training, uint32_t word, float x)
{
    return !training ? x : word >= l.threshold ? x * l.scale : 0;
}

template <typename REAL>
CUDA_DEVICE void drop_four(const struct cuda_dropout &l, bool training, struct philox r,
                           int64_t at)
{
    float4 x = four_of((const REAL *)l.in + at, 0), y;

    y.x = drop(l, training, r.word[0], x.x);
    y.y = drop(l, training, r.word[1], x.y);
    y.z = drop(l, training, r.word[2], x.z);
    y.w = drop(l, training, r.word[3], x.w);
    put_four((REAL *)l.out + at, 0, y);
    for (int k = 0; k < 4 && l.mask; k++)
        l.mask[at + k] = is_kept(l, training, r.word[k]);
}

template <typename REAL>
CUDA_DEVICE void dropout_quad(const struct cuda_dropout &l, const struct step_state &state,
                              int64_t s, int64_t quad, bool small, bool wide)
{
    struct philox r = draw(l, state, s, quad);

    for (int k = 0; k < 4 && 4 * quad + k < l.outer * l.inner; k++) {
        int64_t i, o = divide(4 * quad + k, l.inner, small, &i);
        int64_t at = (o * l.batch + s) * l.inner + i;

        if (wide) {
            drop_four<REAL>(l, state.training, r, at);
            return;
        }
        put_real((REAL *)l.out + at,
                 drop(l, state.training, r.word[k], real_of(((const REAL *)l.in)[at])));
        if (l.mask)
            l.mask[at] = is_kept(l, state.training, r.word[k]);
    }
}

template <typename REAL> CUDA_DEVICE void dropout_all(const struct cuda_dropout &l)
{
    const struct step_state state = *l.state;
    int64_t quads = (l.outer * l.inner + 3) / 4;
    bool small = l.batch * quads < (int64_t)1 << 29;
    bool wide = l.inner % 4 == 0 && is_wide_at<REAL>(l.in) && is_wide_at<REAL>(l.out);

    CUDA_EACH(i, l.batch * quads) {
        int64_t quad, s = divide(i, quads, small, &quad);

        dropout_quad<REAL>(l, state, s, quad, small, wide);
    }
}

// x, y, mask[outer, batch, inner].
CUDA_KERNEL(kernel_dropout, cuda_dropout)
{
    CUDA_BY_TYPE(l.narrow, dropout_all, l);
}

cudaError_t cuda_launch_dropout(cudaStream_t stream, const struct cuda_dropout *launch)
{
    int64_t quads = launch->batch * ((launch->outer * launch->inner + 3) / 4);

    return CUDA_LAUNCH(kernel_dropout, cuda_grid(quads, CUDA_BLOCK), CUDA_BLOCK, launch,
                       stream);
}
