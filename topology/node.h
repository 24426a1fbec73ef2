/* SPDX-License-Identifier: MIT */
/* This node: packages, NUMA, cores, caches, memory, PCI tree, GPUs, NICs, and what of it the
 * process may use.
 *
 * Several sources fill it one after the other (node_read.h): /proc and /sys, hwloc, NVML, the
 * environment. What they say of the same thing is joined by PCI address, never by index.
 * "Not collected" is -1, "" or 0 as noted at each field, and is never "none".
 */
#ifndef TASUKI_TOPOLOGY_NODE_H
#define TASUKI_TOPOLOGY_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

struct err;

struct topo_numa {
    int id, package;        /* as the system numbers them; package -1: not known */
    double memory;          /* bytes, 0: not known */
    char *cpus;             /* its PUs: "0-19,40-59"; "": not known */
};

enum topo_pci_kind { TOPO_PCI_HOST, TOPO_PCI_BRIDGE, TOPO_PCI_DEVICE };

/* A bridge, or a device that is a GPU or a NIC. Bridges stand before what is below them. */
struct topo_pci {
    int kind;               /* enum topo_pci_kind */
    char *address;          /* "0000:1b:00.0"; of a host bridge its buses: "0000:[10-1f]" */
    int parent;             /* index of the bridge above, -1: none, as for host bridges */
    int numa;               /* -1: near to none in particular, or not known */
    int class, vendor, device;  /* 0x0302, 0x10de, 0x2330 */
    double bandwidth;       /* bytes/s of the link above, 0: not known */
    char *name;
};

enum topo_remote { TOPO_REMOTE_GPU, TOPO_REMOTE_SWITCH, TOPO_REMOTE_CPU, TOPO_REMOTE_UNKNOWN };

struct topo_nvlink {
    int link;
    int up;                 /* 1, 0: the link is there but inactive, -1: not known */
    double bandwidth;       /* bytes/s each way, 0: not known */
    int remote;             /* enum topo_remote */
    char *address;          /* PCI address of what is at the other end, "": not known */
};

struct topo_mig {
    char *uuid, *name;      /* "MIG-…", "… MIG 3g.40gb" */
    double memory;
};

struct topo_gpu {
    char *name;             /* "NVIDIA H100 80GB HBM3" */
    char *address;          /* "0000:1b:00.0" */
    char *uuid;             /* "GPU-…"; "": not known */
    bool seen;              /* the driver shows it to this process */
    int numa;
    double memory;          /* bytes, 0: not known */
    int compute;            /* compute capability 9.0 is 90; -1: not known */
    int pcie_gen, pcie_width, pcie_max_gen, pcie_max_width;     /* -1: not known */
    int n_links;            /* NVLinks that exist; -1: not collected */
    struct topo_nvlink *links;
    int mig;                /* 1: partitioned, 0: not, -1: not known */
    int n_migs;
    struct topo_mig *migs;
    int ecc;                /* 1: on, 0: off, -1: not known */
    int64_t ecc_corrected, ecc_uncorrected;     /* since the driver was loaded, -1: not known */
    int64_t remapped_rows;  /* for uncorrectable errors; -1: not known */
    int remap_failure;      /* 1, 0, -1 */
    int clock, max_clock;   /* MHz of the SMs, -1: not known */
    int64_t throttle;       /* bits of enum topo_throttle, -1: not known */
    char *p2p;              /* a letter for each GPU of the node, see topo_p2p_text(); "" */
    int n_faults;           /* what the driver could not say: "nvmlDeviceGetName: …" */
    char **faults;
};

enum topo_throttle {        /* NVML's bits */
    TOPO_THROTTLE_IDLE = 0x1, TOPO_THROTTLE_CLOCKS_SET = 0x2, TOPO_THROTTLE_POWER_CAP = 0x4,
    TOPO_THROTTLE_SLOWDOWN = 0x8, TOPO_THROTTLE_SYNC = 0x10, TOPO_THROTTLE_SW_THERMAL = 0x20,
    TOPO_THROTTLE_HW_THERMAL = 0x40, TOPO_THROTTLE_POWER_BRAKE = 0x80,
    TOPO_THROTTLE_DISPLAY = 0x100,
    /* those that make a GPU slower than its siblings under the same load */
    TOPO_THROTTLE_HARMFUL = 0x8 | 0x20 | 0x40 | 0x80
};

struct topo_nic {
    char *name;             /* "mlx5_0", "hfi1_0", "eth0" */
    char *fabric;           /* "InfiniBand", "Ethernet", "Omni-Path": the link layer; "" */
    bool hca;               /* has verbs; otherwise a network interface of the system */
    int port;               /* of an HCA, from 1; 0: interfaces */
    char *address;          /* "": not on PCI */
    int numa;
    double bandwidth;       /* bytes/s, 0: not known */
    char *rate;             /* as the driver words it: "200 Gb/sec (4X HDR)" */
    char *state;            /* "ACTIVE", "DOWN", …; "": not known */
    char *guid;             /* of the port's HCA, "" */
    int lid;                /* -1: not known, 0: none yet */
    int pcie_width, pcie_max_width;     /* -1: not known */
    double pcie_speed, pcie_max_speed;  /* GT/s, 0: not known */
};

enum topo_state { TOPO_USED, TOPO_ABSENT, TOPO_FAILED };

/* Who was asked, and what came of it. */
struct topo_said {
    char *name;             /* "hwloc", "nvml" */
    int state;              /* enum topo_state */
    char *text;             /* its version, or why not */
};

struct topo_node {
    char *host;
    char *machine;          /* the same for nodes that are virtual on one machine; "" unknown */
    char *cpu;              /* "Intel(R) Xeon(R) …" */
    char *cpu_vendor;       /* "GenuineIntel", "AuthenticAMD"; "" */
    int cpu_family, cpu_model;      /* x86's numbers, -1: not known */
    char *arch;             /* "x86_64", "aarch64"; "" unknown */
    char *source;           /* "hwloc 2.9.0", "/proc", the XML file */
    char *driver;           /* of the GPUs; "" unknown */
    char *switches;         /* above it, from the top: "/spine/leaf1"; "/": none is known; "":
                             * not collected */
    int packages, numa_nodes, cores, pus;   /* PUs are hardware threads */
    double l2, l3;          /* bytes of one cache, 0: none or not known */
    double memory;          /* bytes, as far as this job may use them */
    double flops;           /* of one core, float32/s by clock and vector width; 0 unknown */
    int gpudirect;          /* 1: adapters reach the memory of GPUs, 0: not, -1: not known */
    char *gpudirect_by;     /* "nvidia_peermem", "DMA-BUF", or why it is not, or not known */
    int isolated;           /* 1: Slurm shows a task only its own GPUs, 0: not, -1: not known */
    char *container;        /* "Apptainer": this process runs inside of one; "" */
    char *pmix_client, *pmix_server;    /* versions of this program's and the launcher's, asked
                                         * for inside a container alone; "": there is none */
    int n_usable;           /* PUs this process may run on */
    int *usable;
    int n_numas;
    struct topo_numa *numas;
    int n_pcis;             /* 0: the PCI tree is not known */
    struct topo_pci *pcis;
    int n_gpus;
    struct topo_gpu *gpus;  /* by PCI address, which is the driver's order */
    int n_nics;
    struct topo_nic *nics;
    int n_visible;          /* GPUs that CUDA shows this process; -1: all, nothing limits it */
    int *visible;           /* their indices in gpus, in CUDA's order */
    int n_partitions;       /* parts of these by MIG that CUDA shows it; 0: GPUs are named */
    char **partitions;      /* their UUIDs */
    int n_notes;            /* how that came about, and other remarks, a line each */
    char **notes;
    int n_said;
    struct topo_said *said;
};

/* Look at this node, or at the one that 'input' describes: an hwloc XML file, or a folder with
 * hwloc.xml, sys/ and proc/ (copies of what is read there) and environment (KEY=VALUE lines).
 * XML is read in a child process: the library is known to crash on some mutated files.
 * NULL: what HWLOC_XMLFILE says, else this node.
 */
struct topo_node *topo_node_discover(const char *input, struct err *err);
void topo_node_free(struct topo_node *node);

/* Does the file start as JSON does? Otherwise it is for topo_node_discover(). */
bool topo_is_json(const char *path);

/* What ranks send to each other, and what recordings hold (tasuki-topo(5)). */
json_t *topo_node_to_json(const struct topo_node *node);
struct topo_node *topo_node_from_json(const char *what, const json_t *json, struct err *err);

/* Indices by PCI address; -1: not there. */
int topo_node_find_pci(const struct topo_node *node, const char *address);
int topo_node_find_gpu(const struct topo_node *node, const char *address);
/* Those that CUDA shows this process, in its order: indices in gpus, malloc'ed. */
int *topo_node_shown(const struct topo_node *node, int *n);
/* Does PCI say that it is NVIDIA's, whatever the driver shows? */
bool topo_node_is_nvidia(const struct topo_node *node, const struct topo_gpu *gpu);

/* What said of a source: NULL where it was not asked. */
const struct topo_said *topo_node_said(const struct topo_node *node, const char *source);

/* A letter of topo_gpu.p2p in words: "" for 'K' (it works), "not known" for '?'. */
const char *topo_p2p_text(char letter);

#endif
