/* SPDX-License-Identifier: MIT */
/* Which nodes a step is started on: those that answer, and are well. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/oom.h"
#include "base/option.h"
#include "cmd_launch.h"
#include "scheduler/slurm/gres.h"
#include "scheduler/slurm/slurm.h"
#include "topology/node.h"
#include "train/health.h"
#include "train/planning.h"

#define MOST_COUNT 4096     /* of stages, replicas and pipelines, as train has it */

/* A node that is asked ------------------------------------------------------------------- */

bool launcher_is_asked(void)
{
    return getenv("TASUKI_HEALTH") && getenv("SLURM_STEP_ID");
}

/* Where nothing is said the ranks choose, and take GPUs where they find some. */
static bool gpus_matter(const struct options *options)
{
    const char *kernels = NULL;
    struct err ignored = { 0 };

    return planning_kernels(options, &kernels, &ignored) == 0 &&
           (planning_on_gpu(kernels) ||
            (!option_given(options, "device") && !option_given(options, "backend")));
}

int launcher_answer(const struct options *options, struct err *err)
{
    const char *temporary = getenv("TMPDIR"), *checkpoint = getenv("TASUKI_HEALTH");
    struct topo_node *node = NULL;
    struct health_needs needs = {
        .temporary = temporary && *temporary ? temporary : "/tmp",
        .shared = checkpoint && *checkpoint ? checkpoint : NULL,
        .file = option_string(options, "data", NULL),
    };
    struct health health;
    char *line;

    if (gpus_matter(options)) {
        node = topo_node_discover(NULL, err);
        if (!node)
            return (int)err->code;
    }
    needs.gpus = node;
    health = health_look(&needs);
    line = health_line(&health);
    printf("%s\n", line);
    free(line);
    health_clear(&health);
    topo_node_free(node);
    return EXIT_OK;
}

/* The launcher --------------------------------------------------------------------------- */

enum fitness { WELL, DRAINED, BAD };

static const struct slurm_node *find_node(const struct slurm_facts *facts, const char *name)
{
    for (int i = 0; i < facts->n_nodes; i++)
        if (strcmp(facts->nodes[i].name, name) == 0)
            return &facts->nodes[i];
    return NULL;
}

static struct health_record record_of(const struct slurm_node *node)
{
    return (struct health_record){
        .cpus = (int64_t)node->sockets * node->cores * node->threads, .memory = node->memory,
        .gpus = slurm_count_gpus(node->gres), .given = slurm_count_gpus(node->given),
        .gres = node->gres,
    };
}

/* Of those that answered; why[i] stays NULL where a node is well. */
static void judge(const struct launcher *l, const struct slurm_facts *facts,
                  const struct answer *answers, char **why)
{
    struct health *said = mem_new((size_t)l->n_names, sizeof(*said));
    struct health_record *records = mem_new((size_t)l->n_names, sizeof(*records));
    char **wrong = mem_new((size_t)l->n_names, sizeof(*wrong));
    int n = 0;

    for (int i = 0; i < l->n_names; i++) {
        const struct slurm_node *node = find_node(facts, l->names[i]);

        if (!answers[i].there || !node)
            continue;
        said[n] = answers[i].health;
        records[n] = record_of(node);
        if (l->n_uneven)        /* what the step that asked had of each */
            records[n].given = l->gpus;
        n++;
    }
    health_judge(n, said, records, wrong);
    for (int i = 0, j = 0; i < l->n_names; i++)
        if (answers[i].there && find_node(facts, l->names[i]))
            why[i] = wrong[j++];
    free(wrong);
    free(records);
    free(said);
}

static char *silence(const struct answer *answer)
{
    return answer->talk ? mem_printf("no process can be started there: %s", answer->talk)
                        : mem_strdup("no process can be started there: nothing is heard of it");
}

/* An administrator, or a check of the site's, wants it back: better without it, if that will do. */
static bool is_drained(const struct slurm_node *node)
{
    return node && (strstr(node->state, "drain") || strstr(node->state, "fail"));
}

static struct oom *memory_of(struct launcher *l, const char *node)
{
    struct launcher_memory *memory;

    for (int i = 0; i < l->n_memories; i++)
        if (strcmp(l->memories[i].node, node) == 0)
            return &l->memories[i].oom;
    memory = mem_push((void **)&l->memories, &l->n_memories, sizeof(*memory));
    *memory = (struct launcher_memory){ mem_strdup(node), { .group = -1, .machine = -1 } };
    return &memory->oom;
}

/* Ranks say it of each other, where others of that node live. */
static void look_at_memory(struct launcher *l, const char *node, const struct oom *now)
{
    struct oom *before = memory_of(l, node);
    char text[240];

    if (oom_text(before, now, node, "the launcher last asked", text, sizeof(text)))
        log_warning("%s: " OOM_ADVICE, text);
    *before = *now;
}

static int look(struct launcher *l, const struct slurm_facts *facts, enum fitness *fitness,
                char **why, struct err *err)
{
    static const struct launcher_patience patience = {
        .first = 60, .silence = 20, .each = 30, .at_once = 64, .tries = 2,
        .pause = 10, .await = launcher_await_controller,
    };
    struct answer *answers = mem_new((size_t)l->n_names, sizeof(*answers));
    bool starts;

    starts = launcher_ask(l, &patience, l->n_names, l->names, answers, err);
    if (!starts && !err->code)
        log_warning("job %s: no step starts on any node: the controller of Slurm does not answer, "
                    "and nodes were not asked how they are", l->job);
    judge(l, facts, answers, why);
    for (int i = 0; i < l->n_names; i++) {
        const struct slurm_node *node = find_node(facts, l->names[i]);

        if (answers[i].there)
            look_at_memory(l, l->names[i], &answers[i].health.oom);
        if (!answers[i].there && answers[i].asked)
            why[i] = silence(&answers[i]);
        else if (!answers[i].there && !l->told && starts)
            log_warning("node %s was not asked how it is: %s", l->names[i],
                        answers[i].talk ? answers[i].talk : "there was no time");
        fitness[i] = why[i] ? BAD : WELL;
        if (!why[i] && is_drained(node)) {
            fitness[i] = DRAINED;
            why[i] = mem_printf("Slurm says %s%s%s", node->state, *node->reason ? ", " : "",
                                node->reason);
        }
    }
    launcher_answers_free(l->n_names, answers);
    return err->code ? -1 : 0;
}

/* Ranks that the run was told to have; an error where these settings are wrong. */
static int least_ranks(const struct launcher *l, int64_t *least, struct err *err)
{
    const struct options *o = l->options;
    const char *schedule = option_string(o, "schedule", "");
    bool several = strcmp(schedule, "interleaved") == 0 || strcmp(schedule, "zb-v") == 0;
    int64_t stages, pipelines, chunks, each, sum = 0;
    int n = 0, *replicas = NULL;

    if (option_int(o, "stages", 1, MOST_COUNT, 0, &stages, err) < 0 ||
        option_int(o, "pipelines", 1, MOST_COUNT, 1, &pipelines, err) < 0 ||
        option_int(o, "chunks", 2, MOST_COUNT, several ? 2 : 1, &chunks, err) < 0 ||
        option_ints(o, "replicas", 1, MOST_COUNT, &n, &replicas, err) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        sum += replicas[i];
    free(replicas);
    each = (sum > stages ? sum : stages) / chunks;
    *least = (each < 1 ? 1 : each) * pipelines;
    return 0;
}

/* Do nodes that are no worse than that suffice? 'err' says what they are too few for. */
static int suffices(const struct launcher *l, const enum fitness *fitness, enum fitness worst,
                    struct err *err)
{
    int64_t least, n = 0, ranks = 0;

    for (int i = 0; i < l->n_names; i++) {
        n += fitness[i] <= worst;
        ranks += fitness[i] <= worst ? launcher_ranks_on(l, l->names[i]) : 0;
    }
    if (n == 0)
        return err_set_code(err, EXIT_FOUND, "job %s: no node of it is left", l->job);
    if (least_ranks(l, &least, err) < 0)
        return -1;
    if (ranks < least)
        return err_set_code(err, EXIT_FOUND, "job %s: the nodes that are left, %" PRId64 ", have %"
                            PRId64 " ranks, and --%s wants %" PRId64, l->job, n, ranks,
                            option_given(l->options, "replicas") ? "replicas"
                            : option_given(l->options, "stages") ? "stages" : "pipelines", least);
    for (int i = 0; i < l->n_names; i++)
        if (fitness[i] > worst && launcher_plan_keeps(l, l->names[i]))
            return err_set_code(err, EXIT_FOUND, "job %s: %s has ranks on node %s, which is left "
                                "out (--keep-plan)", l->job, options_operand(l->options, 0),
                                l->names[i]);
    return 0;
}

/* Drained nodes are left out where enough others are there. */
static enum fitness choose_worst(const struct launcher *l, const enum fitness *fitness)
{
    struct err ignored = { 0 };
    int well = 0, drained = 0;

    for (int i = 0; i < l->n_names; i++) {
        well += fitness[i] == WELL;
        drained += fitness[i] == DRAINED;
    }
    return drained > well || suffices(l, fitness, WELL, &ignored) < 0 ? DRAINED : WELL;
}

static void say(const struct launcher *l, const enum fitness *fitness, enum fitness worst,
                char *const *why)
{
    for (int i = 0; i < l->n_names; i++)
        if (fitness[i] > worst)
            log_warning("node %s is left out: %s", l->names[i], why[i]);
        else if (fitness[i] == DRAINED)
            log_warning("node %s is used, since the others are too few: %s", l->names[i],
                        why[i]);
}

static void keep(struct launcher *l, const enum fitness *fitness, enum fitness worst)
{
    int kept = 0;

    for (int i = 0; i < l->n_names; i++)
        if (fitness[i] <= worst)
            l->names[kept++] = l->names[i];
        else
            free(l->names[i]);
    l->n_names = kept;
}

/* What the user asked for cannot be had of this allocation, but of another one. */
static int give_back(const struct slurm_facts *facts, struct err *err)
{
    if (err->code == EXIT_FOUND && facts->requeue > 0) {
        err->code = EXIT_REQUEUE;
        err_hint(err, "to be requeued");
    }
    return -1;
}

int launcher_check(struct launcher *l, const struct slurm_facts *facts, struct err *err)
{
    enum fitness *fitness = mem_new((size_t)l->n_names, sizeof(*fitness)), worst = WELL;
    char **why = mem_new((size_t)l->n_names, sizeof(*why));
    int bad = 0, n = l->n_names, out = (int)l->nodes - n;

    bad = look(l, facts, fitness, why, err);
    for (int i = 0; i < n; i++)
        out += fitness[i] != WELL;
    if (out > 0 && !l->told && !bad) {
        worst = choose_worst(l, fitness);
        say(l, fitness, worst, why);
        bad = suffices(l, fitness, worst, err);
    }
    if (!l->told)
        keep(l, fitness, worst);
    for (int i = 0; i < n; i++)
        free(why[i]);
    free(why);
    free(fitness);
    return bad ? give_back(facts, err) : 0;
}
