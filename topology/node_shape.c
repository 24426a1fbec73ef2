/* SPDX-License-Identifier: MIT */
#include "topology/node_shape.h"

#include "topology/node.h"

#define MOST_PUS 65536
#define MOST_DEVICES 4096
#define MOST_LINKS 64
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

#define TEXT(type, member) { .key = #member, .kind = SHAPE_TEXT, .at = offsetof(type, member) }
#define FLAG(type, member) { .key = #member, .kind = SHAPE_BOOL, .at = offsetof(type, member) }
#define REAL(type, member) { .key = #member, .kind = SHAPE_REAL, .at = offsetof(type, member) }
#define INT(type, member, unknown, top)                                                  \
    { .key = #member, .kind = SHAPE_INT, .at = offsetof(type, member), .none = unknown, \
      .most = top }
#define BIG(type, member)                                                                \
    { .key = #member, .kind = SHAPE_COUNT, .at = offsetof(type, member), .none = -1 }
#define MANY(type, member, list_kind, inner, unknown, top)                               \
    { .key = #member, .kind = list_kind, .at = offsetof(type, member),                   \
      .count_at = offsetof(type, n_##member), .shape = inner, .none = unknown, .most = top }

static const char *const pci_kinds[] = { "host", "bridge", "device", NULL };
static const char *const remotes[] = { "gpu", "switch", "cpu", "unknown", NULL };
static const char *const states[] = { "used", "absent", "failed", NULL };

static const struct shape_field numa_fields[] = {
    INT(struct topo_numa, id, 0, MOST_PUS), INT(struct topo_numa, package, -1, MOST_PUS),
    REAL(struct topo_numa, memory), TEXT(struct topo_numa, cpus),
};
static const struct shape numa_shape = { sizeof(struct topo_numa), COUNT(numa_fields),
                                         numa_fields };

static const struct shape_field pci_fields[] = {
    { .key = "kind", .kind = SHAPE_WORD, .at = offsetof(struct topo_pci, kind),
      .words = pci_kinds },
    TEXT(struct topo_pci, address), INT(struct topo_pci, parent, -1, MOST_DEVICES),
    INT(struct topo_pci, numa, -1, MOST_PUS), INT(struct topo_pci, class, 0, 0xffff),
    INT(struct topo_pci, vendor, 0, 0xffff), INT(struct topo_pci, device, 0, 0xffff),
    REAL(struct topo_pci, bandwidth), TEXT(struct topo_pci, name),
};
static const struct shape pci_shape = { sizeof(struct topo_pci), COUNT(pci_fields),
                                        pci_fields };

static const struct shape_field link_fields[] = {
    INT(struct topo_nvlink, link, 0, MOST_LINKS - 1), INT(struct topo_nvlink, up, -1, 1),
    REAL(struct topo_nvlink, bandwidth),
    { .key = "remote", .kind = SHAPE_WORD, .at = offsetof(struct topo_nvlink, remote),
      .words = remotes },
    TEXT(struct topo_nvlink, address),
};
static const struct shape link_shape = { sizeof(struct topo_nvlink), COUNT(link_fields),
                                         link_fields };

static const struct shape_field mig_fields[] = {
    TEXT(struct topo_mig, uuid), TEXT(struct topo_mig, name), REAL(struct topo_mig, memory),
};
static const struct shape mig_shape = { sizeof(struct topo_mig), COUNT(mig_fields),
                                        mig_fields };

const struct shape_field topo_field_links =
    MANY(struct topo_gpu, links, SHAPE_LIST, &link_shape, -1, MOST_LINKS);
const struct shape_field topo_field_migs =
    MANY(struct topo_gpu, migs, SHAPE_LIST, &mig_shape, 0, 64);

static const struct shape_field gpu_fields[] = {
    TEXT(struct topo_gpu, name), TEXT(struct topo_gpu, address), TEXT(struct topo_gpu, uuid),
    FLAG(struct topo_gpu, seen), INT(struct topo_gpu, numa, -1, MOST_PUS),
    REAL(struct topo_gpu, memory),
    INT(struct topo_gpu, compute, -1, 10000), INT(struct topo_gpu, pcie_gen, -1, 64),
    INT(struct topo_gpu, pcie_width, -1, 64), INT(struct topo_gpu, pcie_max_gen, -1, 64),
    INT(struct topo_gpu, pcie_max_width, -1, 64),
    MANY(struct topo_gpu, links, SHAPE_LIST, &link_shape, -1, MOST_LINKS),
    INT(struct topo_gpu, mig, -1, 1),
    MANY(struct topo_gpu, migs, SHAPE_LIST, &mig_shape, 0, 64),
    INT(struct topo_gpu, ecc, -1, 1), BIG(struct topo_gpu, ecc_corrected),
    BIG(struct topo_gpu, ecc_uncorrected), BIG(struct topo_gpu, remapped_rows),
    INT(struct topo_gpu, remap_failure, -1, 1), INT(struct topo_gpu, clock, -1, 1 << 20),
    INT(struct topo_gpu, max_clock, -1, 1 << 20), BIG(struct topo_gpu, throttle),
    TEXT(struct topo_gpu, p2p), MANY(struct topo_gpu, faults, SHAPE_TEXTS, NULL, 0, 256),
};
static const struct shape gpu_shape = { sizeof(struct topo_gpu), COUNT(gpu_fields),
                                        gpu_fields };

static const struct shape_field nic_fields[] = {
    TEXT(struct topo_nic, name), TEXT(struct topo_nic, fabric), FLAG(struct topo_nic, hca),
    INT(struct topo_nic, port, 0, 255), TEXT(struct topo_nic, address),
    INT(struct topo_nic, numa, -1, MOST_PUS), REAL(struct topo_nic, bandwidth),
    TEXT(struct topo_nic, rate), TEXT(struct topo_nic, state), TEXT(struct topo_nic, guid),
    INT(struct topo_nic, lid, -1, 0xffffff), INT(struct topo_nic, pcie_width, -1, 64),
    INT(struct topo_nic, pcie_max_width, -1, 64), REAL(struct topo_nic, pcie_speed),
    REAL(struct topo_nic, pcie_max_speed),
};
static const struct shape nic_shape = { sizeof(struct topo_nic), COUNT(nic_fields),
                                        nic_fields };

static const struct shape_field said_fields[] = {
    TEXT(struct topo_said, name),
    { .key = "state", .kind = SHAPE_WORD, .at = offsetof(struct topo_said, state),
      .words = states },
    TEXT(struct topo_said, text),
};
static const struct shape said_shape = { sizeof(struct topo_said), COUNT(said_fields),
                                         said_fields };

#define NODE struct topo_node
#define NEEDED(member)                                                                    \
    { .key = #member, .kind = SHAPE_INT, .at = offsetof(NODE, member), .most = MOST_PUS,   \
      .required = true }
const struct shape_field topo_field_numas =
    MANY(NODE, numas, SHAPE_LIST, &numa_shape, 0, MOST_DEVICES);
const struct shape_field topo_field_pcis =
    MANY(NODE, pcis, SHAPE_LIST, &pci_shape, 0, MOST_DEVICES);
const struct shape_field topo_field_gpus = MANY(NODE, gpus, SHAPE_LIST, &gpu_shape, 0, 256);
const struct shape_field topo_field_nics =
    MANY(NODE, nics, SHAPE_LIST, &nic_shape, 0, MOST_DEVICES);
const struct shape_field topo_field_said = MANY(NODE, said, SHAPE_LIST, &said_shape, 0, 64);

static const struct shape_field node_fields[] = {
    { .key = "host", .kind = SHAPE_TEXT, .at = offsetof(NODE, host), .required = true },
    TEXT(NODE, machine), TEXT(NODE, cpu), TEXT(NODE, cpu_vendor),
    INT(NODE, cpu_family, -1, 4096), INT(NODE, cpu_model, -1, 4096), TEXT(NODE, arch),
    TEXT(NODE, source), TEXT(NODE, driver), TEXT(NODE, switches), INT(NODE, packages, 0, MOST_PUS),
    INT(NODE, numa_nodes, 0, MOST_PUS), NEEDED(cores),
    NEEDED(pus), REAL(NODE, l2), REAL(NODE, l3), REAL(NODE, memory),
    REAL(NODE, flops),
    INT(NODE, gpudirect, -1, 1), TEXT(NODE, gpudirect_by), INT(NODE, isolated, -1, 1),
    TEXT(NODE, container), TEXT(NODE, pmix_client), TEXT(NODE, pmix_server),
    MANY(NODE, usable, SHAPE_SET, NULL, 0, MOST_PUS - 1),
    MANY(NODE, numas, SHAPE_LIST, &numa_shape, 0, MOST_DEVICES),
    MANY(NODE, pcis, SHAPE_LIST, &pci_shape, 0, MOST_DEVICES),
    MANY(NODE, gpus, SHAPE_LIST, &gpu_shape, 0, 256),
    MANY(NODE, nics, SHAPE_LIST, &nic_shape, 0, MOST_DEVICES),
    MANY(NODE, visible, SHAPE_INTS, NULL, -1, 256),
    MANY(NODE, partitions, SHAPE_TEXTS, NULL, 0, 256),
    MANY(NODE, notes, SHAPE_TEXTS, NULL, 0, 256),
    MANY(NODE, said, SHAPE_LIST, &said_shape, 0, 64),
};
const struct shape topo_node_shape = { sizeof(struct topo_node), COUNT(node_fields),
                                       node_fields };
