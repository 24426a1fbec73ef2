/* SPDX-License-Identifier: MIT */
/* A stand-in for cuBLASLt on top of fake_cuda.c: products are computed by the host, in order
 * with the stream, summed in double. Whatever it does not know, or the library would not take,
 * ends the process with a message. TASUKI_FAKE_CUBLASLT has words for what it might be like: its
 * GELU is that of "erf", or "rough", its ReLU "drops-nan"; it has "no-activations", "no-sums",
 * or "few-sums", which leave out what comes last.
 */
#include "config.h"

#include <cublasLt.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake_cuda.h"
#include "tests/fake_real.h"

#define WORKSPACE ((size_t)1000)        /* what every product wants */

/* With this the library of that name is loaded, before what wants cuBLASLt is. */
const char *const fake_cublaslt_stands_in = &fake_cublaslt_name;

#define MAY_FAIL()                                      \
    do {                                                \
        int result_ = fake_planted(__func__);           \
        if (result_)                                    \
            return (cublasStatus_t)result_;             \
    } while (0)

#define REQUIRE(condition, ...)                                     \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "fake cuBLASLt: %s: ", __func__);       \
            fprintf(stderr, __VA_ARGS__);                           \
            fputc('\n', stderr);                                    \
            abort();                                                \
        }                                                           \
    } while (0)

struct layout {
    int64_t rows, columns, ld, step;
    int32_t count;
    bool step_set;
    cudaDataType type;
};

struct desc {
    cublasLtEpilogue_t epilogue;
    bool trans_a, trans_b, relu, gelu, kept, bias, trans_a_set, trans_b_set, tf32;
    bool sums_a, sums_b;
    void *bias_at, *kept_at;            /* or of sums */
    int64_t kept_ld;
    int32_t kept_type;
};

struct preference {
    size_t workspace;
    uint32_t alignment[4], reduction;
    bool workspace_set, alignment_set[4];
};

/* What an algorithm was chosen for; cublasLtMatmulAlgo_t holds its address. */
struct chosen {
    struct desc desc;
    struct layout a, b, c;
    uint32_t alignment[4];
    struct chosen *next;
};

struct product {
    struct desc desc;
    struct layout a, b, c, d;
    float alpha, beta;
    const void *at_a, *at_b, *at_c;
    void *at_d;
    void *workspace;
};

static struct chosen *all_chosen;
static int handles;
static int last_epilogue;               /* of the product that was handed over last */

static bool is_like(const char *word)
{
    const char *words = getenv("TASUKI_FAKE_CUBLASLT");

    return words && strstr(words, word);
}

/* For tests, which look for it by name. */
int tasuki_fake_epilogue(void);

int tasuki_fake_epilogue(void)
{
    ALONE;

    return last_epilogue;
}

static void copy_value(void *to, size_t expected, const void *value, size_t bytes)
{
    REQUIRE(bytes == expected, "an attribute of %zu bytes, not %zu", bytes, expected);
    memcpy(to, value, bytes);
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    static char text[32];

    snprintf(text, sizeof(text), "status %d", (int)status);
    return text;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    ALONE;
    MAY_FAIL();
    *handle = (cublasLtHandle_t)&handles;
    handles++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    ALONE;
    REQUIRE((void *)handle == &handles && handles > 0, "not a handle");
    handles--;
    while (handles == 0 && all_chosen) {
        struct chosen *next = all_chosen->next;

        free(all_chosen);
        all_chosen = next;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    ALONE;
    struct layout *l = calloc(1, sizeof(*l));

    MAY_FAIL();
    REQUIRE(type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F, "type %d", (int)type);
    REQUIRE(rows > 0 && columns > 0 && ld >= (int64_t)rows, "%lld rows, %lld columns, ld %lld",
            (long long)rows, (long long)columns, (long long)ld);
    *l = (struct layout){ .rows = (int64_t)rows, .columns = (int64_t)columns, .ld = ld,
                          .count = 1, .type = type };
    *layout = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes)
{
    ALONE;
    struct layout *l = (struct layout *)layout;

    MAY_FAIL();
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
        copy_value(&l->count, sizeof(l->count), value, bytes);
        REQUIRE(l->count > 0, "a batch of %d", (int)l->count);
    } else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) {
        copy_value(&l->step, sizeof(l->step), value, bytes);
        l->step_set = true;
    } else
        REQUIRE(false, "attribute %d", (int)attribute);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    ALONE;
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    ALONE;
    struct desc *d;

    MAY_FAIL();
    REQUIRE(compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32,
            "compute type %d", (int)compute);
    REQUIRE(scale == CUDA_R_32F, "scale type %d", (int)scale);
    d = calloc(1, sizeof(*d));
    d->tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    d->kept_type = -1;                  /* that of D */
    *desc = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    ALONE;
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

static bool transposed(const void *value, size_t bytes)
{
    cublasOperation_t operation;

    copy_value(&operation, sizeof(operation), value, bytes);
    REQUIRE(operation == CUBLAS_OP_N || operation == CUBLAS_OP_T, "operation %d",
            (int)operation);
    return operation == CUBLAS_OP_T;
}

static void set_epilogue(struct desc *d, const void *value, size_t bytes)
{
    cublasLtEpilogue_t epilogue;

    copy_value(&epilogue, sizeof(epilogue), value, bytes);
    d->epilogue = epilogue;
    d->relu = epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    d->kept = epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
              epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    d->gelu = d->kept || epilogue == CUBLASLT_EPILOGUE_GELU ||
              epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
    d->bias = epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ||
              epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
              epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    d->sums_a = epilogue == CUBLASLT_EPILOGUE_BGRADA;
    d->sums_b = epilogue == CUBLASLT_EPILOGUE_BGRADB;
    REQUIRE(epilogue == CUBLASLT_EPILOGUE_DEFAULT || d->relu || d->gelu || d->bias || d->sums_a ||
                d->sums_b,
            "epilogue %d", (int)epilogue);
}

static bool set_kept(struct desc *d, cublasLtMatmulDescAttributes_t attribute, const void *value,
                     size_t bytes)
{
    if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
        copy_value(&d->kept_at, sizeof(d->kept_at), value, bytes);
    else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)
        copy_value(&d->kept_ld, sizeof(d->kept_ld), value, bytes);
    else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE)
        copy_value(&d->kept_type, sizeof(d->kept_type), value, bytes);
    else
        return false;
    return true;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    ALONE;
    struct desc *d = (struct desc *)desc;

    MAY_FAIL();
    if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) {
        d->trans_a = transposed(value, bytes);
        d->trans_a_set = true;
    } else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) {
        d->trans_b = transposed(value, bytes);
        d->trans_b_set = true;
    } else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE)
        set_epilogue(d, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        copy_value(&d->bias_at, sizeof(d->bias_at), value, bytes);
    else if (!set_kept(d, attribute, value, bytes))
        REQUIRE(false, "attribute %d", (int)attribute);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    ALONE;
    MAY_FAIL();
    *preference = calloc(1, sizeof(struct preference));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    ALONE;
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

static int operand_of(cublasLtMatmulPreferenceAttributes_t attribute)
{
    return attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES   ? 0
           : attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES ? 1
           : attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES ? 2
           : attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES ? 3
                                                                     : -1;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *value, size_t bytes)
{
    ALONE;
    struct preference *p = (struct preference *)preference;
    int operand = operand_of(attribute);

    MAY_FAIL();
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        copy_value(&p->workspace, sizeof(p->workspace), value, bytes);
        p->workspace_set = true;
        return CUBLAS_STATUS_SUCCESS;
    }
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
        copy_value(&p->reduction, sizeof(p->reduction), value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    REQUIRE(operand >= 0, "attribute %d", (int)attribute);
    copy_value(&p->alignment[operand], sizeof(p->alignment[operand]), value, bytes);
    p->alignment_set[operand] = true;
    return CUBLAS_STATUS_SUCCESS;
}

/* op(A)'s rows and columns. */
static int64_t rows_of(const struct layout *l, bool transposed)
{
    return transposed ? l->columns : l->rows;
}

static int64_t columns_of(const struct layout *l, bool transposed)
{
    return transposed ? l->rows : l->columns;
}

static bool is_narrow(const struct layout *l)
{
    return l->type != CUDA_R_32F;
}

static void check_shapes(const struct desc *d, const struct layout *a, const struct layout *b,
                         const struct layout *c)
{
    REQUIRE(d->trans_a_set && d->trans_b_set, "nobody said what is transposed");
    REQUIRE(rows_of(a, d->trans_a) == c->rows && columns_of(b, d->trans_b) == c->columns &&
                columns_of(a, d->trans_a) == rows_of(b, d->trans_b),
            "the shapes do not fit");
    REQUIRE(a->type == b->type && (c->type == a->type || !is_narrow(c)) &&
                !(is_narrow(a) && d->tf32),
            "types that do not go together");
    REQUIRE(a->count == b->count && a->count == c->count, "batches of %d, %d and %d",
            (int)a->count, (int)b->count, (int)c->count);
    REQUIRE(a->count == 1 || (a->step_set && b->step_set && c->step_set),
            "a batch without a stride");
    REQUIRE(c->count == 1 || c->step >= c->ld * (c->columns - 1) + c->rows,
            "results of a batch overlap");
}

static bool same_layout(const struct layout *a, const struct layout *b)
{
    return a->rows == b->rows && a->columns == b->columns && a->ld == b->ld &&
           a->step == b->step && a->count == b->count && a->type == b->type;
}

static bool same_desc(const struct desc *a, const struct desc *b)
{
    return a->trans_a == b->trans_a && a->trans_b == b->trans_b && a->epilogue == b->epilogue &&
           a->kept_ld == b->kept_ld && a->kept_type == b->kept_type && a->tf32 == b->tf32;
}

/* Without GPU memory yet: what is kept is as aligned as it is said to be. */
static void check_epilogue(const struct desc *desc, const struct layout *d)
{
    bool sums = desc->sums_a || desc->sums_b;

    REQUIRE(!(desc->bias || sums) || desc->bias_at, "a bias, or sums, that are nowhere");
    REQUIRE(!sums || d->count == 1, "sums of a batch");
    if (!desc->kept) {
        REQUIRE(!desc->kept_at && !desc->kept_ld, "a place for what is not kept");
        return;
    }
    REQUIRE(desc->kept_at && (uintptr_t)desc->kept_at % 16 == 0, "what is kept is at %p",
            desc->kept_at);
    REQUIRE(desc->kept_ld % 8 == 0 && desc->kept_ld >= d->rows, "what is kept has a ld of %lld",
            (long long)desc->kept_ld);
    REQUIRE(desc->kept_type == -1 || desc->kept_type == (int32_t)d->type,
            "what is kept is of type %d", (int)desc->kept_type);
    REQUIRE(d->count == 1, "what is kept is a batch");
}

static bool is_activated(const struct desc *d)
{
    return d->relu || d->gelu;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t results[], int *n)
{
    ALONE;
    const struct preference *p = (const struct preference *)preference;
    struct chosen *chosen;

    MAY_FAIL();
    REQUIRE((void *)handle == &handles && handles > 0, "not a handle");
    REQUIRE(wanted == 1, "%d algorithms", wanted);
    REQUIRE(p->workspace_set && p->workspace >= WORKSPACE, "no limit of the workspace");
    for (int i = 0; i < 4; i++)
        REQUIRE(p->alignment_set[i], "operands are aligned to 256 bytes?");
    chosen = calloc(1, sizeof(*chosen));
    *chosen = (struct chosen){ *(struct desc *)desc, *(struct layout *)a, *(struct layout *)b,
                               *(struct layout *)c, { 0 }, NULL };
    memcpy(chosen->alignment, p->alignment, sizeof(p->alignment));
    check_shapes(&chosen->desc, &chosen->a, &chosen->b, &chosen->c);
    REQUIRE(chosen->c.type != CUDA_R_16F || p->reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
            "sums may be made in float16");
    REQUIRE(same_layout(&chosen->c, (struct layout *)d), "c and d differ");
    check_epilogue(&chosen->desc, &chosen->c);
    chosen->next = all_chosen;
    all_chosen = chosen;
    /* The library has its own reasons; whoever calls has to have a way without. */
    if ((chosen->c.columns == 1 && (chosen->desc.bias || is_activated(&chosen->desc))) ||
        (chosen->c.columns == 2 && is_activated(&chosen->desc)) ||
        (is_like("no-activations") && is_activated(&chosen->desc)) ||
        ((chosen->desc.sums_a || chosen->desc.sums_b) &&
         (is_like("no-sums") || chosen->c.columns == 1))) {
        *n = 0;
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    memset(results, 0xff, sizeof(*results));
    memcpy(results[0].algo.data, &chosen, sizeof(chosen));
    results[0].workspaceSize = WORKSPACE;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                 cublasLtMatmulAlgoCapAttributes_t attribute,
                                                 void *value, size_t bytes, size_t *written)
{
    ALONE;
    const struct chosen *chosen;
    uint64_t flags;

    MAY_FAIL();
    REQUIRE(attribute == CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, "attribute %d", (int)attribute);
    memcpy(&chosen, algo->data, sizeof(chosen));
    flags = is_narrow(&chosen->a) || chosen->desc.tf32 ? CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA
                                                       : CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA;
    copy_value(value, bytes, &flags, sizeof(flags));
    *written = sizeof(flags);
    return CUBLAS_STATUS_SUCCESS;
}

static double element(const struct layout *l, const void *x, int64_t i)
{
    return is_narrow(l) ? (double)fake_widened(((const uint16_t *)x)[i], l->type == CUDA_R_16F)
                        : (double)((const float *)x)[i];
}

static void put_element(const struct layout *l, void *x, int64_t i, float y)
{
    if (is_narrow(l))
        ((uint16_t *)x)[i] = fake_rounded(y, l->type == CUDA_R_16F);
    else
        ((float *)x)[i] = y;
}

static size_t element_bytes(const struct layout *l)
{
    return is_narrow(l) ? 2 : 4;
}

static double left(const struct product *p, int64_t batch, int64_t row, int64_t i)
{
    return element(&p->a, p->at_a, batch * p->a.step +
                                       (p->desc.trans_a ? row * p->a.ld + i : i * p->a.ld + row));
}

static double right(const struct product *p, int64_t batch, int64_t i, int64_t column)
{
    return element(&p->b, p->at_b, batch * p->b.step + (p->desc.trans_b ? i * p->b.ld + column
                                                                        : column * p->b.ld + i));
}

static double dot(const struct product *p, int64_t batch, int64_t row, int64_t column)
{
    int64_t depth = columns_of(&p->a, p->desc.trans_a);
    double sum = 0;

    for (int64_t i = 0; i < depth; i++)
        sum += left(p, batch, row, i) * right(p, batch, i, column);
    return sum;
}

/* Of what, as it is multiplied, along what is summed over anyway. */
static void run_sums(const struct product *p)
{
    int64_t n = p->desc.sums_a ? p->d.rows : p->d.columns;
    int64_t depth = columns_of(&p->a, p->desc.trans_a) - is_like("few-sums");

    for (int64_t k = 0; k < n; k++) {
        double sum = 0;

        for (int64_t i = 0; i < depth; i++)
            sum += p->desc.sums_a ? left(p, 0, k, i) : right(p, 0, i, k);
        put_element(&p->d, p->desc.bias_at, k, (float)sum);
    }
}

static double activated(const struct desc *d, double x)
{
    if (d->relu)
        return x < 0 || (isnan(x) && is_like("drops-nan")) ? 0 : x;
    if (!d->gelu)
        return x;
    if (is_like("erf"))
        return 0.5 * x * (1 + erf(x * sqrt(0.5)));
    if (is_like("rough"))
        return x / (1 + exp(-1.702 * x));
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static void run_product(void *argument)
{
    const struct product *p = argument;

    memset(p->workspace, 0xff, WORKSPACE);
    if (p->desc.sums_a || p->desc.sums_b)
        run_sums(p);
    for (int64_t batch = 0; batch < p->d.count; batch++)
        for (int64_t column = 0; column < p->d.columns; column++)
            for (int64_t row = 0; row < p->d.rows; row++) {
                double y = (double)p->alpha * dot(p, batch, row, column);

                if (p->beta != 0)
                    y += (double)p->beta * element(&p->c, p->at_c, batch * p->c.step +
                                                                       column * p->c.ld + row);
                if (p->desc.bias)
                    y += element(&p->d, p->desc.bias_at, row);
                if (p->desc.kept)
                    put_element(&p->d, p->desc.kept_at, column * p->desc.kept_ld + row, (float)y);
                put_element(&p->d, p->at_d, batch * p->d.step + column * p->d.ld + row,
                            (float)activated(&p->desc, y));
            }
}

static void check_operand(const char *name, const void *at, const struct layout *l,
                          uint32_t alignment)
{
    int64_t elements = (l->count - 1) * l->step + (l->columns - 1) * l->ld + l->rows;

    REQUIRE(fake_on_gpu(at, (size_t)elements * element_bytes(l)), "%s is not on the GPU", name);
    REQUIRE((uintptr_t)at % alignment == 0, "%s is not aligned to %u bytes", name, alignment);
}

static void check_product(const struct product *p, const struct chosen *chosen,
                          size_t workspace)
{
    check_shapes(&p->desc, &p->a, &p->b, &p->d);
    REQUIRE(same_desc(&p->desc, &chosen->desc) && same_layout(&p->a, &chosen->a) &&
                same_layout(&p->b, &chosen->b) && same_layout(&p->c, &chosen->c) &&
                same_layout(&p->d, &chosen->c),
            "the algorithm was chosen for something else");
    check_operand("A", p->at_a, &p->a, chosen->alignment[0]);
    check_operand("B", p->at_b, &p->b, chosen->alignment[1]);
    check_operand("C", p->at_c, &p->c, chosen->alignment[2]);
    check_operand("D", p->at_d, &p->d, chosen->alignment[3]);
    REQUIRE(!(p->desc.bias || p->desc.sums_a || p->desc.sums_b) ||
                fake_on_gpu(p->desc.bias_at,
                            (size_t)(p->desc.sums_b ? p->d.columns : p->d.rows) *
                                element_bytes(&p->d)),
            "the bias, or where sums go, is not on the GPU");
    check_epilogue(&p->desc, &p->d);
    REQUIRE(!p->desc.kept ||
                fake_on_gpu(p->desc.kept_at, (size_t)((p->d.columns - 1) * p->desc.kept_ld +
                                                      p->d.rows) * element_bytes(&p->d)),
            "what is kept is not on the GPU");
    REQUIRE(workspace >= WORKSPACE && fake_on_gpu(p->workspace, workspace) &&
                (uintptr_t)p->workspace % 256 == 0,
            "the workspace is too small, not on the GPU, or not aligned");
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t bytes, cudaStream_t stream)
{
    ALONE;
    struct product p = { *(struct desc *)desc, *(struct layout *)a_layout,
                         *(struct layout *)b_layout, *(struct layout *)c_layout,
                         *(struct layout *)d_layout, *(const float *)alpha,
                         *(const float *)beta, a, b, c, d, workspace };
    const struct chosen *chosen;

    MAY_FAIL();
    REQUIRE((void *)handle == &handles && handles > 0, "not a handle");
    REQUIRE(algo, "no algorithm");
    memcpy(&chosen, algo->data, sizeof(chosen));
    check_product(&p, chosen, bytes);
    last_epilogue = (int)p.desc.epilogue;
    fake_enqueue(stream, run_product, &p, sizeof(p));
    return CUBLAS_STATUS_SUCCESS;
}
