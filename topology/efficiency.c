/* SPDX-License-Identifier: MIT */
#include "topology/efficiency.h"

#include <math.h>

#include "base/err.h"
#include "base/json.h"

/* Of a call that does anything; their ratios are finite. */
#define LEAST_WORK 1
#define MOST_WORK 1e300
#define ROUNDING 1e-9       /* relative: of figures that were written and read */

static const char *const class_names[EFFICIENCY_CLASSES] = {
    "matmul", "convolution", "attention", "normalization", "memory",
};

double efficiency_share(const struct efficiency *efficiency, enum efficiency_class of,
                        double work)
{
    const struct efficiency_point *p;
    int n = efficiency ? efficiency->curves[of].n : 0, i = 1;

    if (n == 0)
        return 1;
    p = efficiency->curves[of].points;
    if (work <= p[0].work)
        return p[0].share;
    while (i < n && work >= p[i].work)
        i++;
    if (i == n)
        return p[n - 1].share;
    return p[i - 1].share * pow(p[i].share / p[i - 1].share,
                                log(work / p[i - 1].work) / log(p[i].work / p[i - 1].work));
}

bool efficiency_same(const struct efficiency *a, const struct efficiency *b)
{
    for (int c = 0; c < EFFICIENCY_CLASSES; c++) {
        if (a->curves[c].n != b->curves[c].n)
            return false;
        for (int i = 0; i < a->curves[c].n; i++)
            if (a->curves[c].points[i].work != b->curves[c].points[i].work ||
                a->curves[c].points[i].share != b->curves[c].points[i].share)
                return false;
    }
    return true;
}

bool efficiency_is_none(const struct efficiency *efficiency)
{
    return efficiency_same(efficiency, &(struct efficiency){ 0 });
}

static int read_point(const struct json_reader *r, const char *key, size_t index,
                      const json_t *pair, struct efficiency_point *point, struct err *err)
{
    const json_t *work = json_array_get(pair, 0), *share = json_array_get(pair, 1);

    if (json_array_size(pair) != 2 || !json_is_number(work) || !json_is_number(share))
        return json_error(r, key, err, "point %zu: expected [work, share]", index + 1);
    *point = (struct efficiency_point){ json_number_value(work), json_number_value(share) };
    if (!(point->work >= LEAST_WORK && point->work <= MOST_WORK))
        return json_error(r, key, err, "point %zu: work is from %d to %g", index + 1, LEAST_WORK,
                          MOST_WORK);
    if (!(point->share > 0 && point->share <= 1))
        return json_error(r, key, err, "point %zu: a share is above 0 and at most 1",
                          index + 1);
    return 0;
}

static int check_order(const struct json_reader *r, const char *key, size_t index,
                       const struct efficiency_point *p, struct err *err)
{
    if (p[1].work <= p[0].work)
        return json_error(r, key, err, "point %zu: work must ascend", index + 1);
    if (p[1].share / p[0].share > p[1].work / p[0].work * (1 + ROUNDING))
        return json_error(r, key, err, "point %zu: a call would take less time than one with "
                          "less to do", index + 1);
    return 0;
}

static int read_curve(struct json_reader *r, enum efficiency_class of,
                      struct efficiency *efficiency, struct err *err)
{
    struct efficiency_point *points = efficiency->curves[of].points;
    const char *key = class_names[of];
    const json_t *array;
    size_t n;

    if (json_get_array(r, key, false, &array, err))
        return -1;
    n = json_array_size(array);
    if (array && (n < 1 || n > EFFICIENCY_POINTS))
        return json_error(r, key, err, "expected 1 to %d points", EFFICIENCY_POINTS);
    for (size_t i = 0; i < n; i++)
        if (read_point(r, key, i, json_array_get(array, i), &points[i], err) ||
            (i > 0 && check_order(r, key, i, &points[i - 1], err)))
            return -1;
    efficiency->curves[of].n = (int)n;
    return 0;
}

int efficiency_read(struct json_reader *r, const char *key, struct efficiency *efficiency,
                    struct err *err)
{
    struct json_reader sub;
    const json_t *object;

    *efficiency = (struct efficiency){ 0 };
    if (json_get_object(r, key, false, &object, err))
        return -1;
    if (!object)
        return 0;
    if (json_reader_sub(&sub, r, key, -1, object, err))
        return -1;
    for (int c = 0; c < EFFICIENCY_CLASSES; c++)
        if (read_curve(&sub, (enum efficiency_class)c, efficiency, err))
            return -1;
    return json_reader_end(&sub, err);
}

json_t *efficiency_json(const struct efficiency *efficiency)
{
    json_t *object = json_object();

    for (int c = 0; c < EFFICIENCY_CLASSES; c++) {
        json_t *array = json_array();

        for (int i = 0; i < efficiency->curves[c].n; i++)
            json_array_append_new(array, json_pack("[f, f]",
                                                   efficiency->curves[c].points[i].work,
                                                   efficiency->curves[c].points[i].share));
        if (json_array_size(array) > 0)
            json_object_set(object, class_names[c], array);
        json_decref(array);
    }
    return object;
}
