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
#include "topology/record.h"
#include "topology/task.h"

struct host {
    struct features *features;
    char *family;           /* siblings have the same */
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
    const struct links *links;      /* NULL: none was measured */
    struct findings *findings;
    int n_hosts;
    struct host *hosts;
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

/* What needs no sibling. */
static void check_alone(struct checker *c, const struct topo_node *node)
{
    for (int i = 0; i < node->n_gpus; i++)
        check_gpu(c->findings, node, i);
    for (int i = 0; i < node->n_notes; i++)
        if (strncmp(node->notes[i], "NVML's GPU", 10) == 0)
            findings_add(c->findings, node->host, NULL, feature_advice(FEATURE_GPUS),
                         mem_strdup(node->notes[i]), "a GPU does not answer");
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

static void vote(struct checker *c, const char *family, const struct feature *f)
{
    struct ballot *ballot = ballot_of(c, family, f->key);

    ballot->with++;
    for (int i = 0; i < ballot->n; i++)
        if (feature_alike(ballot->choices[i].feature, f)) {
            ballot->choices[i].votes++;
            return;
        }
    *(struct choice *)mem_push((void **)&ballot->choices, &ballot->n, sizeof(struct choice)) =
        (struct choice){ f, 1 };
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
static bool is_usual(struct checker *c, const struct host *h, const char *key)
{
    const struct feature *f = feature_find(h->features, key);

    return !f || feature_alike(f, usual(ballot_of(c, h->family, key))->feature);
}

/* Where one is missing, the numbers of those behind it are not those of its siblings. */
static void compare(struct checker *c, const struct host *h, const char *name)
{
    bool gpus = is_usual(c, h, "GPUs"), nics = is_usual(c, h, "NICs");

    for (int i = 0; i < h->features->n; i++) {
        const struct feature *f = &h->features->list[i];
        const struct ballot *ballot = ballot_of(c, h->family, f->key);
        const struct choice *best = usual(ballot);

        if (feature_alike(f, best->feature) || (f->of_gpu && !gpus) || (f->of_nic && !nics))
            continue;
        findings_add(c->findings, name, NULL, feature_advice(f->kind),
                     mem_printf("%s; %d of %d siblings have %s", f->value, best->votes,
                                ballot->with - 1, best->feature->value), "%s", f->key);
    }
}

/* First all say what they are, then each is held against what is usual. */
static int look_at_all(struct checker *c, struct err *err)
{
    for (int i = 0; i < c->n_hosts; i++) {
        struct topo_node *node = topo_record_node(c->record, i, err);
        struct host *h = &c->hosts[i];

        if (!node)
            return -1;
        h->features = features_of(node);
        h->family = mem_printf("%s/%s", node->cpu, common_gpu(node));
        for (int j = 0; j < h->features->n; j++)
            vote(c, h->family, &h->features->list[j]);
        topo_node_free(node);
    }
    return 0;
}

/* What was slower than other pairs when it was measured. */
static void check_messages(struct checker *c, const char *host)
{
    for (int i = 0; c->links && i < c->links->n_slow; i++) {
        const struct links_slow *slow = &c->links->slow[i];

        if (strcmp(slow->host, host) == 0)
            findings_add(c->findings, host, NULL, "compare the node's port and cable with its "
                         "siblings' (ibdiagnet, ethtool -S), or leave the node out",
                         links_evidence(slow), "link %s", slow->what);
    }
}

static int check_all(struct checker *c, const struct topo_tasks *tasks, struct err *err)
{
    struct task_check *task_check = task_check_new(c->record, tasks);
    int status = 0;

    for (int i = 0; i < c->n_hosts; i++) {
        struct topo_node *node = topo_record_node(c->record, i, err);

        if (!node) {
            status = -1;
            break;
        }
        check_alone(c, node);
        compare(c, &c->hosts[i], node->host);
        task_check_host(task_check, i, node, c->findings);
        check_messages(c, node->host);
        topo_node_free(node);
    }
    task_check_free(task_check);
    return status;
}

static void clear(struct checker *c)
{
    for (int i = 0; i < c->n_hosts; i++) {
        features_free(c->hosts[i].features);
        free(c->hosts[i].family);
    }
    for (int i = 0; i < c->n_ballots; i++)
        free(c->ballots[i].choices);
    free(c->hosts);
    free(c->ballots);
    json_decref(c->ballot_of);
}

struct findings *topo_check(const struct topo_record *record, const struct topo_tasks *tasks,
                            const struct links *links, struct err *err)
{
    struct checker c = { .record = record, .links = links, .n_hosts = topo_record_hosts(record),
                         .ballot_of = json_object() };
    int status;

    c.findings = findings_new(c.n_hosts);
    c.hosts = mem_new((size_t)c.n_hosts, sizeof(*c.hosts));
    status = look_at_all(&c, err) || check_all(&c, tasks, err);
    clear(&c);
    if (status == 0)
        return c.findings;
    findings_free(c.findings);
    return NULL;
}
