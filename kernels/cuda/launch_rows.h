/* SPDX-License-Identifier: MIT */
/* What kernels that sum are launched with: rows, channels, axes, losses, optimizers, windows.
 * Part of launch.h, which says the rest. Sums over many rows are made in double: parts, then
 * their total.
 */
#ifndef TASUKI_KERNELS_CUDA_LAUNCH_ROWS_H
#define TASUKI_KERNELS_CUDA_LAUNCH_ROWS_H

#define CUDA_PARTS 1024         /* of a sum over all that there is */
#define CUDA_KEPT 4             /* words of a row that a thread keeps in registers */

/* [before, length, after]: n = before * after rows of 'length' elements, 'after' apart. */
struct cuda_rows {
    int64_t n, length, after;
    int team;                   /* the threads of a block share a row; 0: each has its own */
};

/* y = softmax(x), or dx from dy and x, which is what y was; 'logarithm': of the LogSoftmax. */
struct cuda_softmax {
    struct cuda_rows rows;
    int logarithm, masked;
    enum cuda_narrow narrow;
    const void *x, *dy;         /* dy NULL: forward */
    void *out;
};

/* CrossEntropySum, and CrossEntropyGrad where 'dx' is set. A label that is no class makes the
 * loss NaN, and its row of the gradient: nobody on the GPU can refuse it.
 */
struct cuda_entropy {
    struct cuda_rows rows;
    enum cuda_narrow narrow;    /* x and dx, not the labels */
    const void *x;
    const float *weights;       /* NULL: all 1 */
    const void *labels;
    int wide;                   /* they are int64, else int32 */
    int ignores;
    int64_t ignore_index;
    double smoothing;
    const bool *training;       /* these two of the step_state */
    const double *weight_sum;
    float *loss, *correct;      /* correct may be NULL */
    float *log_sums;            /* of each row: made (may be NULL), read for the gradient */
    double *parts;              /* [2, rows] */
    const float *dloss;
    void *dx;
};

/* y = (x - mean) * inverse * scale + bias by rows; x + other comes into 'sum' first where that
 * is set. Element i of row r has scale r % groups * channels + i / after.
 */
struct cuda_norm {
    struct cuda_rows rows;
    int64_t groups, channels, after;
    int centred;                /* 0: by the mean square, mean 0 */
    double epsilon;
    /* Threads that keep a row, which then is read once: 32, 64, 128 or 256, CUDA_KEPT words each, which
     * are aligned; groups and 'after' are 1. 0: none do.
     */
    int kept;
    enum cuda_narrow narrow;
    const void *x, *other;
    const float *scale, *bias;
    void *sum, *y;
    float *mean, *inverse;
};

struct cuda_norm_grad {
    struct cuda_rows rows;
    int64_t groups, channels, after;
    int kept;                   /* as above */
    enum cuda_narrow narrow;
    const void *dy, *x;
    const float *scale, *mean, *inverse;            /* mean NULL: not centred */
    void *dx;
};

/* Sums over rows, cut: a block makes those of a chunk of the rows and so many words of columns, which
 * divide its threads. 0 chunks: not so.
 */
struct cuda_cut {
    int64_t chunks, chunk;
    int words;
};

/* Two sums for each channel of each group of [groups, samples, length, after]: of dy and of dy
 * times normalised x, or, without dy, of x and its square. Mean and inverse are at
 * group * stat_group + sample * stat_sample + channel / stat_channels.
 */
struct cuda_channels {
    int64_t groups, samples, length, after;
    int64_t chunks, chunk;      /* of samples; samples in one */
    int team;                   /* the threads of a block share a channel and chunk */
    int columns;                /* not 0: so many words are a block's, a power of two; 'after' is 1, and
                                 * all is aligned to words */
    enum cuda_narrow narrow;
    const void *dy, *x;
    const float *mean, *inverse;                    /* mean NULL: 0 */
    const float *cut_scale, *cut_bias;  /* set, with 'columns': dy counts where normalised x times one, and
                                         * the other, is above 0 */
    int64_t stat_group, stat_sample, stat_channels;
    const bool *training;       /* set: nothing is done unless that is */
    double *parts;              /* [2, groups, chunks, length]; room for those of a cut */
};

/* dscale and dbias of all norms but the BatchNorm: one group. Either may be NULL. */
struct cuda_weight_grad {
    struct cuda_channels channels;
    struct cuda_cut cut;        /* if dy and x are aligned to words */
    float *dscale, *dbias;
    int add;
};

struct cuda_batchnorm {
    struct cuda_channels channels;
    int64_t group;              /* images that are one */
    double epsilon, momentum;
    const int64_t *global_batch, *first_sample;     /* of the step_state */
    const float *scale, *bias, *old_mean, *old_variance;
    void *y;
    float *mean_part, *variance_part, *mean, *inverse;    /* may be NULL */
    int relu;                   /* of y, with 'columns' */
    int made;                   /* with 'columns': 'stats' are there, and y where this is training */
    float *stats;               /* mean and inverse: [2, groups, length] */
};

struct cuda_batchnorm_grad {
    struct cuda_channels channels;
    const float *scale;
    void *dx;
    float *dscale, *dbias;      /* any may be NULL, as dx may */
    int relu;                   /* dy is behind one */
    float *means;               /* of the two sums over a channel: [2, groups, length] */
};

enum cuda_reduction { CUDA_SUM, CUDA_NORM, CUDA_LARGEST, CUDA_SMALLEST, CUDA_COUNT };

/* Axes of x that are kept, whose elements in order are the outputs, or summed over. */
struct cuda_axes {
    int rank;
    int64_t elements, dim[CUDA_RANK], stride[CUDA_RANK];
};

/* CUDA_NORM: the root of the sum of squares. CUDA_COUNT: of those that are y. */
struct cuda_reduce {
    enum cuda_reduction kind;
    struct cuda_axes kept, inner;
    int64_t chunks, chunk;      /* of 'inner'; elements in one */
    int team;                   /* the threads of a block share an output and chunk */
    struct cuda_cut cut;        /* of the sums over the rows of a matrix, if x is aligned to words */
    double scale;               /* of a sum */
    enum cuda_narrow narrow;
    const void *x;
    const float *y;
    float *out;
    double *parts;              /* [chunks, outputs] of several chunks; room for those of a cut */
    int add;
};

/* Gradients of CUDA_LARGEST and CUDA_SMALLEST, and without 'count' of CUDA_NORM. Operand 0 of
 * the walk over x is the result that an element belongs to.
 */
struct cuda_unreduce {
    struct cuda_walk walk;
    const float *dy, *x, *y, *count;
    float *dx;
};

enum cuda_pair_kind { CUDA_PAIR_MSE, CUDA_PAIR_DOT, CUDA_PAIR_SUM };

/* The loss sum (a - b)^2, a * b or a over weight_sum, or its gradient by a where 'dloss' is
 * set; DOT then has b in the place of a.
 */
struct cuda_pair {
    enum cuda_pair_kind kind;
    int64_t n;
    const float *a, *b, *dloss;
    const double *weight_sum;   /* of the step_state */
    float *out;
    double *parts;              /* CUDA_PARTS */
};

enum cuda_rule {
    CUDA_RULE_SGD, CUDA_RULE_MOMENTUM, CUDA_RULE_NESTEROV, CUDA_RULE_ADAM, CUDA_RULE_ADAMW,
    CUDA_RULE_LAMB,
    CUDA_RULE_MOMENTS           /* LAMB's m and v, and the squares of its direction */
};

/* A range of backend.h in the GPU's memory. It is cut into pieces, a block's each, by its length alone. */
struct cuda_range {
    int64_t n, p, g, state;
    int64_t first, piece;       /* pieces of the ranges before it; elements of one */
    double decay;
};

#define CUDA_PIECE 4096         /* elements of a piece at least, */
#define CUDA_PIECES 4096        /* pieces of a range at most */

struct cuda_ranges {
    int64_t n, pieces;
    const struct cuda_range *items;
    double *parts;              /* [pieces] */
};

/* optimize() and moments() of backend.h, whose pointers these are. */
struct cuda_update {
    enum cuda_rule rule;
    struct cuda_ranges ranges;
    float *p, *m, *v;
    const float *g;
    double g_scale, rate, decay;
    double trust;               /* LARS's, else 0 */
    const double *squares, *weights;    /* norms; NULL: there are none */
    float epsilon;
    float momentum, look_ahead; /* the first is 0 in the first step */
    float blend1, blend2;       /* 1 - beta */
    float unbias1, unbias2;     /* 1 / (1 - beta1^step), and the root of the other */
    double *sums;               /* of the moments: of each range */
};

struct cuda_squares {
    struct cuda_ranges ranges;
    const float *x;
    double *sums;
};

enum cuda_pool_kind {
    CUDA_POOL_MAX, CUDA_POOL_INDICES, CUDA_POOL_MEAN, CUDA_POOL_MAX_GRAD, CUDA_POOL_MEAN_GRAD
};

/* Planes of three axes, of fewer than 2^31 elements. 'saved' is where in its plane the maximum
 * is, -1: nowhere.
 */
struct cuda_pool {
    enum cuda_pool_kind kind;
    int64_t planes;
    int in[3], out[3], kernel[3], stride[3], dilation[3], before[3], after[3];
    int count_padding;
    int swap;                   /* of the indices: the first axis runs fastest */
    enum cuda_narrow narrow;    /* not of CUDA_POOL_INDICES */
    int64_t channels;           /* planes that lie element by element beside each other, or 0 */
    int64_t saved_channels;     /* and of 'saved' */
    const void *x;              /* or dy */
    int32_t *saved;             /* may be NULL */
    int64_t *indices;           /* in all of x */
    void *y;                    /* or dx */
};

/* dx[n, length, channels] = dy[n, channels] * scale */
struct cuda_spread {
    int64_t n, length, channels;
    double scale;
    enum cuda_narrow narrow;
    const void *dy;
    void *dx;
};

#define CUDA_ROW_FAMILIES(X) \
    X(softmax) X(entropy) X(norm) X(norm_grad) X(weight_grad) X(batchnorm) X(batchnorm_grad) \
    X(reduce) X(unreduce) X(pair) X(update) X(squares) X(pool) X(spread)

#endif
