/* SPDX-License-Identifier: MIT */
/* tasuki inspect: what a model is, what it costs, and what of it is not supported. */
#include "config.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "commands.h"
#include "graph/autodiff.h"
#include "graph/fuse.h"
#include "graph/model.h"
#include "graph/op.h"
#include "scheduler/memory.h"
#include "train/data.h"

/* One kind of operator of the forward graph. */
struct op_count {
    const char *name;
    int nodes;
    double forward, dgrad, wgrad;       /* FLOPs */
};

struct report {
    const struct options *options;
    struct model_options build;
    struct data *data;
    struct model *model;
    struct graph *graph;
    int n_unsupported;
    const struct model_unsupported *unsupported;
    int n_ops;
    struct op_count *ops;
    int n_params, n_frozen, n_stats;
    int64_t param_elements, frozen_elements;
    bool list_fusions;
    int n_fusions;
    struct fuse_found *fusions;
    double forward, dgrad, wgrad;
    size_t frozen_bytes, param_bytes, gradient_bytes, constant_bytes, kept_bytes, scratch_bytes;
};

static struct op_count *op_entry(struct report *r, const char *name)
{
    struct op_count *entry;
    int i;

    for (i = 0; i < r->n_ops; i++)
        if (strcmp(r->ops[i].name, name) == 0)
            return &r->ops[i];
    entry = mem_push((void **)&r->ops, &r->n_ops, sizeof(*entry));
    entry->name = name;
    return entry;
}

/* Gradient nodes count for the operator that they are the gradient of. */
static void count_node(struct report *r, int n)
{
    const struct graph *graph = r->graph;
    const struct node *node = &graph->nodes[n];
    bool forward = node->part == PART_FORWARD || node->part == PART_PREPARE;
    const struct node *owner = forward || node->source < 0 ? node
                                                           : &graph->nodes[node->source];
    struct op_count *entry = op_entry(r, owner->op->name);
    double flops = op_flops(graph, n);

    if (forward) {
        entry->nodes++;
        entry->forward += flops;
        r->forward += flops;
    } else if (node->part == PART_DGRAD) {
        entry->dgrad += flops;
        r->dgrad += flops;
    } else {
        entry->wgrad += flops;
        r->wgrad += flops;
    }
}

static int by_work(const void *a, const void *b)
{
    const struct op_count *x = a, *y = b;
    double wx = x->forward + x->dgrad + x->wgrad, wy = y->forward + y->dgrad + y->wgrad;

    return wx > wy ? -1 : wx < wy ? 1 : strcmp(x->name, y->name);
}

static void count_values(struct report *r)
{
    int v;

    for (v = 0; v < r->graph->n_values; v++) {
        const struct value *value = &r->graph->values[v];

        if (value->kind == VALUE_PARAM) {
            r->n_params++;
            r->param_elements += shape_elements(&value->shape);
        }
        if (value->frozen) {
            r->n_frozen++;
            r->frozen_elements += shape_elements(&value->shape);
            r->frozen_bytes += value_bytes(value);
        }
        r->n_stats += value->kind == VALUE_STAT;
    }
}

/* Costs of the training graph as one stage. */
static int measure(struct report *r, struct err *err)
{
    struct autodiff autodiff_result;
    struct program *program;
    int *stage_of, n, result = -1;

    count_values(r);
    if (r->list_fusions)
        r->fusions = fuse_found(r->graph, &r->n_fusions);
    if (autodiff(r->graph, NULL, 1, &autodiff_result, &stage_of, err))
        return err_prefix(err, "%s", model_path(r->model));
    for (n = 0; n < r->graph->n_nodes; n++)
        count_node(r, n);
    qsort(r->ops, (size_t)r->n_ops, sizeof(*r->ops), by_work);
    program = program_new(r->graph, &autodiff_result, stage_of, 0, 1, err);
    if (program) {
        memory_place(program, BACKWARD_MERGED, 2, 0);
        r->param_bytes = program->param_bytes;
        r->gradient_bytes = program->gradient_bytes;
        r->constant_bytes = program->prepared_bytes;
        r->kept_bytes = program->slot_bytes;
        r->scratch_bytes = program->scratch_bytes;
        result = 0;
    }
    program_free(program);
    return result;
}

/* Text -------------------------------------------------------------------------------- */

static const char *scaled(double x, double base, const char *unit, char text[32])
{
    static const char prefixes[] = " kMGTPE";
    int i = 0;

    while (x >= base && prefixes[i + 1]) {
        x /= base;
        i++;
    }
    if (i)
        snprintf(text, 32, "%.*f %c%s%s", x < 10 ? 2 : 1, x, prefixes[i],
                 base == 1024 ? "i" : "", unit);
    else
        snprintf(text, 32, "%.0f %s", x, unit);
    return text;
}

static void print_values(FILE *out, const char *title, const struct graph *graph, int n,
                         const int *ids)
{
    char shape[160];
    int i;

    for (i = 0; i < n; i++) {
        const struct value *value = &graph->values[ids[i]];

        fprintf(out, "%-14s %s  %s %s\n", i ? "" : title, value->name,
                dtype_name(value->dtype), shape_text(&value->shape, shape, sizeof(shape)));
    }
}

static void print_unsupported(FILE *out, const struct report *r)
{
    int i;

    fprintf(out, "not supported  %d node%s (opset %" PRId64 ")\n", r->n_unsupported,
            r->n_unsupported == 1 ? "" : "s", model_opset(r->model));
    for (i = 0; i < r->n_unsupported; i++) {
        const struct model_unsupported *u = &r->unsupported[i];

        fprintf(out, "  %s%s%s  \"%s\": %s (opset %" PRId64 ", %s)\n", u->domain,
                *u->domain ? "." : "", u->op, u->node, u->why, u->opset, u->scope);
    }
}

static void print_costs(FILE *out, const struct report *r)
{
    char a[32], b[32], c[32];
    int i;

    fprintf(out, "%-14s %" PRId64 " in %d tensors, %s\n", "parameters", r->param_elements,
            r->n_params, scaled((double)r->param_bytes, 1024, "B", a));
    if (r->n_frozen)
        fprintf(out, "%-14s %" PRId64 " in %d tensors, %s, not trained\n", "frozen",
                r->frozen_elements, r->n_frozen, scaled((double)r->frozen_bytes, 1024, "B", a));
    if (r->n_stats)
        fprintf(out, "%-14s %d tensors\n", "statistics", r->n_stats);
    fprintf(out, "%-14s forward %s, backward %s to activations and %s to parameters\n",
            "work", scaled(r->forward, 1000, "FLOP", a), scaled(r->dgrad, 1000, "FLOP", b),
            scaled(r->wgrad, 1000, "FLOP", c));
    fprintf(out, "%-14s gradients %s, activations kept %s, scratch %s", "memory",
            scaled((double)r->gradient_bytes, 1024, "B", a),
            scaled((double)r->kept_bytes, 1024, "B", b),
            scaled((double)r->scratch_bytes, 1024, "B", c));
    fprintf(out, ", constants %s\n\n", scaled((double)r->constant_bytes, 1024, "B", a));
    fprintf(out, "%-24s %6s %12s %12s\n", "operator", "nodes", "forward", "backward");
    for (i = 0; i < r->n_ops; i++)
        fprintf(out, "%-24s %6d %12s %12s\n", r->ops[i].name, r->ops[i].nodes,
                scaled(r->ops[i].forward, 1000, "FLOP", a),
                scaled(r->ops[i].dgrad + r->ops[i].wgrad, 1000, "FLOP", b));
}

static void print_fusions(FILE *out, const struct report *r)
{
    enum { SHOWN = 3 };
    int i, k;

    fprintf(out, "\n%-24s %6s  %s\n", "fusion", "count", "nodes");
    for (i = 0; i < r->n_fusions; i++) {
        const struct fuse_found *found = &r->fusions[i];

        fprintf(out, "%-24s %6d ", found->fusion, found->n);
        for (k = 0; k < found->n && k < SHOWN; k++)
            fprintf(out, "%s %s", k ? "," : "", r->graph->nodes[found->nodes[k]].name);
        fprintf(out, "%s\n", found->n > SHOWN ? ", ..." : "");
    }
    if (!r->n_fusions)
        fprintf(out, "%-24s %6d\n", "none", 0);
}

static void print_text(FILE *out, const struct report *r)
{
    int i;

    fprintf(out, "%-14s %s, opset %" PRId64 "\n", "model", model_path(r->model),
            model_opset(r->model));
    if (r->graph) {
        fprintf(out, "%-14s %" PRId64 "\n", "batch size", r->build.batch);
        print_values(out, "inputs", r->graph, r->graph->n_inputs, r->graph->inputs);
        print_costs(out, r);
        if (r->list_fusions)
            print_fusions(out, r);
    } else {
        print_unsupported(out, r);
    }
    for (i = 0; i < model_notes(r->model); i++)
        fprintf(out, "%s%s\n", i ? "" : "\n", model_note(r->model, i));
}

/* JSON -------------------------------------------------------------------------------- */

static json_t *json_shape(const struct value *value)
{
    json_t *list = json_array();
    int i;

    for (i = 0; i < value->shape.rank; i++)
        json_array_append_new(list, json_integer(value->shape.dim[i]));
    return list;
}

static json_t *json_inputs(const struct graph *graph)
{
    json_t *list = json_array();
    int i;

    for (i = 0; i < graph->n_inputs; i++) {
        const struct value *value = &graph->values[graph->inputs[i]];

        json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", value->name, "dtype",
                                              dtype_name(value->dtype), "shape",
                                              json_shape(value)));
    }
    return list;
}

static json_t *json_operators(const struct report *r)
{
    json_t *list = json_array();
    int i;

    for (i = 0; i < r->n_ops; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:f, s:f, s:f}", "op", r->ops[i].name,
                                        "nodes", r->ops[i].nodes, "forward_flops",
                                        r->ops[i].forward, "dgrad_flops", r->ops[i].dgrad,
                                        "wgrad_flops", r->ops[i].wgrad));
    return list;
}

static json_t *json_fusions(const struct report *r)
{
    json_t *list = json_array();
    int i, k;

    for (i = 0; i < r->n_fusions; i++) {
        const struct fuse_found *found = &r->fusions[i];
        json_t *nodes = json_array();

        for (k = 0; k < found->n; k++)
            json_array_append_new(nodes,
                                  json_string(r->graph->nodes[found->nodes[k]].name));
        json_array_append_new(list, json_pack("{s:s, s:i, s:o}", "fusion", found->fusion,
                                              "count", found->n, "nodes", nodes));
    }
    return list;
}

static void add_costs(json_t *top, const struct report *r)
{
    json_object_set_new(top, "batch_size", json_integer(r->build.batch));
    json_object_set_new(top, "inputs", json_inputs(r->graph));
    json_object_set_new(top, "loss", r->graph->loss_rule.text
                                         ? json_string(r->graph->loss_rule.text)
                                         : json_null());
    json_object_set_new(top, "parameters",
                        json_pack("{s:i, s:I, s:I}", "tensors", r->n_params, "elements",
                                  (json_int_t)r->param_elements, "bytes",
                                  (json_int_t)r->param_bytes));
    json_object_set_new(top, "frozen",
                        json_pack("{s:i, s:I, s:I}", "tensors", r->n_frozen, "elements",
                                  (json_int_t)r->frozen_elements, "bytes",
                                  (json_int_t)r->frozen_bytes));
    json_object_set_new(top, "flops", json_pack("{s:f, s:f, s:f}", "forward", r->forward,
                                                "dgrad", r->dgrad, "wgrad", r->wgrad));
    json_object_set_new(top, "memory",
                        json_pack("{s:I, s:I, s:I, s:I, s:I}", "parameters",
                                  (json_int_t)r->param_bytes, "gradients",
                                  (json_int_t)r->gradient_bytes, "activations",
                                  (json_int_t)r->kept_bytes, "scratch",
                                  (json_int_t)r->scratch_bytes, "constants",
                                  (json_int_t)r->constant_bytes));
    json_object_set_new(top, "operators", json_operators(r));
    if (r->list_fusions)
        json_object_set_new(top, "fusions", json_fusions(r));
}

static int print_json(FILE *out, const struct report *r, struct err *err)
{
    json_t *unsupported = json_array(), *notes = json_array(), *top;
    char *text;
    int i;

    for (i = 0; i < r->n_unsupported; i++) {
        const struct model_unsupported *u = &r->unsupported[i];

        json_array_append_new(unsupported,
                              json_pack("{s:s, s:s, s:s, s:I, s:s, s:s}", "node", u->node, "op",
                                        u->op, "domain", u->domain, "opset",
                                        (json_int_t)u->opset, "scope", u->scope, "why",
                                        u->why));
    }
    for (i = 0; i < model_notes(r->model); i++)
        json_array_append_new(notes, json_string(model_note(r->model, i)));
    top = json_pack("{s:s, s:i, s:s, s:s, s:I}", "schema", "tasuki-inspect", "version", 1,
                    "model", model_path(r->model), "xxh3", model_hash(r->model), "opset",
                    (json_int_t)model_opset(r->model));
    if (top && r->graph)
        add_costs(top, r);
    json_object_set_new(top, "unsupported", unsupported);
    json_object_set_new(top, "notes", notes);
    text = top ? json_dumps(top, JSON_INDENT(2)) : NULL;
    json_decref(top);
    if (!text)
        return err_set(err, "%s: the report cannot be written as JSON", model_path(r->model));
    fprintf(out, "%s\n", text);
    free(text);
    return 0;
}

/* The command ------------------------------------------------------------------------- */

static int read_options(struct report *r, struct err *err)
{
    const struct options *options = r->options;
    const char *data = option_string(options, "data", NULL);
    struct data_options data_options;
    int precision;

    if (options_operands(options) != 1)
        return err_set_code(err, EXIT_USAGE, "inspect: expected one MODEL");
    if (option_int(options, "batch-size", 1, 1 << 24, 1, &r->build.batch, err) ||
        option_int(options, "batchnorm-samples", 1, 1 << 24, 0, &r->build.batchnorm_samples,
                   err) ||
        option_word(options, "precision", &precision, err) ||
        data_options_read(options, &data_options, err))
        return -1;
    r->build.real = precision == 1 ? DTYPE_F64 : DTYPE_F32;
    r->build.fuse = option_flag(options, "fuse", true);
    r->list_fusions = option_flag(options, "fusions", false);
    r->build.loss = option_string(options, "loss", NULL);
    r->build.n_freeze = option_strings(options, "freeze", &r->build.freeze);
    if (!data)
        return 0;
    r->data = data_open(data, &data_options, err);
    return r->data ? 0 : -1;
}

/* Unsupported nodes are a finding, everything else that fails is an error. */
static int look(struct report *r, struct err *err)
{
    r->model = model_open(options_operand(r->options, 0), err);
    if (!r->model)
        return -1;
    if (r->data) {
        if (data_complete(r->data, r->model, r->build.loss, err) < 0)
            return -1;
        r->build.tensors = data_tensors(r->data, &r->build.n_tensors);
    }
    r->graph = model_build(r->model, &r->build, err);
    r->n_unsupported = model_unsupported(r->model, &r->unsupported);
    if (r->graph)
        return measure(r, err);
    if (!r->n_unsupported)
        return -1;
    *err = (struct err){ 0 };
    return 0;
}

static int print(const struct report *r, struct err *err)
{
    int format, result = 0;
    size_t size = 0;
    char *text = NULL;
    FILE *out;

    if (option_word(r->options, "format", &format, err))
        return -1;
    out = open_memstream(&text, &size);
    if (!out)
        return err_set(err, "out of memory");
    if (format)
        result = print_json(out, r, err);
    else
        print_text(out, r);
    fclose(out);
    if (!result)
        result = file_write(option_string(r->options, "output", "-"), text, size, err);
    free(text);
    return result;
}

int cmd_inspect(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_INSPECT, argc, argv, 1, err);
    struct report r = { .options = options };
    int result;

    if (!options)
        return (int)err->code;
    result = read_options(&r, err);
    if (!result)
        result = look(&r, err);
    if (!result)
        result = print(&r, err);
    graph_free(r.graph);
    model_close(r.model);
    data_close(r.data);
    free(r.ops);
    fuse_found_free(r.n_fusions, r.fusions);
    options_free(options);
    return result ? (int)err->code : r.n_unsupported ? EXIT_FOUND : EXIT_OK;
}
