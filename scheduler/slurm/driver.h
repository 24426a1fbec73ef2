/* SPDX-License-Identifier: MIT */
/* What stands behind slurm.h: tasuki-slurm.so, a table of functions over libslurm.
 *
 * The module is linked without the core and shares these structs and nothing else, so both
 * sides compare SLURM_DRIVER_VERSION and the sizes. libslurm ends the process where it cannot
 * read its configuration and waits long for a controller that is away: call it in a child
 * (base/apart.h).
 */
#ifndef TASUKI_SLURM_DRIVER_H
#define TASUKI_SLURM_DRIVER_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler/slurm/facts.h"

struct err;

#define SLURM_DRIVER_VERSION 9
#define SLURM_DRIVER_SYMBOL "tasuki_slurm_driver"

/* 'number' of an error: the controller knows of no such job, which is its answer; it could not be asked
 * now, and may be later; nor ever, from here: there is no libslurm.
 */
#define SLURM_NO_JOB ESRCH
#define SLURM_AWAY EAGAIN
#define SLURM_ABSENT ENOSYS

/* "123", "123_4" of an array, "123+1" of a heterogeneous job. */
struct slurm_job_id {
    uint32_t job;
    int64_t task, component;        /* -1: not given */
};

struct slurm_driver {
    int version;
    size_t facts_size, node_size, switch_size, err_size;    /* sizeof the shared structs */

    /* Fill 'facts', everything in it "not known" before, with the job or the partition, its
     * nodes, and the switches of the cluster. Strings are malloc'ed. The partition "" is the one
     * that jobs go to which name none.
     */
    int (*job)(const struct slurm_job_id *id, struct slurm_facts *facts, struct err *err);
    int (*partition)(const char *name, struct slurm_facts *facts, struct err *err);

    /* Of jobs by their number alone. Is a node still one of the job's, as Slurm has it? */
    int (*has_node)(const struct slurm_job_id *id, const char *node, bool *has,
                    struct err *err);
    /* End a batch job and let it start again, or end it for good; send a signal to all tasks of one
     * of its steps, to whom SIGKILL is Slurm's end of the step.
     */
    int (*requeue)(const struct slurm_job_id *id, struct err *err);
    int (*end_job)(const struct slurm_job_id *id, struct err *err);
    int (*signal_step)(const struct slurm_job_id *id, uint32_t step, int number, struct err *err);
};

#endif
