/* SPDX-License-Identifier: MIT */
/* What the log of a run (tasuki-log(5)) says so far: lines come in one by one, and nothing in
 * them is trusted. Memory does not grow with the number of steps.
 */
#ifndef TASUKI_TRAIN_RUN_STATE_H
#define TASUKI_TRAIN_RUN_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_TEXT 200        /* of names and messages: cut there, without control characters */
#define RUN_RECENT 64       /* steps over which a median is taken */
#define RUN_EVENTS 16
#define RUN_POINTS 2048     /* of the curve */

enum run_phase { RUN_WAITING, RUN_STARTING, RUN_TRAINING, RUN_DONE, RUN_STOPPED, RUN_FAILED };

/* Shares of the time of the steps, 0 to 1, and bytes. */
struct run_rank {
    int stage;              /* -1: it has no work */
    double samples;         /* its share of a micro-batch */
    double compute, idle, messages, reduce, data;
    double memory;          /* NAN: not known */
    double factor;          /* see run_state_compare() */
    bool alone;             /* in its stage: the factor is of a line "stragglers" */
};

struct run_event {
    int64_t step;           /* after so many steps */
    char text[RUN_TEXT];
};

struct run_point {
    int64_t step;
    double loss;            /* mean of 'stride' steps, this one the last */
};

struct run_state {
    enum run_phase phase;
    int64_t lines, bad;     /* bad: malformed */
    char first_bad[RUN_TEXT];
    /* of the line "start" */
    char model[RUN_TEXT], backend[RUN_TEXT], device[RUN_TEXT], schedule[RUN_TEXT];
    int64_t first_step, steps, pipelines, micro_batches, micro_batch;   /* 0: not known */
    int n_ranks, n_stages, n_hosts;
    int *replicas;          /* [n_stages] of one pipeline */
    char **hosts;           /* [n_hosts], by rank */
    /* of the last step; NAN: not known */
    int64_t step, epoch, best_step;
    double loss, best, accuracy, lr, norm, predicted;
    double seconds[RUN_RECENT], rates[RUN_RECENT];
    int64_t n_recent;       /* of this start; the last RUN_RECENT are there */
    /* the curve */
    struct run_point *points;
    int n_points, stride, n_sum;
    double sum;
    /* of evaluations and checkpoints */
    double test_loss, test_accuracy, test_best;
    int64_t test_step, checkpoint_step, n_checkpoints;
    int64_t n_bad, last_bad;        /* steps of this start whose numbers were bad; the last one */
    double paused;          /* seconds of both since the start */
    char directory[RUN_TEXT];
    struct run_event events[RUN_EVENTS];    /* the last ones, by n_events % RUN_EVENTS */
    int64_t n_events;
    /* of the last line "ranks", or of "end" */
    struct run_rank *ranks;
    int n_reported;
    double *peaks;          /* of "memory" */
    int n_peaks;
    char error[RUN_TEXT];
};

void run_state_init(struct run_state *state);
void run_state_clear(struct run_state *state);
/* A line of the log; 'text' NULL: one that was too long to read. */
void run_state_line(struct run_state *state, const char *text, size_t length);

const char *run_phase_name(enum run_phase phase);   /* "training" */
/* Has the run ended, whatever came of it? */
bool run_state_over(const struct run_state *state);
/* Medians of the last steps, and what is left at that pace with evaluations and checkpoints as
 * frequent as they were; NAN: not known.
 */
double run_state_seconds(const struct run_state *state);
double run_state_rate(const struct run_state *state);
double run_state_left(const struct run_state *state);
/* Into 'factor' of each rank, how many times as long as the median replica of its stage it
 * computes for a sample; 1 where there is nothing to compare with. From RUN_STRAGGLER on a rank
 * is called a straggler.
 */
#define RUN_STRAGGLER 1.25
void run_state_compare(struct run_state *state);

#endif
