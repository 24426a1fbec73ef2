/* SPDX-License-Identifier: MIT */
/* An optimizer's step over ranges of flat arrays, all at once, and what it is scaled by: however many
 * there are, as much is handed to the stream.
 */
#ifndef TASUKI_TRAIN_STEPPING_H
#define TASUKI_TRAIN_STEPPING_H

#include <stdbool.h>

#include "kernels/backend.h"

struct stepping {
    const struct backend *backend;
    struct device *device;
    struct stream *stream;
    int n;
    struct ranges *ranges;      /* what is stepped, */
    struct ranges *tensors;     /* and what each is part of; NULL: no norms are needed */
    double *sums;               /* [2 * n] in the backend's memory: squares, and those of parameters */
    double *host;               /* [2 * n], of the host: what stepping_sum() and stepping_take() find */
};

/* Does the optimizer scale the step of a tensor by norms of it? */
bool stepping_needs_norms(enum optimizer_kind kind);
/* 'tensors' are where in the parameters ('g') all of what each range is part of lies, and how long it
 * is: 0 where it does not decay. NULL: 'kind' needs no norms.
 */
int stepping_init(struct stepping *stepping, const struct backend *backend, struct device *device,
                  struct stream *stream, int n, const struct range *ranges,
                  const struct range *tensors, struct err *err);
void stepping_clear(struct stepping *stepping);

/* Sum up the squares of each range of 'g', which are there for the host, [n], when the stream has come to
 * it: nothing here waits.
 */
int stepping_sum(struct stepping *stepping, enum dtype dtype, const void *g, struct err *err);
const double *stepping_squares(const struct stepping *stepping);
/* What stepping_run() scales by, where it needs norms. LAMB's moments move for it. */
int stepping_norms(struct stepping *stepping, const struct optimizer_args *args,
                   const struct range_arrays *arrays, double g_scale, struct err *err);
/* The squares that stepping_norms() has found, likewise, at stepping_shares(). And back, when others have
 * added what they have of the tensors.
 */
int stepping_take(struct stepping *stepping, struct err *err);
double *stepping_shares(const struct stepping *stepping);
int stepping_put(struct stepping *stepping, struct err *err);
int stepping_run(struct stepping *stepping, const struct optimizer_args *args,
                 const struct range_arrays *arrays, double g_scale, struct err *err);

#endif
