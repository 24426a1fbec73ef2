// SPDX-License-Identifier: MIT
// Sums over channels: weights of norms, and the BatchNorm.
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/module.h"

// One piece of the work: a chunk of the samples of a group, one channel.
struct channel_piece {
    int64_t group, channel, first, end;     // samples in the group
    int64_t stat;                           // of the group's first sample
};

CUDA_DEVICE struct channel_piece channel_piece_of(const struct cuda_channels &l, int64_t i)
{
    struct channel_piece p;

    p.channel = i % l.length;
    p.group = i / l.length / l.chunks;
    p.first = i / l.length % l.chunks * l.chunk;
    p.stat = p.group * l.stat_group + p.channel / l.stat_channels;
    p.end = p.first + l.chunk < l.samples ? p.first + l.chunk : l.samples;
    return p;
}

// Add the two terms of the element at 'at'.
template <typename REAL>
CUDA_DEVICE void channel_terms(const struct cuda_channels &l, const struct channel_piece &p,
                               int64_t sample, int64_t at, double *sum, double *product)
{
    int64_t stat = p.stat + sample * l.stat_sample;
    float x = real_of(((const REAL *)l.x)[at]);
    double d = (double)(l.dy ? real_of(((const REAL *)l.dy)[at]) : x);

    *sum += d;
    if (!l.dy)
        *product += d * d;
    else
        *product += d * (double)((x - (l.mean ? l.mean[stat] : 0)) * l.inverse[stat]);
}

// A chunk has fewer than 2^31 elements: see op_norm.c.
template <typename REAL>
CUDA_DEVICE void channel_pieces(const struct cuda_channels &l, double *shared)
{
    int64_t n = l.groups * l.chunks * l.length;

    CUDA_EACH_OF(i, n, l.team) {
        struct channel_piece p = channel_piece_of(l, i);
        double sum = 0, product = 0;

        CUDA_EACH_IN(e, 0, (p.end - p.first) * l.after, l.team) {
            int64_t step = l.after == 1 ? e : (int64_t)((uint32_t)e / (uint32_t)l.after);
            int64_t sample = p.first + step, in_plane = e - step * l.after;
            int64_t at = ((p.group * l.samples + sample) * l.length + p.channel) * l.after +
                         in_plane;

            channel_terms<REAL>(l, p, sample, at, &sum, &product);
        }
        sum = l.team ? block_sum_double(sum, shared) : sum;
        product = l.team ? block_sum_double(product, shared) : product;
        if (!team_writes(l.team))
            continue;
        l.parts[i] = sum;
        l.parts[n + i] = product;
    }
}

// parts[2, groups, chunks, length]
CUDA_KERNEL(kernel_channels, cuda_channels)
{
    __shared__ double shared[CUDA_BLOCK];

    if (l.training && !*l.training)
        return;
    CUDA_BY_TYPE(l.narrow, channel_pieces, l, shared);
}

static cudaError_t launch_channels(cudaStream_t stream, const struct cuda_channels *l)
{
    if (l->columns)
        return launch_image_sums(stream, l);
    return CUDA_LAUNCH(kernel_channels, team_blocks(l->groups * l->chunks * l->length, l->team),
                       team_threads(l->chunk * l->after, l->team), l, stream);
}

// Both sums of a channel of a group; those of images.cu, which are many, by all threads of a block.
CUDA_DEVICE void channel_sums(const struct cuda_channels &l, int64_t group, int64_t channel,
                              double *sum, double *product, double *shared)
{
    const double *part = l.parts + group * l.chunks * l.length + channel;
    int64_t n = l.groups * l.chunks * l.length;

    *sum = *product = 0;
    CUDA_EACH_IN(k, 0, l.chunks, l.columns) {
        *sum += part[k * l.length];
        *product += part[n + k * l.length];
    }
    *sum = l.columns ? block_sum_double(*sum, shared) : *sum;
    *product = l.columns ? block_sum_double(*product, shared) : *product;
}

// Of kernels that ask for them of every channel.
static unsigned sums_blocks(const struct cuda_channels *l)
{
    return l->columns ? team_blocks(l->length, 1) : cuda_grid(l->length, CUDA_WARP);
}

static unsigned sums_threads(const struct cuda_channels *l)
{
    return l->columns ? CUDA_BLOCK : CUDA_WARP;
}

// dscale[length], dbias[length]
CUDA_KERNEL(kernel_weight_grad, cuda_weight_grad)
{
    CUDA_EACH(c, l.channels.length) {
        double sum, product;

        channel_sums(l.channels, 0, c, &sum, &product, NULL);
        if (l.dscale)
            l.dscale[c] = (l.add ? l.dscale[c] : 0) + (float)product;
        if (l.dbias)
            l.dbias[c] = (l.add ? l.dbias[c] : 0) + (float)sum;
    }
}

extern "C" cudaError_t cuda_launch_weight_grad(cudaStream_t stream,
                                               const struct cuda_weight_grad *l)
{
    const struct cuda_channels *c = &l->channels;
    struct cuda_columns columns = { c->samples, c->length, c->length, l->cut, c->narrow, c->dy, c->x,
                                    c->mean, c->inverse, (float *)c->parts,
                                    { l->dbias, l->dscale }, 1, l->add };
    cudaError_t code;

    if (l->cut.chunks && cuda_has_words(c->dy) && cuda_has_words(c->x))
        return launch_columns(stream, &columns);
    code = launch_channels(stream, c);
    return code != cudaSuccess ? code
                               : CUDA_LAUNCH(kernel_weight_grad,
                                             cuda_grid(l->channels.length, CUDA_BLOCK),
                                             CUDA_BLOCK, l, stream);
}

// What a group weighs in the running statistics: see kernels/reference/norm.inc.h.
CUDA_DEVICE double group_weight(const struct cuda_batchnorm &l, int64_t group)
{
    int64_t groups = *l.global_batch / l.group;
    int64_t index = *l.first_sample / l.group + group;

    return (1 - l.momentum) * pow(l.momentum, (double)(groups - 1 - index));
}

CUDA_DEVICE void put_stat(float *to, int64_t at, double value)
{
    if (to)
        to[at] = (float)value;
}

// Of a channel of a group: by its sums, or as a library has made them.
CUDA_DEVICE void find_moments(const struct cuda_batchnorm &l, int64_t group, int64_t channel, double *mean,
                              double *variance, double *shared)
{
    int64_t at = group * l.channels.length + channel;
    double n = (double)(l.channels.samples * l.channels.after), inverse, sum, squares;

    if (l.made) {
        inverse = (double)l.stats[l.channels.groups * l.channels.length + at];
        *mean = (double)l.stats[at];
        *variance = 1 / (inverse * inverse) - l.epsilon;
    } else {
        channel_sums(l.channels, group, channel, &sum, &squares, shared);
        *mean = sum / n;
        *variance = squares / n - *mean * *mean;
    }
    *variance = *variance < 0 ? 0 : *variance;
}

// stats[2, groups, length], the saved ones, and parts of the running ones [length]
CUDA_KERNEL(kernel_batchnorm_stats, cuda_batchnorm)
{
    __shared__ double shared[CUDA_BLOCK];
    double n = (double)(l.channels.samples * l.channels.after);
    int64_t all = l.channels.groups * l.channels.length;

    CUDA_EACH_OF(c, l.channels.length, l.channels.columns) {
        double mean_part = 0, variance_part = 0;

        for (int64_t g = 0; g < l.channels.groups; g++) {
            int64_t at = g * l.channels.length + c;
            double mean, variance, inverse;

            if (*l.channels.training) {
                double weight = group_weight(l, g);

                find_moments(l, g, c, &mean, &variance, shared);
                mean_part += weight * mean;
                variance_part += weight * variance * (n > 1 ? n / (n - 1) : 1);
            } else {
                mean = (double)l.old_mean[c];
                variance = (double)l.old_variance[c];
            }
            inverse = 1 / sqrt(variance + l.epsilon);
            if (!team_writes(l.channels.columns))
                continue;
            if (!l.made || !*l.channels.training) {
                put_stat(l.stats, at, mean);
                put_stat(l.stats, all + at, inverse);
            }
            put_stat(l.mean, at, mean);
            put_stat(l.inverse, at, inverse);
        }
        if (!team_writes(l.channels.columns))
            continue;
        put_stat(l.mean_part, c, mean_part);
        put_stat(l.variance_part, c, variance_part);
    }
}

// Planes of [groups, samples, length, after] are taken by blocks where they are long.
CUDA_DEVICE int64_t plane_stat(const struct cuda_channels &l, int64_t plane, int64_t *channel)
{
    *channel = plane % l.length;
    return plane / l.length / l.samples * l.length + *channel;
}

#define LONG_PLANE 16

template <typename REAL> CUDA_DEVICE void batchnorm_planes(const struct cuda_batchnorm &l)
{
    int64_t planes = l.channels.groups * l.channels.samples * l.channels.length, c;
    int64_t all = l.channels.groups * l.channels.length, after = l.channels.after;
    const REAL *x = (const REAL *)l.channels.x;
    REAL *y = (REAL *)l.y;
    int team = after >= LONG_PLANE;

    CUDA_EACH_OF(plane, planes, team) {
        int64_t stat = plane_stat(l.channels, plane, &c);
        float mean = l.stats[stat], inverse = l.stats[all + stat];

        CUDA_EACH_IN(at, plane * after, (plane + 1) * after, team)
            put_real(&y[at], (real_of(x[at]) - mean) * inverse * l.scale[c] + l.bias[c]);
    }
}

// y[groups, samples, length, after]
CUDA_KERNEL(kernel_batchnorm, cuda_batchnorm)
{
    CUDA_BY_TYPE(l.channels.narrow, batchnorm_planes, l);
}

// Of y or dx.
static unsigned planes_blocks(const struct cuda_channels *c)
{
    return team_blocks(c->groups * c->samples * c->length, c->after >= LONG_PLANE);
}

static unsigned planes_threads(const struct cuda_channels *c)
{
    return team_threads(c->after, c->after >= LONG_PLANE);
}

extern "C" cudaError_t cuda_launch_batchnorm(cudaStream_t stream,
                                             const struct cuda_batchnorm *l)
{
    const struct cuda_channels *c = &l->channels;
    cudaError_t code = l->made ? cudaSuccess : launch_channels(stream, c);

    if (code == cudaSuccess)
        code = CUDA_LAUNCH(kernel_batchnorm_stats, sums_blocks(c), sums_threads(c), l, stream);
    if (code != cudaSuccess || c->columns)
        return code != cudaSuccess ? code : launch_image_norm(stream, l);
    return CUDA_LAUNCH(kernel_batchnorm, planes_blocks(c), planes_threads(c), l, stream);
}

// means[2, groups, length], dscale[length], dbias[length]
CUDA_KERNEL(kernel_batchnorm_sums, cuda_batchnorm_grad)
{
    __shared__ double shared[CUDA_BLOCK];
    double n = (double)(l.channels.samples * l.channels.after);
    int64_t all = l.channels.groups * l.channels.length;

    CUDA_EACH_OF(c, l.channels.length, l.channels.columns) {
        double dscale = 0, dbias = 0, sum, product;

        for (int64_t g = 0; g < l.channels.groups; g++) {
            channel_sums(l.channels, g, c, &sum, &product, shared);
            dbias += sum;
            dscale += product;
            if (!team_writes(l.channels.columns))
                continue;
            put_stat(l.means, g * l.channels.length + c, sum / n);
            put_stat(l.means, all + g * l.channels.length + c, product / n);
        }
        if (!team_writes(l.channels.columns))
            continue;
        put_stat(l.dscale, c, dscale);
        put_stat(l.dbias, c, dbias);
    }
}

template <typename REAL>
CUDA_DEVICE void batchnorm_slopes(const struct cuda_batchnorm_grad &l)
{
    int64_t planes = l.channels.groups * l.channels.samples * l.channels.length, c;
    int64_t all = l.channels.groups * l.channels.length, after = l.channels.after;
    const REAL *x = (const REAL *)l.channels.x, *dy = (const REAL *)l.channels.dy;
    REAL *dx = (REAL *)l.dx;
    int team = after >= LONG_PLANE;

    CUDA_EACH_OF(plane, planes, team) {
        int64_t stat = plane_stat(l.channels, plane, &c);
        float mean = l.channels.mean[stat], inverse = l.channels.inverse[stat];
        float sum = l.means[stat], product = l.means[all + stat];

        CUDA_EACH_IN(at, plane * after, (plane + 1) * after, team) {
            float normal = (real_of(x[at]) - mean) * inverse;

            put_real(&dx[at], l.scale[c] * inverse * (real_of(dy[at]) - sum - normal * product));
        }
    }
}

// dx[groups, samples, length, after]
CUDA_KERNEL(kernel_batchnorm_grad, cuda_batchnorm_grad)
{
    CUDA_BY_TYPE(l.channels.narrow, batchnorm_slopes, l);
}

extern "C" cudaError_t cuda_launch_batchnorm_grad(cudaStream_t stream,
                                                  const struct cuda_batchnorm_grad *l)
{
    const struct cuda_channels *c = &l->channels;
    cudaError_t code = launch_channels(stream, c);

    if (code == cudaSuccess)
        code = CUDA_LAUNCH(kernel_batchnorm_sums, sums_blocks(c), sums_threads(c), l, stream);
    if (code != cudaSuccess || !l->dx)
        return code;
    return c->columns ? launch_image_grad(stream, l)
                      : CUDA_LAUNCH(kernel_batchnorm_grad, planes_blocks(c), planes_threads(c), l,
                                    stream);
}
