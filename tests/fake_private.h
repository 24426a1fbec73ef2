/* SPDX-License-Identifier: MIT */
/* What the files of the stand-in for CUDA and NCCL share. */
#ifndef TASUKI_TESTS_FAKE_PRIVATE_H
#define TASUKI_TESTS_FAKE_PRIVATE_H

#include <stdatomic.h>
#include <stdint.h>

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
    bool known, failed;                 /* did a call say so on purpose? */
    int n_gpus, n_wires, n_faults, code, connections, message_blocks;
    char loading[8];
    int compute[MOST];                  /* 90: sm_90 */
    char gpus[MOST][32];
    struct wire wires[MOST];
    struct fault faults[MOST];
    struct block blocks[MOST_BLOCKS];
} fake;
/* The GPU that this thread has set; -1: none yet. */
__attribute__((visibility("hidden"))) extern __thread int fake_device;

#define MAY_FAIL(type)                                  \
    ALONE;                                              \
    do {                                                \
        int result_ = fake_planted(__func__);           \
        if (result_)                                    \
            return (type)result_;                       \
    } while (0)

/* fake_machine.c: how long so many bytes take between two places. */
double fake_seconds(const char *a, const char *b, size_t bytes);
/* The i-th GPU that CUDA_VISIBLE_DEVICES, a list of numbers, leaves; -1: there is none. */
int fake_visible(int i);

/* What is in a stream, in order. */
enum kind { COPY, SEND, RECEIVE, EVENT, WAIT, SET, KERNEL, CALL, FORGET, RENEW, ASK };

#define MOST_STREAMS 128                /* and threads that touch memory */

struct clock {                          /* fake_watch.c */
    uint32_t of[MOST_STREAMS];          /* of the host, of each stream, of each other thread */
};

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
    size_t own_bytes;
    const struct kernel *kernel;
    unsigned blocks, threads;
    void (*call)(void *);               /* with 'own' */
    bool (*ask)(void *);                /* with 'own', until it says that it is done */
    uint32_t time;
    struct clock clock;
};

struct CUstream_st {
    struct step *first;
    struct CUstream_st *next;           /* of all */
    struct CUgraph_st *capture;         /* NULL: what it is handed runs */
    int number, gpu;
    struct clock clock;
};

struct CUevent_st {
    struct CUstream_st *stream;         /* NULL: never recorded */
    long recorded, reached;
    struct clock clock;                 /* of what was recorded last */
    bool awaited;                       /* by a stream or the host */
    bool timed;
    double time;                        /* when it was reached last */
};

/* A kernel of the program's, and what fake_gpu.cc runs in its place. */
struct kernel {
    const void *stub;
    void (*run)(void *);
    size_t bytes;                       /* of its parameter */
    char name[64];
};

/* fake_cuda.c */
cudaError_t fake_launch(const struct kernel *kernel, dim3 blocks, dim3 threads, const void *argument,
                        size_t shared, cudaStream_t stream);
struct step *fake_add_step(struct CUstream_st *stream, enum kind kind);
void fake_append(struct CUstream_st *stream, struct step *step);    /* which is malloc'ed */
void fake_finish_all(void);
void fake_stir(void);                   /* do some of what may be done by now */
struct CUstream_st *fake_other_stream(struct CUstream_st *stream);
const char *fake_kernel_name(const struct kernel *kernel);

/* fake_memory.c */
__attribute__((visibility("hidden"))) extern long fake_mallocs;
bool fake_is_strict(void);
void fake_open_arena(bool open);
/* Are these bytes on the GPU, or pinned on the host? */
bool fake_lies(const void *data, size_t size, bool pinned);

/* fake_graph.c */
bool fake_captures(struct CUstream_st *stream);
struct step **fake_captured(struct CUstream_st *stream);    /* NULL: it does not */
/* Is the thread capturing? Then this call ends it. */
bool fake_refuses_in_capture(void);
int fake_graphs_left(void);

/* fake_mutate.c: is this the time to do wrong? */
bool fake_mutates(const char *name);

/* fake_watch.c */
bool fake_watches(void);
/* Say what is wrong with what is done now, at this address or NULL, and end the process. */
void fake_report(const char *what, const void *where);
void fake_watch_memory(int area, char *start, size_t size);
void fake_watch_stream(struct CUstream_st *stream);
void fake_watch_append(struct CUstream_st *stream, struct step *step);
void fake_watch_record(struct CUevent_st *event, const struct CUstream_st *stream);
void fake_watch_wait(struct CUstream_st *stream, struct CUevent_st *event);
void fake_watch_host(const struct clock *clock);    /* has waited for this */
void fake_watch_event_end(const struct CUevent_st *event);
void fake_watch_begin(const struct step *step);
void fake_watch_touch(const void *where, size_t bytes, bool writes);
void fake_watch_end(void);
void fake_watch_forget(const void *where, size_t bytes);
void fake_watch_renew(const void *where, size_t bytes);
void fake_watch_free(void *data, bool pinned);
void fake_watch_left(int streams, int graphs);
/* fake_threads.c: it tells of threads; and what one copies. */
void fake_watch_threads(void);
void fake_watch_copied(void *to, const void *from, size_t bytes);
/* What was done before this was given has been done when it is taken. */
void fake_watch_gives(const void *what);
void fake_watch_takes(const void *what);

/* fake_lock.c */
bool fake_is_held(void);                /* by this thread */
bool fake_is_lock(const void *lock);

#endif
