/* SPDX-License-Identifier: MIT */
/* Commands and their options, from one table.
 *
 * The table (option_table.c) has every option once, with the commands that take it; --help,
 * the shell completion and the man-page check are made from it. A setting's value comes from,
 * in this order: the option, the environment (TASUKI_GLOBAL_BATCH for --global-batch), the
 * user's file (~/.config/tasuki.conf), $(sysconfdir)/tasuki/tasuki.conf, the default.
 */
#ifndef TASUKI_BASE_OPTION_H
#define TASUKI_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct err;

enum command_id {
    COMMAND_TOPO = 1 << 0,
    COMMAND_INSPECT = 1 << 1,
    COMMAND_PLAN = 1 << 2,
    COMMAND_TRAIN = 1 << 3,
    COMMAND_EXPORT = 1 << 4,
    COMMAND_PROFILE = 1 << 5,
    COMMAND_SIMULATE = 1 << 6,
    COMMAND_INFO = 1 << 7,
    COMMAND_ALL = ~0
};

struct option_spec {
    const char *name;       /* "global-batch": --global-batch, TASUKI_GLOBAL_BATCH */
    char letter;            /* 'o': -o; 0: none */
    const char *argument;   /* "N", "FILE", "text|json"; NULL: a flag (--name, --no-name) */
    unsigned commands;
    const char *help;       /* one line */
    bool file_only;         /* not taken from environment or files (-o, --dry-run, …) */
};
/* The table; NULL past the end. */
const struct option_spec *option_at(int index);

/* What a command line said, completed by environment and files. */
struct options;
/* argv[0] is the command's name. Unknown options, missing arguments and more than
 * 'max_operands' operands are EXIT_USAGE errors that name the nearest known option.
 */
struct options *options_parse(enum command_id command, int argc, char **argv,
                              int max_operands, struct err *err);
void options_free(struct options *options);
int options_operands(const struct options *options);
const char *options_operand(const struct options *options, int index);

/* Values; asking for an option that the command's table lacks is a bug (assert). */
bool option_given(const struct options *options, const char *name);
bool option_flag(const struct options *options, const char *name, bool def);
const char *option_string(const struct options *options, const char *name, const char *def);
/* Strict numbers; an error is "--lr: expected …, got …" (or the file and line, or the
 * variable, that it came from) with EXIT_USAGE. Sizes take K, M, G, T (1024) and KB … (1000).
 */
int option_int(const struct options *options, const char *name, int64_t min, int64_t max,
               int64_t def, int64_t *value, struct err *err);
int option_number(const struct options *options, const char *name, double min, double max,
                  double def, double *value, struct err *err);
int option_size(const struct options *options, const char *name, double def, double *value,
                struct err *err);
/* "2,1" → {2, 1}; *values is malloc'ed, NULL with n 0 where not given. */
int option_ints(const struct options *options, const char *name, int64_t min, int64_t max,
                int *n, int **values, struct err *err);
/* One of the words of the option's argument ("text|json"); the first is the default. */
int option_word(const struct options *options, const char *name, int *index, struct err *err);

void options_print_settings(const struct options *options, FILE *out);  /* --settings */
void options_print_help(enum command_id command, const char *synopsis, FILE *out);

#endif
