/* SPDX-License-Identifier: MIT */
/* Communication among the ranks of a run: one interface, threads of a process, MPI, or both.
 *
 * Two planes. Control: small exchanges, by collecting PMIx fences where they can be relied
 * upon, and agreements. Data: messages and reductions on host memory, posted and tested,
 * never waited for without a deadline. When a rank dies, all waits of the others end at once
 * (watch.h), and where the network is cut, on both sides after a while.
 *
 * Errors: no call repairs a communicator. After an error the caller reports and leaves by
 * comm_abort(); it makes no further collective call.
 */
#ifndef TASUKI_COMM_COMM_H
#define TASUKI_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/graph.h"    /* enum dtype */

struct err;
struct comm;
struct comm_group;
struct comm_request;
struct hub;
struct hybrid;
struct sighting;

/* Where this process was started from, read once from the environment. */
struct launch {
    enum { LAUNCH_ALONE, LAUNCH_MPI, LAUNCH_THREADS } kind;
    bool slurm_step;        /* a task of an srun step, started by srun itself */
    int slurm_tasks;        /* of that step, 0 unknown */
    bool pmix;              /* a PMIx server answers for this process */
    bool pmi;               /* a PMI-1 or PMI-2 server does (MPICH and its kin) */
    int size;               /* ranks, as the launcher says; 0 unknown */
    int local_size;         /* of them on this node; 0 unknown */
    char host[256];         /* as comm_host() will have it */
    bool first;             /* rank 0, or no rank at all: who says what is wrong */
    bool yield;             /* the user or site wants idle ranks to give the CPU away */
    bool rendezvous;        /* TASUKI_RENDEZVOUS=1: no send ends before its receive began */
    bool blind;             /* TASUKI_WATCH=no: nobody watches whether the others live */
    char line[192];         /* the command that starts it rightly: "srun --mpi=pmix -N4 …" */
    bool several;           /* LAUNCH_MPI: each process is to be several ranks … */
    struct comm *processes; /* … and this is the communicator of the processes, for crew_run() */
    struct hub *hub;        /* LAUNCH_THREADS: where they meet (threads.h), … */
    int rank;               /* … which one of this process this is, … */
    struct hybrid *hybrid;  /* … and what it shares where there are other processes */
    double deadline;        /* seconds that MPI may take to start: 600; 0: any */
};
#define COMM_DEADLINE 600
#define COMM_WARN_AFTER 30
/* Fails with the srun or mpirun line to use where ranks would come up as singletons: a step of
 * several tasks without a PMIx server, for instance. All ranks then have the exit code and the
 * first one the text; so it is with comm_open() where the launcher is the wrong one.
 */
int launch_detect(struct launch *launch, struct err *err);
/* The same from a recorded environment: NULL-terminated "NAME=value" strings. */
int launch_detect_from(char *const *environment, struct launch *launch, struct err *err);

/* Load the MPI module where there is a launcher; else this process has all ranks. Where each
 * process is to be several, it is the processes that are joined, which nobody watches yet.
 */
struct comm *comm_open(const struct launch *launch, struct err *err);
void comm_close(struct comm *comm);     /* collective, clean end */
int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
const char *comm_name(const struct comm *comm);             /* "self", "threads", "mpi", "hybrid" */
const char *comm_library(const struct comm *comm);          /* "Open MPI 4.1.4, PMIx 4.2.2" */
const char *comm_host(const struct comm *comm, int rank);   /* node name of any rank */
bool comm_same_host(const struct comm *comm, int a, int b);
/* Which process a rank is in; they are numbered from 0. */
int comm_process(const struct comm *comm, int rank);
/* The first rank on another node than rank 0, or else in another process; 1 where there is none. */
int comm_far_rank(const struct comm *comm);

/* Seconds without progress after which an operation fails (default 600; 0: for ever). Only
 * time in which the caller kept asking counts, and anything that completes starts it anew.
 */
void comm_set_deadline(struct comm *comm, double seconds);

/* Seconds without progress after which comm_words.standstill is called (default 30; 0: never). */
void comm_set_warn_after(struct comm *comm, double seconds);

/* Seconds after which ranks that the network does not reach are lost, whatever the deadline:
 * default 20; 10 to 500; 0: never.
 */
void comm_set_lost_after(struct comm *comm, double seconds);

/* What this rank is about from now on, for when nothing moves any more; see where_at(). */
void comm_at(struct comm *comm, const char *what, int stage, int64_t step, int micro);
/* Where all ranks were when nothing moved: [size] after comm_follow(), on the rank that says it;
 * else NULL.
 */
const struct sighting *comm_standstill(const struct comm *comm);

/* Control plane: every rank gives a byte string and gets everybody's, in rank order, in one
 * block to free(): parts[r] points into it.
 */
int comm_exchange(struct comm *comm, const void *data, size_t size, void **block,
                  const void **parts, size_t *sizes, struct err *err);
/* The same by means of the launcher, PMIx, where these bring everything to all ranks: of what others are
 * to be joined by, since it takes longer.
 */
int comm_introduce(struct comm *comm, const void *data, size_t size, void **block,
                   const void **parts, size_t *sizes, struct err *err);
/* What that went by the last time: "PMIx", "MPI", "threads"; with the reason where PMIx failed. */
const char *comm_way(const struct comm *comm);
/* As comm_exchange() of what has the same size on all ranks: 'all' is an array of what each gave. */
int comm_collect(struct comm *comm, const void *mine, size_t size, void *all, struct err *err);
/* Bytes from rank 'root' to all; '*data' is malloc'ed on the others. */
int comm_broadcast(struct comm *comm, int root, void **data, size_t *size, struct err *err);
/* A barrier that really is one. */
int comm_fence(struct comm *comm, struct err *err);
/* All ranks learn whether any rank failed: 'failed' is 0/1; the text of the lowest failed
 * rank is copied to all, prefixed with "rank R (host): ". Returns -1 if any failed.
 */
int comm_agree(struct comm *comm, struct err *err, int failed);

/* Have they all learnt of a failure? Not where the agreement itself has failed. */
bool comm_agreed(const struct comm *comm);

/* Data plane: nothing here allocates after the first use of a (peer, tag) pair. Requests are
 * preallocated by the caller with comm_request_new() and used again and again.
 */
struct comm_request *comm_request_new(struct comm *comm);
void comm_request_free(struct comm_request *request);
int comm_send(struct comm *comm, const void *data, size_t bytes, int to, int tag,
              struct comm_request *request, struct err *err);
int comm_receive(struct comm *comm, void *data, size_t bytes, int from, int tag,
                 struct comm_request *request, struct err *err);
/* Has it completed? Drives progress. An inactive request is done. */
int comm_test(struct comm_request *request, bool *done, struct err *err);
/* Test until done or the deadline passes; the error says what was waited for and on whom. */
int comm_wait(struct comm_request *request, struct err *err);
/* Call between rounds of comm_test() in which nothing completed: gives the CPU to others. */
void comm_idle(struct comm *comm);
/* Who waits for something else that needs other ranks, a GPU say, calls this whenever it has
 * asked: was it 'done'? If not, gives the CPU to others; fails where comm_wait() would.
 */
int comm_asked(struct comm *comm, bool done, struct err *err);
/* Tags are 0 … comm_max_tag(). */
int comm_max_tag(const struct comm *comm);

/* A group of ranks for collectives; all members call with the same list in the same order. */
struct comm_group *comm_group_new(struct comm *comm, int n, const int *ranks,
                                  struct err *err);
void comm_group_free(struct comm_group *group);
/* Sums need the others' parts besides. They are taken from this memory, as much at a time as there
 * is room for: the same for all members, and at least 64 bytes for each of the others. Without, a
 * request allocates all that its largest sum needs, once.
 */
void comm_request_lend(struct comm_request *request, void *scratch, size_t bytes);
/* In-place sum over the group. 'deterministic': per element in rank order, whatever n is. */
int comm_allreduce(struct comm_group *group, void *data, size_t n, enum dtype dtype,
                   bool deterministic, struct comm_request *request, struct err *err);
/* An all-reduce in two halves. Of 'n' elements member i has slice i, that starts here and ends
 * where the next one starts.
 */
static inline size_t comm_slice_start(size_t n, int members, int i)
{
    size_t count = (size_t)members, at = (size_t)i;

    /* floor(n * i / members) without overflow */
    return n / count * at + n % count * at / count;
}
/* Each member's slice of its own data becomes the sum, in rank order; what is beside it means
 * nothing then.
 */
int comm_reduce_scatter(struct comm_group *group, void *data, size_t n, enum dtype dtype,
                        struct comm_request *request, struct err *err);
/* Each member's slice of its own data goes to all. */
int comm_all_gather(struct comm_group *group, void *data, size_t n, enum dtype dtype,
                    struct comm_request *request, struct err *err);

/* After a failure: if all ranks agreed on it, returns on rank 0 alone, which says it; the
 * others give it a moment, since launchers end all ranks when one has failed, and end with the
 * code of 'err'. If another rank died or is cut off, 'err' says so instead (EXIT_FAILED), and this returns on
 * the lowest rank that lives; if nothing moved for too long, on one that was told where all are.
 * A failure of one's own everybody says: returns, with "rank R
 * (host): " put before the text. Only comm_abort() may follow.
 */
void comm_follow(struct comm *comm, struct err *err);
/* After that: the rank that died, where 'err' says that its node has ended processes for want of
 * memory; else -1.
 */
int comm_starved(const struct comm *comm);
/* What rank 0 learns of such a failure of another rank is told to 'tell' before it leaves. */
void comm_tell(struct comm *comm, void (*tell)(void *data, const char *text), void *data);

/* What other threads of this process than its main one say, which does not come to it: it computes, or
 * waits for a file system.
 */
struct comm_words {
    /* This rank is to say why all end, and then ends: in a second, whether that was said or not. */
    void (*last)(void *data, const char *text);
    /* On rank 0: nothing has moved for so long, longer than ever before, and where all ranks are. It
     * may wait for files. Later: it has moved again after so many seconds, 'ranks' is NULL.
     */
    void (*standstill)(void *data, double seconds, const struct sighting *ranks);
    void *data;
};
/* NULL: they say nothing any more; waits until they have ended. */
void comm_set_words(struct comm *comm, const struct comm_words *words);

/* Leave now, without a collective: flushes nothing, tells the launcher by the exit code. */
void comm_abort(struct comm *comm, int code) __attribute__((noreturn));

#endif
