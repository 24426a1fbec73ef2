/* SPDX-License-Identifier: MIT */
#include "train/initial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/names.h"
#include "graph/op.h"
#include "kernels/philox.h"
#include "base/file.h"
#include "train/safetensors.h"

#define POSITION_DEVIATION 0.02
#define PRELU_SLOPE 0.25
#define MAX_VIEWS 32

enum draw { DRAW_CONSTANT, DRAW_UNIFORM, DRAW_NORMAL };

struct start {
    enum draw draw;
    double scale;       /* the constant, the bound, the standard deviation */
};

struct initial {
    const struct model *model;
    struct graph *graph;        /* owns the names */
    struct names *names;
    int n;
    struct start *starts;
    struct safetensors *file;   /* NULL: by rule */
    bool shared;
};

static bool is_absent(const struct value *v)
{
    return (v->kind == VALUE_PARAM || v->kind == VALUE_STAT || v->kind == VALUE_CONST) &&
           !v->data && shape_elements(&v->shape) > 0;
}

const char *initial_absent(const struct graph *graph, int *n)
{
    const char *first = NULL;

    *n = 0;
    for (int v = 0; v < graph->n_values; v++)
        if (is_absent(&graph->values[v]) && (*n)++ == 0)
            first = graph->values[v].name;
    return first;
}

/* Rules ------------------------------------------------------------------------------- */

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

static bool is_move(const struct node *node)
{
    static const char *const moves[] = { "Transpose", "Reshape", "View", "Slice", "Split",
                                         "Expand", "Cast", "Copy", "Concat", NULL };

    return is_one_of(node->op->name, moves);
}

static bool is_product(const struct node *node)
{
    static const char *const products[] = { "Linear", "MatMul", "Gemm", NULL };

    return is_one_of(node->op->name, products);
}

static bool is_convolution(const struct node *node)
{
    static const char *const convolutions[] = { "Conv", "ConvTranspose", NULL };

    return is_one_of(node->op->name, convolutions);
}

/* How many numbers a product or a convolution adds up. */
static double fan_in(const struct graph *graph, const struct node *node)
{
    bool conv = is_convolution(node);
    const struct shape *s = &graph->values[node->inputs[conv ? 1 : 0]].shape;

    if (conv)
        return s->dim[0] ? (double)(shape_elements(s) / s->dim[0]) : 1;
    if (s->rank == 0)
        return 1;
    return (double)s->dim[node_int(node, "transA", 0) && s->rank > 1 ? s->rank - 2
                                                                     : s->rank - 1];
}

static struct start uniform(double n)
{
    return (struct start){ DRAW_UNIFORM, 1 / sqrt(n > 1 ? n : 1) };
}

static struct start constant(double x)
{
    return (struct start){ DRAW_CONSTANT, x };
}

/* Dimensions that are not 1. */
static int true_rank(const struct shape *shape)
{
    int n = 0;

    for (int i = 0; i < shape->rank; i++)
        n += shape->dim[i] != 1;
    return n;
}

static struct start unknown(const struct shape *shape)
{
    return true_rank(shape) < 2 ? constant(0)
                                : uniform((double)(shape_elements(shape) / shape->dim[0]));
}

/* A bias belongs to the product that it is added to; what else is added is a table of positions
 * or a shift.
 */
static struct start added(const struct graph *graph, const struct node *node, int input,
                          const struct value *value)
{
    int other = node->inputs[1 - input];
    int producer = graph->values[other].producer;

    for (int i = 0; i < MAX_VIEWS && producer >= 0 && is_move(&graph->nodes[producer]); i++)
        producer = graph->values[graph->nodes[producer].inputs[0]].producer;
    if (true_rank(&value->shape) < 2 && producer >= 0 &&
        (is_product(&graph->nodes[producer]) || is_convolution(&graph->nodes[producer])))
        return uniform(fan_in(graph, &graph->nodes[producer]));
    if (true_rank(&value->shape) < 2)
        return constant(0);
    return (struct start){ DRAW_NORMAL, POSITION_DEVIATION };
}

static struct start start_of(const struct graph *graph, const struct node *node, int input,
                             const struct value *value)
{
    const char *op = node->op->name;

    if (is_product(node) || is_convolution(node))
        return uniform(fan_in(graph, node));
    if (strstr(op, "Normalization"))
        return constant(input == 1 || input == 4 ? 1 : 0);
    if (strcmp(op, "Gather") == 0)
        return (struct start){ DRAW_NORMAL, 1 };
    if (strcmp(op, "PRelu") == 0)
        return constant(PRELU_SLOPE);
    if (strcmp(op, "Mul") == 0 || strcmp(op, "Div") == 0)
        return constant(1);
    if (strcmp(op, "Add") == 0 || strcmp(op, "Sub") == 0)
        return added(graph, node, input, value);
    return unknown(&value->shape);
}

/* What first reads the value, by way of reshapes and the like. */
static struct start choose(const struct graph *graph, int value)
{
    int v = value;

    for (int i = 0; i < MAX_VIEWS && graph->values[v].n_consumers > 0; i++) {
        const struct node *node = &graph->nodes[graph->values[v].consumers[0]];
        int input = 0, next = -1;

        if (!is_move(node)) {
            while (node->inputs[input] != v)
                input++;
            return start_of(graph, node, input, &graph->values[value]);
        }
        for (int o = 0; o < node->n_outputs && next < 0; o++)
            if (node->outputs[o] >= 0 && graph->values[node->outputs[o]].n_consumers)
                next = node->outputs[o];
        if (next < 0)
            break;
        v = next;
    }
    return unknown(&graph->values[value].shape);
}

/* Making ------------------------------------------------------------------------------ */

static int check_tensor(const struct initial *initial, const struct value *v, struct err *err)
{
    const char *path = safetensors_path(initial->file);
    const struct safetensors_tensor *t = safetensors_find(initial->file, v->name);
    char is[160], wants[160];

    if (!t)
        return err_set(err, "%s: no tensor \"%.200s\", for which the model has no values", path,
                       v->name);
    if (!dtype_is_float(t->dtype))
        return err_set(err, "%s: tensor \"%.200s\": %s, where float32 or float64 is expected",
                       path, v->name, t->type);
    if (!shape_equal(&t->shape, &v->shape))
        return err_set(err, "%s: tensor \"%.200s\" is %s, in the model %s", path, v->name,
                       shape_text(&t->shape, is, sizeof(is)),
                       shape_text(&v->shape, wants, sizeof(wants)));
    return 0;
}

static int add_value(struct initial *initial, bool by_rule, int value, struct err *err)
{
    const struct value *v = &initial->graph->values[value];
    struct start start = constant(0);

    if (initial->file) {
        if (check_tensor(initial, v, err))
            return -1;
    } else if (v->kind == VALUE_CONST) {
        return err_set(err, "\"%.200s\" is not trained, and the model has no values for it: "
                       "--init FILE may give them", v->name);
    } else if (by_rule) {
        start = choose(initial->graph, value);
    }
    names_put(initial->names, v->name, initial->n);
    *(struct start *)mem_push((void **)&initial->starts, &initial->n, sizeof(start)) = start;
    return 0;
}

static int make(struct initial *initial, struct model *model,
                const struct model_options *options, bool by_rule, struct err *err)
{
    struct model_options own = *options;

    /* Whatever the run fuses, roles are those of the fused graph. */
    own.fuse = true;
    own.batch = 2;
    initial->graph = model_build(model, &own, err);
    if (!initial->graph)
        return -1;
    for (int v = 0; v < initial->graph->n_values; v++)
        if (is_absent(&initial->graph->values[v]) && add_value(initial, by_rule, v, err))
            return -1;
    return 0;
}

struct initial *initial_new(struct model *model, const struct model_options *options,
                            struct safetensors *file, bool by_rule, struct err *err)
{
    struct initial *initial = initial_of_model(model);

    initial->file = file;
    if (make(initial, model, options, by_rule, err)) {
        initial_free(initial);
        return NULL;
    }
    return initial;
}

struct initial *initial_of_model(const struct model *model)
{
    struct initial *initial = mem_new(1, sizeof(*initial));

    initial->model = model;
    initial->names = names_new();
    return initial;
}

void initial_free(struct initial *initial)
{
    if (!initial)
        return;
    names_free(initial->names);
    free(initial->starts);
    graph_free(initial->graph);
    safetensors_close(initial->file);
    free(initial);
}

/* Sharing ----------------------------------------------------------------------------- */

void initial_share(struct initial *initial)
{
    initial->shared = true;
}

int initial_ranges(const struct initial *initial)
{
    return model_initializers(initial->model) +
           (initial->file ? safetensors_count(initial->file) : 0);
}

const void *initial_range(const struct initial *initial, int range, size_t *bytes)
{
    int n = model_initializers(initial->model);

    if (range < n)
        return model_large(initial->model, range, bytes);
    *bytes = safetensors_at(initial->file, range - n)->bytes;
    return safetensors_at(initial->file, range - n)->data;
}

int initial_find(const struct initial *initial, const struct value *value, enum dtype *type)
{
    const struct safetensors_tensor *t;

    if (!initial || !initial->shared)
        return -1;
    *type = value->file_dtype;
    if (value->data)
        return model_find_large(initial->model, value->data);
    t = initial->file ? safetensors_find(initial->file, value->name) : NULL;
    if (!t)
        return -1;
    *type = t->dtype;
    return model_initializers(initial->model) + (int)(t - safetensors_at(initial->file, 0));
}

void initial_drop(const struct initial *initial, const void *data, size_t bytes)
{
    model_drop(initial->model, data, bytes);
    if (initial->file)
        file_map_drop(safetensors_map(initial->file), data, bytes);
}

/* Drawing ----------------------------------------------------------------------------- */

/* In (0, 1). */
static double unit(uint32_t word)
{
    return ((double)word + 0.5) / 4294967296.0;
}

/* Elements 4*quad … 4*quad+3. */
static void draw(const struct start *start, uint64_t key, uint64_t quad, double x[4])
{
    /* The step is one that no dropout has. */
    struct philox r = philox_dropout(key, UINT32_MAX, 0, quad);

    for (int i = 0; i < 4; i++)
        x[i] = start->scale * (2 * unit(r.word[i]) - 1);
    if (start->draw == DRAW_NORMAL)
        for (int i = 0; i < 4; i += 2) {
            double radius = start->scale * sqrt(-2 * log(unit(r.word[i])));
            double angle = 2 * M_PI * unit(r.word[i + 1]);

            x[i] = radius * cos(angle);
            x[i + 1] = radius * sin(angle);
        }
}

static void fill_by_rule(const struct start *start, uint64_t seed, const struct value *value,
                         size_t first, size_t n, void *data)
{
    uint64_t key = philox_key(seed, graph_key(value->name));
    double x[4] = { start->scale, start->scale, start->scale, start->scale };

    for (size_t at = 0; at < n; at += 4) {
        if (start->draw != DRAW_CONSTANT)
            draw(start, key, (first + at) / 4, x);
        for (size_t i = at; i < n && i < at + 4; i++)
            dtype_put_real(value->dtype, data, (int64_t)i, x[i - at]);
    }
}

/* Of 'type' in a file; where those bytes are. */
static const void *convert(enum dtype type, const void *from, size_t first,
                           const struct value *value, size_t n, void *data)
{
    from = (const char *)from + first * dtype_size(type);
    dtype_convert(type, from, value->dtype, data, n);
    return from;
}

int initial_read(const struct initial *initial, uint64_t seed, const struct value *value,
                 size_t first, size_t n, void *data, struct err *err)
{
    int index = initial && !value->data ? names_find(initial->names, value->name) : -1;
    const void *at;

    if (value->data) {
        at = convert(value->file_dtype, value->data, first, value, n, data);
        if (initial)
            initial_drop(initial, at, n * dtype_size(value->file_dtype));
    } else if (index < 0) {
        return err_set(err, "parameter \"%s\": the model has no weights for it", value->name);
    } else if (initial->file) {
        const struct safetensors_tensor *t = safetensors_find(initial->file, value->name);

        at = convert(t->dtype, t->data, first, value, n, data);
        initial_drop(initial, at, n * dtype_size(t->dtype));
    } else {
        fill_by_rule(&initial->starts[index], seed, value, first, n, data);
    }
    return 0;
}
