/* SPDX-License-Identifier: MIT */
#include "scheduler/schedule.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plain.h"
#include "scheduler/schedule_private.h"

/* Figures in a file beyond these are mistakes. */
#define MAX_STAGES 4096
#define MAX_MICRO 65536

static const char *const names[] = {
    [INSTRUCTION_F] = "F",       [INSTRUCTION_B] = "B",           [INSTRUCTION_W] = "W",
    [INSTRUCTION_BW] = "BW",     [INSTRUCTION_SEND] = "SEND",     [INSTRUCTION_RECV] = "RECV",
    [INSTRUCTION_REDUCE] = "REDUCE", [INSTRUCTION_STEP] = "STEP",
};

#define N_KINDS (int)(sizeof(names) / sizeof(names[0]))

const char *instruction_name(enum instruction_kind kind)
{
    return names[kind];
}

static void print_instruction(const struct instruction *i, FILE *out)
{
    fputs(names[i->kind], out);
    if (i->kind != INSTRUCTION_REDUCE && i->kind != INSTRUCTION_STEP)
        fprintf(out, " %d %d", i->micro, i->chunk);
    if (i->kind == INSTRUCTION_SEND || i->kind == INSTRUCTION_RECV)
        fprintf(out, " %s %d%s", i->kind == INSTRUCTION_SEND ? "->" : "<-", i->peer,
                i->gradient ? " gradient" : "");
    fputc('\n', out);
}

int schedule_print(const struct schedule *schedule, FILE *out)
{
    fprintf(out, "schedule %s stages %d micro-batches %d", schedule->name, schedule->n_stages,
            schedule->micro_batches);
    if (schedule->versions > 1)
        fprintf(out, " versions %d", schedule->versions);
    fputc('\n', out);
    for (int l = 0; l < schedule->n_lists; l++) {
        const struct instruction_list *list = &schedule->lists[l];

        for (int c = 0; c < list->n_chunks; c++)
            fprintf(out, "stage %d slots %d\n", list->stages[c],
                    schedule->stages[list->stages[c]].slots);
        for (int i = 0; i < list->n; i++)
            print_instruction(&list->items[i], out);
    }
    return ferror(out) ? -1 : 0;
}

/* The words of one line. */
#define MAX_WORDS 8

struct line {
    const char *path;
    int number;
    int n;
    char *words[MAX_WORDS];
};

static int line_error(const struct line *line, struct err *err, const char *text)
{
    return err_set(err, "%s: line %d: %s", line->path, line->number, text);
}

static int split(struct line *line, char *text, struct err *err)
{
    char *save = NULL, *hash = strchr(text, '#');

    if (hash)
        *hash = '\0';
    line->n = 0;
    for (char *w = strtok_r(text, " \t\r\n", &save); w; w = strtok_r(NULL, " \t\r\n", &save)) {
        if (line->n == MAX_WORDS)
            return line_error(line, err, "too many words");
        line->words[line->n++] = w;
    }
    return 0;
}

static int read_int(const struct line *line, int word, int max, int *value, struct err *err)
{
    char *text = line->words[word], *end;
    long n;

    if (!isdigit((unsigned char)text[0]) || (n = strtol(text, &end, 10), *end) || n > max) {
        plain_line(text);
        return err_set(err, "%s: line %d: \"%s\": expected an integer from 0 to %d",
                       line->path, line->number, text, max);
    }
    *value = (int)n;
    return 0;
}

static int find_kind(const char *name)
{
    for (int k = 0; k < N_KINDS; k++)
        if (strcmp(names[k], name) == 0)
            return k;
    return -1;
}

static int read_instruction(const struct line *line, const struct schedule *schedule,
                            struct instruction *i, struct err *err)
{
    int kind = find_kind(line->words[0]);
    bool message = kind == INSTRUCTION_SEND || kind == INSTRUCTION_RECV;
    bool whole = kind == INSTRUCTION_REDUCE || kind == INSTRUCTION_STEP;
    int words = whole ? 1 : message ? 5 : 3;

    if (kind < 0)
        return line_error(line, err,
                          "expected stage, F, B, W, BW, SEND, RECV, REDUCE or STEP");
    *i = (struct instruction){ .kind = (enum instruction_kind)kind };
    if (message && line->n == 6 && strcmp(line->words[5], "gradient") == 0) {
        i->gradient = true;
        words++;
    }
    if (line->n != words)
        return line_error(line, err, "too few or too many words for this instruction");
    if (whole)
        return 0;
    if (read_int(line, 1, schedule->versions * schedule->micro_batches - 1, &i->micro, err) ||
        read_int(line, 2, MAX_STAGES, &i->chunk, err))
        return -1;
    if (!message)
        return 0;
    if (strcmp(line->words[3], kind == INSTRUCTION_SEND ? "->" : "<-") != 0)
        return line_error(line, err, "expected -> after SEND, <- after RECV");
    return read_int(line, 4, schedule->n_stages - 1, &i->peer, err);
}

static struct schedule *read_head(const struct line *line, struct err *err)
{
    struct schedule *schedule;
    int stages, micro, versions = 1;

    if ((line->n != 6 && line->n != 8) || strcmp(line->words[0], "schedule") ||
        strcmp(line->words[2], "stages") || strcmp(line->words[4], "micro-batches") ||
        (line->n == 8 && strcmp(line->words[6], "versions"))) {
        line_error(line, err, "expected \"schedule NAME stages S micro-batches M\", maybe with "
                   "\"versions V\"");
        return NULL;
    }
    /* A plan, which is JSON, keeps the lines. */
    if (!json_is_text(line->words[1])) {
        line_error(line, err, "the name is not UTF-8");
        return NULL;
    }
    if (read_int(line, 3, MAX_STAGES, &stages, err) ||
        read_int(line, 5, MAX_MICRO, &micro, err) ||
        (line->n == 8 && read_int(line, 7, SCHEDULE_VERSIONS, &versions, err)))
        return NULL;
    if (stages == 0 || micro == 0 || versions == 0) {
        line_error(line, err, "no stages, no micro-batches or no versions");
        return NULL;
    }
    schedule = mem_new(1, sizeof(*schedule));
    schedule->name = mem_strdup(line->words[1]);
    schedule->n_stages = stages;
    schedule->micro_batches = micro;
    schedule->versions = versions;
    schedule->stages = mem_new((size_t)stages, sizeof(*schedule->stages));
    schedule->lists = mem_new((size_t)stages, sizeof(*schedule->lists));
    return schedule;
}

/* Lists are in the order of their first stages, and so are the chunks of a list. */
static bool in_order(const struct schedule *schedule, const struct instruction_list *list,
                     int stage)
{
    if (list->n_chunks)
        return stage > list->stages[list->n_chunks - 1];
    return schedule->n_lists == 1 || stage > list[-1].stages[0];
}

/* Such a line behind another one is a further chunk of its list. */
static int read_stage(const struct line *line, struct schedule *schedule, struct err *err)
{
    struct instruction_list *list;
    int s, slots;

    if (line->n != 4 || strcmp(line->words[2], "slots"))
        return line_error(line, err, "expected \"stage S slots N\"");
    if (read_int(line, 1, schedule->n_stages - 1, &s, err) ||
        read_int(line, 3, schedule->micro_batches, &slots, err))
        return -1;
    if (slots == 0)
        return line_error(line, err, "no slots");
    if (schedule->stages[s].slots)
        return line_error(line, err, "a stage for the second time");
    if (schedule->n_lists == 0 || schedule->lists[schedule->n_lists - 1].n > 0)
        schedule->n_lists++;
    list = &schedule->lists[schedule->n_lists - 1];
    if (list->n_chunks == SCHEDULE_MAX_CHUNKS)
        return err_set(err, "%s: line %d: more than %d stages of one list", line->path,
                       line->number, SCHEDULE_MAX_CHUNKS);
    if (!in_order(schedule, list, s))
        return line_error(line, err, "stages are not in order");
    schedule_assign(schedule, s, schedule->n_lists - 1);
    schedule->stages[s].slots = slots;
    return 0;
}

static int read_line(const struct line *line, struct schedule **schedule, struct err *err)
{
    struct instruction_list *list;
    struct instruction i;

    if (line->n == 0)
        return 0;
    if (!*schedule) {
        *schedule = read_head(line, err);
        return *schedule ? 0 : -1;
    }
    if (strcmp(line->words[0], "stage") == 0)
        return read_stage(line, *schedule, err);
    if ((*schedule)->n_lists == 0)
        return line_error(line, err, "an instruction before the first \"stage\"");
    if (read_instruction(line, *schedule, &i, err))
        return -1;
    list = &(*schedule)->lists[(*schedule)->n_lists - 1];
    *(struct instruction *)mem_push((void **)&list->items, &list->n, sizeof(i)) = i;
    return 0;
}

static bool has_all_stages(const struct schedule *schedule)
{
    for (int s = 0; schedule && s < schedule->n_stages; s++)
        if (!schedule->stages[s].slots)
            return false;
    return schedule != NULL;
}

struct schedule *schedule_read(const char *path, FILE *in, struct err *err)
{
    struct schedule *schedule = NULL;
    struct line line = { .path = path };
    char *text = NULL;
    size_t size = 0;
    ssize_t length;
    int rc = 0;

    while (rc == 0 && (length = getline(&text, &size, in)) >= 0) {
        line.number++;
        rc = strlen(text) == (size_t)length ? split(&line, text, err)
                                            : line_error(&line, err, "holds a zero byte");
        if (rc == 0)
            rc = read_line(&line, &schedule, err);
    }
    if (rc == 0 && ferror(in))
        rc = err_set(err, "%s: cannot be read", path);
    if (rc == 0 && !has_all_stages(schedule))
        rc = err_set(err, "%s: ends before its last stage", path);
    free(text);
    if (rc == 0) {
        schedule->source = mem_strdup(path);
        return schedule;
    }
    schedule_free(schedule);
    return NULL;
}

struct schedule *schedule_load(const char *path, struct err *err)
{
    FILE *file = fopen(path, "r");
    struct schedule *schedule;

    if (!file) {
        err_set_code(err, EXIT_USAGE, "--schedule: expected " SCHEDULE_NAMES " or a file, got "
                     "\"%s\": %s", path, strerror(errno));
        return NULL;
    }
    schedule = schedule_read(path, file, err);
    fclose(file);
    return schedule;
}
