/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "kernels/cpu/simd.h"

/* CPU_X86: the build has the variants for x86-64 (see Makemodule.am). */
#define DECLARE(isa)                                                                           \
    void simd_fill_pointwise_##isa(struct simd *table);                                        \
    void simd_fill_rows_##isa(struct simd *table);                                             \
    void simd_fill_columns_##isa(struct simd *table);                                          \
    void simd_fill_train_##isa(struct simd *table);                                            \
    void simd_fill_dropout_##isa(struct simd *table);                                          \
    static const struct simd *table_##isa(void)                                                \
    {                                                                                          \
        static struct simd table;                                                              \
                                                                                               \
        simd_fill_pointwise_##isa(&table);                                                     \
        simd_fill_rows_##isa(&table);                                                          \
        simd_fill_columns_##isa(&table);                                                       \
        simd_fill_train_##isa(&table);                                                         \
        simd_fill_dropout_##isa(&table);                                                       \
        table.name = #isa;                                                                     \
        return &table;                                                                         \
    }

DECLARE(base)
#ifdef CPU_X86
DECLARE(avx2)
DECLARE(avx512)
#endif

const struct simd *simd_best(void)
{
#ifdef CPU_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return table_avx512();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return table_avx2();
#endif
    return table_base();
}
