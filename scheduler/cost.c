/* SPDX-License-Identifier: MIT */
#include "scheduler/cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/order.h"
#include "scheduler/cost_internal.h"
#include "scheduler/cost_steps.h"

#define MOST_NAMED 6    /* blocks of a cycle */

static void free_block(struct cost_block *b)
{
    free(b->name);
    free(b->forward);
    free(b->dgrad);
    free(b->wgrad);
    free(b->tensors);
    free(b->activations);
    free(b->passed_on);
    free(b->kept_for_wgrad);
    free(b->read_by_backward);
    free(b->read_from_others);
    free(b->read_selectively);
    free(b->gradients_for_wgrad);
    free(b->workspace);
    free(b->selective_dgrad);
    free(b->selective_activations);
    free(b->made_again);
    free(b->kernels);
    free(b->activations_delayed);
    free(b->peak_delayed);
    free(b->workspace_forward);
    free(b->workspace_delayed);
    free(b->peak);
    free(b->selective_peak);
    free(b->first_node);
    free(b->last_node);
}

void cost_free(struct cost *cost)
{
    if (!cost)
        return;
    for (int i = 0; i < cost->n_blocks; i++)
        free_block(&cost->blocks[i]);
    for (int i = 0; i < cost->n_edges; i++) {
        free(cost->edges[i].value);
        free(cost->edges[i].bytes);
        free(cost->edges[i].gradient_bytes);
    }
    for (int i = 0; i < cost->n_inputs; i++) {
        free(cost->inputs[i].name);
        free(cost->inputs[i].bytes);
        free(cost->inputs[i].to);
    }
    for (int i = 0; i < cost->n_shared; i++) {
        free(cost->shared[i].name);
        free(cost->shared[i].blocks);
    }
    for (int i = 0; i < cost->n_others; i++)
        cost_free(cost->others[i]);
    cost_steps_free(cost->steps);
    free(cost->others);
    free(cost->blocks);
    free(cost->edges);
    free(cost->inputs);
    free(cost->shared);
    free(cost->micro_batch);
    free(cost->device);
    free(cost->precision);
    free(cost);
}

void cost_set_precision(struct cost *cost, const char *precision)
{
    free(cost->precision);
    cost->precision = mem_strdup(precision);
    for (int i = 0; i < cost->n_others; i++)
        cost_set_precision(cost->others[i], precision);
}

/* The order in which a reader that always takes the first ready block takes them:
 * order[new] = old. Fewer than n_blocks: the rest is a cycle. Ready blocks are kept in a heap,
 * since a hostile file may have a great many.
 */
struct sorter {
    int *ready, n_ready;    /* a binary heap, smallest first */
    int *missing;           /* inputs of each block that are not yet made */
    int *head, *next;       /* edges by source: lists that end with -1 */
};

static void heap_push(struct sorter *s, int block)
{
    int i = s->n_ready++;

    for (; i > 0 && s->ready[(i - 1) / 2] > block; i = (i - 1) / 2)
        s->ready[i] = s->ready[(i - 1) / 2];
    s->ready[i] = block;
}

static int heap_pop(struct sorter *s)
{
    int top = s->ready[0], last = s->ready[--s->n_ready], i = 0;

    for (;;) {
        int child = 2 * i + 1;

        if (child + 1 < s->n_ready && s->ready[child + 1] < s->ready[child])
            child++;
        if (child >= s->n_ready || s->ready[child] >= last)
            break;
        s->ready[i] = s->ready[child];
        i = child;
    }
    s->ready[i] = last;
    return top;
}

static void link_edges(const struct cost *cost, struct sorter *s)
{
    for (int b = 0; b < cost->n_blocks; b++)
        s->head[b] = -1;
    for (int e = cost->n_edges - 1; e >= 0; e--) {
        s->missing[cost->edges[e].to]++;
        s->next[e] = s->head[cost->edges[e].from];
        s->head[cost->edges[e].from] = e;
    }
}

static int topological(const struct cost *cost, struct sorter *s, int *order)
{
    int n = 0;

    link_edges(cost, s);
    for (int b = 0; b < cost->n_blocks; b++)
        if (s->missing[b] == 0)
            heap_push(s, b);
    while (s->n_ready) {
        int b = heap_pop(s);

        order[n++] = b;
        for (int e = s->head[b]; e >= 0; e = s->next[e])
            if (--s->missing[cost->edges[e].to] == 0)
                heap_push(s, cost->edges[e].to);
    }
    return n;
}

static void renumber_list(int *blocks, int n, const int *place)
{
    for (int i = 0; i < n; i++)
        blocks[i] = place[blocks[i]];
    qsort(blocks, (size_t)n, sizeof(*blocks), order_ints);
}

static void renumber_steps(struct cost_steps *steps, const int *place)
{
    for (int i = 0; steps && i < steps->n; i++)
        steps->items[i].block = place[steps->items[i].block];
    for (int i = 0; steps && i < steps->n_returns; i++) {
        steps->returns[i].from = place[steps->returns[i].from];
        steps->returns[i].to = place[steps->returns[i].to];
    }
}

static void renumber(struct cost *cost, const int *order)
{
    size_t n = (size_t)cost->n_blocks;
    struct cost_block *blocks = mem_new(n, sizeof(*blocks));
    int *place = mem_new(n, sizeof(int));

    for (int i = 0; i < cost->n_blocks; i++) {
        blocks[i] = cost->blocks[order[i]];
        place[order[i]] = i;
    }
    for (int e = 0; e < cost->n_edges; e++) {
        cost->edges[e].from = place[cost->edges[e].from];
        cost->edges[e].to = place[cost->edges[e].to];
    }
    for (int i = 0; i < cost->n_inputs; i++)
        renumber_list(cost->inputs[i].to, cost->inputs[i].n_to, place);
    for (int i = 0; i < cost->n_shared; i++)
        renumber_list(cost->shared[i].blocks, cost->shared[i].n_blocks, place);
    renumber_steps(cost->steps, place);
    free(place);
    free(cost->blocks);
    cost->blocks = blocks;
}

/* A block that this one reads and that has no place in the order either. */
static int before(const struct cost *cost, const struct sorter *s, int block)
{
    int e = 0;

    while (cost->edges[e].to != block || s->missing[cost->edges[e].from] == 0)
        e++;
    return cost->edges[e].from;
}

static int refuse_cycle(const struct cost *cost, const struct sorter *s, const char *path,
                        struct err *err)
{
    char text[800];
    int block = 0, first;
    size_t used;

    while (s->missing[block] == 0)
        block++;
    /* After so many steps back it is on the cycle. */
    for (int i = 0; i < cost->n_blocks; i++)
        block = before(cost, s, block);
    first = block;
    used = (size_t)snprintf(text, sizeof(text), "\"%.80s\"", cost->blocks[first].name);
    for (int n = 0; n == 0 || block != first; n++) {
        block = before(cost, s, block);
        if (n < MOST_NAMED || block == first)
            used += (size_t)snprintf(text + used, sizeof(text) - used, " reads \"%.80s\"",
                                     cost->blocks[block].name);
        else if (n == MOST_NAMED)
            used += (size_t)snprintf(text + used, sizeof(text) - used, " reads ...");
    }
    return err_set(err, "%s: edges: a cycle: %s; leave one of these edges out, or make these one "
                   "block", path, text);
}

int cost_sort(struct cost *cost, const char *path, struct err *err)
{
    size_t n = (size_t)cost->n_blocks, m = (size_t)cost->n_edges;
    int *order = mem_new(n, sizeof(int));
    struct sorter s = { .ready = mem_new(n, sizeof(int)), .missing = mem_new(n, sizeof(int)),
                        .head = mem_new(n, sizeof(int)), .next = mem_new(m, sizeof(int)) };
    int rc = 0;

    if (topological(cost, &s, order) == cost->n_blocks) {
        renumber(cost, order);
    } else {
        rc = refuse_cycle(cost, &s, path, err);
    }
    free(s.ready);
    free(s.missing);
    free(s.head);
    free(s.next);
    free(order);
    return rc;
}

json_t *cost_numbers(const struct cost *cost, const double *array)
{
    json_t *list = json_array();

    for (int i = 0; i < cost->n_sizes; i++)
        json_array_append_new(list, json_real(array[i]));
    return list;
}

/* Does it differ from running the block without? */
static bool has_selective(const struct cost *cost, const struct cost_block *b)
{
    size_t bytes = (size_t)cost->n_sizes * sizeof(double);

    bool more = b->selective_peak && !b->workspace;

    for (int i = 0; i < cost->n_sizes; i++)
        more |= (b->made_again && b->made_again[i] > 0) ||
                (b->selective_peak && b->workspace && b->selective_peak[i] > b->workspace[i]);
    return b->selective_dgrad &&
           (more || memcmp(b->selective_dgrad, b->dgrad, bytes) != 0 ||
            memcmp(b->selective_activations, b->activations, bytes) != 0);
}

void cost_drop_selective(const struct cost *cost, struct cost_block *b)
{
    if (has_selective(cost, b))
        return;
    free(b->selective_dgrad);
    free(b->selective_activations);
    free(b->made_again);
    free(b->selective_peak);
    b->selective_dgrad = b->selective_activations = b->made_again = b->selective_peak = NULL;
}

static json_t *selective_to_json(const struct cost *cost, const struct cost_block *b)
{
    return json_pack("[{s:s, s:o, s:o, s:o*, s:o*}]", "recompute", "selective", "dgrad",
                     cost_numbers(cost, b->selective_dgrad), "activations",
                     cost_numbers(cost, b->selective_activations), "made_again",
                     b->made_again ? cost_numbers(cost, b->made_again) : NULL, "peak",
                     b->selective_peak ? cost_numbers(cost, b->selective_peak) : NULL);
}

static void set_array(const struct cost *cost, json_t *object, const char *key,
                      const double *array)
{
    if (array)
        json_object_set_new(object, key, cost_numbers(cost, array));
}

static json_t *tensors_to_json(const struct cost_block *b)
{
    json_t *list = json_array();

    for (int i = 0; i < b->n_tensors; i++)
        json_array_append_new(list, json_real(b->tensors[i]));
    return list;
}

static json_t *block_to_json(const struct cost *cost, const struct cost_block *b)
{
    json_t *o = json_object();

    json_object_set_new(o, "name", json_string(b->name));
    json_object_set_new(o, "forward", cost_numbers(cost, b->forward));
    json_object_set_new(o, "dgrad", cost_numbers(cost, b->dgrad));
    set_array(cost, o, "wgrad", b->wgrad);
    json_object_set_new(o, "step", json_real(b->step));
    json_object_set_new(o, "parameters", json_real(b->parameters));
    json_object_set_new(o, "prepared", json_real(b->prepared));
    json_object_set_new(o, "activations", cost_numbers(cost, b->activations));
    set_array(cost, o, "kept_for_wgrad", b->kept_for_wgrad);
    set_array(cost, o, "read_by_backward", b->read_by_backward);
    set_array(cost, o, "read_from_others", b->read_from_others);
    set_array(cost, o, "read_selectively", b->read_selectively);
    if (b->statistics > 0)
        json_object_set_new(o, "statistics", json_real(b->statistics));
    if (b->n_tensors > 0)
        json_object_set_new(o, "tensors", tensors_to_json(b));
    set_array(cost, o, "gradients_for_wgrad", b->gradients_for_wgrad);
    set_array(cost, o, "workspace", b->workspace);
    set_array(cost, o, "workspace_forward", b->workspace_forward);
    set_array(cost, o, "workspace_delayed", b->workspace_delayed);
    set_array(cost, o, "activations_delayed", b->activations_delayed);
    set_array(cost, o, "peak_delayed", b->peak_delayed);
    set_array(cost, o, "kernels", b->kernels);
    set_array(cost, o, "peak", b->peak);
    json_object_set_new(o, "batch_axis", json_boolean(b->batch_axis));
    if (has_selective(cost, b))
        json_object_set_new(o, "variants", selective_to_json(cost, b));
    if (b->first_node && b->last_node) {
        json_object_set_new(o, "first", json_string(b->first_node));
        json_object_set_new(o, "last", json_string(b->last_node));
    }
    return o;
}

static json_t *block_names(const struct cost *cost, const int *blocks, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_string(cost->blocks[blocks[i]].name));
    return list;
}

static json_t *edge_to_json(const struct cost *cost, const struct cost_edge *e)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:o, s:o}", "from", cost->blocks[e->from].name, "to",
                          cost->blocks[e->to].name, "value", e->value, "bytes",
                          cost_numbers(cost, e->bytes), "gradient_bytes",
                          cost_numbers(cost, e->gradient_bytes));

    if (e->passed_on)
        json_object_set_new(o, "passed_on", json_true());
    if (e->once)
        json_object_set_new(o, "kept", json_false());
    if (e->reordered)
        json_object_set_new(o, "reordered", json_true());
    return o;
}

static json_t *input_to_json(const struct cost *cost, const struct cost_input *input)
{
    json_t *o = json_pack("{s:s, s:o, s:o}", "name", input->name, "bytes",
                          cost_numbers(cost, input->bytes), "to",
                          block_names(cost, input->to, input->n_to));

    if (input->once)
        json_object_set_new(o, "kept", json_false());
    if (input->reordered)
        json_object_set_new(o, "reordered", json_true());
    return o;
}

static json_t *shared_to_json(const struct cost *cost, const struct cost_shared *shared)
{
    return json_pack("{s:s, s:f, s:o}", "name", shared->name, "bytes", shared->bytes, "blocks",
                     block_names(cost, shared->blocks, shared->n_blocks));
}

json_t *cost_to_json(const struct cost *cost)
{
    json_t *top = json_object(), *sizes = json_array(), *blocks = json_array();
    json_t *edges = json_array(), *inputs = json_array(), *shared = json_array();

    for (int i = 0; i < cost->n_sizes; i++)
        json_array_append_new(sizes, json_integer(cost->micro_batch[i]));
    for (int i = 0; i < cost->n_blocks; i++)
        json_array_append_new(blocks, block_to_json(cost, &cost->blocks[i]));
    for (int i = 0; i < cost->n_edges; i++)
        json_array_append_new(edges, edge_to_json(cost, &cost->edges[i]));
    for (int i = 0; i < cost->n_inputs; i++)
        json_array_append_new(inputs, input_to_json(cost, &cost->inputs[i]));
    for (int i = 0; i < cost->n_shared; i++)
        json_array_append_new(shared, shared_to_json(cost, &cost->shared[i]));
    json_object_set_new(top, "schema", json_string("tasuki-cost"));
    json_object_set_new(top, "version", json_integer(1));
    json_object_set_new(top, "device", json_string(cost->device));
    json_object_set_new(top, "precision", json_string(cost->precision));
    json_object_set_new(top, "optimizer_bytes_per_parameter",
                        json_real(cost->optimizer_bytes_per_parameter));
    json_object_set_new(top, "gradient_bytes_per_parameter",
                        json_real(cost->gradient_bytes_per_parameter));
    json_object_set_new(top, "message_buffers", json_real(cost->message_buffers));
    if (cost->spread > 0)
        json_object_set_new(top, "spread", json_real(cost->spread));
    json_object_set_new(top, "micro_batch", sizes);
    json_object_set_new(top, "blocks", blocks);
    json_object_set_new(top, "edges", edges);
    json_object_set_new(top, "inputs", inputs);
    json_object_set_new(top, "shared", shared);
    cost_steps_to_json(cost, top);
    return top;
}

int cost_save(const struct cost *cost, const char *path, struct err *err)
{
    json_t *json = cost_to_json(cost);
    int rc = json_save(json, path, err);

    json_decref(json);
    return rc;
}

void cost_edges_into(const struct cost *cost, int **start, int **into)
{
    int *from = mem_new((size_t)cost->n_blocks + 2, sizeof(int));
    int *edges = mem_new((size_t)cost->n_edges, sizeof(int));

    for (int e = 0; e < cost->n_edges; e++)
        from[cost->edges[e].to + 2]++;
    for (int b = 0; b < cost->n_blocks; b++)
        from[b + 2] += from[b + 1];
    for (int e = 0; e < cost->n_edges; e++)
        edges[from[cost->edges[e].to + 1]++] = e;
    *start = from;
    *into = edges;
}

static struct cost *copy_in_order(const struct cost *cost, const int *order)
{
    json_t *top = cost_to_json(cost), *blocks = json_object_get(top, "blocks");
    json_t *list = json_array();
    struct cost *copy;

    for (int i = 0; i < cost->n_blocks; i++)
        json_array_append(list, json_array_get(blocks, (size_t)order[i]));
    json_object_set_new(top, "blocks", list);
    copy = cost_from_json(cost->device, top, NULL);
    json_decref(top);
    return copy;
}

struct cost *cost_reordered(const struct cost *cost, const int *order)
{
    struct cost *copy = copy_in_order(cost, order);

    for (int i = 0; i < cost->n_others; i++)
        *(struct cost **)mem_push((void **)&copy->others, &copy->n_others, sizeof(copy)) =
            copy_in_order(cost->others[i], order);
    return copy;
}
