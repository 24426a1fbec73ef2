/* SPDX-License-Identifier: MIT */
/* The nodes of a body, one after the other: folded, or brought into the graphs. */
#include "graph/build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/memo.h"

/* Folding ----------------------------------------------------------------------------- */

/* The shape of any value, in graph 'which'. */
static int shape_of(struct build *build, int v, int which, struct tensor *shape,
                    struct err *err)
{
    const struct onnx_value *value = &build->onnx->values[v];
    const struct build_item *item = &build->items[v];

    memset(shape, 0, sizeof(*shape));
    if (item->kind == ITEM_CONST)
        shape->shape = item->constant[which].shape;
    else if (item->kind == ITEM_VALUE)
        shape->shape = build->graph[which]->values[item->id].shape;
    else if (value->kind == ONNX_INITIALIZER)
        shape->shape = build->onnx->initializers[value->index].shape;
    else
        return err_set(err, "\"%.200s\" is not there", value->name);
    return 0;
}

/* Constant and ConstantOfShape carry a tensor that fold.c expects as an input. */
static int attribute_tensor(struct build *build, const struct onnx_node *node, int which,
                            struct tensor *tensor, bool *found, struct err *err)
{
    const OnnxFile__Attribute *attr = onnx_attr(node->proto, "value");
    struct onnx_tensor loaded;

    *found = attr && attr->t;
    if (!*found || memo_find_tensor(build->memo, attr, tensor))
        return 0;
    if (onnx_tensor_read(build->onnx, attr->t, &loaded, err) ||
        fold_load(&build->fold[which], &loaded, tensor, err))
        return -1;
    memo_put(build->memo, 1, tensor);
    return 0;
}

/* Of a value that is no constant the type is known: a tensor of it without elements. */
static bool type_of(const struct build *build, int v, int which, struct tensor *tensor)
{
    const struct build_item *item = &build->items[v];

    if (item->kind != ITEM_VALUE)
        return false;
    *tensor = (struct tensor){ .dtype = build->graph[which]->values[item->id].dtype,
                               .shape = { .rank = 1 } };
    return true;
}

/* Inputs of a fold in graph 'which'. Returns 1 where one is no constant. */
static int fold_inputs(struct build *build, const struct onnx_node *node, int which,
                       struct tensor *own, const struct tensor **inputs, int *n,
                       struct err *err)
{
    const char *op = node->proto->op_type;
    bool shapes = strcmp(op, "Shape") == 0 || strcmp(op, "Size") == 0, found;
    bool range = strcmp(op, "Range") == 0;
    int i;

    *n = (int)node->proto->n_input;
    for (i = 0; i < *n; i++) {
        inputs[i] = range ? build_literal(build, node->inputs[i], which)
                          : build_const(build, node->inputs[i], which);
        if (shapes && node->inputs[i] >= 0) {
            if (shape_of(build, node->inputs[i], which, own, err))
                return -1;
            inputs[i] = own;
        } else if (i == 1 && !inputs[1] && strcmp(op, "CastLike") == 0 &&
                   type_of(build, node->inputs[1], which, own)) {
            inputs[1] = own;
        } else if (node->inputs[i] >= 0 && !inputs[i]) {
            return 1;
        }
    }
    if (strcmp(op, "Constant") == 0 || strcmp(op, "ConstantOfShape") == 0) {
        if (attribute_tensor(build, node, which, own, &found, err))
            return -1;
        if (found)
            inputs[(*n)++] = own;
    }
    return 0;
}

static int fold_once(struct build *build, const OnnxFile__Node *proto, int which, int n,
                     const struct tensor **inputs, struct tensor *outputs, struct err *err)
{
    int n_outputs = (int)proto->n_output;

    if (memo_find(build->memo, proto, n, inputs, n_outputs, outputs))
        return 0;
    if (fold_run(&build->fold[which], proto, n, inputs, n_outputs, outputs, err))
        return -1;
    memo_put(build->memo, n_outputs, outputs);
    return 0;
}

/* For one input more than the node has, which attribute_tensor() may be. */
static void make_room(struct build *build, const struct onnx_node *node)
{
    size_t n = node->proto->n_input + 1;

    n = node->proto->n_output > n ? node->proto->n_output : n;
    if (n <= build->n_folded)
        return;
    build->n_folded = 2 * n;
    build->fold_inputs = mem_resize(build->fold_inputs, 2 * n, sizeof(*build->fold_inputs));
    build->fold_outputs = mem_resize(build->fold_outputs, 2 * n, sizeof(*build->fold_outputs));
}

/* 0: the node became constants; 1: it is to be computed; -1: an error. */
static int fold_node(struct build *build, const struct onnx_node *node, struct err *err)
{
    size_t n_outputs = node->proto->n_output, o;
    const struct tensor **inputs;
    struct tensor own, *outputs;
    int t, n, result = 0;

    if (!canon_kind(build, node->proto->op_type).folds)
        return 1;
    make_room(build, node);
    inputs = build->fold_inputs;
    outputs = build->fold_outputs;
    memset(outputs, 0, n_outputs * sizeof(*outputs));
    for (t = 0; t < BUILD_TWINS && !result; t++) {
        result = fold_inputs(build, node, t, &own, inputs, &n, err);
        if (!result)
            result = fold_once(build, node->proto, t, n, inputs, outputs, err);
        for (o = 0; o < n_outputs && !result; o++)
            if (node->outputs[o] >= 0) {
                struct build_item *item = &build->items[node->outputs[o]];

                item->kind = ITEM_CONST;
                item->id = -1;
                item->constant[t] = outputs[o];
            }
    }
    return result;
}

/* Node by node ------------------------------------------------------------------------ */

void build_break(struct build *build, const struct onnx_node *node)
{
    size_t i;

    for (i = 0; i < node->proto->n_output; i++)
        if (node->outputs[i] >= 0)
            build->items[node->outputs[i]] = (struct build_item){ .kind = ITEM_BROKEN };
}

/* The rules of the operators name the node by themselves. */
static void refuse(struct build *build, const struct onnx_node *node, const struct err *err)
{
    char *prefix = mem_printf("node \"%s\" (%s): ", node->name, node->proto->op_type);
    size_t n = strlen(prefix);
    const char *why = err->text + (strncmp(err->text, prefix, n) == 0 ? n : 0);

    *(struct build_problem *)mem_push((void **)&build->problems, &build->n_problems,
                                      sizeof(*build->problems)) =
        (struct build_problem){ node, mem_strdup(why), (int)err->code };
    free(prefix);
}

/* What can be said of a node without its inputs. */
static int check_known(struct build *build, const struct onnx_node *node, struct err *err)
{
    const char *domain = onnx_domain(node->proto->domain);

    if (!*domain && (node->opset < ONNX_MIN_OPSET || node->opset > ONNX_MAX_OPSET))
        return err_set(err, "opset %" PRId64 " is not supported, only %d to %d", node->opset,
                       ONNX_MIN_OPSET, ONNX_MAX_OPSET);
    if (!*domain && canon_kind(build, node->proto->op_type).known)
        return 0;
    return err_set(err, *domain ? "there is no such operator, and no function in the file"
                                : "the operator is not supported");
}

/* Operators that are not known in a body that is not built. */
void build_list_unknown(struct build *build, const struct onnx_body *body)
{
    int n;

    for (n = 0; n < body->n_nodes; n++) {
        struct err err = { 0 };

        if (body->nodes[n].live && check_known(build, &body->nodes[n], &err))
            refuse(build, &body->nodes[n], &err);
        if (body->nodes[n].live)
            build_not_entered(build, &body->nodes[n]);
    }
}

void build_not_entered(struct build *build, const struct onnx_node *node)
{
    int i;

    for (i = 0; i < 2; i++)
        if (node->bodies[i])
            build_list_unknown(build, node->bodies[i]);
}

static bool reads_broken(const struct build *build, const struct onnx_node *node)
{
    size_t i;

    for (i = 0; i < node->proto->n_input; i++)
        if (node->inputs[i] >= 0 && build->items[node->inputs[i]].kind == ITEM_BROKEN)
            return true;
    return false;
}

int build_unroll(struct build *build, size_t n, struct err *err)
{
    if (n > BUILD_MAX_UNROLLED || build->unrolled + (int)n > BUILD_MAX_UNROLLED ||
        build->graph[0]->n_nodes > 2 * BUILD_MAX_UNROLLED)
        return err_set(err, "unrolled, loops come to more than %d nodes, inputs and outputs",
                       BUILD_MAX_UNROLLED);
    build->unrolled += (int)n;
    return 0;
}

static int build_node(struct build *build, const struct onnx_node *node, struct err *err)
{
    int result = check_known(build, node, err);

    if (!result && build->loops)
        result = build_unroll(build, 1 + node->proto->n_input + node->proto->n_output, err);
    if (!result)
        result = fold_node(build, node, err);
    if (result == 1)
        result = canon_node(build, node, err);
    return result;
}

void build_nodes(struct build *build, const struct onnx_body *body)
{
    int n;

    for (n = 0; n < body->n_nodes; n++) {
        const struct onnx_node *node = &body->nodes[n];
        bool broken = node->live && reads_broken(build, node);
        struct err err = { 0 };
        int result;

        if (!node->live)
            continue;
        result = broken ? check_known(build, node, &err) : build_node(build, node, &err);
        if (result)
            refuse(build, node, &err);
        if (broken)
            build_not_entered(build, node);
        if (broken || result)
            build_break(build, node);
    }
}
