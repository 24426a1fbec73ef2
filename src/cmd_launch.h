/* SPDX-License-Identifier: MIT */
/* "tasuki train" inside an allocation of Slurm but outside a step: it starts the step, watches
 * it, and decides how to go on. Between cmd_launch.c and cmd_launch_*.c.
 *
 * Steps are srun's: what a site's SPANK plugins and its configuration add, what is forwarded
 * and printed, is then as users know it. What Slurm knows is asked from libslurm, and how a step
 * ended is what its ranks left (train/fate.h): no text of Slurm's commands is read.
 */
#ifndef TASUKI_CMD_LAUNCH_H
#define TASUKI_CMD_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/oom.h"
#include "train/health.h"

struct err;
struct launch;
struct options;
struct slurm_facts;

/* Which checkpoint is the newest: a new one is a new file, whatever its name. 0: there is none. */
struct launcher_mark {
    int64_t inode, seconds, nanoseconds;
};

struct launcher_tries {
    struct launcher_mark first, last;   /* when the job, and when the step, started */
    int64_t most, vain;         /* restarts without a new checkpoint between them */
    int64_t restart;            /* of the job, in which that was noted; -1: not known */
    bool resume;                /* the next step */
};

/* GPUs that the job was given of a node. */
struct launcher_gpus {
    char *node;
    int64_t n;
};

/* What a node that answered had ended for want of memory. */
struct launcher_memory {
    char *node;
    struct oom oom;
};

struct launcher {
    const struct options *options;
    char *const *words;         /* what "tasuki train" was told */
    const char *job;            /* its number */
    char *program;              /* this one, as nodes find it */
    char *checkpoint;           /* directory; NULL: then nothing can go on */
    char *fate;                 /* directory of this step; NULL without a checkpoint */
    int64_t nodes;              /* that the job has */
    int n_names;                /* of those, the good ones; 0: not known, */
    char **names;               /* take as many as the job has */
    int n_memories;
    struct launcher_memory *memories;   /* of all that were ever asked */
    int64_t tasks, cpus, gpus;  /* of a node, a task, a node; 0: not known, not said */
    int n_uneven;
    struct launcher_gpus *uneven;   /* of all nodes, where each GPU gets a rank and nodes have more or
                                     * fewer of them: then 'tasks' and 'gpus' are the fewest */
    char *bind;                 /* what ranks are told (train/bind.h); NULL: srun binds them */
    char *order;                /* file: the node of each rank; NULL: as Slurm does it */
    int told;                   /* the signal to end, 0 */
    bool at_once;               /* by a second SIGINT */
    bool noticed;               /* that was, or came before it, SIGUSR1, or the launcher itself saw
                                 * that the limit is near */
    bool replaced;              /* the job is over here, or was not seen: it may go on elsewhere */
    struct launcher_tries tries;
    int steps;                  /* so far */
    double node_hours, gpu_hours;   /* of these */
    double kwh;                 /* of those that came to their end, and said it */
    int told_kwh;               /* how many did */
    time_t since;               /* of its first fate directory, as its file system has it */
    char *tag;                  /* of this launcher, unlike any other's */
    double notice;              /* clock_now() when its time limit is near; 0: it has none */
    int64_t before;             /* seconds from then to the limit */
    char *home;                 /* the node of a batch job on which its script runs, else NULL */
    pid_t guard;                /* 0: there is none */
    int guards;                 /* so far */
    char *guard_node;           /* of the last one */
    double guard_start, guard_pause;    /* of it: clock_now(); seconds from then to the next one */
};

/* Is that what this process is? Yes with err->code where the settings are wrong. */
bool launcher_wanted(const struct options *options, const struct launch *launch,
                     struct err *err);
/* Returns the exit code. Before anything starts threads. */
int launcher_run(const struct options *options, char *const *words, struct err *err);

/* What Slurm knows of the job, and l->home; a controller that is away is asked again, for minutes. NULL
 * with 'err', EXIT_REQUEUE where a signal to end came first. Not before there were names of nodes: also
 * where Slurm cannot be asked here at all.
 */
struct slurm_facts *launcher_ask_job(struct launcher *l, struct err *err);
/* Does the job run, and has it no other launcher, and this node? Else l->replaced, and an error; a job
 * that has lost this node is started again.
 */
int launcher_is_ours(struct launcher *l, const struct slurm_facts *facts, struct err *err);
/* Both: 0 once the controller has said so. */
int launcher_await_controller(struct launcher *l, struct err *err);

/* The nodes of the job that are well, and how many ranks each gets. */
int launcher_first_look(struct launcher *l, struct err *err);
/* The nodes that are left, and well; says which are not. */
int launcher_look_again(struct launcher *l, struct err *err);

/* What came of asking a node how it is. */
struct answer {
    bool there;
    struct health health;       /* where it is */
    bool asked;                 /* else: alone, for as long as that is waited for */
    char *talk;                 /* and what srun, or the program there, said, or why it was not
                                 * asked; NULL: nothing */
};

/* How many seconds are waited for answers. */
struct launcher_patience {
    double first;               /* of all together: drivers may be slow to start */
    double silence;             /* after which who is left of all keeps silent, too */
    double each;                /* of one that is asked alone, from then on */
    int at_once;                /* that are */
    int tries;                  /* of each of them: a busy controller may fail once, */
    double pause;               /* or until it knows its nodes: so long between two of them */
    /* Called before each of these tries, so that no controller that is away is the cause of two;
     * not 0: there is to be none. NULL: there is always.
     */
    int (*await)(struct launcher *l, struct err *err);
};

/* Ask nodes, all together, then each that kept silent; until a signal to end. That takes no longer
 * than 'first', and 'each' so many times as 'at_once' goes into their number, for all 'tries', and
 * what is between these.
 * launcher_answers_free() them. False: of more nodes than 'at_once' so many were asked alone, and
 * none has answered: the controller does not; or there is to be no other try, and 'err' says why:
 * none counts as asked.
 */
bool launcher_ask(struct launcher *l, const struct launcher_patience *patience, int n,
                  char *const *names, struct answer *answers, struct err *err);
void launcher_answers_free(int n, struct answer *answers);
/* Is this process asked? Then its answer, to stdout. */
bool launcher_is_asked(void);
int launcher_answer(const struct options *options, struct err *err);

/* Of a node; of all of l->names, or of as many nodes as the job has. */
int64_t launcher_ranks_on(const struct launcher *l, const char *node);
int64_t launcher_ranks(const struct launcher *l);

/* Leave out of l->names those that are not well; says which, and why. An error where what is left
 * is less than the run was told to have: to be requeued, where Slurm would do that.
 */
int launcher_check(struct launcher *l, const struct slurm_facts *facts, struct err *err);

/* l->order, where the model is a plan that names nodes of this job, or nodes have unequal numbers of
 * ranks.
 */
int launcher_order(struct launcher *l, struct err *err);
void launcher_forget_order(struct launcher *l);
/* Is the run held to a plan file that has ranks there? */
bool launcher_plan_keeps(const struct launcher *l, const char *node);

struct launcher_mark launcher_newest(const struct launcher *l);
bool launcher_same_mark(const struct launcher_mark *a, const struct launcher_mark *b);
/* Before the first step; an error where the allocations before this one were in vain. */
int launcher_begin_tries(struct launcher *l, struct err *err);
/* A step was lost: an error where there is to be none after it. */
int launcher_try_again(struct launcher *l, struct err *err);
/* The launcher ends with that code; returns it, or another one, with 'err', where to be started
 * again has been of no use.
 */
int launcher_end_tries(struct launcher *l, int code, struct err *err);
/* Before a start that follows this one, which SIGTERM ended, though Slurm has not taken it away: it
 * counts, then. False: too many have brought no new checkpoint.
 */
bool launcher_may_start_again(struct launcher *l);
/* Have a batch job started again that ends with this code, where there is more to do and Slurm has not
 * ended it; says so, or why not, and returns the code to end with. A controller that is away is waited
 * for.
 */
int launcher_requeue(struct launcher *l, int code);

/* When the limit is near, as Slurm has it now; is it? */
void launcher_note_time(struct launcher *l, const struct slurm_facts *facts);
bool launcher_time_is_over(struct launcher *l);

/* Have another node watch over l->home, unless one does already: now and then, since a guard may end,
 * or its node.
 */
void launcher_guard(struct launcher *l);
/* Does the job end with this process? As with submit's script, which becomes it. */
bool launcher_is_script(void);
void launcher_end_guard(struct launcher *l);
/* Is this process that one? Then its work. */
bool launcher_is_guard(void);
int launcher_keep_guard(struct err *err);

/* What a child is called with, and a variable that it is told by. */
struct launcher_words {
    int n;
    char **list;
    const char *variable, *value;
    bool outlives;              /* it goes on when the launcher has ended */
};

/* Signals that say "end" are the launcher's alone, and are taken where it waits. */
void launcher_take_signals(void);
/* Wait so many seconds, or until a signal to end: is there one? */
bool launcher_pause(struct launcher *l, double seconds);
/* Such a signal has come. */
void launcher_note_signal(struct launcher *l, int number);
/* The next one, or SIGCHLD, within so many seconds; 0: none. */
int launcher_next_signal(double seconds);
/* Takes the word, which is malloc'ed. */
void launcher_add(struct launcher_words *words, char *word);
/* "n1,n2"; malloc'ed. */
char *launcher_list(int n, char *const *names);
/* "tasuki train …" as it was called. */
void launcher_add_training(struct launcher_words *words, const struct launcher *l, bool resume);

/* Where a child's output goes, unless it is a descriptor's number. */
enum { OUTPUT_SAME = -1, OUTPUT_NOWHERE = -2 };

/* Start a child and clear the words: a step of training where its output is this process's, else
 * one that asks, to a descriptor. -1: errno says why.
 */
pid_t launcher_start(const struct launcher *l, struct launcher_words *words, int output);
/* Has it ended, and how? */
bool launcher_ended(pid_t child, int *code);
/* Seconds for which the end of a child that was killed is waited for. */
#define LAUNCHER_DYING 5.0
/* Send it a signal, and wait for its end, so long: what hangs in a file system, say, ends when
 * that lets it, if ever, even by SIGKILL. False: it has not ended yet.
 */
bool launcher_kill(pid_t child, int number);
/* Of one that was sent a signal: wait until clock_now() is 'end'. False: it has not ended yet. */
bool launcher_await(pid_t child, double end);

/* What srun ends with where it cannot start a step: no rank ends so. */
#define LAUNCHER_NO_STEP 99
/* Run the step to its end. Its exit code, or 128 + a signal's number; -1 with 'err'. */
int launcher_step(struct launcher *l, bool resume, struct err *err);

#endif
