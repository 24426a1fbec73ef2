/* SPDX-License-Identifier: MIT */
#include "scheduler/slurm/facts.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "topology/shape.h"

#define MOST 1000000
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define TEXT(type, member) { .key = #member, .kind = SHAPE_TEXT, .at = offsetof(type, member) }
#define INT(type, member) \
    { .key = #member, .kind = SHAPE_INT, .at = offsetof(type, member), .most = MOST }
#define BIG(type, member) \
    { .key = #member, .kind = SHAPE_COUNT, .at = offsetof(type, member), .none = -1 }
#define LIST(type, member, list_kind, inner, unknown)                                     \
    { .key = #member, .kind = list_kind, .at = offsetof(type, member),                    \
      .count_at = offsetof(type, n_##member), .shape = inner, .none = unknown, .most = MOST }

#define NODE struct slurm_node
static const struct shape_field node_fields[] = {
    TEXT(NODE, name), TEXT(NODE, state), TEXT(NODE, reason), TEXT(NODE, features),
    TEXT(NODE, gres), TEXT(NODE, given), INT(NODE, sockets), INT(NODE, cores),
    INT(NODE, threads), { .key = "memory", .kind = SHAPE_REAL, .at = offsetof(NODE, memory) },
};
static const struct shape node_shape = { sizeof(NODE), COUNT(node_fields), node_fields };

#define SWITCH struct slurm_switch
static const struct shape_field switch_fields[] = {
    TEXT(SWITCH, name), INT(SWITCH, level), BIG(SWITCH, link_speed),
    LIST(SWITCH, nodes, SHAPE_TEXTS, NULL, 0), LIST(SWITCH, switches, SHAPE_TEXTS, NULL, 0),
};
static const struct shape switch_shape = { sizeof(SWITCH), COUNT(switch_fields),
                                           switch_fields };

#define FACTS struct slurm_facts
static const struct shape_field facts_fields[] = {
    TEXT(FACTS, version), TEXT(FACTS, cluster), TEXT(FACTS, topology), TEXT(FACTS, job),
    TEXT(FACTS, name), TEXT(FACTS, user), TEXT(FACTS, state), TEXT(FACTS, why),
    BIG(FACTS, over), TEXT(FACTS, tasks),
    TEXT(FACTS, output), TEXT(FACTS, directory), TEXT(FACTS, batch_host), BIG(FACTS, requeue),
    TEXT(FACTS, partition), BIG(FACTS, time_left), BIG(FACTS, time_limit),
    BIG(FACTS, time_default), BIG(FACTS, kill_wait),
    BIG(FACTS, nodes_least), BIG(FACTS, nodes_most), BIG(FACTS, nodes_wanted),
    LIST(FACTS, nodes, SHAPE_LIST, &node_shape, 0),
    LIST(FACTS, switches, SHAPE_LIST, &switch_shape, -1), TEXT(FACTS, switches_why),
};
static const struct shape facts_shape = { sizeof(FACTS), COUNT(facts_fields), facts_fields };

struct slurm_facts *slurm_facts_new(void)
{
    struct slurm_facts *facts = mem_new(1, sizeof(*facts));

    shape_init(&facts_shape, facts);
    return facts;
}

void slurm_facts_free(struct slurm_facts *facts)
{
    if (!facts)
        return;
    shape_clear(&facts_shape, facts);
    free(facts);
}

json_t *slurm_facts_to_json(const struct slurm_facts *facts)
{
    return shape_to_json(&facts_shape, facts);
}

struct slurm_facts *slurm_facts_from_json(const char *path, const json_t *json,
                                          struct err *err)
{
    struct json_reader top = { .file = path }, r;
    struct slurm_facts *facts = slurm_facts_new();

    if (json_reader_sub(&r, &top, "slurm", -1, json, err) == 0 &&
        shape_from_json(&facts_shape, facts, &r, err) == 0)
        return facts;
    slurm_facts_free(facts);
    return NULL;
}
