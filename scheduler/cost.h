/* SPDX-License-Identifier: MIT */
/* The cost file: what each block costs at each micro-batch size (tasuki-cost(5)).
 *
 * Times in seconds, sizes in bytes, for one replica and one micro-batch. Arrays run over
 * 'micro_batch'. Between listed sizes everything is linear, outside proportional to samples;
 * 'parameters' never scale, nor does a block whose 'batch_axis' is false.
 */
#ifndef TASUKI_SCHEDULER_COST_H
#define TASUKI_SCHEDULER_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

struct cost_steps;
struct err;

struct cost_block {
    char *name;
    double *forward, *dgrad, *wgrad;    /* [n_sizes]; wgrad NULL: inside dgrad */
    double step;                        /* optimizer update of its parameters */
    double parameters;                  /* bytes, without 'shared' ones */
    double *activations;                /* kept for the backward, own output included */
    double *kept_for_wgrad;             /* of these, until W; NULL: all of them */
    double *read_by_backward;           /* wherever it was made, what its backward reads as the
                                         * last one; NULL: not known */
    double *read_from_others;           /* of that, what other blocks made */
    double *read_selectively;           /* of what selective recompute keeps, what this block alone
                                         * reads; NULL: not known */
    double *passed_on;                  /* of the activations, the sum of such edges' values; not in
                                         * the file; NULL: none */
    double statistics;      /* of the parameters, what is not trained */
    int n_tensors;
    double *tensors;        /* bytes of each of the parameters, statistics last; 0: not known */
    double prepared;                    /* bytes made of the parameters, once per step, and what
                                         * it takes to align so many arrays of them: */
#define COST_ALIGNED_ARRAYS 4           /* parameters, gradients, two of the optimizer's state */
    double *gradients_for_wgrad;        /* what dgrad makes, until W; NULL: none */
    double *workspace;                  /* NULL: none */
    double *workspace_forward;          /* of it, while the block runs forward; NULL: none */
    double *workspace_delayed;          /* without what waits for wgrad; NULL: not known */
    /* At most, where wgrad is put off: of what is kept and waits for it, and with the workspace;
     * NULL: the sums.
     */
    double *activations_delayed, *peak_delayed;
    double *kernels;                    /* what its kernels ask for; NULL: nothing */
    double *peak;           /* at most, of the workspace and what it keeps; NULL: both */
    /* Of the variant that recomputes selectively; NULL: there is none, it runs as without. */
    double *selective_dgrad, *selective_activations;
    double *selective_peak; /* at most, of the workspace and what it makes again; NULL: both */
    double *made_again;     /* bytes of what it runs again for its backward; NULL: all of its
                             * activations that are not kept */
    bool batch_axis;
    char *first_node, *last_node;       /* ONNX names where made from a model; may be NULL */
};

struct cost_edge {
    int from, to;           /* blocks, from < to */
    char *value;            /* edges with the same 'from' and 'value' are the same bytes, */
    int id;                 /* and have this in common */
    double *bytes, *gradient_bytes;     /* [n_sizes] */
    bool passed_on;         /* kept for wgrad, but for nothing in its own block's backward */
    bool reordered;         /* within a stage it has another layout than where it is sent */
    bool once;              /* the reader's backward does not: see struct cost_input */
};

struct cost_input {
    char *name;
    double *bytes;
    bool reordered;         /* it is read in another layout */
    bool once;              /* no backward reads it: it is there for one micro-batch at a time */
    int n_to;
    int *to;                /* blocks */
};

struct cost_shared {
    char *name;
    double bytes;
    int n_blocks;
    int *blocks;            /* ascending */
};

struct cost {
    char *device;           /* kind of device that was measured, "" unknown */
    char *precision;
    double optimizer_bytes_per_parameter, gradient_bytes_per_parameter; /* of a 4-byte one */
    double message_buffers; /* for each message between neighbours, beside the slots */
    double spread;          /* of what was measured: of the middle half of the rounds, relative to
                             * the median; 0: not measured, or not known */
    int n_sizes;
    int64_t *micro_batch;   /* ascending */
    int n_blocks, n_edges, n_inputs, n_shared;
    struct cost_block *blocks;          /* in a topological order */
    struct cost_edge *edges;
    struct cost_input *inputs;
    struct cost_shared *shared;
    struct cost_steps *steps;           /* cost_steps.h; NULL: not known */
    /* The same network on other kinds of device, on which it takes no longer: of these all that
     * counts is seconds. See cost_join().
     */
    int n_others;
    struct cost **others;
};

/* Kinds that one cost may have figures of. */
#define COST_MOST_KINDS 8

/* Checks everything: order, cycles, negative, infinite or missing figures, names. Blocks are
 * sorted topologically (stable) on load.
 */
struct cost *cost_load(const char *path, struct err *err);
/* Of several files (all are read) those that were made for these kinds of device, as one: the first
 * of each. Where none was, the first alone. NULL where one cannot be used, or one of the kinds has
 * none, unless a file that names no device stands for it.
 */
struct cost *cost_choose(int n, const char *const *paths, int n_kinds, const char *const *kinds,
                         struct err *err);
/* One cost of both, which are taken: the slower one, of the largest micro-batch, with the other
 * among its 'others', and of what they say in bytes of blocks and inputs the larger. NULL where they
 * are not of one network: then both are freed, and 'err' names where they differ.
 */
struct cost *cost_join(struct cost *a, struct cost *b, struct err *err);
/* Of one kind of device: itself, where none of the others is of that. */
const struct cost *cost_for(const struct cost *cost, const char *kind);
/* Are there figures for that kind, or for any? */
bool cost_knows(const struct cost *cost, const char *kind);
/* Where all of these kinds have one cost: that. Else itself. */
const struct cost *cost_common(const struct cost *cost, int n_kinds, const char *const *kinds);
/* No device of these kinds takes less: a copy with the least of each figure in seconds; and without
 * others.
 */
struct cost *cost_least(const struct cost *cost, int n_kinds, const char *const *kinds);
struct cost *cost_from_json(const char *path, const json_t *json, struct err *err);
/* What was made, not read, and has no steps: checked and sorted as a file is. -1: an error. */
int cost_settle(struct cost *cost, const char *path, struct err *err);
json_t *cost_to_json(const struct cost *cost);
int cost_save(const struct cost *cost, const char *path, struct err *err);
void cost_free(struct cost *cost);
/* And those of other kinds of devices. */
void cost_set_precision(struct cost *cost, const char *precision);

/* A copy with the blocks in another topological order, order[new] = old; of the others, too. */
struct cost *cost_reordered(const struct cost *cost, const int *order);
/* Do two edges carry the same bytes? Those stand together. */
static inline bool cost_same_value(const struct cost_edge *a, const struct cost_edge *b)
{
    return a->id == b->id;
}
/* The edges into block b are into[start[b]] … into[start[b + 1] - 1]; malloc'ed. */
void cost_edges_into(const struct cost *cost, int **start, int **into);

/* A number of samples among the listed sizes. */
struct cost_point {
    int i;                  /* the size before it; where it is outside, the next one */
    bool between;
    double samples;         /* beyond that size; outside in all */
    double width;           /* to the next size; outside that size */
};

static inline struct cost_point cost_point(const struct cost *cost, double samples)
{
    const int64_t *sizes = cost->micro_batch;
    int n = cost->n_sizes, i = 0;

    if (samples <= (double)sizes[0])
        return (struct cost_point){ 0, false, samples, (double)sizes[0] };
    if (samples >= (double)sizes[n - 1])
        return (struct cost_point){ n - 1, false, samples, (double)sizes[n - 1] };
    while (samples > (double)sizes[i + 1])
        i++;
    return (struct cost_point){ i, true, samples - (double)sizes[i],
                                (double)(sizes[i + 1] - sizes[i]) };
}

/* An array of the file there. 'scales': false keeps it constant. */
static inline double cost_there(const struct cost_point *at, const double *array, bool scales)
{
    if (at->between)
        return array[at->i] + (array[at->i + 1] - array[at->i]) * at->samples / at->width;
    return scales ? array[at->i] * at->samples / at->width : array[at->i];
}

/* The same at 'samples' samples. */
static inline double cost_at(const struct cost *cost, const double *array, bool scales,
                             double samples)
{
    struct cost_point at = cost_point(cost, samples);

    return cost_there(&at, array, scales);
}

#endif
