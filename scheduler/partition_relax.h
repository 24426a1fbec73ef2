/* SPDX-License-Identifier: MIT */
/* Between partition_relax.c, which says how long a stage of any plan makes an iteration take, and
 * partition_relax_few.c, which looks at whole plans where there are few.
 */
#ifndef TASUKI_SCHEDULER_PARTITION_RELAX_H
#define TASUKI_SCHEDULER_PARTITION_RELAX_H

#include "scheduler/partition_private.h"

/* The smallest replica count with its largest share; under ZeRO-1, where more of them hold less
 * state each, also the largest.
 */
struct choice {
    int replicas, most;
    const struct share_table *share;
    /* Where devices are of two kinds: of the largest share on the fast ones and on the others, and of
     * the smallest on these; and how many have more than that.
     */
    const struct share_table *fast, *rest, *smallest;
    int larger;
};

/* The way into an interval and out of it, soonest. */
struct border {
    double first, last;     /* when the first and the last value that it reads may be there */
    double back_first, back_last;
    bool reads, returns;
    double turn;            /* when the first backward may begin, where there is little to try */
};

struct relaxation {
    struct search *search;
    struct table *table;
    int *start, *into;      /* of each block: where its incoming edges begin in 'into' */
    struct border *borders; /* [(n + 1) * (n + 1)] */
    int stages;             /* that are looked at; 0: any number */
    int pipelines;
    int64_t b, m;
    int devices, n_choices;     /* of one pipeline */
    struct choice *choices;
    double *to, *back;      /* [blocks]: soonest end of F; from the gradient's arrival on, B of
                             * this block and of all before it */
    double *round;          /* [blocks]: F and B of this block, and between them of all behind it */
    double bandwidth, latency;  /* of the best wire, of the nearest devices */
    double late;            /* W that may follow the last B of the stage, at most */
    int slots;              /* micro-batches that it keeps, at least */
    double messages;        /* the bandwidth; INFINITY where pieces do not add up */
    double *widest;         /* [devices of the cluster + 1]: see search_widest() */
    double *last;           /* [(n + 1) * (n + 1)]: see last_gradients() */
    double *rooms;          /* [devices of the cluster]: memory, ascending */
    struct table *fast, *rest;      /* of two kinds of devices, of which the fast ones are counted */
    bool uneven;            /* devices that are larger than the smallest are counted */
    int large;              /* so many of these, or of those, has a pipeline at most */
    int *needed, *behind;   /* [(devices + 1) * (n + 1)]: devices from this cut on, with so many
                             * large ones at most; scratch */
    int *rows;              /* see relax_needed(); else NULL */
    const int *group;       /* devices of the replicas of a stage, where that is known; else NULL */
};

/* Does it not fit into so many bytes, whatever lies around it? */
bool relax_fits(const struct relaxation *r, int i, int j, const struct choice *choice,
                enum plan_recompute again, double room);
/* Of the devices of its replicas, if they are the largest. */
double relax_most_room(const struct relaxation *r, const struct choice *choice);
/* Seconds after the last backward of any replica, at least. */
double relax_tail(const struct relaxation *r, int i, int j, const struct choice *choice,
                  const struct interval_cost *c, enum plan_recompute again);
/* With 'late' and 'slots' of stage 's'. */
void relax_schedules(struct relaxation *r, int s);
bool relax_has_block(const struct relaxation *r, int i, int j, int b);
bool relax_is_interval(const struct relaxation *r, int i, int j);
const struct border *relax_border(const struct relaxation *r, int i, int j);

/* The fewest devices from each cut on, [stages][n + 1], for stages from each number on that keep to so
 * many seconds; false where none are enough.
 */
bool relax_needed(struct relaxation *r, double seconds, int *needed);

/* Each way to cut on its own. Is there so little to try? Made with the seconds beyond which nothing is
 * of interest, and whether what is faster is added to what the search found. Then all ways with the
 * pipelines, micro-batches and stages that are set, for each of these; then what no plan is faster
 * than, 0 where they were too many.
 */
struct few;
bool relax_has_few(const struct relaxation *r);
struct few *relax_few_new(struct relaxation *r, double upper, bool keep);
void relax_few_add(struct few *f);
double relax_few_least(struct few *f);
void relax_few_free(struct few *f);

#endif
