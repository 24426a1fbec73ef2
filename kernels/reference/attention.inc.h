/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. */

/* One query of one matrix of the stack, and the keys and values that it meets. */
struct REAL(query) {
    const real *q, *k, *v;
    const void *mask;           /* the first element of its row; NULL: none */
    int64_t seen;               /* of the keys, but for the mask */
};

static struct REAL(query) REAL(query_of)(const struct attention *a, int64_t s, int64_t i,
                                         const void *const *inputs, const void *mask)
{
    int64_t keys = s / a->group * a->n, at = attention_mask(a, s) + i * a->step_m;
    struct REAL(query) query = { (const real *)inputs[0] + (s * a->m + i) * a->d,
                                 (const real *)inputs[1] + keys * a->d,
                                 (const real *)inputs[2] + keys * a->e, NULL,
                                 attention_seen(a, i) };

    if (a->mask == ATTENTION_CHOOSE)
        query.mask = (const uint8_t *)mask + at;
    else if (a->mask == ATTENTION_ADD)
        query.mask = (const real *)mask + at;
    return query;
}

static bool REAL(hidden)(const struct attention *a, const struct REAL(query) *query, int64_t j)
{
    return a->mask == ATTENTION_CHOOSE &&
           (((const uint8_t *)query->mask)[j * a->step_n] != 0) == a->hide;
}

static double REAL(score)(const struct attention *a, const struct REAL(query) *query, int64_t j)
{
    double sum = 0;
    int64_t c;

    if (j >= query->seen)
        return -INFINITY;
    if (REAL(hidden)(a, query, j))
        return a->fill;
    for (c = 0; c < a->d; c++)
        sum += (double)query->q[c] *
               (double)query->k[a->trans_k ? c * a->n + j : j * a->d + c];
    sum *= a->scale;
    if (a->mask == ATTENTION_ADD)
        sum += (double)((const real *)query->mask)[j * a->step_n];
    return sum;
}

/* Probabilities of all keys, and the logarithm of the sum that they were divided by: 0 where no
 * key is seen, so that exp(score - logarithm) gives the probabilities again.
 */
static double REAL(attend)(const struct attention *a, const struct REAL(query) *query,
                           double *p)
{
    double max = -INFINITY, sum = 0;
    int64_t j;

    for (j = 0; j < a->n; j++) {
        p[j] = REAL(score)(a, query, j);
        if (p[j] > max)
            max = p[j];
    }
    if (a->masked && isinf(max) && max < 0) {
        for (j = 0; j < a->n; j++)
            p[j] = 0;
        return 0;
    }
    for (j = 0; j < a->n; j++) {
        p[j] = exp(p[j] - max);
        sum += p[j];
    }
    for (j = 0; j < a->n; j++)
        p[j] /= sum;
    return max + log(sum);
}

static int REAL(run_attention)(const struct kernel *k, const struct kernel_args *args,
                               struct err *err)
{
    const struct attention *a = &k->attention;
    const void *mask = k->n_inputs > 3 ? args->inputs[3] : NULL;
    double *p = args->workspace, *sum = p + a->n;
    real *y = args->outputs[0];
    int64_t s, i, j, c;

    (void)err;
    for (s = 0; s < a->stack; s++)
        for (i = 0; i < a->m; i++, y += a->e) {
            struct REAL(query) query = REAL(query_of)(a, s, i, args->inputs, mask);
            double saved = REAL(attend)(a, &query, p);

            for (c = 0; c < a->e; c++)
                sum[c] = 0;
            for (j = 0; j < query.seen; j++)
                for (c = 0; c < a->e; c++)
                    sum[c] += p[j] * (double)query.v[j * a->e + c];
            for (c = 0; c < a->e; c++)
                y[c] = (real)sum[c];
            if (k->n_outputs > 1)
                REAL(put)(args->outputs, 1, s * a->m + i, saved);
        }
    return 0;
}

/* What the gradients of all queries of some keys, and of a mask, add up to. */
struct REAL(attention_sums) {
    double *p, *dp, *dq, *dk, *dv, *dmask;
};

static void REAL(attention_scores)(const struct attention *a, const struct REAL(query) *query,
                                   double saved, const real *dy,
                                   const struct REAL(attention_sums) *sums)
{
    double total = 0;
    int64_t j, c;

    if (fabs(saved) > ATTENTION_LARGE)
        REAL(attend)(a, query, sums->p);
    for (j = 0; j < query->seen; j++) {
        if (!(fabs(saved) > ATTENTION_LARGE))
            sums->p[j] = exp(REAL(score)(a, query, j) - saved);
        sums->dp[j] = 0;
        for (c = 0; c < a->e; c++)
            sums->dp[j] += (double)dy[c] * (double)query->v[j * a->e + c];
        total += sums->p[j] * sums->dp[j];
    }
    for (j = 0; j < query->seen; j++)
        sums->dp[j] = REAL(hidden)(a, query, j) ? 0 : sums->p[j] * (sums->dp[j] - total);
}

static void REAL(attention_row)(const struct attention *a, const struct REAL(query) *query,
                                const real *dy, const struct REAL(attention_sums) *sums)
{
    int64_t j, c, at;

    for (c = 0; c < a->d; c++)
        sums->dq[c] = 0;
    for (j = 0; j < query->seen; j++) {
        for (c = 0; c < a->e; c++)
            sums->dv[j * a->e + c] += sums->p[j] * (double)dy[c];
        for (c = 0; c < a->d; c++) {
            at = a->trans_k ? c * a->n + j : j * a->d + c;
            sums->dq[c] += a->scale * sums->dp[j] * (double)query->k[at];
            sums->dk[at] += a->scale * sums->dp[j] * (double)query->q[c];
        }
    }
}

static void REAL(put_all)(void *const *outputs, int index, int64_t at, int64_t n,
                          const double *from)
{
    int64_t i;

    for (i = 0; i < n; i++)
        REAL(put)(outputs, index, at + i, from[i]);
}

static int REAL(run_attention_grad)(const struct kernel *k, const struct kernel_args *args,
                                    struct err *err)
{
    const struct attention *a = &k->attention;
    const void *mask = k->n_inputs > 5 ? args->inputs[5] : NULL;
    const real *dys = args->inputs[0], *saved = args->inputs[4];
    struct REAL(attention_sums) sums = { .p = args->workspace };
    int64_t s, i, j;

    (void)err;
    sums.dp = sums.p + a->n;
    sums.dq = sums.dp + a->n;
    sums.dk = sums.dq + a->d;
    sums.dv = sums.dk + a->n * a->d;
    sums.dmask = sums.dv + a->n * a->e;
    for (i = 0; i < a->mask_elements; i++)
        sums.dmask[i] = 0;
    for (s = 0; s < a->stack; s++) {
        if (s % a->group == 0)
            for (j = 0; j < a->n * (a->d + a->e); j++)
                sums.dk[j] = 0;
        for (i = 0; i < a->m; i++) {
            struct REAL(query) query = REAL(query_of)(a, s, i, args->inputs + 1, mask);
            const real *dy = dys + (s * a->m + i) * a->e;

            REAL(attention_scores)(a, &query, (double)saved[s * a->m + i], dy, &sums);
            REAL(attention_row)(a, &query, dy, &sums);
            REAL(put_all)(args->outputs, 0, (s * a->m + i) * a->d, a->d, sums.dq);
            for (j = 0; k->n_outputs > 3 && j < query.seen; j++)
                sums.dmask[attention_mask(a, s) + i * a->step_m + j * a->step_n] += sums.dp[j];
        }
        if (s % a->group == a->group - 1) {
            REAL(put_all)(args->outputs, 1, s / a->group * a->n * a->d, a->n * a->d, sums.dk);
            REAL(put_all)(args->outputs, 2, s / a->group * a->n * a->e, a->n * a->e, sums.dv);
        }
    }
    if (k->n_outputs > 3)
        REAL(put_all)(args->outputs, 3, 0, a->mask_elements, sums.dmask);
    return 0;
}
