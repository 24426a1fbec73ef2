/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/cpu.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* A team is either whole or one: libgomp ends the threads of a team that shrinks. */
void cpu_parallel(const struct device *device, int64_t n, int64_t grain, cpu_range *range,
                  void *context)
{
    if (n <= 0)
        return;
#ifdef _OPENMP
    if (device->threads > 1 && n >= 2 * grain && !omp_in_parallel()) {
#pragma omp parallel num_threads(device->threads)
        {
            int t = omp_get_thread_num(), all = omp_get_num_threads();
            int64_t begin = n * t / all, end = n * (t + 1) / all;

            if (begin < end)
                range(context, begin, end, t);
        }
        return;
    }
#else
    (void)grain;
#endif
    range(context, 0, n, 0);
}
