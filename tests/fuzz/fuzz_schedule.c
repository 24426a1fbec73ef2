/* SPDX-License-Identifier: MIT */
/* Hostile instruction lists. What is accepted is planned for, or refused with its name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fuzz.h"
#include "scheduler/partition.h"
#include "scheduler/schedule.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define CLUSTER "flat:4,bandwidth=1e9,latency=0,memory=1e12"
#define MAX_LINES 512
#define BLOCKS 6
#define MOST_MICRO 64

static const char *const lines[] = {
    "F 0 0", "B 0 1", "W 1 0", "BW 0 0", "SEND 0 0 -> 1", "RECV 1 1 <- 0", "REDUCE", "STEP",
    "RECV 0 0 <- 1 gradient", "SEND 0 1 -> 0 gradient", "stage 2 slots 1", "stage 4095 slots 65536",
    "schedule x stages 2 micro-batches 2", "F 99999999999999999999 0", "F -1 0", "SEND 0 0", "#",
    "stage 0 slots 0", "F 0 4096", "schedule x stages 4096 micro-batches 65536 versions 2", "",
};

/* A list of a chain of stages, in lines; to be freed. */
static char *chain(struct fuzz *fuzz)
{
    const struct schedule_options options = { .chunks = 2 };
    struct schedule_edge edges[BLOCKS];
    int stages = 2 * (1 + (int)fuzz_below(fuzz, BLOCKS / 2));
    enum schedule_kind kind = (enum schedule_kind)fuzz_below(fuzz, SCHEDULE_KINDS);
    int micro = kind == SCHEDULE_INTERLEAVED ? stages : 1 + (int)fuzz_below(fuzz, 4);
    struct schedule *schedule;
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);

    for (int i = 0; i + 1 < stages; i++)
        edges[i] = (struct schedule_edge){ i, i + 1, true };
    schedule = schedule_new(schedule_name(kind), &options, stages, micro, edges, stages - 1, NULL);
    schedule_print(schedule, file);
    fclose(file);
    schedule_free(schedule);
    return text;
}

static size_t split(char *text, char **line)
{
    size_t n = 0;

    for (char *save, *at = strtok_r(text, "\n", &save); at && n < MAX_LINES;
         at = strtok_r(NULL, "\n", &save))
        line[n++] = at;
    return n;
}

/* A line is lost, doubled, exchanged with its neighbour, or another one. */
static void mutate(struct fuzz *fuzz, char **line, size_t *n)
{
    size_t at = fuzz_below(fuzz, *n);
    char *own = line[at];

    switch (fuzz_below(fuzz, 5)) {
    case 0:
        memmove(line + at, line + at + 1, (*n - at - 1) * sizeof(*line));
        (*n)--;
        break;
    case 1:
    case 2:
        line[at] = line[(at + 1) % *n];
        line[(at + 1) % *n] = own;
        break;
    case 3:
        line[at] = line[fuzz_below(fuzz, *n)];
        break;
    default:
        line[at] = (char *)lines[fuzz_below(fuzz, COUNT(lines))];
    }
}

static void make(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    char *text = chain(fuzz), *line[MAX_LINES];
    size_t n = split(text, line), times = structured ? fuzz_below(fuzz, 4) : 0;

    while (times-- > 0 && n > 1)
        mutate(fuzz, line, &n);
    for (size_t i = 0; i < n; i++) {
        fuzz_put(file, line[i], strlen(line[i]));
        fuzz_put(file, "\n", 1);
    }
    free(text);
    if (!structured)
        fuzz_damage(fuzz, file);
}

static struct cost *chain_cost(void)
{
    json_t *blocks = json_array(), *edges = json_array(), *json;
    char name[2] = "a", next[2] = "b";
    struct cost *cost;

    for (int i = 0; i < BLOCKS; i++, name[0]++, next[0]++) {
        json_array_append_new(blocks, json_pack("{s:s, s:i, s:i, s:i, s:i, s:i}", "name", name,
                                                "forward", 1, "dgrad", 1, "wgrad", 1,
                                                "parameters", 100, "activations", 10));
        if (i + 1 < BLOCKS)
            json_array_append_new(edges, json_pack("{s:s, s:s, s:i}", "from", name, "to", next,
                                                   "bytes", 4));
    }
    json = json_pack("{s:s, s:i, s:[i], s:o, s:o}", "schema", "tasuki-cost", "version", 1,
                     "micro_batch", 1, "blocks", blocks, "edges", edges);
    cost = cost_from_json("cost", json, NULL);
    json_decref(json);
    return cost;
}

/* A plan with these instructions, or an error that names the file. */
static enum fuzz_result plan_for(const struct schedule *list, struct err *err)
{
    struct cluster *cluster = cluster_open(CLUSTER, NULL);
    struct cost *cost = chain_cost();
    struct plan_request request = { .global_batch = list->micro_batches, .list = list,
                                    .stages = list->n_stages,
                                    .micro_batches = list->micro_batches };
    struct plan *plan = partition(cost, cluster, &request, NULL, err);
    enum fuzz_result result = plan ? FUZZ_ACCEPTED : FUZZ_REFUSED;

    if (plan ? !schedule_same(plan->list, list) || !(plan->iteration_seconds > 0) : !err->text[0])
        abort();
    plan_free(plan);
    cost_free(cost);
    cluster_free(cluster);
    return result;
}

/* That many micro-batches are in none of these files. */
static enum fuzz_result refuse(const struct schedule *list, struct err *err)
{
    int n;
    struct schedule_edge *edges = schedule_edges(list, &n);

    if (schedule_check(list, edges, n, err) == 0)
        abort();
    free(edges);
    return FUZZ_REFUSED;
}

static enum fuzz_result try(const char *path, struct err *err)
{
    struct schedule *list = schedule_load(path, err);
    enum fuzz_result result;

    if (!list)
        return FUZZ_UNPARSED;
    result = (list->micro_batches > MOST_MICRO ? refuse : plan_for)(list, err);
    schedule_free(list);
    return result;
}

int main(int argc, char **argv)
{
    static const struct fuzz_target target = { "schedule", ".list", make, try };

    return fuzz_main(&target, argc, argv);
}
