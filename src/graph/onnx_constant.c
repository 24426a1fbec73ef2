/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/names.h"
#include "graph/onnx.h"

/* What torch.export leaves in the file (PyTorch 2.6 and later). */
#define SIGNATURE "pkg.torch.export.ExportedProgram.graph_signature"
#define KIND "pkg.torch.export.graph_signature.InputSpec.kind"
#define FOLDED_FROM "pkg.onnxscript.optimizer.folded_from"

enum { IS_PARAMETER, IS_CONSTANT };

struct text {
    const char *at, *end;
};

static bool starts_with(const struct text *text, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(text->end - text->at) >= n && memcmp(text->at, word, n) == 0;
}

/* The value of a property; false where there is none of that key. */
static bool find_property(size_t n, OnnxFile__Property *const *list, const char *key,
                          struct text *value)
{
    size_t length = strlen(key), i;

    for (i = 0; i < n; i++) {
        if (list[i]->key.len != length || memcmp(list[i]->key.data, key, length) != 0)
            continue;
        value->at = (const char *)list[i]->value.data;
        value->end = value->at + list[i]->value.len;
        return value->at != NULL;
    }
    return false;
}

/* Move behind the next text in single quotes, which 'quoted' becomes. */
static bool next_quoted(struct text *text, struct text *quoted)
{
    const char *first = memchr(text->at, '\'', (size_t)(text->end - text->at)), *last;

    last = first ? memchr(first + 1, '\'', (size_t)(text->end - first - 1)) : NULL;
    if (!last)
        return false;
    *quoted = (struct text){ first + 1, last };
    text->at = last + 1;
    return true;
}

static const char *copy_text(struct onnx *onnx, const struct text *text)
{
    return arena_printf(onnx->arena, "%.*s", (int)(text->end - text->at), text->at);
}

static const char *behind(const char *at, const char *end, char c)
{
    const char *found = memchr(at, c, (size_t)(end - at));

    return found ? found + 1 : end;
}

/* Lines "p_lin_weight: PARAMETER target='lin.weight'". */
static struct names *read_signature(struct onnx *onnx)
{
    const OnnxFile__Graph *graph = onnx->model->graph;
    struct names *kinds = names_new();
    struct text all, line, quoted;

    if (!find_property(graph->n_metadata_props, graph->metadata_props, SIGNATURE, &all))
        return kinds;
    for (; all.at < all.end; all.at = behind(all.at, all.end, '\n')) {
        const char *name;
        bool parameter;

        line = (struct text){ all.at, behind(all.at, all.end, '\n') };
        line.at = behind(line.at, line.end, ':');
        while (line.at < line.end && *line.at == ' ')
            line.at++;
        parameter = starts_with(&line, "PARAMETER");
        if ((!parameter && !starts_with(&line, "BUFFER") &&
             !starts_with(&line, "CONSTANT_TENSOR")) || !next_quoted(&line, &quoted))
            continue;
        name = copy_text(onnx, &quoted);
        if (names_find(kinds, name) < 0)
            names_put(kinds, name, parameter ? IS_PARAMETER : IS_CONSTANT);
    }
    return kinds;
}

/* What the optimizer computed it from, by the parameters that the signature lists. */
static void read_folded(struct onnx *onnx, const struct names *kinds, struct text *from,
                        int initializer)
{
    const char *origin = NULL;
    struct text quoted;
    bool known = false;
    int parameters = 0, names = 0;

    for (; next_quoted(from, &quoted); names++) {
        const char *name = copy_text(onnx, &quoted);
        int kind = names_find(kinds, name);

        if (kind == IS_PARAMETER && parameters++ == 0)
            origin = name;
        known |= kind == IS_CONSTANT || strncmp(name, "val_", 4) == 0 ||
                 strncmp(name, "lifted_tensor_", 14) == 0;
    }
    onnx->constant[initializer] = known && parameters == 0;
    onnx->origin[initializer] = parameters == 1 ? origin : NULL;
    onnx->computed[initializer] = names > 1 ? origin : NULL;
}

void onnx_find_constants(struct onnx *onnx)
{
    const OnnxFile__Graph *graph = onnx->model->graph;
    struct names *kinds = read_signature(onnx);
    struct text value;
    bool has_signature = find_property(graph->n_metadata_props, graph->metadata_props,
                                       SIGNATURE, &value);
    size_t i;

    onnx->constant = mem_new((size_t)onnx->n_initializers, sizeof(*onnx->constant));
    onnx->origin = mem_new((size_t)onnx->n_initializers, sizeof(*onnx->origin));
    onnx->computed = mem_new((size_t)onnx->n_initializers, sizeof(*onnx->computed));
    for (i = 0; i < graph->n_value_info; i++) {
        const OnnxFile__Described *d = graph->value_info[i];
        int v = d->name ? onnx_find(onnx, d->name) : -1;
        int initializer;

        if (v < 0 || onnx->values[v].kind != ONNX_INITIALIZER)
            continue;
        initializer = onnx->values[v].index;
        if (find_property(d->n_metadata_props, d->metadata_props, KIND, &value))
            onnx->constant[initializer] = starts_with(&value, "BUFFER") ||
                                          starts_with(&value, "CONSTANT_TENSOR");
        else if (has_signature &&
                 find_property(d->n_metadata_props, d->metadata_props, FOLDED_FROM, &value))
            read_folded(onnx, kinds, &value, initializer);
    }
    names_free(kinds);
}
