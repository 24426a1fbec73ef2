/* SPDX-License-Identifier: MIT */
/* Between cmd_submit.c, cmd_submit_limits.c and cmd_submit_script.c; the launcher, too, starts
 * as many ranks.
 */
#ifndef TASUKI_CMD_SUBMIT_H
#define TASUKI_CMD_SUBMIT_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct options;
struct slurm_facts;

enum scheduler { SCHEDULER_SLURM, SCHEDULER_PJM, SCHEDULER_PBS, SCHEDULER_SGE };

/* A job on its way; 0 and NULL: not known. */
struct submit {
    struct options *options;
    char *command;              /* how this was called */
    enum scheduler scheduler;
    bool has_tool;              /* whose command is here */
    bool dry_run;
    const char *partition;      /* as given; "": the site's default */
    const char *cluster;
    int64_t time;               /* seconds; of an allocation */
    int64_t nodes;
    int64_t first, last;        /* sizes to be compared; last 0: not any, -1: as many as fit */
    int most;                   /* of these, see scheduler/sizes.h */
    int64_t tasks;              /* of a node */
    int64_t cpus, gpus;         /* of a task, of a node */
    bool on_gpus;
    bool array;                 /* of jobs: what each writes has a name of its own */
    bool one_thread;            /* of each core: they have several */
    char *name, *directory;     /* of the job, and where its files are */
    bool made;                  /* the directory, now */
    bool own_checkpoint, own_log;       /* in that directory: nothing else was said */
    char *job_file;             /* text of it */
    struct slurm_facts *facts;  /* of the partition */
};

/* The run's log in the folder that the output of the job goes to, too. */
#define SUBMIT_LOG "log.jsonl"
/* The same of a task of an array. Not by the array's number: a task that goes on in another job, or
 * a script that is submitted again, has another one, and is to find what is there.
 */
#define SUBMIT_TASK_LOG "log-%a.jsonl"

/* What the scheduler's commands are called: "sbatch". */
const char *submit_tool(enum scheduler scheduler);
/* Words at rest[0] that make the job an array: how many; 0: it is another option. */
int submit_array_words(enum scheduler scheduler, char *const *rest, int n);

/* What the partition allows; where Slurm cannot be asked, and that does not matter, nothing. */
int submit_ask(struct submit *job, struct err *err);
/* Is it within that? */
int submit_check(const struct submit *job, struct err *err);
/* How many nodes, where that was left open. */
int submit_choose_nodes(struct submit *job, struct err *err);
/* How many ranks on each, and what each of them gets. */
int submit_choose_tasks(struct submit *job, struct err *err);

/* Where nodes find this program, whatever their PATH; malloc'ed. */
char *submit_program(void);

/* The script, malloc'ed; "pbs.sh.in" filled in. A paragraph with a word that is not known is
 * left out.
 */
char *submit_script(const struct submit *job, struct err *err);
/* DIR/job.sh; malloc'ed. */
char *submit_path(const struct submit *job, const char *file);

#endif
