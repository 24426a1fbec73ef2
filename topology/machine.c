/* SPDX-License-Identifier: MIT */
#include "topology/machine.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/module.h"
#include "topology/cluster.h"
#include "topology/cluster_spec.h"
#include "topology/gpu_links.h"
#include "topology/links.h"
#include "topology/record.h"
#include "topology/task.h"

#define SUFFIX ".json"
#define MOST_NODES (1 << 20)

enum whose { WHOSE_CHOSEN, WHOSE_USER, WHOSE_SITE, WHOSE_SHIPPED };

struct folder {
    char *path;
    enum whose whose;
};

struct folders {
    int n;
    struct folder *list;
};

static void add_folder(struct folders *folders, enum whose whose, char *path)
{
    *(struct folder *)mem_push((void **)&folders->list, &folders->n,
                               sizeof(*folders->list)) = (struct folder){ path, whose };
}

static char *user_folder(void)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    if (config && config[0])
        return mem_printf("%s/tasuki/machines", config);
    return home && home[0] ? mem_printf("%s/.config/tasuki/machines", home) : NULL;
}

static struct folders all_folders(void)
{
    char *own = mem_strdup(getenv("TASUKI_MACHINES") ? getenv("TASUKI_MACHINES") : "");
    char *user = user_folder(), *program = module_program_folder();
    struct folders folders = { 0 };

    for (char *rest = own, *each; (each = strsep(&rest, ":"));)
        if (each[0])
            add_folder(&folders, WHOSE_CHOSEN, mem_strdup(each));
    if (user)
        add_folder(&folders, WHOSE_USER, user);
    add_folder(&folders, WHOSE_SITE, module_installed(SYSCONFDIR "/tasuki/machines"));
    if (program)
        add_folder(&folders, WHOSE_SHIPPED, mem_printf("%s/etc/machines", program));
    add_folder(&folders, WHOSE_SHIPPED, module_installed(PKGDATADIR "/machines"));
    free(program);
    free(own);
    return folders;
}

static void free_folders(struct folders *folders)
{
    for (int i = 0; i < folders->n; i++)
        free(folders->list[i].path);
    free(folders->list);
}

struct names {
    int n;
    char **list;
};

static void add_name(struct names *names, const char *file)
{
    size_t length = strlen(file), suffix = strlen(SUFFIX);
    char *name;

    if (file[0] == '.' || length <= suffix || strcmp(file + length - suffix, SUFFIX) != 0)
        return;
    name = mem_printf("%.*s", (int)(length - suffix), file);
    for (int i = 0; i < names->n; i++)
        if (strcmp(names->list[i], name) == 0) {
            free(name);
            return;
        }
    *(char **)mem_push((void **)&names->list, &names->n, sizeof(char *)) = name;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static struct names list_names(const struct folders *folders, bool shipped)
{
    struct names names = { 0 };

    for (int i = 0; i < folders->n; i++) {
        bool wanted = shipped || folders->list[i].whose != WHOSE_SHIPPED;
        DIR *folder = wanted ? opendir(folders->list[i].path) : NULL;

        for (struct dirent *each; folder && (each = readdir(folder));)
            add_name(&names, each->d_name);
        if (folder)
            closedir(folder);
    }
    if (names.n > 0)
        qsort(names.list, (size_t)names.n, sizeof(*names.list), compare);
    return names;
}

static void free_names(struct names *names)
{
    for (int i = 0; i < names->n; i++)
        free(names->list[i]);
    free(names->list);
}

/* "a, b, c" */
static char *joined(const struct names *names)
{
    char *text = mem_strdup(names->n > 0 ? names->list[0] : "none");

    for (int i = 1; i < names->n; i++) {
        char *more = mem_printf("%s, %s", text, names->list[i]);

        free(text);
        text = more;
    }
    return text;
}

static bool is_file(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
}

static bool is_path(const char *word)
{
    return strchr(word, '/') || file_ends_in(word, SUFFIX) || is_file(word);
}

/* "NAME:N" is cut in two. -1: N is no number of nodes. */
static int split(char *spec, int64_t *nodes)
{
    char *colon = strrchr(spec, ':');

    *nodes = 0;
    if (!colon || access(spec, F_OK) == 0)
        return 0;
    for (const char *digit = colon + 1; *digit; digit++)
        if (!isdigit((unsigned char)*digit))
            return -1;
    if (!colon[1] || strlen(colon + 1) > 9)
        return -1;
    *nodes = strtol(colon + 1, NULL, 10);
    if (*nodes < 1 || *nodes > MOST_NODES)
        return -1;
    *colon = '\0';
    return 0;
}

static char *find_in(const struct folders *folders, const char *name)
{
    for (int i = 0; i < folders->n; i++) {
        char *path = mem_printf("%s/%s" SUFFIX, folders->list[i].path, name);

        if (is_file(path))
            return path;
        free(path);
    }
    return NULL;
}

static char *find_name(const char *name, struct err *err)
{
    struct folders folders = all_folders();
    char *path = find_in(&folders, name);

    if (!path) {
        struct names names = list_names(&folders, true);
        char *text = joined(&names);

        err_set(err, "\"%s\" is neither a file nor the name of a machine; those there are: %s",
                name, text);
        free(text);
        free_names(&names);
    }
    free_folders(&folders);
    return path;
}

/* The file, malloc'ed, and how many nodes of it, 0: all. */
static char *find(const char *spec, int64_t *nodes, bool *by_name, struct err *err)
{
    char *word = mem_strdup(spec), *path;

    if (split(word, nodes)) {
        err_set_code(err, EXIT_USAGE, "\"%s\": expected a number of nodes after the colon, from "
                     "1 to %d", spec, MOST_NODES);
        free(word);
        return NULL;
    }
    *by_name = !is_path(word);
    path = *by_name ? find_name(word, err) : mem_strdup(word);
    free(word);
    return path;
}

/* A kind of node of which the cluster has some, by these names; NULL: it has none. */
static json_t *kind_of_hosts(const json_t *kind, const json_t *wanted, bool all)
{
    const json_t *hosts = json_object_get(kind, "hosts"), *own = json_object_get(kind, "own");
    json_t *result = json_pack("{s:[], s:[]}", "hosts", "own"), *value;
    const char *host;
    size_t i;

    json_array_foreach(hosts, i, value)
        if (!all && json_object_get(wanted, json_string_value(value))) {
            json_array_append(json_object_get(result, "hosts"), value);
            json_array_append(json_object_get(result, "own"), json_array_get(own, i));
        }
    if (all)
        json_object_foreach((json_t *)wanted, host, value) {
            json_array_append_new(json_object_get(result, "hosts"), json_string(host));
            json_array_append(json_object_get(result, "own"), json_array_get(own, 0));
        }
    json_object_set(result, "node", json_object_get(kind, "node"));
    if (json_array_size(json_object_get(result, "hosts")) > 0)
        return result;
    json_decref(result);
    return NULL;
}

/* What "nodes" says of the nodes of the cluster. */
static struct topo_record *record_of(const char *path, const json_t *nodes,
                                     const struct cluster *cluster, struct err *err)
{
    json_t *wanted = json_object(), *some = json_array(), *kind;
    struct topo_record *record;
    size_t i;

    for (int p = 0; p < cluster->n_places; p++)
        if (cluster->places[p].kind == CLUSTER_NODE)
            json_object_set_new(wanted, cluster->places[p].name, json_true());
    json_array_foreach(nodes, i, kind) {
        json_t *mine = kind_of_hosts(kind, wanted, json_array_size(nodes) == 1);

        if (mine)
            json_array_append_new(some, mine);
    }
    record = topo_record_from_json(path, some, err);
    json_decref(wanted);
    json_decref(some);
    return record;
}

static int read_parts(const char *path, const json_t *json, bool all,
                      const struct cluster *cluster, struct machine_parts *parts,
                      struct err *err)
{
    const json_t *nodes = json_object_get(json, "nodes");
    const json_t *tasks = all ? json_object_get(json, "tasks") : NULL;
    const json_t *measured = all ? json_object_get(json, "measured") : NULL;
    const json_t *gpus = all ? json_object_get(json, "gpus") : NULL;
    struct machine_parts p = { .record = all ? topo_record_from_json(path, nodes, err)
                                             : record_of(path, nodes, cluster, err) };

    if (p.record && (!tasks || (p.tasks = topo_tasks_from_json(path, tasks, err))) &&
        (!measured || (p.links = links_from_json(path, measured, err))) &&
        (!gpus || (p.gpus = gpu_links_from_json(path, gpus, err)))) {
        p.slurm = all ? json_incref(json_object_get(json, "slurm")) : NULL;
        *parts = p;
        return 0;
    }
    links_free(p.links);
    topo_tasks_free(p.tasks);
    topo_record_free(p.record);
    return -1;
}

struct cluster *machine_open(const char *spec, struct machine_parts *parts, struct err *err)
{
    struct cluster *cluster = NULL;
    int64_t nodes = 0;
    bool by_name = false;
    char *path = find(spec, &nodes, &by_name, err);
    json_t *json = path ? json_load(path, err) : NULL;

    if (parts)
        *parts = (struct machine_parts){ 0 };
    if (json)
        cluster = cluster_from_json(path, json, nodes, err);
    /* By this name it is found again. */
    if (cluster && (nodes > 0 || by_name)) {
        free(cluster->name);
        cluster->name = mem_strdup(spec);
    }
    if (cluster && parts && read_parts(path, json, nodes == 0, cluster, parts, err)) {
        cluster_free(cluster);
        cluster = NULL;
    }
    json_decref(json);
    free(path);
    return cluster;
}

/* The only saved one. */
static char *only_machine(struct err *err)
{
    struct folders folders = all_folders();
    struct names names = list_names(&folders, false);
    char *name = names.n == 1 ? mem_strdup(names.list[0]) : NULL, *text = joined(&names);

    if (names.n == 0)
        err_set_code(err, EXIT_USAGE, "--nodes: which machine? None was saved here: say "
                     "--cluster NAME, or save this one by \"srun -N2 tasuki topo "
                     "--save-machine NAME\"");
    else if (names.n > 1)
        err_set_code(err, EXIT_USAGE, "--nodes: which machine? Say --cluster NAME, or put "
                     "\"cluster = NAME\" into tasuki.conf; saved are: %s", text);
    free(text);
    free_names(&names);
    free_folders(&folders);
    return name;
}

bool machine_counts(const char *cluster)
{
    char *name = mem_strdup(cluster);
    int64_t own = 0;
    bool counts = cluster_is_spec(name) || (split(name, &own) == 0 && own > 0);

    free(name);
    return counts;
}

char *machine_spec(const char *cluster, int64_t nodes, struct err *err)
{
    char *name = NULL, *spec = NULL;

    if (nodes == 0)
        return cluster ? mem_strdup(cluster) : NULL;
    name = cluster ? mem_strdup(cluster) : only_machine(err);
    if (!name)
        return NULL;
    if (machine_counts(name))
        err_set_code(err, EXIT_USAGE, "--nodes %lld: --cluster %s says how many nodes there "
                     "are", (long long)nodes, cluster);
    else
        spec = mem_printf("%s:%lld", name, (long long)nodes);
    free(name);
    return spec;
}

static bool is_good_name(const char *name)
{
    if (!name[0] || name[0] == '.' || file_ends_in(name, SUFFIX))
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("-_.", *name))
            return false;
    return true;
}

/* With those above it that are missing. */
static int make_folder(const char *path, struct err *err)
{
    char *copy = mem_strdup(path);
    int status = 0;

    for (char *slash = copy; !status && (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        status = file_mkdir(copy, err);
        *slash = '/';
    }
    free(copy);
    return status ? -1 : file_mkdir(path, err);
}

/* The first folder of the strongest kind that may be saved to; the site's only where it may be
 * written.
 */
static const char *save_folder(const struct folders *folders)
{
    struct err ignored = { 0 };
    const char *user = NULL;

    for (int i = 0; i < folders->n; i++) {
        const char *path = folders->list[i].path;

        switch (folders->list[i].whose) {
        case WHOSE_CHOSEN: return path;
        case WHOSE_USER: user = path; break;
        case WHOSE_SITE:
            return make_folder(path, &ignored) == 0 && access(path, W_OK) == 0 ? path : user;
        default: break;
        }
    }
    return user;
}

char *machine_save_path(const char *name, struct err *err)
{
    struct folders folders = all_folders();
    const char *folder = NULL;
    char *path = NULL;

    if (!is_good_name(name))
        err_set_code(err, EXIT_USAGE, "--save-machine \"%s\": a name is letters, digits, '-', "
                     "'_' and '.', which may not come first", name);
    else if (!(folder = save_folder(&folders)))
        err_set(err, "--save-machine: " SYSCONFDIR "/tasuki/machines cannot be written and "
                "there is no home: say -o FILE");
    else if (make_folder(folder, err) == 0)
        path = mem_printf("%s/%s" SUFFIX, folder, name);
    free_folders(&folders);
    return path;
}
