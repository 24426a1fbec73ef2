/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/mem.h"
#include "topology/node_apart.h"
#include "topology/node_read.h"

char *topo_input_variable(const struct topo_input *input, const char *name)
{
    const char *line = input->variables, *own = line ? NULL : getenv(name);
    size_t n = strlen(name);

    for (; line && *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, name, n) == 0 && line[n] == '=')
            return mem_printf("%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
    return own ? mem_strdup(own) : NULL;
}

static int run(struct topo_node *node, const struct topo_input *input, struct err *err)
{
    static const struct topo_source *const sources[] = {
        &topo_source_proc, &topo_source_hwloc, &topo_source_sysfs, &topo_source_nvml,
        &topo_source_gpudirect, &topo_source_visible, &topo_source_switches,
        &topo_source_container,
    };

    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
        if (sources[i]->read(node, input, err))
            return -1;
    return 0;
}

static struct topo_node *from_sources(struct topo_node *node, const struct topo_input *input,
                                      struct err *err)
{
    if (node && run(node, input, err)) {
        topo_node_free(node);
        return NULL;
    }
    return node;
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = mem_new(65536, 1);

    if (file) {
        text[fread(text, 1, 65535, file)] = '\0';
        fclose(file);
    }
    return text;
}

static const char *path_if(char **path, const char *folder, const char *name)
{
    struct stat about;

    *path = mem_printf("%s/%s", folder, name);
    return stat(*path, &about) == 0 ? *path : NULL;
}

static struct topo_node *from_folder(const char *folder, struct err *err)
{
    char *xml, *sys, *proc, *environment, *variables;
    struct topo_input input = { .nvml = getenv("TASUKI_NVML") };
    struct topo_node *node = NULL;

    input.xml = path_if(&xml, folder, "hwloc.xml");
    input.sys = path_if(&sys, folder, "sys");
    input.proc = path_if(&proc, folder, "proc");
    environment = mem_printf("%s/environment", folder);
    input.variables = variables = read_text(environment);
    if (!input.xml)
        err_set(err, "%s: there is no hwloc.xml in it", folder);
    else
        node = from_sources(topo_node_read_apart(input.xml, err), &input, err);
    free(xml);
    free(sys);
    free(proc);
    free(environment);
    free(variables);
    return node;
}

/* A file that somebody gives, or, where 'mine', the machine on which this process is to think
 * itself: then what it was told by variables holds there.
 */
static struct topo_node *from_xml(const char *xml, bool mine, struct err *err)
{
    const char *nvml = mine ? getenv("TASUKI_NVML") : NULL;
    struct topo_input input = { .variables = mine ? NULL : "", .xml = xml };

    input.nvml = nvml && *nvml ? nvml : NULL;
    input.sys = mine ? getenv("TASUKI_SYSFS") : NULL;
    return from_sources(topo_node_read_apart(xml, err), &input, err);
}

bool topo_is_json(const char *path)
{
    FILE *file = fopen(path, "re");
    char c = '\0';
    bool json = file && fscanf(file, " %c", &c) == 1 && c == '{';

    if (file)
        fclose(file);
    return json;
}

struct topo_node *topo_node_discover(const char *path, struct err *err)
{
    static const char standard[] = "libnvidia-ml.so.1";
    struct topo_input live = { .live = true, .sys = "/sys" };
    const char *nvml = getenv("TASUKI_NVML"), *sys = getenv("TASUKI_SYSFS");
    const char *proc = getenv("TASUKI_PROCFS");
    struct stat about;
    bool mine = !path;

    /* hwloc's own way to be shown another machine. */
    if (mine)
        path = getenv("HWLOC_XMLFILE");
    if (path && *path)
        return stat(path, &about) == 0 && S_ISDIR(about.st_mode) ? from_folder(path, err)
                                                                 : from_xml(path, mine, err);
    live.nvml = nvml && *nvml ? nvml : standard;
    if (sys && *sys)
        live.sys = sys;
    else
        live.proc = "/proc";
    if (proc && *proc)
        live.proc = proc;
    return from_sources(topo_node_new(), &live, err);
}
