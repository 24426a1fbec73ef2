/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. A group is k->length channels of k->after elements each, one
 * after the other; k->before groups make one sample of k->batch.
 */

static int REAL(run_groupnorm)(const struct kernel *k, const struct kernel_args *args,
                               struct err *err)
{
    const real *x = args->inputs[0], *scale = args->inputs[1], *bias = args->inputs[2];
    int64_t n = k->length * k->after, group, i;
    real *y = args->outputs[0];
    int output;

    (void)err;
    for (group = 0; group < k->batch * k->before; group++, x += n, y += n) {
        struct REAL(channel) ch = { 0, 1, n, 0 };
        int64_t first = group % k->before * k->length;
        double mean, variance, invstd;

        REAL(moments)(&ch, x, &mean, &variance);
        invstd = 1 / sqrt(variance + k->epsilon);
        for (i = 0; i < n; i++)
            y[i] = (real)(((double)x[i] - mean) * invstd * (double)scale[first + i / k->after] +
                          (double)bias[first + i / k->after]);
        for (output = 1; output < k->n_outputs; output++)
            REAL(put)(args->outputs, output, group, output == 1 ? mean : invstd);
    }
    return 0;
}

static int REAL(run_groupnorm_dgrad)(const struct kernel *k, const struct kernel_args *args,
                                     struct err *err)
{
    const real *dy = args->inputs[0], *x = args->inputs[1], *scale = args->inputs[2];
    const real *means = args->inputs[3], *invstds = args->inputs[4];
    int64_t n = k->length * k->after, group, i;
    real *dx = args->outputs[0];

    (void)err;
    for (group = 0; group < k->batch * k->before; group++, dy += n, x += n, dx += n) {
        const real *own = scale + group % k->before * k->length;
        double mean = (double)means[group], invstd = (double)invstds[group];
        double sum = 0, product = 0;

        for (i = 0; i < n; i++) {
            double d = (double)dy[i] * (double)own[i / k->after];

            sum += d;
            product += d * ((double)x[i] - mean) * invstd;
        }
        for (i = 0; i < n; i++)
            dx[i] = (real)(invstd * ((double)dy[i] * (double)own[i / k->after] -
                                     sum / (double)n -
                                     ((double)x[i] - mean) * invstd * product / (double)n));
    }
    return 0;
}

static int REAL(run_groupnorm_wgrad)(const struct kernel *k, const struct kernel_args *args,
                                     struct err *err)
{
    const real *dy = args->inputs[0], *x = args->inputs[1];
    const real *means = args->inputs[2], *invstds = args->inputs[3];
    int64_t channels = k->before * k->length, c, s, i;

    (void)err;
    for (c = 0; c < channels; c++) {
        double dscale = 0, dbias = 0;

        for (s = 0; s < k->batch; s++) {
            int64_t group = s * k->before + c / k->length;

            for (i = 0; i < k->after; i++) {
                int64_t at = (s * channels + c) * k->after + i;

                dbias += (double)dy[at];
                dscale += (double)dy[at] * ((double)x[at] - (double)means[group]) *
                          (double)invstds[group];
            }
        }
        REAL(put)(args->outputs, 0, c, dscale);
        if (k->n_outputs > 1)
            REAL(put)(args->outputs, 1, c, dbias);
    }
    return 0;
}

/* Rows of k->length. */
static int REAL(run_rmsnorm)(const struct kernel *k, const struct kernel_args *args,
                             struct err *err)
{
    const real *x = args->inputs[0], *scale = args->inputs[1];
    real *y = args->outputs[0];
    int64_t row, i;

    (void)err;
    for (row = 0; row < k->before; row++, x += k->length, y += k->length) {
        double squares = 0, inverse;

        for (i = 0; i < k->length; i++)
            squares += (double)x[i] * (double)x[i];
        inverse = 1 / sqrt(squares / (double)k->length + k->epsilon);
        for (i = 0; i < k->length; i++)
            y[i] = (real)((double)x[i] * inverse * (double)scale[i]);
        if (k->n_outputs > 1)
            REAL(put)(args->outputs, 1, row, inverse);
    }
    return 0;
}

static int REAL(run_rmsnorm_dgrad)(const struct kernel *k, const struct kernel_args *args,
                                   struct err *err)
{
    const real *dy = args->inputs[0], *x = args->inputs[1], *scale = args->inputs[2];
    const real *saved = args->inputs[3];
    real *dx = args->outputs[0];
    int64_t row, i;

    (void)err;
    for (row = 0; row < k->before; row++, dy += k->length, x += k->length, dx += k->length) {
        double inverse = (double)saved[row], product = 0;

        for (i = 0; i < k->length; i++)
            product += (double)dy[i] * (double)scale[i] * (double)x[i] * inverse;
        product /= (double)k->length;
        for (i = 0; i < k->length; i++)
            dx[i] = (real)(inverse * ((double)dy[i] * (double)scale[i] -
                                      (double)x[i] * inverse * product));
    }
    return 0;
}

static int REAL(run_rmsnorm_wgrad)(const struct kernel *k, const struct kernel_args *args,
                                   struct err *err)
{
    const real *dy = args->inputs[0], *x = args->inputs[1], *saved = args->inputs[2];
    double *dscale = args->workspace;
    int64_t row, i;

    (void)err;
    for (i = 0; i < k->length; i++)
        dscale[i] = 0;
    for (row = 0; row < k->before; row++, dy += k->length, x += k->length)
        for (i = 0; i < k->length; i++)
            dscale[i] += (double)dy[i] * (double)x[i] * (double)saved[row];
    for (i = 0; i < k->length; i++)
        REAL(put)(args->outputs, 0, i, dscale[i]);
    return 0;
}

/* The sum of inputs 0 and 1 is output 1; then the norm of the rest of the operands. */
static int REAL(add_norm)(const struct kernel *k, const struct kernel_args *args,
                          ref_run_function *norm, struct err *err)
{
    const real *a = args->inputs[0], *b = args->inputs[1];
    const void *inputs[3] = { args->outputs[1] };
    void *outputs[3] = { args->outputs[0] };
    struct kernel_args inner_args = *args;
    struct kernel inner = *k;
    real *sum = args->outputs[1];
    int64_t i;

    for (i = 0; i < k->in[0].elements; i++)
        sum[i] = (real)((double)a[i] + (double)b[i]);
    for (i = 2; i < k->n_inputs; i++)
        inputs[i - 1] = args->inputs[i];
    for (i = 2; i < k->n_outputs; i++)
        outputs[i - 1] = args->outputs[i];
    inner.n_inputs--;
    inner.n_outputs--;
    inner_args.inputs = inputs;
    inner_args.outputs = outputs;
    return norm(&inner, &inner_args, err);
}

static int REAL(run_add_layernorm)(const struct kernel *k, const struct kernel_args *args,
                                   struct err *err)
{
    return REAL(add_norm)(k, args, REAL(run_layernorm), err);
}

static int REAL(run_add_rmsnorm)(const struct kernel *k, const struct kernel_args *args,
                                 struct err *err)
{
    return REAL(add_norm)(k, args, REAL(run_rmsnorm), err);
}
