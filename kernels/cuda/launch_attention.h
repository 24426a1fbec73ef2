/* SPDX-License-Identifier: MIT */
/* Between the two products of an attention, and of its gradient. Part of launch.h. */
#ifndef TASUKI_KERNELS_CUDA_LAUNCH_ATTENTION_H
#define TASUKI_KERNELS_CUDA_LAUNCH_ATTENTION_H

enum cuda_mask_kind { CUDA_MASK_NONE, CUDA_MASK_ADD, CUDA_MASK_CHOOSE };

/* Scores of 'count' matrices [m, n] of the stack, from the first one on, become probabilities;
 * with 'slopes', the gradient of those, these become the gradient of the scores. Members are named
 * as in graph/ops/attention.h, where 'rank' axes tell where the mask of a matrix begins.
 */
struct cuda_attention {
    int64_t first, count, m, n, past;
    int64_t dim[CUDA_RANK], step[CUDA_RANK], step_m, step_n;
    int rank;
    int causal, masked, hide;
    enum cuda_mask_kind mask_kind;
    int team;                   /* the threads of a block share a row */
    float fill;
    const float *mask_add;      /* the one of CUDA_MASK_ADD */
    const unsigned char *mask_choose;
    float *scores, *slopes;     /* slopes NULL: forward */
    enum cuda_narrow narrow;    /* results, in places of their own; else where those are */
    void *probabilities, *gradients;
    float *saved;               /* [stack, m], logarithms of sums: made (may be NULL), or read */
};

#endif
