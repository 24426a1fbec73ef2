/* SPDX-License-Identifier: MIT */
/* Structs described by tables, so that creating, freeing, writing and reading them as JSON is
 * written once.
 *
 * A field that is "not known" (its default), unless required, has no key in the JSON: what was
 * not collected is thus never read back as "none".
 */
#ifndef TASUKI_TOPOLOGY_SHAPE_H
#define TASUKI_TOPOLOGY_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/json.h"

struct err;

enum shape_kind {
    SHAPE_TEXT,             /* char *, default "" */
    SHAPE_BOOL,             /* bool, default false */
    SHAPE_INT,              /* int */
    SHAPE_COUNT,            /* int64_t */
    SHAPE_REAL,             /* double, default 0 */
    SHAPE_WORD,             /* int: an index into 'words'; always written */
    SHAPE_TEXTS,            /* char ** and its count */
    SHAPE_INTS,             /* int * and its count */
    SHAPE_SET,              /* the same, ascending: "0-3,8" in JSON */
    SHAPE_LIST              /* structs of 'shape' and their count */
};

struct shape;

struct shape_field {
    const char *key;
    enum shape_kind kind;
    size_t at, count_at;    /* offsets in the struct; of the count: lists only */
    int64_t none;           /* INT, COUNT, lists' count: the value for "not known" */
    int64_t least, most;    /* of the value, or how many there may be */
    const struct shape *shape;
    const char *const *words;
    bool required;          /* TEXT, INT: always written, and missed where it is absent */
};

struct shape {
    size_t size;
    int n;
    const struct shape_field *fields;
};

/* Everything "not known". */
void shape_init(const struct shape *shape, void *object);
/* Frees what the fields point to, not the object. */
void shape_clear(const struct shape *shape, void *object);
/* Append an initialised element to the list 'field' of 'object'. */
void *shape_push(const struct shape_field *field, void *object);
json_t *shape_to_json(const struct shape *shape, const void *object);
/* 'object' was initialised; after an error it is to be cleared all the same. */
int shape_from_json(const struct shape *shape, void *object, struct json_reader *r,
                    struct err *err);

/* "0-3,8" and back; the set must ascend. -1: not a set, or a number above 'most'. */
char *set_text(int n, const int *set);
int set_parse(const char *text, int most, int *n, int **set);

#endif
