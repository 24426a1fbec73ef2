/* SPDX-License-Identifier: MIT */
/* Sources of node.c: each fills what it knows over what is there already. */
#ifndef TASUKI_TOPOLOGY_NODE_READ_H
#define TASUKI_TOPOLOGY_NODE_READ_H

#include "topology/node.h"

/* Where sources look; a recording has the files of another machine. */
struct topo_input {
    bool live;              /* this machine: what a recording lacks is not asked of it */
    const char *xml;        /* hwloc's file; NULL: live, or none */
    const char *sys;        /* what stands for /sys; NULL: none */
    const char *proc;       /* what stands for /proc, of GPUDirect only; NULL: none */
    const char *nvml;       /* path of the library; NULL: none */
    const char *variables;  /* "NAME=VALUE" lines; NULL: this process's environment */
};

/* An environment variable, malloc'ed; NULL where it is not set. */
char *topo_input_variable(const struct topo_input *input, const char *name);

/* A source that has nothing to say returns 0 and notes TOPO_ABSENT; -1 only where the user
 * asked for something that cannot be had.
 */
struct topo_source {
    const char *name;
    int (*read)(struct topo_node *node, const struct topo_input *input, struct err *err);
};

extern const struct topo_source topo_source_proc;   /* /proc, sysconf(): roughly everything */
extern const struct topo_source topo_source_hwloc;  /* processors, memory, PCI tree, names */
extern const struct topo_source topo_source_sysfs;  /* class/infiniband, class/net */
extern const struct topo_source topo_source_nvml;   /* NVIDIA's GPUs */
extern const struct topo_source topo_source_gpudirect;  /* /sys/module, /proc/driver/nvidia */
extern const struct topo_source topo_source_visible;/* CUDA_VISIBLE_DEVICES, Slurm's lists */
extern const struct topo_source topo_source_switches;   /* SLURM_TOPOLOGY_ADDR */
extern const struct topo_source topo_source_container;  /* what it hides of its host */

/* Notes that begin so tell what a container hides: the check's findings. */
#define TOPO_HIDDEN "container: "

struct topo_node *topo_node_new(void);
void topo_node_set_text(char **text, const char *value);
/* In place of what the source said before. */
void topo_node_say(struct topo_node *node, const char *source, enum topo_state state,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));
void topo_node_note(struct topo_node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A new element with everything "not known". */
struct topo_numa *topo_node_add_numa(struct topo_node *node, int id);
struct topo_pci *topo_node_add_pci(struct topo_node *node, enum topo_pci_kind kind,
                                   const char *address);
struct topo_gpu *topo_node_add_gpu(struct topo_node *node, const char *address);
void topo_node_sort_gpus(struct topo_node *node);
struct topo_nic *topo_node_add_nic(struct topo_node *node, const char *name, int port);
struct topo_nvlink *topo_gpu_add_link(struct topo_gpu *gpu, int link);
struct topo_mig *topo_gpu_add_mig(struct topo_gpu *gpu, const char *uuid);
void topo_gpu_fault(struct topo_gpu *gpu, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "0000:1b:00.0" of whatever is a PCI address ("00000000:1B:00.0"); -1: it is none. */
int topo_pci_address(const char *text, char address[32]);

#endif
