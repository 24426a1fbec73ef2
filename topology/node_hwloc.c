/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "base/err.h"
#include "topology/node_apart.h"
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
#include "base/order.h"

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

static int info_number(hwloc_obj_t object, const char *name)
{
    const char *text = hwloc_obj_get_info_by_name(object, name);
    char *end;
    long value = text ? strtol(text, &end, 10) : -1;

    return value >= 0 && value <= 4096 && end != text ? (int)value : -1;
}

static void read_model(hwloc_topology_t topology, struct topo_node *node)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const char *vendor = package ? hwloc_obj_get_info_by_name(package, "CPUVendor") : NULL;

    if (vendor)
        topo_node_set_text(&node->cpu_vendor, vendor);
    if (package) {
        node->cpu_family = info_number(package, "CPUFamilyNumber");
        node->cpu_model = info_number(package, "CPUModelNumber");
    }
}

/* A machine that is only described: everything that the process knows of itself is void. */
static void read_foreign(hwloc_topology_t topology, struct topo_node *node, const char *xml)
{
    hwloc_obj_t root = hwloc_get_root_obj(topology), package;
    const char *host = hwloc_obj_get_info_by_name(root, "HostName");
    const char *slash = strrchr(xml, '/'), *cpu, *arch;

    topo_node_set_text(&node->host, host ? host : slash ? slash + 1 : xml);
    topo_node_set_text(&node->source, xml);
    package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    cpu = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    if (cpu)
        topo_node_set_text(&node->cpu, cpu);
    arch = hwloc_obj_get_info_by_name(root, "Architecture");
    if (arch)
        topo_node_set_text(&node->arch, arch);
    node->memory = (double)root->total_memory;
    node->usable = mem_new((size_t)node->pus, sizeof(*node->usable));
    for (int i = 0; i < node->pus; i++) {
        hwloc_obj_t pu = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, (unsigned)i);

        node->usable[node->n_usable++] = (int)pu->os_index;
    }
    /* Threads of a core come one after the other, whatever their numbers. */
    qsort(node->usable, (size_t)node->n_usable, sizeof(int), order_ints);
}

static int numa_of(hwloc_topology_t topology, hwloc_obj_t object)
{
    hwloc_obj_t parent = hwloc_get_non_io_ancestor_obj(topology, object);
    int first = parent && parent->nodeset ? hwloc_bitmap_first(parent->nodeset) : -1;

    /* Below the whole machine it is near to no node in particular. */
    return first >= 0 && hwloc_bitmap_weight(parent->nodeset) == 1 ? first : -1;
}

static void read_numas(hwloc_topology_t topology, struct topo_node *node)
{
    hwloc_obj_t object = NULL;

    while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object))) {
        hwloc_obj_t package =
            hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object->parent);
        struct topo_numa *numa = topo_node_add_numa(node, (int)object->os_index);
        char *cpus = NULL;

        if (object->parent->type == HWLOC_OBJ_PACKAGE)
            package = object->parent;
        numa->package = package ? (int)package->os_index : -1;
        numa->memory = (double)object->attr->numanode.local_memory;
        if (object->cpuset && hwloc_bitmap_list_asprintf(&cpus, object->cpuset) >= 0)
            topo_node_set_text(&numa->cpus, cpus);
        free(cpus);
    }
}

static void pci_address(hwloc_obj_t pci, char *text, size_t size)
{
    const struct hwloc_pcidev_attr_s *a = &pci->attr->pcidev;

    snprintf(text, size, "%04x:%02x:%02x.%01x", (unsigned)a->domain, a->bus, a->dev, a->func);
}

static struct topo_pci *add_host_bridge(struct topo_node *node, hwloc_obj_t object)
{
    const struct hwloc_bridge_attr_s *a = &object->attr->bridge;
    char buses[64];

    snprintf(buses, sizeof(buses), "%04x:[%02x-%02x]", (unsigned)a->downstream.pci.domain,
             a->downstream.pci.secondary_bus, a->downstream.pci.subordinate_bus);
    return topo_node_add_pci(node, TOPO_PCI_HOST, buses);
}

static void name_pci(struct topo_pci *pci, hwloc_obj_t object)
{
    const char *vendor = hwloc_obj_get_info_by_name(object, "PCIVendor");
    const char *device = hwloc_obj_get_info_by_name(object, "PCIDevice");
    char name[256];

    snprintf(name, sizeof(name), "%s%s%s", vendor ? vendor : "", vendor && device ? " " : "",
             device ? device : "");
    topo_node_set_text(&pci->name, name);
}

/* Bridges, displays and accelerators, and networks; not disks. */
static bool is_wanted(hwloc_obj_t object)
{
    int class = object->attr->pcidev.class_id >> 8;

    return object->type == HWLOC_OBJ_BRIDGE || class == 0x02 || class == 0x03 ||
           class == 0x12 || object->attr->pcidev.class_id == 0x0b40 ||
           object->attr->pcidev.class_id == 0x0c06;
}

static void read_pcis(hwloc_topology_t topology, struct topo_node *node, hwloc_obj_t parent,
                      int above)
{
    for (hwloc_obj_t o = parent->io_first_child; o; o = o->next_sibling) {
        bool host = o->type == HWLOC_OBJ_BRIDGE &&
                    o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
        struct topo_pci *pci;
        char address[32];

        if ((o->type != HWLOC_OBJ_BRIDGE && o->type != HWLOC_OBJ_PCI_DEVICE) ||
            !(host || is_wanted(o)))
            continue;
        if (host) {
            pci = add_host_bridge(node, o);
        } else {
            /* A bridge's PCI attributes start as a device's do. */
            pci_address(o, address, sizeof(address));
            pci = topo_node_add_pci(node, o->type == HWLOC_OBJ_BRIDGE ? TOPO_PCI_BRIDGE
                                                                     : TOPO_PCI_DEVICE,
                                    address);
            pci->class = o->attr->pcidev.class_id;
            pci->vendor = o->attr->pcidev.vendor_id;
            pci->device = o->attr->pcidev.device_id;
            pci->bandwidth = o->attr->pcidev.linkspeed * 1e9;
            name_pci(pci, o);
        }
        pci->parent = host ? -1 : above;
        pci->numa = numa_of(topology, o);
        read_pcis(topology, node, o, node->n_pcis - 1);
    }
}

static void read_all_pcis(hwloc_topology_t topology, struct topo_node *node, hwloc_obj_t object)
{
    read_pcis(topology, node, object, -1);
    for (hwloc_obj_t child = object->first_child; child; child = child->next_sibling)
        read_all_pcis(topology, node, child);
}

static bool is_gpu(const struct topo_pci *pci)
{
    bool maker = pci->vendor == 0x10de || pci->vendor == 0x1002 || pci->vendor == 0x8086;

    return maker && (pci->class == 0x0300 || pci->class == 0x0302 || pci->class == 0x0380 ||
                     pci->class >> 8 == 0x12);
}

/* Until a driver's own library names them. */
static void read_gpus(struct topo_node *node)
{
    for (int i = 0; i < node->n_pcis; i++) {
        const struct topo_pci *pci = &node->pcis[i];
        struct topo_gpu *gpu;
        char name[32];

        if (!is_gpu(pci))
            continue;
        gpu = topo_node_add_gpu(node, pci->address);
        gpu->numa = pci->numa;
        snprintf(name, sizeof(name), "GPU %04x:%04x", (unsigned)pci->vendor,
                 (unsigned)pci->device);
        topo_node_set_text(&gpu->name, pci->name[0] ? pci->name : name);
    }
}

static void read_nics(hwloc_topology_t topology, struct topo_node *node)
{
    hwloc_obj_t os = NULL;

    while ((os = hwloc_get_next_osdev(topology, os))) {
        hwloc_obj_osdev_type_t type = os->attr->osdev.type;
        struct topo_nic *nic;
        char address[32] = "";

        if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS)
            continue;
        if (os->parent->type == HWLOC_OBJ_PCI_DEVICE)
            pci_address(os->parent, address, sizeof(address));
        nic = topo_node_add_nic(node, os->name ? os->name : "",
                                type == HWLOC_OBJ_OSDEV_OPENFABRICS);
        nic->hca = type == HWLOC_OBJ_OSDEV_OPENFABRICS;
        topo_node_set_text(&nic->address, address);
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

static void read_all(hwloc_topology_t topology, struct topo_node *node)
{
    read_processors(topology, node);
    read_model(topology, node);
    read_numas(topology, node);
    read_all_pcis(topology, node, hwloc_get_root_obj(topology));
    read_gpus(node);
    read_nics(topology, node);
}

static int read_topology(struct topo_node *node, const char *xml, struct err *err)
{
    unsigned version = hwloc_get_api_version();
    hwloc_topology_t topology;
    char source[64];
    int status;

    LEAKS_BEGIN();
    status = load(&topology, xml, err);
    LEAKS_END();
    if (status)
        return -1;
    snprintf(source, sizeof(source), "hwloc %u.%u", version >> 16, version >> 8 & 0xff);
    topo_node_say(node, "hwloc", TOPO_USED, "%s", xml ? "its XML" : source);
    topo_node_set_text(&node->source, source);
    read_all(topology, node);
    if (xml)
        read_foreign(topology, node, xml);
    hwloc_topology_destroy(topology);
    return 0;
}

int topo_node_read_xml(struct topo_node *node, const char *xml, struct err *err)
{
    return read_topology(node, xml, err);
}

static int read_live(struct topo_node *node, const struct topo_input *input, struct err *err)
{
    return input->live ? read_topology(node, NULL, err) : 0;
}

#else

int topo_node_read_xml(struct topo_node *node, const char *xml, struct err *err)
{
    (void)node;
    return err_set(err, "%s: this tasuki was built without hwloc", xml);
}

static int read_live(struct topo_node *node, const struct topo_input *input, struct err *err)
{
    (void)input;
    (void)err;
    topo_node_say(node, "hwloc", TOPO_ABSENT, "this tasuki was built without it");
    return 0;
}

#endif

const struct topo_source topo_source_hwloc = { "hwloc", read_live };
