/* SPDX-License-Identifier: MIT */
/* Talk on stderr. Rank 0 alone speaks below LOG_WARNING, unless -v was given. */
#ifndef TASUKI_BASE_LOG_H
#define TASUKI_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

/* Called by main, before there are other threads (rank < 0: no prefix). */
void log_setup(enum log_level level, int rank);
/* Of this thread, once it is known; other threads stay what they are. */
void log_set_rank(int rank);
void log_say(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Would a line of this level be printed? */
bool log_speaks(enum log_level level);
/* A line at the bottom of a terminal that other talk pushes down (progress bars); NULL: what
 * stands there stays, and is left behind.
 */
void log_status(const char *text);

#define log_info(...) log_say(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_say(LOG_WARNING, __VA_ARGS__)
#define log_debug(...) log_say(LOG_DEBUG, __VA_ARGS__)

#endif
