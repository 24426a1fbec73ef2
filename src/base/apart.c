/* SPDX-License-Identifier: MIT */
#include "base/apart.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

#define MOST_ANSWER ((size_t)256 << 20)
#define MOST_TALK 4096

/* The child: answer on 'out' and end, whatever happens. */
static void be_child(char *(*work)(void *context), void *context, unsigned seconds, int out)
{
    char *text;

    signal(SIGALRM, SIG_DFL);
    alarm(seconds);
    text = work(context);
    for (const char *at = text; at && *at;) {
        ssize_t n = write(out, at, strlen(at));

        if (n <= 0)
            _exit(1);
        at += n;
    }
    _exit(0);
}

static char *read_all(int in)
{
    size_t used = 0, room = 65536;
    char *text = mem_new(room, 1);

    for (;;) {
        ssize_t n = read(in, text + used, room - used - 1);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || used > MOST_ANSWER)
            break;
        used += (size_t)n;
        if (room - used < 2)
            text = mem_resize(text, room *= 2, 1);
    }
    text[used] = '\0';
    return text;
}

/* The last line of what was said, without its end. */
static char *last_line(FILE *talk)
{
    char text[MOST_TALK] = "", *line;
    long size;

    if (!talk || fseek(talk, 0, SEEK_END) || (size = ftell(talk)) <= 0 ||
        fseek(talk, size < MOST_TALK ? 0 : size - MOST_TALK + 1, SEEK_SET))
        return mem_strdup("");
    text[fread(text, 1, sizeof(text) - 1, talk)] = '\0';
    for (size_t n = strlen(text); n > 0 && text[n - 1] == '\n'; n--)
        text[n - 1] = '\0';
    line = strrchr(text, '\n');
    return mem_strdup(line ? line + 1 : text);
}

int apart_run(char *(*work)(void *context), void *context, unsigned seconds, bool listen,
              struct apart *result, struct err *err)
{
    FILE *talk = listen ? tmpfile() : NULL;
    int ends[2], status = 0;
    pid_t child;

    if (pipe(ends)) {
        if (talk)
            fclose(talk);
        return err_set(err, "pipe: %s", strerror(errno));
    }
    child = fork();
    if (child == 0) {
        if (talk)
            dup2(fileno(talk), STDERR_FILENO);
        close(ends[0]);
        be_child(work, context, seconds, ends[1]);
    }
    close(ends[1]);
    result->answer = read_all(ends[0]);
    close(ends[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    result->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    result->talk = last_line(talk);
    if (talk)
        fclose(talk);
    if (child > 0)
        return 0;
    apart_clear(result);
    return err_set(err, "fork: %s", strerror(errno));
}

void apart_clear(struct apart *result)
{
    free(result->answer);
    free(result->talk);
    *result = (struct apart){ 0 };
}
