/* SPDX-License-Identifier: MIT */
#include "graph/graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/names.h"
#include "graph/op.h"

int64_t shape_elements(const struct shape *shape)
{
    int64_t n = 1;
    int i;

    for (i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(n, shape->dim[i], &n))
            return INT64_MAX;
    return n;
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    int i;

    if (a->rank != b->rank)
        return false;
    for (i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

char *shape_text(const struct shape *shape, char *text, size_t size)
{
    size_t used = 0;
    int i;

    if (shape->rank == 0)
        snprintf(text, size, "scalar");
    for (i = 0; i < shape->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? "x" : "",
                                 shape->dim[i]);
    return text;
}

size_t value_bytes(const struct value *value)
{
    return (size_t)shape_elements(&value->shape) * dtype_size(value->dtype);
}

struct graph *graph_new(int64_t batch, enum dtype real)
{
    struct graph *graph = mem_new(1, sizeof(*graph));

    graph->arena = arena_new();
    graph->value_names = names_new();
    graph->node_names = names_new();
    graph->batch = batch;
    graph->real = real;
    graph->loss = graph->weight_sum = graph->correct = -1;
    return graph;
}

struct graph *graph_new_twin(const struct graph *graph, int64_t batch)
{
    struct graph *twin = graph_new(batch, graph->real);

    twin->twin = graph;
    return twin;
}

/* With the room that mem_push() relies on. */
static void *copy_list(const void *list, int n, size_t size)
{
    void *copy;

    if (n == 0)
        return NULL;
    copy = mem_resize(NULL, mem_room((size_t)n), size);
    memcpy(copy, list, (size_t)n * size);
    return copy;
}

static void *copy_array(struct graph *graph, const void *array, int n, size_t size)
{
    void *copy = arena_alloc(graph->arena, (size_t)n, size);

    if (n)
        memcpy(copy, array, (size_t)n * size);
    return copy;
}

struct graph *graph_copy(const struct graph *graph)
{
    struct graph *copy = mem_new(1, sizeof(*copy));
    int i;

    *copy = *graph;
    copy->arena = arena_new();
    copy->value_names = names_copy(graph->value_names);
    copy->node_names = names_copy(graph->node_names);
    copy->inputs = copy_array(copy, graph->inputs, graph->n_inputs, sizeof(int));
    copy->outputs = copy_array(copy, graph->outputs, graph->n_outputs, sizeof(int));
    copy->values = copy_list(graph->values, graph->n_values, sizeof(*graph->values));
    copy->nodes = copy_list(graph->nodes, graph->n_nodes, sizeof(*graph->nodes));
    for (i = 0; i < graph->n_values; i++) {
        struct value *value = &copy->values[i];

        value->consumers = copy_list(value->consumers, value->n_consumers, sizeof(int));
    }
    for (i = 0; i < graph->n_nodes; i++) {
        struct node *node = &copy->nodes[i];

        node->inputs = copy_array(copy, node->inputs, node->n_inputs, sizeof(int));
        node->outputs = copy_array(copy, node->outputs, node->n_outputs, sizeof(int));
        node->attrs = copy_array(copy, node->attrs, node->n_attrs, sizeof(*node->attrs));
    }
    return copy;
}

void graph_free(struct graph *graph)
{
    int v;

    if (!graph)
        return;
    for (v = 0; v < graph->n_values; v++)
        free(graph->values[v].consumers);
    free(graph->values);
    free(graph->nodes);
    names_free(graph->value_names);
    names_free(graph->node_names);
    arena_free(graph->arena);
    free(graph);
}

uint64_t graph_key(const char *name)
{
    return names_hash(name);
}

/* "name#number", much faster than by snprintf(). */
static char *numbered(struct arena *arena, const char *name, unsigned number)
{
    size_t n = strlen(name), digits = 1;
    char *text;

    for (unsigned rest = number / 10; rest; rest /= 10)
        digits++;
    text = arena_alloc(arena, n + 1 + digits + 1, 1);
    memcpy(text, name, n);
    text[n] = '#';
    for (char *at = text + n + digits; digits; digits--, number /= 10)
        *at-- = (char)('0' + number % 10);
    return text;
}

/* Copies 'name' into the arena and enters it, completed by a number where it is taken. */
static const char *enter_name(struct graph *graph, struct names *names, const char *name,
                              const char *fallback, int id)
{
    char *unique = name ? arena_strdup(graph->arena, name) : NULL;
    unsigned number = (unsigned)id;

    if (unique && names_add(names, unique, id))
        return unique;
    unique = numbered(graph->arena, name ? name : fallback, number);
    /* Where others were removed, ids of before may be taken, one like the other up to the last. */
    while (!names_add(names, unique, id)) {
        number = number + 1 > graph->next_number ? number + 1 : graph->next_number;
        unique = numbered(graph->arena, name ? name : fallback, number);
        graph->next_number = number + 1;
    }
    return unique;
}

static const char *name_value(struct graph *graph, const char *name, int id)
{
    if (graph->twin && id < graph->twin->n_values)
        return graph->twin->values[id].name;
    return enter_name(graph, graph->value_names, name, "value", id);
}

int graph_add_value(struct graph *graph, const char *name, enum value_kind kind,
                    enum dtype dtype, const struct shape *shape, struct batch batch)
{
    /* 'shape' may be that of another value, and those move when the array grows. */
    const struct shape own = shape ? *shape : (struct shape){ 0, { 0 } };
    int id = graph->n_values;
    struct value *value = mem_push((void **)&graph->values, &graph->n_values, sizeof(*value));

    value->name = name_value(graph, name, id);
    value->kind = kind;
    value->dtype = dtype;
    value->file_dtype = dtype;
    value->shape = own;
    value->batch = batch;
    value->producer = -1;
    return id;
}

static void add_consumer(struct value *value, int node)
{
    int n = value->n_consumers;

    if (n && value->consumers[n - 1] == node)
        return;
    if (n == 0 && value->consumers) {
        /* A list that was emptied has room. */
        value->consumers[value->n_consumers++] = node;
        return;
    }
    *(int *)mem_push((void **)&value->consumers, &value->n_consumers, sizeof(int)) = node;
}

static void link_node(struct graph *graph, int id)
{
    const struct node *node = &graph->nodes[id];
    int i;

    for (i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0)
            add_consumer(&graph->values[node->inputs[i]], id);
    for (i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            graph->values[node->outputs[i]].producer = id;
}

static void name_node(struct graph *graph, const char *name, int id)
{
    struct node *node = &graph->nodes[id];

    if (graph->twin && id < graph->twin->n_nodes) {
        node->name = graph->twin->nodes[id].name;
        node->key = graph->twin->nodes[id].key;
        return;
    }
    node->name = enter_name(graph, graph->node_names, name, node->op->name, id);
    node->key = graph_key(node->name);
}

int graph_add_node(struct graph *graph, const char *name, const struct op *op, int n_inputs,
                   const int *inputs, int n_outputs, const int *outputs)
{
    int id = graph->n_nodes;
    struct node *node = mem_push((void **)&graph->nodes, &graph->n_nodes, sizeof(*node));

    node->op = op;
    name_node(graph, name, id);
    node->n_inputs = n_inputs;
    node->n_outputs = n_outputs;
    node->inputs = copy_array(graph, inputs, n_inputs, sizeof(int));
    node->outputs = copy_array(graph, outputs, n_outputs, sizeof(int));
    node->part = PART_FORWARD;
    node->source = -1;
    node->block = -1;
    link_node(graph, id);
    return id;
}

int graph_add_output(struct graph *graph, int node)
{
    struct node *n = &graph->nodes[node];
    int *outputs = arena_alloc(graph->arena, (size_t)n->n_outputs + 1, sizeof(*outputs));
    int value;

    memcpy(outputs, n->outputs, (size_t)n->n_outputs * sizeof(*outputs));
    value = graph_add_value(graph, NULL, VALUE_NODE, DTYPE_NONE, NULL, (struct batch){ 0 });
    graph->values[value].producer = node;
    outputs[n->n_outputs++] = value;
    n->outputs = outputs;
    return value;
}

int graph_add_const(struct graph *graph, const char *name, enum dtype dtype,
                    const struct shape *shape, const void *data)
{
    int id = graph_add_value(graph, name, VALUE_CONST, dtype, shape, (struct batch){ 0 });
    size_t bytes = value_bytes(&graph->values[id]);
    void *copy = arena_alloc(graph->arena, bytes ? bytes : 1, 1);

    memcpy(copy, data, bytes);
    graph->values[id].data = copy;
    return id;
}

int graph_find_value(const struct graph *graph, const char *name)
{
    return names_find(graph->value_names, name);
}

void graph_rename_value(struct graph *graph, int value, const char *name)
{
    names_remove(graph->value_names, graph->values[value].name);
    graph->values[value].name = name_value(graph, name, value);
}

void graph_relink(struct graph *graph)
{
    int i;

    for (i = 0; i < graph->n_values; i++) {
        graph->values[i].n_consumers = 0;
        graph->values[i].producer = -1;
    }
    for (i = 0; i < graph->n_nodes; i++)
        link_node(graph, i);
}

/* Attributes ------------------------------------------------------------------------- */

const struct attr *node_attr(const struct node *node, const char *name)
{
    int i;

    for (i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, name) == 0)
            return &node->attrs[i];
    return NULL;
}

int64_t node_int(const struct node *node, const char *name, int64_t def)
{
    const struct attr *attr = node_attr(node, name);

    return attr && attr->type == ATTR_INT ? attr->i : def;
}

double node_float(const struct node *node, const char *name, double def)
{
    const struct attr *attr = node_attr(node, name);

    return attr && attr->type == ATTR_FLOAT ? attr->f : def;
}

const char *node_string(const struct node *node, const char *name, const char *def)
{
    const struct attr *attr = node_attr(node, name);

    return attr && attr->type == ATTR_STRING ? attr->s : def;
}

static struct attr *set_attr(struct graph *graph, int id, const char *name,
                             enum attr_type type)
{
    struct node *node = &graph->nodes[id];
    struct attr *attrs, *attr = (struct attr *)(uintptr_t)node_attr(node, name);

    if (!attr) {
        attrs = arena_alloc(graph->arena, (size_t)node->n_attrs + 1, sizeof(*attrs));
        if (node->n_attrs)
            memcpy(attrs, node->attrs, (size_t)node->n_attrs * sizeof(*attrs));
        node->attrs = attrs;
        attr = &attrs[node->n_attrs++];
        name = arena_strdup(graph->arena, name);
    } else {
        name = attr->name;
    }
    *attr = (struct attr){ .name = name, .type = type, .tensor = -1 };
    return attr;
}

void graph_set_int(struct graph *graph, int node, const char *name, int64_t value)
{
    set_attr(graph, node, name, ATTR_INT)->i = value;
}

void graph_set_float(struct graph *graph, int node, const char *name, double value)
{
    set_attr(graph, node, name, ATTR_FLOAT)->f = value;
}

void graph_set_string(struct graph *graph, int node, const char *name, const char *value)
{
    set_attr(graph, node, name, ATTR_STRING)->s = arena_strdup(graph->arena, value);
}

void graph_set_ints(struct graph *graph, int node, const char *name, int n,
                    const int64_t *values)
{
    int64_t *copy = arena_alloc(graph->arena, (size_t)n, sizeof(*copy));
    struct attr *attr = set_attr(graph, node, name, ATTR_INTS);

    if (n)
        memcpy(copy, values, (size_t)n * sizeof(*copy));
    attr->n = n;
    attr->ints = copy;
}

void graph_copy_attrs(struct graph *graph, int to, int from)
{
    int i;

    /* Names and lists are in the arena already: the entries can be shared. */
    for (i = 0; i < graph->nodes[from].n_attrs; i++) {
        const struct attr source = graph->nodes[from].attrs[i];

        *set_attr(graph, to, source.name, source.type) = source;
    }
}

/* Checks ------------------------------------------------------------------------------ */

static int check_value(const struct graph *graph, int v, struct err *err)
{
    const struct value *value = &graph->values[v];
    int64_t elements = shape_elements(&value->shape);
    char text[128];

    if (value->dtype == DTYPE_NONE)
        return err_set(err, "value \"%s\" has no type", value->name);
    if (value->batch.outer > 0 &&
        value->batch.outer * graph->batch * value->batch.inner != elements)
        return err_set(err, "value \"%s\" (%s): its batch does not fit its shape", value->name,
                       shape_text(&value->shape, text, sizeof(text)));
    return 0;
}

static int check_input(const struct graph *graph, int id, int v, struct err *err)
{
    const struct node *node = &graph->nodes[id];

    if (v < -1 || v >= graph->n_values)
        return err_set(err, "node \"%s\" reads a value that is not there", node->name);
    if (v >= 0 && graph->values[v].producer >= id)
        return err_set(err, "node \"%s\" reads \"%s\", which is made later", node->name,
                       graph->values[v].name);
    return v < 0 ? 0 : check_value(graph, v, err);
}

int graph_check(const struct graph *graph, struct err *err)
{
    int i, n;

    for (n = 0; n < graph->n_nodes; n++) {
        const struct node *node = &graph->nodes[n];

        for (i = 0; i < node->n_inputs; i++)
            if (check_input(graph, n, node->inputs[i], err))
                return -1;
        for (i = 0; i < node->n_outputs; i++) {
            int v = node->outputs[i];

            if (v < -1 || v >= graph->n_values)
                return err_set(err, "node \"%s\" makes a value that is not there", node->name);
            if (v >= 0 && (graph->values[v].producer != n || check_value(graph, v, err)))
                return err && err->code ? -1
                                        : err_set(err, "value \"%s\" has two producers",
                                                  graph->values[v].name);
        }
    }
    return 0;
}
