/* SPDX-License-Identifier: MIT */
/* One run at a time writes into a checkpoint directory: the file DIR/lock says which.
 *
 * It appears complete or not at all, by link(2), also on NFS. Its run touches it now and then, so
 * that one of a run that died shows by its age, by the clock of the file system; or Slurm says so.
 */
#ifndef TASUKI_TRAIN_CHECKPOINT_LOCK_H
#define TASUKI_TRAIN_CHECKPOINT_LOCK_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct job_names;
struct checkpoint_lock;

/* A run: strings are empty where something is not known. */
struct lock_owner {
    char host[256], boot[64];           /* boot: the kernel's id of this start of the machine */
    int64_t pid, started;               /* started: in the kernel's ticks */
    int64_t space;                      /* in which its PID means something */
    char cluster[64], job[64], array_job[64], array_task[64], restart[16];
    char launcher[320];                 /* that started the run as a step; "" */
    char since[32];
};

/* This process. */
struct lock_owner lock_owner_self(const struct job_names *job);
/* Is a process of the holder's PID and start on this host? Hidden: one of the PID is, but /proc
 * does not show when it started (hidepid).
 */
enum lock_process { LOCK_GONE, LOCK_LIVES, LOCK_HIDDEN };
/* Why the lock of 'holder', last touched 'age' seconds ago, means nothing to 'self'; NULL: it
 * means that another run is there.
 */
const char *lock_stale(const struct lock_owner *holder, const struct lock_owner *self,
                       enum lock_process process, double age);

/* '*note' is malloc'ed where a lock was taken over: whose, and why. Fails where another run has
 * it, naming that run. 'asker': by whom Slurm is asked for that run's job (step_facts.h).
 */
struct checkpoint_lock *checkpoint_lock(const char *directory, const struct lock_owner *self,
                                        int asker, char **note, struct err *err);
/* Is it still ours? */
int checkpoint_lock_check(const struct checkpoint_lock *lock, struct err *err);
void checkpoint_unlock(struct checkpoint_lock *lock);

#endif
