/* SPDX-License-Identifier: MIT */
/* How much more this process may write in a directory. */
#ifndef TASUKI_BASE_ROOM_H
#define TASUKI_BASE_ROOM_H

struct err;

enum room_limit { ROOM_DISK, ROOM_USER, ROOM_GROUP };

struct room {
    double bytes, files;            /* INFINITY where the file system does not count them */
    enum room_limit bytes_limit, files_limit;   /* what ends first */
    char unasked[32];               /* "nfs4": a file system whose quotas cannot be asked here; "" */
};

/* By what is free (root may fill what is kept from others), and by the quotas of the user, and of the
 * group that new files have, as quotactl(2) gives them: those of disks of this host. What network
 * file systems (NFS, Lustre) allow counts where they show it as free space: quotactl(2) knows none
 * of theirs.
 */
int room_in(const char *directory, struct room *room, struct err *err);
/* "are free", "are left of the user's quota". */
const char *room_said(enum room_limit limit);
/* The line of a log that says so of a directory, malloc'ed; NULL where nothing is unasked. */
char *room_unasked(const char *directory, const struct room *room);

#endif
