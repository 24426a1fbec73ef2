/* SPDX-License-Identifier: MIT */
#include "topology/node_apart.h"

#include <stdlib.h>
#include <string.h>

#include "base/apart.h"
#include "base/err.h"
#include "base/mem.h"
#include "topology/node_read.h"

#define XML_SECONDS 30          /* for the child that reads a foreign file */

/* The child's answer in JSON: a node, or what is wrong. */
static char *answer(void *xml)
{
    struct topo_node *node = topo_node_new();
    struct err err = { 0 };
    json_t *json = topo_node_read_xml(node, xml, &err)
                       ? json_pack("{s:s, s:i}", "error", err.text, "code", (int)err.code)
                       : topo_node_to_json(node);

    return json ? json_dumps(json, JSON_COMPACT) : NULL;
}

static struct topo_node *from_answer(const char *xml, const struct apart *child,
                                     struct err *err)
{
    json_t *json = json_loads(child->answer, JSON_REJECT_DUPLICATES, NULL);
    const json_t *error = json_object_get(json, "error");
    struct topo_node *node = NULL;

    if (child->signal || !json)
        err_set(err, "%s: hwloc could not read it (it ended by %s)", xml,
                child->signal ? strsignal(child->signal) : "an error");
    else if (json_is_string(error))
        err_set(err, "%s", json_string_value(error));
    else
        node = topo_node_from_json(xml, json, err);
    json_decref(json);
    return node;
}

struct topo_node *topo_node_read_apart(const char *xml, struct err *err)
{
    char *path = mem_strdup(xml);
    struct topo_node *node = NULL;
    struct apart child;

    if (apart_run(answer, path, XML_SECONDS, false, &child, err)) {
        err_prefix(err, "%s", xml);
    } else {
        node = from_answer(xml, &child, err);
        apart_clear(&child);
    }
    free(path);
    return node;
}
