/* SPDX-License-Identifier: MIT */
#include "onnx_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/names.h"
#include "graph/onnx.h"

#define MAX_WORDS 80

struct writer {
    struct onnx_bytes *out;
    const struct onnx_mutator *mutator;
    const char *text;       /* all of it */
    uint32_t node_field;    /* of what the nodes stand in */
};

struct type {
    const char *name;
    int number;
    size_t size;
    uint32_t field;     /* of typed data */
};

static const struct type types[] = {
    { "float", 1, 4, 4 },    { "uint8", 2, 1, 5 },   { "int8", 3, 1, 5 },
    { "uint16", 4, 2, 5 },   { "int16", 5, 2, 5 },   { "int32", 6, 4, 5 },
    { "int64", 7, 8, 7 },    { "string", 8, 0, 6 },  { "bool", 9, 1, 5 },
    { "float16", 10, 2, 5 }, { "double", 11, 8, 10 }, { "uint32", 12, 4, 11 },
    { "uint64", 13, 8, 11 },  { "bfloat16", 16, 2, 5 },
};

static void wrong(const char *what, const char *word)
{
    fprintf(stderr, "onnx_text: %s \"%s\"\n", what, word);
    abort();
}

/* Wire format ------------------------------------------------------------------------- */

static void put(struct onnx_bytes *out, const void *data, size_t size)
{
    if (!size)
        return;
    if (out->size + size > out->room) {
        out->room = 2 * (out->size + size);
        out->data = mem_resize(out->data, out->room, 1);
    }
    memcpy(out->data + out->size, data, size);
    out->size += size;
}

static void put_varint(struct onnx_bytes *out, uint64_t value)
{
    unsigned char byte;

    do {
        byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(out, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_bytes(struct onnx_bytes *out, uint32_t field, const void *data, size_t size)
{
    put_varint(out, (uint64_t)field << 3 | 2);
    put_varint(out, size);
    put(out, data, size);
}

static void number_field(struct writer *w, uint32_t field, int64_t value)
{
    int times = w->mutator ? w->mutator->number(w->mutator->user, &value) : 1;

    while (times-- > 0) {
        put_varint(w->out, (uint64_t)field << 3);
        put_varint(w->out, (uint64_t)value);
    }
}

static void string_field(struct writer *w, uint32_t field, const char *text)
{
    int times = w->mutator ? w->mutator->string(w->mutator->user, &text) : 1;

    while (times-- > 0)
        put_bytes(w->out, field, text, strlen(text));
}

static void float_field(struct writer *w, uint32_t field, float value)
{
    put_varint(w->out, (uint64_t)field << 3 | 5);
    put(w->out, &value, sizeof(value));
}

/* A message written by 'fill' into its own bytes first. */
struct nested {
    struct onnx_bytes bytes, *outer;
    uint32_t field;
};

static void begin(struct writer *w, struct nested *nested, uint32_t field)
{
    *nested = (struct nested){ .outer = w->out, .field = field };
    w->out = &nested->bytes;
}

static void end(struct writer *w, struct nested *nested)
{
    int times = w->mutator ? w->mutator->message(w->mutator->user) : 1;

    w->out = nested->outer;
    while (times-- > 0)
        put_bytes(w->out, nested->field, nested->bytes.data, nested->bytes.size);
    free(nested->bytes.data);
}

/* Words ------------------------------------------------------------------------------- */

/* Split at 'separator' in place. */
static int split(char *text, char separator, char **words)
{
    int n = 0;
    char *at = text;

    while (*at && n < MAX_WORDS) {
        words[n++] = at;
        at += strcspn(at, (char[]){ separator, '\0' });
        while (*at == separator)
            *at++ = '\0';
    }
    return n;
}

static const struct type *find_type(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    wrong("type", name);
    return NULL;
}

double onnx_text_value(const char *name, size_t index)
{
    uint64_t z = names_hash(name) + (index + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 40) / (double)(1 << 24) - 0.5;
}

/* Tensors ----------------------------------------------------------------------------- */

static void put_element(struct onnx_bytes *out, const struct type *type, double value)
{
    unsigned char bytes[sizeof(value)] = { 0 };
    enum dtype dtype = onnx_dtype(type->number);

    if (dtype != DTYPE_NONE)
        dtype_put_real(dtype, bytes, 0, value);
    put(out, bytes, type->size);
}

static void data_field(struct writer *w, const char *name, const struct type *type,
                       bool typed, size_t elements, int n, char **values)
{
    struct onnx_bytes data = { 0 };
    bool integer = typed && type->number != 1 && type->number != 11;
    size_t i;

    for (i = 0; i < elements; i++) {
        /* Lists that are too short repeat their last value. */
        double value = n ? strtod(values[i < (size_t)n ? i : (size_t)n - 1], NULL)
                         : onnx_text_value(name, i);

        if (integer)
            put_varint(&data, (uint64_t)(int64_t)value);
        else
            put_element(&data, type, value);
    }
    put_bytes(w->out, typed ? type->field : 9, data.data, data.size);
    free(data.data);
}

static size_t dims_fields(struct writer *w, char *dims)
{
    char *words[MAX_WORDS];
    int n = strcmp(dims, ".") == 0 ? 0 : split(dims, ',', words), i;
    size_t elements = 1;

    for (i = 0; i < n; i++) {
        number_field(w, 1, strtoll(words[i], NULL, 10));
        elements *= (size_t)strtoull(words[i], NULL, 10);
    }
    return elements;
}

static void entry_field(struct writer *w, uint32_t field, const char *key,
                        const char *value)
{
    struct nested entry;

    begin(w, &entry, field);
    string_field(w, 1, key);
    string_field(w, 2, value);
    end(w, &entry);
}

/* NAME TYPE DIMS [= VALUES], or LOCATION OFFSET LENGTH */
static void tensor_message(struct writer *w, uint32_t field, const char *kind, int n,
                           char **words)
{
    const struct type *type = find_type(words[1]);
    char *values[MAX_WORDS];
    struct nested tensor;
    size_t elements;

    begin(w, &tensor, field);
    elements = dims_fields(w, words[2]);
    number_field(w, 2, type->number);
    if (strcmp(kind, "const") != 0)
        string_field(w, 8, words[0]);
    if (strcmp(kind, "external") == 0) {
        entry_field(w, 13, "location", words[3]);
        entry_field(w, 13, "offset", words[4]);
        entry_field(w, 13, "length", words[5]);
        number_field(w, 14, 1);
    } else if (strcmp(kind, "absent") == 0) {
        entry_field(w, 13, "location", "absent");
        entry_field(w, 13, "absent", "1");
        number_field(w, 14, 1);
    } else {
        data_field(w, words[0], type, strcmp(kind, "typed") == 0, elements,
                   n > 4 ? split(words[4], ',', values) : 0, values);
    }
    end(w, &tensor);
}

/* Nodes ------------------------------------------------------------------------------- */

static void list_attribute(struct writer *w, char *list)
{
    char *words[MAX_WORDS];
    int n, i;

    list[strcspn(list, "]")] = '\0';
    n = split(list, ',', words);
    for (i = 0; i < n; i++)
        number_field(w, 8, strtoll(words[i], NULL, 10));
    number_field(w, 20, 7);
}

static void graph_field(struct writer *w, char *name);

static void attribute_message(struct writer *w, uint32_t field, char *word)
{
    char *value = strchr(word, '=');
    struct nested attribute;

    if (!value)
        wrong("attribute", word);
    *value++ = '\0';
    begin(w, &attribute, field);
    string_field(w, 1, word);
    if (*value == '{') {
        graph_field(w, value + 1);
        number_field(w, 20, 5);
    } else if (*value == '@') {
        string_field(w, 21, value + 1);
    } else if (*value == '[') {
        list_attribute(w, value + 1);
    } else if (*value == '"') {
        value[1 + strcspn(value + 1, "\"")] = '\0';
        string_field(w, 4, value + 1);
        number_field(w, 20, 3);
    } else if (strpbrk(value, ".e")) {
        float_field(w, 2, strtof(value, NULL));
        number_field(w, 20, 1);
    } else {
        number_field(w, 3, strtoll(value, NULL, 10));
        number_field(w, 20, 2);
    }
    end(w, &attribute);
}

static void name_fields(struct writer *w, uint32_t field, char *list)
{
    char *words[MAX_WORDS];
    int n = split(list, ',', words), i;

    for (i = 0; i < n; i++)
        string_field(w, field, strcmp(words[i], "-") == 0 ? "" : words[i]);
}

/* OP IN,IN -> OUT,OUT ATTRIBUTES; "." for no inputs */
static void node_message(struct writer *w, int n, char **words)
{
    char *colon = strchr(words[0], ':');
    struct nested node;
    int i;

    if (n < 4 || strcmp(words[2], "->") != 0)
        wrong("node", words[0]);
    begin(w, &node, w->node_field);
    if (strcmp(words[1], ".") != 0)
        name_fields(w, 1, words[1]);
    name_fields(w, 2, words[3]);
    string_field(w, 4, colon ? colon + 1 : words[0]);
    for (i = 4; i < n; i++)
        attribute_message(w, 5, words[i]);
    if (colon) {
        *colon = '\0';
        string_field(w, 7, words[0]);
    }
    end(w, &node);
}

static void const_message(struct writer *w, int n, char **words)
{
    struct nested node, attribute;

    begin(w, &node, w->node_field);
    string_field(w, 2, words[0]);
    string_field(w, 4, "Constant");
    begin(w, &attribute, 5);
    string_field(w, 1, "value");
    tensor_message(w, 5, "const", n, words);
    number_field(w, 20, 4);
    end(w, &attribute);
    end(w, &node);
}

/* NAME [TYPE DIMS] */
static void value_message(struct writer *w, uint32_t field, int n, char **words)
{
    struct nested value, type, tensor, shape, dim;
    char *dims[MAX_WORDS], *tail;
    int rank = n > 2 ? split(words[2], ',', dims) : 0, i;

    begin(w, &value, field);
    string_field(w, 1, words[0]);
    begin(w, &type, 2);
    begin(w, &tensor, 1);
    number_field(w, 1, n > 1 ? find_type(words[1])->number : 1);
    begin(w, &shape, 2);
    for (i = 0; i < rank; i++) {
        int64_t fixed = strtoll(dims[i], &tail, 10);

        begin(w, &dim, 1);
        if (*tail)
            string_field(w, 2, dims[i]);
        else
            number_field(w, 1, fixed);
        end(w, &dim);
    }
    end(w, &shape);
    end(w, &tensor);
    end(w, &type);
    end(w, &value);
}

/* What torch.export says of initializers: NAME kind KIND, or NAME folded FROM,FROM,... */
static void about_message(struct writer *w, int n, char **words)
{
    char *from[MAX_WORDS], text[600] = "[";
    struct nested about;
    size_t used = 1;
    int i, count = n == 3 ? split(words[2], ',', from) : 0;

    if (count == 0)
        wrong("about", words[0]);
    for (i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s'%s'", i ? ", " : "",
                                 from[i]);
    snprintf(text + used, sizeof(text) - used, "]");
    begin(w, &about, 13);
    string_field(w, 1, words[0]);
    if (strcmp(words[1], "kind") == 0)
        entry_field(w, 4, "pkg.torch.export.graph_signature.InputSpec.kind", from[0]);
    else
        entry_field(w, 4, "pkg.onnxscript.optimizer.folded_from", text);
    end(w, &about);
}

/* KIND:NAME ... */
static void signature_message(struct writer *w, int n, char **words)
{
    char text[600] = "\n# inputs\n";
    size_t used = strlen(text);
    int i;

    for (i = 0; i < n; i++) {
        char *name = strchr(words[i], ':');

        if (!name)
            wrong("signature", words[i]);
        *name++ = '\0';
        used += (size_t)snprintf(text + used, sizeof(text) - used, "i%d: %s target='%s'\n", i,
                                 words[i], name);
    }
    entry_field(w, 16, "pkg.torch.export.ExportedProgram.graph_signature", text);
}

/* The file ---------------------------------------------------------------------------- */

static void set_message(struct writer *w, uint32_t field, int64_t opset)
{
    struct nested set;

    begin(w, &set, field);
    string_field(w, 1, "");
    number_field(w, 2, opset);
    end(w, &set);
}

static void line(struct writer *w, int n, char **words, int64_t *opset)
{
    if (n < 2)
        wrong("line", words[0]);
    if (strcmp(words[0], "opset") == 0)
        *opset = strtoll(words[1], NULL, 10);
    else if (strcmp(words[0], "input") == 0)
        value_message(w, 11, n - 1, words + 1);
    else if (strcmp(words[0], "output") == 0)
        value_message(w, 12, n - 1, words + 1);
    else if (strcmp(words[0], "node") == 0)
        node_message(w, n - 1, words + 1);
    else if (strcmp(words[0], "const") == 0)
        const_message(w, n - 1, words + 1);
    else if (strcmp(words[0], "default") == 0)
        attribute_message(w, 11, words[1]);
    else if (strcmp(words[0], "about") == 0)
        about_message(w, n - 1, words + 1);
    else if (strcmp(words[0], "signature") == 0)
        signature_message(w, n - 1, words + 1);
    else
        tensor_message(w, 5, words[0], n - 1, words + 1);
}

/* The next line as words in 'copy', for free(); where the one after it starts. */
static const char *next_line(const char *at, char **copy, int *n, char **words)
{
    size_t length;

    length = strcspn(at, "\n");
    *copy = mem_printf("%.*s", (int)length, at);
    *n = split(*copy + strspn(*copy, " "), ' ', words);
    return at + length + (at[length] == '\n');
}

static bool begins(int n, char **words, const char *kind)
{
    return n > 0 && strcmp(words[0], kind) == 0;
}

/* The lines from 'at' up to the "end" of the block; blocks inside are left out. */
static void block(struct writer *w, const char *at, int64_t *opset)
{
    int n, depth = 0;
    char *words[MAX_WORDS], *copy;

    while (*at && depth >= 0) {
        at = next_line(at, &copy, &n, words);
        if (begins(n, words, "graph") || begins(n, words, "function"))
            depth++;
        else if (begins(n, words, "end"))
            depth--;
        else if (n && depth == 0)
            line(w, n, words, opset);
        free(copy);
    }
}

static void graph_field(struct writer *w, char *name)
{
    const char *at = w->text;
    char *words[MAX_WORDS], *copy;
    uint32_t outside = w->node_field;
    struct nested graph;
    bool found = false;
    int64_t opset;
    int n;

    name[strcspn(name, "}")] = '\0';
    while (*at && !found) {
        at = next_line(at, &copy, &n, words);
        found = begins(n, words, "graph") && n == 2 && strcmp(words[1], name) == 0;
        free(copy);
    }
    if (!found)
        wrong("graph", name);
    begin(w, &graph, 6);
    w->node_field = 1;
    block(w, at, &opset);
    w->node_field = outside;
    end(w, &graph);
}

/* function DOMAIN:NAME INPUTS -> OUTPUTS [ATTRIBUTES] */
static void function_message(struct writer *w, int n, char **words, const char *at)
{
    char *colon = n < 5 ? NULL : strchr(words[1], ':');
    struct nested function;
    int64_t opset = 17;

    if (!colon || strcmp(words[3], "->") != 0)
        wrong("function", words[1]);
    *colon = '\0';
    begin(w, &function, 25);
    string_field(w, 10, words[1]);
    string_field(w, 1, colon + 1);
    name_fields(w, 4, words[2]);
    name_fields(w, 5, words[4]);
    if (n > 5)
        name_fields(w, 6, words[5]);
    w->node_field = 7;
    block(w, at, &opset);
    if (opset)
        set_message(w, 9, opset);
    end(w, &function);
}

void onnx_from_text(const char *text, const struct onnx_mutator *mutator,
                    struct onnx_bytes *bytes)
{
    struct writer w = { bytes, mutator, text, 1 };
    char *words[MAX_WORDS], *copy;
    struct nested graph;
    int64_t opset = 17;
    int n;

    number_field(&w, 1, 8);
    begin(&w, &graph, 7);
    block(&w, text, &opset);
    end(&w, &graph);
    set_message(&w, 8, opset);
    while (*text) {
        text = next_line(text, &copy, &n, words);
        if (begins(n, words, "function"))
            function_message(&w, n, words, text);
        free(copy);
    }
}

void onnx_write_text(const char *path, const char *text)
{
    struct onnx_bytes bytes = { 0 };
    FILE *file = fopen(path, "wb");

    onnx_from_text(text, NULL, &bytes);
    if (!file || fwrite(bytes.data, 1, bytes.size, file) != bytes.size || fclose(file))
        wrong("cannot write", path);
    free(bytes.data);
}
