/* SPDX-License-Identifier: MIT */
#include "scheduler/slurm/gres.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/shape.h"

#define MOST_GPUS 1024

/* Where the entry ends: at a comma outside of brackets. */
static size_t entry_length(const char *text)
{
    size_t n = 0;

    for (int depth = 0; text[n] && (depth > 0 || text[n] != ','); n++)
        depth += (text[n] == '(') - (text[n] == ')');
    return n;
}

static bool is_number(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text) && strlen(text) < 6;
}

/* "IDX:0,2-3" behind the count. */
static void read_indices(const char *note, struct slurm_gpus *gpus)
{
    const char *list = strstr(note, "IDX:");
    int n;

    if (!list)
        return;
    if (set_parse(list + 4, MOST_GPUS, &n, &gpus->index) == 0 && n == gpus->n)
        return;
    free(gpus->index);
    gpus->index = NULL;
}

/* "gpu", "gpu:4", "gpu:p100", "gpu:p100:4" and "(…)"; false: no GPUs. */
static bool read_entry(char *entry, struct slurm_gpus *gpus)
{
    char *note = strchr(entry, '('), *close, *rest = entry, *name, *type, *count;

    if (note) {
        *note++ = '\0';
        close = strrchr(note, ')');
        if (close)
            *close = '\0';
    }
    name = strsep(&rest, ":");
    type = strsep(&rest, ":");
    count = strsep(&rest, ":");
    if (strcmp(name, "gpu") != 0 || rest)
        return false;
    if (type && !count && is_number(type)) {
        count = type;
        type = NULL;
    }
    if (count && !is_number(count))
        return false;
    gpus->n = count ? (int)strtol(count, NULL, 10) : 1;
    if (gpus->n == 0 || gpus->n > MOST_GPUS)
        return false;
    gpus->type = mem_strdup(type && *type ? type : "gpu");
    if (note)
        read_indices(note, gpus);
    return true;
}

int slurm_gpus_of(const char *gres, struct slurm_gpus **list)
{
    int n = 0;

    *list = NULL;
    while (*gres) {
        size_t length = entry_length(gres);
        char *entry = mem_printf("%.*s", (int)length, gres);
        struct slurm_gpus gpus = { 0 };

        if (read_entry(entry, &gpus))
            *(struct slurm_gpus *)mem_push((void **)list, &n, sizeof(gpus)) = gpus;
        free(entry);
        gres += length;
        gres += *gres == ',';
    }
    return n;
}

void slurm_gpus_free(int n, struct slurm_gpus *gpus)
{
    for (int i = 0; i < n; i++) {
        free(gpus[i].type);
        free(gpus[i].index);
    }
    free(gpus);
}

int slurm_count_gpus(const char *gres)
{
    struct slurm_gpus *gpus;
    int kinds = slurm_gpus_of(gres, &gpus), n = 0;

    for (int i = 0; i < kinds; i++)
        n += gpus[i].n;
    slurm_gpus_free(kinds, gpus);
    return n;
}

bool slurm_has_gpu_parts(const char *gres)
{
    while (*gres) {
        size_t length = entry_length(gres), name = strcspn(gres, ":(,");

        if ((name == 5 && strncmp(gres, "shard", name) == 0) ||
            (name == 3 && strncmp(gres, "mps", name) == 0))
            return true;
        gres += length;
        gres += *gres == ',';
    }
    return false;
}
