/* SPDX-License-Identifier: MIT */
#include "train/rail.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "topology/distance.h"
#include "topology/node.h"
#include "topology/shape.h"

#define MOST_PUS 65535

/* This task among those of its node; -1: not known. What mpirun says comes before what the step says
 * in which it may run.
 */
static int local_rank(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                         "SLURM_LOCALID" };
    const char *text = NULL;
    char *end;
    long rank;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !text; i++)
        text = getenv(names[i]);
    rank = text ? strtol(text, &end, 10) : -1;
    return text && *text && !*end && rank >= 0 && rank < 1 << 20 ? (int)rank : -1;
}

/* What is said ----------------------------------------------------------------------- */

static bool has_line(const char *folder, const char *begin)
{
    char *path = mem_printf("%s/ucx.conf", folder), line[256];
    FILE *file = fopen(path, "re");
    bool found = false;

    while (file && !found && fgets(line, sizeof(line), file))
        found = strncmp(line + strspn(line, " \t"), begin, strlen(begin)) == 0;
    if (file)
        fclose(file);
    free(path);
    return found;
}

/* Which transports UCX may take, too: of tcp alone the adapter named here would leave nothing. */
static bool is_said(void)
{
    static const char *const names[] = {
        "UCX_NET_DEVICES", "UCX_MAX_RNDV_RAILS", "UCX_MAX_EAGER_RAILS", "HFI_UNIT",
        "HFI_SELECTION_ALG", "PSM2_MULTIRAIL", "PSM2_MULTIRAIL_MAP", "UCX_TLS",
    };
    const char *folders[] = { getenv("UCX_CONFIG_DIR"), "/etc/ucx", getenv("HOME"), "." };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]))
            return true;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        if (folders[i] && (has_line(folders[i], "UCX_NET_DEVICES") ||
                           has_line(folders[i], "UCX_MAX_") || has_line(folders[i], "UCX_TLS")))
            return true;
    return false;
}

/* Adapters --------------------------------------------------------------------------- */

static bool is_omni_path(const struct topo_nic *nic)
{
    return strcmp(nic->fabric, "Omni-Path") == 0;
}

static const char *folder_of(const char *variable, const char *usual)
{
    const char *folder = getenv(variable);

    return folder && *folder ? folder : usual;
}

/* "uverbs0", the name of its device file, malloc'ed; NULL: it has none. */
static char *file_of(const struct topo_nic *nic)
{
    char *path = mem_printf("%s/class/infiniband/%s/device/infiniband_verbs",
                            folder_of("TASUKI_SYSFS", "/sys"), nic->name);
    DIR *directory = opendir(path);
    const struct dirent *entry;
    char *name = NULL;

    while (directory && !name && (entry = readdir(directory)))
        if (strncmp(entry->d_name, "uverbs", strlen("uverbs")) == 0)
            name = mem_printf("infiniband/%s", entry->d_name);
    if (directory)
        closedir(directory);
    free(path);
    return name;
}

/* A container may show an adapter, and not let it be opened. Of recorded machines there are no files. */
static bool can_open(const struct topo_nic *nic)
{
    const char *dev = folder_of("TASUKI_DEVFS", getenv("TASUKI_SYSFS") ? NULL : "/dev");
    char *name = is_omni_path(nic) ? mem_strdup(nic->name) : file_of(nic);
    char *path = dev && name ? mem_printf("%s/%s", dev, name) : NULL;
    bool can = !dev || (path && access(path, R_OK | W_OK) == 0);

    free(path);
    free(name);
    return can;
}

/* Ethernet of several adapters may be as many networks. */
static bool is_fabric(const struct topo_nic *nic)
{
    return nic->hca && !topo_nic_is_down(nic) && can_open(nic) &&
           (strcmp(nic->fabric, "InfiniBand") == 0 || is_omni_path(nic));
}

/* The first 8 bytes of a port's address, "fe80:0000:0000:0000"; "": not known. */
static void read_subnet(const struct topo_nic *nic, char subnet[20])
{
    char *path = mem_printf("%s/class/infiniband/%s/ports/%d/gids/0",
                            folder_of("TASUKI_SYSFS", "/sys"), nic->name, nic->port);
    FILE *file = fopen(path, "re");

    subnet[0] = '\0';
    if (file && !fgets(subnet, 20, file))
        subnet[0] = '\0';
    if (file)
        fclose(file);
    free(path);
}

/* Adapters from which tasks may have one each. */
struct rails {
    int n, *nics;
};

/* How many of them are on the NUMA node of this one. */
static int count_beside(const struct topo_node *node, const struct rails *rails, int nic)
{
    int n = 0;

    for (int i = 0; i < rails->n; i++)
        n += node->nics[rails->nics[i]].numa == node->nics[nic].numa;
    return n;
}

/* Of several networks, or not all of one kind, as those of storage, a task may need more than one. */
static bool are_alike(const struct topo_node *node, const struct rails *rails, bool on_gpus)
{
    const struct topo_nic *one = &node->nics[rails->nics[0]];
    char first[20], other[20];

    read_subnet(one, first);
    for (int i = 1; i < rails->n; i++) {
        const struct topo_nic *nic = &node->nics[rails->nics[i]];

        read_subnet(nic, other);
        if (strcmp(first, other) != 0 || strcmp(one->fabric, nic->fabric) != 0 ||
            one->bandwidth < nic->bandwidth || one->bandwidth > nic->bandwidth ||
            (!on_gpus && count_beside(node, rails, rails->nics[i]) !=
                             count_beside(node, rails, rails->nics[0])))
            return false;
    }
    return true;
}

static void add(struct rails *rails, int nic)
{
    for (int i = 0; i < rails->n; i++)
        if (rails->nics[i] == nic)
            return;
    rails->nics[rails->n++] = nic;
}

/* -1: there is none, or it is not known which is near. */
static int nearest(const struct topo_node *node, const int *all, int gpu)
{
    int rail = topo_nearest_rail(node, gpu), nic = rail < 0 ? -1 : all[rail];

    return nic >= 0 && is_fabric(&node->nics[nic]) &&
                   topo_distance_nic(node, gpu, nic).near != TOPO_FAR
               ? nic : -1;
}

/* The GPU that the task will take, -1: not known. */
static int gpu_of(const struct topo_node *node, int rank, int tasks)
{
    int n, *shown = topo_node_shown(node, &n);
    int gpu = n == 1 ? shown[0] : n >= tasks ? shown[rank] : -1;

    free(shown);
    return gpu;
}

static int choose_by_gpu(const struct topo_node *node, const int *all, int gpu, struct rails *rails)
{
    for (int i = 0; i < node->n_gpus; i++)
        if (nearest(node, all, i) >= 0)
            add(rails, nearest(node, all, i));
    return gpu < 0 ? -1 : nearest(node, all, gpu);
}

/* The NUMA node of all cores that this task may use; -1: there is no such one. */
static int own_numa(const struct topo_node *node)
{
    for (int i = 0; i < node->n_numas; i++) {
        int n = 0, *pus = NULL, at = 0;

        if (set_parse(node->numas[i].cpus, MOST_PUS, &n, &pus))
            continue;
        for (int j = 0; j < n; j++)
            at += at < node->n_usable && pus[j] == node->usable[at];
        free(pus);
        if (at > 0)
            return at == node->n_usable ? node->numas[i].id : -1;
    }
    return -1;
}

/* Those of its NUMA node tasks use in turn. */
static int choose_by_cores(const struct topo_node *node, const int *all, int n_all, int rank,
                           struct rails *rails)
{
    int numa = own_numa(node), *near = mem_new((size_t)n_all, sizeof(*near)), n = 0, nic;

    for (int i = 0; i < n_all; i++) {
        if (!is_fabric(&node->nics[all[i]]))
            continue;
        add(rails, all[i]);
        if (numa >= 0 && node->nics[all[i]].numa == numa)
            near[n++] = all[i];
    }
    nic = n > 0 ? near[rank % n] : -1;
    free(near);
    return nic;
}

static void set(const struct topo_nic *nic)
{
    bool omni_path = is_omni_path(nic);
    const char *unit = strchr(nic->name, '_');
    char *value = omni_path ? mem_strdup(unit ? unit + 1 : "-1")
                            : mem_printf("%s:%d", nic->name, nic->port);

    setenv(omni_path ? "HFI_UNIT" : "UCX_NET_DEVICES", value, 0);
    free(value);
}

void rail_choose(const struct topo_node *node, int tasks, bool on_gpus, const int *gpus)
{
    int rank = local_rank(), *all, n = topo_rails(node, &all), nic;
    struct rails rails = { 0, mem_new((size_t)n, sizeof(int)) };

    if (n > 1 && rank >= 0 && rank < tasks && !is_said()) {
        int gpu = gpus ? gpus[rank] : on_gpus ? gpu_of(node, rank, tasks) : -1;

        nic = on_gpus ? choose_by_gpu(node, all, gpu, &rails)
                      : choose_by_cores(node, all, n, rank, &rails);
        if (nic >= 0 && rails.n > 1 && rails.n <= tasks && are_alike(node, &rails, on_gpus))
            set(&node->nics[nic]);
    }
    free(rails.nics);
    free(all);
}

void rail_tell(const struct topo_node *node, int gpu)
{
    const char *ucx = getenv("UCX_NET_DEVICES"), *unit = getenv("HFI_UNIT");
    char *own = ucx ? mem_strdup(ucx) : unit ? mem_printf("hfi1_%s:1", unit) : NULL;

    for (int i = 0; own && i < node->n_nics; i++) {
        const struct topo_nic *nic = &node->nics[i];
        char *name = mem_printf("%s:%d", nic->name, nic->port), word[16];

        if (strcmp(name, own) == 0 && gpu >= 0)
            log_debug("GPU %s, NIC %s (%s)", node->gpus[gpu].address, name,
                      topo_distance_word(topo_distance_nic(node, gpu, i), word));
        else if (strcmp(name, own) == 0)
            log_debug("NIC %s (NUMA node %d)", name, nic->numa);
        free(name);
    }
    free(own);
}
