/* SPDX-License-Identifier: MIT */
/* The protobuf wire format, checked before anything is allocated for it.
 *
 * wire_strip() walks a message by a table of its fields and writes a copy that has only what
 * the table lists. Bulk data (WIRE_DATA) stays where it is: the copy has its field number,
 * offset and size instead. So the copy is small, whatever the weights, and what an unpacker
 * allocates for it is bounded by its number of elements.
 */
#ifndef TASUKI_GRAPH_WIRE_H
#define TASUKI_GRAPH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

#define WIRE_MAX_DEPTH 64
#define WIRE_MAX_ELEMENTS ((size_t)2 << 20)
#define WIRE_MAX_SIZE (((size_t)1 << 31) - 1)

/* Fields that stand for one WIRE_DATA field in the copy. */
enum { WIRE_DATA_FIELD = 1000, WIRE_DATA_OFFSET, WIRE_DATA_SIZE };

enum wire_kind {
    WIRE_VARINT,    /* repeated ones may be packed */
    WIRE_FLOAT,     /* 4 bytes; the same */
    WIRE_TEXT,      /* UTF-8 without control characters */
    WIRE_BYTES,
    WIRE_MESSAGE,
    WIRE_HIDDEN,    /* a message that is checked like the others and left out */
    WIRE_DATA,      /* at most one of all of these in a message */
    WIRE_REFUSED    /* 'why' says so */
};

struct wire_message;

struct wire_field {
    uint32_t number;            /* 0 ends the table */
    enum wire_kind kind;
    bool repeated;              /* else a second one is an error */
    const struct wire_message *message;
    const char *why;
};

struct wire_message {
    const char *name;           /* for errors */
    const struct wire_field *fields;
};

struct wire_copy {
    unsigned char *bytes;       /* free() it */
    size_t size;
};

/* Without 'offsets' the copy is independent of where the data stands: what is to be hashed. */
int wire_strip(const unsigned char *file, size_t size, const struct wire_message *message,
               bool offsets, struct wire_copy *copy, struct err *err);

/* Write one base-128 number; the bytes it takes. */
size_t wire_put_varint(unsigned char to[10], uint64_t value);
/* The length of a message, always as so many bytes: they are filled when it is known. */
enum { WIRE_LENGTH_SIZE = 5 };
void wire_put_length(unsigned char to[WIRE_LENGTH_SIZE], size_t length);
/* Read one base-128 number; NULL where it does not end before 'end' or within 10 bytes. */
const unsigned char *wire_varint(const unsigned char *at, const unsigned char *end,
                                 uint64_t *value);

#endif
