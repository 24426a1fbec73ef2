/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. */

/* One row of alpha * A B into 'sum'. */
static void REAL(product_row)(const struct matmul *m, int64_t row, const real *a, const real *b,
                              double *sum)
{
    int64_t n = m->n, depth = m->k, j, i;

    if (m->trans_b) {
        for (j = 0; j < n; j++) {
            double s = 0;

            for (i = 0; i < depth; i++)
                s += (double)a[m->trans_a ? i * m->m + row : row * depth + i] *
                     (double)b[j * depth + i];
            sum[j] = m->alpha * s;
        }
        return;
    }
    for (j = 0; j < n; j++)
        sum[j] = 0;
    for (i = 0; i < depth; i++) {
        double f = m->alpha * (double)a[m->trans_a ? i * m->m + row : row * depth + i];

        for (j = 0; j < n; j++)
            sum[j] += f * (double)b[i * n + j];
    }
}

static void REAL(product)(const struct matmul *m, const real *a, const real *b, real *y,
                          double *sum)
{
    int64_t row, j;

    for (row = 0; row < m->m; row++) {
        REAL(product_row)(m, row, a, b, sum);
        for (j = 0; j < m->n; j++)
            y[row * m->n + j] = (real)sum[j];
    }
}

static int REAL(run_matmul)(const struct kernel *k, const struct kernel_args *args,
                            struct err *err)
{
    const struct matmul *m = &k->matmul;
    const real *a = args->inputs[0], *b = args->inputs[1];
    real *y = args->outputs[0];
    struct shape stack = { m->rank, { 0 } }, sa = stack, sb = stack;
    struct walk w;
    struct cursor c;
    int64_t j;
    int i;

    (void)err;
    for (i = 0; i < m->rank; i++) {
        stack.dim[i] = m->dim[i];
        sa.dim[i] = m->dim_a[i];
        sb.dim[i] = m->dim_b[i];
    }
    walk_start(&w, &stack);
    walk_broadcast(&w, 0, &sa);
    walk_broadcast(&w, 1, &sb);
    for (cursor_start(&w, &c); cursor_valid(&w, &c); cursor_next(&w, &c))
        for (j = 0; j < row_length(&w); j++, y += m->m * m->n)
            REAL(product)(m, a + (c.at[0] + j * row_stride(&w, 0)) * m->m * m->k,
                          b + (c.at[1] + j * row_stride(&w, 1)) * m->k * m->n, y,
                          args->workspace);
    return 0;
}

static int REAL(run_gemm)(const struct kernel *k, const struct kernel_args *args,
                          struct err *err)
{
    const struct walk *w = &k->walk;
    const real *c = k->n_inputs > 2 ? args->inputs[2] : NULL;
    real *y = args->outputs[0];
    double *sum = args->workspace;
    struct cursor at;
    int64_t j, row;

    (void)err;
    if (!c) {
        REAL(product)(&k->matmul, args->inputs[0], args->inputs[1], y, sum);
        return 0;
    }
    row = 0;
    for (cursor_start(w, &at); cursor_valid(w, &at); cursor_next(w, &at), row++) {
        REAL(product_row)(&k->matmul, row, args->inputs[0], args->inputs[1], sum);
        for (j = 0; j < k->matmul.n; j++)
            *y++ = (real)(sum[j] + k->beta * (double)c[at.at[0] + j * row_stride(w, 0)]);
    }
    return 0;
}

static double REAL(activate)(enum ref_activation activation, double z)
{
    switch (activation) {
    case REF_RELU:
        return scalar_relu(z);
    case REF_GELU:
        return scalar_gelu(z);
    case REF_GELU_TANH:
        return scalar_gelu_tanh(z);
    case REF_SILU:
        return curve_swish(z, 1, 0);
    default:
        return z;
    }
}

static int REAL(run_linear)(const struct kernel *k, const struct kernel_args *args,
                            struct err *err)
{
    const struct matmul *m = &k->matmul;
    const real *bias = k->n_inputs > 2 ? args->inputs[2] : NULL;
    real *y = args->outputs[0], *before = k->n_outputs > 1 ? args->outputs[1] : NULL;
    double *sum = args->workspace;
    int64_t row, j;

    (void)err;
    for (row = 0; row < m->m; row++) {
        REAL(product_row)(m, row, args->inputs[0], args->inputs[1], sum);
        for (j = 0; j < m->n; j++) {
            double z = sum[j] + (bias ? (double)bias[j] : 0);

            if (before)
                before[row * m->n + j] = (real)z;
            y[row * m->n + j] = (real)REAL(activate)(k->activation, z);
        }
    }
    return 0;
}

static int REAL(run_product)(const struct kernel *k, const struct kernel_args *args,
                             struct err *err)
{
    (void)err;
    REAL(product)(&k->matmul, args->inputs[k->swap], args->inputs[!k->swap], args->outputs[0],
                  args->workspace);
    return 0;
}

static int REAL(run_bias_grad)(const struct kernel *k, const struct kernel_args *args,
                               struct err *err)
{
    const real *dz = args->inputs[0];
    real *db = args->outputs[0];
    int64_t c, o, i;

    (void)err;
    for (c = 0; c < k->length; c++) {
        double sum = 0;

        for (o = 0; o < k->before; o++)
            for (i = 0; i < k->after; i++)
                sum += (double)dz[(o * k->length + c) * k->after + i];
        db[c] = (real)sum;
    }
    return 0;
}
