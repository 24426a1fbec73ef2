/* SPDX-License-Identifier: MIT */
#include "graph/memo.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/names.h"

enum { SHORT = 64, ESCAPE = 1, ESCAPES = ESCAPE + 1 };

struct result {
    int n;
    struct tensor *outputs;
};

struct memo {
    struct arena *arena;        /* keys and results */
    struct names *keys;
    int n;
    struct result *results;
    unsigned char *key;         /* of the call last looked for */
    size_t size, room;
    const OnnxFile__Node *node; /* whose, and so much of it is of the node alone; NULL: none */
    size_t own;
    uint8_t *packed;            /* room for an attribute */
    size_t packed_room;
};

struct memo *memo_new(void)
{
    struct memo *memo = mem_new(1, sizeof(*memo));

    memo->arena = arena_new();
    memo->keys = names_new();
    return memo;
}

void memo_free(struct memo *memo)
{
    if (!memo)
        return;
    names_free(memo->keys);
    arena_free(memo->arena);
    free(memo->results);
    free(memo->key);
    free(memo->packed);
    free(memo);
}

/* Keys are strings, which hold no zero: that, and what stands for it, take two bytes. */
static void add(struct memo *memo, const void *data, size_t size)
{
    const unsigned char *from = data;
    unsigned char *to;

    if (memo->size + 2 * size + 1 > memo->room) {
        memo->room = 2 * (memo->size + 2 * size + 1);
        memo->key = mem_resize(memo->key, memo->room, 1);
    }
    to = memo->key + memo->size;
    for (size_t i = 0; i < size; i++) {
        if (from[i] < ESCAPES)
            *to++ = ESCAPE;
        *to++ = (unsigned char)(from[i] < ESCAPES ? from[i] + ESCAPE : from[i]);
    }
    *to = '\0';
    memo->size = (size_t)(to - memo->key);
}

static void add_attribute(struct memo *memo, const OnnxFile__Attribute *attribute)
{
    size_t size = onnx_file__attribute__get_packed_size(attribute);

    if (size > memo->packed_room) {
        memo->packed_room = 2 * size;
        memo->packed = mem_resize(memo->packed, memo->packed_room, 1);
    }
    onnx_file__attribute__pack(attribute, memo->packed);
    add(memo, &size, sizeof(size));
    add(memo, memo->packed, size);
}

/* The same for both graphs. */
static void add_node(struct memo *memo, const OnnxFile__Node *node)
{
    if (memo->node != node) {
        memo->size = 0;
        add(memo, node->op_type, strlen(node->op_type) + 1);
        for (size_t i = 0; i < node->n_attribute; i++)
            add_attribute(memo, node->attribute[i]);
        memo->node = node;
        memo->own = memo->size;
    }
    memo->size = memo->own;
}

static void add_tensor(struct memo *memo, const struct tensor *t)
{
    int there = t != NULL;
    const void *data = t && t->f ? (const void *)t->f : t ? (const void *)t->i : NULL;

    add(memo, &there, sizeof(there));
    if (!t)
        return;
    add(memo, &t->dtype, sizeof(t->dtype));
    add(memo, &t->shape.rank, sizeof(t->shape.rank));
    add(memo, t->shape.dim, (size_t)t->shape.rank * sizeof(t->shape.dim[0]));
    add(memo, &t->n, sizeof(t->n));
    if (data && t->n <= SHORT)
        add(memo, data, (size_t)t->n * sizeof(int64_t));
    else
        add(memo, &data, sizeof(data));
}

/* What is known by the key. */
static bool look(const struct memo *memo, int n_outputs, struct tensor *outputs)
{
    int id = names_find(memo->keys, (const char *)memo->key);

    if (id < 0 || memo->results[id].n != n_outputs)
        return false;
    memcpy(outputs, memo->results[id].outputs, (size_t)n_outputs * sizeof(*outputs));
    return true;
}

bool memo_find(struct memo *memo, const OnnxFile__Node *node, int n_inputs,
               const struct tensor *const *inputs, int n_outputs, struct tensor *outputs)
{
    add_node(memo, node);
    add(memo, &n_outputs, sizeof(n_outputs));
    for (int i = 0; i < n_inputs; i++)
        add_tensor(memo, inputs[i]);
    return look(memo, n_outputs, outputs);
}

bool memo_find_tensor(struct memo *memo, const OnnxFile__Attribute *attribute,
                      struct tensor *tensor)
{
    memo->node = NULL;
    memo->size = 0;
    add(memo, "", 1);           /* where a call has its operator */
    add_attribute(memo, attribute);
    return look(memo, 1, tensor);
}

void memo_put(struct memo *memo, int n_outputs, const struct tensor *outputs)
{
    struct result result = { n_outputs, arena_alloc(memo->arena, (size_t)n_outputs,
                                                    sizeof(*outputs)) };

    memcpy(result.outputs, outputs, (size_t)n_outputs * sizeof(*outputs));
    names_put(memo->keys, arena_strdup(memo->arena, (const char *)memo->key), memo->n);
    *(struct result *)mem_push((void **)&memo->results, &memo->n, sizeof(result)) = result;
}
