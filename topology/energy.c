/* SPDX-License-Identifier: MIT */
#include "topology/energy.h"

#include <dirent.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/node_read.h"
#include "topology/nvml_api.h"

/* A counter of RAPL, in microjoules. */
struct zone {
    char *file;
    uint64_t last, range;   /* range: what it begins anew after */
};

struct energy {
    int n_zones;
    struct zone *zones;
    bool readable;          /* all of them, always */
    double cpus;            /* joules until the last look */
    void *library;
    int (*shutdown)(void);
    int (*total)(nvml_device, unsigned long long *);
    nvml_device device;
    unsigned long long first;   /* millijoules */
};

/* Processors --------------------------------------------------------------------------- */

static bool read_count(const char *path, uint64_t *value)
{
    FILE *file = fopen(path, "re");
    bool good = file && fscanf(file, "%" SCNu64, value) == 1;

    if (file)
        fclose(file);
    return good;
}

/* Parts of a package are in it already, and "psys" counts all once more. */
static bool counts(const char *folder)
{
    char *path = mem_printf("%s/name", folder), name[32] = "";
    FILE *file = fopen(path, "re");

    if (file && fscanf(file, "%31s", name) != 1)
        name[0] = '\0';
    if (file)
        fclose(file);
    free(path);
    return strncmp(name, "package", 7) == 0 || strcmp(name, "dram") == 0;
}

static void add_zone(struct energy *e, const char *folder)
{
    char *range = mem_printf("%s/max_energy_range_uj", folder);
    struct zone zone = { .file = mem_printf("%s/energy_uj", folder) };

    if (!read_count(zone.file, &zone.last) || !read_count(range, &zone.range))
        e->readable = false;
    *(struct zone *)mem_push((void **)&e->zones, &e->n_zones, sizeof(zone)) = zone;
    free(range);
}

/* "intel-rapl:0", and "intel-rapl:0:1" beside it; those of "intel-rapl-mmio" are the same. */
static void find_zones(struct energy *e, const char *sys)
{
    char *folder = mem_printf("%s/class/powercap", sys);
    DIR *all = opendir(folder);
    const struct dirent *entry;

    e->readable = true;
    while (all && (entry = readdir(all))) {
        char *path = mem_printf("%s/%s", folder, entry->d_name);

        if (strncmp(entry->d_name, "intel-rapl:", 11) == 0 && counts(path))
            add_zone(e, path);
        free(path);
    }
    if (all)
        closedir(all);
    free(folder);
}

void energy_look(struct energy *energy)
{
    struct energy *e = energy;

    for (int i = 0; e->readable && i < e->n_zones; i++) {
        struct zone *z = &e->zones[i];
        uint64_t now;

        if (!read_count(z->file, &now)) {
            e->readable = false;
            return;
        }
        e->cpus += 1e-6 * (double)(now >= z->last ? now - z->last : z->range - z->last + now);
        z->last = now;
    }
}

/* GPUs --------------------------------------------------------------------------------- */

static void find_device(struct energy *e, const char *gpu)
{
    int (*count)(unsigned *), (*device)(unsigned, nvml_device *);
    int (*address)(nvml_device, struct nvml_pci *);
    unsigned n = 0;

    *(void **)&count = dlsym(e->library, "nvmlDeviceGetCount_v2");
    *(void **)&device = dlsym(e->library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&address = dlsym(e->library, "nvmlDeviceGetPciInfo_v3");
    *(void **)&e->total = dlsym(e->library, "nvmlDeviceGetTotalEnergyConsumption");
    if (!count || !device || !address || !e->total || count(&n) != NVML_OK)
        return;
    for (unsigned i = 0; i < n && !e->device; i++) {
        struct nvml_pci pci = { .domain = 0 };
        nvml_device one;
        char text[32];

        if (device(i, &one) == NVML_OK && address(one, &pci) == NVML_OK &&
            topo_pci_address(pci.bus_id, text) == 0 && strcmp(text, gpu) == 0)
            e->device = one;
    }
    if (e->device && e->total(e->device, &e->first) != NVML_OK)
        e->device = NULL;
}

static void open_gpu(struct energy *e, const char *nvml, const char *gpu)
{
    int (*init)(void);

    e->library = dlopen(nvml, RTLD_NOW | RTLD_LOCAL);
    if (!e->library)
        return;
    *(void **)&init = dlsym(e->library, "nvmlInit_v2");
    *(void **)&e->shutdown = dlsym(e->library, "nvmlShutdown");
    if (!init || !e->shutdown || init() != NVML_OK)
        e->shutdown = NULL;
    else
        find_device(e, gpu);
}

/* -------------------------------------------------------------------------------------- */

struct energy *energy_start(bool node, const char *gpu)
{
    const char *sys = getenv("TASUKI_SYSFS"), *nvml = getenv("TASUKI_NVML");
    struct energy *e = mem_new(1, sizeof(*e));

    if (node)
        find_zones(e, sys && *sys ? sys : "/sys");
    if (gpu[0])
        open_gpu(e, nvml && *nvml ? nvml : "libnvidia-ml.so.1", gpu);
    return e;
}

void energy_read(struct energy *energy, double *cpus, double *gpu)
{
    struct energy *e = energy;
    unsigned long long now;

    energy_look(e);
    *cpus = e->readable && e->n_zones > 0 ? e->cpus : NAN;
    *gpu = e->device && e->total(e->device, &now) == NVML_OK && now >= e->first
               ? 1e-3 * (double)(now - e->first) : NAN;
}

void energy_free(struct energy *energy)
{
    struct energy *e = energy;

    if (!e)
        return;
    for (int i = 0; i < e->n_zones; i++)
        free(e->zones[i].file);
    free(e->zones);
    if (e->shutdown)
        e->shutdown();
    if (e->library)
        dlclose(e->library);
    free(e);
}
