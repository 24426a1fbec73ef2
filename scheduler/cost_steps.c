/* SPDX-License-Identifier: MIT */
#include "scheduler/cost_steps.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "scheduler/cost_internal.h"

#define MOST_SAMPLES (INT64_C(1) << 40)

static const char *const part_names[] = { [PART_FORWARD] = "forward", [PART_DGRAD] = "dgrad",
                                          [PART_WGRAD] = "wgrad" };

void cost_steps_free(struct cost_steps *steps)
{
    if (!steps)
        return;
    for (int v = 0; v < steps->n_values; v++)
        free(steps->values[v].bytes);
    for (int i = 0; i < steps->n; i++) {
        free(steps->items[i].reads);
        free(steps->items[i].makes);
    }
    free(steps->values);
    free(steps->items);
    free(steps->returns);
    free(steps);
}

static json_t *ids(const int *values, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

static json_t *value_to_json(const struct cost *cost, const struct cost_value *v)
{
    json_t *o = json_pack("{s:o}", "bytes", cost_numbers(cost, v->bytes));

    if (v->grouped)
        json_object_set_new(o, "grouped", json_integer(v->group));
    else if (!v->batch_axis)
        json_object_set_new(o, "batch_axis", json_false());
    if (v->result)
        json_object_set_new(o, "result", json_true());
    if (v->reordered)
        json_object_set_new(o, "reordered", json_true());
    if (v->prepared)
        json_object_set_new(o, "prepared", json_true());
    return o;
}

static json_t *step_to_json(const struct cost *cost, const struct cost_step *step)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:o, s:o}", "op", step->op->name, "part",
                          part_names[step->part], "block", cost->blocks[step->block].name,
                          "reads", ids(step->reads, step->n_reads), "makes",
                          ids(step->makes, step->n_makes));

    if (step->follows >= 0)
        json_object_set_new(o, "follows", json_integer(step->follows));
    return o;
}

void cost_steps_to_json(const struct cost *cost, json_t *top)
{
    json_t *values = json_array(), *items = json_array(), *returns = json_array();
    const struct cost_steps *s = cost->steps;

    for (int v = 0; s && v < s->n_values; v++)
        json_array_append_new(values, value_to_json(cost, &s->values[v]));
    for (int i = 0; s && i < s->n; i++)
        json_array_append_new(items, step_to_json(cost, &s->items[i]));
    for (int i = 0; s && i < s->n_returns; i++) {
        const struct cost_return *r = &s->returns[i];

        json_array_append_new(returns,
                              json_pack("{s:i, s:i, s:s, s:s}", "value", r->value, "received",
                                        r->received, "from", cost->blocks[r->from].name, "to",
                                        cost->blocks[r->to].name));
    }
    if (s) {
        json_object_set(top, "values", values);
        json_object_set(top, "steps", items);
        json_object_set(top, "returns", returns);
    }
    json_decref(values);
    json_decref(items);
    json_decref(returns);
}

static int read_value(struct cost_reading *reading, struct json_reader *r, int at,
                      struct err *err)
{
    struct cost_value *v = &reading->cost->steps->values[at];
    const bool no = false, yes = true;
    const int64_t none = -1;

    v->maker = v->back = v->reader = -1;
    if (json_get_bool(r, "batch_axis", &yes, &v->batch_axis, err) ||
        json_get_int(r, "grouped", 0, MOST_SAMPLES, &none, &v->group, err) ||
        json_get_bool(r, "result", &no, &v->result, err) ||
        json_get_bool(r, "reordered", &no, &v->reordered, err) ||
        json_get_bool(r, "prepared", &no, &v->prepared, err))
        return -1;
    v->grouped = v->group >= 0;
    v->batch_axis &= !v->grouped;
    return cost_read_numbers(reading, r, "bytes", true, v->batch_axis, &v->bytes, err);
}

static int read_ids(const struct cost_reading *reading, struct json_reader *r, const char *key,
                    int *n, int **ids, struct err *err)
{
    int n_values = reading->cost->steps->n_values;
    const json_t *list;

    if (json_get_array(r, key, true, &list, err))
        return -1;
    *ids = mem_new(json_array_size(list) + 1, sizeof(**ids));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= n_values)
            return json_error(r, key, err, "expected numbers of \"values\", from 0 to %d",
                              n_values - 1);
        (*ids)[(*n)++] = (int)json_integer_value(id);
    }
    return 0;
}

static int find_part(struct json_reader *r, const char *name, enum part *part, struct err *err)
{
    for (int p = PART_FORWARD; p < PART_COUNT; p++)
        if (strcmp(part_names[p], name) == 0) {
            *part = (enum part)p;
            return 0;
        }
    return json_error(r, "part", err, "\"%s\": expected forward, dgrad or wgrad", name);
}

/* Each value is made once, by what comes before its readers. */
static int check_step(struct cost_steps *s, struct json_reader *r, int at, struct err *err)
{
    const struct cost_step *step = &s->items[at];

    if (at && step->part < s->items[at - 1].part)
        return json_error(r, "part", err, "%s comes before %s", part_names[step->part],
                          part_names[s->items[at - 1].part]);
    for (int k = 0; k < step->n_reads; k++)
        if (s->values[step->reads[k]].reader < 0)
            s->values[step->reads[k]].reader = at;
    for (int k = 0; k < step->n_makes; k++) {
        struct cost_value *v = &s->values[step->makes[k]];

        if (v->maker >= 0)
            return json_error(r, "makes", err, "%d is made twice", step->makes[k]);
        if (v->reader >= 0)
            return json_error(r, "makes", err, "%d was read before", step->makes[k]);
        if (v->prepared)
            return json_error(r, "makes", err, "%d is prepared", step->makes[k]);
        v->maker = at;
    }
    return 0;
}

static int read_step(struct cost_reading *reading, struct json_reader *r, int at,
                     struct err *err)
{
    struct cost_step *step = &reading->cost->steps->items[at];
    const int64_t none = -1;
    const char *op, *part, *block;
    int64_t follows;

    if (json_get_string(r, "op", true, NULL, &op, err) ||
        json_get_string(r, "part", true, NULL, &part, err) ||
        json_get_string(r, "block", true, NULL, &block, err) ||
        cost_find_block(reading, r, "block", block, &step->block, err) ||
        find_part(r, part, &step->part, err) ||
        read_ids(reading, r, "reads", &step->n_reads, &step->reads, err) ||
        read_ids(reading, r, "makes", &step->n_makes, &step->makes, err) ||
        json_get_int(r, "follows", 0, reading->cost->steps->n_values - 1, &none, &follows, err))
        return -1;
    step->follows = (int)follows;
    step->op = op_find(op);
    if (!step->op)
        return json_error(r, "op", err, "there is no operator \"%s\"", op);
    if (strcmp(op, "Reorder") == 0 && (step->n_reads != 1 || step->n_makes > 1))
        return json_error(r, "op", err, "a Reorder reads one value and makes one at most");
    if (step->op->flags & OP_VIEW && (step->n_reads > 1 || step->n_makes != 1))
        return json_error(r, "op", err, "%s, a view, reads one value at most and makes one", op);
    return check_step(reading->cost->steps, r, at, err);
}

/* The step after which it is there. */
static int made_by(const struct cost_steps *s, int v)
{
    while (s->values[v].maker < 0)
        v = s->returns[s->values[v].back].value;
    return s->values[v].maker;
}

static int read_return(struct cost_reading *reading, struct json_reader *r, int at,
                       struct err *err)
{
    struct cost_steps *s = reading->cost->steps;
    struct cost_return *to = &s->returns[at];
    int64_t value, received;
    const char *from, *home;

    if (json_get_int(r, "value", 0, s->n_values - 1, NULL, &value, err) ||
        json_get_int(r, "received", 0, s->n_values - 1, NULL, &received, err) ||
        json_get_string(r, "from", true, NULL, &from, err) ||
        json_get_string(r, "to", true, NULL, &home, err) ||
        cost_find_block(reading, r, "from", from, &to->from, err) ||
        cost_find_block(reading, r, "to", home, &to->to, err))
        return -1;
    to->value = (int)value;
    to->received = (int)received;
    if (s->values[value].maker < 0 && s->values[value].back < 0)
        return json_error(r, "value", err, "nothing makes %d", to->value);
    if (s->values[received].maker >= 0 || s->values[received].back >= 0)
        return json_error(r, "received", err, "%d is made, or received, twice", to->received);
    if (s->values[received].prepared)
        return json_error(r, "received", err, "%d is prepared", to->received);
    if (s->values[received].reader >= 0 && s->values[received].reader <= made_by(s, to->value))
        return json_error(r, "received", err, "%d is read before %d is made", to->received,
                          to->value);
    s->values[received].back = at;
    return 0;
}

typedef int read_entry(struct cost_reading *reading, struct json_reader *r, int at,
                       struct err *err);

/* As many entries of so many bytes as are read, each by 'read'. */
static int read_list(struct cost_reading *reading, const char *key, size_t size, void **items,
                     int *n, read_entry *read, struct err *err)
{
    struct json_reader *top = &reading->top, sub;
    const json_t *list;

    if (json_get_array(top, key, true, &list, err))
        return -1;
    if (json_array_size(list) > COST_MOST_STEPS)
        return json_error(top, key, err, "more than %d", COST_MOST_STEPS);
    *items = mem_new(json_array_size(list), size);
    for (int i = 0; i < (int)json_array_size(list); i++) {
        *n = i + 1;
        if (json_reader_sub(&sub, top, key, i, json_array_get(list, (size_t)i), err) ||
            read(reading, &sub, i, err) || json_reader_end(&sub, err))
            return -1;
    }
    return 0;
}

int cost_read_steps(struct cost_reading *reading, struct err *err)
{
    const json_t *top = reading->top.object;
    struct cost_steps *s;

    if (!json_object_get(top, "values") && !json_object_get(top, "steps") &&
        !json_object_get(top, "returns"))
        return 0;
    s = reading->cost->steps = mem_new(1, sizeof(*s));
    if (read_list(reading, "values", sizeof(*s->values), (void **)&s->values, &s->n_values,
                  read_value, err) ||
        read_list(reading, "steps", sizeof(*s->items), (void **)&s->items, &s->n, read_step, err))
        return -1;
    return read_list(reading, "returns", sizeof(*s->returns), (void **)&s->returns, &s->n_returns,
                     read_return, err);
}
