/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. */

static int REAL(run_unary)(const struct kernel *k, const struct kernel_args *args,
                           struct err *err)
{
    const real *x = args->inputs[0];
    real *y = args->outputs[0];
    ref_unary_function *f = k->unary;
    int64_t i;

    (void)err;
    for (i = 0; i < k->out[0].elements; i++)
        y[i] = (real)f((double)x[i]);
    return 0;
}

static int REAL(run_binary)(const struct kernel *k, const struct kernel_args *args,
                            struct err *err)
{
    const struct walk *w = &k->walk;
    const real *x[3] = { NULL, NULL, NULL };
    real *y = args->outputs[0];
    int64_t stride[3] = { 0 }, n = row_length(w), j;
    struct cursor c;
    double v[3] = { 0 };
    int i;

    (void)err;
    for (i = 0; i < w->n; i++) {
        x[i] = args->inputs[i];
        stride[i] = row_stride(w, i);
    }
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c)) {
        for (j = 0; j < n; j++) {
            for (i = 0; i < w->n; i++)
                v[i] = (double)x[i][c.at[i] + j * stride[i]];
            y[c.row * n + j] = (real)k->binary(v[0], v[1], v[2]);
        }
    }
    return 0;
}

static int REAL(run_curve)(const struct kernel *k, const struct kernel_args *args,
                           struct err *err)
{
    const real *x = args->inputs[0];
    real *y = args->outputs[0];
    int64_t i;

    (void)err;
    for (i = 0; i < k->out[0].elements; i++)
        y[i] = (real)k->binary((double)x[i], k->alpha, k->beta);
    return 0;
}

static int REAL(run_slope)(const struct kernel *k, const struct kernel_args *args,
                           struct err *err)
{
    const real *dy = args->inputs[0], *v = args->inputs[1];
    real *dx = args->outputs[0];
    int64_t i;

    (void)err;
    for (i = 0; i < k->out[0].elements; i++)
        dx[i] = (real)((double)dy[i] * k->binary((double)v[i], k->alpha, k->beta));
    return 0;
}

/* The exponent may be of an integer type. */
static int REAL(run_pow)(const struct kernel *k, const struct kernel_args *args,
                         struct err *err)
{
    const struct walk *w = &k->walk;
    real *y = args->outputs[0];
    int64_t n = row_length(w), j;
    struct cursor c;
    double v[3] = { 0 };
    int i;

    (void)err;
    for (cursor_start(w, &c); cursor_valid(w, &c); cursor_next(w, &c)) {
        for (j = 0; j < n; j++) {
            for (i = 0; i < w->n; i++)
                v[i] = ref_number(&k->in[i], args->inputs[i],
                                    c.at[i] + j * row_stride(w, i));
            y[c.row * n + j] = (real)k->binary(v[0], v[1], v[2]);
        }
    }
    return 0;
}

static int REAL(run_gelu)(const struct kernel *k, const struct kernel_args *args,
                          struct err *err)
{
    struct kernel own = *k;

    own.unary = k->activation == REF_GELU_TANH ? scalar_gelu_tanh : scalar_gelu;
    return REAL(run_unary)(&own, args, err);
}

static int REAL(run_gelu_grad)(const struct kernel *k, const struct kernel_args *args,
                               struct err *err)
{
    struct kernel own = *k;

    own.binary = k->activation == REF_GELU_TANH ? scalar_gelu_tanh_grad : scalar_gelu_grad;
    return REAL(run_binary)(&own, args, err);
}

static int REAL(run_addn)(const struct kernel *k, const struct kernel_args *args,
                          struct err *err)
{
    real *y = args->outputs[0];
    int64_t j;
    int i;

    (void)err;
    for (j = 0; j < k->out[0].elements; j++) {
        double sum = 0;

        for (i = 0; i < k->n_inputs; i++)
            sum += (double)((const real *)args->inputs[i])[j];
        y[j] = (real)sum;
    }
    return 0;
}

/* Values without samples count as sample 0. */
static int REAL(run_dropout)(const struct kernel *k, const struct kernel_args *args,
                             struct err *err)
{
    const struct step_state *state = args->state;
    const real *x = args->inputs[0];
    real *y = args->outputs[0];
    uint8_t *mask = k->n_outputs > 1 ? args->outputs[1] : NULL;
    uint64_t key = philox_key(state->seed, k->key), threshold = philox_threshold(k->ratio);
    bool samples = k->out[0].batch.outer > 0;
    int64_t outer = samples ? k->out[0].batch.outer : 1, batch = samples ? k->batch : 1;
    int64_t inner = samples ? k->out[0].batch.inner : k->out[0].elements, o, s, i;
    double scale = 1 / (1 - k->ratio);

    (void)err;
    for (o = 0; o < outer; o++) {
        for (s = 0; s < batch; s++) {
            uint64_t sample = (uint64_t)(samples ? state->first_sample + s : 0);

            for (i = 0; i < inner; i++, x++, y++) {
                uint64_t e = (uint64_t)(o * inner + i);
                struct philox r = philox_dropout(key, (uint64_t)state->step, sample, e / 4);
                bool kept = !state->training || r.word[e % 4] >= threshold;

                *y = !state->training ? *x : kept ? (real)((double)*x * scale) : 0;
                if (mask)
                    *mask++ = kept;
            }
        }
    }
    return 0;
}
