/* SPDX-License-Identifier: MIT */
/* Hostile XML of hwloc. The library itself does not survive all of it: it runs in a child, so
 * that its crash is an error here.
 */
#include "config.h"

#ifdef HAVE_HWLOC
/* Its inline functions do not pass our warnings. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wconversion"
#include <hwloc.h>
#pragma GCC diagnostic pop
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "topology/check.h"
#include "topology/model.h"
#include "topology/cluster.h"
#include "topology/node.h"
#include "topology/record.h"
#include "topology/report.h"

#ifdef __SANITIZE_ADDRESS__
const char *__asan_default_options(void);

/* What is kept back after free() makes each fork() dearer: a file's worth will do. */
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=4";
}
#endif

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Values of the kinds that attributes have. */
static const char *const values[] = {
    "", "0", "-1", "1", "4294967295", "18446744073709551616", "0x00000001",
    "0xffffffff,0xffffffff", "0xf...f",
    "0000:11:00.0", "ffff:ff:1f.7", "0302 [10de:2330] [10de:16c1] a1", "0-1", "1-1",
    "0000:[10-12]", "PU", "Core", "Package", "NUMANode", "PCIDev", "Bridge", "OSDev", "Machine",
    "63.0", "1e300", "nan", "x", "&lt;&amp;",
};

static char *source;
static size_t source_size;

static void load_source(void)
{
    const char *top = getenv("srcdir");
    char path[1024];
    FILE *file;

    snprintf(path, sizeof(path), "%s/tests/data/gpu-node.xml", top ? top : ".");
    file = fopen(path, "r");
    source = calloc(1, 1 << 20);
    if (!file || !source || (source_size = fread(source, 1, (1 << 20) - 1, file)) == 0) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    fclose(file);
}

/* A place in the file, mostly among what hwloc itself looks at least: the PCI tree, names. */
static size_t pick(struct fuzz *fuzz, const struct fuzz_file *file)
{
    static const char *const marks[] = { "pci_", "<info", "osdev_type", "bridge_" };
    const char *text = (const char *)file->data, *mark = marks[fuzz_below(fuzz, COUNT(marks))];
    size_t at = fuzz_below(fuzz, file->size), length = strlen(mark);

    if (fuzz_once_in(fuzz, 4))
        return at;
    for (size_t i = at; i + length < file->size; i++)
        if (memcmp(text + i, mark, length) == 0)
            return i;
    return at;
}

/* The value of some attribute becomes another. */
static void change_value(struct fuzz *fuzz, struct fuzz_file *file)
{
    const char *text = (const char *)file->data;
    size_t at = pick(fuzz, file), end;
    struct fuzz_file changed = { 0 };
    const char *value = values[fuzz_below(fuzz, COUNT(values))];

    while (at + 2 < file->size && !(text[at] == '=' && text[at + 1] == '"'))
        at++;
    for (end = at + 2; end < file->size && text[end] != '"'; end++) {}
    if (end >= file->size)
        return;
    fuzz_put(&changed, text, at + 2);
    fuzz_put(&changed, value, strlen(value));
    fuzz_put(&changed, text + end, file->size - end);
    free(file->data);
    *file = changed;
}

/* A random line is left out, or is there twice: elements are a line each. */
static void change_line(struct fuzz *fuzz, struct fuzz_file *file)
{
    const char *text = (const char *)file->data;
    size_t at = pick(fuzz, file), end;
    struct fuzz_file changed = { 0 };
    bool twice = fuzz_once_in(fuzz, 2);

    while (at > 0 && text[at - 1] != '\n')
        at--;
    for (end = at; end < file->size && text[end] != '\n'; end++) {}
    end += end < file->size;
    fuzz_put(&changed, text, twice ? end : at);
    fuzz_put(&changed, text + (twice ? at : end), file->size - (twice ? at : end));
    free(file->data);
    *file = changed;
}

static void make(struct fuzz *fuzz, bool structured, struct fuzz_file *file)
{
    size_t n = 1 + fuzz_below(fuzz, 3);

    fuzz_put(file, source, source_size);
    if (!structured) {
        fuzz_damage(fuzz, file);
        return;
    }
    while (n-- > 0)
        if (fuzz_once_in(fuzz, 4))
            change_line(fuzz, file);
        else
            change_value(fuzz, file);
}

static void use(const struct topo_node *node)
{
    struct topo_record *record = topo_record_new();
    struct findings *findings;
    struct err err = { 0 };

    free(report_node(node));
    free(report_nccl(node, &err));
    if (topo_record_add_node(record, node, &err) == 0) {
        struct cluster *cluster = model_of_record(record, "fuzz", &err);

        if (cluster)
            free(report_svg(record, cluster, &err));
        findings = topo_check(record, NULL, NULL, NULL, &err);
        findings_free(findings);
        cluster_free(cluster);
    }
    topo_record_free(record);
}

static enum fuzz_result try(const char *path, struct err *err)
{
    struct topo_node *node = topo_node_discover(path, err);

    if (!node)
        return FUZZ_UNPARSED;
    use(node);
    topo_node_free(node);
    return FUZZ_ACCEPTED;
}

/* A child for each file is dear under sanitizers. */
static void ask_for_half(void)
{
    const char *asked = getenv("TASUKI_FUZZ_FILES");
    char half[24];

    if (!asked || !*asked)
        return;
    snprintf(half, sizeof(half), "%ld", strtol(asked, NULL, 10) / 2);
    setenv("TASUKI_FUZZ_FILES", half, 1);
}

/* They come with the first topology, and libraries with them: children have them from here. */
static void load_plugins(void)
{
#ifdef HAVE_HWLOC
    static hwloc_topology_t kept;

    if (hwloc_topology_init(&kept)) {
        fputs("hwloc has no topology\n", stderr);
        exit(1);
    }
#endif
}

int main(int argc, char **argv)
{
    static const struct fuzz_target target = { "xml", ".xml", make, try };
    int code;

#ifndef HAVE_HWLOC
    puts("1..0 # SKIP built without hwloc");
    return 0;
#endif
    /* hwloc tells standard error what it thinks of these files. */
    setenv("HWLOC_HIDE_ERRORS", "2", 1);
    ask_for_half();
    load_source();
    load_plugins();
    code = fuzz_main(&target, argc, argv);
    free(source);
    return code;
}
