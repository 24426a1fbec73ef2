/* SPDX-License-Identifier: MIT */
/* Copies of data files on a disk of the node, used in place of the originals.
 *
 * One rank of the node, its leader, copies them one after the other in a thread of its own; all
 * others read the originals meanwhile, and nobody waits. Once a copy is there each rank maps it
 * over the original, at the same addresses: who reads samples need not know.
 *
 * A copy is called KEY-SUM: KEY tells its original by path, size and time of change, SUM is the
 * XXH3 of its bytes, which are read back before the copy gets this name. In the directory, which
 * is the user's alone and locked by the leader, "KEY-SUM.old" is of an earlier run and must be
 * read again before it counts, "KEY.new" is not complete, and "copying" is there until the leader
 * has done what it can.
 */
#ifndef TASUKI_TRAIN_STAGING_H
#define TASUKI_TRAIN_STAGING_H

#include <stdbool.h>

#include "train/data.h"

struct err;
struct staging;

struct staging_options {
    const char *parent;             /* the user's DIR */
    const char *host;               /* so that nodes that share DIR do not share a directory */
    const char *directory;          /* what the leader found; NULL: this is the leader */
    bool keep;                      /* the copies, at the end */
    int n, first;                   /* files; with which the leader starts */
    const struct data_file *const *files;
};

/* Is it a directory that copies can be put in? */
int staging_probe(const char *parent, struct err *err);
/* On the leader: finds or makes a directory in DIR, and starts to copy. */
struct staging *staging_open(const struct staging_options *options, struct err *err);
/* Of the copies; lives as long as the staging. */
const char *staging_directory(const struct staging *staging);
/* Between two steps: use what is there by now, and say what went wrong. NULL is fine. */
void staging_take(struct staging *staging);

struct staging_state {
    bool over;                      /* all that will be there is used */
    double bytes, copied;           /* on the leader: there, and of that copied in this run */
};
struct staging_state staging_state(struct staging *staging);

/* Ends what is going on, and removes what is not kept. */
void staging_close(struct staging *staging);

#endif
