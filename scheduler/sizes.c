/* SPDX-License-Identifier: MIT */
#include "scheduler/sizes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/extreme.h"
#include "base/mem.h"
#include "base/plain.h"

/* Devices of the first so many nodes; 0: there are fewer. A cluster without nodes has one. */
static int devices_of(const struct cluster *c, int nodes)
{
    int seen = 0, d = 0;

    for (; d < c->n_devices; d++)
        if ((d == 0 || c->devices[d].node != c->devices[d - 1].node) && ++seen > nodes)
            break;
    return seen < nodes ? 0 : d;
}

/* How much longer the replica with most to do computes than their mean. */
static double unevenness(const struct plan_stage *stage)
{
    return stage->replicas > 1 ? dmax(stage->busiest - stage->busy, 0) : 0;
}

static void fill_shares(struct size_row *row, double *uneven, double *unused)
{
    const struct plan *plan = row->plan;
    double all = row->devices * row->step, used = 0;

    *uneven = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        double n = plan->pipelines * plan->stages[s].replicas;

        row->busy += n * plan->stages[s].busy / all;
        row->reducing += n * plan->stages[s].reducing / all;
        *uneven += n / all * unevenness(&plan->stages[s]);
        used += plan_first(plan, s) ? n : 0;
    }
    row->idle = dmax(0, 1 - row->busy - row->reducing);
    *unused = 1 - used / row->devices;
}

/* Those with smaller shares wait for the others where sums are made, or else. */
static void fill_parts(const struct size_request *q, struct size_row *row)
{
    double seconds = row->steps, read = 1 - row->plan->iteration_seconds / row->step;
    double uneven, unused, reducing, idle;

    fill_shares(row, &uneven, &unused);
    unused = dmin(unused, row->idle);
    read = dmin(read, row->idle - unused);
    uneven = dmin(uneven, row->reducing + row->idle - unused - read);
    reducing = dmax(0, row->reducing - uneven);
    idle = row->idle - unused - read - dmax(0, uneven - row->reducing);
    row->parts[SIZE_READING] = seconds * read;
    row->parts[SIZE_COMPUTES] = seconds * row->busy;
    row->parts[SIZE_REDUCES] = seconds * reducing;
    row->parts[SIZE_UNEVEN] = seconds * uneven;
    row->parts[SIZE_WAITS] = seconds * idle;
    row->parts[SIZE_UNUSED] = seconds * unused;
    if (q->steps)
        row->parts[SIZE_START_UP] = q->start_up + q->start_up_node * row->nodes;
    row->finish = row->parts[SIZE_START_UP] + row->parts[SIZE_STAGING] + seconds;
    row->limit = SIZE_START_UP;
    for (int i = 1; i < SIZE_PARTS; i++)
        if (row->parts[i] > row->parts[row->limit])
            row->limit = (enum size_part)i;
}

/* All nodes read the same files at once, each its share of the samples. */
static double reading_seconds(const struct size_request *q,
                              const struct cluster_storage *storage, int nodes,
                              int64_t global_batch)
{
    double bytes;

    if (q->samples <= 0)
        return 0;
    bytes = q->data_bytes / (double)q->samples * (double)global_batch / nodes;
    return q->staged ? storage_local_seconds(storage, bytes)
                     : storage_seconds(storage, nodes, bytes, true);
}

/* There is none for these devices, and why. */
static void refuse(struct size_row *row, const char *why)
{
    plan_free(row->plan);
    row->plan = NULL;
    row->refused = mem_strdup(why);
    plain_line(row->refused);
}

static void fill(struct sizes *sizes, const struct cluster *part, struct size_row *row)
{
    const struct size_request *q = &sizes->request;
    struct err err = { 0 };

    row->nodes = cluster_nodes(part);
    row->devices = part->n_devices;
    row->plan = q->plan(q->user, part, &err);
    if (!row->plan) {
        refuse(row, err.text);
        return;
    }
    if (q->staged && q->steps)
        row->parts[SIZE_STAGING] =
            storage_seconds(&part->storage, row->nodes, q->data_bytes, false);
    row->reading = reading_seconds(q, &part->storage, row->nodes, row->plan->global_batch);
    row->step = dmax(row->plan->iteration_seconds, row->reading);
    if (row->step <= 0) {
        refuse(row, "by its costs the network takes no time");
        return;
    }
    row->steps = (double)(q->steps ? q->steps : 1) * row->step;
    fill_parts(q, row);
    row->node_hours = row->nodes * row->finish / 3600;
}

const char *size_part_name(enum size_part part)
{
    static const char *const names[SIZE_PARTS] = {
        "start-up", "staging", "reading data", "computing", "all-reduce", "uneven shares",
        "other stages", "unused devices",
    };

    return names[part];
}

enum size_part size_grows(const struct size_row *row, const struct size_row *other)
{
    enum size_part most = SIZE_START_UP;

    for (int i = 1; i < SIZE_PARTS; i++)
        if (row->parts[i] - other->parts[i] > row->parts[most] - other->parts[most])
            most = (enum size_part)i;
    return most;
}

enum size_part size_wastes(const struct size_row *row, const struct size_row *other)
{
    enum size_part most = SIZE_READING;
    double largest = -INFINITY;

    for (int i = SIZE_READING; i < SIZE_PARTS; i++) {
        double more = row->devices * row->parts[i] - other->devices * other->parts[i];

        if (more > largest) {
            most = (enum size_part)i;
            largest = more;
        }
    }
    return most;
}

bool size_dips(const struct sizes *sizes, int i)
{
    const struct size_row *row = &sizes->rows[i];

    return i > 0 && i + 1 < sizes->n && row[-1].plan && row->plan && row[1].plan &&
           row->efficiency < row[-1].efficiency * (1 - SIZES_DIP) &&
           row->efficiency < row[1].efficiency * (1 - SIZES_DIP);
}

static void compare(struct sizes *sizes)
{
    double least = INFINITY, reference = 0;

    sizes->best = -1;
    for (int i = 0; i < sizes->n; i++) {
        struct size_row *row = &sizes->rows[i];
        double each;

        if (!row->plan)
            continue;
        each = (double)row->plan->global_batch / row->step / row->devices;
        if (reference <= 0)
            reference = each;
        row->efficiency = each / reference;
        least = dmin(least, row->finish);
    }
    for (int i = 0; i < sizes->n; i++) {
        const struct size_row *row = &sizes->rows[i];

        if (row->plan && row->finish <= least * (1 + SIZES_NEAR) &&
            (sizes->best < 0 || row->node_hours < sizes->rows[sizes->best].node_hours))
            sizes->best = i;
    }
}

/* Copies have to fit the disk of a node, where it is known. */
static int check_copies(const struct cluster *cluster, const struct size_request *q,
                        struct err *err)
{
    double room = cluster->storage.local_size;

    if (!q->staged || room <= 0 || q->data_bytes <= room)
        return 0;
    return err_set_code(err, EXIT_USAGE, "--stage-to: %.4g GB of data do not fit the disk of a node, "
                        "of which %s has %.4g GB: leave it out", 1e-9 * q->data_bytes,
                        cluster->name, 1e-9 * room);
}

/* Those that are compared: 1 to 8, 10, 12, 14, 16, 20, ... and the last, where they are too many. */
static int next_size(const struct size_request *q, int size)
{
    int step = 1;

    while (q->most > 0 && q->last - q->first >= q->most && 8 * step <= size)
        step *= 2;
    size = (size / step + 1) * step;
    return size < q->last ? size : q->last;
}

int sizes_size(const struct sizes *sizes, int i)
{
    return sizes->request.nodes ? sizes->rows[i].nodes : sizes->rows[i].devices;
}

static void add(struct sizes *sizes, const struct cluster *cluster, int size)
{
    struct size_row *row = mem_push((void **)&sizes->rows, &sizes->n, sizeof(*row));
    struct cluster *part =
        cluster_first(cluster, sizes->request.nodes ? devices_of(cluster, size) : size);

    fill(sizes, part, row);
    cluster_free(part);
}

struct sizes *sizes_new(const struct cluster *cluster, const struct size_request *request,
                        struct err *err)
{
    int there = request->nodes ? cluster_nodes(cluster) : cluster->n_devices;
    struct sizes *sizes;

    if (request->last > there) {
        err_set_code(err, EXIT_USAGE, "%s %d..%d: %s has %d", request->nodes ? "--nodes" : "--gpus",
                     request->first, request->last, cluster->name, there);
        return NULL;
    }
    if (check_copies(cluster, request, err))
        return NULL;
    sizes = mem_new(1, sizeof(*sizes));
    sizes->request = *request;
    if (request->start_up < 0) {
        sizes->request.start_up = cluster->start_up;
        sizes->request.start_up_node = cluster->start_up_node;
    }
    sizes->start_up = sizes->request.start_up > 0 || sizes->request.start_up_node > 0;
    sizes->storage = storage_is_known(&cluster->storage);
    add(sizes, cluster, request->first);
    for (int size = request->first; size < request->last;) {
        size = next_size(request, size);
        add(sizes, cluster, size);
    }
    compare(sizes);
    return sizes;
}

void sizes_free(struct sizes *sizes)
{
    if (!sizes)
        return;
    for (int i = 0; i < sizes->n; i++) {
        plan_free(sizes->rows[i].plan);
        free(sizes->rows[i].refused);
    }
    free(sizes->rows);
    free(sizes);
}

static json_t *row_to_json(const struct sizes *sizes, const struct size_row *row)
{
    json_t *o = json_pack("{s:i, s:i}", "nodes", row->nodes, "devices", row->devices);

    if (!row->plan) {
        json_object_set_new(o, "refused", json_string(row->refused));
        return o;
    }
    json_object_set_new(o, "iteration_seconds", json_real(row->plan->iteration_seconds));
    json_object_set_new(o, "samples_per_second",
                        json_real((double)row->plan->global_batch / row->step));
    json_object_set_new(o, "efficiency", json_real(row->efficiency));
    json_object_set_new(o, "busy", json_real(row->busy));
    json_object_set_new(o, "reducing", json_real(row->reducing));
    json_object_set_new(o, "idle", json_real(row->idle));
    json_object_set_new(o, "limited_by", json_string(size_part_name(row->limit)));
    if (sizes->request.steps) {
        json_object_set_new(o, "start_up_seconds", json_real(row->parts[SIZE_START_UP]));
        json_object_set_new(o, "staging_seconds", json_real(row->parts[SIZE_STAGING]));
        json_object_set_new(o, "reading_seconds", json_real(row->reading));
        json_object_set_new(o, "steps_seconds", json_real(row->steps));
        json_object_set_new(o, "finish_seconds", json_real(row->finish));
        json_object_set_new(o, "node_hours", json_real(row->node_hours));
    }
    return o;
}

json_t *sizes_to_json(const struct sizes *sizes)
{
    json_t *rows = json_array();

    for (int i = 0; i < sizes->n; i++)
        json_array_append_new(rows, row_to_json(sizes, &sizes->rows[i]));
    return json_pack("{s:s, s:i, s:I, s:i, s:o}", "schema", "tasuki-sizes", "version", 1, "steps",
                     (json_int_t)sizes->request.steps, "best", sizes->best, "sizes", rows);
}
