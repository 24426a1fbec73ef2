/* SPDX-License-Identifier: MIT */
#include "graph/onnx_function.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "graph/names.h"

/* No name in a file has control characters. */
static char *key_of(const char *domain, const char *name, const char *overload)
{
    return mem_printf("%s\n%s\n%s", onnx_domain(domain), onnx_text(name), onnx_text(overload));
}

struct names *onnx_function_list(struct onnx *onnx, struct err *err)
{
    const OnnxFile__Model *model = onnx->model;
    struct names *functions = names_new();
    size_t i;

    for (i = 0; i < model->n_functions; i++) {
        const OnnxFile__Function *f = model->functions[i];
        char *key = key_of(f->domain, f->name, f->overload);
        const char *kept = arena_strdup(onnx->arena, key);

        free(key);
        if (names_find(functions, kept) >= 0) {
            err_set(err, "two functions are named \"%.200s\"", onnx_text(f->name));
            names_free(functions);
            return NULL;
        }
        names_put(functions, kept, (int)i);
    }
    return functions;
}

const OnnxFile__Function *onnx_function_find(const struct onnx *onnx,
                                             const struct names *functions,
                                             const OnnxFile__Node *node)
{
    char *key;
    int found;

    if (!onnx->model->n_functions)
        return NULL;
    key = key_of(node->domain, node->op_type, node->overload);
    found = names_find(functions, key);
    free(key);
    return found < 0 ? NULL : onnx->model->functions[found];
}

/* What the function's attribute 'from' is in this call; '*given' NULL: nothing. */
static int find_given(const OnnxFile__Function *f, const OnnxFile__Node *call, const char *from,
                      const OnnxFile__Attribute **given, struct err *err)
{
    size_t i;

    if (!f)
        return err_set(err, "it refers to one of a function, but stands in none");
    *given = onnx_attr(call, from);
    for (i = 0; i < f->n_attribute_proto && !*given; i++)
        if (strcmp(onnx_text(f->attribute_proto[i]->name), from) == 0)
            *given = f->attribute_proto[i];
    for (i = 0; i < f->n_attribute && !*given; i++)
        if (strcmp(f->attribute[i], from) == 0)
            return 0;
    return *given ? 0 : err_set(err, "it refers to \"%.200s\", which the function \"%.200s\" "
                                "does not have", from, onnx_text(f->name));
}

static bool refers(const OnnxFile__Attribute *attr)
{
    return *onnx_text(attr->ref_attr_name);
}

const OnnxFile__Node *onnx_function_node(struct onnx *onnx, const OnnxFile__Function *function,
                                         const OnnxFile__Node *call, const OnnxFile__Node *node,
                                         struct err *err)
{
    OnnxFile__Node *own;
    size_t i;

    for (i = 0; i < node->n_attribute && !refers(node->attribute[i]); i++)
        ;
    if (i == node->n_attribute)
        return node;
    own = arena_alloc(onnx->arena, 1, sizeof(*own));
    *own = *node;
    own->attribute = arena_alloc(onnx->arena, node->n_attribute, sizeof(*own->attribute));
    own->n_attribute = 0;
    for (i = 0; i < node->n_attribute; i++) {
        OnnxFile__Attribute *attr = node->attribute[i], *copy;
        const OnnxFile__Attribute *given = refers(attr) ? NULL : attr;

        if (refers(attr) && find_given(function, call, attr->ref_attr_name, &given, err)) {
            err_prefix(err, "its attribute \"%.200s\"", onnx_text(attr->name));
            return NULL;
        }
        if (!given)
            continue;
        copy = arena_alloc(onnx->arena, 1, sizeof(*copy));
        *copy = *given;
        copy->name = attr->name;
        own->attribute[own->n_attribute++] = copy;
    }
    return own;
}
