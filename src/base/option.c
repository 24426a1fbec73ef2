/* SPDX-License-Identifier: MIT */
#include "base/option_private.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/config_file.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/near.h"

const struct option_spec *option_find(unsigned command, const char *name)
{
    const struct option_spec *spec;

    for (int i = 0; (spec = option_at(i)); i++)
        if ((spec->commands & command) && strcmp(spec->name, name) == 0)
            return spec;
    return NULL;
}

static const struct option_spec *find_letter(unsigned command, char letter)
{
    const struct option_spec *spec;

    for (int i = 0; (spec = option_at(i)); i++)
        if ((spec->commands & command) && spec->letter == letter)
            return spec;
    return NULL;
}

void option_variable(const char *name, char variable[64])
{
    size_t n = (size_t)snprintf(variable, 64, "TASUKI_%s", name);

    assert(n < 64);
    for (; *variable; variable++)
        *variable = *variable == '-' ? '_' : (char)toupper((unsigned char)*variable);
}

const struct setting *option_setting(const struct options *options, const char *name)
{
    const struct option_spec *spec = option_find(options->command, name);

    assert(spec);
    for (int i = 0; i < options->n_settings; i++)
        if (options->settings[i].spec == spec)
            return &options->settings[i];
    return NULL;
}

static struct setting *setting_of(struct options *options, const struct option_spec *spec)
{
    struct setting *setting;

    for (int i = 0; i < options->n_settings; i++)
        if (options->settings[i].spec == spec)
            return &options->settings[i];
    setting = mem_push((void **)&options->settings, &options->n_settings, sizeof(*setting));
    setting->spec = spec;
    return setting;
}

static void setting_clear(struct setting *setting)
{
    for (int i = 0; i < setting->n; i++)
        free((char *)setting->values[i]);
    free(setting->values);
    free(setting->where);
    setting->values = NULL;
    setting->where = NULL;
    setting->n = 0;
}

/* What else may not be empty is refused by who reads it. */
static bool is_path(const struct option_spec *spec)
{
    return spec->argument &&
           (strstr(spec->argument, "FILE") || strcmp(spec->argument, "DIR") == 0);
}

/* A stronger origin replaces what a weaker one said; the same one adds or replaces. */
static int store(struct options *options, const struct option_spec *spec,
                 enum option_origin origin, const char *where, const char *value,
                 struct err *err)
{
    struct setting *setting;

    if (!value[0] && is_path(spec))
        return err_set_code(err, EXIT_USAGE, "%s: expected %s, got \"\"", where,
                            spec->argument);
    setting = setting_of(options, spec);
    if (setting->origin > origin)
        return 0;
    if (setting->origin < origin || !spec->many)
        setting_clear(setting);
    free(setting->where);
    setting->where = mem_strdup(where);
    setting->origin = origin;
    *(char **)mem_push((void **)&setting->values, &setting->n, sizeof(char *)) =
        mem_strdup(value);
    return 0;
}

static const char *flag_value(const char *text)
{
    static const char *const yes[] = { "yes", "true", "on", "1" };
    static const char *const no[] = { "no", "false", "off", "0" };

    for (size_t i = 0; i < 4; i++) {
        if (strcmp(text, yes[i]) == 0)
            return "yes";
        if (strcmp(text, no[i]) == 0)
            return "no";
    }
    return NULL;
}

/* A value from the environment or a file: flags are words there. */
static int store_text(struct options *options, const struct option_spec *spec,
                      enum option_origin origin, const char *where, const char *value,
                      struct err *err)
{
    const char *word = spec->argument ? value : flag_value(value);

    if (!word)
        return err_set_code(err, EXIT_USAGE, "%s: expected yes or no, got \"%s\"", where,
                            value);
    return store(options, spec, origin, where, word, err);
}

static int unknown_option(unsigned command, const char *where, const char *name,
                          struct err *err)
{
    const struct option_spec *spec;
    struct near near;
    const char *dashes = where[0] ? "" : "--";

    near_start(&near, strncmp(name, "no-", 3) == 0 ? name + 3 : name);
    for (int i = 0; (spec = option_at(i)); i++)
        if (spec->commands & command)
            near_try(&near, spec->name);
    if (!near.best)
        return err_set_code(err, EXIT_USAGE, "%sunknown option %s%s", where, dashes, name);
    return err_set_code(err, EXIT_USAGE, "%sunknown option %s%s; did you mean %s%s?", where,
                        dashes, name, dashes, near.best);
}

/* 'info' shows the settings of all commands. */
static unsigned scope(const struct options *options)
{
    return (unsigned)(options->command == COMMAND_INFO ? COMMAND_ALL : options->command);
}

static int read_environment(struct options *options, struct err *err)
{
    const struct option_spec *spec;
    char variable[64];

    for (int i = 0; (spec = option_at(i)); i++) {
        const char *value;

        if (spec->line_only || !(spec->commands & scope(options)))
            continue;
        option_variable(spec->name, variable);
        value = getenv(variable);
        if (value && store_text(options, spec, OPTION_ENVIRONMENT, variable, value, err))
            return -1;
    }
    return 0;
}

struct file_reading {
    struct options *options;
    enum option_origin origin;
};

static int take_line(void *user, const char *path, int line, const char *key,
                     const char *value, struct err *err)
{
    struct file_reading *reading = user;
    struct options *options = reading->options;
    const struct option_spec *spec = option_find(scope(options), key);
    char *where = mem_printf("%s:%d: %s", path, line, key);
    int result = 0;

    if (reading->origin == OPTION_JOB_FILE && strcmp(key, "model") == 0) {
        if (options->n_operands == 0)
            *(char **)mem_push((void **)&options->operands, &options->n_operands,
                               sizeof(char *)) = mem_strdup(value);
    } else if (spec && !spec->line_only) {
        result = store_text(options, spec, reading->origin, where, value, err);
    } else if (!spec && option_find((unsigned)COMMAND_ALL, key)) {
        result = 0; /* another command's */
    } else {
        where[strlen(where) - strlen(key)] = '\0';
        result = unknown_option((unsigned)COMMAND_ALL, where, key, err);
    }
    free(where);
    return result;
}

/* Files hold settings of all commands; job files, too, since a plan's serves train. */
static int read_files(struct options *options, struct err *err)
{
    struct file_reading site = { options, OPTION_SITE_FILE };
    struct file_reading user = { options, OPTION_USER_FILE };
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    char *path = module_installed(SYSCONFDIR "/tasuki/tasuki.conf");
    int result = config_file_read(path, take_line, &site, err);

    free(path);
    path = NULL;
    if (result < 0)
        return -1;
    if (config && config[0])
        path = mem_printf("%s/tasuki.conf", config);
    else if (home && home[0])
        path = mem_printf("%s/.config/tasuki.conf", home);
    if (path)
        result = config_file_read(path, take_line, &user, err);
    free(path);
    return result < 0 ? -1 : 0;
}

/* Puts the job file's model in the place of operand 0. */
static int read_job_file(struct options *options, struct err *err)
{
    struct file_reading job = { options, OPTION_JOB_FILE };
    const char *path = options->n_operands ? options->operands[0] : "";
    size_t length = strlen(path);
    int result;

    if (!(options->command & (COMMAND_INSPECT | COMMAND_PLAN | COMMAND_TRAIN |
                              COMMAND_PROFILE | COMMAND_SUBMIT)) ||
        length < 6 || strcmp(path + length - 5, ".conf") != 0)
        return 0;
    if (options->n_operands > 1)
        return err_set_code(err, EXIT_USAGE, "unexpected operand \"%s\" beside the job file %s",
                            options->operands[1], path);
    options->n_operands = 0;
    result = config_file_read(path, take_line, &job, err);
    if (result > 0)
        err_set(err, "%s: no such file", path);
    else if (result == 0 && options->n_operands == 0 && !option_given(options, "cost"))
        result = err_set_code(err, EXIT_USAGE, "%s: no \"model = FILE\" in it", path);
    free((char *)path);
    return result ? -1 : 0;
}

/* One long option at argv[*i]; '*i' moves over a separate argument. */
static int take_long(struct options *options, int argc, char **argv, int *i, struct err *err)
{
    const char *text = argv[*i] + 2, *equals = strchr(text, '=');
    char *name = equals ? strndup(text, (size_t)(equals - text)) : mem_strdup(text);
    const struct option_spec *spec = option_find(options->command, name);
    const char *value = equals ? equals + 1 : NULL;
    char where[80];
    int result = 0;

    if (!spec && strncmp(name, "no-", 3) == 0) {
        spec = option_find(options->command, name + 3);
        if (spec && (spec->argument || value))
            spec = NULL;
        value = "no";
    }
    if (!spec) {
        result = unknown_option(options->command, "", name, err);
    } else if (!spec->argument && equals) {
        result = err_set_code(err, EXIT_USAGE, "--%s: takes no argument", name);
    } else {
        snprintf(where, sizeof(where), "--%s", spec->name);
        if (!spec->argument && !value)
            value = "yes";
        if (!value && *i + 1 < argc && !(spec->plain && argv[*i + 1][0] == '-'))
            value = argv[++*i];
        value = value ? value : spec->plain;
        if (value)
            result = store(options, spec, OPTION_COMMAND_LINE, where, value, err);
        else
            result = err_set_code(err, EXIT_USAGE, "--%s: expected %s", name, spec->argument);
    }
    free(name);
    return result;
}

/* A cluster of letters, of which the last may have an argument. */
static int take_letters(struct options *options, int argc, char **argv, int *i,
                        struct err *err)
{
    char where[80];

    for (const char *c = argv[*i] + 1; *c; c++) {
        const struct option_spec *spec = find_letter(options->command, *c);
        const char *value = "yes";

        if (!spec)
            return err_set_code(err, EXIT_USAGE, "unknown option -%c", *c);
        snprintf(where, sizeof(where), "--%s", spec->name);
        if (spec->argument)
            value = c[1] ? c + 1 : *i + 1 < argc ? argv[++*i] : NULL;
        if (!value)
            return err_set_code(err, EXIT_USAGE, "-%c: expected %s", *c, spec->argument);
        if (store(options, spec, OPTION_COMMAND_LINE, where, value, err))
            return -1;
        if (spec->argument)
            break;
    }
    return 0;
}

static int take_operand(struct options *options, const char *text, int max, struct err *err)
{
    if (options->n_operands >= max)
        return err_set_code(err, EXIT_USAGE, "unexpected operand \"%s\"", text);
    *(char **)mem_push((void **)&options->operands, &options->n_operands, sizeof(char *)) =
        mem_strdup(text);
    return 0;
}

static int read_command_line(struct options *options, int argc, char **argv, int max,
                             struct err *err)
{
    bool only_operands = false;

    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        int result;

        if (!only_operands && strcmp(text, "--") == 0) {
            if (options->command == COMMAND_SUBMIT) {
                options->n_rest = argc - i - 1;
                options->rest = argv + i + 1;
                break;
            }
            only_operands = true;
            continue;
        }
        if (only_operands || text[0] != '-' || text[1] == '\0')
            result = take_operand(options, text, max, err);
        else if (text[1] == '-')
            result = take_long(options, argc, argv, &i, err);
        else
            result = take_letters(options, argc, argv, &i, err);
        if (result)
            return -1;
    }
    return 0;
}

struct options *options_parse(enum command_id command, int argc, char **argv,
                              int max_operands, struct err *err)
{
    struct options *options = mem_new(1, sizeof(*options));

    options->command = command;
    if (read_command_line(options, argc, argv, max_operands, err) ||
        read_job_file(options, err) || read_environment(options, err) ||
        read_files(options, err)) {
        options_free(options);
        return NULL;
    }
    return options;
}

void options_free(struct options *options)
{
    if (!options)
        return;
    for (int i = 0; i < options->n_settings; i++)
        setting_clear(&options->settings[i]);
    for (int i = 0; i < options->n_operands; i++)
        free((char *)options->operands[i]);
    free(options->settings);
    free(options->operands);
    free(options);
}

int options_operands(const struct options *options)
{
    return options->n_operands;
}

const char *options_operand(const struct options *options, int index)
{
    return index >= 0 && index < options->n_operands ? options->operands[index] : NULL;
}

int options_rest(const struct options *options, char *const **words)
{
    *words = options->rest;
    return options->n_rest;
}

void options_set(struct options *options, const char *name, const char *value)
{
    const struct option_spec *spec = option_find((unsigned)options->command, name);
    char *where = mem_printf("--%s", name);

    options_forget(options, name);
    store(options, spec, OPTION_COMMAND_LINE, where, value, NULL);
    free(where);
}

void options_forget(struct options *options, const char *name)
{
    const struct option_spec *spec = option_find((unsigned)options->command, name);

    for (int i = 0; i < options->n_settings; i++)
        if (options->settings[i].spec == spec) {
            setting_clear(&options->settings[i]);
            options->settings[i] = options->settings[--options->n_settings];
            return;
        }
}
