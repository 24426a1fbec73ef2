/* SPDX-License-Identifier: MIT */
/* If and Loop whose conditions are constants: the branch taken, and iterations one after the
 * other, become nodes of the graph around them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/canon.h"

/* The one number that a condition or a trip count is, the same in both graphs. */
static int fixed_number(const struct build *build, int v, const char *what, int64_t *number,
                        struct err *err)
{
    const struct build_item *item = &build->items[v];

    if (item->kind != ITEM_CONST || !item->constant[0].i)
        return err_set(err, "its %s \"%.200s\" depends on data", what,
                       build->onnx->values[v].name);
    if (item->constant[0].n != 1 || item->constant[1].n != 1)
        return err_set(err, "its %s \"%.200s\" is no single number", what,
                       build->onnx->values[v].name);
    *number = item->constant[0].i[0];
    return *number == item->constant[1].i[0]
               ? 0 : err_set(err, "its %s \"%.200s\" changes with the batch size", what,
                             build->onnx->values[v].name);
}

/* What value 'v' is by now; a parameter is added where it was not used yet. */
static int take(struct build *build, int v, struct build_item *item, struct err *err)
{
    if (build->items[v].kind == ITEM_NONE && build_value(build, v, err) < 0)
        return -1;
    *item = build->items[v];
    return 0;
}

/* Let 'item' be value 'v', by its name where a node made it after value 'first' of the graph. */
static void give(struct build *build, const struct build_item *item, int v, int first)
{
    int t;

    if (v < 0)
        return;
    build->items[v] = *item;
    for (t = 0; t < BUILD_TWINS && item->kind == ITEM_VALUE && item->id >= first; t++)
        if (build->graph[t]->values[item->id].kind == VALUE_NODE)
            graph_rename_value(build->graph[t], item->id, build->onnx->values[v].name);
}

int control_if(struct build *build, const struct onnx_node *node, struct err *err)
{
    static const char *const names[] = { "then_branch", "else_branch" };
    int first = build->graph[0]->n_values, i;
    const struct onnx_body *body;
    struct build_item item;
    int64_t condition;

    if (node->proto->n_input < 1 || node->inputs[0] < 0)
        return err_set(err, "it has no condition");
    if (fixed_number(build, node->inputs[0], "condition", &condition, err)) {
        build_not_entered(build, node);
        return -1;
    }
    body = node->bodies[condition ? 0 : 1];
    if (!body)
        return err_set(err, "it has no %s", names[condition ? 0 : 1]);
    if (body->n_inputs || body->n_outputs != (int)node->proto->n_output)
        return err_set(err, "its %s has %d inputs and %d outputs, expected 0 and %zu",
                       names[condition ? 0 : 1], body->n_inputs, body->n_outputs,
                       node->proto->n_output);
    build_nodes(build, body);
    for (i = 0; i < body->n_outputs; i++) {
        if (take(build, body->outputs[i], &item, err))
            return -1;
        give(build, &item, node->outputs[i], first);
    }
    return 0;
}

/* Loop -------------------------------------------------------------------------------- */

struct loop {
    struct build *build;
    const struct onnx_node *node;
    const struct onnx_body *body;
    int64_t trips;              /* -1: any number */
    int64_t condition;
    int n_carried, n_scans;
    struct build_item *carried; /* values from one iteration to the next */
    int n_scanned;              /* items: those of the first iteration, of the second … */
    struct build_item *scanned;
};

static int loop_start(struct loop *loop, struct err *err)
{
    const struct onnx_node *node = loop->node;
    int n_inputs = (int)node->proto->n_input, n_outputs = (int)node->proto->n_output, i;
    const struct onnx_body *body = loop->body;

    if (!body)
        return err_set(err, "it has no body");
    loop->n_carried = n_inputs - 2;
    loop->n_scans = n_outputs - loop->n_carried;
    if (n_inputs < 2 || loop->n_scans < 0 || body->n_inputs != n_inputs ||
        body->n_outputs != 1 + n_outputs)
        return err_set(err, "with %d inputs and %d outputs its body has %d and %d", n_inputs,
                       n_outputs, body->n_inputs, body->n_outputs);
    loop->trips = -1;
    loop->condition = 1;
    if ((node->inputs[0] >= 0 &&
         fixed_number(loop->build, node->inputs[0], "trip count", &loop->trips, err)) ||
        (node->inputs[1] >= 0 &&
         fixed_number(loop->build, node->inputs[1], "condition", &loop->condition, err))) {
        build_not_entered(loop->build, node);
        return -1;
    }
    if (node->inputs[0] >= 0 && loop->trips < 0)
        loop->trips = 0;
    loop->carried = mem_new((size_t)loop->n_carried, sizeof(*loop->carried));
    for (i = 0; i < loop->n_carried; i++) {
        if (node->inputs[2 + i] < 0)
            return err_set(err, "input %d is missing", 2 + i);
        if (take(loop->build, node->inputs[2 + i], &loop->carried[i], err))
            return -1;
    }
    return 0;
}

static int set_scalar(struct build *build, int v, enum dtype dtype, int64_t value,
                      struct err *err)
{
    struct build_item item = { .kind = ITEM_CONST, .id = -1 };
    int t;

    for (t = 0; t < BUILD_TWINS; t++) {
        if (fold_new(&build->fold[t], dtype, &(struct shape){ 0 }, &item.constant[t], err))
            return -1;
        item.constant[t].i[0] = value;
    }
    build->items[v] = item;
    return 0;
}

/* 1: what it reads or does is refused already. */
static int iterate(struct loop *loop, int64_t iteration, struct err *err)
{
    const struct onnx_body *body = loop->body;
    struct build *build = loop->build;
    int problems = build->n_problems, i;
    struct build_item item;

    if (set_scalar(build, body->inputs[0], DTYPE_I64, iteration, err) ||
        set_scalar(build, body->inputs[1], DTYPE_BOOL, loop->condition, err))
        return -1;
    for (i = 0; i < loop->n_carried; i++)
        build->items[body->inputs[2 + i]] = loop->carried[i];
    build_nodes(build, body);
    if (build->n_problems > problems || build->items[body->outputs[0]].kind == ITEM_BROKEN)
        return 1;
    if (fixed_number(build, body->outputs[0], "condition", &loop->condition, err))
        return -1;
    for (i = 0; i < loop->n_carried; i++)
        if (take(build, body->outputs[1 + i], &loop->carried[i], err))
            return -1;
    for (i = 0; i < loop->n_scans; i++) {
        if (take(build, body->outputs[1 + loop->n_carried + i], &item, err))
            return -1;
        *(struct build_item *)mem_push((void **)&loop->scanned, &loop->n_scanned,
                                       sizeof(item)) = item;
    }
    return 0;
}

/* The constants of all iterations, one behind the other. */
static int stack_constants(struct loop *loop, int scan, int output, struct err *err)
{
    struct build_item item = { .kind = ITEM_CONST, .id = -1 };
    int n = loop->n_scanned / loop->n_scans, i, t;
    int64_t e;

    for (t = 0; t < BUILD_TWINS; t++) {
        const struct tensor *one = &loop->scanned[scan].constant[t];
        struct shape shape = { .rank = one->shape.rank + 1, .dim = { n } };

        if (shape.rank > GRAPH_MAX_RANK)
            return err_set(err, "a scan output of more than %d dimensions", GRAPH_MAX_RANK);
        memcpy(&shape.dim[1], one->shape.dim, (size_t)one->shape.rank * sizeof(shape.dim[0]));
        if (fold_new(&loop->build->fold[t], one->dtype, &shape, &item.constant[t], err))
            return -1;
        for (i = 0; i < n; i++) {
            const struct tensor *from = &loop->scanned[i * loop->n_scans + scan].constant[t];

            if (from->dtype != one->dtype || !shape_equal(&from->shape, &one->shape))
                return err_set(err, "scan output %d has another shape in iteration %d", scan,
                               i);
            for (e = 0; e < from->n; e++)
                fold_copy(from, e, &item.constant[t], i * from->n + e);
        }
    }
    loop->build->items[output] = item;
    return 0;
}

/* Value 'id' with a first axis of length 1. */
static int as_slice(struct loop *loop, int id, struct err *err)
{
    struct shape shapes[BUILD_TWINS];
    int t;

    for (t = 0; t < BUILD_TWINS; t++) {
        const struct shape *from = canon_shape_of(loop->build, id, t);

        if (from->rank >= GRAPH_MAX_RANK)
            return err_set(err, "a scan output of more than %d dimensions", GRAPH_MAX_RANK);
        shapes[t] = (struct shape){ .rank = from->rank + 1, .dim = { 1 } };
        memcpy(&shapes[t].dim[1], from->dim, (size_t)from->rank * sizeof(from->dim[0]));
    }
    return canon_shaped(loop->build, loop->node, id, shapes, err);
}

static int stack_values(struct loop *loop, int scan, int *ids, struct err *err)
{
    int n = loop->n_scanned / loop->n_scans, i;

    for (i = 0; i < n; i++) {
        const struct build_item *item = &loop->scanned[i * loop->n_scans + scan];

        ids[i] = item->id;
        if (item->kind == ITEM_CONST)
            ids[i] = build_add_const(loop->build, NULL, item->constant, err);
        ids[i] = ids[i] < 0 ? -1 : as_slice(loop, ids[i], err);
        if (ids[i] < 0)
            return -1;
    }
    return n == 1 ? ids[0] : canon_joined(loop->build, loop->node, n, ids, 0, err);
}

static int stack(struct loop *loop, int scan, struct err *err)
{
    int output = loop->n_carried + scan, n = loop->n_scanned / loop->n_scans, i, value;
    bool constant = true, broken = false;
    int *ids;

    if (canon_read(loop->build, loop->node, output) == 0)
        return 0;
    if (n == 0)
        return err_set(err, "it has no iteration, and so no scan output");
    for (i = 0; i < n; i++) {
        constant &= loop->scanned[i * loop->n_scans + scan].kind == ITEM_CONST;
        broken |= loop->scanned[i * loop->n_scans + scan].kind == ITEM_BROKEN;
    }
    if (broken)
        loop->build->items[loop->node->outputs[output]].kind = ITEM_BROKEN;
    if (broken)
        return 0;
    if (constant)
        return stack_constants(loop, scan, loop->node->outputs[output], err);
    ids = mem_new((size_t)n, sizeof(*ids));
    value = stack_values(loop, scan, ids, err);
    free(ids);
    return value < 0 ? -1 : canon_result(loop->build, loop->node, output, value);
}

static int run_loop(struct loop *loop, struct err *err)
{
    size_t cost = 1 + (size_t)loop->body->n_inputs + (size_t)loop->body->n_outputs;
    int first = loop->build->graph[0]->n_values, result = 0, i;
    int64_t iteration;

    for (iteration = 0; result == 0 && loop->condition && iteration != loop->trips; iteration++) {
        result = build_unroll(loop->build, cost, err);
        if (!result)
            result = iterate(loop, iteration, err);
    }
    if (result == 1)
        build_break(loop->build, loop->node);
    for (i = 0; i < loop->n_carried && result == 0; i++)
        give(loop->build, &loop->carried[i], loop->node->outputs[i], first);
    for (i = 0; i < loop->n_scans && result == 0; i++)
        result = stack(loop, i, err);
    return result < 0 ? -1 : 0;
}

int control_loop(struct build *build, const struct onnx_node *node, struct err *err)
{
    struct loop loop = { .build = build, .node = node, .body = node->bodies[0] };
    int result = loop_start(&loop, err);

    build->loops++;
    if (!result)
        result = run_loop(&loop, err);
    build->loops--;
    free(loop.carried);
    free(loop.scanned);
    return result;
}
