/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static struct {
    enum log_level level;
    int rank;
    char status[256];   /* "": nothing at the bottom of the terminal */
} logger = { LOG_INFO, -1, "" };

void log_setup(enum log_level level, int rank)
{
    logger.level = level;
    logger.rank = rank;
}

void log_set_rank(int rank)
{
    logger.rank = rank;
}

bool log_speaks(enum log_level level)
{
    if (level > logger.level)
        return false;
    return level < LOG_INFO || logger.rank <= 0 || logger.level >= LOG_DEBUG;
}

/* Names may come from any file: they are not to command a terminal, nor to begin a line. */
static void make_plain(enum log_level level, char *line)
{
    for (; *line; line++)
        if (((unsigned char)*line < ' ' && (*line != '\n' || level < LOG_INFO)) || *line == 127)
            *line = '?';
}

void log_say(enum log_level level, const char *format, ...)
{
    static const char *const word[] = { "error: ", "warning: ", "", "" };
    const char *clear = logger.status[0] ? "\r\033[K" : "";
    char line[4096];
    va_list args;

    if (!log_speaks(level))
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    make_plain(level, line);
    if (logger.rank > 0)
        fprintf(stderr, "%stasuki: rank %d: %s%s\n%s", clear, logger.rank, word[level], line,
                logger.status);
    else
        fprintf(stderr, "%stasuki: %s%s\n%s", clear, word[level], line, logger.status);
}

void log_status(const char *text)
{
    if (text) {
        snprintf(logger.status, sizeof(logger.status), "%s", text);
        fprintf(stderr, "\r\033[K%s", logger.status);
    } else if (logger.status[0]) {
        logger.status[0] = '\0';
        fputc('\n', stderr);
    }
    fflush(stderr);
}
