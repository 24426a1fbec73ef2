/* SPDX-License-Identifier: MIT */
#include "topology/findings.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MANY 4      /* so many nodes with the same trouble share a paragraph */

struct findings *findings_new(int n_hosts)
{
    struct findings *findings = mem_new(1, sizeof(*findings));

    findings->n_hosts = n_hosts;
    return findings;
}

void findings_free(struct findings *findings)
{
    if (!findings)
        return;
    for (int i = 0; i < findings->n; i++) {
        free(findings->list[i].host);
        free(findings->list[i].ranks);
        free(findings->list[i].what);
        free(findings->list[i].evidence);
    }
    for (int i = 0; i < findings->n_remarks; i++) {
        free(findings->remarks[i].text);
        free(findings->remarks[i].host);
    }
    free(findings->list);
    free(findings->remarks);
    free(findings);
}

void findings_remark(struct findings *findings, const char *host, char *text)
{
    for (int i = 0; i < findings->n_remarks; i++)
        if (strcmp(findings->remarks[i].text, text) == 0) {
            findings->remarks[i].n_hosts++;
            free(text);
            return;
        }
    *(struct remark *)mem_push((void **)&findings->remarks, &findings->n_remarks,
                               sizeof(struct remark)) =
        (struct remark){ .text = text, .host = mem_strdup(host), .n_hosts = 1 };
}

void findings_add(struct findings *findings, const char *host, const char *ranks,
                  const char *advice, char *evidence, const char *format, ...)
{
    struct finding *f = mem_push((void **)&findings->list, &findings->n, sizeof(*f));
    char what[128];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    *f = (struct finding){ .host = mem_strdup(host), .what = mem_strdup(what),
                           .ranks = ranks ? mem_strdup(ranks) : NULL,
                           .evidence = evidence, .advice = advice };
}

static bool same_host(const struct findings *findings, int a, int b)
{
    return strcmp(findings->list[a].host, findings->list[b].host) == 0;
}

/* Is it the first finding of its host, or the first of the node itself? They stand together. */
static bool is_first(const struct findings *findings, int i, bool of_node)
{
    if (of_node && findings->list[i].ranks)
        return false;
    for (int j = i - 1; j >= 0 && same_host(findings, i, j); j--)
        if (!of_node || !findings->list[j].ranks)
            return false;
    return true;
}

static int count_hosts(const struct findings *findings)
{
    int n = 0;

    for (int i = 0; i < findings->n; i++)
        n += is_first(findings, i, false);
    return n;
}

/* The same trouble with tasks. */
static bool is_like(const struct finding *a, const struct finding *b)
{
    return a->ranks && b->ranks && a->advice == b->advice && strcmp(a->what, b->what) == 0;
}

struct likeness {
    int first, last, hosts;     /* findings like this one, and on how many hosts */
};

static struct likeness likeness_of(const struct findings *findings, int i)
{
    struct likeness l = { .first = -1, .last = -1 };

    for (int j = 0; j < findings->n; j++) {
        if (!is_like(&findings->list[i], &findings->list[j]))
            continue;
        l.hosts += l.last < 0 || !same_host(findings, j, l.last);
        l.first = l.first < 0 ? j : l.first;
        l.last = j;
    }
    return l;
}

/* likeness_of() each, looked up once for those that are alike. */
static struct likeness *find_likeness(const struct findings *findings)
{
    struct likeness *all = mem_new((size_t)findings->n, sizeof(*all));
    int n_kinds = 0, *kinds = NULL;

    for (int i = 0; i < findings->n; i++) {
        int k = 0;

        if (!findings->list[i].ranks)
            continue;
        while (k < n_kinds && !is_like(&findings->list[kinds[k]], &findings->list[i]))
            k++;
        if (k == n_kinds) {
            *(int *)mem_push((void **)&kinds, &n_kinds, sizeof(int)) = i;
            all[i] = likeness_of(findings, i);
        } else {
            all[i] = all[kinds[k]];
        }
    }
    free(kinds);
    return all;
}

static void write_finding(FILE *out, const struct finding *f)
{
    bool several = f->ranks && strpbrk(f->ranks, "-,");

    fputs("  ", out);
    if (f->ranks && f->ranks[0])
        fprintf(out, "rank%s %s: ", several ? "s" : "", f->ranks);
    fprintf(out, "%s: %s\n      %s\n", f->what, f->evidence, f->advice);
}

static void write_remarks(FILE *out, const struct findings *findings)
{
    for (int i = 0; i < findings->n_remarks; i++) {
        const struct remark *r = &findings->remarks[i];

        fputs(r->text, out);
        if (r->n_hosts == findings->n_hosts)
            fputc('\n', out);
        else if (r->n_hosts == 1)
            fprintf(out, " (%s)\n", r->host);
        else
            fprintf(out, " (%s and %d more)\n", r->host, r->n_hosts - 1);
    }
}

static void write_by_host(FILE *out, const struct findings *findings,
                          const struct likeness *likeness)
{
    int last = -1;

    for (int i = 0; i < findings->n; i++) {
        if (likeness[i].hosts >= MANY)
            continue;
        if (last < 0 || !same_host(findings, last, i))
            fprintf(out, "\n%s\n", findings->list[i].host);
        write_finding(out, &findings->list[i]);
        last = i;
    }
}

static void write_common(FILE *out, const struct findings *findings,
                         const struct likeness *likeness)
{
    for (int i = 0; i < findings->n; i++) {
        const struct finding *f = &findings->list[i];

        if (likeness[i].hosts < MANY || likeness[i].first != i)
            continue;
        fprintf(out, "\n%s ... %s (%d nodes); on the first of them:\n", f->host,
                findings->list[likeness[i].last].host, likeness[i].hosts);
        write_finding(out, f);
    }
}

static void write_exclude(FILE *out, const struct findings *findings)
{
    const char *before = "\nwithout these nodes: --exclude=";

    for (int i = 0; i < findings->n; i++)
        if (is_first(findings, i, true)) {
            fprintf(out, "%s%s", before, findings->list[i].host);
            before = ",";
        }
    if (*before == ',')
        fputc('\n', out);
}

char *findings_text(const struct findings *findings)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct likeness *likeness;

    if (!out)
        return mem_strdup("");
    fprintf(out, "%d problem%s on %d of %d node%s\n", findings->n, findings->n == 1 ? "" : "s",
            count_hosts(findings), findings->n_hosts, findings->n_hosts == 1 ? "" : "s");
    write_remarks(out, findings);
    likeness = find_likeness(findings);
    write_by_host(out, findings, likeness);
    write_common(out, findings, likeness);
    if (findings->n_hosts > 1)
        write_exclude(out, findings);
    free(likeness);
    fclose(out);
    return text;
}

json_t *findings_to_json(const struct findings *findings)
{
    json_t *list = json_array(), *exclude = json_array(), *remarks = json_array();

    for (int i = 0; i < findings->n; i++) {
        const struct finding *f = &findings->list[i];
        json_t *object = json_pack("{s:s, s:s, s:s, s:s}", "host", f->host, "what", f->what,
                                   "evidence", f->evidence, "advice", f->advice);

        if (f->ranks)
            json_object_set_new(object, "ranks", json_string(f->ranks));
        json_array_append_new(list, object);
        if (is_first(findings, i, true))
            json_array_append_new(exclude, json_string(f->host));
    }
    for (int i = 0; i < findings->n_remarks; i++) {
        const struct remark *r = &findings->remarks[i];

        json_array_append_new(remarks, json_pack("{s:s, s:s, s:i}", "text", r->text, "host",
                                                 r->host, "nodes", r->n_hosts));
    }
    return json_pack("{s:s, s:i, s:i, s:o, s:o, s:o}", "schema", "tasuki-topo-check", "version",
                     1, "nodes", findings->n_hosts, "findings", list, "exclude", exclude,
                     "remarks", remarks);
}
