/* SPDX-License-Identifier: MIT */
/* Ranks that are threads of one process: what the core itself does behind comm.h, for a lone
 * rank, too.
 *
 * A message is copied once, from where it is sent to where it is received, by whichever of the
 * two comes second: no send ends before its receive began. Sums are those of the MPI module, to
 * the bit: each member sums its slice in the order of the members.
 */
#ifndef TASUKI_COMM_THREADS_H
#define TASUKI_COMM_THREADS_H

struct hub;

/* Where 'size' ranks meet. They join with a launch of kind LAUNCH_THREADS that has it, and leave
 * by comm_close() before it is freed.
 */
struct hub *hub_new(int size);
void hub_free(struct hub *hub);

#endif
