/* SPDX-License-Identifier: MIT */
#include "train/prefetch.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "scheduler/plan.h"
#include "scheduler/schedule.h"

#define MIN_SHARES 3            /* one that the loop uses, two ahead of it */
#define MAX_SHARES 64
#define MAX_CHUNK 64            /* samples that a thread takes at once */

/* A place in the ring. */
struct share {
    int64_t *samples;
    int64_t epoch;
    int64_t left;               /* samples not read yet */
    void **inputs;
    bool failed;
    struct err err;
};

struct worker {
    struct prefetch *prefetch;
    struct data_reader *reader;
    pthread_t thread;
};

struct prefetch {
    struct sampler sampler;
    int n_inputs;
    struct data_want *wants;
    int64_t samples;            /* of a share */
    int64_t chunk;
    int64_t n_micros;
    int64_t *first;             /* first sample of each share in the global batch, in order */
    int64_t begin, end;         /* shares of the run, counted from step 0 */
    int depth, n_workers;
    struct share *shares;
    const struct backend *backend;  /* whose device has the shares' memory; NULL: the heap */
    struct device *device;
    struct worker *workers;
    double waited;              /* the loop's own */
    pthread_mutex_t lock;       /* of what follows, and of 'left' and 'err' of the shares */
    pthread_cond_t work, ready;
    int64_t filling, at;        /* the share that is given out, and from which sample on */
    int64_t taken;              /* the share that the loop uses or waits for */
    bool stop;
};

/* What to read -------------------------------------------------------------------------- */

static void find_wants(struct prefetch *p, const struct prefetch_options *o)
{
    const struct program *program = o->compiled->program;

    p->n_inputs = program->n_inputs;
    p->wants = mem_new((size_t)p->n_inputs, sizeof(*p->wants));
    for (int i = 0; i < p->n_inputs; i++) {
        const struct value *v = &o->compiled->graph->values[program->inputs[i]];

        p->wants[i] = (struct data_want){ o->tensors[i], v->dtype, v->batch };
    }
}

static void find_order(struct prefetch *p, const struct prefetch_options *o)
{
    const struct plan *plan = o->plan;
    int replicas = plan->stages[o->compiled->stage].replicas;
    int *micros = mem_new((size_t)plan->micro_batches, sizeof(*micros));
    int64_t start = plan_share_start(plan->micro_batch, replicas, o->placement->replica);

    p->samples = plan_share_start(plan->micro_batch, replicas, o->placement->replica + 1) -
                 start;
    p->n_micros = plan->micro_batches;
    p->first = mem_new((size_t)p->n_micros, sizeof(*p->first));
    schedule_order(o->compiled->schedule, o->compiled->stage, true, micros);
    for (int64_t m = 0; m < p->n_micros; m++)
        p->first[m] = (o->placement->pipeline * p->n_micros + micros[m]) * plan->micro_batch +
                      start;
    free(micros);
    p->begin = p->filling = p->taken = o->first_step * p->n_micros;
    p->end = o->end_step * p->n_micros;
    p->chunk = p->samples / (4 * o->threads);
    p->chunk = p->chunk < 1 ? 1 : p->chunk > MAX_CHUNK ? MAX_CHUNK : p->chunk;
}

/* A device copies fastest from memory that is its backend's. */
static void *new_input(const struct prefetch *p, size_t bytes, struct err *err)
{
    return p->backend ? p->backend->alloc_aside(p->device, bytes, true, err)
                      : mem_try(bytes, 1, err);
}

static void free_input(const struct prefetch *p, void *input)
{
    if (p->backend && input)
        p->backend->release_aside(p->device, input, true);
    else
        free(input);
}

/* Enough shares ahead that every thread has samples to read. */
static int make_shares(struct prefetch *p, const struct prefetch_options *o, struct err *err)
{
    int64_t ahead = (o->threads * p->chunk + p->samples - 1) / p->samples + 1;

    p->depth = (int)(ahead < MIN_SHARES ? MIN_SHARES : ahead > MAX_SHARES ? MAX_SHARES : ahead);
    p->shares = mem_new((size_t)p->depth, sizeof(*p->shares));
    for (int s = 0; s < p->depth; s++) {
        struct share *share = &p->shares[s];

        share->samples = mem_new((size_t)p->samples, sizeof(*share->samples));
        share->inputs = mem_new((size_t)p->n_inputs, sizeof(*share->inputs));
        for (int i = 0; i < p->n_inputs; i++) {
            int value = o->compiled->program->inputs[i];

            share->inputs[i] = new_input(p, value_bytes(&o->compiled->graph->values[value]),
                                         err);
            if (!share->inputs[i])
                return -1;
        }
    }
    return 0;
}

/* Threads ------------------------------------------------------------------------------- */

/* The next samples to read; false at the end. Called with the lock held. */
static bool next_work(struct prefetch *p, struct share **share, int64_t *first, int64_t *count)
{
    while (!p->stop && (p->filling >= p->end || p->filling >= p->taken + p->depth))
        pthread_cond_wait(&p->work, &p->lock);
    if (p->stop)
        return false;
    *share = &p->shares[p->filling % p->depth];
    if (p->at == 0) {
        int64_t step = p->filling / p->n_micros;
        const int64_t *batch = sampler_step(&p->sampler, step);

        memcpy((*share)->samples, batch + p->first[p->filling % p->n_micros],
               (size_t)p->samples * sizeof(*batch));
        (*share)->epoch = sampler_epoch(&p->sampler, step);
        (*share)->left = p->samples;
        (*share)->failed = false;
    }
    *first = p->at;
    *count = p->samples - p->at < p->chunk ? p->samples - p->at : p->chunk;
    p->at += *count;
    if (p->at == p->samples) {
        p->at = 0;
        p->filling++;
    }
    return true;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct prefetch *p = worker->prefetch;
    struct share *share;
    int64_t first, count;

    pthread_mutex_lock(&p->lock);
    while (next_work(p, &share, &first, &count)) {
        struct err err = { 0 };
        int bad = 0;

        pthread_mutex_unlock(&p->lock);
        for (int i = 0; i < p->n_inputs && !bad; i++)
            bad = data_gather(worker->reader, &p->wants[i], share->epoch, share->samples,
                              p->samples, first, count, share->inputs[i], &err);
        pthread_mutex_lock(&p->lock);
        if (bad && !share->failed)
            share->err = err;
        share->failed = share->failed || bad;
        share->left -= count;
        if (share->left == 0)
            pthread_cond_signal(&p->ready);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals are for the thread that trains. */
static int start(struct prefetch *p, const struct prefetch_options *o, struct err *err)
{
    sigset_t all, before;
    int bad = 0;

    p->workers = mem_new((size_t)o->threads, sizeof(*p->workers));
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    for (int i = 0; i < o->threads && !bad; i++) {
        struct worker *worker = &p->workers[i];

        worker->prefetch = p;
        worker->reader = data_reader_new(o->data);
        bad = pthread_create(&worker->thread, NULL, work, worker);
        if (bad)
            data_reader_free(worker->reader);
        else
            p->n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return bad ? err_set(err, "a thread to read data cannot be started: %s", strerror(bad)) : 0;
}

struct prefetch *prefetch_new(const struct prefetch_options *options, struct err *err)
{
    struct prefetch *p;

    if (options->compiled->program->n_inputs == 0)
        return NULL;
    p = mem_new(1, sizeof(*p));
    p->backend = options->compiled->backend->separate ? options->compiled->backend : NULL;
    p->device = options->device;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->ready, NULL);
    find_wants(p, options);
    find_order(p, options);
    if (p->samples == 0) {
        prefetch_free(p);
        return NULL;
    }
    if (make_shares(p, options, err) < 0 ||
        sampler_copy(&p->sampler, options->sampler, err) < 0 ||
        start(p, options, err) < 0) {
        prefetch_free(p);
        return NULL;
    }
    return p;
}

void prefetch_free(struct prefetch *prefetch)
{
    struct prefetch *p = prefetch;

    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_workers; i++) {
        pthread_join(p->workers[i].thread, NULL);
        data_reader_free(p->workers[i].reader);
    }
    for (int s = 0; s < p->depth; s++) {
        for (int i = 0; i < p->n_inputs && p->shares[s].inputs; i++)
            free_input(p, p->shares[s].inputs[i]);
        free(p->shares[s].inputs);
        free(p->shares[s].samples);
    }
    sampler_clear(&p->sampler);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->ready);
    pthread_mutex_destroy(&p->lock);
    free(p->shares);
    free(p->workers);
    free(p->wants);
    free(p->first);
    free(p);
}

/* The loop ------------------------------------------------------------------------------ */

/* Is the share that the loop wants complete? */
static bool is_ready(const struct prefetch *p)
{
    return p->filling > p->taken && p->shares[p->taken % p->depth].left == 0;
}

int prefetch_take(struct prefetch *prefetch, const void *const **inputs, struct err *err)
{
    struct prefetch *p = prefetch;
    struct share *share = &p->shares[p->taken % p->depth];
    double begin = clock_now();
    bool failed;

    if (p->taken >= p->end)
        return err_set(err, "no data were asked for beyond the last step");
    pthread_mutex_lock(&p->lock);
    while (!is_ready(p))
        pthread_cond_wait(&p->ready, &p->lock);
    failed = share->failed;
    if (failed && err)
        *err = share->err;
    pthread_mutex_unlock(&p->lock);
    p->waited += clock_now() - begin;
    *inputs = (const void *const *)share->inputs;
    return failed ? -1 : 0;
}

void prefetch_release(struct prefetch *prefetch)
{
    struct prefetch *p = prefetch;

    pthread_mutex_lock(&p->lock);
    p->taken++;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
}

double prefetch_waited(const struct prefetch *prefetch)
{
    return prefetch ? prefetch->waited : 0;
}
