/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. Sums along axes, and what spreads them again. */

/* Of the elements, or of their squares: in the workspace, which is returned. */
static const double *REAL(add_up)(const struct kernel *k, const struct kernel_args *args,
                                  bool squares)
{
    const struct walk *w = &k->walk;
    const real *x = args->inputs[0];
    double *sum = args->workspace;
    int64_t n = row_length(w), stride = row_stride(w, 0), j;
    struct cursor c;

    for (j = 0; j < k->out[0].elements; j++)
        sum[j] = 0;
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++, x++)
            sum[c.at[0] + j * stride] += squares ? (double)*x * (double)*x : (double)*x;
    return sum;
}

static int REAL(run_sum)(const struct kernel *k, const struct kernel_args *args,
                         struct err *err)
{
    const double *sum = REAL(add_up)(k, args, false);
    real *y = args->outputs[0];

    (void)err;
    for (int64_t j = 0; j < k->out[0].elements; j++)
        y[j] = (real)(sum[j] * k->scale);
    return 0;
}

/* Entry 0 of the walk over x is the element of the result that it belongs to. */
static int REAL(run_choose)(const struct kernel *k, const struct kernel_args *args,
                            struct err *err)
{
    const struct walk *w = &k->walk;
    const real *x = args->inputs[0];
    real *y = args->outputs[0];
    int64_t n = row_length(w), stride = row_stride(w, 0), j;
    struct cursor c;

    (void)err;
    for (j = 0; j < k->out[0].elements; j++)
        y[j] = (real)(k->swap ? INFINITY : -INFINITY);
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++, x++) {
            real *best = &y[c.at[0] + j * stride];

            if (isnan((double)*x) || (k->swap ? *x < *best : *x > *best))
                *best = *x;
        }
    return 0;
}

static int REAL(run_choose_grad)(const struct kernel *k, const struct kernel_args *args,
                                 struct err *err)
{
    const struct walk *w = &k->walk;
    const real *dy = args->inputs[0], *x = args->inputs[1], *y = args->inputs[2];
    real *dx = args->outputs[0];
    double *count = args->workspace;
    int64_t n = row_length(w), stride = row_stride(w, 0), j;
    struct cursor c;

    (void)err;
    for (j = 0; j < k->in[2].elements; j++)
        count[j] = 0;
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++)
            count[c.at[0] + j * stride] += x[c.row * n + j] == y[c.at[0] + j * stride];
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++) {
            int64_t o = c.at[0] + j * stride;

            dx[c.row * n + j] = x[c.row * n + j] == y[o] ? (real)((double)dy[o] / count[o]) : 0;
        }
    return 0;
}

static int REAL(run_norm)(const struct kernel *k, const struct kernel_args *args,
                          struct err *err)
{
    const double *sum = REAL(add_up)(k, args, true);
    real *y = args->outputs[0];

    (void)err;
    for (int64_t j = 0; j < k->out[0].elements; j++)
        y[j] = (real)sqrt(sum[j]);
    return 0;
}

static int REAL(run_norm_grad)(const struct kernel *k, const struct kernel_args *args,
                               struct err *err)
{
    const struct walk *w = &k->walk;
    const real *dy = args->inputs[0], *x = args->inputs[1], *y = args->inputs[2];
    real *dx = args->outputs[0];
    int64_t n = row_length(w), stride = row_stride(w, 0), j;
    struct cursor c;

    (void)err;
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c))
        for (j = 0; j < n; j++, x++) {
            int64_t o = c.at[0] + j * stride;

            *dx++ = y[o] == 0 ? 0 : (real)((double)dy[o] * (double)*x / (double)y[o]);
        }
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
