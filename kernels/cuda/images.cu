// SPDX-License-Identifier: MIT
// The BatchNorm of images whose channels are the last axis.
//
// Rows are what has one place in one image. A thread has a word of channels and every so many rows,
// several of which it reads before it uses the first: the rest is waiting for memory.
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

#define IMAGE_BATCH 4               // rows that are read at once
#define IMAGE_BATCHES 2             // such batches of a thread, where nothing is summed

// Of a block: so many words of channels, in some of the rows of a group; and the part of a thread.
struct image_piece {
    int64_t group, first, end;  // rows
    int64_t start, words;       // the block's first word; those of a row
    int64_t word;
    int lane, lanes;            // rows from that one on, so many apart
    bool inside;                // else there is no such word
};

template <typename REAL>
CUDA_DEVICE struct image_piece image_piece_of(const struct cuda_channels &l, int64_t block, int64_t chunk,
                                              int64_t chunks)
{
    struct image_piece p;
    int64_t across;

    p.words = l.length / CUDA_WIDTH(REAL);
    across = (p.words + l.columns - 1) / l.columns;
    p.group = block / across / chunks;
    p.first = block / across % chunks * chunk;
    p.end = p.first + chunk < l.samples ? p.first + chunk : l.samples;
    p.start = block % across * l.columns;
    p.word = p.start + (int)threadIdx.x % l.columns;
    p.inside = p.word < p.words;
    p.lane = (int)threadIdx.x / l.columns;
    p.lanes = CUDA_BLOCK / l.columns;
    return p;
}

CUDA_EITHER int64_t piece_count(const struct cuda_channels &l, int width, int64_t chunks)
{
    return l.groups * chunks * ((l.length / width + l.columns - 1) / l.columns);
}

// Where a row's word of this thread is.
CUDA_DEVICE int64_t image_at(const struct cuda_channels &l, const struct image_piece &p, int64_t row)
{
    return (p.group * l.samples + row) * p.words + p.word;
}

// Zeros of rows that are not there.
template <typename REAL>
CUDA_DEVICE void read_batch(const struct cuda_channels &l, const struct image_piece &p, int64_t row,
                            const void *from, uint4 *words)
{
    CUDA_UNROLL_ALL
    for (int k = 0; k < IMAGE_BATCH; k++) {
        int64_t own = row + k * p.lanes;

        words[k] = word_at(from, image_at(l, p, own), own < p.end);
    }
}

// Of the channels of a thread's word, from [groups, length].
template <typename REAL>
CUDA_DEVICE void read_stats(const float *stats, const struct image_piece &p, float *to)
{
    floats_at<CUDA_WIDTH(REAL)>(stats, p.group * p.words + p.word, to);
}

// What y's of them follow from: (x - mean) * factor + bias.
template <typename REAL>
CUDA_DEVICE void read_factors(const float *scale, const float *inverse, const struct image_piece &p,
                              float *factor)
{
    const int width = CUDA_WIDTH(REAL);
    float own[width];

    floats_at<CUDA_WIDTH(REAL)>(scale, p.word, own);
    read_stats<REAL>(inverse, p, factor);
    CUDA_UNROLL_ALL
    for (int j = 0; j < width; j++)
        factor[j] *= own[j];
}

// A Relu that is part of it lets nothing through where what it reads is not above 0 once it is written: of
// float16 more is 0 than of float32.
template <typename REAL> CUDA_DEVICE bool is_cut(float y)
{
    REAL written;

    put_real(&written, y);
    return !(real_of(written) > 0);
}

// Sums ------------------------------------------------------------------------------------

// Of x and its square; of dy and of dy times normalised x; and of that dy which a Relu lets through.
enum image_sums { SQUARES, SLOPES, CUT_SLOPES };

template <typename REAL, enum image_sums KIND>
CUDA_DEVICE void add_image_rows(const struct cuda_channels &l, const struct image_piece &p, double *sum,
                                double *product)
{
    const int width = CUDA_WIDTH(REAL);
    float mean[width], inverse[width], factor[width], bias[width], x[width], d[width];
    uint4 xs[IMAGE_BATCH], ds[IMAGE_BATCH];

    if (KIND != SQUARES) {
        read_stats<REAL>(l.mean, p, mean);
        read_stats<REAL>(l.inverse, p, inverse);
    }
    if (KIND == CUT_SLOPES) {
        read_factors<REAL>(l.cut_scale, l.inverse, p, factor);
        floats_at<CUDA_WIDTH(REAL)>(l.cut_bias, p.word, bias);
    }
    for (int64_t row = p.first + p.lane; row < p.end; row += IMAGE_BATCH * p.lanes) {
        read_batch<REAL>(l, p, row, l.x, xs);
        if (KIND != SQUARES)
            read_batch<REAL>(l, p, row, l.dy, ds);
        CUDA_UNROLL_ALL
        for (int k = 0; k < IMAGE_BATCH; k++) {
            spread_word<REAL>(xs[k], x);
            if (KIND != SQUARES)
                spread_word<REAL>(ds[k], d);
            CUDA_UNROLL_ALL
            for (int j = 0; j < width; j++) {
                double term, other;

                if (KIND == CUT_SLOPES && is_cut<REAL>((x[j] - mean[j]) * factor[j] + bias[j]))
                    d[j] = 0;
                term = (double)(KIND == SQUARES ? x[j] : d[j]);
                other = KIND == SQUARES ? term : (double)((x[j] - mean[j]) * inverse[j]);
                sum[j] += term;
                product[j] += term * other;
            }
        }
    }
}

// What the lanes of a block have found, into parts[2, groups, chunks, length].
template <typename REAL>
CUDA_DEVICE void put_image_sums(const struct cuda_channels &l, const struct image_piece &p, int64_t part,
                                const double (*shared)[CUDA_BLOCK])
{
    const int width = CUDA_WIDTH(REAL);
    int64_t n = l.groups * l.chunks * l.length;

    for (int i = (int)threadIdx.x; i < 2 * width * l.columns; i += CUDA_BLOCK) {
        int which = i / l.columns, column = i - which * l.columns;
        int64_t at = part * l.length + (p.start + column) * width + which % width;
        double sum = 0;

        if (p.start + column >= p.words)
            continue;
        for (int lane = 0; lane < p.lanes; lane++)
            sum += shared[which][lane * l.columns + column];
        l.parts[which < width ? at : n + at] = sum;
    }
}

template <typename REAL, enum image_sums KIND> CUDA_DEVICE void sum_images(const struct cuda_channels &l)
{
    const int width = CUDA_WIDTH(REAL);
    __shared__ double shared[2 * width][CUDA_BLOCK];

    if (l.training && !*l.training)
        return;
    for (int64_t b = blockIdx.x; b < piece_count(l, width, l.chunks); b += gridDim.x) {
        struct image_piece p = image_piece_of<REAL>(l, b, l.chunk, l.chunks);
        double sum[width] = { 0 }, product[width] = { 0 };

        if (p.inside)
            add_image_rows<REAL, KIND>(l, p, sum, product);
        CUDA_UNROLL_ALL
        for (int j = 0; j < width; j++) {
            shared[j][threadIdx.x] = sum[j];
            shared[width + j][threadIdx.x] = product[j];
        }
        __syncthreads();
        put_image_sums<REAL>(l, p, p.group * l.chunks + p.first / l.chunk, shared);
        __syncthreads();
    }
}

template <typename REAL> CUDA_DEVICE void square_images(const struct cuda_channels &l)
{
    sum_images<REAL, SQUARES>(l);
}

template <typename REAL> CUDA_DEVICE void slope_images(const struct cuda_channels &l)
{
    sum_images<REAL, SLOPES>(l);
}

template <typename REAL> CUDA_DEVICE void cut_slope_images(const struct cuda_channels &l)
{
    sum_images<REAL, CUT_SLOPES>(l);
}

CUDA_KERNELS_BY_TYPE(kernel_image_squares, cuda_channels, 3, square_images)
CUDA_KERNELS_BY_TYPE(kernel_image_slopes, cuda_channels, 2, slope_images)
CUDA_KERNELS_BY_TYPE(kernel_image_cut_slopes, cuda_channels, 2, cut_slope_images)

cudaError_t launch_image_sums(cudaStream_t stream, const struct cuda_channels *l)
{
    return CUDA_LAUNCH(l->cut_bias ? CUDA_KERNEL_OF_TYPE(kernel_image_cut_slopes, l->narrow)
                       : l->dy     ? CUDA_KERNEL_OF_TYPE(kernel_image_slopes, l->narrow)
                                   : CUDA_KERNEL_OF_TYPE(kernel_image_squares, l->narrow),
                       team_blocks(piece_count(*l, cuda_width(l->narrow), l->chunks), 1), CUDA_BLOCK, l,
                       stream);
}

// Normalised ------------------------------------------------------------------------------

// Rows of a block, and blocks of a group's rows: here they need no room, and are many.
CUDA_EITHER int64_t applied_chunk(const struct cuda_channels &l)
{
    return (int64_t)(CUDA_BLOCK / l.columns) * IMAGE_BATCH * IMAGE_BATCHES;
}

CUDA_EITHER int64_t applied_chunks(const struct cuda_channels &l)
{
    return (l.samples + applied_chunk(l) - 1) / applied_chunk(l);
}

template <typename REAL>
CUDA_DEVICE void normalise_rows(const struct cuda_batchnorm &l, const struct image_piece &p)
{
    const struct cuda_channels &c = l.channels;
    const int width = CUDA_WIDTH(REAL);
    float mean[width], factor[width], bias[width], x[width];
    uint4 words[IMAGE_BATCH];

    read_stats<REAL>(l.stats, p, mean);
    read_factors<REAL>(l.scale, l.stats + c.groups * c.length, p, factor);
    floats_at<CUDA_WIDTH(REAL)>(l.bias, p.word, bias);
    for (int64_t row = p.first + p.lane; row < p.end; row += IMAGE_BATCH * p.lanes) {
        read_batch<REAL>(c, p, row, c.x, words);
        CUDA_UNROLL_ALL
        for (int k = 0; k < IMAGE_BATCH; k++) {
            if (row + k * p.lanes >= p.end)
                continue;
            spread_word<REAL>(words[k], x);
            CUDA_UNROLL_ALL
            for (int j = 0; j < width; j++) {
                x[j] = (x[j] - mean[j]) * factor[j] + bias[j];
                if (l.relu && x[j] <= 0)
                    x[j] = 0;           /* a NaN stays one */
            }
            put_word((REAL *)l.y, image_at(c, p, row + k * p.lanes), x);
        }
    }
}

template <typename REAL> CUDA_DEVICE void normalise_images(const struct cuda_batchnorm &l)
{
    int64_t chunk = applied_chunk(l.channels), chunks = applied_chunks(l.channels);

    if (l.made && *l.channels.training)
        return;
    for (int64_t b = blockIdx.x; b < piece_count(l.channels, CUDA_WIDTH(REAL), chunks); b += gridDim.x) {
        struct image_piece p = image_piece_of<REAL>(l.channels, b, chunk, chunks);

        if (p.inside)
            normalise_rows<REAL>(l, p);
    }
}

// y[groups, samples, length]
CUDA_KERNELS_BY_TYPE(kernel_normalise_images, cuda_batchnorm, 3, normalise_images)

static unsigned applied_blocks(const struct cuda_channels *c)
{
    return team_blocks(piece_count(*c, cuda_width(c->narrow), applied_chunks(*c)), 1);
}

cudaError_t launch_image_norm(cudaStream_t stream, const struct cuda_batchnorm *l)
{
    return CUDA_LAUNCH(CUDA_KERNEL_OF_TYPE(kernel_normalise_images, l->channels.narrow),
                       applied_blocks(&l->channels), CUDA_BLOCK, l, stream);
}

template <typename REAL, bool CUT>
CUDA_DEVICE void gradient_rows(const struct cuda_batchnorm_grad &l, const struct image_piece &p)
{
    const struct cuda_channels &c = l.channels;
    const int width = CUDA_WIDTH(REAL);
    float mean[width], factor[width], sum[width], product[width], bias[width], x[width], d[width];
    uint4 xs[IMAGE_BATCH], ds[IMAGE_BATCH];

    read_stats<REAL>(c.mean, p, mean);
    read_stats<REAL>(l.means, p, sum);
    /* What of x is taken off. */
    read_stats<REAL>(l.means + c.groups * c.length, p, product);
    read_stats<REAL>(c.inverse, p, factor);
    CUDA_UNROLL_ALL
    for (int j = 0; j < width; j++)
        product[j] *= factor[j];
    read_factors<REAL>(l.scale, c.inverse, p, factor);
    if (CUT)
        floats_at<CUDA_WIDTH(REAL)>(c.cut_bias, p.word, bias);
    for (int64_t row = p.first + p.lane; row < p.end; row += IMAGE_BATCH * p.lanes) {
        read_batch<REAL>(c, p, row, c.x, xs);
        read_batch<REAL>(c, p, row, c.dy, ds);
        CUDA_UNROLL_ALL
        for (int k = 0; k < IMAGE_BATCH; k++) {
            if (row + k * p.lanes >= p.end)
                continue;
            spread_word<REAL>(xs[k], x);
            spread_word<REAL>(ds[k], d);
            CUDA_UNROLL_ALL
            for (int j = 0; j < width; j++) {
                if (CUT && is_cut<REAL>((x[j] - mean[j]) * factor[j] + bias[j]))
                    d[j] = 0;
                d[j] = factor[j] * (d[j] - sum[j] - (x[j] - mean[j]) * product[j]);
            }
            put_word((REAL *)l.dx, image_at(c, p, row + k * p.lanes), d);
        }
    }
}

template <typename REAL, bool CUT> CUDA_DEVICE void find_gradients(const struct cuda_batchnorm_grad &l)
{
    int64_t chunk = applied_chunk(l.channels), chunks = applied_chunks(l.channels);

    for (int64_t b = blockIdx.x; b < piece_count(l.channels, CUDA_WIDTH(REAL), chunks); b += gridDim.x) {
        struct image_piece p = image_piece_of<REAL>(l.channels, b, chunk, chunks);

        if (p.inside)
            gradient_rows<REAL, CUT>(l, p);
    }
}

template <typename REAL> CUDA_DEVICE void gradient_images(const struct cuda_batchnorm_grad &l)
{
    find_gradients<REAL, false>(l);
}

template <typename REAL> CUDA_DEVICE void cut_gradient_images(const struct cuda_batchnorm_grad &l)
{
    find_gradients<REAL, true>(l);
}

// dx[groups, samples, length]
CUDA_KERNELS_BY_TYPE(kernel_gradient_images, cuda_batchnorm_grad, 2, gradient_images)
CUDA_KERNELS_BY_TYPE(kernel_cut_gradient_images, cuda_batchnorm_grad, 2, cut_gradient_images)

cudaError_t launch_image_grad(cudaStream_t stream, const struct cuda_batchnorm_grad *l)
{
    return CUDA_LAUNCH(l->channels.cut_bias
                           ? CUDA_KERNEL_OF_TYPE(kernel_cut_gradient_images, l->channels.narrow)
                           : CUDA_KERNEL_OF_TYPE(kernel_gradient_images, l->channels.narrow),
                       applied_blocks(&l->channels), CUDA_BLOCK, l, stream);
}
