/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static struct {
    enum log_level level;
    pthread_mutex_t lock;
    char status[256];   /* under the lock; "": nothing at the bottom of the terminal */
} logger = { LOG_INFO, PTHREAD_MUTEX_INITIALIZER, "" };

static _Thread_local int own_rank = -1;

void log_setup(enum log_level level, int rank)
{
    logger.level = level;
    own_rank = rank;
}

void log_set_rank(int rank)
{
    own_rank = rank;
}

bool log_speaks(enum log_level level)
{
    if (level > logger.level)
        return false;
    return level < LOG_INFO || own_rank <= 0 || logger.level >= LOG_DEBUG;
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
    char line[4096], who[32] = "";
    va_list args;

    if (!log_speaks(level))
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    make_plain(level, line);
    if (own_rank > 0)
        snprintf(who, sizeof(who), "rank %d: ", own_rank);
    pthread_mutex_lock(&logger.lock);
    fprintf(stderr, "%stasuki: %s%s%s\n%s", logger.status[0] ? "\r\033[K" : "", who,
            word[level], line, logger.status);
    pthread_mutex_unlock(&logger.lock);
}

void log_status(const char *text)
{
    pthread_mutex_lock(&logger.lock);
    if (text) {
        snprintf(logger.status, sizeof(logger.status), "%s", text);
        fprintf(stderr, "\r\033[K%s", logger.status);
    } else if (logger.status[0]) {
        logger.status[0] = '\0';
        fputc('\n', stderr);
    }
    fflush(stderr);
    pthread_mutex_unlock(&logger.lock);
}
