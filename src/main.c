/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/near.h"
#include "commands.h"
#include "comm/launch.h"

static const struct command *find_command(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static void print_help(FILE *out)
{
    fputs("Usage: tasuki COMMAND [OPTION]... [FILE]...\n"
          "Cut a neural network into a pipeline over an allocation, and train it.\n\n", out);
    for (const struct command *c = commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fputs("\n'tasuki COMMAND --help' shows the options of a command.\n", out);
}

static void unknown_command(const char *name, struct err *err)
{
    struct near near;

    near_start(&near, name);
    for (const struct command *c = commands; c->name; c++)
        near_try(&near, c->name);
    if (near.best)
        err_set_code(err, EXIT_USAGE, "no command \"%s\"; did you mean %s?", name, near.best);
    else
        err_set_code(err, EXIT_USAGE, "no command \"%s\"; 'tasuki --help' lists them", name);
}

/* --help answers even where the rest of the line is wrong. */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

/* What every command does alike; returns -1 where the command itself is to run. */
static int common_options(const struct command *command, int argc, char **argv,
                          struct err *err)
{
    struct options *options;
    int result = -1;

    if (asks_for_help(argc, argv)) {
        options_print_help(command->id, command->synopsis, stdout);
        return EXIT_OK;
    }
    options = options_parse(command->id, argc, argv, argc, err);
    if (!options)
        return (int)err->code;
    if (option_flag(options, "verbose", false))
        log_setup(LOG_DEBUG, -1);
    else if (option_flag(options, "quiet", false))
        log_setup(LOG_WARNING, -1);
    if (options_takes(options, "print-config") && option_flag(options, "print-config", false)) {
        options_print_config(options, stdout);
        result = EXIT_OK;
    }
    options_free(options);
    return result;
}

/* Wrong use is wrong on every rank: the first one says so. */
static void report(const struct err *err)
{
    if (!err->code || !err->text[0])
        return;
    if (err->code == EXIT_USAGE && !launch_first())
        launch_step_back();
    else
        log_say(LOG_ERROR, "%s", err->text);
}

static int run_command(const struct command *command, int argc, char **argv, struct err *err)
{
    int code = common_options(command, argc, argv, err);

    if (code < 0)
        code = command->run(argc, argv, err);
    report(err);
    /* A full disk behind a redirection shows only here. */
    if (code == EXIT_OK && fflush(stdout)) {
        log_say(LOG_ERROR, "standard output: %m");
        code = EXIT_FAILED;
    }
    return code;
}

/* Of standard files that are closed others would take the place; to use these still is an error. */
static void fill_standard_files(void)
{
    int fd;

    while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO)
        continue;
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    const struct command *command;

    fill_standard_files();
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? EXIT_USAGE : EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("tasuki " PACKAGE_VERSION);
        return EXIT_OK;
    }
    command = find_command(argv[1]);
    if (!command) {
        unknown_command(argv[1], &err);
        report(&err);
        return EXIT_USAGE;
    }
    return run_command(command, argc - 1, argv + 1, &err);
}
