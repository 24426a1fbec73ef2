/* SPDX-License-Identifier: MIT */
#include "topology/diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topology/feature.h"
#include "topology/node.h"
#include "topology/record.h"

static void diff_line(FILE *out, const struct feature *a, const struct feature *b, int *n)
{
    fprintf(out, "%s: %s | %s\n", a ? a->key : b->key, a ? a->value : "not collected",
            b ? b->value : "not collected");
    (*n)++;
}

/* Both lists are in the order of their keys. */
char *topo_diff(const struct topo_node *a, const struct topo_node *b, int *n)
{
    struct features *x = features_of(a), *y = features_of(b);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    int i = 0, j = 0;

    *n = 0;
    while (out && (i < x->n || j < y->n)) {
        int order = i == x->n ? 1 : j == y->n ? -1 : strcmp(x->list[i].key, y->list[j].key);

        if (order < 0)
            diff_line(out, &x->list[i++], NULL, n);
        else if (order > 0)
            diff_line(out, NULL, &y->list[j++], n);
        else if (!feature_alike(&x->list[i++], &y->list[j++]))
            diff_line(out, &x->list[i - 1], &y->list[j - 1], n);
    }
    if (out)
        fclose(out);
    features_free(x);
    features_free(y);
    return text ? text : mem_strdup("");
}

json_t *topo_diff_lines(char *lines)
{
    json_t *array = json_array();

    for (char *rest = lines, *line; (line = strsep(&rest, "\n")) && *line;)
        json_array_append_new(array, json_string(line));
    free(lines);
    return array;
}

/* Append what differs between host 'a' of the one and host 'b' of the other, if anything. */
static int diff_hosts(json_t *list, const struct topo_record *one, int a,
                      const struct topo_record *other, int b, struct err *err)
{
    struct topo_node *x = topo_record_node(one, a, err);
    struct topo_node *y = x ? topo_record_node(other, b, err) : NULL;
    json_t *lines;
    int n = 0;

    if (y) {
        lines = topo_diff_lines(topo_diff(x, y, &n));
        if (n > 0)
            json_array_append_new(list, json_pack("{s:s, s:O}", "host", x->host, "differences",
                                                  lines));
        json_decref(lines);
    }
    topo_node_free(x);
    topo_node_free(y);
    return y ? 0 : -1;
}

static void add_only(json_t *list, const char *host, const char *which)
{
    json_array_append_new(list, json_pack("{s:s, s:s}", "host", host, "only", which));
}

json_t *topo_diff_records(const struct topo_record *one, const struct topo_record *other,
                          struct err *err)
{
    json_t *list = json_array();

    for (int i = 0; i < topo_record_hosts(one); i++) {
        const char *host = topo_record_host(one, i);
        int there = topo_record_find(other, host);

        if (there < 0) {
            add_only(list, host, "one");
        } else if (diff_hosts(list, one, i, other, there, err)) {
            json_decref(list);
            return NULL;
        }
    }
    for (int i = 0; i < topo_record_hosts(other); i++)
        if (topo_record_find(one, topo_record_host(other, i)) < 0)
            add_only(list, topo_record_host(other, i), "other");
    return list;
}
