/* SPDX-License-Identifier: MIT */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "commands.h"

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

int main(int argc, char **argv)
{
    struct err err = { 0 };
    const struct command *command;
    int code;

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
        log_say(LOG_ERROR, "no command \"%s\"; 'tasuki --help' lists them", argv[1]);
        return EXIT_USAGE;
    }
    code = command->run(argc - 1, argv + 1, &err);
    if (err.code && err.text[0])
        log_say(LOG_ERROR, "%s", err.text);
    return code;
}
