/* SPDX-License-Identifier: MIT */
/* Messages and sums in memory of GPUs, by NCCL: what comm.h is for memory of the host.
 *
 * Ranks that sum, or exchange messages, are a team: an NCCL communicator with a stream of its
 * own, on which what its members post, in one order, is done in that order. Two ranks have a
 * team for each direction, so that nothing waits behind what the other has yet to post.
 *
 * Connections are made when teams are: a post waits for no other rank. Whoever waits for what
 * was posted asks nccl_done(), and no stream that the host waits for waits for NCCL: so a rank
 * that is lost, or an error of NCCL, ends every wait, by the deadline of comm.h at last.
 */
#ifndef TASUKI_TRAIN_NCCL_H
#define TASUKI_TRAIN_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;
struct comm;
struct device;
struct err;
struct event;
struct nccl;
struct nccl_team;
struct stream;
struct trace;
struct trace_event;

/* Where it moves bytes; elsewhere comm.h does. In the order of --comm's words, which the names are. */
enum nccl_use { NCCL_NOWHERE, NCCL_EVERYWHERE, NCCL_IN_NODES };
extern const char *const nccl_use_names[];

enum nccl_operation { NCCL_SUM, NCCL_SCATTER, NCCL_GATHER, NCCL_SEND, NCCL_RECEIVE,
                      NCCL_BROADCAST };     /* the last from the first member */

/* Of this rank, whose GPU the device is. */
struct nccl *nccl_new(struct comm *comm, const struct backend *backend, struct device *device,
                      enum nccl_use use, struct err *err);
/* Leaves all teams in order, or, after an error, at once. NULL is fine. */
void nccl_free(struct nccl *nccl);
/* After an error: whatever is under way on the GPU ends. */
void nccl_abort(struct nccl *nccl);

/* Does NCCL move bytes between this rank and that one? Not to itself. */
bool nccl_reaches(const struct nccl *nccl, int rank);
/* Of the 'n' ranks those that it moves bytes between, this one among them: writes them in order
 * over '*ranks' and returns how many.
 */
int nccl_reachable(const struct nccl *nccl, int n, int *ranks);
/* Of these ranks the first on each node, in order: how many. */
int nccl_leaders(const struct comm *comm, int n, const int *ranks, int *leaders);

/* Members call with the same ranks, in the same order, and with the same key >= 0, which no
 * other team of these ranks has. Of a 'pair' the first sends, and the second receives. It is
 * nccl_free()'s to free, and connected by nccl_connect(), collective over all ranks of the run.
 */
struct nccl_team *nccl_team_new(struct nccl *nccl, int n, const int *ranks, int64_t key,
                                bool pair);
int nccl_connect(struct nccl *nccl, struct err *err);

/* Before that: when teams do what was noted goes to the trace, a row for each. */
int nccl_trace(struct nccl *nccl, struct trace *trace, struct err *err);
/* What this team is posted next, for the trace. */
void nccl_note(struct nccl_team *team, const struct trace_event *what);
/* What has been done of that since; NULL is fine. */
int nccl_read_trace(struct nccl *nccl, struct err *err);

/* What is in the stream 'after' comes before it, and 'done' is recorded behind it. Bytes of a
 * sum and its slices (comm_slice_start()) are those of float32.
 */
int nccl_post(struct nccl_team *team, enum nccl_operation operation, void *data, size_t bytes,
              struct stream *after, struct event *done, struct err *err);
/* Has it been reached? Fails where NCCL has, too. */
int nccl_done(struct nccl_team *team, struct event *event, bool *done, struct err *err);
/* Ask until it is, or the deadline of comm.h is over. */
int nccl_wait(struct nccl_team *team, struct event *event, struct err *err);

struct event *nccl_event_new(struct nccl_team *team, struct err *err);
void nccl_event_free(struct nccl_team *team, struct event *event);

#endif
