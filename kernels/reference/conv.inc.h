/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. Convolutions over three spatial axes. A column has a value for each
 * position of an output plane, for one tap of the kernel: what the tap sees of an input plane, zero
 * where it sees none, or a sum for it. So all channels of the other side run along values that lie side
 * by side. What is infinite makes NaN of a zero that stands for nothing, too.
 */

static void REAL(add_product)(int64_t n, double factor, const real *restrict x, double *restrict sum)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        sum[i] += factor * (double)x[i];
}

static double REAL(dot_product)(int64_t n, const real *restrict x, const real *restrict y)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* Where a row begins in the input plane, of row 'j' in plane 'i' of the output. */
static int64_t REAL(row_in)(const struct window *w, const struct ref_tap *tap, int64_t i, int64_t j)
{
    return ((tap->start[0] + (i - tap->first[0]) * w->stride[0]) * w->in[1] + tap->start[1] +
            (j - tap->first[1]) * w->stride[1]) * w->in[2] + tap->start[2];
}

/* The column of one plane, of 'volume' positions; zeros where the tap meets nothing. */
static void REAL(gather)(const struct window *w, const struct ref_tap *tap, const real *x,
                         int64_t volume, real *column)
{
    int64_t n = tap->end[2] - tap->first[2], step = w->stride[2], i, j, l;

    for (i = 0; i < volume; i++)
        column[i] = 0;
    for (i = tap->first[0]; i < tap->end[0]; i++)
        for (j = tap->first[1]; j < tap->end[1]; j++) {
            const real *from = x + REAL(row_in)(w, tap, i, j);
            real *to = column + (i * w->out[1] + j) * w->out[2] + tap->first[2];

            for (l = 0; l < n; l++)
                to[l] = from[l * step];
        }
}

/* The reverse: a column is added to a plane of the input. */
static void REAL(scatter)(const struct window *w, const struct ref_tap *tap, const double *column,
                          double *sum)
{
    int64_t n = tap->end[2] - tap->first[2], step = w->stride[2], i, j, l;

    for (i = tap->first[0]; i < tap->end[0]; i++)
        for (j = tap->first[1]; j < tap->end[1]; j++) {
            const double *from = column + (i * w->out[1] + j) * w->out[2] + tap->first[2];
            double *to = sum + REAL(row_in)(w, tap, i, j);

            for (l = 0; l < n; l++)
                to[l * step] += from[l];
        }
}

static int64_t REAL(volume)(const int64_t *dim)
{
    return dim[0] * dim[1] * dim[2];
}

static int REAL(run_conv)(const struct kernel *k, const struct kernel_args *args,
                          struct err *err)
{
    const struct window *w = &k->window;
    const real *x = args->inputs[0], *weights = args->inputs[1];
    const real *bias = k->n_inputs > 2 ? args->inputs[2] : NULL;
    real *y = args->outputs[0];
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out);
    int64_t taps = REAL(volume)(w->kernel), image, o, c, i, n;
    int64_t depth = w->in_channels / w->groups, width = w->out_channels / w->groups;
    double *sums = (double *)args->workspace + out;
    real *column = args->workspace;

    (void)err;
    for (image = 0; image < w->images; image++, x += w->in_channels * in)
        for (int64_t first = 0; first < w->out_channels; first += n, y += n * out) {
            const real *group = x + first / width * depth * in;

            n = ref_channels_at_once(width - first % width);
            for (o = 0; o < n; o++)
                for (i = 0; i < out; i++)
                    sums[o * out + i] = bias ? (double)bias[first + o] : 0;
            for (c = 0; c < depth; c++)
                for (int t = 0; t < k->n_taps; t++) {
                    const real *weight = weights + (first * depth + c) * taps + k->taps[t].at;

                    REAL(gather)(w, &k->taps[t], group + c * in, out, column);
                    for (o = 0; o < n; o++)
                        REAL(add_product)(out, (double)weight[o * depth * taps], column,
                                          sums + o * out);
                }
            for (i = 0; i < n * out; i++)
                y[i] = (real)sums[i];
        }
    return 0;
}

static int REAL(run_conv_dgrad)(const struct kernel *k, const struct kernel_args *args,
                                struct err *err)
{
    const struct window *w = &k->window;
    const real *dy = args->inputs[0], *weights = args->inputs[1];
    real *dx = args->outputs[0];
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out);
    int64_t taps = REAL(volume)(w->kernel), n, o, c, i;
    int64_t depth = w->in_channels / w->groups, width = w->out_channels / w->groups;
    double *column = args->workspace, *sum = column + out;

    (void)err;
    for (n = 0; n < w->images; n++, dy += w->out_channels * out) {
        for (c = 0; c < w->in_channels; c++, dx += in) {
            int64_t first = c / depth * width;

            for (i = 0; i < in; i++)
                sum[i] = 0;
            for (int t = 0; t < k->n_taps; t++) {
                const real *weight = weights + (first * depth + c % depth) * taps + k->taps[t].at;

                for (i = 0; i < out; i++)
                    column[i] = 0;
                for (o = 0; o < width; o++)
                    REAL(add_product)(out, (double)weight[o * depth * taps], dy + (first + o) * out,
                                      column);
                REAL(scatter)(w, &k->taps[t], column, sum);
            }
            for (i = 0; i < in; i++)
                dx[i] = (real)sum[i];
        }
    }
    return 0;
}

static int REAL(run_conv_wgrad)(const struct kernel *k, const struct kernel_args *args,
                                struct err *err)
{
    const struct window *w = &k->window;
    const real *x = args->inputs[0], *dy = args->inputs[1];
    real *dw = args->outputs[0];
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out);
    int64_t taps = REAL(volume)(w->kernel), n, o, c, i;
    int64_t depth = w->in_channels / w->groups, width = w->out_channels / w->groups;
    double *sums = (double *)args->workspace + out;
    real *column = args->workspace;

    (void)err;
    for (c = 0; c < w->in_channels; c++) {
        int64_t first = c / depth * width;

        for (i = 0; i < width * taps; i++)
            sums[i] = 0;
        for (n = 0; n < w->images; n++)
            for (int t = 0; t < k->n_taps; t++) {
                REAL(gather)(w, &k->taps[t], x + (n * w->in_channels + c) * in, out, column);
                for (o = 0; o < width; o++)
                    sums[o * taps + k->taps[t].at] += REAL(dot_product)(
                        out, column, dy + (n * w->out_channels + first + o) * out);
            }
        for (o = 0; o < width; o++)
            for (i = 0; i < taps; i++)
                dw[((first + o) * depth + c % depth) * taps + i] = (real)sums[o * taps + i];
    }
    return 0;
}
