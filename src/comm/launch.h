/* SPDX-License-Identifier: MIT */
/* How ranks end together. */
#ifndef TASUKI_COMM_LAUNCH_H
#define TASUKI_COMM_LAUNCH_H

struct err;

/* Before a rank ends after another one: a launcher ends all ranks when one has failed, and the
 * others must have said why, or be gone. One's own exit code counts, so SIGTERM is ignored from
 * now on.
 */
void launch_linger(void);

/* What a rank other than the first returns when the launch was wrong: the exit code without a
 * text, after lingering. Always -1.
 */
int launch_follow(struct err *err);

#endif
