/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. */

/* One channel of one group of samples: rows of 'after' elements, 'stride' apart. */
struct REAL(channel) {
    int64_t start, rows, after, stride;
};

static struct REAL(channel) REAL(channel_of)(const struct kernel *k, int64_t group, int64_t c)
{
    int64_t sample = k->length * k->after;

    return (struct REAL(channel)){ group * k->group * sample + c * k->after, k->group,
                                   k->after, sample };
}

static void REAL(moments)(const struct REAL(channel) *ch, const real *x, double *mean,
                          double *variance)
{
    double n = (double)(ch->rows * ch->after), sum = 0;
    int64_t s, i;

    for (s = 0; s < ch->rows; s++)
        for (i = 0; i < ch->after; i++)
            sum += (double)x[ch->start + s * ch->stride + i];
    *mean = sum / n;
    for (sum = 0, s = 0; s < ch->rows; s++)
        for (i = 0; i < ch->after; i++) {
            double d = (double)x[ch->start + s * ch->stride + i] - *mean;

            sum += d * d;
        }
    *variance = sum / n;
}

static void REAL(put)(void *const *outputs, int index, int64_t at, double value)
{
    if (outputs[index])
        ((real *)outputs[index])[at] = (real)value;
}

/* Group g of the K of this step weighs m (1-m)^(K-1-g) in the running statistic, where
 * 1-m is ONNX's momentum.
 */
static double REAL(group_weight)(const struct kernel *k, const struct step_state *state,
                                 int64_t group)
{
    int64_t groups = state->global_batch / k->group;
    int64_t index = state->first_sample / k->group + group;

    return (1 - k->momentum) * pow(k->momentum, (double)(groups - 1 - index));
}

static void REAL(normalize)(const struct kernel *k, const struct kernel_args *args,
                            const struct REAL(channel) *ch, int64_t c, double mean,
                            double invstd)
{
    const real *x = args->inputs[0], *scale = args->inputs[1], *bias = args->inputs[2];
    real *y = args->outputs[0];
    int64_t s, i;

    (void)k;
    for (s = 0; s < ch->rows; s++)
        for (i = 0; i < ch->after; i++) {
            int64_t at = ch->start + s * ch->stride + i;

            y[at] = (real)(((double)x[at] - mean) * invstd * (double)scale[c] +
                           (double)bias[c]);
        }
}

static int REAL(run_batchnorm)(const struct kernel *k, const struct kernel_args *args,
                               struct err *err)
{
    const real *old_mean = args->inputs[3], *old_variance = args->inputs[4];
    int64_t groups = k->batch / k->group, g, c;

    (void)err;
    for (c = 0; c < k->length; c++) {
        double mean_part = 0, variance_part = 0, mean, variance;

        for (g = 0; g < groups; g++) {
            struct REAL(channel) ch = REAL(channel_of)(k, g, c);
            double n = (double)(ch.rows * ch.after), invstd, weight;

            if (args->state->training) {
                REAL(moments)(&ch, args->inputs[0], &mean, &variance);
                weight = REAL(group_weight)(k, args->state, g);
                mean_part += weight * mean;
                variance_part += weight * variance * (n > 1 ? n / (n - 1) : 1);
            } else {
                mean = (double)old_mean[c];
                variance = (double)old_variance[c];
            }
            invstd = 1 / sqrt(variance + k->epsilon);
            REAL(normalize)(k, args, &ch, c, mean, invstd);
            REAL(put)(args->outputs, 3, g * k->length + c, mean);
            REAL(put)(args->outputs, 4, g * k->length + c, invstd);
        }
        REAL(put)(args->outputs, 1, c, mean_part);
        REAL(put)(args->outputs, 2, c, variance_part);
    }
    return 0;
}

/* Sums over one channel of dy and of dy * normalised x. */
static void REAL(channel_sums)(const struct REAL(channel) *ch, const real *dy, const real *x,
                               double mean, double invstd, double *sum, double *product)
{
    int64_t s, i;

    *sum = *product = 0;
    for (s = 0; s < ch->rows; s++)
        for (i = 0; i < ch->after; i++) {
            int64_t at = ch->start + s * ch->stride + i;

            *sum += (double)dy[at];
            *product += (double)dy[at] * ((double)x[at] - mean) * invstd;
        }
}

static int REAL(run_batchnorm_grad)(const struct kernel *k, const struct kernel_args *args,
                                    struct err *err)
{
    const real *dy = args->inputs[0], *x = args->inputs[1], *scale = args->inputs[2];
    const real *means = args->inputs[3], *invstds = args->inputs[4];
    real *dx = args->outputs[0];
    int64_t groups = k->batch / k->group, g, c, s, i;

    (void)err;
    for (c = 0; c < k->length; c++) {
        double dscale = 0, dbias = 0;

        for (g = 0; g < groups; g++) {
            struct REAL(channel) ch = REAL(channel_of)(k, g, c);
            double mean = (double)means[g * k->length + c];
            double invstd = (double)invstds[g * k->length + c];
            double n = (double)(ch.rows * ch.after), sum, product;

            REAL(channel_sums)(&ch, dy, x, mean, invstd, &sum, &product);
            dbias += sum;
            dscale += product;
            for (s = 0; dx && s < ch.rows; s++)
                for (i = 0; i < ch.after; i++) {
                    int64_t at = ch.start + s * ch.stride + i;
                    double normal = ((double)x[at] - mean) * invstd;

                    dx[at] = (real)((double)scale[c] * invstd *
                                    ((double)dy[at] - sum / n - normal * product / n));
                }
        }
        REAL(put)(args->outputs, 1, c, dscale);
        REAL(put)(args->outputs, 2, c, dbias);
    }
    return 0;
}

static int REAL(run_layernorm)(const struct kernel *k, const struct kernel_args *args,
                               struct err *err)
{
    const real *x = args->inputs[0], *scale = args->inputs[1];
    const real *bias = k->n_inputs > 2 ? args->inputs[2] : NULL;
    real *y = args->outputs[0];
    int64_t row, i;
    int output;

    (void)err;
    for (row = 0; row < k->before; row++, x += k->length, y += k->length) {
        struct REAL(channel) ch = { 0, 1, k->length, 0 };
        double mean, variance, invstd;

        REAL(moments)(&ch, x, &mean, &variance);
        invstd = 1 / sqrt(variance + k->epsilon);
        for (i = 0; i < k->length; i++)
            y[i] = (real)(((double)x[i] - mean) * invstd * (double)scale[i] +
                          (bias ? (double)bias[i] : 0));
        for (output = 1; output < k->n_outputs; output++)
            REAL(put)(args->outputs, output, row, output == 1 ? mean : invstd);
    }
    return 0;
}

static int REAL(run_layernorm_dgrad)(const struct kernel *k, const struct kernel_args *args,
                                     struct err *err)
{
    const real *dy = args->inputs[0], *x = args->inputs[1], *scale = args->inputs[2];
    const real *means = args->inputs[3], *invstds = args->inputs[4];
    real *dx = args->outputs[0];
    int64_t row, i;

    (void)err;
    for (row = 0; row < k->before; row++, dy += k->length, x += k->length, dx += k->length) {
        double mean = (double)means[row], invstd = (double)invstds[row];
        double sum = 0, product = 0, n = (double)k->length;

        for (i = 0; i < k->length; i++) {
            double d = (double)dy[i] * (double)scale[i];

            sum += d;
            product += d * ((double)x[i] - mean) * invstd;
        }
        for (i = 0; i < k->length; i++)
            dx[i] = (real)(invstd * ((double)dy[i] * (double)scale[i] - sum / n -
                                     ((double)x[i] - mean) * invstd * product / n));
    }
    return 0;
}

static int REAL(run_layernorm_wgrad)(const struct kernel *k, const struct kernel_args *args,
                                     struct err *err)
{
    const real *dy = args->inputs[0], *x = args->inputs[1];
    const real *means = args->inputs[2], *invstds = args->inputs[3];
    double *dscale = args->workspace, *dbias = dscale + k->length;
    int64_t row, i;

    (void)err;
    for (i = 0; i < 2 * k->length; i++)
        dscale[i] = 0;
    for (row = 0; row < k->before; row++, dy += k->length, x += k->length)
        for (i = 0; i < k->length; i++) {
            dscale[i] += (double)dy[i] * ((double)x[i] - (double)means[row]) *
                         (double)invstds[row];
            dbias[i] += (double)dy[i];
        }
    for (i = 0; i < k->length; i++) {
        REAL(put)(args->outputs, 0, i, dscale[i]);
        if (k->n_outputs > 1)
            REAL(put)(args->outputs, 1, i, dbias[i]);
    }
    return 0;
}
