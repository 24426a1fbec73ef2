/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. Convolutions over three spatial axes. */

/* One tap of the kernel over one plane: what is done with each (input, output) pair. */
enum REAL(tap) { REAL(FORWARD), REAL(BACKWARD), REAL(WEIGHT) };

static double REAL(tap)(const struct window *w, const struct ref_tap *tap, enum REAL(tap) what,
                        double weight, const real *x, const real *y, double *sum)
{
    int64_t n = tap->end[2] - tap->first[2], step = w->stride[2], i, j, l;
    double total = 0;

    for (i = tap->first[0]; i < tap->end[0]; i++) {
        for (j = tap->first[1]; j < tap->end[1]; j++) {
            int64_t in = ((tap->start[0] + (i - tap->first[0]) * w->stride[0]) * w->in[1] +
                          tap->start[1] + (j - tap->first[1]) * w->stride[1]) * w->in[2] +
                         tap->start[2];
            int64_t out = (i * w->out[1] + j) * w->out[2] + tap->first[2];

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
static void REAL(taps)(const struct kernel *k, enum REAL(tap) what, const real *weights,
                       const real *x, const real *y, double *sum)
{
    for (int t = 0; t < k->n_taps; t++) {
        int64_t at = k->taps[t].at;
        double total = REAL(tap)(&k->window, &k->taps[t], what,
                                 weights ? (double)weights[at] : 0, x, y, sum);

        if (what == REAL(WEIGHT))
            sum[at] += total;
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
                REAL(taps)(k, REAL(FORWARD), weights + (o * depth + c) * taps,
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
                REAL(taps)(k, REAL(BACKWARD), weights + (o * depth + c % depth) * taps, NULL,
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
                REAL(taps)(k, REAL(WEIGHT), NULL, x + (n * w->in_channels + channel) * in,
                           dy + (n * w->out_channels + o) * out, sum);
            for (i = 0; i < taps; i++)
                dw[i] = (real)sum[i];
        }
    }
    return 0;
}
