/* SPDX-License-Identifier: MIT */
#include "topology/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/order.h"
#include "topology/node.h"
#include "topology/shape.h"

#define MOST_RANKS (1 << 24)
#define MOST_PUS 65535
#define MOST_GPUS 256

#define TASK struct topo_task
#define NUMBERS(member, list_kind, unknown, top)                                          \
    { .key = #member, .kind = list_kind, .at = offsetof(TASK, member),                    \
      .count_at = offsetof(TASK, n_##member), .none = unknown, .most = top }
#define NUMBER(member, top)                                                               \
    { .key = #member, .kind = SHAPE_INT, .at = offsetof(TASK, member), .none = -1, .most = top }

static const struct shape_field fields[] = {
    NUMBER(rank, MOST_RANKS),
    { .key = "host", .kind = SHAPE_TEXT, .at = offsetof(TASK, host), .required = true },
    NUMBERS(usable, SHAPE_SET, 0, MOST_PUS),
    NUMBERS(visible, SHAPE_INTS, -1, MOST_GPUS),
    NUMBERS(partitions, SHAPE_TEXTS, 0, MOST_GPUS),
    NUMBERS(shown, SHAPE_SET, -1, MOST_GPUS),
    NUMBER(isolated, 1),
};
static const struct shape shape = { sizeof(TASK), sizeof(fields) / sizeof(fields[0]), fields };

struct topo_tasks *topo_tasks_new(void)
{
    return mem_new(1, sizeof(struct topo_tasks));
}

void topo_tasks_free(struct topo_tasks *tasks)
{
    if (!tasks)
        return;
    for (int i = 0; i < tasks->n; i++)
        shape_clear(&shape, &tasks->list[i]);
    free(tasks->list);
    free(tasks);
}

static struct topo_task *push(struct topo_tasks *tasks)
{
    struct topo_task *task = mem_push((void **)&tasks->list, &tasks->n, sizeof(*task));

    shape_init(&shape, task);
    return task;
}

static int *copy_of(int n, const int *numbers)
{
    int *copy = mem_new((size_t)(n > 0 ? n : 0), sizeof(int));

    for (int i = 0; i < n; i++)
        copy[i] = numbers[i];
    return copy;
}

/* What the driver hides is as good as what CUDA_VISIBLE_DEVICES leaves out. */
static void add_shown(struct topo_task *task, int n_gpus, int n_shown, const int *shown)
{
    if (n_shown > 0 && n_shown < n_gpus) {
        task->n_shown = n_shown;
        task->shown = copy_of(n_shown, shown);
    }
    if (n_gpus == 0 && task->n_visible < 0)
        task->n_visible = 0;
    if (task->n_visible < 0 && task->n_shown >= 0) {
        task->n_visible = task->n_shown;
        task->visible = copy_of(n_shown, shown);
    }
}

/* What the rank calls GPU i, as all ranks of its host do. */
static int common_index(const json_t *own, const json_t *places, int i)
{
    char key[16];
    const json_t *gpu, *place;

    snprintf(key, sizeof(key), "%d", i);
    gpu = json_object_get(json_object_get(own, "gpus"), key);
    place = json_object_get(places, json_is_object(gpu)
                                        ? json_string_value(json_object_get(gpu, "address"))
                                        : NULL);
    return json_is_integer(place) ? (int)json_integer_value(place) : i;
}

int topo_tasks_add(struct topo_tasks *tasks, int rank, const json_t *own, const json_t *places,
                   struct err *err)
{
    static const char *const keys[] = { "host", "usable", "visible", "partitions",
                                        "isolated" };
    const json_t *gpus = json_object_get(json_object_get(own, "own"), "gpus"), *gpu;
    json_t *object = json_object();
    struct json_reader r, top = { .file = "task" };
    struct topo_task *task = push(tasks);
    int n_shown = 0, shown[MOST_GPUS], status;
    size_t i;

    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        json_object_set(object, keys[i],
                        json_object_get(i ? json_object_get(own, "own") : own, keys[i]));
    status = json_reader_sub(&r, &top, "own", -1, object, err) ||
             shape_from_json(&shape, task, &r, err);
    json_array_foreach(gpus, i, gpu)
        if (i < MOST_GPUS && json_is_true(json_object_get(gpu, "seen")))
            shown[n_shown++] = common_index(own, places, (int)i);
    qsort(shown, (size_t)n_shown, sizeof(int), order_ints);
    for (int j = 0; j < task->n_visible; j++)
        task->visible[j] = common_index(own, places, task->visible[j]);
    task->rank = rank;
    add_shown(task, (int)(places ? json_object_size(places) : json_array_size(gpus)), n_shown,
              shown);
    json_decref(object);
    return status ? -1 : 0;
}

void topo_tasks_add_node(struct topo_tasks *tasks, const struct topo_node *node)
{
    struct topo_task *task = push(tasks);
    int n_shown = 0, shown[MOST_GPUS];

    free(task->host);
    task->host = mem_strdup(node->host);
    task->n_usable = node->n_usable;
    task->usable = copy_of(node->n_usable, node->usable);
    task->n_visible = node->n_visible;
    task->visible = copy_of(node->n_visible, node->visible);
    for (int i = 0; i < node->n_partitions; i++)
        *(char **)mem_push((void **)&task->partitions, &task->n_partitions, sizeof(char *)) =
            mem_strdup(node->partitions[i]);
    task->isolated = node->isolated;
    for (int i = 0; i < node->n_gpus; i++)
        if (node->gpus[i].seen && n_shown < MOST_GPUS)
            shown[n_shown++] = i;
    add_shown(task, node->n_gpus, n_shown, shown);
}

static void write_gpus(FILE *out, const struct topo_task *task)
{
    if (task->n_visible <= 0)
        fputs(task->n_visible ? "all" : "none", out);
    for (int i = 0; i < task->n_visible; i++)
        fprintf(out, "%s%d", i ? "," : "", task->visible[i]);
}

char *topo_tasks_text(const struct topo_tasks *tasks)
{
    char *text = NULL, *cpus;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return mem_strdup("");
    fputs("tasks\n", out);
    for (int i = 0; i < tasks->n; i++) {
        const struct topo_task *task = &tasks->list[i];

        cpus = task->n_usable ? set_text(task->n_usable, task->usable) : mem_strdup("?");
        fprintf(out, "  rank %-5d %-16s CPUs %-16s GPUs ", task->rank, task->host, cpus);
        write_gpus(out, task);
        fputc('\n', out);
        free(cpus);
    }
    fclose(out);
    return text;
}

json_t *topo_tasks_to_json(const struct topo_tasks *tasks)
{
    json_t *list = json_array();

    for (int i = 0; i < tasks->n; i++)
        json_array_append_new(list, shape_to_json(&shape, &tasks->list[i]));
    return list;
}

struct topo_tasks *topo_tasks_from_json(const char *path, const json_t *list, struct err *err)
{
    struct topo_tasks *tasks = topo_tasks_new();
    struct json_reader top = { .file = path };

    for (size_t i = 0; i < json_array_size(list); i++) {
        struct json_reader r;

        if (json_reader_sub(&r, &top, "tasks", (int)i, json_array_get(list, i), err) ||
            shape_from_json(&shape, push(tasks), &r, err)) {
            topo_tasks_free(tasks);
            return NULL;
        }
    }
    return tasks;
}
