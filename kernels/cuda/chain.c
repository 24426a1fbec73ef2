/* SPDX-License-Identifier: MIT */
/* Which pointwise nodes become one kernel, and that kernel in their place.
 *
 * From the last node of a part to the first: a node takes in what makes its operands, as long as nobody
 * else reads that and it is as long, in the same order, and of the same block: a plan's cuts change
 * nothing. What is taken in runs later than it would: not where what it reads would have to wait for that
 * in more memory than what it makes takes.
 */
#include "kernels/cuda/chain.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "graph/op.h"

struct finder {
    struct device *device;
    struct program *program;
    struct graph *graph;
    struct value_layout *layouts;
    struct cuda_kernel **kernels;   /* of each node that can be a member */
    int *position;                  /* in the list that is looked at, from 1 on; 0: not there, or gone */
    int *last;                      /* of each root: the last position where it is read in that list */
    int *readers;                   /* of each value: nodes of all lists */
    bool *seen;                     /* a value that is read from outside, or by a view */
    bool *gone;                     /* nodes that are in a chain */
};

/* One that grows; members are nodes, the first one makes the result. */
struct group {
    int n, nodes[CHAIN_MEMBERS];
    int n_inputs, values[CUDA_CHAIN_INPUTS];
    struct cuda_walk walks[CUDA_CHAIN_INPUTS];
};

/* Looking at nodes ------------------------------------------------------------------------- */

static bool is_all_single(const struct graph *graph, const struct node *n)
{
    for (int i = 0; i < n->n_inputs; i++)
        if (n->inputs[i] >= 0 && graph->values[n->inputs[i]].dtype != DTYPE_F32)
            return false;
    return n->n_outputs == 1 && n->outputs[0] >= 0 && graph->values[n->outputs[0]].dtype == DTYPE_F32;
}

/* Of what several blocks make? Which of these there are a cut decides. */
static bool sums_blocks(const struct graph *graph, const struct node *n)
{
    for (int i = 0; i < n->n_inputs; i++) {
        int producer = n->inputs[i] < 0 ? -1 : graph->values[n->inputs[i]].producer;

        if (producer >= 0 && graph->nodes[producer].block != n->block)
            return strcmp(n->op->name, "AddN") == 0;
    }
    return false;
}

/* Operators whose kernels could be of a kind that a chain has. */
static bool is_candidate(const struct graph *graph, int node)
{
    const struct node *n = &graph->nodes[node];

    if (n->op->flags & OP_VIEW || n->n_inputs > CHAIN_OPERANDS || !is_all_single(graph, n) ||
        sums_blocks(graph, n))
        return false;
    if (strcmp(n->op->name, "Reorder") == 0)
        return true;
    for (const struct cuda_op *op = cuda_ops_pointwise; op->name; op++)
        if (strcmp(op->name, n->op->name) == 0)
            return strncmp(op->name, "Dropout", strlen("Dropout")) != 0;
    return false;
}

static struct cuda_kernel *kernel_of(const struct finder *f, int node)
{
    struct err ignored = { 0 };
    struct cuda_kernel *k;

    if (!is_candidate(f->graph, node))
        return NULL;
    k = (struct cuda_kernel *)cuda_kernel_new(f->device, f->graph, node, f->layouts, &ignored);
    if (!k || k->run == cuda_run_pointwise || k->run == cuda_run_sum || k->run == cuda_run_reorder)
        return k;
    cuda_kernel_free((struct kernel *)k);
    return NULL;
}

static void note_list(struct finder *f, const struct program_list *list)
{
    for (int i = 0; i < list->n; i++) {
        const struct node *n = &f->graph->nodes[list->nodes[i]];

        for (int k = 0; k < n->n_inputs; k++) {
            bool again = n->inputs[k] < 0;

            for (int other = 0; other < k && !again; other++)
                again = n->inputs[other] == n->inputs[k];
            if (again)
                continue;
            f->readers[n->inputs[k]]++;
            f->seen[n->inputs[k]] |= (n->op->flags & OP_VIEW) != 0;
        }
    }
}

static void see(struct finder *f, int v)
{
    if (v >= 0)
        f->seen[v] = f->seen[f->program->values[v].root] = true;
}

static void note_outside(struct finder *f)
{
    const struct program *p = f->program;
    const struct autodiff *ad = p->autodiff;

    for (int v = 0; v < p->n_values; v++)
        f->seen[v] = p->values[v].root != v ||
                     (p->values[v].place != PLACE_SLOT && p->values[v].place != PLACE_SCRATCH);
    for (int i = 0; i < ad->n_boundaries; i++) {
        see(f, ad->boundaries[i].value);
        see(f, ad->boundaries[i].gradient);
        see(f, ad->boundaries[i].received);
    }
    see(f, f->graph->loss);
    see(f, f->graph->correct);
    for (int part = 0; part < PART_COUNT; part++)
        note_list(f, &p->list[part]);
}

/* Growing a group --------------------------------------------------------------------------- */

static bool is_flat(const struct cuda_walk *walk)
{
    return walk->rank == 1 && walk->start[0] == 0 && (walk->stride[0][0] == 1 || walk->elements == 1);
}

/* Where operand i of the kernel is, by itself. */
static struct cuda_walk walk_of(const struct cuda_kernel *k, int i)
{
    const struct cuda_walk *all = &k->launch.pointwise.walk;
    int64_t elements = k->digest->out[0].elements;
    struct cuda_walk own = { .rank = 1, .n = 1, .elements = elements, .dim = { elements },
                             .stride = { { 1 } }, .flat = 1 };

    if (k->run != cuda_run_pointwise || all->flat)
        return own;
    own.rank = all->rank;
    own.start[0] = all->start[i];
    memcpy(own.dim, all->dim, sizeof(own.dim));
    memcpy(own.stride[0], all->stride[i], sizeof(own.stride[0]));
    cuda_walk_merge(&own);
    own.flat = is_flat(&own);
    return own;
}

static bool same_walk(const struct cuda_walk *a, const struct cuda_walk *b)
{
    bool same = a->flat == b->flat && a->rank == b->rank && a->start[0] == b->start[0];

    for (int k = 0; k < a->rank && same; k++)
        same = a->dim[k] == b->dim[k] && a->stride[0][k] == b->stride[0][k];
    return same;
}

static int index_of(const int *all, int n, int one)
{
    for (int i = 0; i < n; i++)
        if (all[i] == one)
            return i;
    return -1;
}

/* The input of this value with this walk; -1: there is none. */
static int find_input(const struct group *g, int v, const struct cuda_walk *walk)
{
    for (int i = 0; i < g->n_inputs; i++)
        if (g->values[i] == v && same_walk(&g->walks[i], walk))
            return i;
    return -1;
}

static bool is_member(const struct finder *f, const struct group *g, int v)
{
    return f->graph->values[v].producer >= 0 &&
           index_of(g->nodes, g->n, f->graph->values[v].producer) >= 0;
}

/* What the group reads from outside; false: more than a chain can. */
static bool find_inputs(const struct finder *f, struct group *g)
{
    g->n_inputs = 0;
    for (int m = 0; m < g->n; m++) {
        const struct node *n = &f->graph->nodes[g->nodes[m]];

        for (int i = 0; i < n->n_inputs; i++) {
            struct cuda_walk walk;

            if (n->inputs[i] < 0 || is_member(f, g, n->inputs[i]))
                continue;
            walk = walk_of(f->kernels[g->nodes[m]], i);
            if (find_input(g, n->inputs[i], &walk) >= 0)
                continue;
            if (g->n_inputs == CUDA_CHAIN_INPUTS)
                return false;
            g->values[g->n_inputs] = n->inputs[i];
            g->walks[g->n_inputs++] = walk;
        }
    }
    return true;
}

/* Do only members read it, and all of them in its own order? */
static bool is_inner(const struct finder *f, const struct group *g, int v)
{
    int readers = 0;

    for (int m = 0; m < g->n; m++) {
        const struct node *n = &f->graph->nodes[g->nodes[m]];
        bool reads = false;

        for (int i = 0; i < n->n_inputs; i++) {
            if (n->inputs[i] != v)
                continue;
            if (!walk_of(f->kernels[g->nodes[m]], i).flat)
                return false;
            reads = true;
        }
        readers += reads;
    }
    return readers == f->readers[v];
}

/* Bytes that have to wait for the result, and would not have to. */
static size_t bytes_kept(const struct finder *f, const struct group *g, int node)
{
    const struct node *n = &f->graph->nodes[node];
    size_t bytes = 0;

    for (int i = 0; i < n->n_inputs; i++) {
        int root = n->inputs[i] < 0 ? -1 : f->program->values[n->inputs[i]].root;

        if (root >= 0 && f->program->values[root].place == PLACE_SCRATCH &&
            f->last[root] < f->position[g->nodes[0]] && index_of(n->inputs, i, n->inputs[i]) < 0)
            bytes += f->program->values[root].layout.bytes;
    }
    return bytes;
}

static bool take_in(const struct finder *f, struct group *g, int v)
{
    int node = f->graph->values[v].producer, result = f->graph->nodes[g->nodes[0]].outputs[0];
    struct group larger;

    if (node < 0 || f->seen[v] || !f->kernels[node] || !f->position[node] || g->n == CHAIN_MEMBERS ||
        index_of(g->nodes, g->n, node) >= 0 ||
        f->graph->nodes[node].block != f->graph->nodes[g->nodes[0]].block ||
        !shape_equal(&f->graph->values[v].shape, &f->graph->values[result].shape) ||
        !is_inner(f, g, v) || bytes_kept(f, g, node) > f->program->values[v].layout.bytes)
        return false;
    larger = *g;
    larger.nodes[larger.n++] = node;
    if (!find_inputs(f, &larger))
        return false;
    *g = larger;
    return true;
}

static void grow(const struct finder *f, struct group *g)
{
    /* What could not be taken in may be once another one has been that reads it. */
    for (bool more = true; more;) {
        more = false;
        for (int m = 0; m < g->n && !more; m++) {
            const struct node *n = &f->graph->nodes[g->nodes[m]];

            for (int i = 0; i < n->n_inputs && !more; i++)
                more = n->inputs[i] >= 0 && take_in(f, g, n->inputs[i]);
        }
    }
}

/* The kernel ------------------------------------------------------------------------------- */

static void sort_members(const struct finder *f, struct group *g)
{
    for (int i = 1; i < g->n; i++)
        for (int k = i; k > 0 && f->position[g->nodes[k]] < f->position[g->nodes[k - 1]]; k--) {
            int other = g->nodes[k];

            g->nodes[k] = g->nodes[k - 1];
            g->nodes[k - 1] = other;
        }
}

static void set_member(const struct finder *f, const struct group *g, int m, struct chain_member *to)
{
    const struct node *n = &f->graph->nodes[g->nodes[m]];
    const struct cuda_kernel *k = f->kernels[g->nodes[m]];

    to->sum = k->run == cuda_run_sum;
    if (!to->sum) {
        to->function = k->launch.pointwise.function;
        to->p = (float)k->launch.pointwise.p;
        to->q = (float)k->launch.pointwise.q;
    }
    to->narrow = cuda_is_narrow(&f->layouts[n->outputs[0]]);
    to->n = n->n_inputs;
    for (int i = 0; i < n->n_inputs; i++) {
        struct cuda_walk walk;

        if (n->inputs[i] < 0)
            continue;
        if (is_member(f, g, n->inputs[i])) {
            to->operands[i] = (struct chain_operand){
                CHAIN_MEMBER, index_of(g->nodes, g->n, f->graph->values[n->inputs[i]].producer)
            };
            continue;
        }
        walk = walk_of(k, i);
        to->operands[i] = (struct chain_operand){ CHAIN_INPUT, find_input(g, n->inputs[i], &walk) };
    }
}

static char *text_of(const struct finder *f, const struct group *g)
{
    struct chain *c = mem_new(1, sizeof(*c));
    char *text;

    c->type = f->device->narrow;
    c->n_members = g->n;
    c->n_inputs = g->n_inputs;
    for (int m = 0; m < g->n; m++)
        set_member(f, g, m, &c->members[m]);
    for (int i = 0; i < g->n_inputs; i++)
        c->inputs[i] = (struct chain_input){ cuda_is_narrow(&f->layouts[g->values[i]]), g->walks[i] };
    text = chain_text(c);
    free(c);
    return text;
}

/* The last member becomes the chain. */
static void rewrite(const struct finder *f, const struct group *g, const char *text)
{
    struct node *n;
    int result = g->nodes[g->n - 1];
    int *inputs = arena_alloc(f->graph->arena, (size_t)g->n_inputs, sizeof(*inputs));

    memcpy(inputs, g->values, (size_t)g->n_inputs * sizeof(*inputs));
    n = &f->graph->nodes[result];
    n->op = op_find("Chain");
    n->inputs = inputs;
    n->n_inputs = g->n_inputs;
    n->n_attrs = 0;
    n->attrs = NULL;
    graph_set_string(f->graph, result, "text", text);
    for (int m = 0; m < g->n - 1; m++) {
        f->graph->nodes[g->nodes[m]].n_inputs = 0;
        f->gone[g->nodes[m]] = true;
    }
    for (int i = 0; i < g->n_inputs; i++)
        f->last[f->program->values[inputs[i]].root] =
            f->last[f->program->values[inputs[i]].root] > f->position[result]
                ? f->last[f->program->values[inputs[i]].root] : f->position[result];
    for (int m = 0; m < g->n; m++)
        f->position[g->nodes[m]] = 0;
}

static void look_at(struct finder *f, int node)
{
    struct group g = { .n = 1, .nodes = { node } };
    struct err err = { 0 };
    char *text;

    /* A value in another form stays what another one is made of, alone. */
    if (!f->position[node] || !f->kernels[node] || f->kernels[node]->run == cuda_run_reorder ||
        !find_inputs(f, &g))
        return;
    grow(f, &g);
    if (g.n < 2)
        return;
    sort_members(f, &g);
    text = text_of(f, &g);
    if (text && cuda_chain_kernel(f->device, text, &err))
        rewrite(f, &g, text);
    else {
        f->device->no_chains = true;
        log_info("cuda: pointwise operators run one by one: %s", text ? err.text : "no memory");
    }
    free(text);
}

static void look_at_part(struct finder *f, enum part part)
{
    const struct program_list *list = &f->program->list[part];

    memset(f->position, 0, (size_t)f->graph->n_nodes * sizeof(*f->position));
    memset(f->last, 0, (size_t)f->program->n_values * sizeof(*f->last));
    for (int i = 0; i < list->n; i++) {
        const struct node *n = &f->graph->nodes[list->nodes[i]];

        f->position[list->nodes[i]] = i + 1;
        for (int k = 0; k < n->n_inputs; k++)
            if (n->inputs[k] >= 0)
                f->last[f->program->values[n->inputs[k]].root] = i + 1;
        if (!f->kernels[list->nodes[i]])
            f->kernels[list->nodes[i]] = kernel_of(f, list->nodes[i]);
    }
    for (int i = list->n - 1; i >= 0 && !f->device->no_chains; i--)
        look_at(f, list->nodes[i]);
    program_remove(f->program, part, f->gone);
}

static void start(struct finder *f)
{
    size_t n_nodes = (size_t)f->graph->n_nodes + 1, n_values = (size_t)f->program->n_values + 1;

    f->layouts = mem_new(n_values, sizeof(*f->layouts));
    f->kernels = mem_new(n_nodes, sizeof(struct cuda_kernel *));
    f->position = mem_new(n_nodes, sizeof(*f->position));
    f->gone = mem_new(n_nodes, sizeof(*f->gone));
    f->last = mem_new(n_values, sizeof(*f->last));
    f->readers = mem_new(n_values, sizeof(*f->readers));
    f->seen = mem_new(n_values, sizeof(*f->seen));
    for (int v = 0; v < f->program->n_values; v++)
        f->layouts[v] = f->program->values[v].layout;
    note_outside(f);
}

static void end(struct finder *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++)
        cuda_kernel_free((struct kernel *)f->kernels[n]);
    free(f->kernels);
    free(f->layouts);
    free(f->position);
    free(f->gone);
    free(f->last);
    free(f->readers);
    free(f->seen);
}

void cuda_form_chains(struct device *device, struct program *program)
{
    struct finder f = { .device = device, .program = program, .graph = program->graph };

    if (device->no_chains)
        return;
    start(&f);
    look_at_part(&f, PART_FORWARD);
    look_at_part(&f, PART_DGRAD);
    look_at_part(&f, PART_WGRAD);
    end(&f);
}
