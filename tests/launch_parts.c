/* SPDX-License-Identifier: MIT */
/* launch_parts nodes JOB FOLDER, launch_parts order PLAN TASKS: seconds of what the launcher does
 * before it starts a step, for etc/bench/launch.
 *
 * nodes: asks Slurm for the job and its nodes, then asks these how they are, by an "srun" made in
 * FOLDER that prints an answer for each: what is left is reading and judging them. order: reads a
 * plan and writes the list of the nodes of its ranks, so many on each. A line for each part: what
 * it was, how many there were of what, and seconds.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/option.h"
#include "cmd_launch.h"
#include "scheduler/plan.h"
#include "scheduler/slurm/slurm.h"
#include "train/order.h"

/* What follows the options of srun does not matter here. */
void launcher_add_training(struct launcher_words *words, const struct launcher *l, bool resume)
{
    (void)l;
    (void)resume;
    launcher_add(words, mem_strdup("train"));
}

static void print(const char *what, int n, const char *of, double seconds)
{
    printf("%-16s %5d %s  %8.4f s\n", what, n, of, seconds);
}

static int fail(const struct err *err)
{
    fprintf(stderr, "launch_parts: %s\n", err->text);
    return 1;
}

static struct options *train(const char *model)
{
    struct err err = { 0 };
    char *words[] = { "train", (char *)(uintptr_t)model, "--device", "cpu", NULL };

    return options_parse(COMMAND_TRAIN, 4, words, 1, &err);
}

/* Nodes ----------------------------------------------------------------------------------- */

static bool write_srun(const char *folder, const struct slurm_facts *facts)
{
    char *path = mem_printf("%s/srun", folder);
    FILE *out = fopen(path, "w");
    bool good = out != NULL;

    if (good) {
        fputs("#!/bin/sh\ncat <<END\n", out);
        for (int i = 0; i < facts->n_nodes; i++) {
            struct health health = { .node = facts->nodes[i].name, .cpus = 4, .memory = 1e9,
                                     .gpus = -1, .driver = "", .trouble = "", .missing = "" };
            char *line = health_line(&health);

            fprintf(out, "%s\n", line);
            free(line);
        }
        fputs("END\n", out);
        good = fclose(out) == 0 && chmod(path, 0700) == 0;
    }
    free(path);
    return good;
}

static void put_first(const char *folder)
{
    char *path = mem_printf("%s:%s", folder, getenv("PATH"));

    setenv("PATH", path, 1);
    free(path);
}

static int time_nodes(const char *job, const char *folder)
{
    struct launcher l = { .job = job, .options = train("model.onnx"), .tasks = 1 };
    struct err err = { 0 };
    double begin = clock_now(), end;
    struct slurm_facts *facts = slurm_ask_job(job, &err);

    end = clock_now();
    if (!facts)
        return fail(&err);
    if (!l.options || !write_srun(folder, facts))
        return 1;
    print("node facts", facts->n_nodes, "nodes", end - begin);
    put_first(folder);
    launcher_take_signals();
    l.nodes = facts->n_nodes;
    for (int i = 0; i < facts->n_nodes; i++)
        *(char **)mem_push((void **)&l.names, &l.n_names, sizeof(char *)) =
            mem_strdup(facts->nodes[i].name);
    begin = clock_now();
    if (launcher_check(&l, facts, &err) || l.n_names != l.nodes)
        return fail(&err);
    print("health answers", l.n_names, "nodes", clock_now() - begin);
    return 0;
}

/* Ranks ----------------------------------------------------------------------------------- */

static bool is_new(int n, char *const *names, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return false;
    return true;
}

/* The job has the nodes of the plan. */
static int take_names(struct launcher *l, const char *path, struct err *err)
{
    struct plan *plan = plan_load(path, err);
    char **order;
    int n = plan ? order_of_plan(plan, &order) : 0;

    for (int i = 0; i < n; i++)
        if (is_new(l->n_names, l->names, order[i]))
            *(char **)mem_push((void **)&l->names, &l->n_names, sizeof(char *)) =
                mem_strdup(order[i]);
    if (plan)
        order_free(n, order);
    plan_free(plan);
    return n;
}

static int time_order(const char *path, int tasks)
{
    struct launcher l = { .options = train(path), .tasks = tasks };
    struct err err = { 0 };
    int n = take_names(&l, path, &err);
    double begin = clock_now();

    if (n == 0 || !l.options || launcher_order(&l, &err) || !l.order)
        return fail(&err);
    print("rank file", n, "ranks", clock_now() - begin);
    launcher_forget_order(&l);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "nodes") == 0)
        return time_nodes(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "order") == 0)
        return time_order(argv[2], atoi(argv[3]));
    return fprintf(stderr, "usage: launch_parts nodes JOB FOLDER | order PLAN TASKS\n"), 2;
}
