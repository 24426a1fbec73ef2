/* SPDX-License-Identifier: MIT */
#include "base/option_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static void print_value(const struct setting *setting, FILE *out)
{
    for (int i = 0; i < setting->n; i++)
        fprintf(out, "%s%s", i ? " " : "", setting->values[i]);
}

void options_print_settings(const struct options *options, FILE *out)
{
    const struct option_spec *spec;

    for (int i = 0; (spec = option_at(i)); i++) {
        const struct setting *setting = NULL;

        if (spec->line_only)
            continue;
        for (int s = 0; s < options->n_settings; s++)
            if (options->settings[s].spec == spec)
                setting = &options->settings[s];
        if (!setting && option_find((unsigned)COMMAND_ALL, spec->name) != spec)
            continue;
        fprintf(out, "%-20s ", spec->name);
        if (setting) {
            print_value(setting, out);
            fprintf(out, "    # %s\n", setting->where);
        } else {
            fputs("    # default\n", out);
        }
    }
}

void options_print_config(const struct options *options, FILE *out)
{
    if (options->n_operands)
        fprintf(out, "model = %s\n", options->operands[0]);
    for (int i = 0; i < options->n_settings; i++) {
        const struct setting *setting = &options->settings[i];

        if (setting->spec->line_only)
            continue;
        for (int v = 0; v < setting->n; v++)
            fprintf(out, "%s = %s\n", setting->spec->name, setting->values[v]);
    }
}

static bool is_plain(const char *word)
{
    return word[0] && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789_-+=:,./@%")] == '\0';
}

/* A quote ends the quoted text, stands for itself, and begins it anew. */
static void quote(const char *word, FILE *out)
{
    fputc('\'', out);
    for (; *word; word++)
        fprintf(out, *word == '\'' ? "'\\''" : "%c", *word);
    fputc('\'', out);
}

char *options_quote(const char *word)
{
    char *text = NULL;
    size_t size;
    FILE *out;

    if (is_plain(word) || !(out = open_memstream(&text, &size)))
        return mem_strdup(word);
    quote(word, out);
    fclose(out);
    return text;
}

char *options_command_line(int argc, char **argv)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return mem_strdup("tasuki");
    fputs("tasuki", out);
    for (int i = 0; i < argc; i++) {
        fputc(' ', out);
        if (is_plain(argv[i]))
            fputs(argv[i], out);
        else
            quote(argv[i], out);
    }
    fclose(out);
    return text;
}

/* "-o, --output FILE", "    --[no-]shuffle" */
static int usage(const struct option_spec *spec, char text[96])
{
    char letter[8] = "    ";

    if (spec->letter)
        snprintf(letter, sizeof(letter), "-%c, ", spec->letter);
    if (spec->argument)
        return snprintf(text, 96, "  %s--%s %s", letter, spec->name, spec->argument);
    return snprintf(text, 96, "  %s--%s%s", letter,
                    spec->line_only || spec->letter ? "" : "[no-]", spec->name);
}

void options_print_help(enum command_id command, const char *synopsis, FILE *out)
{
    const struct option_spec *spec;
    const int column = 32;
    char text[96];

    fprintf(out, "Usage: tasuki %s\n\n", synopsis);
    for (int i = 0; (spec = option_at(i)); i++) {
        if (!(spec->commands & (unsigned)command))
            continue;
        if (usage(spec, text) < column - 1)
            fprintf(out, "%-*s%s\n", column, text, spec->help);
        else
            fprintf(out, "%s\n%*s%s\n", text, column, "", spec->help);
    }
}
