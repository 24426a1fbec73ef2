/* SPDX-License-Identifier: MIT */
#include "base/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define WIDEST 160

struct progress {
    char *what;
    int64_t done, total;
    int tenth;              /* of the total, at the last line */
    bool terminal, silent, drawn;
    double start, last;     /* seconds */
    char remark[WIDEST];
};

static void format_time(double seconds, char text[32])
{
    unsigned s = seconds < 3.6e6 ? (unsigned)seconds : 3600000;

    if (s >= 3600)
        snprintf(text, 32, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, 32, "%u:%02u", s / 60, s % 60);
}

void progress_format(const char *what, int64_t done, int64_t total, double seconds,
                     const char *remark, int width, char *text, int room)
{
    char passed[32], left[32], tail[WIDEST];
    int bar, full, used;

    format_time(seconds, passed);
    if (total <= 0) {
        snprintf(text, (size_t)room, "%s %lld  %s  %s", what, (long long)done, passed, remark);
        return;
    }
    format_time(done > 0 ? seconds * (double)(total - done) / (double)done : 0, left);
    snprintf(tail, sizeof(tail), " %lld/%lld  %s", (long long)done, (long long)total, passed);
    used = (int)strlen(tail);
    if (done > 0 && done < total)
        used += snprintf(tail + used, sizeof(tail) - (size_t)used, " (%s left)", left);
    snprintf(tail + used, sizeof(tail) - (size_t)used, "  %s", remark);
    bar = width - (int)strlen(what) - (int)strlen(tail) - 4;
    if (bar < 8) {
        snprintf(text, (size_t)room, "%s%s", what, tail);
        return;
    }
    if (bar > 40)
        bar = 40;
    full = (int)((double)bar * (double)done / (double)total);
    used = snprintf(text, (size_t)room, "%s [", what);
    for (int i = 0; i < bar && used < room - 2; i++)
        text[used++] = i < full ? '#' : '-';
    snprintf(text + used, (size_t)(room - used), "]%s", tail);
}

static int terminal_width(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 20)
        return 80;
    return size.ws_col < WIDEST ? size.ws_col : WIDEST;
}

static void draw(struct progress *p)
{
    int width = p->terminal ? terminal_width() : 0;
    char text[2 * WIDEST];

    progress_format(p->what, p->done, p->total, clock_now() - p->start, p->remark, width, text,
                    sizeof(text));
    if (p->terminal) {
        text[width - 1] = '\0';
        log_status(text);
    } else {
        log_info("%s", text);
    }
    p->drawn = true;
}

struct progress *progress_new(const char *what, int64_t total)
{
    struct progress *p = mem_new(1, sizeof(*p));

    p->what = mem_strdup(what);
    p->total = total;
    p->terminal = isatty(STDERR_FILENO);
    p->silent = !log_speaks(LOG_INFO);
    p->start = p->last = clock_now();
    return p;
}

/* Is it time to say something? */
static bool due(struct progress *p, double time)
{
    int tenth = p->total > 0 ? (int)(10 * p->done / p->total) : 0;

    if (p->terminal)
        return !p->drawn || time - p->last >= 0.1;
    if (time - p->last >= 30 || (tenth > p->tenth && time - p->last >= 1)) {
        p->tenth = tenth;
        return true;
    }
    return false;
}

void progress_update(struct progress *p, int64_t done, const char *format, ...)
{
    double time = clock_now();
    va_list args;

    if (p->silent)
        return;
    p->done = done;
    va_start(args, format);
    vsnprintf(p->remark, sizeof(p->remark), format, args);
    va_end(args);
    p->drawn = p->drawn && p->terminal;
    if (due(p, time)) {
        p->last = time;
        draw(p);
    }
}

void progress_free(struct progress *p)
{
    if (!p)
        return;
    if (!p->silent && (p->terminal || !p->drawn))
        draw(p);
    if (!p->silent && p->terminal)
        log_status(NULL);
    free(p->what);
    free(p);
}
