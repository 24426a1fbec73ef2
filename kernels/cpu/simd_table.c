/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernels/cpu/simd.h"

/* CPU_X86: the build has the variants for x86-64 (see Makemodule.am). */
#define DECLARE(isa)                                                                           \
    void simd_fill_pointwise_##isa(struct simd *table);                                        \
    void simd_fill_rows_##isa(struct simd *table);                                             \
    void simd_fill_columns_##isa(struct simd *table);                                          \
    void simd_fill_train_##isa(struct simd *table);                                            \
    void simd_fill_dropout_##isa(struct simd *table);                                          \
    static void fill_##isa(struct simd *table)                                                 \
    {                                                                                          \
        simd_fill_pointwise_##isa(table);                                                      \
        simd_fill_rows_##isa(table);                                                           \
        simd_fill_columns_##isa(table);                                                        \
        simd_fill_train_##isa(table);                                                          \
        simd_fill_dropout_##isa(table);                                                        \
        table->name = #isa;                                                                    \
    }

DECLARE(base)
#ifdef CPU_X86
DECLARE(avx2)
DECLARE(avx512)
#endif

/* From the least to the most that a build may have. */
static const char *const words[] = { "base", "avx2", "avx512" };
#define WORDS ((int)(sizeof(words) / sizeof(words[0])))

static struct simd best;
static bool is_wrong;       /* what TASUKI_MAX_ISA says */

/* The index of what is allowed at most. */
static int most_allowed(void)
{
    const char *word = getenv("TASUKI_MAX_ISA");

    for (int i = 0; i < WORDS && word && *word; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    is_wrong = word && *word;
    return WORDS - 1;
}

static void choose(void)
{
    int most = most_allowed();

    fill_base(&best);
#ifdef CPU_X86
    __builtin_cpu_init();
    if (most > 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        fill_avx2(&best);
    if (most > 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        fill_avx512(&best);
#else
    (void)most;
#endif
}

/* Several devices may be opened at once. */
const struct simd *simd_best(struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, choose);
    if (!is_wrong)
        return &best;
    err_set_code(err, EXIT_USAGE, "TASUKI_MAX_ISA: expected base, avx2 or avx512, got \"%s\"",
                 getenv("TASUKI_MAX_ISA"));
    return NULL;
}
