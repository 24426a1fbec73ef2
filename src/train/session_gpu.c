/* SPDX-License-Identifier: MIT */
/* A run on GPUs: who takes which, and what the planner is told of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "topology/links.h"
#include "topology/model.h"
#include "topology/node.h"
#include "train/gpu.h"
#include "train/gpu_plan.h"
#include "train/planning.h"
#include "train/session.h"
#include "train/wire.h"

/* What a rank tells the others of its GPU. */
struct gpu_facts {
    struct gpu_names names;
    char kind[96];
    double memory;          /* bytes */
    struct model_gpu wires;
};

/* NCCL wants a GPU for each rank, and the same version everywhere. */
static int check_nccl(const struct session *s, const struct gpu_choices *choices,
                      struct err *err)
{
    const char *way = nccl_use_names[s->settings.nccl];

    if (s->settings.nccl == NCCL_NOWHERE)
        return 0;
    if (!choices->nccl[0])
        return err_set(err, "--comm %s: not all ranks have a tasuki-cuda.so with the same NCCL: "
                       "--comm mpi does without", way);
    for (int r = 0; r < choices->n; r++)
        for (int q = 0; q < r; q++)
            if (strcmp(choices->list[q].address, choices->list[r].address) == 0 &&
                comm_same_host(s->comm, q, r))
                return err_set(err, "--comm %s: ranks %d and %d share GPU %s of %s, which NCCL "
                               "refuses: --comm mpi takes it", way, q, r,
                               choices->list[r].address, comm_host(s->comm, r));
    return 0;
}

static void find_oldest(struct session *s, const struct gpu_choices *choices)
{
    for (int r = 0; r < choices->n; r++) {
        int architecture = choices->list[r].architecture;

        if (r > 0 && architecture >= s->architecture)
            continue;
        s->oldest = r;
        s->architecture = architecture;
    }
}

void session_suit_gpus(struct session *session)
{
    struct session *s = session;
    struct train_settings *t = &s->settings;
    char *name;

    if (!planning_on_gpu(t->backend))
        return;
    name = mem_printf("the GPU of rank %d (%s)", s->oldest, comm_host(s->comm, s->oldest));
    t->backend = planning_suited(t->backend, name, s->architecture, s->rank == 0);
    if (t->scale.factor == 0 && strcmp(t->backend, "cuda-fp16") == 0)
        t->scale.factor = LOSS_SCALE_START;
    free(name);
}

/* With the line to use, where that is what is wrong. */
static int refuse(const struct session *s, const struct gpu_choice *mine, struct err *err)
{
    char *line = mine->unseen ? session_gpu_line(s) : NULL;

    err_set(err, "--device cuda%s: no GPU can be used: %s%s%s",
            s->settings.device_given ? "" : ", since there are GPUs (--device cpu does without)",
            mine->why ? mine->why : "there is none", line ? "; use " : "", line ? line : "");
    free(line);
    return -1;
}

static int choose(struct session *s, struct gpu_choices *choices, struct err *err)
{
    struct gpu_plan plan = gpu_plan_new(s->given, s->node);
    int bad = gpu_choose(s->comm, true, &plan, choices, err);

    gpu_plan_clear(&plan);
    return bad;
}

int session_choose_gpu(struct session *session, struct err *err)
{
    struct session *s = session;
    struct gpu_choices choices;
    const struct gpu_choice *mine;
    int bad = 0;

    if (!planning_on_gpu(s->settings.backend))
        return 0;
    if (session_agree(s, !planning_backend(s->settings.backend, s->settings.float64, err), err) < 0 ||
        choose(s, &choices, err) < 0)
        return -1;
    mine = &choices.list[s->rank];
    if (mine->address[0])
        snprintf(s->gpu, sizeof(s->gpu), "%s", mine->address);
    else
        bad = refuse(s, mine, err);
    bad = bad || check_nccl(s, &choices, err);
    find_oldest(s, &choices);
    gpu_choices_clear(&choices);
    return session_agree(s, bad, err) < 0 ? -1 : session_check_given(s, err);
}

static struct gpu_facts own_facts(const struct session *s)
{
    const char *name = s->backend->device_name(s->device);
    struct gpu_facts facts = { .names = gpu_names(s->node, s->gpu),
                               .memory = (double)s->backend->memory(s->device) };

    facts.wires = model_gpu(s->node, facts.names.index);
    if (s->settings.nccl == NCCL_NOWHERE)
        facts.wires.island[0] = '\0';   /* hosts take no NVLink */
    /* "NVIDIA H200, sm_90, CUDA 13.0": what follows is not the kind. */
    snprintf(facts.kind, sizeof(facts.kind), "%.*s", (int)strcspn(name, ","), name);
    return facts;
}

static bool same_gpu(const struct session *s, const struct gpu_facts *facts, int a, int b)
{
    return strcmp(facts[a].names.address, facts[b].names.address) == 0 &&
           comm_same_host(s->comm, a, b);
}

/* Of 'sharers' ranks on the GPU this is the i-th. As the plan calls it that has as many. */
static char *name_of(const struct gpu_plan *plan, const char *host, const struct gpu_names *gpu,
                     int i, int sharers)
{
    char part[16] = "";

    if (gpu_plan_count(plan, host, gpu) == sharers)
        return mem_strdup(gpu_plan_device(plan, host, gpu, i));
    if (sharers > 1)
        snprintf(part, sizeof(part), ".%d", i);
    return gpu->index < 0 ? mem_printf("%s/%s%s", host, gpu->address, part)
                          : mem_printf("%s/gpu%d%s", host, gpu->index, part);
}

/* Takes the id. */
static void describe(struct cluster_device *d, char *id, const struct gpu_facts *facts, int sharers)
{
    free(d->id);
    d->id = id;
    free(d->kind);
    d->kind = mem_strdup(facts->kind);
    d->memory = facts->memory / sharers;
    d->cores = 0;
    d->flops = d->memory_bandwidth = 0;     /* its costs are measured */
}

/* The devices become GPUs, on islands where NCCL moves bytes. */
static void describe_all(struct session *s, const struct gpu_facts *facts)
{
    struct model_gpu *wires = mem_new((size_t)s->size, sizeof(*wires));
    struct gpu_plan plan = gpu_plan_new(s->given, s->node);
    struct cluster *tree;

    for (int k = 0; k < s->cluster->n_devices; k++) {
        struct cluster_device *d = &s->cluster->devices[k];
        int i = 0, sharers = 0;

        for (int r = 0; d->rank >= 0 && r < s->size; r++)
            if (same_gpu(s, facts, r, d->rank)) {
                i += r < d->rank;
                sharers++;
            }
        if (sharers > 0)
            describe(d, name_of(&plan, comm_host(s->comm, d->rank), &facts[d->rank].names, i,
                                sharers), &facts[d->rank], sharers);
    }
    gpu_plan_clear(&plan);
    for (int r = 0; r < s->size; r++)
        wires[r] = facts[r].wires;
    tree = model_of_ranks(s->cluster, wires);
    cluster_free(s->cluster);
    s->cluster = tree;
    free(wires);
}

/* What messages and sums of this run take, by whoever moves them. */
static int measure(struct session *s, struct err *err)
{
    static const char *const by[] = { "GPU links by hosts", "GPU links by NCCL",
                                      "GPU links by NCCL and, between nodes, hosts" };
    const struct wire_gpu gpu = { s->backend, s->device, s->settings.nccl };
    struct links *links;
    char *text;

    if (s->settings.measure == MEASURE_NONE || s->size == 1)
        return 0;
    if (measure_wires(s->comm, s->cluster, &gpu, s->settings.measure, &links, err))
        return -1;
    text = s->rank == 0 ? links_text(links, by[s->settings.nccl]) : NULL;
    if (text)
        log_debug("%s", text);
    free(text);
    links_free(links);
    return 0;
}

int session_use_gpus(struct session *session, struct err *err)
{
    struct session *s = session;
    struct gpu_facts mine, *all;
    int bad;

    if (!s->gpu[0] || s->settings.cluster)
        return 0;
    mine = own_facts(s);
    all = mem_new((size_t)s->size, sizeof(*all));
    bad = comm_collect(s->comm, &mine, sizeof(mine), all, err);
    if (!bad)
        describe_all(s, all);
    free(all);
    return session_agree(s, bad, err) < 0 ? -1 : session_agreed(s, measure(s, err), err);
}
