/* SPDX-License-Identifier: MIT */
/* A training run from its settings to its end. */
#ifndef TASUKI_TRAIN_TRAIN_H
#define TASUKI_TRAIN_TRAIN_H

#include "comm/comm.h"
#include "train/settings.h"

struct err;
struct topo_node;

/* Collective; 'node' is where this rank runs. '*kwh' is what the run took, on rank 0; NAN: not
 * known. Returns an exit code: EXIT_OK, EXIT_REQUEUE after
 * a signal and a checkpoint, or that of 'err'. An error that all ranks know of has its text on
 * rank 0 alone; one that strikes a single rank later ends the process by comm_abort() after it
 * was said.
 */
int train_run(const struct train_settings *settings, const struct topo_node *node,
              struct comm *comm, double *kwh, struct err *err);

/* From a signal handler: finish the step, write a checkpoint, leave. */
void train_stop(void);

#endif
