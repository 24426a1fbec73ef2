/* SPDX-License-Identifier: MIT */
#ifndef TASUKI_CMD_WATCH_H
#define TASUKI_CMD_WATCH_H

#include <stdbool.h>

struct err;

/* "123", "123_4", "123+1", and no file of that name? */
bool watch_is_job(const char *text);
/* Path of the log of a job of Slurm, malloc'ed: beside its output, as "tasuki submit" has it, or one
 * that says so itself, below the job's working directory; NULL on an error.
 */
char *watch_log_of_job(const char *job, struct err *err);

#endif
