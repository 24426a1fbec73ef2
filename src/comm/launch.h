/* SPDX-License-Identifier: MIT */
/* How ranks fail together before they know each other. */
#ifndef TASUKI_COMM_LAUNCH_H
#define TASUKI_COMM_LAUNCH_H

struct err;

/* Before a rank other than the first ends: a launcher ends all ranks when one has failed, and
 * the first must have said why. Their own exit code counts, so SIGTERM is ignored from now on.
 */
void launch_linger(void);

/* What a rank other than the first returns when the launch was wrong: the exit code without a
 * text, after lingering. Always -1.
 */
int launch_follow(struct err *err);

#endif
