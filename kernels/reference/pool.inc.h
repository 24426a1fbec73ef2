/* SPDX-License-Identifier: MIT */
/* Included by f32.c and f64.c. Pools over three spatial axes. */

/* Where the window of output 'index' starts and ends along each axis, in steps of the
 * dilation: positions [from, to) of the kernel lie inside the input.
 */
struct REAL(box) {
    int64_t start[3], from[3], to[3];
};

static struct REAL(box) REAL(box_of)(const struct window *w, int64_t index)
{
    struct REAL(box) box;
    int d;

    for (d = 2; d >= 0; d--) {
        int64_t at = index % w->out[d] * w->stride[d] - w->before[d];
        int64_t last = w->in[d] - 1 - at;

        index /= w->out[d];
        box.start[d] = at;
        box.from[d] = at >= 0 ? 0 : (-at + w->dilation[d] - 1) / w->dilation[d];
        box.to[d] = last < 0 ? 0 : last / w->dilation[d] + 1;
        if (box.to[d] > w->kernel[d])
            box.to[d] = w->kernel[d];
    }
    return box;
}

static int64_t REAL(box_at)(const struct window *w, const struct REAL(box) *box,
                            const int64_t *p)
{
    int64_t at = 0;
    int d;

    for (d = 0; d < 3; d++)
        at = at * w->in[d] + box->start[d] + p[d] * w->dilation[d];
    return at;
}

#define EACH_IN_BOX(box, p)                                         \
    for (p[0] = (box).from[0]; p[0] < (box).to[0]; p[0]++)          \
        for (p[1] = (box).from[1]; p[1] < (box).to[1]; p[1]++)      \
            for (p[2] = (box).from[2]; p[2] < (box).to[2]; p[2]++)

/* Where in its plane the maximum of window 'index' is; -1 where it sees padding alone. */
static int64_t REAL(best_in)(const struct window *w, int64_t index, const real *x)
{
    struct REAL(box) box = REAL(box_of)(w, index);
    int64_t best = -1, p[3];

    EACH_IN_BOX(box, p) {
        int64_t at = REAL(box_at)(w, &box, p);

        if (best < 0 || x[at] > x[best] || isnan((double)x[at]))
            best = at;
    }
    return best;
}

/* With k->swap the first spatial axis runs fastest. */
static int REAL(run_maxpool_indices)(const struct kernel *k, const struct kernel_args *args,
                                     struct err *err)
{
    const struct window *w = &k->window;
    const real *x = args->inputs[0];
    int64_t *y = args->outputs[0];
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out), plane, i, at;

    (void)err;
    for (plane = 0; plane < w->images * w->in_channels; plane++, x += in) {
        for (i = 0; i < out; i++) {
            at = REAL(best_in)(w, i, x);
            if (k->swap && at >= 0) {
                int64_t a = at / (w->in[1] * w->in[2]), b = at / w->in[2] % w->in[1];

                at = a + w->in[0] * (b + w->in[1] * (at % w->in[2]));
            }
            *y++ = plane * in + at;
        }
    }
    return 0;
}

static int REAL(run_maxpool)(const struct kernel *k, const struct kernel_args *args,
                             struct err *err)
{
    const struct window *w = &k->window;
    const real *x = args->inputs[0];
    real *y = args->outputs[0];
    int32_t *saved = k->n_outputs > 1 ? args->outputs[1] : NULL;
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out), plane, i;

    (void)err;
    for (plane = 0; plane < w->images * w->in_channels; plane++, x += in) {
        for (i = 0; i < out; i++) {
            int64_t best = REAL(best_in)(w, i, x);

            *y++ = best < 0 ? (real)-INFINITY : x[best];
            if (saved)
                *saved++ = (int32_t)best;
        }
    }
    return 0;
}

static int REAL(run_maxpool_grad)(const struct kernel *k, const struct kernel_args *args,
                                  struct err *err)
{
    const struct window *w = &k->window;
    const real *dy = args->inputs[0];
    const int32_t *saved = args->inputs[1];
    real *dx = args->outputs[0];
    double *sum = args->workspace;
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out), plane, i;

    (void)err;
    for (plane = 0; plane < w->images * w->in_channels; plane++, dx += in) {
        for (i = 0; i < in; i++)
            sum[i] = 0;
        for (i = 0; i < out; i++, dy++, saved++)
            if (*saved >= 0)
                sum[*saved] += (double)*dy;
        for (i = 0; i < in; i++)
            dx[i] = (real)sum[i];
    }
    return 0;
}

/* Elements that a mean is taken over: with count_include_pad the window as far as the padded
 * input goes (ceil_mode's last one may reach beyond it).
 */
static double REAL(divisor)(const struct window *w, const struct REAL(box) *box)
{
    double n = 1;
    int d;

    for (d = 0; d < 3; d++) {
        int64_t room = w->in[d] + w->after[d] - box->start[d];
        int64_t positions = (room - 1) / w->dilation[d] + 1;

        if (!w->count_padding)
            positions = box->to[d] - box->from[d];
        n *= (double)(positions < w->kernel[d] ? positions : w->kernel[d]);
    }
    return n;
}

static int REAL(run_avgpool)(const struct kernel *k, const struct kernel_args *args,
                             struct err *err)
{
    const struct window *w = &k->window;
    const real *x = args->inputs[0];
    real *y = args->outputs[0];
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out), plane, i, p[3];

    (void)err;
    for (plane = 0; plane < w->images * w->in_channels; plane++, x += in) {
        for (i = 0; i < out; i++) {
            struct REAL(box) box = REAL(box_of)(w, i);
            double sum = 0;

            EACH_IN_BOX(box, p)
                sum += (double)x[REAL(box_at)(w, &box, p)];
            *y++ = (real)(sum / REAL(divisor)(w, &box));
        }
    }
    return 0;
}

static int REAL(run_avgpool_grad)(const struct kernel *k, const struct kernel_args *args,
                                  struct err *err)
{
    const struct window *w = &k->window;
    const real *dy = args->inputs[0];
    real *dx = args->outputs[0];
    double *sum = args->workspace;
    int64_t in = REAL(volume)(w->in), out = REAL(volume)(w->out), plane, i, p[3];

    (void)err;
    for (plane = 0; plane < w->images * w->in_channels; plane++, dx += in) {
        for (i = 0; i < in; i++)
            sum[i] = 0;
        for (i = 0; i < out; i++, dy++) {
            struct REAL(box) box = REAL(box_of)(w, i);

            EACH_IN_BOX(box, p)
                sum[REAL(box_at)(w, &box, p)] += (double)*dy / REAL(divisor)(w, &box);
        }
        for (i = 0; i < in; i++)
            dx[i] = (real)sum[i];
    }
    return 0;
}

static int REAL(run_global)(const struct kernel *k, const struct kernel_args *args,
                            struct err *err)
{
    const real *x = args->inputs[0];
    real *y = args->outputs[0];
    int64_t plane, i;

    (void)err;
    for (plane = 0; plane < k->before; plane++) {
        double sum = 0;

        for (i = 0; i < k->length; i++)
            sum += (double)*x++;
        y[plane] = (real)(sum / (double)k->length);
    }
    return 0;
}

static int REAL(run_global_grad)(const struct kernel *k, const struct kernel_args *args,
                                 struct err *err)
{
    const real *dy = args->inputs[0];
    real *dx = args->outputs[0];
    int64_t plane, i;

    (void)err;
    for (plane = 0; plane < k->before; plane++)
        for (i = 0; i < k->length; i++)
            *dx++ = (real)((double)dy[plane] / (double)k->length);
    return 0;
}
