/* SPDX-License-Identifier: MIT */
#include "train/health.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <jansson.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "topology/node.h"
#include "topology/shape.h"

#define MOST_CPUS 65536
#define ROOM (16 << 20)     /* bytes that a folder has to have */
#define SHARE 0.9           /* of what peers have: less is wrong with a node */

/* A node's own view ---------------------------------------------------------------------- */

/* Those that are on, of the whole node: a task may run on few of them. */
static int64_t count_cpus(void)
{
    FILE *file = fopen("/sys/devices/system/cpu/online", "re");
    char text[4096] = "";
    int n = 0, *list = NULL;

    if (file && fgets(text, sizeof(text), file))
        text[strcspn(text, "\n")] = '\0';
    if (file)
        fclose(file);
    if (!*text || set_parse(text, MOST_CPUS, &n, &list))
        n = 0;
    free(list);
    return n;
}

static double whole_memory(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    double kilobytes = 0;

    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "MemTotal: %lf", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return kilobytes * 1024;
}

/* A file can be written there, and more; malloc'ed: why not. */
static char *try_folder(const char *folder)
{
    char *path = mem_printf("%s/.tasuki-XXXXXX", folder), *why = NULL;
    struct err err = { 0 };
    struct statvfs room;
    int fd = mkstemp(path);

    if (fd < 0)
        why = mem_printf("%s: %s", folder, strerror(errno));
    else if (file_write_all(fd, folder, path, strlen(path), &err) < 0)
        why = mem_strdup(err.text);
    else if (fstatvfs(fd, &room) == 0 && (double)room.f_bavail * (double)room.f_frsize < ROOM)
        why = mem_printf("%s: less than %d MiB are free", folder, ROOM >> 20);
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    free(path);
    return why;
}

static char *look_at_folders(const struct health_needs *needs)
{
    char *why = needs->temporary ? try_folder(needs->temporary) : NULL;

    /* MPI's messages within the node. */
    if (!why && access("/dev/shm", F_OK) == 0)
        why = try_folder("/dev/shm");
    /* No file in it: of a node that dies now it would stay. */
    if (!why && needs->shared && access(needs->shared, W_OK | X_OK))
        why = mem_printf("%s: %s", needs->shared, strerror(errno));
    return why ? why : mem_strdup("");
}

static void look_at_gpus(struct health *h, const struct topo_node *topo)
{
    const struct topo_said *nvml = topo_node_said(topo, "nvml");

    h->gpus = 0;
    for (int i = 0; i < topo->n_gpus; i++) {
        const struct topo_gpu *gpu = &topo->gpus[i];

        h->gpus += !gpu->seen ? 0 : gpu->mig == 1 ? gpu->n_migs : 1;
        if (gpu->remap_failure == 1 && !h->driver)
            h->driver = mem_printf("GPU %s: rows of its memory failed and cannot be remapped",
                                   gpu->address);
    }
    if (h->gpus == 0 && nvml && nvml->state != TOPO_USED && !h->driver)
        h->driver = mem_strdup(nvml->text);
}

struct health health_look(const struct health_needs *needs)
{
    const char *name = getenv("SLURMD_NODENAME");
    struct health h = { .node = mem_strdup(name ? name : ""), .cpus = count_cpus(),
                        .memory = whole_memory(), .gpus = -1,
                        .trouble = look_at_folders(needs), .oom = oom_look("") };

    if (needs->gpus)
        look_at_gpus(&h, needs->gpus);
    if (needs->file && access(needs->file, R_OK))
        h.missing = mem_printf("%s: %s", needs->file, strerror(errno));
    h.driver = h.driver ? h.driver : mem_strdup("");
    h.missing = h.missing ? h.missing : mem_strdup("");
    return h;
}

/* The line ------------------------------------------------------------------------------- */

static const char *text_of(const char *text)
{
    return json_is_text(text) ? text : "not UTF-8";
}

char *health_line(const struct health *h)
{
    json_t *json = json_pack("{s:s, s:s, s:I, s:f, s:I, s:s, s:s, s:s, s:f, s:b, s:I, s:I}",
                             "schema", "tasuki-health", "node", text_of(h->node), "cpus",
                             (json_int_t)h->cpus, "memory", h->memory, "gpus",
                             (json_int_t)h->gpus, "driver", text_of(h->driver), "trouble",
                             text_of(h->trouble), "missing", text_of(h->missing), "limit",
                             h->oom.limit, "grouped", (int)h->oom.grouped, "group_ended",
                             (json_int_t)h->oom.group, "ended", (json_int_t)h->oom.machine);
    char *line = json ? json_dumps(json, JSON_COMPACT) : NULL;

    json_decref(json);
    return line ? line : mem_strdup("");
}

bool health_read(const char *line, struct health *h)
{
    json_t *json = *line == '{' ? json_loads(line, 0, NULL) : NULL;
    const char *schema, *node, *driver, *trouble, *missing;
    json_int_t cpus, gpus, group, machine;
    double memory, limit;
    int grouped;
    bool good = json &&
                json_unpack(json, "{s:s, s:s, s:I, s:F, s:I, s:s, s:s, s:s, s:F, s:b, s:I, s:I}",
                            "schema", &schema, "node", &node, "cpus", &cpus, "memory", &memory,
                            "gpus", &gpus, "driver", &driver, "trouble", &trouble, "missing",
                            &missing, "limit", &limit, "grouped", &grouped, "group_ended", &group,
                            "ended", &machine) == 0 &&
                strcmp(schema, "tasuki-health") == 0;

    if (good)
        *h = (struct health){ mem_strdup(node), cpus, memory, gpus, mem_strdup(driver),
                              mem_strdup(trouble), mem_strdup(missing),
                              { limit, grouped, group, machine } };
    json_decref(json);
    return good;
}

void health_clear(struct health *h)
{
    free(h->node);
    free(h->driver);
    free(h->trouble);
    free(h->missing);
    *h = (struct health){ 0 };
}

/* The judgement -------------------------------------------------------------------------- */

struct all {
    int n;
    const struct health *said;
    const struct health_record *slurm;
    double *cpus, *memory;      /* what is usual for each */
};

static bool are_peers(const struct health_record *a, const struct health_record *b)
{
    return a->cpus == b->cpus && a->memory == b->memory && strcmp(a->gres, b->gres) == 0;
}

static double figure(const struct health *h, bool memory)
{
    return memory ? h->memory : (double)h->cpus;
}

/* Within a tenth. */
static bool alike(double a, double b)
{
    return a >= SHARE * b && b >= SHARE * a;
}

/* What most of a node's peers have; of two that as many have, the larger. */
static double most_have(const struct all *all, int node, bool memory)
{
    double best = 0;
    int most = 0;

    for (int i = 0; i < all->n; i++) {
        double value = figure(&all->said[i], memory);
        int count = 0;

        if (!are_peers(&all->slurm[node], &all->slurm[i]))
            continue;
        for (int j = 0; j < all->n; j++)
            count += are_peers(&all->slurm[node], &all->slurm[j]) &&
                     alike(value, figure(&all->said[j], memory));
        if (count < most || (count == most && value <= best))
            continue;
        most = count;
        best = value;
    }
    return best;
}

static void find_usual(struct all *all)
{
    all->cpus = mem_new((size_t)all->n, sizeof(double));
    all->memory = mem_new((size_t)all->n, sizeof(double));
    for (int i = 0; i < all->n; i++) {
        int peer = 0;

        while (!are_peers(&all->slurm[i], &all->slurm[peer]))
            peer++;
        all->cpus[i] = peer < i ? all->cpus[peer] : most_have(all, i, false);
        all->memory[i] = peer < i ? all->memory[peer] : most_have(all, i, true);
    }
}

/* Less than most have, and than Slurm promises: sites give it less than there is. */
static bool lacks(const struct all *all, int node, bool memory)
{
    const struct health_record *slurm = &all->slurm[node];
    double value = figure(&all->said[node], memory);
    double promised = memory ? slurm->memory : (double)slurm->cpus;
    double usual = memory ? all->memory[node] : all->cpus[node];

    return value > 0 && value < SHARE * usual && (promised <= 0 || value < promised);
}

static char *judge_gpus(const struct all *all, int node)
{
    const struct health *h = &all->said[node];
    const struct health_record *slurm = &all->slurm[node];
    bool some = false;

    for (int i = 0; i < all->n; i++)
        some |= all->said[i].gpus > 0;
    /* Where no node shows any, there is no driver, or none is meant: the ranks say it. */
    if (h->gpus < 0 || !some)
        return NULL;
    if (*h->driver && h->gpus > 0 && slurm->given > 0)
        return mem_strdup(h->driver);
    if (h->gpus < slurm->given)
        return mem_printf("the driver shows %" PRId64 " of the %" PRId64 " GPUs that the job has "
                          "there%s%s", h->gpus, slurm->given, *h->driver ? ": " : "", h->driver);
    /* Not confined to the job's: then their numbers count those that are gone. */
    if (slurm->given > 0 && h->gpus > slurm->given && h->gpus < slurm->gpus)
        return mem_printf("the driver shows %" PRId64 " of its %" PRId64 " GPUs", h->gpus,
                          slurm->gpus);
    return NULL;
}

/* Is it like that everywhere? */
static bool all_have(const struct all *all, bool missing)
{
    for (int i = 0; i < all->n; i++)
        if (!*(missing ? all->said[i].missing : all->said[i].trouble))
            return false;
    return true;
}

/* Does every node with GPUs show too few? Then it is no fault of theirs, and ranks will say it. */
static bool all_lack_gpus(const struct all *all)
{
    for (int i = 0; i < all->n; i++)
        if (all->slurm[i].given > 0 && all->said[i].gpus >= all->slurm[i].given)
            return false;
    return true;
}

static char *judge(const struct all *all, int node)
{
    const struct health *h = &all->said[node];
    const double gigabyte = 1024.0 * 1024 * 1024;

    if (*h->trouble && !all_have(all, false))
        return mem_printf("%s; other nodes can write there", h->trouble);
    if (*h->missing && !all_have(all, true))
        return mem_printf("%s; other nodes have it", h->missing);
    if (lacks(all, node, false))
        return mem_printf("it has %" PRId64 " CPUs, other nodes of its kind %.0f", h->cpus,
                          all->cpus[node]);
    if (lacks(all, node, true))
        return mem_printf("it has %.1f GiB of memory, other nodes of its kind %.1f",
                          h->memory / gigabyte, all->memory[node] / gigabyte);
    return all_lack_gpus(all) ? NULL : judge_gpus(all, node);
}

void health_judge(int n, const struct health *said, const struct health_record *slurm,
                  char **why)
{
    struct all all = { .n = n, .said = said, .slurm = slurm };

    find_usual(&all);
    for (int i = 0; i < n; i++)
        why[i] = judge(&all, i);
    free(all.cpus);
    free(all.memory);
}
