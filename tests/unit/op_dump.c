/* SPDX-License-Identifier: MIT */
/* Print every case of op_cases.c with what the reference backend makes of it, one JSON object a
 * line: for tests/model/operators.py, which knows the operators from elsewhere.
 */
#include "unit.h"

#include <jansson.h>
#include <math.h>

#include "op_case.h"
#include "run_graph.h"

static json_t *numbers(int n, const int64_t *values)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(values[i]));
    return list;
}

/* JSON has no NaN and no infinities: "nan", "inf", "-inf". */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

static json_t *describe_value(const struct run_graph *run, int v)
{
    const struct value *value = &run->graph->values[v];
    int64_t n = shape_elements(&value->shape);
    double *data = calloc((size_t)n + 1, sizeof(*data));
    json_t *list = json_array();

    run_graph_get(run, v, data);
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, number(data[i]));
    free(data);
    return json_pack("{s:s, s:o, s:o}", "dtype", dtype_name(value->dtype), "shape",
                     numbers(value->shape.rank, value->shape.dim), "data", list);
}

static json_t *describe_values(const struct run_graph *run, int n, const int *ids)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, ids[i] < 0 ? json_null() : describe_value(run, ids[i]));
    return list;
}

static json_t *describe_attrs(const struct node *node)
{
    json_t *object = json_object();

    for (int i = 0; i < node->n_attrs; i++) {
        const struct attr *a = &node->attrs[i];
        json_t *value = a->type == ATTR_INT     ? json_integer(a->i)
                        : a->type == ATTR_FLOAT ? json_real(a->f)
                        : a->type == ATTR_INTS  ? numbers(a->n, a->ints)
                                                : json_string(a->s);

        json_object_set_new(object, a->name, value);
    }
    return object;
}

static int dump(const struct op_kind *kind, int variant, uint64_t seed)
{
    struct op_case *c = op_case_new(kind, variant, seed, DTYPE_F64);
    const struct node *node = &c->graph->nodes[c->node];
    struct run_graph *run = run_graph_new(backend_find("reference"), c->graph, c->err);
    json_t *line;

    if (!run)
        return -1;
    run->state.training = strcmp(kind->op, "Dropout") != 0;
    for (int v = 0; v < c->n_data; v++)
        if (c->data[v])
            run_graph_set(run, v, c->data[v]);
    if (run_graph_nodes(run, 0, c->graph->n_nodes, c->err))
        return -1;
    line = json_pack("{s:s, s:i, s:I, s:o, s:o, s:o}", "op", kind->op, "variant", variant,
                     "group", (json_int_t)c->graph->batchnorm_samples, "attrs",
                     describe_attrs(node), "inputs",
                     describe_values(run, node->n_inputs, node->inputs), "outputs",
                     describe_values(run, node->n_outputs, node->outputs));
    json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
    putchar('\n');
    json_decref(line);
    run_graph_free(run);
    op_case_free(c);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;

    for (int i = 0; op_kind_at(i); i++)
        for (int variant = 0; variant < op_kind_at(i)->variants; variant++)
            if (dump(op_kind_at(i), variant, seed))
                return EXIT_FAILURE;
    return EXIT_SUCCESS;
}
