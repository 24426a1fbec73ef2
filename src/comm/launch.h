/* SPDX-License-Identifier: MIT */
/* How ranks end together. */
#ifndef TASUKI_COMM_LAUNCH_H
#define TASUKI_COMM_LAUNCH_H

#include <stdbool.h>

struct err;

/* Rank 0, or no rank at all, as the launcher's environment says: known before anything is
 * joined. What is wrong on every rank, this one says.
 */
bool launch_first(void);

/* Before another rank than the first ends with what only the first says: it may have started
 * later, and launchers end all ranks when one has failed. Returns when the launcher does that
 * (SIGTERM), else after some seconds.
 */
void launch_step_back(void);

/* Before a rank ends after another one: a launcher ends all ranks when one has failed, and the
 * others must have said why, or be gone. One's own exit code counts, so SIGTERM is ignored from
 * now on.
 */
void launch_linger(void);

/* What a rank other than the first returns when the launch was wrong: the exit code without a
 * text, after stepping back. Always -1.
 */
int launch_follow(struct err *err);

#endif
