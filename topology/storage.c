/* SPDX-License-Identifier: MIT */
#include "topology/storage.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "topology/report.h"

#define MOST 1e300

bool storage_is_known(const struct cluster_storage *storage)
{
    return storage->name || storage->bandwidth > 0 || storage->client_bandwidth > 0 ||
           storage->slow_down > 0 || storage->local_bandwidth > 0 || storage->local_size > 0;
}

void storage_clear(struct cluster_storage *storage)
{
    free(storage->name);
    *storage = (struct cluster_storage){ 0 };
}

int storage_read(struct cluster_storage *storage, struct json_reader *r, struct err *err)
{
    static const double none = 0;
    const char *name;

    if (json_get_string(r, "name", false, "", &name, err) ||
        json_get_number(r, "bandwidth", 0, MOST, &none, &storage->bandwidth, err) ||
        json_get_number(r, "client_bandwidth", 0, MOST, &none, &storage->client_bandwidth,
                        err) ||
        json_get_number(r, "slow_down", 0, 1e6, &none, &storage->slow_down, err) ||
        json_get_number(r, "local_bandwidth", 0, MOST, &none, &storage->local_bandwidth, err) ||
        json_get_number(r, "local_size", 0, MOST, &none, &storage->local_size, err) ||
        json_reader_end(r, err))
        return -1;
    storage->name = name[0] ? mem_strdup(name) : NULL;
    return 0;
}

static void set_figure(json_t *object, const char *key, double value)
{
    if (value > 0)
        json_object_set_new(object, key, json_real(value));
}

json_t *storage_to_json(const struct cluster_storage *storage)
{
    json_t *object = json_object();

    if (storage->name)
        json_object_set_new(object, "name", json_string(storage->name));
    set_figure(object, "bandwidth", storage->bandwidth);
    set_figure(object, "client_bandwidth", storage->client_bandwidth);
    set_figure(object, "slow_down", storage->slow_down);
    set_figure(object, "local_bandwidth", storage->local_bandwidth);
    set_figure(object, "local_size", storage->local_size);
    return object;
}

char *storage_text(const struct cluster_storage *storage)
{
    char *text = NULL, figure[24];
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return mem_strdup("");
    fputs(storage->name ? storage->name : "shared", out);
    if (storage->bandwidth > 0)
        fprintf(out, ", %s for all", report_rate(storage->bandwidth, figure));
    if (storage->client_bandwidth > 0)
        fprintf(out, ", %s for a node", report_rate(storage->client_bandwidth, figure));
    if (storage->slow_down > 0)
        fprintf(out, ", one file is %.4g %% slower for each further reader",
                100 * storage->slow_down);
    if (storage->local_bandwidth > 0 || storage->local_size > 0)
        fputs("; disk in the node", out);
    if (storage->local_size > 0)
        fprintf(out, " %s", report_bytes(storage->local_size, figure));
    if (storage->local_bandwidth > 0)
        fprintf(out, "%s %s", storage->local_size > 0 ? "," : "",
                report_rate(storage->local_bandwidth, figure));
    fclose(out);
    return text;
}

static double seconds_at(double bytes, double bandwidth)
{
    return bandwidth > 0 ? bytes / bandwidth : 0;
}

double storage_seconds(const struct cluster_storage *storage, int nodes, double bytes,
                       bool same_file)
{
    double alone = seconds_at(bytes, storage->client_bandwidth);

    if (same_file)
        alone *= 1 + storage->slow_down * (nodes - 1);
    return fmax(alone, seconds_at(nodes * bytes, storage->bandwidth));
}

double storage_local_seconds(const struct cluster_storage *storage, double bytes)
{
    return seconds_at(bytes, storage->local_bandwidth);
}
