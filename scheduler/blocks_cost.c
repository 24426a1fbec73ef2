/* SPDX-License-Identifier: MIT */
/* From timed nodes of a differentiated graph to the cost file. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/order.h"
#include "graph/op.h"
#include "graph/program.h"
#include "graph/recompute.h"
#include "scheduler/blocks.h"
#include "scheduler/layout.h"

/* "…_bytes_per_parameter" count for a parameter of four bytes. */
#define PARAMETER_BYTES 4.0
/* What the backward of its block reads of each forward value. */
struct keeping {
    bool backward, wgrad;
    bool own, alias;        /* that of its own block does; a part of it, or all, leaves as well */
    int reader;             /* the last block whose backward reads it */
};

struct writer {
    struct cost *cost;
    int size;               /* which batch size is being added */
    const struct block_timing *t;
    const struct keeping *kept;     /* of its graph */
};

static double bytes_of(const struct writer *w, int value)
{
    return blocks_bytes(w->t->graph, w->t->batch, value);
}

/* In a message. */
static double sent_bytes(const struct writer *w, int value)
{
    const struct value *v = &w->t->graph->values[value];
    double bytes = bytes_of(w, value);

    return w->t->crossing && bytes > 0
               ? bytes * (double)w->t->crossing[value] / (double)value_bytes(v) : bytes;
}

/* As it is laid out. */
static double laid_out(const struct writer *w, int value)
{
    return (double)layout_aligned((size_t)bytes_of(w, value));
}

static double *new_sizes(const struct cost *cost)
{
    return mem_new((size_t)cost->n_sizes, sizeof(double));
}

static void init_blocks(struct cost *cost, const struct blocks *blocks,
                        const struct graph *graph, const double *prepared)
{
    cost->n_blocks = blocks->n;
    cost->blocks = mem_new((size_t)blocks->n, sizeof(*cost->blocks));
    for (int i = 0; i < blocks->n; i++) {
        const struct block *from = &blocks->items[i];
        struct cost_block *b = &cost->blocks[i];

        b->name = mem_strdup(from->name);
        b->forward = new_sizes(cost);
        b->dgrad = new_sizes(cost);
        b->wgrad = new_sizes(cost);
        b->activations = new_sizes(cost);
        b->kept_for_wgrad = new_sizes(cost);
        b->read_by_backward = new_sizes(cost);
        b->read_from_others = new_sizes(cost);
        b->read_selectively = new_sizes(cost);
        b->gradients_for_wgrad = new_sizes(cost);
        b->workspace = new_sizes(cost);
        b->selective_dgrad = new_sizes(cost);
        b->selective_activations = new_sizes(cost);
        b->made_again = new_sizes(cost);
        b->kernels = new_sizes(cost);
        b->workspace_forward = new_sizes(cost);
        b->workspace_delayed = new_sizes(cost);
        b->activations_delayed = new_sizes(cost);
        b->peak_delayed = new_sizes(cost);
        b->peak = new_sizes(cost);
        b->selective_peak = new_sizes(cost);
        b->first_node = mem_strdup(graph->nodes[from->nodes[0]].name);
        b->last_node = mem_strdup(graph->nodes[from->nodes[from->n_nodes - 1]].name);
        b->prepared = prepared ? prepared[i] : 0;
    }
}

static void add_seconds(const struct writer *w)
{
    const struct graph *graph = w->t->graph;
    bool whole = w->size == w->cost->n_sizes - 1;   /* the most that passes between two updates */

    for (int n = 0; n < graph->n_nodes; n++) {
        const struct node *node = &graph->nodes[n];
        struct cost_block *b = &w->cost->blocks[w->t->stage_of[n]];
        double seconds = w->t->seconds[n];

        switch (node->part) {
        case PART_FORWARD:
            b->forward[w->size] += seconds;
            for (int i = 0; i < node->n_outputs; i++)
                if (node->outputs[i] >= 0)
                    b->batch_axis |= graph->values[node->outputs[i]].batch.outer != 0;
            break;
        case PART_DGRAD:
            b->dgrad[w->size] += seconds;
            break;
        case PART_WGRAD:
            b->wgrad[w->size] += seconds;
            break;
        default:
            /* Once per step, like the update that makes it necessary. */
            b->step += whole ? seconds : 0;
        }
    }
    for (int i = 0; whole && w->t->preparing && i < w->cost->n_blocks; i++)
        w->cost->blocks[i].step += w->t->preparing[i];
}

/* The value whose bytes a value has. */
static int root_of(const struct graph *graph, int value)
{
    int producer = graph->values[value].producer;

    while (producer >= 0 && (graph->nodes[producer].op->flags & OP_VIEW) &&
           graph->nodes[producer].n_inputs > 0 && graph->nodes[producer].inputs[0] >= 0) {
        value = graph->nodes[producer].inputs[0];
        producer = graph->values[value].producer;
    }
    return value;
}

/* The block that makes a value; -1: none. */
static int block_of(const struct writer *w, int value)
{
    int producer = w->t->graph->values[value].producer;

    return producer < 0 ? -1 : w->t->stage_of[producer];
}

static struct keeping *find_kept(const struct writer *w)
{
    const struct graph *graph = w->t->graph;
    struct keeping *kept = mem_new((size_t)graph->n_values, sizeof(*kept));

    for (int n = 0; n < graph->n_nodes; n++) {
        const struct node *node = &graph->nodes[n];

        for (int i = 0; i < node->n_inputs; i++) {
            struct keeping *k = node->inputs[i] < 0 ? NULL
                                                    : &kept[root_of(graph, node->inputs[i])];

            if (!k)
                continue;
            k->wgrad |= node->part == PART_WGRAD;
            if (node->part != PART_DGRAD && node->part != PART_WGRAD)
                continue;
            k->reader = k->backward && k->reader > w->t->stage_of[n] ? k->reader
                                                                      : w->t->stage_of[n];
            k->backward = true;
            k->own |= w->t->stage_of[n] == block_of(w, root_of(graph, node->inputs[i]));
        }
    }
    for (int i = 0; i < w->t->autodiff->n_boundaries; i++) {
        int value = w->t->autodiff->boundaries[i].value, root = root_of(graph, value);

        kept[root].alias |= root != value;
    }
    return kept;
}

static struct program_list forward_of(const struct graph *graph)
{
    struct program_list list = { .nodes = mem_new((size_t)graph->n_nodes, sizeof(int)) };

    for (int n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].part == PART_FORWARD)
            list.nodes[list.n++] = n;
    return list;
}

/* In place of the block that reads a value. */
enum { NOBODY = -1, SEVERAL = -2 };

/* Of a whole network in one stage: what selective recompute keeps, and what it runs again. */
struct selection {
    struct program_list forward;
    bool *runs;                 /* of the nodes in 'forward' */
    bool *kept, *again;         /* of values: of what the backward reads it makes these again */
};

static void select_again(const struct writer *w, const struct keeping *keeping,
                         struct selection *s)
{
    const struct graph *graph = w->t->graph;
    size_t n = (size_t)graph->n_values;
    size_t *bytes = mem_new(n, sizeof(*bytes));
    bool *wanted = mem_new(n, sizeof(*wanted));
    int *root = mem_new(n, sizeof(*root));

    *s = (struct selection){ .forward = forward_of(graph), .kept = mem_new(n, sizeof(bool)) };
    s->again = mem_new(n, sizeof(bool));
    s->runs = mem_new((size_t)s->forward.n, sizeof(bool));
    for (int v = 0; v < graph->n_values; v++) {
        int producer;

        root[v] = root_of(graph, v);
        producer = graph->values[root[v]].producer;
        wanted[v] = keeping[v].backward;
        if (producer >= 0 ? graph->nodes[producer].part == PART_FORWARD
                          : graph->values[v].kind == VALUE_INPUT && v != graph->weight_sum)
            bytes[v] = (size_t)bytes_of(w, v);
    }
    recompute_keep(graph, &s->forward, root, bytes, wanted, s->kept);
    recompute_runs(graph, &s->forward, root, s->kept, wanted, s->runs);
    for (int i = 0; i < s->forward.n; i++) {
        const struct node *node = &graph->nodes[s->forward.nodes[i]];

        for (int k = 0; k < node->n_outputs && s->runs[i]; k++)
            if (node->outputs[k] >= 0 && root[node->outputs[k]] == node->outputs[k])
                s->again[node->outputs[k]] =
                    keeping[node->outputs[k]].backward && !s->kept[node->outputs[k]];
    }
    free(root);
    free(wanted);
    free(bytes);
}

static void selection_clear(struct selection *s)
{
    free(s->forward.nodes);
    free(s->kept);
    free(s->again);
    free(s->runs);
}

/* Whatever the cuts: a stage that keeps less would do so in the whole network, too. */
static void add_read_selectively(const struct writer *w, const struct selection *s)
{
    const struct graph *graph = w->t->graph;
    bool *runs = mem_new((size_t)graph->n_nodes, sizeof(*runs));
    int *reader = mem_new((size_t)graph->n_values, sizeof(*reader));

    for (int v = 0; v < graph->n_values; v++)
        reader[v] = NOBODY;
    for (int i = 0; i < s->forward.n; i++)
        runs[s->forward.nodes[i]] = s->runs[i];
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct node *node = &graph->nodes[n];
        int block = w->t->stage_of[n];

        if (node->part != PART_DGRAD && node->part != PART_WGRAD && !runs[n])
            continue;
        for (int i = 0; i < node->n_inputs; i++) {
            int v = node->inputs[i] < 0 ? -1 : root_of(graph, node->inputs[i]);
            int producer = v < 0 ? -1 : graph->values[v].producer;

            if (producer >= 0 && s->kept[v] && graph->nodes[producer].part == PART_FORWARD)
                reader[v] = reader[v] == NOBODY || reader[v] == block ? block : SEVERAL;
        }
    }
    for (int v = 0; v < graph->n_values; v++)
        if (reader[v] >= 0)
            w->cost->blocks[reader[v]].read_selectively[w->size] += bytes_of(w, v);
    free(runs);
    free(reader);
}

/* What differs from running the same block without. */
static void add_selective(const struct writer *w, const struct keeping *keeping,
                          const struct selection *s)
{
    const struct graph *graph = w->t->graph;

    for (int i = 0; i < w->cost->n_blocks; i++) {
        w->cost->blocks[i].selective_dgrad[w->size] = w->cost->blocks[i].dgrad[w->size];
        w->cost->blocks[i].selective_activations[w->size] = w->cost->blocks[i].activations[w->size];
    }
    for (int i = 0; i < s->forward.n; i++) {
        int n = s->forward.nodes[i];
        const struct node *node = &graph->nodes[n];
        struct cost_block *b = &w->cost->blocks[w->t->stage_of[n]];

        b->selective_dgrad[w->size] += s->runs[i] ? w->t->seconds[n] : 0;
        for (int k = 0; k < node->n_outputs; k++) {
            int v = node->outputs[k];

            if (v < 0 || root_of(graph, v) != v)
                continue;
            if (s->again[v]) {
                b->selective_activations[w->size] -= laid_out(w, v);
                b->made_again[w->size] += laid_out(w, v);
            } else if (s->kept[v] && !keeping[v].backward) {
                b->selective_activations[w->size] += laid_out(w, v);
            }
        }
    }
    add_read_selectively(w, s);
}

/* The value whose bytes each has in a network that is not cut: what a block receives is there. */
static int *roots_uncut(const struct writer *w)
{
    const struct graph *graph = w->t->graph;
    const struct autodiff *ad = w->t->autodiff;
    int *root = mem_new((size_t)graph->n_values, sizeof(*root));

    for (int v = 0; v < graph->n_values; v++)
        root[v] = root_of(graph, v);
    for (int i = 0; i < ad->n_boundaries; i++)
        if (ad->boundaries[i].gradient >= 0)
            root[ad->boundaries[i].received] = root[ad->boundaries[i].gradient];
    for (int v = 0; v < graph->n_values; v++)
        root[v] = root[root[v]];
    return root;
}

static bool is_forward(const struct graph *graph, int value)
{
    int producer = graph->values[value].producer;

    return producer >= 0 && graph->nodes[producer].part == PART_FORWARD;
}

/* Is it what it was, or with others in one kernel? A BatchNorm with a Relu makes what the Relu made. */
static bool is_still(const struct node *before, const struct node *now)
{
    return (before->op == now->op && node_int(before, "relu", 0) == node_int(now, "relu", 0)) ||
           strcmp(now->op->name, "Chain") == 0;
}

/* The same of the values of the program, whose graph is not cut: its nodes are the same, what the
 * backward added to these has other numbers.
 */
static bool *again_in_program(const struct writer *w, const bool *again)
{
    const struct graph *cut = w->t->graph, *whole = w->t->program->graph;
    bool *result = mem_new((size_t)w->t->program->n_values, sizeof(*result));

    for (int n = 0; n < cut->n_nodes && n < whole->n_nodes; n++) {
        const struct node *of = &cut->nodes[n], *to = &whole->nodes[n];

        for (int k = 0; k < of->n_outputs && k < to->n_outputs; k++)
            if (of->part == PART_FORWARD && is_still(of, to) && of->outputs[k] >= 0 &&
                to->outputs[k] >= 0)
                result[to->outputs[k]] = again[of->outputs[k]];
    }
    return result;
}

/* What is there at once while a block runs. */
static void add_peaks(const struct writer *w, const struct keeping *keeping,
                      const struct selection *selection)
{
    const struct graph *graph = w->t->graph;
    size_t n = (size_t)graph->n_values, blocks = (size_t)w->cost->n_blocks;
    bool *kept = mem_new(n, sizeof(bool)), *again = NULL;
    double *rows = mem_new(7 * blocks, sizeof(double));
    struct block_peaks peaks = { rows, rows + blocks, rows + 2 * blocks, rows + 3 * blocks,
                                 rows + 4 * blocks, rows + 5 * blocks, rows + 6 * blocks };
    int *root = roots_uncut(w);

    for (int v = 0; v < graph->n_values; v++)
        kept[v] = is_forward(graph, v) && keeping[v].backward;
    if (w->t->program) {
        again = again_in_program(w, selection->again);
        blocks_peaks_of_program(w->t->program, w->cost->n_blocks, again, &peaks);
    } else {
        blocks_peaks_of_graph(w->t, w->cost->n_blocks, root, kept, selection->again, &peaks);
    }
    for (int b = 0; b < w->cost->n_blocks; b++) {
        w->cost->blocks[b].workspace[w->size] = peaks.workspace[b];
        w->cost->blocks[b].workspace_forward[w->size] = peaks.ahead[b];
        w->cost->blocks[b].workspace_delayed[w->size] = peaks.rest[b];
        w->cost->blocks[b].activations_delayed[w->size] = peaks.delayed[b];
        w->cost->blocks[b].peak_delayed[w->size] = peaks.peak_delayed[b];
        w->cost->blocks[b].peak[w->size] = peaks.peak[b];
        w->cost->blocks[b].selective_peak[w->size] = peaks.again[b];
        w->cost->blocks[b].kernels[w->size] = w->t->kernels ? w->t->kernels[b] : 0;
    }
    free(root);
    free(again);
    free(kept);
    free(rows);
}

static void add_activations(const struct writer *w)
{
    const struct graph *graph = w->t->graph;
    const struct keeping *kept = w->kept;
    struct selection selection;

    for (int v = 0; v < graph->n_values; v++) {
        int producer = graph->values[v].producer;
        struct cost_block *b;

        if (producer < 0 || root_of(graph, v) != v)
            continue;
        b = &w->cost->blocks[w->t->stage_of[producer]];
        if (graph->nodes[producer].part == PART_DGRAD && kept[v].wgrad)
            b->gradients_for_wgrad[w->size] += laid_out(w, v);
        if (graph->nodes[producer].part != PART_FORWARD)
            continue;
        if (kept[v].backward)
            b->activations[w->size] += laid_out(w, v);
        if (kept[v].backward) {
            struct cost_block *reader = &w->cost->blocks[kept[v].reader];

            reader->read_by_backward[w->size] += bytes_of(w, v);
            if (reader != b)
                reader->read_from_others[w->size] += bytes_of(w, v);
        }
        if (kept[v].wgrad)
            b->kept_for_wgrad[w->size] += laid_out(w, v);
    }
    /* What comes from a later block: W needs it no less. */
    for (int i = 0; i < w->t->autodiff->n_boundaries; i++) {
        const struct boundary *b = &w->t->autodiff->boundaries[i];

        if (b->gradient >= 0 && kept[root_of(graph, b->received)].wgrad)
            w->cost->blocks[b->from].gradients_for_wgrad[w->size] +=
                laid_out(w, b->received);
    }
    select_again(w, kept, &selection);
    add_selective(w, kept, &selection);
    add_peaks(w, kept, &selection);
    selection_clear(&selection);
}

/* A value that the backward of a block reads. */
struct reading {
    int value, block;
};

static int by_value_and_block(const void *a, const void *b)
{
    const struct reading *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

/* All of them, sorted; malloc'ed. */
static struct reading *find_readings(const struct writer *w, size_t *n)
{
    const struct graph *graph = w->t->graph;
    struct reading *readings;
    size_t most = 0;

    for (int i = 0; i < graph->n_nodes; i++)
        most += (size_t)graph->nodes[i].n_inputs;
    readings = mem_new(most, sizeof(*readings));
    *n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct node *node = &graph->nodes[i];

        for (int k = 0; k < node->n_inputs; k++)
            if (node->inputs[k] >= 0 && (node->part == PART_DGRAD || node->part == PART_WGRAD))
                readings[(*n)++] = (struct reading){ root_of(graph, node->inputs[k]),
                                                     w->t->stage_of[i] };
    }
    qsort(readings, *n, sizeof(*readings), by_value_and_block);
    return readings;
}

static void add_edges(const struct writer *w)
{
    const struct autodiff *ad = w->t->autodiff;
    const struct keeping *kept = w->kept;
    size_t n = 0;
    struct reading *readings = w->size == 0 ? find_readings(w, &n) : NULL;

    for (int i = 0; i < ad->n_boundaries; i++) {
        const struct boundary *from = &ad->boundaries[i];
        struct cost_edge *e = &w->cost->edges[i];

        if (w->size == 0) {
            e->from = from->from;
            e->to = from->to;
            e->value = mem_strdup(w->t->graph->values[from->value].name);
            e->bytes = new_sizes(w->cost);
            e->gradient_bytes = new_sizes(w->cost);
            e->passed_on = block_of(w, from->value) == from->from &&
                           root_of(w->t->graph, from->value) == from->value &&
                           kept[from->value].wgrad && !kept[from->value].own &&
                           !kept[from->value].alias;
            e->reordered = w->t->program &&
                           blocks_reorder(w->t->program, from->value, from->to);
            e->once = !bsearch(&(struct reading){ root_of(w->t->graph, from->value), from->to },
                               readings, n, sizeof(*readings), by_value_and_block);
        }
        e->bytes[w->size] = sent_bytes(w, from->value);
        e->gradient_bytes[w->size] = from->gradient < 0 ? 0 : sent_bytes(w, from->gradient);
    }
    free(readings);
}

/* The blocks whose nodes read a value, ascending, each once. */
static int reading_blocks(const struct writer *w, int value, int **result)
{
    const struct value *v = &w->t->graph->values[value];
    int *blocks = mem_new((size_t)v->n_consumers, sizeof(*blocks)), n = 0;

    for (int i = 0; i < v->n_consumers; i++)
        blocks[i] = w->t->stage_of[v->consumers[i]];
    qsort(blocks, (size_t)v->n_consumers, sizeof(*blocks), order_ints);
    for (int i = 0; i < v->n_consumers; i++)
        if (n == 0 || blocks[n - 1] != blocks[i])
            blocks[n++] = blocks[i];
    *result = blocks;
    return n;
}

static void add_inputs(const struct writer *w)
{
    const struct graph *graph = w->t->graph;
    int k = 0;

    for (int v = 0; v < graph->n_values; v++) {
        struct cost_input *input;

        if (graph->values[v].kind != VALUE_INPUT || v == graph->weight_sum ||
            graph->values[v].n_consumers == 0)
            continue;
        if (w->size == 0) {
            input = mem_push((void **)&w->cost->inputs, &w->cost->n_inputs, sizeof(*input));
            input->name = mem_strdup(graph->values[v].name);
            input->bytes = new_sizes(w->cost);
            input->n_to = reading_blocks(w, v, &input->to);
            input->reordered = w->t->program && blocks_reorder_input(w->t->program, v);
            input->once = !w->kept[v].backward;
        }
        if (k < w->cost->n_inputs)
            w->cost->inputs[k++].bytes[w->size] = laid_out(w, v);
    }
}

static void add_tensor(struct cost_block *b, double bytes)
{
    *(double *)mem_push((void **)&b->tensors, &b->n_tensors, sizeof(double)) = bytes;
    b->parameters += bytes;
}

/* A parameter that several blocks read is shared. 'next': its entry behind each one, + 1; 0: none. */
static void add_parameter(const struct writer *w, int entry, const int *next, double step_seconds)
{
    const struct autodiff *ad = w->t->autodiff;
    int param = ad->params[entry].param, n = 0, *blocks = NULL;
    double bytes = bytes_of(w, param);

    for (int i = entry; i >= 0; i = next[i] - 1)
        *(int *)mem_push((void **)&blocks, &n, sizeof(int)) = ad->params[i].stage;
    for (int i = 0; i < n; i++) {
        w->cost->blocks[blocks[i]].step += bytes * step_seconds;
        w->cost->blocks[blocks[i]].prepared += COST_ALIGNED_ARRAYS *
                                               (laid_out(w, param) - bytes);
    }
    if (n == 1) {
        add_tensor(&w->cost->blocks[blocks[0]], bytes);
        free(blocks);
        return;
    }
    qsort(blocks, (size_t)n, sizeof(*blocks), order_ints);
    *(struct cost_shared *)mem_push((void **)&w->cost->shared, &w->cost->n_shared,
                                    sizeof(*w->cost->shared)) =
        (struct cost_shared){ mem_strdup(w->t->graph->values[param].name), bytes, n, blocks };
}

static void add_parameters(const struct writer *w, double step_seconds)
{
    const struct autodiff *ad = w->t->autodiff;
    int *first = mem_new((size_t)w->t->graph->n_values, sizeof(*first));
    int *next = mem_new((size_t)ad->n_params, sizeof(*next));

    for (int i = ad->n_params - 1; i >= 0; i--) {
        next[i] = first[ad->params[i].param];
        first[ad->params[i].param] = i + 1;
    }
    for (int i = 0; i < ad->n_params; i++)
        if (first[ad->params[i].param] == i + 1)
            add_parameter(w, i, next, step_seconds);
    free(first);
    free(next);
    for (int i = 0; i < ad->n_stats; i++) {
        struct cost_block *b = &w->cost->blocks[ad->stats[i].stage];

        add_tensor(b, bytes_of(w, ad->stats[i].stat));
        b->statistics += bytes_of(w, ad->stats[i].stat);
        b->prepared += COST_ALIGNED_ARRAYS *
                       (laid_out(w, ad->stats[i].stat) - bytes_of(w, ad->stats[i].stat));
    }
}

static struct cost *cost_empty(int n_sizes, const struct block_timing *timings,
                               int optimizer_states, const char *device)
{
    struct cost *cost = mem_new(1, sizeof(*cost));

    cost->device = mem_strdup(device);
    cost->precision = mem_strdup(dtype_name(timings[0].graph->real));
    cost->optimizer_bytes_per_parameter = PARAMETER_BYTES * optimizer_states;
    cost->gradient_bytes_per_parameter = PARAMETER_BYTES;
    cost->message_buffers = SCHEDULE_SENDS;
    cost->n_sizes = n_sizes;
    cost->micro_batch = mem_new((size_t)n_sizes, sizeof(*cost->micro_batch));
    for (int i = 0; i < n_sizes; i++)
        cost->micro_batch[i] = timings[i].batch;
    return cost;
}

static int check_sizes(int n_sizes, const struct block_timing *timings, struct err *err)
{
    for (int i = 1; i < n_sizes; i++) {
        if (timings[i].batch <= timings[i - 1].batch)
            return err_set(err, "cost: batch sizes are not in ascending order");
        if (timings[i].autodiff->n_boundaries != timings[0].autodiff->n_boundaries)
            return err_set(err, "cost: the graph has another structure at batch %lld",
                           (long long)timings[i].batch);
    }
    return 0;
}

/* Through the reader, which takes the cost: it joins steps and values, and checks them. */
static struct cost *read_back(struct cost *cost, struct err *err)
{
    json_t *json = cost_to_json(cost);
    struct cost *checked = cost_from_json("cost", json, err);

    json_decref(json);
    cost_free(cost);
    return checked;
}

struct cost *blocks_cost(const struct blocks *blocks, int n_sizes,
                         const struct block_timing *timings, double step_seconds,
                         int optimizer_states, const char *device, struct err *err)
{
    struct keeping *kept = NULL;
    struct cost *cost;

    if (check_sizes(n_sizes, timings, err))
        return NULL;
    cost = cost_empty(n_sizes, timings, optimizer_states, device);
    init_blocks(cost, blocks, timings[0].graph, timings[0].prepared);
    cost->n_edges = timings[0].autodiff->n_boundaries;
    cost->edges = mem_new((size_t)cost->n_edges, sizeof(*cost->edges));
    for (int i = 0; i < n_sizes; i++) {
        struct writer w = { cost, i, &timings[i], kept };

        /* Roofs are of one graph at all sizes. */
        if (i == 0 || timings[i].autodiff != timings[i - 1].autodiff) {
            free(kept);
            w.kept = kept = find_kept(&w);
        }
        add_seconds(&w);
        add_activations(&w);
        add_edges(&w);
        add_inputs(&w);
        if (i == 0)
            add_parameters(&w, step_seconds);
    }
    free(kept);
    if (timings[n_sizes - 1].steps)
        blocks_steps(cost, timings[n_sizes - 1].steps);
    if (cost->steps)
        return read_back(cost, err);
    if (cost_settle(cost, "cost", err) == 0)
        return cost;
    cost_free(cost);
    return NULL;
}
