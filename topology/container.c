/* SPDX-License-Identifier: MIT */
/* Inside a container: what of the host it lacks that a run would use. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "topology/node_read.h"

/* What containers say of themselves, in the environment or as a file. */
static const struct { const char *name, *variable, *file; } kinds[] = {
    { "Apptainer", "APPTAINER_CONTAINER", NULL },
    { "Singularity", "SINGULARITY_CONTAINER", "/.singularity.d" },
    { "Podman", NULL, "/run/.containerenv" },
    { "Docker", NULL, "/.dockerenv" },
};

static const char *kind_of(const struct topo_input *input)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char *value = kinds[i].variable ? topo_input_variable(input, kinds[i].variable) : NULL;
        bool here = value != NULL;

        free(value);
        if (here || (input->live && kinds[i].file && access(kinds[i].file, F_OK) == 0))
            return kinds[i].name;
    }
    return NULL;
}

static bool has_entries(const char *root, const char *name)
{
    char *path = mem_printf("%s/%s", root, name);
    DIR *directory = opendir(path);
    const struct dirent *entry;
    bool found = false;

    free(path);
    if (!directory)
        return false;
    while (!found && (entry = readdir(directory)))
        found = entry->d_name[0] != '.';
    closedir(directory);
    return found;
}

/* The kernel has it, whose /proc containers show, and its library does not answer. */
static bool hides_driver(const struct topo_node *node, const struct topo_input *input)
{
    const struct topo_said *nvml = topo_node_said(node, "nvml");
    char *version = mem_printf("%s/driver/nvidia/version", input->proc ? input->proc : "/proc");
    bool loaded = access(version, F_OK) == 0;

    free(version);
    return loaded && !(nvml && nvml->state == TOPO_USED);
}

/* Only this machine's devices are there to be looked for. */
static int read_container(struct topo_node *node, const struct topo_input *input, struct err *err)
{
    const char *kind = kind_of(input);
    char *server;

    (void)err;
    if (!kind)
        return 0;
    topo_node_note(node, "inside a container of %s", kind);
    topo_node_set_text(&node->container, kind);
    server = topo_input_variable(input, "PMIX_VERSION");
    topo_node_set_text(&node->pmix_server, server ? server : "");
    free(server);
    if (!input->live)
        return 0;
    if (!has_entries(input->sys, "class"))
        topo_node_note(node, TOPO_HIDDEN "/sys is not there: neither adapters nor switches are seen");
    if (has_entries(input->sys, "class/infiniband") && access("/dev/infiniband", F_OK))
        topo_node_note(node, TOPO_HIDDEN "/dev/infiniband is not there: MPI falls back to TCP");
    if (hides_driver(node, input))
        topo_node_note(node, TOPO_HIDDEN "NVIDIA's driver is not there: no GPU can be used");
    return 0;
}

const struct topo_source topo_source_container = { "container", read_container };
