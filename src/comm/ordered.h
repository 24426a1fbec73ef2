/* SPDX-License-Identifier: MIT */
/* Sums in rank order by messages between the members of a group, whoever carries them.
 *
 * Member i owns slice i of the array. Everybody sends it that slice, as much at a time as the
 * scratch holds; it adds them up, element by element in the order of the members, and sends the
 * sum back to all. Each member sends and receives 2(n-1)/n of the array, as in a ring. A
 * reduce-scatter is the first half of that, an all-gather the second.
 */
#ifndef TASUKI_COMM_ORDERED_H
#define TASUKI_COMM_ORDERED_H

#include <stdbool.h>
#include <stddef.h>

#include "comm/driver.h"

/* Post a message of the request's group to or from this member of it; messages between the same two
 * with the same tag arrive in the order in which they were sent.
 */
struct ordered_driver {
    int (*send)(struct comm_request *request, const void *data, size_t bytes, int member, int tag,
                struct err *err);
    int (*receive)(struct comm_request *request, void *data, size_t bytes, int member, int tag,
                   struct err *err);
};

/* A sum under way; all zero at first. */
struct ordered {
    enum { ORDERED_DONE, ORDERED_COLLECT, ORDERED_SPREAD } phase;
    enum dtype dtype;
    size_t count;
    size_t summed, round;   /* elements of each slice: up to here, and so many at a time */
    unsigned char *data;
    unsigned char *scratch; /* of this round: lent, or own */
    unsigned char *own;
    size_t own_bytes;
};

/* Begin what request->operation says, with messages of request->tag and the tag after it. Sets
 * request->bytes. The same for all members.
 */
int ordered_start(struct comm_request *request, struct ordered *ordered,
                  const struct ordered_driver *driver, void *data, size_t n, enum dtype dtype,
                  struct err *err);
/* What was posted has completed: post what comes next, or it is 'done'. */
int ordered_next(struct comm_request *request, struct ordered *ordered,
                 const struct ordered_driver *driver, bool *done, struct err *err);
void ordered_clear(struct ordered *ordered);

#endif
