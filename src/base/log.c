/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static struct {
    enum log_level level;
    int rank;
} logger = { LOG_INFO, -1 };

void log_setup(enum log_level level, int rank)
{
    logger.level = level;
    logger.rank = rank;
}

void log_say(enum log_level level, const char *format, ...)
{
    static const char *const word[] = { "error: ", "warning: ", "", "" };
    char line[4096];
    va_list args;

    if (level > logger.level)
        return;
    if (level >= LOG_INFO && logger.rank > 0 && logger.level < LOG_DEBUG)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (logger.rank > 0)
        fprintf(stderr, "tasuki: rank %d: %s%s\n", logger.rank, word[level], line);
    else
        fprintf(stderr, "tasuki: %s%s\n", word[level], line);
}
