/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/mem.h"
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
    if (!node->cpu[0]) {
        struct utsname names;

        if (uname(&names) == 0)
            topo_node_set_text(&node->cpu, names.machine);
    }
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

/* The limits of this process's control group and of those above it. */
static double limit_of_groups(double memory)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[1024], path[2048], *group = NULL;
    double limit;

    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) == 0)
            group = line + 3;
        if (group)
            break;
    }
    if (file)
        fclose(file);
    while (group) {
        char *slash = strrchr(group, '/');

        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
        limit = read_number(path);
        if (limit > 0 && limit < memory)
            memory = limit;
        if (!slash)
            break;
        *slash = '\0';
    }
    limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    return limit > 0 && limit < memory ? limit : memory;
}

static void read_memory(struct topo_node *node)
{
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    node->memory = limit_of_groups(memory);
    node->l2 = sysconf(_SC_LEVEL2_CACHE_SIZE) > 0 ? (double)sysconf(_SC_LEVEL2_CACHE_SIZE) : 0;
    node->l3 = sysconf(_SC_LEVEL3_CACHE_SIZE) > 0 ? (double)sysconf(_SC_LEVEL3_CACHE_SIZE) : 0;
}

/* The last part of the path that a link in /sys points to: a PCI address. */
static void read_address(const char *link, char *address, size_t size)
{
    char target[512];
    ssize_t n = readlink(link, target, sizeof(target) - 1);
    const char *slash;

    address[0] = '\0';
    if (n <= 0)
        return;
    target[n] = '\0';
    slash = strrchr(target, '/');
    snprintf(address, size, "%.*s", (int)size - 1, slash ? slash + 1 : target);
}

static int read_numa(const char *path)
{
    char line[16], *end;
    long value;

    read_line(path, line, sizeof(line));
    value = strtol(line, &end, 10);
    return end == line || value < 0 || value > 4096 ? -1 : (int)value;
}

/* Each entry of a folder, by a function that gets the entry's path and name. */
static void each_entry(const char *folder, struct topo_node *node,
                       void (*visit)(struct topo_node *, const char *path, const char *name))
{
    struct dirent **names;
    int n = scandir(folder, &names, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        char path[512];

        if (names[i]->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);
            visit(node, path, names[i]->d_name);
        }
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

static void add_nic(struct topo_node *node, const char *path, const char *name,
                    double bandwidth)
{
    char file[640], address[64];
    struct topo_device *nic;

    snprintf(file, sizeof(file), "%s/device", path);
    read_address(file, address, sizeof(address));
    nic = topo_node_add_device(node, TOPO_NIC, name, strchr(address, ':') ? address : "");
    nic->bandwidth = bandwidth;
    snprintf(file, sizeof(file), "%s/device/numa_node", path);
    nic->numa = read_numa(file);
}

/* "25000" is megabits per second; virtual interfaces say -1 or make a number up. */
static void visit_interface(struct topo_node *node, const char *path, const char *name)
{
    char file[640], state[16];
    double megabits;

    snprintf(file, sizeof(file), "%s/operstate", path);
    read_line(file, state, sizeof(state));
    if (strcmp(name, "lo") == 0 || strcmp(state, "down") == 0)
        return;
    snprintf(file, sizeof(file), "%s/speed", path);
    megabits = read_number(file);
    add_nic(node, path, name, megabits > 0 ? megabits * 1e6 / 8 : 0);
}

/* "200 Gb/sec (4X HDR)" */
static void visit_hca(struct topo_node *node, const char *path, const char *name)
{
    char file[640];

    snprintf(file, sizeof(file), "%s/ports/1/rate", path);
    add_nic(node, path, name, read_number(file) * 1e9 / 8);
}

/* Display and 3D controllers of those who make accelerators. */
static void visit_pci(struct topo_node *node, const char *path, const char *name)
{
    static const struct { const char *vendor, *text; } makers[] = {
        { "0x10de", "NVIDIA GPU" }, { "0x1002", "AMD GPU" }, { "0x8086", "Intel GPU" },
    };
    char file[640], class[16], vendor[16];

    snprintf(file, sizeof(file), "%s/class", path);
    read_line(file, class, sizeof(class));
    snprintf(file, sizeof(file), "%s/vendor", path);
    read_line(file, vendor, sizeof(vendor));
    if (strncmp(class, "0x0300", 6) && strncmp(class, "0x0302", 6))
        return;
    snprintf(file, sizeof(file), "%s/numa_node", path);
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
        if (strcmp(vendor, makers[i].vendor) == 0)
            topo_node_add_device(node, TOPO_GPU, makers[i].text, name)->numa =
                read_numa(file);
}

void topo_node_read_proc(struct topo_node *node)
{
    read_host(node);
    read_cpuinfo(node);
    read_cpus(node);
    read_memory(node);
    each_entry("/sys/class/infiniband", node, visit_hca);
    each_entry("/sys/class/net", node, visit_interface);
    each_entry("/sys/bus/pci/devices", node, visit_pci);
}
