/* SPDX-License-Identifier: MIT */
/* Samples drawn from the seed: "synthetic" or "synthetic:SAMPLES". */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/op.h"
#include "kernels/philox.h"
#include "train/data_format.h"

#define NAME "synthetic"
#define SAMPLES 1024
#define CHUNK 256               /* elements drawn at once, a multiple of 4 */

/* What tensor i holds: normal floats, or integers below this. */
struct synthetic {
    int n;
    int64_t *below;
};

static bool takes(const char *spec, const unsigned char *head)
{
    size_t n = strlen(NAME);

    return !head && strncmp(spec, NAME, n) == 0 && (!spec[n] || spec[n] == ':');
}

static int open_spec(struct data *data, struct err *err)
{
    const char *text = data->path + strlen(NAME);
    char *end;

    data->state = mem_new(1, sizeof(struct synthetic));
    data->samples = SAMPLES;
    if (!*text)
        return 0;
    errno = 0;
    data->samples = strtoll(text + 1, &end, 10);
    if (text[1] < '0' || text[1] > '9' || *end || errno || data->samples < 1 ||
        data->samples > (int64_t)1 << 40)
        return err_set(err, "%s: expected synthetic:SAMPLES", data->path);
    return 0;
}

static void add(struct data *data, const struct model_tensor *t, int64_t below)
{
    struct synthetic *s = data->state;

    *(int64_t *)mem_push((void **)&s->below, &s->n, sizeof(below)) = below;
    data_add(data, t->name, t->dtype, &t->shape, NULL);
}

/* Lengths of sequences and sides of images that the model leaves open. */
static int fix_shape(const struct data *data, struct model_tensor *input, struct err *err)
{
    const struct data_options *o = &data->options;
    bool image = dtype_is_float(input->dtype) && input->shape.rank == 3;

    if (input->dtype == DTYPE_NONE || input->shape.rank < 0)
        return err_set(err, "%s: input \"%s\" has no type and shape", data->path, input->name);
    for (int i = 0; i < input->shape.rank; i++)
        if ((input->shape.dim[i] < 0 || (image ? i > 0 : !dtype_is_float(input->dtype))) &&
            data_fix_dim(data, input, i, image ? o->image_size : o->sequence_length,
                         image ? "image-size" : "sequence-length", &input->shape.dim[i],
                         err) < 0)
            return -1;
    return 0;
}

/* Integers by which a table is read must be its rows, labels its classes. '*rows' becomes the
 * least of these, also of what is only another form of the value.
 */
static void limit_rows(const struct graph *graph, int value, int depth, int64_t *rows)
{
    const struct value *v = &graph->values[value];

    for (int i = 0; i < v->n_consumers && depth < 8; i++) {
        const struct node *node = &graph->nodes[v->consumers[i]];
        const char *op = node->op->name;
        bool gather = strcmp(op, "Gather") == 0, labels = strcmp(op, "CrossEntropySum") == 0;

        if ((gather || labels) && node->inputs[1] == value) {
            const struct shape *table = &graph->values[node->inputs[0]].shape;
            int64_t axis = node_int(node, "axis", 0), n;

            axis = axis < 0 ? axis + table->rank : axis;
            n = table->dim[axis];
            *rows = n < *rows ? n : *rows;
        } else if (strcmp(op, "Cast") == 0 || strcmp(op, "Reshape") == 0 ||
                   strcmp(op, "Transpose") == 0) {
            limit_rows(graph, node->outputs[0], depth + 1, rows);
        }
    }
}

/* Integers that nothing limits are 0 or 1, as a mask is. */
static int64_t rows_of(const struct graph *graph, const char *name)
{
    int value = graph_find_value(graph, name);
    int64_t rows = INT64_MAX;

    if (value >= 0)
        limit_rows(graph, value, 0, &rows);
    return rows == INT64_MAX ? 2 : rows > 0 ? rows : 1;
}

/* The output that the loss is made of: "KIND:OUT,LABELS", or the only one; -1: none. */
static int loss_output(const struct graph *graph, const char *loss)
{
    const char *start = loss ? strchr(loss, ':') : NULL;
    size_t n = start ? strcspn(start + 1, ",") : 0;

    for (int i = 0; start && i < graph->n_outputs; i++) {
        const char *name = graph->values[graph->outputs[i]].name;

        if (strlen(name) == n && strncmp(name, start + 1, n) == 0)
            return graph->outputs[i];
    }
    return !start && graph->n_outputs == 1 ? graph->outputs[0] : -1;
}

/* Labels of [N, C], of sequences [N, L, C] and of pixels [N, C, H, W]; targets of mse and dot.
 * A loss inside the graph has its labels among the inputs.
 */
static void add_label(struct data *data, const struct data_wanted *wanted,
                      const struct graph *graph)
{
    int out = wanted->label ? loss_output(graph, wanted->loss) : -1;
    const struct shape *shape = out < 0 ? NULL : &graph->values[out].shape;
    struct model_tensor label = { .name = wanted->label, .dtype = DTYPE_I64 };
    int axis;

    for (int i = 0; i < data->n; i++)
        if (wanted->label && strcmp(data->tensors[i].name, wanted->label) == 0)
            return;
    if (!shape || shape->rank < 1)
        return;
    axis = shape->rank > 3 ? 1 : shape->rank - 1;
    if (axis == 0 || (wanted->loss && strncmp(wanted->loss, "cross-entropy:", 14) != 0)) {
        label.dtype = DTYPE_F32;
        axis = 0;
    }
    for (int i = 1; i < shape->rank; i++)
        if (i != axis)
            label.shape.dim[label.shape.rank++] = shape->dim[i];
    add(data, &label, label.dtype == DTYPE_F32 ? 0 : shape->dim[axis]);
}

static int complete(struct data *data, const struct data_wanted *wanted, struct err *err)
{
    struct model_options options = {
        .batch = 2, .real = DTYPE_F32, .no_loss = true, .n_tensors = wanted->n,
        .tensors = wanted->inputs,
    };
    struct graph *graph;

    for (int i = 0; i < wanted->n; i++)
        if (fix_shape(data, &wanted->inputs[i], err) < 0)
            return -1;
    graph = model_build(wanted->model, &options, err);
    if (!graph)
        return -1;
    for (int i = 0; i < wanted->n; i++)
        add(data, &wanted->inputs[i],
            dtype_is_float(wanted->inputs[i].dtype) ? 0
                                                    : rows_of(graph, wanted->inputs[i].name));
    add_label(data, wanted, graph);
    graph_free(graph);
    return 0;
}

/* Drawing ---------------------------------------------------------------------------- */

static struct philox draw(uint64_t key, int64_t sample, size_t quad)
{
    return philox_draw(key, (struct philox){ { (uint32_t)quad, (uint32_t)((uint64_t)quad >> 32),
                                          (uint32_t)sample,
                                          (uint32_t)((uint64_t)sample >> 32) } });
}

static double uniform(uint32_t word)
{
    return ((double)word + 0.5) / 4294967296.0;
}

/* Normal by pairs (Box and Muller 1958). */
static void draw_floats(const struct philox *p, float out[4])
{
    for (int i = 0; i < 4; i += 2) {
        double r = sqrt(-2 * log(uniform(p->word[i])));
        double angle = 6.283185307179586 * uniform(p->word[i + 1]);

        out[i] = (float)(r * cos(angle));
        out[i + 1] = (float)(r * sin(angle));
    }
}

/* The same in every epoch: there is something to learn. */
static int read_sample(struct data_reader *reader, int tensor, int64_t sample, int64_t epoch,
                       const struct data_target *to, struct err *err)
{
    const struct data *data = reader->data;
    const struct synthetic *s = data->state;
    const struct model_tensor *t = &data->tensors[tensor];
    uint64_t key = philox_key(data->options.seed, graph_key(t->name)) + data->options.test;
    size_t n = (size_t)shape_elements(&t->shape);
    int64_t below = s->below[tensor];

    (void)epoch;
    (void)err;
    for (size_t first = 0; first < n; first += CHUNK) {
        size_t count = n - first < CHUNK ? n - first : CHUNK;
        float floats[CHUNK];
        int64_t integers[CHUNK];

        for (size_t i = 0; i < count; i += 4) {
            struct philox p = draw(key, sample, (first + i) / 4);

            if (!below)
                draw_floats(&p, floats + i);
            for (int j = 0; below && j < 4; j++)
                integers[i + (size_t)j] = (int64_t)(uniform(p.word[j]) * (double)below);
        }
        data_put(to, below ? DTYPE_I64 : DTYPE_F32, below ? (void *)integers : (void *)floats,
                 first, count);
    }
    return 0;
}

static int64_t below_of(const struct data *data, int tensor)
{
    return ((const struct synthetic *)data->state)->below[tensor];
}

static void close_spec(void *state)
{
    struct synthetic *s = state;

    if (s)
        free(s->below);
    free(s);
}

const struct data_format data_synthetic = {
    .name = NAME, .takes = takes, .open = open_spec, .complete = complete,
    .read = read_sample, .below = below_of, .close = close_spec,
};
