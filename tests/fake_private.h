/* SPDX-License-Identifier: MIT */
/* What the files of the stand-in for CUDA and NCCL share. */
#ifndef TASUKI_TESTS_FAKE_PRIVATE_H
#define TASUKI_TESTS_FAKE_PRIVATE_H

#include <stdatomic.h>

#include "tests/fake_cuda.h"

#define MOST 16                         /* GPUs, ranks, wires, errors */
#define MOST_BLOCKS 8192
#define CHANNEL ((size_t)32 << 20)      /* the longest message */

struct wire {
    char a[32], b[32];
    double latency, bandwidth;
};

struct fault {
    char call[64];
    int gpu, result, good;              /* gpu -1: all */
};

struct block {
    char *data;
    size_t size;
    bool pinned;
};

__attribute__((visibility("hidden"))) extern struct fake_machine {
    bool known;
    int n_gpus, n_wires, n_faults, device;
    char gpus[MOST][32];
    struct wire wires[MOST];
    struct fault faults[MOST];
    struct block blocks[MOST_BLOCKS];
} fake;

#define MAY_FAIL(type)                                  \
    ALONE;                                              \
    do {                                                \
        int result_ = fake_planted(__func__);           \
        if (result_)                                    \
            return (type)result_;                       \
    } while (0)

/* How long so many bytes take between two places. */
double fake_seconds(const char *a, const char *b, size_t bytes);

/* What is in a stream, in order. */
enum kind { COPY, SEND, RECEIVE, EVENT, WAIT, SET, KERNEL, CALL, ASK };

struct channel {
    atomic_int full;
    size_t bytes;
    double since;
    char data[CHANNEL];
};

struct step {
    enum kind kind;
    struct step *next;
    double start;                       /* 0: not yet */
    void *to;
    const void *from;
    size_t bytes;
    size_t rows, to_stride, from_stride;    /* of a COPY: so many times 'bytes' */
    double seconds;
    struct channel *channel;
    cudaEvent_t event;
    long until;                         /* of a WAIT: the event has been reached so often */
    int value;                          /* of a SET */
    void *own;                          /* what the step has a copy of: freed with it */
    const struct kernel *kernel;
    unsigned blocks, threads;
    void (*call)(void *);               /* with 'own' */
    bool (*ask)(void *);                /* with 'own', until it says that it is done */
};

struct step *fake_add_step(struct CUstream_st *stream, enum kind kind);

#endif
