/* SPDX-License-Identifier: MIT */
#include "train/npy.h"

#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define MAGIC_SIZE (sizeof(NPY_MAGIC) - 1)

/* The header, a text of 'left' bytes from 'at' on. */
struct text {
    const char *path;
    const char *at;
    size_t left;
    struct err *err;
};

enum key { KEY_DESCR, KEY_ORDER, KEY_SHAPE, KEY_COUNT };

static const char *const keys[] = { "descr", "fortran_order", "shape" };

static const struct {
    const char *descr;
    enum dtype dtype;
} types[] = {
    { "<f4", DTYPE_F32 }, { "<f8", DTYPE_F64 }, { "<i4", DTYPE_I32 }, { "<i8", DTYPE_I64 },
    { "|u1", DTYPE_U8 },  { "|b1", DTYPE_BOOL }, { "<u1", DTYPE_U8 }, { "<b1", DTYPE_BOOL },
    { "<f2", DTYPE_F16 }, { "|i1", DTYPE_I8 },  { "<i1", DTYPE_I8 },  { "<i2", DTYPE_I16 },
    { "<u2", DTYPE_U16 }, { "<u4", DTYPE_U32 }, { "<u8", DTYPE_U64 },
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int fail(const struct text *t, const char *what)
{
    return err_set(t->err, "%s: the header of the array: %s", t->path, what);
}

static void skip_space(struct text *t)
{
    while (t->left > 0 && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t')) {
        t->at++;
        t->left--;
    }
}

/* The next character is taken if it is this one. */
static bool take(struct text *t, char c)
{
    skip_space(t);
    if (t->left == 0 || *t->at != c)
        return false;
    t->at++;
    t->left--;
    return true;
}

static bool take_word(struct text *t, const char *word)
{
    size_t n = strlen(word);

    skip_space(t);
    if (t->left < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    t->left -= n;
    return true;
}

/* A quoted string without escapes; false where there is none, or it is too long. */
static bool take_string(struct text *t, char *out, size_t size)
{
    const char *end;
    char quote;
    size_t n;

    skip_space(t);
    if (t->left == 0 || (*t->at != '\'' && *t->at != '"'))
        return false;
    quote = *t->at;
    end = memchr(t->at + 1, quote, t->left - 1);
    n = end ? (size_t)(end - t->at - 1) : size;
    if (n >= size)
        return false;
    for (size_t i = 0; i < n; i++)
        out[i] = t->at[1 + i] >= ' ' && t->at[1 + i] <= '~' ? t->at[1 + i] : '?';
    out[n] = '\0';
    t->at += n + 2;
    t->left -= n + 2;
    return true;
}

static bool take_size(struct text *t, int64_t *size)
{
    int64_t n = 0;
    int digits = 0;

    skip_space(t);
    for (; t->left > 0 && *t->at >= '0' && *t->at <= '9'; t->at++, t->left--, digits++) {
        if (n > (INT64_MAX - 9) / 10)
            return false;
        n = 10 * n + (*t->at - '0');
    }
    take(t, 'L');       /* Python 2 wrote long integers so */
    *size = n;
    return digits > 0;
}

static int parse_descr(struct text *t, struct npy *npy)
{
    char descr[32];

    if (!take_string(t, descr, sizeof(descr)))
        return fail(t, "'descr' is no plain type: arrays of records are not supported");
    for (size_t i = 0; i < COUNT(types); i++)
        if (strcmp(descr, types[i].descr) == 0) {
            npy->dtype = types[i].dtype;
            return 0;
        }
    if (descr[0] == '>')
        return fail(t, "big-endian: save it as little-endian");
    return err_set(t->err, "%s: type '%s' is not supported (floats of 16, 32 or 64 bits, "
                   "integers of 8 to 64, bool)", t->path, descr);
}

static int parse_order(struct text *t)
{
    if (take_word(t, "False"))
        return 0;
    if (take_word(t, "True"))
        return err_set(t->err, "%s: the array is in Fortran's order: save "
                       "numpy.ascontiguousarray() of it", t->path);
    return fail(t, "'fortran_order' is neither True nor False");
}

static int parse_shape(struct text *t, struct npy *npy)
{
    bool comma = true;

    if (!take(t, '('))
        return fail(t, "'shape' is no tuple");
    npy->shape.rank = 0;
    while (!take(t, ')')) {
        if (!comma)
            return fail(t, "'shape' is no tuple of sizes");
        if (npy->shape.rank == GRAPH_MAX_RANK)
            return err_set(t->err, "%s: more than %d dimensions", t->path, GRAPH_MAX_RANK);
        if (!take_size(t, &npy->shape.dim[npy->shape.rank++]))
            return fail(t, "'shape' is no tuple of sizes");
        comma = take(t, ',');
    }
    if (npy->shape.rank == 1 && !comma)
        return fail(t, "'shape' is no tuple of sizes");
    return 0;
}

static int parse_entry(struct text *t, struct npy *npy, bool seen[KEY_COUNT])
{
    char name[32];
    size_t k = 0;

    if (!take_string(t, name, sizeof(name)))
        return fail(t, "no dictionary");
    while (k < KEY_COUNT && strcmp(name, keys[k]) != 0)
        k++;
    if (k == KEY_COUNT || seen[k])
        return fail(t, "not 'descr', 'fortran_order' and 'shape', each once");
    if (!take(t, ':'))
        return fail(t, "no dictionary");
    seen[k] = true;
    switch ((enum key)k) {
    case KEY_DESCR: return parse_descr(t, npy);
    case KEY_ORDER: return parse_order(t);
    default: return parse_shape(t, npy);
    }
}

static int parse_header(struct text *t, struct npy *npy)
{
    bool seen[KEY_COUNT] = { false }, comma = true;

    if (!take(t, '{'))
        return fail(t, "no dictionary");
    while (!take(t, '}')) {
        if (!comma)
            return fail(t, "no dictionary");
        if (parse_entry(t, npy, seen) < 0)
            return -1;
        comma = take(t, ',');
    }
    skip_space(t);
    if (t->left > 0)
        return fail(t, "something follows the dictionary");
    for (size_t k = 0; k < KEY_COUNT; k++)
        if (!seen[k])
            return fail(t, "not 'descr', 'fortran_order' and 'shape', each once");
    return 0;
}

/* The header's place; 0 where the file ends before it does. */
static size_t find_header(const unsigned char *bytes, size_t size, size_t *length)
{
    size_t start = MAGIC_SIZE + 4;

    if (size < start || (bytes[MAGIC_SIZE] > 1 && size < start + 2))
        return 0;
    *length = (size_t)(bytes[MAGIC_SIZE + 2] | bytes[MAGIC_SIZE + 3] << 8);
    if (bytes[MAGIC_SIZE] > 1) {
        *length |= (size_t)bytes[MAGIC_SIZE + 4] << 16 | (size_t)bytes[MAGIC_SIZE + 5] << 24;
        start += 2;
    }
    return *length <= size - start ? start : 0;
}

/* Bytes of the elements; -1 where they are too many to count. */
static int count_bytes(const struct npy *npy, size_t *bytes)
{
    *bytes = dtype_size(npy->dtype);
    for (int i = 0; i < npy->shape.rank; i++)
        if (size_mul(*bytes, (size_t)npy->shape.dim[i], bytes) < 0)
            return -1;
    return 0;
}

/* A dimension of 0 hides how long the others are, which are multiplied elsewhere. */
static bool is_empty(const struct npy *npy)
{
    for (int i = 0; i < npy->shape.rank; i++)
        if (npy->shape.dim[i] == 0)
            return true;
    return false;
}

int npy_parse(const char *path, const unsigned char *bytes, size_t size, struct npy *npy,
              struct err *err)
{
    struct npy found = { 0 };
    struct text text = { .path = path, .err = err };
    size_t start, length, need;

    if (size < MAGIC_SIZE + 2 || memcmp(bytes, NPY_MAGIC, MAGIC_SIZE) != 0)
        return err_set(err, "%s: no .npy file: it does not start with \\x93NUMPY", path);
    if (bytes[MAGIC_SIZE] < 1 || bytes[MAGIC_SIZE] > 3)
        return err_set(err, "%s: version %d of .npy is not known (1 to 3)", path,
                       bytes[MAGIC_SIZE]);
    start = find_header(bytes, size, &length);
    if (!start)
        return err_set(err, "%s: the file ends inside its header", path);
    text.at = (const char *)bytes + start;
    text.left = length;
    if (parse_header(&text, &found) < 0)
        return -1;
    if (is_empty(&found))
        return err_set(err, "%s: the array is empty", path);
    if (count_bytes(&found, &need) < 0 || need != size - start - length)
        return err_set(err, "%s: the shape and the %zu bytes of elements do not agree", path,
                       size - start - length);
    found.data = bytes + start + length;
    *npy = found;
    return 0;
}
