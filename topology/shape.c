/* SPDX-License-Identifier: MIT */
#include "topology/shape.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define MOST_FIGURE 1e300       /* keeps sums and products finite */

static void *at(const struct shape_field *field, const void *object)
{
    return (char *)object + field->at;
}

static int *count_at(const struct shape_field *field, const void *object)
{
    return (int *)(void *)((char *)object + field->count_at);
}

static void *element(const struct shape_field *field, const void *object, int i)
{
    return *(char **)at(field, object) + (size_t)i * field->shape->size;
}

void shape_init(const struct shape *shape, void *object)
{
    memset(object, 0, shape->size);
    for (int i = 0; i < shape->n; i++) {
        const struct shape_field *f = &shape->fields[i];

        switch (f->kind) {
        case SHAPE_TEXT: *(char **)at(f, object) = mem_strdup(""); break;
        case SHAPE_INT: *(int *)at(f, object) = (int)f->none; break;
        case SHAPE_COUNT: *(int64_t *)at(f, object) = f->none; break;
        case SHAPE_TEXTS: case SHAPE_INTS: case SHAPE_SET: case SHAPE_LIST:
            *count_at(f, object) = (int)f->none;
            break;
        case SHAPE_BOOL: case SHAPE_REAL: case SHAPE_WORD: break;
        }
    }
}

void shape_clear(const struct shape *shape, void *object)
{
    for (int i = 0; i < shape->n; i++) {
        const struct shape_field *f = &shape->fields[i];
        bool many = f->kind == SHAPE_LIST || f->kind == SHAPE_TEXTS;
        int n = many ? *count_at(f, object) : 0;

        for (int j = 0; j < n && f->kind == SHAPE_LIST; j++)
            shape_clear(f->shape, element(f, object, j));
        for (int j = 0; j < n && f->kind == SHAPE_TEXTS; j++)
            free((*(char ***)at(f, object))[j]);
        if (many || f->kind == SHAPE_TEXT || f->kind == SHAPE_INTS || f->kind == SHAPE_SET)
            free(*(void **)at(f, object));
    }
}

void *shape_push(const struct shape_field *field, void *object)
{
    int *count = count_at(field, object);
    void *made;

    if (*count < 0)
        *count = 0;
    made = mem_push((void **)at(field, object), count, field->shape->size);
    shape_init(field->shape, made);
    return made;
}

char *set_text(int n, const int *set)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return mem_strdup("");
    for (int i = 0; i < n;) {
        int last = i;

        while (last + 1 < n && set[last + 1] == set[last] + 1)
            last++;
        fprintf(out, last > i ? "%s%d-%d" : "%s%d", i ? "," : "", set[i], set[last]);
        i = last + 1;
    }
    fclose(out);
    return text;
}

static int parse_number(const char **text, long most, long *value)
{
    char *end;

    if (!isdigit((unsigned char)**text))
        return -1;
    errno = 0;
    *value = strtol(*text, &end, 10);
    *text = end;
    return errno || *value > most ? -1 : 0;
}

int set_parse(const char *text, int most, int *n, int **set)
{
    int *members = NULL, count = 0;
    long first, last, next = 0;

    while (*text) {
        if (parse_number(&text, most, &first) || first < next)
            goto bad;
        last = first;
        if (*text == '-' && (text++, parse_number(&text, most, &last) || last < first))
            goto bad;
        members = mem_resize(members, (size_t)count + (size_t)(last - first) + 1, sizeof(int));
        for (next = first; next <= last; next++)
            members[count++] = (int)next;
        if (*text && (*text++ != ',' || !*text))
            goto bad;
    }
    *n = count;
    *set = members ? members : mem_new(0, sizeof(int));
    return 0;
bad:
    free(members);
    return -1;
}

static json_t *list_json(const struct shape_field *f, const void *object)
{
    json_t *array = json_array();
    int n = *count_at(f, object);

    for (int i = 0; i < n; i++)
        switch (f->kind) {
        case SHAPE_LIST:
            json_array_append_new(array, shape_to_json(f->shape, element(f, object, i)));
            break;
        case SHAPE_TEXTS:
            json_array_append_new(array, json_string((*(char ***)at(f, object))[i]));
            break;
        default:
            json_array_append_new(array, json_integer((*(int **)at(f, object))[i]));
        }
    return array;
}

static json_t *set_json(const struct shape_field *f, const void *object)
{
    char *text = set_text(*count_at(f, object), *(int **)at(f, object));
    json_t *json = json_string(text);

    free(text);
    return json;
}

/* NULL: not known. */
static json_t *field_json(const struct shape_field *f, const void *object)
{
    switch (f->kind) {
    case SHAPE_TEXT:
        return **(char **)at(f, object) || f->required ? json_string(*(char **)at(f, object))
                                                       : NULL;
    case SHAPE_BOOL:
        return *(bool *)at(f, object) ? json_true() : NULL;
    case SHAPE_INT:
        return *(int *)at(f, object) != f->none || f->required
                   ? json_integer(*(int *)at(f, object)) : NULL;
    case SHAPE_COUNT:
        return *(int64_t *)at(f, object) != f->none ? json_integer(*(int64_t *)at(f, object))
                                                    : NULL;
    case SHAPE_REAL:
        return *(double *)at(f, object) > 0 ? json_real(*(double *)at(f, object)) : NULL;
    case SHAPE_WORD:
        return json_string(f->words[*(int *)at(f, object)]);
    case SHAPE_SET:
        return *count_at(f, object) != f->none ? set_json(f, object) : NULL;
    case SHAPE_TEXTS: case SHAPE_INTS: case SHAPE_LIST:
        return *count_at(f, object) != f->none ? list_json(f, object) : NULL;
    }
    return NULL;
}

json_t *shape_to_json(const struct shape *shape, const void *object)
{
    json_t *json = json_object();

    for (int i = 0; i < shape->n; i++) {
        json_t *value = field_json(&shape->fields[i], object);

        if (value)
            json_object_set_new(json, shape->fields[i].key, value);
    }
    return json;
}

static int get_text(const struct shape_field *f, void *object, struct json_reader *r,
                    struct err *err)
{
    const char *value;

    if (json_get_string(r, f->key, f->required, "", &value, err))
        return -1;
    free(*(char **)at(f, object));
    *(char **)at(f, object) = mem_strdup(value);
    return 0;
}

static int get_word(const struct shape_field *f, void *object, struct json_reader *r,
                    struct err *err)
{
    const char *word;

    if (json_get_string(r, f->key, true, NULL, &word, err))
        return -1;
    for (int i = 0; f->words[i]; i++)
        if (strcmp(word, f->words[i]) == 0) {
            *(int *)at(f, object) = i;
            return 0;
        }
    return json_error(r, f->key, err, "\"%s\" is not known", word);
}

static int get_set(const struct shape_field *f, void *object, struct json_reader *r,
                   struct err *err)
{
    const char *text;

    if (json_get_string(r, f->key, false, NULL, &text, err))
        return -1;
    if (text && set_parse(text, (int)f->most, count_at(f, object), (int **)at(f, object)))
        return json_error(r, f->key, err, "expected ascending numbers such as \"0-3,8\"");
    return 0;
}

static int get_element(const struct shape_field *f, void *object, struct json_reader *r,
                       int index, const json_t *value, struct err *err)
{
    struct json_reader inner;

    switch (f->kind) {
    case SHAPE_LIST:
        if (json_reader_sub(&inner, r, f->key, index, value, err))
            return -1;
        return shape_from_json(f->shape, shape_push(f, object), &inner, err);
    case SHAPE_TEXTS:
        if (!json_is_string(value))
            return json_error(r, f->key, err, "expected strings");
        *(char **)mem_push((void **)at(f, object), count_at(f, object), sizeof(char *)) =
            mem_strdup(json_string_value(value));
        return 0;
    default:
        if (!json_is_integer(value) || json_integer_value(value) < f->least ||
            json_integer_value(value) > INT32_MAX)
            return json_error(r, f->key, err, "expected numbers from %lld on",
                              (long long)f->least);
        *(int *)mem_push((void **)at(f, object), count_at(f, object), sizeof(int)) =
            (int)json_integer_value(value);
        return 0;
    }
}

static int get_list(const struct shape_field *f, void *object, struct json_reader *r,
                    struct err *err)
{
    const json_t *array;

    if (json_get_array(r, f->key, false, &array, err))
        return -1;
    if (!array)
        return 0;
    if (json_array_size(array) > (size_t)f->most)
        return json_error(r, f->key, err, "there are too many");
    *count_at(f, object) = 0;
    for (size_t i = 0; i < json_array_size(array); i++)
        if (get_element(f, object, r, (int)i, json_array_get(array, i), err))
            return -1;
    return 0;
}

static int get_field(const struct shape_field *f, void *object, struct json_reader *r,
                     struct err *err)
{
    static const double zero = 0;
    static const bool no = false;
    int64_t value;

    switch (f->kind) {
    case SHAPE_TEXT: return get_text(f, object, r, err);
    case SHAPE_BOOL: return json_get_bool(r, f->key, &no, at(f, object), err);
    case SHAPE_INT:
        if (json_get_int(r, f->key, f->least, f->most, f->required ? NULL : &f->none, &value,
                         err))
            return -1;
        *(int *)at(f, object) = (int)value;
        return 0;
    case SHAPE_COUNT:
        return json_get_int(r, f->key, f->least, INT64_MAX, &f->none, at(f, object), err);
    case SHAPE_REAL:
        return json_get_number(r, f->key, 0, MOST_FIGURE, &zero, at(f, object), err);
    case SHAPE_WORD: return get_word(f, object, r, err);
    case SHAPE_SET: return get_set(f, object, r, err);
    case SHAPE_TEXTS: case SHAPE_INTS: case SHAPE_LIST: return get_list(f, object, r, err);
    }
    return -1;
}

int shape_from_json(const struct shape *shape, void *object, struct json_reader *r,
                    struct err *err)
{
    for (int i = 0; i < shape->n; i++)
        if (get_field(&shape->fields[i], object, r, err))
            return -1;
    return json_reader_end(r, err);
}
