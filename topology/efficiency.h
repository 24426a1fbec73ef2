/* SPDX-License-Identifier: MIT */
/* Which share of a device's peak its operators reach, by class and by how much a call has to do.
 *
 * A curve is a row of points with ascending work. Between two of them log(share) is linear in
 * log(work); before the first and after the last it stays. Between no two does the share grow
 * faster than the work: a call with more to do never takes less time.
 */
#ifndef TASUKI_TOPOLOGY_EFFICIENCY_H
#define TASUKI_TOPOLOGY_EFFICIENCY_H

#include <stdbool.h>

#include <jansson.h>

struct err;
struct json_reader;

/* Of the first three work is operations and the share is one of operations/s; of the others it
 * is bytes, and bytes/s.
 */
enum efficiency_class {
    EFFICIENCY_MATMUL, EFFICIENCY_CONV, EFFICIENCY_ATTENTION, EFFICIENCY_NORM,
    EFFICIENCY_MEMORY, EFFICIENCY_CLASSES
};

#define EFFICIENCY_POINTS 16

struct efficiency_point {
    double work, share;
};

struct efficiency {
    struct {
        int n;              /* 0: all of the peak */
        struct efficiency_point points[EFFICIENCY_POINTS];
    } curves[EFFICIENCY_CLASSES];
};

/* 'efficiency' NULL: 1. */
double efficiency_share(const struct efficiency *efficiency, enum efficiency_class of,
                        double work);
/* No class has a curve. */
bool efficiency_is_none(const struct efficiency *efficiency);
bool efficiency_same(const struct efficiency *a, const struct efficiency *b);
/* An object of a device, which 'r' has under 'key': {"matmul": [[1e6, 0.1], [1e9, 0.8]]}. */
int efficiency_read(struct json_reader *r, const char *key, struct efficiency *efficiency,
                    struct err *err);
json_t *efficiency_json(const struct efficiency *efficiency);

#endif
