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

/* A mask [rows, columns] as cuDNN's attentions want it: of each row the largest number is taken off, which
 * changes no softmax but by rounding (of a row of -1e9 float32 knows no scores, and has their mean; here
 * they are as if nothing was hidden), and what hides is -CUDA_MASK_HIDES at most. 'causal': row r sees columns 0 to r % m,
 * and is 0 beyond. A row that hides all by -infinity is one of NaNs, as its softmax is, or, with 'unseen',
 * of zeros, and 1 there; others are 0.
 */
struct cuda_mask {
    int64_t rows, columns, m;
    int causal, team;
    int hide;                   /* of 'choose': true hides, false shows */
    const float *add;           /* one of these, the other NULL */
    const unsigned char *choose;
    float *out;
    unsigned char *unseen;      /* [rows] */
};

/* Where the row of the mask is unseen, a query gives 0, and its probabilities are 0 when they are made
 * again. Members are named as in struct cuda_attention, steps in rows of the mask; y[stack, m, e] is of 16
 * bits, 'turned': [samples, m, heads, e], where the last of 'dim' are the heads.
 */
struct cuda_unseen {
    int64_t stack, m, e;
    int64_t dim[CUDA_RANK], step[CUDA_RANK], step_m;
    int rank;
    int turned;
    const unsigned char *unseen;
    void *y;
    float *saved;               /* [stack, m] */
};

#define CUDA_MASK_HIDES 1e30f

#endif
