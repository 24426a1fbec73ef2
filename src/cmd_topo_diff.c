/* SPDX-License-Identifier: MIT */
/* tasuki topo --diff: two nodes of a file, or two files. */
#include "cmd_topo.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "topology/diff.h"
#include "topology/node.h"
#include "topology/record.h"

static int save_diff(struct request *request, const struct topo_node *one,
                     const struct topo_node *other, struct err *err)
{
    int n, status;
    char *lines = topo_diff(one, other, &n);
    json_t *json;

    request->found = n > 0;
    if (request->format == FORMAT_TEXT)
        return topo_save_text(request, lines, err);
    json = json_pack("{s:s, s:i, s:s, s:s, s:o}", "schema", "tasuki-topo-diff", "version", 1,
                     "one", one->host, "other", other->host, "differences",
                     topo_diff_lines(lines));
    status = json_save(json, request->output, err);
    json_decref(json);
    return status;
}

static char *diff_text(const struct request *request, const json_t *hosts)
{
    const json_t *host, *line;
    char *text = NULL;
    size_t size, i, j;
    FILE *out = open_memstream(&text, &size);

    json_array_foreach(hosts, i, host) {
        const char *only = json_string_value(json_object_get(host, "only"));

        fputs(json_string_value(json_object_get(host, "host")), out);
        if (only)
            fprintf(out, ": only in %s", strcmp(only, "one") == 0 ? request->one
                                                                  : request->other);
        fputc('\n', out);
        json_array_foreach(json_object_get(host, "differences"), j, line)
            fprintf(out, "  %s\n", json_string_value(line));
    }
    fclose(out);
    return text;
}

/* Recordings of several nodes: those of the same name. */
static int save_diff_records(struct request *request, const struct view *one,
                             const struct view *other, struct err *err)
{
    json_t *hosts = topo_diff_records(one->record, other->record, err), *json;
    int status;

    if (!hosts)
        return -1;
    request->found = json_array_size(hosts) > 0;
    if (request->format == FORMAT_TEXT) {
        status = topo_save_text(request, diff_text(request, hosts), err);
    } else {
        json = json_pack("{s:s, s:i, s:s, s:s, s:O}", "schema", "tasuki-topo-diff", "version",
                         1, "one", request->one, "other", request->other, "hosts", hosts);
        status = json_save(json, request->output, err);
        json_decref(json);
    }
    json_decref(hosts);
    return status;
}

static struct topo_node *node_of_input(const struct request *request, const struct view *input,
                                       const char *name, struct err *err)
{
    int host = topo_record_find(input->record, name);

    if (host >= 0)
        return topo_record_node(input->record, host, err);
    err_set(err, "%s: there is no node \"%s\" in it", request->input, name);
    return NULL;
}

static int diff_nodes(struct request *request, const struct view *input, struct err *err)
{
    struct topo_node *one = node_of_input(request, input, request->one, err);
    struct topo_node *other = one ? node_of_input(request, input, request->other, err) : NULL;
    int status = other ? save_diff(request, one, other, err) : -1;

    topo_node_free(one);
    topo_node_free(other);
    return status;
}

/* Two files with a node each are compared whatever it is called. */
static int diff_views(struct request *request, const struct view *one, const struct view *other,
                      struct err *err)
{
    struct topo_node *a, *b;
    int status = -1;

    if (topo_record_hosts(one->record) != 1 || topo_record_hosts(other->record) != 1)
        return save_diff_records(request, one, other, err);
    a = topo_record_node(one->record, 0, err);
    b = a ? topo_record_node(other->record, 0, err) : NULL;
    if (b)
        status = save_diff(request, a, b, err);
    topo_node_free(a);
    topo_node_free(b);
    return status;
}

int topo_report_diff(struct request *request, struct err *err)
{
    struct view one = { 0 }, other = { 0 };
    int status = -1;

    if (request->input) {
        if (topo_view_input(request->input, &one, err) == 0 &&
            topo_view_need_hardware(&one, request->input, err) == 0)
            status = diff_nodes(request, &one, err);
    } else if (topo_view_input(request->one, &one, err) == 0 &&
               topo_view_input(request->other, &other, err) == 0 &&
               topo_view_need_hardware(&one, request->one, err) == 0 &&
               topo_view_need_hardware(&other, request->other, err) == 0) {
        status = diff_views(request, &one, &other, err);
    }
    topo_view_close(&one);
    topo_view_close(&other);
    return status;
}
