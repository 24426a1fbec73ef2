/* SPDX-License-Identifier: MIT */
/* tasuki info: version, what was built in, modules found; --settings. */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/module.h"
#include "commands.h"
#include "kernels/backend.h"

struct feature {
    const char *name;
    bool present;
    const char *without;    /* what it costs to be without */
};

static const struct feature features[] = {
#ifdef HAVE_HWLOC
    { "hwloc", true, NULL },
#else
    { "hwloc", false, "nodes are CPUs and memory only" },
#endif
#ifdef HAVE_DNNL
    { "oneDNN", true, NULL },
#else
    { "oneDNN", false, "reference kernels only" },
#endif
#ifdef _OPENMP
    { "OpenMP", true, NULL },
#else
    { "OpenMP", false, "one thread per rank" },
#endif
#ifdef HAVE_INIH
    { "inih", true, NULL },
#else
    { "inih", false, "no configuration files" },
#endif
#ifdef HAVE_ARCHIVE
    { "libarchive", true, NULL },
#else
    { "libarchive", false, "no pictures in tar archives as data" },
#endif
#ifdef HAVE_JPEG
    { "libjpeg", true, NULL },
#else
    { "libjpeg", false, "no pictures in tar archives as data" },
#endif
#ifdef HAVE_XXHASH
    { "xxHash", true, NULL },
#else
    { "xxHash", false, "a changed model is not noticed" },
#endif
};

static const struct {
    const char *name, *without;
} modules[] = {
    { "mpi", "one process only" },
    { "slurm", "Slurm is known by its environment alone" },
    { "cuda", "no GPUs" },
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* "model name : …" of the first CPU; Arm kernels print numbers only. */
static void cpu_name(char name[128])
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    snprintf(name, 128, "unknown CPU");
    while (file && fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(name, 128, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file)
        fclose(file);
}

static const char *const backends[] = { "cpu", "cuda", "reference" };

/* What a backend calls its device; malloc'ed, NULL where this build lacks the backend. */
static char *device_of(const char *name, struct err *err)
{
    const struct backend *backend = backend_find(name);
    struct device *device = backend ? backend->device_open(0, NULL, err) : NULL;
    char *text = device ? mem_strdup(backend->device_name(device)) : NULL;

    if (device)
        backend->device_close(device);
    return text;
}

static void print_text(void)
{
    char cpu[128], *settings;

    cpu_name(cpu);
    printf("tasuki %s\n\n", PACKAGE_VERSION);
    printf("%-10s %s, %ld CPUs online\n", "machine", cpu, sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; i < COUNT(backends); i++) {
        struct err err = { .text = "this build lacks it" };
        char *device = device_of(backends[i], &err);

        printf("%-10s %s%s\n", backends[i], device ? "" : "no: ", device ? device : err.text);
        free(device);
    }
    for (size_t i = 0; i < COUNT(features); i++)
        printf("%-10s %s%s\n", features[i].name, features[i].present ? "built in" : "no: ",
               features[i].present ? "" : features[i].without);
    for (size_t i = 0; i < COUNT(modules); i++) {
        char *path = module_find(modules[i].name);

        printf("%-10s %s%s\n", modules[i].name, path ? path : "no module: ",
               path ? "" : modules[i].without);
        free(path);
    }
    settings = module_installed(SYSCONFDIR "/tasuki/tasuki.conf");
    printf("%-10s %s\n", "settings", settings);
    free(settings);
}

static int print_json(struct err *err)
{
    json_t *built = json_object(), *found = json_object(), *devices = json_object();
    json_t *missing = json_object(), *top;
    char cpu[128], *text, *sysconfdir = module_installed(SYSCONFDIR);

    cpu_name(cpu);
    for (size_t i = 0; i < COUNT(backends); i++) {
        struct err why = { .text = "this build lacks it" };
        char *device = device_of(backends[i], &why);

        json_object_set_new(devices, backends[i], device ? json_string(device) : json_null());
        if (!device)
            json_object_set_new(missing, backends[i], json_string(why.text));
        free(device);
    }
    for (size_t i = 0; i < COUNT(features); i++)
        json_object_set_new(built, features[i].name, json_boolean(features[i].present));
    for (size_t i = 0; i < COUNT(modules); i++) {
        char *path = module_find(modules[i].name);

        json_object_set_new(found, modules[i].name, path ? json_string(path) : json_null());
        free(path);
    }
    top = json_pack("{s:s, s:i, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:s}", "schema", "tasuki-info",
                    "version", 1, "tasuki", PACKAGE_VERSION, "cpu", cpu, "cpus",
                    (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "backends", devices, "missing", missing,
                    "features", built, "modules", found, "sysconfdir", sysconfdir);
    free(sysconfdir);
    text = top ? json_dumps(top, JSON_INDENT(2)) : NULL;
    json_decref(top);
    if (!text)
        return err_set(err, "the report cannot be written as JSON");
    puts(text);
    free(text);
    return 0;
}

int cmd_info(int argc, char **argv, struct err *err)
{
    struct options *options = options_parse(COMMAND_INFO, argc, argv, 0, err);
    int format, result = 0;

    if (!options)
        return (int)err->code;
    if (option_word(options, "format", &format, err))
        result = -1;
    else if (option_flag(options, "settings", false))
        options_print_settings(options, stdout);
    else if (format == 0)
        print_text();
    else
        result = print_json(err);
    options_free(options);
    return result ? (int)err->code : EXIT_OK;
}
