/* SPDX-License-Identifier: MIT */
/* tasuki watch: a live view of a running job, from its log. */
#include "config.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/tail.h"
#include "cmd_watch.h"
#include "commands.h"
#include "train/run_view.h"

#define LOOK 0.25       /* seconds between two looks at the log */
#define REDRAW 1.0      /* at least so often: the age of the log is shown */

enum { FORMAT_TEXT, FORMAT_JSON };

static volatile sig_atomic_t leave_asked, stop_asked, draw_asked;

struct watch {
    const char *path;
    struct run_state state;
    struct tail *tail;
    struct termios before;      /* of standard input */
    bool keys;                  /* it is a terminal, set to give keys at once */
};

/* The log ----------------------------------------------------------------------------- */

static void take_line(void *context, const char *text, size_t length)
{
    struct watch *w = context;

    run_state_line(&w->state, text, length);
}

static void take_restart(void *context)
{
    struct watch *w = context;

    run_state_clear(&w->state);
    run_state_init(&w->state);
}

static int exit_code(const struct watch *w)
{
    return w->state.phase == RUN_FAILED ? EXIT_FOUND : EXIT_OK;
}

/* Printing ---------------------------------------------------------------------------- */

static bool speaks_utf8(void)
{
    setlocale(LC_CTYPE, "");
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static struct run_view view_of(const struct watch *w)
{
    struct run_view view = { .log = w->path, .width = RUN_WIDTH, .utf8 = speaks_utf8(),
                             .age = tail_age(w->tail), .found = tail_found(w->tail) };
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        view.width = size.ws_col;
    return view;
}

static void print_text(const struct watch *w)
{
    struct run_view view = view_of(w);
    char *text = run_view_text(&w->state, &view);

    fputs(text, stdout);
    free(text);
}

static int print_json(const struct watch *w, struct err *err)
{
    json_t *json = run_view_json(&w->state, w->path);
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17));

    json_decref(json);
    if (!text)
        return err_set(err, "the summary cannot be written as JSON");
    puts(text);
    free(text);
    return 0;
}

static int print_once(struct watch *w, int format, struct err *err)
{
    if (tail_poll(w->tail, err) < 0)
        return -1;
    if (!tail_found(w->tail))
        return err_set(err, "%s: %s", w->path, strerror(ENOENT));
    if (format == FORMAT_JSON)
        return print_json(w, err);
    print_text(w);
    return 0;
}

/* The terminal ------------------------------------------------------------------------ */

static void on_signal(int number)
{
    if (number == SIGTSTP)
        stop_asked = 1;
    else if (number == SIGWINCH || number == SIGCONT)
        draw_asked = 1;
    else
        leave_asked = 1;
}

/* None of them starts poll() anew: it is what they end. */
static void catch_signals(void)
{
    static const int numbers[] = { SIGINT,   SIGTERM, SIGHUP, SIGQUIT,
                                   SIGWINCH, SIGTSTP, SIGCONT };
    struct sigaction action = { .sa_handler = on_signal };

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &action, NULL);
}

/* The other screen, without cursor, and keys one by one. */
static void enter(struct watch *w)
{
    struct termios keys;

    w->keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &w->before) == 0;
    if (w->keys) {
        keys = w->before;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        keys.c_cc[VMIN] = 0;
        keys.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    fputs("\033[?1049h\033[?25l", stdout);
}

static void leave(struct watch *w)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (w->keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &w->before);
}

/* Lines are overwritten one by one, which does not flicker. */
static void draw(const struct watch *w)
{
    struct run_view view = view_of(w);
    struct winsize size;
    char *text, *line, *end;

    view.live = true;
    view.height = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0)
        view.height = size.ws_row;
    text = run_view_text(&w->state, &view);
    fputs("\033[H", stdout);
    for (line = text; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        printf("%s%s\033[K", line == text ? "" : "\r\n", line);
    }
    fputs("\033[J", stdout);
    fflush(stdout);
    free(text);
}

static void wait_for_key(const struct watch *w)
{
    struct pollfd key = { .fd = w->keys ? STDIN_FILENO : -1, .events = POLLIN };
    char typed[16];
    ssize_t n;

    if (poll(&key, 1, (int)(1000 * LOOK)) <= 0 || !key.revents)
        return;
    n = read(STDIN_FILENO, typed, sizeof(typed));
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        leave_asked = 1;
    for (ssize_t i = 0; i < n; i++)
        if (typed[i] == 'q' || typed[i] == 'Q')
            leave_asked = 1;
}

/* Ctrl-Z: the shell gets its terminal as it was. */
static void pause_here(struct watch *w)
{
    stop_asked = 0;
    leave(w);
    raise(SIGSTOP);
    enter(w);
}

static int follow(struct watch *w, struct err *err)
{
    double drawn = 0;
    int bad = 0;

    while (!leave_asked && !bad) {
        int news = tail_poll(w->tail, err);

        if (stop_asked)
            pause_here(w);
        bad = news < 0;
        if (run_state_over(&w->state))
            break;
        if (news > 0 || draw_asked || clock_now() - drawn >= REDRAW) {
            draw_asked = 0;
            drawn = clock_now();
            draw(w);
        }
        wait_for_key(w);
    }
    return bad ? -1 : 0;
}

static int watch_live(struct watch *w, struct err *err)
{
    int result = tail_poll(w->tail, err) < 0 ? -1 : 0;

    if (!result && !run_state_over(&w->state)) {
        catch_signals();
        enter(w);
        result = follow(w, err);
        leave(w);
    }
    if (!result)
        print_text(w);
    return result;
}

int cmd_watch(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_WATCH, argc, argv, 1, err);
    struct watch w = { 0 };
    struct tail_reader reader = { take_line, take_restart, &w };
    int format, result = -1;
    char *path = NULL;

    if (!options)
        return (int)err->code;
    w.path = options_operand(options, 0);
    if (options_operands(options) != 1)
        err_set_code(err, EXIT_USAGE, "watch: expected the LOG of a run, as train --log writes it, "
                                      "or the number of a job");
    else if (watch_is_job(w.path) && !(w.path = path = watch_log_of_job(w.path, err)))
        result = -1;
    else if (option_word(options, "format", &format, err) == 0) {
        run_state_init(&w.state);
        w.tail = tail_new(w.path, &reader);
        result = format == FORMAT_JSON || option_flag(options, "once", false) ||
                         !isatty(STDOUT_FILENO)
                     ? print_once(&w, format, err) : watch_live(&w, err);
    }
    if (w.tail)
        result = result ? result : exit_code(&w);
    tail_free(w.tail);
    run_state_clear(&w.state);
    options_free(options);
    free(path);
    return result < 0 ? (int)err->code : result;
}
