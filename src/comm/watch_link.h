/* SPDX-License-Identifier: MIT */
/* The connections of watch.c: sockets that never block.
 *
 * Nobody listens: both ends call connect(), each towards where the other one does (simultaneous open,
 * RFC 9293, 3.5). Ranks set out first. A reset answers them, since nothing is there yet, and a filter of
 * their socket drops it: they go on until who watches comes towards them.
 */
#ifndef TASUKI_COMM_WATCH_LINK_H
#define TASUKI_COMM_WATCH_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/where.h"

#define LINK_ADDRESSES 16

struct link_address {
    uint8_t family;             /* AF_INET, AF_INET6 */
    unsigned char bytes[16];
};

/* One end of a connection. */
struct link_end {
    struct link_address address;
    uint16_t port;              /* 0: none */
};

/* Where a rank that watches meets the others; plain bytes on the way. */
struct link_place {
    unsigned char token[16];    /* only ranks of this run know it */
    uint8_t n;
    struct link_end end[LINK_ADDRESSES];
};

enum note_kind {
    NOTE_HELLO = 1,     /* with token and rank, first */
    NOTE_WELCOME,       /* its answer, with the token */
    NOTE_BYE,           /* the sender leaves in order */
    NOTE_FAILED,        /* the sender leaves, and says why */
    NOTE_VERDICT,
    NOTE_HERE,          /* where the sender is: every now and then, and when asked */
    NOTE_ASK,
    NOTE_STUCK,         /* nothing has moved for the sender for too long */
    NOTE_CUT,           /* the sender cannot reach 'rank' */
    NOTE_MEMORY         /* on the receiver's node a rank died: for want of memory? And the answer */
};

/* All that is ever sent. */
struct note {
    uint8_t kind;
    unsigned char token[16];    /* of hello and welcome: no other program answers so */
    int32_t rank, lost, speaker, cause;
    int32_t waits;              /* of here: for longer than is usual */
    union {
        struct whereabouts at;      /* of here */
        char text[240];             /* of failed and verdict: why; of the answer of memory */
    };
};

enum link_state { LINK_FREE, LINK_CONNECTING, LINK_GREETED, LINK_NEW, LINK_LIVE };

struct link {
    enum link_state state;
    int fd;
    int rank;                   /* of the other end; -1 before its hello */
    bool up;                    /* to a rank that watches */
    int address;                /* of the place where they meet */
    double limit;               /* clock at which an attempt is given up */
    size_t n_in;
    unsigned char in[sizeof(struct note)];
};

/* Hold a port at each of this machine's addresses, which 'place' then has; their number, 0 where there
 * can be none. 'near': for this machine only, at its loopback. Each is a socket that does nothing and
 * is to be closed when all have met: its port is for sockets of this user (SO_REUSEPORT), and no other.
 */
int link_hold(struct link_place *place, bool near, int holders[LINK_ADDRESSES]);
/* Towards such an end, from wherever the way there begins, which '*from' then is; false: there is none. */
bool link_approach(struct link *link, const struct link_end *to, struct link_end *from);
/* From an end that is held to such a beginning, where the other one waits already. */
bool link_meet(struct link *link, const struct link_end *held, const struct link_end *from);
/* Has it come about? */
bool link_connected(const struct link *link);
/* From now on whatever comes by it makes this process run where it was stopped (SIGCONT). */
void link_wakes(const struct link *link);
void link_send(const struct link *link, const struct note *note);
/* The same, unless the other end has not taken what it was sent before. */
void link_offer(const struct link *link, const struct note *note);
/* Seconds since the other end's kernel was last heard, which answers whatever its process does; 0:
 * not known.
 */
double link_silence(const struct link *link);
/* 1: '*note' is complete; 0: not yet; -1: the other end closed it; -2: it cannot be reached. */
int link_read(struct link *link, struct note *note);
void link_close(struct link *link);

#endif
