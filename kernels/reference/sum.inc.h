/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. Sums along axes, and what spreads them again. */

static int REAL(run_sum)(const struct kernel *k, const struct kernel_args *args,
                         struct err *err)
{
    const struct walk *w = &k->walk;
    const real *x = args->inputs[0];
    real *y = args->outputs[0];
    double *sum = args->workspace;
    int64_t n = row_length(w), stride = row_stride(w, 0), j;
    struct cursor c;

    (void)err;
    for (j = 0; j < k->out[0].elements; j++)
        sum[j] = 0;
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++)
            sum[c.at[0] + j * stride] += (double)*x++;
    for (j = 0; j < k->out[0].elements; j++)
        y[j] = (real)(sum[j] * k->scale);
    return 0;
}

static int REAL(run_spread)(const struct kernel *k, const struct kernel_args *args,
                            struct err *err)
{
    const struct walk *w = &k->walk;
    const real *dy = args->inputs[0];
    real *dx = args->outputs[0];
    int64_t n = row_length(w), stride = row_stride(w, 0), j;
    struct cursor c;

    (void)err;
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++)
            *dx++ = (real)((double)dy[c.at[0] + j * stride] * k->scale);
    return 0;
}

static int REAL(run_slice_grad)(const struct kernel *k, const struct kernel_args *args,
                                struct err *err)
{
    const struct walk *w = &k->walk;
    const real *dy = args->inputs[0];
    real *dx = args->outputs[0];
    int64_t n = row_length(w), stride = row_stride(w, 0), j;
    struct cursor c;

    (void)err;
    for (j = 0; j < k->out[0].elements; j++)
        dx[j] = 0;
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++)
            dx[c.at[0] + j * stride] = *dy++;
    return 0;
}

static int REAL(run_gather_grad)(const struct kernel *k, const struct kernel_args *args,
                                 struct err *err)
{
    const real *dy = args->inputs[0];
    real *dx = args->outputs[0];
    double *sum = args->workspace;
    int64_t o, i, j, at;

    for (i = 0; i < k->out[0].elements; i++)
        sum[i] = 0;
    for (o = 0; o < k->before; o++)
        for (i = 0; i < k->in[1].elements; i++) {
            if (ref_index(k, args, i, &at, err))
                return -1;
            for (j = 0; j < k->after; j++)
                sum[(o * k->length + at) * k->after + j] += (double)*dy++;
        }
    for (i = 0; i < k->out[0].elements; i++)
        dx[i] = (real)sum[i];
    return 0;
}
