/* SPDX-License-Identifier: MIT */
#include "train/labels.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

static int load_checked(const struct labels *l, int64_t sample, struct err *err)
{
    struct data_want want = { .tensor = l->tensor, .to = DTYPE_I64,
                              .batch = { .outer = 1, .inner = l->per_sample } };

    return data_gather(l->reader, &want, 0, &sample, 1, 0, 1, l->buffer, err);
}

/* What cannot be read counts as label 0: it ends the step where it is fed. */
static void load(const struct labels *l, int64_t sample)
{
    struct err ignored = { 0 };

    if (load_checked(l, sample, &ignored) < 0)
        memset(l->buffer, 0, (size_t)l->per_sample * sizeof(*l->buffer));
}

static bool ignored(const struct labels *l, int64_t label)
{
    return l->rule.ignores && label == l->rule.ignore_index;
}

static int check(const struct labels *l, struct err *err)
{
    int n;
    const struct model_tensor *tensors = data_tensors(l->data, &n);
    int64_t below = data_below(l->data, l->tensor);

    /* Reading through a large file takes long. */
    if (below > 0 && below <= l->rule.classes)
        return 0;
    for (int64_t s = 0; s < data_samples(l->data); s++) {
        if (load_checked(l, s, err) < 0)
            return -1;
        for (int64_t i = 0; i < l->per_sample; i++) {
            int64_t label = l->buffer[i];

            if (!ignored(l, label) && (label < 0 || label >= l->rule.classes))
                return err_set(err, "%s: tensor \"%s\": sample %lld has label %lld, the model "
                               "has %lld classes", data_path(l->data), tensors[l->tensor].name,
                               (long long)s, (long long)label, (long long)l->rule.classes);
        }
    }
    return 0;
}

int labels_init(struct labels *labels, struct data *data, const struct graph *graph,
                struct err *err)
{
    const struct loss_rule *rule = &graph->loss_rule;

    *labels = (struct labels){ .data = data, .tensor = -1, .rule = *rule };
    if (rule->labels < 0 || !rule->classify)
        return 0;
    labels->tensor = data_bind(data, graph, rule->labels, err);
    if (labels->tensor < 0)
        return -1;
    labels->per_sample = shape_elements(&graph->values[rule->labels].shape) / graph->batch;
    labels->reader = data_reader_new(data);
    labels->buffer = mem_new((size_t)labels->per_sample, sizeof(int64_t));
    if (rule->class_weights >= 0) {
        const struct value *v = &graph->values[rule->class_weights];

        labels->class_weights = mem_new((size_t)rule->classes, sizeof(double));
        dtype_convert(v->file_dtype, v->data, DTYPE_F64, labels->class_weights,
                      (size_t)rule->classes);
    }
    if (check(labels, err) < 0) {
        labels_clear(labels);
        return -1;
    }
    return 0;
}

void labels_clear(struct labels *labels)
{
    data_reader_free(labels->reader);
    free(labels->class_weights);
    free(labels->buffer);
    labels->reader = NULL;
    labels->class_weights = NULL;
    labels->buffer = NULL;
}

double labels_weight(const struct labels *labels, const int64_t *samples, int64_t n)
{
    double sum = 0;

    if (labels->rule.weight == LOSS_WEIGHT_ONE)
        return 1;
    if (labels->rule.weight == LOSS_WEIGHT_SAMPLES || labels->tensor < 0)
        return (double)n * labels->rule.per_sample;
    for (int64_t s = 0; s < n; s++) {
        load(labels, samples[s]);
        for (int64_t i = 0; i < labels->per_sample; i++)
            if (!ignored(labels, labels->buffer[i]))
                sum += labels->class_weights ? labels->class_weights[labels->buffer[i]] : 1;
    }
    return sum;
}

int64_t labels_count(const struct labels *labels, const int64_t *samples, int64_t n)
{
    int64_t count = 0;

    if (labels->tensor < 0)
        return 0;
    if (!labels->rule.ignores)
        return n * labels->per_sample;
    for (int64_t s = 0; s < n; s++) {
        load(labels, samples[s]);
        for (int64_t i = 0; i < labels->per_sample; i++)
            count += !ignored(labels, labels->buffer[i]);
    }
    return count;
}
