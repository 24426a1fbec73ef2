/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/order.h"
#include "scheduler/cost_internal.h"
#include "scheduler/plan.h"

#define MAX_SIZES 64
#define MAX_BLOCKS 16384
#define MAX_EDGES 262144
#define MAX_SAMPLES ((int64_t)1 << 40)
#define MAX_NUMBER 1e18
/* Arrays over the micro-batch sizes, in all: a small file with many short entries must not
 * become gigabytes.
 */
#define MAX_NUMBERS 33554432
/* Sums of two numbers of a file differ by rounding alone. */
#define SAME 1e-9

/* A measured cost is none of these. */
static int hint_number(struct err *err)
{
    return err_hint(err, "tasuki profile measures costs, 0 is for what costs nothing");
}

/* 0 where it is left out. */
static int read_number(struct json_reader *r, const char *key, double *value, struct err *err)
{
    const double zero = 0;

    return json_get_number(r, key, 0, MAX_NUMBER, &zero, value, err) ? hint_number(err) : 0;
}

static int check_number(const struct json_reader *r, const char *key, const json_t *value,
                        double *result, struct err *err)
{
    double x = json_is_number(value) ? json_number_value(value) : -1;

    if (!json_is_number(value) || !isfinite(x) || x < 0 || x > MAX_NUMBER) {
        json_error(r, key, err, "expected numbers from 0 to %g", MAX_NUMBER);
        return hint_number(err);
    }
    *result = x;
    return 0;
}

/* The number that stands at the first size, at all sizes. */
static int spread(const struct cost *cost, const struct json_reader *r, const char *key,
                  bool scales, double one, double *array, struct err *err)
{
    for (int i = 0; i < cost->n_sizes; i++) {
        array[i] = scales ? one * (double)cost->micro_batch[i] / (double)cost->micro_batch[0]
                          : one;
        if (array[i] > MAX_NUMBER)
            return json_error(r, key, err, "%g grows beyond %g with the samples", one,
                              MAX_NUMBER);
    }
    return 0;
}

int cost_read_numbers(struct cost_reading *reading, struct json_reader *r, const char *key,
                      bool required, bool scales, double **result, struct err *err)
{
    const struct cost *cost = reading->cost;
    const json_t *value = json_object_get(r->object, key), *list = NULL;
    size_t n = (size_t)cost->n_sizes;
    double one, *array;
    int bad = 0;

    if (json_is_number(value)) {
        if (json_get_number(r, key, 0, MAX_NUMBER, NULL, &one, err))
            return hint_number(err);
    } else {
        if (json_get_array(r, key, required, &list, err))
            return -1;
        if (!list)
            return 0;
        if (json_array_size(list) != n && json_array_size(list) != 1)
            return json_error(r, key, err, "expected one number or %zu, as \"micro_batch\"", n);
        if (check_number(r, key, json_array_get(list, 0), &one, err))
            return -1;
    }
    reading->numbers += n;
    if (reading->numbers > MAX_NUMBERS)
        return json_error(r, key, err, "too many numbers in this file");
    array = mem_new(n, sizeof(*array));
    if (list && json_array_size(list) == n)
        for (size_t i = 0; i < n && !bad; i++)
            bad = check_number(r, key, json_array_get(list, i), &array[i], err);
    else
        bad = spread(cost, r, key, scales, one, array, err);
    if (bad) {
        free(array);
        return -1;
    }
    *result = array;
    return 0;
}

static int read_name(struct json_reader *r, const char *key, char **name, struct err *err)
{
    const char *text;

    if (json_get_string(r, key, true, NULL, &text, err))
        return -1;
    if (!text[0])
        return json_error(r, key, err, "is empty");
    *name = mem_strdup(text);
    return 0;
}

/* What a variant has in place of the block's own figures. */
static int read_instead(struct cost_reading *reading, struct json_reader *r, const char *key,
                        const struct cost_block *b, const double *own, double **result,
                        struct err *err)
{
    size_t n = (size_t)reading->cost->n_sizes;

    free(*result);
    *result = NULL;
    if (cost_read_numbers(reading, r, key, false, b->batch_axis, result, err))
        return -1;
    if (!*result) {
        *result = mem_new(n, sizeof(double));
        memcpy(*result, own, n * sizeof(double));
    }
    return 0;
}

static int read_selective(struct cost_reading *reading, struct json_reader *r, struct cost_block *b,
                          struct err *err)
{
    free(b->made_again);
    free(b->selective_peak);
    b->made_again = b->selective_peak = NULL;
    if (read_instead(reading, r, "dgrad", b, b->dgrad, &b->selective_dgrad, err) ||
        read_instead(reading, r, "activations", b, b->activations, &b->selective_activations,
                     err) ||
        cost_read_numbers(reading, r, "made_again", false, b->batch_axis, &b->made_again, err) ||
        cost_read_numbers(reading, r, "peak", false, b->batch_axis, &b->selective_peak, err))
        return -1;
    for (int i = 0; i < reading->cost->n_sizes; i++)
        if (b->selective_dgrad[i] < b->dgrad[i])
            return json_error(r, "dgrad", err, "expected no less than where nothing is run again");
    return 0;
}

/* Does the variant say of its backward what follows from the block? */
static int check_dgrad(struct cost_reading *reading, struct json_reader *r,
                       const struct cost_block *b, bool full, bool *follows, struct err *err)
{
    double *given;

    *follows = true;
    if (cost_read_numbers(reading, r, "dgrad", false, b->batch_axis, &given, err))
        return -1;
    for (int i = 0; i < reading->cost->n_sizes; i++) {
        double own = b->dgrad[i] + (full ? b->forward[i] : 0);

        *follows &= fabs(given[i] - own) <= SAME * own;
    }
    free(given);
    return 0;
}

/* A figure that no plan is made by is refused: without it the file says what it is planned by. */
static int check_used(struct cost_reading *reading, struct json_reader *r,
                      const struct cost_block *b, enum plan_recompute kind, const char *key,
                      struct err *err)
{
    bool full = kind == PLAN_RECOMPUTE_FULL, used = strcmp(key, "group_bytes") == 0;

    if (!json_object_get(r->object, key))
        return 0;
    if (kind == PLAN_RECOMPUTE_SELECTIVE)
        used |= strcmp(key, "dgrad") == 0 || strcmp(key, "activations") == 0 ||
                strcmp(key, "made_again") == 0 || strcmp(key, "peak") == 0;
    else if (strcmp(key, "dgrad") == 0 && check_dgrad(reading, r, b, full, &used, err))
        return -1;
    if (used)
        return 0;
    return json_error(r, key, err, "\"%s\" goes by block \"%s\"'s own%s: leave it out",
                      plan_recompute_name(kind), b->name,
                      full ? ", with its forward once more" : "");
}

/* Numbers, or lists of them. */
static int check_numbers(struct json_reader *r, const char *key, struct err *err)
{
    const json_t *list;
    double number;

    if (json_is_number(json_object_get(r->object, key)))
        return json_get_number(r, key, 0, MAX_NUMBER, NULL, &number, err);
    if (json_get_array(r, key, false, &list, err))
        return -1;
    for (size_t k = 0; k < json_array_size(list); k++)
        if (check_number(r, key, json_array_get(list, k), &number, err))
            return -1;
    return 0;
}

/* A block split over several devices is in no plan yet: what is said of it is for others. */
static int read_variant(struct cost_reading *reading, struct json_reader *r, struct cost_block *b,
                        struct err *err)
{
    static const char *const numbers[] = { "forward", "dgrad", "wgrad", "activations",
                                           "kept_for_wgrad", "gradients_for_wgrad", "workspace",
                                           "workspace_forward", "workspace_delayed", "kernels",
                                           "activations_delayed", "peak_delayed", "group_bytes",
                                           "made_again", "peak" };
    static const char *const single[] = { "step", "parameters", "prepared" };
    const int64_t one = 1;
    enum plan_recompute kind;
    const char *recompute;
    int64_t tensor;
    double ignored;

    if (json_get_string(r, "recompute", false, "none", &recompute, err) ||
        json_get_int(r, "tensor", 1, 65536, &one, &tensor, err))
        return -1;
    kind = plan_recompute_find(recompute);
    if (kind == PLAN_RECOMPUTE_COUNT)
        return json_error(r, "recompute", err, "expected none, selective or full");
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (check_numbers(r, numbers[i], err) ||
            (tensor == 1 && check_used(reading, r, b, kind, numbers[i], err)))
            return -1;
    for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++)
        if (read_number(r, single[i], &ignored, err) ||
            (tensor == 1 && check_used(reading, r, b, kind, single[i], err)))
            return -1;
    if (kind == PLAN_RECOMPUTE_SELECTIVE && tensor == 1 && read_selective(reading, r, b, err))
        return -1;
    return json_reader_end(r, err);
}

static int read_variants(struct cost_reading *reading, struct json_reader *r, struct cost_block *b,
                         struct err *err)
{
    const json_t *list;

    if (json_get_array(r, "variants", false, &list, err))
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct json_reader sub;

        if (json_reader_sub(&sub, r, "variants", (int)i, json_array_get(list, i), err) ||
            read_variant(reading, &sub, b, err))
            return -1;
    }
    return 0;
}

static int read_nodes(struct json_reader *r, struct cost_block *b, struct err *err)
{
    const char *first, *last;

    if (json_get_string(r, "first", false, "", &first, err) ||
        json_get_string(r, "last", false, "", &last, err))
        return -1;
    if (first[0] && last[0]) {
        b->first_node = mem_strdup(first);
        b->last_node = mem_strdup(last);
    }
    return 0;
}

/* The sizes of so many numbers are one of these. */
static bool adds_up(const double *numbers, int n, double wanted)
{
    double sum = 0;

    for (int i = 0; i < n && sum < wanted * (1 - SAME); i++)
        sum += numbers[i];
    return fabs(sum - wanted) <= SAME * wanted;
}

static int read_tensors(struct cost_reading *reading, struct json_reader *r, struct cost_block *b,
                        struct err *err)
{
    const json_t *list;
    double sum = 0;
    size_t n;

    if (json_get_array(r, "tensors", false, &list, err))
        return -1;
    n = json_array_size(list);
    reading->numbers += n;
    if (reading->numbers > MAX_NUMBERS)
        return json_error(r, "tensors", err, "too many numbers in this file");
    b->tensors = n > 0 ? mem_new(n, sizeof(*b->tensors)) : NULL;
    b->n_tensors = (int)n;
    for (size_t i = 0; i < n; i++) {
        if (check_number(r, "tensors", json_array_get(list, i), &b->tensors[i], err))
            return -1;
        sum += b->tensors[i];
    }
    if (n > 0 && fabs(sum - b->parameters) > SAME * b->parameters)
        return json_error(r, "tensors", err, "are %.17g bytes, \"parameters\" are %.17g", sum,
                          b->parameters);
    if (n > 0 && !adds_up(b->tensors, b->n_tensors, b->parameters - b->statistics))
        return json_error(r, "tensors", err, "the last of them are not the %.17g bytes of "
                          "\"statistics\"", b->statistics);
    return 0;
}

static int read_block(struct cost_reading *reading, struct json_reader *r, struct cost_block *b,
                      struct err *err)
{
    const bool yes = true;
    bool s;

    if (json_get_bool(r, "batch_axis", &yes, &b->batch_axis, err))
        return -1;
    s = b->batch_axis;
    if (read_name(r, "name", &b->name, err) ||
        cost_read_numbers(reading, r, "forward", true, s, &b->forward, err) ||
        cost_read_numbers(reading, r, "dgrad", true, s, &b->dgrad, err) ||
        cost_read_numbers(reading, r, "wgrad", false, s, &b->wgrad, err) ||
        cost_read_numbers(reading, r, "activations", false, s, &b->activations, err) ||
        cost_read_numbers(reading, r, "kept_for_wgrad", false, s, &b->kept_for_wgrad, err) ||
        cost_read_numbers(reading, r, "read_by_backward", false, s, &b->read_by_backward, err) ||
        cost_read_numbers(reading, r, "read_from_others", false, s, &b->read_from_others, err) ||
        cost_read_numbers(reading, r, "read_selectively", false, s, &b->read_selectively, err) ||
        read_number(r, "statistics", &b->statistics, err) ||
        cost_read_numbers(reading, r, "gradients_for_wgrad", false, s, &b->gradients_for_wgrad, err) ||
        cost_read_numbers(reading, r, "workspace", false, s, &b->workspace, err) ||
        cost_read_numbers(reading, r, "workspace_forward", false, s, &b->workspace_forward, err) ||
        cost_read_numbers(reading, r, "workspace_delayed", false, s, &b->workspace_delayed, err) ||
        cost_read_numbers(reading, r, "activations_delayed", false, s, &b->activations_delayed, err) ||
        cost_read_numbers(reading, r, "peak_delayed", false, s, &b->peak_delayed, err) ||
        cost_read_numbers(reading, r, "kernels", false, s, &b->kernels, err) ||
        cost_read_numbers(reading, r, "peak", false, s, &b->peak, err) ||
        read_number(r, "step", &b->step, err) ||
        read_number(r, "parameters", &b->parameters, err) ||
        read_number(r, "prepared", &b->prepared, err) ||
        read_tensors(reading, r, b, err) || read_nodes(r, b, err))
        return -1;
    if (!b->activations)
        b->activations = mem_new((size_t)reading->cost->n_sizes, sizeof(double));
    if (read_variants(reading, r, b, err))
        return -1;
    return json_reader_end(r, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct cost_name *)a)->text, ((const struct cost_name *)b)->text);
}

static int read_blocks(struct cost_reading *reading, struct err *err)
{
    struct cost *cost = reading->cost;
    struct json_reader *top = &reading->top, sub;
    const json_t *list;
    size_t n;

    if (json_get_array(top, "blocks", true, &list, err))
        return -1;
    n = json_array_size(list);
    if (n < 1 || n > MAX_BLOCKS)
        return json_error(top, "blocks", err, "expected 1 to %d blocks", MAX_BLOCKS);
    cost->blocks = mem_new(n, sizeof(*cost->blocks));
    reading->names = mem_new(n, sizeof(*reading->names));
    for (size_t i = 0; i < n; i++) {
        cost->n_blocks = (int)i + 1;
        if (json_reader_sub(&sub, top, "blocks", (int)i, json_array_get(list, i), err) ||
            read_block(reading, &sub, &cost->blocks[i], err))
            return -1;
        reading->names[i] = (struct cost_name){ cost->blocks[i].name, (int)i };
    }
    qsort(reading->names, n, sizeof(*reading->names), by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(reading->names[i - 1].text, reading->names[i].text) == 0)
            return json_error(top, "blocks", err, "two blocks are called \"%s\"",
                              reading->names[i].text);
    return 0;
}

int cost_find_block(const struct cost_reading *reading, const struct json_reader *r,
                    const char *key, const char *text, int *block, struct err *err)
{
    struct cost_name wanted = { text, 0 }, *found;

    found = bsearch(&wanted, reading->names, (size_t)reading->cost->n_blocks, sizeof(wanted),
                    by_name);
    if (!found)
        return json_error(r, key, err, "no block \"%s\"", text);
    *block = found->block;
    return 0;
}

static int read_edge(struct cost_reading *reading, struct json_reader *r, struct cost_edge *e,
                     struct err *err)
{
    const struct cost *cost = reading->cost;
    const char *from, *to, *value;
    const bool no = false, yes = true;
    bool scales, kept;

    if (json_get_string(r, "from", true, NULL, &from, err) ||
        json_get_string(r, "to", true, NULL, &to, err) ||
        json_get_string(r, "value", false, "", &value, err) ||
        cost_find_block(reading, r, "from", from, &e->from, err) ||
        cost_find_block(reading, r, "to", to, &e->to, err) ||
        json_get_bool(r, "passed_on", &no, &e->passed_on, err) ||
        json_get_bool(r, "reordered", &no, &e->reordered, err) ||
        json_get_bool(r, "kept", &yes, &kept, err))
        return -1;
    e->once = !kept;
    if (e->from == e->to)
        return json_error(r, "to", err, "an edge from \"%s\" to itself; leave it out: what stays in a "
                          "block is no edge", from);
    e->value = value[0] ? mem_strdup(value) : mem_printf("%s to %s", from, to);
    scales = cost->blocks[e->from].batch_axis;
    if (cost_read_numbers(reading, r, "bytes", true, scales, &e->bytes, err) ||
        cost_read_numbers(reading, r, "gradient_bytes", false, scales, &e->gradient_bytes, err))
        return -1;
    if (!e->gradient_bytes) {
        e->gradient_bytes = mem_new((size_t)cost->n_sizes, sizeof(double));
        memcpy(e->gradient_bytes, e->bytes, (size_t)cost->n_sizes * sizeof(double));
    }
    return json_reader_end(r, err);
}

static int by_value(const void *a, const void *b)
{
    const struct cost_edge *x = a, *y = b;
    int order = x->from != y->from ? (x->from < y->from ? -1 : 1) : strcmp(x->value, y->value);

    if (order)
        return order;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* Edges of one value carry the same bytes, and name each reader once. */
static int check_values(struct cost_reading *reading, struct err *err)
{
    struct cost *cost = reading->cost;

    qsort(cost->edges, (size_t)cost->n_edges, sizeof(*cost->edges), by_value);
    for (int i = 1; i < cost->n_edges; i++) {
        const struct cost_edge *a = &cost->edges[i - 1], *b = &cost->edges[i];

        if (a->from != b->from || strcmp(a->value, b->value) != 0) {
            cost->edges[i].id = i;
            continue;
        }
        cost->edges[i].id = a->id;
        if (a->to == b->to)
            return json_error(&reading->top, "edges", err, "\"%s\" goes to \"%s\" twice",
                              a->value, cost->blocks[a->to].name);
        if (memcmp(a->bytes, b->bytes, (size_t)cost->n_sizes * sizeof(double)) != 0)
            return json_error(&reading->top, "edges", err,
                              "\"%s\" of \"%s\" has other bytes towards \"%s\" than towards "
                              "\"%s\"", a->value, cost->blocks[a->from].name,
                              cost->blocks[a->to].name, cost->blocks[b->to].name);
        /* What holds for the value holds for each of its edges. */
        if (a->passed_on != b->passed_on)
            return json_error(&reading->top, "edges", err, "\"%s\" of \"%s\" is passed_on "
                              "towards \"%s\", but not towards \"%s\"", a->value,
                              cost->blocks[a->from].name,
                              cost->blocks[a->passed_on ? a->to : b->to].name,
                              cost->blocks[a->passed_on ? b->to : a->to].name);
    }
    return 0;
}

/* What is passed on is part of the activations. */
static int sum_passed_on(struct cost_reading *reading, struct err *err)
{
    struct cost *cost = reading->cost;

    for (int i = 0; i < cost->n_edges; i++) {
        const struct cost_edge *e = &cost->edges[i];
        struct cost_block *b = &cost->blocks[e->from];

        if (!e->passed_on || (i && cost_same_value(e, e - 1)))
            continue;
        if (!b->passed_on)
            b->passed_on = mem_new((size_t)cost->n_sizes, sizeof(double));
        for (int k = 0; k < cost->n_sizes; k++) {
            b->passed_on[k] += e->bytes[k];
            if (b->passed_on[k] > b->activations[k])
                return json_error(&reading->top, "edges", err, "what \"%s\" has passed_on is more "
                                  "than its activations", b->name);
        }
    }
    return 0;
}

static int read_edges(struct cost_reading *reading, struct err *err)
{
    struct cost *cost = reading->cost;
    struct json_reader sub;
    const json_t *list;
    size_t n;

    if (json_get_array(&reading->top, "edges", false, &list, err))
        return -1;
    n = json_array_size(list);
    if (n > MAX_EDGES)
        return json_error(&reading->top, "edges", err, "more than %d", MAX_EDGES);
    cost->edges = mem_new(n, sizeof(*cost->edges));
    for (size_t i = 0; i < n; i++) {
        cost->n_edges = (int)i + 1;
        if (json_reader_sub(&sub, &reading->top, "edges", (int)i, json_array_get(list, i),
                            err) ||
            read_edge(reading, &sub, &cost->edges[i], err))
            return -1;
    }
    return 0;
}

/* A list of block names under 'key', each once. */
static int read_block_list(struct cost_reading *reading, struct json_reader *r, const char *key,
                           int *n, int **blocks, struct err *err)
{
    const json_t *list;
    int *result;

    if (json_get_array(r, key, true, &list, err))
        return -1;
    if (json_array_size(list) < 1 || json_array_size(list) > MAX_BLOCKS)
        return json_error(r, key, err, "expected names of blocks");
    result = mem_new(json_array_size(list), sizeof(*result));
    *blocks = result;
    for (*n = 0; *n < (int)json_array_size(list); ++*n) {
        const json_t *name = json_array_get(list, (size_t)*n);

        if (!json_is_string(name))
            return json_error(r, key, err, "expected names of blocks");
        if (cost_find_block(reading, r, key, json_string_value(name), &result[*n], err))
            return -1;
    }
    qsort(result, (size_t)*n, sizeof(*result), order_ints);
    for (int i = 1; i < *n; i++)
        if (result[i] == result[i - 1])
            return json_error(r, key, err, "\"%s\" stands there twice",
                              reading->cost->blocks[result[i]].name);
    return 0;
}

static int read_input(struct cost_reading *reading, struct json_reader *r, struct cost_input *input,
                      struct err *err)
{
    const bool no = false, yes = true;
    bool kept;

    if (read_name(r, "name", &input->name, err) ||
        cost_read_numbers(reading, r, "bytes", true, true, &input->bytes, err) ||
        json_get_bool(r, "reordered", &no, &input->reordered, err) ||
        json_get_bool(r, "kept", &yes, &kept, err) ||
        read_block_list(reading, r, "to", &input->n_to, &input->to, err))
        return -1;
    input->once = !kept;
    return json_reader_end(r, err);
}

static int read_inputs(struct cost_reading *reading, struct err *err)
{
    struct cost *cost = reading->cost;
    struct json_reader sub;
    const json_t *list;
    size_t n;

    if (json_get_array(&reading->top, "inputs", false, &list, err))
        return -1;
    n = json_array_size(list);
    if (n > MAX_EDGES)
        return json_error(&reading->top, "inputs", err, "more than %d", MAX_EDGES);
    cost->inputs = mem_new(n, sizeof(*cost->inputs));
    for (size_t i = 0; i < n; i++) {
        cost->n_inputs = (int)i + 1;
        if (json_reader_sub(&sub, &reading->top, "inputs", (int)i, json_array_get(list, i),
                            err) ||
            read_input(reading, &sub, &cost->inputs[i], err))
            return -1;
    }
    return 0;
}

static int read_one_shared(struct cost_reading *reading, struct json_reader *r,
                           struct cost_shared *shared, struct err *err)
{
    if (read_name(r, "name", &shared->name, err) ||
        json_get_number(r, "bytes", 0, MAX_NUMBER, NULL, &shared->bytes, err) ||
        read_block_list(reading, r, "blocks", &shared->n_blocks, &shared->blocks, err))
        return -1;
    return json_reader_end(r, err);
}

static int read_shared(struct cost_reading *reading, struct err *err)
{
    struct cost *cost = reading->cost;
    struct json_reader sub;
    const json_t *list;
    size_t n;

    if (json_get_array(&reading->top, "shared", false, &list, err))
        return -1;
    n = json_array_size(list);
    if (n > MAX_EDGES)
        return json_error(&reading->top, "shared", err, "more than %d", MAX_EDGES);
    cost->shared = mem_new(n, sizeof(*cost->shared));
    for (size_t i = 0; i < n; i++) {
        cost->n_shared = (int)i + 1;
        if (json_reader_sub(&sub, &reading->top, "shared", (int)i, json_array_get(list, i),
                            err) ||
            read_one_shared(reading, &sub, &cost->shared[i], err))
            return -1;
    }
    return 0;
}

static int read_sizes(struct cost_reading *reading, struct err *err)
{
    struct cost *cost = reading->cost;
    struct json_reader *top = &reading->top;
    const json_t *list;
    size_t n;

    if (json_is_integer(json_object_get(top->object, "micro_batch"))) {
        cost->micro_batch = mem_new(1, sizeof(*cost->micro_batch));
        cost->n_sizes = 1;
        return json_get_int(top, "micro_batch", 1, MAX_SAMPLES, NULL, cost->micro_batch, err);
    }
    if (json_get_array(top, "micro_batch", true, &list, err))
        return -1;
    n = json_array_size(list);
    if (n < 1 || n > MAX_SIZES)
        return json_error(top, "micro_batch", err, "expected 1 to %d sizes", MAX_SIZES);
    cost->micro_batch = mem_new(n, sizeof(*cost->micro_batch));
    for (size_t i = 0; i < n; i++) {
        const json_t *size = json_array_get(list, i);
        int64_t value = json_is_integer(size) ? json_integer_value(size) : 0;

        if (value < 1 || value > MAX_SAMPLES || (i && value <= cost->micro_batch[i - 1]))
            return json_error(top, "micro_batch", err,
                              "expected positive integers in ascending order");
        cost->micro_batch[i] = value;
    }
    cost->n_sizes = (int)n;
    return 0;
}

static int read_top(struct cost_reading *reading, struct err *err)
{
    const double no_state = 0, gradient = 4, no_buffers = 0, no_spread = 0;
    struct cost *cost = reading->cost;
    struct json_reader *top = &reading->top;
    const char *device, *precision;

    if (json_get_string(top, "device", false, "", &device, err) ||
        json_get_string(top, "precision", false, "float32", &precision, err) ||
        json_get_number(top, "optimizer_bytes_per_parameter", 0, MAX_NUMBER, &no_state,
                        &cost->optimizer_bytes_per_parameter, err) ||
        json_get_number(top, "gradient_bytes_per_parameter", 0, MAX_NUMBER, &gradient,
                        &cost->gradient_bytes_per_parameter, err) ||
        json_get_number(top, "message_buffers", 0, MAX_NUMBER, &no_buffers,
                        &cost->message_buffers, err) ||
        json_get_number(top, "spread", 0, MAX_NUMBER, &no_spread, &cost->spread, err))
        return -1;
    cost->device = mem_strdup(device);
    cost->precision = mem_strdup(precision);
    if (read_sizes(reading, err) || read_blocks(reading, err) || read_edges(reading, err) ||
        read_inputs(reading, err) || read_shared(reading, err) || cost_read_steps(reading, err))
        return -1;
    return json_reader_end(top, err);
}

static int settle(struct cost_reading *reading, const char *path, struct err *err)
{
    return cost_sort(reading->cost, path, err) || check_values(reading, err) ||
                   sum_passed_on(reading, err)
               ? -1 : 0;
}

static bool is_number(const struct cost *cost, const double *array)
{
    for (int i = 0; i < cost->n_sizes; i++)
        if (!(array[i] >= 0 && array[i] <= MAX_NUMBER))
            return false;
    return true;
}

int cost_settle(struct cost *cost, const char *path, struct err *err)
{
    struct cost_reading reading = { .cost = cost, .top.file = path };

    if (cost->n_blocks > MAX_BLOCKS)
        return json_error(&reading.top, "blocks", err, "expected 1 to %d blocks", MAX_BLOCKS);
    if (cost->n_edges > MAX_EDGES)
        return json_error(&reading.top, "edges", err, "more than %d", MAX_EDGES);
    for (int i = 0; i < cost->n_blocks; i++) {
        const struct cost_block *b = &cost->blocks[i];

        if (!is_number(cost, b->forward) || !is_number(cost, b->dgrad) ||
            !is_number(cost, b->wgrad) || !is_number(cost, b->activations))
            return json_error(&reading.top, "blocks", err, "\"%s\": expected numbers from 0 to %g",
                              b->name, MAX_NUMBER);
        cost_drop_selective(cost, &cost->blocks[i]);
    }
    return settle(&reading, path, err);
}

struct cost *cost_from_json(const char *path, const json_t *json, struct err *err)
{
    struct cost_reading reading = { .cost = mem_new(1, sizeof(struct cost)) };
    int rc = json_reader_top(&reading.top, path, json, "tasuki-cost", 1, err);

    if (rc == 0)
        rc = read_top(&reading, err);
    if (rc == 0)
        rc = settle(&reading, path, err);
    free(reading.names);
    if (rc == 0)
        return reading.cost;
    cost_free(reading.cost);
    return NULL;
}

struct cost *cost_load(const char *path, struct err *err)
{
    json_t *json = json_load(path, err);
    struct cost *cost;

    if (!json)
        return NULL;
    cost = cost_from_json(path, json, err);
    json_decref(json);
    return cost;
}
