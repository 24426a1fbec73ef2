/* SPDX-License-Identifier: MIT */
#include "kernels/evict.h"

#include <stdatomic.h>
#include <stdint.h>

#define LINE ((uintptr_t)64)    /* no cache has shorter ones */

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define HAS_CLFLUSHOPT (1u << 23)   /* CPUID 7, EBX */

/* These need not wait for each other, as clflush does. */
__attribute__((target("clflushopt"))) static void evict_lines(uintptr_t at, uintptr_t end)
{
    for (; at < end; at += LINE)
        _mm_clflushopt((void *)at);
    _mm_mfence();
}

static bool can_evict(void)
{
    static atomic_int known = -1;   /* asking takes long in a virtual machine */
    unsigned a, b, c, d;

    if (known < 0)
        known = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & HAS_CLFLUSHOPT);
    return known;
}

#elif defined(__aarch64__) && defined(__linux__)

/* Linux lets programs do so. */
static void evict_lines(uintptr_t at, uintptr_t end)
{
    for (; at < end; at += LINE)
        __asm__ volatile("dc civac, %0" : : "r"(at) : "memory");
    __asm__ volatile("dsb sy" : : : "memory");
}

static bool can_evict(void)
{
    return true;
}

#else

static void evict_lines(uintptr_t at, uintptr_t end)
{
    (void)at, (void)end;
}

static bool can_evict(void)
{
    return false;
}

#endif

bool evict_bytes(const void *memory, size_t bytes)
{
    uintptr_t start = (uintptr_t)memory;

    if (!can_evict())
        return false;
    if (bytes)
        evict_lines(start & ~(LINE - 1), start + bytes);
    return true;
}
