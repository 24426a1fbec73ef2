/* SPDX-License-Identifier: MIT */
/* Which kernels of a device do their work another way than it has for it: counted while they are there. */
#ifndef TASUKI_KERNELS_FALLBACKS_H
#define TASUKI_KERNELS_FALLBACKS_H

enum fallback {
    FALLBACK_HOST,              /* the host runs it */
    FALLBACK_UNFUSED,           /* an attention of 16 bits, in parts */
    FALLBACKS
};

struct fallbacks {
    int n;
    struct fallback_count {
        enum fallback how;
        const char *op;         /* of the table of operators */
        int kernels;
    } *list;
};

/* So many more, or fewer. */
void fallbacks_add(struct fallbacks *fallbacks, enum fallback how, const char *op, int kernels);
void fallbacks_clear(struct fallbacks *fallbacks);

#endif
