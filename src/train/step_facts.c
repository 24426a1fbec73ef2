/* SPDX-License-Identifier: MIT */
#include "train/step_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "scheduler/slurm/gres.h"
#include "scheduler/slurm/slurm.h"

static void take_gpus(struct step_facts *known, const struct slurm_facts *facts)
{
    for (int i = 0; i < facts->n_nodes; i++) {
        int n = slurm_count_gpus(facts->nodes[i].gres);

        if (n <= known->gpus)
            continue;
        known->gpus = n;
        snprintf(known->node, sizeof(known->node), "%s", facts->nodes[i].name);
    }
}

struct step_facts step_facts_ask(void)
{
    const char *job = getenv("SLURM_JOB_ID"), *rank = getenv("SLURM_PROCID");
    struct step_facts known = { 0 };
    struct err ignored = { 0 };
    struct slurm_facts *facts;

    if (!job || !rank || strcmp(rank, "0") != 0 || getenv("TASUKI_JOB_NOTICE"))
        return known;
    facts = slurm_ask_job(job, &ignored);
    if (facts && facts->time_limit > 0 && facts->time_left >= 0) {
        known.end = (double)time(NULL) + (double)facts->time_left;
        known.limit = (double)facts->time_limit;
    }
    if (facts)
        take_gpus(&known, facts);
    slurm_facts_free(facts);
    return known;
}

bool gpus_are_hidden(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    return visible && (!*visible || strcmp(visible, "-1") == 0);
}

bool gpus_are_named(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    return visible && strcmp(visible, "NoDevFiles") != 0 && !gpus_are_hidden();
}
