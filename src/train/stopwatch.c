/* SPDX-License-Identifier: MIT */
#include "train/stopwatch.h"
#include "train/optimizer.h"
#include "train/stepping.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/order.h"
#include "scheduler/layout.h"

#define MAX_RUNS 7
#define MOST_ROUND 0.004    /* seconds that are waited before the runs of one operator, */
#define MOST_PAUSE 0.002    /* and between two of them */
#define ENOUGH 0.006        /* seconds spent on one operator, */
#define ONCE_ROUND 0.002    /* and before that on its way round the ring */
#define UPDATE_BYTES ((size_t)1 << 20)
/* So much keeps a GPU busy that its start is a small part, as with the parameters of a stage. */
#define DEVICE_UPDATE_BYTES ((size_t)16 << 20)
#define PIECE ((size_t)16 << 10)
/* Of a GPU: what so many bytes pass before is in no cache; and what the host fills at most. */
#define DEVICE_RING ((size_t)256 << 20)
#define PATTERN ((size_t)4 << 20)
/* What a GPU replays: runs at first, at most, and the seconds that make the start of all negligible. */
#define RECORDED 8
#define MOST_RECORDED 512
#define LONG_REPLAY 0.001
#define REPLAYS 3

/* Memory that is walked through, round and round. */
struct pool {
    char *memory;
    size_t bytes;       /* allocated */
    size_t ring;        /* walked through now */
    size_t next;
    enum dtype dtype;
};

struct stopwatch {
    const struct backend *backend;
    struct device *device;
    struct stream *stream;
    bool hasty;
    struct pool read, written;      /* what kernels write may be anything after a while */
    void *piece;                    /* what passes by is read into this; NULL: nothing did yet */
};

/* What is measured: anything that can be run again and again. */
struct subject {
    int (*run)(struct subject *subject, struct err *err);       /* handed to the stream */
    bool records;                   /* it can be replayed by the device alone */
    struct stopwatch *stopwatch;
    struct kernel *kernel;
    struct kernel_args args;
    const struct optimizer_args *optimizer;
    struct stepping stepping;       /* of it */
    size_t ring, far;               /* bytes to go through, and what a run takes of them */
    size_t passing[2];              /* read, and written, by others between two runs */
    double round, pause;            /* seconds for once round the ring, and between two runs, in a step */
    int n;                          /* operands, inputs before outputs */
    struct operand {
        void *memory;               /* its own, or that of this run in the pool */
        size_t bytes;
        struct pool *pool;          /* NULL: near, or */
        bool evicted;               /* in no cache at all when a run begins */
        bool host;                  /* in memory of the host that kernels reach */
    } *operands;
    void **pointers;                /* [n] for the kernel */
};

bool stopwatch_in_haste(void)
{
    return getenv("TASUKI_TEST_HASTE") != NULL;
}

struct stopwatch *stopwatch_new(const struct backend *backend, struct device *device,
                                struct err *err)
{
    struct stopwatch *w = mem_new(1, sizeof(*w));

    w->hasty = stopwatch_in_haste();
    w->backend = backend;
    w->device = device;
    w->stream = backend->stream_new(device, err);
    if (w->stream)
        return w;
    free(w);
    return NULL;
}

static void release_pool(struct stopwatch *w, struct pool *pool)
{
    if (pool->memory)
        w->backend->release(w->device, pool->memory, pool->bytes);
    *pool = (struct pool){ 0 };
}

void stopwatch_free(struct stopwatch *stopwatch)
{
    if (!stopwatch)
        return;
    release_pool(stopwatch, &stopwatch->read);
    release_pool(stopwatch, &stopwatch->written);
    if (stopwatch->piece)
        stopwatch->backend->release(stopwatch->device, stopwatch->piece, PIECE);
    stopwatch->backend->stream_free(stopwatch->stream);
    free(stopwatch);
}

/* Numbers of 16 bits, of bfloat16 0.25 to 1 and of float16 1.6 to 1.9, of both signs, whose fractions do
 * not repeat soon: a product of numbers that are alike takes less power, and runs at a clock that a step
 * does not have.
 */
static void fill_narrow(uint16_t *to, size_t n)
{
    uint32_t state = 1;

    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (uint16_t)((0x3e80 + (state >> 16 & 0xff)) | (state >> 31) << 15);
    }
}

static void fill_floats(enum dtype dtype, char *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double d = 0.5 + (double)(i * 7919 % 1000) / 2000;
        float f = (float)d;

        memcpy(to + i * dtype_size(dtype), dtype == DTYPE_F32 ? (void *)&f : (void *)&d,
               dtype_size(dtype));
    }
}

/* Integers are 0, a valid index or label; floats of more than 16 bits lie between 0.5 and 1. */
static int fill(const struct stopwatch *w, enum dtype dtype, void *memory, size_t bytes,
                struct err *err)
{
    char *host;
    size_t first = bytes;
    int bad;

    if (!dtype_is_float(dtype))
        return w->backend->fill_zero(w->stream, memory, bytes, err);
    if (w->backend->separate && first > PATTERN)
        first = PATTERN;
    host = mem_new(first, 1);
    if (dtype_size(dtype) == sizeof(uint16_t))
        fill_narrow((uint16_t *)(void *)host, first / sizeof(uint16_t));
    else
        fill_floats(dtype, host, first / dtype_size(dtype));
    bad = w->backend->copy(w->stream, memory, first, host, first, first, 1, err);
    for (size_t at = first; at < bytes && !bad; at += PATTERN) {
        size_t n = bytes - at < PATTERN ? bytes - at : PATTERN;

        bad = w->backend->copy(w->stream, (char *)memory + at, n, memory, n, n, 1, err);
    }
    if (!bad)
        bad = w->backend->stream_sync(w->stream, err);
    free(host);
    return bad;
}

/* Room for 'bytes' at a time, 'ring' bytes to walk through. */
static int open_pool(struct stopwatch *w, struct pool *pool, enum dtype dtype, size_t bytes,
                     size_t ring, struct err *err)
{
    size_t needed = bytes > ring ? bytes : ring;

    if (!pool->memory || pool->bytes < needed || pool->dtype != dtype) {
        release_pool(w, pool);
        pool->memory = w->backend->alloc(w->device, needed, err);
        if (!pool->memory)
            return -1;
        pool->bytes = needed;
        pool->dtype = dtype;
        if (fill(w, dtype, pool->memory, needed, err) < 0)
            return -1;
    }
    pool->ring = needed;
    return 0;
}

static void *walk(struct pool *pool, size_t bytes)
{
    char *memory;

    if (pool->next + bytes > pool->ring)
        pool->next = 0;
    memory = pool->memory + pool->next;
    pool->next += layout_aligned(bytes);
    return memory;
}

/* The last level of caches is others' as well, of other cores and on many machines of other systems: what
 * lies there for longer is there less often. So a run begins as long after those before it as in a step.
 */
static void wait_for(double seconds, double most)
{
    double until = clock_now() + (seconds < most ? seconds : most);

    while (clock_now() < until)
        ;
}

/* Before the clock starts: where the operands of the next run lie. */
static void move_operands(struct subject *s)
{
    for (int i = 0; i < s->n; i++) {
        struct operand *o = &s->operands[i];

        if (o->pool)
            o->memory = walk(o->pool, o->bytes);
        if (o->evicted)
            s->stopwatch->backend->evict(s->stopwatch->device, o->memory, o->bytes);
        s->pointers[i] = o->memory;
    }
}

static int read_through(struct stopwatch *w, const char *memory, size_t bytes, struct err *err)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;

        if (w->backend->copy(w->stream, w->piece, n, memory + at, n, n, 1, err) < 0)
            return -1;
    }
    return 0;
}

/* What others read and write until the next run, and what is near after that. */
static int pass(struct subject *s, struct err *err)
{
    struct stopwatch *w = s->stopwatch;

    if (s->passing[0] + s->passing[1] == 0)
        return 0;
    if (s->passing[0] &&
        read_through(w, walk(&w->read, s->passing[0]), s->passing[0], err) < 0)
        return -1;
    if (s->passing[1] &&
        w->backend->fill_zero(w->stream, walk(&w->written, s->passing[1]), s->passing[1], err) < 0)
        return -1;
    for (int i = 0; i < s->n; i++)
        if (s->operands[i].memory && !s->operands[i].pool && !s->operands[i].evicted &&
            !s->operands[i].host &&
            read_through(w, s->operands[i].memory, s->operands[i].bytes, err) < 0)
            return -1;
    return w->backend->stream_sync(w->stream, err);
}

static int run_once(struct subject *s, double *seconds, struct err *err)
{
    double begun;

    move_operands(s);
    if (pass(s, err) < 0)
        return -1;
    begun = clock_now();
    if (s->run(s, err) < 0 || s->stopwatch->backend->stream_sync(s->stopwatch->stream, err) < 0)
        return -1;
    *seconds = clock_now() - begun;
    return 0;
}

/* As a step runs on such a device: many kernels one behind the other, without the host. */
static struct recording *record_runs(struct subject *s, int n, struct err *err)
{
    const struct stopwatch *w = s->stopwatch;
    struct recording *recording = NULL;
    struct err ignored = { 0 };
    int bad = 0;

    if (w->backend->record_begin(w->stream, err) < 0)
        return NULL;
    for (int i = 0; i < n && !bad; i++) {
        move_operands(s);
        bad = s->run(s, err);
    }
    if (w->backend->record_end(w->stream, &recording, bad ? &ignored : err) == 0 && !bad)
        return recording;
    if (recording)
        w->backend->recording_free(recording);
    return NULL;
}

static int replay_runs(const struct stopwatch *w, struct recording *recording, int n,
                       double *seconds, struct err *err)
{
    double times[REPLAYS + 1];

    /* The first one uploads it. */
    for (int i = 0; i <= REPLAYS; i++) {
        double begun = clock_now();

        if (w->backend->replay(w->stream, recording, err) < 0 ||
            w->backend->stream_sync(w->stream, err) < 0)
            return -1;
        times[i] = clock_now() - begun;
    }
    qsort(times + 1, REPLAYS, sizeof(times[0]), order_doubles);
    *seconds = times[1 + REPLAYS / 2] / n;
    return 0;
}

static int measure_recorded(struct subject *s, double *seconds, struct err *err)
{
    const struct stopwatch *w = s->stopwatch;

    /* What was never run loads its code, which may not be recorded. */
    if (run_once(s, seconds, err) < 0 || run_once(s, seconds, err) < 0)
        return -1;
    for (int n = *seconds < LONG_REPLAY && !w->hasty ? RECORDED : 1; ; ) {
        struct recording *recording = record_runs(s, n, err);
        int bad = recording ? replay_runs(w, recording, n, seconds, err) : -1;

        if (recording)
            w->backend->recording_free(recording);
        if (bad || *seconds * n >= LONG_REPLAY || n == MOST_RECORDED || w->hasty)
            return bad;
        n = (int)fmin(MOST_RECORDED, fmax(2 * n, 1.5 * LONG_REPLAY / *seconds));
    }
}

static int measure(struct subject *s, double *seconds, struct err *err)
{
    double times[MAX_RUNS], spent = 0, once = 0;
    int n = 0;

    if (s->records)
        return measure_recorded(s, seconds, err);
    /* A GPU loads what it has not run yet when it is asked to. */
    if (s->stopwatch->backend->separate && run_once(s, &times[0], err) < 0)
        return -1;
    if (run_once(s, &times[0], err) < 0)
        return -1;
    /* A first run that long is not about warming up. */
    if (times[0] > 10 * ENOUGH || s->stopwatch->hasty)
        n = 1;
    /* Once round the ring, before which its places were touched longer ago. */
    for (size_t at = s->far; n == 0 && at < s->ring && once < ONCE_ROUND; at += s->far) {
        if (run_once(s, &times[1], err) < 0)
            return -1;
        once += times[1];
    }
    while (n < MAX_RUNS && (n == 0 || spent < ENOUGH) && times[0] <= 10 * ENOUGH &&
           !s->stopwatch->hasty) {
        if (s->round > 0 && n == 0)
            wait_for(s->round, MOST_ROUND);
        else if (s->round > 0)
            wait_for(s->pause, MOST_PAUSE);
        if (run_once(s, &times[n], err) < 0)
            return -1;
        spent += times[n++];
    }
    qsort(times, (size_t)n, sizeof(times[0]), order_doubles);
    *seconds = times[n / 2];
    return 0;
}

/* A node ------------------------------------------------------------------------------- */

static size_t bytes_of(const struct graph *graph, const struct value_layout *layouts, int value)
{
    size_t bytes = layouts ? layouts[value].bytes : value_bytes(&graph->values[value]);

    return bytes ? bytes : 1;
}

/* A float32 whose layout has half of its bytes is stored in 16 bits. */
static enum dtype stored_type(const struct graph *graph, const struct value_layout *layouts, int value)
{
    enum dtype dtype = graph->values[value].dtype;

    return dtype == DTYPE_F32 && layouts && layouts[value].bytes &&
                   2 * layouts[value].bytes == value_bytes(&graph->values[value])
               ? DTYPE_F16 : dtype;
}

static int take_near(const struct stopwatch *w, struct operand *o, enum dtype dtype,
                     struct err *err)
{
    o->memory = w->backend->alloc(w->device, o->bytes, err);
    return o->memory ? fill(w, dtype, o->memory, o->bytes, err) : -1;
}

/* In no cache when a run begins, or in 'pool'. */
static int take_far(const struct stopwatch *w, struct operand *o, enum dtype dtype, bool gone,
                    struct pool *pool, struct err *err)
{
    if (!gone) {
        o->pool = pool;
        return 0;
    }
    o->evicted = true;
    return take_near(w, o, dtype, err);
}

static int take_host(const struct stopwatch *w, struct operand *o, struct err *err)
{
    o->host = true;
    o->memory = w->backend->alloc_aside(w->device, o->bytes, true, err);
    return o->memory ? 0 : -1;
}

static bool can_evict(const struct stopwatch *w)
{
    return w->backend->evict(w->device, NULL, 0);
}

/* Of the ring so much is written; it comes round when what a run takes of one of both has: of the
 * other the rest passes by between the runs.
 */
static void divide(struct subject *s, const size_t *bytes, double written, size_t *part)
{
    double runs = 1;

    part[1] = (size_t)(written * (double)s->ring);
    part[0] = s->ring - part[1];
    for (int p = 0; p < 2; p++)
        if (bytes[p])
            runs = fmax(runs, (double)part[p] / (double)bytes[p]);
    for (int p = 0; p < 2; p++)
        s->passing[p] = (size_t)fmax(0, (double)part[p] / runs - (double)bytes[p]);
    s->pause = s->round / runs;
}

/* 'written': the share of the ring that is, of what runs take and of what passes between them. */
static int open_pools(struct subject *s, const enum dtype *dtypes, int n_inputs, size_t ring,
                      double written, struct err *err)
{
    struct stopwatch *w = s->stopwatch;
    size_t bytes[2] = { 0, 0 }, part[2];
    enum dtype dtype[2] = { DTYPE_F32, DTYPE_F32 };

    for (int i = 0; i < s->n; i++)
        if (s->operands[i].pool) {
            enum dtype *of_pool = &dtype[i >= n_inputs];

            bytes[i >= n_inputs] += layout_aligned(s->operands[i].bytes);
            /* Numbers of 16 bits are fine as others, too. */
            *of_pool = dtype_size(*of_pool) == 2 ? *of_pool : dtypes[i];
        }
    s->far = bytes[0] + bytes[1];
    s->ring = s->far ? ring : 0;
    if (!s->far)
        return 0;
    divide(s, bytes, written < 0 ? (double)bytes[1] / (double)s->far : written, part);
    for (int p = 0; p < 2; p++) {
        size_t most = bytes[p] > s->passing[p] ? bytes[p] : s->passing[p];

        if (most && open_pool(w, p ? &w->written : &w->read, dtype[p], most, part[p], err) < 0)
            return -1;
    }
    if (!w->piece)
        w->piece = w->backend->alloc(w->device, PIECE, err);
    return w->piece ? 0 : -1;
}

/* How far operands are when a run begins, see reuse.h. */
struct distance {
    uint64_t far, gone;
    size_t ring;
    double written, round;
};

static struct distance distance_of(const struct stopwatch *w, const struct reuse *reuse, int node)
{
    struct distance d = { .written = reuse->written / 4.0 };

    if (node >= reuse->n_nodes || w->hasty)
        return d;
    d.far = reuse->far[node];
    d.gone = reuse->gone[node];
    d.ring = reuse->rings[node];
    if (d.gone && !can_evict(w)) {
        d.gone = 0;
        d.ring = w->backend->separate ? DEVICE_RING : REUSE_LONGEST;
    }
    d.round = w->backend->separate ? 0 : (double)d.ring * reuse->pace;
    return d;
}

static int take_operands(struct subject *s, const struct graph *graph, const struct node *node,
                         const struct value_layout *layouts, const struct distance *distance,
                         struct err *err)
{
    struct stopwatch *w = s->stopwatch;
    enum dtype *dtypes = mem_new((size_t)s->n + 1, sizeof(*dtypes));
    int bad = 0;

    for (int i = 0; i < s->n && !bad; i++) {
        struct operand *o = &s->operands[i];
        int value = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];

        if (value < 0)
            continue;
        o->bytes = bytes_of(graph, layouts, value);
        dtypes[i] = stored_type(graph, layouts, value);
        if (i < REUSE_OPERANDS && (distance->far >> i & 1) && dtype_is_float(dtypes[i]))
            bad = take_far(w, o, dtypes[i], distance->gone >> i & 1,
                           i < node->n_inputs ? &w->read : &w->written, err);
        else
            bad = take_near(w, o, dtypes[i], err);
    }
    if (!bad)
        bad = open_pools(s, dtypes, node->n_inputs, distance->ring, distance->written, err);
    free(dtypes);
    return bad;
}

static int run_kernel(struct subject *s, struct err *err)
{
    const struct stopwatch *w = s->stopwatch;

    return w->backend->kernel_run(s->kernel, w->stream, &s->args, err);
}

static int measure_kernel(struct subject *s, const struct graph *graph,
                          const struct node *node, bool adds, double *seconds,
                          struct err *err)
{
    const struct stopwatch *w = s->stopwatch;
    size_t workspace = w->backend->kernel_workspace(s->kernel);
    struct step_state *state = w->backend->alloc_aside(w->device, sizeof(*state), true, err);
    void *space = NULL;
    int bad;

    if (!state)
        return -1;
    *state = (struct step_state){ .global_batch = graph->batch, .samples = graph->batch,
                                  .weight_sum = 1, .training = true };

    if (workspace) {
        space = w->backend->alloc(w->device, workspace, err);
        if (!space) {
            w->backend->release_aside(w->device, state, true);
            return -1;
        }
    }
    s->args = (struct kernel_args){
        .inputs = (const void *const *)s->pointers, .outputs = s->pointers + node->n_inputs,
        .workspace = space, .state = state,
        .accumulate = adds && w->backend->kernel_accumulates(s->kernel) ? ACCUMULATE_YES
                                                                        : ACCUMULATE_NO,
    };
    bad = measure(s, seconds, err);
    if (space)
        w->backend->release(w->device, space, workspace);
    w->backend->release_aside(w->device, state, true);
    return bad;
}

static void release_operands(struct subject *s)
{
    const struct stopwatch *w = s->stopwatch;

    for (int i = 0; i < s->n; i++) {
        struct operand *o = &s->operands[i];

        if (o->host && o->memory)
            w->backend->release_aside(w->device, o->memory, true);
        else if (!o->pool && o->memory)
            w->backend->release(w->device, o->memory, o->bytes);
    }
    free(s->operands);
    free(s->pointers);
}

static void make_operands(struct subject *s, int n)
{
    s->n = n;
    s->operands = mem_new((size_t)n + 1, sizeof(*s->operands));
    s->pointers = mem_new((size_t)n + 1, sizeof(*s->pointers));
}

int stopwatch_node(struct stopwatch *stopwatch, const struct graph *graph, int node,
                   const struct value_layout *layouts, const struct reuse *reuse,
                   double *seconds, struct err *err)
{
    const struct backend *backend = stopwatch->backend;
    const struct node *n = &graph->nodes[node];
    struct distance distance = distance_of(stopwatch, reuse, node);
    struct subject s = { .run = run_kernel, .stopwatch = stopwatch, .round = distance.round };
    bool adds = node < reuse->n_nodes && reuse->result[node];
    int bad = -1;

    make_operands(&s, n->n_inputs + n->n_outputs);
    s.kernel = backend->kernel_new(stopwatch->device, graph, node, layouts, err);
    s.records = s.kernel && backend->kernel_records && backend->kernel_records(s.kernel);
    if (s.kernel && take_operands(&s, graph, n, layouts, &distance, err) == 0)
        bad = measure_kernel(&s, graph, n, adds, seconds, err);
    if (s.kernel)
        backend->kernel_free(s.kernel);
    release_operands(&s);
    return bad;
}

/* The optimizer ------------------------------------------------------------------------ */

static int run_update(struct subject *s, struct err *err)
{
    const struct range_arrays arrays = { .g = s->pointers[0], .p = s->pointers[1],
                                         .m = s->n > 2 ? s->pointers[2] : NULL,
                                         .v = s->n > 3 ? s->pointers[3] : NULL };

    return stepping_norms(&s->stepping, s->optimizer, &arrays, 1, err) < 0
               ? -1
               : stepping_run(&s->stepping, s->optimizer, &arrays, 1, err);
}

static int take_step(struct subject *s, size_t bytes, struct err *err)
{
    const struct stopwatch *w = s->stopwatch;
    const struct range all = { .n = bytes / dtype_size(s->optimizer->dtype), .decay = 1 };

    return stepping_init(&s->stepping, w->backend, w->device, w->stream, 1, &all,
                         stepping_needs_norms(s->optimizer->kind) ? &all : NULL, err);
}

/* The gradient, then what is written: parameters and two states. A GPU moves what it is given. */
static int take_update(struct subject *s, bool offload, size_t bytes, size_t ring, struct err *err)
{
    struct stopwatch *w = s->stopwatch;
    enum dtype dtype = s->optimizer->dtype, dtypes[4] = { dtype, dtype, dtype, dtype };
    int bad = 0;

    make_operands(s, 2 + (w->backend->separate ? optimizer_states(s->optimizer->kind) : 2));
    for (int i = 0; i < s->n && !bad; i++) {
        struct operand *o = &s->operands[i];

        o->bytes = bytes;
        if (offload && i > 1)
            bad = take_host(w, o, err);
        else if (ring)
            bad = take_far(w, o, dtype, ring >= REUSE_LONGEST && can_evict(w),
                           i == 0 ? &w->read : &w->written, err);
        else
            bad = take_near(w, o, dtype, err);
    }
    return bad ? bad : open_pools(s, dtypes, 1, ring, -1, err);
}

int stopwatch_update(struct stopwatch *stopwatch, const struct optimizer_args *args,
                     bool offload, const struct reuse *reuse, double *seconds, struct err *err)
{
    struct stopwatch *w = stopwatch;
    size_t ring = reuse && !w->hasty ? reuse->ring : 0;
    struct subject s = { .run = run_update, .stopwatch = w, .optimizer = args,
                         .records = w->backend->record_begin != NULL };
    size_t bytes = w->backend->separate && !w->hasty ? DEVICE_UPDATE_BYTES : UPDATE_BYTES;
    int bad;

    if (w->backend->separate && ring >= REUSE_LONGEST)
        ring = DEVICE_RING;
    s.round = reuse && !w->backend->separate ? (double)ring * reuse->pace : 0;
    bad = take_update(&s, offload, bytes, ring, err);
    if (!bad)
        bad = take_step(&s, bytes, err);
    if (!bad)
        bad = measure(&s, seconds, err);
    if (!bad)
        *seconds *= (double)UPDATE_BYTES / (double)bytes;
    stepping_clear(&s.stepping);
    release_operands(&s);
    return bad;
}
