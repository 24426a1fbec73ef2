/* SPDX-License-Identifier: MIT */
#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/plain.h"

#define MAX_BYTES ((size_t)256 << 20)
#define MAX_DEPTH 64
#define MAX_KEYS 512    /* bits of json_reader.seen */

/* jansson itself allows 2048 levels, which our own recursion over a tree would not survive. */
static bool too_deep(const unsigned char *data, size_t size)
{
    bool quoted = false;
    int depth = 0;

    for (size_t i = 0; i < size; i++) {
        unsigned char c = data[i];

        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{') && ++depth > MAX_DEPTH)
            return true;
        else if (!quoted && (c == ']' || c == '}'))
            depth--;
    }
    return false;
}

json_t *json_parse(const char *path, const void *data, size_t size, struct err *err)
{
    json_error_t error;
    json_t *json;

    if (size > MAX_BYTES) {
        err_set(err, "%s: more than %zu MiB of JSON", path, MAX_BYTES >> 20);
        return NULL;
    }
    if (too_deep(data, size)) {
        err_set(err, "%s: nested deeper than %d levels", path, MAX_DEPTH);
        return NULL;
    }
    json = json_loadb(data, size, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        plain_line(error.text);
        err_set(err, "%s:%d: %s", path, error.line, error.text);
        if (strstr(error.text, "overflow") || strstr(error.text, "Infinity") ||
            strstr(error.text, "NaN"))
            err_hint(err, "JSON has finite numbers alone: leave out what is not known, or has no "
                     "limit");
    }
    return json;
}

json_t *json_load(const char *path, struct err *err)
{
    struct file_map map;
    json_t *json = NULL;

    if (file_map_open(path, &map, err))
        return NULL;
    if (map.size == 0)
        err_set(err, "%s: the file is empty", path);
    else
        json = json_parse(path, map.data, map.size, err);
    file_map_close(&map);
    return json;
}

static int error_at(const struct json_reader *r, const char *key, struct err *err,
                    const char *format, va_list args)
{
    char text[512];

    vsnprintf(text, sizeof(text), format, args);
    return err_set(err, "%s: %s%s%s%s%s", r->file, r->where, r->where[0] && key ? "." : "",
                   key ? key : "", r->where[0] || key ? ": " : "", text);
}

int json_error(const struct json_reader *r, const char *key, struct err *err,
               const char *format, ...)
{
    va_list args;

    va_start(args, format);
    error_at(r, key, err, format, args);
    va_end(args);
    return -1;
}

static int start(struct json_reader *r, const json_t *object, struct err *err)
{
    memset(r->seen, 0, sizeof(r->seen));
    r->object = object;
    if (!json_is_object(object))
        return json_error(r, NULL, err, "expected an object");
    if (json_object_size(object) > MAX_KEYS)
        return json_error(r, NULL, err, "more than %d keys", MAX_KEYS);
    return 0;
}

int json_reader_sub(struct json_reader *r, const struct json_reader *parent, const char *key,
                    int index, const json_t *object, struct err *err)
{
    const char *dot = parent->where[0] ? "." : "";

    r->file = parent->file;
    if (index >= 0)
        snprintf(r->where, sizeof(r->where), "%.128s%s%.96s[%d]", parent->where, dot, key,
                 index);
    else
        snprintf(r->where, sizeof(r->where), "%.128s%s%.96s", parent->where, dot, key);
    return start(r, object, err);
}

/* The key's position, to mark it as asked for; NULL where it is absent. */
static const json_t *take(struct json_reader *r, const char *key)
{
    json_t *object = (json_t *)r->object; /* jansson iterates over what is not const */
    unsigned i = 0;

    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at), i++)
        if (strcmp(json_object_iter_key(at), key) == 0) {
            r->seen[i / 64] |= (uint64_t)1 << (i % 64);
            return json_object_iter_value(at);
        }
    return NULL;
}

int json_reader_top(struct json_reader *r, const char *file, const json_t *top,
                    const char *schema, int version, struct err *err)
{
    const char *name;
    int64_t number;

    r->file = file;
    r->where[0] = '\0';
    if (start(r, top, err) || json_get_string(r, "schema", true, NULL, &name, err))
        return -1;
    if (strcmp(name, schema) != 0)
        return json_error(r, "schema", err, "expected \"%s\", got \"%.64s\"", schema, name);
    if (json_get_int(r, "version", 0, INT32_MAX, NULL, &number, err))
        return -1;
    if (number != version)
        return json_error(r, "version", err, "expected %d, got %lld", version,
                          (long long)number);
    return 0;
}

int json_get_number(struct json_reader *r, const char *key, double min, double max,
                    const double *def, double *value, struct err *err)
{
    const json_t *json = take(r, key);
    double number;

    if (!json && def) {
        *value = *def;
        return 0;
    }
    if (!json)
        return json_error(r, key, err, "missing");
    number = json_number_value(json);
    if (!json_is_number(json) || !(number >= min && number <= max)) {
        if (max < 1e300)
            return json_error(r, key, err, "expected a number from %g to %g", min, max);
        return json_error(r, key, err, "expected a number, at least %g", min);
    }
    *value = number;
    return 0;
}

/* Other writers print 4 as 4.0: the same number. */
static bool integer_of(const json_t *json, int64_t *value)
{
    double real = json_real_value(json);

    if (json_is_integer(json)) {
        *value = json_integer_value(json);
        return true;
    }
    if (!json_is_real(json) || real != floor(real) || fabs(real) > 0x1p53)
        return false;
    *value = (int64_t)real;
    return true;
}

int json_get_int(struct json_reader *r, const char *key, int64_t min, int64_t max,
                 const int64_t *def, int64_t *value, struct err *err)
{
    const json_t *json = take(r, key);
    int64_t number;

    if (!json && def) {
        *value = *def;
        return 0;
    }
    if (!json)
        return json_error(r, key, err, "missing");
    if (integer_of(json, &number) && number >= min && number <= max) {
        *value = number;
        return 0;
    }
    if (max >= INT64_MAX / 2)
        return json_error(r, key, err, "expected an integer, at least %lld", (long long)min);
    return json_error(r, key, err, "expected an integer from %lld to %lld", (long long)min,
                      (long long)max);
}

int json_get_bool(struct json_reader *r, const char *key, const bool *def, bool *value,
                  struct err *err)
{
    const json_t *json = take(r, key);

    if (!json && def) {
        *value = *def;
        return 0;
    }
    if (!json)
        return json_error(r, key, err, "missing");
    if (!json_is_boolean(json))
        return json_error(r, key, err, "expected true or false");
    *value = json_is_true(json);
    return 0;
}

int json_get_string(struct json_reader *r, const char *key, bool required, const char *def,
                    const char **value, struct err *err)
{
    const json_t *json = take(r, key);

    if (!json && required)
        return json_error(r, key, err, "missing");
    if (json && !json_is_string(json))
        return json_error(r, key, err, "expected a string");
    *value = json ? json_string_value(json) : def;
    return 0;
}

int json_get_array(struct json_reader *r, const char *key, bool required,
                   const json_t **value, struct err *err)
{
    const json_t *json = take(r, key);

    if (!json && required)
        return json_error(r, key, err, "missing");
    if (json && !json_is_array(json))
        return json_error(r, key, err, "expected an array");
    *value = json;
    return 0;
}

int json_get_object(struct json_reader *r, const char *key, bool required,
                    const json_t **value, struct err *err)
{
    const json_t *json = take(r, key);

    if (!json && required)
        return json_error(r, key, err, "missing");
    if (json && !json_is_object(json))
        return json_error(r, key, err, "expected an object");
    *value = json;
    return 0;
}

int json_reader_end(struct json_reader *r, struct err *err)
{
    json_t *object = (json_t *)r->object;
    unsigned i = 0;

    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at), i++)
        if (!(r->seen[i / 64] >> (i % 64) & 1))
            return json_error(r, NULL, err, "unknown key \"%.64s\"", json_object_iter_key(at));
    return 0;
}

bool json_is_text(const char *text)
{
    json_t *string = json_string(text);
    bool is_text = string != NULL;

    json_decref(string);
    return is_text;
}

int json_save(const json_t *value, const char *path, struct err *err)
{
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
    size_t length;
    int result;

    if (!text)
        return err_set(err, "%s: cannot be written as JSON", path);
    length = strlen(text);
    text[length] = '\n'; /* in place of the terminator: file_write() takes a length */
    result = file_write(path, text, length + 1, err);
    free(text);
    return result;
}
