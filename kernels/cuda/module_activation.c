/* SPDX-License-Identifier: MIT */
/* tasuki-cuda.so: is what cuBLASLt computes behind a product what our kernels compute?
 *
 * It is documented neither which GELU it has nor what its ReLU makes of a NaN. So before the first
 * product with such an epilogue, or with sums of an operand, a small one of the same types, with known
 * numbers, is run on the GPU, once: how far its result is off decides. Nothing says that a large one
 * is computed likewise.
 */
#include "kernels/cuda/module_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define SIZE 16                 /* rows and columns of all matrices */
#define NUMBERS (SIZE * SIZE)
/* What may be off, beside rounding to 16 bits: one GELU is up to 4.7e-4 from the other, and with that
 * rounding left out still 4.4e-4.
 */
#define EXACT 5e-5              /* of float32 */
#define NEAR 2e-4
#define ACTIVATIONS (CUDA_GELU_BY_TANH + 1)

/* Operands of float32 in the GPU's memory; those of 16 bits leave half of their places empty. */
enum { A, B, Y, KEPT, BIAS, OPERANDS };

struct sheet {
    float operand[OPERANDS][NUMBERS];
};

struct cuda_trial {
    struct cuda_trial *next;
    struct cuda_matmul what;
    bool there;
    double off[ACTIVATIONS];    /* from each, where it is there; INFINITY: in more than a number */
};

/* Numbers ---------------------------------------------------------------------------------- */

/* Exact for what is in a sheet. */
static uint16_t narrowed(enum cuda_narrow narrow, float x)
{
    uint32_t bits, size;

    memcpy(&bits, &x, sizeof(bits));
    size = bits & 0x7fffffffu;
    if (narrow == CUDA_BFLOAT16)
        return (uint16_t)(bits >> 16);
    size = size > 0x7f800000u ? 0x7e00u : size ? (size - (112u << 23)) >> 13 : 0;
    return (uint16_t)((bits >> 16 & 0x8000u) | size);
}

static double widened(enum cuda_narrow narrow, uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    int exponent = bits >> 10 & 31, digits = bits & 1023;
    double size;
    float x;

    memcpy(&x, &wide, sizeof(x));
    if (narrow == CUDA_BFLOAT16)
        return (double)x;
    size = ldexp(exponent ? 1024 + digits : digits, (exponent ? exponent : 1) - 25);
    if (exponent == 31)
        size = (double)(digits ? NAN : INFINITY);
    return bits & 0x8000 ? -size : size;
}

static void put(enum cuda_narrow narrow, float *x, int i, float value)
{
    uint16_t bits;

    if (!narrow) {
        x[i] = value;
        return;
    }
    bits = narrowed(narrow, value);
    memcpy((char *)x + i * (int)sizeof(bits), &bits, sizeof(bits));
}

static double get(enum cuda_narrow narrow, const float *x, int i)
{
    uint16_t bits;

    if (!narrow)
        return (double)x[i];
    memcpy(&bits, (const char *)x + i * (int)sizeof(bits), sizeof(bits));
    return widened(narrow, bits);
}

/* The sheet -------------------------------------------------------------------------------- */

static bool sums(const struct cuda_matmul *w)
{
    return w->bias == CUDA_SUMS_OF_A || w->bias == CUDA_SUMS_OF_B;
}

/* From -6 to 6 in steps that 16 bits have, too; two are NaNs, one of either sign, where they may be. */
static float number_at(const struct cuda_matmul *w, int i)
{
    float nan = NAN;

    if (i == 5 && !sums(w))
        return copysignf(nan, 1.0f);
    return i == 9 && !sums(w) ? copysignf(nan, -1.0f) : (float)(i % 193 - 96) / 16;
}

static float bias_at(int column)
{
    return (float)(column % 3 - 1) / 2;
}

/* A and B as the product sees them. A is one, or has rows and columns of other sums than that. */
static float left(const struct cuda_matmul *w, int row, int k)
{
    return row == k || (sums(w) && row < 5 && k == row + 3) ? 1.0f : 0.0f;
}

static float right(const struct cuda_matmul *w, int k, int column)
{
    return number_at(w, w->trans_b ? column * SIZE + k : k * SIZE + column);
}

/* What is to be written is NaN before; with sums the product is added to zeros. */
static void fill(struct sheet *s, const struct cuda_matmul *w)
{
    memset(s, 0xff, sizeof(*s));
    if (sums(w))
        memset(s->operand[Y], 0, sizeof(s->operand[Y]));
    for (int i = 0; i < NUMBERS; i++) {
        int row = w->trans_a ? i % SIZE : i / SIZE, k = w->trans_a ? i / SIZE : i % SIZE;

        put(w->narrow, s->operand[A], i, left(w, row, k));
        put(w->narrow, s->operand[B], i, number_at(w, i));
    }
    for (int i = 0; i < SIZE && w->bias == CUDA_BIAS; i++)
        put(w->narrow_y, s->operand[BIAS], i, bias_at(i));
}

/* What the activation is given: 0 times a NaN is one. */
static double given(const struct cuda_matmul *w, int i)
{
    double x = w->bias == CUDA_BIAS ? (double)bias_at(i % SIZE) : 0;

    for (int k = 0; k < SIZE; k++)
        x += (double)left(w, i / SIZE, k) * (double)right(w, k, i % SIZE);
    return x;
}

/* Of a row of A, or of a column of B. */
static double sum_at(const struct cuda_matmul *w, int i)
{
    double sum = 0;

    for (int k = 0; k < SIZE; k++)
        sum += (double)(w->bias == CUDA_SUMS_OF_A ? left(w, i, k) : right(w, k, i));
    return sum;
}

static double activated(enum cuda_activation activation, double x)
{
    switch (activation) {
    case CUDA_RECTIFIED:
        return x < 0 ? 0 : x;
    case CUDA_GELU_BY_ERF:
        return 0.5 * x * erfc(-x * sqrt(0.5));
    case CUDA_GELU_BY_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    default:
        return x;
    }
}

/* Rounding to 16 bits counts for nothing. */
static double distance(double y, double expected, bool rounded)
{
    double off;

    if (isnan(y) || isnan(expected))
        return isnan(y) && isnan(expected) ? 0 : (double)INFINITY;
    off = fabs(y - expected) - (rounded ? fabs(expected) / 256 : 0);
    return off > 0 ? off : 0;
}

static double look(const struct sheet *s, const struct cuda_matmul *w,
                   enum cuda_activation activation)
{
    double off = 0;

    for (int i = 0; i < NUMBERS; i++) {
        double x = given(w, i), y = get(w->narrow_y, s->operand[Y], i);

        off = fmax(off, distance(y, activated(activation, x), w->narrow_y != CUDA_WIDE));
        if (w->ldkept && distance(get(w->narrow_y, s->operand[KEPT], i), x, false) > 0)
            return (double)INFINITY;
    }
    for (int i = 0; i < SIZE && sums(w); i++)
        off = fmax(off, distance(get(w->narrow_y, s->operand[BIAS], i), sum_at(w, i), false));
    return off;
}

/* Running ---------------------------------------------------------------------------------- */

/* What the library refuses only now it does not have. */
static int run_in(struct cuda_device *device, const struct cuda_product *product,
                  const struct cuda_matmul *w, char *memory, struct sheet *s, bool *ran,
                  struct err *err)
{
    struct err own = { .code = EXIT_OK };
    struct cuda_stream stream = { device, device->stream };
    float(*at)[NUMBERS] = (float(*)[NUMBERS])(void *)memory;
    struct cuda_matmul_args args = { .a = at[A], .b = at[B], .y = at[Y], .kept = at[KEPT],
                                     .workspace = memory + sizeof(*s) };

    if (sums(w)) {
        args.sums = at[BIAS];
        args.beta = 1;
    } else {
        args.bias = at[BIAS];
    }

    CUDA_CHECK(device,
               cudaMemcpyAsync(memory, s, sizeof(*s), cudaMemcpyDefault, device->stream), err);
    *ran = cuda_matmul_run(&stream, product, &args, &own) == 0;
    CUDA_CHECK(device,
               cudaMemcpyAsync(s, memory, sizeof(*s), cudaMemcpyDefault, device->stream), err);
    CUDA_CHECK(device, cudaStreamSynchronize(device->stream), err);
    return 0;
}

static int run(struct cuda_device *device, const struct cuda_product *product,
               const struct cuda_matmul *w, struct sheet *s, bool *ran, struct err *err)
{
    void *memory = NULL;
    int failed;

    CUDA_CHECK(device, cudaMalloc(&memory, sizeof(*s) + cuda_matmul_workspace(product)), err);
    failed = run_in(device, product, w, memory, s, ran, err);
    (void)cudaFree(memory);
    return failed;
}

/* Words for the log: "RELU+BIAS TF32 none; GELU+AUX+BIAS float32 0.00047 (erf) 1.2e-07 (tanh)". */
static void note(struct cuda_device *device, const struct cuda_trial *t)
{
    const struct cuda_matmul *w = &t->what;
    const char *type = w->narrow == CUDA_FLOAT16    ? "float16"
                       : w->narrow == CUDA_BFLOAT16 ? "bfloat16"
                       : w->tf32                    ? "TF32"
                                                    : "float32";
    const char *name = w->bias == CUDA_SUMS_OF_A          ? "sums of A"
                       : w->bias == CUDA_SUMS_OF_B        ? "sums of B"
                       : w->activation == CUDA_RECTIFIED  ? "RELU"
                                                          : "GELU";
    size_t length = strlen(device->activations);
    char *text = device->activations + length;
    size_t room = sizeof(device->activations) - length;
    int n = snprintf(text, room, "%s%s%s%s %s", length ? "; " : "", name, w->ldkept ? "+AUX" : "",
                     w->bias == CUDA_BIAS ? "+BIAS" : "", type);

    if (n < 0 || (size_t)n >= room)
        return;
    if (!t->there)
        snprintf(text + n, room - (size_t)n, " none");
    else if (w->activation <= CUDA_RECTIFIED)
        snprintf(text + n, room - (size_t)n, " %.2g", t->off[w->activation]);
    else
        snprintf(text + n, room - (size_t)n, " %.2g (erf) %.2g (tanh)", t->off[CUDA_GELU_BY_ERF],
                 t->off[CUDA_GELU_BY_TANH]);
}

static int try(struct cuda_device *device, struct cuda_trial *t, struct err *err)
{
    struct cuda_product *product;
    struct sheet s;
    int failed;

    if (cuda_matmul_try(device, &t->what, &product, err))
        return -1;
    if (!product)
        return 0;
    fill(&s, &t->what);
    failed = run(device, product, &t->what, &s, &t->there, err);
    cuda_matmul_free(product);
    for (int i = 0; !failed && i < ACTIVATIONS; i++)
        t->off[i] = look(&s, &t->what, (enum cuda_activation)i);
    return failed;
}

/* The table -------------------------------------------------------------------------------- */

/* Of either GELU it is the same. */
static struct cuda_matmul trial_of(const struct cuda_matmul *w)
{
    return (struct cuda_matmul){
        .m = SIZE, .n = SIZE, .k = SIZE, .lda = SIZE, .ldb = SIZE, .ldy = SIZE,
        .ldkept = w->ldkept ? SIZE : 0, .alpha = 1, .trans_a = w->trans_a, .trans_b = w->trans_b,
        .bias = w->bias,
        .activation = w->activation == CUDA_GELU_BY_ERF ? CUDA_GELU_BY_TANH : w->activation,
        .tf32 = w->tf32, .narrow = w->narrow, .narrow_y = w->narrow_y,
    };
}

static int find(struct cuda_device *device, const struct cuda_matmul *what,
                const struct cuda_trial **trial, struct err *err)
{
    struct cuda_trial *t = device->trials;

    while (t && memcmp(&t->what, what, sizeof(*what)) != 0)
        t = t->next;
    if (!t) {
        t = mem_new(1, sizeof(*t));
        t->what = *what;
        if (try(device, t, err)) {
            free(t);
            return -1;
        }
        note(device, t);
        t->next = device->trials;
        device->trials = t;
    }
    *trial = t;
    return 0;
}

/* What is kept has rows of multiples of 8 elements, says cuBLASLt. */
static bool can_be_kept(const struct cuda_matmul *w)
{
    return w->ldkept % 8 == 0 && w->ldkept >= w->n && w->rank == 0;
}

int cuda_activation_fits(struct cuda_device *device, const struct cuda_matmul *matmul, bool *fits,
                         struct err *err)
{
    struct cuda_matmul what = trial_of(matmul);
    const struct cuda_trial *t;

    *fits = matmul->activation == CUDA_NOT_ACTIVATED && !sums(matmul);
    if (*fits || (matmul->ldkept && !can_be_kept(matmul)))
        return 0;
    if (find(device, &what, &t, err))
        return -1;
    *fits = t->there && t->off[matmul->activation] < (what.narrow_y ? NEAR : EXACT);
    return 0;
}

void cuda_activations_clear(struct cuda_device *device)
{
    while (device->trials) {
        struct cuda_trial *next = device->trials->next;

        free(device->trials);
        device->trials = next;
    }
}
