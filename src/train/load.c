/* SPDX-License-Identifier: MIT */
#include "train/load.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define SHARE 0.1           /* of the threads' time */
#define LOOK 200000000      /* nanoseconds */

static double seconds_per_tick(void)
{
    long ticks = sysconf(_SC_CLK_TCK);

    return ticks > 0 ? 1 / (double)ticks : 0.01;
}

/* "cpuN user nice system idle iowait irq softirq steal ...": all but idle and iowait. */
double load_of_cores(FILE *stat, const cpu_set_t *mine, int *cores)
{
    char line[512];
    double ticks = 0;

    *cores = 0;
    while (fgets(line, sizeof(line), stat)) {
        unsigned long long user, nice, system, irq, soft, steal;
        int core;

        if (sscanf(line, "cpu%d %llu %llu %llu %*u %*u %llu %llu %llu", &core, &user, &nice,
                   &system, &irq, &soft, &steal) != 7 ||
            core < 0 || core >= CPU_SETSIZE || !CPU_ISSET((size_t)core, mine))
            continue;
        ticks += (double)(user + nice + system + irq + soft + steal);
        ++*cores;
    }
    return ticks * seconds_per_tick();
}

static double own_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void load_read(struct load *load)
{
    FILE *stat = fopen("/proc/stat", "re");
    cpu_set_t mine;

    *load = (struct load){ .clock = clock_now(), .own = own_seconds() };
    if (stat && sched_getaffinity(0, sizeof(mine), &mine) == 0)
        load->busy = load_of_cores(stat, &mine, &load->cores);
    if (stat)
        fclose(stat);
}

bool load_crowded(const struct load *from, const struct load *to, int threads)
{
    double time = to->clock - from->clock, lacking;
    double others = to->busy - from->busy - (to->own - from->own);
    int cores = to->cores;

    if (cores == 0 || cores != from->cores || time <= 0)
        return false;
    threads = threads > 0 && threads < cores ? threads : cores;
    lacking = others - (cores - threads) * time;
    /* The kernel counts whole ticks. */
    return lacking > SHARE * threads * time + 2 * cores * seconds_per_tick();
}

bool load_crowded_now(int threads)
{
    struct load from, to;

    load_read(&from);
    nanosleep(&(struct timespec){ .tv_nsec = LOOK }, NULL);
    load_read(&to);
    return load_crowded(&from, &to, threads);
}
