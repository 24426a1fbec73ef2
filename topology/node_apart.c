/* SPDX-License-Identifier: MIT */
#include "topology/node_apart.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/node_read.h"

#define XML_SECONDS 30          /* for the child that reads a foreign file */
#define XML_ANSWER (16 << 20)   /* bytes of its answer */

/* The child: answer in JSON on 'out' and end, whatever happens. */
static void answer(const char *xml, int out)
{
    struct topo_node *node = topo_node_new();
    struct err err = { 0 };
    json_t *json;
    char *text = NULL;

    signal(SIGALRM, SIG_DFL);
    alarm(XML_SECONDS);
    json = topo_node_read_xml(node, xml, &err)
               ? json_pack("{s:s, s:i}", "error", err.text, "code", (int)err.code)
               : topo_node_to_json(node);
    if (json)
        text = json_dumps(json, JSON_COMPACT);
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
        if (n <= 0 || used > XML_ANSWER)
            break;
        used += (size_t)n;
        if (room - used < 2)
            text = mem_resize(text, room *= 2, 1);
    }
    text[used] = '\0';
    return text;
}

static struct topo_node *from_answer(const char *xml, const char *text, int status,
                                     struct err *err)
{
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *error = json_object_get(json, "error");
    struct topo_node *node = NULL;

    if (WIFSIGNALED(status) || !json)
        err_set(err, "%s: hwloc could not read it (it ended by %s)", xml,
                WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "an error");
    else if (json_is_string(error))
        err_set(err, "%s", json_string_value(error));
    else
        node = topo_node_from_json(xml, json, err);
    json_decref(json);
    return node;
}

struct topo_node *topo_node_read_apart(const char *xml, struct err *err)
{
    int ends[2], status = 0;
    struct topo_node *node;
    char *text;
    pid_t child;

    if (pipe(ends)) {
        err_set(err, "%s: pipe: %s", xml, strerror(errno));
        return NULL;
    }
    child = fork();
    if (child == 0)
        answer(xml, ends[1]);
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        err_set(err, "%s: fork: %s", xml, strerror(errno));
        return NULL;
    }
    text = read_all(ends[0]);
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    node = from_answer(xml, text, status, err);
    free(text);
    return node;
}
