// SPDX-License-Identifier: MIT
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/module.h"
#include "kernels/cuda/walk.cuh"
#include "kernels/philox.h"
#include "kernels/step.h"

// Four elements of sample s, from 4 * quad on, share what is drawn.
CUDA_DEVICE void dropout_quad(const struct cuda_dropout &l, const struct step_state &state,
                              int64_t s, int64_t quad, bool small)
{
    uint64_t sample = (uint64_t)(l.samples ? state.first_sample + s : 0);
    struct philox r = philox_dropout(philox_key(state.seed, l.key), (uint64_t)state.step, sample,
                                     (uint64_t)quad);

    for (int k = 0; k < 4 && 4 * quad + k < l.outer * l.inner; k++) {
        int64_t i, o = divide(4 * quad + k, l.inner, small, &i);
        int64_t at = (o * l.batch + s) * l.inner + i;
        bool kept = !state.training || r.word[k] >= l.threshold;

        l.out[at] = !state.training ? l.in[at] : kept ? l.in[at] * l.scale : 0;
        if (l.mask)
            l.mask[at] = kept;
    }
}

// x, y, mask[outer, batch, inner].
CUDA_KERNEL(kernel_dropout, cuda_dropout)
{
    const struct step_state state = *l.state;
    int64_t quads = (l.outer * l.inner + 3) / 4;
    bool small = l.batch * quads < (int64_t)1 << 29;

    CUDA_EACH(i, l.batch * quads) {
        int64_t quad, s = divide(i, quads, small, &quad);

        dropout_quad(l, state, s, quad, small);
    }
}

cudaError_t cuda_launch_dropout(cudaStream_t stream, const struct cuda_dropout *launch)
{
    int64_t quads = launch->batch * ((launch->outer * launch->inner + 3) / 4);

    return CUDA_LAUNCH(kernel_dropout, cuda_grid(quads, CUDA_BLOCK), CUDA_BLOCK, launch, stream);
}
