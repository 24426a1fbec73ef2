/* SPDX-License-Identifier: MIT */
/* JSON files read strictly: every error names the file and the key.
 *
 * A 'json_reader' wraps one object of a file with its path for messages ("plan.json:
 * stages[2].replicas: expected a positive integer"). Keys that are asked for are marked;
 * json_reader_end() refuses the others.
 */
#ifndef TASUKI_BASE_JSON_H
#define TASUKI_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

struct json_reader {
    const char *file;   /* for messages */
    char where[256];    /* "stages[2]", "" at the top */
    const json_t *object;
    uint64_t seen[8];   /* bit i: the i-th key was asked for */
};

/* Parse a whole file: at most 64 levels, 256 MiB, no duplicate keys. json_decref() it. */
json_t *json_load(const char *path, struct err *err);
/* The same of text in memory; 'path' is for the errors. */
json_t *json_parse(const char *path, const void *data, size_t size, struct err *err);

/* Check "schema" and "version" and start reading the top object. */
int json_reader_top(struct json_reader *r, const char *file, const json_t *top,
                    const char *schema, int version, struct err *err);
/* Start reading 'object', which stands at "WHERE.KEY" or "WHERE.KEY[index]" (index >= 0). */
int json_reader_sub(struct json_reader *r, const struct json_reader *parent, const char *key,
                    int index, const json_t *object, struct err *err);
/* The following return -1 with 'err' where the key is absent or of another type or range.
 * With 'def' != NULL an absent key gives '*def'.
 */
int json_get_number(struct json_reader *r, const char *key, double min, double max,
                    const double *def, double *value, struct err *err);
int json_get_int(struct json_reader *r, const char *key, int64_t min, int64_t max,
                 const int64_t *def, int64_t *value, struct err *err);
int json_get_bool(struct json_reader *r, const char *key, const bool *def, bool *value,
                  struct err *err);
/* The string lives as long as the JSON tree. 'def' may be NULL only if 'required'. */
int json_get_string(struct json_reader *r, const char *key, bool required, const char *def,
                    const char **value, struct err *err);
/* An array or object; NULL in '*value' where absent and not required. */
int json_get_array(struct json_reader *r, const char *key, bool required,
                   const json_t **value, struct err *err);
int json_get_object(struct json_reader *r, const char *key, bool required,
                    const json_t **value, struct err *err);
/* Refuse keys that nobody asked for. */
int json_reader_end(struct json_reader *r, struct err *err);

/* An error about a key: "FILE: WHERE.KEY: TEXT". Always -1. */
int json_error(const struct json_reader *r, const char *key, struct err *err,
               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Is it UTF-8, which JSON is? File names need not be. */
bool json_is_text(const char *text);

/* Write pretty JSON by file_write(); takes no reference. */
int json_save(const json_t *value, const char *path, struct err *err);

#endif
