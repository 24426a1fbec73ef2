/* SPDX-License-Identifier: MIT */
/* The GPUs that Slurm says it gave: SLURM_STEP_GPUS of a step, of batch scripts and interactive
 * shells SLURM_JOB_GPUS.
 *
 * These lists number the GPUs of the whole node as they are enumerated on its PCI bus, whatever a
 * process is shown of them.
 */
#ifndef TASUKI_TOPOLOGY_GIVEN_H
#define TASUKI_TOPOLOGY_GIVEN_H

struct topo_input;
struct topo_node;

struct topo_given {
    const char *name;       /* of the variable; NULL: nothing that can be told */
    char *list;             /* its value */
    int n, *gpus;           /* indices in the node's, ascending */
};

/* Nothing is told where the driver shows no more than was given (devices are confined, and numbered
 * anew), hides some GPU, has one in partitions, or where device files are not known to be numbered in
 * the order of PCI addresses: then lists may be in either.
 */
struct topo_given topo_given_gpus(const struct topo_node *node, const struct topo_input *input);
void topo_given_clear(struct topo_given *given);

#endif
