/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "base/err.h"
#include "base/mem.h"
#include "scheduler/slurm/module_private.h"

void module_set(char **text, const char *value)
{
    free(*text);
    *text = mem_strdup(value ? value : "");
}

/* libslurm before 23.11 has a pointer behind the type's name. */
int module_expand(const char *list, int *n, char ***names)
{
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 11, 0)
    hostlist_t hosts = slurm_hostlist_create(list);
#else
    hostlist_t *hosts = slurm_hostlist_create(list);
#endif
    char *name;

    *n = 0;
    *names = NULL;
    if (!hosts)
        return -1;
    while ((name = slurm_hostlist_shift(hosts))) {
        *(char **)mem_push((void **)names, n, sizeof(char *)) = mem_strdup(name);
        free(name);
    }
    slurm_hostlist_destroy(hosts);
    return 0;
}

struct named {
    const char *name;
    const node_info_t *node;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static struct named *sorted(const node_info_msg_t *all, size_t *n)
{
    struct named *list = mem_new(all->record_count, sizeof(*list));

    *n = 0;
    for (uint32_t i = 0; i < all->record_count; i++)
        if (all->node_array[i].name)
            list[(*n)++] = (struct named){ all->node_array[i].name, &all->node_array[i] };
    qsort(list, *n, sizeof(*list), by_name);
    return list;
}

static const struct flag {
    uint32_t bit;
    const char *word;
} flags[] = {
    { NODE_STATE_DRAIN, "drain" },
    { NODE_STATE_FAIL, "fail" },
    { NODE_STATE_NO_RESPOND, "not_responding" },
    { NODE_STATE_COMPLETING, "completing" },
    { NODE_STATE_MAINT, "maint" },
    { NODE_STATE_RES, "reserved" },
    { NODE_STATE_PLANNED, "planned" },
    { NODE_STATE_INVALID_REG, "invalid" },
    { NODE_STATE_REBOOT_REQUESTED, "reboot_requested" },
    { NODE_STATE_REBOOT_ISSUED, "reboot_issued" },
    { NODE_STATE_POWERED_DOWN, "powered_down" },
    { NODE_STATE_POWERING_DOWN, "powering_down" },
    { NODE_STATE_POWERING_UP, "powering_up" },
};

/* "idle+drain"; malloc'ed. */
static char *state_text(uint32_t state)
{
    static const char *const bases[] = { "unknown", "down", "idle", "allocated", "error",
                                         "mixed", "future" };
    uint32_t base = state & NODE_STATE_BASE;
    char *text = mem_strdup(base < sizeof(bases) / sizeof(bases[0]) ? bases[base] : "unknown");

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (state & flags[i].bit) {
            char *more = mem_printf("%s+%s", text, flags[i].word);

            free(text);
            text = more;
        }
    return text;
}

static char *copy(const char *text)
{
    return mem_strdup(text ? text : "");
}

static void add_node(struct slurm_facts *facts, const char *name, const node_info_t *node)
{
    struct slurm_node *made = mem_push((void **)&facts->nodes, &facts->n_nodes, sizeof(*made));

    *made = (struct slurm_node){
        .name = mem_strdup(name), .state = node ? state_text(node->node_state) : copy(""),
        .reason = copy(node ? node->reason : NULL),
        .features = copy(node ? node->features : NULL),
        .gres = copy(node ? node->gres : NULL), .given = copy(""),
    };
    if (!node)
        return;
    made->sockets = node->sockets == NO_VAL16 ? 0 : node->sockets;
    made->cores = node->cores == NO_VAL16 ? 0 : node->cores;
    made->threads = node->threads == NO_VAL16 ? 0 : node->threads;
    made->memory = node->real_memory == NO_VAL64 ? 0 : (double)node->real_memory * 1048576;
}

int module_add_nodes(struct slurm_facts *facts, const char *names, const node_info_msg_t *all,
                     struct err *err)
{
    size_t n_known;
    struct named *known;
    char **list;
    int n;

    if (module_expand(names, &n, &list))
        return err_set(err, "Slurm: \"%.200s\" is no list of nodes", names);
    known = sorted(all, &n_known);
    for (int i = 0; i < n; i++) {
        const struct named key = { list[i], NULL };
        const struct named *found = bsearch(&key, known, n_known, sizeof(*known), by_name);

        add_node(facts, list[i], found ? found->node : NULL);
        free(list[i]);
    }
    free(known);
    free(list);
    return 0;
}

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 11, 0)
static void add_switch(struct slurm_facts *facts, const topo_info_t *info)
{
    struct slurm_switch *made =
        mem_push((void **)&facts->switches, &facts->n_switches, sizeof(*made));

    *made = (struct slurm_switch){ .name = copy(info->name), .level = info->level,
                                   .link_speed = info->link_speed };
    if (info->level == 0 && info->nodes)
        module_expand(info->nodes, &made->n_nodes, &made->nodes);
    if (info->level > 0 && info->switches)
        module_expand(info->switches, &made->n_switches, &made->switches);
}

static void add_switches(struct slurm_facts *facts)
{
    topo_info_response_msg_t *message = NULL;

    if (slurm_load_topo(&message)) {
        module_set(&facts->switches_why, slurm_strerror(errno));
        return;
    }
    facts->n_switches = 0;
    for (uint32_t i = 0; i < message->record_count; i++)
        add_switch(facts, &message->topo_array[i]);
    slurm_free_topo_info_msg(message);
}
#else
/* The message has them in a form that only Slurm's own plugins know. */
static void add_switches(struct slurm_facts *facts)
{
    static const char *const none[] = { "topology/none", "topology/flat",
                                        "topology/default" };

    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        if (strcmp(facts->topology, none[i]) == 0)
            facts->n_switches = 0;
    if (facts->n_switches < 0)
        module_set(&facts->switches_why, "libslurm shows them to no program since 23.11; "
                   "the tasks of a step know theirs: srun tasuki topo");
}
#endif

int module_add_cluster(struct slurm_facts *facts, struct err *err)
{
    slurm_conf_t *conf = NULL;

    if (slurm_load_ctl_conf(0, &conf))
        return module_refused(err, "its configuration");
    module_set(&facts->version, conf->version);
    module_set(&facts->cluster, conf->cluster_name);
    module_set(&facts->topology, conf->topology_plugin);
    facts->kill_wait = conf->kill_wait;
    slurm_free_ctl_conf(conf);
    add_switches(facts);
    return 0;
}
