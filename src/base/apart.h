/* SPDX-License-Identifier: MIT */
/* Work in a child process, for libraries that may crash, hang or end the process. */
#ifndef TASUKI_BASE_APART_H
#define TASUKI_BASE_APART_H

#include <stdbool.h>

struct err;

struct apart {
    char *answer;           /* what 'work' returned, "" where it did not return */
    char *talk;             /* the last line it wrote to stderr; "" where nobody listened */
    int signal;             /* which ended the child; SIGALRM: its time was over; 0: none did */
};

/* The child runs work(context), which returns a malloc'ed text of at most 256 MiB, and is ended
 * after so many seconds. Where 'listen' is not set, its stderr is this process's.
 * -1: there could be no child. apart_clear() frees the texts.
 */
int apart_run(char *(*work)(void *context), void *context, unsigned seconds, bool listen,
              struct apart *result, struct err *err);
void apart_clear(struct apart *result);

#endif
