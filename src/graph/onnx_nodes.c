/* SPDX-License-Identifier: MIT */
/* The nodes of a file: names resolved scope by scope, functions written out. */
#include "graph/onnx.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/names.h"
#include "graph/onnx_function.h"

/* An input of a function that the call leaves out. */
enum { ABSENT = INT_MAX };
/* What stands in 'index' of a value while no node makes it: an output of the function at work,
 * or of a call to come.
 */
enum { PENDING = -1, CALLED = -2 };

struct call {
    const OnnxFile__Node *proto;
    const OnnxFile__Function *function;
    const char *name;
    int *outputs;
    const struct call *outer;
};

/* A node with subgraphs. */
struct owner {
    const struct onnx_body *body;   /* it stands in */
    struct owner *outer;
    int n_captured, *captured;
};

/* Names in sight, and where the nodes go that are read there. */
struct place {
    const struct place *around;     /* its names are in sight, too; NULL: main, a function */
    struct names *names;
    struct onnx_body *body;
    struct owner *owner;            /* of the body; NULL: the main graph's */
    const struct call *call;        /* NULL: in no function */
    const char *scope;
    size_t n_imports;
    OnnxFile__OperatorSet *const *imports;
    int depth;
};

struct reader {
    struct onnx *onnx;
    struct names *functions;        /* onnx_function_list() */
    size_t written, text;
};

/* Limits ------------------------------------------------------------------------------ */

static int spend(struct reader *r, const struct place *place, size_t n, struct err *err)
{
    if (!place->call)
        return 0;
    r->written += n;
    return r->written <= ONNX_MAX_WRITTEN
               ? 0 : err_set(err, "its functions come to more than %d nodes, inputs and outputs",
                             ONNX_MAX_WRITTEN);
}

static int spend_node(struct reader *r, const struct place *place, const OnnxFile__Node *proto,
                      struct err *err)
{
    return spend(r, place, 1 + proto->n_input + proto->n_output + proto->n_attribute, err);
}

static const char *compose(struct reader *r, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static const char *compose(struct reader *r, struct err *err, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    int size;

    va_start(args, format);
    size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0 || size_add(r->text, (size_t)size, &r->text) || r->text > ONNX_MAX_NAMES) {
        err_set(err, "the names in its subgraphs and functions are too long");
        return NULL;
    }
    text = arena_alloc(r->onnx->arena, (size_t)size + 1, 1);
    va_start(args, format);
    vsnprintf(text, (size_t)size + 1, format, args);
    va_end(args);
    return text;
}

static int enter(const struct place *from, struct place *to, struct err *err)
{
    to->depth = from->depth + 1;
    return to->depth <= ONNX_MAX_CALLS
               ? 0 : err_set(err, "subgraphs and functions are nested too deep");
}

/* Say once of an error where it is: in a node, or (NULL) in what the place is the inside of. */
static int blame(const struct place *place, const char *name, struct err *err)
{
    if (name)
        err_prefix(err, "node \"%.200s\"", name);
    return place->depth ? err_prefix(err, "%.400s", place->scope) : -1;
}

/* Names ------------------------------------------------------------------------------- */

/* In a function a name comes after that of the call. */
static const char *full_name(struct reader *r, const struct place *place, const char *name,
                             struct err *err)
{
    return place->call ? compose(r, err, "%s/%s", place->call->name, name) : name;
}

/* What a node is called where it stands. */
static const char *label(const OnnxFile__Node *proto)
{
    return proto->name && *proto->name ? proto->name
           : proto->n_output ? proto->output[0] : "";
}

static const char *node_name(struct reader *r, const struct place *place,
                             const OnnxFile__Node *proto, size_t index, struct err *err)
{
    if (*label(proto))
        return full_name(r, place, label(proto), err);
    return compose(r, err, "%s%snode %zu", place->call ? place->call->name : "",
                   place->call ? "/" : "", index);
}

static int new_value(struct reader *r, const struct place *place, const char *name,
                     enum onnx_kind kind, int index, struct err *err)
{
    struct onnx_value value = { .kind = kind, .index = index, .body = place->body };

    value.name = full_name(r, place, name, err);
    return value.name ? onnx_add_value(r->onnx, place->names, name, value, err) : -1;
}

static int look_up(const struct place *place, const char *name)
{
    int id = -1;

    for (; place && id < 0; place = place->around)
        id = names_find(place->names, name);
    return id;
}

/* The value is read here: the nodes whose subgraphs the place is in depend on it. */
static void capture(struct reader *r, const struct place *place, int id)
{
    const struct onnx_body *body = place->body;
    struct owner *owner = place->owner;

    r->onnx->values[id].readers++;
    for (; r->onnx->values[id].body != body; owner = owner->outer) {
        *(int *)mem_push((void **)&owner->captured, &owner->n_captured, sizeof(int)) = id;
        body = owner->body;
    }
}

/* A name that is read: the value's index, ABSENT, -1 with 'err'. */
static int read_name(struct reader *r, const struct place *place, const char *name,
                     struct err *err)
{
    int id = look_up(place, name);

    if (id < 0)
        return err_set(err, "it reads \"%.200s\", which nothing makes", name);
    if (id == ABSENT)
        return id;
    capture(r, place, id);
    return id;
}

static int declare_output(struct reader *r, const struct place *place, const char *name,
                          int index, struct err *err)
{
    int id = names_find(place->names, name);
    struct onnx_value *value = id < 0 || id == ABSENT ? NULL : &r->onnx->values[id];

    if (value && value->kind == ONNX_OUTPUT && value->index == PENDING &&
        value->body == place->body) {
        value->index = index;
        return id;
    }
    return new_value(r, place, name, ONNX_OUTPUT, index, err);
}

/* Functions --------------------------------------------------------------------------- */

/* An output of a function that is one of its inputs, or is named twice. */
static int add_identity(struct reader *r, const struct place *place, int from, int to,
                        struct err *err)
{
    struct arena *arena = r->onnx->arena;
    OnnxFile__Node *proto = arena_alloc(arena, 1, sizeof(*proto));
    struct onnx_node *node;
    int own = place->body->n_nodes;

    if (from == ABSENT)
        return err_set(err, "an output is an input that the call leaves out");
    onnx_file__node__init(proto);
    proto->op_type = arena_strdup(arena, "Identity");
    proto->n_input = proto->n_output = 1;
    if (spend_node(r, place, proto, err))
        return -1;
    node = mem_push((void **)&place->body->nodes, &place->body->n_nodes, sizeof(*node));
    *node = (struct onnx_node){ .proto = proto, .name = r->onnx->values[to].name,
                                .scope = place->scope, .opset = r->onnx->opset };
    node->inputs = arena_alloc(arena, 1, sizeof(int));
    node->outputs = arena_alloc(arena, 1, sizeof(int));
    node->inputs[0] = from;
    node->outputs[0] = to;
    r->onnx->values[to].index = own;
    capture(r, place, from);
    return 0;
}

static int bind_inputs(const struct place *place, const struct place *inner,
                       const struct call *call, struct err *err)
{
    const OnnxFile__Function *f = call->function;
    size_t i;
    int id;

    if (call->proto->n_input > f->n_input || call->proto->n_output > f->n_output)
        return err_set(err, "it has more inputs or outputs than its function");
    for (i = 0; i < f->n_input; i++) {
        const char *name = i < call->proto->n_input ? call->proto->input[i] : "";

        id = *name ? look_up(place, name) : ABSENT;
        if (id < 0)
            return err_set(err, "it reads \"%.200s\", which nothing makes", name);
        if (names_find(inner->names, f->input[i]) >= 0)
            return err_set(err, "two inputs are named \"%.200s\"", f->input[i]);
        names_put(inner->names, f->input[i], id);
    }
    return 0;
}

static int bind_outputs(struct reader *r, const struct place *inner, const struct call *call,
                        struct err *err)
{
    const OnnxFile__Function *f = call->function;
    size_t i;

    for (i = 0; i < f->n_output; i++) {
        int id = i < call->proto->n_output ? call->outputs[i] : -1;
        int same = names_find(inner->names, f->output[i]);

        if (same >= 0 && id >= 0 && add_identity(r, inner, same, id, err))
            return -1;
        if (same < 0 && id >= 0) {
            r->onnx->values[id].index = PENDING;
            names_put(inner->names, f->output[i], id);
        } else if (same < 0 && new_value(r, inner, f->output[i], ONNX_OUTPUT, PENDING,
                                         err) < 0) {
            return -1;
        }
    }
    return 0;
}

static int check_made(const struct reader *r, const struct place *inner,
                      const OnnxFile__Function *f, struct err *err)
{
    size_t i;

    for (i = 0; i < f->n_output; i++) {
        int id = names_find(inner->names, f->output[i]);

        if (id != ABSENT && r->onnx->values[id].kind == ONNX_OUTPUT &&
            r->onnx->values[id].index == PENDING)
            return err_set(err, "nothing makes the output \"%.200s\" of its function",
                           f->output[i]);
    }
    return 0;
}

static int read_list(struct reader *r, const struct place *place, size_t n,
                     OnnxFile__Node *const *list, struct err *err);

static int check_recursion(const struct call *call, struct err *err)
{
    const struct call *outer;

    for (outer = call->outer; outer; outer = outer->outer)
        if (outer->function == call->function)
            return err_set(err, "the function \"%.200s\" calls itself",
                           onnx_text(call->function->name));
    return 0;
}

static int expand(struct reader *r, const struct place *place, const struct call *call,
                  struct err *err)
{
    const OnnxFile__Function *f = call->function;
    const char *domain = onnx_domain(f->domain);
    struct place inner = { .body = place->body, .owner = place->owner, .call = call,
                           .n_imports = f->n_opset_import, .imports = f->opset_import };
    int result = -1;

    inner.scope = compose(r, err, "%s/%s%s%s \"%s\"", place->scope, domain, *domain ? "." : "",
                          onnx_text(f->name), label(call->proto));
    if (check_recursion(call, err) || !inner.scope || enter(place, &inner, err) ||
        spend(r, &inner, f->n_input + f->n_output, err))
        return blame(place, call->name, err);
    inner.names = names_new();
    if (bind_inputs(place, &inner, call, err) || bind_outputs(r, &inner, call, err))
        blame(place, call->name, err);
    else if (!read_list(r, &inner, f->n_node, f->node, err))
        result = check_made(r, &inner, f, err) ? blame(place, call->name, err) : 0;
    names_free(inner.names);
    return result;
}

/* Subgraphs --------------------------------------------------------------------------- */

static int read_formals(struct reader *r, const struct place *place, struct err *err)
{
    const OnnxFile__Graph *graph = place->body->proto;
    struct onnx_body *body = place->body;
    size_t i;

    body->inputs = arena_alloc(r->onnx->arena, graph->n_input, sizeof(int));
    for (i = 0; i < graph->n_input; i++) {
        int id = new_value(r, place, onnx_text(graph->input[i]->name), ONNX_FORMAL, (int)i,
                           err);

        if (id < 0)
            return -1;
        body->inputs[body->n_inputs++] = id;
    }
    return 0;
}

/* Under the name of where they stand: that is how --freeze and the graph know them. */
static int read_initializers(struct reader *r, const struct place *place, struct err *err)
{
    const OnnxFile__Graph *graph = place->body->proto;
    struct onnx *onnx = r->onnx;
    size_t i;

    for (i = 0; i < graph->n_initializer; i++) {
        const char *name = onnx_text(graph->initializer[i]->name);
        struct onnx_value value = { .kind = ONNX_INITIALIZER, .index = onnx->n_initializers,
                                    .body = &onnx->main };
        struct onnx_tensor tensor;
        size_t decoded;
        int id;

        if (onnx_tensor_read(onnx, graph->initializer[i], &tensor, err))
            return -1;
        value.name = compose(r, err, "%s/%s", place->scope, name);
        /* In a function, what is decoded is decoded at each call. */
        decoded = tensor.in_file || graph->initializer[i]->n_external_data ? 0 : tensor.size;
        if (!value.name || spend(r, place, 1 + decoded / 16, err))
            return -1;
        id = onnx_add_value(onnx, onnx->names, value.name, value, err);
        if (id < 0)
            return -1;
        if (!*name || names_find(place->names, name) >= 0)
            return err_set(err, "two values are named \"%.200s\"", name);
        names_put(place->names, name, id);
        tensor.name = value.name;
        *(struct onnx_tensor *)mem_push((void **)&onnx->initializers, &onnx->n_initializers,
                                        sizeof(tensor)) = tensor;
    }
    return 0;
}

static int read_outputs(struct reader *r, const struct place *place, struct err *err)
{
    const OnnxFile__Graph *graph = place->body->proto;
    struct onnx_body *body = place->body;
    size_t i;

    body->outputs = arena_alloc(r->onnx->arena, graph->n_output, sizeof(int));
    for (i = 0; i < graph->n_output; i++) {
        const char *name = onnx_text(graph->output[i]->name);
        int id = look_up(place, name) < 0 ? -1 : read_name(r, place, name, err);

        if (id < 0 || id == ABSENT)
            return err_set(err, "nothing makes the output \"%.200s\"", name);
        body->outputs[body->n_outputs++] = id;
    }
    return 0;
}

static int read_body(struct reader *r, const struct place *place, struct err *err)
{
    const OnnxFile__Graph *graph = place->body->proto;
    int result = read_list(r, place, graph->n_node, graph->node, err);

    if (!result && (read_outputs(r, place, err) || onnx_sort(r->onnx, place->body, err)))
        result = blame(place, NULL, err);
    if (result) {
        free(place->body->nodes);
        place->body->nodes = NULL;
    }
    return result;
}

static int read_subgraph(struct reader *r, const struct place *place, struct owner *owner,
                         struct onnx_node *node, int index, const char *name, struct err *err)
{
    const OnnxFile__Attribute *attr = onnx_attr(node->proto, name);
    struct place inner = { .around = place, .owner = owner, .call = place->call,
                           .n_imports = place->n_imports, .imports = place->imports };
    int result;

    if (!attr || !attr->g)
        return 0;
    inner.scope = compose(r, err, "%s/%s \"%s\"/%s", place->scope, node->proto->op_type,
                          label(node->proto), name);
    if (!inner.scope || enter(place, &inner, err))
        return blame(place, node->name, err);
    inner.body = arena_alloc(r->onnx->arena, 1, sizeof(*inner.body));
    inner.body->proto = attr->g;
    inner.names = names_new();
    if (read_formals(r, &inner, err) || read_initializers(r, &inner, err))
        result = blame(&inner, NULL, err);
    else
        result = read_body(r, &inner, err);
    names_free(inner.names);
    node->bodies[index] = inner.body;
    return result;
}

static int read_subgraphs(struct reader *r, const struct place *place, struct onnx_node *node,
                          struct err *err)
{
    static const char *const names[2][2] = { { "then_branch", "else_branch" }, { "body" } };
    bool loop = strcmp(node->proto->op_type, "Loop") == 0;
    struct owner owner = { .body = place->body, .outer = place->owner };
    int i, result = 0;

    if ((!loop && strcmp(node->proto->op_type, "If") != 0) || *onnx_domain(node->proto->domain))
        return 0;
    for (i = 0; i < 2 && names[loop][i] && !result; i++)
        result = read_subgraph(r, place, &owner, node, i, names[loop][i], err);
    node->n_captured = owner.n_captured;
    node->captured = arena_alloc(r->onnx->arena, (size_t)owner.n_captured, sizeof(int));
    if (owner.n_captured)
        memcpy(node->captured, owner.captured, (size_t)owner.n_captured * sizeof(int));
    free(owner.captured);
    return result;
}

/* Lists of nodes ---------------------------------------------------------------------- */

static int64_t opset_of(const struct reader *r, const struct place *place, const char *domain)
{
    const OnnxFile__Model *model = r->onnx->model;
    int64_t version = onnx_import(place->n_imports, place->imports, domain);

    return version ? version : onnx_import(model->n_opset_import, model->opset_import, domain);
}

static int declare_outputs(struct reader *r, const struct place *place,
                           const OnnxFile__Node *proto, int *outputs, int index,
                           struct err *err)
{
    size_t i;

    for (i = 0; i < proto->n_output; i++) {
        outputs[i] = -1;
        if (!*proto->output[i])
            continue;
        outputs[i] = declare_output(r, place, proto->output[i], index, err);
        if (outputs[i] < 0)
            return -1;
    }
    return 0;
}

/* Enter what a node makes; a call of a function is kept for later. */
static int declare(struct reader *r, const struct place *place, const OnnxFile__Node *proto,
                   const char *name, struct call **calls, int *n_calls, struct err *err)
{
    struct onnx_body *body = place->body;
    const OnnxFile__Function *function;
    int *outputs;

    if (spend_node(r, place, proto, err))
        return -1;
    if (!proto->op_type || !*proto->op_type)
        return err_set(err, "it has no operator");
    function = onnx_function_find(r->onnx, r->functions, proto);
    outputs = arena_alloc(r->onnx->arena, proto->n_output, sizeof(int));
    proto = onnx_function_node(r->onnx, place->call ? place->call->function : NULL,
                               place->call ? place->call->proto : NULL, proto, err);
    if (!proto ||
        declare_outputs(r, place, proto, outputs, function ? CALLED : body->n_nodes, err))
        return -1;
    if (function)
        *(struct call *)mem_push((void **)calls, n_calls, sizeof(**calls)) =
            (struct call){ proto, function, name, outputs, place->call };
    else
        *(struct onnx_node *)mem_push((void **)&body->nodes, &body->n_nodes,
                                      sizeof(*body->nodes)) =
            (struct onnx_node){ .proto = proto, .name = name, .scope = place->scope,
                                .opset = opset_of(r, place, proto->domain),
                                .outputs = outputs };
    return 0;
}

static int resolve(struct reader *r, const struct place *place, struct onnx_node *node,
                   struct err *err)
{
    size_t i;

    node->inputs = arena_alloc(r->onnx->arena, node->proto->n_input, sizeof(int));
    for (i = 0; i < node->proto->n_input; i++) {
        const char *name = node->proto->input[i];
        int id = *name ? read_name(r, place, name, err) : ABSENT;

        if (id < 0)
            return blame(place, node->name, err);
        node->inputs[i] = id == ABSENT ? -1 : id;
    }
    return read_subgraphs(r, place, node, err);
}

static int read_list(struct reader *r, const struct place *place, size_t n,
                     OnnxFile__Node *const *list, struct err *err)
{
    struct onnx_body *body = place->body;
    int first = body->n_nodes, last, n_calls = 0, i, result = 0;
    struct call *calls = NULL;
    size_t k;

    for (k = 0; k < n && !result; k++) {
        const char *name = node_name(r, place, list[k], k, err);

        if (!name || declare(r, place, list[k], name, &calls, &n_calls, err))
            result = blame(place, name, err);
    }
    last = body->n_nodes;
    for (i = first; i < last && !result; i++)
        result = resolve(r, place, &body->nodes[i], err);
    for (i = 0; i < n_calls && !result; i++)
        result = expand(r, place, &calls[i], err);
    free(calls);
    return result;
}

int onnx_read_nodes(struct onnx *onnx, struct err *err)
{
    struct reader r = { .onnx = onnx };
    struct place place = { .names = onnx->names, .body = &onnx->main, .scope = "main" };
    int result;

    onnx->main.proto = onnx->model->graph;
    r.functions = onnx_function_list(onnx, err);
    result = r.functions ? read_body(&r, &place, err) : -1;
    names_free(r.functions);
    if (!result && onnx->main.n_outputs == 0)
        result = err_set(err, "the graph has no output");
    return result;
}
