/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <pthread.h>

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

static struct simd best;

static void choose(void)
{
#ifdef CPU_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        fill_avx512(&best);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        fill_avx2(&best);
        return;
    }
#endif
    fill_base(&best);
}

/* Several devices may be opened at once. */
const struct simd *simd_best(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, choose);
    return &best;
}
