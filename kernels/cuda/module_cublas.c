/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: products of matrices by cuBLASLt.
 *
 * It has columns where we have rows, so its A is our B, its B our A, and what it computes is y
 * transposed: a bias along n is one along its rows, as it wants it.
 */
#include "kernels/cuda/module_private.h"

#include <cublasLt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define WORKSPACE_LIMIT ((size_t)32 << 20)
#define ALIGNMENT 16u       /* of operands: the widest load */

_Static_assert(sizeof(struct cuda_matmul) ==
                   (7 + 4 * CUDA_RANK) * sizeof(int64_t) + sizeof(double) + 8 * sizeof(int),
               "compared as bytes");

struct cuda_cublas {
    cublasLtHandle_t handle;
    struct cuda_product *products;
};

struct cuda_product {
    struct cuda_device *device;
    struct cuda_product *next;
    int users;
    struct cuda_matmul what;
    uint32_t alignment;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, y;     /* ours */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    bool counted, on_tensor_cores;
};

static int cublas_error(const struct cuda_device *device, cublasStatus_t code, const char *call,
                        struct err *err)
{
    return err_set(err, "GPU %s: %.*s: %s", device->address, (int)strcspn(call, "("), call,
                   cublasLtGetStatusString(code));
}

/* Return -1 from the caller, with what cuBLASLt says of the failed call on this GPU. */
#define CUBLAS_CHECK(device, call, err)                                     \
    do {                                                                    \
        cublasStatus_t cublas_check_code = (call);                          \
        if (cublas_check_code != CUBLAS_STATUS_SUCCESS)                     \
            return cublas_error(device, cublas_check_code, #call, (err));   \
    } while (0)

/* Choosing --------------------------------------------------------------------------------- */

static cudaDataType_t type_of(enum cuda_narrow narrow)
{
    return narrow == CUDA_FLOAT16    ? CUDA_R_16F
           : narrow == CUDA_BFLOAT16 ? CUDA_R_16BF
                                     : CUDA_R_32F;
}

static int describe_matrix(const struct cuda_product *p, cublasLtMatrixLayout_t *layout,
                           enum cuda_narrow narrow, int64_t rows, int64_t columns, int64_t ld,
                           const int64_t *step, struct err *err)
{
    cudaDataType_t type = type_of(narrow);
    int last = p->what.rank - 1;
    int32_t count;

    CUBLAS_CHECK(p->device, cublasLtMatrixLayoutCreate(layout, type, (uint64_t)columns,
                                                       (uint64_t)rows, ld), err);
    if (last < 0)
        return 0;
    count = (int32_t)p->what.dim[last];
    CUBLAS_CHECK(p->device,
                 cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                  &count, sizeof(count)), err);
    CUBLAS_CHECK(p->device,
                 cublasLtMatrixLayoutSetAttribute(
                     *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step[last],
                     sizeof(step[last])), err);
    return 0;
}

static int describe_matrices(struct cuda_product *p, struct err *err)
{
    const struct cuda_matmul *w = &p->what;

    if (describe_matrix(p, &p->a, w->narrow, w->trans_a ? w->k : w->m,
                        w->trans_a ? w->m : w->k, w->lda, w->step_a, err) ||
        describe_matrix(p, &p->b, w->narrow, w->trans_b ? w->n : w->k,
                        w->trans_b ? w->k : w->n, w->ldb, w->step_b, err))
        return -1;
    return describe_matrix(p, &p->y, w->narrow_y, w->m, w->n, w->ldy, w->step_y, err);
}

/* It has one GELU: which that is nobody but a trial says. */
static cublasLtEpilogue_t epilogue_of(const struct cuda_matmul *w)
{
    bool bias = w->bias == CUDA_BIAS;

    switch (w->activation) {
    case CUDA_RECTIFIED:
        return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case CUDA_GELU_BY_ERF:
    case CUDA_GELU_BY_TANH:
        if (w->ldkept)
            return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
        return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
        return w->bias == CUDA_SUMS_OF_A   ? CUBLASLT_EPILOGUE_BGRADB
               : w->bias == CUDA_SUMS_OF_B ? CUBLASLT_EPILOGUE_BGRADA
               : bias                      ? CUBLASLT_EPILOGUE_BIAS
                                           : CUBLASLT_EPILOGUE_DEFAULT;
    }
}

/* 'bias' is read, or where sums are written. */
static int point_at(const struct cuda_product *p, const void *bias, const void *kept,
                    struct err *err)
{
    if (p->what.bias)
        CUBLAS_CHECK(p->device,
                     cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                    &bias, sizeof(bias)), err);
    if (p->what.ldkept)
        CUBLAS_CHECK(p->device,
                     cublasLtMatmulDescSetAttribute(
                         p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &kept, sizeof(kept)),
                     err);
    return 0;
}

static int describe_kept(const struct cuda_product *p, struct err *err)
{
    int64_t ld = p->what.ldkept;
    cudaDataType_t type = type_of(p->what.narrow_y);
    int32_t number = (int32_t)type;

    if (!ld)
        return 0;
    CUBLAS_CHECK(p->device,
                 cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld,
                                                sizeof(ld)), err);
    CUBLAS_CHECK(p->device,
                 cublasLtMatmulDescSetAttribute(
                     p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &number,
                     sizeof(number)), err);
    return 0;
}

/* The operands are there when it runs; whoever chooses wants to see that there are some, and how
 * they are aligned.
 */
static int describe_epilogue(const struct cuda_product *p, struct err *err)
{
    const void *somewhere = (const void *)(uintptr_t)ALIGNMENT;
    cublasLtEpilogue_t epilogue = epilogue_of(&p->what);

    CUBLAS_CHECK(p->device,
                 cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                &epilogue, sizeof(epilogue)), err);
    return describe_kept(p, err) ? -1 : point_at(p, somewhere, somewhere, err);
}

static int describe_operation(struct cuda_product *p, struct err *err)
{
    const struct cuda_matmul *w = &p->what;
    cublasComputeType_t compute = w->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t a = w->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b = w->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;

    CUBLAS_CHECK(p->device, cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F), err);
    CUBLAS_CHECK(p->device, cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                                           &b, sizeof(b)), err);
    CUBLAS_CHECK(p->device, cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB,
                                                           &a, sizeof(a)), err);
    return describe_epilogue(p, err);
}

/* Of every matrix of the stack that a call begins with. */
static uint32_t alignment_of(const struct cuda_matmul *w)
{
    uint32_t alignment = ALIGNMENT;
    int64_t element = w->narrow || w->narrow_y ? 2 : 4;

    for (int i = 0; i + 1 < w->rank; i++) {
        int64_t steps = w->step_a[i] | w->step_b[i] | w->step_y[i];

        while (steps * element % alignment)
            alignment /= 2;
    }
    return alignment;
}

static int prefer(const struct cuda_product *p, cublasLtMatmulPreference_t preference,
                  struct err *err)
{
    static const cublasLtMatmulPreferenceAttributes_t operands[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    size_t limit = WORKSPACE_LIMIT;
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

    CUBLAS_CHECK(p->device,
                 cublasLtMatmulPreferenceSetAttribute(
                     preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit,
                     sizeof(limit)), err);
    /* Parts of a sum that are float16 themselves would overflow. */
    if (p->what.narrow_y == CUDA_FLOAT16)
        CUBLAS_CHECK(p->device,
                     cublasLtMatmulPreferenceSetAttribute(
                         preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
                         sizeof(reduction)), err);
    for (size_t i = 0; i < sizeof(operands) / sizeof(operands[0]); i++)
        CUBLAS_CHECK(p->device,
                     cublasLtMatmulPreferenceSetAttribute(
                         preference, operands[i], &p->alignment, sizeof(p->alignment)), err);
    return 0;
}

static int ask(struct cuda_product *p, cublasLtMatmulPreference_t preference, bool *found,
               struct err *err)
{
    cublasLtMatmulHeuristicResult_t result;
    cublasStatus_t code;
    int n = 0;

    if (prefer(p, preference, err))
        return -1;
    code = cublasLtMatmulAlgoGetHeuristic(p->device->cublas->handle, p->desc, p->b, p->a, p->y,
                                          p->y, preference, 1, &result, &n);
    *found = code == CUBLAS_STATUS_SUCCESS && n > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    /* What it does not have it may take for a wrong description, too. */
    if (code != CUBLAS_STATUS_SUCCESS && code != CUBLAS_STATUS_NOT_SUPPORTED &&
        code != CUBLAS_STATUS_INVALID_VALUE)
        return cublas_error(p->device, code, "cublasLtMatmulAlgoGetHeuristic", err);
    if (*found) {
        p->algo = result.algo;
        p->workspace = result.workspaceSize;
    }
    return 0;
}

static int choose(struct cuda_product *p, bool *found, struct err *err)
{
    cublasLtMatmulPreference_t preference;
    int failed;

    if (describe_operation(p, err) || describe_matrices(p, err))
        return -1;
    CUBLAS_CHECK(p->device, cublasLtMatmulPreferenceCreate(&preference), err);
    failed = ask(p, preference, found, err);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    return failed;
}

/* The table -------------------------------------------------------------------------------- */

/* What they were used for has ended: that a call fails now helps nobody. */
static void destroy(struct cuda_product *p)
{
    if (p->desc)
        (void)cublasLtMatmulDescDestroy(p->desc);
    if (p->a)
        (void)cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        (void)cublasLtMatrixLayoutDestroy(p->b);
    if (p->y)
        (void)cublasLtMatrixLayoutDestroy(p->y);
    free(p);
}

static int open_cublas(struct cuda_device *device, struct err *err)
{
    struct cuda_cublas *cublas;

    if (device->cublas)
        return 0;
    cublas = mem_new(1, sizeof(*cublas));
    device->cublas = cublas;
    CUBLAS_CHECK(device, cublasLtCreate(&cublas->handle), err);
    return 0;
}

void cuda_cublas_close(struct cuda_device *device)
{
    struct cuda_cublas *cublas = device->cublas;

    if (!cublas)
        return;
    if (cublas->handle)
        (void)cublasLtDestroy(cublas->handle);
    free(cublas);
    device->cublas = NULL;
}

static struct cuda_product *find(const struct cuda_cublas *cublas,
                                 const struct cuda_matmul *what)
{
    for (struct cuda_product *p = cublas->products; p; p = p->next)
        if (memcmp(&p->what, what, sizeof(*what)) == 0)
            return p;
    return NULL;
}

/* What says nothing of itself is not counted as one. */
static bool on_tensor_cores(const struct cuda_product *p)
{
    uint64_t flags = 0;
    size_t written;

    return cublasLtMatmulAlgoCapGetAttribute(&p->algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS,
                                             &flags, sizeof(flags),
                                             &written) == CUBLAS_STATUS_SUCCESS &&
           (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK) != 0;
}

/* Into the table, if there is a way to compute it. */
static int create(struct cuda_device *device, const struct cuda_matmul *what,
                  struct cuda_product **product, struct err *err)
{
    struct cuda_product *p = mem_new(1, sizeof(*p));
    bool found = false;
    int failed;

    p->device = device;
    p->what = *what;
    p->alignment = alignment_of(what);
    failed = choose(p, &found, err);
    if (failed || !found) {
        destroy(p);
        return failed;
    }
    p->next = device->cublas->products;
    device->cublas->products = p;
    *product = p;
    return 0;
}

static bool empty(const struct cuda_matmul *w)
{
    return w->m <= 0 || w->n <= 0 || w->k <= 0 ||
           (w->rank > 0 && (w->dim[w->rank - 1] <= 0 || w->dim[w->rank - 1] > INT32_MAX));
}

int cuda_matmul_try(struct cuda_device *device, const struct cuda_matmul *matmul,
                    struct cuda_product **product, struct err *err)
{
    struct cuda_product *p;

    *product = NULL;
    if (empty(matmul))
        return 0;
    if (open_cublas(device, err))
        return -1;
    p = find(device->cublas, matmul);
    if (!p && create(device, matmul, &p, err))
        return -1;
    if (p)
        p->users++;
    *product = p;
    return 0;
}

int cuda_matmul_new(struct cuda_device *device, const struct cuda_matmul *matmul,
                    struct cuda_product **product, struct err *err)
{
    bool fits;

    *product = NULL;
    if (cuda_activation_fits(device, matmul, &fits, err))
        return -1;
    if (!fits)
        return 0;
    if (cuda_matmul_try(device, matmul, product, err))
        return -1;
    if (*product && !(*product)->counted) {
        (*product)->counted = true;
        (*product)->on_tensor_cores = on_tensor_cores(*product);
        cuda_count_product(device, 1, (*product)->on_tensor_cores);
    }
    return 0;
}

void cuda_matmul_free(struct cuda_product *product)
{
    struct cuda_product **at;

    if (!product || --product->users > 0)
        return;
    if (product->counted)
        cuda_count_product(product->device, -1, product->on_tensor_cores);
    at = &product->device->cublas->products;
    while (*at != product)
        at = &(*at)->next;
    *at = product->next;
    destroy(product);
}

/* Running ---------------------------------------------------------------------------------- */

size_t cuda_matmul_workspace(const struct cuda_product *product)
{
    return product->workspace ? product->workspace + CUDA_WORKSPACE_ALIGNMENT : 0;
}

/* All products along the stack's last axis. */
static int run_last_axis(cudaStream_t stream, const struct cuda_product *p,
                         const struct cuda_matmul_args *r, struct err *err)
{
    float alpha = (float)p->what.alpha, beta = (float)r->beta;
    const void *c = r->c ? r->c : r->y;
    void *workspace = p->workspace ? cuda_workspace(r->workspace) : NULL;

    if (((uintptr_t)r->a | (uintptr_t)r->b | (uintptr_t)c |
         (uintptr_t)r->bias | (uintptr_t)r->kept | (uintptr_t)r->sums | (uintptr_t)r->y) %
        p->alignment)
        return err_set(err, "GPU %s: an operand of a product is not aligned to %u bytes",
                       p->device->address, p->alignment);
    CUBLAS_CHECK(p->device,
                 cublasLtMatmul(p->device->cublas->handle, p->desc, &alpha, r->b, p->b, r->a,
                                p->a, &beta, c, p->y, r->y, p->y, &p->algo, workspace,
                                p->workspace, stream), err);
    return 0;
}

static int64_t products_before_last(const struct cuda_matmul *w)
{
    int64_t n = 1;

    for (int i = 0; i + 1 < w->rank; i++)
        n *= w->dim[i];
    return n;
}

static const void *step_on(const void *x, int64_t elements, enum cuda_narrow narrow)
{
    return (const char *)x + elements * (narrow ? 2 : 4);
}

/* The operands of the i-th of those. */
static struct cuda_matmul_args operands_of(const struct cuda_matmul *w,
                                           const struct cuda_matmul_args *args, int64_t i)
{
    struct cuda_matmul_args r = *args;

    for (int axis = w->rank - 2; axis >= 0; axis--) {
        int64_t at = i % w->dim[axis];

        i /= w->dim[axis];
        r.a = step_on(r.a, at * w->step_a[axis], w->narrow);
        r.b = step_on(r.b, at * w->step_b[axis], w->narrow);
        r.y = (char *)r.y + at * w->step_y[axis] * (w->narrow_y ? 2 : 4);
        r.c = r.c ? step_on(r.c, at * w->step_y[axis], w->narrow_y) : NULL;
    }
    return r;
}

int cuda_matmul_run(struct cuda_stream *stream, const struct cuda_product *product,
                    const struct cuda_matmul_args *args, struct err *err)
{
    int64_t n = products_before_last(&product->what);

    if (point_at(product, args->sums ? args->sums : args->bias, args->kept, err))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        struct cuda_matmul_args r = operands_of(&product->what, args, i);

        if (run_last_axis(stream->stream, product, &r, err))
            return -1;
    }
    return 0;
}
