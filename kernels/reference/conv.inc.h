/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. Convolutions over three spatial axes. */

/* The outputs [*first, *end) along axis 'd' whose window position 'p' lies inside the input,
 * and the input that the first of them meets.
 */
static int64_t REAL(span)(const struct window *w, int d, int64_t p, int64_t *first,
                          int64_t *end)
{
    int64_t shift = p * w->dilation[d] - w->before[d];
    int64_t last = w->in[d] - 1 - shift;

    *first = shift >= 0 ? 0 : (-shift + w->stride[d] - 1) / w->stride[d];
    *end = last < 0 ? 0 : last / w->stride[d] + 1;
    if (*end > w->out[d])
        *end = w->out[d];
    if (*first > *end)
        *first = *end;
    return *first * w->stride[d] + shift;
}

/* One tap of the kernel over one plane: what is done with each (input, output) pair. */
enum REAL(tap) { REAL(FORWARD), REAL(BACKWARD), REAL(WEIGHT) };

static double REAL(tap)(const struct window *w, const int64_t *p, enum REAL(tap) what,
                        double weight, const real *x, const real *y, double *sum)
{
    int64_t first[3], end[3], start[3], i, j, l;
    double total = 0;
    int d;

    for (d = 0; d < 3; d++)
        start[d] = REAL(span)(w, d, p[d], &first[d], &end[d]);
    for (i = first[0]; i < end[0]; i++) {
        for (j = first[1]; j < end[1]; j++) {
            int64_t in = ((start[0] + (i - first[0]) * w->stride[0]) * w->in[1] + start[1] +
                          (j - first[1]) * w->stride[1]) * w->in[2] + start[2];
            int64_t out = (i * w->out[1] + j) * w->out[2] + first[2];
            int64_t n = end[2] - first[2], step = w->stride[2];

            if (what == REAL(FORWARD))
                for (l = 0; l < n; l++)
                    sum[out + l] += weight * (double)x[in + l * step];
            else if (what == REAL(BACKWARD))
                for (l = 0; l < n; l++)
                    sum[in + l * step] += weight * (double)y[out + l];
            else
                for (l = 0; l < n; l++)
                    total += (double)x[in + l * step] * (double)y[out + l];
        }
    }
    return total;
}

/* All taps between one input plane and one output plane. */
static void REAL(taps)(const struct window *w, enum REAL(tap) what, const real *weights,
                       const real *x, const real *y, double *sum)
{
    int64_t p[3];

    for (p[0] = 0; p[0] < w->kernel[0]; p[0]++)
        for (p[1] = 0; p[1] < w->kernel[1]; p[1]++)
            for (p[2] = 0; p[2] < w->kernel[2]; p[2]++) {
                double total = REAL(tap)(w, p, what, weights ? (double)*weights++ : 0, x, y,
                                         sum);

                if (what == REAL(WEIGHT))
                    *sum++ += total;
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
    double *sum = args->workspace;
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out);
    int64_t taps = REAL(volume)(w->kernel), n, o, c, i;
    int64_t depth = w->in_channels / w->groups, width = w->out_channels / w->groups;

    (void)err;
    for (n = 0; n < w->images; n++) {
        for (o = 0; o < w->out_channels; o++, y += out) {
            for (i = 0; i < out; i++)
                sum[i] = bias ? (double)bias[o] : 0;
            for (c = 0; c < depth; c++)
                REAL(taps)(w, REAL(FORWARD), weights + (o * depth + c) * taps,
                           x + (n * w->in_channels + o / width * depth + c) * in, NULL, sum);
            for (i = 0; i < out; i++)
                y[i] = (real)sum[i];
        }
    }
    return 0;
}

static int REAL(run_conv_dgrad)(const struct kernel *k, const struct kernel_args *args,
                                struct err *err)
{
    const struct window *w = &k->window;
    const real *dy = args->inputs[0], *weights = args->inputs[1];
    real *dx = args->outputs[0];
    double *sum = args->workspace;
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out);
    int64_t taps = REAL(volume)(w->kernel), n, o, c, i;
    int64_t depth = w->in_channels / w->groups, width = w->out_channels / w->groups;

    (void)err;
    for (n = 0; n < w->images; n++) {
        for (c = 0; c < w->in_channels; c++, dx += in) {
            int64_t first = c / depth * width;

            for (i = 0; i < in; i++)
                sum[i] = 0;
            for (o = first; o < first + width; o++)
                REAL(taps)(w, REAL(BACKWARD), weights + (o * depth + c % depth) * taps, NULL,
                           dy + (n * w->out_channels + o) * out, sum);
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
    double *sum = args->workspace;
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out);
    int64_t taps = REAL(volume)(w->kernel), n, o, c, i;
    int64_t depth = w->in_channels / w->groups, width = w->out_channels / w->groups;

    (void)err;
    for (o = 0; o < w->out_channels; o++) {
        for (c = 0; c < depth; c++, dw += taps) {
            int64_t channel = o / width * depth + c;

            for (i = 0; i < taps; i++)
                sum[i] = 0;
            for (n = 0; n < w->images; n++)
                REAL(taps)(w, REAL(WEIGHT), NULL, x + (n * w->in_channels + channel) * in,
                           dy + (n * w->out_channels + o) * out, sum);
            for (i = 0; i < taps; i++)
                dw[i] = (real)sum[i];
        }
    }
    return 0;
}
