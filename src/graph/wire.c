/* SPDX-License-Identifier: MIT */
#include "graph/wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

enum wire_type { TYPE_VARINT = 0, TYPE_FIXED64 = 1, TYPE_LENGTH = 2, TYPE_FIXED32 = 5 };

struct scan {
    const unsigned char *file, *end;
    size_t elements;
    bool offsets;
    struct wire_copy *copy;
    size_t room;
    struct err *err;
};

/* One field as it stands in the file. */
struct item {
    const unsigned char *start;     /* of the tag */
    const unsigned char *payload, *end;
    uint32_t number;
    enum wire_type type;
};

const unsigned char *wire_varint(const unsigned char *at, const unsigned char *end,
                                 uint64_t *value)
{
    uint64_t result = 0;
    int shift;

    for (shift = 0; shift < 70 && at < end; shift += 7, at++) {
        if (shift < 64)
            result |= (uint64_t)(*at & 0x7f) << shift;
        if (!(*at & 0x80)) {
            *value = result;
            return at + 1;
        }
    }
    return NULL;
}

size_t wire_put_varint(unsigned char to[10], uint64_t value)
{
    size_t n = 0;

    do {
        to[n] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
        n++;
    } while (value);
    return n;
}

void wire_put_length(unsigned char to[WIRE_LENGTH_SIZE], size_t length)
{
    int i;

    for (i = 0; i < WIRE_LENGTH_SIZE; i++)
        to[i] = (unsigned char)((length >> (7 * i) & 0x7f) |
                                (i < WIRE_LENGTH_SIZE - 1 ? 0x80 : 0));
}

/* Most take one byte. */
static inline const unsigned char *read_varint(const unsigned char *at,
                                               const unsigned char *end, uint64_t *value)
{
    if (at < end && *at < 0x80) {
        *value = *at;
        return at + 1;
    }
    return wire_varint(at, end, value);
}

static int fail(const struct scan *s, const unsigned char *at, const char *text)
{
    return err_set(s->err, "byte %zu: %s", (size_t)(at - s->file), text);
}

/* Writing the copy ------------------------------------------------------------------- */

static void put(struct scan *s, const void *bytes, size_t size)
{
    struct wire_copy *copy = s->copy;

    if (copy->size + size > s->room) {
        s->room = 2 * (copy->size + size);
        copy->bytes = mem_resize(copy->bytes, s->room, 1);
    }
    if (size)
        memcpy(copy->bytes + copy->size, bytes, size);
    copy->size += size;
}

static void put_varint(struct scan *s, uint64_t value)
{
    unsigned char text[10] = { (unsigned char)value };

    put(s, text, value < 0x80 ? 1 : wire_put_varint(text, value));
}

static size_t begin_message(struct scan *s, uint32_t number)
{
    static const unsigned char length[WIRE_LENGTH_SIZE];

    put_varint(s, (uint64_t)number << 3 | TYPE_LENGTH);
    put(s, length, sizeof(length));
    return s->copy->size;
}

static void end_message(struct scan *s, size_t start)
{
    wire_put_length(s->copy->bytes + start - WIRE_LENGTH_SIZE, s->copy->size - start);
}

static void put_data(struct scan *s, const struct item *item)
{
    put_varint(s, (uint64_t)WIRE_DATA_FIELD << 3);
    put_varint(s, item->number);
    if (s->offsets) {
        put_varint(s, (uint64_t)WIRE_DATA_OFFSET << 3);
        put_varint(s, (uint64_t)(item->payload - s->file));
    }
    put_varint(s, (uint64_t)WIRE_DATA_SIZE << 3);
    put_varint(s, (uint64_t)(item->end - item->payload));
}

/* Reading ---------------------------------------------------------------------------- */

static int read_payload(struct scan *s, const unsigned char *end, struct item *item)
{
    const unsigned char *at = item->payload;
    uint64_t length = 0;

    switch (item->type) {
    case TYPE_VARINT:
        item->end = read_varint(at, end, &length);
        return item->end ? 0 : fail(s, at, "a number is cut off");
    case TYPE_FIXED64:
        length = 8;
        break;
    case TYPE_FIXED32:
        length = 4;
        break;
    case TYPE_LENGTH:
        at = read_varint(at, end, &length);
        if (!at)
            return fail(s, item->payload, "a length is cut off");
        break;
    default:
        return fail(s, item->start, "groups are not allowed");
    }
    if (length > (uint64_t)(end - at))
        return fail(s, item->start, "a field runs past the end of what contains it");
    item->payload = at;
    item->end = at + length;
    return 0;
}

static int read_item(struct scan *s, const unsigned char *at, const unsigned char *end,
                     struct item *item)
{
    uint64_t tag;

    item->start = at;
    item->payload = read_varint(at, end, &tag);
    if (!item->payload)
        return fail(s, at, "a field is cut off");
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return fail(s, at, "a field number is out of range");
    if (++s->elements > WIRE_MAX_ELEMENTS)
        return fail(s, at, "too many elements");
    item->number = (uint32_t)(tag >> 3);
    item->type = (enum wire_type)(tag & 7);
    return read_payload(s, end, item);
}

/* Length of the UTF-8 sequence at 'at', 0 where it is none or a control character. */
static size_t text_step(const unsigned char *at, const unsigned char *end)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t n = *at < 0x80 ? 1 : *at < 0xc0 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;
    uint32_t code = n == 1 ? *at : *at & (0x7fu >> n);
    size_t i;

    if (n == 0 || *at >= 0xf8 || (size_t)(end - at) < n)
        return 0;
    for (i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code < least[n] || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000) || code == 0x2028 || code == 0x2029)
        return 0;
    return n;
}

/* Are the next eight letters from ' ' to '~'? What is below borrows, what is above carries. */
static bool is_plain(const unsigned char *at)
{
    const uint64_t each = 0x0101010101010101;
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return !((word | (word - ' ' * each) | (word + each)) & 0x80 * each);
}

static int check_text(struct scan *s, const struct item *item)
{
    const unsigned char *at = item->payload;

    while (at < item->end) {
        size_t step;

        if (item->end - at >= 8 && is_plain(at))
            step = 8;
        else
            step = *at >= ' ' && *at <= '~' ? 1 : text_step(at, item->end);

        if (!step)
            return fail(s, at, "a name is not plain UTF-8 text");
        at += step;
    }
    return 0;
}

/* Numbers, single or packed. */
static int check_numbers(struct scan *s, const struct wire_field *field,
                         const struct item *item)
{
    const unsigned char *at = item->payload;
    size_t n = (size_t)(item->end - at);
    uint64_t value;

    if (item->type != TYPE_LENGTH)
        return item->type == (field->kind == WIRE_FLOAT ? TYPE_FIXED32 : TYPE_VARINT)
                   ? 0 : fail(s, item->start, "a field has the wrong type");
    if (!field->repeated)
        return fail(s, item->start, "a field has the wrong type");
    s->elements += field->kind == WIRE_FLOAT ? n / 4 : n;
    if (s->elements > WIRE_MAX_ELEMENTS)
        return fail(s, item->start, "too many elements");
    if (field->kind == WIRE_FLOAT)
        return n % 4 ? fail(s, item->start, "packed numbers are cut off") : 0;
    while (at < item->end) {
        at = read_varint(at, item->end, &value);
        if (!at)
            return fail(s, item->start, "packed numbers are cut off");
    }
    return 0;
}

static int strip_message(struct scan *s, const struct wire_message *message,
                         const unsigned char *at, const unsigned char *end, int depth,
                         bool keep);

static int strip_field(struct scan *s, const struct wire_field *field, const struct item *item,
                       int depth, bool keep)
{
    size_t start = 0;

    if (field->kind == WIRE_REFUSED)
        return fail(s, item->start, field->why);
    if (field->kind == WIRE_VARINT || field->kind == WIRE_FLOAT) {
        if (check_numbers(s, field, item))
            return -1;
    } else if (item->type != TYPE_LENGTH) {
        return fail(s, item->start, field->kind == WIRE_DATA
                                        ? "tensor data must be packed"
                                        : "a field has the wrong type");
    }
    if (field->kind == WIRE_TEXT && check_text(s, item))
        return -1;
    if (field->kind == WIRE_MESSAGE || field->kind == WIRE_HIDDEN) {
        keep = keep && field->kind == WIRE_MESSAGE;
        if (keep)
            start = begin_message(s, field->number);
        if (strip_message(s, field->message, item->payload, item->end, depth + 1, keep))
            return -1;
        if (keep)
            end_message(s, start);
    } else if (keep && field->kind == WIRE_DATA) {
        put_data(s, item);
    } else if (keep) {
        put(s, item->start, (size_t)(item->end - item->start));
    }
    return 0;
}

static int strip_message(struct scan *s, const struct wire_message *message,
                         const unsigned char *at, const unsigned char *end, int depth,
                         bool keep)
{
    const struct wire_field *field;
    uint32_t seen = 0;
    bool data = false;

    if (depth > WIRE_MAX_DEPTH)
        return fail(s, at, "messages are nested too deep");
    while (at < end) {
        struct item item = { 0 };

        if (read_item(s, at, end, &item))
            return -1;
        for (field = message->fields; field->number; field++)
            if (field->number == item.number)
                break;
        at = item.end;
        if (!field->number)
            continue;
        if ((!field->repeated && seen & 1u << (field - message->fields)) ||
            (data && field->kind == WIRE_DATA))
            return err_set(s->err, "byte %zu: field %u of a %s is given twice",
                           (size_t)(item.start - s->file), item.number, message->name);
        seen |= 1u << (field - message->fields);
        data |= field->kind == WIRE_DATA;
        if (strip_field(s, field, &item, depth, keep))
            return -1;
    }
    return 0;
}

int wire_strip(const unsigned char *file, size_t size, const struct wire_message *message,
               bool offsets, struct wire_copy *copy, struct err *err)
{
    struct wire_copy result = { 0 };
    struct scan s = { .file = file, .offsets = offsets, .copy = &result, .err = err };

    if (size > WIRE_MAX_SIZE)
        return err_set(err, "2 GiB and more are not allowed in one protobuf file");
    if (size == 0)
        return err_set(err, "the file is empty");
    s.end = file + size;
    if (strip_message(&s, message, file, s.end, 1, true)) {
        free(result.bytes);
        return -1;
    }
    *copy = result;
    return 0;
}
