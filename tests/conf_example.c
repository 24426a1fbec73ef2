/* SPDX-License-Identifier: MIT */
/* Prints etc/tasuki.conf.example: each setting of the option table that a file may hold, with
 * its commands and its help, commented out. tests/check-conf.sh holds the file to it.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/option.h"

static const struct {
    enum command_id command;
    const char *name;
} commands[] = {
    { COMMAND_TOPO, "topo" }, { COMMAND_INSPECT, "inspect" }, { COMMAND_PLAN, "plan" },
    { COMMAND_TRAIN, "train" }, { COMMAND_EXPORT, "export" }, { COMMAND_PROFILE, "profile" },
    { COMMAND_SIMULATE, "simulate" }, { COMMAND_INFO, "info" }, { COMMAND_IMPORT, "import" },
    { COMMAND_SUBMIT, "submit" }, { COMMAND_WATCH, "watch" },
};

enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static const char head[] =
    "# Settings of Tasuki: copy this file to tasuki.conf beside it for all users, or to\n"
    "# ~/.config/tasuki.conf for one, and take the # off what is to be another than the default.\n"
    "# Values are the defaults, or say what is expected. See tasuki.conf(5).\n";

static void print_commands(unsigned set)
{
    const char *between = "";

    if (set == (unsigned)COMMAND_ALL) {
        fputs("every command", stdout);
        return;
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        if (set & (unsigned)commands[i].command) {
            printf("%s%s", between, commands[i].name);
            between = ", ";
        }
    }
}

/* One of the words of "text|json". */
static int is_choice(const char *argument, const char *word, size_t length)
{
    const char *at = argument;

    while (at) {
        if (strncmp(at, word, length) == 0 && (at[length] == '|' || at[length] == '\0'))
            return 1;
        at = strchr(at, '|');
        at += at ? 1 : 0;
    }
    return 0;
}

/* What the help says the default is, where that is a value: "(default: 600; 0: never)". */
static int print_default(const struct option_spec *option)
{
    static const char word[] = "(default: ";
    const char *at = strstr(option->help, word);
    const char *argument = option->argument ? option->argument : "yes|no";
    size_t length;

    if (!at)
        return 0;
    at += strlen(word);
    length = strcspn(at, " ;:)");
    if (!isdigit((unsigned char)*at) && !is_choice(argument, at, length))
        return 0;
    printf("%.*s\n", (int)length, at);
    return 1;
}

static void print_value(const struct option_spec *option)
{
    printf("#%s = ", option->name);
    if (print_default(option))
        return;
    if (option->argument)
        puts(option->argument);
    else
        puts(strstr(option->help, "(default: ") ? "yes|no" : "no");
}

/* The first of its name that a file may hold. */
static int is_first(int index)
{
    const char *name = option_at(index)->name;

    for (int i = 0; i < index; i++)
        if (!option_at(i)->line_only && strcmp(option_at(i)->name, name) == 0)
            return 0;
    return 1;
}

static void print_setting(int index)
{
    const struct option_spec *first = option_at(index), *option;

    putchar('\n');
    for (int i = index; (option = option_at(i)); i++) {
        if (option->line_only || strcmp(option->name, first->name) != 0)
            continue;
        fputs("# ", stdout);
        print_commands(option->commands);
        printf(": %s\n", option->help);
    }
    print_value(first);
}

int main(void)
{
    const struct option_spec *option;

    fputs(head, stdout);
    for (int i = 0; (option = option_at(i)); i++)
        if (!option->line_only && is_first(i))
            print_setting(i);
    return 0;
}
