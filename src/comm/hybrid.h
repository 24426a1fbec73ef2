/* SPDX-License-Identifier: MIT */
/* Several processes, each of which is several ranks: what the core does behind comm.h where a
 * launcher has started fewer tasks than there are ranks.
 *
 * A rank is a thread of a process, and ranks are numbered process by process. The communicator of
 * a rank has two parts: 'near', the threads of its process (threads.h), and 'far', the processes,
 * which tasuki-mpi.so joins. A message goes by the one or by the other, where MPI's tag has the
 * numbers of both threads in it, and one thread at a time calls MPI. Where all ranks meet, the
 * threads of each process do, and then their first ones. Sums are those of the MPI module, to the
 * bit: ordered.h.
 */
#ifndef TASUKI_COMM_HYBRID_H
#define TASUKI_COMM_HYBRID_H

struct comm;
struct err;
struct hybrid;

/* What the 'n' ranks of this process share. They have 'processes' to themselves until
 * hybrid_free(). Collective of the processes; fails on all of them.
 */
struct hybrid *hybrid_new(struct comm *processes, int n, struct err *err);
void hybrid_free(struct hybrid *hybrid);

#endif
