/* SPDX-License-Identifier: MIT */
/* A recorded machine of tests/data/topo, as a node. */
#ifndef TASUKI_TESTS_RECORDED_H
#define TASUKI_TESTS_RECORDED_H

#include "unit.h"

#include "base/json.h"
#include "base/mem.h"
#include "topology/record.h"

static inline struct topo_record *recorded_file(const char *name)
{
    const char *top = getenv("srcdir");
    char *path = mem_printf("%s/tests/data/topo/%s/expected.json", top ? top : ".", name);
    struct err err = { 0 };
    json_t *json = json_load(path, &err);
    struct topo_record *record;

    if (!json)
        fail_msg("%s", err.text);
    record = topo_record_from_json(path, json_object_get(json, "nodes"), &err);
    if (!record)
        fail_msg("%s", err.text);
    json_decref(json);
    free(path);
    return record;
}

/* topo_node_free() it. The file is read once where the same machine is asked for again. */
static inline struct topo_node *recorded_machine(const char *name)
{
    static struct topo_record *record;
    static char last[64];
    struct err err = { 0 };
    struct topo_node *node;

    if (strcmp(name, last) != 0) {
        topo_record_free(record);
        record = recorded_file(name);
        snprintf(last, sizeof(last), "%s", name);
    }
    node = topo_record_node(record, 0, &err);
    if (!node)
        fail_msg("%s", err.text);
    return node;
}

#endif
