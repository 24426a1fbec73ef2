/* SPDX-License-Identifier: MIT */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/oom.h"
#include "topology/node_read.h"

/* First line of a file without its newline; "" where there is none. */
static void read_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");

    line[0] = '\0';
    if (!file)
        return;
    if (!fgets(line, (int)size, file))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    fclose(file);
}

static double read_number(const char *path)
{
    char line[64], *end;
    double value;

    read_line(path, line, sizeof(line));
    value = strtod(line, &end);
    return end == line ? 0 : value;
}

static void read_host(struct topo_node *node)
{
    char host[256] = "localhost", line[128];

    gethostname(host, sizeof(host) - 1);
    topo_node_set_text(&node->host, host);
    read_line("/proc/sys/kernel/random/boot_id", line, sizeof(line));
    topo_node_set_text(&node->machine, line);
    topo_node_set_text(&node->source, "/proc");
}

/* Float32 operations of a core per cycle: two fused multiply-adds on the widest vectors. */
static double flops_per_cycle(const char *flags)
{
    static const struct { const char *flag; double flops; } widths[] = {
        { " avx512f", 64 }, { " fma", 32 }, { " avx", 16 }, { " sse2", 8 },
        { " sve", 32 }, { " asimd", 16 },
    };

    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        if (strstr(flags, widths[i].flag))
            return widths[i].flops;
    return 4;
}

/* The value of "KEY\t: VALUE", or NULL. */
static const char *value_of(const char *line, const char *key)
{
    const char *colon = strchr(line, ':');

    if (strncmp(line, key, strlen(key)) || !colon)
        return NULL;
    return colon[1] == ' ' ? colon + 2 : colon + 1;
}

static void read_cpuinfo(struct topo_node *node)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    double mhz = read_number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq") / 1e3;
    double per_cycle = 0;
    struct utsname names;
    char *line = NULL;
    size_t room = 0;

    while (file && getline(&line, &room, file) > 0 && line[0] != '\n') {
        const char *value;

        line[strcspn(line, "\n")] = '\0';
        if ((value = value_of(line, "model name")))
            topo_node_set_text(&node->cpu, value);
        if (mhz <= 0 && (value = value_of(line, "cpu MHz")))
            mhz = strtod(value, NULL);
        if ((value = value_of(line, "flags")) || (value = value_of(line, "Features")))
            per_cycle = flops_per_cycle(value - 1);
    }
    free(line);
    if (file)
        fclose(file);
    node->flops = mhz * 1e6 * per_cycle;
    if (uname(&names) == 0)
        topo_node_set_text(&node->arch, names.machine);
    if (!node->cpu[0])
        topo_node_set_text(&node->cpu, node->arch);
}

static void read_cpus(struct topo_node *node)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t set;

    node->packages = node->numa_nodes = 1;
    node->pus = node->cores = online > 0 ? (int)online : 1;
    if (sched_getaffinity(0, sizeof(set), &set))
        return;
    node->usable = mem_new((size_t)CPU_COUNT(&set), sizeof(*node->usable));
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            node->usable[node->n_usable++] = (int)i;
}

static void read_memory(struct topo_node *node)
{
    node->memory = oom_look("").limit;
    node->l2 = sysconf(_SC_LEVEL2_CACHE_SIZE) > 0 ? (double)sysconf(_SC_LEVEL2_CACHE_SIZE) : 0;
    node->l3 = sysconf(_SC_LEVEL3_CACHE_SIZE) > 0 ? (double)sysconf(_SC_LEVEL3_CACHE_SIZE) : 0;
}

static int read_proc(struct topo_node *node, const struct topo_input *input, struct err *err)
{
    (void)err;
    if (!input->live)
        return 0;
    read_host(node);
    read_cpuinfo(node);
    read_cpus(node);
    read_memory(node);
    topo_node_say(node, "proc", TOPO_USED, "/proc, sysconf()");
    return 0;
}

const struct topo_source topo_source_proc = { "proc", read_proc };
