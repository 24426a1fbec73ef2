/* SPDX-License-Identifier: MIT */
/* How many ranks each node has, and in which order: a list of nodes for srun, one line for each rank. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/option.h"
#include "cmd_launch.h"
#include "scheduler/plan.h"
#include "train/order.h"

int64_t launcher_ranks_on(const struct launcher *l, const char *node)
{
    for (int i = 0; i < l->n_uneven; i++)
        if (strcmp(l->uneven[i].node, node) == 0)
            return l->uneven[i].n;
    return l->tasks;
}

int64_t launcher_ranks(const struct launcher *l)
{
    int64_t sum = 0;

    for (int i = 0; i < l->n_names; i++)
        sum += launcher_ranks_on(l, l->names[i]);
    return l->n_names ? sum : l->nodes * l->tasks;
}

/* Ranks that the plan has on each node; -1: on one that is not there, or too many. */
static int count_ranks(const struct launcher *l, int n, char *const *order, int64_t *counts)
{
    for (int i = 0; i < n; i++) {
        int at = 0;

        while (at < l->n_names && strcmp(l->names[at], order[i]) != 0)
            at++;
        if (at == l->n_names || ++counts[at] > launcher_ranks_on(l, order[i]))
            return -1;
    }
    return 0;
}

/* Behind the plan's ranks come those that have no work in it. */
static char *list_of(const struct launcher *l, int n, char *const *order)
{
    int64_t *counts = mem_new((size_t)l->n_names + 1, sizeof(*counts));
    char *text = NULL;
    size_t size;
    FILE *out = count_ranks(l, n, order, counts) == 0 ? open_memstream(&text, &size) : NULL;

    for (int i = 0; out && i < n; i++)
        fprintf(out, "%s\n", order[i]);
    for (int i = 0; out && i < l->n_names; i++)
        for (; counts[i] < launcher_ranks_on(l, l->names[i]); counts[i]++)
            fprintf(out, "%s\n", l->names[i]);
    if (out)
        fclose(out);
    free(counts);
    return text;
}

static struct plan *load_plan(const struct launcher *l)
{
    const char *input = options_operands(l->options) == 1 ? options_operand(l->options, 0) : "";
    struct err ignored = { 0 };

    /* What is wrong with the file the ranks will say. */
    return l->n_names && plan_is_file(input) ? plan_load(input, &ignored) : NULL;
}

bool launcher_plan_keeps(const struct launcher *l, const char *node)
{
    struct plan *plan = option_flag(l->options, "keep-plan", false) ? load_plan(l) : NULL;
    char **order;
    int n = plan ? order_of_plan(plan, &order) : 0;
    bool keeps = false;

    for (int i = 0; i < n; i++)
        keeps |= strcmp(order[i], node) == 0;
    if (plan)
        order_free(n, order);
    plan_free(plan);
    return keeps;
}

int launcher_order(struct launcher *l, struct err *err)
{
    struct plan *plan = load_plan(l);
    char **order, *text = NULL;
    int n = plan ? order_of_plan(plan, &order) : 0, bad;

    launcher_forget_order(l);
    if (n)
        text = list_of(l, n, order);
    if (!text && l->n_uneven && l->n_names)
        text = list_of(l, 0, NULL);
    if (text)
        l->order = file_temporary("", text, err);
    bad = text && !l->order ? -1 : 0;
    free(text);
    if (plan)
        order_free(n, order);
    plan_free(plan);
    return bad;
}

void launcher_forget_order(struct launcher *l)
{
    if (l->order)
        unlink(l->order);
    free(l->order);
    l->order = NULL;
}
