/* SPDX-License-Identifier: MIT */
/* Network adapters and their ports as the kernel shows them below /sys, or below a copy. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/node_read.h"

#define MOST_PORTS 8

/* First line of FOLDER/NAME without its newline; false: there is none. */
static bool read_line(const char *folder, const char *name, char *line, size_t size)
{
    char *path = mem_printf("%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool good = file && fgets(line, (int)size, file);

    if (file)
        fclose(file);
    free(path);
    if (!good)
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return good;
}

/* -1: there is none. Files say "25000", "16.0 GT/s PCIe", "0x12", "200 Gb/sec (4X HDR)". */
static double read_number(const char *folder, const char *name)
{
    char line[64], *end;
    double value;

    if (!read_line(folder, name, line, sizeof(line)))
        return -1;
    value = strtod(line, &end);
    return end == line || !(value >= 0 && value < 1e18) ? -1 : value;
}

static int read_int(const char *folder, const char *name, int most)
{
    double value = read_number(folder, name);

    return value >= 0 && value <= most ? (int)value : -1;
}

/* "PCI_SLOT_NAME=0000:12:00.0" among the lines of uevent. */
static void read_address(const char *folder, char address[32])
{
    char *path = mem_printf("%s/uevent", folder), line[256];
    FILE *file = fopen(path, "re");

    address[0] = '\0';
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "PCI_SLOT_NAME=", 14) == 0 && topo_pci_address(line + 14, address))
            address[0] = '\0';
    }
    if (file)
        fclose(file);
    free(path);
}

/* What hwloc found already is completed. */
static struct topo_nic *nic_called(struct topo_node *node, const char *name, int port)
{
    for (int i = 0; i < node->n_nics; i++)
        if (strcmp(node->nics[i].name, name) == 0 && node->nics[i].port == port)
            return &node->nics[i];
    return topo_node_add_nic(node, name, port);
}

static void read_device(struct topo_node *node, const char *folder, struct topo_nic *nic)
{
    char *device = mem_printf("%s/device", folder), address[32];
    int numa = read_int(device, "numa_node", 4096), pci;
    double speed = read_number(device, "current_link_speed");
    double most = read_number(device, "max_link_speed");

    read_address(device, address);
    if (address[0])
        topo_node_set_text(&nic->address, address);
    pci = topo_node_find_pci(node, nic->address);
    if (numa >= 0)
        nic->numa = numa;
    else if (nic->numa < 0 && pci >= 0)
        nic->numa = node->pcis[pci].numa;
    nic->pcie_width = read_int(device, "current_link_width", 64);
    nic->pcie_max_width = read_int(device, "max_link_width", 64);
    nic->pcie_speed = speed > 0 ? speed : 0;
    nic->pcie_max_speed = most > 0 ? most : 0;
    free(device);
}

/* "4: ACTIVE" */
static const char *after_colon(const char *line)
{
    const char *colon = strchr(line, ':');

    return colon ? colon + 1 + (colon[1] == ' ') : line;
}

static void read_port(struct topo_node *node, const char *folder, const char *name, int port)
{
    char *ports = mem_printf("%s/ports/%d", folder, port), line[128], *end;
    struct topo_nic *nic;
    double rate;
    long lid;

    if (read_line(ports, "state", line, sizeof(line))) {
        nic = nic_called(node, name, port);
        nic->hca = true;
        topo_node_set_text(&nic->state, after_colon(line));
        if (read_line(ports, "rate", line, sizeof(line)))
            topo_node_set_text(&nic->rate, line);
        rate = read_number(ports, "rate");
        nic->bandwidth = rate > 0 ? rate * 1e9 / 8 : 0;
        read_line(ports, "link_layer", line, sizeof(line));
        topo_node_set_text(&nic->fabric, strncmp(name, "hfi", 3) == 0 ? "Omni-Path" : line);
        if (read_line(folder, "node_guid", line, sizeof(line)))
            topo_node_set_text(&nic->guid, line);
        lid = read_line(ports, "lid", line, sizeof(line)) ? strtol(line, &end, 0) : -1;
        nic->lid = lid >= 0 && lid <= 0xffffff && end != line ? (int)lid : -1;
        read_device(node, folder, nic);
    }
    free(ports);
}

static void visit_hca(struct topo_node *node, const char *folder, const char *name)
{
    for (int port = 1; port <= MOST_PORTS; port++)
        read_port(node, folder, name, port);
}

/* "25000" is megabits per second; virtual interfaces say -1 or make a number up. */
static void visit_interface(struct topo_node *node, const char *folder, const char *name)
{
    double megabits = read_number(folder, "speed");
    int type = read_int(folder, "type", 65535);
    char state[32];
    struct topo_nic *nic;

    read_line(folder, "operstate", state, sizeof(state));
    if (strcmp(name, "lo") == 0 || strcmp(state, "down") == 0)
        return;
    nic = nic_called(node, name, 0);
    read_device(node, folder, nic);
    topo_node_set_text(&nic->state, state);
    topo_node_set_text(&nic->fabric, type == 32 ? "InfiniBand" : type == 1 ? "Ethernet" : "");
    nic->bandwidth = megabits > 0 ? megabits * 1e6 / 8 : 0;
}

/* Without hwloc: display and 3D controllers of those who make accelerators. */
static void visit_pci(struct topo_node *node, const char *folder, const char *name)
{
    static const struct { const char *vendor, *text; } makers[] = {
        { "0x10de", "NVIDIA GPU" }, { "0x1002", "AMD GPU" }, { "0x8086", "Intel GPU" },
    };
    char class[16], vendor[16];
    struct topo_gpu *gpu;

    read_line(folder, "class", class, sizeof(class));
    read_line(folder, "vendor", vendor, sizeof(vendor));
    if (strncmp(class, "0x0300", 6) && strncmp(class, "0x0302", 6))
        return;
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
        if (strcmp(vendor, makers[i].vendor) == 0) {
            gpu = topo_node_add_gpu(node, name);
            topo_node_set_text(&gpu->name, makers[i].text);
            gpu->numa = read_int(folder, "numa_node", 4096);
        }
}

/* -1: there is no such folder. */
static int each_entry(const char *root, const char *class, struct topo_node *node,
                      void (*visit)(struct topo_node *, const char *folder, const char *name))
{
    char *folder = mem_printf("%s/%s", root, class);
    struct dirent **names;
    int n = scandir(folder, &names, NULL, versionsort);

    for (int i = 0; i < n; i++) {
        char *path = mem_printf("%s/%s", folder, names[i]->d_name);

        if (names[i]->d_name[0] != '.')
            visit(node, path, names[i]->d_name);
        free(path);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    free(folder);
    return n < 0 ? -1 : 0;
}

static int read_sysfs(struct topo_node *node, const struct topo_input *input, struct err *err)
{
    int hcas, interfaces;

    (void)err;
    if (!input->sys)
        return 0;
    hcas = each_entry(input->sys, "class/infiniband", node, visit_hca);
    interfaces = each_entry(input->sys, "class/net", node, visit_interface);
    if (node->n_pcis == 0 && node->n_gpus == 0)
        each_entry(input->sys, "bus/pci/devices", node, visit_pci);
    if (interfaces && hcas)
        topo_node_say(node, "sysfs", TOPO_ABSENT, "neither class/infiniband nor class/net");
    else
        topo_node_say(node, "sysfs", TOPO_USED, "%s",
                      hcas ? "class/net; no class/infiniband" : "class/infiniband, class/net");
    return 0;
}

const struct topo_source topo_source_sysfs = { "sysfs", read_sysfs };
