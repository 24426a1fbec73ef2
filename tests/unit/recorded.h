/* SPDX-License-Identifier: MIT */
/* A recorded machine of tests/data/topo, as a node. */
#ifndef TASUKI_TESTS_RECORDED_H
#define TASUKI_TESTS_RECORDED_H

#include "unit.h"

#include "base/json.h"
#include "base/mem.h"
#include "topology/record.h"

/* topo_node_free() it. */
static inline struct topo_node *recorded_machine(const char *name)
{
    const char *top = getenv("srcdir");
    char *path = mem_printf("%s/tests/data/topo/%s/expected.json", top ? top : ".", name);
    struct err err = { 0 };
    json_t *json = json_load(path, &err);
    struct topo_record *record;
    struct topo_node *node;

    if (!json)
        fail_msg("%s", err.text);
    record = topo_record_from_json(path, json_object_get(json, "nodes"), &err);
    if (!record)
        fail_msg("%s", err.text);
    node = topo_record_node(record, 0, &err);
    if (!node)
        fail_msg("%s", err.text);
    topo_record_free(record);
    json_decref(json);
    free(path);
    return node;
}

#endif
