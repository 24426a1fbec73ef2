/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. Rows of 'length' elements, 'after' apart. */

static int64_t REAL(row_start)(const struct kernel *k, int64_t row)
{
    return row / k->after * k->length * k->after + row % k->after;
}

/* log of the sum of exponentials, and the first largest element. */
static double REAL(log_sum)(const struct kernel *k, const real *x, int64_t *largest)
{
    double max = -INFINITY, sum = 0;
    int64_t i;

    *largest = 0;
    for (i = 0; i < k->length; i++)
        if ((double)x[i * k->after] > max) {
            max = (double)x[i * k->after];
            *largest = i;
        }
    if (isinf(max))
        max = 0;
    for (i = 0; i < k->length; i++)
        sum += exp((double)x[i * k->after] - max);
    return max + log(sum);
}

static int REAL(softmax)(const struct kernel *k, const struct kernel_args *args, bool logarithm)
{
    int64_t row, i, largest;

    for (row = 0; row < k->before * k->after; row++) {
        const real *x = (const real *)args->inputs[0] + REAL(row_start)(k, row);
        real *y = (real *)args->outputs[0] + REAL(row_start)(k, row);
        double log_sum = REAL(log_sum)(k, x, &largest);

        for (i = 0; i < k->length; i++) {
            double l = (double)x[i * k->after] - log_sum;
            bool unseen = k->masked && isinf(log_sum) && log_sum < 0;

            y[i * k->after] = (real)(logarithm ? l : unseen ? 0 : exp(l));
        }
    }
    return 0;
}

static int REAL(run_softmax)(const struct kernel *k, const struct kernel_args *args,
                             struct err *err)
{
    (void)err;
    return REAL(softmax)(k, args, false);
}

static int REAL(run_logsoftmax)(const struct kernel *k, const struct kernel_args *args,
                                struct err *err)
{
    (void)err;
    return REAL(softmax)(k, args, true);
}

static int REAL(softmax_grad)(const struct kernel *k, const struct kernel_args *args,
                              bool logarithm)
{
    int64_t row, i;

    for (row = 0; row < k->before * k->after; row++) {
        int64_t start = REAL(row_start)(k, row);
        const real *dy = (const real *)args->inputs[0] + start;
        const real *y = (const real *)args->inputs[1] + start;
        real *dx = (real *)args->outputs[0] + start;
        double sum = 0;

        for (i = 0; i < k->length * k->after; i += k->after)
            sum += (double)dy[i] * (logarithm ? 1 : (double)y[i]);
        for (i = 0; i < k->length * k->after; i += k->after)
            dx[i] = (real)(logarithm ? (double)dy[i] - exp((double)y[i]) * sum
                                     : (double)y[i] * ((double)dy[i] - sum));
    }
    return 0;
}

static int REAL(run_softmax_grad)(const struct kernel *k, const struct kernel_args *args,
                                  struct err *err)
{
    (void)err;
    return REAL(softmax_grad)(k, args, false);
}

static int REAL(run_logsoftmax_grad)(const struct kernel *k, const struct kernel_args *args,
                                     struct err *err)
{
    (void)err;
    return REAL(softmax_grad)(k, args, true);
}

/* Losses ------------------------------------------------------------------------------ */

/* The label of a row; -1: ignored. */
static int REAL(label)(const struct kernel *k, int input, const struct kernel_args *args,
                       int64_t row, int64_t *label, struct err *err)
{
    int64_t found = ref_int(&k->in[input], args->inputs[input], row);

    *label = -1;
    if (k->ignores && found == k->ignore_index)
        return 0;
    if (found < 0 || found >= k->length)
        return err_set(err, "node \"%s\": label %lld of row %lld: expected 0 to %lld", k->name,
                       (long long)found, (long long)row, (long long)k->length - 1);
    *label = found;
    return 0;
}

static double REAL(class_weight)(const real *weights, int64_t class)
{
    return weights ? (double)weights[class] : 1;
}

/* What a row adds to the loss: 'smoothing' of the target is spread over all classes. */
static double REAL(entropy_term)(const struct kernel *k, const real *x, const real *weights,
                                 double log_sum, int64_t label, double smoothing)
{
    double term = REAL(class_weight)(weights, label) * (log_sum - (double)x[label * k->after]);
    double spread = 0;
    int64_t i;

    if (smoothing == 0)
        return term;
    for (i = 0; i < k->length; i++)
        spread += REAL(class_weight)(weights, i) * (log_sum - (double)x[i * k->after]);
    return (1 - smoothing) * term + smoothing / (double)k->length * spread;
}

static int REAL(run_cross_entropy)(const struct kernel *k, const struct kernel_args *args,
                                   struct err *err)
{
    const real *logits = args->inputs[0], *weights = k->n_inputs > 3 ? args->inputs[3] : NULL;
    double loss = 0, correct = 0, smoothing = args->state->training ? k->smoothing : 0;
    int64_t row, label, largest;

    for (row = 0; row < k->before * k->after; row++) {
        const real *x = logits + REAL(row_start)(k, row);
        double log_sum = REAL(log_sum)(k, x, &largest);

        if (REAL(label)(k, 1, args, row, &label, err))
            return -1;
        if (k->n_outputs > 2)
            REAL(put)(args->outputs, 2, row, log_sum);
        if (label < 0)
            continue;
        loss += REAL(entropy_term)(k, x, weights, log_sum, label, smoothing);
        correct += label == largest;
    }
    REAL(put)(args->outputs, 0, 0, loss / args->state->weight_sum);
    if (k->n_outputs > 1)
        REAL(put)(args->outputs, 1, 0, correct);
    return 0;
}

static int REAL(run_cross_entropy_grad)(const struct kernel *k, const struct kernel_args *args,
                                        struct err *err)
{
    const real *logits = args->inputs[1], *log_sums = args->inputs[3];
    const real *weights = k->n_inputs > 4 ? args->inputs[4] : NULL;
    double factor = (double)*(const real *)args->inputs[0] / args->state->weight_sum;
    double share = k->smoothing / (double)k->length, all = 0;
    int64_t row, label, i;

    for (i = 0; i < k->length; i++)
        all += REAL(class_weight)(weights, i);
    for (row = 0; row < k->before * k->after; row++) {
        int64_t start = REAL(row_start)(k, row);
        const real *x = logits + start;
        real *dx = (real *)args->outputs[0] + start;
        double own;

        if (REAL(label)(k, 2, args, row, &label, err))
            return -1;
        own = label < 0 ? 0 : (1 - k->smoothing) * REAL(class_weight)(weights, label);
        for (i = 0; i < k->length; i++) {
            double p = exp((double)x[i * k->after] - (double)log_sums[row]);
            double d = own * (p - (i == label));

            if (label >= 0)
                d += share * (all * p - REAL(class_weight)(weights, i));
            dx[i * k->after] = (real)(factor * d);
        }
    }
    return 0;
}

/* k->binary is the term, or its gradient by the first operand. */
static int REAL(run_pair_sum)(const struct kernel *k, const struct kernel_args *args,
                              struct err *err)
{
    const real *x = args->inputs[0], *target = k->n_inputs > 2 ? args->inputs[1] : NULL;
    double sum = 0;
    int64_t i;

    (void)err;
    for (i = 0; i < k->in[0].elements; i++)
        sum += k->binary((double)x[i], target ? (double)target[i] : 0, 0);
    REAL(put)(args->outputs, 0, 0, sum / args->state->weight_sum);
    return 0;
}

static int REAL(run_pair_grad)(const struct kernel *k, const struct kernel_args *args,
                               struct err *err)
{
    const real *x = k->n_inputs > 1 ? args->inputs[1] : NULL;
    const real *target = k->n_inputs > 2 ? args->inputs[2] : NULL;
    double factor = (double)*(const real *)args->inputs[0] / args->state->weight_sum;
    real *dx = args->outputs[0];
    int64_t i;

    (void)err;
    for (i = 0; i < k->out[0].elements; i++)
        dx[i] = (real)(factor *
                       k->binary(x ? (double)x[i] : 1, target ? (double)target[i] : 0, 0));
    return 0;
}
