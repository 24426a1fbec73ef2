/* SPDX-License-Identifier: MIT */
/* How a rank of a step ended, told to the launcher that started it.
 *
 * srun's exit code cannot say it: that of a rank which Slurm ended after the first failure is
 * the higher one. So the launcher names a directory, in TASUKI_FATE, and rank 0, and each rank
 * that has failed, leaves a file there: one for each rank, since nodes that append to one file
 * on a network file system overwrite each other's lines.
 */
#ifndef TASUKI_TRAIN_FATE_H
#define TASUKI_TRAIN_FATE_H

#include <stdbool.h>
#include <time.h>

struct comm;
struct err;

struct fate {
    int rank, code;
    bool agreed;            /* all ranks ended so, by themselves */
    double time;            /* seconds since 1970 */
    double kwh;             /* of all ranks; NAN: not known */
    char *host, *text;      /* of the rank; what it said, "" */
    char *step;             /* Slurm's number of the step, "" */
};

/* An empty directory for them, for this user alone; one of another user is an error. A link that is
 * there is removed.
 */
int fate_make(const char *directory, struct err *err);
/* Of the first task alone, before it meets the others: it leaves the number of its step. */
void fate_begin(void);
/* The number of the step that began, "4"; malloc'ed, NULL: none has. */
char *fate_step(const char *directory);
/* Leave it, where a launcher has asked for it; what fails is no error. Before comm_close(). */
void fate_tell(const struct comm *comm, int code, bool agreed, double kwh, const char *text);
/* -1 with 'err' where none can be left since the disk is full, or can only be read; any other trouble
 * is none of the disk's.
 */
int fate_check(const char *directory, struct err *err);
/* Those of a directory, the earliest failure first, and what did not fail last; what cannot be
 * read is passed over.
 */
int fate_read(const char *directory, struct fate **fates);
void fate_free(int n, struct fate *fates);
/* Remove the directory and the fates in it; ranks of an older step can then leave none. */
void fate_forget(const char *directory);
/* All in 'folder' whose name begins so, and that nothing was left in since then. */
void fate_forget_old(const char *folder, const char *name, time_t since);

#endif
