/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

#define DNNL_V3 (DNNL_VERSION_MAJOR >= 3)

enum { MAX_DIMS = ONEDNN_SPATIAL + 3 }; /* weights with groups */

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

#if DNNL_V3
typedef const_dnnl_memory_desc_t desc_ref;
#else
typedef const dnnl_memory_desc_t *desc_ref;
#endif

struct onednn_format {
    dnnl_memory_desc_t desc;
};

static const char *status_text(dnnl_status_t status)
{
    switch (status) {
    case dnnl_out_of_memory:
        return "out of memory";
    case dnnl_invalid_arguments:
        return "invalid arguments";
    case dnnl_unimplemented:
        return "not implemented";
    case dnnl_runtime_error:
        return "run-time error";
    default:
        return "failed";
    }
}

/* The one place where oneDNN's codes become ours. */
#define CHECK(call, what)                                                                      \
    do {                                                                                       \
        dnnl_status_t status_ = (call);                                                        \
        if (status_ != dnnl_success)                                                           \
            return err_set(err, "oneDNN: %s: %s", what, status_text(status_));                 \
    } while (0)

/* Descriptors, told apart by version ------------------------------------------------- */

static desc_ref desc_of(const struct onednn_format *format)
{
#if DNNL_V3
    return format->desc;
#else
    return &format->desc;
#endif
}

static struct onednn_format *format_new(int n, const dnnl_dim_t *dims,
                                        const dnnl_dim_t *strides)
{
    struct onednn_format *format = mem_new(1, sizeof(*format));
    dnnl_status_t status;

#if DNNL_V3
    status = strides ? dnnl_memory_desc_create_with_strides(&format->desc, n, dims, dnnl_f32,
                                                            strides)
                     : dnnl_memory_desc_create_with_tag(&format->desc, n, dims, dnnl_f32,
                                                        dnnl_format_tag_any);
#else
    status = strides
                 ? dnnl_memory_desc_init_by_strides(&format->desc, n, dims, dnnl_f32, strides)
                 : dnnl_memory_desc_init_by_tag(&format->desc, n, dims, dnnl_f32,
                                                dnnl_format_tag_any);
#endif
    if (status == dnnl_success)
        return format;
    free(format);
    return NULL;
}

static struct onednn_format *format_clone(desc_ref desc)
{
    struct onednn_format *format = mem_new(1, sizeof(*format));

#if DNNL_V3
    if (dnnl_memory_desc_clone(&format->desc, desc) != dnnl_success) {
        free(format);
        return NULL;
    }
#else
    format->desc = *desc;
#endif
    return format;
}

void onednn_format_free(struct onednn_format *format)
{
#if DNNL_V3
    if (format)
        dnnl_memory_desc_destroy(format->desc);
#endif
    free(format);
}

size_t onednn_format_bytes(const struct onednn_format *format)
{
    return dnnl_memory_desc_get_size(desc_of(format));
}

bool onednn_format_equal(const struct onednn_format *a, const struct onednn_format *b)
{
    return dnnl_memory_desc_equal(desc_of(a), desc_of(b)) == 1;
}

/* The engine ------------------------------------------------------------------------- */

struct onednn *onednn_open(struct err *err)
{
    struct onednn *onednn = mem_new(1, sizeof(*onednn));

    if (dnnl_engine_create(&onednn->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_in_order) ==
            dnnl_success)
        return onednn;
    err_set(err, "oneDNN: no CPU engine");
    onednn_close(onednn);
    return NULL;
}

void onednn_close(struct onednn *onednn)
{
    if (!onednn)
        return;
    if (onednn->stream)
        dnnl_stream_destroy(onednn->stream);
    if (onednn->engine)
        dnnl_engine_destroy(onednn->engine);
    free(onednn);
}

void onednn_version_text(char *text, size_t size)
{
    const dnnl_version_t *v = dnnl_version();

    snprintf(text, size, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

/* Convolutions ----------------------------------------------------------------------- */

static struct onednn_format *activation_format(const struct onednn_conv_shape *s, bool output,
                                               bool last)
{
    dnnl_dims_t dims, strides;
    dnnl_dim_t run;
    int i, n = s->spatial + 2;

    dims[0] = s->n;
    dims[1] = output ? s->o : s->c;
    for (i = 0; i < s->spatial; i++)
        dims[i + 2] = output ? s->out[i] : s->in[i];
    run = last ? dims[1] : 1;
    for (i = n - 1; i > 1; i--) {
        strides[i] = run;
        run *= dims[i];
    }
    strides[1] = last ? 1 : run;
    strides[0] = last ? run : run * dims[1];
    return format_new(n, dims, strides);
}

static struct onednn_format *weights_format(const struct onednn_conv_shape *s, bool any)
{
    dnnl_dims_t dims, strides;
    dnnl_dim_t run = 1;
    int i, n = 0;

    if (s->groups > 1)
        dims[n++] = s->groups;
    dims[n++] = s->o / s->groups;
    dims[n++] = s->c / s->groups;
    for (i = 0; i < s->spatial; i++)
        dims[n++] = s->kernel[i];
    for (i = n - 1; i >= 0; i--) {
        strides[i] = run;
        run *= dims[i];
    }
    return format_new(n, dims, any ? NULL : strides);
}

struct conv_formats {
    struct onednn_format *x, *w, *bias, *y;
};

static void free_formats(struct conv_formats *f)
{
    onednn_format_free(f->x);
    onednn_format_free(f->w);
    onednn_format_free(f->bias);
    onednn_format_free(f->y);
}

static int make_formats(const struct onednn_conv_shape *s, bool x_last, bool y_last, bool bias,
                        struct conv_formats *f, struct err *err)
{
    dnnl_dims_t dims = {s->o}, strides = {1};

    f->x = activation_format(s, false, x_last);
    f->y = activation_format(s, true, y_last);
    if (bias)
        f->bias = format_new(1, dims, strides);
    if (f->x && f->y && (f->bias || !bias) && f->w)
        return 0;
    return err_set(err, "oneDNN: convolution: no memory descriptor");
}

/* The library declares its arguments as arrays of full length. */
struct conv_window {
    dnnl_dims_t stride, dilation, low, high;
};

static void fill_window(const struct onednn_conv_shape *s, struct conv_window *w)
{
    int i;

    for (i = 0; i < s->spatial; i++) {
        w->stride[i] = s->stride[i];
        w->dilation[i] = s->dilation[i] - 1;
        w->low[i] = s->pad_low[i];
        w->high[i] = s->pad_high[i];
    }
}

static int make_conv(struct onednn *onednn, const struct onednn_conv_shape *s,
                     enum onednn_conv_kind kind, const struct conv_formats *f,
                     dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *result, struct err *err)
{
    struct conv_window w;
    dnnl_primitive_attr_t attr;
    dnnl_status_t status;
    desc_ref bias = f->bias ? desc_of(f->bias) : NULL;

    fill_window(s, &w);
    CHECK(dnnl_primitive_attr_create(&attr), "attributes");
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
#if DNNL_V3
    if (kind == CONV_FORWARD)
        status = dnnl_convolution_forward_primitive_desc_create(
            result, onednn->engine, dnnl_forward_training, dnnl_convolution_direct,
            desc_of(f->x), desc_of(f->w), bias, desc_of(f->y), w.stride, w.dilation, w.low,
            w.high, attr);
    else if (kind == CONV_DGRAD)
        status = dnnl_convolution_backward_data_primitive_desc_create(
            result, onednn->engine, dnnl_convolution_direct, desc_of(f->x), desc_of(f->w),
            desc_of(f->y), w.stride, w.dilation, w.low, w.high, hint, attr);
    else
        status = dnnl_convolution_backward_weights_primitive_desc_create(
            result, onednn->engine, dnnl_convolution_direct, desc_of(f->x), desc_of(f->w), NULL,
            desc_of(f->y), w.stride, w.dilation, w.low, w.high, hint, attr);
#else
    dnnl_convolution_desc_t desc;

    if (kind == CONV_FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(
            &desc, dnnl_forward_training, dnnl_convolution_direct, desc_of(f->x), desc_of(f->w),
            bias, desc_of(f->y), w.stride, w.dilation, w.low, w.high);
    else if (kind == CONV_DGRAD)
        status = dnnl_dilated_convolution_backward_data_desc_init(
            &desc, dnnl_convolution_direct, desc_of(f->x), desc_of(f->w), desc_of(f->y),
            w.stride, w.dilation, w.low, w.high);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &desc, dnnl_convolution_direct, desc_of(f->x), desc_of(f->w), NULL, desc_of(f->y),
            w.stride, w.dilation, w.low, w.high);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(result, &desc, attr, onednn->engine, hint);
#endif
    dnnl_primitive_attr_destroy(attr);
    CHECK(status, "convolution");
    return 0;
}

/* The backward descriptors want a forward one as a hint; it may choose its own weights. */
static int make_conv_hinted(struct onednn *onednn, const struct onednn_conv_shape *s,
                            enum onednn_conv_kind kind, const struct conv_formats *f,
                            dnnl_primitive_desc_t *result, struct err *err)
{
    struct conv_formats forward = *f;
    dnnl_primitive_desc_t hint = NULL;
    int rc = -1;

    if (kind == CONV_FORWARD)
        return make_conv(onednn, s, kind, f, NULL, result, err);
    forward.w = weights_format(s, true);
    forward.bias = NULL;
    if (!forward.w)
        return err_set(err, "oneDNN: convolution: no memory descriptor");
    if (make_conv(onednn, s, CONV_FORWARD, &forward, NULL, &hint, err) == 0)
        rc = make_conv(onednn, s, kind, f, hint, result, err);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    onednn_format_free(forward.w);
    return rc;
}

struct onednn_format *onednn_conv_format(struct onednn *onednn,
                                         const struct onednn_conv_shape *shape,
                                         enum onednn_conv_kind kind, bool x_last, bool y_last)
{
    struct conv_formats f = {.w = weights_format(shape, true)};
    struct onednn_format *plain = weights_format(shape, false), *best = NULL;
    dnnl_primitive_desc_t desc = NULL;

    if (plain && make_formats(shape, x_last, y_last, false, &f, NULL) == 0 &&
        make_conv_hinted(onednn, shape, kind, &f, &desc, NULL) == 0) {
        best = format_clone(dnnl_primitive_desc_query_md(
            desc, kind == CONV_WGRAD ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0));
        if (best && onednn_format_equal(best, plain)) {
            onednn_format_free(best);
            best = NULL;
        }
    }
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    onednn_format_free(plain);
    free_formats(&f);
    return best;
}

enum { CONV_ARGS = 5 };

struct onednn_conv {
    struct onednn *onednn;
    dnnl_primitive_t primitive;
    size_t scratch;
    int n;
    dnnl_exec_arg_t args[CONV_ARGS]; /* x, w, y, scratch, bias */
};

static int add_memory(struct onednn *onednn, int *n, dnnl_exec_arg_t *args, int arg,
                      desc_ref desc, struct err *err)
{
    args[*n].arg = arg;
    CHECK(dnnl_memory_create(&args[*n].memory, desc, onednn->engine, DNNL_MEMORY_NONE),
          "memory");
    ++*n;
    return 0;
}

static int conv_memories(struct onednn_conv *conv, enum onednn_conv_kind kind,
                         const struct conv_formats *f, dnnl_primitive_desc_t desc,
                         struct err *err)
{
    desc_ref pad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    struct onednn *onednn = conv->onednn;
    int x = kind == CONV_DGRAD ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC;
    int w = kind == CONV_WGRAD ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
    int y = kind == CONV_FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST;

    conv->scratch = dnnl_memory_desc_get_size(pad);
    if (add_memory(onednn, &conv->n, conv->args, x, desc_of(f->x), err) ||
        add_memory(onednn, &conv->n, conv->args, w, desc_of(f->w), err) ||
        add_memory(onednn, &conv->n, conv->args, y, desc_of(f->y), err) ||
        add_memory(onednn, &conv->n, conv->args, DNNL_ARG_SCRATCHPAD, pad, err))
        return -1;
    return f->bias
               ? add_memory(onednn, &conv->n, conv->args, DNNL_ARG_BIAS, desc_of(f->bias), err)
               : 0;
}

struct onednn_conv *onednn_conv_new(struct onednn *onednn,
                                    const struct onednn_conv_shape *shape,
                                    enum onednn_conv_kind kind,
                                    const struct onednn_conv_layout *layout, struct err *err)
{
    struct onednn_conv *conv = mem_new(1, sizeof(*conv));
    struct conv_formats f = {.w = layout->weights ? format_clone(desc_of(layout->weights))
                                                  : weights_format(shape, false)};
    dnnl_primitive_desc_t desc = NULL;
    int rc = -1;

    conv->onednn = onednn;
    if (make_formats(shape, layout->x_last, layout->y_last, layout->bias, &f, err) == 0 &&
        make_conv_hinted(onednn, shape, kind, &f, &desc, err) == 0)
        rc = conv_memories(conv, kind, &f, desc, err);
    if (rc == 0 && dnnl_primitive_create(&conv->primitive, desc) != dnnl_success)
        rc = err_set(err, "oneDNN: convolution: no primitive");
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    free_formats(&f);
    if (rc == 0)
        return conv;
    onednn_conv_free(conv);
    return NULL;
}

static void free_args(int n, dnnl_exec_arg_t *args)
{
    while (n > 0)
        dnnl_memory_destroy(args[--n].memory);
}

void onednn_conv_free(struct onednn_conv *conv)
{
    if (!conv)
        return;
    free_args(conv->n, conv->args);
    if (conv->primitive)
        dnnl_primitive_destroy(conv->primitive);
    free(conv);
}

size_t onednn_conv_scratch(const struct onednn_conv *conv)
{
    return conv->scratch;
}

static int set_handles(int n, const dnnl_exec_arg_t *args, void *const *handles,
                       struct err *err)
{
    int i;

    for (i = 0; i < n; i++)
        CHECK(dnnl_memory_set_data_handle(args[i].memory, handles[i]), "memory");
    return 0;
}

int onednn_conv_run(struct onednn_conv *conv, void *x, void *w, const void *bias, void *y,
                    void *scratch, struct err *err)
{
    void *handles[CONV_ARGS] = {x, w, y, scratch, (void *)(uintptr_t)bias};

    if (set_handles(conv->n, conv->args, handles, err))
        return -1;
    CHECK(dnnl_primitive_execute(conv->primitive, conv->onednn->stream, conv->n, conv->args),
          "convolution");
    return 0;
}

/* Reorders --------------------------------------------------------------------------- */

enum { REORDER_ARGS = 3 };

struct onednn_reorder {
    struct onednn *onednn;
    dnnl_primitive_t primitive;
    size_t scratch;
    int n;
    dnnl_exec_arg_t args[REORDER_ARGS]; /* from, to, scratch */
};

static int make_reorder(struct onednn *onednn, desc_ref from, desc_ref to, bool accumulate,
                        dnnl_primitive_desc_t *result, struct err *err)
{
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    dnnl_status_t status;

    CHECK(dnnl_primitive_attr_create(&attr), "attributes");
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (accumulate && dnnl_post_ops_create(&ops) == dnnl_success) {
#if DNNL_V3
        dnnl_post_ops_append_sum(ops, 1, 0, dnnl_f32);
#else
        dnnl_post_ops_append_sum(ops, 1);
#endif
        dnnl_primitive_attr_set_post_ops(attr, ops);
        dnnl_post_ops_destroy(ops);
    }
    status = dnnl_reorder_primitive_desc_create(result, from, onednn->engine, to,
                                                onednn->engine, attr);
    dnnl_primitive_attr_destroy(attr);
    CHECK(status, "reorder");
    return 0;
}

static int reorder_memories(struct onednn_reorder *r, desc_ref from, desc_ref to,
                            dnnl_primitive_desc_t desc, struct err *err)
{
    desc_ref pad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);

    r->scratch = dnnl_memory_desc_get_size(pad);
    if (add_memory(r->onednn, &r->n, r->args, DNNL_ARG_FROM, from, err) ||
        add_memory(r->onednn, &r->n, r->args, DNNL_ARG_TO, to, err) ||
        add_memory(r->onednn, &r->n, r->args, DNNL_ARG_SCRATCHPAD, pad, err))
        return -1;
    CHECK(dnnl_primitive_create(&r->primitive, desc), "reorder");
    return 0;
}

struct onednn_reorder *onednn_reorder_new(struct onednn *onednn,
                                          const struct onednn_conv_shape *shape,
                                          const struct onednn_format *from,
                                          const struct onednn_format *to, bool accumulate,
                                          struct err *err)
{
    struct onednn_reorder *r = mem_new(1, sizeof(*r));
    struct onednn_format *plain = weights_format(shape, false);
    dnnl_primitive_desc_t desc = NULL;
    int rc = -1;

    r->onednn = onednn;
    if (!plain)
        err_set(err, "oneDNN: reorder: no memory descriptor");
    else if (make_reorder(onednn, desc_of(from ? from : plain), desc_of(to ? to : plain),
                          accumulate, &desc, err) == 0)
        rc = reorder_memories(r, desc_of(from ? from : plain), desc_of(to ? to : plain), desc,
                              err);
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    onednn_format_free(plain);
    if (rc == 0)
        return r;
    onednn_reorder_free(r);
    return NULL;
}

void onednn_reorder_free(struct onednn_reorder *reorder)
{
    if (!reorder)
        return;
    free_args(reorder->n, reorder->args);
    if (reorder->primitive)
        dnnl_primitive_destroy(reorder->primitive);
    free(reorder);
}

size_t onednn_reorder_scratch(const struct onednn_reorder *reorder)
{
    return reorder->scratch;
}

int onednn_reorder_run(struct onednn_reorder *reorder, const void *from, void *to,
                       void *scratch, struct err *err)
{
    void *handles[REORDER_ARGS] = {(void *)(uintptr_t)from, to, scratch};

    if (set_handles(reorder->n, reorder->args, handles, err))
        return -1;
    CHECK(dnnl_primitive_execute(reorder->primitive, reorder->onednn->stream, reorder->n,
                                 reorder->args),
          "reorder");
    return 0;
}

/* Matrices --------------------------------------------------------------------------- */

int onednn_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                int64_t ldc, struct err *err)
{
    CHECK(dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb,
                     beta, c, ldc),
          "sgemm");
    return 0;
}
