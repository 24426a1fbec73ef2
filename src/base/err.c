/* SPDX-License-Identifier: MIT */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

static void fill(struct err *err, enum exit_code code, const char *format, va_list args)
{
    if (!err)
        return;
    vsnprintf(err->text, sizeof(err->text), format, args);
    err->code = code;
    err->number = 0;
}

int err_set(struct err *err, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fill(err, EXIT_FAILED, format, args);
    va_end(args);
    return -1;
}

int err_set_code(struct err *err, enum exit_code code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fill(err, code, format, args);
    va_end(args);
    return -1;
}

int err_hint(struct err *err, const char *format, ...)
{
    char hint[512];
    va_list args;
    size_t used;

    if (!err)
        return -1;
    va_start(args, format);
    vsnprintf(hint, sizeof(hint), format, args);
    va_end(args);
    used = strlen(err->text);
    snprintf(err->text + used, sizeof(err->text) - used, "; %s", hint);
    return -1;
}

int err_prefix(struct err *err, const char *format, ...)
{
    char prefix[512], rest[sizeof(err->text)];
    va_list args;

    if (!err)
        return -1;
    va_start(args, format);
    vsnprintf(prefix, sizeof(prefix), format, args);
    va_end(args);
    memcpy(rest, err->text, sizeof(rest));
    snprintf(err->text, sizeof(err->text), "%s: %.*s", prefix,
             (int)(sizeof(err->text) - strlen(prefix) - 3), rest);
    return -1;
}
