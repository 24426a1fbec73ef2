/* SPDX-License-Identifier: MIT */
#include "base/module.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

struct directories {
    int n;
    char *path[2];
};

char *module_program_folder(void)
{
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

    if (length <= 0)
        return NULL;
    program[length] = '\0';
    return mem_strdup(dirname(program));
}

/* The length of the leading folders that two paths share: 4 of "/usr/bin" and "/usr/lib". */
static size_t shared_folders(const char *a, const char *b)
{
    size_t shared = 0;

    for (size_t i = 0;; i++) {
        if ((!a[i] || a[i] == '/') && (!b[i] || b[i] == '/'))
            shared = i;
        if (a[i] != b[i] || !a[i])
            return shared;
    }
}

char *module_moved(const char *folder, const char *bindir, const char *compiled)
{
    size_t shared = shared_folders(bindir, compiled);
    const char *below = bindir + shared;
    size_t length = strlen(folder), n = strlen(below);

    if (length < n || strcmp(folder + length - n, below) != 0)
        return mem_strdup(compiled);
    return mem_printf("%.*s%s", (int)(length - n), folder, compiled + shared);
}

char *module_installed(const char *compiled)
{
    char *program = module_program_folder();
    char *path = program ? module_moved(program, BINDIR, compiled) : mem_strdup(compiled);

    free(program);
    return path;
}

char *module_file(const char *in_tree, const char *compiled)
{
    char *folder = module_program_folder();
    char *path = folder ? mem_printf("%s/%s", folder, in_tree) : NULL;

    free(folder);
    if (path && access(path, R_OK) == 0)
        return path;
    free(path);
    return module_installed(compiled);
}

static struct directories directories(void)
{
    const char *chosen = getenv("TASUKI_PKGLIBDIR");
    struct directories list = { 0 };
    char *program;

    if (chosen && chosen[0]) {
        list.path[list.n++] = mem_strdup(chosen);
        return list;
    }
    program = module_program_folder();
    if (program)
        list.path[list.n++] = mem_printf("%s/.libs", program);
    free(program);
    list.path[list.n++] = module_installed(PKGLIBDIR);
    return list;
}

static void free_directories(struct directories *list)
{
    for (int i = 0; i < list->n; i++)
        free(list->path[i]);
}

static char *find_in(const struct directories *list, const char *name)
{
    for (int i = 0; i < list->n; i++) {
        char *path = mem_printf("%s/tasuki-%s.so", list->path[i], name);

        if (access(path, R_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

char *module_find(const char *name)
{
    struct directories list = directories();
    char *path = find_in(&list, name);

    free_directories(&list);
    return path;
}

static void missing(const struct directories *list, const char *name, struct err *err)
{
    err_set(err, "tasuki-%s.so is not installed (looked in %s%s%s); "
            "Tasuki was built without it, or it belongs to a package of its own",
            name, list->path[0], list->n > 1 ? " and " : "", list->n > 1 ? list->path[1] : "");
}

void *module_open(const char *name, struct err *err)
{
    struct directories list = directories();
    char *path = find_in(&list, name);
    void *module = NULL;

    if (!path)
        missing(&list, name, err);
    else if (!(module = dlopen(path, RTLD_NOW | RTLD_LOCAL)))
        err_set(err, "%s: cannot be loaded: %s", path, dlerror());
    free(path);
    free_directories(&list);
    return module;
}

void *module_symbol(void *module, const char *symbol, struct err *err)
{
    void *address = dlsym(module, symbol);

    if (!address)
        err_set(err, "module has no %s: it belongs to another version of Tasuki", symbol);
    return address;
}
