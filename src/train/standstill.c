/* SPDX-License-Identifier: MIT */
#include "train/standstill.h"

#include <stdio.h>

#include "comm/where.h"

#define MOST_LINES 40       /* of a report; the log has all groups */

static void say_group(const struct where_group *g, enum log_level level)
{
    const struct sighting *s = g->one;
    char ranks[256], at[160];

    where_ranks_text(g, ranks, sizeof(ranks));
    where_text(&s->at, at, sizeof(at));
    if (s->silent < 0)
        log_say(level, "rank%s %s: never heard of", g->n > 1 ? "s" : "", ranks);
    else if (s->silent > 0)
        log_say(level, "rank%s %s: silent for %.0f s, %s before", g->n > 1 ? "s" : "",
                ranks, s->silent, at);
    else
        log_say(level, "rank%s %s: %s, for %.0f s", g->n > 1 ? "s" : "", ranks, at,
                s->at.seconds);
}

void standstill_say(const struct sighting *ranks, int size, enum log_level level)
{
    struct where_group *groups;
    int n;

    if (!ranks)
        return;
    groups = where_groups(ranks, size, &n);
    for (int i = 0; i < n && i < MOST_LINES; i++)
        say_group(&groups[i], level);
    if (n > MOST_LINES)
        log_say(level, "and %d more groups of ranks", n - MOST_LINES);
    where_groups_free(groups, n);
}

static json_t *or_null(int64_t value, int64_t least)
{
    return value < least ? json_null() : json_integer((json_int_t)value);
}

static json_t *group_to_json(const struct where_group *g)
{
    const struct sighting *s = g->one;
    json_t *ranks = json_array();

    for (int i = 0; i < g->n; i++)
        json_array_append_new(ranks, json_integer(g->ranks[i]));
    return json_pack("{s:o, s:o, s:o, s:o, s:s, s:s, s:o, s:f, s:o}", "ranks", ranks, "step",
                     or_null(s->at.step, 1), "stage", or_null(s->at.stage, 0), "micro_batch",
                     or_null(s->at.micro, 0), "instruction", s->at.what, "operation",
                     where_operation_name(s->at.operation), "peer", or_null(s->at.peer, 0),
                     "seconds", s->at.seconds, "silent",
                     s->silent < 0 ? json_null() : json_real(s->silent));
}

json_t *standstill_to_json(const struct sighting *ranks, int size)
{
    struct where_group *groups;
    json_t *list;
    int n;

    if (!ranks)
        return NULL;
    list = json_array();
    groups = where_groups(ranks, size, &n);
    for (int i = 0; i < n; i++)
        json_array_append_new(list, group_to_json(&groups[i]));
    where_groups_free(groups, n);
    return list;
}
