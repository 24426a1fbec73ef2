/* SPDX-License-Identifier: MIT */
/* Slurm's nodes as the rest of the program knows nodes. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/slurm/gres.h"
#include "scheduler/slurm/slurm.h"
#include "topology/node_read.h"
#include "topology/record.h"

#define MOST_LEVELS 16

/* Above whom is who: a dictionary from nodes, and one from switches, to switches. */
struct above {
    json_t *node, *other;
};

static struct above above_new(const struct slurm_facts *facts)
{
    struct above above = { json_object(), json_object() };

    for (int i = 0; i < facts->n_switches; i++) {
        const struct slurm_switch *s = &facts->switches[i];

        for (int j = 0; j < s->n_nodes; j++)
            json_object_set_new(above.node, s->nodes[j], json_string(s->name));
        for (int j = 0; j < s->n_switches; j++)
            json_object_set_new(above.other, s->switches[j], json_string(s->name));
    }
    return above;
}

static void above_free(struct above *above)
{
    json_decref(above->node);
    json_decref(above->other);
}

/* "/spine/leaf1"; malloc'ed. */
static char *path_of(const struct above *above, const char *node)
{
    const char *name = json_string_value(json_object_get(above->node, node));
    char *path = mem_strdup("");

    for (int level = 0; name && level < MOST_LEVELS; level++) {
        char *longer = mem_printf("/%s%s", name, path);

        free(path);
        path = longer;
        name = json_string_value(json_object_get(above->other, name));
    }
    if (*path)
        return path;
    free(path);
    return mem_strdup("/");
}

static void set_switches(struct topo_node *node, const char *name,
                         const struct slurm_facts *facts, const struct above *above)
{
    char *path;

    if (facts->n_switches < 0) {
        topo_node_say(node, "switches", TOPO_ABSENT, "%s", facts->switches_why);
        return;
    }
    path = path_of(above, name);
    topo_node_set_text(&node->switches, path);
    topo_node_say(node, "switches", TOPO_USED, "libslurm: %s", facts->topology);
    free(path);
}

static void add_gpus(struct topo_node *node, const char *gres)
{
    struct slurm_gpus *gpus;
    int kinds = slurm_gpus_of(gres, &gpus);

    for (int k = 0; k < kinds; k++)
        for (int i = 0; i < gpus[k].n && node->n_gpus < 256; i++)
            topo_node_set_text(&topo_node_add_gpu(node, "")->name, gpus[k].type);
    slurm_gpus_free(kinds, gpus);
}

static struct topo_node *node_of(const struct slurm_facts *facts, const struct slurm_node *from,
                                 const struct above *above)
{
    struct topo_node *node = topo_node_new();
    char *source = mem_printf("Slurm %s", facts->version);

    topo_node_set_text(&node->host, from->name);
    topo_node_set_text(&node->source, source);
    free(source);
    node->packages = from->sockets;
    node->cores = from->sockets * from->cores;
    node->pus = node->cores * from->threads;
    node->memory = from->memory;
    add_gpus(node, facts->job[0] ? from->given : from->gres);
    set_switches(node, from->name, facts, above);
    return node;
}

struct topo_record *slurm_record(const struct slurm_facts *facts, struct err *err)
{
    struct topo_record *record = topo_record_new();
    struct above above = above_new(facts);

    for (int i = 0; i < facts->n_nodes && record; i++) {
        struct topo_node *node = node_of(facts, &facts->nodes[i], &above);

        if (topo_record_add_node(record, node, err)) {
            topo_record_free(record);
            record = NULL;
        }
        topo_node_free(node);
    }
    above_free(&above);
    return record;
}

static const struct slurm_node *node_called(const struct slurm_facts *facts, const char *name)
{
    for (int i = 0; i < facts->n_nodes; i++)
        if (strcmp(facts->nodes[i].name, name) == 0)
            return &facts->nodes[i];
    return NULL;
}

void slurm_find_switches(struct topo_node *node, const char *job, const char *name)
{
    struct err err = { 0 };
    struct slurm_facts *facts = slurm_ask_job(job, &err);
    struct above above;

    name = name ? name : node->host;
    if (!facts) {
        topo_node_say(node, "switches", TOPO_ABSENT, "%s", err.text);
    } else if (!node_called(facts, name)) {
        topo_node_say(node, "switches", TOPO_ABSENT, "this is no node of job %s: see tasuki topo "
                      "--job %s", job, job);
    } else {
        above = above_new(facts);
        set_switches(node, name, facts, &above);
        above_free(&above);
    }
    slurm_facts_free(facts);
}
