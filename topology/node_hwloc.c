/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "base/err.h"
#include "topology/node_read.h"

#ifdef HAVE_HWLOC

/* Its inline functions do not pass our warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wconversion"
#include <hwloc.h>
#pragma GCC diagnostic pop
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

/* hwloc's PCI plugin leaks and is unloaded, so that no list of suppressions can name it. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#define LEAKS_BEGIN() __lsan_disable()
#define LEAKS_END() __lsan_enable()
#else
#define LEAKS_BEGIN() ((void)0)
#define LEAKS_END() ((void)0)
#endif

static int count(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(topology, type);

    return n > 0 ? n : 0;
}

static double cache_size(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);

    return cache ? (double)cache->attr->cache.size : 0;
}

static void read_processors(hwloc_topology_t topology, struct topo_node *node)
{
    int cores = count(topology, HWLOC_OBJ_CORE);
    double l2 = cache_size(topology, HWLOC_OBJ_L2CACHE);
    double l3 = cache_size(topology, HWLOC_OBJ_L3CACHE);

    node->pus = count(topology, HWLOC_OBJ_PU);
    node->cores = cores ? cores : node->pus;
    node->packages = count(topology, HWLOC_OBJ_PACKAGE);
    node->numa_nodes = count(topology, HWLOC_OBJ_NUMANODE);
    node->l2 = l2 > 0 ? l2 : node->l2;
    node->l3 = l3 > 0 ? l3 : node->l3;
}

/* A machine that is only described: everything that the process knows of itself is void. */
static void read_foreign(hwloc_topology_t topology, struct topo_node *node, const char *xml)
{
    hwloc_obj_t root = hwloc_get_root_obj(topology), package;
    const char *host = hwloc_obj_get_info_by_name(root, "HostName");
    const char *slash = strrchr(xml, '/'), *cpu;

    topo_node_set_text(&node->host, host ? host : slash ? slash + 1 : xml);
    topo_node_set_text(&node->source, xml);
    package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    cpu = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    if (cpu)
        topo_node_set_text(&node->cpu, cpu);
    node->memory = (double)root->total_memory;
    node->usable = mem_new((size_t)node->pus, sizeof(*node->usable));
    for (int i = 0; i < node->pus; i++) {
        hwloc_obj_t pu = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, (unsigned)i);

        node->usable[node->n_usable++] = (int)pu->os_index;
    }
}

static int numa_of(hwloc_topology_t topology, hwloc_obj_t object)
{
    hwloc_obj_t parent = hwloc_get_non_io_ancestor_obj(topology, object);
    int first = parent && parent->nodeset ? hwloc_bitmap_first(parent->nodeset) : -1;

    /* Below the whole machine it is near to no node in particular. */
    return first >= 0 && hwloc_bitmap_weight(parent->nodeset) == 1 ? first : -1;
}

static void pci_address(hwloc_obj_t pci, char *text, size_t size)
{
    const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;

    snprintf(text, size, "%04x:%02x:%02x.%01x", (unsigned)a->domain, a->bus, a->dev, a->func);
}

static bool is_gpu(hwloc_obj_t pci)
{
    const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;

    return (a->class_id == 0x0300 || a->class_id == 0x0302) &&
           (a->vendor_id == 0x10de || a->vendor_id == 0x1002 || a->vendor_id == 0x8086);
}

static void read_gpus(hwloc_topology_t topology, struct topo_node *node)
{
    hwloc_obj_t pci = NULL;

    while ((pci = hwloc_get_next_pcidev(topology, pci))) {
        const char *vendor = hwloc_obj_get_info_by_name(pci, "PCIVendor");
        const char *device = hwloc_obj_get_info_by_name(pci, "PCIDevice");
        char address[32], name[256];
        struct topo_device *gpu;

        if (!is_gpu(pci))
            continue;
        pci_address(pci, address, sizeof(address));
        if (device)
            snprintf(name, sizeof(name), "%s%s%s", vendor ? vendor : "", vendor ? " " : "",
                     device);
        else
            snprintf(name, sizeof(name), "GPU %04x:%04x", pci->attr->pcidev.vendor_id,
                     pci->attr->pcidev.device_id);
        gpu = topo_node_add_device(node, TOPO_GPU, name, address);
        gpu->numa = numa_of(topology, pci);
    }
}

static void read_nics(hwloc_topology_t topology, struct topo_node *node)
{
    hwloc_obj_t os = NULL;

    while ((os = hwloc_get_next_osdev(topology, os))) {
        hwloc_obj_osdev_type_t type = os->attr->osdev.type;
        struct topo_device *nic;
        char address[32] = "";

        if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS)
            continue;
        if (os->parent->type == HWLOC_OBJ_PCI_DEVICE)
            pci_address(os->parent, address, sizeof(address));
        nic = topo_node_add_device(node, TOPO_NIC, os->name ? os->name : "", address);
        nic->numa = numa_of(topology, os);
    }
}

static int load(hwloc_topology_t *topology, const char *xml, struct err *err)
{
    const char *what = xml ? xml : "this node";

    if (hwloc_topology_init(topology))
        return err_set(err, "%s: hwloc cannot start", what);
    hwloc_topology_set_io_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (xml && hwloc_topology_set_xml(*topology, xml)) {
        err_set(err, "%s: %s", what, errno == ENOENT ? "No such file or directory"
                                                     : "not a topology in hwloc's XML");
    } else if (hwloc_topology_load(*topology)) {
        err_set(err, "%s: hwloc cannot make a topology of it", what);
    } else {
        return 0;
    }
    hwloc_topology_destroy(*topology);
    return -1;
}

int topo_node_read_hwloc(struct topo_node *node, const char *xml, struct err *err)
{
    hwloc_topology_t topology;
    unsigned version = hwloc_get_api_version();
    char source[64];
    int status;

    LEAKS_BEGIN();
    status = load(&topology, xml, err);
    LEAKS_END();
    if (status)
        return -1;
    snprintf(source, sizeof(source), "hwloc %u.%u", version >> 16, version >> 8 & 0xff);
    topo_node_set_text(&node->source, source);
    read_processors(topology, node);
    /* Of the NICs of this machine /sys knows the speed as well. */
    if (xml) {
        read_foreign(topology, node, xml);
        read_nics(topology, node);
    }
    if (count(topology, HWLOC_OBJ_PCI_DEVICE) > 0 || xml) {
        topo_node_clear_devices(node, TOPO_GPU);
        read_gpus(topology, node);
    }
    hwloc_topology_destroy(topology);
    return 0;
}

#else

int topo_node_read_hwloc(struct topo_node *node, const char *xml, struct err *err)
{
    (void)node;
    if (xml)
        return err_set(err, "%s: this tasuki was built without hwloc", xml);
    return 0;
}

#endif
