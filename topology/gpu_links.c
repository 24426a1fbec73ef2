/* SPDX-License-Identifier: MIT */
#include "topology/gpu_links.h"

#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"
#include "topology/cluster.h"
#include "topology/links.h"
#include "topology/report.h"

void gpu_links_free(struct gpu_links *gpus)
{
    if (!gpus)
        return;
    cluster_free(gpus->cluster);
    links_free(gpus->links);
    free(gpus->library);
    free(gpus->note);
    free(gpus);
}

char *gpu_links_text(const struct gpu_links *gpus)
{
    char *tree = NULL, *table = NULL, *what, *text;

    if (gpus->links) {
        what = mem_printf("GPU links by %s", gpus->library);
        tree = report_cluster(gpus->cluster);
        table = links_text(gpus->links, what);
        free(what);
    }
    text = mem_printf("\n%s%s%s%s%s", tree ? tree : "", table ? table : "",
                      gpus->note ? "GPU links: " : "", gpus->note ? gpus->note : "",
                      gpus->note ? "\n" : "");
    free(tree);
    free(table);
    return text;
}

json_t *gpu_links_to_json(const struct gpu_links *gpus)
{
    json_t *json = json_object();

    if (gpus->links) {
        json_object_set_new(json, "cluster", cluster_to_json(gpus->cluster));
        json_object_set_new(json, "measured", links_to_json(gpus->links));
        json_object_set_new(json, "library", json_string(gpus->library));
    }
    if (gpus->note)
        json_object_set_new(json, "note", json_string(gpus->note));
    return json;
}

static int read_measured(struct json_reader *r, const char *path, struct gpu_links *gpus,
                         struct err *err)
{
    const json_t *cluster, *measured;
    const char *library;

    if (json_get_object(r, "cluster", false, &cluster, err) ||
        json_get_object(r, "measured", cluster != NULL, &measured, err) ||
        json_get_string(r, "library", cluster != NULL, "", &library, err))
        return -1;
    if (!cluster)
        return measured || *library ? json_error(r, "cluster", err, "is missing") : 0;
    gpus->library = mem_strdup(library);
    gpus->cluster = cluster_from_json(path, cluster, 0, err);
    gpus->links = gpus->cluster ? links_from_json(path, measured, err) : NULL;
    return gpus->links ? 0 : -1;
}

struct gpu_links *gpu_links_from_json(const char *path, const json_t *json, struct err *err)
{
    const struct json_reader file = { .file = path };
    struct gpu_links *gpus = mem_new(1, sizeof(*gpus));
    struct json_reader r;
    const char *note;

    if (json_reader_sub(&r, &file, "gpus", -1, json, err) == 0 &&
        read_measured(&r, path, gpus, err) == 0 &&
        json_get_string(&r, "note", false, "", &note, err) == 0 &&
        json_reader_end(&r, err) == 0) {
        gpus->note = *note ? mem_strdup(note) : NULL;
        return gpus;
    }
    gpu_links_free(gpus);
    return NULL;
}
