/* SPDX-License-Identifier: MIT */
#include "topology/check.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/check_tasks.h"
#include "topology/feature.h"
#include "topology/links.h"
#include "topology/findings.h"
#include "topology/node.h"
#include "topology/node_read.h"
#include "topology/pmix.h"
#include "topology/record.h"
#include "topology/task.h"

/* Hosts that differ in nothing that is looked at but their names and their memory. */
struct group {
    struct topo_node *node;     /* of the host that is looked at */
    struct features *features;  /* of the first one; but for the memory, of all */
    char *family;               /* siblings have the same */
    bool some_memory;           /* it is known */
    int n_odd, *odd;            /* features that siblings do not have, and the memory */
};

struct host {
    int group;
    struct feature memory;
};

/* The values that the nodes of a family have for one key. */
struct ballot {
    int n, with;            /* with: nodes that have the feature at all */
    struct choice {
        const struct feature *feature;
        int votes;
    } *choices;
};

struct checker {
    const struct topo_record *record;
    const struct links *links, *gpus;   /* NULL: none was measured */
    struct findings *findings;
    int n_hosts;
    struct host *hosts;
    int n_groups;
    struct group *groups;
    json_t *group_of;       /* what its hosts have in common → index */
    json_t *ballot_of;      /* "FAMILY/KEY" → index */
    int n_ballots;
    struct ballot *ballots;
};

/* The name that most of its GPUs have: one of them may not have said. */
static const char *common_gpu(const struct topo_node *node)
{
    const char *best = "";
    int most = 0;

    for (int i = 0; i < node->n_gpus; i++) {
        int n = 0;

        for (int j = 0; j < node->n_gpus; j++)
            n += strcmp(node->gpus[i].name, node->gpus[j].name) == 0;
        if (n > most) {
            most = n;
            best = node->gpus[i].name;
        }
    }
    return best;
}

static void check_gpu(struct findings *findings, const struct topo_node *node, int i)
{
    static const char drain[] = "leave the node out and tell the administrators "
                                "(nvidia-smi -q)";
    const struct topo_gpu *gpu = &node->gpus[i];

    if (gpu->ecc_uncorrected > 0)
        findings_add(findings, node->host, NULL, drain,
                     mem_printf("%lld since the driver was loaded",
                                (long long)gpu->ecc_uncorrected),
                     "GPU%d: uncorrected ECC errors", i);
    if (gpu->remap_failure == 1)
        findings_add(findings, node->host, NULL, drain,
                     mem_strdup("a row could not be remapped"), "GPU%d: memory", i);
    if (gpu->throttle > 0 && gpu->throttle & TOPO_THROTTLE_HARMFUL)
        findings_add(findings, node->host, NULL,
                     "too hot or short of power: leave the node out",
                     mem_printf("reasons 0x%llx, %d of %d MHz",
                                (unsigned long long)gpu->throttle, gpu->clock, gpu->max_clock),
                     "GPU%d: clocks are throttled", i);
    for (int j = 0; j < gpu->n_faults; j++)
        findings_add(findings, node->host, NULL, drain, mem_strdup(gpu->faults[j]),
                     "GPU%d: the driver does not answer", i);
}

/* Links that others of the same node have. */
static void check_links(struct findings *findings, const struct topo_node *node)
{
    int most = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < node->n_gpus; i++) {
            const struct topo_gpu *gpu = &node->gpus[i];
            int up = 0;

            for (int j = 0; j < gpu->n_links; j++)
                up += gpu->links[j].up == 1;
            most = pass == 0 && up > most ? up : most;
            if (pass == 1 && gpu->n_links > 0 && up < most)
                findings_add(findings, node->host, NULL, feature_advice(FEATURE_NVLINK),
                             mem_printf("%d of %d; other GPUs of the node have %d", up,
                                        gpu->n_links, most), "GPU%d: NVLinks up", i);
        }
}

/* Of the image, and of the launcher outside. */
static void check_pmix(struct findings *findings, const struct topo_node *node)
{
    const char *client = node->pmix_client, *server = node->pmix_server;
    char *versions, *limit;

    if (!node->container[0])
        return;
    versions = pmix_versions_text(client, server);
    findings_remark(findings, node->host, mem_printf("PMIx: %s", versions));
    limit = pmix_limit(client, server);
    if (limit)
        findings_add(findings, node->host, "", "build the image with a PMIx of the launcher's "
                     "series, or bind the launcher's library into it",
                     mem_printf("%s; %s", versions, limit),
                     "PMIx inside and outside the container");
    free(limit);
    free(versions);
}

/* What needs no sibling. */
static void check_alone(struct checker *c, const struct topo_node *node)
{
    for (int i = 0; i < node->n_gpus; i++)
        check_gpu(c->findings, node, i);
    for (int i = 0; i < node->n_notes; i++)
        if (strncmp(node->notes[i], "NVML's GPU", 10) == 0)
            findings_add(c->findings, node->host, NULL, feature_advice(FEATURE_GPUS),
                         mem_strdup(node->notes[i]), "a GPU does not answer");
    for (int i = 0; i < node->n_notes; i++)
        if (strncmp(node->notes[i], TOPO_HIDDEN, strlen(TOPO_HIDDEN)) == 0)
            findings_add(c->findings, node->host, "", "bind it into the container: apptainer "
                         "--bind /sys --bind /dev/infiniband, and --nv for the driver",
                         mem_strdup(node->notes[i] + strlen(TOPO_HIDDEN)),
                         "hidden by the container");
    check_pmix(c->findings, node);
    if (topo_record_hosts(c->record) == 1)
        check_links(c->findings, node);
}

static struct ballot *ballot_of(struct checker *c, const char *family, const char *key)
{
    char *name = mem_printf("%s/%s", family, key);
    const json_t *index = json_object_get(c->ballot_of, name);
    int at = index ? (int)json_integer_value(index) : c->n_ballots;

    if (!index) {
        json_object_set_new(c->ballot_of, name, json_integer(at));
        mem_push((void **)&c->ballots, &c->n_ballots, sizeof(*c->ballots));
    }
    free(name);
    return &c->ballots[at];
}

/* So many nodes have the feature. */
static void vote(struct checker *c, const char *family, const struct feature *f, int nodes)
{
    struct ballot *ballot = ballot_of(c, family, f->key);

    ballot->with += nodes;
    for (int i = 0; i < ballot->n; i++)
        if (feature_alike(ballot->choices[i].feature, f)) {
            ballot->choices[i].votes += nodes;
            return;
        }
    *(struct choice *)mem_push((void **)&ballot->choices, &ballot->n, sizeof(struct choice)) =
        (struct choice){ f, nodes };
}

/* What most siblings have; where as many have another value, the greater. */
static const struct choice *usual(const struct ballot *ballot)
{
    const struct choice *best = &ballot->choices[0];

    for (int i = 1; i < ballot->n; i++) {
        const struct choice *other = &ballot->choices[i];

        if (other->votes > best->votes ||
            (other->votes == best->votes && other->feature->number > best->feature->number))
            best = other;
    }
    return best;
}

/* Are there as many as most siblings have? */
static bool is_usual(struct checker *c, const struct group *g, const char *key)
{
    const struct feature *f = feature_find(g->features, key);

    return !f || feature_alike(f, usual(ballot_of(c, g->family, key))->feature);
}

/* Where one is missing, the numbers of those behind it are not those of its siblings. */
static void find_odd(struct checker *c, struct group *g)
{
    bool gpus = is_usual(c, g, "GPUs"), nics = is_usual(c, g, "NICs");

    for (int i = 0; i < g->features->n; i++) {
        const struct feature *f = &g->features->list[i];

        if (f->kind == FEATURE_MEMORY ||
            (!feature_alike(f, usual(ballot_of(c, g->family, f->key))->feature) &&
             (!f->of_gpu || gpus) && (!f->of_nic || nics)))
            *(int *)mem_push((void **)&g->odd, &g->n_odd, sizeof(int)) = i;
    }
}

static void compare(struct checker *c, const struct host *h, const char *name)
{
    const struct group *g = &c->groups[h->group];

    for (int i = 0; i < g->n_odd; i++) {
        const struct feature *of_group = &g->features->list[g->odd[i]];
        const struct feature *f = of_group->kind == FEATURE_MEMORY ? &h->memory : of_group;
        const struct ballot *ballot = ballot_of(c, g->family, f->key);
        const struct choice *best = usual(ballot);

        if (!feature_alike(f, best->feature))
            findings_add(c->findings, name, NULL, feature_advice(f->kind),
                         mem_printf("%s; %d of %d siblings have %s", f->value, best->votes,
                                    ballot->with - 1, best->feature->value), "%s", f->key);
    }
}

static int add_group(struct checker *c, int host, struct err *err)
{
    struct topo_node *node = topo_record_node(c->record, host, err);
    struct group *g;

    if (!node)
        return -1;
    g = mem_push((void **)&c->groups, &c->n_groups, sizeof(*g));
    *g = (struct group){ .node = node, .features = features_of(node),
                         .family = mem_printf("%s/%s", node->cpu, common_gpu(node)),
                         .some_memory = node->memory > 0 };
    return 0;
}

static int find_group(struct checker *c, int i, struct err *err)
{
    double memory = topo_record_memory(c->record, i);
    char *alike = topo_record_likeness(c->record, i);
    char *key = mem_printf("%d %s", memory > 0, alike);
    const json_t *index = json_object_get(c->group_of, key);
    int status = 0;

    c->hosts[i].group = index ? (int)json_integer_value(index) : c->n_groups;
    c->hosts[i].memory = feature_of_memory(memory);
    if (!index) {
        json_object_set_new(c->group_of, key, json_integer(c->n_groups));
        status = add_group(c, i, err);
    }
    free(alike);
    free(key);
    return status;
}

/* First all say what they are, then each is held against what is usual. */
static int look_at_all(struct checker *c, struct err *err)
{
    int *sizes;

    for (int i = 0; i < c->n_hosts; i++)
        if (find_group(c, i, err))
            return -1;
    sizes = mem_new((size_t)c->n_groups, sizeof(*sizes));
    for (int i = 0; i < c->n_hosts; i++) {
        const struct host *h = &c->hosts[i];

        sizes[h->group]++;
        if (c->groups[h->group].some_memory)
            vote(c, c->groups[h->group].family, &h->memory, 1);
    }
    for (int k = 0; k < c->n_groups; k++)
        for (int j = 0; j < c->groups[k].features->n; j++)
            if (c->groups[k].features->list[j].kind != FEATURE_MEMORY)
                vote(c, c->groups[k].family, &c->groups[k].features->list[j], sizes[k]);
    free(sizes);
    for (int k = 0; k < c->n_groups; k++)
        find_odd(c, &c->groups[k]);
    return 0;
}

/* What was slower than other pairs when it was measured. */
static void check_messages(struct checker *c, const struct links *links, const char *what,
                           const char *advice, const char *host)
{
    for (int i = 0; links && i < links->n_slow; i++) {
        const struct links_slow *slow = &links->slow[i];

        if (strcmp(slow->host, host) == 0)
            findings_add(c->findings, host, NULL, advice, links_evidence(slow), "%s %s", what,
                         slow->what);
    }
}

static void check_all_messages(struct checker *c, const char *host)
{
    check_messages(c, c->links, "link", "compare the node's port and cable with its siblings' "
                   "(ibdiagnet, ethtool -S), or leave the node out", host);
    check_messages(c, c->gpus, "GPU link", "compare the GPUs' NVLinks and PCIe links with their "
                   "siblings' (nvidia-smi nvlink -e, nvidia-smi -q), or leave the node out",
                   host);
}

static void check_all(struct checker *c, const struct topo_tasks *tasks)
{
    struct task_check *task_check = task_check_new(c->record, tasks);

    for (int i = 0; i < c->n_hosts; i++) {
        struct topo_node *node = c->groups[c->hosts[i].group].node;

        topo_node_set_text(&node->host, topo_record_host(c->record, i));
        check_alone(c, node);
        compare(c, &c->hosts[i], node->host);
        task_check_host(task_check, i, node, c->findings);
        check_all_messages(c, node->host);
    }
    task_check_free(task_check);
}

static void clear(struct checker *c)
{
    for (int i = 0; i < c->n_hosts; i++)
        feature_clear(&c->hosts[i].memory);
    for (int i = 0; i < c->n_groups; i++) {
        topo_node_free(c->groups[i].node);
        features_free(c->groups[i].features);
        free(c->groups[i].family);
        free(c->groups[i].odd);
    }
    for (int i = 0; i < c->n_ballots; i++)
        free(c->ballots[i].choices);
    free(c->hosts);
    free(c->groups);
    free(c->ballots);
    json_decref(c->group_of);
    json_decref(c->ballot_of);
}

struct findings *topo_check(const struct topo_record *record, const struct topo_tasks *tasks,
                            const struct links *links, const struct links *gpus,
                            struct err *err)
{
    struct checker c = { .record = record, .links = links, .gpus = gpus,
                         .n_hosts = topo_record_hosts(record), .group_of = json_object(),
                         .ballot_of = json_object() };
    int status;

    c.findings = findings_new(c.n_hosts);
    c.hosts = mem_new((size_t)c.n_hosts, sizeof(*c.hosts));
    status = look_at_all(&c, err);
    if (status == 0)
        check_all(&c, tasks);
    clear(&c);
    if (status == 0)
        return c.findings;
    findings_free(c.findings);
    return NULL;
}
