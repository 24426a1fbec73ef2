/* SPDX-License-Identifier: MIT */
/* What Slurm knows of the job of a step that was started without the launcher, which would look
 * after it: when it ends, and which GPUs its nodes have, whether or not the job was given them. Of
 * any step, whether another job is over.
 */
#ifndef TASUKI_TRAIN_STEP_FACTS_H
#define TASUKI_TRAIN_STEP_FACTS_H

#include <stdbool.h>

struct step_facts {
    double end, limit;  /* of the job: seconds since 1970, seconds; 0: none, or not known */
    int gpus;           /* of the node that has most; 0: none, or not known */
    char node[64];      /* its name */
    int asker;          /* a socket to who asks Slurm later on; 0: nobody does */
};

/* Of the step's first task; of others nothing, as where Slurm does not answer. Asks libslurm, and
 * starts a process that can do so later where the run has checkpoints: call it before other
 * libraries start threads.
 */
struct step_facts step_facts_ask(bool ends_with_checkpoint);
/* The end as it is now, since it may have been moved; as it was, where no answer comes soon. */
void step_facts_ask_again(int asker, double *end);

/* Another job of this cluster, as Slurm knows it: it waits, runs or is being ended, or no answer
 * came soon; it is over; or Slurm knows of none, or does not show it to this user.
 */
enum other_job { OTHER_JOB_LIVES, OTHER_JOB_OVER, OTHER_JOB_UNKNOWN };
enum other_job step_facts_other_job(int asker, const char *job);

/* Has the user hidden all GPUs from CUDA? Slurm's "NoDevFiles" is not the user's word. */
bool gpus_are_hidden(void);
/* Or does it say which CUDA is to show? */
bool gpus_are_named(void);

#endif
